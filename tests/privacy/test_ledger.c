#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "common/database.h"
#include "log_edits.h"
#include "privacy/ledger.h"

#include <unistd.h>

typedef struct fixture {
    world w;
    char dir[64], path[128];
    tacit_database *db;
    tacit_ledger *ledger;
    tacit_error err;
} fixture;

static void ledger_reopen(fixture *f)
{
    tacit_ledger_close(f->ledger);
    tacit_database_close(f->db);
    OK(tacit_database_open(&f->db, f->path, &f->err));
    OK(tacit_ledger_open(&f->ledger, f->db, WORLD_ORIGIN, f->w.log, &f->err));
}

static int set_up(void **state)
{
    fixture *f = calloc(1, sizeof *f);
    world_init(&f->w);
    snprintf(f->dir, sizeof f->dir, "/tmp/tacit-ledger-XXXXXX");
    assert_non_null(mkdtemp(f->dir));
    snprintf(f->path, sizeof f->path, "%s/server.db", f->dir);
    OK(tacit_database_open(&f->db, f->path, &f->err));
    OK(tacit_ledger_open(&f->ledger, f->db, WORLD_ORIGIN, f->w.log, &f->err));
    *state = f;
    return 0;
}

static int tear_down(void **state)
{
    fixture *f = *state;
    char command[128];
    tacit_ledger_close(f->ledger);
    tacit_database_close(f->db);
    snprintf(command, sizeof command, "rm -rf %s", f->dir);
    assert_int_equal(system(command), 0);
    world_free(&f->w);
    free(f);
    return 0;
}

/* One append between marks of the open transaction; on failure nothing of it stays. */
static tacit_status append_one(fixture *f, size_t i, uint64_t *index)
{
    uint8_t leaf[TACIT_HASH_BYTES];
    bool own = !tacit_database_in_transaction(f->db);
    if (own)
        OK(tacit_database_begin(f->db, &f->err));
    OK(tacit_database_mark(f->db, &f->err));
    tacit_status status = tacit_ledger_append(f->ledger, f->w.entry[i].bytes, f->w.entry[i].size,
                                              index, leaf, &f->err);
    if (status == TACIT_OK)
        OK(tacit_database_keep(f->db, &f->err));
    else
        tacit_database_undo(f->db);
    if (own)
        OK(tacit_database_commit(f->db, &(tacit_error){0}));
    return status;
}

static void append_until(fixture *f, size_t n)
{
    OK(tacit_database_begin(f->db, &f->err));
    for (size_t i = 0; i < n; i++) {
        uint64_t index;
        tacit_status status = append_one(f, i, &index);
        if (status != TACIT_OK)
            print_error("entry %zu: %s\n", i, f->err.message);
        assert_int_equal(status, TACIT_OK);
        assert_int_equal(index, i);
    }
    OK(tacit_database_commit(f->db, &f->err));
}

static void standard(fixture *f)
{
    world_plan_all(&f->w);
    world_log(&f->w);
}

static void test_the_standard_log_has_the_naive_root(void **state)
{
    fixture *f = *state;
    uint8_t root[TACIT_HASH_BYTES], expected[TACIT_HASH_BYTES];
    tacit_merkle_store store = tacit_merkle_memory_store(&f->w.tree);
    uint64_t size;
    standard(f);
    append_until(f, f->w.count);
    OK(tacit_ledger_size(f->ledger, &size, &f->err));
    assert_int_equal(size, f->w.count);
    for (uint64_t n = 0; n <= size; n++) {
        OK(tacit_ledger_root(f->ledger, n, root, &f->err));
        OK(tacit_merkle_root(&store, n, expected, &f->err));
        assert_memory_equal(root, expected, sizeof root);
    }
}

/* A schedule whose clip norm adapts: the log takes what its devices reserve, at what gradients and
 * count cost together. */
static void test_an_adaptive_clip_is_logged_at_its_cost(void **state)
{
    fixture *f = *state;
    tacit_ledger_device d;
    f->w.edit_schedule = world_adapt_schedule;
    f->w.edit_plan = world_adapt_plan;
    standard(f);
    append_until(f, f->w.count);
    double z = 1 / sqrt(1 / pow(tacit_noise_multiplier(100000), 2) +
                        1 / pow(tacit_noise_multiplier(400000), 2));
    tacit_event event = {TACIT_ADD_REMOVE, z, tacit_sampling_rate(TACIT_Q_ONE / 20),
                         10 * WORLD_ROUNDS};
    OK(tacit_ledger_device_get(f->ledger, f->w.device[0].name, &d, &f->err));
    assert_true(is_cost_of(d.epsilon, event, 1e-5));
}

static void test_checkpoints_and_proofs_verify(void **state)
{
    fixture *f = *state;
    char note[TACIT_CHECKPOINT_MAX], again[TACIT_CHECKPOINT_MAX];
    uint64_t size;
    tacit_checkpoint c;
    tacit_proof proof;
    standard(f);
    append_until(f, f->w.count);
    assert_int_equal(tacit_ledger_last_checkpoint(f->ledger, note, &size, &f->err),
                     TACIT_NOT_FOUND);
    OK(tacit_database_begin(f->db, &f->err));
    OK(tacit_ledger_checkpoint(f->ledger, note, &size, &f->err));
    OK(tacit_database_commit(f->db, &f->err));
    OK(tacit_checkpoint_verify(&c, note, strlen(note), tacit_ledger_key(f->ledger), &f->err));
    assert_int_equal(c.size, f->w.count);
    OK(tacit_ledger_checkpoint(f->ledger, again, &size, &f->err));
    assert_string_equal(note, again);
    for (uint64_t i = 0; i < c.size; i++) {
        uint8_t leaf[TACIT_HASH_BYTES];
        tacit_merkle_leaf(leaf, f->w.entry[i].bytes, f->w.entry[i].size);
        OK(tacit_ledger_inclusion(f->ledger, i, c.size, &proof, &f->err));
        OK(tacit_merkle_verify_inclusion(leaf, i, c.size, &proof, c.root, &f->err));
    }
    uint8_t old_root[TACIT_HASH_BYTES];
    OK(tacit_ledger_root(f->ledger, 7, old_root, &f->err));
    OK(tacit_ledger_consistency(f->ledger, 7, c.size, &proof, &f->err));
    OK(tacit_merkle_verify_consistency(7, old_root, c.size, c.root, &proof, &f->err));
    ledger_reopen(f);
}

