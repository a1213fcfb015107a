#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "common/log.h"
#include "common/secret.h"
#include "engine/model_parts.h"
#include "engine/row_cache.h"
#include "engine/vision.h"

#include "tiny_model.h"

#include <fcntl.h>
#include <sys/stat.h>

enum { ROWS = 9, WIDTH = 32, VALUES = ROWS * WIDTH, HEADER = 48, ENTRY = 36 + VALUES * 4 + 8 };

/* An input whose one picture is number `i`. */
static tacit_input input_of(uint32_t i)
{
    tacit_input in = {.media = calloc(1, sizeof *in.media), .n_media = 1};
    in.media->modality = TACIT_MODALITY_IMAGE;
    in.media->dim[0] = 3, in.media->dim[1] = in.media->dim[2] = 24;
    in.media->n_rows = ROWS;
    in.media->values = malloc(3 * 24 * 24 * sizeof(float));
    for (uint32_t p = 0; p < 3 * 24 * 24; p++)
        in.media->values[p] = reference_uniform(2000 + i, p);
    memset(in.media->digest, (int)i + 1, sizeof in.media->digest);
    return in;
}

static void encode(const tacit_model *model, uint32_t i, float *rows)
{
    vision_pass *pass;
    tacit_input in = input_of(i);
    const float *pixels = in.media->values;
    assert_int_equal(vision_pass_new(&pass, model_vision(model), 1, PASS_EXACT, NULL, NULL),
                     TACIT_OK);
    vision_forward(pass, NULL, &pixels, 1, rows);
    vision_pass_free(pass);
    tacit_input_free(&in);
}

static void expect_rows(tacit_row_cache *c, const tacit_model *model, uint32_t i)
{
    float expected[VALUES];
    tacit_error err = {0};
    tacit_input in = input_of(i);
    encode(model, i, expected);
    if (tacit_row_cache_fill(c, &in, &err) != TACIT_OK)
        fail_msg("%s", err.message);
    assert_null(in.media->values);
    assert_memory_equal(in.media->rows, expected, sizeof expected);
    tacit_input_free(&in);
}

static tacit_row_cache *open_cache(const tacit_model *model, size_t entries, const char *path)
{
    tacit_row_cache *c;
    tacit_error err = {0};
    if (tacit_row_cache_new(&c, model, entries * VALUES * 4, path, NULL, &err) != TACIT_OK)
        fail_msg("%s", err.message);
    return c;
}

static void test_memory_is_bounded(void **state)
{
    tiny_model *t = *state;
    tacit_row_cache *c = open_cache(t->model, 2, NULL);
    const uint32_t order[] = {0, 1, 0, 2, 0, 1}; /* 2 pushes 1 out, then 1 pushes 2 out */
    for (size_t i = 0; i < 6; i++)
        expect_rows(c, t->model, order[i]);
    tacit_row_cache_stats s = tacit_row_cache_get_stats(c);
    assert_int_equal(s.hits, 2);
    assert_int_equal(s.encoded, 4);
    assert_int_equal(s.evicted, 2);
    assert_int_equal(s.bytes, 2 * VALUES * 4);
    tacit_row_cache_free(c);
    c = open_cache(t->model, 0, NULL);
    expect_rows(c, t->model, 0);
    expect_rows(c, t->model, 0);
    assert_int_equal(tacit_row_cache_get_stats(c).encoded, 2);
    tacit_row_cache_free(c);
}

static void test_many_entries(void **state)
{
    tiny_model *t = *state;
    tacit_row_cache *c = open_cache(t->model, 4000, NULL);
    for (uint32_t round = 0; round < 2; round++)
        for (uint32_t i = 0; i < 2500; i++) {
            tacit_input in = input_of(0);
            memcpy(in.media->digest, &i, sizeof i);
            assert_int_equal(tacit_row_cache_fill(c, &in, NULL), TACIT_OK);
            tacit_input_free(&in);
        }
    assert_int_equal(tacit_row_cache_get_stats(c).encoded, 2500);
    assert_int_equal(tacit_row_cache_get_stats(c).hits, 2500);
    tacit_row_cache_free(c);
}

/* Encodes pictures 0..n-1 in a cache with the file and tells how many were not in it. */
static uint64_t encoded_anew(tiny_model *t, const char *path, uint32_t n, size_t entries)
{
    tacit_row_cache *c = open_cache(t->model, entries, path);
    for (uint32_t i = 0; i < n; i++)
        expect_rows(c, t->model, i);
    uint64_t encoded = tacit_row_cache_get_stats(c).encoded;
    tacit_row_cache_free(c);
    return encoded;
}

static void flip_byte(const char *path, off_t at)
{
    uint8_t byte;
    int fd = open(path, O_RDWR);
    assert_int_equal(pread(fd, &byte, 1, at), 1);
    byte ^= 0x10;
    assert_int_equal(pwrite(fd, &byte, 1, at), 1);
    close(fd);
}

static off_t size_of(const char *path)
{
    struct stat st;
    assert_int_equal(stat(path, &st), 0);
    return st.st_size;
}

