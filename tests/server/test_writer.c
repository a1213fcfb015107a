/* The writer's thread: what commits together, what is undone alone, what a failed group leaves; and
 * the server's folder and configuration. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "common/file.h"
#include "server/server_config.h"
#include "server/server_init.h"
#include "server/writer.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef struct bench {
    char folder[64];
    tacit_database *db;
    server_writer *writer;
    bool sign_fails;
    uint64_t signed_groups;
} bench;

static tacit_status sign(void *ctx, char note[TACIT_CHECKPOINT_MAX], uint64_t *size,
                         tacit_error *err)
{
    bench *b = ctx;
    if (b->sign_fails)
        return tacit_fail(err, TACIT_IO, "the disk is full");
    snprintf(note, TACIT_CHECKPOINT_MAX, "note");
    *size = ++b->signed_groups;
    return TACIT_OK;
}

static int setup(void **state)
{
    static bench b;
    char path[96];
    tacit_error err;
    b = (bench){.folder = "/tmp/tacit-writer-XXXXXX"};
    assert_non_null(mkdtemp(b.folder));
    snprintf(path, sizeof path, "%s/db", b.folder);
    assert_int_equal(tacit_database_open(&b.db, path, &err), TACIT_OK);
    assert_int_equal(tacit_database_run(b.db, "CREATE TABLE t (v INTEGER) STRICT", &err), TACIT_OK);
    assert_int_equal(writer_start(&b.writer, b.db, sign, &b, &err), TACIT_OK);
    *state = &b;
    return 0;
}

static int teardown(void **state)
{
    bench *b = *state;
    char command[96];
    writer_stop(b->writer);
    tacit_database_close(b->db);
    snprintf(command, sizeof command, "rm -rf %s", b->folder);
    return system(command);
}

typedef struct insertion {
    bench *bench;
    bool act_fails, finish_fails;
    uint64_t count; /* of rows that finish saw */
    uint64_t point;
} insertion;

static tacit_status count_rows(tacit_database *db, uint64_t *count, tacit_error *err)
{
    tacit_statement *s;
    bool row;
    tacit_status status = tacit_statement_begin(db, &s, "SELECT count(*) FROM t", err);
    if (status == TACIT_OK)
        status = tacit_statement_step(s, &row, err);
    if (status == TACIT_OK)
        *count = tacit_column_u64(s, 0);
    tacit_statement_end(s);
    return status;
}

static tacit_status insert(void *ctx, tacit_error *err)
{
    insertion *i = ctx;
    tacit_status status = tacit_database_run(i->bench->db, "INSERT INTO t VALUES (1)", err);
    if (status == TACIT_OK && i->act_fails)
        status = tacit_fail(err, TACIT_REFUSED, "refused after writing");
    return status;
}

static tacit_status look(void *ctx, const writer_point *point, tacit_error *err)
{
    insertion *i = ctx;
    assert_string_equal(point->checkpoint, "note");
    i->point = point->size;
    tacit_status status = count_rows(i->bench->db, &i->count, err);
    return i->finish_fails ? tacit_fail(err, TACIT_FAILED, "no reply") : status;
}

static tacit_status run(insertion *i, tacit_error *err)
{
    return writer_run(i->bench->writer, insert, look, i, err);
}

static void test_jobs(void **state)
{
    bench *b = *state;
    tacit_error err;
    insertion good = {.bench = b}, bad = {.bench = b, .act_fails = true},
              mute = {.bench = b, .finish_fails = true};
    assert_int_equal(run(&good, &err), TACIT_OK);
    assert_int_equal(good.count, 1);
    assert_int_equal(good.point, 1);
    assert_int_equal(run(&bad, &err), TACIT_REFUSED); /* its row is undone, its finish never runs */
    assert_string_equal(err.message, "refused after writing");
    assert_int_equal(bad.point, 0);
    assert_int_equal(run(&mute, &err), TACIT_FAILED); /* the row stays */
    assert_int_equal(run(&good, &err), TACIT_OK);
    assert_int_equal(good.count, 3);
}

/* A group whose checkpoint cannot be signed leaves nothing, and the next one works. */
static void test_failed_group(void **state)
{
    bench *b = *state;
    tacit_error err;
    insertion i = {.bench = b};
    b->sign_fails = true;
    assert_int_equal(run(&i, &err), TACIT_IO);
    assert_string_equal(err.message, "the disk is full");
    b->sign_fails = false;
    assert_int_equal(run(&i, &err), TACIT_OK);
    assert_int_equal(i.count, 1);
}

enum { THREADS = 8, EACH = 40 };

static void *insert_many(void *arg)
{
    for (int n = 0; n < EACH; n++) {
        tacit_error err;
        insertion i = {.bench = arg, .act_fails = n % 4 == 0};
        tacit_status status = run(&i, &err);
        if (status != (i.act_fails ? TACIT_REFUSED : TACIT_OK))
            return arg;
    }
    return NULL;
}

static void test_many_threads(void **state)
{
    bench *b = *state;
    pthread_t thread[THREADS];
    tacit_error err;
    uint64_t count;
    for (int t = 0; t < THREADS; t++)
        assert_int_equal(pthread_create(&thread[t], NULL, insert_many, b), 0);
    for (int t = 0; t < THREADS; t++) {
        void *trouble;
        pthread_join(thread[t], &trouble);
        assert_null(trouble);
    }
    writer_stop(b->writer);
    b->writer = NULL;
    assert_int_equal(count_rows(b->db, &count, &err), TACIT_OK);
    assert_int_equal(count, THREADS * EACH * 3 / 4);
    assert_true(b->signed_groups <= THREADS * EACH);
}

/* --- the folder --- */

