/* The rule by which a budget's epsilon is read, and what it rests on. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "budget_epsilon.h"

#include "privacy/gaussian.h"
#include "privacy/noise.h"
#include "privacy/pld.h"
#include "privacy/pld_memo.h"

#include <math.h>
#include <pthread.h>
#include <string.h>

#define OK(call) assert_int_equal(call, TACIT_OK)
#define DELTA 1e-5

static double times_of(const tacit_budget *b, uint32_t times)
{
    double epsilon;
    tacit_error err;
    OK(tacit_budget_epsilon_times(b, times, &epsilon, &err));
    return epsilon;
}

/* One schedule of these events, a noise value a step. */
static tacit_budget schedule_of(const tacit_event *events, size_t n)
{
    tacit_budget b;
    tacit_error err;
    tacit_budget_open(&b, 8, DELTA);
    for (size_t i = 0; i < n; i++)
        OK(tacit_budget_add(&b, &events[i], 1, i == 0, &err));
    return b;
}

/* Plain Gaussian, q = 1: rho(order) = order k / (2 z^2) in closed form, converted by hand. */
static double gaussian_at(double order, double z, unsigned k, double delta)
{
    return order * k / (2 * z * z) + log1p(-1 / order) - log(delta * order) / (order - 1);
}

static double gaussian_least(double z, unsigned k, double delta)
{
    double least = INFINITY;
    for (size_t i = 0; i < TACIT_RDP_ORDERS; i++)
        least = fmin(least, gaussian_at(tacit_rdp_orders[i], z, k, delta));
    return least;
}

static void test_one_schedule_may_choose_its_order_and_two_may_not(void **state)
{
    (void)state;
    tacit_error err;
    tacit_budget b;
    const tacit_event event = {TACIT_ADD_REMOVE, 5, 1, 1};
    tacit_budget_open(&b, 8, DELTA);
    double order = tacit_rdp_orders[b.filter_order];
    assert_true(budget_epsilon(&b) == 0);
    for (unsigned k = 1; k <= 4; k++) {
        assert_int_equal(tacit_budget_add(&b, &event, 1, k == 1, &err), TACIT_OK);
        assert_true(fabs(budget_epsilon(&b) - tacit_gaussian_epsilon(1e-5, sqrt(k) / 5)) < 1e-9);
        assert_true(budget_epsilon(&b) < gaussian_least(5, k, 1e-5));
    }
    assert_int_equal(tacit_budget_add(&b, &event, 1, true, &err), TACIT_OK);
    assert_true(fabs(budget_epsilon(&b) - gaussian_at(order, 5, 5, 1e-5)) < 1e-7);
    assert_true(budget_epsilon(&b) > gaussian_least(5, 5, 1e-5) + 1e-3);
    /* A group of three copies costs three times rho. */
    assert_true(fabs(times_of(&b, 3) - gaussian_at(order, 5, 15, 1e-5)) < 1e-7);
    tacit_budget back;
    uint8_t stored[TACIT_BUDGET_BYTES];
    tacit_budget_write(&b, stored);
    assert_int_equal(tacit_budget_read(&back, stored, sizeof stored, &err), TACIT_OK);
    assert_true(budget_epsilon(&back) == budget_epsilon(&b));
    assert_int_equal(tacit_budget_read(&back, stored, sizeof stored - 1, &err), TACIT_BAD_INPUT);
    b.lost = true;
    assert_true(isinf(budget_epsilon(&b)));
}

