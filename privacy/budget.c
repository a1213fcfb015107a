#include "privacy/budget.h"

#include "common/bytes.h"
#include "privacy/accountant.h"
#include "privacy/noise.h"
#include "privacy/pld_memo.h"
#include "privacy/policy.h"

#include <math.h>
#include <string.h>

void tacit_budget_open(tacit_budget *b, double epsilon_cap, double delta)
{
    *b = (tacit_budget){.delta = delta, .filter_order = tacit_rdp_filter_order(epsilon_cap, delta)};
}

tacit_status tacit_budget_add(tacit_budget *b, const tacit_event *event, uint64_t values,
                              bool first_of_schedule, tacit_error *err)
{
    uint64_t drawn;
    if (!tacit_mul_u64(values, event->count, &drawn) ||
        !tacit_add_u64(b->noise_values, drawn, &drawn))
        return tacit_fail(err, TACIT_REFUSED, "budget: too many noise values to account for");
    tacit_status status = tacit_rdp_add(&b->spent, event, TACIT_RDP_TRUE, err);
    if (status != TACIT_OK)
        return status;
    tacit_event_list_add(&b->events, event);
    b->noise_values = drawn;
    b->schedules += first_of_schedule;
    return TACIT_OK;
}

void tacit_budget_add_unprotected(tacit_budget *b)
{
    b->unprotected++;
}

/* What the sampler leaves of delta when it is charged for `epsilon`. */
static double delta_left(const tacit_budget *b, double epsilon)
{
    return b->delta - tacit_noise_delta(b->noise_values, epsilon);
}

static double rdp_assuming(const tacit_budget *b, bool fixed_order, double assumed)
{
    double delta = delta_left(b, assumed);
    if (!(delta > 0))
        return INFINITY;
    return fixed_order ? tacit_rdp_epsilon_at(&b->spent, b->filter_order, delta)
                       : tacit_rdp_epsilon(&b->spent, delta, NULL);
}

#define SHARE_ITERATIONS 200

/* The least fixed point, from below: rdp_assuming grows with what it assumes. What is returned
 * covers itself, rdp_assuming(it) <= it. The steps shrink by a factor that is far below 1
 * unless the sampler takes nearly all of delta. An account without private events costs nothing,
 * whatever its delta. */
static double rdp_epsilon(const tacit_budget *b, bool fixed_order)
{
    if (b->noise_values == 0 && !b->lost)
        return 0;
    double epsilon = b->lost ? INFINITY : rdp_assuming(b, fixed_order, 0);
    for (int i = 0; epsilon < INFINITY && i < SHARE_ITERATIONS; i++) {
        double next = rdp_assuming(b, fixed_order, epsilon);
        if (next <= epsilon)
            return epsilon;
        epsilon = next;
    }
    return INFINITY;
}

double tacit_budget_filter_epsilon(const tacit_budget *b)
{
    return rdp_epsilon(b, true);
}

/* More than what gaussian.h and the transforms' own margins leave open (pld.h, rdp.h). */
#define TIGHT_MARGIN 0x1p-33

/* Of a fixed schedule, where the sampler is charged for `bound`: valid when not above it. */
static tacit_status tight_assuming(const tacit_budget *b, double bound, double *epsilon,
                                   tacit_error *err)
{
    tacit_event_list list = b->events;
    for (uint32_t i = 0; i < list.n; i++)
        list.item[i].sigma =
            tacit_noise_dominating(list.item[i].sigma * TACIT_GRID_NORM) / TACIT_GRID_NORM;
    tacit_status status = tacit_pld_epsilon_of(&list, delta_left(b, bound), epsilon, err);
    *epsilon += *epsilon * TIGHT_MARGIN;
    return status;
}

#define TIGHT_ITERATIONS 50

/* Lowers *epsilon, which holds already, to what the loss distribution gives. Each value holds, for
 * what the sampler is charged with is not below it; where the sampler's share matters, the next
 * one assumes less. */
static tacit_status tighten(const tacit_budget *b, double *epsilon, tacit_error *err)
{
    for (int i = 0; i < TIGHT_ITERATIONS; i++) {
        double tight, left = delta_left(b, *epsilon);
        tacit_status status = tight_assuming(b, *epsilon, &tight, err);
        if (status != TACIT_OK)
            return status;
        if (!(tight < *epsilon))
            return TACIT_OK;
        *epsilon = tight;
        if (delta_left(b, tight) <= left * (1 + 0x1p-33))
            return TACIT_OK;
    }
    return TACIT_OK;
}

tacit_status tacit_budget_epsilon(const tacit_budget *b, double *epsilon, tacit_error *err)
{
    *epsilon = rdp_epsilon(b, b->schedules > 1);
    if (*epsilon > TACIT_BUDGET_TIGHT_MOST || *epsilon == 0 || b->schedules > 1)
        return TACIT_OK;
    tacit_status status = tighten(b, epsilon, err);
    if (status != TACIT_OK)
        *epsilon = INFINITY;
    return status;
}

