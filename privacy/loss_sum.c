#include "privacy/loss_sum.h"

#include "privacy/fft.h"

#include <math.h>
#include <stdlib.h>

/* For a tilt t, masses p(l) e^(t l) / M(t) are again a distribution; K(t) = sum of count log M(t).
 * Its n-fold convolution is computed where the tilted sum Y lives, around K'(t), and multiplied by
 * e^(K(t) - t y) afterwards. With t so that K'(t) is about the epsilon sought, every number that
 * matters is of the size of the largest one. */

#define LOG_OUTSIDE                                                                                \
    (-26.0)          /* log of the share of delta that what is outside the window may add          \
                      */
#define FAR_OFF 12.0 /* log of what an expected delta may be too high */
#define COARSE 1024

/* How much too high delta is read, relative, for what the masses of the grids are off. */
#define ROUNDING 1e-9
#define ROUNDING_PER_RUN 0x1p-46

/* What the transforms' rounding, 2^-50 of delta for each run at the saddle point, may become for
 * the sake of a shorter window. */
#define TILT_ROOM 1e-10

/* Mass and mean loss of runs of grid points, for choosing tilt and window cheaply. */
typedef struct coarse {
    size_t n;
    double first_run, last_run; /* widths */
    double log_mass[COARSE], loss[COARSE];
} coarse;

typedef struct term {
    loss_grid grid;
    uint64_t count;
    coarse *coarse;
} term;

struct loss_sum {
    size_t n, most;
    term *term;
    double runs;            /* losses in all */
    double log_finite;      /* log of the probability that no loss is infinite */
    double tilt, log_scale; /* t, K(t) */
    double outside;         /* bound on the mass above the window */
    double sought;          /* the window was made for an epsilon from here on */
    int64_t window_low;     /* grid index of the window's first point */
};

/* Single points around loss 0, where most mass is; then runs of 1/32 of the distance from there,
 * and of 1/256 of the grid at most: under COARSE runs for any grid below 2^23 points. */
static size_t coarse_run(const loss_grid *g, size_t at)
{
    size_t distance = (size_t)llabs(g->lowest + (int64_t)at) / 32, most = g->n / 256;
    size_t run = distance < most ? distance : most;
    return run > 0 ? run : 1;
}

static tacit_status coarse_new(coarse **out, const loss_grid *g, tacit_error *err)
{
    coarse *c = malloc(sizeof *c);
    *out = c;
    if (!c)
        return tacit_fail(err, TACIT_NO_MEMORY, "pld accountant: no memory");
    c->n = 0;
    c->first_run = (double)coarse_run(g, 0) * g->step;
    c->last_run = (double)coarse_run(g, g->n - 1) * g->step;
    for (size_t at = 0; at < g->n;) {
        size_t end = at + coarse_run(g, at);
        double mass = 0, moment = 0;
        for (; at < g->n && at < end; at++) {
            mass += g->mass[at];
            moment += g->mass[at] * (double)(g->lowest + (int64_t)at);
        }
        if (mass > 0 && c->n < COARSE) {
            c->log_mass[c->n] = log(mass);
            c->loss[c->n++] = moment / mass * g->step;
        }
    }
    return TACIT_OK;
}

tacit_status loss_sum_new(loss_sum **out, size_t most, tacit_error *err)
{
    loss_sum *s = calloc(1, sizeof *s);
    *out = s;
    if (s) {
        s->most = most;
        s->term = calloc(most, sizeof *s->term);
    }
    if (s && s->term)
        return TACIT_OK;
    loss_sum_free(s);
    *out = NULL;
    return tacit_fail(err, TACIT_NO_MEMORY, "pld accountant: no memory");
}

void loss_sum_free(loss_sum *s)
{
    if (!s)
        return;
    for (size_t i = 0; i < s->n; i++) {
        loss_grid_fini(&s->term[i].grid);
        free(s->term[i].coarse);
    }
    free(s->term);
    free(s);
}

