#include "privacy/fft.h"

#include <math.h>
#include <stdlib.h>

/* n = m or 3 m, m a power of two. cos and sin hold, at [h, 2 h) for every half length h of m, the
 * factors e^(-i pi k / h), k < h; and from m on, where n = 3 m, e^(-2 pi i k / n), k < m. */
struct tacit_fft {
    size_t n, m;
    double *cos, *sin;
};

/* e^(-i angle k) for k < n, a power of two: products of two of few exact ones. */
static void fill_factors(double *c, double *s, size_t n, double angle)
{
    double near_c[64], near_s[64];
    for (size_t k = 0; k < 64; k++) {
        near_c[k] = cos(angle * (double)k);
        near_s[k] = -sin(angle * (double)k);
    }
    for (size_t k = 0; k < n; k++) {
        size_t low = k % 64;
        double far_c = low ? c[k - low] : cos(angle * (double)k);
        double far_s = low ? s[k - low] : -sin(angle * (double)k);
        c[k] = low ? far_c * near_c[low] - far_s * near_s[low] : far_c;
        s[k] = low ? far_c * near_s[low] + far_s * near_c[low] : far_s;
    }
}

static void fill_tables(tacit_fft *fft)
{
    size_t half = fft->m / 2;
    fill_factors(fft->cos + half, fft->sin + half, half, M_PI / (double)half);
    for (size_t h = half / 2; h > 0; h /= 2) /* every other factor of the length above */
        for (size_t k = 0; k < h; k++) {
            fft->cos[h + k] = fft->cos[2 * h + 2 * k];
            fft->sin[h + k] = fft->sin[2 * h + 2 * k];
        }
    if (fft->n > fft->m)
        fill_factors(fft->cos + fft->m, fft->sin + fft->m, fft->m, 2 * M_PI / (double)fft->n);
}

size_t tacit_fft_length(size_t n)
{
    size_t length = 2;
    while (length < n)
        length *= 2;
    return length >= 8 && length / 4 * 3 >= n ? length / 4 * 3 : length;
}

