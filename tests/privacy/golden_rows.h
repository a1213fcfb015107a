/* Reads the golden files of tests/golden: rows of comma-separated cells, numbers as Python wrote
 * them. For the test programs of the accountants. */
#ifndef TACIT_TESTS_GOLDEN_ROWS_H
#define TACIT_TESTS_GOLDEN_ROWS_H

#include "privacy/event.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define GOLDEN_CELLS 22
#define GOLDEN_EVENTS 8

typedef struct golden_row {
    char text[2048];
    char *cell[GOLDEN_CELLS];
} golden_row;

/* Columns of dp_accounting.csv. */
enum {
    CASE_ID,
    MECHANISM,
    SIGMA,
    Q,
    STEPS,
    DELTA,
    EPS_RDP,
    EPS_PLD,
    EPS_ANALYTIC,
    RELATION,
    KIND,
    RDP_OPT_ORDER,
    RDP_NONFINITE,
    EPS_RDP_TRUE,
    EPS_EXACT_1STEP,
    POPULATION,
    COHORT,
    TARGET_EPS,
    SIGMA_RDP,
    SIGMA_PLD,
    SIGMA_ANALYTIC,
    NOTE
};

static inline FILE *golden_open(const char *name)
{
    char path[1024];
    snprintf(path, sizeof path, "%s/tests/golden/%s", TACIT_SOURCE_DIR, name);
    return fopen(path, "r");
}

/* The next row; false at the end of the file. Missing cells are empty strings. */
static inline bool golden_next(FILE *file, golden_row *row)
{
    static char empty[1];
    if (!fgets(row->text, sizeof row->text, file))
        return false;
    row->text[strcspn(row->text, "\r\n")] = '\0';
    char *at = row->text;
    for (int i = 0; i < GOLDEN_CELLS; i++) {
        row->cell[i] = at ? at : empty;
        char *comma = at ? strchr(at, ',') : NULL;
        if (comma)
            *comma = '\0';
        at = comma ? comma + 1 : NULL;
    }
    return true;
}

/* NAN for an empty cell. */
static inline double golden_number(const golden_row *row, int column)
{
    return row->cell[column][0] ? strtod(row->cell[column], NULL) : NAN;
}

/* The events of a row, from its ';'-separated lists. `sigma` replaces the row's unless NAN. */
static inline size_t golden_events(const golden_row *row, tacit_event events[GOLDEN_EVENTS],
                                   double sigma)
{
    const char *s = row->cell[SIGMA], *q = row->cell[Q], *steps = row->cell[STEPS];
    bool replace = strcmp(row->cell[RELATION], "REPLACE_ONE") == 0;
    size_t n = 0;
    while (n < GOLDEN_EVENTS && *q) {
        char *end;
        events[n].neighbours = replace ? TACIT_REPLACE_ONE : TACIT_ADD_REMOVE;
        events[n].sigma = isnan(sigma) ? strtod(s, &end) : sigma;
        s += strcspn(s, ";");
        s += *s == ';';
        events[n].q = strtod(q, &end);
        q = end + (*end == ';');
        events[n].count = strtoull(steps, &end, 10);
        steps = end + (*end == ';');
        n++;
    }
    return n;
}

#endif
