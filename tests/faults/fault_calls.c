/* A library for LD_PRELOAD that ends or disturbs a process at one of its calls that change files.
 *
 * It stands between a program and the C library's calls that write, create, rename, remove or sync
 * below one folder, and numbers them from 1. Programs under test need no change. Children that the
 * process starts are left alone (the variables and LD_PRELOAD are taken out of the environment).
 *
 *   TACIT_FAULT_DIR   absolute folder; calls on other files and on sockets are not counted
 *   TACIT_FAULT_AT    the number of the call that fails; 0: none
 *   TACIT_FAULT_KIND  what happens there (below); "+" behind an error: to every later call as well
 *   TACIT_FAULT_LOG   a file outside the folder: one line "NUMBER CALL PATH" for the call that
 *                     failed, or with TACIT_FAULT_AT=0 for every call
 *
 *   kill      SIGKILL before the call
 *   torn      a write writes the first half of its bytes, any other call is carried out; SIGKILL
 *   power     as kill, and the folder goes back to what was synced: each file to its bytes at its
 *             last fsync, each folder to its names at its last fsync
 *   names     as power, but names stay as they are: a file that was never synced is empty
 *   short     a write writes half of its bytes and says so; any other call is carried out
 *   full      half of the bytes; later calls fail with ENOSPC: a disk that fills up
 *   enospc, eio, erofs   the call fails so, without effect
 *
 * A killed process loses nothing that the kernel has: `kill` and `torn` leave every byte written so
 * far. `power` and `names` are the two extremes of what a disk may keep of the rest; what lies
 * between (some pages of a file and not others) is not tried. What stood in the folder when the
 * process began counts as synced. Memory that a process shares with a file by mmap is not seen:
 * of this project's files that is SQLite's -shm alone, which it builds anew after a crash.
 *
 * fsync, fdatasync and syncfs are counted but carried out only in memory: no disk is asked. Streams
 * opened for writing (fopen) are made unbuffered, so that each fwrite is one write.
 *
 * The lock is held during each counted call: their order is the order on disk. */
#include "fault_durable.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/un.h>
#include <unistd.h>

#define EXPORTED __attribute__((visibility("default")))
#define NAME_BYTES 4096

/* The next definition of a function: the C library's, or a sanitizer's. */
#define REAL(name) ((__typeof__(&name))real(#name))

typedef enum effect { GO_ON, REFUSE, HALF } effect;
/* What a call does: a full disk still removes, a read-only one still syncs. */
typedef enum sort { WRITES, CREATES, REMOVES, SYNCS, MARKS } sort;

static struct {
    char dir[NAME_BYTES];
    size_t dir_length;
    unsigned long at, calls;
    bool kills, torn, half, sticky, models_power, names_stay;
    int error; /* errno of the fault, 0: none */
    int log;
    pthread_mutex_t lock;
} fault = {.log = -1, .lock = PTHREAD_MUTEX_INITIALIZER};

static void *real(const char *name)
{
    void *found = dlsym(RTLD_NEXT, name);
    if (!found)
        abort();
    return found;
}

/* --- setting up --- */

static const struct {
    const char *word;
    bool kills, torn, half, sticky, models_power, names_stay;
    int error;
} kinds[] = {
    {.word = "kill", .kills = true},
    {.word = "torn", .kills = true, .torn = true},
    {.word = "power", .kills = true, .models_power = true},
    {.word = "names", .kills = true, .models_power = true, .names_stay = true},
    {.word = "short", .half = true},
    {.word = "full", .half = true, .sticky = true, .error = ENOSPC},
    {.word = "enospc", .error = ENOSPC},
    {.word = "enospc+", .sticky = true, .error = ENOSPC},
    {.word = "eio", .error = EIO},
    {.word = "eio+", .sticky = true, .error = EIO},
    {.word = "erofs", .error = EROFS},
    {.word = "erofs+", .sticky = true, .error = EROFS},
};

static void give_up(const char *why)
{
    dprintf(STDERR_FILENO, "fault_calls: %s\n", why);
    _exit(99);
}

