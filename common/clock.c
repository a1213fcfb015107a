#include "common/clock.h"

static uint64_t (*injected)(void *ctx);
static void *injected_ctx;

static uint64_t read_ms(clockid_t id)
{
    struct timespec now;
    clock_gettime(id, &now);
    return (uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / 1000000;
}

uint64_t tacit_clock_wall_ms(void)
{
    return injected ? injected(injected_ctx) : read_ms(CLOCK_REALTIME);
}

uint64_t tacit_clock_monotonic_ms(void)
{
    return read_ms(CLOCK_MONOTONIC);
}

double tacit_clock_seconds(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

void tacit_clock_sleep_ms(uint64_t ms)
{
    struct timespec wait = {(time_t)(ms / 1000), (long)(ms % 1000) * 1000000};
    nanosleep(&wait, NULL);
}

void tacit_clock_condition_init(pthread_cond_t *condition)
{
    pthread_condattr_t attributes;
    pthread_condattr_init(&attributes);
    pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
    pthread_cond_init(condition, &attributes);
    pthread_condattr_destroy(&attributes);
}

struct timespec tacit_clock_after_ms(uint64_t ms)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    time.tv_sec += (time_t)(ms / 1000);
    time.tv_nsec += (long)(ms % 1000) * 1000000;
    if (time.tv_nsec >= 1000000000) {
        time.tv_sec++;
        time.tv_nsec -= 1000000000;
    }
    return time;
}

void tacit_clock_inject(uint64_t (*wall)(void *ctx), void *ctx)
{
    injected = wall;
    injected_ctx = ctx;
}
