#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "engine/safetensors.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define DATA 16 /* bytes after the header in files made here */

/* A file laid out by hand: length, header, `data` bytes that count upwards. */
typedef struct laid_out {
    uint8_t *bytes;
    size_t size;
} laid_out;

static laid_out lay_out(const char *header, size_t data)
{
    size_t n = strlen(header);
    laid_out f = {.bytes = calloc(1, 8 + n + data + 1), .size = 8 + n + data};
    for (size_t i = 0; i < 8; i++)
        f.bytes[i] = (uint8_t)((uint64_t)n >> 8 * i);
    memcpy(f.bytes + 8, header, n);
    for (size_t i = 0; i < data; i++)
        f.bytes[8 + n + i] = (uint8_t)i;
    return f;
}

static const char two_tensors[] =
    "{\"__metadata__\":{\"format\":\"pt\"},"
    "\"b\":{\"dtype\":\"F16\",\"shape\":[2],\"data_offsets\":[12,16]},"
    "\"a.weight\":{\"dtype\":\"F32\",\"shape\":[1,3],\"data_offsets\":[0,12]},"
    "\"empty\":{\"dtype\":\"I64\",\"shape\":[0,5],\"data_offsets\":[12,12]}}    ";

static void test_a_sound_file(void **state)
{
    (void)state;
    laid_out l = lay_out(two_tensors, DATA);
    safetensors_file *f;
    tacit_error err = {0};
    assert_int_equal(safetensors_open_memory(&f, l.bytes, l.size, "sound", &err), TACIT_OK);
    assert_int_equal(safetensors_count(f), 3);
    const safetensors_tensor *a = safetensors_at(f, 0);
    assert_string_equal(a->name, "a.weight");
    assert_string_equal(a->dtype, "F32");
    assert_int_equal(a->traits->type, TACIT_TYPE_F32);
    assert_int_equal(a->n_dims, 2);
    assert_int_equal(a->shape[1], 3);
    assert_int_equal(a->values, 3);
    assert_int_equal(a->data[0], 0);
    const safetensors_tensor *b = safetensors_find(f, "b");
    assert_int_equal(b->traits->type, TACIT_TYPE_F16);
    assert_int_equal(b->data[0], 12);
    assert_int_equal(b->bytes, 4);
    assert_null(safetensors_find(f, "empty")->traits);
    assert_null(safetensors_find(f, "c"));
    assert_string_equal(safetensors_metadata(f, "format"), "pt");
    assert_null(safetensors_metadata(f, "other"));
    safetensors_close(f);
    free(l.bytes);
}

static void test_a_file_on_disk(void **state)
{
    (void)state;
    char path[] = "/tmp/tacit-safetensors-XXXXXX";
    laid_out l = lay_out(two_tensors, DATA);
    int fd = mkstemp(path);
    assert_int_equal(write(fd, l.bytes, l.size), (ssize_t)l.size);
    close(fd);
    safetensors_file *f;
    tacit_error err = {0};
    assert_int_equal(safetensors_open(&f, path, &err), TACIT_OK);
    assert_memory_equal(safetensors_find(f, "b")->data, l.bytes + l.size - 4, 4);
    safetensors_close(f);
    assert_int_equal(unlink(path), 0);
    assert_int_equal(safetensors_open(&f, path, &err), TACIT_NOT_FOUND);
    free(l.bytes);
}

static void assert_refused(const uint8_t *bytes, size_t size, const char *why)
{
    safetensors_file *f;
    tacit_error err = {0};
    assert_int_equal(safetensors_open_memory(&f, bytes, size, "hostile", &err), TACIT_BAD_INPUT);
    assert_null(f);
    if (!strstr(err.message, why) || !strstr(err.message, "hostile"))
        fail_msg("'%s' does not say '%s'", err.message, why);
}

#define ONE(dtype, shape, range)                                                                   \
    "{\"a\":{\"dtype\":" dtype ",\"shape\":" shape ",\"data_offsets\":" range "}}"

