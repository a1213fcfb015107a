/* A server's log that goes on from an older copy, between a real ledger and a real account; and
 * what a device does not follow. test_audit_restore.c is the auditor's side. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "common/database.h"
#include "privacy/account.h"
#include "privacy/ledger.h"
#include "restored_log.h"

#include <unistd.h>

#define STEPS_MAX 4

/* --- a device that has checkpoints alone, against logs that no ledger would make --- */

typedef struct proof_memory {
    tacit_restore_step step[STEPS_MAX];
    tacit_restore_proof proof;
    char note[TACIT_CHECKPOINT_MAX];
} proof_memory;

typedef struct watcher {
    restored_log l;
    char dir[64];
    tacit_database *db;
    tacit_account *account;
    tacit_note_key log;
    uint32_t generation;
    uint64_t seen; /* the newest checkpoint that it holds of what is kept */
    uint64_t restore_at[STEPS_MAX], restore_size[STEPS_MAX];
    size_t restores;
    proof_memory made;
    const tacit_identity *pinned; /* operator key */
} watcher;

/* What it held last is of `size` entries of the log as it is. */
static void see(watcher *d, uint64_t size)
{
    char *held, note[TACIT_CHECKPOINT_MAX];
    uint64_t from = 0;
    tacit_proof proof = {.count = 0};
    world *w = &d->l.w;
    tacit_merkle_store store = tacit_merkle_memory_store(&w->tree);
    if (tacit_account_last_checkpoint(d->account, &held, &from, &w->err) == TACIT_OK)
        OK(tacit_merkle_consistency(&store, from, size, &proof, &w->err));
    free(held);
    world_checkpoint(w, size, note);
    OK(tacit_account_checkpoint(d->account, (tacit_span){(const uint8_t *)note, strlen(note)},
                                &proof, &d->log, &w->err));
}

static void watch(watcher *d, bool ahead)
{
    char path[96];
    *d = (watcher){.generation = 1};
    restored_before(&d->l);
    snprintf(d->dir, sizeof d->dir, "/tmp/tacit-restore-XXXXXX");
    assert_non_null(mkdtemp(d->dir));
    snprintf(path, sizeof path, "%s/device.db", d->dir);
    OK(tacit_database_open(&d->db, path, &d->l.w.err));
    OK(tacit_account_create(d->db, &d->l.w.policy, false, d->l.w.device[0].id, &d->l.w.err));
    OK(tacit_account_open(&d->account, d->db, d->l.w.device[0].id, &d->l.w.err));
    d->log = world_log_key(&d->l.w);
    d->pinned = d->l.w.operator_id;
    d->seen = d->l.kept - 3;
    see(d, 4);
    see(d, d->seen);
    if (ahead) {
        see(d, d->l.kept + 2);
        see(d, d->l.w.count);
    }
}

static void watch_end(watcher *d)
{
    char command[96];
    tacit_account_close(d->account);
    tacit_database_close(d->db);
    snprintf(command, sizeof command, "rm -rf %s", d->dir);
    assert_int_equal(system(command), 0);
    restored_free(&d->l);
}

static void restore(watcher *d, const char *last, const tacit_identity *signer,
                    void (*edit)(tacit_restore *))
{
    uint64_t size = d->restores ? d->l.w.count : d->l.kept;
    d->restore_at[d->restores] = d->l.w.count;
    d->restore_size[d->restores++] = size;
    world_restored(&d->l.w, size, last, signer, edit);
}

