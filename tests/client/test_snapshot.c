/* Snapshots: which records form which units, what bad data comes to, and that examples are the ones
 * the engine builds from the same record alone. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "../common/memory_probe.h"
#include "../engine/tiny_model.h"
#include "client/snapshot.h"
#include "common/file.h"
#include "engine/example.h"
#include "engine/image.h"

#include "../golden/pictures_pillow.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>

#define OK(call) assert_int_equal((call), TACIT_OK)

static tiny_model tiny;
static char folder[64] = "/tmp/tacit-snapshot-XXXXXX";
static char data[128], copy[128], log_path[128];

static const char two_subjects[] =
    "{\"id\":\"a\",\"subject\":\"x\",\"messages\":[{\"role\":\"user\",\"content\":\"q\"},"
    "{\"role\":\"assistant\",\"content\":\"one\"}]}\n"
    "{\"id\":\"b\",\"messages\":[{\"role\":\"user\",\"content\":\"q\"},"
    "{\"role\":\"assistant\",\"content\":\"two\"}]}\n"
    "\n"
    "this is no record\n"
    "{\"id\":\"c\",\"subject\":\"y\",\"messages\":[{\"role\":\"user\",\"content\":\"q\"},"
    "{\"role\":\"assistant\",\"content\":\"three\"}]}\n"
    "{\"id\":\"d\",\"subject\":\"x\",\"messages\":[{\"role\":\"user\",\"content\":\"q\"},"
    "{\"role\":\"assistant\",\"content\":\"four\"}]}\n"
    "{\"id\":\"e\",\"messages\":[{\"role\":\"user\",\"content\":\"q\"},"
    "{\"role\":\"assistant\",\"content\":\"five\"}]}\n"
    "{\"id\":\"a\",\"subject\":\"z\",\"messages\":[{\"role\":\"user\",\"content\":\"again\"},"
    "{\"role\":\"assistant\",\"content\":\"dup\"}]}"; /* no newline at the end */

static void write_data(const char *text)
{
    FILE *f = fopen(data, "w");
    assert_non_null(f);
    fputs(text, f);
    assert_int_equal(fclose(f), 0);
}

static client_snapshot *open_as(tacit_privacy_unit unit, size_t memory, size_t max_rows)
{
    client_snapshot *s;
    tacit_error err;
    local_log log;
    local_log_open(&log, log_path);
    snapshot_setup setup = {.path = copy,
                            .media_folder = folder,
                            .model = tiny.model,
                            .unit = unit,
                            .max_rows = max_rows,
                            .memory = memory,
                            .log = &log};
    OK(snapshot_open(&s, &setup, &err));
    local_log_close(&log);
    return s;
}

static void take(const char *text)
{
    tacit_error err;
    write_data(text);
    OK(snapshot_take(copy, data, NULL, &err));
}

/* The number of usable examples of each unit, in the snapshot's order. */
static void expect_units(tacit_privacy_unit unit, const size_t *sizes, size_t n)
{
    client_snapshot *s = open_as(unit, 1 << 20, 256);
    tacit_error err;
    assert_int_equal(snapshot_units(s), n);
    for (size_t i = 0; i < n; i++) {
        snapshot_examples e;
        OK(snapshot_prepare(s, i, 100, &e, &err));
        assert_int_equal(e.count, sizes[i]);
        snapshot_release(&e);
    }
    snapshot_close(s);
}

static void units_are_records_subjects_or_the_device(void **state)
{
    static const size_t records[] = {1, 1, 1, 1, 1}, subjects[] = {2, 2, 1, 1}, device[] = {5};
    (void)state;
    take(two_subjects);
    expect_units(TACIT_UNIT_RECORD, records, 5);
    /* Without one: b, e; x: a, d; y: c; z: its own a, which the a of x does not displace. */
    expect_units(TACIT_UNIT_SUBJECT, subjects, 4);
    expect_units(TACIT_UNIT_DEVICE, device, 1);
}

static tacit_status open_again(void *ctx, tacit_error *err)
{
    client_snapshot *s;
    const snapshot_setup setup = {.path = copy,
                                  .media_folder = folder,
                                  .model = tiny.model,
                                  .unit = TACIT_UNIT_RECORD,
                                  .max_rows = 256,
                                  .memory = 1 << 20};
    (void)ctx;
    tacit_status status = snapshot_open(&s, &setup, err);
    snapshot_close(s);
    return status;
}