static void checkpoint_of(fixture *f, char note[TACIT_CHECKPOINT_MAX], uint64_t *size)
{
    OK(tacit_database_begin(f->db, &f->err));
    OK(tacit_ledger_checkpoint(f->ledger, note, size, &f->err));
    OK(tacit_database_commit(f->db, &f->err));
}

static tacit_status cosign(fixture *f, const char *note, const tacit_note_key *witness)
{
    OK(tacit_database_begin(f->db, &f->err));
    tacit_status status = tacit_ledger_cosign(f->ledger, note, strlen(note), witness, &f->err);
    OK(tacit_database_commit(f->db, &(tacit_error){0}));
    return status;
}

static void test_cosignatures_are_kept_with_their_checkpoints(void **state)
{
    fixture *f = *state;
    char first[TACIT_CHECKPOINT_MAX], second[TACIT_CHECKPOINT_MAX], note[TACIT_CHECKPOINT_MAX];
    uint64_t early, late, size;
    tacit_note_key witness, stranger;
    OK(tacit_note_key_make(&witness, "w", tacit_identity_sign_key(f->w.policy_key), &f->err));
    OK(tacit_note_key_make(&stranger, "w", tacit_identity_sign_key(f->w.stranger), &f->err));
    standard(f);
    append_until(f, 5);
    checkpoint_of(f, first, &early);
    OK(tacit_database_begin(f->db, &f->err));
    for (size_t i = 5; i < f->w.count; i++)
        OK(append_one(f, i, &size));
    OK(tacit_database_commit(f->db, &f->err));
    checkpoint_of(f, second, &late);
    assert_int_equal(tacit_ledger_cosigned(f->ledger, note, &size, &f->err), TACIT_NOT_FOUND);
    assert_int_equal(cosign(f, first, &witness), TACIT_INTEGRITY); /* it is not cosigned */

    OK(tacit_checkpoint_cosign(first, &witness, f->w.policy_key, 77, &f->err));
    assert_int_equal(cosign(f, first, &stranger), TACIT_INTEGRITY);
    OK(cosign(f, first, &witness));
    OK(cosign(f, first, &witness));
    OK(tacit_ledger_cosigned(f->ledger, note, &size, &f->err));
    assert_int_equal(size, early);
    assert_string_equal(note, first);

    OK(tacit_checkpoint_cosign(second, &witness, f->w.policy_key, 78, &f->err));
    OK(cosign(f, second, &witness));
    ledger_reopen(f);
    OK(tacit_ledger_cosigned(f->ledger, note, &size, &f->err));
    assert_int_equal(size, late);
    assert_string_equal(note, second);
    OK(tacit_ledger_last_checkpoint(f->ledger, note, &size, &f->err));
    assert_string_equal(note, second);

    /* Of a tree that was never signed here, by the right key; and of another root. */
    world_checkpoint(&f->w, 7, note);
    OK(tacit_checkpoint_cosign(note, &witness, f->w.policy_key, 79, &f->err));
    assert_int_equal(cosign(f, note, &witness), TACIT_NOT_FOUND);
    tacit_checkpoint other = {.origin = WORLD_ORIGIN, .size = late, .root = {9}};
    OK(tacit_checkpoint_sign(&other, f->w.log, note, &f->err));
    OK(tacit_checkpoint_cosign(note, &witness, f->w.policy_key, 80, &f->err));
    assert_int_equal(cosign(f, note, &witness), TACIT_INTEGRITY);
    assert_int_equal(tacit_ledger_cosign(f->ledger, second, strlen(second), &witness, &f->err),
                     TACIT_USAGE);
}

static void test_the_same_bytes_again_change_nothing(void **state)
{
    fixture *f = *state;
    uint64_t index, size;
    standard(f);
    append_until(f, f->w.count);
    for (size_t i = 0; i < f->w.count; i++) {
        OK(append_one(f, i, &index));
        assert_int_equal(index, i);
    }
    OK(tacit_ledger_size(f->ledger, &size, &f->err));
    assert_int_equal(size, f->w.count);
}

