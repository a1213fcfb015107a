/* The checks of an audit: every kind of violation belongs to one, and none passes that had nothing
 * to look at. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "audit_run.h"
#include "common/file.h"
#include "fleet_log.h"
#include "privacy/receipt.h"

static tacit_audit audit_of(world *w, exported *x, const tacit_audit_options *options)
{
    tacit_audit audit;
    export_of(w, x);
    run(x, options, &audit);
    return audit;
}

static const tacit_audit_check *check_of(const tacit_audit *audit, const char *name)
{
    static const tacit_audit_check none = {.name = ""};
    for (size_t i = 0; i < audit->check_count; i++)
        if (strcmp(audit->checks[i].name, name) == 0)
            return &audit->checks[i];
    fail_msg("no check '%s'", name);
    return &none;
}

static size_t checks_with(const tacit_audit *audit, const char *kind)
{
    size_t n = 0;
    for (size_t i = 0; i < audit->check_count; i++)
        for (const char *const *k = tacit_audit_check_kinds(audit->checks[i].name); *k; k++)
            n += strcmp(*k, kind) == 0;
    return n;
}

static void test_every_kind_fails_exactly_one_check(void **state)
{
    (void)state;
    world w;
    exported x;
    size_t kinds = 0, listed = 0;
    world_init(&w);
    fleet_log(&w);
    tacit_audit audit = audit_of(&w, &x, NULL);
    for (const tacit_audit_kind *k = tacit_audit_kinds; k->kind; k++, kinds++) {
        if (checks_with(&audit, k->kind) != 1)
            print_error("%s\n", k->kind);
        assert_int_equal(checks_with(&audit, k->kind), 1);
        assert_non_null(tacit_audit_check_of(k->kind));
    }
    for (size_t i = 0; i < audit.check_count; i++) {
        const char *const *k = tacit_audit_check_kinds(audit.checks[i].name);
        assert_non_null(*k);
        for (; *k; k++)
            listed++;
        for (size_t j = 0; j < i; j++)
            assert_string_not_equal(audit.checks[i].name, audit.checks[j].name);
    }
    assert_int_equal(listed, kinds); /* and no check lists a word that is no kind */
    assert_null(tacit_audit_check_of("no_such_kind"));
    assert_null(tacit_audit_check_kinds("no_such_check"));
    tacit_audit_free(&audit);
    export_done(&x);
    world_free(&w);
}

/* What the log of fleet_log.h holds, counted by hand; without receipts and key. */
static const struct {
    const char *name;
    uint64_t examined;
    const char *skipped; /* begins the reason; NULL: it passes */
} fleet_checks[] = {
    {"entries", 53, NULL},
    {"signatures", 53, NULL},
    {"start", 53, NULL},
    {"restores", 0, "the log was never restored"},
    {"key_rotations", 0, "the key never changed"},
    {"log_key", 53, "none given (--log-key VKEY)"},
    {"checkpoint", 1, NULL},
    {"tree", 1, NULL},
    {"consistency", 0, "no other checkpoint"},
    {"receipts", 0, "none given (--receipt FILE)"},
    {"witnesses", 1, "no witness keys"},
    {"devices", 3, NULL},
    {"declared_policies", 4, NULL},
    {"policy_changes", 1, NULL},
    {"revocations", 1, NULL},
    {"chains", 23, NULL}, /* reserves, eight updates in three rounds and one, one abandonment */
    {"schedules", 2, NULL},
    {"plans", 4, NULL},
    {"plans_follow_schedules", 4, NULL},
    {"reserves_equal_plans", 11, NULL},
    {"local_training", 2, NULL},
    {"policies", 13, NULL},
    {"epsilons", 13, NULL},
    {"caps", 13, NULL},
    {"lost_accounts", 0, "no account was lost"},
    {"non_private", 13, NULL},
    {"insecure_seeds", 13, NULL},
    {"spends", 10, NULL},
    {"decisions", 8, NULL},
    {"aggregates", 3, NULL},
    {"quorum", 3, NULL},
    {"manifests", 3, NULL},
    {"manifest_chain", 3, NULL},
    {"published_epsilons", 3, NULL},
    {"rollbacks", 1, NULL},
    {"round_endings", 3, NULL},
};

static void test_a_check_says_what_it_looked_at(void **state)
{
    (void)state;
    world w;
    exported x;
    world_init(&w);
    fleet_log(&w);
    tacit_audit audit = audit_of(&w, &x, NULL);
    assert_int_equal(audit.check_count, sizeof fleet_checks / sizeof fleet_checks[0]);
    for (size_t i = 0; i < audit.check_count; i++) {
        const tacit_audit_check *c = check_of(&audit, fleet_checks[i].name);
        const char *reason = fleet_checks[i].skipped;
        if (c->examined != fleet_checks[i].examined)
            fail_msg("%s looked at %llu", c->name, (unsigned long long)c->examined);
        assert_int_equal(c->outcome, reason ? TACIT_AUDIT_SKIPPED : TACIT_AUDIT_PASS);
        if (reason)
            assert_memory_equal(c->reason, reason, strlen(reason));
        assert_int_equal(c->failures, 0);
        assert_true(c->first_entry == TACIT_AUDIT_NO_ENTRY);
    }
    tacit_audit_free(&audit);
    export_done(&x);
    world_free(&w);
}