/* The proof that an honest server gives of the log as it is. */
static void prove(watcher *d)
{
    world *w = &d->l.w;
    proof_memory *m = &d->made;
    tacit_merkle_store store = tacit_merkle_memory_store(&w->tree);
    *m = (proof_memory){.proof = {.count = d->restores, .held_size = d->seen}};
    m->proof.step = m->step;
    for (size_t i = 0; i < d->restores; i++) {
        uint64_t at = d->restore_at[i];
        m->step[i].entry =
            (tacit_receipt){.entry = {w->entry[at].bytes, w->entry[at].size}, .index = at};
        OK(tacit_merkle_inclusion(&store, at, w->count, &m->step[i].entry.inclusion, &w->err));
        OK(tacit_merkle_consistency(&store, d->restore_size[i], w->count, &m->step[i].growth,
                                    &w->err));
    }
    world_checkpoint(w, w->count, m->note);
    m->proof.checkpoint = (tacit_span){(const uint8_t *)m->note, strlen(m->note)};
    OK(tacit_merkle_consistency(&store, d->seen, w->count, &m->proof.consistency, &w->err));
}

static tacit_status follow(watcher *d)
{
    uint64_t again;
    return tacit_account_follow_restore(d->account, &d->made.proof,
                                        tacit_identity_sign_key(d->pinned), &d->log, &d->generation,
                                        &again, &d->l.w.err);
}

static void expect_held(watcher *d, uint64_t size, const char *origin, uint32_t generation)
{
    char *note;
    uint64_t held;
    OK(tacit_account_last_checkpoint(d->account, &note, &held, &d->l.w.err));
    assert_int_equal(held, size);
    assert_int_equal(strncmp(note, origin, strlen(origin)), 0);
    assert_int_equal(note[strlen(origin)], '\n');
    free(note);
    assert_string_equal(d->log.name, origin);
    assert_int_equal(d->generation, generation);
}

/* Whether it saw more than the copy or less: it follows, and goes on from there. */
static void test_a_device_follows_the_operator(void **state)
{
    (void)state;
    for (int ahead = 0; ahead < 2; ahead++) {
        watcher d;
        uint64_t before;
        watch(&d, ahead);
        restored_cut(&d.l);
        restore(&d, d.l.last, d.l.w.operator_id, NULL);
        OK(tacit_account_held_before(d.account, d.l.kept, &before, &d.l.w.err));
        assert_int_equal(before, d.seen);
        prove(&d);
        OK(follow(&d));
        expect_held(&d, d.l.w.count, WORLD_ORIGIN "/2", 2);
        world_start(&d.l.w); /* any entry */
        see(&d, d.l.w.count);
        assert_int_equal(follow(&d), TACIT_INTEGRITY); /* it is there already */
        watch_end(&d);
    }
}

static void test_two_restores_are_followed_at_once(void **state)
{
    watcher d;
    (void)state;
    watch(&d, true);
    restored_cut(&d.l);
    restore(&d, d.l.last, d.l.w.operator_id, NULL);
    world_log_plan(&d.l.w, 2);
    restore(&d, NULL, d.l.w.operator_id, NULL);
    prove(&d);
    OK(follow(&d));
    expect_held(&d, d.l.w.count, WORLD_ORIGIN "/3", 3);
    watch_end(&d);
}

/* --- what it does not follow --- */

static void edit_generation(tacit_restore *r)
{
    r->generation++;
}

static void edit_origin(tacit_restore *r)
{
    snprintf(r->old_origin, sizeof r->old_origin, "tacit.example/other");
}

static void edit_root(tacit_restore *r)
{
    r->root[5] ^= 1;
}

static void edit_size(tacit_restore *r)
{
    r->size++;
}

static void edit_key(tacit_restore *r)
{
    r->log_key[5] ^= 1;
}

static void by_the_log(watcher *d)
{
    restore(d, d->l.last, d->l.w.log, NULL);
    prove(d);
}

/* An operator that left the server's own key where devices pin his. */
static void by_the_log_as_operator(watcher *d)
{
    d->pinned = d->l.w.log;
    by_the_log(d);
}

static void by_a_stranger(watcher *d)
{
    restore(d, d->l.last, d->l.w.stranger, NULL);
    prove(d);
}

static void generation_skipped(watcher *d)
{
    restore(d, d->l.last, d->l.w.operator_id, edit_generation);
    prove(d);
}

