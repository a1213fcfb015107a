/* The types of 256 values a block ("super-block"): parts have whole-number scales of their own, and
 * one or two halves scale those. Layouts of the ggml project. */
#include "engine/types_fit.h"
#include "engine/types_parts.h"

#include <math.h>
#include <string.h>

enum {
    BLOCK = 256,
    PARTS = 8, /* of 32 values: q4_k, q5_k */
    PART = BLOCK / PARTS,
    SHORT_PARTS = 16, /* of 16 values: q6_k */
    SHORT_PART = BLOCK / SHORT_PARTS,
    REFINEMENTS = 2
};

/* ---- q4_k and q5_k ----
 *
 * f16 d, f16 dmin, 12 bytes with a 6-bit scale and a 6-bit minimum of each part, (q5_k: 32 bytes
 * whose bit p is the fifth bit of part p's value), 128 bytes of nibbles: 32 bytes hold part 2k in
 * the low and part 2k + 1 in the high nibbles. value = d scale q - dmin minimum. */

typedef struct line_block {
    float d, dmin; /* what halves keep */
    uint8_t scale[PARTS], minimum[PARTS];
    uint8_t q[BLOCK];
} line_block;

typedef struct line_type {
    size_t bytes;
    float high;
    bool fifth;
} line_type;

static const line_type q4_k = {144, 15, false}, q5_k = {176, 31, true};

/* Parts 0 to 3 lie in the low 6 bits of bytes 0 to 7; parts 4 to 7 have their low 4 bits in bytes
 * 8 to 11 and their high 2 bits above those of parts 0 to 3. */
static void unpack_scales(line_block *b, const uint8_t from[12])
{
    for (size_t p = 0; p < 4; p++) {
        b->scale[p] = from[p] & 63;
        b->minimum[p] = from[p + 4] & 63;
        b->scale[p + 4] = (uint8_t)((from[p + 8] & 15) | from[p] >> 6 << 4);
        b->minimum[p + 4] = (uint8_t)(from[p + 8] >> 4 | from[p + 4] >> 6 << 4);
    }
}

static void pack_scales(uint8_t to[12], const line_block *b)
{
    for (size_t p = 0; p < 4; p++) {
        to[p] = (uint8_t)(b->scale[p] | b->scale[p + 4] >> 4 << 6);
        to[p + 4] = (uint8_t)(b->minimum[p] | b->minimum[p + 4] >> 4 << 6);
        to[p + 8] = (uint8_t)((b->scale[p + 4] & 15) | (b->minimum[p + 4] & 15) << 4);
    }
}

static void unpack_line(const line_type *t, line_block *b, const uint8_t *from)
{
    const uint8_t *fifth = from + 16, *nibbles = fifth + (t->fifth ? PART : 0);
    b->d = types_load_f16(from);
    b->dmin = types_load_f16(from + 2);
    unpack_scales(b, from + 4);
    for (size_t i = 0; i < BLOCK; i++) {
        size_t p = i / PART, j = i % PART;
        unsigned q = nibbles[p / 2 * PART + j] >> p % 2 * 4 & 15;
        b->q[i] = (uint8_t)(t->fifth ? q | (fifth[j] >> p & 1u) << 4 : q);
    }
}

static void pack_line(const line_type *t, uint8_t *to, const line_block *b)
{
    uint8_t *fifth = to + 16, *nibbles = fifth + (t->fifth ? PART : 0);
    memset(to, 0, t->bytes);
    types_store_f16(to, b->d);
    types_store_f16(to + 2, b->dmin);
    pack_scales(to + 4, b);
    for (size_t i = 0; i < BLOCK; i++) {
        size_t p = i / PART, j = i % PART;
        uint8_t *nibble = &nibbles[p / 2 * PART + j];
        *nibble = (uint8_t)(*nibble | (b->q[i] & 15) << p % 2 * 4);
        if (t->fifth)
            fifth[j] = (uint8_t)(fifth[j] | b->q[i] >> 4 << p);
    }
}

static void read_lines(const line_type *t, float *out, const uint8_t *in, size_t n)
{
    line_block b;
    for (size_t i = 0; i < n; i += BLOCK, in += t->bytes) {
        unpack_line(t, &b, in);
        for (size_t p = 0; p < PARTS; p++) {
            float d = b.d * b.scale[p], m = b.dmin * b.minimum[p];
            for (size_t j = p * PART; j < (p + 1) * PART; j++)
                out[i + j] = d * b.q[j] - m;
        }
    }
}

