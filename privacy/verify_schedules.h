/* The schedules of an exported log as an auditor reads them: which mechanism, how often. */
#ifndef TACIT_PRIVACY_VERIFY_SCHEDULES_H
#define TACIT_PRIVACY_VERIFY_SCHEDULES_H

#include "privacy/audit.h"

#include <jansson.h>

/* One object for each run of equal rounds of a schedule, in the order of the log: entry, lineage,
 * delta, rounds (how many), mechanism, unit, neighbours, sigma (over the clip norm), q,
 * minimum_separation (of tree noise, else 0), steps, clip_norm. What cannot be read is left out; the
 * audit says so. The caller's; NULL: no memory. */
json_t *schedule_list(const tacit_audit *audit);

void schedule_list_print(const json_t *list);

#endif
