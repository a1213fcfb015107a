#include "privacy/fft.h"

#include <math.h>
#include <stdlib.h>

/* cos and sin hold, at [h, 2 h) for every half length h, the factors e^(-i pi k / h), k < h. */
struct tacit_fft {
    size_t n;
    double *cos, *sin;
};

static void fill_factors(tacit_fft *fft)
{
    size_t half = fft->n / 2;
    for (size_t k = 0; k < half; k++) {
        double angle = -M_PI * (double)k / (double)half;
        fft->cos[half + k] = cos(angle);
        fft->sin[half + k] = sin(angle);
    }
    for (size_t h = half / 2; h > 0; h /= 2) /* every other factor of the length above */
        for (size_t k = 0; k < h; k++) {
            fft->cos[h + k] = fft->cos[2 * h + 2 * k];
            fft->sin[h + k] = fft->sin[2 * h + 2 * k];
        }
}

tacit_status tacit_fft_new(tacit_fft **out, size_t n, tacit_error *err)
{
    *out = NULL;
    if (n < 2 || n > TACIT_FFT_MAX || (n & (n - 1)) != 0)
        return tacit_fail(err, TACIT_USAGE,
                          "Fourier transform: expected a power of two from 2 to %zu, found %zu",
                          TACIT_FFT_MAX, n);
    tacit_fft *fft = calloc(1, sizeof *fft);
    if (fft) {
        fft->n = n;
        fft->cos = calloc(n, sizeof *fft->cos);
        fft->sin = calloc(n, sizeof *fft->sin);
    }
    if (!fft || !fft->cos || !fft->sin) {
        tacit_fft_free(fft);
        return tacit_fail(err, TACIT_NO_MEMORY, "Fourier transform: no memory for length %zu", n);
    }
    fill_factors(fft);
    *out = fft;
    return TACIT_OK;
}

void tacit_fft_free(tacit_fft *fft)
{
    if (!fft)
        return;
    free(fft->cos);
    free(fft->sin);
    free(fft);
}

/* (a, b) -> (a + b, (a - b) w) for one block of length 2 h. */
static void split_block(size_t h, double *restrict ar, double *restrict ai, double *restrict br,
                        double *restrict bi, const double *restrict wr, const double *restrict wi)
{
    for (size_t k = 0; k < h; k++) {
        double dr = ar[k] - br[k], di = ai[k] - bi[k];
        ar[k] += br[k];
        ai[k] += bi[k];
        br[k] = dr * wr[k] - di * wi[k];
        bi[k] = dr * wi[k] + di * wr[k];
    }
}

/* (a, b) -> (a + b conj w, a - b conj w). */
static void join_block(size_t h, double *restrict ar, double *restrict ai, double *restrict br,
                       double *restrict bi, const double *restrict wr, const double *restrict wi)
{
    for (size_t k = 0; k < h; k++) {
        double tr = br[k] * wr[k] + bi[k] * wi[k], ti = bi[k] * wr[k] - br[k] * wi[k];
        br[k] = ar[k] - tr;
        bi[k] = ai[k] - ti;
        ar[k] += tr;
        ai[k] += ti;
    }
}

/* Blocks of this many points stay in the first-level caches while all their stages run. */
#define CACHED 2048

/* All stages of a transform of length n. */
static void split_stages(const tacit_fft *fft, double *re, double *im, size_t n)
{
    for (size_t h = n / 2; h > 0; h /= 2)
        for (size_t at = 0; at < n; at += 2 * h)
            split_block(h, re + at, im + at, re + at + h, im + at + h, fft->cos + h, fft->sin + h);
}

static void join_stages(const tacit_fft *fft, double *re, double *im, size_t n)
{
    for (size_t h = 1; h < n; h *= 2)
        for (size_t at = 0; at < n; at += 2 * h)
            join_block(h, re + at, im + at, re + at + h, im + at + h, fft->cos + h, fft->sin + h);
}

void tacit_fft_forward(const tacit_fft *fft, double *re, double *im)
{
    size_t n = fft->n, h = n / 2;
    for (; 2 * h > CACHED; h /= 2)
        for (size_t at = 0; at < n; at += 2 * h)
            split_block(h, re + at, im + at, re + at + h, im + at + h, fft->cos + h, fft->sin + h);
    for (size_t at = 0; at < n; at += 2 * h)
        split_stages(fft, re + at, im + at, 2 * h);
}

void tacit_fft_inverse(const tacit_fft *fft, double *re, double *im)
{
    size_t n = fft->n, block = n < CACHED ? n : CACHED;
    for (size_t at = 0; at < n; at += block)
        join_stages(fft, re + at, im + at, block);
    for (size_t h = block; h < n; h *= 2)
        for (size_t at = 0; at < n; at += 2 * h)
            join_block(h, re + at, im + at, re + at + h, im + at + h, fft->cos + h, fft->sin + h);
    for (size_t k = 0; k < n; k++) {
        re[k] /= (double)n;
        im[k] /= (double)n;
    }
}