static void test_the_sampler_takes_its_share_of_delta(void **state)
{
    (void)state;
    tacit_error err;
    tacit_budget few, many;
    const tacit_event event = {TACIT_ADD_REMOVE, 5, 1, 1};
    tacit_budget_open(&few, 8, 1e-5);
    tacit_budget_open(&many, 8, 1e-5);
    assert_int_equal(tacit_budget_add(&few, &event, 1, true, &err), TACIT_OK);
    assert_int_equal(tacit_budget_add(&many, &event, 1ull << 60, true, &err), TACIT_OK);
    /* 2^60 values of total variation 2^-80 take (1 + e^epsilon) 2^-20 of delta: epsilon covers its
     * own share, and nothing smaller does. */
    double epsilon = budget_epsilon(&many);
    double left = 1e-5 - (1 + exp(epsilon)) * 0x1p-20;
    assert_true(left > 0 && left < 0.8e-5);
    assert_true(fabs(epsilon - tacit_gaussian_epsilon(left, 0.2)) < 1e-8);
    double less = epsilon - 1e-6;
    assert_true(tacit_gaussian_epsilon(1e-5 - (1 + exp(less)) * 0x1p-20, 0.2) > less);
    assert_true(epsilon > budget_epsilon(&few));
    /* Where e^epsilon is large no epsilon may cover a share that 2 tau alone would leave room for.
     */
    const tacit_event strong = {TACIT_ADD_REMOVE, 0.5, 1, 1};
    tacit_budget_open(&few, 20, 1e-5);
    assert_int_equal(tacit_budget_add(&few, &strong, 1ull << 60, true, &err), TACIT_OK);
    assert_true(isinf(budget_epsilon(&few)));
    assert_int_equal(tacit_budget_add(&many, &event, 1ull << 63, false, &err), TACIT_OK);
    assert_true(isinf(budget_epsilon(&many)));
    assert_int_equal(tacit_budget_add(&many, &event, UINT64_MAX, false, &err), TACIT_REFUSED);
}

/* Copies are added up exactly, and a policy that states four billion of them ends. Both are read at
 * the fixed order, where nothing else is computed. */
static void test_copies_of_an_account(void **state)
{
    (void)state;
    static const uint32_t times[] = {1, 2, 3, 7, 64, 1000, 65535};
    tacit_error err;
    tacit_budget b, naive;
    double copies, sum;
    const tacit_event event = {TACIT_ADD_REMOVE, 300, 0.1, 5};
    tacit_budget_open(&b, 8, 1e-5);
    OK(tacit_budget_add(&b, &event, 1, true, &err));
    b.schedules = 2;
    naive = b;
    for (uint32_t i = 0, n = 1; i < sizeof times / sizeof times[0]; i++) {
        for (; n < times[i]; n++)
            OK(tacit_budget_join(&naive, &b, &err));
        naive.schedules = 2;
        OK(tacit_budget_epsilon_times(&b, times[i], &copies, &err));
        OK(tacit_budget_epsilon(&naive, &sum, &err));
        assert_true(copies == sum);
    }
    OK(tacit_budget_epsilon_times(&b, UINT32_MAX, &copies, &err));
    assert_true(copies > sum);
}

static void test_unprotected_events_do_not_touch_the_number(void **state)
{
    (void)state;
    tacit_budget b;
    tacit_budget_open(&b, 8, 1e-5);
    tacit_budget_add_unprotected(&b);
    assert_true(budget_epsilon(&b) == 0);
    assert_int_equal(b.unprotected, 1);
}

static void test_a_schedule_is_read_by_its_loss_distribution(void **state)
{
    (void)state;
    tacit_error err;
    double pld;
    tacit_event event = {TACIT_ADD_REMOVE, 1.1, 0.05, 1000};
    tacit_budget b = schedule_of(&event, 1);
    double epsilon = budget_epsilon(&b);
    OK(tacit_pld_epsilon(&event, 1, DELTA, NULL, &pld, &err));
    assert_true(epsilon > pld && is_cost_of(epsilon, event, DELTA));
    assert_true(epsilon < 0.95 * tacit_rdp_epsilon(&b.spent, DELTA, NULL));
    /* Twice the devices of a subject are twice the steps. */
    tacit_event twice = event;
    twice.count *= 2;
    tacit_budget two = schedule_of(&twice, 1);
    assert_true(tacit_budget_same(times_of(&b, 2), budget_epsilon(&two)));
}

static tacit_event nth_event(unsigned i)
{
    return (tacit_event){TACIT_ADD_REMOVE, 2 + 0.125 * i, i % 2 ? 1 : 0.25, 1 + i};
}

