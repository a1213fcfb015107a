#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "common/bytes.h"
#include "common/file.h"
#include "engine/gguf.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

static const uint64_t shape_a[] = {32, 3}, shape_b[] = {8, 2, 2};

static void fill(float *values, size_t n)
{
    for (size_t i = 0; i < n; i++)
        values[i] = (float)i * 0.25f - 3;
}

/* Every kind of key and two tensors. */
static gguf_writer *example(void)
{
    static const int32_t numbers[] = {-1, 0, 7};
    static const float reals[] = {0.5f, -2};
    static const gguf_string words[] = {{"one", 3}, {"", 0}, {"t\0o", 3}};
    float values[96];
    fill(values, 96);
    gguf_writer *w = gguf_writer_new();
    gguf_put_string(w, "general.architecture", "llama", 5);
    gguf_put_u32(w, "a.u32", 4000000000u);
    gguf_put_u64(w, "a.u64", 1ull << 40);
    gguf_put_i32(w, "a.i32", -5);
    gguf_put_f32(w, "a.f32", 1e-5f);
    gguf_put_bool(w, "a.bool", true);
    gguf_put_array(w, "a.numbers", GGUF_I32, numbers, 3);
    gguf_put_array(w, "a.reals", GGUF_F32, reals, 2);
    gguf_put_strings(w, "a.words", words, 3);
    gguf_put_tensor(w, "first.weight", 2, shape_a, TACIT_TYPE_Q8_0, values);
    gguf_put_tensor(w, "second.weight", 3, shape_b, TACIT_TYPE_F32, values);
    return w;
}

static void check_example(const gguf_file *f)
{
    tacit_error err;
    uint64_t u;
    int64_t i;
    double real;
    bool flag;
    size_t count;
    gguf_string text;
    assert_int_equal(gguf_get_string(f, "general.architecture", &text, &err), TACIT_OK);
    assert_int_equal(text.size, 5);
    assert_memory_equal(text.data, "llama", 5);
    assert_int_equal(gguf_get_u64(f, "a.u32", 0, UINT64_MAX, &u, &err), TACIT_OK);
    assert_int_equal(u, 4000000000u);
    assert_int_equal(gguf_get_u64(f, "a.u64", 0, UINT64_MAX, &u, &err), TACIT_OK);
    assert_int_equal(u, 1ull << 40);
    assert_int_equal(gguf_get_i64(f, "a.i32", &i, &err), TACIT_OK);
    assert_int_equal(i, -5);
    assert_int_equal(gguf_get_f64(f, "a.f32", &real, &err), TACIT_OK);
    assert_true(real == (double)1e-5f);
    assert_int_equal(gguf_get_bool(f, "a.bool", &flag, &err), TACIT_OK);
    assert_true(flag);
    assert_int_equal(gguf_get_array(f, "a.numbers", GGUF_U32, &count, &err), TACIT_OK);
    assert_int_equal(count, 3);
    assert_true(gguf_array_number(f, "a.numbers", 0) == -1);
    assert_true(gguf_array_number(f, "a.numbers", 2) == 7);
    assert_true(gguf_array_number(f, "a.numbers", 3) == 0);
    assert_true(gguf_array_number(f, "a.reals", 1) == -2);
    text = gguf_array_string(f, "a.words", 2);
    assert_int_equal(text.size, 3);
    assert_memory_equal(text.data, "t\0o", 3);
    assert_int_equal(gguf_array_string(f, "a.words", 1).size, 0);
    assert_null(gguf_array_string(f, "a.words", 3).data);

    float values[96], back[96];
    fill(values, 96);
    assert_int_equal(gguf_tensor_count(f), 2);
    const gguf_tensor *t = gguf_tensor_find(f, "first.weight");
    assert_non_null(t);
    assert_int_equal(t->rows, 3);
    assert_int_equal(t->row_bytes, 34);
    assert_int_equal(t->bytes, 102);
    assert_int_equal(t->ne[2], 1);
    t->traits->to_f32(back, t->data, 96);
    for (int j = 0; j < 96; j++)
        assert_true(fabsf(back[j] - values[j]) < 0.1f);
    t = gguf_tensor_at(f, 1);
    assert_string_equal(t->name, "second.weight");
    assert_int_equal((uintptr_t)t->data % 8, 0);
    assert_memory_equal(t->data, values, 32 * sizeof(float));
    assert_null(gguf_tensor_find(f, "third.weight"));
}

