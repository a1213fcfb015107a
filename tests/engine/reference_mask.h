/* Which rows see each other, by its definition pair by pair: the oracle of every attention. */
#ifndef TACIT_TESTS_REFERENCE_MASK_H
#define TACIT_TESTS_REFERENCE_MASK_H

#include "engine/input.h"

#include <stdbool.h>

/* Whether row i sees row j: all of its mask group; of the others those before it, under a window
 * those at less than that many positions. */
static inline bool reference_sees(const tacit_row *row, size_t i, size_t j, size_t window)
{
    if (j == i || (row[i].group != 0 && row[i].group == row[j].group))
        return true;
    return j < i && (window == 0 || row[i].position < row[j].position + window);
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
