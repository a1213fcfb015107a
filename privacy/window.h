/* Windows of an account: any `window_reserves` private reserves in a row, in the order in which the
 * account made them, may cost at most `window_epsilon` at the account's delta. No clock is asked: a
 * device that sets its own back, or sleeps for a year, has the same windows.
 *
 * A window only adds a limit beside the lifetime cap. Which plans fall into it may depend on what
 * came out before, so it is read as a filter is (privacy/budget.h): at one order, which follows
 * from the window's epsilon and the account's delta. Reserves of mechanism none are infinite anyway
 * and are not counted. Device, server and auditor run this same code on the same reserves.
 *
 * Pure functions on the caller's memory. */
#ifndef TACIT_PRIVACY_WINDOW_H
#define TACIT_PRIVACY_WINDOW_H

#include "privacy/event.h"
#include "privacy/policy.h"

/* One private reserve as a window sees it. */
typedef struct tacit_window_item {
    tacit_event event;
    uint64_t values; /* noise values drawn in a step (tacit_step_noise_values) */
} tacit_window_item;

/* Reserves in the account's order, growing; free with tacit_window_free. */
typedef struct tacit_window {
    tacit_window_item *item;
    size_t count, capacity;
} tacit_window;

void tacit_window_free(tacit_window *w);

tacit_status tacit_window_push(tacit_window *w, const tacit_event *event, uint64_t values,
                               tacit_error *err) TACIT_MUST_CHECK;

/* Pushes a reserve unless it is of mechanism none. */
tacit_status tacit_window_push_reserve(tacit_window *w, const Tacit__Reserve *reserve,
                                       tacit_error *err) TACIT_MUST_CHECK;

/* The same of the stored bytes of a SignedEntry that holds one. */
tacit_status tacit_window_push_entry(tacit_window *w, const void *bytes, size_t size,
                                     tacit_error *err) TACIT_MUST_CHECK;

/* Pushes the private rounds of a schedule, in their order, on `values` trainable values. */
tacit_status tacit_window_push_schedule(tacit_window *w, const Tacit__Schedule *schedule,
                                        uint64_t values, tacit_error *err) TACIT_MUST_CHECK;

/* Whether two items cost the same. */
bool tacit_window_same(const tacit_window_item *a, const tacit_window_item *b);

/* For who collects from the newest backwards: turns the order round. */
void tacit_window_reverse(tacit_window *w);

/* The earlier reserves that a window of this policy looks back at; 0 without a window. */
size_t tacit_window_back(const tacit_policy *policy);

/* The largest epsilon of the stretches of at most policy->window_reserves items that end at item
 * `from` or later; 0 without a window, or when no item is that late. */
tacit_status tacit_window_worst(double *worst, const tacit_policy *policy, const tacit_window *w,
                                size_t from, tacit_error *err) TACIT_MUST_CHECK;

/* TACIT_REFUSED with one line when that is above policy->window_epsilon; `what` begins it. */
tacit_status tacit_window_check(const tacit_policy *policy, const tacit_window *w, size_t from,
                                const char *what, tacit_error *err) TACIT_MUST_CHECK;

#endif
