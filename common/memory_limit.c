#include "common/memory_limit.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#define JUDGED_BYTES ((size_t)16 << 20) /* less is taken without asking */

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

static uint64_t machine_available(const char *meminfo)
{
    FILE *f = fopen(meminfo, "re");
    char line[256];
    uint64_t kib = UINT64_MAX;
    while (f && kib == UINT64_MAX && fgets(line, sizeof line, f))
        if (sscanf(line, "MemAvailable: %18" SCNu64 " kB", &kib) != 1)
            kib = UINT64_MAX;
    if (f)
        fclose(f);
    return kib > UINT64_MAX / 1024 ? UINT64_MAX : kib * 1024;
}

uint64_t memory_limit_available(const char *meminfo, const cgroup_files *files)
{
    uint64_t machine = machine_available(meminfo);
    uint64_t group = cgroup_least(files, "memory", left_v2, left_v1);
    return group < machine ? group : machine;
}

uint64_t tacit_memory_available(void)
{
    return memory_limit_available("/proc/meminfo", &cgroup_of_this_process);
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

tacit_status tacit_memory_alloc(void **out, size_t count, size_t each, const char *what,
                                const char *advice, tacit_error *err)
{
    size_t bytes;
    *out = NULL;
    if (__builtin_mul_overflow(count, each, &bytes))
        return tacit_fail(err, TACIT_NO_MEMORY, "%s needs more than memory can be; %s", what,
                          advice);
    tacit_status status =
        bytes >= JUDGED_BYTES ? tacit_memory_require(bytes, what, advice, err) : TACIT_OK;
    if (status != TACIT_OK)
        return status;
    *out = calloc(count ? count : 1, each ? each : 1);
    return *out ? TACIT_OK : tacit_fail(err, TACIT_NO_MEMORY, "%s: no memory; %s", what, advice);
}