/* As many distinct events as are kept are read by their distribution, one more by RDP; and what an
 * account amounts to does not depend on the order in which it came about. */
static void test_many_distinct_events_are_read_by_orders(void **state)
{
    (void)state;
    tacit_error err;
    tacit_budget up, down, halves[2];
    for (unsigned n = TACIT_EVENT_LIST_MAX; n <= TACIT_EVENT_LIST_MAX + 1; n++) {
        tacit_budget_open(&up, 8, DELTA);
        down = halves[0] = halves[1] = up;
        for (unsigned i = 0; i < n; i++) {
            tacit_event rising = nth_event(i), falling = nth_event(n - 1 - i);
            OK(tacit_budget_add(&up, &rising, 1, i == 0, &err));
            OK(tacit_budget_add(&down, &falling, 1, i == 0, &err));
            OK(tacit_budget_add(&halves[i % 2], &rising, 1, i == 0, &err));
        }
        OK(tacit_budget_join(&halves[0], &halves[1], &err));
        bool kept = n == TACIT_EVENT_LIST_MAX;
        double rdp = tacit_rdp_epsilon(&up.spent, DELTA, NULL), epsilon = budget_epsilon(&up);
        assert_true(kept ? epsilon < 0.97 * rdp : epsilon >= rdp);
        assert_true(up.events.too_many == !kept);
        assert_true(tacit_event_list_equal(&up.events, &down.events));
        assert_true(tacit_event_list_equal(&up.events, &halves[0].events));
        assert_true(epsilon == budget_epsilon(&down) && epsilon == budget_epsilon(&halves[0]));
        /* What was forgotten stays so. */
        OK(tacit_budget_join(&down, &up, &err));
        down.schedules = 1;
        assert_true(down.events.too_many == !kept);
        assert_true(budget_epsilon(&down) == times_of(&up, 2));
    }
}

/* Event counts beyond what an accountant takes are no smaller price: RDP's stays. */
static void test_counts_beyond_the_accountants(void **state)
{
    (void)state;
    tacit_event event = {TACIT_ADD_REMOVE, 1e7, 1, (uint64_t)1 << 40};
    tacit_budget b = schedule_of(&event, 1);
    double once = budget_epsilon(&b);
    assert_true(once < tacit_rdp_epsilon(&b.spent, DELTA, NULL));
    double twice = times_of(&b, 2);
    assert_true(twice > once && isfinite(twice));
    tacit_rdp two = b.spent;
    tacit_rdp_join(&two, &b.spent);
    assert_true(twice >= tacit_rdp_epsilon(&two, DELTA, NULL));
    /* Beyond 64 bits nothing is kept. */
    tacit_event_list list = b.events;
    list.item[0].count = UINT64_MAX;
    tacit_event_list_add(&list, &event);
    assert_true(list.too_many && list.n == 0);
    list = b.events;
    list.item[0].count = UINT64_MAX / 2;
    tacit_event_list_repeat(&list, 3);
    assert_true(list.too_many);
}

static void test_stored_budgets_are_checked(void **state)
{
    (void)state;
    tacit_error err;
    tacit_budget back;
    uint8_t good[TACIT_BUDGET_BYTES], bad[TACIT_BUDGET_BYTES];
    const tacit_event events[] = {{TACIT_ADD_REMOVE, 2, 0.5, 7}, {TACIT_ADD_REMOVE, 3, 0.5, 1}};
    tacit_budget b = schedule_of(events, 2);
    tacit_budget_write(&b, good);
    OK(tacit_budget_read(&back, good, sizeof good, &err));
    assert_true(tacit_event_list_equal(&b.events, &back.events));
    assert_true(budget_epsilon(&back) == budget_epsilon(&b));
    const size_t list = sizeof good - TACIT_EVENT_LIST_BYTES, second = list + 4 + 28;
    const struct {
        size_t at;
        uint8_t value;
    } changes[] = {
        {list, 1},
        {list, 3},
        {list, 17},
        {list, 0xff},
        {list + 4, 9},
        {list + 4 + 11, 0},
        {second + 11, 63},
        {second + 19, 0x80},
        {second + 20, 0},
        {second + 28, 1},
        {0, 1},
    };
    for (size_t i = 0; i < sizeof changes / sizeof changes[0]; i++) {
        memcpy(bad, good, sizeof bad);
        bad[changes[i].at] = changes[i].value;
        assert_int_equal(tacit_budget_read(&back, bad, sizeof bad, &err), TACIT_BAD_INPUT);
    }
}

