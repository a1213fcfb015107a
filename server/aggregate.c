#include "server/aggregate.h"

#include "common/bytes.h"

#include <sodium.h>
#include <stdlib.h>

tacit_status aggregate_init(aggregate_sum *s, size_t count, tacit_error *err)
{
    *s = (aggregate_sum){.count = count, .value = calloc(count, sizeof *s->value)};
    return s->value ? TACIT_OK
                    : tacit_fail(err, TACIT_NO_MEMORY, "aggregate: no memory for %zu sums", count);
}

void aggregate_fini(aggregate_sum *s)
{
    free(s->value);
    *s = (aggregate_sum){0};
}

tacit_status aggregate_add(aggregate_sum *s, const uint8_t *values, tacit_error *err)
{
    if (s->updates >= UINT32_MAX)
        return tacit_fail(err, TACIT_REFUSED, "aggregate: more than 2^32 updates in one round");
    for (size_t i = 0; i < s->count; i++)
        s->value[i] += (int32_t)tacit_load_u32(values + 4 * i);
    s->updates++;
    return TACIT_OK;
}

void aggregate_digest(const aggregate_sum *s, uint8_t out[TACIT_DIGEST_BYTES])
{
    crypto_hash_sha256_state state;
    crypto_hash_sha256_init(&state);
    for (size_t i = 0; i < s->count; i++) {
        uint8_t bytes[8];
        tacit_store_u64(bytes, (uint64_t)s->value[i]);
        crypto_hash_sha256_update(&state, bytes, sizeof bytes);
    }
    crypto_hash_sha256_final(&state, out);
}

tacit_status aggregate_mean(const aggregate_sum *s, double scale, const float *parent, float *out,
                            tacit_error *err)
{
    if (s->updates == 0)
        return tacit_fail(err, TACIT_CONFLICT, "aggregate: there is no update to average");
    double divisor = (double)s->updates * scale;
    for (size_t i = 0; i < s->count; i++)
        out[i] = (float)((parent ? (double)parent[i] : 0.0) + (double)s->value[i] / divisor);
    return TACIT_OK;
}
