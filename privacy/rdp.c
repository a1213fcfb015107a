#include "privacy/rdp.h"

#include "privacy/gaussian.h"

#include <inttypes.h>
#include <math.h>
#include <stdbool.h>
#include <stdlib.h>

/* Notation: one run at order a has rho = log A / (a - 1), A = E over x ~ N(0, s^2) of (1 + u)^a,
 * u(x) = q (e^z - 1), z(x) = (2x - 1) / (2 s^2). E[u] = 0, so A - 1 is the mean of the excess
 * (1 + u)^a - 1 - a u, which is nowhere negative: summing that keeps full relative accuracy where
 * A is 1 to many digits (small q), and log A = log1p of it. */

#define INTEGER_ORDER_MAX 1024
#define INFINITE (~(unsigned __int128)0)

const double tacit_rdp_orders[TACIT_RDP_ORDERS] = {
#include "privacy/rdp_orders.inc"
};

static bool is_integer(double order)
{
    return order == floor(order) && order <= INTEGER_ORDER_MAX;
}

/* --- Integer orders: the binomial series, all of whose terms are positive. --- */

typedef struct integer_terms {
    double log_q, log_rest;                      /* log q, log(1 - q) */
    double log_factorial[INTEGER_ORDER_MAX + 1]; /* of i */
    double log_growth[INTEGER_ORDER_MAX + 1];    /* log(e^(i (i - 1) / (2 s^2)) - 1), i >= 2 */
} integer_terms;

static double log_expm1(double x)
{
    return x > 40 ? x : log(expm1(x));
}

static void integer_terms_fill(integer_terms *t, double sigma, double q, int order_max)
{
    t->log_q = log(q);
    t->log_rest = log1p(-q);
    for (int i = 0; i <= order_max; i++) {
        int sign;
        t->log_factorial[i] = lgamma_r(i + 1.0, &sign);
        t->log_growth[i] = i < 2 ? -INFINITY : log_expm1(i * (i - 1.0) / (2 * sigma * sigma));
    }
}

/* log(e^x + 1). */
static double softplus(double x)
{
    return x > 0 ? x + log1p(exp(-x)) : log1p(exp(x));
}

static double integer_log_a(const integer_terms *t, int order)
{
    double term[INTEGER_ORDER_MAX + 1], largest = -INFINITY, sum = 0;
    for (int i = 2; i <= order; i++) {
        term[i] = t->log_factorial[order] - t->log_factorial[i] - t->log_factorial[order - i] +
                  i * t->log_q + (order - i) * t->log_rest + t->log_growth[i];
        largest = fmax(largest, term[i]);
    }
    for (int i = 2; i <= order; i++)
        sum += exp(term[i] - largest);
    return softplus(largest + log(sum));
}

/* --- Fractional orders: trapezoid sums, which converge geometrically because the integrand is
 * analytic for |Im x| < pi s^2. With step min(s, s^2) / 3 the error is below e^-50 of the sum,
 * and so is what lies outside [-10 s, max(a, 2) + 10 s]. --- */

#define QUADRATURE_SIGMA_MIN 0.05

typedef struct node {
    double u, log_u, log1p_u; /* log_u only where u > LARGE_U */
    double log_weight;        /* step times density of N(0, s^2) */
} node;

typedef struct quadrature {
    size_t n;
    node *node;
} quadrature;

#define LARGE_U 1e3

static node node_at(double x, double step, double sigma, double q)
{
    double z = (2 * x - 1) / (2 * sigma * sigma);
    node p = {.u = q * expm1(z)};
    if (p.u > LARGE_U) { /* q e^z may overflow; its logarithm does not */
        p.log_u = log(q) + z + log1p(-exp(-z));
        p.log1p_u = p.log_u + log1p(exp(-p.log_u));
    } else {
        p.log1p_u = log1p(p.u);
    }
    p.log_weight = log(step / sigma) - 0.91893853320467274178 - x * x / (2 * sigma * sigma);
    return p;
}

