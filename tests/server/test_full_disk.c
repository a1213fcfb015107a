/* A disk that takes no more, or fails, while updates come in: nothing is acknowledged that is not
 * there, nothing that was acknowledged is lost, the log says what is wrong, the server goes on, and
 * the device succeeds once there is room again.
 *
 * Room ends by RLIMIT_FSIZE, so the kernel itself refuses the writes, in files and database alike;
 * fsync fails by the function below, which the linker puts in its place (tests/CMakeLists.txt). */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "fleet.h"

#include "server/round_terms.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/resource.h>

static bool fsync_fails;

int __real_fsync(int fd);
int __wrap_fsync(int fd);
int __wrap_fsync(int fd)
{
    if (!fsync_fails)
        return __real_fsync(fd);
    errno = EIO;
    return -1;
}

/* No file may grow beyond this many bytes; RLIM_INFINITY: there is room. */
static void set_room(rlim_t bytes)
{
    struct rlimit limit;
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &limit), 0);
    limit.rlim_cur = bytes;
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &limit), 0);
}

/* --- what the log says: standard error, into a pipe --- */

static int own_stderr, said;

static void begin_listening(void)
{
    int ends[2];
    assert_int_equal(pipe(ends), 0);
    own_stderr = dup(STDERR_FILENO);
    assert_true(own_stderr >= 0 && dup2(ends[1], STDERR_FILENO) >= 0);
    close(ends[1]);
    said = ends[0];
}

static void end_listening(char *text, size_t size)
{
    assert_true(dup2(own_stderr, STDERR_FILENO) >= 0);
    close(own_stderr);
    ssize_t n = read(said, text, size - 1);
    text[n > 0 ? n : 0] = '\0';
    close(said);
}

/* --- one device has been accepted, the other one is about to send --- */

static fleet f;
static fleet_device one, two;
static fleet_task task;

static int setup(void **state)
{
    (void)state;
    signal(SIGXFSZ, SIG_IGN);
    fleet_start(&f, false);
    fleet_join_two(&one, &two, &f);
    json_decref(FLEET_ASK(&f, "round start", "steps", "1", "q", "0.25", "noise-multiplier", "8",
                          "unit", "record", "cohort", "2", "quorum", "2", "pad-seconds", "0",
                          "norm-bound", "64"));
    fleet_work(&f);
    fleet_serve_round(&one, 0.25);
    fleet_take(&two, &task);
    fleet_must(fleet_reserve_locally(&two, &task), &two.err, "reserve");
    fleet_must(fleet_send_reserve(&two, &task), &two.err, "send reserve");
    fleet_seal_value(&two, &task, 0.75);
    assert_true(task.sealed.size > 200);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    set_room(RLIM_INFINITY);
    fsync_fails = false;
    fleet_task_free(&task);
    fleet_end_two(&one, &two, &f);
    return 0;
}

static long file_size(void)
{
    char path[SERVER_PATH_MAX];
    struct stat st;
    tacit_error err;
    fleet_must(round_upload_path(f.server, task.reserve.hash, path, &err), &err, "path");
    return stat(path, &st) == 0 ? (long)st.st_size : -1;
}

static void expect_accepted(json_int_t n)
{
    json_t *row = fleet_round(&f);
    assert_int_equal(json_integer_value(json_object_get(row, "accepted")), n);
    json_decref(row);
}

/* The rest of the upload goes through and the round is published with the mean of both. */
static void expect_success(void)
{
    char path[320];
    tacit_trainable_spec spec;
    tacit_error err;
    float *values = malloc(task.layout.values * sizeof *values);
    assert_string_equal(fleet_upload(&two, &task), "");
    expect_accepted(2);
    fleet_work(&f);
    fleet_expect_round(&f, "published", "");
    json_t *list = FLEET_ASK(&f, "adapter list");
    snprintf(path, sizeof path, "%s/adapters/%s.gguf", f.dir,
             json_string_value(json_object_get(json_array_get(list, 0), "file_digest")));
    fleet_must(tacit_trainable_spec_from_message(&spec, task.plan->adapter, &err), &err, "spec");
    fleet_must(tacit_adapter_read_values(path, f.server->model, &spec, values, &err), &err,
               "values");
    for (size_t i = 0; i < task.layout.values; i++)
        assert_true(values[i] == 0.5f);
    json_decref(list);
    free(values);
}

static void test_full_while_a_chunk_is_written(void **state)
{
    (void)state;
    char text[4096];
    uint64_t offset = 0;
    fleet_must(fleet_begin(&two, &task, &offset), &two.err, "begin");
    fleet_must(fleet_chunk(&two, &task, &offset, 100), &two.err, "chunk");
    set_room(150); /* half of the next chunk fits */
    begin_listening();
    tacit_status status = fleet_chunk(&two, &task, &offset, 100);
    json_t *devices = FLEET_ASK(&f, "device list"); /* the server goes on */
    end_listening(text, sizeof text);
    assert_int_equal(status, TACIT_IO);
    assert_non_null(strstr(two.err.message, "cannot write a chunk"));
    assert_non_null(strstr(text, "error test: UPLOAD_CHUNK of "));
    assert_non_null(strstr(text, "cannot write a chunk"));
    assert_int_equal(json_array_size(devices), 2);
    assert_int_equal(file_size(), 100); /* what was acknowledged, and no more */
    json_decref(devices);

    set_room(RLIM_INFINITY);
    fleet_must(fleet_begin(&two, &task, &offset), &two.err, "begin");
    assert_int_equal(offset, 100);
    expect_success();
}

