#include "common/file.h"

#include "common/map_guard.h"
#include "common/memory_limit.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

const char *tacit_file_hint(int code)
{
    switch (code) {
    case ENOSPC:
    case EDQUOT:
        return "; free space on that disk and try again";
    case EIO:
        return "; that disk fails, check it and try again";
    case EROFS:
        return "; make that disk writable and try again";
    case EACCES:
    case EPERM:
        return "; check the permissions of it and its folder";
    default:
        return "";
    }
}

static tacit_status fail_as(tacit_status status, tacit_error *err, const char *path,
                            const char *what)
{
    int code = errno;
    return tacit_fail(err, status, "%s: cannot %s: %s%s", path, what, strerror(code),
                      tacit_file_hint(code));
}

tacit_status tacit_file_fail(tacit_error *err, const char *path, const char *what)
{
    return fail_as(TACIT_IO, err, path, what);
}

/* Of calls that somebody's name may make fail. */
static tacit_status fail_named(tacit_error *err, const char *path, const char *what)
{
    return fail_as(errno == ENOENT ? TACIT_NOT_FOUND : TACIT_IO, err, path, what);
}

static const char *not_a_file(mode_t mode)
{
    return S_ISDIR(mode)    ? "folder"
           : S_ISFIFO(mode) ? "pipe"
           : S_ISSOCK(mode) ? "socket"
                            : "device";
}

static tacit_status open_regular(const char *path, int *fd, size_t *size, tacit_error *err)
{
    struct stat st;
    int opened = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    *fd = -1;
    *size = 0;
    if (opened < 0)
        return fail_named(err, path, "open");
    if (fstat(opened, &st) != 0) {
        close(opened);
        return fail_named(err, path, "stat");
    }
    if (!S_ISREG(st.st_mode)) {
        close(opened);
        return tacit_fail(err, TACIT_BAD_INPUT, "%s: expected a regular file, found a %s", path,
                          not_a_file(st.st_mode));
    }
    *fd = opened;
    *size = (size_t)st.st_size;
    return TACIT_OK;
}

static tacit_status read_all(int fd, uint8_t *data, size_t size, size_t *got)
{
    *got = 0;
    while (*got < size) {
        ssize_t n = read(fd, data + *got, size - *got);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return TACIT_IO;
        if (n == 0)
            break;
        *got += (size_t)n;
    }
    return TACIT_OK;
}

tacit_status tacit_file_read(const char *path, size_t cap, uint8_t **data, size_t *size,
                             tacit_error *err)
{
    int fd;
    size_t length;
    tacit_status status = open_regular(path, &fd, &length, err);
    if (status != TACIT_OK)
        return status;
    if (length > cap) {
        close(fd);
        return tacit_fail(err, TACIT_BAD_INPUT, "%s: expected at most %zu bytes, found %zu", path,
                          cap, length);
    }
    void *bytes;
    status = tacit_memory_alloc(&bytes, 1, length + 1, path, "give a smaller file", err);
    if (status != TACIT_OK) {
        close(fd);
        return status;
    }
    status = read_all(fd, bytes, length, size);
    if (status != TACIT_OK) {
        fail_named(err, path, "read");
        free(bytes);
        close(fd);
        return status;
    }
    close(fd);
    *data = bytes;
    (*data)[*size] = 0;
    return TACIT_OK;
}

bool tacit_file_write_all(int fd, const void *data, size_t size)
{
    const uint8_t *from = data;
    while (size > 0) {
        ssize_t n = write(fd, from, size);
        if (n < 0 && errno == EINTR)
            continue;
        if (n == 0)
            errno = ENOSPC;
        if (n <= 0)
            return false;
        from += n;
        size -= (size_t)n;
    }
    return true;
}

tacit_status tacit_file_sync_dir(const char *path, tacit_error *err)
{
    int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0)
        return fail_named(err, path, "open folder");
    int failed = fsync(fd);
    close(fd);
    return failed ? fail_named(err, path, "fsync folder") : TACIT_OK;
}

