#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "common/file.h"
#include "common/memory_limit.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#define GIB ((uint64_t)1 << 30)
#define SMALL 1000 /* is not judged */

static char root[] = "/tmp/tacit-memory-XXXXXX";

static void put(const char *folder, const char *name, const char *text)
{
    char path[512];
    tacit_error err = {0};
    snprintf(path, sizeof path, "%s/%s", root, folder);
    assert_int_equal(tacit_file_make_dir(path, 0700, &err), TACIT_OK);
    snprintf(path, sizeof path, "%s/%s/%s", root, folder, name);
    assert_int_equal(tacit_file_write(path, text, strlen(text), 0600, &err), TACIT_OK);
}

static uint64_t available(const char *self)
{
    char meminfo[512], group[512], mount[512];
    put("proc", "cgroup", self);
    snprintf(meminfo, sizeof meminfo, "%s/proc/meminfo", root);
    snprintf(group, sizeof group, "%s/proc/cgroup", root);
    snprintf(mount, sizeof mount, "%s/sys", root);
    return memory_limit_available(meminfo, &(cgroup_files){group, mount});
}

/* The machine has 4 GiB; group a leaves 1 GiB + what its files hold, its child sets nothing. */
static void test_the_least_counts(void **state)
{
    (void)state;
    assert_non_null(mkdtemp(root));
    put("proc", "meminfo", "MemTotal:  8388608 kB\nMemFree: 100 kB\nMemAvailable:    4194304 kB\n");
    put("sys/a", "memory.max", "2147483648\n");
    put("sys/a", "memory.current", "1073741824\n");
    put("sys/a", "memory.stat", "anon 536870912\nfile 536870912\nfile_mapped 1\n");
    put("sys/a/b", "memory.max", "max\n");
    put("sys/a/b", "memory.current", "4096\n");
    put("sys/full", "memory.max", "1048576\n");
    put("sys/full", "memory.current", "2097152\n");
    put("sys/wide", "memory.max", "9223372036854771712\n");
    put("sys/wide", "memory.current", "4096\n");
    put("sys/memory/v1", "memory.limit_in_bytes", "1073741824\n");
    put("sys/memory/v1", "memory.usage_in_bytes", "1000000000\n");
    put("sys/memory/v1", "memory.stat", "cache 1\ntotal_cache 900000000\n");
    assert_int_equal(available("0::/\n"), 4 * GIB);
    assert_int_equal(available("0::/a\n"), 3 * GIB / 2);
    assert_int_equal(available("0::/a/b\n"), 3 * GIB / 2);
    assert_int_equal(available("0::/full\n"), 0);
    assert_int_equal(available("0::/wide\n"), 4 * GIB);
    assert_int_equal(available("9:cpu,cpuacct:/x\n7:memory:/v1\n"), 1073741824 - 100000000);
    assert_int_equal(available("nonsense\n"), 4 * GIB);
    put("proc", "meminfo", "MemFree: 100 kB\n");
    assert_int_equal(available("0::/\n"), UINT64_MAX);
    char remove[64];
    snprintf(remove, sizeof remove, "rm -rf %s", root);
    assert_int_equal(system(remove), 0);
}

/* What a process may still take of data and of addresses. */
static void test_limits_of_the_process(void **state)
{
    (void)state;
    char path[] = "/tmp/tacit-status-XXXXXX";
    static const char text[] = "Name:\tx\nVmPeak:\t  9999 kB\nVmSize:\t    2048 kB\nVmData:\t"
                               "    1024 kB\nVmDataX: 1 kB\n";
    int fd = mkstemp(path);
    assert_int_equal(write(fd, text, sizeof text - 1), sizeof text - 1);
    close(fd);
    assert_int_equal(memory_limit_left(path, RLIM_INFINITY, RLIM_INFINITY), UINT64_MAX);
    assert_int_equal(memory_limit_left(path, 1536 * 1024, RLIM_INFINITY), 512 * 1024);
    assert_int_equal(memory_limit_left(path, RLIM_INFINITY, 2049 * 1024), 1024);
    assert_int_equal(memory_limit_left(path, 1536 * 1024, 2049 * 1024), 1024);
    assert_int_equal(memory_limit_left(path, 1000 * 1024, RLIM_INFINITY), 0);
    unlink(path);
    assert_int_equal(memory_limit_left(path, 1000, 1000), UINT64_MAX);
}

