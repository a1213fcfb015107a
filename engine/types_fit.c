#include "engine/types_fit.h"

#include <float.h>
#include <stdbool.h>

enum { CANDIDATES = 18, REPEATS = 6 };

/* What a candidate differs by from the next, in whole numbers over the range [.., high]: a third of
 * the range in all, for values at its ends that weigh little. */
static inline float candidate_step(float high)
{
    return 0.2f + high * 0.01f;
}

/* To nearest, ties to even, of |v| < 2^22: adding 1.5 * 2^23 leaves no room for a fraction. */
static inline float round_small(float v)
{
    const float magic = 12582912.0f;
    return (v + magic) - magic;
}

static inline float bounded(float v, float low, float high)
{
    v = v < low ? low : v;
    return v > high ? high : v;
}

/* Bounds first: what is rounded is small then. */
static void round_by(float *q, const float *x, size_t n, float inverse, float m, float low,
                     float high)
{
    for (size_t i = 0; i < n; i++)
        q[i] = round_small(bounded((x[i] - m) * inverse, low, high));
}

void types_fit_round(float *q, const float *x, size_t n, float d, float m, float low, float high)
{
    round_by(q, x, n, d != 0 ? 1 / d : 0, d != 0 ? m : 0, low, high);
}

static float error_of(const float *x, const float *w, const float *q, size_t n, float d, float m)
{
    float sum = 0;
    for (size_t i = 0; i < n; i++) {
        float e = x[i] - d * q[i] - m;
        sum += w[i] * e * e;
    }
    return sum;
}

float types_fit_error(const float *x, const float *w, size_t n, float d, float m, float low,
                      float high)
{
    float q[TYPES_FIT_MOST];
    types_fit_round(q, x, n, d, m, low, high);
    return error_of(x, w, q, n, d, m);
}

/* ---- a step alone ---- */

typedef struct step_fit {
    const float *x, *w;
    size_t n;
    float low, high;
    float step, gain; /* of the best so far; gain is what it takes off sum w x^2 */
} step_fit;

/* Rounds by `inverse` and solves for the step; true when that is the best so far. */
static bool try_step(step_fit *f, float inverse)
{
    float q[TYPES_FIT_MOST], xq = 0, qq = 0;
    round_by(q, f->x, f->n, inverse, 0, f->low, f->high);
    for (size_t i = 0; i < f->n; i++) {
        xq += f->w[i] * f->x[i] * q[i];
        qq += f->w[i] * q[i] * q[i];
    }
    if (!(qq > 0) || !(xq * xq > f->gain * qq))
        return false;
    f->step = xq / qq;
    f->gain = xq * xq / qq;
    return true;
}

float types_fit_step(const float *x, const float *w, size_t n, float low, float high)
{
    step_fit f = {.x = x, .w = w, .n = n, .low = low, .high = high};
    float largest = 0;
    for (size_t i = 0; i < n; i++)
        if (w[i] > 0 && (x[i] < 0 ? -x[i] : x[i]) > (largest < 0 ? -largest : largest))
            largest = x[i];
    float one = largest != 0 ? 1 / largest : 0;
    if (one == 0 || one - one != 0) /* nothing, or so little that its inverse overflows */
        return 0;
    for (int c = -CANDIDATES; c <= CANDIDATES; c++) {
        float more = (float)c * candidate_step(high);
        try_step(&f, (low - more) * one);  /* the largest value becomes `low` */
        try_step(&f, (high + more) * one); /* or `high` */
    }
    for (int i = 0; i < REPEATS && f.step != 0 && try_step(&f, 1 / f.step); i++)
        continue;
    return f.step;
}

/* ---- step and offset ---- */

typedef struct line_fit {
    const float *x, *w;
    size_t n;
    float high;
    bool not_above;
    float w_sum, wx_sum; /* sum w, sum w x */
    float d, m, error;   /* of the best so far */
} line_fit;

/* The line through (q, x) of least squared distance; `m` is held at 0 where it must. */
static bool solve_line(const line_fit *f, const float *q, float *d, float *m)
{
    float wq = 0, wqq = 0, wxq = 0;
    for (size_t i = 0; i < f->n; i++) {
        float v = f->w[i] * q[i];
        wq += v;
        wqq += v * q[i];
        wxq += v * f->x[i];
    }
    float determinant = f->w_sum * wqq - wq * wq;
    if (!(determinant > 0) || !(wqq > 0))
        return false;
    *d = (f->w_sum * wxq - f->wx_sum * wq) / determinant;
    *m = (wqq * f->wx_sum - wq * wxq) / determinant;
    if (f->not_above && *m > 0) {
        *m = 0;
        *d = wxq / wqq;
    }
    return *d > 0;
}

static bool try_line(line_fit *f, float inverse, float from)
{
    float q[TYPES_FIT_MOST], d, m;
    round_by(q, f->x, f->n, inverse, from, 0, f->high);
    if (!solve_line(f, q, &d, &m))
        return false;
    float error = error_of(f->x, f->w, q, f->n, d, m);
    if (!(error < f->error))
        return false;
    f->d = d;
    f->m = m;
    f->error = error;
    return true;
}

void types_fit_step_offset(const float *x, const float *w, size_t n, float high, int not_above,
                           float *d, float *m)
{
    line_fit f = {.x = x, .w = w, .n = n, .high = high, .not_above = not_above != 0};
    float least = FLT_MAX, most = -FLT_MAX; /* of what counts */
    for (size_t i = 0; i < n; i++) {
        least = w[i] > 0 && x[i] < least ? x[i] : least;
        most = w[i] > 0 && x[i] > most ? x[i] : most;
        f.w_sum += w[i];
        f.wx_sum += w[i] * x[i];
    }
    if (!(f.w_sum > 0)) {
        *d = *m = 0;
        return;
    }
    least = not_above && least > 0 ? 0 : least;
    float inverse = most > least ? 1 / (most - least) : 0;
    *m = least;
    *d = 0;
    if (inverse == 0 || inverse - inverse != 0)
        return;
    f.m = least;
    f.d = (most - least) / high;
    f.error = types_fit_error(x, w, n, f.d, f.m, 0, high);
    for (int c = -CANDIDATES; c <= CANDIDATES; c++)
        try_line(&f, (high + (float)c * candidate_step(high)) * inverse, least);
    for (int i = 0; i < REPEATS && try_line(&f, 1 / f.d, f.m); i++)
        continue;
    *d = f.d;
    *m = f.m;
}
