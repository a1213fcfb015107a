/* Deterministic random numbers and comparisons for the numeric tests. */
#ifndef TACIT_TESTS_NUMBERS_H
#define TACIT_TESTS_NUMBERS_H

#include <math.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

/* SplitMix64 (Steele et al. 2014). */
static inline uint64_t numbers_next(uint64_t *state)
{
    uint64_t z = *state += 0x9e3779b97f4a7c15u;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    return z ^ z >> 31;
}

/* Uniform in [-scale, scale). */
static inline void numbers_fill(float *out, size_t n, float scale, uint64_t seed)
{
    for (size_t i = 0; i < n; i++)
        out[i] = scale * ((float)(numbers_next(&seed) >> 40) / 8388608.0f - 1.0f);
}

static inline float *numbers_new(size_t n, float scale, uint64_t seed)
{
    float *v = malloc((n ? n : 1) * sizeof *v);
    if (v)
        numbers_fill(v, n, scale, seed);
    return v;
}

/* |a - b| / |b| over whole vectors; |a| when b is zero. NaN anywhere gives NaN. */
static inline double numbers_distance(const float *a, const float *b, size_t n)
{
    double difference = 0, size = 0;
    for (size_t i = 0; i < n; i++) {
        difference += ((double)a[i] - b[i]) * ((double)a[i] - b[i]);
        size += (double)b[i] * b[i];
    }
    return size > 0 ? sqrt(difference / size) : sqrt(difference);
}

static inline double numbers_distance_to(const float *a, const double *b, size_t n)
{
    double difference = 0, size = 0;
    for (size_t i = 0; i < n; i++) {
        difference += (a[i] - b[i]) * (a[i] - b[i]);
        size += b[i] * b[i];
    }
    return size > 0 ? sqrt(difference / size) : sqrt(difference);
}

#endif
