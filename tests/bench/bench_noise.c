/* Nanoseconds of processor time per value of discrete Gaussian noise, and per byte of its
 * generator. Usage: bench_noise [VALUES] */
#include "privacy/mechanism.h"
#include "privacy/noise.h"

#include <sodium.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

static double cpu_seconds(void)
{
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

int main(int argc, char **argv)
{
    size_t n = argc > 1 ? strtoul(argv[1], NULL, 10) : 1000000;
    const uint8_t nonce[TACIT_DRBG_NONCE_BYTES] = {0};
    tacit_drbg *g;
    tacit_error err;
    int64_t *values = malloc(n * sizeof *values);
    if (!values || n == 0 || tacit_drbg_new(&g, "bench", nonce, NULL, &err) != TACIT_OK)
        return 1;
    double best = 1e9, stream = 1e9;
    for (int run = 0; run < 5; run++) {
        double start = cpu_seconds();
        tacit_noise_draw(g, 77163, values, n);
        double took = cpu_seconds() - start;
        best = took < best ? took : best;
        start = cpu_seconds();
        tacit_drbg_bytes(g, values, n * sizeof *values);
        took = cpu_seconds() - start;
        stream = took < stream ? took : stream;
    }
    printf("discrete Gaussian, b = 77163: %.1f ns a value (target 100)\n", best / (double)n * 1e9);
    printf("generator alone: %.2f ns a byte\n", stream / (double)n / 8 * 1e9);
    tacit_drbg_free(g);
    free(values);
    return 0;
}
