#include "privacy/entry.h"

#include "common/text.h"
#include "privacy/mechanism.h"
#include "privacy/policy.h"
#include "privacy/restore.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define ENTRY_TEXT_MAX 256
#define ENTRY_MANIFEST_MAX 4096

static const char *const reject_reasons[] = {
    "size",      "decrypt", "signature", "plan", "reserve",
    "duplicate", "shape",   "finite",    "norm", "late",
};

bool tacit_entry_is_reject_reason(const char *word)
{
    for (size_t i = 0; i < sizeof reject_reasons / sizeof reject_reasons[0]; i++)
        if (strcmp(word, reject_reasons[i]) == 0)
            return true;
    return false;
}

/* --- what one field must look like; each returns NULL or the complaint --- */

static const char *need_bytes(ProtobufCBinaryData field, size_t size, const char *complaint)
{
    return field.len == size ? NULL : complaint;
}

static const char *need_range(ProtobufCBinaryData field, size_t min, size_t max,
                              const char *complaint)
{
    return field.len >= min && field.len <= max ? NULL : complaint;
}

static const char *need_text(const char *text, const char *complaint)
{
    size_t n = strlen(text);
    return n > 0 && n <= ENTRY_TEXT_MAX && tacit_text_is_plain(text, n) ? NULL : complaint;
}

static const char *need_policy(ProtobufCBinaryData field)
{
    tacit_policy policy;
    return tacit_policy_unpack(&policy, field.data, field.len, NULL) == TACIT_OK
               ? NULL
               : "policy is malformed";
}

/* The first complaint of a list. */
static const char *first_of(const char *const *complaints, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (complaints[i])
            return complaints[i];
    return NULL;
}
#define FIRST_OF(...)                                                                              \
    first_of((const char *const[]){__VA_ARGS__},                                                   \
             sizeof((const char *const[]){__VA_ARGS__}) / sizeof(const char *))

/* --- one row per kind --- */

static const char *check_enrol(const Tacit__Entry *e)
{
    const Tacit__Enrol *b = e->enrol;
    return FIRST_OF(need_bytes(b->identity_key, 32, "identity_key has not 32 bytes"),
                    need_bytes(b->exchange_key, 32, "exchange_key has not 32 bytes"),
                    need_policy(b->policy),
                    need_bytes(b->policy_signature, 64, "policy_signature has not 64 bytes"),
                    b->policy_key.len == 0 || b->policy_key.len == 32
                        ? NULL
                        : "policy_key has neither 0 nor 32 bytes");
}

static const char *check_renew(const Tacit__Entry *e)
{
    return need_bytes(e->renew->certificate_digest, 32, "certificate_digest has not 32 bytes");
}

static const char *check_revoke(const Tacit__Entry *e)
{
    return need_text(e->revoke->reason, "reason is missing or too long");
}

static const char *check_schedule(const Tacit__Entry *e)
{
    return need_range(e->schedule->schedule, 1, TACIT_MESSAGE_WIRE_MAX, "schedule is empty");
}

static const char *check_plan(const Tacit__Entry *e)
{
    return need_range(e->plan->plan, 1, TACIT_MESSAGE_WIRE_MAX, "plan is empty");
}

static const char *check_reserve_none(const Tacit__Reserve *r)
{
    return r->b == 0 && r->clip_norm == 0 && r->quantile_b == 0 && isinf(r->epsilon_after)
               ? NULL
               : "mechanism none has noise, a clip norm or a finite epsilon";
}

static const char *check_reserve_gaussian(const Tacit__Reserve *r)
{
    return r->b >= TACIT_B_MIN && r->b <= TACIT_B_MAX && isfinite(r->clip_norm) &&
                   r->clip_norm >= TACIT_CLIP_NORM_MIN && r->clip_norm <= TACIT_CLIP_NORM_MAX &&
                   (r->quantile_b == 0 ||
                    (r->quantile_b >= TACIT_B_MIN && r->quantile_b <= TACIT_B_MAX)) &&
                   isfinite(r->epsilon_after) && r->epsilon_after >= 0
               ? NULL
               : "b, quantile_b, clip_norm or epsilon_after is out of range";
}

