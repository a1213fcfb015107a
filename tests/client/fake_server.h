/* A server in the test's own process over real loopback TLS, whose every answer a test may spoil.
 * Its log is tests/privacy/world.h; it knows one device and one plan. Include after cmocka.h; each
 * test program once. */
#ifndef TACIT_TESTS_FAKE_SERVER_H
#define TACIT_TESTS_FAKE_SERVER_H

#include "../privacy/world.h"
#include "client/enroll.h"
#include "common/certificate.h"
#include "common/clock.h"
#include "common/enrolment.h"
#include "common/envelope.h"
#include "common/file.h"
#include "common/link.h"
#include "common/seal.h"
#include "common/text.h"
#include "device_folder.h"
#include "engine/adapter.h"
#include "privacy/receipt.h"
#include "proto/wire.pb-c.h"

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define FAKE_CALLS_MAX 256

/* CHECK_IN's cosigned checkpoint. */
typedef enum fake_cosigned {
    FAKE_NOT_COSIGNED,
    FAKE_COSIGNED,       /* up to the plan, by fake_witness */
    FAKE_COSIGNED_EARLY, /* up to the entry before it */
    FAKE_COSIGNED_BY_STRANGER,
    FAKE_COSIGNED_FORK,    /* of another tree */
    FAKE_COSIGNED_UNPROVED /* with another consistency proof */
} fake_cosigned;

/* What the server lies about. */
typedef struct fake_lies {
    fake_cosigned cosigned;
    bool shrink_log;      /* CHECK_IN shows a checkpoint of fewer entries */
    bool fork_log;        /* CHECK_IN shows another history */
    bool stranger_signs;  /* CHECK_IN's checkpoint is signed by another key */
    bool wrong_inclusion; /* RESERVE proves another entry */
    bool late;            /* RESERVE: logged, not taken part */
    int lose_upload;      /* COMMIT finds nothing of it, so many times */
    bool revoked;         /* CHECK_IN says so */
    bool corrupt_adapter; /* ADAPTER_CHUNK flips a bit */
    bool manifest_by_stranger, manifest_not_logged;
    bool spoils_guarantee;                    /* what the next manifest promises is ... */
    double epsilon_server, epsilon_published, /* ... this */
        delta;
    uint32_t drop_method;      /* requests of this method get no answer ... */
    int drop_from, drop_count; /* ... from this one on, so many times */
    uint32_t fail_method;      /* requests of this method are answered so, and nothing is done */
    tacit_status fail_status;
    double epsilon_cap;             /* CHECK_IN's, 0: none */
    bool no_operator_key;           /* ENROL's reply names none */
    void (*heard)(uint32_t method); /* called with every request, on the server's thread */
    void (*read)(const tacit_request *request); /* likewise, with all of it */
} fake_lies;

typedef struct fake_server {
    world w;
    char folder[64];
    tacit_ca *ca;
    tacit_listener *devices, *enrolment;
    tacit_enrol_token token;
    bool enrolled;
    uint8_t device[TACIT_DEVICE_BYTES], key[TACIT_SIGN_KEY_BYTES];
    bool offer_plan; /* until the device has reserved */
    int plan;        /* which one */
    uint64_t plan_index;
    uint64_t sequence; /* of the device's newest entry in the log */
    uint64_t restored_at,
        restored_size; /* where world_restored put its entry, what it kept; 0: none */
    uint8_t seal_public[TACIT_EXCHANGE_BYTES];
    tacit_secret seal_secret;
    fake_lies lie;
    /* What was received: methods and sizes, in order; reserves; the upload. */
    struct {
        uint32_t method;
        size_t size;
        uint64_t at_ms; /* wall clock */
    } call[FAKE_CALLS_MAX];
    size_t n_calls;
    uint8_t *reserve;
    size_t reserve_size, reserves_equal, reserves_other;
    uint64_t reserve_index;
    uint8_t *upload;
    size_t upload_size, upload_have;
    bool accepted; /* the newest upload: its reserve cannot be abandoned any more */
    /* A published adapter. */
    uint8_t *adapter, *manifest;
    size_t adapter_size, manifest_size, manifest_index;
    uint8_t adapter_digest[TACIT_DIGEST_BYTES], manifest_signature[TACIT_SIGNATURE_BYTES];
    uint64_t published_version;
    tiny_model tiny;
    tacit_error err;
} fake_server;

static fake_server *fake_now; /* for the world's hooks, which take no context */
static size_t fake_values;
static uint64_t fake_deadline_ms = 4000000000000; /* far away */
static uint32_t fake_pad_seconds;                 /* of the plan */
static bool fake_poisoned;                        /* the model is tiny_load_poisoned's */

/* --- the plan --- */

static char *fake_targets[] = {(char *)(uintptr_t) "attn_output"};

