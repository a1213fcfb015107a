/* Publication of files: at every instant, and whatever call fails, the old content or the new one
 * stands under the name, and what was announced is on the disk. The calls of the kernel are seen,
 * and made to fail, by the functions below, which the linker puts in their places. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "common/file.h"

#include <dirent.h>
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define OLD "what stood here before"
#define NEW "something else, and a little longer"

static char folder[] = "/tmp/tacit-file-XXXXXX", path[64];
static char trace[64];      /* a letter a call: w(rite), f(sync) of the file, r(ename), d: fsync of
                             * the folder */
static char failing = '\0'; /* the call that fails */
static int failing_with = ENOSPC;
static bool watched;

static void expect_old(void);

/* Notes a call; true where it fails. Until the rename the old content stands. */
static bool note(char call)
{
    if (!watched)
        return false;
    watched = false; /* looking calls the kernel, too */
    if (call != 'd')
        expect_old();
    watched = true;
    trace[strlen(trace)] = call;
    errno = failing_with;
    return call == failing;
}

ssize_t __real_write(int fd, const void *data, size_t size);
ssize_t __wrap_write(int fd, const void *data, size_t size);
ssize_t __wrap_write(int fd, const void *data, size_t size)
{
    if (note('w')) { /* half of it arrives; without an error nothing, and nothing more is said */
        (void)!__real_write(fd, data, size / 2);
        errno = failing_with;
        return failing_with ? -1 : 0;
    }
    return __real_write(fd, data, size);
}

int __real_fsync(int fd);
int __wrap_fsync(int fd);
int __wrap_fsync(int fd)
{
    struct stat st;
    assert_int_equal(fstat(fd, &st), 0);
    return note(S_ISDIR(st.st_mode) ? 'd' : 'f') ? -1 : __real_fsync(fd);
}

int __real_rename(const char *from, const char *to);
int __wrap_rename(const char *from, const char *to);
int __wrap_rename(const char *from, const char *to)
{
    return note('r') ? -1 : __real_rename(from, to);
}

static void expect_content(const char *text)
{
    char found[128] = {0};
    FILE *f = fopen(path, "r");
    assert_non_null(f);
    assert_int_equal(fread(found, 1, sizeof found - 1, f), strlen(text));
    fclose(f);
    assert_string_equal(found, text);
}

static void expect_old(void)
{
    expect_content(OLD);
}

static size_t count_files(void)
{
    size_t n = 0;
    DIR *d = opendir(folder);
    assert_non_null(d);
    for (struct dirent *e = readdir(d); e; e = readdir(d))
        n += e->d_name[0] != '.';
    closedir(d);
    return n;
}

static tacit_status publish(char fails, tacit_error *err)
{
    memset(trace, 0, sizeof trace);
    failing = fails;
    watched = true;
    tacit_status status = tacit_file_write(path, NEW, strlen(NEW), 0640, err);
    watched = false;
    return status;
}

static int setup(void **state)
{
    (void)state;
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    assert_true(fputs(OLD, f) >= 0);
    return fclose(f);
}

/* Synced before it gets its name, and the name synced before success is told. */
static void the_order_of_calls_is_durable(void **state)
{
    (void)state;
    tacit_error err;
    struct stat st;
    assert_int_equal(publish('\0', &err), TACIT_OK);
    assert_string_equal(trace, "wfrd");
    expect_content(NEW);
    assert_int_equal(stat(path, &st), 0);
    assert_int_equal(st.st_mode & 0777, 0640);
    assert_int_equal(count_files(), 1);
}

static void a_failure_leaves_the_old_file_alone(void **state)
{
    (void)state;
    static const char calls[] = {'w', 'f', 'r'};
    for (size_t i = 0; i < sizeof calls; i++) {
        tacit_error err;
        assert_int_equal(publish(calls[i], &err), TACIT_IO);
        assert_non_null(strstr(err.message, path));
        assert_non_null(strstr(err.message, "free space on that disk"));
        expect_old();
        assert_int_equal(count_files(), 1); /* no temporary file stays */
    }
}

/* Content that comes in pieces and breaks off: its own reason is what is told. */
static tacit_status break_off(void *ctx, int fd, tacit_error *err)
{
    *(bool *)ctx = tacit_file_write_all(fd, "part", 4);
    return tacit_fail(err, TACIT_BAD_INPUT, "the content broke off");
}