/* Never below the finest grid; above it by what pld_memo.h says; RDP where it says none. */
static void test_the_normative_grid(void **state)
{
    (void)state;
    static const struct {
        double sigma, q;
        uint64_t count;
        double most; /* relative excess; +inf: no grid */
    } runs[] = {
        {0.8, 0.02, 200, 2e-4},
        {0.8, 0.02, 5000, 2e-4},
        {1, 0.01, 10000, 2e-4},
        {2, 0.2, 300, 2e-4},
        {0.5, 0.5, 1, 2e-4},
        {1.1, 0.3, 10, 2e-4},
        {2, 0.001, 1000, 2e-4},
        {1, 1, 20, 1e-9},
        {2, 0.0001, 100000, 4e-4},
        {1, 0.0001, 100000, 2e-3},
        {1, 0.01, 1000000, 5e-3},
        {1000, 0.0001, 1000000, 5e-3},
        {1000, 0.0001, 10000000, INFINITY},
    };
    tacit_error err;
    for (size_t i = 0; i < sizeof runs / sizeof runs[0]; i++) {
        const tacit_event e = {TACIT_ADD_REMOVE, runs[i].sigma, runs[i].q, runs[i].count};
        tacit_event_list list = {0};
        double fine, found;
        tacit_event_list_add(&list, &e);
        OK(tacit_pld_epsilon_of(&list, DELTA, &found, &err));
        if (isinf(runs[i].most)) {
            assert_true(isinf(found));
            continue;
        }
        OK(tacit_pld_epsilon(&e, 1, DELTA, NULL, &fine, &err));
        if (!(found >= fine * (1 - 1e-6) && found <= fine * (1 + runs[i].most)))
            fail_msg("row %zu: %.12g, on the finest grid %.12g", i, found, fine);
    }
}

typedef struct asking {
    const tacit_event_list *list;
    double expected;
    bool wrong;
} asking;

static void *ask_often(void *argument)
{
    asking *a = argument;
    for (int i = 0; i < 300 && !a->wrong; i++) {
        tacit_error err;
        tacit_event_list list = *a->list;
        double epsilon = 0, delta = DELTA * (1 + i % 3);
        list.item[0].count += (uint64_t)(i % 100);
        a->wrong = tacit_pld_epsilon_of(&list, delta, &epsilon, &err) != TACIT_OK ||
                   (i == 0 && epsilon != a->expected);
    }
    return NULL;
}

/* More questions than are remembered, from several threads at once. */
static void test_what_is_remembered_is_what_is_computed(void **state)
{
    (void)state;
    tacit_error err;
    tacit_event_list list = {0};
    const tacit_event event = {TACIT_ADD_REMOVE, 4, 1, 10};
    tacit_event_list_add(&list, &event);
    asking asked[3];
    pthread_t threads[3];
    for (size_t i = 0; i < 3; i++) {
        asked[i] = (asking){.list = &list};
        OK(tacit_pld_epsilon(&event, 1, DELTA, NULL, &asked[i].expected, &err));
        assert_int_equal(pthread_create(&threads[i], NULL, ask_often, &asked[i]), 0);
    }
    for (size_t i = 0; i < 3; i++) {
        pthread_join(threads[i], NULL);
        assert_false(asked[i].wrong);
    }
    double epsilon, direct;
    for (uint64_t count = 10; count < 110; count++) {
        tacit_event e = event;
        e.count = list.item[0].count = count;
        OK(tacit_pld_epsilon_of(&list, DELTA, &epsilon, &err));
        OK(tacit_pld_epsilon(&e, 1, DELTA, NULL, &direct, &err));
        assert_true(epsilon == direct);
    }
    /* What has no value is infinite, remembered or not. */
    list.item[0].sigma = 1e-9;
    for (int i = 0; i < 2; i++) {
        OK(tacit_pld_epsilon_of(&list, DELTA, &epsilon, &err));
        assert_true(isinf(epsilon));
    }
}