tacit_status tacit_budget_epsilon_times(const tacit_budget *b, uint32_t times, double *epsilon,
                                        tacit_error *err)
{
    tacit_budget all = *b;
    tacit_rdp doubled = b->spent; /* sums are exact, so their order does not matter */
    for (uint32_t left = times - (times > 0); left; left >>= 1) {
        if (left & 1)
            tacit_rdp_join(&all.spent, &doubled);
        tacit_rdp_join(&doubled, &doubled);
    }
    tacit_event_list_repeat(&all.events, times);
    *epsilon = INFINITY;
    if (!tacit_mul_u64(b->noise_values, times, &all.noise_values))
        return TACIT_OK;
    return tacit_budget_epsilon(&all, epsilon, err);
}

/* The cost of one schedule of *event. */
static tacit_status alone(const tacit_event *event, uint64_t values, double delta, double *epsilon,
                          tacit_error *err)
{
    tacit_budget b;
    tacit_budget_open(&b, 1, delta);
    tacit_status status = tacit_budget_add(&b, event, values, true, err);
    return status == TACIT_OK ? tacit_budget_epsilon(&b, epsilon, err) : status;
}

#define CALIBRATION_ATTEMPTS 100
#define CALIBRATION_STEP 1e-9

/* From event->sigma up or down by steps that double until both an enough and a too little are
 * known, then between them. */
static tacit_status least_sigma(const tacit_event *event, uint64_t values, double epsilon,
                                double delta, double *sigma, tacit_error *err)
{
    tacit_event at = *event;
    double too_little = 0, enough = INFINITY, step = CALIBRATION_STEP / 8;
    for (int i = 0; i < CALIBRATION_ATTEMPTS; i++) {
        double cost;
        tacit_status status = alone(&at, values, delta, &cost, err);
        if (status != TACIT_OK)
            return status;
        *(cost <= epsilon ? &enough : &too_little) = at.sigma;
        if (enough <= too_little * (1 + CALIBRATION_STEP))
            break;
        if (enough == INFINITY)
            at.sigma = too_little * (1 + step);
        else
            at.sigma = too_little == 0 ? enough / (1 + step) : (too_little + enough) / 2;
        step *= 2;
    }
    *sigma = enough;
    return enough < INFINITY
               ? TACIT_OK
               : tacit_fail(err, TACIT_REFUSED, "no noise costs at most epsilon %g at delta %g",
                            epsilon, delta);
}

/* The accountants' answers, which know nothing of the budget's grid and margins, are very near what
 * is sought unless the sampler's share of delta is large. */
tacit_status tacit_budget_calibrate(const tacit_event *shape, uint64_t values, double epsilon,
                                    double delta, double *sigma, tacit_error *err)
{
    static const char *const names[] = {"pld", "rdp"};
    tacit_event event = *shape;
    uint64_t drawn;
    double left =
        tacit_mul_u64(values, shape->count, &drawn) ? delta - tacit_noise_delta(drawn, epsilon) : 0;
    if (!(left > 0))
        return tacit_fail(err, TACIT_USAGE,
                          "the sampler's inexactness leaves nothing of delta %g at epsilon %g over "
                          "%llu values and %llu steps; ask for less epsilon",
                          delta, epsilon, (unsigned long long)values,
                          (unsigned long long)shape->count);
    tacit_status status = TACIT_REFUSED;
    event.sigma = INFINITY;
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        const tacit_accountant *a;
        double found;
        tacit_status one = tacit_accountant_find(&a, names[i], err);
        if (one == TACIT_OK)
            one = tacit_accountant_calibrate(a, shape, epsilon, left, &found, err);
        if (one == TACIT_OK)
            event.sigma = fmin(event.sigma, found);
        status = one == TACIT_OK ? TACIT_OK : status;
    }
    return status == TACIT_OK ? least_sigma(&event, values, epsilon, delta, sigma, err) : status;
}

tacit_status tacit_budget_event(tacit_event *out, const Tacit__Reserve *reserve, tacit_error *err)
{
    tacit_mechanism m = tacit_reserve_mechanism(reserve);
    return tacit_event_price(out, &m, 1, err);
}

uint64_t tacit_budget_values(const Tacit__Reserve *reserve)
{
    return tacit_step_noise_values(reserve->values, reserve->quantile_b);
}

tacit_status tacit_budget_join(tacit_budget *b, const tacit_budget *other, tacit_error *err)
{
    if (!tacit_add_u64(b->noise_values, other->noise_values, &b->noise_values))
        return tacit_fail(err, TACIT_REFUSED, "budget: too many noise values to account for");
    tacit_rdp_join(&b->spent, &other->spent);
    tacit_event_list_join(&b->events, &other->events);
    b->schedules += other->schedules;
    b->unprotected += other->unprotected;
    b->lost = b->lost || other->lost;
    return TACIT_OK;
}

tacit_budget tacit_budget_empty_like(const tacit_budget *b)
{
    return (tacit_budget){.delta = b->delta, .filter_order = b->filter_order};
}

static bool same_event(const tacit_event *a, const tacit_event *b)
{
    return a->neighbours == b->neighbours && a->sigma == b->sigma && a->q == b->q &&
           a->count == b->count;
}

