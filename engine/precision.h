/* How exactly something is computed, and what a pass through an encoder is for. */
#ifndef TACIT_ENGINE_PRECISION_H
#define TACIT_ENGINE_PRECISION_H

/* EXACT: fp32 activations on dequantized weights. FAST: quantized weights times activations that
 * are quantized to blocks of 8 bits or of 16, or on matrix tiles both in bf16, split into two where
 * that is not enough (fast.h). */
typedef enum tacit_precision { TACIT_EXACT, TACIT_FAST } tacit_precision;

/* Training is exact, and keeps what its backward needs. */
typedef enum pass_use { PASS_EXACT, PASS_FAST, PASS_TRAIN } pass_use;

#endif
