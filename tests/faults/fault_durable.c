#include "fault_durable.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#define PATH_BYTES 4096

typedef struct node {
    ino_t ino;
    mode_t mode;
    char *data; /* of a file: its bytes at the last fsync, none before the first */
    size_t size;
    struct node *next;
} node;

typedef struct name {
    const node *folder;
    node *file;
    char *text;
    struct name *next;
} name;

static struct {
    char dir[PATH_BYTES];
    node *nodes, *root;
    name *names;
} disk;

/* --- plain calls --- */

static int raw_open(const char *path, int flags, mode_t mode)
{
    return (int)syscall(SYS_openat, AT_FDCWD, path, flags | O_CLOEXEC | O_NOFOLLOW, mode);
}

static void raw_remove(const char *path, int flags)
{
    syscall(SYS_unlinkat, AT_FDCWD, path, flags);
}

static void raw_fill(const char *path, const node *n)
{
    int fd = raw_open(path, O_WRONLY | O_CREAT | O_TRUNC, n ? n->mode & 07777 : 0600);
    for (size_t at = 0; n && fd >= 0 && at < n->size;) {
        long written = syscall(SYS_write, fd, n->data + at, n->size - at);
        if (written <= 0)
            break;
        at += (size_t)written;
    }
    if (fd >= 0)
        close(fd);
}

static bool is_dots(const char *text)
{
    return strcmp(text, ".") == 0 || strcmp(text, "..") == 0;
}

/* --- what is synced --- */

static node *node_find(ino_t ino)
{
    node *n = disk.nodes;
    while (n && n->ino != ino)
        n = n->next;
    return n;
}

/* The open descriptor (O_PATH, so that closing others' locks is no matter) is kept for ever: as
 * long as it is there the inode's number means this file. */
static node *node_need(const char *path)
{
    struct stat st;
    int pin = raw_open(path, O_PATH, 0);
    if (pin < 0 || fstat(pin, &st) != 0)
        return NULL;
    node *n = node_find(st.st_ino);
    if (n) {
        close(pin);
    } else if ((n = calloc(1, sizeof *n))) {
        *n = (node){.ino = st.st_ino, .next = disk.nodes};
        disk.nodes = n;
    }
    if (n)
        n->mode = st.st_mode;
    return n;
}

static bool node_sync_bytes(node *n, int fd)
{
    struct stat st;
    if (fstat(fd, &st) != 0)
        return false;
    char *data = malloc((size_t)st.st_size + 1);
    if (!data)
        return false;
    size_t size = 0;
    for (ssize_t got; size < (size_t)st.st_size; size += (size_t)got)
        if ((got = pread(fd, data + size, (size_t)st.st_size - size, (off_t)size)) <= 0)
            break;
    free(n->data);
    n->data = data;
    n->size = size;
    return true;
}

/* One that is open for writing alone is read by another descriptor. */
static bool node_sync(node *n, int fd, const char *path)
{
    if ((fcntl(fd, F_GETFL) & O_ACCMODE) != O_WRONLY)
        return node_sync_bytes(n, fd);
    int own = raw_open(path, O_RDONLY, 0);
    bool synced = own >= 0 && node_sync_bytes(n, own);
    if (own >= 0)
        close(own);
    return synced;
}

static void names_forget(const node *folder)
{
    for (name **at = &disk.names; *at;) {
        name *gone = *at;
        if (gone->folder != folder) {
            at = &gone->next;
            continue;
        }
        *at = gone->next;
        free(gone->text);
        free(gone);
    }
}

static bool name_add(const node *folder, const char *path, const char *text)
{
    name *n = calloc(1, sizeof *n);
    node *file = node_need(path);
    if (!n || !file || !(n->text = strdup(text))) {
        free(n);
        return false;
    }
    n->folder = folder;
    n->file = file;
    n->next = disk.names;
    disk.names = n;
    return true;
}

