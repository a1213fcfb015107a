/* A log with entries of a device that colludes with the server: it signs what its account must not,
 * and the server logs it. Each row names every kind of violation that the auditor must find, and no
 * other. (test_audit_tamper.c changes files, test_audit_tamper_server.c entries of the server.) */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "tamper.h"

/* The last reserve of device 0 (local training), changed and signed again. */
#define LOCAL_OF_0(name, how)                                                                      \
    static void name(tamper *t)                                                                    \
    {                                                                                              \
        size_t i = t->count - 1;                                                                   \
        tacit_entry opened = open_entry(t, i);                                                     \
        Tacit__Entry *e = opened.entry;                                                            \
        how;                                                                                       \
        put_own(t, i, e, 0);                                                                       \
        tacit_entry_close(&opened);                                                                \
        server_signs(t);                                                                           \
    }

/* What its accountant honestly says of the changed reserve. */
static void price(tamper *t, Tacit__Reserve *r)
{
    tacit_budget b = fleet_before_last;
    tacit_event event;
    OK(tacit_budget_event(&event, r, &t->w.err));
    OK(tacit_budget_add(&b, &event, r->values, true, &t->w.err));
    r->epsilon_after = budget_epsilon(&b);
}

LOCAL_OF_0(noise_under_policy, e->reserve->b = 70000; e->reserve->steps = 1; price(t, e->reserve))
LOCAL_OF_0(less_noise_than_it_says, e->reserve->b *= 2)
LOCAL_OF_0(wrong_figure, e->reserve->epsilon_after *= 0.999)
LOCAL_OF_0(over_its_budget, e->reserve->steps = 8000; price(t, e->reserve))
LOCAL_OF_0(cap_of_its_own, e->reserve->epsilon_cap = 2 * FLEET_RAISED)
LOCAL_OF_0(delta_of_its_own, e->reserve->delta *= 10)
LOCAL_OF_0(a_test_seed, e->reserve->insecure = true)
LOCAL_OF_0(without_noise, e->reserve->kind = TACIT_MECHANISM_NONE; e->reserve->b = 0;
           e->reserve->clip_norm = 0; e->reserve->epsilon_after = INFINITY)
LOCAL_OF_0(lineage_of_a_server, memset(e->reserve->lineage.data, FLEET_SECOND, 16))
LOCAL_OF_0(counter_again, e->sequence--)
LOCAL_OF_0(counter_too_high, e->sequence++)
LOCAL_OF_0(another_previous, e->previous.data[0] ^= 1)

/* The last reserve of device 1, of the open round. */
#define OPEN_OF_1(name, how)                                                                       \
    static void name(tamper *t)                                                                    \
    {                                                                                              \
        size_t i = FIND(RESERVE, 1, 4);                                                            \
        tacit_entry opened = open_entry(t, i);                                                     \
        Tacit__Entry *e = opened.entry;                                                            \
        how;                                                                                       \
        put_own(t, i, e, 1);                                                                       \
        tacit_entry_close(&opened);                                                                \
        server_signs(t);                                                                           \
    }

OPEN_OF_1(another_clip_norm, e->reserve->clip_norm *= 2)
OPEN_OF_1(plan_that_nobody_logged, e->reserve->plan_hash.data[0] ^= 1)

/* The update of device 0 in the open round. */
#define SPEND_OF_0(name, how)                                                                      \
    static void name(tamper *t)                                                                    \
    {                                                                                              \
        size_t i = FIND(SPEND, 0, 3);                                                              \
        tacit_entry opened = open_entry(t, i);                                                     \
        Tacit__Entry *e = opened.entry;                                                            \
        how;                                                                                       \
        put_own(t, i, e, 0);                                                                       \
        tacit_entry_close(&opened);                                                                \
        server_signs(t);                                                                           \
    }

SPEND_OF_0(digest_again, memcpy(e->spend->update_digest.data, t->w.device[1].digest[0], 32))
SPEND_OF_0(reserve_of_another, memcpy(e->spend->reserve_hash.data, t->w.device[1].reserve[1], 32))
SPEND_OF_0(spent_again, memcpy(e->spend->reserve_hash.data, t->w.device[0].reserve[0], 32))

/* It takes part again in a round whose reserve it has. */
static void reserved_again(tamper *t)
{
    size_t i = FIND(RESERVE, 1, 4);
    tacit_entry opened = open_entry(t, i);
    Tacit__Entry *e = opened.entry;
    uint8_t leaf[TACIT_HASH_BYTES];
    tacit_event event;
    tacit_budget b = t->w.device[1].budget;
    leaf_of(t, i, leaf);
    OK(tacit_budget_event(&event, e->reserve, &t->w.err));
    OK(tacit_budget_add(&b, &event, e->reserve->values, false, &t->w.err));
    e->reserve->epsilon_after = budget_epsilon(&b);
    e->sequence++;
    memcpy(e->previous.data, leaf, sizeof leaf);
    insert(t, t->count, signed_bytes(t, e, t->w.device[1].id));
    tacit_entry_close(&opened);
    server_signs(t);
}

static const struct row rows[] = {
    {"noise under policy", noise_under_policy, "under_policy", NULL},
    {"a figure of less noise", less_noise_than_it_says, "epsilon_mismatch", NULL},
    {"a wrong accountant's figure", wrong_figure, "epsilon_mismatch", NULL},
    {"a budget exceeded", over_its_budget, "cap_exceeded schedule_over_cap", NULL},
    {"a cap of its own", cap_of_its_own, "cap_mismatch", NULL},
    {"a delta of its own", delta_of_its_own, "cap_mismatch under_policy", NULL},
    {"a test seed", a_test_seed, "insecure_seed", NULL},
    {"a round without noise", without_noise, "non_private under_policy", NULL},
    {"a server's lineage used alone", lineage_of_a_server, "local_schedule", NULL},
    {"a counter used again", counter_again, "sequence_reused", NULL},
    {"a counter too high", counter_too_high, "sequence_gap", NULL},
    {"another previous entry", another_previous, "broken_chain", NULL},
    {"another clip norm", another_clip_norm, "reserve_off_plan", NULL},
    {"a plan that nobody logged", plan_that_nobody_logged, "reserve_without_plan", NULL},
    {"a digest used again", digest_again, "duplicate_update", NULL},
    {"a reserve of another device", reserve_of_another, "spend_without_reserve", NULL},
    {"a reserve spent again", spent_again, "duplicate_spend", NULL},
    {"a plan reserved again", reserved_again, "duplicate_reserve", NULL},
};

static void test_every_tampering_of_a_device_is_found_and_named(void **state)
{
    all_are_found(rows, sizeof rows / sizeof rows[0], *state);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_every_tampering_of_a_device_is_found_and_named,
                                        make_folder, remove_folder),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