static void of_another_log(watcher *d)
{
    restore(d, d->l.last, d->l.w.operator_id, edit_origin);
    prove(d);
}

static void of_another_tree(watcher *d)
{
    restore(d, d->l.last, d->l.w.operator_id, edit_root);
    prove(d);
}

static void of_another_size(watcher *d)
{
    restore(d, d->l.last, d->l.w.operator_id, edit_size);
    prove(d);
}

static void under_another_key(watcher *d)
{
    restore(d, d->l.last, d->l.w.operator_id, edit_key);
    prove(d);
}

/* The operator is shown another last word than this device has seen. */
static void after_a_split(watcher *d)
{
    char note[TACIT_CHECKPOINT_MAX];
    tacit_checkpoint c = {.origin = WORLD_ORIGIN, .size = d->l.kept + 2, .root = {7}};
    OK(tacit_checkpoint_sign(&c, d->l.w.log, note, &d->l.w.err));
    restore(d, note, d->l.w.operator_id, NULL);
    prove(d);
}

/* One entry that the device saw of what is kept was rewritten, and what followed it. */
static void of_a_rewritten_copy(watcher *d)
{
    uint64_t kept = d->l.kept;
    d->l.kept = d->seen - 1;
    restored_cut(&d->l);
    while (d->l.w.count < kept)
        world_start(&d->l.w);
    d->l.kept = kept;
    restore(d, d->l.last, d->l.w.operator_id, NULL);
    prove(d);
}

static void from_an_older_checkpoint(watcher *d)
{
    d->seen = 4;
    restore(d, d->l.last, d->l.w.operator_id, NULL);
    prove(d);
}

static void without_growth(watcher *d)
{
    restore(d, d->l.last, d->l.w.operator_id, NULL);
    prove(d);
    d->made.step[0].growth.count = 0;
}

static void not_in_the_log(watcher *d)
{
    restore(d, d->l.last, d->l.w.operator_id, NULL);
    prove(d);
    d->made.step[0].entry.index--;
}

static void no_restore_at_all(watcher *d)
{
    restore(d, d->l.last, d->l.w.operator_id, NULL);
    prove(d);
    d->made.step[0].entry.entry = (tacit_span){d->l.w.entry[0].bytes, d->l.w.entry[0].size};
}

static void nothing(watcher *d)
{
    restore(d, d->l.last, d->l.w.operator_id, NULL);
    prove(d);
    d->made.proof.count = 0;
}

static const struct {
    const char *what;
    void (*go_on)(watcher *);
    const char *says;
} refused[] = {
    {"a restore by the log's key", by_the_log, "operator key"},
    {"a restore by a log that is its own operator", by_the_log_as_operator, "the log's own key"},
    {"a restore by a stranger", by_a_stranger, "operator key"},
    {"a generation skipped", generation_skipped, "generation"},
    {"a restore of another log", of_another_log, "checkpoint"},
    {"a restore of another tree", of_another_tree, "does not continue"},
    {"a restore of more than there is", of_another_size, ""},
    {"a restore under another key", under_another_key, "checkpoint"},
    {"another last word than was seen", after_a_split, "two trees"},
    {"a copy that was rewritten", of_a_rewritten_copy, "does not continue"},
    {"a proof from an older checkpoint", from_an_older_checkpoint, "older"},
    {"no proof that the copy is the beginning", without_growth, "does not continue"},
    {"a restore that is not in the log", not_in_the_log, "does not hold"},
    {"another entry", no_restore_at_all, "no such entry"},
    {"nothing", nothing, "no restore"},
};

