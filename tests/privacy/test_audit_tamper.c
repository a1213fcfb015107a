/* An export that somebody tampered with: whoever holds its files, a server that signs with its own
 * key whatever suits it, a device that colludes. Each row changes one thing in the files of one
 * realistic log, and names every kind of violation that the auditor must find, and no other.
 * (test_audit.c and test_audit_rounds.c build logs that are wrong from the start, for every kind.)
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "audit_run.h"
#include "common/file.h"
#include "fleet_log.h"
#include "privacy/receipt.h"

#include <unistd.h>

#define ENTRIES_MAX 128
#define KINDS_MAX 16

typedef struct bytes {
    uint8_t *data;
    size_t size;
} bytes;

/* An export while it is tampered with. */
typedef struct tamper {
    world w;
    bytes entry[ENTRIES_MAX];
    size_t count;
    bytes receipt;
    const tacit_identity *signer; /* of the new checkpoint; NULL: the old one stays */
    size_t covered;               /* entries that it covers; 0: all */
    char checkpoint[TACIT_CHECKPOINT_MAX];
    char keys[512];
    size_t cut, junk; /* bytes taken off the end of log.bin, and zeros put there */
} tamper;

/* --- entries as they are read and written --- */

static bytes copy_of(const void *data, size_t size)
{
    bytes b = {malloc(size), size};
    assert_non_null(b.data);
    memcpy(b.data, data, size);
    return b;
}

static void leaf_of(const tamper *t, size_t i, uint8_t leaf[TACIT_HASH_BYTES])
{
    tacit_merkle_leaf(leaf, t->entry[i].data, t->entry[i].size);
}

/* The n-th entry of a kind, of a device where it is not -1. */
static size_t find(tamper *t, Tacit__Entry__BodyCase kind, int device, int n)
{
    for (size_t i = 0; i < t->count; i++) {
        tacit_entry e;
        OK(tacit_entry_read(&e, t->entry[i].data, t->entry[i].size, &t->w.err));
        bool hit =
            e.entry->body_case == kind &&
            (device < 0 || (e.entry->device.len &&
                            memcmp(e.entry->device.data, t->w.device[device].name, 16) == 0));
        tacit_entry_close(&e);
        if (hit && n-- == 0)
            return i;
    }
    fail_msg("no such entry");
    return 0;
}
#define FIND(kind, device, n) find(t, TACIT__ENTRY__BODY_##kind, device, n)

static tacit_entry open_entry(tamper *t, size_t i)
{
    tacit_entry e;
    OK(tacit_entry_read(&e, t->entry[i].data, t->entry[i].size, &t->w.err));
    return e;
}

/* Signs what `e` holds now, whatever it says. */
static bytes signed_bytes(tamper *t, const Tacit__Entry *e, const tacit_identity *key)
{
    Tacit__SignedEntry envelope = TACIT__SIGNED_ENTRY__INIT;
    uint8_t *inner, *outer, signature[TACIT_SIGNATURE_BYTES];
    size_t inner_size, outer_size;
    OK(tacit_message_pack(e, TACIT_MESSAGE_ENTRY_MAX, &inner, &inner_size, &t->w.err));
    OK(tacit_identity_sign(key, TACIT_ENTRY_DOMAIN, inner, inner_size, signature, &t->w.err));
    envelope.entry = tacit_field_of(inner, inner_size);
    envelope.signer = tacit_field_of(tacit_identity_sign_key(key), TACIT_SIGN_KEY_BYTES);
    envelope.signature = tacit_field_of(signature, sizeof signature);
    OK(tacit_message_pack(&envelope, TACIT_MESSAGE_ENTRY_MAX, &outer, &outer_size, &t->w.err));
    free(inner);
    return (bytes){outer, outer_size};
}

static void put(tamper *t, size_t i, const Tacit__Entry *e, const tacit_identity *key)
{
    bytes made = signed_bytes(t, e, key);
    free(t->entry[i].data);
    t->entry[i] = made;
}

/* The device signs it anew, and what it signed after it. */
static void put_own(tamper *t, size_t i, const Tacit__Entry *e, int d)
{
    uint8_t old[TACIT_HASH_BYTES], new[TACIT_HASH_BYTES];
    leaf_of(t, i, old);
    put(t, i, e, t->w.device[d].id);
    leaf_of(t, i, new);
    for (size_t k = i + 1; k < t->count; k++) {
        tacit_entry next = open_entry(t, k);
        if (next.device_signed && next.entry->previous.len == TACIT_HASH_BYTES &&
            memcmp(next.entry->previous.data, old, sizeof old) == 0) {
            memcpy(next.entry->previous.data, new, sizeof new);
            leaf_of(t, k, old);
            put(t, k, next.entry, t->w.device[d].id);
            leaf_of(t, k, new);
        }
        tacit_entry_close(&next);
    }
}

static void insert(tamper *t, size_t at, bytes b)
{
    assert_true(t->count < ENTRIES_MAX);
    memmove(&t->entry[at + 1], &t->entry[at], (t->count - at) * sizeof t->entry[0]);
    t->entry[at] = b;
    t->count++;
}

