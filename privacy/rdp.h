/* Renyi differential privacy (Mironov 2017) of compositions of the Poisson-subsampled Gaussian
 * (Mironov, Talwar and Zhang 2019), over a fixed list of orders, converted to (epsilon, delta) by
 * Canonne, Kamath and Steinke 2020, proposition 12.
 *
 * The account's arithmetic. rho of one run is computed in double per order, raised by a relative
 * 2^-33 and rounded up to a multiple of 2^-64; counts and sums are integer arithmetic, saturating
 * at infinity. So the account does not depend on the order of its events or on how they are
 * grouped, and it never understates. Device, server and auditor on machines of one type get the
 * same bits; across types compare epsilons to 1e-9 relative.
 *
 * Why 2^-33 covers the computation (u = 2^-53; libm within 2 ulp, lgamma within 4; q >= 2^-32, the
 * least an account holds; G = a (a - 1) / (2 s^2), the largest exponent of order a <= 1024):
 *   - the logarithm of a term of the series is a sum of three log-factorials (error at most
 *     16 u ln 1024! = 9.7e4 u), of i log q + (a - i) log(1 - q), at most 1024 * 22.2 in size (error
 *     at most 3 u of it, 6.8e4 u), and of an exponent (error at most 5 u (G + 46)), in five
 *     additions (5 u (3.5e4 + G)): together e <= 3.4e5 u + 10 u G;
 *   - log-sum-exp is a weighted mean of the terms' errors, and its own rounding, over at most 1023
 *     terms within e^-745 of the largest, adds less than 2e3 u: e is the error of L = log(A - 1);
 *   - log A = log(1 + e^L) moves by at most e, and relative to itself by at most e as well, since
 *     log(1 + x) >= x / (1 + x);
 *   - for G <= 4e4 that is 8.3e-11 relative; for larger G, log A is at least G - 2.3e4 and the
 *     relative error below 1e-14.
 * 2^-33 is 1.16e-10. Fractional orders (at most 10.9) have exponents below 300 wherever log A is
 * not large itself, and a quadrature that is exact to e^-50: 1e-12. Held against 60 digits by
 * tests/golden/make_rdp_margin.py. The conversion to epsilon is rounded up by a bound of its own.
 *
 * Pure functions on the caller's memory, any thread. */
#ifndef TACIT_PRIVACY_RDP_H
#define TACIT_PRIVACY_RDP_H

#include "privacy/event.h"

#include <stddef.h>

#define TACIT_RDP_ORDERS 156

/* Ascending: 1.1 to 10.9 by 0.1 with 11 to 63 by 1, then 128, 256, 512, 1024. */
extern const double tacit_rdp_orders[TACIT_RDP_ORDERS];

typedef enum tacit_rdp_mode {
    TACIT_RDP_TRUE,  /* fractional orders at their true value */
    TACIT_RDP_COMPAT /* as Google's dp-accounting 0.6.0 returns them: fractional orders from the
                      * series of absolute values (an upper bound; orders that do not converge are
                      * dropped), replace-one without the doubled sensitivity. For comparison
                      * only: it never enforces a cap. */
} tacit_rdp_mode;

/* Zero-initialised: nothing ran. rho = fixed point, 2^-64; all ones: infinite. */
typedef struct tacit_rdp {
    unsigned __int128 rho[TACIT_RDP_ORDERS];
} tacit_rdp;

/* Adds an event. replace-one: q = 1 has sensitivity 2 (sigma / 2); q < 1 is refused
 * (TACIT_REFUSED), because no tight bound at all orders is known here: use the pld accountant. */
tacit_status tacit_rdp_add(tacit_rdp *account, const tacit_event *event, tacit_rdp_mode mode,
                           tacit_error *err) TACIT_MUST_CHECK;

/* The same of one order alone, mode TRUE, at a hundredth of the time: *rho += that of the event, in
 * the account's fixed point. Equal to the account's at integer orders, within 1e-10 at others. */
tacit_status tacit_rdp_add_at(unsigned __int128 *rho, const tacit_event *event, size_t order_index,
                              tacit_error *err) TACIT_MUST_CHECK;

/* account += other, for accounts kept apart and joined. */
void tacit_rdp_join(tacit_rdp *account, const tacit_rdp *other);

/* The least epsilon over the orders; +inf when no order is finite (or delta is 0 and anything ran).
 * delta in [0, 1]. *order (may be NULL) receives the order that gave it, 0 when none did. */
double tacit_rdp_epsilon(const tacit_rdp *account, double delta, double *order);

/* The same of `events` over orders of the caller's choice, n_orders of them, ascending, above 1.01
 * and at most 1024: for questions. Accounts keep to tacit_rdp_orders. (Below sigma 0.05 a
 * fractional order has an upper bound in both lists: the chord between its integer neighbours, or q
 * = 1.) */
#define TACIT_RDP_ORDERS_MAX 1000000
tacit_status tacit_rdp_epsilon_over(const double *orders, size_t n_orders,
                                    const tacit_event *events, size_t n, tacit_rdp_mode mode,
                                    double delta, double *epsilon, double *order,
                                    tacit_error *err) TACIT_MUST_CHECK;

/* The least delta for epsilon >= 0. */
double tacit_rdp_delta(const tacit_rdp *account, double epsilon);

/* Epsilon at one order alone. A cap on adaptively chosen plans is a filter (Feldman and Zrnic
 * 2021) only at an order fixed beforehand: tacit_rdp_filter_order gives the index of the order
 * under which the most plain Gaussian noise fits below (epsilon, delta). */
double tacit_rdp_epsilon_at(const tacit_rdp *account, size_t order_index, double delta);
size_t tacit_rdp_filter_order(double epsilon, double delta);

/* rho(order) of one run; order > 1, any value. +inf where the mode has no value. */
double tacit_rdp_one(double order, double sigma, double q, tacit_rdp_mode mode);

/* (epsilon, delta) of a bare rho at `order`: the conversion of one order, never below the exact
 * value for these doubles. */
double tacit_rdp_to_epsilon(double order, double rho, double delta);

#endif
