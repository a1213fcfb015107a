/* The auditor does not keep what is over: the reserves of closed rounds, and entries. What is
 * wrongly said of them later must be found all the same, on any number of threads. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "audit_run.h"
#include "common/pool.h"
#include "log_edits.h"
#include "privacy/audit_internal.h"

/* --- said after rounds 0 and 1 were closed: before the plan of round 2 --- */

static void own_again(world *w, int d, Tacit__Entry *e)
{
    world_hook *hook = w->hook;
    uint8_t leaf[TACIT_HASH_BYTES];
    w->hook = NULL;
    world_own(w, e, -1, d, leaf);
    w->hook = hook;
}

static void spend_of(world *w, int d, int r, uint8_t with)
{
    Tacit__Entry e = TACIT__ENTRY__INIT;
    Tacit__Spend b = TACIT__SPEND__INIT;
    uint8_t digest[TACIT_HASH_BYTES];
    e.body_case = TACIT__ENTRY__BODY_SPEND;
    e.spend = &b;
    b.reserve_hash = tacit_field_of(w->device[d].reserve[r], TACIT_HASH_BYTES);
    b.update_digest = filled(digest, sizeof digest, with);
    own_again(w, d, &e);
}

static void abandon_of(world *w, int d, int r)
{
    static char reason[] = "deadline";
    Tacit__Entry e = TACIT__ENTRY__INIT;
    Tacit__Abandon b = TACIT__ABANDON__INIT;
    e.body_case = TACIT__ENTRY__BODY_ABANDON;
    e.abandon = &b;
    b.reserve_hash = tacit_field_of(w->device[d].reserve[r], TACIT_HASH_BYTES);
    b.reason = reason;
    own_again(w, d, &e);
}

static void decision_of(world *w, int d, int r, bool accepted)
{
    static char late[] = "late", none[] = "";
    Tacit__Entry e = TACIT__ENTRY__INIT;
    Tacit__UpdateDecision b = TACIT__UPDATE_DECISION__INIT;
    uint8_t id[16];
    e.body_case = TACIT__ENTRY__BODY_UPDATE;
    e.update = &b;
    b.round_id = filled(id, sizeof id, (uint8_t)(0xa0 + r));
    b.reserve_hash = tacit_field_of(w->device[d].reserve[r], TACIT_HASH_BYTES);
    b.update_digest = tacit_field_of(w->device[d].digest[r], TACIT_HASH_BYTES);
    b.accepted = accepted;
    b.reason = accepted ? none : late;
    push_about(w, d, &e);
}

/* The entry whose leaf hash this is, once more. */
static void push_copy(world *w, const uint8_t leaf[TACIT_HASH_BYTES])
{
    uint8_t found[TACIT_HASH_BYTES] = {0};
    size_t i = 0;
    for (; i < w->count; i++) {
        tacit_merkle_leaf(found, w->entry[i].bytes, w->entry[i].size);
        if (memcmp(found, leaf, sizeof found) == 0)
            break;
    }
    assert_true(i < w->count);
    uint8_t *bytes = malloc(w->entry[i].size);
    memcpy(bytes, w->entry[i].bytes, w->entry[i].size);
    world_push_bytes(w, bytes, w->entry[i].size);
}

#define LATER(name, act)                                                                           \
    static bool name(world *w, Tacit__Entry *e, int round, int device)                             \
    {                                                                                              \
        if (AT(PLAN, 2, -1)) {                                                                     \
            act;                                                                                   \
        }                                                                                          \
        return true;                                                                               \
    }

LATER(spent_again, spend_of(w, 1, 0, 0x99))
LATER(abandoned_later, abandon_of(w, 1, 0))
LATER(rejected_later, decision_of(w, 1, 0, false))
LATER(accepted_again, decision_of(w, 1, 0, true))
LATER(reserve_again, push_copy(w, w->device[1].reserve[0]))
LATER(server_entry_again,
      world_push_bytes(w, memcpy(malloc(w->entry[4].size), w->entry[4].bytes, w->entry[4].size),
                       w->entry[4].size))

static bool digest_of_before(world *w, Tacit__Entry *e, int round, int device)
{
    if (AT(SPEND, 2, 2))
        e->spend->update_digest = tacit_field_of(w->device[1].digest[0], TACIT_HASH_BYTES);
    return true;
}

/* In round 1 the update of device 1 comes too late; the device gives it up when the round is over,
 * or the server decides it anew. */
static bool rejected_one(world *w, Tacit__Entry *e, int round, int device)
{
    static char late[] = "late";
    if (AT(UPDATE, 1, 1)) {
        e->update->accepted = false;
        e->update->reason = late;
    }
    if (AT(AGGREGATE, 1, -1))
        leave_out(w, e->aggregate, 1);
    return true;
}

static bool rejected_then_abandoned(world *w, Tacit__Entry *e, int round, int device)
{
    if (AT(PLAN, 2, -1))
        abandon_of(w, 1, 1);
    return rejected_one(w, e, round, device);
}

static bool rejected_then_decided(world *w, Tacit__Entry *e, int round, int device)
{
    if (AT(PLAN, 2, -1))
        decision_of(w, 1, 1, true);
    return rejected_one(w, e, round, device);
}

static bool rejected_abandoned_decided(world *w, Tacit__Entry *e, int round, int device)
{
    if (AT(PLAN, 2, -1)) {
        abandon_of(w, 1, 1);
        decision_of(w, 1, 1, false);
    }
    return rejected_one(w, e, round, device);
}

