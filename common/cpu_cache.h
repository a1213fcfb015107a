/* The sizes of the processors' caches, from which tiles of work are cut. */
#ifndef TACIT_COMMON_CPU_CACHE_H
#define TACIT_COMMON_CPU_CACHE_H

#include <stddef.h>

/* Bytes of the cache for data of that level (1, 2, ...) that one thread may count on: the least
 * over the processors that this process may run on, each one's divided by the cores that share it
 * (threads of one core count as one: a team has one of them). 0 when `root` tells nothing; it is
 * /sys/devices/system/cpu, tests pass their own. */
size_t cpu_cache_at(const char *root, unsigned level);

/* The same of this machine, read once: level 2, or 256 KiB where it tells nothing. */
size_t tacit_cpu_cache_l2(void);

#endif