tacit_status loss_sum_add(loss_sum *s, loss_grid *grid, uint64_t count, tacit_error *err)
{
    if (s->n == s->most || (s->n > 0 && s->term[0].grid.step != grid->step)) {
        loss_grid_fini(grid);
        return tacit_fail(err, TACIT_USAGE, "sum of losses: expected at most %zu of one step",
                          s->most);
    }
    term *t = &s->term[s->n++];
    *t = (term){.grid = *grid, .count = count};
    s->runs += (double)count;
    s->log_finite += (double)count * log1p(-grid->infinite);
    return coarse_new(&t->coarse, &t->grid, err);
}

/* --- Tilt and window. --- */

typedef struct cumulant {
    double value, slope, curvature; /* K, K', K'' */
} cumulant;

/* K, K', K'' of one run. */
static cumulant coarse_moments(const coarse *c, double t)
{
    double top = -INFINITY, m0 = 0, m1 = 0, m2 = 0;
    for (size_t j = 0; j < c->n; j++) {
        double exponent = c->log_mass[j] + t * c->loss[j];
        top = exponent > top ? exponent : top;
    }
    for (size_t j = 0; j < c->n; j++) {
        double w = exp(c->log_mass[j] + t * c->loss[j] - top);
        m0 += w;
        m1 += w * c->loss[j];
        m2 += w * c->loss[j] * c->loss[j];
    }
    return (cumulant){top + log(m0), m1 / m0, fmax(0, m2 / m0 - m1 / m0 * (m1 / m0))};
}

static cumulant coarse_cumulant(const loss_sum *s, double t)
{
    cumulant k = {0};
    for (size_t i = 0; i < s->n; i++) {
        cumulant one = coarse_moments(s->term[i].coarse, t);
        k.value += (double)s->term[i].count * one.value;
        k.slope += (double)s->term[i].count * one.slope;
        k.curvature += (double)s->term[i].count * one.curvature;
    }
    return k;
}

/* log M(t) of one grid, to full precision; the coarse value keeps the exponents in range. */
static double log_moment(const term *t, double tilt)
{
    const loss_grid *g = &t->grid;
    double shift = coarse_moments(t->coarse, tilt).value, sum = 0;
    loss_powers weight = loss_powers_from(g->lowest, tilt * g->step, -shift);
    for (size_t i = 0; i < g->n; i++)
        sum += g->mass[i] * loss_powers_next(&weight);
    return shift + log(sum);
}

static double exact_cumulant(const loss_sum *s, double t)
{
    double k = 0;
    for (size_t i = 0; i < s->n; i++)
        k += (double)s->term[i].count * log_moment(&s->term[i], t);
    return k;
}

/* Positive while the tilt is too small. Saddle point: log delta is about K - t K', less the width
 * of the peak and t (t + 1). */
static double tilt_error(const loss_sum *s, const loss_query *q, double t)
{
    cumulant k = coarse_cumulant(s, t);
    if (!q->for_epsilon)
        return q->epsilon - k.slope;
    double width = log1p(sqrt(2 * M_PI * k.curvature) * t * (1 + t));
    return k.value - t * k.slope - width - log(q->delta);
}

/* A tilt of TILT_STEPS / step leaves nothing but the highest few points of a grid. */
#define TILT_STEPS 10

static double saddle_tilt(const loss_sum *s, const loss_query *q, double most)
{
    double low = 0, high = 1;
    if (tilt_error(s, q, 0) <= 0)
        return 0;
    while (tilt_error(s, q, high) > 0 && high < most) {
        low = high;
        high *= 2;
    }
    for (int i = 0; i < 40 && high - low > 1e-3 * high; i++) {
        double middle = (low + high) / 2;
        *(tilt_error(s, q, middle) > 0 ? &low : &high) = middle;
    }
    return high;
}

