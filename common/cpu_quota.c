#include "common/cpu_quota.h"

#include <errno.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PATH_SIZE 1024

static bool read_line(char *line, size_t size, const char *folder, const char *name)
{
    char path[PATH_SIZE];
    int n = snprintf(path, sizeof path, "%s/%s", folder, name);
    if (n < 0 || (size_t)n >= sizeof path)
        return false;
    FILE *f = fopen(path, "re");
    if (!f)
        return false;
    bool ok = fgets(line, (int)size, f) != NULL;
    fclose(f);
    return ok;
}

static size_t processors(int64_t quota, int64_t period)
{
    if (quota <= 0 || period <= 0)
        return 0;
    int64_t n = quota / period + (quota % period != 0);
    return (size_t)n;
}

/* The next number of the line; false where there is none or it is beyond 64 bits. */
static bool read_number(const char **at, int64_t *out)
{
    char *end;
    errno = 0;
    *out = strtoll(*at, &end, 10);
    bool read = end != *at && errno == 0;
    *at = end;
    return read;
}

static size_t quota_v2(const char *folder)
{
    char line[128];
    int64_t quota, period;
    if (!read_line(line, sizeof line, folder, "cpu.max"))
        return 0;
    /* "max 100000" means no limit and does not read as a number. */
    const char *at = line;
    return read_number(&at, &quota) && read_number(&at, &period) ? processors(quota, period) : 0;
}

static size_t quota_v1(const char *folder)
{
    char line[64];
    int64_t quota, period;
    const char *at = line;
    if (!read_line(line, sizeof line, folder, "cpu.cfs_quota_us") || !read_number(&at, &quota))
        return 0;
    at = line;
    if (!read_line(line, sizeof line, folder, "cpu.cfs_period_us") || !read_number(&at, &period))
        return 0;
    return processors(quota, period);
}

/* The smallest limit from the group's folder up to the mount of its hierarchy. Inside a container
 * the path may name a folder that is not visible; its visible parents still count. */
static size_t smallest(const char *root, const char *group, size_t (*quota)(const char *folder))
{
    char folder[PATH_SIZE];
    int n = snprintf(folder, sizeof folder, "%s%s", root, strcmp(group, "/") == 0 ? "" : group);
    if (n < 0 || (size_t)n >= sizeof folder)
        return 0;
    size_t least = 0;
    size_t root_length = strlen(root);
    for (;;) {
        size_t limit = quota(folder);
        if (limit > 0 && (least == 0 || limit < least))
            least = limit;
        char *slash = strrchr(folder, '/');
        if (!slash || (size_t)(slash - folder) < root_length)
            return least;
        *slash = '\0';
    }
}

/* True when the comma-separated `list` holds the word "cpu". */
static bool names_cpu(const char *list)
{
    for (const char *at = list; at; at = strchr(at, ',')) {
        at += *at == ',';
        if (strncmp(at, "cpu", 3) == 0 && (at[3] == ',' || at[3] == '\0'))
            return true;
    }
    return false;
}

/* One line of /proc/self/cgroup: "ID:controllers:path". */
static size_t limit_of_line(char *line, const char *mount)
{
    line[strcspn(line, "\n")] = '\0';
    char *controllers = strchr(line, ':');
    char *group = controllers ? strchr(controllers + 1, ':') : NULL;
    if (!group)
        return 0;
    *group++ = '\0';
    controllers++;
    if (*controllers == '\0')
        return smallest(mount, group, quota_v2);
    if (!names_cpu(controllers))
        return 0;
    char root[PATH_SIZE];
    int n = snprintf(root, sizeof root, "%s/%s", mount, controllers);
    size_t joint = n > 0 && (size_t)n < sizeof root ? smallest(root, group, quota_v1) : 0;
    n = snprintf(root, sizeof root, "%s/cpu", mount);
    size_t alone = n > 0 && (size_t)n < sizeof root ? smallest(root, group, quota_v1) : 0;
    return joint ? joint : alone;
}

size_t cpu_quota_limit(const char *self_cgroup, const char *mount)
{
    FILE *f = fopen(self_cgroup, "re");
    if (!f)
        return 0;
    size_t least = 0;
    char line[PATH_SIZE];
    while (fgets(line, sizeof line, f)) {
        size_t limit = limit_of_line(line, mount);
        if (limit > 0 && (least == 0 || limit < least))
            least = limit;
    }
    fclose(f);
    return least;
}
