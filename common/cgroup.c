#include "common/cgroup.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PATH_SIZE 1024

const cgroup_files cgroup_of_this_process = {"/proc/self/cgroup", "/sys/fs/cgroup"};

static FILE *open_file(const char *folder, const char *name)
{
    char path[PATH_SIZE];
    int n = snprintf(path, sizeof path, "%s/%s", folder, name);
    return n >= 0 && (size_t)n < sizeof path ? fopen(path, "re") : NULL;
}

bool cgroup_read_line(char *line, size_t size, const char *folder, const char *name)
{
    FILE *f = open_file(folder, name);
    if (!f)
        return false;
    bool ok = fgets(line, (int)size, f) != NULL;
    fclose(f);
    return ok;
}

static bool number_at(const char *text, uint64_t *out)
{
    char *end;
    if (*text < '0' || *text > '9')
        return false;
    errno = 0;
    *out = strtoull(text, &end, 10);
    return errno == 0;
}

bool cgroup_read_number(const char *folder, const char *name, uint64_t *out)
{
    char line[64];
    return cgroup_read_line(line, sizeof line, folder, name) && number_at(line, out);
}

bool cgroup_read_key(const char *folder, const char *name, const char *key, uint64_t *out)
{
    FILE *f = open_file(folder, name);
    char line[256];
    size_t n = strlen(key);
    bool found = false;
    while (f && !found && fgets(line, sizeof line, f))
        found = strncmp(line, key, n) == 0 && line[n] == ' ' && number_at(line + n + 1, out);
    if (f)
        fclose(f);
    return found;
}

/* From the group's folder up to the mount of its hierarchy. Inside a container the path may name a
 * folder that is not visible; its visible parents still count. */
static uint64_t least_up(const char *root, const char *group, cgroup_reader read)
{
    char folder[PATH_SIZE];
    uint64_t least = UINT64_MAX, found;
    int n = snprintf(folder, sizeof folder, "%s%s", root, strcmp(group, "/") == 0 ? "" : group);
    if (n < 0 || (size_t)n >= sizeof folder)
        return least;
    size_t root_length = strlen(root);
    for (;;) {
        if (read(folder, &found) && found < least)
            least = found;
        char *slash = strrchr(folder, '/');
        if (!slash || (size_t)(slash - folder) < root_length)
            return least;
        *slash = '\0';
    }
}

/* True when the comma-separated `list` holds the word. */
static bool names(const char *list, const char *word)
{
    size_t n = strlen(word);
    for (const char *at = list; at; at = strchr(at, ',')) {
        at += *at == ',';
        if (strncmp(at, word, n) == 0 && (at[n] == ',' || at[n] == '\0'))
            return true;
    }
    return false;
}

/* Version 1: a hierarchy is mounted under the names of all its controllers, or of one. */
static uint64_t least_v1(const char *mount, const char *controllers, const char *controller,
                         const char *group, cgroup_reader read)
{
    char root[PATH_SIZE];
    int n = snprintf(root, sizeof root, "%s/%s", mount, controllers);
    uint64_t joint = n > 0 && (size_t)n < sizeof root ? least_up(root, group, read) : UINT64_MAX;
    n = snprintf(root, sizeof root, "%s/%s", mount, controller);
    uint64_t alone = n > 0 && (size_t)n < sizeof root ? least_up(root, group, read) : UINT64_MAX;
    return joint != UINT64_MAX ? joint : alone;
}

uint64_t cgroup_least(const cgroup_files *files, const char *controller, cgroup_reader v2,
                      cgroup_reader v1)
{
    FILE *f = fopen(files->self, "re");
    uint64_t least = UINT64_MAX;
    char line[PATH_SIZE];
    while (f && fgets(line, sizeof line, f)) { /* "ID:controllers:path" */
        line[strcspn(line, "\n")] = '\0';
        char *controllers = strchr(line, ':');
        char *group = controllers ? strchr(controllers + 1, ':') : NULL;
        if (!group)
            continue;
        *group++ = '\0';
        controllers++;
        uint64_t found = UINT64_MAX;
        if (*controllers == '\0')
            found = least_up(files->mount, group, v2);
        else if (names(controllers, controller))
            found = least_v1(files->mount, controllers, controller, group, v1);
        least = found < least ? found : least;
    }
    if (f)
        fclose(f);
    return least;
}