static tacit_status two_pieces(void *ctx, int fd, tacit_error *err)
{
    (void)ctx, (void)err;
    return tacit_file_write_all(fd, NEW, 1) && tacit_file_write_all(fd, NEW + 1, strlen(NEW) - 1)
               ? TACIT_OK
               : TACIT_IO;
}

static void content_in_pieces_is_published_whole_or_not(void **state)
{
    (void)state;
    tacit_error err;
    bool wrote = false;
    assert_int_equal(tacit_file_publish(path, 0600, break_off, &wrote, &err), TACIT_BAD_INPUT);
    assert_true(wrote);
    assert_string_equal(err.message, "the content broke off");
    expect_old();
    assert_int_equal(count_files(), 1);
    assert_int_equal(tacit_file_publish(path, 0600, two_pieces, NULL, &err), TACIT_OK);
    expect_content(NEW);
}

/* The name may not be there after a power cut: nothing is announced. */
static void an_unsynced_name_is_an_error(void **state)
{
    (void)state;
    tacit_error err;
    assert_int_equal(publish('d', &err), TACIT_IO);
    assert_non_null(strstr(err.message, folder));
    expect_content(NEW);
}

/* A new folder has its name on the disk before anything is put into it. */
static void names_of_new_folders_are_synced(void **state)
{
    (void)state;
    tacit_error err;
    char deep[96], upper[96];
    snprintf(upper, sizeof upper, "%s/upper", folder);
    snprintf(deep, sizeof deep, "%s/upper/deep", folder);
    for (int fails = 0; fails < 2; fails++) {
        memset(trace, 0, sizeof trace);
        failing = fails ? 'd' : '\0';
        watched = true;
        tacit_status status = tacit_file_make_dir(deep, 0700, &err);
        watched = false;
        assert_int_equal(status, fails ? TACIT_IO : TACIT_OK);
        assert_string_equal(trace, fails ? "d" : "dd");
        watched = true;
        if (!fails)
            assert_int_equal(tacit_file_make_dir(deep, 0700, &err), TACIT_OK);
        watched = false;
        assert_string_equal(trace, fails ? "d" : "dd"); /* what is there is left alone */
        assert_int_equal(fails ? 0 : rmdir(deep), 0);
        assert_int_equal(rmdir(upper), 0);
    }
}

static char *unfinished(void)
{
    static char name[96];
    snprintf(name, sizeof name, "%s" TACIT_FILE_UNFINISHED, path);
    return name;
}

static void put(const char *name, const char *text)
{
    FILE *f = fopen(name, "w");
    assert_non_null(f);
    assert_true(fputs(text, f) >= 0);
    assert_int_equal(fclose(f), 0);
}

/* A process killed in the middle leaves one file at most, whose bytes the next one replaces. */
static void what_a_killed_writer_left_is_taken_over(void **state)
{
    (void)state;
    tacit_error err;
    put(unfinished(), "half of something that was much longer than what comes now, and secret");
    assert_int_equal(publish('\0', &err), TACIT_OK);
    expect_content(NEW);
    assert_int_equal(count_files(), 1);
}

/* What somebody laid in the way is neither written to nor published. */
static void anothers_file_is_left_alone(void **state)
{
    (void)state;
    tacit_error err;
    char other[96], found[16] = {0};
    snprintf(other, sizeof other, "%s/other", folder);
    for (int linked = 0; linked < 2; linked++) {
        put(other, "theirs");
        assert_int_equal(linked ? link(other, unfinished()) : symlink(other, unfinished()), 0);
        assert_int_equal(publish('\0', &err), linked ? TACIT_CONFLICT : TACIT_IO);
        assert_non_null(strstr(err.message, unfinished()));
        FILE *f = fopen(other, "r");
        assert_non_null(f);
        assert_int_equal(fread(found, 1, sizeof found - 1, f), 6);
        fclose(f);
        assert_string_equal(found, "theirs");
        expect_old();
        assert_int_equal(unlink(unfinished()), 0);
        assert_int_equal(unlink(other), 0);
    }
}

static void a_failure_says_what_to_do(void **state)
{
    (void)state;
    static const struct {
        int code;
        const char *says;
    } rows[] = {
        {ENOSPC, "No space left on device; free space on that disk and try again"},
        {EIO, "Input/output error; that disk fails, check it and try again"},
        {EROFS, "Read-only file system; make that disk writable and try again"},
        {EACCES, "Permission denied; check the permissions of it and its folder"},
        {0, "No space left on device; free space"}, /* nothing was written, and no error */
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        tacit_error err;
        failing_with = rows[i].code;
        assert_int_equal(publish('w', &err), TACIT_IO);
        failing_with = ENOSPC;
        assert_non_null(strstr(err.message, rows[i].says));
        assert_non_null(strstr(err.message, path));
        expect_old();
    }
}