static void fake_adapter_spec(Tacit__AdapterSpec *a)
{
    a->targets = fake_targets;
    a->n_targets = 1;
    a->rank = FAKE_VALUES_RANK;
    a->alpha = 4;
}

static void fake_mechanism(Tacit__Mechanism *m)
{
    m->unit = TACIT__UNIT__UNIT_SUBJECT;
    m->steps = 3;
    m->b = 300000;
    m->q_num = TACIT_Q_ONE / 4;
    m->unit_examples = 4;
}

static void fake_edit_schedule(Tacit__Schedule *s)
{
    s->base_digest = tacit_field_of(tacit_model_base_digest(fake_now->tiny.model), 32);
    fake_adapter_spec(s->adapter);
    for (size_t i = 0; i < s->n_rounds; i++)
        fake_mechanism(s->rounds[i]->mechanism);
}

static void fake_edit_plan(Tacit__Plan *p, int round)
{
    p->base_digest = tacit_field_of(tacit_model_base_digest(fake_now->tiny.model), 32);
    fake_adapter_spec(p->adapter);
    fake_mechanism(p->mechanism);
    p->trainable_values = (uint32_t)fake_values;
    p->optimizer->beta1 = 0.9;
    p->optimizer->beta2 = 0.99;
    p->optimizer->epsilon = 1e-8;
    p->parent_version = 0;
    p->parent_digest.len = 0;
    p->deadline_ms = fake_deadline_ms + (uint64_t)round * 86400000;
    p->pad_seconds = fake_pad_seconds;
    p->aggregator_key = tacit_field_of(fake_now->seal_public, sizeof fake_now->seal_public);
}

/* --- answers --- */

typedef struct fake_answer {
    tacit_buffer body;
    tacit_status status;
    char message[200];
} fake_answer;

static void fake_pack(fake_answer *a, const void *message)
{
    size_t size;
    uint8_t *bytes = world_pack(message, &size);
    OK(tacit_buffer_append(&a->body, bytes, size));
    free(bytes);
}

static void fake_note(fake_server *f, uint64_t size, char note[TACIT_CHECKPOINT_MAX])
{
    world_checkpoint(&f->w, size, note);
}

static void fake_consistency(fake_server *f, uint64_t from, tacit_proof *proof)
{
    tacit_merkle_store store = tacit_merkle_memory_store(&f->w.tree);
    *proof = (tacit_proof){.count = 0};
    if (from && from <= f->w.count)
        OK(tacit_merkle_consistency(&store, from, f->w.count, proof, &f->err));
}

static void fake_inclusion(fake_server *f, uint64_t index, tacit_proof *proof)
{
    tacit_merkle_store store = tacit_merkle_memory_store(&f->w.tree);
    OK(tacit_merkle_inclusion(&store, index, f->w.count, proof, &f->err));
}

static void fake_hello(fake_server *f, fake_answer *a)
{
    static char version[] = "0.1.0";
    Tacit__HelloReply r = TACIT__HELLO_REPLY__INIT;
    r.min_protocol = TACIT_PROTOCOL_MIN;
    r.max_protocol = TACIT_PROTOCOL_MAX;
    r.version = version;
    r.server_key = tacit_field_of(tacit_identity_sign_key(f->w.log), TACIT_SIGN_KEY_BYTES);
    fake_pack(a, &r);
}

/* Logs an Enrol entry of the device's own keys. */
static void fake_log_enrolment(fake_server *f, const Tacit__EnrolRequest *q)
{
    Tacit__Entry e = TACIT__ENTRY__INIT;
    Tacit__Enrol b = TACIT__ENROL__INIT;
    e.device = tacit_field_of(f->device, sizeof f->device);
    e.body_case = TACIT__ENTRY__BODY_ENROL;
    e.enrol = &b;
    b.identity_key = q->identity_key;
    b.exchange_key = q->exchange_key;
    b.policy = q->policy;
    b.policy_signature = q->policy_signature;
    world_push(&f->w, &e, f->w.log, NULL);
}