static void test_a_rollback_takes_the_log_back(void **state)
{
    fixture *f = *state;
    uint64_t index, size;
    uint8_t before[TACIT_HASH_BYTES], after[TACIT_HASH_BYTES], leaf[TACIT_HASH_BYTES];
    standard(f);
    append_until(f, 7);
    OK(tacit_ledger_root(f->ledger, 7, before, &f->err));
    OK(tacit_database_begin(f->db, &f->err));
    for (size_t i = 7; i < 12; i++)
        OK(tacit_ledger_append(f->ledger, f->w.entry[i].bytes, f->w.entry[i].size, &index, leaf,
                               &f->err));
    tacit_database_rollback(f->db);
    OK(tacit_ledger_size(f->ledger, &size, &f->err));
    assert_int_equal(size, 7);
    OK(tacit_ledger_root(f->ledger, 7, after, &f->err));
    assert_memory_equal(before, after, sizeof before);
    /* And the chain state with it: the same entries fit again. */
    for (size_t i = 7; i < f->w.count; i++) {
        OK(append_one(f, i, &index));
        assert_int_equal(index, i);
    }
    assert_int_equal(tacit_ledger_append(f->ledger, f->w.entry[0].bytes, f->w.entry[0].size, &index,
                                         leaf, &f->err),
                     TACIT_USAGE);
}

/* Entries that were opened before: the same log as by their bytes. One that was only read, or is of
 * other bytes, is taken for nothing. */
static void test_opened_entries(void **state)
{
    fixture *f = *state;
    uint64_t index, size;
    uint8_t by_bytes[TACIT_HASH_BYTES], opened[TACIT_HASH_BYTES];
    tacit_entry e, read;
    standard(f);
    append_until(f, 9);
    OK(tacit_database_begin(f->db, &f->err));
    OK(tacit_entry_open(&e, f->w.entry[9].bytes, f->w.entry[9].size, &f->err));
    OK(tacit_entry_read(&read, f->w.entry[9].bytes, f->w.entry[9].size, &f->err));
    assert_int_equal(tacit_ledger_append_opened(f->ledger, &read, f->w.entry[9].bytes,
                                                f->w.entry[9].size, &index, &f->err),
                     TACIT_USAGE);
    assert_int_equal(tacit_ledger_append_opened(f->ledger, &e, f->w.entry[10].bytes,
                                                f->w.entry[10].size, &index, &f->err),
                     TACIT_USAGE);
    OK(tacit_ledger_size(f->ledger, &size, &f->err));
    assert_int_equal(size, 9);
    for (int again = 0; again < 2; again++) {
        OK(tacit_ledger_append_opened(f->ledger, &e, f->w.entry[9].bytes, f->w.entry[9].size,
                                      &index, &f->err));
        assert_int_equal(index, 9);
    }
    OK(tacit_ledger_root(f->ledger, 10, opened, &f->err));
    tacit_database_rollback(f->db);
    assert_int_equal(tacit_ledger_append_opened(f->ledger, &e, f->w.entry[9].bytes,
                                                f->w.entry[9].size, &index, &f->err),
                     TACIT_USAGE); /* no transaction */
    append_until(f, 10);
    OK(tacit_ledger_root(f->ledger, 10, by_bytes, &f->err));
    assert_memory_equal(by_bytes, opened, sizeof opened);
    tacit_entry_close(&e);
    tacit_entry_close(&read);
}

static void test_a_device_is_what_its_entries_say(void **state)
{
    fixture *f = *state;
    tacit_ledger_device d;
    standard(f);
    append_until(f, f->w.count);
    OK(tacit_ledger_device_get(f->ledger, f->w.device[1].name, &d, &f->err));
    assert_int_equal(d.next_sequence, 2 * WORLD_ROUNDS + 1);
    assert_memory_equal(d.head, f->w.device[1].head, TACIT_HASH_BYTES);
    /* Thirty runs of one event, straight from the accountant. */
    tacit_event event = {TACIT_ADD_REMOVE, tacit_noise_multiplier(100000),
                         tacit_sampling_rate(TACIT_Q_ONE / 20), 30};
    assert_true(is_cost_of(d.epsilon, event, 1e-5));
    assert_false(d.revoked || d.frozen || d.non_private);
    tacit_ledger_reserve r;
    OK(tacit_ledger_reserve_get(f->ledger, f->w.device[1].reserve[2], &r, &f->err));
    assert_true(r.spent && r.decided && r.accepted && !r.abandoned);
    assert_memory_equal(r.plan_hash, f->w.plan_hash[2], TACIT_HASH_BYTES);
}

/* --- entries that the ledger refuses: the hook spoils one, everything before it is fine --- */

static bool is(const Tacit__Entry *e, Tacit__Entry__BodyCase kind)
{
    return e->body_case == kind;
}

static bool no_start(world *w, Tacit__Entry *e, int round, int device)
{
    (void)w;
    (void)round;
    (void)device;
    return !is(e, TACIT__ENTRY__BODY_SERVER_START);
}

static bool other_origin(world *w, Tacit__Entry *e, int round, int device)
{
    (void)w;
    (void)round;
    (void)device;
    if (is(e, TACIT__ENTRY__BODY_SERVER_START))
        e->server_start->origin = (char *)(uintptr_t) "other.example";
    return true;
}

static bool gap(world *w, Tacit__Entry *e, int round, int device)
{
    (void)w;
    if (at(e, TACIT__ENTRY__BODY_SPEND, round, device, 0, 1))
        e->sequence += 1;
    return true;
}

static bool fork_sequence(world *w, Tacit__Entry *e, int round, int device)
{
    (void)w;
    if (at(e, TACIT__ENTRY__BODY_SPEND, round, device, 1, 1))
        e->sequence -= 1;
    return true;
}

static bool fork_previous(world *w, Tacit__Entry *e, int round, int device)
{
    (void)w;
    if (at(e, TACIT__ENTRY__BODY_SPEND, round, device, 0, 1))
        e->previous = filled(scratch, 32, 1);
    return true;
}