static const char *check_separation(const Tacit__Reserve *r)
{
    bool good =
        r->kind == TACIT_MECHANISM_TREE_GAUSSIAN
            ? r->minimum_separation >= 1 && r->minimum_separation <= r->steps && r->quantile_b == 0
            : r->minimum_separation == 0;
    return good ? NULL : "minimum_separation or quantile_b does not fit the kind";
}

static const char *check_reserve(const Tacit__Entry *e)
{
    const Tacit__Reserve *r = e->reserve;
    bool none = r->kind == TACIT_MECHANISM_NONE;
    const char *complaint = FIRST_OF(
        r->round_id.len == 0 || r->round_id.len == 16 ? NULL : "round_id has not 16 bytes",
        need_bytes(r->plan_hash, 32, "plan_hash has not 32 bytes"),
        need_bytes(r->lineage, 16, "lineage has not 16 bytes"),
        r->kind >= TACIT_MECHANISM_NONE && r->kind <= TACIT_MECHANISM_TREE_GAUSSIAN
            ? NULL
            : "kind is unknown",
        r->unit >= TACIT_UNIT_RECORD && r->unit <= TACIT_UNIT_DEVICE ? NULL : "unit is unknown",
        r->neighbours == TACIT_ADD_REMOVE || r->neighbours == TACIT_REPLACE_ONE
            ? NULL
            : "neighbours are unknown",
        r->q_num >= 1 && r->q_num <= TACIT_Q_ONE ? NULL : "q_num is out of range",
        r->steps >= 1 && r->steps <= TACIT_STEPS_MAX ? NULL : "steps are out of range",
        check_separation(r), r->values >= 1 ? NULL : "values are missing",
        r->delta > 0 && r->delta < 1 ? NULL : "delta is out of range",
        r->accountant == TACIT__ACCOUNTANT_KIND__ACCOUNTANT_PLD ? NULL : "accountant is unknown",
        need_text(r->accountant_version, "accountant_version is missing"),
        isfinite(r->epsilon_cap) && r->epsilon_cap > 0 ? NULL : "epsilon_cap is out of range");
    if (complaint)
        return complaint;
    return none ? check_reserve_none(r) : check_reserve_gaussian(r);
}

static const char *check_spend(const Tacit__Entry *e)
{
    return FIRST_OF(need_bytes(e->spend->reserve_hash, 32, "reserve_hash has not 32 bytes"),
                    need_bytes(e->spend->update_digest, 32, "update_digest has not 32 bytes"));
}

static const char *check_abandon(const Tacit__Entry *e)
{
    return FIRST_OF(need_bytes(e->abandon->reserve_hash, 32, "reserve_hash has not 32 bytes"),
                    need_text(e->abandon->reason, "reason is missing or too long"));
}

static const char *check_account_lost(const Tacit__Entry *e)
{
    double epsilon = e->account_lost->epsilon_counted;
    return isfinite(epsilon) && epsilon > 0 ? NULL : "epsilon_counted is out of range";
}

static const char *check_clone(const Tacit__Entry *e)
{
    return need_text(e->clone_suspected->evidence, "evidence is missing or too long");
}

static const char *check_update(const Tacit__Entry *e)
{
    const Tacit__UpdateDecision *u = e->update;
    bool reason = u->accepted ? u->reason[0] == '\0' : tacit_entry_is_reject_reason(u->reason);
    return FIRST_OF(need_bytes(u->round_id, 16, "round_id has not 16 bytes"),
                    need_bytes(u->reserve_hash, 32, "reserve_hash has not 32 bytes"),
                    need_bytes(u->update_digest, 32, "update_digest has not 32 bytes"),
                    reason ? NULL : "reason is not one of the list");
}

