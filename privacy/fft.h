/* Fourier transform in double of lengths 2^k and 3 * 2^k, for convolutions.
 *
 * The forward transform leaves its result in a digit-reversed order and the inverse takes it so: a
 * convolution needs no permutation in between. Of length 2^k, X_f stands at the index that is f
 * with its bits reversed. Of length 3 m, m = 2^k, X_(3 g + r) stands in the r-th third, at the
 * index in it that is g with its bits reversed. The index of X_-f is tacit_fft_partner. Split
 * arrays: re[n], im[n].
 *
 * A plan is immutable after tacit_fft_new and may be shared by threads. */
#ifndef TACIT_PRIVACY_FFT_H
#define TACIT_PRIVACY_FFT_H

#include "common/status.h"

#include <stddef.h>

#define TACIT_FFT_MAX ((size_t)1 << 24)

typedef struct tacit_fft tacit_fft;

/* The least length from 2 on that is a power of two or three times one and at least n. */
size_t tacit_fft_length(size_t n);

/* n: such a length, up to TACIT_FFT_MAX. Holds up to 16 n bytes. */
tacit_status tacit_fft_new(tacit_fft **out, size_t n, tacit_error *err) TACIT_MUST_CHECK;
void tacit_fft_free(tacit_fft *fft);

/* X_f = sum_k x_k e^(-2 pi i f k / n), in place, natural to reversed order. */
void tacit_fft_forward(const tacit_fft *fft, double *re, double *im);

/* x_k = 1/n sum_f X_f e^(2 pi i f k / n), in place, reversed to natural order. */
void tacit_fft_inverse(const tacit_fft *fft, double *re, double *im);

/* Index of X_-f, given that of X_f. */
size_t tacit_fft_partner(const tacit_fft *fft, size_t j);

#endif
