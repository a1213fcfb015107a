/* A log of which a backup was taken after its first round, which went on without it, and what
 * becomes of it when it is restored: what was lost, receipts of it, and what devices bring again.
 * Included once by a test program, after cmocka.h. */
#ifndef TACIT_TESTS_RESTORED_LOG_H
#define TACIT_TESTS_RESTORED_LOG_H

#include "log_edits.h"
#include "privacy/receipt.h"

#define LOST_MAX 32

/* One entry that the backup lacks. */
typedef struct lost_entry {
    uint8_t *bytes, *receipt; /* SignedEntry; packed receipt of the old origin */
    size_t size, receipt_size;
} lost_entry;

typedef struct restored_log {
    world w;
    uint64_t kept; /* entries of the backup */
    lost_entry lost[LOST_MAX];
    size_t lost_count;
    char last[TACIT_CHECKPOINT_MAX], /* of the log as it was */
        backup[TACIT_CHECKPOINT_MAX];
} restored_log;

static inline void receipt_at(world *w, uint64_t index, uint64_t size, uint8_t **bytes,
                              size_t *packed)
{
    char note[TACIT_CHECKPOINT_MAX];
    tacit_receipt r = {.entry = {w->entry[index].bytes, w->entry[index].size}, .index = index};
    tacit_merkle_store store = tacit_merkle_memory_store(&w->tree);
    world_checkpoint(w, size, note);
    r.checkpoint = (tacit_span){(const uint8_t *)note, strlen(note)};
    OK(tacit_merkle_inclusion(&store, index, size, &r.inclusion, &w->err));
    OK(tacit_receipt_pack(&r, bytes, packed, &w->err));
}

/* A whole round of devices 0 and 1; the log's own entries of it where `summed`. */
static inline void restored_round(world *w, int round, bool summed)
{
    world_log_plan(w, round);
    for (int d = 0; d < 2; d++)
        world_reserve(w, round, d);
    for (int d = 0; d < 2; d++)
        world_spend(w, round, d);
    for (int d = 0; d < 2 && summed; d++)
        world_decide(w, round, d);
}

/* The log as it was: a round of the backup, then one that comes to be lost. */
static inline void restored_before(restored_log *l)
{
    world *w = &l->w;
    *l = (restored_log){.kept = 0};
    world_init(w);
    world_plan_all(w);
    world_start(w);
    for (int d = 0; d < WORLD_DEVICES; d++)
        world_enrol(w, d);
    world_log_schedule(w);
    restored_round(w, 0, true);
    l->kept = w->count;
    world_checkpoint(w, w->count, l->backup);
    restored_round(w, 1, true);
    world_checkpoint(w, w->count, l->last);
}

/* Back to the backup; what follows it is kept apart. */
static inline void restored_cut(restored_log *l)
{
    world *w = &l->w;
    tacit_merkle_memory tree = {0};
    tacit_merkle_store store = tacit_merkle_memory_store(&tree);
    for (uint64_t i = l->kept; i < w->count; i++) {
        lost_entry *e = &l->lost[l->lost_count++];
        assert_true(l->lost_count <= LOST_MAX);
        *e = (lost_entry){.bytes = w->entry[i].bytes, .size = w->entry[i].size};
        receipt_at(w, i, w->count, &e->receipt, &e->receipt_size);
    }
    for (uint64_t i = 0; i < l->kept; i++) {
        uint8_t leaf[TACIT_HASH_BYTES];
        tacit_merkle_leaf(leaf, w->entry[i].bytes, w->entry[i].size);
        OK(tacit_merkle_append(&store, i, leaf, &w->err));
    }
    tacit_merkle_memory_free(&w->tree);
    w->tree = tree;
    w->count = l->kept;
}

/* A lost entry again, the same bytes. */
static inline void restored_again(restored_log *l, size_t lost)
{
    uint8_t *copy = malloc(l->lost[lost].size);
    assert_non_null(copy);
    memcpy(copy, l->lost[lost].bytes, l->lost[lost].size);
    world_push_bytes(&l->w, copy, l->lost[lost].size);
}

/* In `lost`: the plan, reserves of 0 and 1, their spends, two decisions. */
enum { LOST_PLAN, LOST_RESERVE_0, LOST_RESERVE_1, LOST_SPEND_0, LOST_SPEND_1, LOST_ENTRIES = 7 };

static inline void restored_free(restored_log *l)
{
    for (size_t i = 0; i < l->lost_count; i++) {
        free(l->lost[i].bytes);
        free(l->lost[i].receipt);
    }
    world_free(&l->w);
}

#endif