/* More records than memory holds are told, not killed. */
static void records_are_counted(void **state)
{
    (void)state;
    take(two_subjects);
    for (size_t i = 0; i < 6; i++) {
        tacit_error err;
        tacit_status status = memory_probe_run(i, open_again, NULL, &err);
        assert_int_equal(status, TACIT_NO_MEMORY);
        assert_non_null(strstr(err.message, "the next records of the data needs "));
    }
}

static void no_data_is_no_unit(void **state)
{
    (void)state;
    take("");
    expect_units(TACIT_UNIT_RECORD, NULL, 0);
    expect_units(TACIT_UNIT_SUBJECT, NULL, 0);
    expect_units(TACIT_UNIT_DEVICE, NULL, 0);
    unlink(copy);
    expect_units(TACIT_UNIT_SUBJECT, NULL, 0);
}

/* The copy is the truth: what happens to the file afterwards changes nothing. */
static void the_copy_outlives_the_file(void **state)
{
    static const size_t records[] = {1, 1, 1, 1, 1};
    struct stat st;
    (void)state;
    take(two_subjects);
    write_data("gone\n");
    expect_units(TACIT_UNIT_RECORD, records, 5);
    assert_int_equal(stat(copy, &st), 0);
    assert_int_equal(st.st_mode & 0777, 0600);
}

static void an_unreadable_file_is_an_empty_one(void **state)
{
    tacit_error err;
    (void)state;
    unlink(data);
    OK(snapshot_take(copy, data, NULL, &err));
    expect_units(TACIT_UNIT_RECORD, NULL, 0);
    OK(snapshot_take(copy, folder, NULL, &err)); /* a folder: it opens, but does not read */
    expect_units(TACIT_UNIT_RECORD, NULL, 0);
}

/* Bad data leaves its units in place without a gradient, and a line in the local log alone. */
static void bad_examples_leave_their_unit(void **state)
{
    static const size_t sizes[] = {1, 0, 0};
    char text[4096], line[4096];
    (void)state;
    snprintf(
        text, sizeof text,
        "{\"id\":\"good\",\"subject\":\"a\",\"messages\":[{\"role\":\"user\",\"content\":\"q\"},"
        "{\"role\":\"assistant\",\"content\":\"one\"}]}\n"
        "{\"id\":\"picture\",\"subject\":\"b\",\"messages\":[{\"role\":\"user\",\"content\":["
        "{\"type\":\"image\",\"image\":\"missing.png\"}]},{\"role\":\"assistant\",\"content\":"
        "\"two\"}]}\n"
        "{\"id\":\"long\",\"subject\":\"c\",\"messages\":[{\"role\":\"user\",\"content\":"
        "\"%0400d\"},{\"role\":\"assistant\",\"content\":\"three\"}]}\n",
        7);
    take(text);
    unlink(log_path);
    expect_units(TACIT_UNIT_SUBJECT, sizes, 3);
    FILE *f = fopen(log_path, "r");
    size_t lines = 0;
    assert_non_null(f);
    while (fgets(line, sizeof line, f))
        lines++;
    fclose(f);
    assert_int_equal(lines, 1); /* the summary: the examples were judged after the log closed */
}

/* The folder of the pictures goes away between two steps: their unit stays and gives nothing, units
 * of text alone give what they gave. */
static void pictures_that_vanish_leave_their_unit(void **state)
{
    static const size_t before[] = {1, 1}, after[] = {1, 0};
    char path[160];
    tacit_error err;
    (void)state;
    snprintf(path, sizeof path, "%s/p.png", folder);
    OK(tacit_file_write(path, png_grey, sizeof png_grey, 0600, &err));
    take("{\"id\":\"a\",\"messages\":[{\"role\":\"user\",\"content\":\"q\"},"
         "{\"role\":\"assistant\",\"content\":\"one\"}]}\n"
         "{\"id\":\"b\",\"messages\":[{\"role\":\"user\",\"content\":["
         "{\"type\":\"image\",\"image\":\"p.png\"}]},{\"role\":\"assistant\",\"content\":"
         "\"two\"}]}\n");
    client_snapshot *s = open_as(TACIT_UNIT_RECORD, 0, 256);
    for (int step = 0; step < 3; step++) {
        for (size_t i = 0; i < 2; i++) {
            snapshot_examples e;
            OK(snapshot_prepare(s, i, 1, &e, &err));
            assert_int_equal(e.count, step == 0 ? before[i] : after[i]);
            snapshot_release(&e);
        }
        unlink(path);
    }
    snapshot_close(s);
    expect_units(TACIT_UNIT_RECORD, after, 2); /* a restart as well */
}

