/* Any bytes as the body of a server's reply, the way a device takes them: the first byte chooses
 * the message, and for 'm' what follows is a manifest that the server's key has signed and logged.
 * What unpacks packs to the same bytes; no proof, note, entry or plan of a reply holds by itself.
 */
#include "fuzz_target.h"

#include "client/manifest.h"
#include "client/plan_check.h"
#include "common/link.h"
#include "privacy/entry.h"
#include "privacy/receipt.h"
#include "proto/wire.pb-c.h"

#include <string.h>

bool fuzz_accepted;

static const struct {
    char letter;
    const ProtobufCMessageDescriptor *type;
} replies[] = {
    {'h', &tacit__hello_reply__descriptor},         {'e', &tacit__enrol_reply__descriptor},
    {'n', &tacit__renew_reply__descriptor},         {'c', &tacit__check_in_reply__descriptor},
    {'r', &tacit__reserve_reply__descriptor},       {'t', &tacit__receipt_reply__descriptor},
    {'a', &tacit__adapter_chunk_reply__descriptor}, {'b', &tacit__upload_begin_reply__descriptor},
    {'u', &tacit__upload_commit_reply__descriptor},
};

static const tacit_identity *server(void)
{
    static tacit_identity *id;
    tacit_error err;
    if (!id)
        FUZZ_CHECK(tacit_identity_ephemeral(&id, &err) == TACIT_OK);
    return id;
}

static tacit_note_key log_key(void)
{
    tacit_note_key key;
    tacit_error err;
    FUZZ_CHECK(tacit_note_key_make(&key, "tacit.example/log", tacit_identity_sign_key(server()),
                                   &err) == TACIT_OK);
    return key;
}

/* Checkpoint and proofs as fields: readable or not, never signed by a key made here. */
static bool read_placement(ProtobufCBinaryData note, const ProtobufCBinaryData *proof, size_t n,
                           tacit_checkpoint *checkpoint, tacit_proof *out)
{
    tacit_error err;
    tacit_note_key key = log_key();
    tacit_span text = tacit_span_of(note);
    FUZZ_CHECK(tacit_checkpoint_verify(checkpoint, text.data, text.size, &key, &err) != TACIT_OK);
    bool readable = tacit_checkpoint_parse(checkpoint, text.data, text.size, &err) == TACIT_OK;
    if (tacit_proof_from_fields(out, proof, n, &err) != TACIT_OK)
        return false;
    FUZZ_CHECK(out->count == n && n <= TACIT_PROOF_MAX);
    return readable;
}

static void take_check_in(const Tacit__CheckInReply *r)
{
    static const uint8_t base[TACIT_DIGEST_BYTES];
    static const tacit_policy policy = {.epsilon_cap = 3, .delta = 1e-5};
    tacit_note_key key = log_key();
    tacit_checkpoint checkpoint = {0};
    tacit_proof consistency, inclusion;
    tacit_error err;
    Tacit__AdapterManifest *manifest;
    checked_plan plan;
    fuzz_accepted =
        read_placement(r->checkpoint, r->consistency, r->n_consistency, &checkpoint, &consistency);
    if (!read_placement(r->checkpoint, r->plan_proof, r->n_plan_proof, &checkpoint, &inclusion)) {
        fuzz_accepted = false;
        return;
    }
    const plan_offer offer = {.plan = tacit_span_of(r->plan),
                              .schedule = tacit_span_of(r->schedule),
                              .entry = tacit_span_of(r->plan_entry),
                              .index = r->plan_index,
                              .inclusion = &inclusion,
                              .checkpoint = &checkpoint};
    const plan_terms terms = {
        .log = &key, .policy = &policy, .maximum_steps = 100, .base_digest = base};
    FUZZ_CHECK(plan_check(&plan, &offer, &terms, &err) != TACIT_OK);
    FUZZ_CHECK(manifest_open(&manifest, tacit_span_of(r->manifest),
                             tacit_span_of(r->manifest_signature), &key, &err) != TACIT_OK);
    FUZZ_CHECK(manifest == NULL);
    const manifest_publication p = {.manifest = tacit_span_of(r->manifest),
                                    .signature = tacit_span_of(r->manifest_signature),
                                    .entry = tacit_span_of(r->manifest_entry),
                                    .index = r->manifest_index,
                                    .inclusion = &inclusion,
                                    .checkpoint = &checkpoint};
    FUZZ_CHECK(manifest_check_logged(&p, &key, &err) != TACIT_OK);
}

static void take_reply(const ProtobufCMessageDescriptor *type, const void *message)
{
    tacit_checkpoint checkpoint = {0};
    tacit_proof proof;
    fuzz_accepted = true;
    if (type == &tacit__check_in_reply__descriptor) {
        take_check_in(message);
    } else if (type == &tacit__reserve_reply__descriptor) {
        const Tacit__ReserveReply *r = message;
        fuzz_accepted =
            read_placement(r->checkpoint, r->inclusion, r->n_inclusion, &checkpoint, &proof);
    } else if (type == &tacit__receipt_reply__descriptor) {
        const Tacit__ReceiptReply *r = message;
        fuzz_accepted =
            read_placement(r->checkpoint, r->inclusion, r->n_inclusion, &checkpoint, &proof);
    }
}