static bool quadrature_init(quadrature *quad, double sigma, double q, double order_max)
{
    double step = fmin(sigma, sigma * sigma) / 3;
    double from = -10 * sigma, to = fmax(order_max, 2) + 10 * sigma;
    quad->n = (size_t)ceil((to - from) / step) + 1;
    quad->node = malloc(quad->n * sizeof *quad->node);
    for (size_t k = 0; quad->node && k < quad->n; k++)
        quad->node[k] = node_at(from + (double)k * step, step, sigma, q);
    return quad->node != NULL;
}

/* The excess at one node times its weight times e^-shift. */
static double node_excess(const node *p, double a, double shift)
{
    double log_weight = p->log_weight - shift, au = a * p->u;
    if (p->u > LARGE_U) {
        double log_linear = log(a) + p->log_u; /* of a u; log1p adds the 1 */
        return exp(a * p->log1p_u + log_weight) -
               exp(log_linear + log1p(exp(-log_linear)) + log_weight);
    }
    if (a * p->log1p_u > 40) /* the power alone may overflow */
        return exp(a * p->log1p_u + log_weight) - (1 + au) * exp(log_weight);
    if (fabs(au) >= 0.1)
        return (expm1(a * p->log1p_u) - au) * exp(log_weight);
    double term = a * (a - 1) / 2 * p->u * p->u, sum = 0;
    for (int j = 3; fabs(term) > 1e-18 * sum; j++) { /* the rest of the binomial series */
        sum += term;
        term *= (a - j + 1) / j * p->u;
    }
    return sum * exp(log_weight);
}

/* What keeps the largest term of A in range: its logarithm, less 600. 0 where none is large, as at
 * all orders of a small rho, whose digits lie in A - 1. */
static double node_shift(const quadrature *quad, double a)
{
    double largest = 0;
    for (size_t k = 0; k < quad->n; k++)
        largest = fmax(largest, a * quad->node[k].log1p_u + quad->node[k].log_weight);
    return fmax(0, largest - 600);
}

static double quadrature_log_a(const quadrature *quad, double a)
{
    double shift = node_shift(quad, a), sum = 0;
    for (size_t k = 0; k < quad->n; k++)
        sum += node_excess(&quad->node[k], a, shift);
    return shift > 0 ? log(sum) + shift : log1p(sum);
}

/* log A is convex in a and 0 at a = 1: the chord between integer orders is an upper bound, and so
 * is the value at q = 1. They serve noise multipliers under QUADRATURE_SIGMA_MIN, whose epsilon is
 * in the hundreds. */
static double chord_log_a(const integer_terms *t, double sigma, double a)
{
    double below = floor(a), share = a - below;
    double low = below < 2 ? 0 : integer_log_a(t, (int)below);
    double high = integer_log_a(t, (int)below + 1);
    return fmin(low + share * (high - low), a * (a - 1) / (2 * sigma * sigma));
}

/* --- The reference's values. Its series is that of Mironov, Talwar and Zhang 2019, section 3.3,
 * but with the absolute value of every binomial coefficient. --- */

#define COMPAT_TERMS 1000

static double log_erfc(double x)
{
    return M_LN2 + tacit_log_normal_cdf(-x * M_SQRT2);
}

static double log_add(double a, double b)
{
    double high = fmax(a, b), low = fmin(a, b);
    return low == -INFINITY ? high : high + log1p(exp(low - high));
}

static double log_abs_binomial(double a, double i)
{
    int sign;
    return lgamma_r(a + 1, &sign) - lgamma_r(i + 1, &sign) - lgamma_r(a - i + 1, &sign);
}