tacit_status tacit_fft_new(tacit_fft **out, size_t n, tacit_error *err)
{
    *out = NULL;
    if (n < 2 || n > TACIT_FFT_MAX || tacit_fft_length(n) != n)
        return tacit_fail(err, TACIT_USAGE,
                          "Fourier transform: expected 2^k or 3 * 2^k from 2 to %zu, found %zu",
                          TACIT_FFT_MAX, n);
    tacit_fft *fft = calloc(1, sizeof *fft);
    if (fft) {
        fft->n = n;
        fft->m = n % 3 ? n : n / 3;
        size_t factors = n % 3 ? n : 2 * (n / 3);
        fft->cos = calloc(factors, sizeof *fft->cos);
        fft->sin = calloc(factors, sizeof *fft->sin);
    }
    if (!fft || !fft->cos || !fft->sin) {
        tacit_fft_free(fft);
        return tacit_fail(err, TACIT_NO_MEMORY, "Fourier transform: no memory for length %zu", n);
    }
    fill_tables(fft);
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

static void forward(const tacit_fft *fft, double *re, double *im)
{
    size_t n = fft->m, h = n / 2;
    for (; 2 * h > CACHED; h /= 2)
        for (size_t at = 0; at < n; at += 2 * h)
            split_block(h, re + at, im + at, re + at + h, im + at + h, fft->cos + h, fft->sin + h);
    for (size_t at = 0; at < n; at += 2 * h)
        split_stages(fft, re + at, im + at, 2 * h);
}

static void inverse(const tacit_fft *fft, double *re, double *im)
{
    size_t n = fft->m, block = n < CACHED ? n : CACHED;
    for (size_t at = 0; at < n; at += block)
        join_stages(fft, re + at, im + at, block);
    for (size_t h = block; h < n; h *= 2)
        for (size_t at = 0; at < n; at += 2 * h)
            join_block(h, re + at, im + at, re + at + h, im + at + h, fft->cos + h, fft->sin + h);
}

#define SIN_60 0.86602540378443864676

/* (a, b, c) -> (a + b + c, (a + u b + u^2 c) w, (a + u^2 b + u c) w^2), u = e^(-2 pi i / 3), thirds
 * of the whole. */
static void split_thirds(const tacit_fft *fft, double *restrict re, double *restrict im)
{
    size_t m = fft->m;
    const double *restrict wr = fft->cos + m, *restrict wi = fft->sin + m;
    for (size_t k = 0; k < m; k++) {
        double sum_r = re[m + k] + re[2 * m + k], sum_i = im[m + k] + im[2 * m + k];
        double turn_r = SIN_60 * (im[m + k] - im[2 * m + k]);
        double turn_i = SIN_60 * (re[2 * m + k] - re[m + k]);
        double mid_r = re[k] - sum_r / 2, mid_i = im[k] - sum_i / 2;
        double b_r = mid_r + turn_r, b_i = mid_i + turn_i;
        double c_r = mid_r - turn_r, c_i = mid_i - turn_i;
        double w2r = wr[k] * wr[k] - wi[k] * wi[k], w2i = 2 * wr[k] * wi[k];
        re[k] += sum_r;
        im[k] += sum_i;
        re[m + k] = b_r * wr[k] - b_i * wi[k];
        im[m + k] = b_r * wi[k] + b_i * wr[k];
        re[2 * m + k] = c_r * w2r - c_i * w2i;
        im[2 * m + k] = c_r * w2i + c_i * w2r;
    }
}

/* The conjugate of that, backwards: undoes it but for a factor 3. */
static void join_thirds(const tacit_fft *fft, double *restrict re, double *restrict im)
{
    size_t m = fft->m;
    const double *restrict wr = fft->cos + m, *restrict wi = fft->sin + m;
    for (size_t k = 0; k < m; k++) {
        double w2r = wr[k] * wr[k] - wi[k] * wi[k], w2i = 2 * wr[k] * wi[k];
        double b_r = re[m + k] * wr[k] + im[m + k] * wi[k];
        double b_i = im[m + k] * wr[k] - re[m + k] * wi[k];
        double c_r = re[2 * m + k] * w2r + im[2 * m + k] * w2i;
        double c_i = im[2 * m + k] * w2r - re[2 * m + k] * w2i;
        double sum_r = b_r + c_r, sum_i = b_i + c_i;
        double turn_r = SIN_60 * (c_i - b_i), turn_i = SIN_60 * (b_r - c_r);
        double mid_r = re[k] - sum_r / 2, mid_i = im[k] - sum_i / 2;
        re[k] += sum_r;
        im[k] += sum_i;
        re[m + k] = mid_r + turn_r;
        im[m + k] = mid_i + turn_i;
        re[2 * m + k] = mid_r - turn_r;
        im[2 * m + k] = mid_i - turn_i;
    }
}

void tacit_fft_forward(const tacit_fft *fft, double *re, double *im)
{
    if (fft->n > fft->m)
        split_thirds(fft, re, im);
    for (size_t at = 0; at < fft->n; at += fft->m)
        forward(fft, re + at, im + at);
}

void tacit_fft_inverse(const tacit_fft *fft, double *re, double *im)
{
    size_t n = fft->n;
    for (size_t at = 0; at < n; at += fft->m)
        inverse(fft, re + at, im + at);
    if (n > fft->m)
        join_thirds(fft, re, im);
    for (size_t k = 0; k < n; k++) {
        re[k] /= (double)n;
        im[k] /= (double)n;
    }
}

/* Bits of g reversed, given those of -g: the highest set bit stays, those below flip. */
static size_t negated(size_t j)
{
    size_t low = j;
    for (unsigned shift = 1; shift < 8 * sizeof low; shift *= 2)
        low |= low >> shift;
    return j ^ (low >> 1);
}

size_t tacit_fft_partner(const tacit_fft *fft, size_t j)
{
    size_t m = fft->m;
    if (j < m)
        return negated(j);
    return 4 * m - 1 - j; /* -(3 g + r) = 3 (-1 - g) + 3 - r: all bits flip, and the third */
}