static void fake_enrol(fake_server *f, const tacit_received *in, fake_answer *a)
{
    static char origin[] = WORLD_ORIGIN;
    Tacit__EnrolRequest *q;
    Tacit__EnrolReply r = TACIT__ENROL_REPLY__INIT;
    char *chain, note[TACIT_CHECKPOINT_MAX];
    uint8_t digest[TACIT_DIGEST_BYTES];
    const char *root = tacit_ca_root_pem(f->ca);
    OK(TACIT_UNPACK(&q, tacit__enrol_request, in->request.body.data, in->request.body.size, 65536,
                    &f->err));
    tacit_enrol_digest(digest, q, in->request.nonce);
    bool good = q->token.len == TACIT_TOKEN_SECRET_BYTES &&
                memcmp(q->token.data, f->token.secret, q->token.len) == 0 &&
                tacit_signature_holds(q->identity_key.data, TACIT_ENROL_DOMAIN, digest,
                                      sizeof digest, q->signature.data);
    if (!good || f->enrolled) {
        a->status = good ? TACIT_CONFLICT : TACIT_REFUSED;
        snprintf(a->message, sizeof a->message, "no");
        tacit_message_free(q);
        return;
    }
    f->enrolled = true;
    memcpy(f->key, q->identity_key.data, sizeof f->key);
    memset(f->device, 0xe7, sizeof f->device);
    OK(tacit_ca_issue_device(f->ca, q->csr.data, q->csr.len, f->device, &chain, &f->err));
    fake_log_enrolment(f, q);
    fake_note(f, f->w.count, note);
    r.device = tacit_field_of(f->device, sizeof f->device);
    r.certificate = tacit_field_of(chain, strlen(chain));
    r.root = tacit_field_of(root, strlen(root));
    r.server_key = tacit_field_of(tacit_identity_sign_key(f->w.log), TACIT_SIGN_KEY_BYTES);
    r.log_key = r.server_key;
    r.log_origin = origin;
    if (!f->lie.no_operator_key)
        r.operator_key =
            tacit_field_of(tacit_identity_sign_key(f->w.operator_id), TACIT_SIGN_KEY_BYTES);
    r.checkpoint = tacit_field_of(note, strlen(note));
    r.entry_index = f->w.count - 1;
    fake_pack(a, &r);
    free(chain);
    tacit_message_free(q);
}

/* The log goes on from all of its entries as another origin. */
static inline void fake_restore(fake_server *f, const tacit_identity *signer)
{
    f->restored_at = f->restored_size = f->w.count;
    world_restored(&f->w, f->restored_size, NULL, signer, NULL);
}

static void fake_restored(fake_server *f, const tacit_received *in, fake_answer *a)
{
    Tacit__RestoredRequest *q;
    Tacit__RestoredReply r = TACIT__RESTORED_REPLY__INIT;
    Tacit__RestoredStep step = TACIT__RESTORED_STEP__INIT, *steps = &step;
    tacit_proof proof[3];
    ProtobufCBinaryData fields[3][TACIT_PROOF_MAX];
    char note[TACIT_CHECKPOINT_MAX];
    OK(TACIT_UNPACK(&q, tacit__restored_request, in->request.body.data, in->request.body.size, 1024,
                    &f->err));
    fake_note(f, f->w.count, note);
    fake_consistency(f, q->checkpoint_size, &proof[0]);
    fake_inclusion(f, f->restored_at, &proof[1]);
    fake_consistency(f, f->restored_size, &proof[2]);
    for (int i = 0; i < 3; i++)
        tacit_proof_to_fields(&proof[i], fields[i]);
    step.entry = tacit_field_of(f->w.entry[f->restored_at].bytes, f->w.entry[f->restored_at].size);
    step.index = f->restored_at;
    step.inclusion = fields[1];
    step.n_inclusion = proof[1].count;
    step.growth = fields[2];
    step.n_growth = proof[2].count;
    r.steps = &steps;
    r.n_steps = 1;
    r.checkpoint = tacit_field_of(note, strlen(note));
    r.consistency = fields[0];
    r.n_consistency = proof[0].count;
    fake_pack(a, &r);
    tacit_message_free(q);
}

static void fake_renew(fake_server *f, const tacit_received *in, fake_answer *a)
{
    Tacit__RenewRequest *q;
    Tacit__RenewReply r = TACIT__RENEW_REPLY__INIT;
    char *chain;
    const char *root = tacit_ca_root_pem(f->ca);
    OK(TACIT_UNPACK(&q, tacit__renew_request, in->request.body.data, in->request.body.size, 65536,
                    &f->err));
    OK(tacit_ca_issue_device(f->ca, q->csr.data, q->csr.len, f->device, &chain, &f->err));
    r.certificate = tacit_field_of(chain, strlen(chain));
    r.root = tacit_field_of(root, strlen(root));
    fake_pack(a, &r);
    free(chain);
    tacit_message_free(q);
}

static void fake_spoil_note(fake_server *f, char note[TACIT_CHECKPOINT_MAX])
{
    tacit_checkpoint c;
    OK(tacit_checkpoint_parse(&c, note, strlen(note), &f->err));
    if (f->lie.shrink_log)
        fake_note(f, 1, note);
    c.root[0] ^= f->lie.fork_log;
    if (f->lie.fork_log || f->lie.stranger_signs)
        OK(tacit_checkpoint_sign(&c, f->lie.stranger_signs ? f->w.stranger : f->w.log, note,
                                 &f->err));
}

