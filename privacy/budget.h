/* The arithmetic of one account: which epsilon a list of reserved events amounts to. Device, server
 * and auditor run this same code on the same integers.
 *
 * RDP at every order and the distinct events themselves are kept, and one rule says what counts.
 * While all events belong to one schedule that was fixed before its first event and whose full cost
 * fits the cap, what runs is fixed (skipping a round only lowers the cost): epsilon is the least of
 * the privacy loss distribution's (pld.h) and of all orders'. Steps may depend on what earlier ones
 * gave out, since each is dominated by one fixed pair of Gaussians whatever came before (Zhu, Dong
 * and Wang 2022, theorem 10), the discrete ones by continuous ones of a relative 3e-11 less noise
 * at z = 1 (noise.h). What holds however a schedule is stopped is the epsilon of the whole; on the
 * way there what is read is the price of the rounds so far, as if their number had been fixed. From
 * the second schedule on, what runs may depend on what came out, and only one order, fixed when the
 * account was opened, is a filter (Feldman and Zrnic 2021; Lecuyer 2021): epsilon is read there.
 * The order follows from cap and delta at opening. The switch is sound when neither way on can
 * leave what that order allows: a second schedule is admitted only if the whole of the first, run
 * or not, and everything reserved together with the whole of the second fit the cap at that order.
 * (Where the first does not fit there, stopping it for a second one would be a choice between two
 * bounds made on what came out, which costs up to twice delta.) A schedule of more than
 * TACIT_EVENT_LIST_MAX distinct events, of parameters that pld.h refuses, or of an epsilon above
 * TACIT_BUDGET_TIGHT_MOST, which promises nothing anyway, is read by RDP alone. Below it no run of
 * q = 1 moves anything by more than 15 deviations in all (order 1.1 says so), a node of tree noise
 * neither: what noise.h asks of a move holds.
 *
 * Delta is the account's one delta less what the noise sampler's inexactness takes of it, which
 * grows with epsilon itself (privacy/noise.h): epsilon is the least that covers both, +inf when
 * none does. Events of mechanism none have infinite epsilon; they are counted apart, mark
 * the account as non-private and do not change its private number.
 *
 * On the caller's memory; a budget has about 3 KB. Reading one may take some milliseconds and
 * megabytes the first time (pld_memo.h). Any thread. */
#ifndef TACIT_PRIVACY_BUDGET_H
#define TACIT_PRIVACY_BUDGET_H

#include "privacy/event_list.h"
#include "privacy/rdp.h"

#include "proto/ledger.pb-c.h"

#define TACIT_BUDGET_TIGHT_MOST 100.0

typedef struct tacit_budget {
    tacit_rdp spent;
    tacit_event_list events; /* what `spent` is made of */
    double delta;
    size_t filter_order;   /* index into tacit_rdp_orders */
    uint64_t noise_values; /* noise values drawn, for the sampler's share of delta */
    uint32_t schedules;    /* that private events came from */
    uint32_t unprotected;  /* events of mechanism none */
    bool lost;             /* the account was lost: everything counts as spent */
} tacit_budget;

/* An empty account with the cap and delta of its opening. */
void tacit_budget_open(tacit_budget *b, double epsilon_cap, double delta);

/* Adds an event that draws `values` noise values in each of its steps (tacit_step_noise_values).
 * The caller says when the event is the first of a schedule that the account had not seen.
 * TACIT_REFUSED when the accountant cannot take it (replace-one below q = 1). On failure nothing
 * changes. */
tacit_status tacit_budget_add(tacit_budget *b, const tacit_event *event, uint64_t values,
                              bool first_of_schedule, tacit_error *err) TACIT_MUST_CHECK;
void tacit_budget_add_unprotected(tacit_budget *b);

/* Adds what another budget holds: of other schedules, or further events of this one. TACIT_REFUSED
 * when the noise values cannot be counted. */
tacit_status tacit_budget_join(tacit_budget *b, const tacit_budget *other,
                               tacit_error *err) TACIT_MUST_CHECK;

/* An empty budget that is read like `b`: its delta, its fixed order. */
tacit_budget tacit_budget_empty_like(const tacit_budget *b);

/* Adds a schedule's rounds 0 .. rounds - 1, one schedule, on `values` trainable values.
 * *unprotected says whether one of them is of mechanism none, which costs nothing here. */
tacit_status tacit_budget_add_schedule(tacit_budget *b, const Tacit__Schedule *schedule,
                                       size_t rounds, uint64_t values, bool *unprotected,
                                       tacit_error *err) TACIT_MUST_CHECK;

/* Epsilon of the private events by the rule above; +inf when lost or when nothing finite holds.
 * TACIT_NO_MEMORY, and *epsilon is +inf. */
tacit_status tacit_budget_epsilon(const tacit_budget *b, double *epsilon,
                                  tacit_error *err) TACIT_MUST_CHECK;

/* Epsilon at the fixed order, however many schedules there are. */
double tacit_budget_filter_epsilon(const tacit_budget *b);

/* tacit_budget_epsilon for a group of `times` copies of the account, for subjects on several
 * devices that took part in what this one did. Of others it says nothing: two different accounts
 * may cost more together than two copies of either. */
tacit_status tacit_budget_epsilon_times(const tacit_budget *b, uint32_t times, double *epsilon,
                                        tacit_error *err) TACIT_MUST_CHECK;

/* The least noise multiplier of a step, to a relative 1e-9, for which one schedule of
 * *shape's neighbours, q and count over `values` noise values a step costs at most `epsilon` at
 * `delta`, as tacit_budget_epsilon reads it; shape->sigma is ignored. Errors as of
 * tacit_accountant_calibrate; TACIT_USAGE when the sampler's inexactness leaves nothing of delta.
 */
tacit_status tacit_budget_calibrate(const tacit_event *shape, uint64_t values, double epsilon,
                                    double delta, double *sigma, tacit_error *err) TACIT_MUST_CHECK;

/* The event of a reserve (kind must not be none), and the noise values that a step of it draws. */
tacit_status tacit_budget_event(tacit_event *out, const Tacit__Reserve *reserve,
                                tacit_error *err) TACIT_MUST_CHECK;
uint64_t tacit_budget_values(const Tacit__Reserve *reserve);

/* What a lineage's rounds 0 .. rounds - 1 cost any device that took each once: the manifest's
 * epsilon_server. +inf when one of them is of mechanism none. `delta` is the schedule's. */
tacit_status tacit_budget_schedule_epsilon(double *epsilon, const Tacit__Schedule *schedule,
                                           size_t rounds, uint64_t values,
                                           tacit_error *err) TACIT_MUST_CHECK;

/* The stored form: fixed size, little-endian, checked when read back (TACIT_BAD_INPUT). */
#define TACIT_BUDGET_BYTES                                                                         \
    (4 + 8 + 4 + 8 + 4 + 4 + 4 + 16 * TACIT_RDP_ORDERS + TACIT_EVENT_LIST_BYTES)
void tacit_budget_write(const tacit_budget *b, uint8_t out[TACIT_BUDGET_BYTES]);
tacit_status tacit_budget_read(tacit_budget *out, const void *bytes, size_t size,
                               tacit_error *err) TACIT_MUST_CHECK;

/* Two epsilons that should be the same number: relative 1e-9, or both infinite. */
bool tacit_budget_same(double a, double b);

#endif
