#include "common/cpu_cache.h"

#include "common/cgroup.h"

#include <sched.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PATH_SIZE 256
#define CACHES 8 /* of a processor, at most: instructions and data of four levels */
#define USUAL_L2 ((size_t)256 << 10)
#define LIST_SIZE 1024

/* The processors in the kernel's form "0-3,8": how many of them; 0 where it is none. */
static size_t count_list(const char *list)
{
    size_t n = 0;
    while (*list >= '0' && *list <= '9') {
        char *end;
        unsigned long first = strtoul(list, &end, 10), last = first;
        if (*end == '-')
            last = strtoul(end + 1, &end, 10);
        n += last >= first ? last - first + 1 : 0;
        list = *end == ',' ? end + 1 : end;
    }
    return n;
}

static size_t count_in(const char *folder, const char *name)
{
    char line[LIST_SIZE];
    size_t n = cgroup_read_line(line, sizeof line, folder, name) ? count_list(line) : 0;
    return n > 0 ? n : 1;
}

/* "512K", "2M" */
static size_t read_size(const char *folder)
{
    char line[32], *end;
    if (!cgroup_read_line(line, sizeof line, folder, "size") || line[0] < '0' || line[0] > '9')
        return 0;
    size_t size = strtoul(line, &end, 10);
    int shift = *end == 'K' ? 10 : *end == 'M' ? 20 : 0;
    return size <= SIZE_MAX >> shift ? size << shift : 0;
}

static bool is_for_data(const char *folder, unsigned level)
{
    char type[32];
    uint64_t found;
    return cgroup_read_number(folder, "level", &found) && found == level &&
           cgroup_read_line(type, sizeof type, folder, "type") &&
           strncmp(type, "Instruction", 11) != 0;
}

/* Of one processor; 0 where nothing is told. */
static size_t share_of(const char *root, size_t cpu, unsigned level)
{
    char folder[PATH_SIZE];
    for (int i = 0; i < CACHES; i++) {
        snprintf(folder, sizeof folder, "%s/cpu%zu/cache/index%d", root, cpu, i);
        if (!is_for_data(folder, level))
            continue;
        size_t size = read_size(folder), sharing = count_in(folder, "shared_cpu_list");
        snprintf(folder, sizeof folder, "%s/cpu%zu/topology", root, cpu);
        size_t cores = sharing / count_in(folder, "thread_siblings_list");
        return size / (cores > 0 ? cores : 1);
    }
    return 0;
}

size_t cpu_cache_at(const char *root, unsigned level)
{
    cpu_set_t may_run;
    size_t least = SIZE_MAX;
    CPU_ZERO(&may_run);
    if (sched_getaffinity(0, sizeof may_run, &may_run) != 0)
        return 0;
    for (size_t cpu = 0; cpu < CPU_SETSIZE; cpu++) {
        size_t share = CPU_ISSET(cpu, &may_run) ? share_of(root, cpu, level) : 0;
        if (share > 0 && share < least)
            least = share;
    }
    return least == SIZE_MAX ? 0 : least;
}

size_t tacit_cpu_cache_l2(void)
{
    /* Two threads that come first together find the same. */
    static _Atomic size_t known;
    size_t size = atomic_load_explicit(&known, memory_order_relaxed);
    if (size == 0) {
        size = cpu_cache_at("/sys/devices/system/cpu", 2);
        size = size > 0 ? size : USUAL_L2;
        atomic_store_explicit(&known, size, memory_order_relaxed);
    }
    return size;
}
