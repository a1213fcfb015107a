/* The kernel table: inner loops in one variant per instruction set, picked once at start.
 *
 * kernels_generic.c is portable and the initialiser; the best variant that the processor AND the
 * operating system support replaces it at the first use. TACIT_CPU=generic|avx2|avx512|amx|neon|
 * i8mm overrides, so that every path is tested on one machine. Pointers may be unaligned; every
 * length may be any number. All functions are pure and thread-safe. Naive twins are in the tests. */
#ifndef TACIT_ENGINE_KERNELS_H
#define TACIT_ENGINE_KERNELS_H

#include "common/status.h"
#include "engine/fast_kernels.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct tacit_kernels {
    const char *name;

    /* sum a b; the order of the sum is fixed for a length. */
    float (*dot)(const float *a, const float *b, size_t n);
    float (*dot3)(const float *a, const float *b, const float *c, size_t n); /* sum a b c */
    /* y += a x */
    void (*axpy)(float *y, float a, const float *x, size_t n);
    /* y = a x w: a normalised row */
    void (*scale_by)(float *y, float a, const float *x, const float *w, size_t n);
    float (*max)(const float *x, size_t n); /* -inf when n is 0 */
    /* y = exp(x - shift), at most 2 ulp off; the sum is returned. exp(-inf) is 0. */
    float (*exp_sum)(float *y, const float *x, float shift, size_t n);
    void (*widen)(float *y, float a, const int8_t *q, size_t n); /* y = a q */
    void (*swiglu)(float *y, const float *gate, const float *up, size_t n);
    void (*swiglu_backward)(float *dgate, float *dup, const float *dy, const float *gate,
                            const float *up, size_t n);
    void (*gelu)(float *y, const float *x, size_t n);
    void (*gelu_backward)(float *dx, const float *dy, const float *x, size_t n); /* adds to dx */
    /* Pairs (2i, 2i + 1) of one row of heads turned by table[head_dim] = cos, sin; sign 1 or -1. */
    void (*rotate)(float *x, const float *table, size_t heads, size_t head_dim, float sign);
    /* The same on pairs (i, i + head_dim / 2); table = cosines, then sines. */
    void (*rotate_halves)(float *x, const float *table, size_t heads, size_t head_dim, float sign);

    /* y[m, n] (+)= x w. x(i, j) = x[i x_row + j x_col]; w(j, c) = w[j w_stride + c], or with
     * `transposed` w[c w_stride + j]. Every element of y is one chain of multiply-adds over k, cut
     * at multiples of 256, whatever m and n are: a row's result does not depend on other rows. */
    void (*multiply)(float *y, size_t y_stride, const float *x, size_t x_row, size_t x_col,
                     const float *w, size_t w_stride, bool transposed, size_t m, size_t n, size_t k,
                     bool accumulate);
    /* multiply reads a w of w_stride `panel` without copying it: a power of two, at most 32. */
    size_t panel;

    const fast_kernels *fast; /* the integer kernels of the same instruction set */
} tacit_kernels;

/* The variant in use; the first call chooses it. An unusable TACIT_CPU falls back to the best
 * variant here: programs call kernels_check first and report it. */
const tacit_kernels *kernels(void);

/* TACIT_USAGE when TACIT_CPU names an unknown variant or one this machine cannot run. */
tacit_status kernels_check(tacit_error *err) TACIT_MUST_CHECK;

/* A variant by name, or NULL when it is unknown, not built in or cannot run here: for tests. */
const tacit_kernels *kernels_by_name(const char *name);

extern const tacit_kernels kernels_generic;
#if defined(__x86_64__)
extern const tacit_kernels kernels_avx2;
extern const tacit_kernels kernels_avx512;
extern const tacit_kernels kernels_amx;
#elif defined(__aarch64__)
extern const tacit_kernels kernels_neon, kernels_i8mm;
#endif

#endif
