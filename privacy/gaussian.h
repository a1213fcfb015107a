/* The Gaussian mechanism exactly (Balle and Wang 2018, theorem 8):
 *   delta(epsilon) = Phi(mu/2 - epsilon/mu) - e^epsilon Phi(-mu/2 - epsilon/mu),
 * with mu = sensitivity / sigma. `count` runs of it are one with mu sqrt(count); runs with
 * different mu compose as the root of the sum of squares. Evaluated in logarithms.
 *
 * Pure functions, any thread. */
#ifndef TACIT_PRIVACY_GAUSSIAN_H
#define TACIT_PRIVACY_GAUSSIAN_H

#include "privacy/event.h"

#include <stddef.h>

/* log Phi(x) of the standard normal, accurate in relative terms far into the left tail. */
double tacit_log_normal_cdf(double x);

/* Natural logarithm of delta(epsilon); epsilon >= 0, mu > 0. */
double tacit_gaussian_log_delta(double epsilon, double mu);

/* The exact epsilon for delta in (0, 1), mu >= 0; 0 when delta covers it. */
double tacit_gaussian_epsilon(double delta, double mu);

/* The exact epsilon of events with q = 1 alone (TACIT_REFUSED otherwise); replace-one doubles the
 * sensitivity. */
tacit_status tacit_gaussian_compose(double *epsilon, const tacit_event *events, size_t n,
                                    double delta, tacit_error *err) TACIT_MUST_CHECK;

/* The least noise multiplier for `count` runs with q = 1 (to 1e-12 relative, on the private side),
 * add-remove. */
tacit_status tacit_gaussian_calibrate(double *sigma, double epsilon, double delta, uint64_t count,
                                      tacit_error *err) TACIT_MUST_CHECK;

#endif
