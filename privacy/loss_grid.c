#include "privacy/loss_grid.h"

#include "privacy/gaussian.h"

#include <math.h>
#include <stdbool.h>
#include <stdlib.h>

typedef struct pair {
    loss_pair kind;
    double s2, q, log_q, log_rest; /* log_rest = log(1 - q) */
    double sigma;
} pair;

/* log(1 - q + q e^z): the loss of "remove" as a function of its Gaussian part z. */
static double mixture_log(const pair *p, double z)
{
    if (p->q == 1)
        return z;
    if (z > 30)
        return p->log_q + z + log1p(exp(p->log_rest - p->log_q - z));
    if (p->q <= 0.5 || z > -1) /* 1 - q is not rounded: with a tiny q and many runs that shows */
        return log1p(p->q * expm1(z));
    return log(1 - p->q + p->q * exp(z));
}

/* z with mixture_log(z) = loss; -inf where the loss is never that small. growth = e^loss - 1. */
static double mixture_inverse(const pair *p, double loss, double growth)
{
    if (p->q == 1)
        return loss;
    if (loss > 30)
        return loss - p->log_q + log1p(-exp(p->log_rest - loss));
    double ratio = growth / p->q;
    return ratio > -1 ? log1p(ratio) : -INFINITY;
}

/* The loss of "remove" (which is what "add" mirrors) or of "replace". */
static double loss_at(const pair *p, double x)
{
    double left = (-0.5 - x) / p->s2, right = (x - 0.5) / p->s2;
    return mixture_log(p, left) - (p->kind == LOSS_REPLACE ? mixture_log(p, right) : 0);
}

/* "replace": with v = x / s^2, sinh(loss / 2 + v) = -(1 - q) / q e^(1 / (2 s^2)) sinh(loss / 2). */
static double replace_inverse(const pair *p, double loss)
{
    double half = fabs(loss) / 2;
    if (half == 0 || p->q == 1)
        return -p->s2 * loss / 2;
    double log_sinh = half > 20 ? half - M_LN2 : log(sinh(half));
    double log_right = p->log_rest - p->log_q + 0.5 / p->s2 + log_sinh;
    double angle = log_right > 20 ? log_right + M_LN2 : asinh(exp(log_right));
    return -p->s2 * copysign(half + angle, loss);
}

static double x_of_loss(const pair *p, double loss)
{
    switch (p->kind) {
    case LOSS_REMOVE:
        return -0.5 - p->s2 * mixture_inverse(p, loss, expm1(loss));
    case LOSS_ADD:
        return 0.5 + p->s2 * mixture_inverse(p, -loss, expm1(-loss));
    default:
        return replace_inverse(p, loss);
    }
}

#define DENSITY_AT_0 0.39894228040143267794 /* of the standard normal */

/* Density of the upper distribution of "remove" and "replace". */
static double density(const pair *p, double x)
{
    double a = x / p->sigma, b = (x + 1) / p->sigma, scale = DENSITY_AT_0 / p->sigma;
    return scale * ((1 - p->q) * exp(-a * a / 2) + p->q * exp(-b * b / 2));
}

/* Mass below x of (1 - q) N(0) + q N(shift); its logarithm. The mass above x is that below -x with
 * the shift reversed. Accurate in relative terms far into the left tail. */
static double log_mass_below(const pair *p, double x, double shift)
{
    double plain = tacit_log_normal_cdf(x / p->sigma);
    if (shift == 0)
        return plain;
    double shifted = p->log_q + tacit_log_normal_cdf((x - shift) / p->sigma);
    double high = fmax(plain + p->log_rest, shifted), low = fmin(plain + p->log_rest, shifted);
    return high == -INFINITY ? high : high + log1p(exp(low - high));
}

static double mass_below(const pair *p, double x, double shift)
{
    return exp(log_mass_below(p, x, shift));
}

/* Where the two distributions have their other Gaussian; 0 for a plain N(0). */
static double upper_shift(const pair *p)
{
    return p->kind == LOSS_ADD ? 0 : -1;
}

static double lower_shift(const pair *p)
{
    return p->kind == LOSS_REMOVE ? 0 : 1;
}