/* The scale and minimum of part p near those of its own line (d, low) that fit best. */
static float choose_scales(const line_type *t, line_block *b, size_t p, const float *x,
                           const float *w, float d, float low)
{
    float scale = fminf(roundf(d * types_inverse(b->d)), 63);
    float minimum = fminf(roundf(low * types_inverse(b->dmin)), 63), best = INFINITY;
    for (float s = fmaxf(scale - 1, 0); s <= fminf(scale + 1, 63); s++)
        for (float m = fmaxf(minimum - 1, 0); m <= fminf(minimum + 1, 63); m++) {
            float error = types_fit_error(x, w, PART, b->d * s, -b->dmin * m, 0, t->high);
            if (error >= best)
                continue;
            best = error;
            b->scale[p] = (uint8_t)s;
            b->minimum[p] = (uint8_t)m;
        }
    return best;
}

/* Scales and quanta of all parts under the halves that b has; the error is returned. */
static float fill_line(const line_type *t, line_block *b, const float *x, const float *w,
                       const float *d, const float *low)
{
    float error = 0, whole[PART];
    for (size_t p = 0; p < PARTS; p++) {
        const float *xp = x + p * PART;
        error += choose_scales(t, b, p, xp, w + p * PART, d[p], low[p]);
        float step = b->d * b->scale[p], m = -b->dmin * b->minimum[p];
        types_fit_round(whole, xp, PART, step, m, 0, t->high);
        for (size_t j = 0; j < PART; j++)
            b->q[p * PART + j] = (uint8_t)whole[j];
    }
    return error;
}

/* The halves that suit the quanta best: least squares of x = d (scale q) - dmin (minimum). */
static bool solve_halves(line_block *b, const float *x, const float *w)
{
    float aa = 0, ab = 0, bb = 0, xa = 0, xb = 0;
    for (size_t i = 0; i < BLOCK; i++) {
        float a = (float)b->scale[i / PART] * b->q[i], m = b->minimum[i / PART];
        aa += w[i] * a * a;
        ab += w[i] * a * m;
        bb += w[i] * m * m;
        xa += w[i] * x[i] * a;
        xb += w[i] * x[i] * m;
    }
    float determinant = aa * bb - ab * ab;
    if (!(determinant > 0))
        return false;
    b->d = types_as_f16((xa * bb - xb * ab) / determinant);
    b->dmin = types_as_f16((xa * ab - xb * aa) / determinant);
    return b->d > 0 && b->dmin >= 0;
}

static void fit_line(const line_type *t, line_block *b, const float *x, const float *w)
{
    float d[PARTS], low[PARTS], most_d = 0, most_low = 0;
    for (size_t p = 0; p < PARTS; p++) {
        types_fit_step_offset(x + p * PART, w + p * PART, PART, t->high, 1, &d[p], &low[p]);
        low[p] = -low[p];
        most_d = fmaxf(most_d, d[p]);
        most_low = fmaxf(most_low, low[p]);
    }
    memset(b, 0, sizeof *b);
    b->d = types_as_f16(most_d / 63);
    b->dmin = types_as_f16(most_low / 63);
    float error = fill_line(t, b, x, w, d, low);
    for (int i = 0; i < REFINEMENTS; i++) {
        line_block better = *b;
        if (!solve_halves(&better, x, w))
            return;
        float improved = fill_line(t, &better, x, w, d, low);
        if (!(improved < error))
            return;
        *b = better;
        error = improved;
    }
}

static void fit_lines(const line_type *t, uint8_t *out, const float *in, const float *importance,
                      size_t n)
{
    float x[BLOCK], w[BLOCK];
    line_block b;
    for (size_t i = 0; i < n; i += BLOCK, out += t->bytes) {
        types_take(x, w, in + i, importance ? importance + i : NULL, BLOCK);
        fit_line(t, &b, x, w);
        pack_line(t, out, &b);
    }
}

/* ---- q6_k ----
 *
 * 128 bytes of low 4 bits, 64 bytes of high 2 bits, 16 signed scales, f16 d; value =
 * d scale (q - 32). Each half of 128 values takes 64 and 32 bytes: value j of it has its low bits
 * in byte j % 64 (the high nibble from value 64 on), its high bits in byte j % 32 at 2 (j / 32). */

enum { Q6_BYTES = 210, Q6_HIGH = 128, Q6_SCALES = 192, Q6_D = 208, Q6_HALF = 128 };

typedef struct step_block {
    float d; /* what a half keeps */
    int8_t scale[SHORT_PARTS];
    int8_t q[BLOCK];
} step_block;

static void unpack_step(step_block *b, const uint8_t *from)
{
    b->d = types_load_f16(from + Q6_D);
    memcpy(b->scale, from + Q6_SCALES, SHORT_PARTS);
    for (size_t i = 0; i < BLOCK; i++) {
        size_t half = i / Q6_HALF, j = i % Q6_HALF;
        unsigned low = from[half * 64 + j % 64] >> j / 64 * 4 & 15;
        unsigned high = from[Q6_HIGH + half * 32 + j % 32] >> j / 32 * 2 & 3;
        b->q[i] = (int8_t)((int)(low | high << 4) - 32);
    }
}

