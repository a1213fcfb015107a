/* Windows: reserves in a row, at one order, beside the lifetime cap; the same for policy, account,
 * log and auditor. The oracle is the accountant itself, run over each stretch. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "audit_run.h"
#include "common/clock.h"
#include "common/database.h"
#include "log_edits.h"
#include "privacy/account.h"
#include "privacy/ledger.h"
#include "privacy/window.h"

static const tacit_event one_round = {TACIT_ADD_REMOVE, 0, 0, 10};

/* The world's event. */
static tacit_event world_event(void)
{
    tacit_event e = one_round;
    e.sigma = tacit_noise_multiplier(100000);
    e.q = tacit_sampling_rate(TACIT_Q_ONE / 20);
    return e;
}

/* `rounds` rounds of the world, read at the order of a window of `epsilon`. */
static double read_at(double epsilon, unsigned rounds)
{
    static tacit_rdp one; /* dear to compute */
    static bool computed;
    tacit_error err;
    tacit_rdp rdp = {0};
    tacit_event e = world_event();
    if (!computed)
        OK(tacit_rdp_add(&one, &e, TACIT_RDP_TRUE, &err));
    computed = true;
    for (unsigned i = 0; i < rounds; i++)
        tacit_rdp_join(&rdp, &one);
    return tacit_rdp_epsilon_at(&rdp, tacit_rdp_filter_order(epsilon, 1e-5), 1e-5);
}

/* A window's epsilon that so many rounds of the world fit and one more does not. */
static double just_for(unsigned rounds)
{
    double epsilon = 0.5;
    while (read_at(epsilon, rounds) > epsilon)
        epsilon *= 1.001;
    assert_true(read_at(epsilon, rounds + 1) > epsilon);
    return epsilon;
}

/* --- the policy's terms --- */

static tacit_policy with_window(double epsilon, uint32_t reserves)
{
    return (tacit_policy){.epsilon_cap = 8,
                          .delta = 1e-5,
                          .unit = TACIT_UNIT_RECORD,
                          .devices_per_subject = 1,
                          .window_epsilon = epsilon,
                          .window_reserves = reserves};
}

static void test_windows_are_terms_of_the_policy(void **state)
{
    (void)state;
    tacit_error err;
    uint8_t *bytes;
    size_t size;
    tacit_policy none = with_window(0, 0), two = with_window(2, 5), back;
    OK(tacit_policy_pack(&two, &bytes, &size, &err));
    OK(tacit_policy_unpack(&back, bytes, size, &err));
    assert_true(back.window_epsilon == 2 && back.window_reserves == 5);
    free(bytes);
    const struct {
        double epsilon;
        uint32_t reserves;
        bool weakens; /* compared with 2 over 5 */
    } changes[] = {{2, 5, false}, {1, 5, false}, {2, 9, false}, {2.1, 5, true},
                   {2, 4, true},  {0, 0, true},  {1, 4, true},  {3, 9, true}};
    for (size_t i = 0; i < sizeof changes / sizeof changes[0]; i++) {
        tacit_policy to = with_window(changes[i].epsilon, changes[i].reserves);
        assert_int_equal(tacit_policy_weakens(&two, &to), changes[i].weakens);
        assert_false(tacit_policy_weakens(&none, &to));
        tacit_policy widest = two;
        tacit_policy_widen(&widest, &to);
        assert_false(tacit_policy_weakens(&widest, &two));
        assert_false(tacit_policy_weakens(&widest, &to));
    }
    const tacit_policy bad[] = {with_window(2, 0), with_window(0, 5), with_window(-1, 5),
                                with_window(NAN, 5), with_window(2, 1001)};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++)
        assert_int_equal(tacit_policy_validate(&bad[i], &err), TACIT_BAD_INPUT);
}

/* --- the arithmetic --- */

#define ITEMS 12