static void test_round_trip_in_memory(void **state)
{
    (void)state;
    tacit_error err;
    gguf_writer *w = example(), *again = example();
    uint8_t *data, *same;
    size_t size, same_size;
    gguf_file *f;
    assert_int_equal(gguf_write_memory(w, &data, &size, &err), TACIT_OK);
    assert_int_equal(gguf_write_memory(again, &same, &same_size, &err), TACIT_OK);
    assert_int_equal(size, same_size);
    assert_memory_equal(data, same, size);
    assert_int_equal(size % 32, 0);
    assert_int_equal(gguf_open_memory(&f, data, size, "memory", &err), TACIT_OK);
    check_example(f);
    gguf_close(f);
    gguf_writer_free(w);
    gguf_writer_free(again);
    free(data);
    free(same);
}

/* Tensors below and above what is written at once, of lengths that are no multiple of the
 * alignment: a file has the bytes of memory, whether data was there or is asked for. */
enum { LARGE = (5 << 18) + 3, SMALL = 7 };

static tacit_status give_floats(void *ctx, uint8_t *out, size_t bytes, tacit_error *err)
{
    if (!ctx)
        return tacit_fail(err, TACIT_BAD_INPUT, "nothing to give");
    memcpy(out, ctx, bytes);
    return TACIT_OK;
}

static gguf_writer *large_writer(float *values, bool later)
{
    static const char *const names[] = {"a", "b", "c", "d"};
    const uint64_t lengths[] = {SMALL, LARGE, LARGE - 2, SMALL};
    gguf_writer *w = gguf_writer_new();
    for (size_t i = 0; i < 4; i++)
        if (later)
            gguf_put_tensor_later(w, names[i], 1, &lengths[i], TACIT_TYPE_F32, give_floats,
                                  values + i);
        else
            gguf_put_tensor(w, names[i], 1, &lengths[i], TACIT_TYPE_F32, values + i);
    return w;
}

static void test_files_are_written_in_parts(void **state)
{
    (void)state;
    static const char path[] = TACIT_BINARY_DIR "/test-gguf-parts.gguf";
    float *values = malloc((LARGE + 4) * sizeof *values);
    tacit_error err;
    uint8_t *data, *found;
    size_t size, n;
    for (size_t i = 0; i < LARGE + 4; i++)
        values[i] = (float)i;
    gguf_writer *w = large_writer(values, false);
    assert_int_equal(gguf_write_memory(w, &data, &size, &err), TACIT_OK);
    gguf_writer_free(w);
    for (int later = 0; later < 2; later++) {
        gguf_file *f;
        w = large_writer(values, later);
        assert_int_equal(gguf_write(w, path, &err), TACIT_OK);
        gguf_writer_free(w);
        assert_int_equal(tacit_file_read(path, SIZE_MAX / 4, &found, &n, &err), TACIT_OK);
        assert_int_equal(n, size);
        assert_memory_equal(found, data, size);
        free(found);
        assert_int_equal(gguf_open(&f, path, &err), TACIT_OK);
        assert_memory_equal(gguf_tensor_find(f, "c")->data, values + 2, (LARGE - 2) * 4);
        gguf_close(f);
    }
    free(data);
    free(values);
    assert_int_equal(unlink(path), 0);
}