static bytes take(tamper *t, size_t at)
{
    bytes b = t->entry[at];
    t->count--;
    memmove(&t->entry[at], &t->entry[at + 1], (t->count - at) * sizeof t->entry[0]);
    return b;
}

static void drop(tamper *t, size_t at)
{
    free(take(t, at).data);
}

/* Moves an entry to another index. */
static void move(tamper *t, size_t from, size_t to)
{
    bytes b = take(t, from);
    insert(t, to, b);
}

static void repeat(tamper *t, size_t i, size_t at)
{
    insert(t, at, copy_of(t->entry[i].data, t->entry[i].size));
}

/* What the server signs anew, or for the first time, after one change. */
static void server_signs(tamper *t)
{
    t->signer = t->w.log;
}

/* --- whoever holds the files --- */

static void flip_signature(tamper *t)
{
    bytes *last = &t->entry[FIND(ROUND_CLOSED, -1, 2)];
    last->data[last->size - 1] ^= 1;
}

static void change_entry(tamper *t)
{
    size_t i = FIND(POLICY_CHANGED, 0, 0);
    for (size_t k = 0; k + 8 < t->entry[i].size; k++)
        if (memcmp(t->entry[i].data + k, "operator", 8) == 0)
            t->entry[i].data[k] = 'O';
}

static void drop_entry(tamper *t)
{
    drop(t, FIND(ROUND_CLOSED, -1, 2));
}

static void drop_last(tamper *t)
{
    drop(t, t->count - 1);
}

static void swap_decisions(tamper *t)
{
    move(t, FIND(UPDATE, 1, 2), FIND(UPDATE, 0, 2));
}

static void repeat_at_end(tamper *t)
{
    repeat(t, FIND(SPEND, 0, 1), t->count);
}

static void cut_in_an_entry(tamper *t)
{
    t->cut = 1;
}

static void cut_in_a_length(tamper *t)
{
    t->cut = t->entry[t->count - 1].size + 2;
}

static void empty_the_log(tamper *t)
{
    while (t->count)
        drop(t, t->count - 1);
}

static void zeros_at_the_end(tamper *t)
{
    t->junk = 9;
}

static void an_older_checkpoint(tamper *t)
{
    t->signer = t->w.log; /* it is the server's own, of three entries before */
    t->covered = t->count - 3;
}

static void another_root(tamper *t)
{
    char *root = strchr(strchr(t->checkpoint, '\n') + 1, '\n') + 1;
    root[3] = root[3] == 'A' ? 'B' : 'A';
}

static void another_size(tamper *t)
{
    strchr(t->checkpoint, '\n')[1] ^= 1;
}

static void garbage_checkpoint(tamper *t)
{
    snprintf(t->checkpoint, sizeof t->checkpoint, "nothing");
}

static void checkpoint_by_a_stranger(tamper *t)
{
    t->signer = t->w.stranger;
}

static void name_key(tamper *t, const char *origin, const tacit_identity *id)
{
    tacit_note_key key;
    char text[TACIT_VKEY_MAX];
    OK(tacit_note_key_make(&key, origin, tacit_identity_sign_key(id), &t->w.err));
    tacit_note_key_write(&key, text);
    snprintf(t->keys, sizeof t->keys, "log %s\n", text);
}

static void key_and_checkpoint_by_a_stranger(tamper *t)
{
    t->signer = t->w.stranger;
    name_key(t, WORLD_ORIGIN, t->w.stranger);
}

static void another_origin(tamper *t)
{
    name_key(t, "other.example/log", t->w.log);
}

static void no_key(tamper *t)
{
    snprintf(t->keys, sizeof t->keys, "# no key\n");
}

/* --- the server, with its own key --- */

static void drop_enrolment(tamper *t)
{
    drop(t, FIND(ENROL, 2, 0));
    server_signs(t);
}

static void drop_reserve(tamper *t)
{
    drop(t, FIND(RESERVE, 1, 1));
    server_signs(t);
}

static void drop_open_reserve(tamper *t)
{
    drop(t, FIND(RESERVE, 0, 3));
    server_signs(t);
}

static void drop_spend(tamper *t)
{
    drop(t, FIND(SPEND, 1, 2));
    server_signs(t);
}

static void drop_decision(tamper *t)
{
    drop(t, FIND(UPDATE, 1, 2));
    server_signs(t);
}

static void reserve_before_its_plan(tamper *t)
{
    move(t, FIND(RESERVE, 0, 2), FIND(PLAN, -1, 2));
    server_signs(t);
}

static void schedule_after_its_plan(tamper *t)
{
    move(t, FIND(SCHEDULE, -1, 1), FIND(PLAN, -1, 2));
    server_signs(t);
}

static void chain_out_of_order(tamper *t)
{
    move(t, FIND(SPEND, 0, 3), FIND(RESERVE, 0, 3));
    server_signs(t);
}

static void reserve_repeated(tamper *t)
{
    repeat(t, FIND(RESERVE, 0, 2), FIND(RESERVE, 1, 3));
    server_signs(t);
}

