/* Limits of the cgroups that this process is in, from the kernel's text files (versions 1 and 2).
 */
#ifndef TACIT_COMMON_CGROUP_H
#define TACIT_COMMON_CGROUP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Where tests put files of their own. */
typedef struct cgroup_files {
    const char *self;  /* /proc/self/cgroup */
    const char *mount; /* /sys/fs/cgroup */
} cgroup_files;

extern const cgroup_files cgroup_of_this_process;

/* What is asked of the folder of a group: false where the group sets nothing. */
typedef bool (*cgroup_reader)(const char *folder, uint64_t *out);

/* The smallest answer of the process's group and of all its parents; UINT64_MAX when none sets
 * anything or the files cannot be read. `v1` is asked in the hierarchy of `controller` ("cpu"). */
uint64_t cgroup_least(const cgroup_files *files, const char *controller, cgroup_reader v2,
                      cgroup_reader v1);

/* The first line of a file of the folder; false when it cannot be read. */
bool cgroup_read_line(char *line, size_t size, const char *folder, const char *name);
/* A file of the folder that is one number; "max" and what is no number reads as false. */
bool cgroup_read_number(const char *folder, const char *name, uint64_t *out);
/* The number after `key` in a file of lines "key number". */
bool cgroup_read_key(const char *folder, const char *name, const char *key, uint64_t *out);

#endif
