/* A server whose database was rewritten, and signed anew with the log's own key, against a device
 * that had seen the log and an auditor who has the device's receipt. The rewritten database adds
 * up: the ledger opens it and proves whatever can be proved in it. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "common/database.h"
#include "log_edits.h"
#include "privacy/account.h"
#include "privacy/audit.h"
#include "privacy/ledger.h"

#include <unistd.h>

typedef struct fixture {
    world w;
    char dir[64], path[128], out[128];
    tacit_database *server, *client;
    tacit_ledger *ledger;
    tacit_account *account;
    size_t seen;      /* entries of the log that the device saw */
    uint8_t *receipt; /* of one of them */
    size_t receipt_size;
    tacit_error err;
} fixture;

/* --- the server's database, by hand --- */

static void insert_entry(fixture *f, const world *w, size_t i, tacit_merkle_memory *tree)
{
    tacit_statement *s;
    uint8_t leaf[TACIT_HASH_BYTES];
    tacit_merkle_store store = tacit_merkle_memory_store(tree);
    tacit_merkle_leaf(leaf, w->entry[i].bytes, w->entry[i].size);
    OK(tacit_merkle_append(&store, i, leaf, &f->err));
    OK(tacit_statement_begin(
        f->server, &s, "INSERT INTO ledger_entry (idx, leaf, bytes) VALUES ($1, $2, $3)", &f->err));
    tacit_bind_u64(s, 1, i);
    tacit_bind_blob(s, 2, leaf, sizeof leaf);
    tacit_bind_blob(s, 3, w->entry[i].bytes, w->entry[i].size);
    OK(tacit_statement_finish(s, &f->err));
}

static void insert_nodes(fixture *f, const tacit_merkle_memory *tree)
{
    for (unsigned level = 0; level < TACIT_MERKLE_LEVELS; level++)
        for (uint64_t i = 0; i < tree->count[level]; i++) {
            tacit_statement *s;
            OK(tacit_statement_begin(
                f->server, &s, "INSERT INTO ledger_node (level, idx, hash) VALUES ($1, $2, $3)",
                &f->err));
            tacit_bind_u64(s, 1, level);
            tacit_bind_u64(s, 2, i);
            tacit_bind_blob(s, 3, tree->level[level][i], TACIT_HASH_BYTES);
            OK(tacit_statement_finish(s, &f->err));
        }
}

/* The first `count` entries of a world become the whole log, under a checkpoint of its own. */
static void rewrite(fixture *f, const world *w, size_t count)
{
    tacit_merkle_memory tree = {0};
    char note[TACIT_CHECKPOINT_MAX];
    uint64_t size;
    tacit_ledger_close(f->ledger);
    OK(tacit_database_begin(f->server, &f->err));
    OK(tacit_database_run(f->server,
                          "DELETE FROM ledger_entry; DELETE FROM ledger_node;"
                          "DELETE FROM ledger_checkpoint;",
                          &f->err));
    for (size_t i = 0; i < count; i++)
        insert_entry(f, w, i, &tree);
    insert_nodes(f, &tree);
    OK(tacit_database_commit(f->server, &f->err));
    tacit_merkle_memory_free(&tree);
    OK(tacit_ledger_open(&f->ledger, f->server, WORLD_ORIGIN, f->w.log, &f->err));
    OK(tacit_database_begin(f->server, &f->err));
    OK(tacit_ledger_checkpoint(f->ledger, note, &size, &f->err));
    OK(tacit_database_commit(f->server, &f->err));
    assert_int_equal(size, count);
}

/* --- the device --- */

static uint64_t held(fixture *f)
{
    tacit_account_status s;
    OK(tacit_account_status_get(f->account, &s, &f->err));
    return s.checkpoint_size;
}

/* What a check-in does with the newest checkpoint and the best proof that the server has. */
static tacit_status check_in(fixture *f)
{
    char note[TACIT_CHECKPOINT_MAX];
    uint64_t size, known = held(f);
    tacit_proof proof = {.count = 0};
    tacit_note_key key = world_log_key(&f->w);
    OK(tacit_ledger_last_checkpoint(f->ledger, note, &size, &f->err));
    if (known && known <= size)
        OK(tacit_ledger_consistency(f->ledger, known, size, &proof, &f->err));
    return tacit_account_checkpoint(f->account, (tacit_span){(const uint8_t *)note, strlen(note)},
                                    &proof, &key, &f->err);
}

