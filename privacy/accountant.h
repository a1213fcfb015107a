/* The accountants behind one call: from a list of events and delta to epsilon, and from epsilon to
 * the least noise or the most steps. Rows of a table; the command line and reports name them by
 * word.
 *
 *   pld         privacy/pld.h: tight, for a schedule fixed beforehand
 *   rdp         privacy/rdp.h, true orders: what accounts hold several schedules to
 *   rdp-compat  privacy/rdp.h, as the reference prints it: for comparison only
 *   analytic    privacy/gaussian.h: exact, q = 1 only
 *
 * Pure functions, any thread. */
#ifndef TACIT_PRIVACY_ACCOUNTANT_H
#define TACIT_PRIVACY_ACCOUNTANT_H

#include "privacy/pld.h"

#include <stdbool.h>
#include <stddef.h>

/* How an accountant computes; 0 in a field is its default. */
typedef struct tacit_accountant_options {
    const double *orders; /* rdp, rdp-compat: ascending, above 1.01, at most 1024; default: the 156
                           * of tacit_rdp_orders. The caller's, for as long as it is used */
    size_t n_orders;
    tacit_pld_grid grid; /* pld: step and tails; the defaults follow from the events (pld.h) */
} tacit_accountant_options;

/* A row of the table, or a copy of one with options; its fields are read by accountant.c alone. */
typedef struct tacit_accountant tacit_accountant;
struct tacit_accountant {
    const char *name;
    bool has_orders, has_grid; /* which options it takes */
    tacit_status (*epsilon)(const tacit_accountant_options *options, const tacit_event *events,
                            size_t n, double delta, double *epsilon, double *order,
                            tacit_error *err);
    tacit_accountant_options options;
};

/* The row of a word; TACIT_USAGE lists the words. */
tacit_status tacit_accountant_find(const tacit_accountant **out, const char *name,
                                   tacit_error *err) TACIT_MUST_CHECK;
const char *tacit_accountant_name(const tacit_accountant *a);

/* *out = *a with options; TACIT_USAGE names one that it has no use for. */
tacit_status tacit_accountant_with(tacit_accountant *out, const tacit_accountant *a,
                                   const tacit_accountant_options *options,
                                   tacit_error *err) TACIT_MUST_CHECK;

/* Epsilon of all events together (of one kind of neighbours) at `delta` in (0, 1); +inf when it has
 * no finite value. Events of q = 0 draw nothing and cost nothing: taken here, in questions, though
 * no mechanism and no account has them. *order (may be NULL) is the Renyi order that gave epsilon,
 * 0 for accountants without orders. */
tacit_status tacit_accountant_epsilon(const tacit_accountant *a, const tacit_event *events,
                                      size_t n, double delta, double *epsilon, double *order,
                                      tacit_error *err) TACIT_MUST_CHECK;

/* The least noise multiplier (1e-9 relative, on the private side; 0.01 or more, as mechanisms have
 * it) for which one event with *shape's neighbours, q and count costs at most `epsilon` at `delta`;
 * shape->sigma is ignored. What the accountant refuses to compute has no cost: the search goes
 * around it, and is TACIT_REFUSED, with the accountant's reason, where its result would lie within
 * a thousandth of what is refused. */
tacit_status tacit_accountant_calibrate(const tacit_accountant *a, const tacit_event *shape,
                                        double epsilon, double delta, double *sigma,
                                        tacit_error *err) TACIT_MUST_CHECK;

/* The most runs, up to 2^40, for which one event with *shape's neighbours, sigma and q costs at
 * most `epsilon` at `delta`; shape->count is ignored. TACIT_BAD_INPUT when one run costs more, or
 * 2^40 cost no more; refusals as above. */
tacit_status tacit_accountant_calibrate_count(const tacit_accountant *a, const tacit_event *shape,
                                              double epsilon, double delta, uint64_t *count,
                                              tacit_error *err) TACIT_MUST_CHECK;

/* "SIGMA:Q:STEPS", for instance "1.1:0.01:1000"; Q may be 0. TACIT_USAGE says which part is wrong.
 */
tacit_status tacit_event_parse(tacit_event *out, const char *text, tacit_neighbours neighbours,
                               tacit_error *err) TACIT_MUST_CHECK;

/* "1.5,2,8,32": up to TACIT_ORDERS_PARSED orders, their range and sequence checked when they are
 * used. TACIT_USAGE says which is no number. */
#define TACIT_ORDERS_PARSED 256
tacit_status tacit_orders_parse(double orders[TACIT_ORDERS_PARSED], size_t *n, const char *text,
                                tacit_error *err) TACIT_MUST_CHECK;

/* "add-remove" or "replace-one". */
tacit_status tacit_neighbours_parse(tacit_neighbours *out, const char *text,
                                    tacit_error *err) TACIT_MUST_CHECK;

#endif