static void test_nobody_else_moves_a_device(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof refused / sizeof refused[0]; i++) {
        watcher d;
        char *held;
        uint64_t size;
        watch(&d, true);
        uint64_t before = d.l.w.count;
        if (refused[i].go_on != of_a_rewritten_copy)
            restored_cut(&d.l);
        refused[i].go_on(&d);
        tacit_status status = follow(&d);
        if (status != TACIT_INTEGRITY || !strstr(d.l.w.err.message, refused[i].says))
            fail_msg("%s: status %d, '%s'", refused[i].what, status, d.l.w.err.message);
        OK(tacit_account_last_checkpoint(d.account, &held, &size, &d.l.w.err));
        assert_int_equal(size, before);
        assert_string_equal(held, d.l.last);
        free(held);
        assert_string_equal(d.log.name, WORLD_ORIGIN);
        assert_int_equal(d.generation, 1);
        watch_end(&d);
    }
}

/* --- a ledger and an account --- */

typedef struct fixture {
    world w;
    char dir[64];
    tacit_database *server, *device;
    tacit_ledger *ledger;
    tacit_account *account;
    tacit_note_key log;
    uint32_t generation;
    tacit_reservation made[8];
    size_t made_count;
    tacit_error err;
} fixture;

static void open_ledger(fixture *f, const char *name)
{
    char path[128];
    snprintf(path, sizeof path, "%s/%s", f->dir, name);
    OK(tacit_database_open(&f->server, path, &f->err));
    OK(tacit_ledger_open(&f->ledger, f->server, WORLD_ORIGIN, f->w.log, &f->err));
}

static void close_ledger(fixture *f)
{
    tacit_ledger_close(f->ledger);
    tacit_database_close(f->server);
}

static void copy_ledger(fixture *f, const char *name)
{
    char command[256];
    OK(tacit_database_run(f->server, "PRAGMA wal_checkpoint(TRUNCATE)", &f->err));
    snprintf(command, sizeof command, "cp %s/server.db %s/%s", f->dir, f->dir, name);
    assert_int_equal(system(command), 0);
}

/* Appends an entry, with a checkpoint of its own. */
static tacit_status append(fixture *f, const void *bytes, size_t size, uint64_t *index)
{
    char note[TACIT_CHECKPOINT_MAX];
    uint64_t covered;
    OK(tacit_database_begin(f->server, &f->err));
    tacit_status status = tacit_ledger_append(f->ledger, bytes, size, index, NULL, &f->err);
    if (status == TACIT_OK)
        status = tacit_ledger_checkpoint(f->ledger, note, &covered, &f->err);
    if (status == TACIT_OK)
        OK(tacit_database_commit(f->server, &f->err));
    else
        tacit_database_rollback(f->server);
    return status;
}

/* What the world made last. */
static void append_made(fixture *f)
{
    OK(append(f, f->w.entry[f->w.count - 1].bytes, f->w.entry[f->w.count - 1].size, NULL));
}

static uint64_t held_size(fixture *f)
{
    char *note;
    uint64_t size = 0;
    if (tacit_account_last_checkpoint(f->account, &note, &size, &f->err) == TACIT_OK)
        free(note);
    return size;
}

/* The receipt of an own entry, from the ledger as it is. */
static void acknowledge(fixture *f, const tacit_reservation *r, uint64_t index)
{
    char note[TACIT_CHECKPOINT_MAX];
    static const uint8_t nonce[32] = {1};
    uint64_t size;
    tacit_receipt receipt = {.entry = {r->entry, r->entry_size}, .index = index};
    tacit_proof consistency = {.count = 0};
    OK(tacit_ledger_last_checkpoint(f->ledger, note, &size, &f->err));
    receipt.checkpoint = (tacit_span){(const uint8_t *)note, strlen(note)};
    OK(tacit_ledger_inclusion(f->ledger, index, size, &receipt.inclusion, &f->err));
    if (held_size(f))
        OK(tacit_ledger_consistency(f->ledger, held_size(f), size, &consistency, &f->err));
    OK(tacit_account_acknowledge(f->account, r->hash, &receipt, &consistency, &f->log, nonce,
                                 &f->err));
}

