#include "privacy/grid.h"

#include "privacy/mechanism.h"

#include <math.h>

#define LANES 8

/* Sum of squares in double, in LANES fixed partial sums. float squares stay below 2^256, so the
 * sum of fewer than 2^700 of them is finite unless a value is not. */
static double squared_norm(const float *v, size_t n)
{
    double lane[LANES] = {0};
    size_t whole = n - n % LANES;
    for (size_t i = 0; i < whole; i += LANES)
        for (size_t k = 0; k < LANES; k++)
            lane[k] += (double)v[i + k] * (double)v[i + k];
    for (size_t i = whole; i < n; i++)
        lane[0] += (double)v[i] * (double)v[i];
    return ((lane[0] + lane[4]) + (lane[1] + lane[5])) +
           ((lane[2] + lane[6]) + (lane[3] + lane[7]));
}

/* |q| stays below 2^17, so 2^28 squares fit in 64 bits; longer vectors go block by block. */
static unsigned __int128 grid_squared_norm(const int32_t *q, size_t n)
{
    unsigned __int128 total = 0;
    for (size_t at = 0; at < n; at += 4096) {
        uint64_t block = 0;
        size_t end = n - at < 4096 ? n : at + 4096;
        for (size_t i = at; i < end; i++)
            block += (uint64_t)((int64_t)q[i] * q[i]);
        total += block;
    }
    return total;
}

size_t tacit_grid_enforce_norm(int32_t *grid, size_t n)
{
    const unsigned __int128 limit = (unsigned __int128)TACIT_GRID_NORM * TACIT_GRID_NORM;
    unsigned __int128 norm = grid_squared_norm(grid, n);
    size_t moved = 0;
    /* One pass moves every value by one, which takes off more than any rounding added; the outer
     * loop makes the bound hold for any input. */
    while (norm > limit) {
        for (size_t i = 0; i < n && norm > limit; i++) {
            if (grid[i] == 0)
                continue;
            int64_t size = grid[i] < 0 ? -(int64_t)grid[i] : grid[i];
            norm -= (uint64_t)(2 * size - 1);
            grid[i] += grid[i] < 0 ? 1 : -1;
            moved++;
        }
    }
    return moved;
}

bool tacit_grid_clip(int32_t *grid, const float *grad, size_t n, double clip_norm)
{
    double norm = sqrt(squared_norm(grad, n));
    /* NaN fails the comparison too: then every value becomes zero, with the same work done. */
    double keep = norm < INFINITY ? 1 : 0;
    double factor = TACIT_GRID_NORM / (norm > clip_norm ? norm : clip_norm);
    for (size_t i = 0; i < n; i++) {
        double scaled = keep != 0 ? (double)grad[i] * factor : 0;
        grid[i] = (int32_t)scaled; /* conversion truncates toward zero */
    }
    tacit_grid_enforce_norm(grid, n);
    return !(norm > clip_norm && norm < INFINITY);
}

void tacit_grid_add(int64_t *sum, const int32_t *grid, size_t n)
{
    for (size_t i = 0; i < n; i++)
        sum[i] += grid[i];
}