static void pack_step(uint8_t *to, const step_block *b)
{
    memset(to, 0, Q6_BYTES);
    types_store_f16(to + Q6_D, b->d);
    memcpy(to + Q6_SCALES, b->scale, SHORT_PARTS);
    for (size_t i = 0; i < BLOCK; i++) {
        size_t half = i / Q6_HALF, j = i % Q6_HALF;
        unsigned q = (unsigned)(b->q[i] + 32);
        uint8_t *low = &to[half * 64 + j % 64], *high = &to[Q6_HIGH + half * 32 + j % 32];
        *low = (uint8_t)(*low | (q & 15) << j / 64 * 4);
        *high = (uint8_t)(*high | q >> 4 << j / 32 * 2);
    }
}

void q6_k_to_f32(float *out, const void *in, size_t n)
{
    const uint8_t *from = in;
    step_block b;
    for (size_t i = 0; i < n; i += BLOCK, from += Q6_BYTES) {
        unpack_step(&b, from);
        for (size_t j = 0; j < BLOCK; j++)
            out[i + j] = b.d * (float)b.scale[j / SHORT_PART] * (float)b.q[j];
    }
}

static float choose_scale(step_block *b, size_t p, const float *x, const float *w, float d)
{
    float scale = fminf(fmaxf(roundf(d * types_inverse(b->d)), -128), 127), best = INFINITY;
    for (float s = fmaxf(scale - 1, -128); s <= fminf(scale + 1, 127); s++) {
        float error = types_fit_error(x, w, SHORT_PART, b->d * s, 0, -32, 31);
        if (error >= best)
            continue;
        best = error;
        b->scale[p] = (int8_t)s;
    }
    return best;
}

static float fill_step(step_block *b, const float *x, const float *w, const float *d)
{
    float error = 0, whole[SHORT_PART];
    for (size_t p = 0; p < SHORT_PARTS; p++) {
        const float *xp = x + p * SHORT_PART;
        error += choose_scale(b, p, xp, w + p * SHORT_PART, d[p]);
        types_fit_round(whole, xp, SHORT_PART, b->d * b->scale[p], 0, -32, 31);
        for (size_t j = 0; j < SHORT_PART; j++)
            b->q[p * SHORT_PART + j] = (int8_t)whole[j];
    }
    return error;
}

static bool solve_half(step_block *b, const float *x, const float *w)
{
    float aa = 0, xa = 0;
    for (size_t i = 0; i < BLOCK; i++) {
        float a = (float)b->scale[i / SHORT_PART] * (float)b->q[i];
        aa += w[i] * a * a;
        xa += w[i] * x[i] * a;
    }
    if (!(aa > 0))
        return false;
    b->d = types_as_f16(xa / aa);
    return b->d != 0;
}

static void fit_step(step_block *b, const float *x, const float *w)
{
    float d[SHORT_PARTS], most = 0; /* of largest magnitude: its scale is -128 */
    for (size_t p = 0; p < SHORT_PARTS; p++) {
        d[p] = types_fit_step(x + p * SHORT_PART, w + p * SHORT_PART, SHORT_PART, -32, 31);
        if (fabsf(d[p]) > fabsf(most))
            most = d[p];
    }
    memset(b, 0, sizeof *b);
    b->d = types_as_f16(most / -128);
    float error = fill_step(b, x, w, d);
    for (int i = 0; i < REFINEMENTS; i++) {
        step_block better = *b;
        if (!solve_half(&better, x, w))
            return;
        float improved = fill_step(&better, x, w, d);
        if (!(improved < error))
            return;
        *b = better;
        error = improved;
    }
}

void q6_k_fit(void *out, const float *in, const float *importance, size_t n)
{
    uint8_t *to = out;
    float x[BLOCK], w[BLOCK];
    step_block b;
    for (size_t i = 0; i < n; i += BLOCK, to += Q6_BYTES) {
        types_take(x, w, in + i, importance ? importance + i : NULL, BLOCK);
        fit_step(&b, x, w);
        pack_step(to, &b);
    }
}

void q6_k_from_f32(void *out, const float *in, size_t n)
{
    q6_k_fit(out, in, NULL, n);
}

void q4_k_to_f32(float *out, const void *in, size_t n)
{
    read_lines(&q4_k, out, in, n);
}

void q4_k_from_f32(void *out, const float *in, size_t n)
{
    fit_lines(&q4_k, out, in, NULL, n);
}

void q4_k_fit(void *out, const float *in, const float *importance, size_t n)
{
    fit_lines(&q4_k, out, in, importance, n);
}

void q5_k_to_f32(float *out, const void *in, size_t n)
{
    read_lines(&q5_k, out, in, n);
}

void q5_k_from_f32(void *out, const float *in, size_t n)
{
    fit_lines(&q5_k, out, in, NULL, n);
}

void q5_k_fit(void *out, const float *in, const float *importance, size_t n)
{
    fit_lines(&q5_k, out, in, importance, n);
}
