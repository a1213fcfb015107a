/* Fourier transform of power-of-two length in double, for convolutions.
 *
 * The forward transform leaves its result in bit-reversed order and the inverse takes it so: a
 * convolution needs no permutation in between. X_f stands at index j = bits of f reversed; the
 * index of X_-f is tacit_fft_partner(j). Split arrays: re[n], im[n].
 *
 * A plan is immutable after tacit_fft_new and may be shared by threads. */
#ifndef TACIT_PRIVACY_FFT_H
#define TACIT_PRIVACY_FFT_H

#include "common/status.h"

#include <stddef.h>

#define TACIT_FFT_MAX ((size_t)1 << 24)

typedef struct tacit_fft tacit_fft;

/* n: a power of two from 2 to TACIT_FFT_MAX. Holds 16 n bytes. */
tacit_status tacit_fft_new(tacit_fft **out, size_t n, tacit_error *err) TACIT_MUST_CHECK;
void tacit_fft_free(tacit_fft *fft);

/* X_f = sum_k x_k e^(-2 pi i f k / n), in place, natural to bit-reversed order. */
void tacit_fft_forward(const tacit_fft *fft, double *re, double *im);

/* x_k = 1/n sum_f X_f e^(2 pi i f k / n), in place, bit-reversed to natural order. */
void tacit_fft_inverse(const tacit_fft *fft, double *re, double *im);

/* Bit-reversed index of -f, given that of f: the highest set bit stays, those below flip. */
static inline size_t tacit_fft_partner(size_t j)
{
    size_t low = j;
    for (unsigned shift = 1; shift < 8 * sizeof low; shift *= 2)
        low |= low >> shift;
    return j ^ (low >> 1);
}

#endif