static bool names_sync(const node *folder, const char *path)
{
    char below[PATH_BYTES];
    DIR *listing = opendir(path);
    bool kept = listing != NULL;
    names_forget(folder);
    for (struct dirent *e; kept && (e = readdir(listing));) {
        snprintf(below, sizeof below, "%s/%s", path, e->d_name);
        if (!is_dots(e->d_name) && e->d_type != DT_SOCK)
            kept = name_add(folder, below, e->d_name);
    }
    if (listing)
        closedir(listing);
    return kept;
}

bool durable_sync(int fd, const char *path)
{
    node *n = node_need(path);
    if (!n)
        return false;
    return S_ISDIR(n->mode) ? names_sync(n, path) : node_sync(n, fd, path);
}

static bool sync_all(const char *path)
{
    char below[PATH_BYTES];
    int fd = raw_open(path, O_RDONLY, 0);
    bool kept = fd >= 0 && durable_sync(fd, path);
    node *folder = kept ? node_need(path) : NULL;
    if (fd >= 0)
        close(fd);
    for (name *n = disk.names; kept && n; n = n->next) {
        if (n->folder != folder)
            continue;
        snprintf(below, sizeof below, "%s/%s", path, n->text);
        kept = sync_all(below);
    }
    return kept;
}

bool durable_begin(const char *dir)
{
    snprintf(disk.dir, sizeof disk.dir, "%s", dir);
    return sync_all(dir) && (disk.root = node_need(dir));
}

bool durable_sync_all(void)
{
    return sync_all(disk.dir);
}

/* --- going back --- */

static void remove_all(const char *path)
{
    char below[PATH_BYTES];
    DIR *listing = opendir(path);
    for (struct dirent *e; listing && (e = readdir(listing));) {
        snprintf(below, sizeof below, "%s/%s", path, e->d_name);
        if (!is_dots(e->d_name))
            remove_all(below);
    }
    if (listing)
        closedir(listing);
    raw_remove(path, listing ? AT_REMOVEDIR : 0);
}

/* Whether `path` is `file` now. */
static bool stands(const char *path, const node *file)
{
    struct stat st;
    return lstat(path, &st) == 0 && file && st.st_ino == file->ino;
}

static const name *name_find(const node *folder, const char *text)
{
    const name *n = disk.names;
    while (n && (n->folder != folder || strcmp(n->text, text) != 0))
        n = n->next;
    return n;
}

static void restore(const node *folder, const char *path)
{
    char below[PATH_BYTES];
    DIR *listing = opendir(path);
    for (struct dirent *e; listing && (e = readdir(listing));) {
        const name *n = name_find(folder, e->d_name);
        snprintf(below, sizeof below, "%s/%s", path, e->d_name);
        if (!is_dots(e->d_name) && (!n || !stands(below, n->file)))
            remove_all(below);
    }
    if (listing)
        closedir(listing);
    for (const name *n = disk.names; n; n = n->next) {
        if (n->folder != folder)
            continue;
        snprintf(below, sizeof below, "%s/%s", path, n->text);
        if (S_ISREG(n->file->mode)) {
            raw_fill(below, n->file);
        } else if (S_ISDIR(n->file->mode)) {
            syscall(SYS_mkdirat, AT_FDCWD, below, n->file->mode & 07777);
            restore(n->file, below);
        }
    }
}

static void restore_bytes(const char *path)
{
    char below[PATH_BYTES];
    struct stat st;
    if (lstat(path, &st) != 0)
        return;
    if (S_ISREG(st.st_mode))
        raw_fill(path, node_find(st.st_ino));
    DIR *listing = S_ISDIR(st.st_mode) ? opendir(path) : NULL;
    for (struct dirent *e; listing && (e = readdir(listing));) {
        snprintf(below, sizeof below, "%s/%s", path, e->d_name);
        if (!is_dots(e->d_name))
            restore_bytes(below);
    }
    if (listing)
        closedir(listing);
}

void durable_restore(bool names_stay)
{
    if (names_stay)
        restore_bytes(disk.dir);
    else
        restore(disk.root, disk.dir);
}