/* Packed again it is as long (only the order of fields may differ), and reads the same again. */
static void check_packing(const ProtobufCMessageDescriptor *type, const ProtobufCMessage *message,
                          size_t size)
{
    ProtobufCMessage *again = NULL;
    uint8_t *packed, *repacked;
    size_t packed_size, repacked_size;
    tacit_error err;
    FUZZ_CHECK(tacit_message_pack(message, TACIT_MESSAGE_MAX, &packed, &packed_size, &err) ==
               TACIT_OK);
    FUZZ_CHECK(packed_size == size);
    FUZZ_CHECK(tacit_message_unpack(&again, type, packed, packed_size, TACIT_MESSAGE_MAX, &err) ==
               TACIT_OK);
    FUZZ_CHECK(tacit_message_pack(again, TACIT_MESSAGE_MAX, &repacked, &repacked_size, &err) ==
               TACIT_OK);
    FUZZ_CHECK(repacked_size == packed_size && memcmp(repacked, packed, packed_size) == 0);
    tacit_message_free(again);
    free(packed);
    free(repacked);
}

static void try_reply(const ProtobufCMessageDescriptor *type, tacit_span body)
{
    ProtobufCMessage *message = NULL;
    tacit_error err;
    if (tacit_message_unpack(&message, type, body.data, body.size, TACIT_MESSAGE_MAX, &err) !=
        TACIT_OK)
        return;
    check_packing(type, message, body.size);
    take_reply(type, message);
    tacit_message_free(message);
}

static void check_manifest(const Tacit__AdapterManifest *m)
{
    FUZZ_CHECK(m->lineage.len == 16 && m->file_digest.len == TACIT_DIGEST_BYTES);
    FUZZ_CHECK(m->base_digest.len == TACIT_DIGEST_BYTES);
    FUZZ_CHECK(m->file_bytes > 0 && m->file_bytes <= MANIFEST_FILE_MAX);
    FUZZ_CHECK(m->parent_version < m->version);
}

/* The entry that publishes exactly this manifest passes; for one byte more it does not. */
static void check_publication(tacit_span manifest, const uint8_t *signature,
                              const tacit_note_key *key)
{
    Tacit__Entry entry = TACIT__ENTRY__INIT;
    Tacit__AdapterPublished published = TACIT__ADAPTER_PUBLISHED__INIT;
    tacit_checkpoint checkpoint = {.origin = "tacit.example/log", .size = 1};
    const tacit_proof inclusion = {.count = 0};
    uint8_t *bytes;
    size_t size;
    tacit_error err;
    entry.time_ms = 1;
    entry.body_case = TACIT__ENTRY__BODY_PUBLISHED;
    entry.published = &published;
    published.manifest = tacit_field_of(manifest.data, manifest.size);
    published.signature = tacit_field_of(signature, TACIT_SIGNATURE_BYTES);
    if (tacit_entry_sign(&entry, server(), &bytes, &size, checkpoint.root, &err) != TACIT_OK)
        return;
    manifest_publication p = {.manifest = manifest,
                              .signature = {signature, TACIT_SIGNATURE_BYTES},
                              .entry = {bytes, size},
                              .inclusion = &inclusion,
                              .checkpoint = &checkpoint};
    FUZZ_CHECK(manifest_check_logged(&p, key, &err) == TACIT_OK);
    p.manifest.size--;
    FUZZ_CHECK(manifest_check_logged(&p, key, &err) != TACIT_OK);
    free(bytes);
}

static void try_manifest(tacit_span bytes)
{
    tacit_note_key key = log_key();
    uint8_t signature[TACIT_SIGNATURE_BYTES];
    Tacit__AdapterManifest *manifest = NULL;
    tacit_error err;
    FUZZ_CHECK(tacit_identity_sign(server(), TACIT_MANIFEST_DOMAIN, bytes.data, bytes.size,
                                   signature, &err) == TACIT_OK);
    const tacit_span seal = {signature, sizeof signature};
    fuzz_accepted = manifest_open(&manifest, bytes, seal, &key, &err) == TACIT_OK;
    if (fuzz_accepted) {
        check_manifest(manifest);
        check_publication(bytes, signature, &key);
        tacit_message_free(manifest);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    fuzz_accepted = false;
    if (size == 0)
        return 0;
    const tacit_span body = {data + 1, size - 1};
    if (data[0] == 'm')
        try_manifest(body);
    for (size_t i = 0; i < sizeof replies / sizeof replies[0]; i++)
        if (data[0] == (uint8_t)replies[i].letter)
            try_reply(replies[i].type, body);
    return 0;
}