static void test_data_that_does_not_come_ends_the_writing(void **state)
{
    (void)state;
    static const char path[] = TACIT_BINARY_DIR "/test-gguf-none.gguf";
    const uint64_t n = 4;
    tacit_error err;
    gguf_writer *w = gguf_writer_new();
    gguf_put_tensor_later(w, "a", 1, &n, TACIT_TYPE_F32, give_floats, NULL);
    assert_int_equal(gguf_write(w, path, &err), TACIT_BAD_INPUT);
    assert_string_equal(err.message, "nothing to give");
    assert_int_not_equal(access(path, F_OK), 0);
    gguf_writer_free(w);
}

static void test_round_trip_on_disk(void **state)
{
    (void)state;
    char path[] = "test_gguf.XXXXXX";
    tacit_error err;
    gguf_file *f;
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    close(fd);
    gguf_writer *w = example();
    assert_int_equal(gguf_write(w, path, &err), TACIT_OK);
    gguf_writer_free(w);
    assert_int_equal(gguf_open(&f, path, &err), TACIT_OK);
    assert_string_equal(gguf_name(f), path);
    check_example(f);

    /* keys copied from a file read the same, but those put before win */
    w = gguf_writer_new();
    gguf_put_u32(w, "a.u32", 1);
    gguf_put_keys_of(w, f);
    uint8_t *data;
    size_t size;
    gguf_file *copy;
    uint64_t u;
    assert_int_equal(gguf_write_memory(w, &data, &size, &err), TACIT_OK);
    assert_int_equal(gguf_open_memory(&copy, data, size, "copy", &err), TACIT_OK);
    assert_int_equal(gguf_key_count(copy), gguf_key_count(f));
    assert_int_equal(gguf_get_u64(copy, "a.u32", 0, 9, &u, &err), TACIT_OK);
    assert_int_equal(u, 1);
    assert_memory_equal(gguf_array_string(copy, "a.words", 0).data, "one", 3);
    gguf_close(copy);
    free(data);
    gguf_writer_free(w);
    gguf_close(f);
    unlink(path);
}

static void test_asking_for_the_wrong_thing(void **state)
{
    (void)state;
    tacit_error err;
    uint8_t *data;
    size_t size, count;
    uint64_t u;
    double real;
    bool flag;
    gguf_string text;
    gguf_file *f;
    gguf_writer *w = example();
    assert_int_equal(gguf_write_memory(w, &data, &size, &err), TACIT_OK);
    gguf_writer_free(w);
    assert_int_equal(gguf_open_memory(&f, data, size, "m.gguf", &err), TACIT_OK);
    assert_int_equal(gguf_get_u64(f, "none", 0, 1, &u, &err), TACIT_NOT_FOUND);
    assert_string_equal(err.message, "m.gguf: key 'none' is missing");
    assert_int_equal(gguf_get_u64(f, "a.i32", 0, 9, &u, &err), TACIT_BAD_INPUT);
    assert_string_equal(err.message, "m.gguf: key 'a.i32': expected a value from 0 to 9, found -5");
    assert_int_equal(gguf_get_u64(f, "a.f32", 0, 9, &u, &err), TACIT_BAD_INPUT);
    assert_string_equal(err.message, "m.gguf: key 'a.f32': expected an integer, found type f32");
    assert_int_equal(gguf_get_u64(f, "a.bool", 0, 9, &u, &err), TACIT_BAD_INPUT);
    assert_int_equal(gguf_get_u64(f, "a.numbers", 0, 9, &u, &err), TACIT_BAD_INPUT);
    assert_int_equal(gguf_get_f64(f, "a.u32", &real, &err), TACIT_BAD_INPUT);
    assert_int_equal(gguf_get_bool(f, "a.u32", &flag, &err), TACIT_BAD_INPUT);
    assert_int_equal(gguf_get_string(f, "a.words", &text, &err), TACIT_BAD_INPUT);
    assert_int_equal(gguf_get_array(f, "a.words", GGUF_F32, &count, &err), TACIT_BAD_INPUT);
    assert_string_equal(
        err.message, "m.gguf: key 'a.words': expected an array of f32, found an array of string");
    assert_int_equal(gguf_get_array(f, "a.u32", GGUF_U32, &count, &err), TACIT_BAD_INPUT);
    gguf_close(f);
    free(data);
}

