/* The schedules of an exported log as an auditor reads them: which mechanism, how often. */
#ifndef TACIT_PRIVACY_VERIFY_SCHEDULES_H
#define TACIT_PRIVACY_VERIFY_SCHEDULES_H

#include "privacy/audit.h"

#include <jansson.h>

/* One object for each run of equal rounds of a schedule, in the order of the log. Of the schedule
 * as a whole: entry, lineage, delta, accountant, schedule_rounds, epsilon and epsilon_planned (null
 * where nothing finite is known), rounds_planned, rounds_reserved, rounds_summed, rounds_published,
 * rounds_failed (tacit_audit_schedule says what they are). Of the run: first_round (its position,
 * from 0), rounds (how many), mechanism, unit, neighbours, sigma (over the clip norm, of a step as
 * a whole), q, steps, clip_norm; where the clip norm adapts also quantile_target, sigma_gradients
 * and sigma_count (of which sigma is made), clip_rate, clip_min, clip_max; with tree noise also
 * minimum_separation. The caller's; NULL: no memory. */
json_t *schedule_list(const tacit_audit *audit);

void schedule_list_print(const json_t *list);

#endif
