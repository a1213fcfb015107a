/* What a cheating operator could write into a log that is well formed, rightly signed and chained:
 * orders and replays that make a published epsilon or a policy say less than what happened. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "audit_run.h"
#include "log_edits.h"
#include "privacy/ledger.h"

/* --- rounds of a schedule, the last one first --- */

static void last_first(Tacit__Plan *p, int round)
{
    p->round_index = (uint32_t)(WORLD_ROUNDS - 1 - round);
}

/* Each version states the rounds below its own, as if those above it had not run. */
static void rounds_below(world *w, Tacit__AdapterManifest *m, int round)
{
    m->epsilon_server = m->epsilon_published = world_epsilon(w, WORLD_ROUNDS - round);
}

/* --- versions --- */

/* Version 3 behind the highest number there is. */
static void parent_wraps(Tacit__Plan *p, int round)
{
    if (round == 2)
        p->parent_version = UINT64_MAX;
}

static void version_wraps(world *w, Tacit__AdapterManifest *m, int round)
{
    (void)w;
    if (round == 1)
        m->version = UINT64_MAX;
    if (round == 2)
        m->parent_version = UINT64_MAX;
}

/* --- policy keys --- */

static void enrol_again(world *w, uint8_t name, double cap, const tacit_identity *policy_key)
{
    static uint8_t pseudonym[TACIT_DEVICE_BYTES];
    Tacit__Entry e = TACIT__ENTRY__INIT;
    Tacit__Enrol b = TACIT__ENROL__INIT;
    tacit_policy policy = w->policy;
    const tacit_identity *id = w->device[1].id;
    e.device = filled(pseudonym, sizeof pseudonym, name);
    e.body_case = TACIT__ENTRY__BODY_ENROL;
    e.enrol = &b;
    b.identity_key = tacit_field_of(tacit_identity_sign_key(id), 32);
    b.exchange_key = tacit_field_of(tacit_identity_exchange_key(id), 32);
    b.policy_key = tacit_field_of(tacit_identity_sign_key(policy_key), 32);
    policy.epsilon_cap = cap;
    set_enrol_policy(w, &b, 1, &policy);
    world_push(w, &e, w->log, NULL);
    memset(w->device[1].name, name, TACIT_DEVICE_BYTES);
}

/* Device 1 changes its policy key when it enrols again. With `replayed` the server then enrols it
 * once more as it was at first, and the key that it gave up raises its cap. */
static bool key_given_up(world *w, Tacit__Entry *e, int round, int device, bool replayed)
{
    if (AT(PLAN, 2, -1)) {
        enrol_again(w, 0xe1, 3.1, w->stranger);
        if (replayed)
            enrol_again(w, 0xe2, w->policy.epsilon_cap, w->policy_key);
        push_policy(w, 1, 30, 1e-5, replayed ? w->policy_key : w->stranger);
    }
    return true;
}
static bool old_key_comes_back(world *w, Tacit__Entry *e, int round, int device)
{
    return key_given_up(w, e, round, device, true);
}
static bool new_key_raises(world *w, Tacit__Entry *e, int round, int device)
{
    return key_given_up(w, e, round, device, false);
}

/* --- units --- */

/* Device 1 changes its unit before it reserves anything, then trains alone for the old one, as if
 * that had been signed before, and for the new one. */
static bool two_units(world *w, Tacit__Entry *e, int round, int device)
{
    uint8_t leaf[TACIT_HASH_BYTES];
    if (!AT(SCHEDULE, -1, -1))
        return true;
    w->policy.unit = TACIT_UNIT_SUBJECT;
    push_policy(w, 1, w->policy.epsilon_cap, w->policy.delta, w->device[1].id);
    w->policy.unit = TACIT_UNIT_RECORD;
    for (uint8_t unit = TACIT_UNIT_RECORD; unit <= TACIT_UNIT_SUBJECT; unit++) {
        Tacit__Reserve r = TACIT__RESERVE__INIT;
        world_fill_local(w, &r, (uint8_t)(0x30 + unit));
        r.unit = unit;
        world_price_local(w, &r, 1, true);
        world_push_local(w, 1, &r, leaf);
    }
    return true;
}