static bool by_stranger(world *w, Tacit__Entry *e, int round, int device)
{
    uint8_t leaf[TACIT_HASH_BYTES];
    if (!at(e, TACIT__ENTRY__BODY_RESERVE, round, device, 0, 0))
        return true;
    world_push(w, e, w->stranger, leaf);
    return false;
}

static bool server_by_stranger(world *w, Tacit__Entry *e, int round, int device)
{
    uint8_t leaf[TACIT_HASH_BYTES];
    if (!at(e, TACIT__ENTRY__BODY_PLAN, round, device, 0, -1))
        return true;
    world_push(w, e, w->stranger, leaf);
    return false;
}

static bool no_enrolment(world *w, Tacit__Entry *e, int round, int device)
{
    (void)w;
    return !at(e, TACIT__ENTRY__BODY_ENROL, round, device, -1, 0);
}

static bool other_policy(world *w, Tacit__Entry *e, int round, int device)
{
    (void)w;
    if (at(e, TACIT__ENTRY__BODY_ENROL, round, device, -1, 0))
        e->enrol->policy_signature.data[5] ^= 1;
    return true;
}

static bool wrong_epsilon(world *w, Tacit__Entry *e, int round, int device)
{
    (void)w;
    if (at(e, TACIT__ENTRY__BODY_RESERVE, round, device, 1, 0))
        e->reserve->epsilon_after *= 0.999;
    return true;
}

static bool higher_cap(world *w, Tacit__Entry *e, int round, int device)
{
    (void)w;
    if (at(e, TACIT__ENTRY__BODY_RESERVE, round, device, 0, 0))
        e->reserve->epsilon_cap *= 2;
    return true;
}

static bool fewer_steps(world *w, Tacit__Entry *e, int round, int device)
{
    (void)w;
    if (at(e, TACIT__ENTRY__BODY_RESERVE, round, device, 0, 0))
        e->reserve->steps -= 1;
    return true;
}

static bool no_plan(world *w, Tacit__Entry *e, int round, int device)
{
    (void)w;
    return !at(e, TACIT__ENTRY__BODY_PLAN, round, device, 0, -1);
}

static bool no_schedule(world *w, Tacit__Entry *e, int round, int device)
{
    (void)w;
    (void)round;
    (void)device;
    return !is(e, TACIT__ENTRY__BODY_SCHEDULE);
}

static bool digest_twice(world *w, Tacit__Entry *e, int round, int device)
{
    (void)w;
    if (at(e, TACIT__ENTRY__BODY_SPEND, round, device, 0, 1))
        e->spend->update_digest = filled(scratch, 32, 0x40);
    return true;
}

static bool others_reserve(world *w, Tacit__Entry *e, int round, int device)
{
    if (at(e, TACIT__ENTRY__BODY_SPEND, round, device, 0, 1))
        e->spend->reserve_hash = tacit_field_of(w->device[0].reserve[0], 32);
    return true;
}

static bool decided_twice(world *w, Tacit__Entry *e, int round, int device)
{
    if (at(e, TACIT__ENTRY__BODY_UPDATE, round, device, 0, 1)) {
        e->device = tacit_field_of(w->device[0].name, TACIT_DEVICE_BYTES);
        e->update->reserve_hash = tacit_field_of(w->device[0].reserve[0], 32);
        e->update->update_digest = tacit_field_of(w->device[0].digest[0], 32);
        e->update->accepted = false;
        e->update->reason = (char *)(uintptr_t) "norm";
    }
    return true;
}

static bool other_digest(world *w, Tacit__Entry *e, int round, int device)
{
    (void)w;
    if (at(e, TACIT__ENTRY__BODY_UPDATE, round, device, 0, 1))
        e->update->update_digest = filled(scratch, 32, 7);
    return true;
}

static bool unspent_decision(world *w, Tacit__Entry *e, int round, int device)
{
    (void)w;
    return !at(e, TACIT__ENTRY__BODY_SPEND, round, device, 0, 1);
}

static bool revoked(world *w, Tacit__Entry *e, int round, int device)
{
    if (at(e, TACIT__ENTRY__BODY_RESERVE, round, device, 1, 1))
        push_revoke(w, 1);
    return true;
}

static bool frozen(world *w, Tacit__Entry *e, int round, int device)
{
    if (at(e, TACIT__ENTRY__BODY_RESERVE, round, device, 1, 1))
        push_clone(w, 1);
    return true;
}

static bool lost_account(world *w, Tacit__Entry *e, int round, int device)
{
    if (at(e, TACIT__ENTRY__BODY_SPEND, round, device, 0, 2)) {
        e->body_case = TACIT__ENTRY__BODY_ACCOUNT_LOST;
        static Tacit__AccountLost lost;
        lost = (Tacit__AccountLost)TACIT__ACCOUNT_LOST__INIT;
        lost.epsilon_counted = w->policy.epsilon_cap;
        e->account_lost = &lost;
    }
    return !at(e, TACIT__ENTRY__BODY_UPDATE, round, device, 0, 2);
}

static bool cap_lowered(world *w, Tacit__Entry *e, int round, int device)
{
    if (at(e, TACIT__ENTRY__BODY_PLAN, round, device, 1, -1))
        push_policy(w, 0, 0.1, 1e-5, NULL);
    if (at(e, TACIT__ENTRY__BODY_RESERVE, round, device, 1, 0))
        e->reserve->epsilon_cap = 0.1;
    return true;
}

/* Device 0 signed its reserve of round 1 before its cap was lowered, and its update is accepted all
 * the same; `lowered_to` is the new cap. */
static double lowered_to = 2.9;

