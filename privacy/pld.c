#include "privacy/pld.h"

#include "privacy/fft.h"
#include "privacy/gaussian.h"
#include "privacy/loss_grid.h"

#include <math.h>
#include <stdbool.h>
#include <stdlib.h>

/* How a composition is summed. For a tilt t, masses p(l) e^(t l) / M(t) are again a distribution;
 * K(t) = sum of count log M(t). Its n-fold convolution is computed where the tilted sum Y lives,
 * around K'(t), and multiplied by e^(K(t) - t y) afterwards. With t so that K'(t) is about the
 * epsilon sought, every number that matters is of the size of the largest one. */

#define DEFAULT_STEP 1e-4
#define DEFAULT_EXCESS 1e-4 /* step^2 / (12 v) of the default grid */
#define LOG_OUTSIDE (-36.0) /* log of the share that may lie outside the window */
/* Longest grid or window for which the default step stays below 1e-4, and longest at all. */
#define FINE_POINTS 0x1p20
#define MOST_POINTS 0x1p22
#define COARSE 1024

/* Delta is read this much (relative) too high: more than the transforms' rounding. */
#define ROUNDING 1e-9

/* --- Events, merged. --- */

/* Distinct sampled events, and all unsampled ones as one Gaussian of parameter mu. */
typedef struct plan {
    const tacit_event *events;
    size_t n;
    double gaussian_sigma; /* 0: none */
    double step;
    bool replace;
} plan;

static tacit_status check_events(const tacit_event *events, size_t n, tacit_error *err)
{
    for (size_t i = 0; i < n; i++) {
        tacit_status status = tacit_event_validate(&events[i], err);
        if (status != TACIT_OK)
            return status;
        if (events[i].neighbours != events[0].neighbours)
            return tacit_fail(err, TACIT_BAD_INPUT,
                              "pld accountant: all events must have the same neighbours");
        if (events[i].sigma < TACIT_PLD_SIGMA_MIN)
            return tacit_fail(err, TACIT_REFUSED,
                              "pld accountant: expected noise multipliers of at least %g, found "
                              "%g; use rdp",
                              TACIT_PLD_SIGMA_MIN, events[i].sigma);
    }
    return TACIT_OK;
}

static double most_points(const plan *p, double step)
{
    double most = 0;
    for (size_t i = 0; i < p->n; i++)
        if (p->events[i].q < 1)
            most = fmax(most, loss_grid_points(p->replace ? LOSS_REPLACE : LOSS_REMOVE,
                                               p->events[i].sigma, p->events[i].q, step));
    if (p->gaussian_sigma > 0)
        most = fmax(
            most, loss_grid_points(LOSS_REMOVE, p->gaussian_sigma / (p->replace ? 2 : 1), 1, step));
    return most;
}

static bool too_long(double points, double step)
{
    return points > (step < DEFAULT_STEP ? FINE_POINTS : MOST_POINTS);
}

/* The step 1e-4 halved until at most sqrt(12 excess v), then doubled while a grid is too long. */
static double default_step(const plan *p)
{
    double variance = 0, runs = 0;
    for (size_t i = 0; i < p->n; i++) {
        const tacit_event *e = &p->events[i];
        if (e->q == 1)
            continue;
        variance += (double)e->count * e->q * e->q * expm1(1 / (e->sigma * e->sigma));
        runs += (double)e->count;
    }
    if (p->gaussian_sigma > 0) {
        variance += 1 / (p->gaussian_sigma * p->gaussian_sigma);
        runs += 1;
    }
    double wanted = sqrt(12 * DEFAULT_EXCESS * variance / runs), step = DEFAULT_STEP;
    while (step > wanted && step > 1e-12)
        step /= 2;
    while (too_long(most_points(p, step), step))
        step *= 2;
    return step;
}

static plan plan_of(const tacit_event *events, size_t n, double interval)
{
    plan p = {.events = events, .n = n, .replace = n && events[0].neighbours == TACIT_REPLACE_ONE};
    double squares = 0;
    for (size_t i = 0; i < n; i++)
        if (events[i].q == 1)
            squares += (double)events[i].count / (events[i].sigma * events[i].sigma);
    p.gaussian_sigma = squares > 0 ? 1 / sqrt(squares) : 0;
    p.step = interval > 0 ? interval : default_step(&p);
    return p;
}

static bool has_samples(const plan *p)
{
    for (size_t i = 0; i < p->n; i++)
        if (p->events[i].q < 1 && p->events[i].count > 0)
            return true;
    return false;
}

/* --- One direction: the grids of its events. --- */