static double cost_of(tacit_event shape, uint64_t values, double sigma, double delta)
{
    tacit_budget b;
    tacit_error err;
    shape.sigma = sigma;
    tacit_budget_open(&b, 1, delta);
    OK(tacit_budget_add(&b, &shape, values, true, &err));
    return budget_epsilon(&b);
}

static void test_calibration_is_the_budgets_own(void **state)
{
    (void)state;
    static const struct {
        double q;
        uint64_t count, values;
        double epsilon, delta;
    } cases[] = {{0.05, 300, 10000, 8, 1e-5},
                 {1, 1, 1000000, 2, 1e-6},
                 {0.01, 50, 1, 0.5, 1e-8},
                 {1, 20, (uint64_t)1 << 52, 3, 1e-5}};
    tacit_error err;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        tacit_event shape = {TACIT_ADD_REMOVE, 1, cases[i].q, cases[i].count};
        double sigma, delta = cases[i].delta, values = (double)cases[i].values;
        OK(tacit_budget_calibrate(&shape, cases[i].values, cases[i].epsilon, delta, &sigma, &err));
        assert_true(cost_of(shape, (uint64_t)values, sigma, delta) <= cases[i].epsilon);
        assert_true(cost_of(shape, (uint64_t)values, sigma * (1 - 1e-8), delta) > cases[i].epsilon);
    }
    tacit_event shape = {TACIT_ADD_REMOVE, 1, 1, 1000};
    double sigma;
    assert_int_equal(tacit_budget_calibrate(&shape, (uint64_t)1 << 60, 8, 1e-5, &sigma, &err),
                     TACIT_USAGE);
}

/* --- privacy/noise.h, Domination --- */

#define UNITS 100 /* sigma here: what kappa covers grows with 1 / sigma^2, so it shows */

static double density(double x)
{
    return exp(-x * x / (2.0 * UNITS * UNITS));
}

/* Delta of the discrete noise moved by (a, b), summed over the whole grid. */
static double discrete_delta(int a, int b, double epsilon)
{
    static double row[44 * UNITS + 1];
    const int reach = (b ? 12 : 22) * UNITS;
    double sum = 0, normal = 0, alpha = exp(epsilon);
    for (int x = -reach; x <= reach; x++)
        normal += density(x);
    for (int y = b ? -reach : 0; y <= (b ? reach : 0); y++) {
        /* p / q is exp((2 (a x + b y) - a^2 - b^2) / (2 sigma^2)): positive from some x on. */
        double from = (UNITS * UNITS * epsilon + (a * a + b * b) / 2.0 - (double)b * y) / a;
        int x = from > reach ? reach + 1 : from < -reach ? -reach : (int)ceil(from);
        size_t n = 0;
        for (; x <= reach; x++)
            row[n++] = density(x - a) * density(y - b) - alpha * density(x) * density(y);
        while (n > 0)
            sum += row[--n];
    }
    return sum / (b ? normal * normal : normal);
}

static double gaussian_delta(double mu, double epsilon)
{
    return exp(tacit_gaussian_log_delta(epsilon, mu));
}