/* +inf where the series has not converged after COMPAT_TERMS: the reference drops that order. */
static double compat_log_a(double sigma, double q, double a)
{
    double s2 = 2 * sigma * sigma, root = M_SQRT2 * sigma, log_q = log(q), log_rest = log1p(-q);
    double z0 = sigma * sigma * log(1 / q - 1) + 0.5;
    double total = -INFINITY, last0 = -INFINITY, last1 = -INFINITY;
    for (int i = 0; i < COMPAT_TERMS; i++) {
        double j = a - i, b = log_abs_binomial(a, i);
        double s0 =
            b + i * log_q + j * log_rest + i * (i - 1.0) / s2 - M_LN2 + log_erfc((i - z0) / root);
        double s1 =
            b + j * log_q + i * log_rest + j * (j - 1) / s2 - M_LN2 + log_erfc((z0 - j) / root);
        total = log_add(total, log_add(s0, s1));
        if (s0 < last0 && s1 < last1 && fmax(s0, s1) < total - 30)
            return total;
        last0 = s0;
        last1 = s1;
    }
    return INFINITY;
}

/* --- One run at one order. --- */

/* What the orders of one event share. */
typedef struct run {
    double sigma, q;
    tacit_rdp_mode mode;
    integer_terms terms;
    quadrature quad;
} run;

static bool run_init(run *r, double sigma, double q, tacit_rdp_mode mode, int integer_max,
                     double fractional_max)
{
    r->sigma = sigma;
    r->q = q;
    r->mode = mode;
    r->quad = (quadrature){0, NULL};
    if (q == 1)
        return true;
    integer_terms_fill(&r->terms, sigma, q, integer_max);
    bool quadrature_needed =
        mode == TACIT_RDP_TRUE && sigma >= QUADRATURE_SIGMA_MIN && fractional_max > 0;
    return !quadrature_needed || quadrature_init(&r->quad, sigma, q, fractional_max);
}

static double run_rho(const run *r, double order)
{
    if (r->q == 1)
        return order / (2 * r->sigma * r->sigma);
    double log_a;
    if (is_integer(order))
        log_a = integer_log_a(&r->terms, (int)order);
    else if (r->mode == TACIT_RDP_COMPAT)
        log_a = compat_log_a(r->sigma, r->q, order);
    else if (r->quad.node)
        log_a = quadrature_log_a(&r->quad, order);
    else if (order < INTEGER_ORDER_MAX)
        log_a = chord_log_a(&r->terms, r->sigma, order);
    else
        log_a = INFINITY;
    return log_a / (order - 1);
}

double tacit_rdp_one(double order, double sigma, double q, tacit_rdp_mode mode)
{
    run *r = malloc(sizeof *r);
    int integer_max = (int)fmin(INTEGER_ORDER_MAX, floor(order) + 1);
    if (!r || !run_init(r, sigma, q, mode, integer_max, order)) {
        free(r);
        return INFINITY;
    }
    double rho = run_rho(r, order);
    free(r->quad.node);
    free(r);
    return rho;
}

/* --- The account. --- */

#define RHO_MARGIN 0x1p-33 /* privacy/rdp.h derives it */

static unsigned __int128 to_fixed(double rho)
{
    double raised = ldexp(rho * (1 + RHO_MARGIN), 64);
    return raised >= 0 && raised < 0x1p126 ? (unsigned __int128)raised + 1 : INFINITE;
}

static double from_fixed(unsigned __int128 rho)
{
    return rho == INFINITE ? INFINITY : ldexp((double)rho, -64);
}

static unsigned __int128 saturating_add(unsigned __int128 a, unsigned __int128 b)
{
    unsigned __int128 sum;
    return __builtin_add_overflow(a, b, &sum) ? INFINITE : sum;
}

static unsigned __int128 saturating_multiply(unsigned __int128 a, uint64_t count)
{
    unsigned __int128 product;
    bool over = __builtin_mul_overflow(a, (unsigned __int128)count, &product);
    return over && count > 0 ? INFINITE : product;
}

