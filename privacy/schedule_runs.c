#include "privacy/schedule_runs.h"

bool schedule_run_next(schedule_run *run, const Tacit__Schedule *schedule)
{
    schedule_run next = {.first = run->first + run->rounds};
    tacit_mechanism m;
    for (size_t i = next.first; i < schedule->n_rounds; i++) {
        if (tacit_mechanism_from_message(&m, schedule->rounds[i]->mechanism, NULL) != TACIT_OK)
            break;
        if (next.rounds && !tacit_mechanism_equal(&next.mechanism, &m))
            break;
        next.mechanism = m;
        next.rounds++;
    }
    if (next.rounds)
        *run = next;
    return next.rounds > 0;
}

size_t schedule_run_count(const Tacit__Schedule *schedule)
{
    schedule_run run = {.rounds = 0};
    size_t n = 0;
    while (schedule_run_next(&run, schedule))
        n++;
    return n;
}

const char *schedule_accountant_name(const Tacit__Schedule *schedule)
{
    switch (schedule->accountant) {
    case TACIT__ACCOUNTANT_KIND__ACCOUNTANT_RDP:
        return "rdp";
    case TACIT__ACCOUNTANT_KIND__ACCOUNTANT_PLD:
        return "pld";
    default:
        return "unknown";
    }
}
