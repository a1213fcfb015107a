#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "common/cpu_cache.h"
#include "common/file.h"

#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static char root[] = "/tmp/tacit-caches-XXXXXX";

static void put(size_t cpu, const char *folder, const char *name, const char *text)
{
    char path[512], command[600];
    tacit_error err = {0};
    snprintf(path, sizeof path, "%s/cpu%zu/%s", root, cpu, folder);
    snprintf(command, sizeof command, "mkdir -p %s", path);
    assert_int_equal(system(command), 0);
    snprintf(path, sizeof path, "%s/cpu%zu/%s/%s", root, cpu, folder, name);
    assert_int_equal(tacit_file_write(path, text, strlen(text), 0600, &err), TACIT_OK);
}

static void put_cache(size_t cpu, const char *index, const char *level, const char *type,
                      const char *size, const char *shared)
{
    put(cpu, index, "level", level);
    put(cpu, index, "type", type);
    put(cpu, index, "size", size);
    put(cpu, index, "shared_cpu_list", shared);
}

/* The first processor that this process may run on: what a test writes about it counts. */
static size_t own(void)
{
    cpu_set_t set;
    size_t cpu = 0;
    assert_int_equal(sched_getaffinity(0, sizeof set, &set), 0);
    while (!CPU_ISSET(cpu, &set))
        cpu++;
    return cpu;
}

/* 1 MiB by four cores of one thread; then by two cores of two; 32 KiB of data alone. */
static void test_a_thread_counts_on_its_share(void **state)
{
    size_t cpu = own();
    (void)state;
    assert_non_null(mkdtemp(root));
    assert_int_equal(cpu_cache_at(root, 2), 0);
    put_cache(cpu, "cache/index0", "1\n", "Instruction\n", "64K\n", "0\n");
    put_cache(cpu, "cache/index1", "1\n", "Data\n", "32K\n", "0\n");
    put_cache(cpu, "cache/index2", "2\n", "Unified\n", "1M\n", "0-2,7\n");
    put(cpu, "topology", "thread_siblings_list", "0\n");
    assert_int_equal(cpu_cache_at(root, 1), 32 << 10);
    assert_int_equal(cpu_cache_at(root, 2), 256 << 10);
    assert_int_equal(cpu_cache_at(root, 3), 0);
    put(cpu, "topology", "thread_siblings_list", "0,7\n");
    assert_int_equal(cpu_cache_at(root, 2), 512 << 10);
}

static void test_what_is_no_size_is_none(void **state)
{
    static const char *const wrong[] = {"", "K\n", "-1K\n", "99999999999999999999M\n", "0K\n"};
    size_t cpu = own();
    (void)state;
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        put(cpu, "cache/index2", "size", wrong[i]);
        assert_int_equal(cpu_cache_at(root, 2), 0);
    }
    put(cpu, "cache/index2", "size", "256K\n");
    put(cpu, "cache/index2", "shared_cpu_list", "x\n");
    assert_int_equal(cpu_cache_at(root, 2), 256 << 10);
    char remove[64];
    snprintf(remove, sizeof remove, "rm -rf %s", root);
    assert_int_equal(system(remove), 0);
    assert_true(tacit_cpu_cache_l2() >= 1024);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_thread_counts_on_its_share),
        cmocka_unit_test(test_what_is_no_size_is_none),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
