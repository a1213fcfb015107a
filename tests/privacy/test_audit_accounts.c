/* What an audit says of accounts whose cap was lowered, or which were lost. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "audit_run.h"
#include "log_edits.h"

/* --- what is no fault: a reserve signed before its cap was lowered --- */

static double lowered_to;
static size_t outdated_at;

/* The cap of device 1 is lowered before its reserve of round 1 is logged; no update follows it, and
 * in round 2 the device knows. */
static bool outdated_alone(world *w, Tacit__Entry *e, int round, int device)
{
    if (AT(RESERVE, 1, 1)) {
        push_policy(w, 1, lowered_to, 1e-5, NULL);
        outdated_at = w->count;
    }
    if (AT(SPEND, 1, 1) || AT(UPDATE, 1, 1))
        return false;
    if (AT(AGGREGATE, 1, -1))
        leave_out(w, e->aggregate, 1);
    if (AT(RESERVE, 2, 1))
        e->reserve->epsilon_cap = lowered_to;
    return true;
}

/* The same where nothing fits the lower cap: round 2 goes on without device 1. */
static bool outdated_and_out(world *w, Tacit__Entry *e, int round, int device)
{
    if (AT(RESERVE, 2, 1) || AT(SPEND, 2, 1) || AT(UPDATE, 2, 1))
        return false;
    if (AT(AGGREGATE, 2, -1))
        leave_out(w, e->aggregate, 2);
    return outdated_alone(w, e, round, device);
}

/* Local training that the log hears of after the cap was lowered. */
static bool outdated_local(world *w, Tacit__Entry *e, int round, int device)
{
    uint8_t leaf[TACIT_HASH_BYTES];
    Tacit__Reserve r = TACIT__RESERVE__INIT;
    if (AT(RESERVE, 2, 1))
        e->reserve->epsilon_cap = 2.9;
    if (!AT(PLAN, 2, -1))
        return true;
    push_policy(w, 1, 2.9, 1e-5, NULL);
    outdated_at = w->count;
    world_fill_local(w, &r, 0x33);
    world_price_local(w, &r, 1, true);
    world_push_local(w, 1, &r, leaf);
    return true;
}

static void expect_note_alone(world_hook *hook, double cap, uint64_t rounds, bool above)
{
    world w;
    exported x;
    tacit_audit audit;
    lowered_to = cap;
    world_init(&w);
    w.hook = hook;
    world_plan_all(&w);
    world_log(&w);
    export_of(&w, &x);
    run(&x, NULL, &audit);
    if (audit.violation_count)
        print_all("outdated", &audit);
    assert_int_equal(audit.violation_count, 0);
    assert_int_equal(audit.note_count, 1);
    assert_string_equal(audit.notes[0].kind, "outdated_reserve");
    assert_int_equal(audit.notes[0].entry, outdated_at);
    tacit_audit_device d = find_device(&audit, &w, 1), beside = find_device(&audit, &w, 0);
    assert_true(d.cap == cap && (d.epsilon > d.cap) == above);
    assert_int_equal(d.accepted, rounds);
    if (hook == outdated_alone) /* it is charged like any other: three rounds, as device 0 */
        assert_true(d.epsilon == beside.epsilon && d.reserves == beside.reserves);
    assert_int_equal(beside.accepted, WORLD_ROUNDS);
    tacit_audit_free(&audit);
    export_done(&x);
    world_free(&w);
}

static void test_a_reserve_signed_before_the_cap_was_lowered_is_a_note(void **state)
{
    (void)state;
    expect_note_alone(outdated_alone, 2.9, WORLD_ROUNDS - 1, false);
    expect_note_alone(outdated_and_out, 0.1, WORLD_ROUNDS - 2, true);
    expect_note_alone(outdated_local, 2.9, WORLD_ROUNDS, false);
}

/* What no policy ever allowed is a violation although no update follows. */
static bool beyond_every_policy(world *w, Tacit__Entry *e, int round, int device)
{
    if (AT(RESERVE, 1, 1))
        e->reserve->epsilon_cap = 3.5;
    return outdated_alone(w, e, round, device);
}

/* The reserve itself says that its device knew of the lower cap. */
static bool beyond_its_own_cap(world *w, Tacit__Entry *e, int round, int device)
{
    if (AT(RESERVE, 1, 1))
        e->reserve->epsilon_cap = 0.1;
    return outdated_and_out(w, e, round, device);
}

static void expect_violation_alone(world_hook *hook, double cap, const char *kind)
{
    world w;
    exported x;
    tacit_audit audit;
    lowered_to = cap;
    world_init(&w);
    w.hook = hook;
    world_plan_all(&w);
    world_log(&w);
    export_of(&w, &x);
    run(&x, NULL, &audit);
    if (audit.violation_count != 1 || strcmp(audit.violations[0].kind, kind) != 0)
        print_all(kind, &audit);
    assert_int_equal(audit.violation_count, 1);
    assert_string_equal(audit.violations[0].kind, kind);
    assert_int_equal(audit.note_count, 0);
    tacit_audit_free(&audit);
    export_done(&x);
    world_free(&w);
}

static void test_what_was_never_allowed_is_no_note(void **state)
{
    (void)state;
    expect_violation_alone(beyond_every_policy, 2.9, "cap_mismatch");
    expect_violation_alone(beyond_its_own_cap, 0.1, "cap_exceeded");
}

/* The cap sinks, then the account is lost; it states the lower cap. */
static bool lowered_then_lost(world *w, Tacit__Entry *e, int round, int device)
{
    if (AT(SPEND, 2, 1)) {
        Tacit__Entry o = TACIT__ENTRY__INIT;
        Tacit__AccountLost b = TACIT__ACCOUNT_LOST__INIT;
        push_policy(w, 1, 0.1, 1e-5, NULL);
        o.body_case = TACIT__ENTRY__BODY_ACCOUNT_LOST;
        o.account_lost = &b;
        b.epsilon_counted = 0.1;
        slip_own(w, 1, &o, e);
    }
    return true;
}

/* Up to the highest cap may be spent; what several such devices cost together is not known. */
static void test_a_lost_account_counts_its_highest_cap(void **state)
{
    (void)state;
    for (uint32_t devices = 1; devices <= 2; devices++) {
        world w;
        exported x;
        tacit_audit audit;
        world_init(&w);
        w.hook = lowered_then_lost;
        w.policy.devices_per_subject = devices;
        world_plan_all(&w);
        world_log(&w);
        export_of(&w, &x);
        run(&x, NULL, &audit);
        assert_int_equal(audit.violation_count, 0);
        assert_true(audit.devices[1].lost && !audit.devices[0].lost);
        assert_true(audit.devices[1].epsilon == 3);
        assert_true(audit.devices[1].epsilon_subject == (devices == 1 ? 3 : INFINITY));
        assert_true(isfinite(audit.devices[0].epsilon_subject));
        assert_true((audit.devices[0].epsilon_subject > audit.devices[0].epsilon) == (devices > 1));
        tacit_audit_free(&audit);
        export_done(&x);
        world_free(&w);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_reserve_signed_before_the_cap_was_lowered_is_a_note),
        cmocka_unit_test(test_what_was_never_allowed_is_no_note),
        cmocka_unit_test(test_a_lost_account_counts_its_highest_cap),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