static void reserve_by_the_server(tamper *t)
{
    size_t i = FIND(RESERVE, 0, 3);
    tacit_entry e = open_entry(t, i);
    put(t, i, e.entry, t->w.log);
    tacit_entry_close(&e);
    server_signs(t);
}

static void decision_by_a_stranger(tamper *t)
{
    size_t i = FIND(UPDATE, 0, 2);
    tacit_entry e = open_entry(t, i);
    put(t, i, e.entry, t->w.stranger);
    tacit_entry_close(&e);
    server_signs(t);
}

static void set_text(char **text, const char *to)
{
    *text = strdup(to); /* it was the default, which nobody frees */
    assert_non_null(*text);
}

/* One entry of the server's, changed and signed again. */
#define SERVER(name, index, how)                                                                   \
    static void name(tamper *t)                                                                    \
    {                                                                                              \
        size_t i = index;                                                                          \
        tacit_entry opened = open_entry(t, i);                                                     \
        Tacit__Entry *e = opened.entry;                                                            \
        how;                                                                                       \
        put(t, i, e, t->w.log);                                                                    \
        tacit_entry_close(&opened);                                                                \
        server_signs(t);                                                                           \
    }

SERVER(policy_key_swapped, FIND(ENROL, 0, 0),
       memcpy(e->enrol->policy_key.data, tacit_identity_sign_key(t->w.stranger), 32))
SERVER(raise_unsigned, FIND(POLICY_CHANGED, 0, 0), e->policy_changed->signature.data[5] ^= 1)
SERVER(raise_reworded, FIND(POLICY_CHANGED, 0, 0), e->policy_changed->reason[0] = 'O')
SERVER(rejected_as_accepted, FIND(UPDATE, 2, 1), e->update->accepted = true;
       e->update->reason[0] = '\0')
SERVER(accepted_as_rejected, FIND(UPDATE, 0, 2), e->update->accepted = false;
       set_text(&e->update->reason, "norm"))
SERVER(another_digest, FIND(UPDATE, 0, 2), e->update->update_digest.data[0] ^= 1)
SERVER(another_quorum, FIND(AGGREGATE, -1, 2), e->aggregate->quorum = 1)
SERVER(sum_of_another_round, FIND(AGGREGATE, -1, 2), memset(e->aggregate->round_id.data, 0x77, 16))
SERVER(sum_of_others, FIND(AGGREGATE, -1, 2),
       memset(e->aggregate->reserve_hashes[1].data, 0xff, 32))
SERVER(rollback_of_nothing, FIND(ROLLED_BACK, -1, 0), e->rolled_back->to_version = 7)
SERVER(closed_as_failed, FIND(ROUND_CLOSED, -1, 2), e->round_closed->published = false;
       set_text(&e->round_closed->reason, "gate"))
SERVER(manifest_unsigned, FIND(PUBLISHED, -1, 2), e->published->signature.data[0] ^= 1)
SERVER(start_of_another_log, FIND(SERVER_START, -1, 0), e->server_start->origin[0] = 'T')

static void sum_one_less(tamper *t)
{
    size_t i = FIND(AGGREGATE, -1, 0);
    tacit_entry opened = open_entry(t, i);
    Tacit__Entry e = *opened.entry;
    Tacit__Aggregate a = *e.aggregate;
    a.n_reserve_hashes--;
    e.aggregate = &a;
    put(t, i, &e, t->w.log);
    tacit_entry_close(&opened);
    server_signs(t);
}

/* The honest sum of one of two updates; the other is said to be rejected. */
static void sum_below_quorum(tamper *t)
{
    size_t i = FIND(AGGREGATE, -1, 2);
    uint8_t leaf[TACIT_HASH_BYTES];
    leaf_of(t, FIND(RESERVE, 1, 3), leaf);
    accepted_as_rejected(t);
    tacit_entry opened = open_entry(t, i);
    Tacit__Entry e = *opened.entry;
    Tacit__Aggregate a = *e.aggregate;
    ProtobufCBinaryData one = tacit_field_of(leaf, sizeof leaf);
    a.reserve_hashes = &one;
    a.n_reserve_hashes = 1;
    e.aggregate = &a;
    put(t, i, &e, t->w.log);
    tacit_entry_close(&opened);
}

/* Another entry of the same content, which the server signs at another time. */
static void again(tamper *t, size_t i, size_t at)
{
    tacit_entry e = open_entry(t, i);
    e.entry->time_ms++;
    insert(t, at, signed_bytes(t, e.entry, t->w.log));
    tacit_entry_close(&e);
    server_signs(t);
}

static void decided_again(tamper *t)
{
    again(t, FIND(UPDATE, 0, 2), FIND(AGGREGATE, -1, 2));
}

static void summed_again(tamper *t)
{
    again(t, FIND(AGGREGATE, -1, 2), FIND(PUBLISHED, -1, 2));
}