static void test_file_survives(void **state)
{
    tiny_model *t = *state;
    char path[128];
    snprintf(path, sizeof path, "%s/rows", t->folder);
    assert_int_equal(encoded_anew(t, path, 5, 10), 5);
    struct stat st;
    assert_int_equal(stat(path, &st), 0);
    assert_int_equal(st.st_mode & 0777, 0600);
    assert_int_equal(encoded_anew(t, path, 5, 10), 0);
    /* Memory for one picture: the file still holds all of them, once. */
    assert_int_equal(encoded_anew(t, path, 5, 1), 0);
    assert_int_equal(size_of(path), HEADER + 5 * ENTRY);
    /* A damaged entry is computed again, the others stay. */
    flip_byte(path, HEADER + ENTRY + 44);
    assert_int_equal(encoded_anew(t, path, 5, 10), 1);
    assert_int_equal(encoded_anew(t, path, 5, 10), 0);
    /* A torn end is overwritten. */
    assert_int_equal(truncate(path, size_of(path) - 5), 0);
    assert_int_equal(encoded_anew(t, path, 5, 10), 1);
    assert_int_equal(encoded_anew(t, path, 5, 10), 0);
    unlink(path);
}

static void test_file_of_another_model_is_dropped(void **state)
{
    tiny_model *t = *state;
    char path[128];
    snprintf(path, sizeof path, "%s/rows", t->folder);
    assert_int_equal(encoded_anew(t, path, 2, 10), 2);
    model_digest *own = t->model->digest;
    t->model->digest = NULL; /* as if a digest of zeros had been given */
    assert_int_equal(encoded_anew(t, path, 2, 10), 2);
    t->model->digest = own;
    assert_int_equal(encoded_anew(t, path, 2, 10), 2);
    FILE *f = fopen(path, "w");
    fputs("not a cache", f);
    fclose(f);
    assert_int_equal(encoded_anew(t, path, 2, 10), 2);
    assert_int_equal(encoded_anew(t, path, 2, 10), 0);
    unlink(path);
}

/* Rows by the thousand that are as wide as a file may say: judged, not asked of the kernel. */
static void test_rows_are_judged_before_they_are_taken(void **state)
{
    (void)state;
    tacit_error err = {0};
    float *rows;
    const tacit_media few = {.n_rows = 3}, many = {.n_rows = 65536};
    assert_int_equal(media_rows_alloc(&rows, &few, 5, &err), TACIT_OK);
    for (size_t i = 0; i < 15; i++)
        assert_true(rows[i] == 0);
    tacit_wipe_free(rows);
    assert_int_equal(media_rows_alloc(&rows, &many, (size_t)1 << 36, &err), TACIT_NO_MEMORY);
    assert_null(rows);
    assert_non_null(strstr(err.message, "a medium of 65536 rows of 68719476736 values needs 16.0 "
                                        "PiB, "));
    assert_int_equal(media_rows_alloc(&rows, &many, SIZE_MAX / 2, &err), TACIT_NO_MEMORY);
    assert_null(rows);
}

/* Rows of one precision are not given for the other, in memory and in the file. */
static void test_precisions_do_not_mix(void **state)
{
    tiny_model *t = *state;
    char path[64];
    snprintf(path, sizeof path, "/tmp/tacit-rows-%d", (int)getpid());
    for (int round = 0; round < 2; round++) {
        tacit_row_cache *c = open_cache(t->model, 4, path);
        for (int fast = 0; fast < 3; fast++) {
            tacit_row_cache_use(c, fast == 1 ? TACIT_FAST : TACIT_EXACT);
            if (fast != 1) {
                expect_rows(c, t->model, 0);
                continue;
            }
            tacit_input in = input_of(0);
            assert_int_equal(tacit_row_cache_fill(c, &in, NULL), TACIT_OK);
            tacit_input_free(&in);
        }
        assert_int_equal(tacit_row_cache_get_stats(c).encoded, round == 0 ? 2 : 0);
        assert_int_equal(tacit_row_cache_get_stats(c).hits, round == 0 ? 1 : 3);
        tacit_row_cache_free(c);
    }
    unlink(path);
}

static void test_misuse(void **state)
{
    tiny_model *t = *state;
    tacit_row_cache *c = open_cache(t->model, 2, NULL);
    tacit_input in = input_of(0);
    in.media->n_rows = 8;
    assert_int_equal(tacit_row_cache_fill(c, &in, NULL), TACIT_BAD_INPUT);
    in.media->n_rows = ROWS;
    free(in.media->values);
    in.media->values = NULL;
    assert_int_equal(tacit_row_cache_fill(c, &in, NULL), TACIT_USAGE);
    assert_null(in.media->rows);
    tacit_input_free(&in);
    tacit_row_cache_free(c);
}

static int setup(void **state)
{
    static tiny_model t;
    tacit_log_init("test", TACIT_LOG_ERROR);
    t = tiny_load(true);
    *state = &t;
    return 0;
}

static int teardown(void **state)
{
    tiny_free(*state);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_memory_is_bounded),
        cmocka_unit_test(test_many_entries),
        cmocka_unit_test(test_file_survives),
        cmocka_unit_test(test_file_of_another_model_is_dropped),
        cmocka_unit_test(test_rows_are_judged_before_they_are_taken),
        cmocka_unit_test(test_precisions_do_not_mix),
        cmocka_unit_test(test_misuse),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
