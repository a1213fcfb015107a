#include "privacy/accountant.h"

#include "common/text.h"
#include "privacy/gaussian.h"
#include "privacy/pld.h"
#include "privacy/rdp.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

struct tacit_accountant {
    const char *name;
    tacit_status (*epsilon)(const tacit_event *events, size_t n, double delta, double *epsilon,
                            double *order, tacit_error *err);
};

static tacit_status rdp_epsilon(const tacit_event *events, size_t n, double delta,
                                tacit_rdp_mode mode, double *epsilon, double *order,
                                tacit_error *err)
{
    tacit_rdp account = {0};
    for (size_t i = 0; i < n; i++) {
        tacit_status status = tacit_rdp_add(&account, &events[i], mode, err);
        if (status != TACIT_OK)
            return status;
    }
    *epsilon = tacit_rdp_epsilon(&account, delta, order);
    return TACIT_OK;
}

static tacit_status true_epsilon(const tacit_event *events, size_t n, double delta, double *epsilon,
                                 double *order, tacit_error *err)
{
    return rdp_epsilon(events, n, delta, TACIT_RDP_TRUE, epsilon, order, err);
}

static tacit_status compat_epsilon(const tacit_event *events, size_t n, double delta,
                                   double *epsilon, double *order, tacit_error *err)
{
    return rdp_epsilon(events, n, delta, TACIT_RDP_COMPAT, epsilon, order, err);
}

static tacit_status analytic_epsilon(const tacit_event *events, size_t n, double delta,
                                     double *epsilon, double *order, tacit_error *err)
{
    *order = 0;
    return tacit_gaussian_compose(epsilon, events, n, delta, err);
}

static tacit_status pld_epsilon(const tacit_event *events, size_t n, double delta, double *epsilon,
                                double *order, tacit_error *err)
{
    *order = 0;
    return tacit_pld_epsilon(events, n, delta, 0, epsilon, err);
}

static const tacit_accountant accountants[] = {
    {"pld", pld_epsilon},
    {"rdp", true_epsilon},
    {"rdp-compat", compat_epsilon},
    {"analytic", analytic_epsilon},
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

tacit_status tacit_accountant_epsilon(const tacit_accountant *a, const tacit_event *events,
                                      size_t n, double delta, double *epsilon, double *order,
                                      tacit_error *err)
{
    double at = 0;
    if (!(delta > 0 && delta < 1))
        return tacit_fail(err, TACIT_BAD_INPUT,
                          "delta: expected a number between 0 and 1, found %g", delta);
    for (size_t i = 1; i < n; i++)
        if (events[i].neighbours != events[0].neighbours)
            return tacit_fail(err, TACIT_BAD_INPUT,
                              "accountant: all events must have the same neighbours");
    tacit_status status = a->epsilon(events, n, delta, epsilon, &at, err);
    if (order)
        *order = at;
    return status;
}

#define SIGMA_LEAST 0.01
#define SIGMA_MOST 1e6

tacit_status tacit_accountant_calibrate(const tacit_accountant *a, const tacit_event *shape,
                                        double epsilon, double delta, double *sigma,
                                        tacit_error *err)
{
    tacit_status status;
    tacit_event event = *shape;
    double low = SIGMA_LEAST, high = 1, cost;
    if (!(epsilon > 0 && epsilon < INFINITY))
        return tacit_fail(err, TACIT_BAD_INPUT,
                          "calibration: expected a finite epsilon above 0, found %g", epsilon);
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
    TACIT_TRY(tacit_parse_f64(q, "event's q", 1e-18, 1, &out->q, err), out);
    status = tacit_parse_u64(steps, "event's steps", 0, (uint64_t)1 << 40, &out->count, err);
out:
    return status;
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