/* Into the ledger and back as a receipt. */
static void bring(fixture *f, const tacit_reservation *r)
{
    uint64_t index;
    OK(append(f, r->entry, r->entry_size, &index));
    acknowledge(f, r, index);
}

static void reserve(fixture *f, int round)
{
    tacit_reserve_request request = {.device = f->w.device[0].name,
                                     .plan = {f->w.plan[round], f->w.plan_size[round]},
                                     .schedule = {f->w.schedule, f->w.schedule_size}};
    OK(tacit_account_reserve(f->account, &request, &f->made[f->made_count++], &f->err));
}

static void spend(fixture *f, size_t of)
{
    const uint8_t digest[TACIT_HASH_BYTES] = {(uint8_t)(of + 1)};
    OK(tacit_account_spend(f->account, f->made[of].hash, digest, &f->made[f->made_count++],
                           &f->err));
}

/* A round that the backup has and one that it lacks. */
static int set_up(void **state)
{
    char path[128];
    fixture *f = calloc(1, sizeof *f);
    snprintf(f->dir, sizeof f->dir, "/tmp/tacit-restore-XXXXXX");
    assert_non_null(mkdtemp(f->dir));
    world_init(&f->w);
    f->w.policy.epsilon_cap = 8;
    world_plan_all(&f->w);
    f->log = world_log_key(&f->w);
    f->generation = 1;
    open_ledger(f, "server.db");
    snprintf(path, sizeof path, "%s/device.db", f->dir);
    OK(tacit_database_open(&f->device, path, &f->err));
    OK(tacit_account_create(f->device, &f->w.policy, false, f->w.device[0].id, &f->err));
    OK(tacit_account_open(&f->account, f->device, f->w.device[0].id, &f->err));
    world_start(&f->w);
    append_made(f);
    world_enrol(&f->w, 0);
    append_made(f);
    world_log_schedule(&f->w);
    append_made(f);
    world_log_plan(&f->w, 0);
    append_made(f);
    reserve(f, 0);
    bring(f, &f->made[0]);
    copy_ledger(f, "backup.db");
    world_log_plan(&f->w, 1);
    append_made(f);
    spend(f, 0);
    bring(f, &f->made[1]);
    reserve(f, 1);
    bring(f, &f->made[2]);
    spend(f, 2);
    bring(f, &f->made[3]);
    *state = f;
    return 0;
}

static int tear_down(void **state)
{
    fixture *f = *state;
    char command[96];
    for (size_t i = 0; i < f->made_count; i++)
        tacit_reservation_free(&f->made[i]);
    close_ledger(f);
    tacit_account_close(f->account);
    tacit_database_close(f->device);
    snprintf(command, sizeof command, "rm -rf %s", f->dir);
    assert_int_equal(system(command), 0);
    world_free(&f->w);
    free(f);
    return 0;
}

static tacit_status restore_ledger(fixture *f, const tacit_identity *by, const char *last,
                                   uint64_t *index)
{
    tacit_restore done;
    OK(tacit_database_begin(f->server, &f->err));
    tacit_status status = tacit_ledger_restore(f->ledger, by, last, &done, index, &f->err);
    if (status != TACIT_OK) {
        tacit_database_rollback(f->server);
        return status;
    }
    OK(tacit_database_commit(f->server, &f->err));
    assert_int_equal(done.size, 5); /* start, enrolment, schedule, plan, reserve */
    assert_string_equal(done.new_origin, WORLD_ORIGIN "/2");
    return TACIT_OK;
}