/* Gauss-Legendre nodes and weights on [-1, 1]. */
static const double nodes3[3] = {-0.77459666924148337704, 0, 0.77459666924148337704};
static const double weights3[3] = {5.0 / 9, 8.0 / 9, 5.0 / 9};
static const double nodes5[5] = {-0.90617984593866399280, -0.53846931010568309104, 0,
                                 0.53846931010568309104, 0.90617984593866399280};
static const double weights5[5] = {0.23692688505618908751, 0.47862867049936646804,
                                   0.56888888888888888889, 0.47862867049936646804,
                                   0.23692688505618908751};

/* A cell: the mass of [from, to], whose losses lie between base and base + step, goes to low[0] and
 * low[1]. The share of a loss l that goes up is (1 - e^-(l - base)) / (1 - e^-step), which keeps
 * the mass under both distributions. */
typedef struct cell {
    double from, to, base;
    double *low;
} cell;

static void place_panel(const pair *p, const cell *c, double step)
{
    double middle = (c->from + c->to) / 2, half = (c->to - c->from) / 2, whole = -expm1(-step);
    for (int i = 0; i < 5; i++) {
        double x = middle + half * nodes5[i], mass = half * weights5[i] * density(p, x);
        double share = fmin(1, fmax(0, -expm1(c->base - loss_at(p, x)) / whole));
        c->low[1] += mass * share;
        c->low[0] += mass * (1 - share);
    }
}

/* Any cell, cut into smooth panels. */
static void place_panels(const pair *p, const cell *c, double step)
{
    double width = c->to - c->from, smooth = fmin(p->sigma, p->s2);
    size_t panels = (size_t)ceil(width / (0.1 * smooth));
    for (size_t k = 0; k < panels; k++) {
        cell panel = *c;
        panel.from = c->from + width * (double)k / (double)panels;
        panel.to = c->from + width * (double)(k + 1) / (double)panels;
        place_panel(p, &panel, step);
    }
}

/* A grid point: its loss, the x that has it, e^loss - 1, and q e^z of the upper and the lower
 * distribution there (0 for a plain N(0)). */
typedef struct edge {
    double x, growth, upper, lower;
    bool usable; /* all are in the range of numbers */
} edge;

static edge edge_at(const pair *p, double loss)
{
    edge e = {.growth = expm1(loss)};
    if (p->kind == LOSS_REMOVE) {
        e.x = -0.5 - p->s2 * mixture_inverse(p, loss, e.growth);
        e.upper = p->q + e.growth;
    } else {
        e.x = x_of_loss(p, loss);
        e.upper = p->q * exp((-0.5 - e.x) / p->s2);
        e.lower = p->q * exp((e.x - 0.5) / p->s2);
    }
    e.usable = isfinite(e.x) && e.growth < 1e200 && e.upper < 1e200 && e.lower < 1e200;
    return e;
}

/* e^x - 1 for |x| < 0.05, to a rounding or two. */
static double small_expm1(double x)
{
    double end = 1 + x * (1.0 / 6) * (1 + x * (1.0 / 7) * (1 + x / 8));
    return x * (1 + x / 2 * (1 + x * (1.0 / 3) * (1 + x / 4 * (1 + x * (1.0 / 5) * end))));
}

/* A narrow cell whose base is *b: with d = (b->x - x) / s^2, densities and share at x are those at
 * *b times e^d, e^-d and the ratio of two near values of a Gaussian. No difference of equals. */
static void place_narrow(const pair *p, const cell *c, const edge *b, double whole)
{
    double middle = (c->from + c->to) / 2, half = (c->to - c->from) / 2, per_s2 = 1 / p->s2;
    double scale = half * DENSITY_AT_0 / p->sigma * exp(-middle * middle / 2 * per_s2);
    double lower = (1 + b->growth) * b->lower, per_whole = 1 / whole;
    for (int i = 0; i < 3; i++) {
        double away = half * nodes3[i], d = (b->x - middle - away) * per_s2;
        double plain = scale * weights3[i];
        plain += plain * small_expm1(-away * (middle + away / 2) * per_s2);
        double growth = b->upper * small_expm1(d);
        double excess = lower > 0 ? growth - lower * small_expm1(-d) : growth;
        double upper = 1 - p->q + b->upper + growth;
        double up = fmin(upper, fmax(0, excess * per_whole));
        c->low[1] += plain * up;
        c->low[0] += plain * (upper - up);
    }
}

