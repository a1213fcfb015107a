/* Each fault happens in a forked child (this program has no threads); what the kernel reports about
 * that child, and what it wrote, is the oracle. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "common/file.h"
#include "common/map_guard.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

static char path[] = "/tmp/tacit-map-XXXXXX";
static size_t page;

static void make_file(size_t pages)
{
    int fd = mkstemp(strcpy(path, "/tmp/tacit-map-XXXXXX"));
    assert_true(fd >= 0);
    assert_int_equal(ftruncate(fd, (off_t)(pages * page)), 0);
    close(fd);
}

/* Runs `child` with its stderr in `said`; returns the wait status. */
static int outcome_of(void (*child)(void), char *said, size_t size)
{
    int ends[2], status = 0;
    assert_int_equal(pipe(ends), 0);
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        dup2(ends[1], STDERR_FILENO);
        map_guard_start("reader");
        child();
        _exit(0);
    }
    close(ends[1]);
    size_t got = 0;
    for (ssize_t n; got + 1 < size && (n = read(ends[0], said + got, size - 1 - got)) > 0;)
        got += (size_t)n;
    said[got] = '\0';
    close(ends[0]);
    assert_int_equal(waitpid(pid, &status, 0), pid);
    return status;
}

static void touch(const uint8_t *at)
{
    volatile uint8_t sum = *(const volatile uint8_t *)at;
    (void)sum;
}

static void read_beyond_the_new_end(void)
{
    tacit_file_map map, other;
    /* Slots come free again: many maps before the one that fails, and one beside it. */
    for (int i = 0; i < 200; i++) {
        if (tacit_file_map_open(&other, path, NULL) != TACIT_OK)
            _exit(90);
        tacit_file_map_close(&other);
    }
    if (tacit_file_map_open(&other, "/proc/self/exe", NULL) != TACIT_OK ||
        tacit_file_map_open(&map, path, NULL) != TACIT_OK || truncate(path, (off_t)page) != 0)
        _exit(91);
    touch(map.data);
    touch(map.data + 2 * page);
}

static void a_shortened_file_is_named(void **state)
{
    (void)state;
    char said[1024], expected[256];
    make_file(3);
    int status = outcome_of(read_beyond_the_new_end, said, sizeof said);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 3);
    snprintf(expected, sizeof expected, "reader: %s: the file became shorter", path);
    assert_memory_equal(said, expected, strlen(expected));
    assert_ptr_equal(strchr(said, '\n'), said + strlen(said) - 1); /* one line */
    unlink(path);
}

static void read_an_unguarded_map(void)
{
    FILE *f = fopen(path, "r");
    const uint8_t *data = f ? mmap(NULL, page, PROT_READ, MAP_PRIVATE, fileno(f), 0) : MAP_FAILED;
    if (data == MAP_FAILED)
        _exit(90);
    touch(data);
}

static void send_the_signal(void)
{
    raise(SIGBUS);
}

/* What is no fault of a file ends the process as it would without the guard. */
static void other_faults_stay_what_they_are(void **state)
{
    (void)state;
    char said[1024];
    make_file(0);
    int status = outcome_of(read_an_unguarded_map, said, sizeof said);
    assert_true(WIFSIGNALED(status));
    assert_int_equal(WTERMSIG(status), SIGBUS);
    assert_string_equal(said, "");
    status = outcome_of(send_the_signal, said, sizeof said);
    assert_true(WIFSIGNALED(status));
    assert_int_equal(WTERMSIG(status), SIGBUS);
    unlink(path);
}

int main(void)
{
    page = (size_t)sysconf(_SC_PAGESIZE);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_shortened_file_is_named),
        cmocka_unit_test(other_faults_stay_what_they_are),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