/* About the delta sought, rather less: that of a Gaussian with the tilted sum's spread. */
static double expected_log_delta(const loss_query *q, const cumulant *at, double t, double step)
{
    if (q->for_epsilon)
        return log(q->delta);
    double spread = sqrt(at->curvature + step * step);
    return at->value - t * q->epsilon + log(0.4 * spread) - log1p(spread * t) -
           log1p(spread * (1 + t)) - FAR_OFF;
}

/* The x on the side of `sign` up to which coarse cumulants are good. */
static double coarse_limit(const loss_sum *s, double sign)
{
    double widest = 0;
    for (size_t i = 0; i < s->n; i++) {
        const coarse *c = s->term[i].coarse;
        widest = fmax(widest, sign > 0 ? c->last_run : c->first_run);
    }
    return sign / widest;
}

/* A bound on masses: for any x, those of losses beyond y on x's side are at most e^(K(x) - x y).
 * What is asked of a window comes down to N(x) / |x - base|, N(x) = room + K(x) - at x: the least
 * of it over one side of `base` makes the least window. */
typedef struct chernoff {
    double room, at, base;
} chernoff;

/* About the x from `first` on, on its side of the base, where the quotient is least: where
 * N'(x) (x - base) = N(x), the difference of which grows with the distance. Not further than coarse
 * cumulants are good. */
static double best_bound(const loss_sum *s, const chernoff *c, double sign, double first)
{
    double near = 0, far = 1, middle = 1; /* distances from first */
    double most = fmax(1, sign * (coarse_limit(s, sign) - first));
    for (bool bracketed = false; !bracketed || far - near > 0.1 * far;) {
        double x = first + sign * middle;
        cumulant k = coarse_cumulant(s, x);
        bool beyond = (k.slope - c->at) * (x - c->base) > c->room + k.value - c->at * x;
        bracketed = bracketed || beyond || middle >= most;
        *(beyond || middle >= most ? &far : &near) = middle;
        far = bracketed ? far : 2 * far;
        middle = bracketed ? (near + far) / 2 : far;
    }
    return first + sign * far;
}

static double quotient(const loss_sum *s, const chernoff *c, double x)
{
    return (c->room + coarse_cumulant(s, x).value - c->at * x) / fabs(x - c->base);
}

/* The window's upper end y: the losses above it have a mass of at most e^-room, exactly so, since y
 * is computed from the full grids. */
static double window_high(const loss_sum *s, double room)
{
    const chernoff c = {room, 0, 0};
    double u = best_bound(s, &c, 1, 0);
    return (exact_cumulant(s, u) + room) / u;
}

/* The least lengths of a window so that what wraps around adds at most e^-room: a loss y below it
 * comes out at y + length, where it weighs e^(-t length) of what it is; one above it at y - length,
 * where it weighs e^(t length) and counts if that is above `sought`. */
static double length_for_low(const loss_sum *s, double room, double high)
{
    const chernoff c = {room, high, s->tilt};
    return quotient(s, &c, best_bound(s, &c, -1, 0));
}

static double length_for_high(const loss_sum *s, double room)
{
    const chernoff c = {room, s->sought, s->tilt};
    return quotient(s, &c, best_bound(s, &c, 1, s->tilt));
}

static void support(const loss_sum *s, double *low, double *high)
{
    *low = *high = 0;
    for (size_t i = 0; i < s->n; i++) {
        const loss_grid *g = &s->term[i].grid;
        *low += (double)s->term[i].count * (double)g->lowest * g->step;
        *high += (double)s->term[i].count * (double)(g->lowest + (int64_t)g->n - 1) * g->step;
    }
}

typedef struct window {
    double low, high;
} window;

/* The window for s->tilt. It begins below what is sought, ends at `high` or further, and need not
 * hold what no sum of losses reaches. */
