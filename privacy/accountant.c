#include "privacy/accountant.h"

#include "common/text.h"
#include "privacy/gaussian.h"
#include "privacy/rdp.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static tacit_status rdp_epsilon(const tacit_accountant_options *o, const tacit_event *events,
                                size_t n, double delta, tacit_rdp_mode mode, double *epsilon,
                                double *order, tacit_error *err)
{
    const double *orders = o->n_orders ? o->orders : tacit_rdp_orders;
    size_t n_orders = o->n_orders ? o->n_orders : TACIT_RDP_ORDERS;
    return tacit_rdp_epsilon_over(orders, n_orders, events, n, mode, delta, epsilon, order, err);
}

static tacit_status true_epsilon(const tacit_accountant_options *o, const tacit_event *events,
                                 size_t n, double delta, double *epsilon, double *order,
                                 tacit_error *err)
{
    return rdp_epsilon(o, events, n, delta, TACIT_RDP_TRUE, epsilon, order, err);
}

static tacit_status compat_epsilon(const tacit_accountant_options *o, const tacit_event *events,
                                   size_t n, double delta, double *epsilon, double *order,
                                   tacit_error *err)
{
    return rdp_epsilon(o, events, n, delta, TACIT_RDP_COMPAT, epsilon, order, err);
}

static tacit_status analytic_epsilon(const tacit_accountant_options *o, const tacit_event *events,
                                     size_t n, double delta, double *epsilon, double *order,
                                     tacit_error *err)
{
    (void)o;
    *order = 0;
    return tacit_gaussian_compose(epsilon, events, n, delta, err);
}

static tacit_status pld_epsilon(const tacit_accountant_options *o, const tacit_event *events,
                                size_t n, double delta, double *epsilon, double *order,
                                tacit_error *err)
{
    *order = 0;
    return tacit_pld_epsilon(events, n, delta, &o->grid, epsilon, err);
}

static const tacit_accountant accountants[] = {
    {"pld", false, true, pld_epsilon, {NULL, 0, {0, 0}}},
    {"rdp", true, false, true_epsilon, {NULL, 0, {0, 0}}},
    {"rdp-compat", true, false, compat_epsilon, {NULL, 0, {0, 0}}},
    {"analytic", false, false, analytic_epsilon, {NULL, 0, {0, 0}}},
};

#define ACCOUNTANTS (sizeof accountants / sizeof accountants[0])

tacit_status tacit_accountant_find(const tacit_accountant **out, const char *name, tacit_error *err)
{
    char words[128] = "";
    for (size_t i = 0; i < ACCOUNTANTS; i++) {
        if (strcmp(accountants[i].name, name) == 0) {
            *out = &accountants[i];
            return TACIT_OK;
        }
        size_t used = strlen(words);
        snprintf(words + used, sizeof words - used, "%s%s", i ? ", " : "", accountants[i].name);
    }
    return tacit_fail(err, TACIT_USAGE, "accountant: expected one of %s, found '%s'", words, name);
}

const char *tacit_accountant_name(const tacit_accountant *a)
{
    return a->name;
}

static tacit_status refuse_option(const tacit_accountant *a, const char *what, const char *of,
                                  tacit_error *err)
{
    return tacit_fail(err, TACIT_USAGE, "accountant %s: has no %s; leave it out, or take %s",
                      a->name, what, of);
}

static tacit_status check_options(const tacit_accountant *a,
                                  const tacit_accountant_options *options, tacit_error *err)
{
    if (options->n_orders > 0 && !a->has_orders)
        return refuse_option(a, "orders", "rdp", err);
    if (options->grid.interval != 0 && !a->has_grid)
        return refuse_option(a, "interval", "pld", err);
    if (options->grid.tail != 0 && !a->has_grid)
        return refuse_option(a, "tail", "pld", err);
    return TACIT_OK;
}

tacit_status tacit_accountant_with(tacit_accountant *out, const tacit_accountant *a,
                                   const tacit_accountant_options *options, tacit_error *err)
{
    *out = *a;
    out->options = *options;
    return check_options(a, options, err);
}

