/* Epsilon of a privacy loss distribution, remembered: everybody in a fleet who is at one round of
 * one schedule asks for the same number, and it takes milliseconds to compute (privacy/pld.h).
 * Values are the same with and without the memory, which holds the last few and is the process's.
 * Any thread. */
#ifndef TACIT_PRIVACY_PLD_MEMO_H
#define TACIT_PRIVACY_PLD_MEMO_H

#include "privacy/event_list.h"

/* tacit_pld_epsilon of a list at `delta`, by one normative grid: a multiple or a part of 1e-4 near
 * sqrt(12 x v), v the mean one-run variance of the loss, so that epsilon is too large by about a
 * relative x (pld.h). x is 1e-4, up to 1e-2 where runs are very many or losses far apart; where a
 * rare loss of few runs decides an epsilon near 0, x of the mean may be more of it (5.6e-3 of
 * 0.0067); the work is bounded: some milliseconds for a list of one event. +inf where it has no
 * value: no finite epsilon, neighbours of two kinds, parameters out of range, too many events, or
 * no grid that is fine and short enough. TACIT_NO_MEMORY, which alone is not a matter of the
 * arguments. */
tacit_status tacit_pld_epsilon_of(const tacit_event_list *list, double delta, double *epsilon,
                                  tacit_error *err) TACIT_MUST_CHECK;

#endif