static void *write_often(void *text)
{
    tacit_error err;
    tacit_status status = TACIT_OK;
    for (int i = 0; i < 200 && status == TACIT_OK; i++)
        status = tacit_file_write(path, text, strlen(text), 0600, &err);
    return status == TACIT_OK ? NULL : text;
}

/* Writers of one name wait for each other: whole contents, no failures, nothing left. */
static void writers_of_one_name_take_turns(void **state)
{
    (void)state;
    pthread_t other;
    void *failed;
    assert_int_equal(pthread_create(&other, NULL, write_often, (void *)(uintptr_t)OLD), 0);
    assert_null(write_often((void *)(uintptr_t)NEW));
    assert_int_equal(pthread_join(other, &failed), 0);
    assert_null(failed);
    char found[128] = {0};
    FILE *f = fopen(path, "r");
    assert_non_null(f);
    assert_true(fread(found, 1, sizeof found - 1, f) > 0);
    fclose(f);
    assert_true(strcmp(found, OLD) == 0 || strcmp(found, NEW) == 0);
    assert_int_equal(count_files(), 1);
}

static int start(void **state)
{
    (void)state;
    if (!mkdtemp(folder))
        return -1;
    snprintf(path, sizeof path, "%s/adapter.gguf", folder);
    return 0;
}

/* Whoever opens it: the lock is of the file, not of the process. */
static void a_lock_is_held_by_one(void **state)
{
    (void)state;
    char lock[128], absent[128];
    int first, second;
    struct stat st;
    tacit_error err = {0};
    snprintf(lock, sizeof lock, "%s/lock", folder);
    snprintf(absent, sizeof absent, "%s/nowhere/lock", folder);
    assert_int_equal(tacit_file_lock(lock, &first, &err), TACIT_OK);
    assert_int_equal(stat(lock, &st), 0);
    assert_int_equal(st.st_mode & 0777, 0600);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(tacit_file_lock(lock, &second, &err), TACIT_CONFLICT);
        assert_int_equal(second, -1);
        assert_non_null(strstr(err.message, "/lock: another process"));
    }
    close(first);
    assert_int_equal(tacit_file_lock(lock, &second, &err), TACIT_OK);
    close(second);
    assert_int_equal(unlink(lock), 0);
    assert_int_equal(tacit_file_lock(absent, &first, &err), TACIT_NOT_FOUND);
    assert_int_equal(first, -1);
}

static int end(void **state)
{
    (void)state;
    return unlink(path) || rmdir(folder);
}

static void expect_refused_target(const char *target, const char *why)
{
    tacit_error err = {0};
    struct stat before, after;
    assert_int_equal(lstat(target, &before), 0);
    assert_int_equal(tacit_file_write(target, NEW, strlen(NEW), 0640, &err), TACIT_USAGE);
    assert_non_null(strstr(err.message, why));
    assert_int_equal(tacit_file_check_results(&target, 1, NULL, 0, &err), TACIT_USAGE);
    assert_non_null(strstr(err.message, why));
    assert_int_equal(lstat(target, &after), 0);
    assert_int_equal(before.st_ino, after.st_ino);
}

/* Root would put a file in the place of the device, for all programs. */
static void only_files_are_replaced(void **state)
{
    (void)state;
    char pipe[sizeof path + 8], link[sizeof path + 8];
    tacit_error err = {0};
    snprintf(pipe, sizeof pipe, "%s.pipe", path);
    snprintf(link, sizeof link, "%s.link", path);
    assert_int_equal(mkfifo(pipe, 0600), 0);
    expect_refused_target(pipe, "a pipe");
    expect_refused_target(folder, "a folder");
    assert_int_equal(symlink(pipe, link), 0);
    expect_refused_target(link, "a pipe");
    assert_int_equal(unlink(link), 0);
    assert_int_equal(symlink("/proc/self/fd/1", link), 0);
    expect_refused_target(link, "a link into /proc");
    assert_int_equal(unlink(link), 0);
    assert_int_equal(symlink(path, link), 0);
    const char *const good[] = {link, path, "new-file"}, *const nowhere = "/nowhere/x";
    const char *const unnamed = "";
    assert_int_equal(tacit_file_check_results(good, 1, NULL, 0, &err), TACIT_OK);
    assert_int_equal(unlink(link), 0);
    assert_int_equal(unlink(pipe), 0);
    assert_int_equal(tacit_file_check_results(good + 1, 2, NULL, 0, &err), TACIT_OK);
    assert_int_equal(tacit_file_check_results(&nowhere, 1, NULL, 0, &err), TACIT_NOT_FOUND);
    assert_int_equal(tacit_file_check_results(&unnamed, 1, NULL, 0, &err), TACIT_USAGE);
}