/* The last round that was added. Rounds are usually alike and rho is costly to compute: it is kept
 * in `one` and joined again, which gives the same integers. */
typedef struct last_round {
    tacit_event event;
    uint64_t values;
    tacit_budget one; /* its cost; nothing yet while it has no noise values */
} last_round;

static tacit_status add_round(tacit_budget *b, const tacit_event *event, uint64_t values,
                              last_round *last, tacit_error *err)
{
    if (last->one.noise_values == 0 || last->values != values || !same_event(event, &last->event)) {
        *last = (last_round){.event = *event, .values = values};
        tacit_status status = tacit_budget_add(&last->one, event, values, false, err);
        if (status != TACIT_OK)
            return status;
    }
    return tacit_budget_join(b, &last->one, err);
}

tacit_status tacit_budget_add_schedule(tacit_budget *b, const Tacit__Schedule *schedule,
                                       size_t rounds, uint64_t values, bool *unprotected,
                                       tacit_error *err)
{
    tacit_budget all = tacit_budget_empty_like(b);
    tacit_event event;
    last_round last = {.values = 0};
    *unprotected = false;
    for (size_t i = 0; i < rounds && i < schedule->n_rounds; i++) {
        tacit_mechanism m;
        tacit_status status = tacit_mechanism_from_message(&m, schedule->rounds[i]->mechanism, err);
        *unprotected = *unprotected || m.kind == TACIT_MECHANISM_NONE;
        if (status == TACIT_OK && m.kind == TACIT_MECHANISM_NONE)
            continue;
        if (status == TACIT_OK)
            status = tacit_event_from_mechanism(&event, &m, 1, err);
        if (status == TACIT_OK)
            status =
                add_round(&all, &event, tacit_step_noise_values(values, m.quantile_b), &last, err);
        if (status != TACIT_OK)
            return status;
        all.schedules = 1;
    }
    return tacit_budget_join(b, &all, err);
}

tacit_status tacit_budget_schedule_epsilon(double *epsilon, const Tacit__Schedule *schedule,
                                           size_t rounds, uint64_t values, tacit_error *err)
{
    tacit_budget b;
    bool unprotected;
    tacit_budget_open(&b, 1, schedule->delta);
    tacit_status status =
        tacit_budget_add_schedule(&b, schedule, rounds, values, &unprotected, err);
    if (status != TACIT_OK)
        return status;
    *epsilon = INFINITY;
    return unprotected ? TACIT_OK : tacit_budget_epsilon(&b, epsilon, err);
}

#define BUDGET_FORMAT 2

void tacit_budget_write(const tacit_budget *b, uint8_t out[TACIT_BUDGET_BYTES])
{
    uint64_t delta;
    memcpy(&delta, &b->delta, sizeof delta);
    tacit_store_u32(out, BUDGET_FORMAT);
    tacit_store_u64(out + 4, delta);
    tacit_store_u32(out + 12, (uint32_t)b->filter_order);
    tacit_store_u64(out + 16, b->noise_values);
    tacit_store_u32(out + 24, b->schedules);
    tacit_store_u32(out + 28, b->unprotected);
    tacit_store_u32(out + 32, b->lost);
    for (size_t i = 0; i < TACIT_RDP_ORDERS; i++) {
        tacit_store_u64(out + 36 + 16 * i, (uint64_t)b->spent.rho[i]);
        tacit_store_u64(out + 44 + 16 * i, (uint64_t)(b->spent.rho[i] >> 64));
    }
    tacit_event_list_write(&b->events, out + 36 + 16 * TACIT_RDP_ORDERS);
}

tacit_status tacit_budget_read(tacit_budget *out, const void *bytes, size_t size, tacit_error *err)
{
    tacit_cursor c = tacit_cursor_over(bytes, size);
    uint32_t format = tacit_cursor_u32(&c);
    *out = (tacit_budget){.delta = tacit_cursor_f64(&c)};
    out->filter_order = tacit_cursor_u32(&c);
    out->noise_values = tacit_cursor_u64(&c);
    out->schedules = tacit_cursor_u32(&c);
    out->unprotected = tacit_cursor_u32(&c);
    uint32_t lost = tacit_cursor_u32(&c);
    out->lost = lost == 1;
    for (size_t i = 0; i < TACIT_RDP_ORDERS; i++) {
        uint64_t low = tacit_cursor_u64(&c);
        out->spent.rho[i] = (unsigned __int128)tacit_cursor_u64(&c) << 64 | low;
    }
    bool sound = tacit_event_list_read(&out->events, &c);
    if (!sound || c.failed || size != TACIT_BUDGET_BYTES || format != BUDGET_FORMAT || lost > 1 ||
        out->filter_order >= TACIT_RDP_ORDERS || !(out->delta > 0 && out->delta < 1))
        return tacit_fail(err, TACIT_BAD_INPUT, "stored budget: malformed");
    return TACIT_OK;
}

bool tacit_budget_same(double a, double b)
{
    if (isinf(a) || isinf(b))
        return a == b;
    return fabs(a - b) <= 1e-9 * fmax(fabs(a), fabs(b));
}