/* Nothing was uploaded: the reserve of device 1 in round 1 is given up when the round is over. */
static bool unspent(world *w, Tacit__Entry *e, int round, int device)
{
    if (AT(AGGREGATE, 1, -1))
        leave_out(w, e->aggregate, 1);
    if (AT(PLAN, 2, -1))
        abandon_of(w, 1, 1);
    return !AT(SPEND, 1, 1) && !AT(UPDATE, 1, 1);
}

static bool unspent_then_spent(world *w, Tacit__Entry *e, int round, int device)
{
    bool kept = unspent(w, e, round, device);
    if (AT(PLAN, 2, -1))
        spend_of(w, 1, 1, 0x99);
    return kept;
}

static const struct {
    world_hook *hook;
    const char *kind; /* NULL: clean */
} rows[] = {
    {NULL, NULL},
    {spent_again, "duplicate_spend"},
    {abandoned_later, "duplicate_spend"},
    {rejected_later, "duplicate_decision"},
    {accepted_again, "duplicate_decision"},
    {reserve_again, "duplicate_entry"},
    {server_entry_again, "duplicate_entry"},
    {digest_of_before, "duplicate_update"},
    {rejected_one, NULL},
    {rejected_then_abandoned, NULL},
    {rejected_then_decided, "duplicate_decision"},
    {rejected_abandoned_decided, "duplicate_decision"},
    {unspent, NULL},
    {unspent_then_spent, "spend_without_reserve"},
};

static void assert_same(const tacit_audit *a, const tacit_audit *b)
{
    assert_int_equal(a->violation_count, b->violation_count);
    for (size_t i = 0; i < a->violation_count; i++) {
        assert_string_equal(a->violations[i].kind, b->violations[i].kind);
        assert_string_equal(a->violations[i].detail, b->violations[i].detail);
        assert_int_equal(a->violations[i].entry, b->violations[i].entry);
    }
    assert_int_equal(a->device_count, b->device_count);
    for (size_t i = 0; i < a->device_count; i++)
        assert_true(a->devices[i].epsilon == b->devices[i].epsilon);
}

static void test_what_is_said_of_ended_rounds_is_found(void **state)
{
    (void)state;
    tacit_pool *pool;
    tacit_error err;
    OK(tacit_pool_new(&pool, 3, &err));
    const tacit_audit_options threads = {.pool = pool};
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        world w;
        exported x;
        tacit_audit audit, same;
        world_init(&w);
        w.hook = rows[i].hook;
        world_plan_all(&w);
        world_log(&w);
        export_of(&w, &x);
        run(&x, NULL, &audit);
        run(&x, &threads, &same);
        bool good = rows[i].kind ? has(&audit, rows[i].kind) : audit.violation_count == 0;
        if (!good)
            print_all(rows[i].kind ? rows[i].kind : "clean", &audit);
        assert_true(good);
        assert_same(&audit, &same);
        tacit_audit_free(&audit);
        tacit_audit_free(&same);
        export_done(&x);
        world_free(&w);
    }
    tacit_pool_free(pool);
}

/* --- the tables below it, against plain arrays --- */

#define KEYS 3000

static void key_of(uint8_t key[TACIT_HASH_BYTES], uint32_t i)
{
    memset(key, 0, TACIT_HASH_BYTES);
    tacit_store_u32(key, i);
}

static void test_a_map_forgets_what_is_removed_and_nothing_else(void **state)
{
    (void)state;
    static bool there[KEYS];
    tacit_error err;
    audit_map map = {0};
    uint8_t key[TACIT_HASH_BYTES];
    bool added;
    size_t value, count = 0;
    for (uint32_t step = 0; step < 40000; step++) {
        uint32_t i = randombytes_uniform(KEYS);
        key_of(key, i);
        if (step % 5 < 3) {
            OK(audit_map_add(&map, key, sizeof key, i, &added, &err));
            assert_int_equal(added, !there[i]);
            count += added;
            there[i] = true;
        } else {
            audit_map_remove(&map, key, sizeof key);
            count -= there[i];
            there[i] = false;
        }
        assert_int_equal(map.count, count);
    }
    for (uint32_t i = 0; i < KEYS; i++) {
        key_of(key, i);
        assert_int_equal(audit_map_find(&map, key, sizeof key, &value), there[i]);
        if (there[i])
            assert_int_equal(value, i);
    }
    audit_map_free(&map);
}

static void test_a_set_has_what_was_added(void **state)
{
    (void)state;
    tacit_error err;
    audit_set set = {0};
    uint8_t key[TACIT_HASH_BYTES];
    bool added;
    key_of(key, 0);
    assert_false(audit_set_has(&set, key));
    for (uint32_t i = 0; i < KEYS; i++) {
        key_of(key, i);
        OK(audit_set_add(&set, key, &added, &err));
        assert_true(added);
        OK(audit_set_add(&set, key, &added, &err));
        assert_false(added);
        key_of(key, i / 2);
        assert_true(audit_set_has(&set, key));
        key_of(key, KEYS + i);
        assert_false(audit_set_has(&set, key));
    }
    assert_int_equal(set.count, KEYS);
    assert_true(set.capacity < 2 * KEYS + 64);
    audit_set_free(&set);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_what_is_said_of_ended_rounds_is_found),
        cmocka_unit_test(test_a_map_forgets_what_is_removed_and_nothing_else),
        cmocka_unit_test(test_a_set_has_what_was_added),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