static uint64_t available_under(int resource, uint64_t limit, uint64_t mapped)
{
    struct rlimit before, lower;
    assert_int_equal(getrlimit(resource, &before), 0);
    lower = (struct rlimit){limit, before.rlim_max};
    assert_int_equal(setrlimit(resource, &lower), 0);
    uint64_t found = tacit_memory_available_beside(mapped);
    assert_int_equal(setrlimit(resource, &before), 0);
    return found;
}

/* This process's own limits count; pages of files that are mapped already are not new to them. */
static void test_this_process(void **state)
{
    (void)state;
    static const int resource[] = {RLIMIT_DATA, RLIMIT_AS};
#ifdef TACIT_SANITIZED
    skip(); /* their allocators map memory of their own, which such limits refuse */
#endif
    uint64_t free_memory = tacit_memory_available();
    assert_true(free_memory > 64 << 20);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(available_under(resource[i], 4096, 0), 0);
        assert_int_equal(available_under(resource[i], 4096, 5000), 5000);
        assert_true(available_under(resource[i], (rlim_t)1 << 62, 0) > free_memory / 2);
        assert_true(available_under(resource[i], (rlim_t)1 << 62, UINT64_MAX) > free_memory / 2);
    }
}

static void test_what_is_refused_says_how_much(void **state)
{
    (void)state;
    tacit_error err = {0};
    assert_int_equal(tacit_memory_require(1, "a byte", "", &err), TACIT_OK);
    assert_int_equal(tacit_memory_require(UINT64_MAX / 2, "a picture", "use a smaller one", &err),
                     TACIT_NO_MEMORY);
    assert_non_null(strstr(err.message, "a picture needs 8.0 EiB, "));
    assert_non_null(strstr(err.message, "available; use a smaller one"));
    assert_true(tacit_memory_available() > 0);
}

static void test_memory_is_judged_before_it_is_taken(void **state)
{
    (void)state;
    tacit_error err = {0};
    void *memory;
    assert_int_equal(tacit_memory_alloc(&memory, 3, 1000, "a row", "", &err), TACIT_OK);
    for (size_t i = 0; i < 3000; i++)
        assert_int_equal(((uint8_t *)memory)[i], 0);
    free(memory);
    assert_int_equal(tacit_memory_alloc(&memory, 0, 8, "nothing", "", &err), TACIT_OK);
    free(memory);
    assert_int_equal(tacit_memory_alloc(&memory, SIZE_MAX / 4, 2, "rows", "give fewer", &err),
                     TACIT_NO_MEMORY);
    assert_null(memory);
    assert_non_null(strstr(err.message, "rows needs 8.0 EiB, "));
    assert_non_null(strstr(err.message, "available; give fewer"));
}

static uint64_t fixed(void *ctx)
{
    return *(uint64_t *)ctx;
}

/* Tests say what is there; then nothing is too small to be judged. */
static void test_injection(void **state)
{
    (void)state;
    tacit_error err = {0};
    uint64_t there = 100;
    void *memory;
    assert_int_equal(tacit_memory_judge(SMALL, "little", "", &err), TACIT_OK);
    tacit_memory_inject(fixed, &there);
    assert_int_equal(tacit_memory_available(), 100);
    assert_int_equal(tacit_memory_available_beside(50), 100);
    assert_int_equal(tacit_memory_judge(100, "little", "", &err), TACIT_OK);
    assert_int_equal(tacit_memory_judge(101, "little", "take less", &err), TACIT_NO_MEMORY);
    assert_string_equal(err.message, "little needs 0.1 KiB, 0.1 KiB are available; take less");
    assert_int_equal(tacit_memory_alloc(&memory, 101, 1, "a row", "", &err), TACIT_NO_MEMORY);
    assert_null(memory);
    tacit_memory_inject(NULL, NULL);
    assert_true(tacit_memory_available() > 100);
    assert_int_equal(tacit_memory_judge(UINT64_MAX / 2, "much", "", &err), TACIT_NO_MEMORY);
    assert_int_equal(tacit_memory_fail(2048, "a row", "take less", &err), TACIT_NO_MEMORY);
    assert_non_null(strstr(err.message, "a row needs 2.0 KiB, which the system does not give"));
    assert_non_null(strstr(err.message, "available; take less"));
}