static void test_the_worst_stretch_is_the_accountants(void **state)
{
    (void)state;
    tacit_error err;
    tacit_window w = {0};
    tacit_event event[ITEMS];
    for (int i = 0; i < ITEMS; i++) {
        event[i] = world_event();
        event[i].count = i % 4 == 1 ? 40 : 10;
        event[i].sigma = i % 3 ? event[i].sigma : 2 * event[i].sigma;
        OK(tacit_window_push(&w, &event[i], WORLD_VALUES, &err));
    }
    for (uint32_t reserves = 1; reserves <= ITEMS + 1; reserves += 4)
        for (size_t from = 0; from < ITEMS; from += 7) {
            tacit_policy p = with_window(2, reserves);
            double found, expected = 0;
            size_t order = tacit_rdp_filter_order(2, 1e-5);
            for (size_t end = from + 1; end <= ITEMS; end++) {
                tacit_rdp rdp = {0};
                for (size_t i = end > reserves ? end - reserves : 0; i < end; i++)
                    OK(tacit_rdp_add(&rdp, &event[i], TACIT_RDP_TRUE, &err));
                expected = fmax(expected, tacit_rdp_epsilon_at(&rdp, order, 1e-5));
            }
            OK(tacit_window_worst(&found, &p, &w, from, &err));
            /* the sampler's share of delta is all that differs */
            assert_true(found >= expected * (1 - 1e-9) && found < expected * (1 + 1e-5));
        }
    tacit_policy none = with_window(0, 0);
    double found;
    OK(tacit_window_worst(&found, &none, &w, 0, &err));
    assert_true(found == 0);
    tacit_window_free(&w);
}

/* --- the account --- */

typedef struct fixture {
    world w;
    char dir[64], path[96];
    tacit_database *db;
    tacit_account *account;
    tacit_error err;
} fixture;

static void begin(fixture *f, double epsilon, uint32_t reserves)
{
    *f = (fixture){.dir = "/tmp/tacit-window-XXXXXX"};
    assert_non_null(mkdtemp(f->dir));
    snprintf(f->path, sizeof f->path, "%s/client.db", f->dir);
    world_init(&f->w);
    f->w.policy.epsilon_cap = 50;
    f->w.policy.window_epsilon = epsilon;
    f->w.policy.window_reserves = reserves;
    world_plan_all(&f->w);
    OK(tacit_database_open(&f->db, f->path, &f->err));
    OK(tacit_account_create(f->db, &f->w.policy, false, f->w.device[0].id, &f->err));
    OK(tacit_account_open(&f->account, f->db, f->w.device[0].id, &f->err));
}

static void end(fixture *f)
{
    char command[96];
    tacit_account_close(f->account);
    tacit_database_close(f->db);
    snprintf(command, sizeof command, "rm -rf %s", f->dir);
    assert_int_equal(system(command), 0);
    world_free(&f->w);
}

static tacit_status reserve(fixture *f, int round, tacit_reservation *out)
{
    tacit_reservation ignored;
    tacit_reserve_request request = {.device = f->w.device[0].name,
                                     .plan = {f->w.plan[round], f->w.plan_size[round]},
                                     .schedule = {f->w.schedule, f->w.schedule_size}};
    tacit_status status =
        tacit_account_reserve(f->account, &request, out ? out : &ignored, &f->err);
    if (!out && status == TACIT_OK)
        tacit_reservation_free(&ignored);
    return status;
}

static uint64_t reserves_of(fixture *f)
{
    tacit_account_status s;
    OK(tacit_account_status_get(f->account, &s, &f->err));
    return s.reserves;
}

static void set_window(fixture *f, double epsilon, uint32_t reserves)
{
    tacit_policy p = f->w.policy;
    p.window_epsilon = epsilon;
    p.window_reserves = reserves;
    OK(tacit_account_set_policy(f->account, &p, &f->err));
}

/* Pricing at every order, counted (LINKER:--wrap in tests/CMakeLists.txt). */
static unsigned all_orders;
tacit_status __real_tacit_rdp_add(tacit_rdp *account, const tacit_event *event, tacit_rdp_mode mode,
                                  tacit_error *err);
tacit_status __wrap_tacit_rdp_add(tacit_rdp *account, const tacit_event *event, tacit_rdp_mode mode,
                                  tacit_error *err);
tacit_status __wrap_tacit_rdp_add(tacit_rdp *account, const tacit_event *event, tacit_rdp_mode mode,
                                  tacit_error *err)
{
    all_orders++;
    return __real_tacit_rdp_add(account, event, mode, err);
}

/* No two reserves alike: none of a window is priced at every order, which whoever reserves so would
 * make the log and the auditor do at each of his reserves. */
