/* Time. Tests inject their own clock; nothing else in the tree calls time(2) for decisions. */
#ifndef TACIT_COMMON_CLOCK_H
#define TACIT_COMMON_CLOCK_H

#include <pthread.h>
#include <stdint.h>
#include <time.h>

/* Milliseconds since 1970-01-01 UTC. */
uint64_t tacit_clock_wall_ms(void);

/* Milliseconds from an arbitrary start, never going back. */
uint64_t tacit_clock_monotonic_ms(void);

/* Seconds as a double from the monotonic clock, for measuring. */
double tacit_clock_seconds(void);

/* Waits at least `ms` milliseconds of the monotonic clock, or until a signal handler ran. */
void tacit_clock_sleep_ms(uint64_t ms);

/* A condition whose timed waits go by the monotonic clock, and a time `ms` from now for them. */
void tacit_clock_condition_init(pthread_cond_t *condition);
struct timespec tacit_clock_after_ms(uint64_t ms);

/* Tests only: `wall` replaces the wall clock until called with NULL. Not thread-safe. */
void tacit_clock_inject(uint64_t (*wall)(void *ctx), void *ctx);

#endif