/* Small pieces are judged when 16 MiB of them have come together, as if so much came again. */
static void test_small_pieces_add_up(void **state)
{
    (void)state;
    tacit_error err = {0};
    tacit_memory_tally t = {0};
    for (int i = 0; i < 100; i++)
        assert_int_equal(tacit_memory_tally_add(&t, 1 << 20, "pieces", "", &err), TACIT_OK);
    assert_int_equal(t.unjudged, (100 % 16) << 20);
    t = (tacit_memory_tally){0};
    assert_int_equal(tacit_memory_tally_add(&t, UINT64_MAX / 2, "a piece", "give fewer", &err),
                     TACIT_NO_MEMORY);
    assert_non_null(strstr(err.message, "a piece needs 8.0 EiB, "));
    uint64_t there = 9;
    t = (tacit_memory_tally){0};
    tacit_memory_inject(fixed, &there);
    assert_int_equal(tacit_memory_tally_add(&t, 9, "pieces", "", &err), TACIT_OK);
    assert_int_equal(tacit_memory_tally_add(&t, 10, "pieces", "", &err), TACIT_NO_MEMORY);
    tacit_memory_inject(NULL, NULL);
}

static void test_what_cannot_be_counted(void **state)
{
    (void)state;
    tacit_error err = {0};
    void *memory;
    assert_int_equal(tacit_memory_alloc(&memory, SIZE_MAX / 4, 8, "rows", "give fewer", &err),
                     TACIT_NO_MEMORY);
    assert_null(memory);
    assert_string_equal(err.message, "rows needs more than memory can be; give fewer");
}

static void test_sizes_do_not_wrap(void **state)
{
    (void)state;
    assert_int_equal(tacit_memory_sum(GIB, 5), GIB + 5);
    assert_int_equal(tacit_memory_sum(UINT64_MAX - 5, 5), UINT64_MAX);
    assert_int_equal(tacit_memory_sum(UINT64_MAX - 5, 6), UINT64_MAX);
    assert_int_equal(tacit_memory_sum(1, UINT64_MAX), UINT64_MAX);
    assert_int_equal(tacit_memory_product(GIB, 5), 5 * GIB);
    assert_int_equal(tacit_memory_product(UINT64_MAX, 0), 0);
    assert_int_equal(tacit_memory_product((uint64_t)1 << 32, (uint64_t)1 << 32), UINT64_MAX);
}

static void test_texts(void **state)
{
    (void)state;
    char text[TACIT_MEMORY_TEXT];
    assert_string_equal(tacit_memory_text(text, 0), "0.0 KiB");
    assert_string_equal(tacit_memory_text(text, 1536), "1.5 KiB");
    assert_string_equal(tacit_memory_text(text, 3 * GIB / 2), "1.5 GiB");
    assert_string_equal(tacit_memory_text(text, UINT64_MAX), "16.0 EiB");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_the_least_counts),
        cmocka_unit_test(test_limits_of_the_process),
        cmocka_unit_test(test_this_process),
        cmocka_unit_test(test_what_is_refused_says_how_much),
        cmocka_unit_test(test_memory_is_judged_before_it_is_taken),
        cmocka_unit_test(test_injection),
        cmocka_unit_test(test_small_pieces_add_up),
        cmocka_unit_test(test_what_cannot_be_counted),
        cmocka_unit_test(test_sizes_do_not_wrap),
        cmocka_unit_test(test_texts),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
