#include "privacy/loss_grid.h"

#include "privacy/gaussian.h"

#include <math.h>
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

/* z with mixture_log(z) = loss; -inf where the loss is never that small. */
static double mixture_inverse(const pair *p, double loss)
{
    if (p->q == 1)
        return loss;
    if (loss > 30)
        return loss - p->log_q + log1p(-exp(p->log_rest - loss));
    double ratio = expm1(loss) / p->q;
    return ratio > -1 ? log1p(ratio) : -INFINITY;
}

static double loss_at(const pair *p, double x)
{
    double left = (-0.5 - x) / p->s2, right = (x - 0.5) / p->s2;
    switch (p->kind) {
    case LOSS_REMOVE:
        return mixture_log(p, left);
    case LOSS_ADD:
        return -mixture_log(p, right);
    default:
        return mixture_log(p, left) - mixture_log(p, right);
    }
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
        return -0.5 - p->s2 * mixture_inverse(p, loss);
    case LOSS_ADD:
        return 0.5 + p->s2 * mixture_inverse(p, -loss);
    default:
        return replace_inverse(p, loss);
    }
}

/* Density of the upper distribution. */
static double density(const pair *p, double x)
{
    double a = x / p->sigma, b = (x + 1) / p->sigma, scale = 0.39894228040143267794 / p->sigma;
    double plain = exp(-a * a / 2) * scale;
    if (p->kind == LOSS_ADD)
        return plain;
    return (1 - p->q) * plain + p->q * exp(-b * b / 2) * scale;
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

/* Adds the mass of [from, to], whose losses lie between base and base + step, to low[0] and low[1]:
 * the share of a loss l that goes up is (1 - e^-(l - base)) / (1 - e^-step), which keeps the mass
 * under both distributions. */
static void place_panel(const pair *p, double from, double to, double base, double step, int nodes,
                        double *low)
{
    const double *node = nodes == 3 ? nodes3 : nodes5;
    const double *weight = nodes == 3 ? weights3 : weights5;
    double middle = (from + to) / 2, half = (to - from) / 2, whole = -expm1(-step);
    for (int i = 0; i < nodes; i++) {
        double x = middle + half * node[i], mass = half * weight[i] * density(p, x);
        double share = fmin(1, fmax(0, -expm1(base - loss_at(p, x)) / whole));
        low[1] += mass * share;
        low[0] += mass * (1 - share);
    }
}

/* One cell of the grid; wide ones (where the loss is flat) are cut into smooth panels. */
static void place_cell(const pair *p, double from, double to, double base, double step, double *low)
{
    double width = to - from, smooth = fmin(p->sigma, p->s2);
    if (!(width > 0))
        return;
    if (width < 0.01 * smooth) {
        place_panel(p, from, to, base, step, 3, low);
        return;
    }
    size_t panels = (size_t)ceil(width / (0.1 * smooth));
    for (size_t k = 0; k < panels; k++)
        place_panel(p, from + width * (double)k / (double)panels,
                    from + width * (double)(k + 1) / (double)panels, base, step, 5, low);
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
    extent e = {.first = -reach - (p->kind == LOSS_ADD ? 0 : 1),
                .last = reach + (p->kind == LOSS_ADD ? 1 : 0)};
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
    double to = e->last;
    for (size_t k = 0; k + 1 < g->n; k++) {
        double base = (e->lowest + (double)k) * g->step;
        double from = k + 2 == g->n ? e->first : fmax(e->first, x_of_loss(p, base + g->step));
        from = fmin(from, to);
        place_cell(p, from, to, base, g->step, &g->mass[k]);
        to = from;
    }
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

tacit_status loss_grid_init(loss_grid *g, const loss_shape *shape, tacit_error *err)
{
    const pair p = pair_of(shape);
    const extent e = extent_of(&p, shape);
    *g = (loss_grid){.step = shape->step};
    if (!(e.highest - e.lowest < (double)LOSS_GRID_MAX))
        return tacit_fail(err, TACIT_REFUSED,
                          "pld accountant: sigma %g, q %g at interval %g needs more than %zu grid "
                          "points; use a larger interval, or rdp",
                          shape->sigma, shape->q, shape->step, LOSS_GRID_MAX);
    g->lowest = (int64_t)e.lowest;
    g->n = (size_t)(e.highest - e.lowest) + 1;
    g->mass = calloc(g->n, sizeof *g->mass);
    if (!g->mass)
        return tacit_fail(err, TACIT_NO_MEMORY, "pld accountant: no memory for %zu points", g->n);
    place_middle(g, &p, &e);
    place_low_end(g, &p, &e);
    place_high_end(g, &p, &e);
    return TACIT_OK;
}

void loss_grid_fini(loss_grid *g)
{
    free(g->mass);
    g->mass = NULL;
}
