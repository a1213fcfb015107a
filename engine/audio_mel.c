/* The transform of 400 points is four matrix products. With the window's length N = 400 and
 *   cos(2 pi (N - n) k / N) = cos(2 pi n k / N),  sin likewise with the other sign,
 * samples n and N - n are added for the cosines and subtracted for the sines; and with
 *   cos(2 pi n (N/2 - k) / N) = (-1)^n cos(2 pi n k / N),  sin with -(-1)^n,
 * the sums over even and odd n give the bins k and N/2 - k at once: a quarter of the products. */
#include "engine/audio_mel.h"

#include "common/bytes.h"
#include "common/memory_limit.h"
#include "common/secret.h"
#include "engine/audio.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    POINTS = 400,
    HALF = POINTS / 2,
    BINS = HALF + 1,
    HOP = AUDIO_HOP,
    QUARTER = HALF / 2 + 1, /* bins that are computed; the others follow */
    LANES = 4,              /* bins at a time */
    STRIDE = (QUARTER + LANES - 1) / LANES * LANES,
    GROUP = 4 /* frames at a time */
};

/* The four sums: samples `first`, first + 2, ... up to 200, of the folded window. */
enum { EVEN_COS, ODD_COS, EVEN_SIN, ODD_SIN, PARTS };
static const struct {
    int first, terms;
} parts[PARTS] = {{0, 101}, {1, 100}, {2, 99}, {1, 100}};

#define TERMS 400 /* of all parts */

typedef struct front_end {
    double window[POINTS];
    double table[TERMS][STRIDE]; /* by part and term: cosines or sines of bin 0, 1, ... */
    size_t n_mel;
    double *filter; /* [n_mel, BINS] */
    int *from, *to; /* [n_mel]: the bins where a filter is not zero */
} front_end;

size_t audio_mel_frames(size_t count, size_t multiple)
{
    size_t frames = count / HOP + (count % HOP != 0);
    frames = frames < 2 ? 2 : frames;
    return (frames + multiple - 1) / multiple * multiple;
}

static void fill_tables(front_end *f)
{
    double turn[POINTS];
    size_t row = 0;
    for (int i = 0; i < POINTS; i++)
        turn[i] = cos(2 * M_PI * i / POINTS);
    for (int i = 0; i < POINTS; i++)
        f->window[i] = 0.5 - 0.5 * turn[i];
    for (int p = 0; p < PARTS; p++)
        for (int j = 0; j < parts[p].terms; j++, row++)
            for (int k = 0; k < STRIDE; k++) {
                int angle = (parts[p].first + 2 * j) * k;
                /* sin(a) = cos(a - a quarter turn) */
                angle += p == EVEN_SIN || p == ODD_SIN ? POINTS - POINTS / 4 : 0;
                f->table[row][k] = k < QUARTER ? turn[angle % POINTS] : 0;
            }
}

/* Slaney's scale (Auditory Toolbox, 1998): linear to 1 kHz, then 27 mel to a factor of 6.4. */
static double mel_of(double hertz)
{
    return hertz < 1000 ? hertz * 3 / 200 : 15 + 27 * log(hertz / 1000) / log(6.4);
}

static double hertz_of(double mel)
{
    return mel < 15 ? mel * 200 / 3 : 1000 * exp((mel - 15) * log(6.4) / 27);
}

static void fill_filters(front_end *f)
{
    double top = mel_of(AUDIO_RATE / 2.0), step = top / (double)(f->n_mel + 1);
    for (size_t m = 0; m < f->n_mel; m++) {
        double left = hertz_of(step * (double)m), centre = hertz_of(step * (double)(m + 1));
        double right = hertz_of(step * (double)(m + 2));
        f->from[m] = BINS;
        f->to[m] = 0;
        for (int k = 0; k < BINS; k++) {
            double hertz = (double)AUDIO_RATE / POINTS * k;
            double up = (hertz - left) / (centre - left), down = (right - hertz) / (right - centre);
            double value = fmax(0, fmin(up, down)) * 2 / (right - left);
            f->filter[m * BINS + (size_t)k] = value;
            if (value > 0) {
                f->from[m] = k < f->from[m] ? k : f->from[m];
                f->to[m] = k + 1;
            }
        }
    }
}

static front_end *front_end_new(size_t n_mel)
{
    front_end *f = calloc(1, sizeof *f);
    if (!f)
        return NULL;
    f->n_mel = n_mel;
    f->filter = calloc(n_mel * BINS, sizeof *f->filter);
    f->from = calloc(n_mel, sizeof *f->from);
    f->to = calloc(n_mel, sizeof *f->to);
    if (f->filter && f->from && f->to) {
        fill_tables(f);
        fill_filters(f);
        return f;
    }
    free(f->filter), free(f->from), free(f->to), free(f);
    return NULL;
}

static void front_end_free(front_end *f)
{
    if (!f)
        return;
    free(f->filter), free(f->from), free(f->to), free(f);
}