static void take_receipt(fixture *f, uint64_t index)
{
    char note[TACIT_CHECKPOINT_MAX];
    uint64_t size;
    tacit_receipt r = {.entry = {f->w.entry[index].bytes, f->w.entry[index].size}, .index = index};
    OK(tacit_ledger_last_checkpoint(f->ledger, note, &size, &f->err));
    r.checkpoint = (tacit_span){(const uint8_t *)note, strlen(note)};
    OK(tacit_ledger_inclusion(f->ledger, index, size, &r.inclusion, &f->err));
    OK(tacit_receipt_pack(&r, &f->receipt, &f->receipt_size, &f->err));
}

/* --- the auditor --- */

static bool audit_finds(fixture *f, const char *kind, bool with_receipt)
{
    static const char *const name = "device.receipt";
    tacit_export log;
    tacit_audit audit;
    const tacit_span receipt = {f->receipt, f->receipt_size};
    const tacit_audit_options options = {
        .receipts = &receipt, .receipt_names = &name, .receipt_count = with_receipt ? 1 : 0};
    OK(tacit_export_write(f->ledger, NULL, f->out, &f->err));
    OK(tacit_export_read(&log, f->out, &f->err));
    OK(tacit_audit_run(&audit, &log, &options, &f->err));
    bool found = kind ? false : audit.violation_count == 0;
    for (size_t i = 0; kind && i < audit.violation_count; i++)
        found = found || strcmp(audit.violations[i].kind, kind) == 0;
    tacit_audit_free(&audit);
    tacit_export_free(&log);
    return found;
}

/* --- set-up: the device has seen two rounds of three --- */

static void open_device(fixture *f)
{
    char path[128];
    snprintf(path, sizeof path, "%s/client.db", f->dir);
    OK(tacit_database_open(&f->client, path, &f->err));
    OK(tacit_account_create(f->client, &f->w.policy, false, f->w.device[0].id, &f->err));
    OK(tacit_account_open(&f->account, f->client, f->w.device[0].id, &f->err));
}

static int set_up(void **state)
{
    fixture *f = calloc(1, sizeof *f);
    snprintf(f->dir, sizeof f->dir, "/tmp/tacit-rewrite-XXXXXX");
    assert_non_null(mkdtemp(f->dir));
    snprintf(f->path, sizeof f->path, "%s/server.db", f->dir);
    snprintf(f->out, sizeof f->out, "%s/export", f->dir);
    world_init(&f->w);
    world_plan_all(&f->w);
    world_log(&f->w);
    size_t before = 2 + WORLD_DEVICES; /* start, enrolments, schedule */
    f->seen = f->w.count - (f->w.count - before) / WORLD_ROUNDS;
    OK(tacit_database_open(&f->server, f->path, &f->err));
    OK(tacit_ledger_open(&f->ledger, f->server, WORLD_ORIGIN, f->w.log, &f->err));
    open_device(f);
    rewrite(f, &f->w, f->seen);
    OK(check_in(f));
    take_receipt(f, 9);
    *state = f;
    return 0;
}

static int tear_down(void **state)
{
    fixture *f = *state;
    char command[128];
    tacit_account_close(f->account);
    tacit_database_close(f->client);
    tacit_ledger_close(f->ledger);
    tacit_database_close(f->server);
    snprintf(command, sizeof command, "rm -rf %s", f->dir);
    assert_int_equal(system(command), 0);
    free(f->receipt);
    world_free(&f->w);
    free(f);
    return 0;
}

/* Another history under the same keys. */
static void fork_world(const fixture *f, world *w, world_hook *hook)
{
    world_init(w);
    tacit_identity_free(w->log);
    tacit_identity_free(w->policy_key);
    w->log = f->w.log;
    w->policy_key = f->w.policy_key;
    for (int d = 0; d < WORLD_DEVICES; d++) {
        tacit_identity_free(w->device[d].id);
        w->device[d].id = f->w.device[d].id;
    }
    w->hook = hook;
    world_plan_all(w);
    world_log(w);
}

static void free_fork(world *w)
{
    w->log = w->policy_key = NULL;
    for (int d = 0; d < WORLD_DEVICES; d++)
        w->device[d].id = NULL;
    world_free(w);
}

/* --- rewritings --- */