/* The folder that `path` lies in. */
static tacit_status parent_of(char *parent, size_t size, const char *path, tacit_error *err)
{
    const char *slash = strrchr(path, '/');
    size_t n = slash ? (size_t)(slash - path) : 0;
    if (n >= size)
        return tacit_fail(err, TACIT_BAD_INPUT, "%s: path is too long", path);
    memcpy(parent, path, n);
    parent[n] = '\0';
    if (n == 0)
        memcpy(parent, slash ? "/" : ".", 2);
    return TACIT_OK;
}

tacit_status tacit_file_sync_parent(const char *path, tacit_error *err)
{
    char parent[4096];
    tacit_status status = parent_of(parent, sizeof parent, path, err);
    return status == TACIT_OK ? tacit_file_sync_dir(parent, err) : status;
}

/* Whether `fd` still is what stands at `path`: another writer may have published it meanwhile. */
static bool stands_at(int fd, const char *path, struct stat *st)
{
    struct stat named;
    return fstat(fd, st) == 0 && lstat(path, &named) == 0 && st->st_dev == named.st_dev &&
           st->st_ino == named.st_ino;
}

tacit_status tacit_file_lock(const char *path, int *fd, tacit_error *err)
{
    *fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    if (*fd < 0)
        return fail_named(err, path, "open");
    if (flock(*fd, LOCK_EX | LOCK_NB) == 0)
        return TACIT_OK;
    close(*fd);
    *fd = -1;
    return tacit_fail(err, TACIT_CONFLICT, "%s: another process has this lock", path);
}

/* The one temporary file of a name, empty and locked: what a killed writer left is taken over, a
 * living one is waited for (where the file system has no locks, writers of one name must not
 * meet). */
static tacit_status temporary_open(const char *path, int *fd, tacit_error *err)
{
    struct stat st = {0};
    do {
        *fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, 0600);
        if (*fd < 0)
            return fail_named(err, path, "create");
        while (flock(*fd, LOCK_EX) != 0 && errno == EINTR)
            continue;
        if (stands_at(*fd, path, &st))
            break;
        close(*fd);
    } while (true);
    tacit_status status = TACIT_OK;
    if (!S_ISREG(st.st_mode) || st.st_uid != geteuid() || st.st_nlink != 1)
        status = tacit_fail(err, TACIT_CONFLICT,
                            "%s: expected what an interrupted write left, found another's file; "
                            "remove it",
                            path);
    else if (st.st_size > 0 && ftruncate(*fd, 0) != 0)
        status = fail_named(err, path, "empty");
    if (status != TACIT_OK)
        close(*fd);
    return status;
}

/* A link such as /dev/stdout leads into /proc, where nothing can be put in its place. */
static bool leads_into_proc(const char *path)
{
    static const char proc[] = "/proc/";
    char target[sizeof proc];
    ssize_t n = readlink(path, target, sizeof target);
    return n >= (ssize_t)sizeof proc - 1 && memcmp(target, proc, sizeof proc - 1) == 0;
}

/* What is published takes the place of what stands there: of a device, all programs would lose it.
 */
static tacit_status check_kind(const char *path, tacit_error *err)
{
    struct stat st;
    if (*path == '\0')
        return tacit_fail(err, TACIT_USAGE, "'': expected the name of a file to write to");
    bool there = stat(path, &st) == 0, in_proc = leads_into_proc(path);
    if ((!there || S_ISREG(st.st_mode)) && !in_proc)
        return TACIT_OK;
    return tacit_fail(err, TACIT_USAGE,
                      "%s: expected a regular file, or none yet, to write to, found a %s; name "
                      "another",
                      path, in_proc ? "link into /proc" : not_a_file(st.st_mode));
}