static tacit_status init(const char *dir, const char *origin, tacit_error *err)
{
    static const char *const names[] = {"fleet.example.org", "10.0.0.1"};
    server_config_choice choice = {"0.0.0.0",      7443, 7444, names,       2,
                                   "/m/text.gguf", NULL, 0,    "gate.jsonl"};
    return server_init(dir, origin, NULL, &choice, err);
}

static void test_init_and_config(void **state)
{
    bench *b = *state;
    char dir[96], path[128];
    tacit_error err;
    server_config c;
    snprintf(dir, sizeof dir, "%s/s", b->folder);
    assert_int_equal(init(dir, "tacit/test", &err), TACIT_OK);
    assert_int_equal(server_config_load(&c, dir, &err), TACIT_OK);
    assert_string_equal(c.host, "0.0.0.0");
    assert_int_equal(c.port, 7443);
    assert_int_equal(c.enrol_port, 7444);
    assert_int_equal(c.names.count, 2);
    assert_string_equal(c.model_text, "/m/text.gguf");
    snprintf(path, sizeof path, "%s/gate.jsonl", dir); /* relative paths start at the folder */
    assert_string_equal(c.gate_data, path);
    assert_int_equal(c.certificate_days, 30);
    assert_int_equal(c.poll_ms, 30000);
    server_config_free(&c);
    /* Nothing of a server is ever overwritten. */
    assert_int_equal(init(dir, "tacit/test", &err), TACIT_CONFLICT);
}

static void read_key(const char *dir, const char *name, uint8_t **key, size_t *size)
{
    char path[160];
    tacit_error err;
    snprintf(path, sizeof path, "%s/%s", dir, name);
    assert_int_equal(tacit_file_read(path, 4096, key, size, &err), TACIT_OK);
}

/* server.yaml is the last that init writes. Without it the folder is completed: keys that are there
 * stay, a root without its certificate is made anew. A folder that served is left alone. */
static void test_interrupted_init(void **state)
{
    static const char *const kept[] = {"keys/server.key", "keys/operator.key", "ca/ca.key"};
    bench *b = *state;
    char dir[96], path[128];
    tacit_error err;
    server_config c;
    snprintf(dir, sizeof dir, "%s/i", b->folder);
    assert_int_equal(init(dir, "tacit/test", &err), TACIT_OK);
    for (size_t rootless = 0; rootless < 2; rootless++) {
        uint8_t *before[3], *after[3];
        size_t size[3], now;
        for (size_t i = 0; i < 3; i++)
            read_key(dir, kept[i], &before[i], &size[i]);
        snprintf(path, sizeof path, "%s/server.yaml", dir);
        assert_int_equal(unlink(path), 0);
        snprintf(path, sizeof path, "%s/ca/ca.pem", dir);
        assert_int_equal(rootless ? unlink(path) : 0, 0);
        assert_int_equal(init(dir, "tacit/test", &err), TACIT_OK);
        assert_int_equal(server_config_load(&c, dir, &err), TACIT_OK);
        server_config_free(&c);
        for (size_t i = 0; i < 3; i++) {
            read_key(dir, kept[i], &after[i], &now);
            bool same = now == size[i] && memcmp(before[i], after[i], now) == 0;
            assert_int_equal(same, i < 2 || !rootless);
            free(before[i]);
            free(after[i]);
        }
    }
    snprintf(path, sizeof path, "%s/server.yaml", dir);
    assert_int_equal(unlink(path), 0);
    snprintf(path, sizeof path, "%s/server.db", dir);
    assert_int_equal(tacit_file_write(path, "", 0, 0600, &err), TACIT_OK);
    assert_int_equal(init(dir, "tacit/test", &err), TACIT_CONFLICT);
    assert_non_null(strstr(err.message, path));
}

static void expect_config(bench *b, const char *text, const char *complaint)
{
    char path[128];
    tacit_error err;
    server_config c;
    snprintf(path, sizeof path, "%s/server.yaml", b->folder);
    assert_int_equal(tacit_file_write(path, text, strlen(text), 0600, &err), TACIT_OK);
    tacit_status status = server_config_load(&c, b->folder, &err);
    if (!complaint) {
        assert_int_equal(status, TACIT_OK);
        server_config_free(&c);
        return;
    }
    assert_int_equal(status, TACIT_BAD_INPUT);
    if (!strstr(err.message, complaint))
        fail_msg("'%s' not in: %s", complaint, err.message);
}

#define LISTEN "listen:\n  host: h\n  port: 1\n  enrol_port: 2\n  names: [h]\n"

static void test_bad_config(void **state)
{
    bench *b = *state;
    expect_config(b, LISTEN "model:\n  text: m\n", NULL);
    expect_config(b, LISTEN, "model.text");
    expect_config(b, LISTEN "model:\n  text: m\ngate:\n  margin: 1,5\n", "gate.margin");
    expect_config(b, LISTEN "model:\n  text: m\ngate:\n  margin: .nan\n", "gate.margin");
    expect_config(b, LISTEN "model:\n  text: m\npoll_ms: 0\n", "poll_ms");
    expect_config(b, LISTEN "model:\n  text: m\npoll: 5\n", "poll");
    expect_config(b, LISTEN "model:\n  text: m\ncertificate_days: 399\n", "certificate_days");
    expect_config(b, "listen:\n  host: h\n  port: 65536\n", "listen.port");
    expect_config(b, "", "server.yaml");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_jobs, setup, teardown),
        cmocka_unit_test_setup_teardown(test_failed_group, setup, teardown),
        cmocka_unit_test_setup_teardown(test_many_threads, setup, teardown),
        cmocka_unit_test_setup_teardown(test_init_and_config, setup, teardown),
        cmocka_unit_test_setup_teardown(test_interrupted_init, setup, teardown),
        cmocka_unit_test_setup_teardown(test_bad_config, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
