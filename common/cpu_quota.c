#include "common/cpu_quota.h"

#include <inttypes.h>
#include <stdio.h>

static bool processors(uint64_t quota, uint64_t period, uint64_t *out)
{
    if (quota == 0 || period == 0)
        return false;
    *out = quota / period + (quota % period != 0);
    return true;
}

/* "150000 100000"; "max 100000" means no limit. */
static bool quota_v2(const char *folder, uint64_t *out)
{
    char line[128];
    uint64_t quota, period;
    return cgroup_read_line(line, sizeof line, folder, "cpu.max") &&
           sscanf(line, "%20" SCNu64 " %20" SCNu64, &quota, &period) == 2 &&
           processors(quota, period, out);
}

/* A quota of -1 means no limit. */
static bool quota_v1(const char *folder, uint64_t *out)
{
    uint64_t quota, period;
    return cgroup_read_number(folder, "cpu.cfs_quota_us", &quota) &&
           cgroup_read_number(folder, "cpu.cfs_period_us", &period) &&
           processors(quota, period, out);
}

size_t cpu_quota_limit(const cgroup_files *files)
{
    uint64_t least = cgroup_least(files, "cpu", quota_v2, quota_v1);
    return least == UINT64_MAX || least > SIZE_MAX ? 0 : (size_t)least;
}