static const char *check_aggregate(const Tacit__Entry *e)
{
    const Tacit__Aggregate *a = e->aggregate;
    bool ascending = true;
    for (size_t i = 0; i < a->n_reserve_hashes && ascending; i++)
        ascending =
            a->reserve_hashes[i].len == 32 &&
            (i == 0 || memcmp(a->reserve_hashes[i - 1].data, a->reserve_hashes[i].data, 32) < 0);
    return FIRST_OF(need_bytes(a->round_id, 16, "round_id has not 16 bytes"),
                    ascending ? NULL : "reserve_hashes are not ascending hashes",
                    a->quorum >= 1 ? NULL : "quorum is missing",
                    need_bytes(a->result_digest, 32, "result_digest has not 32 bytes"));
}

static const char *check_published(const Tacit__Entry *e)
{
    return FIRST_OF(
        need_range(e->published->manifest, 1, ENTRY_MANIFEST_MAX, "manifest is empty or too long"),
        need_bytes(e->published->signature, 64, "signature has not 64 bytes"));
}

static const char *check_rolled_back(const Tacit__Entry *e)
{
    return FIRST_OF(need_bytes(e->rolled_back->lineage, 16, "lineage has not 16 bytes"),
                    need_text(e->rolled_back->reason, "reason is missing or too long"));
}

static const char *check_policy_changed(const Tacit__Entry *e)
{
    const Tacit__PolicyChanged *p = e->policy_changed;
    return FIRST_OF(need_text(p->who, "who is missing"), need_text(p->role, "role is missing"),
                    need_text(p->meaning, "meaning is missing"),
                    need_text(p->reason, "reason is missing"), need_policy(p->policy),
                    p->signature.len == 0 || p->signature.len == 64
                        ? NULL
                        : "signature has neither 0 nor 64 bytes");
}

static const char *check_key_rotated(const Tacit__Entry *e)
{
    const Tacit__KeyRotated *k = e->key_rotated;
    return FIRST_OF(need_bytes(k->old_key, 32, "old_key has not 32 bytes"),
                    need_bytes(k->new_key, 32, "new_key has not 32 bytes"),
                    need_bytes(k->signature_old, 64, "signature_old has not 64 bytes"),
                    need_bytes(k->signature_new, 64, "signature_new has not 64 bytes"));
}

static const char *check_server_start(const Tacit__Entry *e)
{
    const Tacit__ServerStart *s = e->server_start;
    return FIRST_OF(need_text(s->version, "version is missing"),
                    need_text(s->origin, "origin is missing"),
                    need_bytes(s->log_key, 32, "log_key has not 32 bytes"),
                    s->operator_key.len == 0 || s->operator_key.len == 32
                        ? NULL
                        : "operator_key has neither 0 nor 32 bytes");
}

static const char *check_server_stop(const Tacit__Entry *e)
{
    return need_text(e->server_stop->reason, "reason is missing or too long");
}

static const char *check_round_closed(const Tacit__Entry *e)
{
    const Tacit__RoundClosed *r = e->round_closed;
    return FIRST_OF(need_bytes(r->round_id, 16, "round_id has not 16 bytes"),
                    r->published ? NULL : need_text(r->reason, "reason is missing"));
}

static const char *check_restored(const Tacit__Entry *e)
{
    return FIRST_OF(need_range(e->restored->statement, 1, TACIT_RESTORE_STATEMENT_MAX,
                               "statement is empty or too long"),
                    need_bytes(e->restored->signature, 64, "signature has not 64 bytes"));
}

enum { SIGNED_BY_DEVICE = 1, ABOUT_DEVICE = 2 };

