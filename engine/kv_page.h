/* The forms in which a full page of keys and values is kept, per layer and key-value head.
 *
 * Keys are [dim, 64] (one row a channel, ready to be multiplied by queries), values [64, dim] (one
 * row a token); 64 is KV_PAGE_ROWS. F16 rounds to nearest even. INT8 (KIVI, Liu et al. 2024, arXiv
 * 2402.02750, section 3: keys have channels of large magnitude, values have not): one fp32 scale a
 * token of the values, its largest magnitude / 127; a scale and a middle a channel of the keys, the
 * middle halfway between the least and the greatest, the scale the largest distance from it / 127;
 * quanta rounded to nearest. A channel or token with a value that is not finite comes back as NaN.
 * Stateless; thread-safe. */
#ifndef TACIT_ENGINE_KV_PAGE_H
#define TACIT_ENGINE_KV_PAGE_H

#include "engine/context.h"

#define KV_PAGE_ROWS 64

typedef struct kv_form {
    tacit_kv_type type;
    const char *name; /* "f16" */
    /* Bytes of one head's keys and values; a multiple of 4. */
    size_t (*bytes)(size_t dim);
    void (*encode)(void *page, const float *keys, const float *values, size_t dim);
    void (*decode)(float *keys, float *values, const void *page, size_t dim);
} kv_form;

const kv_form *kv_form_of(tacit_kv_type type);
/* NULL for an unknown name. */
const kv_form *kv_form_by_name(const char *name);

#endif
