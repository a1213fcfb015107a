/* What of an adapter is drawn from a lineage's public seed, exactly as trainable.h states it.
 */
#ifndef TACIT_ENGINE_FFA_H
#define TACIT_ENGINE_FFA_H

#include <stddef.h>
#include <stdint.h>

#define FFA_B ((uint64_t)1 << 63) /* of the ordinal: the half B */

/* out[rows, cols], uniform with variance 1 / cols: A[rank, n_in] or, with FFA_B in the ordinal, the
 * core form's B[n_out, rank]. `ordinal` counts adapted tensors in layout order. Correctly rounded
 * operations only, so that every machine draws the same bits. */
void ffa_fill(float *out, size_t rows, size_t cols, const uint8_t seed[32], uint64_t ordinal);

/* Word number `i` of the key stream of `nonce`. */
uint64_t ffa_word(const uint8_t seed[32], uint64_t nonce, size_t i);

#endif
