/* The audio tower in fast precision (tower_fast.h). For audio_forward.c. */
#ifndef TACIT_ENGINE_AUDIO_FAST_H
#define TACIT_ENGINE_AUDIO_FAST_H

#include "engine/audio_parts.h"

/* Makes p->fast, but for what lies in the arena. */
tacit_status audio_fast_init(audio_pass *p, tacit_error *err) TACIT_MUST_CHECK;

/* x[positions, width] = block l of x. */
void audio_fast_block(audio_pass *p, size_t l, size_t positions, tower_block *b, float *x);

/* As linear_forward of weight tensor i, on packed weights. */
void audio_fast_linear(audio_pass *p, size_t i, bool bias, float *y, const float *x, size_t rows);

#endif
