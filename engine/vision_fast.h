/* A block of the tower in fast precision: products of quantized weights and activations quantized
 * once per input, attention without a matrix of scores. For vision_forward.c. */
#ifndef TACIT_ENGINE_VISION_FAST_H
#define TACIT_ENGINE_VISION_FAST_H

#include "engine/vision_parts.h"

/* What a fast pass needs beside its arena; p->packed says that it was made. */
tacit_status vision_fast_init(vision_pass *p, tacit_error *err) TACIT_MUST_CHECK;
void vision_fast_fini(vision_pass *p);

/* x[tokens, width] = block l of x. */
void vision_fast_block(vision_pass *p, size_t l, tower_block *b, float *x);

/* As linear_forward of weight tensor i, on packed weights. */
void vision_fast_linear(vision_pass *p, size_t i, bool bias, float *y, const float *x, size_t rows);

#endif