static void choose_kind(const char *word)
{
    for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++) {
        if (strcmp(kinds[i].word, word) != 0)
            continue;
        fault.kills = kinds[i].kills;
        fault.torn = kinds[i].torn;
        fault.half = kinds[i].half;
        fault.sticky = kinds[i].sticky;
        fault.models_power = kinds[i].models_power;
        fault.names_stay = kinds[i].names_stay;
        fault.error = kinds[i].error;
        return;
    }
    give_up(
        "TACIT_FAULT_KIND is none of kill, torn, power, names, short, full, enospc, eio, erofs");
}

__attribute__((constructor)) static void set_up(void)
{
    const char *dir = getenv("TACIT_FAULT_DIR"), *at = getenv("TACIT_FAULT_AT");
    const char *kind = getenv("TACIT_FAULT_KIND"), *log = getenv("TACIT_FAULT_LOG");
    if (!dir)
        return;
    if (!realpath(dir, fault.dir))
        give_up("TACIT_FAULT_DIR is no folder");
    fault.dir_length = strlen(fault.dir);
    fault.at = at ? strtoul(at, NULL, 10) : 0;
    choose_kind(kind ? kind : "kill");
    if (log)
        fault.log =
            (int)syscall(SYS_openat, AT_FDCWD, log, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    if (fault.models_power && !durable_begin(fault.dir))
        give_up("no memory for what was synced");
    unsetenv("LD_PRELOAD");
    unsetenv("TACIT_FAULT_DIR");
}

/* --- which calls count --- */

static bool is_inside(const char *path)
{
    return fault.dir_length && strncmp(path, fault.dir, fault.dir_length) == 0 &&
           (path[fault.dir_length] == '/' || path[fault.dir_length] == '\0');
}

static bool place_of_fd(int fd, char path[NAME_BYTES])
{
    char link[64];
    if (!fault.dir_length)
        return false;
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t n = readlink(link, path, NAME_BYTES - 1);
    path[n > 0 ? n : 0] = '\0';
    return is_inside(path);
}

/* Relative names are those of the working folder or of `at`; links in them are not followed. */
static bool place_of_name(int at, const char *name, char path[NAME_BYTES])
{
    char folder[NAME_BYTES] = "";
    if (!fault.dir_length)
        return false;
    if (name[0] != '/' && at == AT_FDCWD && !getcwd(folder, sizeof folder))
        return false;
    if (name[0] != '/' && at != AT_FDCWD)
        place_of_fd(at, folder);
    snprintf(path, NAME_BYTES, "%s%s%s", folder, name[0] == '/' ? "" : "/", name);
    return is_inside(path);
}

/* --- what happens --- */

static void die(void)
{
    if (fault.models_power)
        durable_restore(fault.names_stay);
    kill(getpid(), SIGKILL);
    for (;;)
        pause();
}

static void tell(const char *call, const char *path)
{
    char line[NAME_BYTES + 64];
    if (fault.log < 0 || (fault.at && fault.calls != fault.at))
        return;
    int n = snprintf(line, sizeof line, "%lu %s %s\n", fault.calls, call, path);
    syscall(SYS_write, fault.log, line, (size_t)n);
}

static bool concerns(sort what)
{
    return !(fault.error == ENOSPC && (what == REMOVES || what == MARKS)) &&
           !(fault.error == EROFS && what == SYNCS);
}

/* Takes the lock, counts the call and says how it goes; `done` must follow. */
static effect begin(sort what, const char *call, const char *path)
{
    pthread_mutex_lock(&fault.lock);
    fault.calls++;
    tell(call, path);
    bool here = fault.at && fault.calls == fault.at;
    bool later = fault.at && fault.calls > fault.at && fault.sticky;
    if (here && fault.kills && !fault.torn)
        die();
    if (here && (fault.torn || fault.half))
        return what == WRITES ? HALF : GO_ON;
    if ((here || later) && fault.error && concerns(what))
        return REFUSE;
    return GO_ON;
}

static void done(void)
{
    int kept = errno;
    if (fault.torn && fault.calls == fault.at)
        die();
    pthread_mutex_unlock(&fault.lock);
    errno = kept;
}

static int refused(void)
{
    pthread_mutex_unlock(&fault.lock);
    errno = fault.error;
    return -1;
}

/* --- writing --- */

#define WRITE_LIKE(call, fd, size, full, half)                                                     \
    char path[NAME_BYTES];                                                                         \
    if (!place_of_fd(fd, path))                                                                    \
        return full;                                                                               \
    effect e = begin(WRITES, call, path);                                                          \
    if (e == REFUSE)                                                                               \
        return refused();                                                                          \
    ssize_t n = e == HALF && (size) > 1 ? half : full;                                             \
    done();                                                                                        \
    return n

EXPORTED ssize_t write(int fd, const void *data, size_t size)
{
    WRITE_LIKE("write", fd, size, REAL(write)(fd, data, size), REAL(write)(fd, data, size / 2));
}

EXPORTED ssize_t pwrite(int fd, const void *data, size_t size, off_t at)
{
    WRITE_LIKE("pwrite", fd, size, REAL(pwrite)(fd, data, size, at),
               REAL(pwrite)(fd, data, size / 2, at));
}

EXPORTED ssize_t pwrite64(int fd, const void *data, size_t size, off64_t at)
{
    WRITE_LIKE("pwrite", fd, size, REAL(pwrite64)(fd, data, size, at),
               REAL(pwrite64)(fd, data, size / 2, at));
}

/* Half of it: the first buffer alone, or half of a single one. */
static ssize_t writev_half(int fd, const struct iovec *part, int count)
{
    return count > 1 ? REAL(writev)(fd, part, 1)
                     : REAL(write)(fd, part[0].iov_base, part[0].iov_len / 2);
}

EXPORTED ssize_t writev(int fd, const struct iovec *part, int count)
{
    WRITE_LIKE("writev", fd, (size_t)count, REAL(writev)(fd, part, count),
               writev_half(fd, part, count));
}

EXPORTED size_t fwrite(const void *data, size_t size, size_t count, FILE *file)
{
    char path[NAME_BYTES];
    int fd = fileno(file);
    if (fd < 0 || !place_of_fd(fd, path))
        return REAL(fwrite)(data, size, count, file);
    effect e = begin(WRITES, "fwrite", path);
    if (e == REFUSE) {
        refused();
        return 0;
    }
    size_t n = REAL(fwrite)(data, size, count, file);
    if (e == HALF && fault.torn) /* a stream goes on after a short write by itself */
        syscall(SYS_ftruncate, fd, lseek(fd, 0, SEEK_CUR) - (off_t)(size * count / 2));
    done();
    return n;
}

/* --- syncing --- */

static int sync_like(const char *call, int fd, int (*sync)(int))
{
    char path[NAME_BYTES];
    if (!place_of_fd(fd, path))
        return sync(fd);
    if (begin(SYNCS, call, path) == REFUSE)
        return refused();
    if (fault.models_power && !durable_sync(fd, path))
        give_up("no memory for what was synced");
    done();
    return 0;
}

EXPORTED int fsync(int fd)
{
    return sync_like("fsync", fd, REAL(fsync));
}

EXPORTED int fdatasync(int fd)
{
    return sync_like("fdatasync", fd, REAL(fdatasync));
}

EXPORTED int syncfs(int fd)
{
    char path[NAME_BYTES];
    if (!place_of_fd(fd, path))
        return REAL(syncfs)(fd);
    if (begin(SYNCS, "syncfs", path) == REFUSE)
        return refused();
    if (fault.models_power && !durable_sync_all())
        give_up("no memory for what was synced");
    done();
    return 0;
}

/* --- calls that take a descriptor or a name and return 0 or -1 --- */

#define FD_LIKE(what, name, fd, ...)                                                               \
    char path[NAME_BYTES];                                                                         \
    if (!place_of_fd(fd, path))                                                                    \
        return REAL(name)(__VA_ARGS__);                                                            \
    if (begin(what, #name, path) == REFUSE)                                                        \
        return refused();                                                                          \
    int n = REAL(name)(__VA_ARGS__);                                                               \
    done();                                                                                        \
    return n

#define NAME_LIKE(what, name, at, file, ...)                                                       \
    char path[NAME_BYTES];                                                                         \
    if (!place_of_name(at, file, path))                                                            \
        return REAL(name)(__VA_ARGS__);                                                            \
    if (begin(what, #name, path) == REFUSE)                                                        \
        return refused();                                                                          \
    int n = REAL(name)(__VA_ARGS__);                                                               \
    done();                                                                                        \
    return n

EXPORTED int ftruncate(int fd, off_t size)
{
    FD_LIKE(MARKS, ftruncate, fd, fd, size);
}

EXPORTED int ftruncate64(int fd, off64_t size)
{
    FD_LIKE(MARKS, ftruncate64, fd, fd, size);
}

EXPORTED int fallocate(int fd, int mode, off_t at, off_t size)
{
    FD_LIKE(CREATES, fallocate, fd, fd, mode, at, size);
}

EXPORTED int fchmod(int fd, mode_t mode)
{
    FD_LIKE(MARKS, fchmod, fd, fd, mode);
}

EXPORTED int chmod(const char *file, mode_t mode)
{
    NAME_LIKE(MARKS, chmod, AT_FDCWD, file, file, mode);
}

EXPORTED int truncate(const char *file, off_t size)
{
    NAME_LIKE(MARKS, truncate, AT_FDCWD, file, file, size);
}

EXPORTED int unlink(const char *file)
{
    NAME_LIKE(REMOVES, unlink, AT_FDCWD, file, file);
}

EXPORTED int unlinkat(int at, const char *file, int flags)
{
    NAME_LIKE(REMOVES, unlinkat, at, file, at, file, flags);
}

EXPORTED int remove(const char *file)
{
    NAME_LIKE(REMOVES, remove, AT_FDCWD, file, file);
}

EXPORTED int rmdir(const char *file)
{
    NAME_LIKE(REMOVES, rmdir, AT_FDCWD, file, file);
}

EXPORTED int rename(const char *from, const char *to)
{
    NAME_LIKE(CREATES, rename, AT_FDCWD, to, from, to);
}

EXPORTED int renameat(int from_at, const char *from, int to_at, const char *to)
{
    NAME_LIKE(CREATES, renameat, to_at, to, from_at, from, to_at, to);
}

EXPORTED int renameat2(int from_at, const char *from, int to_at, const char *to, unsigned flags)
{
    NAME_LIKE(CREATES, renameat2, to_at, to, from_at, from, to_at, to, flags);
}

EXPORTED int link(const char *from, const char *to)
{
    NAME_LIKE(CREATES, link, AT_FDCWD, to, from, to);
}

EXPORTED int linkat(int from_at, const char *from, int to_at, const char *to, int flags)
{
    NAME_LIKE(CREATES, linkat, to_at, to, from_at, from, to_at, to, flags);
}

EXPORTED int symlink(const char *target, const char *name)
{
    NAME_LIKE(CREATES, symlink, AT_FDCWD, name, target, name);
}

/* A folder that is there already is no change. */
EXPORTED int mkdir(const char *name, mode_t mode)
{
    if (access(name, F_OK) == 0)
        return REAL(mkdir)(name, mode);
    NAME_LIKE(CREATES, mkdir, AT_FDCWD, name, name, mode);
}

EXPORTED int bind(int fd, const struct sockaddr *address, socklen_t size)
{
    const struct sockaddr_un *local = (const void *)address;
    if (address->sa_family != AF_UNIX || !local->sun_path[0])
        return REAL(bind)(fd, address, size);
    NAME_LIKE(CREATES, bind, AT_FDCWD, local->sun_path, fd, address, size);
}

/* --- opening --- */

/* Counts when it makes or empties a file. One that is only opened to be written to is no change,
 * but a disk that has become read-only refuses it. */
static int open_counted(const char *call, int at, const char *name, int flags, mode_t mode)
{
    char path[NAME_BYTES];
    struct stat st;
    int (*openat_real)(int, const char *, int, ...) = REAL(openat);
    if (!place_of_name(at, name, path))
        return openat_real(at, name, flags, mode);
    bool exists = fstatat(at, name, &st, AT_SYMLINK_NOFOLLOW) == 0;
    bool changes = ((flags & O_CREAT) && !exists) || ((flags & O_TRUNC) && st.st_size > 0) ||
                   (flags & O_TMPFILE) == O_TMPFILE;
    bool writes = (flags & O_ACCMODE) != O_RDONLY;
    if (!changes && writes && fault.error == EROFS && fault.sticky && fault.at &&
        fault.calls >= fault.at) {
        errno = EROFS;
        return -1;
    }
    if (!changes)
        return openat_real(at, name, flags, mode);
    if (begin(CREATES, call, path) == REFUSE)
        return refused();
    int fd = openat_real(at, name, flags, mode);
    done();
    return fd;
}

static mode_t mode_of(int flags, va_list args)
{
    return (flags & O_CREAT) || (flags & O_TMPFILE) == O_TMPFILE ? (mode_t)va_arg(args, int) : 0;
}

#define OPEN_LIKE(name)                                                                            \
    EXPORTED int name(const char *file, int flags, ...)                                            \
    {                                                                                              \
        va_list args;                                                                              \
        va_start(args, flags);                                                                     \
        mode_t mode = mode_of(flags, args);                                                        \
        va_end(args);                                                                              \
        return open_counted("open", AT_FDCWD, file, flags, mode);                                  \
    }

#define OPENAT_LIKE(name)                                                                          \
    EXPORTED int name(int at, const char *file, int flags, ...)                                    \
    {                                                                                              \
        va_list args;                                                                              \
        va_start(args, flags);                                                                     \
        mode_t mode = mode_of(flags, args);                                                        \
        va_end(args);                                                                              \
        return open_counted("open", at, file, flags, mode);                                        \
    }

OPEN_LIKE(open)
OPEN_LIKE(open64)
OPENAT_LIKE(openat)
OPENAT_LIKE(openat64)

/* What a fortified open without a mode is compiled to. */
int __open_2(const char *file, int flags);
int __open64_2(const char *file, int flags);

EXPORTED int __open_2(const char *file, int flags)
{
    return open_counted("open", AT_FDCWD, file, flags, 0);
}

EXPORTED int __open64_2(const char *file, int flags)
{
    return open_counted("open", AT_FDCWD, file, flags, 0);
}

EXPORTED int creat(const char *file, mode_t mode)
{
    return open_counted("creat", AT_FDCWD, file, O_WRONLY | O_CREAT | O_TRUNC, mode);
}

EXPORTED int mkostemp(char *name, int flags)
{
    NAME_LIKE(CREATES, mkostemp, AT_FDCWD, name, name, flags);
}

EXPORTED int mkostemp64(char *name, int flags)
{
    NAME_LIKE(CREATES, mkostemp64, AT_FDCWD, name, name, flags);
}

EXPORTED int mkstemp(char *name)
{
    NAME_LIKE(CREATES, mkstemp, AT_FDCWD, name, name);
}

EXPORTED char *mkdtemp(char *name)
{
    char path[NAME_BYTES];
    if (!place_of_name(AT_FDCWD, name, path))
        return REAL(mkdtemp)(name);
    if (begin(CREATES, "mkdtemp", path) == REFUSE) {
        refused();
        return NULL;
    }
    char *made = REAL(mkdtemp)(name);
    done();
    return made;
}

static FILE *open_stream(const char *name, const char *mode,
                         FILE *(*open_real)(const char *, const char *))
{
    char path[NAME_BYTES];
    if (mode[0] == 'r' || !place_of_name(AT_FDCWD, name, path))
        return open_real(name, mode);
    if (begin(CREATES, "fopen", path) == REFUSE) {
        refused();
        return NULL;
    }
    FILE *file = open_real(name, mode);
    if (file)
        setvbuf(file, NULL, _IONBF, 0);
    done();
    return file;
}

EXPORTED FILE *fopen(const char *name, const char *mode)
{
    return open_stream(name, mode, REAL(fopen));
}

EXPORTED FILE *fopen64(const char *name, const char *mode)
{
    return open_stream(name, mode, REAL(fopen64));
}