static void test_receipts_and_key_are_checked_when_given(void **state)
{
    (void)state;
    world w;
    exported x;
    char note[TACIT_CHECKPOINT_MAX];
    uint8_t *packed;
    size_t size;
    const char *name = "device.receipt";
    world_init(&w);
    fleet_log(&w);
    tacit_note_key key = world_log_key(&w);
    tacit_receipt r = {.entry = {w.entry[6].bytes, w.entry[6].size}, .index = 6};
    tacit_merkle_store store = tacit_merkle_memory_store(&w.tree);
    world_checkpoint(&w, 20, note);
    r.checkpoint = (tacit_span){(const uint8_t *)note, strlen(note)};
    OK(tacit_merkle_inclusion(&store, 6, 20, &r.inclusion, &w.err));
    OK(tacit_receipt_pack(&r, &packed, &size, &w.err));
    const tacit_span span = {packed, size};
    const tacit_audit_options options = {
        .receipts = &span, .receipt_names = &name, .receipt_count = 1, .log_key = &key};
    tacit_audit audit = audit_of(&w, &x, &options);
    assert_int_equal(check_of(&audit, "log_key")->outcome, TACIT_AUDIT_PASS);
    assert_int_equal(check_of(&audit, "receipts")->outcome, TACIT_AUDIT_PASS);
    assert_int_equal(check_of(&audit, "receipts")->examined, 1);
    assert_int_equal(check_of(&audit, "consistency")->outcome, TACIT_AUDIT_PASS);
    tacit_audit_free(&audit);
    free(packed);
    export_done(&x);
    world_free(&w);
}

static void test_without_a_checkpoint_the_tree_is_not_said_to_hold(void **state)
{
    (void)state;
    world w;
    exported x;
    tacit_audit audit;
    static const tacit_audit_options plain;
    tacit_error err;
    world_init(&w);
    fleet_log(&w);
    export_of(&w, &x);
    x.note[4] ^= 1;
    OK(tacit_audit_run(&audit, &x.e, &plain, &err));
    assert_int_equal(check_of(&audit, "checkpoint")->outcome, TACIT_AUDIT_FAIL);
    assert_int_equal(check_of(&audit, "checkpoint")->failures, 1);
    assert_int_equal(check_of(&audit, "tree")->outcome, TACIT_AUDIT_SKIPPED);
    assert_string_equal(check_of(&audit, "tree")->reason, "the checkpoint does not hold");
    tacit_audit_free(&audit);
    export_done(&x);
    world_free(&w);
}

static void test_what_the_auditor_allows_is_skipped(void **state)
{
    (void)state;
    const tacit_audit_options allow = {.allow_non_private = true};
    for (int allowed = 0; allowed < 2; allowed++) {
        world w;
        exported x;
        world_init(&w);
        w.none = true;
        w.policy.allow_non_private = true;
        world_plan_all(&w);
        world_log(&w);
        tacit_audit audit = audit_of(&w, &x, allowed ? &allow : NULL);
        const tacit_audit_check *c = check_of(&audit, "non_private");
        assert_int_equal(c->outcome, allowed ? TACIT_AUDIT_SKIPPED : TACIT_AUDIT_FAIL);
        assert_int_equal(c->failures, allowed ? 0 : 9);
        if (!allowed)
            assert_int_equal(c->first_entry, 6); /* the first reserve, behind the first plan */
        tacit_audit_free(&audit);
        export_done(&x);
        world_free(&w);
    }
}

/* privacy/README.md tells an auditor what every kind means: the table there is this one. */
static void test_the_manual_lists_every_kind(void **state)
{
    (void)state;
    uint8_t *text;
    size_t size, listed = 0;
    tacit_error err;
    char row[512];
    OK(tacit_file_read(TACIT_SOURCE_DIR "/privacy/README.md", 1 << 20, &text, &size, &err));
    for (const tacit_audit_kind *k = tacit_audit_kinds; k->kind; k++, listed++) {
        snprintf(row, sizeof row, "\n| `%s` | `%s` | %s |", k->kind, tacit_audit_check_of(k->kind),
                 k->meaning);
        if (!strstr((const char *)text, row))
            fail_msg("missing in privacy/README.md:%s", row);
    }
    const char *at = strstr((const char *)text, "\n| kind | check |");
    assert_non_null(at);
    at = strchr(strchr(at + 1, '\n') + 1, '\n'); /* behind the line below the head */
    for (; at[1] == '|'; at = strchr(at + 1, '\n'))
        listed--;
    assert_int_equal(listed, 0); /* and none that is no more */
    free(text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_kind_fails_exactly_one_check),
        cmocka_unit_test(test_a_check_says_what_it_looked_at),
        cmocka_unit_test(test_receipts_and_key_are_checked_when_given),
        cmocka_unit_test(test_without_a_checkpoint_the_tree_is_not_said_to_hold),
        cmocka_unit_test(test_what_the_auditor_allows_is_skipped),
        cmocka_unit_test(test_the_manual_lists_every_kind),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
