/* Where rows stand and which see each other, by the definitions, pair by pair: the oracle of every
 * attention and of what differs between layers. */
#ifndef TACIT_TESTS_REFERENCE_MASK_H
#define TACIT_TESTS_REFERENCE_MASK_H

#include "engine/input.h"

#include <math.h>
#include <stdbool.h>

/* Whether row i sees row j: all of its mask group; of the others those before it, under a window
 * those at less than that many positions. */
static inline bool reference_sees(const tacit_row *row, size_t i, size_t j, size_t window)
{
    if (j == i || (row[i].group != 0 && row[i].group == row[j].group))
        return true;
    return j < i && (window == 0 || row[i].position < row[j].position + window);
}

/* What a model's layers have beside llama's; all zero: nothing. */
typedef struct reference_kind {
    size_t window, pattern; /* layers look back `window` positions but for each pattern-th */
    double local_base;      /* of the rotation of those */
    size_t section[4];      /* pairs that turn by each number of a position; all 0: by the first */
    double embedding_scale; /* 0: 1 */
    bool gelu;              /* instead of silu */
} reference_kind;

static inline bool reference_is_local(const reference_kind *k, size_t layer)
{
    return k->window > 0 && (layer + 1) % k->pattern != 0;
}

/* The number of a row's position that pair j turns by. */
static inline double reference_position(const reference_kind *k, const tacit_row *row, size_t j)
{
    size_t axis = 0;
    while (axis < 3 && k->section[axis] > 0 && j >= k->section[axis])
        j -= k->section[axis++];
    return (double)row->position + (axis > 0 ? (double)row->shift[axis - 1] : 0);
}

/* silu, or GELU in its tanh form. */
static inline double reference_gated(const reference_kind *k, double x)
{
    if (k->gelu)
        return x / 2 * (1 + tanh(sqrt(2 / acos(-1)) * (x + 0.044715 * x * x * x)));
    return x / (1 + exp(-x));
}

/* Places as sequences of tests have them: positions with gaps, and where `grouped` groups of many
 * sizes, two of them side by side. */
static inline void reference_places(tacit_row *row, size_t n, bool grouped)
{
    static const size_t end[] = {5, 6, 23, 40, 41, 41 + 70};
    for (size_t i = 0; i < n; i++) {
        size_t group = 0;
        while (group < sizeof end / sizeof end[0] && i >= end[group])
            group++;
        row[i].position = (uint32_t)(i + i / 7 + i / 50 * 9);
        row[i].group = grouped && group % 3 != 0 ? (uint32_t)group + 1 : 0;
    }
}

#endif