/* From the ledger, as the server's method gives it. */
static uint64_t follow_ledger(fixture *f)
{
    tacit_ledger_restored since[TACIT_RESTORES_MAX];
    tacit_restore_step step;
    tacit_restore_proof proof = {.step = &step, .count = 1};
    char note[TACIT_CHECKPOINT_MAX];
    uint8_t *entry;
    size_t size, n;
    uint64_t covered, again;
    OK(tacit_ledger_restores_since(f->ledger, f->log.name, since, &n, &f->err));
    assert_int_equal(n, 1);
    OK(tacit_ledger_last_checkpoint(f->ledger, note, &covered, &f->err));
    OK(tacit_ledger_entry(f->ledger, since[0].index, &entry, &size, &f->err));
    step.entry = (tacit_receipt){.entry = {entry, size}, .index = since[0].index};
    OK(tacit_ledger_inclusion(f->ledger, since[0].index, covered, &step.entry.inclusion, &f->err));
    OK(tacit_ledger_consistency(f->ledger, since[0].size, covered, &step.growth, &f->err));
    OK(tacit_account_held_before(f->account, since[0].size, &proof.held_size, &f->err));
    OK(tacit_ledger_consistency(f->ledger, proof.held_size, covered, &proof.consistency, &f->err));
    proof.checkpoint = (tacit_span){(const uint8_t *)note, strlen(note)};
    OK(tacit_account_follow_restore(f->account, &proof, tacit_identity_sign_key(f->w.operator_id),
                                    &f->log, &f->generation, &again, &f->err));
    free(entry);
    return again;
}

static void back_to_the_backup(fixture *f, char last[TACIT_CHECKPOINT_MAX])
{
    uint64_t size;
    OK(tacit_ledger_last_checkpoint(f->ledger, last, &size, &f->err));
    close_ledger(f);
    open_ledger(f, "backup.db");
}

static void expect_same_epsilon(fixture *f)
{
    tacit_ledger_device logged;
    tacit_account_status own;
    OK(tacit_ledger_device_get(f->ledger, f->w.device[0].name, &logged, &f->err));
    OK(tacit_account_status_get(f->account, &own, &f->err));
    assert_true(logged.epsilon == own.epsilon && own.epsilon > 0);
    assert_int_equal(logged.next_sequence, own.next_sequence);
}

static void test_a_device_follows_and_brings_what_was_lost(void **state)
{
    fixture *f = *state;
    char last[TACIT_CHECKPOINT_MAX];
    uint64_t index, again;
    tacit_account_status before, now;
    tacit_ledger_reserve lost;
    OK(tacit_account_status_get(f->account, &before, &f->err));
    back_to_the_backup(f, last);
    OK(restore_ledger(f, f->w.operator_id, last, &index));
    assert_int_equal(index, 5);
    again = follow_ledger(f);
    assert_int_equal(again, 2); /* the first reserve is in the copy, as proved */
    OK(tacit_account_status_get(f->account, &now, &f->err));
    assert_int_equal(now.unacknowledged, 3);
    assert_true(now.epsilon == before.epsilon && now.reserves == 2 && now.spends == 2);
    for (uint64_t i = again - 1; i < 4; i++)
        bring(f, &f->made[i]);
    OK(tacit_account_status_get(f->account, &now, &f->err));
    assert_int_equal(now.unacknowledged, 0);
    expect_same_epsilon(f);
    OK(tacit_ledger_reserve_get(f->ledger, f->made[2].hash, &lost, &f->err));
    assert_true(lost.outdated && lost.spent); /* charged, and no update under it counts */
    world_log_plan(&f->w, 2);
    append_made(f);
    reserve(f, 2);
    bring(f, &f->made[4]);
    expect_same_epsilon(f);
}