/* A list of orders, ascending. */
typedef struct order_list {
    const double *order;
    size_t n;
} order_list;

static const order_list account_orders = {tacit_rdp_orders, TACIT_RDP_ORDERS};

static double largest_fractional_order(const order_list *l)
{
    double largest = 0;
    for (size_t i = 0; i < l->n; i++)
        if (!is_integer(l->order[i]))
            largest = l->order[i];
    return largest;
}

/* An order that lies between two needs the terms of the next. */
static int largest_integer_order(const order_list *l)
{
    return (int)fmin(INTEGER_ORDER_MAX, floor(l->order[l->n - 1]) + 1);
}

/* Sensitivity in units of the clip norm, or 0 when this accountant cannot say. */
static double event_sensitivity(const tacit_event *event, tacit_rdp_mode mode)
{
    if (event->neighbours == TACIT_ADD_REMOVE)
        return 1;
    if (event->q < 1)
        return 0;
    return mode == TACIT_RDP_COMPAT ? 1 : 2;
}

/* rho[i] of l->order[i] += an event. */
static tacit_status add_event(unsigned __int128 *rho, const order_list *l, const tacit_event *event,
                              tacit_rdp_mode mode, tacit_error *err)
{
    tacit_status status = tacit_event_validate(event, err);
    if (status != TACIT_OK)
        return status;
    double sensitivity = event_sensitivity(event, mode);
    if (sensitivity == 0)
        return tacit_fail(err, TACIT_REFUSED,
                          "rdp accountant: replace-one neighbours with sampling (q = %g) have no "
                          "bound here; use the pld accountant, q = 1, or add-remove neighbours",
                          event->q);
    run *r = malloc(sizeof *r);
    if (!r || !run_init(r, event->sigma / sensitivity, event->q, mode, largest_integer_order(l),
                        largest_fractional_order(l))) {
        free(r);
        return tacit_fail(err, TACIT_NO_MEMORY, "rdp accountant: no memory");
    }
    for (size_t i = 0; i < l->n; i++) {
        unsigned __int128 one = to_fixed(run_rho(r, l->order[i]));
        rho[i] = saturating_add(rho[i], saturating_multiply(one, event->count));
    }
    free(r->quad.node);
    free(r);
    return TACIT_OK;
}

tacit_status tacit_rdp_add(tacit_rdp *account, const tacit_event *event, tacit_rdp_mode mode,
                           tacit_error *err)
{
    return add_event(account->rho, &account_orders, event, mode, err);
}

tacit_status tacit_rdp_add_at(unsigned __int128 *rho, const tacit_event *event, size_t order_index,
                              tacit_error *err)
{
    const order_list one = {&tacit_rdp_orders[order_index], 1};
    return add_event(rho, &one, event, TACIT_RDP_TRUE, err);
}

void tacit_rdp_join(tacit_rdp *account, const tacit_rdp *other)
{
    for (size_t i = 0; i < TACIT_RDP_ORDERS; i++)
        account->rho[i] = saturating_add(account->rho[i], other->rho[i]);
}

/* --- Conversions. --- */

/* Sixteen units in the last place of the parts: rho as converted from fixed point, three functions
 * of libm, the difference that gave delta, and the additions; the parts may cancel. */
static double conversion_margin(double order, double rho, double log_delta)
{
    return 0x1p-49 * (1 + rho + (1 + fabs(log_delta)) / (order - 1));
}

double tacit_rdp_to_epsilon(double order, double rho, double delta)
{
    if (!(order > 1.01) || !(rho < INFINITY))
        return INFINITY;
    if (rho <= 0)
        return 0;
    if (delta <= 0)
        return INFINITY;
    /* The total variation is at most sqrt(1 - e^-KL) (Bretagnolle and Huber 1979), KL <= rho. */
    if (delta * delta + expm1(-rho) > 0)
        return 0;
    double log_delta = log(delta * order);
    double epsilon = rho + log1p(-1 / order) - log_delta / (order - 1);
    return fmax(0, epsilon + conversion_margin(order, rho, log_delta));
}