static void test_a_window_of_unlike_reserves_is_cheap(void **state)
{
    (void)state;
    enum { UNLIKE = 200 };
    tacit_error err;
    tacit_window w = {0};
    tacit_rdp all = {0};
    const tacit_policy policy = with_window(3, 1000);
    size_t order = tacit_rdp_filter_order(3, 1e-5);
    double worst;
    unsigned at_first = all_orders;
    for (unsigned i = 0; i < UNLIKE; i++) {
        tacit_event e = {TACIT_ADD_REMOVE, 40 + 0.01 * i, 0.01, 1};
        OK(tacit_window_push(&w, &e, 1000, &err));
        OK(tacit_rdp_add(&all, &e, TACIT_RDP_TRUE, &err));
    }
    unsigned before = all_orders;
    OK(tacit_window_worst(&worst, &policy, &w, UNLIKE - 1, &err));
    assert_int_equal(before - at_first, UNLIKE);
    assert_int_equal(all_orders, before);
    double expected = tacit_rdp_epsilon_at(&all, order, 1e-5);
    assert_true(fabs(worst - expected) <= 1e-6 * expected);
    tacit_window_free(&w);
}

static void test_a_schedule_whose_rounds_fill_the_window_is_not_begun(void **state)
{
    (void)state;
    fixture f;
    begin(&f, just_for(2), 3);
    assert_int_equal(reserve(&f, 0, NULL), TACIT_REFUSED);
    assert_non_null(strstr(f.err.message, "plan's schedule brings 3 reserves in a row to epsilon"));
    assert_int_equal(reserves_of(&f), 0);
    end(&f);
    begin(&f, just_for(2), 2); /* any two in a row fit: all three rounds do */
    for (int r = 0; r < WORLD_ROUNDS; r++)
        OK(reserve(&f, r, NULL));
    end(&f);
}

/* The window looks back over lineages, and it is the order of reserves that counts: neither ten
 * years forward nor ten years back empties it. */
static uint64_t clock_ms;

static uint64_t clock_now(void *ctx)
{
    (void)ctx;
    return clock_ms;
}

static void test_windows_look_back_over_lineages_and_at_no_clock(void **state)
{
    (void)state;
    const uint64_t now = 1800000000000ull, ten_years = 315576000000ull;
    fixture f;
    tacit_clock_inject(clock_now, NULL);
    clock_ms = now;
    begin(&f, 50, 4);
    for (int r = 0; r < WORLD_ROUNDS; r++)
        OK(reserve(&f, r, NULL));
    set_window(&f, just_for(4), 6); /* four fit, more do not */
    world_next_lineage(&f.w, 0x22, 0x22);
    for (int k = -1; k <= 1; k++) {
        clock_ms = k < 0 ? now - ten_years : now + (uint64_t)k * ten_years;
        assert_int_equal(reserve(&f, 0, NULL), TACIT_REFUSED);
        assert_non_null(strstr(f.err.message, "6 reserves in a row"));
        assert_int_equal(reserves_of(&f), WORLD_ROUNDS);
    }
    set_window(&f, just_for(4), 4);
    for (int r = 0; r < WORLD_ROUNDS; r++)
        OK(reserve(&f, r, NULL));
    tacit_clock_inject(NULL, NULL);
    end(&f);
}

/* A window that was tightened while a lineage runs holds its next round up, and nothing else. */
static void test_a_tightened_window_refuses_the_next_round(void **state)
{
    (void)state;
    fixture f;
    begin(&f, 0, 0);
    OK(reserve(&f, 0, NULL));
    OK(reserve(&f, 1, NULL));
    set_window(&f, just_for(2), 3);
    assert_int_equal(reserve(&f, 2, NULL), TACIT_REFUSED);
    assert_non_null(strstr(f.err.message, "plan brings 3 reserves in a row"));
    set_window(&f, just_for(2), 2);
    OK(reserve(&f, 2, NULL));
    end(&f);
}

/* --- the log --- */

static void log_begin(fixture *f, tacit_database **db, tacit_ledger **ledger)
{
    char path[96];
    snprintf(path, sizeof path, "%s/server.db", f->dir);
    OK(tacit_database_open(db, path, &f->err));
    OK(tacit_ledger_open(ledger, *db, WORLD_ORIGIN, f->w.log, &f->err));
    world_start(&f->w);
    world_enrol(&f->w, 0);
    world_log_schedule(&f->w);
    for (int r = 0; r < WORLD_ROUNDS; r++)
        world_log_plan(&f->w, r);
    OK(tacit_database_begin(*db, &f->err));
    for (size_t i = 0; i < f->w.count; i++)
        OK(tacit_ledger_append(*ledger, f->w.entry[i].bytes, f->w.entry[i].size, NULL, NULL,
                               &f->err));
    OK(tacit_database_commit(*db, &f->err));
}