static void fake_add_manifest(fake_server *f, Tacit__CheckInReply *r, tacit_proof *proof,
                              ProtobufCBinaryData *fields)
{
    if (!f->manifest)
        return;
    r->manifest = tacit_field_of(f->manifest, f->manifest_size);
    r->manifest_signature = tacit_field_of(f->manifest_signature, TACIT_SIGNATURE_BYTES);
    if (f->lie.manifest_not_logged)
        return;
    fake_inclusion(f, f->manifest_index, proof);
    tacit_proof_to_fields(proof, fields);
    r->manifest_entry =
        tacit_field_of(f->w.entry[f->manifest_index].bytes, f->w.entry[f->manifest_index].size);
    r->manifest_index = f->manifest_index;
    r->manifest_proof = fields;
    r->n_manifest_proof = proof->count;
}

static tacit_note_key fake_witness(fake_server *f)
{
    tacit_note_key key;
    OK(tacit_note_key_make(&key, "w", tacit_identity_sign_key(f->w.policy_key), &f->err));
    return key;
}

static void fake_add_cosigned(fake_server *f, Tacit__CheckInReply *r, tacit_proof *proof,
                              ProtobufCBinaryData *fields, char note[TACIT_CHECKPOINT_MAX])
{
    fake_cosigned lie = f->lie.cosigned;
    tacit_note_key witness = fake_witness(f);
    tacit_checkpoint c;
    if (lie == FAKE_NOT_COSIGNED)
        return;
    fake_note(f, f->plan_index + (lie != FAKE_COSIGNED_EARLY), note);
    OK(tacit_checkpoint_parse(&c, note, strlen(note), &f->err));
    c.root[5] ^= lie == FAKE_COSIGNED_FORK;
    OK(tacit_checkpoint_sign(&c, f->w.log, note, &f->err));
    OK(tacit_checkpoint_cosign(note, &witness,
                               lie == FAKE_COSIGNED_BY_STRANGER ? f->w.stranger : f->w.policy_key,
                               1, &f->err));
    fake_consistency(f, c.size, proof);
    if (proof->count)
        proof->hash[0][0] ^= lie == FAKE_COSIGNED_UNPROVED;
    tacit_proof_to_fields(proof, fields);
    r->cosigned = tacit_field_of(note, strlen(note));
    r->cosigned_consistency = fields;
    r->n_cosigned_consistency = proof->count;
}

static void fake_check_in(fake_server *f, const tacit_received *in, fake_answer *a)
{
    Tacit__CheckInRequest *q;
    Tacit__CheckInReply r = TACIT__CHECK_IN_REPLY__INIT;
    tacit_checkpoint held = {.size = 0};
    tacit_proof proof[4];
    ProtobufCBinaryData fields[4][TACIT_PROOF_MAX];
    char note[TACIT_CHECKPOINT_MAX], cosigned[TACIT_CHECKPOINT_MAX];
    OK(TACIT_UNPACK(&q, tacit__check_in_request, in->request.body.data, in->request.body.size,
                    65536, &f->err));
    if (q->checkpoint.len)
        OK(tacit_checkpoint_parse(&held, q->checkpoint.data, q->checkpoint.len, &f->err));
    fake_note(f, f->w.count, note);
    fake_spoil_note(f, note);
    fake_consistency(f, held.size, &proof[0]);
    tacit_proof_to_fields(&proof[0], fields[0]);
    r.checkpoint = tacit_field_of(note, strlen(note));
    r.consistency = fields[0];
    r.n_consistency = proof[0].count;
    r.poll_after_ms = 50;
    r.revoked = f->lie.revoked;
    r.epsilon_cap = f->lie.epsilon_cap;
    if (f->offer_plan) {
        fake_inclusion(f, f->plan_index, &proof[1]);
        tacit_proof_to_fields(&proof[1], fields[1]);
        r.plan = tacit_field_of(f->w.plan[f->plan], f->w.plan_size[f->plan]);
        r.schedule = tacit_field_of(f->w.schedule, f->w.schedule_size);
        r.plan_entry =
            tacit_field_of(f->w.entry[f->plan_index].bytes, f->w.entry[f->plan_index].size);
        r.plan_index = f->plan_index;
        r.plan_proof = fields[1];
        r.n_plan_proof = proof[1].count;
    }
    if (q->wants_cosigned)
        fake_add_cosigned(f, &r, &proof[3], fields[3], cosigned);
    fake_add_manifest(f, &r, &proof[2], fields[2]);
    fake_pack(a, &r);
    tacit_message_free(q);
}

/* A device's chain is taken in order, each entry once, as by the real log. */
static bool fake_continues_chain(fake_server *f, ProtobufCBinaryData entry, fake_answer *a)
{
    tacit_entry e;
    OK(tacit_entry_read(&e, entry.data, entry.len, &f->err));
    uint64_t sequence = e.entry->sequence;
    tacit_entry_close(&e);
    if (sequence > f->sequence + 1) {
        a->status = TACIT_CONFLICT;
        snprintf(a->message, sizeof a->message, "send the entry before it first");
    }
    bool next = sequence == f->sequence + 1;
    f->sequence += next;
    return next;
}