static window window_at(const loss_sum *s, double room, double high)
{
    double support_low, support_high;
    support(s, &support_low, &support_high);
    high = fmin(high, support_high);
    double low = high - length_for_low(s, room, high);
    low = fmax(fmin(low, s->sought - s->term[0].grid.step), support_low);
    high = fmax(high, low + length_for_high(s, room));
    return (window){low, fmin(high, support_high)};
}

/* Lowers s->tilt as long as the window becomes shorter: rare large losses weigh less then. The
 * price is a factor e^((K(u) - u y) - (K(t) - t y)), y = K'(t), u the tilt and t the saddle
 * point's, between the law's mass and what is read off around y, by which the transforms' rounding
 * grows as well. It is e^cap at most, and less where the runs leave no such room. */
static window shortest_window(loss_sum *s, const cumulant *at, double room, double high, double cap)
{
    double saddle = s->tilt, best_tilt = saddle, price = 0;
    double most_price = fmin(cap, log(TILT_ROOM / (s->runs * 0x1p-50)));
    window best = window_at(s, room, high);
    for (s->tilt *= 0.8; s->tilt > 0 && price <= most_price; s->tilt *= 0.8) {
        window w = window_at(s, room, high);
        if (!(w.high - w.low < best.high - best.low))
            break;
        price = coarse_cumulant(s, s->tilt).value - at->value + (saddle - s->tilt) * at->slope;
        best_tilt = price <= most_price ? s->tilt : best_tilt;
        best = price <= most_price ? w : best;
    }
    s->tilt = best_tilt;
    return best;
}

double loss_sum_aim(loss_sum *s, const loss_query *q)
{
    double step = s->term[0].grid.step;
    s->tilt = saddle_tilt(s, q, TILT_STEPS / step);
    cumulant at = coarse_cumulant(s, s->tilt);
    s->sought = q->guess ? fmax(0, at.slope - sqrt(at.curvature)) : q->epsilon;
    double log_outside = expected_log_delta(q, &at, s->tilt, step) + LOG_OUTSIDE;
    double high = window_high(s, -log_outside);
    window w = shortest_window(s, &at, -log_outside, high, q->for_epsilon ? 5 : 1);
    s->log_scale = exact_cumulant(s, s->tilt);
    s->outside = w.high < high ? 0 : exp(log_outside);
    s->window_low = (int64_t)floor(w.low / step);
    return ceil(w.high / step) - floor(w.low / step) + 1;
}

/* --- Convolution: both sums ride in one complex transform, one as real part, the other as
 * imaginary part. --- */

typedef struct signal {
    double *re, *im;
} signal;

/* index modulo size. */
static size_t wrapped(int64_t index, size_t size)
{
    int64_t rest = index % (int64_t)size;
    return (size_t)(rest < 0 ? rest + (int64_t)size : rest);
}

static void add_tilted(double *to, size_t size, const term *t, double tilt)
{
    const loss_grid *g = &t->grid;
    loss_powers weight = loss_powers_from(g->lowest, tilt * g->step, -log_moment(t, tilt));
    size_t at = wrapped(g->lowest, size);
    for (size_t i = 0; i < g->n; i++) {
        to[at] += g->mass[i] * loss_powers_next(&weight);
        at = at + 1 == size ? 0 : at + 1;
    }
}

typedef struct number {
    double re, im;
} number;

static number multiply(number a, number b)
{
    return (number){a.re * b.re - a.im * b.im, a.re * b.im + a.im * b.re};
}

/* base^n; 0 where |base|^n is below e^-80, that is for most frequencies: `least` is the square of
 * the |base| at which that begins. */
static number power(number base, uint64_t n, double least)
{
    number out = {1, 0};
    if (base.re * base.re + base.im * base.im < least)
        return (number){0, 0};
    for (; n > 0; n >>= 1) {
        if (n & 1)
            out = multiply(out, base);
        base = multiply(base, base);
    }
    return out;
}