static tacit_status log_take(fixture *f, tacit_database *db, tacit_ledger *ledger,
                             const tacit_reservation *r)
{
    OK(tacit_database_begin(db, &f->err));
    tacit_status status = tacit_ledger_append(ledger, r->entry, r->entry_size, NULL, NULL, &f->err);
    if (status == TACIT_OK)
        OK(tacit_database_commit(db, &f->err));
    else
        tacit_database_rollback(db);
    return status;
}

/* Enrolled under a window that its own account forgot: the log takes two and refuses the third. */
static void test_the_log_holds_the_window(void **state)
{
    (void)state;
    fixture f;
    tacit_database *db;
    tacit_ledger *ledger;
    tacit_ledger_device device;
    tacit_ledger_price price;
    tacit_reservation r[WORLD_ROUNDS];
    Tacit__Schedule *schedule;
    tacit_ledger_answer answer;
    begin(&f, just_for(2), 3);
    log_begin(&f, &db, &ledger);
    set_window(&f, 0, 0);
    OK(TACIT_UNPACK(&schedule, tacit__schedule, f.w.schedule, f.w.schedule_size, 1 << 20, &f.err));
    OK(tacit_ledger_price_make(&price, schedule, 2, WORLD_VALUES, &f.err));
    for (int round = 0; round < WORLD_ROUNDS; round++) {
        OK(reserve(&f, round, &r[round]));
        /* The whole schedule is three rounds: not to be begun; once it is, two are allowed. */
        OK(tacit_ledger_affords(ledger, f.w.device[0].name, &price, &answer, &f.err));
        assert_int_equal(answer.limit, round == 1 ? TACIT_LIMIT_NONE : TACIT_LIMIT_WINDOW);
        assert_int_equal(log_take(&f, db, ledger, &r[round]), round < 2 ? TACIT_OK : TACIT_REFUSED);
        tacit_reservation_free(&r[round]);
    }
    assert_non_null(strstr(f.err.message, "3 reserves in a row"));
    OK(tacit_ledger_device_get(ledger, f.w.device[0].name, &device, &f.err));
    assert_int_equal(device.next_sequence, 3);
    tacit_ledger_price_free(&price);
    tacit_message_free(schedule);
    tacit_ledger_close(ledger);
    tacit_database_close(db);
    end(&f);
}

static void log_window(fixture *f, tacit_database *db, tacit_ledger *ledger)
{
    char word[] = "operator";
    tacit_policy policy = f->w.policy;
    Tacit__PolicyChanged change = TACIT__POLICY_CHANGED__INIT;
    Tacit__Entry entry = TACIT__ENTRY__INIT;
    uint8_t *bytes;
    size_t size;
    policy.window_epsilon = just_for(2);
    policy.window_reserves = 3;
    OK(tacit_policy_pack(&policy, &bytes, &size, &f->err));
    change.who = change.role = change.meaning = change.reason = word;
    change.policy = tacit_field_of(bytes, size);
    entry.device = tacit_field_of(f->w.device[0].name, TACIT_DEVICE_BYTES);
    entry.body_case = TACIT__ENTRY__BODY_POLICY_CHANGED;
    entry.policy_changed = &change;
    OK(tacit_database_begin(db, &f->err));
    OK(tacit_ledger_record(ledger, &entry, NULL, NULL, &f->err));
    OK(tacit_database_commit(db, &f->err));
    free(bytes);
}

/* Signed before the window was there: charged, and of no use to its round. */
static void test_a_reserve_before_its_window_is_outdated(void **state)
{
    (void)state;
    fixture f;
    tacit_database *db;
    tacit_ledger *ledger;
    begin(&f, 0, 0);
    log_begin(&f, &db, &ledger);
    for (int round = 0; round < WORLD_ROUNDS; round++) {
        tacit_reservation r;
        tacit_ledger_reserve logged;
        OK(reserve(&f, round, &r));
        if (round == 2)
            log_window(&f, db, ledger);
        OK(log_take(&f, db, ledger, &r));
        OK(tacit_ledger_reserve_get(ledger, r.hash, &logged, &f.err));
        assert_int_equal(logged.outdated, round == 2);
        tacit_reservation_free(&r);
    }
    tacit_ledger_close(ledger);
    tacit_database_close(db);
    end(&f);
}

