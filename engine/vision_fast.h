/* The image tower in fast precision (tower_fast.h). For vision_forward.c. */
#ifndef TACIT_ENGINE_VISION_FAST_H
#define TACIT_ENGINE_VISION_FAST_H

#include "engine/vision_parts.h"

/* Makes p->fast, but for what lies in the arena. */
tacit_status vision_fast_init(vision_pass *p, tacit_error *err) TACIT_MUST_CHECK;

/* x[tokens, width] = block l of x. */
void vision_fast_block(vision_pass *p, size_t l, tower_block *b, float *x);

/* As linear_forward of weight tensor i, on packed weights. */
void vision_fast_linear(vision_pass *p, size_t i, bool bias, float *y, const float *x, size_t rows);

#endif
