/* What one epsilon costs: processor seconds of every accountant on the events of the command line,
 * best of RUNS, one JSON object a line. bench_accounting.py sets them beside dp-accounting's.
 *
 *   bench_accounting DELTA SIGMA:Q:STEPS... */
#include "privacy/accountant.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define RUNS 5

static double processor_seconds(void)
{
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

typedef struct measured {
    const char *name, *accountant;
    double interval;
} measured;

static const measured rows[] = {{"rdp", "rdp", 0}, {"pld", "pld", 0}, {"pld at 1e-4", "pld", 1e-4}};

static tacit_status measure(const measured *row, const char *text, double delta, tacit_error *err)
{
    tacit_status status;
    const tacit_accountant *plain;
    tacit_accountant a;
    const tacit_accountant_options options = {.grid = {.interval = row->interval}};
    tacit_event event;
    double best = 1e9, epsilon = 0;
    TACIT_TRY(tacit_accountant_find(&plain, row->accountant, err), out);
    TACIT_TRY(tacit_accountant_with(&a, plain, &options, err), out);
    TACIT_TRY(tacit_event_parse(&event, text, TACIT_ADD_REMOVE, err), out);
    for (int i = 0; i < RUNS; i++) {
        double start = processor_seconds();
        TACIT_TRY(tacit_accountant_epsilon(&a, &event, 1, delta, &epsilon, NULL, err), out);
        double taken = processor_seconds() - start;
        best = taken < best ? taken : best;
    }
    printf("{\"accountant\":\"%s\",\"event\":\"%s\",\"epsilon\":%.17g,\"cpu_s\":%.6g}\n", row->name,
           text, epsilon, best);
out:
    return status;
}

int main(int argc, char **argv)
{
    tacit_error err;
    if (argc < 3) {
        fprintf(stderr, "usage: bench_accounting DELTA SIGMA:Q:STEPS...\n");
        return 2;
    }
    for (int i = 2; i < argc; i++)
        for (size_t k = 0; k < sizeof rows / sizeof rows[0]; k++)
            if (measure(&rows[k], argv[i], strtod(argv[1], NULL), &err) != TACIT_OK) {
                fprintf(stderr, "bench_accounting: %s\n", err.message);
                return 1;
            }
    return 0;
}