/* The transforms of the real parts (*a) and of the imaginary parts (*b) at index j. */
static void unpack(const signal *s, size_t j, size_t partner, number *a, number *b)
{
    *a = (number){(s->re[j] + s->re[partner]) / 2, (s->im[j] - s->im[partner]) / 2};
    *b = (number){(s->im[j] + s->im[partner]) / 2, (s->re[partner] - s->re[j]) / 2};
}

static void pack(const signal *s, size_t j, size_t partner, number a, number b)
{
    s->re[j] = a.re - b.im;
    s->im[j] = a.im + b.re;
    s->re[partner] = a.re + b.im;
    s->im[partner] = b.re - a.im;
}

/* one ^= count, pointwise in both packed transforms. */
static void raise_to(const signal *one, const tacit_fft *fft, size_t size, uint64_t count)
{
    double least = exp(-160 / (double)count);
    for (size_t j = 0; j < size; j++) {
        size_t partner = tacit_fft_partner(fft, j);
        if (partner < j)
            continue;
        number a, b;
        unpack(one, j, partner, &a, &b);
        pack(one, j, partner, power(a, count, least), power(b, count, least));
    }
}

/* total *= one, the same way. */
static void multiply_by(const signal *total, const signal *one, const tacit_fft *fft, size_t size)
{
    for (size_t j = 0; j < size; j++) {
        size_t partner = tacit_fft_partner(fft, j);
        if (partner < j)
            continue;
        number a, b, total_a, total_b;
        unpack(one, j, partner, &a, &b);
        unpack(total, j, partner, &total_a, &total_b);
        pack(total, j, partner, multiply(total_a, a), multiply(total_b, b));
    }
}

static tacit_status signal_init(signal *s, size_t size, tacit_error *err)
{
    s->re = calloc(size, sizeof *s->re);
    s->im = calloc(size, sizeof *s->im);
    if (s->re && s->im)
        return TACIT_OK;
    return tacit_fail(err, TACIT_NO_MEMORY, "pld accountant: no memory for %zu points", size);
}

static void signal_fini(signal *s)
{
    free(s->re);
    free(s->im);
    *s = (signal){NULL, NULL};
}

/* One loss alone: nothing to convolve, and nothing to round. */
static bool is_single(const loss_sum *s)
{
    return s->n == 1 && s->term[0].count == 1;
}

/* `to`, zeros before, receives the tilted laws of the i-th terms of *s and of *other (which may be
 * NULL). */
static void place_terms(signal *to, size_t size, const loss_sum *s, const loss_sum *other, size_t i)
{
    add_tilted(to->re, size, &s->term[i], s->tilt);
    if (other)
        add_tilted(to->im, size, &other->term[i], other->tilt);
}

/* total->re and ->im, zeros before, receive the tilted laws of *s and of *other, at grid index
 * modulo size. */
static tacit_status convolve(const loss_sum *s, const loss_sum *other, size_t size, signal *total,
                             tacit_error *err)
{
    tacit_status status;
    tacit_fft *fft = NULL;
    signal one = {NULL, NULL};
    TACIT_TRY(tacit_fft_new(&fft, size, err), out);
    for (size_t i = 0; i < s->n; i++) {
        if (i > 0)
            TACIT_TRY(signal_init(&one, size, err), out);
        signal *at = i > 0 ? &one : total;
        place_terms(at, size, s, other, i);
        tacit_fft_forward(fft, at->re, at->im);
        raise_to(at, fft, size, s->term[i].count);
        if (i > 0)
            multiply_by(total, at, fft, size);
        signal_fini(&one);
    }
    tacit_fft_inverse(fft, total->re, total->im);
out:
    signal_fini(&one);
    tacit_fft_free(fft);
    return status;
}

/* --- Reading the result. --- */

/* What the losses above y amount to, y falling: their mass, the sum of mass (1 - e^(y - loss)),
 * which is delta(y), and that of mass e^(y - loss). Sums of what is not negative, so that small
 * deltas keep their digits. delta(epsilon) = excess - (e^(epsilon - y) - 1) tail up to the loss
 * above y. */
