#include "client/update_seal.h"

#include "common/message.h"
#include "common/seal.h"
#include "proto/update.pb-c.h"

#include <math.h>
#include <sodium.h>
#include <stdlib.h>
#include <string.h>

#define UPDATE_OVERHEAD 1024 /* every field of an Update but its values */

static double difference_norm(const float *trained, const float *parent, size_t n)
{
    double sum = 0;
    for (size_t i = 0; i < n; i++) {
        double d = (double)trained[i] - (double)parent[i];
        sum += d * d;
    }
    return sqrt(sum);
}

static int32_t clamp(double v)
{
    if (v >= INT32_MAX)
        return INT32_MAX;
    return v <= INT32_MIN ? INT32_MIN : (int32_t)nearbyint(v);
}

void update_quantize(int32_t *out, const float *trained, const float *parent, size_t n,
                     double norm_bound, double scale)
{
    double norm = difference_norm(trained, parent, n);
    if (!isfinite(norm)) {
        memset(out, 0, n * sizeof *out);
        return;
    }
    double factor = norm > norm_bound ? norm_bound / norm : 1;
    for (size_t i = 0; i < n; i++)
        out[i] = clamp(((double)trained[i] - (double)parent[i]) * factor * scale);
}

void update_fit(int32_t *out, const int32_t *release, size_t n, double norm_bound, double scale)
{
    double sum = 0;
    for (size_t i = 0; i < n; i++)
        sum += (double)release[i] * (double)release[i];
    double norm = sqrt(sum) / scale;
    double factor = norm > norm_bound ? norm_bound / norm : 1;
    for (size_t i = 0; i < n; i++)
        out[i] = (int32_t)((double)release[i] * factor); /* exact for a factor of 1 */
}

static tacit_status pack_update(const update_terms *t, const int32_t *values, uint8_t **bytes,
                                size_t *size, tacit_error *err)
{
    Tacit__Update u = TACIT__UPDATE__INIT;
    size_t n = t->plan->trainable_values;
    uint8_t *packed = malloc(4 * n);
    if (!packed)
        return tacit_fail(err, TACIT_NO_MEMORY, "update: no memory for %zu values", n);
    for (size_t i = 0; i < n; i++)
        tacit_store_u32(packed + 4 * i, (uint32_t)values[i]);
    u.format = 1;
    u.device = tacit_field_of(t->device, TACIT_DEVICE_BYTES);
    u.round_id = t->plan->round_id;
    u.plan_hash = tacit_field_of(t->plan_hash, TACIT_DIGEST_BYTES);
    u.reserve_hash = tacit_field_of(t->reserve_hash, TACIT_DIGEST_BYTES);
    u.base_digest = t->plan->base_digest;
    u.parent_version = t->plan->parent_version;
    u.layout_hash = tacit_field_of(t->layout_hash, TACIT_DIGEST_BYTES);
    u.scale = t->plan->update_scale;
    u.values = tacit_field_of(packed, 4 * n);
    tacit_status status = tacit_message_pack(&u, 4 * n + UPDATE_OVERHEAD, bytes, size, err);
    sodium_memzero(packed, 4 * n);
    free(packed);
    return status;
}

tacit_status update_seal(tacit_buffer *sealed, const update_terms *terms, const int32_t *values,
                         tacit_error *err)
{
    uint8_t *bytes = NULL;
    size_t size = 0;
    tacit_seal_binding binding = {terms->device, terms->plan_hash, terms->reserve_hash};
    sealed->size = 0;
    tacit_status status = pack_update(terms, values, &bytes, &size, err);
    if (status != TACIT_OK)
        return status;
    sealed->cap = tacit_seal_bound(size);
    status = tacit_seal(sealed, bytes, size, &binding, terms->signer,
                        terms->plan->aggregator_key.data, err);
    sodium_memzero(bytes, size);
    free(bytes);
    return status;
}