/* The same file by its name, another path, a link of either kind; a file that is not there yet. */
static void a_result_over_a_source_is_refused(void **state)
{
    (void)state;
    char link_name[80], hard[80], dotted[96], fresh[80];
    tacit_error err;
    snprintf(link_name, sizeof link_name, "%s/soft", folder);
    snprintf(hard, sizeof hard, "%s/hard", folder);
    snprintf(dotted, sizeof dotted, "%s/./adapter.gguf", folder);
    snprintf(fresh, sizeof fresh, "%s/fresh", folder);
    assert_int_equal(symlink(path, link_name), 0);
    assert_int_equal(link(path, hard), 0);
    const char *const source[] = {NULL, path};
    const char *const same[] = {path, link_name, hard, dotted};
    for (size_t i = 0; i < sizeof same / sizeof same[0]; i++) {
        assert_int_equal(tacit_file_check_results(&same[i], 1, source, 2, &err), TACIT_USAGE);
        assert_non_null(strstr(err.message, "which is read; name another file"));
    }
    const char *const other[] = {fresh, NULL};
    assert_int_equal(tacit_file_check_results(other, 2, source, 2, &err), TACIT_OK);
    assert_int_equal(access(fresh, F_OK), -1);
    assert_int_equal(unlink(link_name) | unlink(hard), 0);
}

static void two_results_of_one_name_are_refused(void **state)
{
    (void)state;
    char fresh[80], dotted[96];
    tacit_error err;
    snprintf(fresh, sizeof fresh, "%s/fresh", folder);
    snprintf(dotted, sizeof dotted, "%s/./fresh", folder);
    const char *const twice[] = {fresh, dotted}, *const apart[] = {fresh, path};
    assert_int_equal(tacit_file_check_results(twice, 2, NULL, 0, &err), TACIT_USAGE);
    assert_non_null(strstr(err.message, "named for two results"));
    assert_int_equal(tacit_file_check_results(apart, 2, NULL, 0, &err), TACIT_OK);
}

static void a_result_that_has_no_place_is_refused(void **state)
{
    (void)state;
    char absent[80];
    tacit_error err;
    snprintf(absent, sizeof absent, "%s/absent/a.gguf", folder);
    const char *const in_no_folder = absent, *const a_folder = folder, *const device = "/dev/null";
    assert_int_equal(tacit_file_check_results(&in_no_folder, 1, NULL, 0, &err), TACIT_NOT_FOUND);
    assert_non_null(strstr(err.message, "absent/a.gguf: cannot create: No such file"));
    assert_int_equal(tacit_file_check_results(&a_folder, 1, NULL, 0, &err), TACIT_USAGE);
    assert_non_null(strstr(err.message, "found a folder"));
    assert_int_equal(tacit_file_check_results(&device, 1, NULL, 0, &err), TACIT_USAGE);
    assert_non_null(strstr(err.message, "found a device"));
}

int main(void)
{
#define T(name) cmocka_unit_test_setup(name, setup)
    const struct CMUnitTest tests[] = {
        T(the_order_of_calls_is_durable),
        T(only_files_are_replaced),
        T(a_failure_leaves_the_old_file_alone),
        T(content_in_pieces_is_published_whole_or_not),
        T(an_unsynced_name_is_an_error),
        T(names_of_new_folders_are_synced),
        T(what_a_killed_writer_left_is_taken_over),
        T(anothers_file_is_left_alone),
        T(a_failure_says_what_to_do),
        T(writers_of_one_name_take_turns),
        T(a_result_over_a_source_is_refused),
        T(two_results_of_one_name_are_refused),
        T(a_result_that_has_no_place_is_refused),
        T(a_lock_is_held_by_one),
    };
    return cmocka_run_group_tests(tests, start, end);
}