typedef struct reading {
    double above, excess, tail;
    double shrink, share; /* e^-step, 1 - e^-step */
} reading;

static void reading_pass(reading *r, double mass)
{
    r->above += mass;
    r->excess = r->excess * r->shrink + r->share * r->above;
    r->tail = (r->tail + mass) * r->shrink;
}

/* What any mass of the law may be too low by. A transform is off by some u log2 of the size of its
 * norm, u = 2^-53, raised to the power of the runs by that many times as much; it spreads evenly.
 */
static double law_noise(const loss_sum *s, const double *law, size_t size)
{
    double squares = 0, n = (double)size;
    for (size_t k = 0; k < size; k++)
        squares += law[k] * law[k];
    return is_single(s) ? 0 : 4 * 0x1p-53 * log2(n) * (1 + s->runs) * sqrt(squares / n);
}

/* Where the law is no number, as under a tilt too large for its exponents, nothing is known of it
 * but that no finite loss is above the highest. */
static double epsilon_read(const loss_sum *s, const reading *r, double epsilon)
{
    double low, high;
    support(s, &low, &high);
    return fmax(0, isfinite(r->above) && isfinite(epsilon) ? epsilon : high);
}

static double read_answer(const loss_sum *s, const double *law, size_t size, const loss_query *q)
{
    double step = s->term[0].grid.step;
    reading r = {.shrink = exp(-step), .share = -expm1(-step)};
    double y = 0, noise = law_noise(s, law, size);
    double high = 1 + ROUNDING + ROUNDING_PER_RUN * s->runs;
    double base = -expm1(s->log_finite) + s->outside, delta = q->delta / high;
    if (q->for_epsilon && !(base < delta))
        return INFINITY;
    int64_t index = s->window_low + (int64_t)size - 1;
    size_t at = wrapped(index, size);
    loss_powers weight = loss_powers_from(-index, s->tilt * step, s->log_scale);
    for (size_t k = size; k-- > 0; index--, at = at > 0 ? at - 1 : size - 1) {
        y = step * (double)index;
        if (q->for_epsilon && base + r.excess > delta)
            return epsilon_read(s, &r, y + log1p((base + r.excess - delta) / r.tail));
        if (!q->for_epsilon && y <= q->epsilon)
            return fmin(1, (base + r.excess - expm1(q->epsilon - y) * r.tail) * high);
        if (q->for_epsilon && y <= 0)
            return epsilon_read(s, &r, 0);
        double mass = fmax(0, law[at]) + noise;
        reading_pass(&r, mass * loss_powers_next(&weight));
    }
    return q->for_epsilon ? epsilon_read(s, &r, y)
                          : fmin(1, (base + r.above) * high); /* from above */
}

tacit_status loss_sum_solve(const loss_sum *s, const loss_sum *other, double points,
                            const loss_query *q, double *answer, tacit_error *err)
{
    tacit_status status;
    signal total = {NULL, NULL};
    if (!(points <= (double)TACIT_FFT_MAX / 2))
        return tacit_fail(err, TACIT_REFUSED,
                          "pld accountant: interval %g needs %.0f points; use a larger interval, "
                          "or rdp",
                          s->term[0].grid.step, points);
    size_t size = tacit_fft_length((size_t)points);
    TACIT_TRY(signal_init(&total, size, err), out);
    if (is_single(s))
        place_terms(&total, size, s, other, 0);
    else
        TACIT_TRY(convolve(s, other, size, &total, err), out);
    *answer = read_answer(s, total.re, size, q);
    double second = other ? read_answer(other, total.im, size, q) : 0;
    const loss_sum *worse = second > *answer ? other : s;
    *answer = fmax(*answer, second);
    if (q->guess && *answer < worse->sought)
        *answer = NAN;
out:
    signal_fini(&total);
    return status;
}