static bool lowered_then_accepted(world *w, Tacit__Entry *e, int round, int device)
{
    if (at(e, TACIT__ENTRY__BODY_RESERVE, round, device, 1, 0))
        push_policy(w, 0, lowered_to, 1e-5, NULL);
    return true;
}

/* The policy key raises the cap again before the decision: too late for this reserve. */
static bool raised_before_accepted(world *w, Tacit__Entry *e, int round, int device)
{
    if (at(e, TACIT__ENTRY__BODY_UPDATE, round, device, 1, 0))
        push_policy(w, 0, 30, 1e-5, w->policy_key);
    return lowered_then_accepted(w, e, round, device);
}

static bool tightened_then_accepted(world *w, Tacit__Entry *e, int round, int device)
{
    double noise = w->policy.minimum_noise_multiplier;
    if (at(e, TACIT__ENTRY__BODY_RESERVE, round, device, 1, 0)) {
        w->policy.minimum_noise_multiplier = 2;
        push_policy(w, 0, 3, 1e-5, NULL);
        w->policy.minimum_noise_multiplier = noise;
    }
    return true;
}

/* As an honest server and device go on: no spend, no decision, and the device states the lower cap
 * from the next round on. */
static bool lowered_alone(world *w, Tacit__Entry *e, int round, int device)
{
    if (at(e, TACIT__ENTRY__BODY_SPEND, round, device, 1, 0) ||
        at(e, TACIT__ENTRY__BODY_UPDATE, round, device, 1, 0))
        return false;
    if (at(e, TACIT__ENTRY__BODY_RESERVE, round, device, 2, 0))
        e->reserve->epsilon_cap = lowered_to;
    return lowered_then_accepted(w, e, round, device);
}

/* Signed by the device, before and after its first reserve. */
static void another_unit(world *w)
{
    tacit_privacy_unit unit = w->policy.unit;
    w->policy.unit = TACIT_UNIT_DEVICE;
    push_policy(w, 0, 3, 1e-5, w->device[0].id);
    w->policy.unit = unit;
}

static bool unit_changed_early(world *w, Tacit__Entry *e, int round, int device)
{
    if (AT(SCHEDULE, -1, -1)) {
        another_unit(w);
        w->policy.serial = 7;
        push_policy(w, 0, 3, 1e-5, w->device[0].id); /* and back */
        w->policy.serial = 0;
    }
    return true;
}

static bool unit_changed_late(world *w, Tacit__Entry *e, int round, int device)
{
    if (AT(PLAN, 1, -1))
        another_unit(w);
    return true;
}

static bool delta_changed(world *w, Tacit__Entry *e, int round, int device)
{
    if (AT(PLAN, 1, -1))
        push_policy(w, 0, 3, 1e-6, w->device[0].id);
    return true;
}

/* What the device signed once is logged again after the cap was lowered. */
static bool old_policy_again(world *w, Tacit__Entry *e, int round, int device)
{
    if (at(e, TACIT__ENTRY__BODY_PLAN, round, device, 1, -1)) {
        push_policy(w, 0, 2.9, 1e-5, w->device[0].id);
        push_policy(w, 0, 2.8, 1e-5, NULL);
        push_policy(w, 0, 2.9, 1e-5, w->device[0].id);
    }
    return true;
}

/* A device whose update waits is revoked, and the update accepted all the same. */
static bool accepted_though_revoked(world *w, Tacit__Entry *e, int round, int device)
{
    if (at(e, TACIT__ENTRY__BODY_UPDATE, round, device, 1, 0))
        push_revoke(w, 0);
    return true;
}

static bool pseudonym_taken(world *w, Tacit__Entry *e, int round, int device)
{
    if (AT(ENROL, -1, 1))
        e->device = tacit_field_of(w->device[0].name, TACIT_DEVICE_BYTES);
    return true;
}

/* A server that names itself as the key that may raise caps. */
static bool policy_key_swapped(world *w, Tacit__Entry *e, int round, int device)
{
    if (at(e, TACIT__ENTRY__BODY_ENROL, round, device, -1, 0))
        e->enrol->policy_key = tacit_field_of(tacit_identity_sign_key(w->stranger), 32);
    return true;
}

static bool cap_raised_unsigned(world *w, Tacit__Entry *e, int round, int device)
{
    if (at(e, TACIT__ENTRY__BODY_PLAN, round, device, 1, -1))
        push_policy(w, 0, 30, 1e-5, NULL);
    return true;
}

static bool cap_raised_by_stranger(world *w, Tacit__Entry *e, int round, int device)
{
    if (at(e, TACIT__ENTRY__BODY_PLAN, round, device, 1, -1))
        push_policy(w, 0, 30, 1e-5, w->stranger);
    return true;
}

static bool cap_raised_by_policy_key(world *w, Tacit__Entry *e, int round, int device)
{
    if (at(e, TACIT__ENTRY__BODY_PLAN, round, device, 1, -1))
        push_policy(w, 0, 30, 1e-5, w->policy_key);
    return true;
}

static bool cap_raised_by_device(world *w, Tacit__Entry *e, int round, int device)
{
    if (at(e, TACIT__ENTRY__BODY_PLAN, round, device, 1, -1))
        push_policy(w, 0, 30, 1e-5, w->device[0].id);
    return true;
}

static bool count_left_out(world *w, Tacit__Entry *e, int round, int device)
{
    (void)w;
    if (at(e, TACIT__ENTRY__BODY_RESERVE, round, device, 0, 1))
        e->reserve->quantile_b = 0;
    return true;
}

static void adapting_plan(Tacit__Plan *p, int round)
{
    if (round == 1)
        world_adapt(p->mechanism);
}

