/* How many processors the cgroup of this process allows, from the kernel's text files. */
#ifndef TACIT_COMMON_CPU_QUOTA_H
#define TACIT_COMMON_CPU_QUOTA_H

#include <stddef.h>

/* `self_cgroup` is /proc/self/cgroup, `mount` is /sys/fs/cgroup; tests pass their own. Reads
 * cpu.max (v2) or cpu.cfs_quota_us and cpu.cfs_period_us (v1) of the process's group and of every
 * parent, and returns the smallest quota rounded up to whole processors, at least 1; 0 when none is
 * set or the files cannot be read. */
size_t cpu_quota_limit(const char *self_cgroup, const char *mount);

#endif
