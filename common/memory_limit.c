#include "common/memory_limit.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

#define JUDGED_BYTES ((uint64_t)16 << 20) /* less is taken without asking */

static uint64_t (*injected)(void *ctx);
static void *injected_ctx;

void tacit_memory_inject(uint64_t (*available)(void *ctx), void *ctx)
{
    injected = available;
    injected_ctx = ctx;
}

static uint64_t least(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

uint64_t tacit_memory_sum(uint64_t a, uint64_t b)
{
    uint64_t sum;
    return __builtin_add_overflow(a, b, &sum) ? UINT64_MAX : sum;
}

uint64_t tacit_memory_product(uint64_t a, uint64_t b)
{
    uint64_t product;
    return __builtin_mul_overflow(a, b, &product) ? UINT64_MAX : product;
}

/* The number of kibibytes behind `key` in a file of lines "key number kB", in bytes. */
static bool read_kib(const char *path, const char *key, uint64_t *out)
{
    FILE *f = fopen(path, "re");
    char line[256];
    size_t n = strlen(key);
    bool found = false;
    while (f && !found && fgets(line, sizeof line, f))
        found = strncmp(line, key, n) == 0 && sscanf(line + n, "%18" SCNu64 " kB", out) == 1;
    if (f)
        fclose(f);
    if (found)
        *out = tacit_memory_product(*out, 1024);
    return found;
}

/* What a limit leaves when `used` is taken, `files` bytes of which the kernel takes back. */
static uint64_t left_of(uint64_t limit, uint64_t used, uint64_t files)
{
    uint64_t held = used > files ? used - files : 0;
    return limit > held ? limit - held : 0;
}

static bool left_v2(const char *folder, uint64_t *out)
{
    uint64_t limit, used, files = 0;
    if (!cgroup_read_number(folder, "memory.max", &limit) ||
        !cgroup_read_number(folder, "memory.current", &used))
        return false;
    if (!cgroup_read_key(folder, "memory.stat", "file", &files))
        files = 0;
    *out = left_of(limit, used, files);
    return true;
}

/* Without a limit version 1 says a number near 2^63, which limits nothing either. */
static bool left_v1(const char *folder, uint64_t *out)
{
    uint64_t limit, used, files = 0;
    if (!cgroup_read_number(folder, "memory.limit_in_bytes", &limit) ||
        !cgroup_read_number(folder, "memory.usage_in_bytes", &used))
        return false;
    if (!cgroup_read_key(folder, "memory.stat", "total_cache", &files))
        files = 0;
    *out = left_of(limit, used, files);
    return true;
}

uint64_t memory_limit_available(const char *meminfo, const cgroup_files *files)
{
    uint64_t machine;
    if (!read_kib(meminfo, "MemAvailable:", &machine))
        machine = UINT64_MAX;
    return least(machine, cgroup_least(files, "memory", left_v2, left_v1));
}

static uint64_t left_of_process(const char *status, const char *key, uint64_t limit)
{
    uint64_t used;
    if (limit == RLIM_INFINITY || !read_kib(status, key, &used))
        return UINT64_MAX;
    return limit > used ? limit - used : 0;
}

uint64_t memory_limit_left(const char *status, uint64_t data_limit, uint64_t address_limit)
{
    return least(left_of_process(status, "VmData:", data_limit),
                 left_of_process(status, "VmSize:", address_limit));
}

static uint64_t soft_limit(int resource)
{
    struct rlimit limit;
    return getrlimit(resource, &limit) == 0 ? limit.rlim_cur : RLIM_INFINITY;
}

uint64_t tacit_memory_available_beside(uint64_t mapped)
{
    uint64_t left;
    if (injected)
        return injected(injected_ctx);
    left = memory_limit_left("/proc/self/status", soft_limit(RLIMIT_DATA), soft_limit(RLIMIT_AS));
    left = tacit_memory_sum(left, mapped);
    return least(left, memory_limit_available("/proc/meminfo", &cgroup_of_this_process));
}

uint64_t tacit_memory_available(void)
{
    return tacit_memory_available_beside(0);
}

const char *tacit_memory_text(char out[TACIT_MEMORY_TEXT], uint64_t bytes)
{
    static const char *const unit[] = {"KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
    double size = (double)bytes / 1024;
    size_t i = 0;
    for (; size >= 1024 && i + 1 < sizeof unit / sizeof unit[0]; i++)
        size /= 1024;
    snprintf(out, TACIT_MEMORY_TEXT, "%.1f %s", size, unit[i]);
    return out;
}

tacit_status tacit_memory_require(uint64_t bytes, const char *what, const char *advice,
                                  tacit_error *err)
{
    char needed[TACIT_MEMORY_TEXT], there[TACIT_MEMORY_TEXT];
    uint64_t available = tacit_memory_available();
    if (bytes <= available)
        return TACIT_OK;
    return tacit_fail(err, TACIT_NO_MEMORY, "%s needs %s, %s are available; %s", what,
                      tacit_memory_text(needed, bytes), tacit_memory_text(there, available),
                      advice);
}

/* Tests that inject what is there have models of kilobytes. */
static uint64_t judged_bytes(void)
{
    return injected ? 0 : JUDGED_BYTES;
}

tacit_status tacit_memory_judge(uint64_t bytes, const char *what, const char *advice,
                                tacit_error *err)
{
    return bytes >= judged_bytes() ? tacit_memory_require(bytes, what, advice, err) : TACIT_OK;
}

tacit_status tacit_memory_fail(uint64_t bytes, const char *what, const char *advice,
                               tacit_error *err)
{
    char needed[TACIT_MEMORY_TEXT], there[TACIT_MEMORY_TEXT];
    return tacit_fail(err, TACIT_NO_MEMORY,
                      "%s needs %s, which the system does not give though %s are available; %s",
                      what, tacit_memory_text(needed, bytes),
                      tacit_memory_text(there, tacit_memory_available()), advice);
}

tacit_status tacit_memory_alloc(void **out, size_t count, size_t each, const char *what,
                                const char *advice, tacit_error *err)
{
    size_t bytes;
    *out = NULL;
    if (__builtin_mul_overflow(count, each, &bytes))
        return tacit_fail(err, TACIT_NO_MEMORY, "%s needs more than memory can be; %s", what,
                          advice);
    tacit_status status = tacit_memory_judge(bytes, what, advice, err);
    if (status != TACIT_OK)
        return status;
    *out = calloc(count ? count : 1, each ? each : 1);
    return *out ? TACIT_OK : tacit_memory_fail(bytes, what, advice, err);
}

/* What was counted so far is taken and missing from what is there, so the question is whether as
 * much again fits. */
tacit_status tacit_memory_tally_add(tacit_memory_tally *t, uint64_t bytes, const char *what,
                                    const char *advice, tacit_error *err)
{
    uint64_t enough = judged_bytes();
    t->unjudged = tacit_memory_sum(t->unjudged, bytes);
    if (t->unjudged < enough)
        return TACIT_OK;
    t->unjudged = 0;
    return tacit_memory_require(bytes > enough ? bytes : enough, what, advice, err);
}