static const struct entry_kind {
    Tacit__Entry__BodyCase kind;
    const char *name;
    unsigned flags;
    const char *(*check)(const Tacit__Entry *entry);
} entry_kinds[] = {
    {TACIT__ENTRY__BODY_ENROL, "enrol", ABOUT_DEVICE, check_enrol},
    {TACIT__ENTRY__BODY_RENEW, "renew", ABOUT_DEVICE, check_renew},
    {TACIT__ENTRY__BODY_REVOKE, "revoke", ABOUT_DEVICE, check_revoke},
    {TACIT__ENTRY__BODY_SCHEDULE, "schedule", 0, check_schedule},
    {TACIT__ENTRY__BODY_PLAN, "plan", 0, check_plan},
    {TACIT__ENTRY__BODY_RESERVE, "reserve", SIGNED_BY_DEVICE, check_reserve},
    {TACIT__ENTRY__BODY_SPEND, "spend", SIGNED_BY_DEVICE, check_spend},
    {TACIT__ENTRY__BODY_ABANDON, "abandon", SIGNED_BY_DEVICE, check_abandon},
    {TACIT__ENTRY__BODY_ACCOUNT_LOST, "account_lost", SIGNED_BY_DEVICE, check_account_lost},
    {TACIT__ENTRY__BODY_CLONE_SUSPECTED, "clone_suspected", ABOUT_DEVICE, check_clone},
    {TACIT__ENTRY__BODY_UPDATE, "update", ABOUT_DEVICE, check_update},
    {TACIT__ENTRY__BODY_AGGREGATE, "aggregate", 0, check_aggregate},
    {TACIT__ENTRY__BODY_PUBLISHED, "published", 0, check_published},
    {TACIT__ENTRY__BODY_ROLLED_BACK, "rolled_back", 0, check_rolled_back},
    {TACIT__ENTRY__BODY_POLICY_CHANGED, "policy_changed", ABOUT_DEVICE, check_policy_changed},
    {TACIT__ENTRY__BODY_KEY_ROTATED, "key_rotated", 0, check_key_rotated},
    {TACIT__ENTRY__BODY_SERVER_START, "server_start", 0, check_server_start},
    {TACIT__ENTRY__BODY_SERVER_STOP, "server_stop", 0, check_server_stop},
    {TACIT__ENTRY__BODY_ROUND_CLOSED, "round_closed", 0, check_round_closed},
    {TACIT__ENTRY__BODY_RESTORED, "restored", 0, check_restored},
};

static const struct entry_kind *find_kind(Tacit__Entry__BodyCase kind)
{
    for (size_t i = 0; i < sizeof entry_kinds / sizeof entry_kinds[0]; i++)
        if (entry_kinds[i].kind == kind)
            return &entry_kinds[i];
    return NULL;
}

const char *tacit_entry_kind_name(Tacit__Entry__BodyCase kind)
{
    const struct entry_kind *row = find_kind(kind);
    return row ? row->name : "unknown";
}

bool tacit_entry_kind_is_device_signed(Tacit__Entry__BodyCase kind)
{
    const struct entry_kind *row = find_kind(kind);
    return row && row->flags & SIGNED_BY_DEVICE;
}

static const char *check_frame(const Tacit__Entry *e, unsigned flags)
{
    bool chained = flags & SIGNED_BY_DEVICE;
    size_t device = flags ? TACIT_DEVICE_BYTES : 0;
    size_t previous = chained && e->sequence > 1 ? TACIT_HASH_BYTES : 0;
    return FIRST_OF(e->schema == TACIT_ENTRY_SCHEMA ? NULL : "schema is unknown",
                    need_bytes(e->device, device, "device has a wrong length"),
                    chained == (e->sequence > 0) && e->sequence <= INT64_MAX
                        ? NULL
                        : "sequence is out of range",
                    need_bytes(e->previous, previous, "previous has a wrong length"));
}

tacit_status tacit_entry_validate(const Tacit__Entry *entry, tacit_error *err)
{
    const struct entry_kind *row = find_kind(entry->body_case);
    if (!row)
        return tacit_fail(err, TACIT_BAD_INPUT, "log entry: the kind is missing");
    const char *complaint = check_frame(entry, row->flags);
    if (!complaint)
        complaint = row->check(entry);
    if (complaint)
        return tacit_fail(err, TACIT_BAD_INPUT, "log entry '%s': %s", row->name, complaint);
    return TACIT_OK;
}

