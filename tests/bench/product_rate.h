/* What benchmarks measure against: the rate of one large fp32 product of the same machine and run,
 * by processor time of all threads, so that what other programs take does not count. */
#ifndef TACIT_BENCH_PRODUCT_RATE_H
#define TACIT_BENCH_PRODUCT_RATE_H

#include "common/pool.h"
#include "engine/matrix.h"

#include <stdlib.h>
#include <time.h>

static inline double processor_seconds(void)
{
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* Multiplications and additions a processor second. */
static inline double product_rate(tacit_pool *pool, double seconds)
{
    enum { N = 768 };
    float *x = calloc((size_t)3 * N * N, sizeof *x), *w = x + N * N, *y = w + N * N;
    double start = processor_seconds(), taken;
    size_t times = 0;
    for (size_t i = 0; i < 2 * N * N; i++)
        x[i] = (float)(i * 7919 % 2003) / 1001.0f - 1.0f;
    do {
        matrix_mul_nt(pool, y, x, w, N, N, N, false);
        times++;
        taken = processor_seconds() - start;
    } while (taken < seconds);
    free(x);
    return 2.0 * N * N * N * (double)times / taken;
}

#endif
