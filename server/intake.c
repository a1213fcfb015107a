#include "server/intake.h"

#include "common/message.h"
#include "common/seal.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define UPDATE_OVERHEAD 1024 /* every field of an Update but its values */

size_t intake_update_bound(const Tacit__Plan *plan)
{
    return (size_t)plan->trainable_values * 4 + UPDATE_OVERHEAD;
}

size_t intake_sealed_bound(const Tacit__Plan *plan)
{
    return tacit_seal_bound(intake_update_bound(plan));
}

void intake_update_free(intake_update *u)
{
    tacit_message_free(u->message);
    *u = (intake_update){0};
}

static const char *check_size(const intake_terms *t, const update_row *row, size_t size,
                              tacit_error *err)
{
    size_t most = intake_sealed_bound(t->plan);
    if (size == row->size && size <= most)
        return NULL;
    tacit_fail(err, TACIT_BAD_INPUT,
               "update: expected at most %zu bytes and the announced %llu, "
               "found %zu",
               most, (unsigned long long)row->size, size);
    return "size";
}

/* Opens the seal into *plain. A signature that fails is told apart from bytes that do not open. */
static tacit_status unseal(const intake_terms *t, const update_row *row, const uint8_t *sealed,
                           size_t size, tacit_buffer *plain, const char **reason, tacit_error *err)
{
    tacit_seal_binding binding = {row->device, t->plan_hash, row->reserve_hash};
    plain->cap = intake_update_bound(t->plan);
    tacit_status status =
        tacit_seal_open(plain, sealed, size, &binding, t->signer_key, t->secret, err);
    if (status == TACIT_OK || (status != TACIT_BAD_INPUT && status != TACIT_INTEGRITY))
        return status;
    *reason = strstr(err->message, "signature") ? "signature" : "decrypt";
    return TACIT_OK;
}

static bool field_is(ProtobufCBinaryData field, const uint8_t *value, size_t size)
{
    return field.len == size && memcmp(field.data, value, size) == 0;
}

static const char *check_names(const intake_terms *t, const update_row *row, const Tacit__Update *u,
                               tacit_error *err)
{
    if (u->format != 1 || !field_is(u->plan_hash, t->plan_hash, TACIT_DIGEST_BYTES) ||
        !field_is(u->round_id, row->round_id, ROUND_ID_BYTES) ||
        !field_is(u->base_digest, t->plan->base_digest.data, t->plan->base_digest.len) ||
        u->parent_version != t->plan->parent_version) {
        tacit_fail(err, TACIT_BAD_INPUT,
                   "update: it is of another plan, round, base or parent adapter");
        return "plan";
    }
    if (!field_is(u->device, row->device, TACIT_DEVICE_BYTES) ||
        !field_is(u->reserve_hash, row->reserve_hash, TACIT_DIGEST_BYTES)) {
        tacit_fail(err, TACIT_BAD_INPUT, "update: it is of another device or reserve");
        return "reserve";
    }
    return NULL;
}

static const char *check_shape(const intake_terms *t, const Tacit__Update *u, tacit_error *err)
{
    size_t bytes = (size_t)t->plan->trainable_values * 4;
    if (field_is(u->layout_hash, t->layout_hash, TACIT_DIGEST_BYTES) && u->values.len == bytes)
        return NULL;
    tacit_fail(err, TACIT_BAD_INPUT,
               "update: expected %zu bytes of values in the plan's layout, found %zu", bytes,
               u->values.len);
    return "shape";
}

/* The scale is the plan's, bit for bit: NaN, infinity and any other number stop here. */
static const char *check_scale(const intake_terms *t, const Tacit__Update *u, tacit_error *err)
{
    /* NOLINTNEXTLINE(bugprone-suspicious-memory-comparison,cert-exp42-c,cert-flp37-c): the bits */
    if (isfinite(u->scale) && memcmp(&u->scale, &t->plan->update_scale, sizeof u->scale) == 0)
        return NULL;
    tacit_fail(err, TACIT_BAD_INPUT, "update: expected scale %g, found %g", t->plan->update_scale,
               u->scale);
    return "finite";
}

/* Exact: at most 2^32 values of 31 bits sum to less than 2^94. */
static const char *check_norm(const intake_terms *t, const Tacit__Update *u, tacit_error *err)
{
    unsigned __int128 sum = 0;
    for (size_t i = 0; i < t->plan->trainable_values; i++) {
        int64_t v = (int32_t)tacit_load_u32(u->values.data + 4 * i);
        sum += (uint64_t)(v * v);
    }
    double norm = sqrt((double)sum) / t->plan->update_scale;
    /* Rounding to the grid moves each value by at most half a unit. */
    double slack = 0.5 * sqrt((double)t->plan->trainable_values) / t->plan->update_scale;
    if (norm <= t->plan->norm_bound + slack)
        return NULL;
    tacit_fail(err, TACIT_BAD_INPUT, "update: its norm %g is above the plan's bound %g", norm,
               t->plan->norm_bound);
    return "norm";
}

static const char *check_update(const intake_terms *t, const update_row *row,
                                const Tacit__Update *u, tacit_error *err)
{
    const char *reason = check_names(t, row, u, err);
    if (!reason)
        reason = check_shape(t, u, err);
    if (!reason)
        reason = check_scale(t, u, err);
    return reason ? reason : check_norm(t, u, err);
}

tacit_status intake_judge(const intake_terms *terms, const update_row *row, const uint8_t *sealed,
                          size_t size, intake_update *out, const char **reason, tacit_error *err)
{
    tacit_buffer plain = {0};
    *out = (intake_update){0};
    *reason = check_size(terms, row, size, err);
    if (*reason)
        return TACIT_OK;
    tacit_status status = unseal(terms, row, sealed, size, &plain, reason, err);
    if (status != TACIT_OK || *reason)
        goto done;
    status = TACIT_UNPACK(&out->message, tacit__update, plain.data, plain.size, plain.cap, err);
    if (status == TACIT_BAD_INPUT) {
        *reason = "shape";
        status = TACIT_OK;
    } else if (status == TACIT_OK) {
        *reason = check_update(terms, row, out->message, err);
        out->values = out->message->values.data;
    }
    if (*reason)
        intake_update_free(out);
done:
    tacit_buffer_free(&plain);
    return status;
}
