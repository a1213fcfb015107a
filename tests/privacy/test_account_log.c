/* A device's account before the log of a server: receipts that it takes, acknowledgements that are
 * false, and checkpoints of a log that was rolled back or split. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "account_fixture.h"
#include "privacy/ledger.h"

typedef struct server {
    char path[160];
    tacit_database *db;
    tacit_ledger *ledger;
} server;

static void server_open(fixture *f, server *s)
{
    snprintf(s->path, sizeof s->path, "%s/server.db", f->dir);
    OK(tacit_database_open(&s->db, s->path, &f->err));
    OK(tacit_ledger_open(&s->ledger, s->db, WORLD_ORIGIN, f->w.log, &f->err));
    world_start(&f->w);
    world_enrol(&f->w, 0);
    world_log_schedule(&f->w);
    for (int r = 0; r < WORLD_ROUNDS; r++)
        world_log_plan(&f->w, r);
    OK(tacit_database_begin(s->db, &f->err));
    for (size_t i = 0; i < f->w.count; i++) {
        uint64_t index;
        uint8_t leaf[32];
        OK(tacit_ledger_append(s->ledger, f->w.entry[i].bytes, f->w.entry[i].size, &index, leaf,
                               &f->err));
    }
    OK(tacit_database_commit(s->db, &f->err));
}

static void server_close(server *s)
{
    tacit_ledger_close(s->ledger);
    tacit_database_close(s->db);
}

/* What a ReserveReply carries. */
typedef struct reply {
    char note[TACIT_CHECKPOINT_MAX];
    uint64_t index, size;
    tacit_proof inclusion, consistency;
} reply;

static void server_take(fixture *f, server *s, const tacit_reservation *r, uint64_t held,
                        reply *out)
{
    uint8_t leaf[32];
    OK(tacit_database_begin(s->db, &f->err));
    OK(tacit_ledger_append(s->ledger, r->entry, r->entry_size, &out->index, leaf, &f->err));
    OK(tacit_ledger_checkpoint(s->ledger, out->note, &out->size, &f->err));
    OK(tacit_database_commit(s->db, &f->err));
    OK(tacit_ledger_inclusion(s->ledger, out->index, out->size, &out->inclusion, &f->err));
    OK(tacit_ledger_consistency(s->ledger, held, out->size, &out->consistency, &f->err));
}

static tacit_status acknowledge(fixture *f, const tacit_reservation *r, const reply *p,
                                const uint8_t *nonce)
{
    tacit_note_key key = world_log_key(&f->w);
    tacit_receipt receipt = {.entry = {r->entry, r->entry_size},
                             .index = p->index,
                             .inclusion = p->inclusion,
                             .checkpoint = {(const uint8_t *)p->note, strlen(p->note)}};
    return tacit_account_acknowledge(f->account, r->hash, &receipt, &p->consistency, &key, nonce,
                                     &f->err);
}

static void test_reserves_are_acknowledged_by_the_log(void **state)
{
    fixture *f = *state;
    server s;
    reply p;
    tacit_reservation r[WORLD_ROUNDS], again;
    const uint8_t nonce[32] = {42}, other[32] = {43};
    start(f);
    server_open(f, &s);
    for (int round = 0; round < WORLD_ROUNDS; round++) {
        OK(reserve(f, round, &r[round]));
        server_take(f, &s, &r[round], status_of(f).checkpoint_size, &p);
        assert_int_equal(status_of(f).unacknowledged, 1);
        OK(acknowledge(f, &r[round], &p, nonce));
        OK(acknowledge(f, &r[round], &p, other));
        assert_int_equal(status_of(f).unacknowledged, 0);
        assert_int_equal(status_of(f).checkpoint_size, p.size);
        OK(tacit_account_find(f->account, f->w.plan_hash[round], &again, &f->err));
        assert_true(again.acknowledged);
        assert_memory_equal(again.nonce, nonce, 32);
        tacit_reservation_free(&again);
    }
    uint8_t *bytes;
    size_t size;
    void *message;
    tacit_receipt stored;
    tacit_note_key key = world_log_key(&f->w);
    OK(tacit_account_receipt(f->account, r[1].hash, &bytes, &size, &f->err));
    OK(tacit_receipt_unpack(&stored, &message, bytes, size, &f->err));
    OK(tacit_receipt_verify(&stored, &key, NULL, &f->err));
    tacit_message_free(message);
    free(bytes);
    for (int round = 0; round < WORLD_ROUNDS; round++)
        tacit_reservation_free(&r[round]);
    server_close(&s);
}

