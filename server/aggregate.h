/* The sum of a round: int64 fixed point at the plan's scale, one update at a time, so the order of
 * arrival does not matter and memory is that of one update and one sum. */
#ifndef TACIT_SERVER_AGGREGATE_H
#define TACIT_SERVER_AGGREGATE_H

#include "common/digest.h"
#include "common/status.h"

#include <stddef.h>
#include <stdint.h>

typedef struct aggregate_sum {
    int64_t *value; /* [count] */
    size_t count;
    uint64_t updates; /* at most 2^32, so that no sum of int32 can overflow */
} aggregate_sum;

tacit_status aggregate_init(aggregate_sum *s, size_t count, tacit_error *err) TACIT_MUST_CHECK;
void aggregate_fini(aggregate_sum *s);
/* values: [count] int32 LE. TACIT_REFUSED after 2^32 updates. */
tacit_status aggregate_add(aggregate_sum *s, const uint8_t *values,
                           tacit_error *err) TACIT_MUST_CHECK;
/* SHA-256 of the sum as int64 LE: Aggregate.result_digest. */
void aggregate_digest(const aggregate_sum *s, uint8_t out[TACIT_DIGEST_BYTES]);
/* out[i] = parent[i] + sum[i] / (updates * scale), in double, rounded once to fp32. One division
 * by the total; TACIT_CONFLICT without updates. `parent` may be NULL (zeros). */
tacit_status aggregate_mean(const aggregate_sum *s, double scale, const float *parent, float *out,
                            tacit_error *err) TACIT_MUST_CHECK;

#endif