static bool is_narrow(const pair *p, const cell *c, const edge *b)
{
    double width = c->to - c->from, reach = fmax(fabs(c->from), fabs(c->to));
    return b->usable && width < 0.01 * fmin(p->sigma, p->s2) && width * reach < 0.09 * p->s2 &&
           b->x - c->from < 0.04 * p->s2;
}

/* Adds what has `upper` mass under the upper distribution and `lower` under the lower one, with
 * losses between base and base + step, to low[0] and low[1], keeping both. */
static void place_mass(double upper, double lower, double base, double step, double *low)
{
    upper = fmax(0, upper); /* differences, which rounding may turn */
    double up = (upper - exp(base + log(fmax(0, lower)))) / -expm1(-step);
    up = fmin(upper, fmax(0, up));
    low[1] += up;
    low[0] += upper - up;
}

static pair pair_of(const loss_shape *s)
{
    return (pair){s->pair, s->sigma * s->sigma, s->q, log(s->q), log1p(-s->q), s->sigma};
}

/* x with Phi(x) = mass, from below: mass < 1/2. */
static double normal_quantile(double mass)
{
    double low = -40, high = 0, target = log(mass);
    while (high - low > 1e-14) {
        double middle = (low + high) / 2;
        *(tacit_log_normal_cdf(middle) <= target ? &low : &high) = middle;
    }
    return low;
}

/* Where x begins and ends, and the grid that covers the losses in between, which fall as x grows.
 */
typedef struct extent {
    double first, last;     /* of x */
    double lowest, highest; /* grid indices, whole numbers */
} extent;

static extent extent_of(const pair *p, const loss_shape *s)
{
    double reach = -normal_quantile(s->tail) * s->sigma;
    extent e = {.first = -reach - 1, .last = reach};
    e.lowest = floor(loss_at(p, e.last) / s->step);
    e.highest = fmax(ceil(loss_at(p, e.first) / s->step), e.lowest + 1);
    return e;
}

double loss_grid_points(const loss_shape *shape)
{
    pair p = pair_of(shape);
    extent e = extent_of(&p, shape);
    return e.highest - e.lowest + 1;
}

static void place_middle(loss_grid *g, const pair *p, const extent *e)
{
    cell c = {.to = e->last};
    edge base = edge_at(p, e->lowest * g->step), next;
    double whole = -expm1(-g->step);
    for (size_t k = 0; k + 1 < g->n; k++, c.to = c.from, base = next) {
        c.base = (e->lowest + (double)k) * g->step;
        c.low = &g->mass[k];
        next = edge_at(p, (e->lowest + (double)k + 1) * g->step);
        c.from = k + 2 == g->n ? e->first : fmax(e->first, next.x);
        c.from = fmin(c.from, c.to);
        if (is_narrow(p, &c, &base))
            place_narrow(p, &c, &base, whole);
        else
            place_panels(p, &c, g->step);
    }
}

/* Steps of tens round away the lowest masses of "remove", which weigh the most in its mirror: what
 * lacks there is raised to the highest loss. */
static void keep_whole(loss_grid *g)
{
    double lacks = 1 - g->infinite;
    if (g->step <= 1)
        return;
    for (size_t k = 0; k < g->n; k++)
        lacks -= g->mass[k];
    g->mass[g->n - 1] += fmax(0, lacks);
}

/* Beyond e->last: what the lowest cell still holds, and smaller losses, raised to it. */
static void place_low_end(loss_grid *g, const pair *p, const extent *e)
{
    double base = e->lowest * g->step, end = fmax(e->last, x_of_loss(p, base));
    double below = mass_below(p, -end, -upper_shift(p));
    double upper = mass_below(p, -e->last, -upper_shift(p)) - below;
    double lower = mass_below(p, -e->last, -lower_shift(p)) - mass_below(p, -end, -lower_shift(p));
    place_mass(upper, lower, base, g->step, g->mass);
    g->mass[0] += below;
}

/* Beyond e->first: what the highest cell still holds; larger losses between its end and infinity,
 * so that both masses are kept. */