static void test_each_fault_is_refused(void **state)
{
    (void)state;
    static const struct {
        const char *header, *why;
    } faults[] = {
        {"", "no JSON object"},
        {" {}", "no JSON object"},
        {"[]", "no JSON object"},
        {"{\"a\":1}", "expected an object"},
        {"{\"a\":{},\"a\":{}}", "no JSON object without repeated names"},
        {ONE("\"F33\"", "[4]", "[0,16]"), "\"dtype\""},
        {ONE("4", "[4]", "[0,16]"), "\"dtype\""},
        {ONE("\"F32\"", "4", "[0,16]"), "\"shape\" is not a list"},
        {ONE("\"F32\"", "[1,1,1,1,1,1,1,1,4]", "[0,16]"), "at most 8"},
        {ONE("\"F32\"", "[-4]", "[0,16]"), "product is a size"},
        {ONE("\"F32\"", "[4.0]", "[0,16]"), "product is a size"},
        {ONE("\"F32\"", "[4294967296,4294967296]", "[0,16]"), "product is a size"},
        {ONE("\"F32\"", "[4611686018427387905]", "[0,16]"), "want another number"},
        {ONE("\"F32\"", "[3]", "[0,16]"), "want another number"},
        {ONE("\"F32\"", "[4]", "[0]"), "two rising numbers"},
        {ONE("\"F32\"", "[4]", "[16,0]"), "two rising numbers"},
        {ONE("\"F32\"", "[4]", "[-16,0]"), "two rising numbers"},
        {ONE("\"F32\"", "[5]", "[0,20]"), "truncated"},
        {ONE("\"F32\"", "[4]", "[9223372036854775791,9223372036854775807]"), "truncated"},
        {ONE("\"F32\"", "[3]", "[0,12]"), "4 bytes follow"},
        {ONE("\"F32\"", "[3]", "[4,16]"), "gap"},
        {"{\"a\":{\"dtype\":\"U8\",\"shape\":[10],\"data_offsets\":[0,10]},"
         "\"b\":{\"dtype\":\"U8\",\"shape\":[8],\"data_offsets\":[8,16]}}",
         "overlap"},
        {"{\"__metadata__\":[],"
         "\"a\":{\"dtype\":\"F32\",\"shape\":[4],\"data_offsets\":[0,16]}}",
         "is no object"},
        {"{\"__metadata__\":{\"k\":1},"
         "\"a\":{\"dtype\":\"F32\",\"shape\":[4],\"data_offsets\":[0,16]}}",
         "is no string"},
        {"{\"a\\u001b[2J\":{\"dtype\":\"F32\",\"shape\":[4],\"data_offsets\":[0,16]}}",
         "without control characters"},
        {"{\"a\\u009b2J\":{\"dtype\":\"F32\",\"shape\":[4],\"data_offsets\":[0,16]}}",
         "without control characters"},
        {"{\"__metadata__\":{\"k\\n\":\"\"},"
         "\"a\":{\"dtype\":\"F32\",\"shape\":[4],\"data_offsets\":[0,16]}}",
         "a key has control characters"},
    };
    for (size_t i = 0; i < sizeof faults / sizeof faults[0]; i++) {
        laid_out l = lay_out(faults[i].header, DATA);
        assert_refused(l.bytes, l.size, faults[i].why);
        free(l.bytes);
    }
}

static void test_lengths_that_lie(void **state)
{
    (void)state;
    laid_out l = lay_out(two_tensors, DATA);
    for (size_t i = 0; i < 8; i++)
        assert_refused(l.bytes, i, "expected at least 8");
    for (size_t cut = 8; cut < l.size; cut++) {
        safetensors_file *f;
        tacit_error err = {0};
        assert_int_equal(safetensors_open_memory(&f, l.bytes, cut, "cut", &err), TACIT_BAD_INPUT);
    }
    memset(l.bytes, 0xff, 8);
    assert_refused(l.bytes, l.size, "header of 18446744073709551615 bytes");
    free(l.bytes);
    uint8_t *large = calloc(1, 8 + SAFETENSORS_MAX_HEADER + 1);
    uint64_t length = SAFETENSORS_MAX_HEADER + 1;
    for (size_t i = 0; i < 8; i++)
        large[i] = (uint8_t)(length >> 8 * i);
    assert_refused(large, 8 + SAFETENSORS_MAX_HEADER + 1, "expected at most 4194304");
    free(large);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_sound_file),
        cmocka_unit_test(test_a_file_on_disk),
        cmocka_unit_test(test_each_fault_is_refused),
        cmocka_unit_test(test_lengths_that_lie),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
