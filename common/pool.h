/* The thread team of a process. One thread drives it at a time; tasks are numbered 0..n-1 and may
 * run in any order on any thread. Workers spin at most 50 us after a job, then sleep. */
#ifndef TACIT_COMMON_POOL_H
#define TACIT_COMMON_POOL_H

#include "common/status.h"

#include <stddef.h>

typedef struct tacit_pool tacit_pool;

/* `threads` counts the driving thread; 0 takes the processors that the affinity mask and the
 * cgroup's CPU quota allow. */
tacit_status tacit_pool_new(tacit_pool **out, size_t threads, tacit_error *err) TACIT_MUST_CHECK;
void tacit_pool_free(tacit_pool *p);
size_t tacit_pool_threads(const tacit_pool *p);

/* Runs task(ctx, i, thread) for i in [0, n) and returns when all are done; `thread` is in
 * [0, threads). `p` may be NULL: everything runs in the caller as thread 0. Not re-entrant. */
void tacit_pool_run(tacit_pool *p, size_t n, void (*task)(void *ctx, size_t i, size_t thread),
                    void *ctx);

/* Processors that this process may use now. */
size_t tacit_pool_available(void);

#endif