tacit_status tacit_file_publish(const char *path, unsigned mode,
                                tacit_status (*write)(void *ctx, int fd, tacit_error *err),
                                void *ctx, tacit_error *err)
{
    char temporary[4096];
    int fd, n = snprintf(temporary, sizeof temporary, "%s" TACIT_FILE_UNFINISHED, path);
    if (n < 0 || (size_t)n >= sizeof temporary)
        return tacit_fail(err, TACIT_BAD_INPUT, "%s: path is too long", path);
    tacit_status status = check_kind(path, err);
    if (status == TACIT_OK)
        status = temporary_open(temporary, &fd, err);
    if (status != TACIT_OK)
        return status;
    status = write(ctx, fd, err);
    if (status == TACIT_OK && (fchmod(fd, mode) != 0 || fsync(fd) != 0))
        status = fail_named(err, path, "write");
    else if (status == TACIT_OK && rename(temporary, path) != 0)
        status = fail_named(err, path, "publish");
    if (status != TACIT_OK)
        unlink(temporary);
    close(fd);
    return status == TACIT_OK ? tacit_file_sync_parent(path, err) : status;
}

static bool same_inode(const struct stat *a, const struct stat *b)
{
    return a->st_dev == b->st_dev && a->st_ino == b->st_ino;
}

/* Files that are there are told by what they are, others by folder and name. */
static bool is_same_file(const char *a, const char *b)
{
    struct stat one, two;
    char parent_a[4096], parent_b[4096];
    bool there_a = stat(a, &one) == 0, there_b = stat(b, &two) == 0;
    if (there_a || there_b)
        return there_a && there_b && same_inode(&one, &two);
    const char *name_a = strrchr(a, '/'), *name_b = strrchr(b, '/');
    return strcmp(name_a ? name_a + 1 : a, name_b ? name_b + 1 : b) == 0 &&
           parent_of(parent_a, sizeof parent_a, a, NULL) == TACIT_OK &&
           parent_of(parent_b, sizeof parent_b, b, NULL) == TACIT_OK && stat(parent_a, &one) == 0 &&
           stat(parent_b, &two) == 0 && same_inode(&one, &two);
}

static tacit_status check_place(const char *path, tacit_error *err)
{
    char parent[4096];
    tacit_status status = check_kind(path, err);
    if (status == TACIT_OK)
        status = parent_of(parent, sizeof parent, path, err);
    if (status == TACIT_OK && access(parent, W_OK | X_OK) != 0)
        status = fail_named(err, path, "create");
    return status;
}

tacit_status tacit_file_check_results(const char *const *result, size_t n,
                                      const char *const *source, size_t m, tacit_error *err)
{
    for (size_t i = 0; i < n; i++) {
        if (!result[i])
            continue;
        for (size_t k = 0; k < m; k++)
            if (source[k] && is_same_file(result[i], source[k]))
                return tacit_fail(err, TACIT_USAGE,
                                  "%s: would be written over %s, which is read; name another file",
                                  result[i], source[k]);
        for (size_t k = 0; k < i; k++)
            if (result[k] && is_same_file(result[i], result[k]))
                return tacit_fail(err, TACIT_USAGE,
                                  "%s: named for two results; give each a file of its own",
                                  result[i]);
        tacit_status status = check_place(result[i], err);
        if (status != TACIT_OK)
            return status;
    }
    return TACIT_OK;
}

typedef struct whole_file {
    const char *path;
    const void *data;
    size_t size;
} whole_file;

static tacit_status write_whole(void *ctx, int fd, tacit_error *err)
{
    const whole_file *f = ctx;
    return tacit_file_write_all(fd, f->data, f->size) ? TACIT_OK
                                                      : fail_named(err, f->path, "write");
}

tacit_status tacit_file_write(const char *path, const void *data, size_t size, unsigned mode,
                              tacit_error *err)
{
    whole_file f = {path, data, size};
    return tacit_file_publish(path, mode, write_whole, &f, err);
}

