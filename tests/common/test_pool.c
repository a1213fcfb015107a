#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "common/cpu_quota.h"
#include "common/file.h"
#include "common/pool.h"

#include <spawn.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define TASKS 1000

typedef struct counts {
    _Atomic unsigned run[TASKS];
    _Atomic unsigned wrong_thread;
    size_t threads;
} counts;

static void count_task(void *ctx, size_t i, size_t thread)
{
    counts *c = ctx;
    atomic_fetch_add(&c->run[i], 1);
    if (thread >= c->threads)
        atomic_fetch_add(&c->wrong_thread, 1);
}

/* Every task runs exactly once, whatever the number of threads and tasks, job after job. */
static void test_each_task_once(void **state)
{
    (void)state;
    const size_t threads[] = {1, 2, 3, 8};
    const size_t tasks[] = {0, 1, 2, 7, TASKS};
    for (size_t t = 0; t < 4; t++) {
        tacit_pool *p = NULL;
        tacit_error err = {0};
        assert_int_equal(tacit_pool_new(&p, threads[t], &err), TACIT_OK);
        assert_int_equal(tacit_pool_threads(p), threads[t]);
        for (size_t n = 0; n < 5; n++) {
            static counts c;
            memset(&c, 0, sizeof c);
            c.threads = threads[t];
            const unsigned jobs = 200;
            for (unsigned job = 0; job < jobs; job++)
                tacit_pool_run(p, tasks[n], count_task, &c);
            for (size_t i = 0; i < TASKS; i++)
                assert_int_equal(c.run[i], i < tasks[n] ? jobs : 0);
            assert_int_equal(c.wrong_thread, 0);
        }
        tacit_pool_free(p);
    }
}

typedef struct slots {
    uint64_t value[64];
} slots;

static void fill_task(void *ctx, size_t i, size_t thread)
{
    (void)thread;
    slots *s = ctx;
    for (uint64_t k = 0; k < 50; k++)
        s->value[i] = s->value[i] * 3 + i + k;
}

/* Plain writes of tasks are visible to the driver after the run, and to the next job's tasks. */
static void test_writes_are_visible(void **state)
{
    (void)state;
    slots serial = {{0}}, shared = {{0}};
    tacit_pool *p = NULL;
    tacit_error err = {0};
    assert_int_equal(tacit_pool_new(&p, 3, &err), TACIT_OK);
    for (int job = 0; job < 500; job++) {
        tacit_pool_run(NULL, 64, fill_task, &serial);
        tacit_pool_run(p, 64, fill_task, &shared);
        if (job % 100 == 0)
            usleep(300); /* lets the workers fall asleep: both ways of waiting are used */
        assert_memory_equal(&serial, &shared, sizeof serial);
    }
    tacit_pool_free(p);
}

static pid_t spawn(const char *script)
{
    pid_t child;
    char *words[] = {"sh", "-c", (char *)(uintptr_t)script, NULL};
    assert_int_equal(posix_spawn(&child, "/bin/sh", NULL, NULL, words, environ), 0);
    return child;
}

/* Programs started between and during jobs, with workers spinning and asleep: each one runs, and
 * the pool keeps computing what one thread computes. */
static void test_programs_start_beside_a_pool(void **state)
{
    (void)state;
    slots serial = {{0}}, shared = {{0}};
    tacit_pool *p = NULL;
    tacit_error err = {0};
    assert_int_equal(tacit_pool_new(&p, 3, &err), TACIT_OK);
    for (int i = 0; i < 10; i++) {
        int status = 0;
        tacit_pool_run(NULL, 64, fill_task, &serial);
        tacit_pool_run(p, 64, fill_task, &shared);
        if (i % 2)
            usleep(300);
        pid_t child = spawn("exit 7");
        tacit_pool_run(NULL, 64, fill_task, &serial);
        tacit_pool_run(p, 64, fill_task, &shared);
        assert_int_equal(waitpid(child, &status, 0), child);
        assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 7);
        assert_memory_equal(&serial, &shared, sizeof serial);
    }
    tacit_pool_free(p);
}