static void test_a_lost_plan_is_forgiven_once(void **state)
{
    fixture *f = *state;
    char last[TACIT_CHECKPOINT_MAX];
    uint64_t index;
    back_to_the_backup(f, last);
    OK(append(f, f->made[1].entry, f->made[1].entry_size, NULL));
    assert_int_equal(append(f, f->made[2].entry, f->made[2].entry_size, NULL), TACIT_NOT_FOUND);
    close_ledger(f);
    open_ledger(f, "backup.db");
    assert_int_equal(restore_ledger(f, f->w.log, last, &index), TACIT_INTEGRITY);
    close_ledger(f);
    open_ledger(f, "backup.db");
    OK(tacit_database_begin(f->server, &f->err));
    OK(tacit_ledger_restore(f->ledger, f->w.operator_id, last, NULL, &index, &f->err));
    OK(tacit_database_commit(f->server, &f->err));
    /* A device that was not there before has lost nothing. */
    world_enrol(&f->w, 1);
    append_made(f);
    memset(f->w.device[1].head, 0, TACIT_HASH_BYTES);
    world_reserve(&f->w, 1, 1);
    assert_int_equal(
        append(f, f->w.entry[f->w.count - 1].bytes, f->w.entry[f->w.count - 1].size, NULL),
        TACIT_NOT_FOUND);
    /* One that goes on has nothing left to bring. */
    world_log_plan(&f->w, 2);
    append_made(f);
    world_device *d = &f->w.device[0];
    d->sequence = 2;
    memcpy(d->head, f->made[1].hash, sizeof d->head);
    tacit_event event = {TACIT_ADD_REMOVE, tacit_noise_multiplier(100000),
                         tacit_sampling_rate(TACIT_Q_ONE / 20), 10};
    OK(tacit_budget_add(&d->budget, &event, WORLD_VALUES, true, &f->err));
    world_reserve(&f->w, 2, 0);
    append_made(f);
    world_reserve(&f->w, 1, 0);
    assert_int_equal(
        append(f, f->w.entry[f->w.count - 1].bytes, f->w.entry[f->w.count - 1].size, NULL),
        TACIT_NOT_FOUND);
}

static uint8_t other_lineage[16] = {9}, other_plan[TACIT_HASH_BYTES] = {8};

static bool make_local(world *w, Tacit__Entry *e, int round, int device)
{
    (void)w;
    (void)round;
    (void)device;
    e->reserve->round_id = (ProtobufCBinaryData){0};
    e->reserve->lineage = tacit_field_of(other_lineage, sizeof other_lineage);
    e->reserve->plan_hash = tacit_field_of(other_plan, sizeof other_plan);
    return true;
}

static bool join_the_local(world *w, Tacit__Entry *e, int round, int device)
{
    (void)w;
    (void)round;
    (void)device;
    e->reserve->lineage = tacit_field_of(other_lineage, sizeof other_lineage);
    return true;
}

static bool state_a_low_cap(world *w, Tacit__Entry *e, int round, int device)
{
    (void)w;
    (void)round;
    (void)device;
    e->reserve->epsilon_cap = 1.001 * e->reserve->epsilon_after;
    return true;
}

static tacit_status append_reserve(fixture *f, int round, world_hook *hook)
{
    f->w.hook = hook;
    world_reserve(&f->w, round, 0);
    f->w.hook = NULL;
    return append(f, f->w.entry[f->w.count - 1].bytes, f->w.entry[f->w.count - 1].size, NULL);
}

/* What an auditor would find is not taken, whatever a device says that it lost. */
static void test_a_lost_plan_excuses_nothing_else(void **state)
{
    fixture *f = *state;
    world_device *d = &f->w.device[0];
    char last[TACIT_CHECKPOINT_MAX];
    uint64_t index;
    tacit_event event = {TACIT_ADD_REMOVE, tacit_noise_multiplier(100000),
                         tacit_sampling_rate(TACIT_Q_ONE / 20), 10};
    back_to_the_backup(f, last);
    OK(restore_ledger(f, f->w.operator_id, last, &index));
    d->sequence = 1;
    memcpy(d->head, f->made[0].hash, sizeof d->head);
    OK(tacit_budget_add(&d->budget, &event, WORLD_VALUES, true, &f->err));
    OK(append_reserve(f, 0, make_local));
    assert_int_equal(append_reserve(f, 1, join_the_local), TACIT_REFUSED);
    assert_non_null(strstr(f->err.message, "local training"));
    close_ledger(f);
    open_ledger(f, "another.db");
    for (int i = 0; i < 3; i++) /* start, enrolment, schedule */
        OK(append(f, f->w.entry[i].bytes, f->w.entry[i].size, NULL));
    OK(tacit_database_begin(f->server, &f->err));
    OK(tacit_ledger_restore(f->ledger, f->w.operator_id, NULL, NULL, &index, &f->err));
    OK(tacit_database_commit(f->server, &f->err));
    d->sequence = 0;
    memset(d->head, 0, sizeof d->head);
    tacit_budget_open(&d->budget, f->w.policy.epsilon_cap, f->w.policy.delta);
    assert_int_equal(append_reserve(f, 0, state_a_low_cap), TACIT_REFUSED);
    assert_non_null(strstr(f->err.message, "whole schedule"));
}