static void test_false_acknowledgements_are_refused(void **state)
{
    fixture *f = *state;
    server s;
    reply good, p;
    tacit_reservation r, second;
    start(f);
    server_open(f, &s);
    OK(reserve(f, 0, &r));
    server_take(f, &s, &r, 0, &good);
    p = good;
    p.inclusion.hash[0][0] ^= 1;
    assert_int_equal(acknowledge(f, &r, &p, NULL), TACIT_INTEGRITY);
    p = good;
    p.index--;
    assert_int_equal(acknowledge(f, &r, &p, NULL), TACIT_INTEGRITY);
    p = good;
    p.note[strlen(WORLD_ORIGIN) + 1] ^= 1; /* the size */
    assert_int_not_equal(acknowledge(f, &r, &p, NULL), TACIT_OK);
    assert_int_equal(status_of(f).unacknowledged, 1);
    OK(acknowledge(f, &r, &good, NULL));
    OK(reserve(f, 1, &second));
    server_take(f, &s, &second, status_of(f).checkpoint_size, &p);
    p.consistency.hash[0][0] ^= 1;
    assert_int_equal(acknowledge(f, &second, &p, NULL), TACIT_INTEGRITY);
    p.consistency.hash[0][0] ^= 1;
    OK(acknowledge(f, &second, &p, NULL));
    OK(acknowledge(f, &r, &good, NULL)); /* a repeated reply with a checkpoint seen before */
    tacit_reservation_free(&r);
    tacit_reservation_free(&second);
    server_close(&s);
}

static void test_a_rolled_back_or_split_log_is_refused(void **state)
{
    fixture *f = *state;
    char older[TACIT_CHECKPOINT_MAX], newer[TACIT_CHECKPOINT_MAX], split[TACIT_CHECKPOINT_MAX];
    tacit_note_key key;
    tacit_proof proof, nothing = {.count = 0};
    start(f);
    key = world_log_key(&f->w);
    world_start(&f->w);
    for (int d = 0; d < WORLD_DEVICES; d++)
        world_enrol(&f->w, d);
    world_checkpoint(&f->w, 2, older);
    world_checkpoint(&f->w, 4, newer);
    tacit_merkle_store store = tacit_merkle_memory_store(&f->w.tree);
    OK(tacit_merkle_consistency(&store, 2, 4, &proof, &f->err));
    const tacit_span old_note = {(const uint8_t *)older, strlen(older)},
                     new_note = {(const uint8_t *)newer, strlen(newer)};
    OK(tacit_account_checkpoint(f->account, old_note, &nothing, &key, &f->err));
    assert_int_equal(tacit_account_checkpoint(f->account, new_note, &nothing, &key, &f->err),
                     TACIT_INTEGRITY);
    OK(tacit_account_checkpoint(f->account, new_note, &proof, &key, &f->err));
    OK(tacit_account_checkpoint(f->account, new_note, &nothing, &key, &f->err));
    assert_int_equal(tacit_account_checkpoint(f->account, old_note, &nothing, &key, &f->err),
                     TACIT_INTEGRITY);
    assert_non_null(strstr(f->err.message, "rolled back"));
    tacit_checkpoint c = {.origin = WORLD_ORIGIN, .size = 4, .root = {1}};
    OK(tacit_checkpoint_sign(&c, f->w.log, split, &f->err));
    assert_int_equal(tacit_account_checkpoint(f->account,
                                              (tacit_span){(const uint8_t *)split, strlen(split)},
                                              &nothing, &key, &f->err),
                     TACIT_INTEGRITY);
    char *held;
    uint64_t size;
    OK(tacit_account_last_checkpoint(f->account, &held, &size, &f->err));
    assert_string_equal(held, newer);
    free(held);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        WITH(test_reserves_are_acknowledged_by_the_log),
        WITH(test_false_acknowledgements_are_refused),
        WITH(test_a_rolled_back_or_split_log_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
