/* One 64-bit word holds the whole claim: the number of the job above, the tasks nobody has taken
 * yet below. A thread takes a task by lowering the word; a thread that is late for a job finds
 * another number or nothing left, so the driver never waits for sleepers, only for tasks that were
 * really taken. While a task runs its job cannot end, hence task, ctx and n are stable for it. */
#include "common/pool.h"

#include "common/clock.h"
#include "common/cpu_quota.h"

#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#define SPIN_SECONDS 50e-6
#define THREADS_MAX 1024

typedef struct pool_worker {
    tacit_pool *pool;
    size_t index;
    pthread_t id;
} pool_worker;

struct tacit_pool {
    size_t threads;
    bool spins; /* not with more threads than processors: spinning would keep the others waiting */
    _Atomic uint64_t claim; /* job << 32 | tasks left */
    _Atomic uint64_t done;  /* finished tasks of the job */
    _Atomic bool quit;
    _Atomic size_t sleepers;
    _Atomic bool driver_sleeps;
    void (*task)(void *ctx, size_t i, size_t thread);
    void *ctx;
    uint64_t n;
    pthread_mutex_t lock;
    pthread_cond_t work;
    pthread_cond_t finished;
    size_t started;
    pool_worker *worker; /* [threads - 1] */
};

static void relax(void)
{
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ __volatile__("yield");
#endif
}

/* Spins until ready(p) or the time is over; true when ready. */
static bool spin_until(tacit_pool *p, bool (*ready)(tacit_pool *p))
{
    if (ready(p))
        return true;
    if (!p->spins)
        return false;
    double end = tacit_clock_seconds() + SPIN_SECONDS;
    do {
        for (int i = 0; i < 32; i++) {
            relax();
            if (ready(p))
                return true;
        }
    } while (tacit_clock_seconds() < end);
    return false;
}

static bool has_work(tacit_pool *p)
{
    return (uint32_t)atomic_load(&p->claim) > 0 || atomic_load(&p->quit);
}

static bool is_finished(tacit_pool *p)
{
    return atomic_load(&p->done) == p->n;
}

/* Takes tasks of the current job until none is left. */
static void take_tasks(tacit_pool *p, size_t thread)
{
    uint64_t claim = atomic_load(&p->claim);
    while ((uint32_t)claim > 0) {
        if (!atomic_compare_exchange_weak(&p->claim, &claim, claim - 1))
            continue;
        uint64_t n = p->n;
        p->task(p->ctx, (size_t)(n - (uint32_t)claim), thread);
        bool last = atomic_fetch_add(&p->done, 1) + 1 == n;
        if (last && atomic_load(&p->driver_sleeps)) {
            pthread_mutex_lock(&p->lock);
            pthread_cond_signal(&p->finished);
            pthread_mutex_unlock(&p->lock);
        }
        claim = atomic_load(&p->claim);
    }
}

static void sleep_until_work(tacit_pool *p)
{
    pthread_mutex_lock(&p->lock);
    atomic_fetch_add(&p->sleepers, 1);
    while (!has_work(p))
        pthread_cond_wait(&p->work, &p->lock);
    atomic_fetch_sub(&p->sleepers, 1);
    pthread_mutex_unlock(&p->lock);
}

static void sleep_until_finished(tacit_pool *p)
{
    pthread_mutex_lock(&p->lock);
    atomic_store(&p->driver_sleeps, true);
    while (!is_finished(p))
        pthread_cond_wait(&p->finished, &p->lock);
    atomic_store(&p->driver_sleeps, false);
    pthread_mutex_unlock(&p->lock);
}

static void *work(void *arg)
{
    pool_worker *w = arg;
    tacit_pool *p = w->pool;
    for (;;) {
        if (!spin_until(p, has_work))
            sleep_until_work(p);
        if (atomic_load(&p->quit))
            return NULL;
        take_tasks(p, w->index);
    }
}

static void wake_workers(tacit_pool *p)
{
    if (atomic_load(&p->sleepers) == 0)
        return;
    pthread_mutex_lock(&p->lock);
    pthread_cond_broadcast(&p->work);
    pthread_mutex_unlock(&p->lock);
}

static tacit_status start_workers(tacit_pool *p, tacit_error *err)
{
    for (size_t i = 0; i + 1 < p->threads; i++) {
        p->worker[i] = (pool_worker){.pool = p, .index = i + 1};
        int e = pthread_create(&p->worker[i].id, NULL, work, &p->worker[i]);
        if (e != 0)
            return tacit_fail(err, TACIT_FAILED,
                              "cannot start thread %zu of %zu: %s; use fewer threads", i + 2,
                              p->threads, strerror(e));
        p->started++;
    }
    return TACIT_OK;
}