static void planned_again(tamper *t)
{
    size_t i = FIND(PLAN, -1, 3);
    tacit_entry opened = open_entry(t, i);
    Tacit__Entry e = *opened.entry;
    Tacit__PlanLogged logged = *e.plan;
    Tacit__Plan *p;
    OK(TACIT_UNPACK(&p, tacit__plan, logged.plan.data, logged.plan.len, 1 << 20, &t->w.err));
    p->deadline_ms += 1000;
    size_t size;
    uint8_t *packed = world_pack(p, &size);
    logged.plan = tacit_field_of(packed, size);
    e.plan = &logged;
    insert(t, i + 1, signed_bytes(t, &e, t->w.log));
    free(packed);
    tacit_message_free(p);
    tacit_entry_close(&opened);
    server_signs(t);
}

static void scheduled_again(tamper *t)
{
    again(t, FIND(SCHEDULE, -1, 1), FIND(PLAN, -1, 2));
}

/* The open round, which device 1 has reserved, with less noise than the schedule has. */
static void quieter_plan(tamper *t)
{
    size_t i = FIND(PLAN, -1, 3);
    tacit_entry opened = open_entry(t, i);
    Tacit__Entry e = *opened.entry;
    Tacit__PlanLogged logged = *e.plan;
    Tacit__Plan *p;
    OK(TACIT_UNPACK(&p, tacit__plan, logged.plan.data, logged.plan.len, 1 << 20, &t->w.err));
    p->mechanism->b = 90000;
    size_t size;
    uint8_t *packed = world_pack(p, &size);
    logged.plan = tacit_field_of(packed, size);
    e.plan = &logged;
    put(t, i, &e, t->w.log);
    free(packed);
    tacit_message_free(p);
    tacit_entry_close(&opened);
    server_signs(t);
}

static void raise_again(tamper *t)
{
    world made = {.count = 0};
    made = t->w;
    made.count = 0;
    made.tree = (tacit_merkle_memory){0};
    push_policy(&made, 0, 6, made.policy.delta, NULL); /* lower needs no signature */
    insert(t, t->count, (bytes){made.entry[0].bytes, made.entry[0].size});
    tacit_merkle_memory_free(&made.tree);
    again(t, FIND(POLICY_CHANGED, 0, 0), t->count);
}

/* What the policy key signed for device 0, about device 1, which pinned the same key. */
static void raise_another(tamper *t)
{
    tacit_entry e = open_entry(t, FIND(POLICY_CHANGED, 0, 0));
    memcpy(e.entry->device.data, t->w.device[1].name, TACIT_DEVICE_BYTES);
    insert(t, t->count, signed_bytes(t, e.entry, t->w.log));
    tacit_entry_close(&e);
    server_signs(t);
}

/* A new entry of the server's before another one. */
static void insert_made(tamper *t, size_t at, void (*push)(world *))
{
    world made = t->w;
    made.count = 0;
    made.tree = (tacit_merkle_memory){0};
    made.hook = NULL;
    push(&made);
    assert_int_equal(made.count, 1);
    insert(t, at, (bytes){made.entry[0].bytes, made.entry[0].size});
    tacit_merkle_memory_free(&made.tree);
    server_signs(t);
}

static void push_delta(world *w)
{
    push_policy(w, 0, FLEET_RAISED, 1e-4, w->policy_key);
}

static void another_delta(tamper *t)
{
    insert_made(t, t->count, push_delta);
}

static void push_stranger_policy(world *w)
{
    push_policy(w, 1, 100, w->policy.delta, w->stranger);
}

static void raise_by_a_stranger(tamper *t)
{
    insert_made(t, t->count, push_stranger_policy);
}

static void push_clone_of_1(world *w)
{
    push_clone(w, 1);
}

static void frozen_and_went_on(tamper *t)
{
    insert_made(t, FIND(RESERVE, 1, 4), push_clone_of_1);
}

static void push_false_rotation(world *w)
{
    static uint8_t signature[TACIT_SIGNATURE_BYTES];
    Tacit__Entry e = TACIT__ENTRY__INIT;
    Tacit__KeyRotated k = TACIT__KEY_ROTATED__INIT;
    e.body_case = TACIT__ENTRY__BODY_KEY_ROTATED;
    e.key_rotated = &k;
    k.old_key = tacit_field_of(tacit_identity_sign_key(w->log), 32);
    k.new_key = tacit_field_of(tacit_identity_sign_key(w->stranger), 32);
    k.signature_old = k.signature_new = tacit_field_of(signature, sizeof signature);
    world_push(w, &e, w->log, NULL);
}

static void false_rotation(tamper *t)
{
    insert_made(t, t->count, push_false_rotation);
}

static void push_restore(world *w)
{
    Tacit__Entry e = TACIT__ENTRY__INIT;
    Tacit__Restored r = TACIT__RESTORED__INIT;
    uint8_t nothing[TACIT_SIGNATURE_BYTES] = {1};
    e.body_case = TACIT__ENTRY__BODY_RESTORED;
    e.restored = &r;
    r.statement = r.signature = tacit_field_of(nothing, sizeof nothing);
    world_push(w, &e, w->log, NULL);
}