static uint64_t fake_push_copy(fake_server *f, ProtobufCBinaryData entry)
{
    uint8_t *copy = malloc(entry.len);
    memcpy(copy, entry.data, entry.len);
    world_push_bytes(&f->w, copy, entry.len);
    return f->w.count - 1;
}

/* The same bytes stand in the log once. */
static void fake_take_reserve(fake_server *f, ProtobufCBinaryData entry, fake_answer *a)
{
    if (f->reserve && f->reserve_size == entry.len &&
        memcmp(f->reserve, entry.data, entry.len) == 0) {
        f->reserves_equal++;
        return;
    }
    if (!fake_continues_chain(f, entry, a))
        return;
    f->reserves_other += f->reserve != NULL;
    free(f->reserve);
    f->reserve = malloc(entry.len);
    memcpy(f->reserve, entry.data, entry.len);
    f->reserve_size = entry.len;
    f->reserve_index = fake_push_copy(f, entry);
    f->offer_plan = false;
}

static void fake_reserve(fake_server *f, const tacit_received *in, fake_answer *a)
{
    Tacit__ReserveRequest *q;
    Tacit__ReserveReply r = TACIT__RESERVE_REPLY__INIT;
    tacit_proof inclusion, consistency;
    ProtobufCBinaryData fields[2][TACIT_PROOF_MAX];
    char note[TACIT_CHECKPOINT_MAX];
    uint8_t nonce[32] = {0x11, 0x22};
    OK(TACIT_UNPACK(&q, tacit__reserve_request, in->request.body.data, in->request.body.size, 65536,
                    &f->err));
    fake_take_reserve(f, q->entry, a);
    if (a->status != TACIT_OK) {
        tacit_message_free(q);
        return;
    }
    uint64_t index = f->lie.wrong_inclusion ? f->reserve_index - 1 : f->reserve_index;
    fake_note(f, f->w.count, note);
    fake_inclusion(f, index, &inclusion);
    fake_consistency(f, q->checkpoint_size, &consistency);
    tacit_proof_to_fields(&inclusion, fields[0]);
    tacit_proof_to_fields(&consistency, fields[1]);
    r.index = index;
    r.checkpoint = tacit_field_of(note, strlen(note));
    r.inclusion = fields[0];
    r.n_inclusion = inclusion.count;
    r.consistency = fields[1];
    r.n_consistency = consistency.count;
    if (!f->lie.late)
        r.nonce = tacit_field_of(nonce, sizeof nonce);
    fake_pack(a, &r);
    tacit_message_free(q);
}

static void fake_abandon(fake_server *f, const tacit_received *in, fake_answer *a)
{
    Tacit__AbandonRequest *q;
    Tacit__AbandonReply r = TACIT__ABANDON_REPLY__INIT;
    OK(TACIT_UNPACK(&q, tacit__abandon_request, in->request.body.data, in->request.body.size, 65536,
                    &f->err));
    if (f->accepted)
        a->status = TACIT_CONFLICT;
    else if (fake_continues_chain(f, q->entry, a))
        r.index = fake_push_copy(f, q->entry);
    fake_pack(a, &r);
    tacit_message_free(q);
}

static void fake_upload_begin(fake_server *f, const tacit_received *in, fake_answer *a)
{
    Tacit__UploadBeginRequest *q;
    Tacit__UploadBeginReply r = TACIT__UPLOAD_BEGIN_REPLY__INIT;
    OK(TACIT_UNPACK(&q, tacit__upload_begin_request, in->request.body.data, in->request.body.size,
                    65536, &f->err));
    if (fake_continues_chain(f, q->spend_entry, a)) {
        fake_push_copy(f, q->spend_entry);
        free(f->upload);
        f->upload_have = 0;
        f->accepted = false;
        f->upload = calloc(1, q->size);
        f->upload_size = q->size;
    }
    r.offset = f->upload_have;
    r.chunk_bytes = 400; /* less than the device takes: it sends at least 1,024 */
    fake_pack(a, &r);
    tacit_message_free(q);
}

static void fake_upload_chunk(fake_server *f, const tacit_received *in, fake_answer *a)
{
    Tacit__UploadChunkRequest *q;
    Tacit__UploadChunkReply r = TACIT__UPLOAD_CHUNK_REPLY__INIT;
    OK(TACIT_UNPACK(&q, tacit__upload_chunk_request, in->request.body.data, in->request.body.size,
                    1 << 18, &f->err));
    /* A repeat of what is there is answered, not written. */
    if (q->offset == f->upload_have && q->data.len <= f->upload_size - f->upload_have) {
        memcpy(f->upload + f->upload_have, q->data.data, q->data.len);
        f->upload_have += q->data.len;
    }
    r.offset = f->upload_have;
    fake_pack(a, &r);
    tacit_message_free(q);
}