/* Sample i of the clip, filled with zeros up to `length` and mirrored at its ends. */
static double sample_at(const float *samples, size_t count, size_t length, int64_t i)
{
    int64_t last = (int64_t)length - 1;
    i = i < 0 ? -i : i;
    i = i > last ? 2 * last - i : i;
    return i >= 0 && i < (int64_t)count ? (double)samples[i] : 0;
}

/* folded[TERMS] of the window around sample `centre`, in the order of the table. */
static void fold(const front_end *f, double *folded, const float *samples, size_t count,
                 size_t length, size_t centre)
{
    double x[POINTS + 1];
    for (int i = 0; i < POINTS; i++)
        x[i] = f->window[i] * sample_at(samples, count, length, (int64_t)centre - HALF + i);
    x[POINTS] = 0; /* the partner of sample 0, which has none */
    for (int p = 0; p < PARTS; p++)
        for (int j = 0; j < parts[p].terms; j++) {
            int n = parts[p].first + 2 * j;
            double other = n == HALF ? 0 : x[POINTS - n];
            *folded++ = p == EVEN_COS || p == ODD_COS ? x[n] + other : x[n] - other;
        }
}

/* sum[GROUP][STRIDE] = folded[GROUP][terms of a part] table. */
static void multiply(double sum[GROUP][STRIDE], const double folded[GROUP][TERMS], size_t at,
                     size_t terms, const double table[TERMS][STRIDE])
{
    for (size_t k = 0; k < STRIDE; k += LANES) {
        double s[GROUP][LANES] = {{0}};
        for (size_t j = at; j < at + terms; j++)
            for (size_t g = 0; g < GROUP; g++)
                for (size_t l = 0; l < LANES; l++)
                    s[g][l] += folded[g][j] * table[j][k + l];
        for (size_t g = 0; g < GROUP; g++)
            memcpy(&sum[g][k], s[g], sizeof s[g]);
    }
}

/* power[GROUP][BINS] of GROUP folded windows. */
static void transform(const front_end *f, double power[GROUP][BINS],
                      const double folded[GROUP][TERMS])
{
    double sum[PARTS][GROUP][STRIDE];
    size_t at = 0;
    for (int p = 0; p < PARTS; at += (size_t)parts[p].terms, p++)
        multiply(sum[p], folded, at, (size_t)parts[p].terms, f->table);
    for (size_t g = 0; g < GROUP; g++)
        for (size_t k = 0; k < QUARTER; k++) {
            double ec = sum[EVEN_COS][g][k], oc = sum[ODD_COS][g][k];
            double es = sum[EVEN_SIN][g][k], os = sum[ODD_SIN][g][k];
            power[g][k] = (ec + oc) * (ec + oc) + (es + os) * (es + os);
            power[g][HALF - k] = (ec - oc) * (ec - oc) + (os - es) * (os - es);
        }
}

/* out[n_mel] = log10 of the filtered spectrum. */
static void filter(const front_end *f, float *out, const double *power)
{
    for (size_t m = 0; m < f->n_mel; m++) {
        double sum = 0;
        for (int k = f->from[m]; k < f->to[m]; k++)
            sum += f->filter[m * BINS + (size_t)k] * power[k];
        out[m] = (float)log10(fmax(sum, 1e-10));
    }
}

static void all_frames(const front_end *f, float *frames, size_t n, const float *samples,
                       size_t count)
{
    double folded[GROUP][TERMS] = {{0}}, power[GROUP][BINS];
    for (size_t t = 0; t < n; t += GROUP) {
        size_t group = n - t < GROUP ? n - t : GROUP;
        for (size_t g = 0; g < group; g++)
            fold(f, folded[g], samples, count, n * HOP, (t + g) * HOP);
        transform(f, power, (const double(*)[TERMS])folded);
        for (size_t g = 0; g < group; g++)
            filter(f, frames + (t + g) * f->n_mel, power[g]);
    }
}

static void squash(float *x, size_t n)
{
    float most = -INFINITY;
    for (size_t i = 0; i < n; i++)
        most = fmaxf(most, x[i]);
    for (size_t i = 0; i < n; i++)
        x[i] = (fmaxf(x[i], most - 8) + 4) / 4;
}

tacit_status audio_mel(float **frames, const float *samples, size_t count, size_t multiple,
                       size_t n_mel, tacit_error *err)
{
    size_t n = audio_mel_frames(count, multiple);
    char what[64];
    void *values;
    front_end *f = front_end_new(n_mel);
    *frames = NULL;
    if (!f)
        return tacit_fail(err, TACIT_NO_MEMORY, "no memory for the tables of log-mel frames");
    snprintf(what, sizeof what, "%zu frames of %zu mel bins", n, n_mel);
    tacit_status status =
        tacit_memory_alloc(&values, n, n_mel * sizeof **frames, what, "cut the clip", err);
    *frames = values;
    if (status == TACIT_OK) {
        all_frames(f, *frames, n, samples, count);
        squash(*frames, n * n_mel);
    }
    front_end_free(f);
    return status;
}