static void quiet_plan(Tacit__Plan *p, int round)
{
    if (round == 1)
        p->mechanism->b = 60000;
}

static void small_cohort(Tacit__Plan *p, int round)
{
    (void)round;
    p->cohort = 1;
    p->quorum = 1;
}

static void same_round(Tacit__Plan *p, int round)
{
    if (round == 1)
        p->round_id.data[0] = 0xa0;
    if (round == 1)
        memset(p->round_id.data, 0xa0, 16);
}

static const struct {
    const char *what;
    world_hook *hook;
    void (*edit_plan)(Tacit__Plan *, int);
    double cap;
    bool none;
    tacit_status status;
    const char *says;
} refusals[] = {
    {"no server start", no_start, NULL, 3, false, TACIT_CONFLICT, "begins with server_start"},
    {"another origin", other_origin, NULL, 3, false, TACIT_INTEGRITY, "another origin"},
    {"gap in a chain", gap, NULL, 3, false, TACIT_CONFLICT, "send entry 2 first"},
    {"sequence used twice", fork_sequence, NULL, 3, false, TACIT_INTEGRITY, "clone"},
    {"another head", fork_previous, NULL, 3, false, TACIT_INTEGRITY, "clone"},
    {"reserve by a stranger", by_stranger, NULL, 3, false, TACIT_INTEGRITY, "not signed"},
    {"plan by a stranger", server_by_stranger, NULL, 3, false, TACIT_INTEGRITY, "log's key"},
    {"unknown device", no_enrolment, NULL, 3, false, TACIT_REFUSED, "unknown device"},
    {"policy not signed", other_policy, NULL, 3, false, TACIT_INTEGRITY, "sign its policy"},
    {"wrong epsilon", wrong_epsilon, NULL, 3, false, TACIT_REFUSED, "states epsilon"},
    {"cap above the policy's", higher_cap, NULL, 3, false, TACIT_REFUSED, "cap is 3"},
    {"over the cap", NULL, NULL, 0.8, false, TACIT_REFUSED, "the whole schedule"},
    {"steps not the plan's", fewer_steps, NULL, 3, false, TACIT_REFUSED, "steps differs"},
    {"count left out", count_left_out, world_adapt_plan, 3, false, TACIT_REFUSED,
     "quantile_b differs"},
    {"adaptive, its schedule not", NULL, adapting_plan, 3, false, TACIT_INTEGRITY,
     "mechanism differs"},
    {"plan not logged", no_plan, NULL, 3, false, TACIT_NOT_FOUND, "plan"},
    {"schedule not logged", no_schedule, NULL, 3, false, TACIT_NOT_FOUND, "schedule"},
    {"update digest twice", digest_twice, NULL, 3, false, TACIT_CONFLICT, "was spent already"},
    {"another device's reserve", others_reserve, NULL, 3, false, TACIT_REFUSED, "another device"},
    {"decided twice", decided_twice, NULL, 3, false, TACIT_CONFLICT, "decided already"},
    {"digest not the spend's", other_digest, NULL, 3, false, TACIT_INTEGRITY, "digest"},
    {"accepted without spend", unspent_decision, NULL, 3, false, TACIT_NOT_FOUND, "no spend"},
    {"revoked device", revoked, NULL, 3, false, TACIT_REFUSED, "revoked"},
    {"frozen device", frozen, NULL, 3, false, TACIT_REFUSED, "clone"},
    {"accepted though revoked", accepted_though_revoked, NULL, 3, false, TACIT_REFUSED, "revoked"},
    {"unit changed", unit_changed_late, NULL, 3, false, TACIT_REFUSED,
     "reserved for the unit record; it cannot change to device"},
    {"delta changed", delta_changed, NULL, 3, false, TACIT_REFUSED, "delta cannot change"},
    {"an old policy again", old_policy_again, NULL, 3, false, TACIT_REFUSED, "logged before"},
    {"another policy key", policy_key_swapped, NULL, 3, false, TACIT_INTEGRITY,
     "did not sign its policy"},
    {"lost account", lost_account, NULL, 3, false, TACIT_REFUSED, "account lost"},
    {"local, less noise", local_noise, NULL, 3, false, TACIT_REFUSED, "noise multiplier"},
    {"local, in a schedule", local_in_a_schedule, NULL, 3, false, TACIT_REFUSED, "of its own"},
    {"local, of a plan", local_of_a_plan, NULL, 3, false, TACIT_REFUSED, "of its own"},
    {"local, a lineage again", local_twice, NULL, 3, false, TACIT_REFUSED, "of its own"},
    {"local, sent", local_update, NULL, 3, false, TACIT_REFUSED, "leaves a device"},
    {"cap lowered below", cap_lowered, NULL, 3, false, TACIT_REFUSED, "cap is 0.1"},
    {"accepted above a lowered cap", lowered_then_accepted, NULL, 3, false, TACIT_REFUSED,
     "no update under it"},
    {"accepted after the cap came back", raised_before_accepted, NULL, 3, false, TACIT_REFUSED,
     "no update under it"},
    {"accepted under tightened terms", tightened_then_accepted, NULL, 3, false, TACIT_REFUSED,
     "no update under it"},
    {"cap raised unsigned", cap_raised_unsigned, NULL, 3, false, TACIT_REFUSED, "signed"},
    {"cap raised by a stranger", cap_raised_by_stranger, NULL, 3, false, TACIT_REFUSED, "signed"},
    {"plan off its schedule", NULL, quiet_plan, 3, false, TACIT_INTEGRITY, "mechanism differs"},
    {"cohort under policy", NULL, small_cohort, 3, false, TACIT_REFUSED, "cohort 1 is below"},
    {"round id twice", NULL, same_round, 3, false, TACIT_CONFLICT, "has a plan already"},
    {"pseudonym taken", pseudonym_taken, NULL, 3, false, TACIT_CONFLICT, "is a device's already"},
    {"mechanism none", NULL, NULL, 3, true, TACIT_REFUSED, "none"},
};