static tacit_status check_question(const tacit_event *events, size_t n, double delta,
                                   tacit_error *err)
{
    if (!(delta > 0 && delta < 1))
        return tacit_fail(err, TACIT_BAD_INPUT,
                          "delta: expected a number between 0 and 1, found %g", delta);
    for (size_t i = 1; i < n; i++)
        if (events[i].neighbours != events[0].neighbours)
            return tacit_fail(err, TACIT_BAD_INPUT,
                              "accountant: all events must have the same neighbours");
    return TACIT_OK;
}

/* out[*n_out] = the events that draw anything. The others are checked all the same. */
static tacit_status drawing_events(tacit_event *out, size_t *n_out, const tacit_event *events,
                                   size_t n, tacit_error *err)
{
    *n_out = 0;
    for (size_t i = 0; i < n; i++) {
        tacit_event event = events[i];
        if (event.q != 0) {
            out[(*n_out)++] = event;
            continue;
        }
        event.q = 1;
        tacit_status status = tacit_event_validate(&event, err);
        if (status != TACIT_OK)
            return status;
    }
    return TACIT_OK;
}

tacit_status tacit_accountant_epsilon(const tacit_accountant *a, const tacit_event *events,
                                      size_t n, double delta, double *epsilon, double *order,
                                      tacit_error *err)
{
    tacit_status status;
    double at = 0;
    size_t n_drawing = 0;
    tacit_event *drawing = calloc(n + 1, sizeof *drawing);
    if (!drawing)
        return tacit_fail(err, TACIT_NO_MEMORY, "accountant: no memory for %zu events", n);
    TACIT_TRY(check_question(events, n, delta, err), out);
    TACIT_TRY(drawing_events(drawing, &n_drawing, events, n, err), out);
    status = a->epsilon(&a->options, drawing, n_drawing, delta, epsilon, &at, err);
    if (order)
        *order = at;
out:
    free(drawing);
    return status;
}

/* --- Calibration. --- */

#define SIGMA_LEAST 0.01
#define SIGMA_MOST 1e6
#define COUNT_MOST 0x1p40

static tacit_status check_target(double epsilon, tacit_error *err)
{
    if (epsilon > 0 && epsilon < INFINITY)
        return TACIT_OK;
    return tacit_fail(err, TACIT_BAD_INPUT,
                      "calibration: expected a finite epsilon above 0, found %g", epsilon);
}

/* A search over sigma, or over the count: one event at one budget. */
typedef struct search {
    const tacit_accountant *accountant;
    double epsilon, delta;
    tacit_event event;
    bool counts;
} search;

/* What one question answers. A refused one says nothing about the cost: it steers the search
 * towards less loss, and what lies beside it is no result. */
typedef struct answer {
    double value;  /* of sigma or the count */
    double excess; /* log(cost / epsilon); NAN where refused */
    bool fits, refused;
    tacit_error why; /* where refused */
} answer;

static tacit_status ask(search *s, double value, answer *out, tacit_error *err)
{
    double cost;
    *out = (answer){.value = value, .excess = NAN};
    if (s->counts)
        s->event.count = (uint64_t)value;
    else
        s->event.sigma = value;
    tacit_status status =
        tacit_accountant_epsilon(s->accountant, &s->event, 1, s->delta, &cost, NULL, &out->why);
    if (status == TACIT_REFUSED) {
        out->refused = true;
        return TACIT_OK;
    }
    if (status != TACIT_OK) {
        *err = out->why;
        return status;
    }
    out->excess = log(cost / s->epsilon);
    out->fits = cost <= s->epsilon;
    return TACIT_OK;
}

/* From *at on by factors up to `last`, until an answer is other than *at. *before: the one before.
 */
static tacit_status walk(search *s, double factor, double last, answer *before, answer *at,
                         tacit_error *err)
{
    tacit_status status = TACIT_OK;
    bool fits = at->fits;
    while (at->fits == fits && at->value != last && status == TACIT_OK) {
        double value = factor > 1 ? fmin(at->value * factor, last) : fmax(at->value * factor, last);
        *before = *at;
        status = ask(s, value, at, err);
    }
    return status;
}

/* Relative gap at which a search for sigma ends, and, for either, at which it ends beside a value
 * that is refused: between the two there may be one that costs too much. */