/* --- opening and signing --- */

tacit_status tacit_entry_read(tacit_entry *out, const void *bytes, size_t size, tacit_error *err)
{
    *out = (tacit_entry){0};
    Tacit__SignedEntry *envelope;
    tacit_status status =
        TACIT_UNPACK(&envelope, tacit__signed_entry, bytes, size, TACIT_MESSAGE_ENTRY_MAX, err);
    if (status != TACIT_OK)
        return status;
    out->envelope = envelope;
    if (!tacit_bytes_are(envelope->signer, TACIT_SIGN_KEY_BYTES) ||
        !tacit_bytes_are(envelope->signature, TACIT_SIGNATURE_BYTES)) {
        status = tacit_fail(err, TACIT_BAD_INPUT, "log entry: signer or signature is missing");
        goto fail;
    }
    TACIT_TRY(TACIT_UNPACK(&out->entry, tacit__entry, envelope->entry.data, envelope->entry.len,
                           TACIT_MESSAGE_ENTRY_MAX, err),
              fail);
    TACIT_TRY(tacit_entry_validate(out->entry, err), fail);
    tacit_merkle_leaf(out->leaf, bytes, size);
    out->device_signed = tacit_entry_kind_is_device_signed(out->entry->body_case);
    return TACIT_OK;
fail:
    tacit_entry_close(out);
    return status;
}

tacit_status tacit_entry_open(tacit_entry *out, const void *bytes, size_t size, tacit_error *err)
{
    tacit_status status = tacit_entry_read(out, bytes, size, err);
    if (status != TACIT_OK)
        return status;
    const Tacit__SignedEntry *e = out->envelope;
    if (tacit_signature_holds(e->signer.data, TACIT_ENTRY_DOMAIN, e->entry.data, e->entry.len,
                              e->signature.data)) {
        out->signature_holds = true;
        return TACIT_OK;
    }
    status = tacit_fail(err, TACIT_INTEGRITY, "log entry '%s': the signature does not hold",
                        tacit_entry_kind_name(out->entry->body_case));
    tacit_entry_close(out);
    return status;
}

void tacit_entry_close(tacit_entry *e)
{
    tacit_message_free(e->entry);
    tacit_message_free(e->envelope);
    *e = (tacit_entry){0};
}

tacit_status tacit_entry_sign(Tacit__Entry *entry, const tacit_identity *signer, uint8_t **bytes,
                              size_t *size, uint8_t leaf[TACIT_HASH_BYTES], tacit_error *err)
{
    uint8_t *inner = NULL, signature[TACIT_SIGNATURE_BYTES];
    size_t inner_size;
    entry->schema = TACIT_ENTRY_SCHEMA;
    tacit_status status = tacit_entry_validate(entry, err);
    if (status != TACIT_OK)
        return status;
    TACIT_TRY(tacit_message_pack(entry, TACIT_MESSAGE_ENTRY_MAX, &inner, &inner_size, err), done);
    TACIT_TRY(tacit_identity_sign(signer, TACIT_ENTRY_DOMAIN, inner, inner_size, signature, err),
              done);
    Tacit__SignedEntry envelope = TACIT__SIGNED_ENTRY__INIT;
    envelope.entry = tacit_field_of(inner, inner_size);
    envelope.signer = tacit_field_of(tacit_identity_sign_key(signer), TACIT_SIGN_KEY_BYTES);
    envelope.signature = tacit_field_of(signature, sizeof signature);
    TACIT_TRY(tacit_message_pack(&envelope, TACIT_MESSAGE_ENTRY_MAX, bytes, size, err), done);
    if (leaf)
        tacit_merkle_leaf(leaf, *bytes, *size);
done:
    free(inner);
    return status;
}