static bool equal_inputs(const tacit_input *a, const tacit_input *b)
{
    return a->count == b->count && memcmp(a->row, b->row, a->count * sizeof *a->row) == 0;
}

static void examples_are_the_engines(void **state)
{
    tacit_record record;
    tacit_input expected;
    snapshot_examples e;
    tacit_error err;
    (void)state;
    take(two_subjects);
    for (size_t memory = 0; memory <= 1 << 20; memory += 1 << 20) {
        client_snapshot *s = open_as(TACIT_UNIT_RECORD, memory, 256);
        OK(tacit_record_parse(&record, two_subjects, strcspn(two_subjects, "\n"), folder, &err));
        OK(tacit_example_build(&expected, tiny.model, &record, NULL, &err));
        size_t found = 0;
        for (size_t i = 0; i < 2 * snapshot_units(s); i++) { /* twice: kept and made anew */
            OK(snapshot_prepare(s, i % snapshot_units(s), 1, &e, &err));
            found += equal_inputs(e.example[0], &expected);
            assert_int_equal(e.n_own, memory ? 0 : 1);
            snapshot_release(&e);
        }
        assert_int_equal(found, 2);
        tacit_input_free(&expected);
        tacit_record_free(&record);
        snapshot_close(s);
    }
}

/* A unit with more examples than may enter gives a choice of them, each as often as the others. */
static void choices_are_uniform(void **state)
{
    enum { N = 6, DRAWS = 3000 };
    size_t seen[N] = {0};
    const tacit_input *known[N];
    char text[4096];
    size_t used = 0;
    tacit_error err;
    snapshot_examples e;
    (void)state;
    for (int i = 0; i < N; i++)
        used +=
            (size_t)snprintf(text + used, sizeof text - used,
                             "{\"id\":\"r%d\",\"subject\":\"s\",\"messages\":[{\"role\":\"user\","
                             "\"content\":\"q\"},{\"role\":\"assistant\",\"content\":\"%d\"}]}\n",
                             i, i);
    take(text);
    client_snapshot *s = open_as(TACIT_UNIT_SUBJECT, 1 << 20, 256);
    OK(snapshot_prepare(s, 0, N, &e, &err));
    assert_int_equal(e.count, N);
    memcpy(known, e.example, sizeof known);
    snapshot_release(&e);
    for (int k = 0; k < DRAWS; k++) {
        OK(snapshot_prepare(s, 0, 2, &e, &err));
        assert_int_equal(e.count, 2);
        assert_ptr_not_equal(e.example[0], e.example[1]);
        for (size_t i = 0; i < 2; i++)
            for (size_t j = 0; j < N; j++)
                seen[j] += e.example[i] == known[j];
        snapshot_release(&e);
    }
    /* DRAWS * 2 / N = 1,000 each; the standard deviation is below 26. */
    for (size_t j = 0; j < N; j++)
        assert_in_range(seen[j], 1000 - 180, 1000 + 180);
    snapshot_close(s);
}

static void a_full_disk_is_an_error(void **state)
{
    struct rlimit old, none = {100, 100};
    tacit_error err;
    (void)state;
    write_data(two_subjects);
    signal(SIGXFSZ, SIG_IGN);
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &old), 0);
    none.rlim_max = old.rlim_max;
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &none), 0);
    assert_int_equal(snapshot_take(copy, data, NULL, &err), TACIT_IO);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &old), 0);
    assert_int_equal(access(copy, F_OK), -1);
}

static int set_up(void **state)
{
    (void)state;
    tiny = tiny_load(true);
    if (!mkdtemp(folder))
        return -1;
    snprintf(data, sizeof data, "%s/data.jsonl", folder);
    snprintf(copy, sizeof copy, "%s/copy.jsonl", folder);
    snprintf(log_path, sizeof log_path, "%s/local.log", folder);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    unlink(data);
    unlink(copy);
    unlink(log_path);
    rmdir(folder);
    tiny_free(&tiny);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(units_are_records_subjects_or_the_device),
        cmocka_unit_test(records_are_counted),
        cmocka_unit_test(no_data_is_no_unit),
        cmocka_unit_test(the_copy_outlives_the_file),
        cmocka_unit_test(an_unreadable_file_is_an_empty_one),
        cmocka_unit_test(bad_examples_leave_their_unit),
        cmocka_unit_test(pictures_that_vanish_leave_their_unit),
        cmocka_unit_test(examples_are_the_engines),
        cmocka_unit_test(choices_are_uniform),
        cmocka_unit_test(a_full_disk_is_an_error),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