static void fake_commit(fake_server *f, fake_answer *a)
{
    static char empty[] = "";
    Tacit__UploadCommitReply r = TACIT__UPLOAD_COMMIT_REPLY__INIT;
    if (f->lie.lose_upload > 0) {
        f->lie.lose_upload--;
        f->upload_have = 0;
        a->status = TACIT_CONFLICT;
        return;
    }
    r.accepted = f->accepted = f->upload_have == f->upload_size;
    r.reason = empty;
    fake_pack(a, &r);
}

static void fake_receipt(fake_server *f, const tacit_received *in, fake_answer *a)
{
    Tacit__ReceiptRequest *q;
    Tacit__ReceiptReply r = TACIT__RECEIPT_REPLY__INIT;
    tacit_proof inclusion, consistency;
    ProtobufCBinaryData fields[2][TACIT_PROOF_MAX];
    char note[TACIT_CHECKPOINT_MAX];
    uint8_t leaf[TACIT_HASH_BYTES];
    size_t i = 0;
    OK(TACIT_UNPACK(&q, tacit__receipt_request, in->request.body.data, in->request.body.size, 65536,
                    &f->err));
    for (; i < f->w.count; i++) {
        tacit_merkle_leaf(leaf, f->w.entry[i].bytes, f->w.entry[i].size);
        if (memcmp(leaf, q->leaf_hash.data, sizeof leaf) == 0)
            break;
    }
    a->status = i == f->w.count ? TACIT_NOT_FOUND : TACIT_OK;
    if (i < f->w.count) {
        fake_note(f, f->w.count, note);
        fake_inclusion(f, i, &inclusion);
        fake_consistency(f, q->checkpoint_size, &consistency);
        tacit_proof_to_fields(&inclusion, fields[0]);
        tacit_proof_to_fields(&consistency, fields[1]);
        r.index = i;
        r.checkpoint = tacit_field_of(note, strlen(note));
        r.inclusion = fields[0];
        r.n_inclusion = inclusion.count;
        r.consistency = fields[1];
        r.n_consistency = consistency.count;
        fake_pack(a, &r);
    }
    tacit_message_free(q);
}

static void fake_adapter_chunk(fake_server *f, const tacit_received *in, fake_answer *a)
{
    Tacit__AdapterChunkRequest *q;
    Tacit__AdapterChunkReply r = TACIT__ADAPTER_CHUNK_REPLY__INIT;
    OK(TACIT_UNPACK(&q, tacit__adapter_chunk_request, in->request.body.data, in->request.body.size,
                    65536, &f->err));
    size_t left = f->adapter_size - q->offset, n = left < 1000 ? left : 1000;
    uint8_t *copy = malloc(n + 1);
    memcpy(copy, f->adapter + q->offset, n);
    if (f->lie.corrupt_adapter)
        copy[n / 2] ^= 4;
    r.data = tacit_field_of(copy, n);
    r.size = f->adapter_size;
    fake_pack(a, &r);
    free(copy);
    tacit_message_free(q);
}

static void fake_dispatch(fake_server *f, const tacit_received *in, fake_answer *a)
{
    if (f->lie.fail_status != TACIT_OK && in->request.method == f->lie.fail_method) {
        a->status = f->lie.fail_status;
        snprintf(a->message, sizeof a->message, "the fake server says no");
        return;
    }
    switch (in->request.method) {
    case TACIT__METHOD__METHOD_HELLO:
        fake_hello(f, a);
        break;
    case TACIT__METHOD__METHOD_ENROL:
        fake_enrol(f, in, a);
        break;
    case TACIT__METHOD__METHOD_RENEW:
        fake_renew(f, in, a);
        break;
    case TACIT__METHOD__METHOD_CHECK_IN:
        fake_check_in(f, in, a);
        break;
    case TACIT__METHOD__METHOD_RESERVE:
        fake_reserve(f, in, a);
        break;
    case TACIT__METHOD__METHOD_ABANDON:
        fake_abandon(f, in, a);
        break;
    case TACIT__METHOD__METHOD_UPLOAD_BEGIN:
        fake_upload_begin(f, in, a);
        break;
    case TACIT__METHOD__METHOD_UPLOAD_CHUNK:
        fake_upload_chunk(f, in, a);
        break;
    case TACIT__METHOD__METHOD_UPLOAD_COMMIT:
        fake_commit(f, a);
        break;
    case TACIT__METHOD__METHOD_RECEIPT:
        fake_receipt(f, in, a);
        break;
    case TACIT__METHOD__METHOD_RESTORED:
        fake_restored(f, in, a);
        break;
    case TACIT__METHOD__METHOD_ADAPTER_CHUNK:
        fake_adapter_chunk(f, in, a);
        break;
    default:
        a->status = TACIT_USAGE;
    }
}

