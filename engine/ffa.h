/* The frozen half A of FFA-LoRA from a lineage's public seed, exactly as trainable.h states it. */
#ifndef TACIT_ENGINE_FFA_H
#define TACIT_ENGINE_FFA_H

#include <stddef.h>
#include <stdint.h>

/* a[rank, n_in]; `ordinal` counts adapted tensors in layout order. Correctly rounded operations
 * only, so that every machine draws the same bits. */
void ffa_fill(float *a, size_t rank, size_t n_in, const uint8_t seed[32], uint64_t ordinal);

#endif