static void test_full_at_the_first_chunk(void **state)
{
    (void)state;
    uint64_t offset = 0;
    fleet_must(fleet_begin(&two, &task, &offset), &two.err, "begin");
    set_room(0);
    assert_int_equal(fleet_chunk(&two, &task, &offset, 100), TACIT_IO);
    assert_int_equal(file_size(), -1); /* no empty file stays */
    set_room(RLIM_INFINITY);
    expect_success();
}

/* The device hears what happened, not where the server keeps it. */
static void assert_told(const tacit_error *err, const char *method)
{
    char words[96];
    snprintf(words, sizeof words,
             "%s was not carried out by the server, because its disk is full or fails", method);
    assert_non_null(strstr(err->message, words));
    assert_null(strchr(err->message, '/'));
    assert_null(strstr(err->message, "SQL"));
}

/* The database takes no decision: the commit is not acknowledged, and a crash finds the update
 * undecided, whole, beside the other one that was accepted. */
static void test_full_while_an_update_is_decided(void **state)
{
    (void)state;
    char text[4096], word[32];
    uint64_t offset = 0;
    fleet_must(fleet_begin(&two, &task, &offset), &two.err, "begin");
    fleet_must(fleet_chunk(&two, &task, &offset, task.sealed.size), &two.err, "chunk");
    set_room(0);
    begin_listening();
    tacit_status status = fleet_commit(&two, &task, word);
    end_listening(text, sizeof text);
    assert_int_equal(status, TACIT_IO);
    assert_told(&two.err, "UPLOAD_COMMIT");
    assert_non_null(strstr(text, f.server->dir));
    assert_non_null(strstr(text, "nothing of 1 requests was stored"));
    assert_non_null(strstr(text, "error test: UPLOAD_COMMIT of "));
    expect_accepted(1);
    set_room(RLIM_INFINITY);
    fleet_restart(&f);
    expect_accepted(1);
    fleet_must(fleet_begin(&two, &task, &offset), &two.err, "begin");
    assert_int_equal(offset, task.sealed.size);
    expect_success();
}

/* A reserve that cannot be logged is not acknowledged; the same one is, later. */
static void test_full_while_a_reserve_is_logged(void **state)
{
    (void)state;
    Tacit__ReserveRequest r = TACIT__RESERVE_REQUEST__INIT;
    uint64_t before, after;
    tacit_error err;
    fleet_task next;
    assert_string_equal(fleet_upload(&two, &task), "");
    fleet_work(&f);
    json_decref(FLEET_ASK(&f, "round start", "steps", "1", "q", "0.25", "noise-multiplier", "8",
                          "unit", "record", "cohort", "2", "pad-seconds", "0"));
    fleet_work(&f);
    fleet_take(&one, &next);
    fleet_must(fleet_reserve_locally(&one, &next), &one.err, "reserve");
    fleet_must(tacit_ledger_size(f.server->ledger, &before, &err), &err, "size");
    r.entry = tacit_field_of(next.reserve.entry, next.reserve.entry_size);
    set_room(0);
    assert_int_equal(fleet_call(&one, TACIT__METHOD__METHOD_RESERVE, &r, NULL, NULL), TACIT_IO);
    assert_told(&one.err, "RESERVE");
    set_room(RLIM_INFINITY);
    fleet_must(tacit_ledger_size(f.server->ledger, &after, &err), &err, "size");
    assert_true(before == after);
    fleet_must(fleet_send_reserve(&one, &next), &one.err, "send reserve");
    assert_true(next.takes_part);
    fleet_task_free(&next);
}

/* After a failed fsync the kernel forgets which pages it could not write, and the next one
 * succeeds: what was acknowledged on the strength of earlier ones is sent again. */
static void test_fsync_fails(void **state)
{
    (void)state;
    uint64_t offset = 0;
    fleet_must(fleet_begin(&two, &task, &offset), &two.err, "begin");
    fleet_must(fleet_chunk(&two, &task, &offset, 100), &two.err, "chunk");
    fsync_fails = true;
    assert_int_equal(fleet_chunk(&two, &task, &offset, 100), TACIT_IO);
    assert_non_null(strstr(two.err.message, "cannot fsync a chunk"));
    fsync_fails = false;
    assert_int_equal(file_size(), -1);
    assert_int_equal(fleet_chunk(&two, &task, &offset, 100), TACIT_CONFLICT);
    fleet_must(fleet_begin(&two, &task, &offset), &two.err, "begin");
    assert_int_equal(offset, 0);
    expect_success();
}

int main(void)
{
#define T(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
    const struct CMUnitTest tests[] = {
        T(test_full_while_a_chunk_is_written),
        T(test_full_at_the_first_chunk),
        T(test_full_while_an_update_is_decided),
        T(test_full_while_a_reserve_is_logged),
        T(test_fsync_fails),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