/* test_audit_restore.c tampers with logs that were restored. */
static void restored_midway(tamper *t)
{
    insert_made(t, t->count, push_restore);
}

static void revoked_before_it_sent(tamper *t)
{
    move(t, FIND(REVOKE, 2, 0), FIND(ABANDON, 2, 0));
    server_signs(t);
}

static void enrolled_twice(tamper *t)
{
    again(t, FIND(ENROL, 1, 0), t->count);
}

/* The newest manifest, changed and signed again by `key`. */
static void edit_manifest(tamper *t, const tacit_identity *key,
                          void (*edit)(Tacit__AdapterManifest *))
{
    size_t i = FIND(PUBLISHED, -1, 1), size;
    tacit_entry opened = open_entry(t, i);
    Tacit__Entry e = *opened.entry;
    Tacit__AdapterPublished p = *e.published;
    Tacit__AdapterManifest *m;
    uint8_t signature[TACIT_SIGNATURE_BYTES];
    OK(TACIT_UNPACK(&m, tacit__adapter_manifest, p.manifest.data, p.manifest.len, 1 << 20,
                    &t->w.err));
    edit(m);
    uint8_t *packed = world_pack(m, &size);
    OK(tacit_identity_sign(key, TACIT_MANIFEST_DOMAIN, packed, size, signature, &t->w.err));
    p.manifest = tacit_field_of(packed, size);
    p.signature = tacit_field_of(signature, sizeof signature);
    e.published = &p;
    put(t, i, &e, t->w.log);
    free(packed);
    tacit_message_free(m);
    tacit_entry_close(&opened);
    server_signs(t);
}