tacit_status tacit_file_make_dir(const char *path, unsigned mode, tacit_error *err)
{
    char part[4096];
    size_t length = strlen(path);
    if (length == 0 || length >= sizeof part)
        return tacit_fail(err, TACIT_BAD_INPUT, "'%s': not a usable folder name", path);
    memcpy(part, path, length + 1);
    for (size_t i = 1; i <= length; i++) {
        if (part[i] != '/' && part[i] != '\0')
            continue;
        char kept = part[i];
        part[i] = '\0';
        bool made = mkdir(part, mode) == 0;
        if (!made && errno != EEXIST)
            return fail_named(err, part, "create folder");
        tacit_status status = made ? tacit_file_sync_parent(part, err) : TACIT_OK;
        if (status != TACIT_OK)
            return status;
        part[i] = kept;
    }
    struct stat st;
    if (stat(path, &st) != 0 || !S_ISDIR(st.st_mode))
        return tacit_fail(err, TACIT_IO, "%s: expected a folder, found something else", path);
    return TACIT_OK;
}

tacit_status tacit_file_map_open(tacit_file_map *map, const char *path, tacit_error *err)
{
    int fd;
    size_t size;
    *map = (tacit_file_map){0};
    tacit_status status = open_regular(path, &fd, &size, err);
    if (status != TACIT_OK)
        return status;
    if (size == 0) {
        close(fd);
        return tacit_fail(err, TACIT_BAD_INPUT, "%s: the file is empty", path);
    }
    void *data = mmap(NULL, size, PROT_READ, MAP_PRIVATE, fd, 0);
    if (data == MAP_FAILED)
        status = fail_named(err, path, "map");
    else {
        *map = (tacit_file_map){data, size};
        map_guard_add(data, size, path);
    }
    close(fd);
    return status;
}

void tacit_file_map_close(tacit_file_map *map)
{
    if (map->data) {
        map_guard_remove(map->data);
        munmap((void *)(uintptr_t)map->data, map->size);
    }
    *map = (tacit_file_map){0};
}

void tacit_file_map_forget(const tacit_file_map *map, const void *data, size_t size)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE), at = (size_t)((const uint8_t *)data - map->data);
    if (!map->data || at > map->size || size > map->size - at)
        return;
    size_t first = (at + page - 1) / page * page, end = (at + size) / page * page;
    if (first < end)
        (void)madvise((void *)(uintptr_t)(map->data + first), end - first, MADV_DONTNEED);
}

bool tacit_file_write_at(int fd, const void *data, size_t size, uint64_t offset)
{
    const uint8_t *from = data;
    while (size > 0) {
        ssize_t n = pwrite(fd, from, size, (off_t)offset);
        if (n < 0 && errno == EINTR)
            continue;
        if (n == 0)
            errno = ENOSPC;
        if (n <= 0)
            return false;
        from += n;
        offset += (uint64_t)n;
        size -= (size_t)n;
    }
    return true;
}

bool tacit_file_read_at(int fd, void *data, size_t size, uint64_t offset)
{
    uint8_t *to = data;
    while (size > 0) {
        ssize_t n = pread(fd, to, size, (off_t)offset);
        if (n < 0 && errno == EINTR)
            continue;
        if (n == 0)
            errno = ENODATA;
        if (n <= 0)
            return false;
        to += n;
        offset += (uint64_t)n;
        size -= (size_t)n;
    }
    return true;
}

tacit_status tacit_file_join(char *out, size_t out_size, const char *dir, const char *name,
                             tacit_error *err)
{
    int n = snprintf(out, out_size, "%s/%s", dir, name);
    if (n < 0 || (size_t)n >= out_size)
        return tacit_fail(err, TACIT_BAD_INPUT, "%s/%s: path is longer than %zu bytes", dir, name,
                          out_size - 1);
    return TACIT_OK;
}

int tacit_file_path_is_inside(const char *path)
{
    if (*path == '\0' || *path == '/')
        return 0;
    for (const char *part = path;;) {
        size_t n = strcspn(part, "/");
        if (n == 0 || (n == 1 && part[0] == '.') || (n == 2 && part[0] == '.' && part[1] == '.'))
            return 0;
        if (part[n] == '\0')
            return 1;
        part += n + 1;
    }
}