tacit_status tacit_pool_new(tacit_pool **out, size_t threads, tacit_error *err)
{
    size_t available = tacit_pool_available();
    *out = NULL;
    if (threads == 0)
        threads = available;
    if (threads > THREADS_MAX)
        return tacit_fail(err, TACIT_USAGE, "%zu threads: expected at most %d", threads,
                          THREADS_MAX);
    tacit_pool *p = calloc(1, sizeof *p);
    pool_worker *worker = calloc(threads, sizeof *worker);
    if (!p || !worker) {
        free(p);
        free(worker);
        return tacit_fail(err, TACIT_NO_MEMORY, "no memory for a pool of %zu threads", threads);
    }
    p->threads = threads;
    p->worker = worker;
    p->spins = threads <= available;
    pthread_mutex_init(&p->lock, NULL);
    pthread_cond_init(&p->work, NULL);
    pthread_cond_init(&p->finished, NULL);
    tacit_status status = start_workers(p, err);
    if (status != TACIT_OK) {
        tacit_pool_free(p);
        return status;
    }
    *out = p;
    return TACIT_OK;
}

void tacit_pool_free(tacit_pool *p)
{
    if (!p)
        return;
    atomic_store(&p->quit, true);
    pthread_mutex_lock(&p->lock);
    pthread_cond_broadcast(&p->work);
    pthread_mutex_unlock(&p->lock);
    for (size_t i = 0; i < p->started; i++)
        pthread_join(p->worker[i].id, NULL);
    pthread_cond_destroy(&p->finished);
    pthread_cond_destroy(&p->work);
    pthread_mutex_destroy(&p->lock);
    free(p->worker);
    free(p);
}

size_t tacit_pool_threads(const tacit_pool *p)
{
    return p ? p->threads : 1;
}

typedef struct offset_job {
    size_t first;
    void (*task)(void *ctx, size_t i, size_t thread);
    void *ctx;
} offset_job;

static void run_offset(void *ctx, size_t i, size_t thread)
{
    const offset_job *job = ctx;
    job->task(job->ctx, job->first + i, thread);
}

static void run_job(tacit_pool *p, size_t first, uint32_t n,
                    void (*task)(void *ctx, size_t i, size_t thread), void *ctx)
{
    offset_job offset = {first, task, ctx};
    p->task = first > 0 ? run_offset : task;
    p->ctx = first > 0 ? &offset : ctx;
    p->n = n;
    atomic_store(&p->done, 0);
    uint64_t job = (atomic_load(&p->claim) >> 32) + 1;
    atomic_store(&p->claim, job << 32 | n);
    wake_workers(p);
    take_tasks(p, 0);
    if (!spin_until(p, is_finished))
        sleep_until_finished(p);
}

void tacit_pool_run(tacit_pool *p, size_t n, void (*task)(void *ctx, size_t i, size_t thread),
                    void *ctx)
{
    if (!p || p->threads == 1 || n <= 1) {
        for (size_t i = 0; i < n; i++)
            task(ctx, i, 0);
        return;
    }
    for (size_t first = 0; first < n;) {
        size_t left = n - first;
        uint32_t part = left > UINT32_MAX ? UINT32_MAX : (uint32_t)left;
        run_job(p, first, part, task, ctx);
        first += part;
    }
}

static size_t affinity_count(void)
{
    /* The kernel refuses a mask smaller than its own: grow until it fits. */
    for (int cpus = CPU_SETSIZE; cpus <= 1 << 20; cpus *= 2) {
        cpu_set_t *set = CPU_ALLOC(cpus);
        if (!set)
            return 1;
        size_t size = CPU_ALLOC_SIZE(cpus);
        int rc = sched_getaffinity(0, size, set);
        int n = rc == 0 ? CPU_COUNT_S(size, set) : 0;
        int e = errno;
        CPU_FREE(set);
        if (rc == 0)
            return n > 0 ? (size_t)n : 1;
        if (e != EINVAL)
            return 1;
    }
    return 1;
}

size_t tacit_pool_available(void)
{
    size_t mask = affinity_count();
    size_t quota = cpu_quota_limit(&cgroup_of_this_process);
    return quota > 0 && quota < mask ? quota : mask;
}