static void place_high_end(loss_grid *g, const pair *p, const extent *e)
{
    double top = e->highest * g->step, end = fmin(e->first, x_of_loss(p, top));
    double above = mass_below(p, end, upper_shift(p));
    double upper = mass_below(p, e->first, upper_shift(p)) - above;
    double lower = mass_below(p, e->first, lower_shift(p)) - mass_below(p, end, lower_shift(p));
    place_mass(upper, lower, top - g->step, g->step, &g->mass[g->n - 2]);
    double kept = fmin(above, exp(top + log_mass_below(p, end, lower_shift(p))));
    g->mass[g->n - 1] += kept;
    g->infinite = above - kept;
}

/* A grid without masses. */
static tacit_status init_empty(loss_grid *g, const loss_shape *shape, const extent *e,
                               tacit_error *err)
{
    *g = (loss_grid){.step = shape->step};
    if (!(shape->step <= LOSS_STEP_MAX))
        return tacit_fail(err, TACIT_REFUSED,
                          "pld accountant: the losses of sigma %g, q %g are too far apart for a "
                          "grid; use rdp",
                          shape->sigma, shape->q);
    if (!(e->highest - e->lowest < (double)LOSS_GRID_MAX))
        return tacit_fail(err, TACIT_REFUSED,
                          "pld accountant: sigma %g, q %g at interval %g needs more than %zu grid "
                          "points; use a larger interval, or rdp",
                          shape->sigma, shape->q, shape->step, LOSS_GRID_MAX);
    g->lowest = (int64_t)e->lowest;
    g->n = (size_t)(e->highest - e->lowest) + 1;
    g->mass = calloc(g->n, sizeof *g->mass);
    if (!g->mass)
        return tacit_fail(err, TACIT_NO_MEMORY, "pld accountant: no memory for %zu points", g->n);
    return TACIT_OK;
}

static void place_ends(loss_grid *g, const pair *p, const extent *e)
{
    place_low_end(g, p, e);
    place_high_end(g, p, e);
}

/* "add" is "remove" with the distributions exchanged: a loss l of mass m becomes -l of mass
 * m e^-l, on the grid as off it, for both masses of each cell are kept. */
static void place_mirrored(loss_grid *add, const loss_grid *remove)
{
    loss_powers weight = loss_powers_from(remove->lowest, -remove->step, 0);
    for (size_t k = 0; k < add->n; k++)
        add->mass[add->n - 1 - k] = remove->mass[k] * loss_powers_next(&weight);
}

tacit_status loss_grid_init_both(loss_grid *remove, loss_grid *add, const loss_shape *shape,
                                 tacit_error *err)
{
    pair p = pair_of(shape);
    p.kind = LOSS_REMOVE;
    const extent e = extent_of(&p, shape);
    const extent mirrored = {-e.last, -e.first, -e.highest, -e.lowest};
    tacit_status status;
    *add = (loss_grid){.mass = NULL};
    TACIT_TRY(init_empty(remove, shape, &e, err), out);
    TACIT_TRY(init_empty(add, shape, &mirrored, err), out);
    place_middle(remove, &p, &e);
    place_mirrored(add, remove);
    place_ends(remove, &p, &e);
    p.kind = LOSS_ADD;
    place_ends(add, &p, &mirrored);
    keep_whole(add);
    return TACIT_OK;
out:
    loss_grid_fini(remove);
    loss_grid_fini(add);
    return status;
}

tacit_status loss_grid_init(loss_grid *g, const loss_shape *shape, tacit_error *err)
{
    if (shape->pair == LOSS_ADD) {
        loss_grid remove;
        tacit_status status = loss_grid_init_both(&remove, g, shape, err);
        loss_grid_fini(&remove);
        return status;
    }
    const pair p = pair_of(shape);
    const extent e = extent_of(&p, shape);
    tacit_status status = init_empty(g, shape, &e, err);
    if (status != TACIT_OK)
        return status;
    place_middle(g, &p, &e);
    place_ends(g, &p, &e);
    return TACIT_OK;
}

void loss_grid_fini(loss_grid *g)
{
    free(g->mass);
    g->mass = NULL;
}