static const struct cheat {
    const char *what;
    const char *kind; /* the only one to be found; NULL: the log is fine */
    world_hook *hook;
    void (*edit_plan)(Tacit__Plan *, int);
    void (*edit_manifest)(world *, Tacit__AdapterManifest *, int);
    bool no_rounds;
    tacit_status refused; /* by an honest server's log; TACIT_OK: it does not look */
} cheats[] = {
    {"the last round first", "plan_off_schedule", NULL, last_first, rounds_below, false,
     TACIT_CONFLICT},
    {"a version behind the highest", "manifest_chain", NULL, parent_wraps, version_wraps, false,
     TACIT_OK},
    {"a new policy key raises the cap", NULL, new_key_raises, NULL, NULL, false, TACIT_OK},
    {"a policy key that was given up", "policy_weakened", old_key_comes_back, NULL, NULL, false,
     TACIT_REFUSED},
    {"an account of two units", "under_policy", two_units, NULL, NULL, true, TACIT_REFUSED},
};

static void world_of(world *w, const struct cheat *c)
{
    world_init(w);
    w->hook = c->hook;
    w->edit_plan = c->edit_plan;
    w->edit_manifest = c->edit_manifest;
    if (c->no_rounds)
        w->last_round = 0;
    world_plan_all(w);
    world_log(w);
}

static bool found_as(const struct cheat *c)
{
    world w;
    exported x;
    tacit_audit audit;
    world_of(&w, c);
    export_of(&w, &x);
    run(&x, NULL, &audit);
    bool good = c->kind ? has(&audit, c->kind) : audit.violation_count == 0;
    for (size_t i = 0; i < audit.violation_count && c->kind; i++)
        good = good && strcmp(audit.violations[i].kind, c->kind) == 0;
    if (!good)
        print_all(c->what, &audit);
    tacit_audit_free(&audit);
    export_done(&x);
    world_free(&w);
    return good;
}

static void test_every_cheat_is_found(void **state)
{
    (void)state;
    size_t bad = 0;
    for (size_t i = 0; i < sizeof cheats / sizeof cheats[0]; i++)
        bad += !found_as(&cheats[i]);
    assert_int_equal(bad, 0);
}

/* The status at which an honest server's log stops taking the entries. */
static tacit_status appended(world *w)
{
    char dir[] = "/tmp/tacit-cheats-XXXXXX", path[64], command[64];
    tacit_database *db;
    tacit_ledger *ledger;
    tacit_status status = TACIT_OK;
    assert_non_null(mkdtemp(dir));
    snprintf(path, sizeof path, "%s/server.db", dir);
    OK(tacit_database_open(&db, path, &w->err));
    OK(tacit_ledger_open(&ledger, db, WORLD_ORIGIN, w->log, &w->err));
    OK(tacit_database_begin(db, &w->err));
    for (size_t i = 0; i < w->count && status == TACIT_OK; i++) {
        uint8_t leaf[TACIT_HASH_BYTES];
        uint64_t index;
        status =
            tacit_ledger_append(ledger, w->entry[i].bytes, w->entry[i].size, &index, leaf, &w->err);
    }
    tacit_database_rollback(db);
    tacit_ledger_close(ledger);
    tacit_database_close(db);
    snprintf(command, sizeof command, "rm -rf %s", dir);
    assert_int_equal(system(command), 0);
    return status;
}

/* What the auditor finds the log of an honest server does not hold. */
static void test_an_honest_log_refuses(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof cheats / sizeof cheats[0]; i++) {
        world w;
        world_of(&w, &cheats[i]);
        tacit_status status = appended(&w);
        if (status != cheats[i].refused)
            print_error("%s: %d, %s\n", cheats[i].what, status, w.err.message);
        assert_int_equal(status, cheats[i].refused);
        world_free(&w);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_cheat_is_found),
        cmocka_unit_test(test_an_honest_log_refuses),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