#define SIGMA_GAP 1e-9
#define REFUSED_GAP 1e-3

static double least_gap(const search *s, const answer *fits, const answer *beyond)
{
    double larger = fmax(fits->value, beyond->value), gap = s->counts ? 1 : SIGMA_GAP * larger;
    return beyond->refused ? fmax(gap, REFUSED_GAP * larger) : gap;
}

/* Between the two: where a line through the logarithms says that the cost is the budget, or in the
 * middle; never nearer to either than half the gap sought. */
static double next_value(const search *s, const answer *fits, const answer *beyond, bool middle)
{
    double a = fits->value, b = beyond->value, value = (a + b) / 2;
    double share = fits->excess / (fits->excess - beyond->excess);
    if (!middle && isfinite(fits->excess) && isfinite(beyond->excess) && share >= 0 && share <= 1)
        value = a * exp(share * log(b / a));
    double margin = least_gap(s, fits, beyond) / 2, low = fmin(a, b), high = fmax(a, b);
    value = fmin(high - margin, fmax(low + margin, value));
    return s->counts ? fmin(high - 1, fmax(low + 1, round(value))) : value;
}

/* Narrows the two down, by lines with every third step a halving; an end that stays twice counts
 * for half its excess (the Illinois rule). */
static tacit_status narrow(search *s, answer *fits, answer *beyond, tacit_error *err)
{
    int stays_fits = 0, stays_beyond = 0;
    for (int i = 1; fabs(fits->value - beyond->value) > least_gap(s, fits, beyond); i++) {
        answer at;
        tacit_status status = ask(s, next_value(s, fits, beyond, i % 3 == 0), &at, err);
        if (status != TACIT_OK)
            return status;
        *(at.fits ? fits : beyond) = at;
        stays_fits = at.fits ? 0 : stays_fits + 1;
        stays_beyond = at.fits ? stays_beyond + 1 : 0;
        if (stays_fits > 1)
            fits->excess /= 2;
        if (stays_beyond > 1)
            beyond->excess /= 2;
    }
    return TACIT_OK;
}

/* TACIT_REFUSED where nothing is known to lie between what is refused and the result. */
static tacit_status refuse_beside(const search *s, const answer *beyond, tacit_error *err)
{
    if (!beyond->refused)
        return TACIT_OK;
    return tacit_fail(err, TACIT_REFUSED,
                      "calibration: the search ends where the accountant refuses, at %s %.9g: %s",
                      s->counts ? "steps" : "sigma", beyond->value, beyond->why.message);
}

tacit_status tacit_accountant_calibrate(const tacit_accountant *a, const tacit_event *shape,
                                        double epsilon, double delta, double *sigma,
                                        tacit_error *err)
{
    tacit_status status;
    search s = {a, epsilon, delta, *shape, false};
    answer at, before;
    TACIT_TRY(check_target(epsilon, err), out);
    TACIT_TRY(ask(&s, 1, &at, err), out);
    bool down = at.fits;
    before = at;
    TACIT_TRY(walk(&s, down ? 0.5 : 2, down ? SIGMA_LEAST : SIGMA_MOST, &before, &at, err), out);
    if (!down && !at.fits) {
        TACIT_TRY(refuse_beside(&s, &at, err), out);
        return tacit_fail(err, TACIT_BAD_INPUT,
                          "calibration: no noise multiplier up to %g gives epsilon %g at delta %g; "
                          "ask for a larger epsilon or delta, or fewer steps",
                          SIGMA_MOST, epsilon, delta);
    }
    answer *fits = at.fits ? &at : &before, *beyond = at.fits ? &before : &at;
    if (!beyond->fits) {
        TACIT_TRY(narrow(&s, fits, beyond, err), out);
        TACIT_TRY(refuse_beside(&s, beyond, err), out);
    }
    *sigma = fits->value;
out:
    return status;
}