/* Builds the log with one fault; the ledger must take everything before it and refuse it. */
static void check_refusal(size_t k)
{
    void *state;
    set_up(&state);
    fixture *f = state;
    tacit_status status = TACIT_OK;
    uint64_t index, before, after;
    f->w.hook = refusals[k].hook;
    f->w.edit_plan = refusals[k].edit_plan;
    f->w.edit_schedule = f->w.edit_plan == world_adapt_plan ? world_adapt_schedule : NULL;
    f->w.policy.epsilon_cap = refusals[k].cap;
    f->w.none = refusals[k].none;
    standard(f);
    size_t i = 0;
    OK(tacit_database_begin(f->db, &f->err));
    while (i < f->w.count && status == TACIT_OK) {
        OK(tacit_ledger_size(f->ledger, &before, &f->err));
        status = append_one(f, i++, &index);
    }
    OK(tacit_ledger_size(f->ledger, &after, &(tacit_error){0}));
    if (status != refusals[k].status || !strstr(f->err.message, refusals[k].says))
        print_error("%s: entry %zu: %d %s\n", refusals[k].what, i, status, f->err.message);
    assert_int_equal(status, refusals[k].status);
    assert_non_null(strstr(f->err.message, refusals[k].says));
    assert_int_equal(before, after);
    tear_down(&state);
}

static void test_faulty_entries_are_refused(void **state)
{
    (void)state;
    for (size_t k = 0; k < sizeof refusals / sizeof refusals[0]; k++)
        check_refusal(k);
}

/* The log has what the device signed, charges it, and takes what follows, over a restart. */
static void check_outdated(fixture *f, const uint8_t leaf[TACIT_HASH_BYTES], int reserves)
{
    tacit_ledger_reserve r;
    tacit_ledger_device d;
    tacit_event event = {TACIT_ADD_REMOVE, tacit_noise_multiplier(100000),
                         tacit_sampling_rate(TACIT_Q_ONE / 20), (uint64_t)10 * reserves};
    OK(tacit_ledger_reserve_get(f->ledger, leaf, &r, &f->err));
    assert_true(r.outdated && !r.spent && !r.accepted);
    OK(tacit_ledger_device_get(f->ledger, f->w.device[0].name, &d, &f->err));
    assert_true(d.policy.epsilon_cap == lowered_to);
    assert_true(is_cost_of(d.epsilon, event, 1e-5));
}

static size_t entry_of(const fixture *f, const uint8_t leaf[TACIT_HASH_BYTES])
{
    uint8_t found[TACIT_HASH_BYTES];
    for (size_t i = 0; i < f->w.count; i++) {
        tacit_merkle_leaf(found, f->w.entry[i].bytes, f->w.entry[i].size);
        if (memcmp(found, leaf, sizeof found) == 0)
            return i;
    }
    fail_msg("no such entry");
    return 0;
}

static void test_a_reserve_signed_before_the_cap_was_lowered_is_charged(void **state)
{
    fixture *f = *state;
    uint64_t index;
    tacit_ledger_reserve next;
    f->w.hook = lowered_alone;
    standard(f);
    const uint8_t *leaf = f->w.device[0].reserve[1];
    size_t at = entry_of(f, leaf);
    append_until(f, at + 1);
    check_outdated(f, leaf, 2);
    ledger_reopen(f);
    check_outdated(f, leaf, 2);
    OK(append_one(f, at, &index)); /* the device did not hear: the same bytes again */
    assert_int_equal(index, at);
    check_outdated(f, leaf, 2);
    for (size_t i = at + 1; i < f->w.count; i++)
        OK(append_one(f, i, &index));
    check_outdated(f, leaf, 3);
    OK(tacit_ledger_reserve_get(f->ledger, f->w.device[0].reserve[2], &next, &f->err));
    assert_true(!next.outdated && next.accepted);
}

/* Below what is spent already: charged all the same, and nothing of the device fits any more. */
static void test_a_cap_lowered_below_what_is_spent(void **state)
{
    fixture *f = *state;
    uint64_t index;
    lowered_to = 0.1;
    f->w.hook = lowered_alone;
    standard(f);
    const uint8_t *leaf = f->w.device[0].reserve[1];
    append_until(f, entry_of(f, leaf) + 1);
    check_outdated(f, leaf, 2);
    size_t next = entry_of(f, f->w.device[0].reserve[2]);
    for (size_t i = entry_of(f, leaf) + 1; i < next; i++)
        OK(append_one(f, i, &index));
    assert_int_equal(append_one(f, next, &index), TACIT_REFUSED);
    check_outdated(f, leaf, 2);
    lowered_to = 2.9;
}

static void test_local_training_is_taken(void **state)
{
    fixture *f = *state;
    f->w.hook = local_fine;
    standard(f);
    append_until(f, f->w.count);
}

static void test_caps_are_raised_by_the_right_keys(void **state)
{
    fixture *f = *state;
    tacit_ledger_device d;
    f->w.hook = cap_raised_by_policy_key;
    standard(f);
    append_until(f, f->w.count);
    OK(tacit_ledger_device_get(f->ledger, f->w.device[0].name, &d, &f->err));
    assert_true(d.policy.epsilon_cap == 30);
}

