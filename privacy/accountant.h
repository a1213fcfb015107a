/* The accountants behind one call: from a list of events and delta to epsilon, and from epsilon to
 * the least noise. Rows of a table; the command line and reports name them by word.
 *
 *   pld         privacy/pld.h: tight, for a schedule fixed beforehand
 *   rdp         privacy/rdp.h, true orders: what accounts enforce
 *   rdp-compat  privacy/rdp.h, as the reference prints it: for comparison only
 *   analytic    privacy/gaussian.h: exact, q = 1 only
 *
 * Pure functions, any thread. */
#ifndef TACIT_PRIVACY_ACCOUNTANT_H
#define TACIT_PRIVACY_ACCOUNTANT_H

#include "privacy/event.h"

#include <stddef.h>

typedef struct tacit_accountant tacit_accountant;

/* The row of a word; TACIT_USAGE lists the words. */
tacit_status tacit_accountant_find(const tacit_accountant **out, const char *name,
                                   tacit_error *err) TACIT_MUST_CHECK;
const char *tacit_accountant_name(const tacit_accountant *a);

/* Epsilon of all events together (of one kind of neighbours) at `delta` in (0, 1); +inf when it has
 * no finite value. *order (may be NULL) is the Renyi order that gave it, 0 for accountants without
 * orders. */
tacit_status tacit_accountant_epsilon(const tacit_accountant *a, const tacit_event *events,
                                      size_t n, double delta, double *epsilon, double *order,
                                      tacit_error *err) TACIT_MUST_CHECK;

/* The least noise multiplier (1e-9 relative, on the private side) for which one event with
 * *shape's neighbours, q and count costs at most `epsilon` at `delta`; shape->sigma is ignored. */
tacit_status tacit_accountant_calibrate(const tacit_accountant *a, const tacit_event *shape,
                                        double epsilon, double delta, double *sigma,
                                        tacit_error *err) TACIT_MUST_CHECK;

/* "SIGMA:Q:STEPS", for instance "1.1:0.01:1000". TACIT_USAGE says which part is wrong. */
tacit_status tacit_event_parse(tacit_event *out, const char *text, tacit_neighbours neighbours,
                               tacit_error *err) TACIT_MUST_CHECK;

/* "add-remove" or "replace-one". */
tacit_status tacit_neighbours_parse(tacit_neighbours *out, const char *text,
                                    tacit_error *err) TACIT_MUST_CHECK;

#endif
