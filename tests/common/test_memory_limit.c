#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "common/file.h"
#include "common/memory_limit.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define GIB ((uint64_t)1 << 30)

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
    assert_int_equal(tacit_memory_alloc(&memory, SIZE_MAX / 4, 8, "rows", "give fewer", &err),
                     TACIT_NO_MEMORY);
    assert_null(memory);
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
        cmocka_unit_test(test_what_is_refused_says_how_much),
        cmocka_unit_test(test_memory_is_judged_before_it_is_taken),
        cmocka_unit_test(test_texts),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