static bool fake_drops(fake_server *f, uint32_t method)
{
    if (method != f->lie.drop_method || f->lie.drop_count == 0)
        return false;
    if (f->lie.drop_from-- > 0)
        return false;
    f->lie.drop_from = 0;
    f->lie.drop_count--;
    return true;
}

/* Everything was done when the answer is dropped, as when a network fails. */
static bool fake_handle(void *ctx, const uint8_t *bytes, size_t size, tacit_buffer *reply)
{
    fake_server *f = ctx;
    tacit_received in;
    fake_answer a = {.body = {.cap = TACIT_BODY_MAX}};
    uint8_t nonce[TACIT_NONCE_BYTES] = {0x4e};
    OK(tacit_request_parse(&in, bytes, size, &f->err));
    if (f->enrolled && in.request.has_device && in.request.method != TACIT__METHOD__METHOD_HELLO)
        OK(tacit_request_verify(&in, f->key, &f->err));
    if (f->n_calls < FAKE_CALLS_MAX) {
        f->call[f->n_calls].method = in.request.method;
        f->call[f->n_calls].at_ms = tacit_clock_wall_ms();
        f->call[f->n_calls++].size = in.request.body.size;
    }
    if (f->lie.heard)
        f->lie.heard(in.request.method);
    if (f->lie.read)
        f->lie.read(&in.request);
    fake_dispatch(f, &in, &a);
    bool drop = fake_drops(f, in.request.method);
    if (!drop)
        OK(tacit_reply_build(&in, a.status, a.message, nonce,
                             (tacit_span){a.body.data, a.body.size}, f->w.log, reply, &f->err));
    tacit_buffer_free(&a.body);
    tacit_received_free(&in);
    return !drop;
}

/* --- life --- */

static void fake_listen(fake_server *f, bool with_clients, const char *chain, const char *key,
                        tacit_listener **out)
{
    tacit_listener_setup setup = {.url = "tls+tcp://127.0.0.1:0",
                                  .certificate_pem = chain,
                                  .key_pem = key,
                                  .roots_pem = with_clients ? tacit_ca_root_pem(f->ca) : NULL,
                                  .workers = 1,
                                  .handler = fake_handle,
                                  .ctx = f};
    if (tacit_listener_start(out, &setup, &f->err) != TACIT_OK)
        fail_msg("%s", f->err.message);
}

static void fake_start_listeners(fake_server *f)
{
    static const char *const names[] = {"127.0.0.1"};
    char path[128], *chain;
    tacit_secret key;
    OK(tacit_ca_create(f->folder, "Fake", &f->err));
    OK(tacit_ca_load(&f->ca, f->folder, &f->err));
    snprintf(path, sizeof path, "%s/tls.key", f->folder);
    OK(tacit_tls_key_create(path, &f->err));
    OK(tacit_tls_key_load(&key, path, &f->err));
    tacit_ca_set_days(f->ca, 398);
    OK(tacit_ca_issue_server(f->ca, (const char *)key.data, names, 1, &chain, &f->err));
    tacit_ca_set_days(f->ca, TACIT_CERTIFICATE_DAYS);
    fake_listen(f, true, chain, (const char *)key.data, &f->devices);
    fake_listen(f, false, chain, (const char *)key.data, &f->enrolment);
    tacit_secret_free(&key);
    free(chain);
}

static void fake_count_values(fake_server *f)
{
    tacit_layout layout;
    tacit_trainable_spec spec = fake_spec();
    OK(tacit_layout_make(&layout, f->tiny.model, &spec, &f->err));
    fake_values = layout.values;
    tacit_layout_free(&layout);
}

static void fake_start(fake_server *f)
{
    *f = (fake_server){.folder = "/tmp/tacit-fake-XXXXXX"};
    fake_now = f;
    assert_non_null(mkdtemp(f->folder));
    f->tiny = fake_poisoned ? tiny_load_poisoned() : tiny_load(false);
    fake_count_values(f);
    world_init(&f->w);
    OK(tacit_seal_keypair(f->seal_public, &f->seal_secret, &f->err));
    f->w.edit_schedule = fake_edit_schedule;
    f->w.edit_plan = fake_edit_plan;
    world_plan_all(&f->w);
    world_start(&f->w);
    world_log_schedule(&f->w);
    world_log_plan(&f->w, 0);
    f->plan_index = f->w.count - 1;
    fake_start_listeners(f);
    randombytes_buf(f->token.secret, sizeof f->token.secret);
    f->token.port = tacit_listener_port(f->enrolment);
    tacit_ca_fingerprint(f->ca, f->token.root);
}