/* The origin is the database's: a restart goes on under it, and only under the log's own name. */
static void test_a_restored_log_goes_on(void **state)
{
    fixture *f = *state;
    char last[TACIT_CHECKPOINT_MAX], note[TACIT_CHECKPOINT_MAX];
    uint64_t index, size;
    tacit_checkpoint c;
    tacit_ledger *other;
    tacit_ledger_restored since[TACIT_RESTORES_MAX];
    size_t n;
    back_to_the_backup(f, last);
    assert_int_equal(restore_ledger(f, f->w.stranger, last, &index), TACIT_INTEGRITY);
    close_ledger(f);
    open_ledger(f, "backup.db"); /* nothing changed */
    assert_string_equal(tacit_ledger_key(f->ledger)->name, WORLD_ORIGIN);
    OK(restore_ledger(f, f->w.operator_id, NULL, &index));
    close_ledger(f);
    open_ledger(f, "backup.db");
    assert_string_equal(tacit_ledger_key(f->ledger)->name, WORLD_ORIGIN "/2");
    OK(tacit_ledger_last_checkpoint(f->ledger, note, &size, &f->err));
    OK(tacit_checkpoint_verify(&c, note, strlen(note), tacit_ledger_key(f->ledger), &f->err));
    assert_int_equal(c.size, 6);
    assert_int_equal(tacit_ledger_restores_since(f->ledger, WORLD_ORIGIN "/2", since, &n, &f->err),
                     TACIT_NOT_FOUND);
    assert_int_equal(tacit_ledger_open(&other, f->server, WORLD_ORIGIN "/2", f->w.log, &f->err),
                     TACIT_INTEGRITY);
    Tacit__Entry e = TACIT__ENTRY__INIT; /* and no log is its own operator */
    Tacit__ServerStart s = TACIT__SERVER_START__INIT;
    char version[] = "1", origin[] = WORLD_ORIGIN "/2";
    s.version = version;
    s.origin = origin;
    s.log_key = s.operator_key = tacit_field_of(tacit_identity_sign_key(f->w.log), 32);
    e.body_case = TACIT__ENTRY__BODY_SERVER_START;
    e.server_start = &s;
    world_push(&f->w, &e, f->w.log, NULL);
    assert_int_equal(
        append(f, f->w.entry[f->w.count - 1].bytes, f->w.entry[f->w.count - 1].size, NULL),
        TACIT_INTEGRITY);
    assert_non_null(strstr(f->err.message, "the log's own key"));
    world_start(&f->w); /* under the old origin */
    assert_int_equal(
        append(f, f->w.entry[f->w.count - 1].bytes, f->w.entry[f->w.count - 1].size, NULL),
        TACIT_INTEGRITY);
}

#define WITH(test) cmocka_unit_test_setup_teardown(test, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_device_follows_the_operator),
        cmocka_unit_test(test_two_restores_are_followed_at_once),
        cmocka_unit_test(test_nobody_else_moves_a_device),
        WITH(test_a_device_follows_and_brings_what_was_lost),
        WITH(test_a_lost_plan_is_forgiven_once),
        WITH(test_a_lost_plan_excuses_nothing_else),
        WITH(test_a_restored_log_goes_on),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
