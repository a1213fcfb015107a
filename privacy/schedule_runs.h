/* A schedule as its runs of equal rounds: what people read of it, and what a table has rows for. */
#ifndef TACIT_PRIVACY_SCHEDULE_RUNS_H
#define TACIT_PRIVACY_SCHEDULE_RUNS_H

#include "privacy/mechanism.h"

typedef struct schedule_run {
    size_t first, rounds; /* positions first .. first + rounds - 1, from 0 */
    tacit_mechanism mechanism;
} schedule_run;

/* The run after *run, which is all zeros before the first. False behind the last one, and at a
 * round whose mechanism cannot be read. */
bool schedule_run_next(schedule_run *run, const Tacit__Schedule *schedule);

size_t schedule_run_count(const Tacit__Schedule *schedule);

/* "rdp", "pld", or "unknown": the accountant that the schedule names. */
const char *schedule_accountant_name(const Tacit__Schedule *schedule);

#endif