static void test_a_unit_changes_before_anything_is_reserved(void **state)
{
    fixture *f = *state;
    f->w.hook = unit_changed_early;
    standard(f);
    append_until(f, f->w.count);
}

static void test_the_device_itself_may_raise_its_cap(void **state)
{
    fixture *f = *state;
    f->w.hook = cap_raised_by_device;
    standard(f);
    append_until(f, f->w.count);
}

static void test_signatures_are_checked(void **state)
{
    fixture *f = *state;
    uint64_t index;
    standard(f);
    append_until(f, 5);
    f->w.entry[5].bytes[f->w.entry[5].size - 3] ^= 4;
    assert_int_equal(append_one(f, 5, &index), TACIT_INTEGRITY);
    f->w.entry[5].bytes[f->w.entry[5].size - 3] ^= 4;
    OK(append_one(f, 5, &index));
}

static void test_damage_is_found_when_opening(void **state)
{
    fixture *f = *state;
    static const char *const damage[] = {
        "UPDATE ledger_entry SET bytes = zeroblob(100) WHERE idx = 43",
        "DELETE FROM ledger_entry WHERE idx >= 30",
        "UPDATE ledger_node SET hash = zeroblob(32) WHERE level = 5 AND idx = 0",
        "DELETE FROM ledger_node WHERE level = 3",
        "UPDATE ledger_checkpoint SET note = replace(note, '44', '43')",
        "UPDATE ledger_checkpoint SET note = 'nothing'",
    };
    char note[TACIT_CHECKPOINT_MAX];
    uint64_t size;
    standard(f);
    append_until(f, f->w.count);
    OK(tacit_database_begin(f->db, &f->err));
    OK(tacit_ledger_checkpoint(f->ledger, note, &size, &f->err));
    OK(tacit_database_commit(f->db, &f->err));
    for (size_t i = 0; i < sizeof damage / sizeof damage[0]; i++) {
        tacit_ledger *other;
        OK(tacit_database_begin(f->db, &f->err));
        OK(tacit_database_run(f->db, damage[i], &f->err));
        OK(tacit_database_commit(f->db, &f->err));
        tacit_status status = tacit_ledger_open(&other, f->db, WORLD_ORIGIN, f->w.log, &f->err);
        if (status != TACIT_INTEGRITY && status != TACIT_BAD_INPUT && status != TACIT_NOT_FOUND)
            print_error("%s: %d\n", damage[i], status);
        assert_int_not_equal(status, TACIT_OK);
        tear_down(state);
        set_up(state);
        f = *state;
        standard(f);
        append_until(f, f->w.count);
        OK(tacit_database_begin(f->db, &f->err));
        OK(tacit_ledger_checkpoint(f->ledger, note, &size, &f->err));
        OK(tacit_database_commit(f->db, &f->err));
    }
}

static void test_another_origin_or_key_is_refused(void **state)
{
    fixture *f = *state;
    tacit_ledger *other;
    assert_int_equal(tacit_ledger_open(&other, f->db, "other.example", f->w.log, &f->err),
                     TACIT_INTEGRITY);
    assert_int_equal(tacit_ledger_open(&other, f->db, WORLD_ORIGIN, f->w.stranger, &f->err),
                     TACIT_INTEGRITY);
}

static void test_the_log_key_rotates(void **state)
{
    fixture *f = *state;
    tacit_ledger *other;
    uint64_t size;
    char note[TACIT_CHECKPOINT_MAX];
    tacit_checkpoint c;
    standard(f);
    append_until(f, 6);
    OK(tacit_database_begin(f->db, &f->err));
    OK(tacit_ledger_rotate(f->ledger, f->w.stranger, &f->err));
    OK(tacit_database_commit(f->db, &f->err));
    OK(tacit_ledger_last_checkpoint(f->ledger, note, &size, &f->err));
    assert_int_equal(size, 7);
    OK(tacit_checkpoint_verify(&c, note, strlen(note), tacit_ledger_key(f->ledger), &f->err));
    OK(tacit_ledger_open(&other, f->db, WORLD_ORIGIN, f->w.stranger, &f->err));
    tacit_ledger_close(other);
    assert_int_equal(tacit_ledger_open(&other, f->db, WORLD_ORIGIN, f->w.log, &f->err),
                     TACIT_INTEGRITY);
}

#define WITH(test) cmocka_unit_test_setup_teardown(test, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        WITH(test_the_standard_log_has_the_naive_root),
        WITH(test_an_adaptive_clip_is_logged_at_its_cost),
        WITH(test_checkpoints_and_proofs_verify),
        WITH(test_cosignatures_are_kept_with_their_checkpoints),
        WITH(test_the_same_bytes_again_change_nothing),
        WITH(test_a_rollback_takes_the_log_back),
        WITH(test_opened_entries),
        WITH(test_a_device_is_what_its_entries_say),
        cmocka_unit_test(test_faulty_entries_are_refused),
        WITH(test_a_reserve_signed_before_the_cap_was_lowered_is_charged),
        WITH(test_a_cap_lowered_below_what_is_spent),
        WITH(test_local_training_is_taken),
        WITH(test_caps_are_raised_by_the_right_keys),
        WITH(test_a_unit_changes_before_anything_is_reserved),
        WITH(test_the_device_itself_may_raise_its_cap),
        WITH(test_signatures_are_checked),
        WITH(test_damage_is_found_when_opening),
        WITH(test_another_origin_or_key_is_refused),
        WITH(test_the_log_key_rotates),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