/* --- the auditor --- */

static double audit_epsilon;
static uint32_t audit_reserves;

/* Device 1 declares a window when it enrols. */
static bool windowed(world *w, Tacit__Entry *e, int round, int device)
{
    if (AT(ENROL, -1, 1)) {
        tacit_policy policy = w->policy;
        policy.window_epsilon = audit_epsilon;
        policy.window_reserves = audit_reserves;
        set_enrol_policy(w, e->enrol, 1, &policy);
    }
    return true;
}

static void expect_findings(double epsilon, uint32_t reserves, size_t violations)
{
    world w;
    exported x;
    tacit_audit audit;
    audit_epsilon = epsilon;
    audit_reserves = reserves;
    world_init(&w);
    w.hook = windowed;
    world_plan_all(&w);
    world_log(&w);
    export_of(&w, &x);
    run(&x, NULL, &audit);
    if (audit.violation_count != violations)
        print_all("window", &audit);
    assert_int_equal(audit.violation_count, violations);
    for (size_t i = 0; i < violations; i++)
        assert_string_equal(audit.violations[i].kind, "window_exceeded");
    assert_int_equal(audit.note_count, 0);
    tacit_audit_free(&audit);
    export_done(&x);
    world_free(&w);
}

static void test_the_auditor_finds_a_full_window(void **state)
{
    (void)state;
    expect_findings(just_for(2), 2, 0);
    expect_findings(just_for(2), 3, 1);
    expect_findings(just_for(1) / 2, 1, WORLD_ROUNDS);
}

static bool tightened_alone; /* and no update follows */

/* Device 1 gets a window before its third reserve is logged, which was signed without one. */
static bool tightened(world *w, Tacit__Entry *e, int round, int device)
{
    if (AT(RESERVE, 2, 1)) {
        tacit_policy kept = w->policy;
        w->policy.window_epsilon = just_for(2);
        w->policy.window_reserves = 3;
        push_policy(w, 1, kept.epsilon_cap, kept.delta, NULL);
        w->policy = kept;
    }
    if (tightened_alone && AT(AGGREGATE, 2, -1))
        leave_out(w, e->aggregate, 2);
    return !(tightened_alone && (AT(SPEND, 2, 1) || AT(UPDATE, 2, 1)));
}

static void test_the_auditor_tells_what_was_signed_before_a_window(void **state)
{
    (void)state;
    for (int alone = 0; alone < 2; alone++) {
        world w;
        exported x;
        tacit_audit audit;
        tightened_alone = alone != 0;
        world_init(&w);
        w.hook = tightened;
        world_plan_all(&w);
        world_log(&w);
        export_of(&w, &x);
        run(&x, NULL, &audit);
        if (audit.violation_count != (alone ? 0 : 1))
            print_all("tightened", &audit);
        assert_int_equal(audit.violation_count, alone ? 0 : 1);
        if (!alone)
            assert_string_equal(audit.violations[0].kind, "outdated_accepted");
        assert_int_equal(audit.note_count, 1);
        assert_string_equal(audit.notes[0].kind, "outdated_reserve");
        tacit_audit_free(&audit);
        export_done(&x);
        world_free(&w);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_windows_are_terms_of_the_policy),
        cmocka_unit_test(test_the_worst_stretch_is_the_accountants),
        cmocka_unit_test(test_a_window_of_unlike_reserves_is_cheap),
        cmocka_unit_test(test_a_schedule_whose_rounds_fill_the_window_is_not_begun),
        cmocka_unit_test(test_windows_look_back_over_lineages_and_at_no_clock),
        cmocka_unit_test(test_a_tightened_window_refuses_the_next_round),
        cmocka_unit_test(test_the_log_holds_the_window),
        cmocka_unit_test(test_a_reserve_before_its_window_is_outdated),
        cmocka_unit_test(test_the_auditor_finds_a_full_window),
        cmocka_unit_test(test_the_auditor_tells_what_was_signed_before_a_window),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
