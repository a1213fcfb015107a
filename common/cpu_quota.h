/* How many processors the cgroup of this process allows. */
#ifndef TACIT_COMMON_CPU_QUOTA_H
#define TACIT_COMMON_CPU_QUOTA_H

#include "common/cgroup.h"

/* From cpu.max (v2) or cpu.cfs_quota_us and cpu.cfs_period_us (v1): the smallest quota rounded up
 * to whole processors, at least 1; 0 when none is set. */
size_t cpu_quota_limit(const cgroup_files *files);

#endif
