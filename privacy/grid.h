/* From gradients to the integer grid, so that no rounding can raise the sensitivity.
 *
 * The flat L2 norm over all values is taken in double; the vector is scaled by 2^16 / max(C, norm)
 * and every value truncated toward zero. Then sum q_k^2 <= (2^16)^2 is checked in integers and
 * enforced (the double arithmetic before it may be off by an ulp, the integer check is not). A
 * vector with a NaN or infinity becomes the zero vector. Clipped in this way one unit moves any
 * sum by at most 2^16 in L2, exactly.
 *
 * Pure functions, any thread. The order of operations is fixed: equal input, equal output. */
#ifndef TACIT_PRIVACY_GRID_H
#define TACIT_PRIVACY_GRID_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* grid[n] from grad[n]. clip_norm as in a valid tacit_mechanism. True when nothing was cut off: the
 * norm is at most C, or the vector counts as zero. */
bool tacit_grid_clip(int32_t *grid, const float *grad, size_t n, double clip_norm);

/* sum[n] += grid[n]. Integer addition: the order of units does not matter. */
void tacit_grid_add(int64_t *sum, const int32_t *grid, size_t n);

/* The integer check alone: moves values toward zero, first to last, until the squared norm is at
 * most 2^32. Returns how many values it moved. */
size_t tacit_grid_enforce_norm(int32_t *grid, size_t n);

#endif