/* The plan of another round is offered from now on. */
static inline void fake_next_plan(fake_server *f, int round)
{
    world_log_plan(&f->w, round);
    f->plan_index = f->w.count - 1;
    f->plan = round;
    f->offer_plan = true;
}

static void fake_stop(fake_server *f)
{
    static const char *const files[] = {"ca.key", "ca.pem", "tls.key"};
    char path[128];
    tacit_listener_stop(f->devices);
    tacit_listener_stop(f->enrolment);
    tacit_ca_free(f->ca);
    tacit_secret_free(&f->seal_secret);
    world_free(&f->w);
    tiny_free(&f->tiny);
    free(f->reserve);
    free(f->upload);
    free(f->adapter);
    free(f->manifest);
    for (size_t i = 0; i < sizeof files / sizeof files[0]; i++) {
        snprintf(path, sizeof path, "%s/%s", f->folder, files[i]);
        unlink(path);
    }
    rmdir(f->folder);
}

/* --- publications --- */

/* An adapter of the plan's lineage and shape with B = `value`; its manifest is logged and signed.
 */
static void fake_publish(fake_server *f, uint64_t version, float value)
{
    static char rule[] = "post-processing";
    tacit_trainable_spec spec = fake_spec();
    tacit_adapter_info info = {
        .version = version, .parent_version = version - 1, .has_base_digest = true};
    Tacit__AdapterManifest m = TACIT__ADAPTER_MANIFEST__INIT;
    Tacit__Entry e = TACIT__ENTRY__INIT;
    Tacit__AdapterPublished b = TACIT__ADAPTER_PUBLISHED__INIT;
    uint8_t lineage[16], id[16];
    char path[128];
    float *values = malloc(fake_values * sizeof *values);
    for (size_t i = 0; i < fake_values; i++)
        values[i] = value;
    memset(info.lineage, 0x11, sizeof info.lineage);
    memcpy(info.base_digest, tacit_model_base_digest(f->tiny.model), sizeof info.base_digest);
    snprintf(path, sizeof path, "%s/adapter.gguf", f->folder);
    OK(tacit_adapter_save(path, f->tiny.model, &spec, values, &info, &f->err));
    free(values);
    free(f->adapter);
    OK(tacit_file_read(path, 1 << 20, &f->adapter, &f->adapter_size, &f->err));
    unlink(path);
    tacit_digest(f->adapter_digest, f->adapter, f->adapter_size);
    m.format = 1;
    m.lineage = filled(lineage, 16, 0x11);
    m.version = version;
    m.parent_version = version - 1;
    m.base_digest = tacit_field_of(info.base_digest, 32);
    m.file_digest = tacit_field_of(f->adapter_digest, 32);
    m.file_bytes = f->adapter_size;
    m.round_id = filled(id, 16, 0xa0);
    m.epsilon_server = m.epsilon_published = 1;
    m.delta = 1e-5;
    if (f->lie.spoils_guarantee) {
        m.epsilon_server = f->lie.epsilon_server;
        m.epsilon_published = f->lie.epsilon_published;
        m.delta = f->lie.delta;
    }
    m.epsilon_rule = rule;
    free(f->manifest);
    f->manifest = world_pack(&m, &f->manifest_size);
    OK(tacit_identity_sign(f->lie.manifest_by_stranger ? f->w.stranger : f->w.log,
                           TACIT_MANIFEST_DOMAIN, f->manifest, f->manifest_size,
                           f->manifest_signature, &f->err));
    e.body_case = TACIT__ENTRY__BODY_PUBLISHED;
    e.published = &b;
    b.manifest = tacit_field_of(f->manifest, f->manifest_size);
    b.signature = tacit_field_of(f->manifest_signature, TACIT_SIGNATURE_BYTES);
    world_push(&f->w, &e, f->w.log, NULL);
    f->manifest_index = f->w.count - 1;
    f->published_version = version;
}

/* --- joining it --- */

static tacit_status fake_device_try_enrol(fake_device *d, fake_server *f)
{
    char url[64], token[TACIT_TOKEN_TEXT];
    client_enroll_request request = {
        .server = url, .token = token, .name = "device", .patience_ms = 20000};
    snprintf(url, sizeof url, "tls+tcp://127.0.0.1:%u", tacit_listener_port(f->devices));
    tacit_token_write(&f->token, token);
    fake_device_set(d, "minimum_pad_seconds", "0"); /* uploads of these tests do not wait */
    fake_device_open(d, CLIENT_WORKS);
    tacit_status status = client_enroll(d->client, &request, &d->err);
    fake_device_close(d);
    return status;
}

static void fake_device_enrol(fake_device *d, fake_server *f)
{
    if (fake_device_try_enrol(d, f) != TACIT_OK)
        fail_msg("%s", d->err.message);
}

#endif