tacit_status tacit_accountant_calibrate_count(const tacit_accountant *a, const tacit_event *shape,
                                              double epsilon, double delta, uint64_t *count,
                                              tacit_error *err)
{
    tacit_status status;
    search s = {a, epsilon, delta, *shape, true};
    answer at, before;
    TACIT_TRY(check_target(epsilon, err), out);
    TACIT_TRY(ask(&s, 1, &at, err), out);
    if (!at.fits) {
        TACIT_TRY(refuse_beside(&s, &at, err), out);
        return tacit_fail(err, TACIT_BAD_INPUT,
                          "calibration: one step costs epsilon %g already, more than %g; raise "
                          "sigma, or lower q",
                          epsilon * exp(at.excess), epsilon);
    }
    TACIT_TRY(walk(&s, 2, COUNT_MOST, &before, &at, err), out);
    if (at.fits)
        return tacit_fail(err, TACIT_BAD_INPUT,
                          "calibration: 2^40 steps cost epsilon %g, within %g: there is no most; "
                          "ask for fewer by --steps",
                          epsilon * exp(at.excess), epsilon);
    TACIT_TRY(narrow(&s, &before, &at, err), out);
    TACIT_TRY(refuse_beside(&s, &at, err), out);
    *count = (uint64_t)before.value;
out:
    return status;
}

/* Copies the text up to `end` (one of its characters) into a small buffer. */
static bool copy_part(char part[64], const char **text, char end)
{
    const char *stop = end ? strchr(*text, end) : *text + strlen(*text);
    if (!stop || stop - *text >= 64)
        return false;
    memcpy(part, *text, (size_t)(stop - *text));
    part[stop - *text] = '\0';
    *text = end ? stop + 1 : stop;
    return true;
}

/* 0, or from 1e-18 to 1. */
static tacit_status parse_rate(const char *text, double *q, tacit_error *err)
{
    tacit_status status = tacit_parse_f64(text, "event's q", 0, 1, q, err);
    if (status == TACIT_OK && *q > 0 && *q < 1e-18)
        return tacit_fail(err, TACIT_USAGE,
                          "event's q: expected 0, or a number from 1e-18 to 1, found %s", text);
    return status;
}

tacit_status tacit_event_parse(tacit_event *out, const char *text, tacit_neighbours neighbours,
                               tacit_error *err)
{
    tacit_status status;
    char sigma[64], q[64], steps[64];
    const char *at = text;
    if (!copy_part(sigma, &at, ':') || !copy_part(q, &at, ':') || !copy_part(steps, &at, '\0'))
        return tacit_fail(err, TACIT_USAGE,
                          "event: expected SIGMA:Q:STEPS, for instance 1.1:0.01:1000, found '%s'",
                          text);
    out->neighbours = neighbours;
    TACIT_TRY(tacit_parse_f64(sigma, "event's sigma", 1e-3, 1e9, &out->sigma, err), out);
    TACIT_TRY(parse_rate(q, &out->q, err), out);
    status = tacit_parse_u64(steps, "event's steps", 0, (uint64_t)1 << 40, &out->count, err);
out:
    return status;
}

tacit_status tacit_orders_parse(double orders[TACIT_ORDERS_PARSED], size_t *n, const char *text,
                                tacit_error *err)
{
    const char *at = text;
    char word[64];
    bool more = true;
    for (*n = 0; more; ++*n) {
        more = strchr(at, ',') != NULL;
        if (*n == TACIT_ORDERS_PARSED || !copy_part(word, &at, more ? ',' : '\0'))
            return tacit_fail(err, TACIT_USAGE,
                              "orders: expected up to %d numbers between commas, for instance "
                              "1.5,2,8,32, found '%s'",
                              TACIT_ORDERS_PARSED, text);
        tacit_status status = tacit_parse_f64(word, "orders", 1, 1e9, &orders[*n], err);
        if (status != TACIT_OK)
            return status;
    }
    return TACIT_OK;
}

tacit_status tacit_neighbours_parse(tacit_neighbours *out, const char *text, tacit_error *err)
{
    for (int n = TACIT_ADD_REMOVE; n <= TACIT_REPLACE_ONE; n++) {
        *out = (tacit_neighbours)n;
        if (strcmp(text, tacit_neighbours_name(*out)) == 0)
            return TACIT_OK;
    }
    return tacit_fail(err, TACIT_USAGE, "neighbours: expected %s or %s, found '%s'",
                      tacit_neighbours_name(TACIT_ADD_REMOVE),
                      tacit_neighbours_name(TACIT_REPLACE_ONE), text);
}