double tacit_rdp_epsilon_at(const tacit_rdp *account, size_t order_index, double delta)
{
    return tacit_rdp_to_epsilon(tacit_rdp_orders[order_index],
                                from_fixed(account->rho[order_index]), delta);
}

static double least_epsilon(const unsigned __int128 *rho, const order_list *l, double delta,
                            double *order)
{
    double best = INFINITY, at = 0;
    for (size_t i = 0; i < l->n; i++) {
        double epsilon = tacit_rdp_to_epsilon(l->order[i], from_fixed(rho[i]), delta);
        if (epsilon < best) {
            best = epsilon;
            at = l->order[i];
        }
    }
    if (order)
        *order = at;
    return best;
}

double tacit_rdp_epsilon(const tacit_rdp *account, double delta, double *order)
{
    return least_epsilon(account->rho, &account_orders, delta, order);
}

static tacit_status check_orders(const order_list *l, tacit_error *err)
{
    for (size_t i = 0; i < l->n; i++)
        if (!(l->order[i] > 1.01 && l->order[i] <= INTEGER_ORDER_MAX &&
              (i == 0 || l->order[i] > l->order[i - 1])))
            return tacit_fail(err, TACIT_BAD_INPUT,
                              "rdp accountant: expected ascending orders above 1.01 and at most "
                              "%d, found %g in place %zu",
                              INTEGER_ORDER_MAX, l->order[i], i + 1);
    if (l->n > 0 && l->n <= TACIT_RDP_ORDERS_MAX)
        return TACIT_OK;
    return tacit_fail(err, TACIT_BAD_INPUT, "rdp accountant: expected 1 to %d orders, found %zu",
                      TACIT_RDP_ORDERS_MAX, l->n);
}

tacit_status tacit_rdp_epsilon_over(const double *orders, size_t n_orders,
                                    const tacit_event *events, size_t n, tacit_rdp_mode mode,
                                    double delta, double *epsilon, double *order, tacit_error *err)
{
    const order_list l = {orders, n_orders};
    tacit_status status;
    unsigned __int128 *rho = NULL;
    TACIT_TRY(check_orders(&l, err), out);
    rho = calloc(n_orders, sizeof *rho);
    if (!rho) {
        status = tacit_fail(err, TACIT_NO_MEMORY, "rdp accountant: no memory");
        goto out;
    }
    for (size_t i = 0; i < n; i++)
        TACIT_TRY(add_event(rho, &l, &events[i], mode, err), out);
    *epsilon = least_epsilon(rho, &l, delta, order);
out:
    free(rho);
    return status;
}

static double log_delta_at(double order, double rho, double epsilon)
{
    if (!(order > 1.01) || !(rho < INFINITY))
        return 0;
    if (rho <= 0)
        return -INFINITY;
    double variation = 0.5 * log1p(-exp(-rho));
    double tail = (order - 1) * (rho - epsilon + log1p(-1 / order)) - log(order);
    return fmin(variation, tail);
}

double tacit_rdp_delta(const tacit_rdp *account, double epsilon)
{
    double best = 0;
    for (size_t i = 0; i < TACIT_RDP_ORDERS; i++)
        best = fmin(best, log_delta_at(tacit_rdp_orders[i], from_fixed(account->rho[i]), epsilon));
    return exp(best);
}

size_t tacit_rdp_filter_order(double epsilon, double delta)
{
    size_t best = 0;
    double most = -INFINITY;
    for (size_t i = 0; i < TACIT_RDP_ORDERS; i++) {
        double a = tacit_rdp_orders[i];
        double rate = (epsilon - log1p(-1 / a) + log(delta * a) / (a - 1)) / a;
        if (rate > most) {
            most = rate;
            best = i;
        }
    }
    return best;
}