static void test_bounds(void **state)
{
    (void)state;
    tacit_pool *p = NULL;
    tacit_error err = {0};
    assert_int_equal(tacit_pool_new(&p, 100000, &err), TACIT_USAGE);
    assert_non_null(strstr(err.message, "100000"));
    assert_int_equal(tacit_pool_new(&p, 0, &err), TACIT_OK);
    assert_int_equal(tacit_pool_threads(p), tacit_pool_available());
    assert_true(tacit_pool_available() >= 1);
    assert_true(tacit_pool_available() <= (size_t)sysconf(_SC_NPROCESSORS_CONF));
    tacit_pool_free(p);
    tacit_pool_free(NULL);
}

static void put(const char *root, const char *folder, const char *name, const char *text)
{
    char path[512];
    tacit_error err = {0};
    snprintf(path, sizeof path, "%s/%s", root, folder);
    assert_int_equal(tacit_file_make_dir(path, 0700, &err), TACIT_OK);
    snprintf(path, sizeof path, "%s/%s/%s", root, folder, name);
    assert_int_equal(tacit_file_write(path, text, strlen(text), 0600, &err), TACIT_OK);
}

static size_t limit_with(const char *root, const char *self)
{
    char path[512];
    put(root, "proc", "cgroup", self);
    snprintf(path, sizeof path, "%s/proc/cgroup", root);
    char mount[512];
    snprintf(mount, sizeof mount, "%s/sys", root);
    return cpu_quota_limit(&(cgroup_files){path, mount});
}

/* The expected numbers are those of the kernel's documentation: quota / period, rounded up. */
static void test_cgroup_quota(void **state)
{
    (void)state;
    char root[] = "/tmp/tacit-quota-XXXXXX";
    assert_non_null(mkdtemp(root));
    put(root, "sys/a/b", "cpu.max", "150000 100000\n");
    put(root, "sys/a", "cpu.max", "max 100000\n");
    put(root, "sys/wide", "cpu.max", "400000 100000\n");
    put(root, "sys/wide/child", "cpu.max", "max 100000\n");
    put(root, "sys/cpu,cpuacct/d", "cpu.cfs_quota_us", "50000\n");
    put(root, "sys/cpu,cpuacct/d", "cpu.cfs_period_us", "100000\n");
    put(root, "sys/cpu,cpuacct/free", "cpu.cfs_quota_us", "-1\n");
    put(root, "sys/cpu,cpuacct/free", "cpu.cfs_period_us", "100000\n");

    assert_int_equal(limit_with(root, "0::/a/b\n"), 2);
    assert_int_equal(limit_with(root, "0::/a/b/invisible\n"), 2);
    assert_int_equal(limit_with(root, "0::/a\n"), 0);
    assert_int_equal(limit_with(root, "0::/wide/child\n"), 4);
    assert_int_equal(limit_with(root, "0::/\n"), 0);
    assert_int_equal(limit_with(root, "5:memory:/d\n4:cpu,cpuacct:/d\n"), 1);
    assert_int_equal(limit_with(root, "4:cpu,cpuacct:/free\n"), 0);
    assert_int_equal(limit_with(root, "4:cpuset:/d\n"), 0);
    assert_int_equal(limit_with(root, "nonsense\n"), 0);
    assert_int_equal(cpu_quota_limit(&(cgroup_files){"/nonexistent/cgroup", "/nonexistent"}), 0);
    char remove[600];
    snprintf(remove, sizeof remove, "rm -rf %s", root);
    assert_int_equal(system(remove), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_each_task_once),
        cmocka_unit_test(test_writes_are_visible),
        cmocka_unit_test(test_programs_start_beside_a_pool),
        cmocka_unit_test(test_bounds),
        cmocka_unit_test(test_cgroup_quota),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