static bool changed(world *w, Tacit__Entry *e, int round, int device)
{
    static char reason[] = "norm";
    (void)w;
    if (AT(UPDATE, 0, 1)) {
        e->update->accepted = false;
        e->update->reason = reason;
    }
    return true;
}

static bool dropped_other(world *w, Tacit__Entry *e, int round, int device)
{
    (void)w;
    return !AT(UPDATE, 0, 2);
}

static bool dropped_own(world *w, Tacit__Entry *e, int round, int device)
{
    (void)w;
    return !AT(SPEND, 0, 0);
}

static bool inserted(world *w, Tacit__Entry *e, int round, int device)
{
    if (AT(PLAN, 1, -1))
        push_clone(w, 2);
    return true;
}

static bool changed_last(world *w, Tacit__Entry *e, int round, int device)
{
    if (AT(ROUND_CLOSED, 1, -1))
        e->round_closed->published = false, e->round_closed->reason = (char *)(uintptr_t) "x";
    (void)w;
    return true;
}

static void test_the_log_grows_and_the_device_follows(void **state)
{
    fixture *f = *state;
    assert_int_equal(held(f), f->seen);
    rewrite(f, &f->w, f->w.count);
    OK(check_in(f));
    assert_int_equal(held(f), f->w.count);
    assert_true(audit_finds(f, NULL, true));
}

static void test_a_rewriting_is_found_by_the_device_and_by_its_receipt(void **state)
{
    fixture *f = *state;
    static world_hook *const hooks[] = {changed, dropped_other, dropped_own, inserted,
                                        changed_last};
    for (size_t i = 0; i < sizeof hooks / sizeof hooks[0]; i++) {
        world w;
        fork_world(f, &w, hooks[i]);
        assert_true(w.count > f->seen);
        for (size_t count = f->seen; count <= w.count; count += w.count - f->seen) {
            rewrite(f, &w, count);
            assert_int_equal(check_in(f), TACIT_INTEGRITY);
            assert_int_equal(held(f), f->seen); /* what it knows, it keeps */
            assert_true(audit_finds(f, "split_view", true));
            assert_false(audit_finds(f, "split_view", false));
        }
        free_fork(&w);
    }
    rewrite(f, &f->w, f->w.count); /* and goes on with the log that it knows */
    OK(check_in(f));
}

/* What nobody has seen yet may still be written otherwise. */
static void test_what_comes_after_is_not_the_device_s_business(void **state)
{
    fixture *f = *state;
    rewrite(f, &f->w, f->seen);
    world w;
    fork_world(f, &w, changed);
    /* The fork's third round behind the two rounds that were seen. */
    for (size_t i = 0; i < f->seen; i++) {
        free(w.entry[i].bytes);
        w.entry[i].bytes = malloc(f->w.entry[i].size);
        w.entry[i].size = f->w.entry[i].size;
        memcpy(w.entry[i].bytes, f->w.entry[i].bytes, w.entry[i].size);
    }
    rewrite(f, &w, w.count);
    OK(check_in(f));
    free_fork(&w);
}

static void test_a_shortened_log_is_found(void **state)
{
    fixture *f = *state;
    for (size_t count = f->seen - 1; count > 1; count /= 3) {
        rewrite(f, &f->w, count);
        assert_int_equal(check_in(f), TACIT_INTEGRITY);
        assert_int_equal(held(f), f->seen);
        assert_true(audit_finds(f, "incomplete_export", true));
    }
}

/* Bytes changed in the database alone: the entry no longer has its leaf. */
static void test_bytes_changed_in_place_are_found_by_the_auditor(void **state)
{
    fixture *f = *state;
    OK(tacit_database_run(f->server,
                          "UPDATE ledger_entry SET bytes = (SELECT bytes FROM ledger_entry WHERE "
                          "idx = 8) WHERE idx = 9",
                          &f->err));
    OK(check_in(f)); /* the tree is as it was: the device cannot see it */
    assert_true(audit_finds(f, "root_mismatch", false));
    assert_true(audit_finds(f, "split_view", true));
}

#define WITH(test) cmocka_unit_test_setup_teardown(test, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        WITH(test_the_log_grows_and_the_device_follows),
        WITH(test_a_rewriting_is_found_by_the_device_and_by_its_receipt),
        WITH(test_what_comes_after_is_not_the_device_s_business),
        WITH(test_a_shortened_log_is_found),
        WITH(test_bytes_changed_in_place_are_found_by_the_auditor),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