/* Mass and mean loss of runs of grid points, for choosing tilt and window cheaply. */
typedef struct coarse {
    size_t n;
    double log_mass[COARSE], loss[COARSE];
} coarse;

typedef struct term {
    loss_grid grid;
    double count;
    coarse *coarse;
} term;

typedef struct direction {
    size_t n;
    term *term;
    double log_finite;      /* log of the probability that no loss is infinite */
    double tilt, log_scale; /* t, K(t) */
    double outside;         /* bound on the mass above the window */
    int64_t window_low;     /* grid index of the window's first point */
} direction;

static tacit_status coarse_new(coarse **out, const loss_grid *g, tacit_error *err)
{
    coarse *c = malloc(sizeof *c);
    *out = c;
    if (!c)
        return tacit_fail(err, TACIT_NO_MEMORY, "pld accountant: no memory");
    size_t run = (g->n + COARSE - 1) / COARSE;
    c->n = 0;
    for (size_t at = 0; at < g->n; at += run) {
        double mass = 0, moment = 0;
        for (size_t i = at; i < g->n && i < at + run; i++) {
            mass += g->mass[i];
            moment += g->mass[i] * (double)(g->lowest + (int64_t)i);
        }
        if (mass > 0) {
            c->log_mass[c->n] = log(mass);
            c->loss[c->n++] = moment / mass * g->step;
        }
    }
    return TACIT_OK;
}

static tacit_status add_term(direction *d, loss_pair pair, double sigma, double q, uint64_t count,
                             double step, tacit_error *err)
{
    term *t = &d->term[d->n];
    tacit_status status = loss_grid_init(&t->grid, pair, sigma, q, step, err);
    d->n++; /* what init began is released with the direction */
    if (status != TACIT_OK)
        return status;
    t->count = (double)count;
    d->log_finite += t->count * log1p(-t->grid.infinite);
    return coarse_new(&t->coarse, &t->grid, err);
}

static tacit_status direction_init(direction *d, const plan *p, loss_pair pair, tacit_error *err)
{
    tacit_status status = TACIT_OK;
    *d = (direction){0};
    d->term = calloc(p->n + 1, sizeof *d->term);
    if (!d->term)
        return tacit_fail(err, TACIT_NO_MEMORY, "pld accountant: no memory");
    for (size_t i = 0; i < p->n; i++) {
        const tacit_event *e = &p->events[i];
        if (e->q < 1 && e->count > 0)
            TACIT_TRY(add_term(d, pair, e->sigma, e->q, e->count, p->step, err), out);
    }
    /* N(0) against N(2) is N(0) against N(1) at half the noise. */
    if (p->gaussian_sigma > 0)
        status =
            add_term(d, LOSS_REMOVE, p->gaussian_sigma / (p->replace ? 2 : 1), 1, 1, p->step, err);
out:
    return status;
}