/* ---- beyond what 31 and 32 bits reach ---- */

enum { LOW, HALF, WHOLE, WIDE, FAR_TENSORS };
#define FAR_ROW ((uint64_t)1 << 20)
#define FAR_ROWS ((uint64_t)1100) /* 4.3 GiB of fp32 */

static const struct {
    const char *name;
    uint64_t offset; /* in the data */
} far_tensors[FAR_TENSORS] = {
    {"low", 0},
    {"half", ((uint64_t)1 << 31) + 64},
    {"whole", ((uint64_t)1 << 32) + 64},
    {"wide", ((uint64_t)1 << 32) + 128},
};

static uint8_t *find_bytes(uint8_t *data, size_t size, const char *text)
{
    size_t n = strlen(text);
    for (size_t i = 0; i + n <= size; i++)
        if (memcmp(data + i, text, n) == 0)
            return data + i + n;
    fail_msg("no '%s' in the header", text);
    return NULL;
}

/* The header of four small tensors, whose offsets (and for `wide` its shape) are then moved. *size
 * is that of the header: where the data begins. */
static uint8_t *far_header(size_t *size)
{
    static const float value[8] = {0};
    const uint64_t ne[2] = {2, 4};
    gguf_writer *w = gguf_writer_new();
    uint8_t *data;
    gguf_put_string(w, "general.architecture", "llama", 5);
    for (int i = 0; i < FAR_TENSORS; i++)
        gguf_put_tensor(w, far_tensors[i].name, 2, ne, TACIT_TYPE_F32, value);
    assert_int_equal(gguf_write_memory(w, &data, size, NULL), TACIT_OK);
    gguf_writer_free(w);
    *size -= FAR_TENSORS * sizeof value;
    for (int i = 0; i < FAR_TENSORS; i++) {
        uint8_t *at = find_bytes(data, *size, far_tensors[i].name) + 4; /* after n_dims */
        if (i == WIDE) {
            tacit_store_u64(at, FAR_ROW);
            tacit_store_u64(at + 8, FAR_ROWS);
        }
        tacit_store_u64(at + 16 + 4, far_tensors[i].offset);
    }
    return data;
}

static void put_at(int fd, uint64_t at, float value)
{
    assert_int_equal(pwrite(fd, &value, sizeof value, (off_t)at), sizeof value);
}

/* A file of 8.3 GiB, nearly all of it a hole: value 1 + i at the start of tensor i, 9 at the end.
 */
static void make_far_file(char *path, uint64_t *begin, uint64_t *size)
{
    size_t header_size;
    uint8_t *header = far_header(&header_size);
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    *begin = header_size;
    *size = *begin + far_tensors[WIDE].offset + FAR_ROW * FAR_ROWS * sizeof(float);
    assert_int_equal(ftruncate(fd, (off_t)*size), 0);
    assert_int_equal(pwrite(fd, header, header_size, 0), header_size);
    for (int i = 0; i < FAR_TENSORS; i++)
        put_at(fd, *begin + far_tensors[i].offset, (float)i + 1);
    put_at(fd, *size - sizeof(float), 9);
    close(fd);
    free(header);
}

static float first_value(const gguf_tensor *t)
{
    float value[2];
    t->traits->to_f32(value, t->data, 2);
    return value[0];
}

/* TACIT_EMULATOR is what runs programs of another processor (tests/cross/run.sh). */
static void expect_inspected(const char *path)
{
    char command[1024], text[4096];
    const char *emulator = getenv("TACIT_EMULATOR");
    snprintf(command, sizeof command, "%s " TACIT_BINARY_DIR "/bin/tacit inspect --json %s",
             emulator ? emulator : "", path);
    FILE *f = popen(command, "r");
    assert_non_null(f);
    size_t n = fread(text, 1, sizeof text - 1, f);
    text[n] = '\0';
    assert_int_equal(pclose(f), 0);
    assert_non_null(strstr(text, "\"parameters\":1153433624")); /* 1100 * 2^20 + 3 * 8 */
    assert_non_null(strstr(text, "\"bytes\":4613734496"));
}