#define MANIFEST(name, how)                                                                        \
    static void name##_edit(Tacit__AdapterManifest *m)                                             \
    {                                                                                              \
        how;                                                                                       \
    }                                                                                              \
    static void name(tamper *t)                                                                    \
    {                                                                                              \
        edit_manifest(t, t->w.log, name##_edit);                                                   \
    }

MANIFEST(less_against_the_server, m->epsilon_server *= 0.9)
MANIFEST(less_published, m->epsilon_published *= 0.5)
MANIFEST(another_parent, m->parent_version = 0)
MANIFEST(version_again, m->version = 1)
MANIFEST(of_another_base, m->base_digest.data[0] ^= 1)

/* --- a device that colludes --- */

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

/* --- what a device was shown --- */

static void receipt_broken(tamper *t)
{
    t->receipt.data[t->receipt.size - 3] ^= 1;
}

/* The export ends before what the receipt covers. */
static void older_than_the_receipt(tamper *t)
{
    while (t->count > 15)
        drop(t, t->count - 1);
    server_signs(t);
}

/* Another reason of the first start, in the log that the auditor gets: the server signs both. */
static void forked(tamper *t)
{
    size_t i = FIND(SERVER_START, -1, 0);
    tacit_entry e = open_entry(t, i);
    e.entry->time_ms++;
    put(t, i, e.entry, t->w.log);
    tacit_entry_close(&e);
    server_signs(t);
}

static const struct row {
    const char *what;
    void (*edit)(tamper *);
    const char *kinds; /* every kind that is found, and no other, sorted */
    const char *error; /* or what the refusal to read names */
} rows[] = {
    {"nothing", NULL, "", NULL},

    {"a signature flipped", flip_signature, "bad_signature root_mismatch", NULL},
    {"a word changed", change_entry, "bad_signature root_mismatch", NULL},
    {"an entry dropped", drop_entry, "incomplete_export", NULL},
    {"the end dropped", drop_last, "incomplete_export", NULL},
    {"two entries exchanged", swap_decisions, "root_mismatch", NULL},
    {"an entry repeated at the end", repeat_at_end, "duplicate_spend sequence_reused unsigned_tail",
     NULL},
    {"cut within an entry", cut_in_an_entry, NULL, "log.bin: entry"},
    {"cut within a length", cut_in_a_length, NULL, "log.bin: entry"},
    {"emptied", empty_the_log, "incomplete_export wrong_start", NULL},
    {"zeros at the end", zeros_at_the_end, NULL, "log.bin: entry"},
    {"an older checkpoint", an_older_checkpoint, "unsigned_tail", NULL},
    {"another root", another_root, "bad_checkpoint", NULL},
    {"another size", another_size, "bad_checkpoint", NULL},
    {"no checkpoint", garbage_checkpoint, "bad_checkpoint", NULL},
    {"a checkpoint by a stranger", checkpoint_by_a_stranger, "bad_checkpoint", NULL},
    {"key and checkpoint by a stranger", key_and_checkpoint_by_a_stranger, "wrong_log_key", NULL},
    {"another origin", another_origin, "bad_checkpoint bad_receipt wrong_start", NULL},
    {"no key", no_key, NULL, "keys.txt"},

    {"an enrolment dropped", drop_enrolment, "aggregate_mismatch split_view unknown_device", NULL},
    {"a reserve dropped", drop_reserve,
     "aggregate_mismatch decision_without_spend epsilon_mismatch sequence_gap "
     "spend_without_reserve",
     NULL},
    {"a reserve of the open round dropped", drop_open_reserve,
     "epsilon_mismatch sequence_gap spend_without_reserve", NULL},
    {"an update dropped", drop_spend, "aggregate_mismatch decision_without_spend sequence_gap",
     NULL},
    {"a decision dropped", drop_decision, "aggregate_mismatch", NULL},
    {"a reserve before its plan", reserve_before_its_plan,
     "aggregate_mismatch decision_mismatch reserve_without_plan", NULL},
    {"a schedule after its plan", schedule_after_its_plan,
     "aggregate_without_plan decision_mismatch plan_without_schedule reserve_without_plan", NULL},
    {"a chain out of order", chain_out_of_order,
     "broken_chain sequence_gap sequence_reused spend_without_reserve", NULL},
    {"a reserve repeated", reserve_repeated, "duplicate_entry", NULL},
    {"a reserve signed by the server", reserve_by_the_server,
     "epsilon_mismatch sequence_gap spend_without_reserve wrong_signer", NULL},
    {"a decision signed by a stranger", decision_by_a_stranger, "aggregate_mismatch wrong_signer",
     NULL},
    {"a policy key swapped", policy_key_swapped, "bad_policy policy_weakened split_view", NULL},
    {"a cap raised without the signature", raise_unsigned, "policy_weakened", NULL},
    {"a rejected update called accepted", rejected_as_accepted, "aggregate_mismatch", NULL},
    {"a summed update called rejected", accepted_as_rejected, "aggregate_mismatch", NULL},
    {"another digest accepted", another_digest, "aggregate_mismatch decision_mismatch", NULL},
    {"another quorum stated", another_quorum, "aggregate_mismatch", NULL},
    {"a sum of another round", sum_of_another_round,
     "aggregate_without_plan manifest_without_aggregate", NULL},
    {"a sum of something else", sum_of_others, "aggregate_mismatch", NULL},
    {"a sum of one update less", sum_one_less, "aggregate_mismatch split_view", NULL},
    {"a sum below the quorum", sum_below_quorum, "below_quorum", NULL},
    {"an update decided again", decided_again, "duplicate_decision", NULL},
    {"a round summed again", summed_again, "duplicate_aggregate", NULL},
    {"a round planned again", planned_again, "duplicate_plan", NULL},
    {"a lineage scheduled again", scheduled_again, "duplicate_schedule", NULL},
    {"a plan with less noise", quieter_plan, "plan_off_schedule reserve_without_plan", NULL},
    {"an old policy again", raise_again, "policy_replayed", NULL},
    {"a policy of another device", raise_another, "policy_weakened", NULL},
    {"a signed policy's reason rewritten", raise_reworded, "policy_weakened", NULL},
    {"a delta changed", another_delta, "bad_policy", NULL},
    {"a cap raised by a stranger", raise_by_a_stranger, "policy_weakened", NULL},
    {"a frozen device went on", frozen_and_went_on, "after_clone", NULL},
    {"a key changed by one side", false_rotation, "bad_key_rotation", NULL},
    {"a restore midway", restored_midway, "unvouched_restore", NULL},
    {"a revoked device went on", revoked_before_it_sent, "after_revocation", NULL},
    {"a pseudonym given again", enrolled_twice, "duplicate_device", NULL},
    {"a rollback of nothing", rollback_of_nothing, "rollback_unknown", NULL},
    {"a published round closed as failed", closed_as_failed, "round_state", NULL},
    {"a manifest's signature", manifest_unsigned, "bad_manifest round_state", NULL},
    {"less against the server", less_against_the_server, "manifest_epsilon", NULL},
    {"less published", less_published, "manifest_epsilon", NULL},
    {"another parent", another_parent, "manifest_chain", NULL},
    {"a version again", version_again, "manifest_chain rollback_unknown", NULL},
    {"a manifest of another base", of_another_base, "bad_manifest rollback_unknown round_state",
     NULL},
    {"the start of another log", start_of_another_log, "split_view wrong_start", NULL},

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

    {"a receipt broken", receipt_broken, "bad_receipt", NULL},
    {"older than a receipt", older_than_the_receipt, "incomplete_export", NULL},
    {"a forked log", forked, "split_view", NULL},
};

#define ROWS (sizeof rows / sizeof rows[0])

/* --- one row --- */

static void receipt_of(tamper *t, uint64_t index, uint64_t size)
{
    char note[TACIT_CHECKPOINT_MAX];
    tacit_receipt r = {.entry = {t->w.entry[index].bytes, t->w.entry[index].size}, .index = index};
    tacit_merkle_store store = tacit_merkle_memory_store(&t->w.tree);
    world_checkpoint(&t->w, size, note);
    r.checkpoint = (tacit_span){(const uint8_t *)note, strlen(note)};
    OK(tacit_merkle_inclusion(&store, index, size, &r.inclusion, &t->w.err));
    OK(tacit_receipt_pack(&r, &t->receipt.data, &t->receipt.size, &t->w.err));
}

/* The log, and the receipt of the first reserve under the checkpoint of that hour. */
static void begin(tamper *t)
{
    *t = (tamper){.count = 0};
    world_init(&t->w);
    fleet_log(&t->w);
    for (size_t i = 0; i < t->w.count; i++)
        t->entry[t->count++] = copy_of(t->w.entry[i].bytes, t->w.entry[i].size);
    world_checkpoint(&t->w, t->w.count, t->checkpoint);
    name_key(t, WORLD_ORIGIN, t->w.log);
    receipt_of(t, FIND(RESERVE, 0, 0), FIND(ROUND_CLOSED, -1, 0) + 1);
}

static void end(tamper *t)
{
    for (size_t i = 0; i < t->count; i++)
        free(t->entry[i].data);
    free(t->receipt.data);
    world_free(&t->w);
}

static void sign_checkpoint(tamper *t)
{
    tacit_merkle_memory tree = {0};
    tacit_merkle_store store = tacit_merkle_memory_store(&tree);
    tacit_checkpoint c = {.origin = WORLD_ORIGIN, .size = t->covered ? t->covered : t->count};
    for (size_t i = 0; i < t->count; i++) {
        uint8_t leaf[TACIT_HASH_BYTES];
        leaf_of(t, i, leaf);
        OK(tacit_merkle_append(&store, i, leaf, &t->w.err));
    }
    OK(tacit_merkle_root(&store, c.size, c.root, &t->w.err));
    OK(tacit_checkpoint_sign(&c, t->signer, t->checkpoint, &t->w.err));
    tacit_merkle_memory_free(&tree);
}

static void write_file(const char *dir, const char *name, const void *data, size_t size)
{
    char path[256];
    tacit_error err;
    snprintf(path, sizeof path, "%s/%s", dir, name);
    OK(tacit_file_write(path, data, size, 0644, &err));
}

/* The layout of before: all entries in one file. */
static void write_one_file(tamper *t, const char *dir)
{
    tacit_buffer log = {0};
    static const uint8_t zeros[16];
    for (size_t i = 0; i < t->count; i++) {
        uint8_t length[4];
        tacit_store_u32(length, (uint32_t)t->entry[i].size);
        OK(tacit_buffer_append(&log, length, sizeof length));
        OK(tacit_buffer_append(&log, t->entry[i].data, t->entry[i].size));
    }
    log.size -= t->cut;
    OK(tacit_buffer_append(&log, zeros, t->junk));
    if (t->signer)
        sign_checkpoint(t);
    write_file(dir, "log.bin", log.data ? log.data : zeros, log.size);
    write_file(dir, "checkpoint.txt", t->checkpoint, strlen(t->checkpoint));
    write_file(dir, "keys.txt", t->keys, strlen(t->keys));
    tacit_buffer_free(&log);
}

/* The layout that servers write; the checkpoint is of these entries. */
static void write_tiles(tamper *t, const char *dir)
{
    tacit_export_writer *writer;
    tacit_note_key key = world_log_key(&t->w);
    if (t->signer)
        sign_checkpoint(t);
    OK(tacit_export_begin(&writer, dir, &t->w.err));
    for (size_t i = 0; i < t->count; i++)
        OK(tacit_export_add(writer, t->entry[i].data, t->entry[i].size, &t->w.err));
    OK(tacit_export_publish(writer, t->checkpoint, &key, NULL, &t->w.err));
    tacit_export_close(writer);
}

static int by_word(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

/* The kinds found, each once, sorted. */
static void kinds_of(const tacit_audit *audit, char *out, size_t size)
{
    const char *kinds[64];
    size_t n = 0;
    assert_true(audit->violation_count < 64);
    for (size_t i = 0; i < audit->violation_count; i++)
        kinds[n++] = audit->violations[i].kind;
    qsort(kinds, n, sizeof kinds[0], by_word);
    *out = '\0';
    for (size_t i = 0; i < n; i++)
        if (i == 0 || strcmp(kinds[i], kinds[i - 1]) != 0)
            snprintf(out + strlen(out), size - strlen(out), "%s%s", *out ? " " : "", kinds[i]);
}

/* The checks that fail are those of the kinds, and those alone. */
static bool checks_agree(const tacit_audit *audit)
{
    uint64_t failures = 0;
    for (size_t i = 0; i < audit->check_count; i++) {
        const tacit_audit_check *c = &audit->checks[i];
        failures += c->failures;
        if ((c->outcome == TACIT_AUDIT_FAIL) != (c->failures > 0) ||
            (c->outcome == TACIT_AUDIT_SKIPPED) != (c->reason != NULL))
            return false;
    }
    return failures == audit->violation_count;
}

static bool is_found(const char *what, const char *kinds, const char *error, tamper *t,
                     const char *dir)
{
    char found[1024];
    const char *name = "device.receipt";
    tacit_export e;
    tacit_audit audit;
    tacit_error err;
    tacit_status status = tacit_export_read(&e, dir, &err);
    if (error) {
        bool refused =
            (status == TACIT_BAD_INPUT || status == TACIT_NOT_FOUND) && strstr(err.message, error);
        if (!refused)
            print_error("%s: expected an error of '%s', found '%s'\n", what, error,
                        status == TACIT_OK ? "none" : err.message);
        if (status == TACIT_OK)
            tacit_export_free(&e);
        return refused;
    }
    assert_int_equal(status, TACIT_OK);
    const tacit_span receipt = {t->receipt.data, t->receipt.size};
    const tacit_audit_options options = {
        .receipts = &receipt, .receipt_names = &name, .receipt_count = 1};
    OK(tacit_audit_run(&audit, &e, &options, &err));
    kinds_of(&audit, found, sizeof found);
    bool good = strcmp(found, kinds) == 0 && checks_agree(&audit);
    if (!good) {
        print_error("%s: expected '%s', found '%s'\n", what, kinds, found);
        print_all(what, &audit);
    }
    tacit_audit_free(&audit);
    tacit_export_free(&e);
    return good;
}

static void remove_all(const char *dir)
{
    char command[160];
    snprintf(command, sizeof command, "rm -rf %s", dir);
    assert_int_equal(system(command), 0);
}

static int make_folder(void **state)
{
    char dir[] = "/tmp/tacit-tamper-XXXXXX";
    *state = mkdtemp(dir) ? strdup(dir) : NULL;
    return *state == NULL;
}

static int remove_folder(void **state)
{
    remove_all(*state);
    free(*state);
    return 0;
}

/* A server's tampering is found in both layouts; whoever only holds files meets the tiles below. */
static bool row_is_found(const struct row *row, const char *dir)
{
    char tiles[128];
    tamper t;
    begin(&t);
    if (row->edit)
        row->edit(&t);
    write_one_file(&t, dir);
    bool found = is_found(row->what, row->kinds, row->error, &t, dir);
    if (!row->edit || (t.signer == t.w.log && !t.covered)) {
        snprintf(tiles, sizeof tiles, "%s/tiles", dir);
        write_tiles(&t, tiles);
        found = is_found(row->what, row->kinds, row->error, &t, tiles) && found;
        remove_all(tiles);
    }
    end(&t);
    return found;
}

static void test_every_tampering_is_found_and_named(void **state)
{
    size_t missed = 0;
    for (size_t i = 0; i < ROWS; i++)
        missed += !row_is_found(&rows[i], *state);
    print_message("%zu tamperings\n", ROWS - 1);
    assert_int_equal(missed, 0);
}

/* --- files of the tiled layout --- */

static const struct {
    const char *what, *file;
    long at; /* of the byte that changes, from the end where negative; 0: the file goes */
    const char *kinds, *error;
} tile_rows[] = {
    {"a hash changed", "tile/0/000.p/53", 7, "tile_mismatch", NULL},
    {"the hashes gone", "tile/0/000.p/53", 0, "tile_mismatch", NULL},
    {"an entry's byte changed", "tile/entries/000.p/53", -1,
     "bad_signature root_mismatch tile_mismatch", NULL},
    {"the entries gone", "tile/entries/000.p/53", 0, "incomplete_export wrong_start", NULL},
    {"a checkpoint's byte changed", "checkpoint", -3, "bad_checkpoint", NULL},
    {"the checkpoint gone", "checkpoint", 0, NULL, "checkpoint"},
    {"the keys gone", "keys.txt", 0, NULL, "keys.txt"},
};

static void change_file(const char *dir, const char *name, long at)
{
    char path[256];
    uint8_t *data;
    size_t size;
    tacit_error err;
    snprintf(path, sizeof path, "%s/%s", dir, name);
    if (!at) {
        assert_int_equal(unlink(path), 0);
        return;
    }
    OK(tacit_file_read(path, 1 << 20, &data, &size, &err));
    data[at < 0 ? (long)size + at : at] ^= 1;
    OK(tacit_file_write(path, data, size, 0644, &err));
    free(data);
}

static void test_every_file_of_the_tiles_is_held_to_the_others(void **state)
{
    char tiles[128];
    size_t missed = 0;
    snprintf(tiles, sizeof tiles, "%s/tiles", (const char *)*state);
    for (size_t i = 0; i < sizeof tile_rows / sizeof tile_rows[0]; i++) {
        tamper t;
        begin(&t);
        write_tiles(&t, tiles);
        change_file(tiles, tile_rows[i].file, tile_rows[i].at);
        missed += !is_found(tile_rows[i].what, tile_rows[i].kinds, tile_rows[i].error, &t, tiles);
        remove_all(tiles);
        end(&t);
    }
    assert_int_equal(missed, 0);
}

int main(int argc, char **argv)
{
    if (argc > 1) { /* the log as it is, for tests/e2e */
        tamper t;
        begin(&t);
        write_tiles(&t, argv[1]);
        write_file(argv[1], "../device.receipt", t.receipt.data, t.receipt.size);
        end(&t);
        return 0;
    }
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_every_tampering_is_found_and_named, make_folder,
                                        remove_folder),
        cmocka_unit_test_setup_teardown(test_every_file_of_the_tiles_is_held_to_the_others,
                                        make_folder, remove_folder),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