static void direction_fini(direction *d)
{
    for (size_t i = 0; i < d->n; i++) {
        loss_grid_fini(&d->term[i].grid);
        free(d->term[i].coarse);
    }
    free(d->term);
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

static cumulant coarse_cumulant(const direction *d, double t)
{
    cumulant k = {0};
    for (size_t i = 0; i < d->n; i++) {
        cumulant one = coarse_moments(d->term[i].coarse, t);
        k.value += d->term[i].count * one.value;
        k.slope += d->term[i].count * one.slope;
        k.curvature += d->term[i].count * one.curvature;
    }
    return k;
}

/* log M(t) of one grid, to full precision; the coarse value keeps the exponents in range. */
static double log_moment(const term *t, double tilt)
{
    const loss_grid *g = &t->grid;
    double shift = coarse_moments(t->coarse, tilt).value, sum = 0;
    for (size_t i = 0; i < g->n; i++)
        sum += g->mass[i] * exp(tilt * g->step * (double)(g->lowest + (int64_t)i) - shift);
    return shift + log(sum);
}

static double exact_cumulant(const direction *d, double t)
{
    double k = 0;
    for (size_t i = 0; i < d->n; i++)
        k += d->term[i].count * log_moment(&d->term[i], t);
    return k;
}

/* What the caller looks for: epsilon at delta, or delta at epsilon. */
typedef struct query {
    bool for_epsilon;
    double delta, epsilon;
} query;

/* Positive while the tilt is too small. Saddle point: log delta is about K - t K', less the width
 * of the peak and t (t + 1). */
static double tilt_error(const direction *d, const query *q, double t)
{
    cumulant k = coarse_cumulant(d, t);
    if (!q->for_epsilon)
        return q->epsilon - k.slope;
    double width = log1p(sqrt(2 * M_PI * k.curvature) * t * (1 + t));
    return k.value - t * k.slope - width - log(q->delta);
}

/* A tilt of TILT_STEPS / step leaves nothing but the highest few points of a grid. */
#define TILT_STEPS 10

static double saddle_tilt(const direction *d, const query *q, double most)
{
    double low = 0, high = 1;
    if (tilt_error(d, q, 0) <= 0)
        return 0;
    while (tilt_error(d, q, high) > 0 && high < most) {
        low = high;
        high *= 2;
    }
    for (int i = 0; i < 40 && high - low > 1e-3 * high; i++) {
        double middle = (low + high) / 2;
        *(tilt_error(d, q, middle) > 0 ? &low : &high) = middle;
    }
    return high;
}

/* Less than the saddle point's tilt t: the law then reaches less far up (rare large losses weigh
 * less), at the price of a factor e^((K(u) - u y) - (K(t) - t y)), y = K'(t), between its mass and
 * what is read off around y. u is at least t / 2, and such that the factor is at most e^7: 12 of 16
 * digits are left. */
static double choose_tilt(const direction *d, const query *q, double most)
{
    double tilt = saddle_tilt(d, q, most), low = tilt / 2, high = tilt;
    cumulant at = coarse_cumulant(d, tilt);
    for (int i = 0; i < 12; i++) {
        double u = i == 0 ? low : (low + high) / 2;
        double price = coarse_cumulant(d, u).value - at.value + (tilt - u) * at.slope;
        *(price > 7 ? &low : &high) = u;
        if (high == low)
            break;
    }
    return high;
}

/* The values of s that are tried. A law near a Gaussian needs some 8 spreads' worth, 8 / sqrt(K'');
 * one of rare large losses, whose spread is small, needs an s of the size of the tilt. */
#define CHERNOFF_TRIES 24

typedef struct chernoff {
    double first, ratio;
} chernoff;

static chernoff chernoff_range(const cumulant *at, double t, double step)
{
    double spread = sqrt(at->curvature + step * step); /* no finer than the grid */
    double first = 0.05 * fmin(1 / spread, 1 + t), last = 40 / spread;
    return (chernoff){first, pow(last / first, 1.0 / (CHERNOFF_TRIES - 1))};
}

/* Ends of the window by Chernoff bounds over a range of s: beyond each the tilted law has at most
 * e^LOG_OUTSIDE. What wraps around from there can only add to delta; what is missing at the upper
 * end is bounded there (exactly: `high` is computed from the full grids). */
static double window_high(const direction *d, double t, const cumulant *at, chernoff range)
{
    double best = INFINITY, best_s = range.first, s = range.first;
    for (int k = 0; k < CHERNOFF_TRIES; k++) {
        double y = (coarse_cumulant(d, t + s).value - at->value - LOG_OUTSIDE) / s;
        if (y < best) {
            best = y;
            best_s = s;
        }
        s *= range.ratio;
    }
    return (exact_cumulant(d, t + best_s) - d->log_scale - LOG_OUTSIDE) / best_s;
}

static double window_low(const direction *d, double t, const cumulant *at, chernoff range)
{
    double best = -INFINITY, s = range.first;
    for (int k = 0; k < CHERNOFF_TRIES; k++) {
        best = fmax(best, (at->value - coarse_cumulant(d, t - s).value + LOG_OUTSIDE) / s);
        s *= range.ratio;
    }
    return best;
}

static void support(const direction *d, double *low, double *high)
{
    *low = *high = 0;
    for (size_t i = 0; i < d->n; i++) {
        const loss_grid *g = &d->term[i].grid;
        *low += d->term[i].count * (double)g->lowest * g->step;
        *high += d->term[i].count * (double)(g->lowest + (int64_t)g->n - 1) * g->step;
    }
}

/* Sets tilt, scale and window; *points is what the window needs. */
static void direction_aim(direction *d, const query *q, double step, double *points)
{
    double support_low, support_high;
    d->tilt = choose_tilt(d, q, TILT_STEPS / step);
    d->log_scale = exact_cumulant(d, d->tilt);
    cumulant at = coarse_cumulant(d, d->tilt);
    support(d, &support_low, &support_high);
    chernoff range = chernoff_range(&at, d->tilt, step);
    double high = window_high(d, d->tilt, &at, range);
    double low = fmax(window_low(d, d->tilt, &at, range), support_low);
    d->outside = high < support_high ? exp(d->log_scale - d->tilt * high + LOG_OUTSIDE) : 0;
    high = fmin(high, support_high);
    d->window_low = (int64_t)floor(low / step);
    *points = ceil(high / step) - floor(low / step) + 1;
}

/* --- Convolution: both directions ride in one complex transform, one as real part, the other as
 * imaginary part. --- */

typedef struct signal {
    double *re, *im;
} signal;

static void add_tilted(double *to, size_t size, const term *t, double tilt)
{
    const loss_grid *g = &t->grid;
    double log_m = log_moment(t, tilt);
    for (size_t i = 0; i < g->n; i++) {
        int64_t index = g->lowest + (int64_t)i;
        to[(uint64_t)index & (size - 1)] +=
            g->mass[i] * exp(tilt * g->step * (double)index - log_m);
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

static void pack(signal *s, size_t j, size_t partner, number a, number b)
{
    s->re[j] = a.re - b.im;
    s->im[j] = a.im + b.re;
    s->re[partner] = a.re + b.im;
    s->im[partner] = b.re - a.im;
}

/* total *= one^count, pointwise in both packed transforms. */
static void multiply_power(signal *total, const signal *one, size_t size, uint64_t count)
{
    double least = exp(-160 / (double)count);
    for (size_t j = 0; j < size; j++) {
        size_t partner = tacit_fft_partner(j);
        if (partner < j)
            continue;
        number a, b, total_a, total_b;
        unpack(one, j, partner, &a, &b);
        unpack(total, j, partner, &total_a, &total_b);
        pack(total, j, partner, multiply(total_a, power(a, count, least)),
             multiply(total_b, power(b, count, least)));
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
}

/* total->re and ->im receive the tilted laws of the sums of d[0] and d[1] (n_directions may be 1),
 * at grid index modulo size. */
static tacit_status convolve(const direction *d, size_t n_directions, size_t size, signal *total,
                             tacit_error *err)
{
    tacit_status status;
    tacit_fft *fft = NULL;
    signal one = {NULL, NULL};
    TACIT_TRY(tacit_fft_new(&fft, size, err), out);
    TACIT_TRY(signal_init(&one, size, err), out);
    for (size_t j = 0; j < size; j++) /* the transform of a spike at 0, in both */
        total->re[j] = total->im[j] = 1;
    for (size_t i = 0; i < d[0].n; i++) {
        for (size_t j = 0; j < size; j++)
            one.re[j] = one.im[j] = 0;
        add_tilted(one.re, size, &d[0].term[i], d[0].tilt);
        if (n_directions > 1)
            add_tilted(one.im, size, &d[1].term[i], d[1].tilt);
        tacit_fft_forward(fft, one.re, one.im);
        multiply_power(total, &one, size, (uint64_t)d[0].term[i].count);
    }
    tacit_fft_inverse(fft, total->re, total->im);
out:
    signal_fini(&one);
    tacit_fft_free(fft);
    return status;
}

/* --- Reading the result. --- */

/* Walks losses y downwards with above = sum of masses above y and tail = sum of their e^(y - loss):
 * delta(epsilon) = base + above - e^(epsilon - y) tail for epsilon from y to the point above it. */
static double read_answer(const direction *d, const double *law, size_t size, double step,
                          const query *q)
{
    double above = 0, tail = 0, shrink = exp(-step), y = 0;
    double base = -expm1(d->log_finite) + d->outside, delta = q->delta / (1 + ROUNDING);
    if (q->for_epsilon && base >= delta)
        return INFINITY;
    for (size_t k = size; k-- > 0;) {
        int64_t index = d->window_low + (int64_t)k;
        y = step * (double)index;
        if (q->for_epsilon && base + above - tail > delta)
            return fmax(0, y + log((base + above - delta) / tail));
        if (!q->for_epsilon && y <= q->epsilon)
            return (base + above - exp(q->epsilon - y) * tail) * (1 + ROUNDING);
        if (q->for_epsilon && y <= 0)
            return 0;
        double mass = law[(uint64_t)index & (size - 1)];
        mass = mass > 0 ? mass * exp(d->log_scale - d->tilt * y) : 0;
        above += mass;
        tail = (tail + mass) * shrink;
    }
    return q->for_epsilon ? fmax(0, y) : base + above; /* both from above */
}

/* Aims all directions; returns the points of the longest window. */
static double aim(direction *d, size_t n_directions, double step, const query *q)
{
    double most = 2;
    for (size_t i = 0; i < n_directions; i++) {
        double points;
        direction_aim(&d[i], q, step, &points);
        most = fmax(most, points);
    }
    return most;
}

/* `points` from aim(). */
static tacit_status solve(const direction *d, size_t n_directions, double step, double points,
                          const query *q, double *answer, tacit_error *err)
{
    tacit_status status;
    signal total = {NULL, NULL};
    if (!(points <= (double)TACIT_FFT_MAX / 2))
        return tacit_fail(err, TACIT_REFUSED,
                          "pld accountant: interval %g needs %.0f points; use a larger interval, "
                          "or rdp",
                          step, points);
    size_t size = 2;
    while ((double)size < points)
        size *= 2;
    TACIT_TRY(signal_init(&total, size, err), out);
    TACIT_TRY(convolve(d, n_directions, size, &total, err), out);
    *answer = read_answer(&d[0], total.re, size, step, q);
    if (n_directions > 1)
        *answer = fmax(*answer, read_answer(&d[1], total.im, size, step, q));
out:
    signal_fini(&total);
    return status;
}

/* One attempt at p->step. With `adapt` a window that is too long only doubles p->step, as often as
 * needed, and leaves *answer: the caller asks again. */
static tacit_status ask_once(plan *p, const query *q, bool adapt, double *answer, bool *again,
                             tacit_error *err)
{
    tacit_status status = TACIT_OK;
    direction d[2] = {{0}};
    size_t n_directions = !p->replace && has_samples(p) ? 2 : 1;
    *again = false;
    TACIT_TRY(direction_init(&d[0], p, p->replace ? LOSS_REPLACE : LOSS_REMOVE, err), out);
    if (n_directions == 2)
        TACIT_TRY(direction_init(&d[1], p, LOSS_ADD, err), out);
    double points = aim(d, n_directions, p->step, q);
    if (adapt && too_long(points, p->step)) {
        *again = true;
        while (too_long(points, p->step) && points < INFINITY) {
            points /= 2;
            p->step *= 2;
        }
    } else {
        status = solve(d, n_directions, p->step, points, q, answer, err);
    }
out:
    direction_fini(&d[0]);
    direction_fini(&d[1]);
    return status;
}

static tacit_status ask(plan *p, const query *q, bool adapt, double *answer, tacit_error *err)
{
    bool again = true;
    tacit_status status = TACIT_OK;
    for (int attempt = 0; again && attempt < 8 && status == TACIT_OK; attempt++)
        status = ask_once(p, q, adapt && attempt < 7, answer, &again, err);
    return status;
}

static tacit_status prepare(plan *p, const tacit_event *events, size_t n, double interval,
                            tacit_error *err)
{
    tacit_status status = check_events(events, n, err);
    if (status != TACIT_OK)
        return status;
    if (!(interval >= 0 && interval <= 1))
        return tacit_fail(err, TACIT_BAD_INPUT,
                          "pld accountant: expected an interval up to 1, found %g", interval);
    *p = plan_of(events, n, interval);
    return TACIT_OK;
}

tacit_status tacit_pld_epsilon(const tacit_event *events, size_t n, double delta, double interval,
                               double *epsilon, tacit_error *err)
{
    plan p;
    tacit_status status = prepare(&p, events, n, interval, err);
    if (status != TACIT_OK)
        return status;
    if (!(delta > 0 && delta < 1))
        return tacit_fail(err, TACIT_BAD_INPUT,
                          "delta: expected a number between 0 and 1, found %g", delta);
    *epsilon = 0;
    if (!has_samples(&p) && (interval == 0 || p.gaussian_sigma == 0)) {
        double mu = p.gaussian_sigma > 0 ? (p.replace ? 2 : 1) / p.gaussian_sigma : 0;
        *epsilon = tacit_gaussian_epsilon(delta, mu);
        return TACIT_OK;
    }
    const query q = {.for_epsilon = true, .delta = delta};
    return ask(&p, &q, interval == 0, epsilon, err);
}

tacit_status tacit_pld_delta(const tacit_event *events, size_t n, double epsilon, double interval,
                             double *delta, tacit_error *err)
{
    plan p;
    tacit_status status = prepare(&p, events, n, interval, err);
    if (status != TACIT_OK)
        return status;
    if (!(epsilon >= 0 && epsilon < INFINITY))
        return tacit_fail(err, TACIT_BAD_INPUT,
                          "epsilon: expected a finite number from 0, found %g", epsilon);
    *delta = 0;
    if (!has_samples(&p) && p.gaussian_sigma == 0)
        return TACIT_OK;
    const query q = {.epsilon = epsilon};
    return ask(&p, &q, interval == 0, delta, err);
}