static void test_data_beyond_four_gib(void **state)
{
    (void)state;
    char path[] = TACIT_BINARY_DIR "/test-gguf-far-XXXXXX";
    uint64_t begin, size;
    gguf_file *f;
    tacit_error err = {0};
    struct stat st;
    make_far_file(path, &begin, &size);
    if (stat(path, &st) != 0 || st.st_blocks > 20000) {
        unlink(path);
        skip(); /* a file system without holes would need 8 GiB */
    }
    if (gguf_open(&f, path, &err) != TACIT_OK)
        fail_msg("%s", err.message);
    for (int i = 0; i < FAR_TENSORS; i++) {
        const gguf_tensor *t = gguf_tensor_find(f, far_tensors[i].name);
        assert_true(first_value(t) == (float)i + 1);
        assert_true((uint64_t)(t->data - gguf_tensor_find(f, "low")->data) ==
                    far_tensors[i].offset);
    }
    const gguf_tensor *wide = gguf_tensor_find(f, "wide");
    assert_true(wide->bytes == 4613734400 && wide->rows == FAR_ROWS);
    float last[2];
    wide->traits->to_f32(last, wide->data + wide->bytes - sizeof last, 2);
    assert_true(last[0] == 0 && last[1] == 9);
    gguf_close(f);
    expect_inspected(path);

    /* A byte short; and so short that only offsets cut to 32 bits would lie inside. */
    assert_int_equal(truncate(path, (off_t)size - 1), 0);
    assert_int_equal(gguf_open(&f, path, &err), TACIT_BAD_INPUT);
    assert_non_null(strstr(err.message, "'wide': 4613734400 bytes at offset 4294967424"));
    assert_int_equal(truncate(path, (off_t)begin + 4096), 0);
    assert_int_equal(gguf_open(&f, path, &err), TACIT_BAD_INPUT);
    assert_non_null(strstr(err.message, "'half': 32 bytes at offset 2147483712"));
    assert_int_equal(unlink(path), 0);
}

/* Processor seconds of putting so many tensors. */
static double seconds_of_tensors(unsigned count)
{
    const uint64_t ne[] = {1};
    const float value = 1;
    char name[64];
    gguf_writer *w = gguf_writer_new();
    clock_t start = clock();
    for (unsigned i = 0; i < count; i++) {
        snprintf(name, sizeof name, "a.name.that.begins.as.all.others.do.%u", i);
        gguf_put_tensor(w, name, 1, ne, TACIT_TYPE_F32, &value);
    }
    double seconds = (double)(clock() - start) / CLOCKS_PER_SEC;
    uint8_t *data;
    size_t size;
    gguf_put_tensor(w, "a.name.that.begins.as.all.others.do.7", 1, ne, TACIT_TYPE_F32, &value);
    tacit_error err = {0};
    assert_int_equal(gguf_write_memory(w, &data, &size, &err), TACIT_USAGE);
    assert_non_null(strstr(err.message, "put twice"));
    gguf_writer_free(w);
    return seconds;
}

/* Eight times as many are eight times the work, not sixty-four times. */
static void test_many_tensors(void **state)
{
    (void)state;
    double few = seconds_of_tensors(5000);
    assert_true(seconds_of_tensors(40000) < 24 * few);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_round_trip_in_memory),
        cmocka_unit_test(test_files_are_written_in_parts),
        cmocka_unit_test(test_data_that_does_not_come_ends_the_writing),
        cmocka_unit_test(test_round_trip_on_disk),
        cmocka_unit_test(test_many_tensors),
        cmocka_unit_test(test_asking_for_the_wrong_thing),
        cmocka_unit_test(test_data_beyond_four_gib),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
