/* Weights of a file in the panels that the kernels read (fast_kernels.h), made once.
 *
 * Panels hold the file's own quanta or values in another order and take the file's bytes and at
 * most a ninth more. Scales stay fp16; those of K types are products of an fp16 and an integer and
 * are rounded to fp16: an error of at most 0.05 % of a scale, an eighth of what quantized
 * activations cause. */
#ifndef TACIT_ENGINE_FAST_PACK_H
#define TACIT_ENGINE_FAST_PACK_H

#include "engine/fast_kernels.h"
#include "engine/linear.h"

/* A packed weight; owns nothing. Made for the kernel table in use. */
typedef struct fast_weight {
    const uint8_t *panels; /* NULL: the exact path computes it */
    fast_form form;
    size_t panel_bytes;
    size_t blocks, n_out;
} fast_weight;

/* What the weight of `l` will be, panels NULL; returns the bytes of its panels, a multiple of 64,
 * or 0 where no form holds it: other types (bf16, f16 and f32 have one where k has tiles of bf16),
 * n_in no multiple of 32. */
size_t fast_weight_plan(fast_weight *w, const fast_kernels *k, const tacit_linear *l);

/* Packs rows [first, end) of the weight of `l` into w's panels at `panels` (aligned to 64 bytes, as
 * many as planned); first and end are multiples of the panels' width or n_out. False when a scale
 * of a K type is beyond fp16: then the weight is of no use. */
bool fast_weight_pack(tacit_pool *pool, const fast_weight *w, const fast_kernels *k,
                      const tacit_linear *l, uint8_t *panels, size_t first,
                      size_t end) TACIT_MUST_CHECK;

/* Packs a planned weight wholly, for the kernel table in use, and gives the file's pages back to
 * the system slice by slice, so that they and the panels are never there both. w->panels stays NULL
 * where fast_weight_pack says false. `file` may be NULL. */
void fast_weight_move(fast_weight *w, const tacit_linear *l, const gguf_file *file,
                      tacit_pool *pool, uint8_t *panels);

#endif
