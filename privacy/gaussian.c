#include "privacy/gaussian.h"

#include <math.h>

double tacit_log_normal_cdf(double x)
{
    if (x > 0)
        return log1p(-erfc(x * M_SQRT1_2) / 2);
    if (x > -37)
        return log(erfc(-x * M_SQRT1_2) / 2);
    /* Phi(x) = phi(x) / -x (1 - 1/x^2 + 3/x^4 - ...): the sixth term is under 1e-14 here. */
    double s = 1 / (x * x), tail = 1, term = 1;
    for (int k = 1; k <= 6; k++) {
        term *= -(2 * k - 1) * s;
        tail += term;
    }
    return -x * x / 2 - log(-x) - 0.91893853320467274178 + log(tail);
}

double tacit_gaussian_log_delta(double epsilon, double mu)
{
    double near = tacit_log_normal_cdf(mu / 2 - epsilon / mu);
    double far = epsilon + tacit_log_normal_cdf(-mu / 2 - epsilon / mu);
    return far < near ? near + log1p(-exp(far - near)) : -INFINITY;
}

/* Units in the last place, 2^-53, that every part of log delta is allowed: libm's and those of mu.
 */
#define MARGIN_UNITS 0x1p-49

/* log delta, no lower than the exact value. With s = mu / 2 + epsilon / mu + 1, the arguments of
 * Phi are off by units of s, log Phi moves by less than 1 + |x| <= s for each, and it is of the
 * size of s^2 itself; epsilon is added. The difference of the two terms magnifies what they are off
 * by 1 / (1 - far / near). */
static double log_delta_above(double epsilon, double mu)
{
    double near = tacit_log_normal_cdf(mu / 2 - epsilon / mu), s = mu / 2 + epsilon / mu + 1;
    double log_delta = tacit_gaussian_log_delta(epsilon, mu);
    if (log_delta == -INFINITY) /* near and far cannot be told apart */
        return near;
    double share = exp(log_delta - near); /* 1 - far / near */
    return fmin(near, log_delta + MARGIN_UNITS * (2 * s * s + epsilon) / share);
}

double tacit_gaussian_epsilon(double delta, double mu)
{
    if (mu == 0)
        return 0;
    double target = log(delta);
    if (log_delta_above(0, mu) <= target)
        return 0;
    double low = 0, high = 1;
    while (log_delta_above(high, mu) > target)
        high *= 2;
    for (;;) {
        double middle = low + (high - low) / 2;
        if (middle <= low || middle >= high)
            return high;
        if (log_delta_above(middle, mu) > target)
            low = middle;
        else
            high = middle;
    }
}

static tacit_status check_delta(double delta, tacit_error *err)
{
    if (delta > 0 && delta < 1)
        return TACIT_OK;
    return tacit_fail(err, TACIT_BAD_INPUT, "delta: expected a number between 0 and 1, found %g",
                      delta);
}

tacit_status tacit_gaussian_compose(double *epsilon, const tacit_event *events, size_t n,
                                    double delta, tacit_error *err)
{
    tacit_status status;
    double squares = 0;
    TACIT_TRY(check_delta(delta, err), out);
    for (size_t i = 0; i < n; i++) {
        TACIT_TRY(tacit_event_validate(&events[i], err), out);
        if (events[i].q != 1)
            return tacit_fail(err, TACIT_REFUSED,
                              "analytic accountant: exact for q = 1 only, found q = %g; use pld",
                              events[i].q);
        double mu = (events[i].neighbours == TACIT_REPLACE_ONE ? 2 : 1) / events[i].sigma;
        squares += mu * mu * (double)events[i].count;
    }
    *epsilon = tacit_gaussian_epsilon(delta, sqrt(squares));
out:
    return status;
}

tacit_status tacit_gaussian_calibrate(double *sigma, double epsilon, double delta, uint64_t count,
                                      tacit_error *err)
{
    tacit_status status = check_delta(delta, err);
    if (status != TACIT_OK)
        return status;
    if (!(epsilon > 0 && epsilon < 1e6) || count == 0)
        return tacit_fail(err, TACIT_BAD_INPUT,
                          "calibration: expected epsilon between 0 and 1e6 and at least one run, "
                          "found epsilon %g",
                          epsilon);
    double low = 0, high = 1, target = log(delta);
    while (log_delta_above(epsilon, 1 / high) > target)
        low = high, high *= 2;
    while (high - low > 1e-12 * high) {
        double middle = (low + high) / 2;
        if (log_delta_above(epsilon, 1 / middle) > target)
            low = middle;
        else
            high = middle;
    }
    *sigma = high * sqrt((double)count) * (1 + 4e-16);
    return TACIT_OK;
}
