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
#define COUNT_MOST ((uint64_t)1 << 40)

static tacit_status check_target(double epsilon, tacit_error *err)
{
    if (epsilon > 0 && epsilon < INFINITY)
        return TACIT_OK;
    return tacit_fail(err, TACIT_BAD_INPUT,
                      "calibration: expected a finite epsilon above 0, found %g", epsilon);
}

tacit_status tacit_accountant_calibrate(const tacit_accountant *a, const tacit_event *shape,
                                        double epsilon, double delta, double *sigma,
                                        tacit_error *err)
{
    tacit_status status;
    tacit_event event = *shape;
    double low = SIGMA_LEAST, high = 1, cost;
    TACIT_TRY(check_target(epsilon, err), out);
    event.sigma = high;
    TACIT_TRY(tacit_accountant_epsilon(a, &event, 1, delta, &cost, NULL, err), out);
    while (cost > epsilon) {
        low = high;
        high *= 2;
        if (high > SIGMA_MOST)
            return tacit_fail(err, TACIT_BAD_INPUT,
                              "calibration: no noise multiplier up to %g gives epsilon %g at delta "
                              "%g; ask for a larger epsilon or delta, or fewer steps",
                              SIGMA_MOST, epsilon, delta);
        event.sigma = high;
        TACIT_TRY(tacit_accountant_epsilon(a, &event, 1, delta, &cost, NULL, err), out);
    }
    while (high - low > 1e-9 * high) {
        event.sigma = (low + high) / 2;
        TACIT_TRY(tacit_accountant_epsilon(a, &event, 1, delta, &cost, NULL, err), out);
        *(cost > epsilon ? &low : &high) = event.sigma;
    }
    *sigma = high;
out:
    return status;
}

/* Doubles the count until it costs too much, then halves the gap. */
tacit_status tacit_accountant_calibrate_count(const tacit_accountant *a, const tacit_event *shape,
                                              double epsilon, double delta, uint64_t *count,
                                              tacit_error *err)
{
    tacit_status status;
    tacit_event event = *shape;
    uint64_t low = 0, high = COUNT_MOST + 1; /* fits; does not, or is not asked */
    double cost;
    TACIT_TRY(check_target(epsilon, err), out);
    event.count = 1;
    while (high - low > 1) {
        TACIT_TRY(tacit_accountant_epsilon(a, &event, 1, delta, &cost, NULL, err), out);
        *(cost > epsilon ? &high : &low) = event.count;
        event.count = high > COUNT_MOST && low <= COUNT_MOST / 2 ? 2 * low : low + (high - low) / 2;
    }
    if (low == 0)
        status = tacit_fail(err, TACIT_BAD_INPUT,
                            "calibration: one step costs epsilon %g already, more than %g; raise "
                            "sigma, or lower q",
                            cost, epsilon);
    else if (low == COUNT_MOST)
        status = tacit_fail(err, TACIT_BAD_INPUT,
                            "calibration: 2^40 steps cost epsilon %g, within %g: there is no most; "
                            "ask for fewer by --steps",
                            cost, epsilon);
    *count = low;
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
