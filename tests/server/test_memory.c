/* Many rounds, one after the other: the server's live memory, its open descriptors and its files do
 * not grow with them; nor does memory grow with the updates of a round while they are summed.
 * Counted is what the allocator has given out, so that neither fragmentation nor the machine's load
 * moves the result: the numbers are equal to the byte. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "fleet.h"

#include "server/aggregate.h"

#include <dirent.h>
#include <malloc.h>

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
size_t __sanitizer_get_current_allocated_bytes(void); /* sanitizer/allocator_interface.h */
static size_t live_bytes(void)
{
    return __sanitizer_get_current_allocated_bytes();
}
#else
static size_t live_bytes(void)
{
    return mallinfo2().uordblks;
}
#endif

#define ROUNDS 100 /* before it is measured, and again before it is measured again */
#define SAMPLES 10
#define SLACK 1024 /* 100 rounds may not leave 11 bytes each */

static fleet f;
static fleet_device d;

static size_t count_files(const char *path)
{
    size_t n = 0;
    DIR *dir = opendir(path);
    assert_non_null(dir);
    for (struct dirent *e = readdir(dir); e; e = readdir(dir))
        n += e->d_name[0] != '.';
    closedir(dir);
    return n;
}

typedef struct usage {
    size_t bytes, descriptors, uploads;
} usage;

/* The list of events, whose length is bounded, is emptied first: it grows for 200 rounds. */
static usage now(void)
{
    char path[160];
    tacit_error err;
    server_events_free(f.server->events);
    fleet_must(server_events_new(&f.server->events, &err), &err, "events");
    snprintf(path, sizeof path, "%s/uploads", f.dir);
    return (usage){live_bytes(), count_files("/proc/self/fd"), count_files(path)};
}

/* SQLite's caches of pages grow to a limit by design: here to a small one. */
static void limit_caches(void)
{
    tacit_error err;
    fleet_must(tacit_database_run(f.server->db, "PRAGMA cache_size = 20", &err), &err, "cache");
    fleet_must(tacit_database_run(d.db, "PRAGMA cache_size = 20", &err), &err, "cache");
}

/* The least that was in use after each of the last rounds: between them caches come and go. */
static usage run(int rounds)
{
    usage least = {.bytes = SIZE_MAX};
    for (int round = 1; round <= rounds; round++) {
        fleet_work(&f);
        fleet_serve_round(&d, 0.001);
        fleet_work(&f);
        usage u = now();
        if (round > rounds - SAMPLES && u.bytes < least.bytes)
            least = u;
    }
    return least;
}

static void test_flat_over_rounds(void **state)
{
    (void)state;
    fleet_start(&f, false);
    fleet_join(&d, &f, "one");
    limit_caches();
    json_decref(FLEET_ASK(&f, "round start", "rounds", "200", "steps", "1", "q", "0.01",
                          "noise-multiplier", "40", "unit", "record", "cohort", "1", "pad-seconds",
                          "0", "norm-bound", "64"));
    usage before = run(ROUNDS), end = run(ROUNDS);
    print_message("live bytes: %zu after %d rounds, %zu after %d\n", before.bytes, ROUNDS,
                  end.bytes, 2 * ROUNDS);
    fleet_expect_round(&f, "published", "");
    assert_true(end.bytes <= before.bytes + SLACK);
    assert_int_equal(end.descriptors, before.descriptors);
    assert_int_equal(end.uploads, 0);
    fleet_device_free(&d);
    fleet_end(&f);
}

/* --- many updates in one round --- */

#define DEVICES 12

static size_t at_update[DEVICES], updates_seen; /* live bytes as each update enters the sum */

tacit_status __real_aggregate_add(aggregate_sum *s, const uint8_t *values, tacit_error *err);
tacit_status __wrap_aggregate_add(aggregate_sum *s, const uint8_t *values, tacit_error *err);
tacit_status __wrap_aggregate_add(aggregate_sum *s, const uint8_t *values, tacit_error *err)
{
    if (updates_seen < DEVICES)
        at_update[updates_seen++] = live_bytes();
    return __real_aggregate_add(s, values, err);
}

/* Each update is opened, added and forgotten before the next one: the last finds no more memory in
 * use than the second (the first may meet caches that fill). */
static void test_flat_over_updates(void **state)
{
    (void)state;
    static fleet_device device[DEVICES];
    size_t bytes;
    fleet_start(&f, false);
    for (size_t i = 0; i < DEVICES; i++) {
        char name[16];
        snprintf(name, sizeof name, "device-%zu", i);
        fleet_join(&device[i], &f, name);
    }
    json_decref(FLEET_ASK(&f, "round start", "rounds", "1", "steps", "1", "q", "0.01",
                          "noise-multiplier", "40", "unit", "record", "cohort", "12", "quorum",
                          "12", "pad-seconds", "0", "norm-bound", "64"));
    fleet_work(&f);
    for (size_t i = 0; i < DEVICES; i++)
        fleet_serve_round(&device[i], 0.001);
    updates_seen = 0;
    fleet_work(&f);
    fleet_expect_round(&f, "published", "");
    assert_int_equal(updates_seen, DEVICES);
    bytes = at_update[DEVICES - 1];
    print_message("live bytes: %zu at update 2, %zu at update %d\n", at_update[1], bytes, DEVICES);
    assert_true(bytes <= at_update[1] + SLACK);
    for (size_t i = 0; i < DEVICES; i++)
        fleet_device_free(&device[i]);
    fleet_end(&f);
}

/* glibc counts the chunks in its thread caches as used, and those fill for hundreds of rounds: the
 * program starts itself anew without them. */
static void without_thread_caches(char **argv)
{
    if (getenv("GLIBC_TUNABLES"))
        return;
    setenv("GLIBC_TUNABLES", "glibc.malloc.tcache_count=0", 1);
    execv("/proc/self/exe", argv);
}

int main(int argc, char **argv)
{
    (void)argc;
    without_thread_caches(argv);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_flat_over_rounds),
        cmocka_unit_test(test_flat_over_updates),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