static void test_a_continuous_gaussian_dominates_the_noise(void **state)
{
    (void)state;
    static const int moves[][2] = {{1, 0},   {37, 0},   {100, 0}, {300, 0},
                                   {600, 0}, {1000, 0}, {60, 80}, {99, 14}};
    const double least = tacit_noise_dominating(UNITS);
    unsigned too_little = 0;
    for (size_t i = 0; i < sizeof moves / sizeof moves[0]; i++) {
        int a = moves[i][0], b = moves[i][1];
        double s = sqrt(a * a + b * b), mu = s / UNITS;
        for (int j = 0; j < (b ? 3 : 60); j++) {
            /* In one dimension the kink is half-way between integers, where the sum has most. */
            double from = fmax(s / 2, s - 2 * UNITS); /* before it delta is 1 to many digits */
            double kink = b ? s / 2 + 67.3 * j : ceil(from) + 7 * j + 0.5;
            double epsilon = (kink - s / 2) * s / (UNITS * UNITS);
            double found = discrete_delta(a, b, epsilon);
            if (found < 1e-10)
                break;
            assert_true(found <= gaussian_delta(s / least, epsilon));
            too_little += found > gaussian_delta(mu * (1 + 1.0 / (44 * UNITS * UNITS)), epsilon);
            assert_true(fabs(found / gaussian_delta(mu, epsilon) - 1) < 1e-2);
        }
    }
    assert_true(too_little > 20);
}

/* privacy/noise.h asks for a move of at most 200 deviations: nothing that is read by its loss
 * distribution moves as far, not even a node of tree noise to which a unit came in every step. */
static void test_what_is_read_tightly_moves_little(void **state)
{
    (void)state;
    static const double deltas[] = {1e-12, 1e-5, 0.1, 0.9, 0.999};
    static const double sigmas[] = {0.01, 1, 100, 2e4};
    tacit_error err;
    for (size_t i = 0; i < 5 * 4; i++) {
        double sigma = sigmas[i / 5];
        const tacit_event e = {TACIT_ADD_REMOVE, sigma, 1, (uint64_t)ceil(225 * sigma * sigma)};
        tacit_budget b;
        tacit_budget_open(&b, 8, deltas[i % 5]);
        OK(tacit_budget_add(&b, &e, 1, true, &err));
        assert_true(tacit_rdp_epsilon(&b.spent, deltas[i % 5], NULL) > TACIT_BUDGET_TIGHT_MOST);
    }
}

/* Two accounts may cost more together than two copies of either: what is said of a subject on
 * several devices is of such as took part in the same. Of fewer rounds it holds. */
static void test_copies_of_an_account_speak_for_copies_alone(void **state)
{
    (void)state;
    const tacit_event plain = {TACIT_ADD_REMOVE, 0.616, 1, 1};
    const tacit_event rare[] = {{TACIT_ADD_REMOVE, 0.323, 0.013, 1},
                                {TACIT_ADD_REMOVE, 0.323, 0.013, 2}};
    tacit_error err;
    tacit_budget a = schedule_of(&plain, 1), b = schedule_of(rare, 1), more = schedule_of(rare, 2);
    a.delta = b.delta = more.delta = 3e-7;
    tacit_budget both = a;
    OK(tacit_budget_join(&both, &b, &err));
    both.schedules = 1;
    assert_true(budget_epsilon(&both) > 1.1 * fmax(times_of(&a, 2), times_of(&b, 2)));
    both = b;
    OK(tacit_budget_join(&both, &more, &err));
    both.schedules = 1;
    assert_true(budget_epsilon(&both) < times_of(&more, 2));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_one_schedule_may_choose_its_order_and_two_may_not),
        cmocka_unit_test(test_the_sampler_takes_its_share_of_delta),
        cmocka_unit_test(test_copies_of_an_account),
        cmocka_unit_test(test_unprotected_events_do_not_touch_the_number),
        cmocka_unit_test(test_a_schedule_is_read_by_its_loss_distribution),
        cmocka_unit_test(test_many_distinct_events_are_read_by_orders),
        cmocka_unit_test(test_counts_beyond_the_accountants),
        cmocka_unit_test(test_stored_budgets_are_checked),
        cmocka_unit_test(test_the_normative_grid),
        cmocka_unit_test(test_what_is_remembered_is_what_is_computed),
        cmocka_unit_test(test_calibration_is_the_budgets_own),
        cmocka_unit_test(test_a_continuous_gaussian_dominates_the_noise),
        cmocka_unit_test(test_what_is_read_tightly_moves_little),
        cmocka_unit_test(test_copies_of_an_account_speak_for_copies_alone),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
