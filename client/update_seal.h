/* From trained values to the sealed bytes of an upload (proto/update.proto, common/seal.h). */
#ifndef TACIT_CLIENT_UPDATE_SEAL_H
#define TACIT_CLIENT_UPDATE_SEAL_H

#include "common/bytes.h"
#include "common/identity.h"
#include "common/status.h"
#include "proto/plan.pb-c.h"

#include <stddef.h>
#include <stdint.h>

/* out[n] = round((trained - parent) * factor * scale) to the nearest integer, clamped to int32,
 * where factor <= 1 brings the L2 norm of the difference down to `norm_bound`. All of it happens
 * after the noise, so it costs nothing. A difference that is not finite becomes all zeros. */
void update_quantize(int32_t *out, const float *trained, const float *parent, size_t n,
                     double norm_bound, double scale);

/* A release of the device unit is in the plan's scale already: out[n] = release[n], except that one
 * whose norm is above `norm_bound` is scaled down to it, toward zero. */
void update_fit(int32_t *out, const int32_t *release, size_t n, double norm_bound, double scale);

typedef struct update_terms {
    const Tacit__Plan *plan;
    const uint8_t *plan_hash;    /* 32 bytes */
    const uint8_t *reserve_hash; /* 32 bytes */
    const uint8_t *device;       /* 16 bytes */
    const uint8_t *layout_hash;  /* 32 bytes */
    const tacit_identity *signer;
} update_terms;

/* values[plan->trainable_values] into `sealed`, which is emptied first. */
tacit_status update_seal(tacit_buffer *sealed, const update_terms *terms, const int32_t *values,
                         tacit_error *err) TACIT_MUST_CHECK;

#endif
