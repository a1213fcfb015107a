/* How the learning rate goes over a training: up in a straight line, then as it is, down in a
 * straight line, or down along half a cosine (Loshchilov and Hutter 2017, arXiv 1608.03983). It
 * depends on the number of the step alone, so it costs no privacy. */
#ifndef TACIT_ENGINE_RATE_SCHEDULE_H
#define TACIT_ENGINE_RATE_SCHEDULE_H

#include <stdbool.h>
#include <stdint.h>

typedef enum tacit_rate_kind {
    TACIT_RATE_CONSTANT,
    TACIT_RATE_LINEAR,
    TACIT_RATE_COSINE
} tacit_rate_kind;

typedef struct tacit_rate_schedule {
    tacit_rate_kind kind;
    uint64_t warmup; /* steps on the way up, of `steps` */
    uint64_t steps;  /* of the training; steps behind the last one have its rate */
} tacit_rate_schedule;

/* By how much the learning rate of step `step` (from 0) is multiplied, above 0 and at most 1. No
 * step is given away: the first of w on the way up has 1 / (w + 1), and the last of n on the way
 * down stands where the next one would be at zero. */
double tacit_rate_at(const tacit_rate_schedule *s, uint64_t step);

/* "constant", "linear", "cosine". */
bool tacit_rate_kind_find(tacit_rate_kind *out, const char *name);

#endif
