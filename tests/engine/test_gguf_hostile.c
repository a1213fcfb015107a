/* Malformed files: each must be refused with TACIT_BAD_INPUT and a line that says what is wrong.
 * Files are laid out here byte by byte, independently of the writer. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "common/bytes.h"
#include "engine/gguf.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef struct spec_key {
    const char *name;
    size_t name_size;
    uint64_t name_length; /* as the file claims it */
    uint32_t type;
    uint8_t value[48];
    size_t value_size;
} spec_key;

typedef struct spec_tensor {
    const char *name;
    size_t name_size;
    uint32_t n_dims;
    uint64_t ne[6];
    uint32_t type;
    uint64_t offset;
} spec_tensor;

typedef struct spec {
    uint32_t magic, version;
    uint64_t n_tensors, n_keys; /* as the file claims them */
    spec_key key[3];
    spec_tensor tensor[2];
    size_t keys, tensors, alignment, data_size;
} spec;

static void set_name(spec_key *k, const char *name, size_t size)
{
    k->name = name;
    k->name_size = k->name_length = size;
}

static void set_u32(spec_key *k, const char *name, uint32_t type, uint32_t value)
{
    set_name(k, name, strlen(name));
    k->type = type;
    tacit_store_u32(k->value, value);
    k->value_size = 4;
}

/* An array: element type, count, and `size` bytes of elements. */
static void set_array(spec_key *k, uint32_t element, uint64_t count, size_t size)
{
    k->type = GGUF_ARRAY;
    memset(k->value, 0, sizeof k->value);
    tacit_store_u32(k->value, element);
    tacit_store_u64(k->value + 4, count);
    k->value_size = 12 + size;
}

/* A sound file: two keys, two tensors of 32 floats each. */
static void sound(spec *s)
{
    *s = (spec){.magic = 0x46554747, .version = 3, .n_tensors = 2, .n_keys = 3};
    s->keys = 3;
    s->tensors = 2;
    s->alignment = 32;
    s->data_size = 256;
    set_u32(&s->key[0], "general.alignment", GGUF_U32, 32);
    set_u32(&s->key[1], "numbers", GGUF_U32, 7);
    set_u32(&s->key[2], "more", GGUF_U32, 7);
    s->tensor[0] = (spec_tensor){"one", 3, 2, {8, 4}, 0, 0};
    s->tensor[1] = (spec_tensor){"two", 3, 2, {32, 1}, 0, 128};
}

static void put(tacit_buffer *b, const void *data, size_t size)
{
    assert_int_equal(tacit_buffer_append(b, data, size), TACIT_OK);
}

static void put_u32(tacit_buffer *b, uint32_t v)
{
    uint8_t bytes[4];
    tacit_store_u32(bytes, v);
    put(b, bytes, 4);
}

static void put_u64(tacit_buffer *b, uint64_t v)
{
    uint8_t bytes[8];
    tacit_store_u64(bytes, v);
    put(b, bytes, 8);
}

static tacit_buffer encode(const spec *s)
{
    tacit_buffer b = {0};
    put_u32(&b, s->magic);
    put_u32(&b, s->version);
    put_u64(&b, s->n_tensors);
    put_u64(&b, s->n_keys);
    for (size_t i = 0; i < s->keys; i++) {
        const spec_key *k = &s->key[i];
        put_u64(&b, k->name_length);
        put(&b, k->name, k->name_size);
        put_u32(&b, k->type);
        put(&b, k->value, k->value_size);
    }
    for (size_t i = 0; i < s->tensors; i++) {
        const spec_tensor *t = &s->tensor[i];
        put_u64(&b, t->name_size);
        put(&b, t->name, t->name_size);
        put_u32(&b, t->n_dims);
        for (uint32_t d = 0; d < t->n_dims && d < 6; d++)
            put_u64(&b, t->ne[d]);
        put_u32(&b, t->type);
        put_u64(&b, t->offset);
    }
    while (b.size % s->alignment)
        put(&b, "", 1);
    for (size_t i = 0; i < s->data_size; i++)
        put(&b, "x", 1);
    return b;
}

/* ---- what may be wrong ------------------------------------------------------------------- */

#define ALL_ONES UINT64_MAX

static void bad_magic(spec *s)
{
    s->magic = 0x55474746;
}
static void big_endian(spec *s)
{
    s->version = 0x03000000;
}
static void version_0(spec *s)
{
    s->version = 0;
}
static void version_1(spec *s)
{
    s->version = 1;
}
static void version_4(spec *s)
{
    s->version = 4;
}
static void many_tensors(spec *s)
{
    s->n_tensors = ALL_ONES;
}
static void wrapping_tensors(spec *s)
{
    s->n_tensors = (ALL_ONES / 33) + 2;
}
static void many_keys(spec *s)
{
    s->n_keys = ALL_ONES;
}
static void one_key_more(spec *s)
{
    s->n_keys = 4;
}
static void one_tensor_more(spec *s)
{
    s->n_tensors = 3;
}

static void key_name_empty(spec *s)
{
    set_name(&s->key[1], "", 0);
}
static void key_name_beyond(spec *s)
{
    s->key[1].name_length = 1 << 20;
}
static void key_name_wraps(spec *s)
{
    s->key[1].name_length = ALL_ONES - 7;
}
static void key_name_nul(spec *s)
{
    set_name(&s->key[1], "a\0b", 3);
}
static void key_name_newline(spec *s)
{
    set_name(&s->key[1], "a\nb", 3);
}
static void key_name_no_utf8(spec *s)
{
    set_name(&s->key[1], "a\xff", 2);
}
static void key_twice(spec *s)
{
    set_name(&s->key[2], "numbers", 7);
}
static void key_type_13(spec *s)
{
    s->key[1].type = 13;
}
static void key_type_huge(spec *s)
{
    s->key[1].type = UINT32_MAX;
}

static void key_name_long(spec *s)
{
    static char name[257];
    memset(name, 'k', sizeof name);
    set_name(&s->key[1], name, sizeof name);
}

static void bool_2(spec *s)
{
    s->key[1].type = GGUF_BOOL;
    s->key[1].value[0] = 2;
    s->key[1].value_size = 1;
}

static void string_beyond(spec *s)
{
    s->key[1].type = GGUF_STRING;
    tacit_store_u64(s->key[1].value, 1 << 20);
    s->key[1].value_size = 8;
}

static void string_wraps(spec *s)
{
    string_beyond(s);
    tacit_store_u64(s->key[1].value, ALL_ONES);
}

static void array_of_arrays(spec *s)
{
    set_array(&s->key[1], GGUF_ARRAY, 1, 12);
}
static void array_of_13(spec *s)
{
    set_array(&s->key[1], 13, 1, 8);
}
static void array_of_huge_type(spec *s)
{
    set_array(&s->key[1], 0x80000008, 1, 8);
}
static void array_all_ones(spec *s)
{
    set_array(&s->key[1], GGUF_U64, ALL_ONES, 8);
}
static void array_wraps(spec *s)
{
    set_array(&s->key[1], GGUF_U64, (ALL_ONES / 8) + 2, 8);
}
static void array_beyond(spec *s)
{
    set_array(&s->key[1], GGUF_U64, 200, 8);
}
static void strings_beyond(spec *s)
{
    set_array(&s->key[1], GGUF_STRING, 200, 8);
}
static void bools_2(spec *s)
{
    set_array(&s->key[1], GGUF_BOOL, 2, 2);
    s->key[1].value[13] = 255;
}

static void string_in_array_beyond(spec *s)
{
    set_array(&s->key[1], GGUF_STRING, 2, 16);
    tacit_store_u64(s->key[1].value + 12, ALL_ONES - 3);
}

static void alignment(spec *s, uint32_t v)
{
    tacit_store_u32(s->key[0].value, v);
}
static void alignment_0(spec *s)
{
    alignment(s, 0);
}
static void alignment_1(spec *s)
{
    alignment(s, 1);
}
static void alignment_24(spec *s)
{
    alignment(s, 24);
}
static void alignment_huge(spec *s)
{
    alignment(s, 1u << 31);
}
static void alignment_is_float(spec *s)
{
    s->key[0].type = GGUF_F32;
}
static void alignment_negative(spec *s)
{
    s->key[0].type = GGUF_I32;
    alignment(s, UINT32_MAX);
}

static void padding_missing(spec *s)
{
    alignment(s, 4096);
    s->data_size = 0;
}

static void tensor_name_empty(spec *s)
{
    s->tensor[0].name_size = 0;
}
static void tensor_name_nul(spec *s)
{
    s->tensor[0].name = "o\0e";
}
static void tensor_twice(spec *s)
{
    s->tensor[1].name = "one";
}
static void tensor_name_long(spec *s)
{
    static char name[129];
    memset(name, 't', sizeof name);
    s->tensor[0].name = name;
    s->tensor[0].name_size = sizeof name;
}

static void dims_0(spec *s)
{
    s->tensor[0].n_dims = 0;
}
static void dims_5(spec *s)
{
    s->tensor[0].n_dims = 5;
}
static void dims_huge(spec *s)
{
    s->tensor[0].n_dims = UINT32_MAX;
}
static void dim_zero(spec *s)
{
    s->tensor[0].ne[1] = 0;
}
static void row_zero(spec *s)
{
    s->tensor[0].ne[0] = 0;
}
static void type_4(spec *s)
{
    s->tensor[0].type = 4;
}
static void type_huge(spec *s)
{
    s->tensor[0].type = UINT32_MAX;
}
static void row_no_block(spec *s)
{
    s->tensor[0].type = 8;
}

static void set_dims(spec *s, uint32_t n, uint64_t a, uint64_t b, uint64_t c, uint64_t d)
{
    s->tensor[0].n_dims = n;
    s->tensor[0].ne[0] = a;
    s->tensor[0].ne[1] = b;
    s->tensor[0].ne[2] = c;
    s->tensor[0].ne[3] = d;
}

static void dims_wrap_to_zero(spec *s)
{
    set_dims(s, 4, 1u << 16, 1u << 16, 1u << 16, 1u << 16);
}
static void dims_wrap_to_small(spec *s)
{
    set_dims(s, 2, (1ull << 63) + 16, 2, 0, 0);
}
static void bytes_wrap(spec *s)
{
    set_dims(s, 2, 1ull << 31, 1ull << 31, 0, 0);
}
static void row_bytes_wrap(spec *s)
{
    set_dims(s, 1, (1ull << 62) + 8, 0, 0, 0);
}
static void dims_negative(spec *s)
{
    set_dims(s, 2, 8, ALL_ONES, 0, 0);
}
static void rows_beyond(spec *s)
{
    set_dims(s, 2, 8, 9, 0, 0);
}

static void offset_odd(spec *s)
{
    s->tensor[1].offset = 129;
}
static void offset_beyond(spec *s)
{
    s->tensor[1].offset = 1 << 20;
}
static void offset_wraps(spec *s)
{
    s->tensor[1].offset = ALL_ONES - 31;
}
static void offset_at_end(spec *s)
{
    s->tensor[1].offset = 256;
}
static void overlap(spec *s)
{
    s->tensor[1].offset = 96;
}
static void same_place(spec *s)
{
    s->tensor[1].offset = 0;
}

static const struct hostile {
    void (*spoil)(spec *s);
    const char *message; /* what it contains, after "h.gguf: " */
} cases[] = {
    {bad_magic, "expected the magic 'GGUF', found bytes 46 47 47 55"},
    {big_endian, "expected a little-endian file, found a big-endian one"},
    {version_0, "expected GGUF version 2 or 3, found 0"},
    {version_1, "expected GGUF version 2 or 3, found 1"},
    {version_4, "expected GGUF version 2 or 3, found 4"},
    {many_tensors, "18446744073709551615 tensors do not fit into the"},
    {wrapping_tensors, "tensors do not fit into the"},
    {many_keys, "18446744073709551615 keys do not fit into the"},
    {one_key_more, "tensor name has a length of"}, /* the tensor list read as a key */
    {one_tensor_more, "has a length of"},
    {key_name_empty, "expected a name of 1 to 256 bytes, found 0"},
    {key_name_long, "expected a name of 1 to 256 bytes, found 257"},
    {key_name_beyond, "key name has a length of 1048576 bytes, the file has"},
    {key_name_wraps, "key name has a length of 18446744073709551608 bytes, the file has"},
    {key_name_nul, "expected a name in UTF-8 without control characters"},
    {key_name_newline, "expected a name in UTF-8 without control characters"},
    {key_name_no_utf8, "expected a name in UTF-8 without control characters"},
    {key_twice, "key 'numbers' is there twice"},
    {key_type_13, "key 'numbers': type 13 is unknown"},
    {key_type_huge, "key 'numbers': type 4294967295 is unknown"},
    {bool_2, "key 'numbers': expected a bool of 0 or 1, found 2"},
    {string_beyond, "a string of key 'numbers' has a length of 1048576 bytes, the file has"},
    {string_wraps,
     "a string of key 'numbers' has a length of 18446744073709551615 bytes, the file has"},
    {array_of_arrays, "key 'numbers': arrays within arrays are not supported"},
    {array_of_13, "key 'numbers': element type 13 is unknown"},
    {array_of_huge_type, "key 'numbers': element type 2147483656 is unknown"},
    {array_all_ones, "key 'numbers': 18446744073709551615 elements do not fit into the"},
    {array_wraps, "key 'numbers': 2305843009213693953 elements do not fit into the"},
    {array_beyond, "key 'numbers': 200 values of type u64 do not fit into the"},
    {strings_beyond, "key 'numbers': 200 values of type string do not fit into the"},
    {bools_2, "key 'numbers': expected a bool of 0 or 1, found 255"},
    {string_in_array_beyond,
     "a string of key 'numbers' has a length of 18446744073709551612 bytes"},
    {alignment_0, "key 'general.alignment': expected a value from 8 to 65536, found 0"},
    {alignment_1, "key 'general.alignment': expected a value from 8 to 65536, found 1"},
    {alignment_24, "key 'general.alignment': expected a power of two, found 24"},
    {alignment_huge, "key 'general.alignment': expected a value from 8 to 65536, found 2147483648"},
    {alignment_is_float, "key 'general.alignment': expected an integer, found type f32"},
    {alignment_negative, "key 'general.alignment': expected a value from 8 to 65536, found -1"},
    {padding_missing, "the file ends within the padding before the tensor data"},
    {tensor_name_empty, "expected a name of 1 to 128 bytes, found 0"},
    {tensor_name_long, "expected a name of 1 to 128 bytes, found 129"},
    {tensor_name_nul, "expected a name in UTF-8 without control characters"},
    {tensor_twice, "tensor 'one' is there twice"},
    {dims_0, "tensor 'one': expected 1 to 4 dimensions, found 0"},
    {dims_5, "tensor 'one': expected 1 to 4 dimensions, found 5"},
    {dims_huge, "tensor 'one': expected 1 to 4 dimensions, found 4294967295"},
    {dim_zero, "tensor 'one': expected dimension 1 to be at least 1, found 0"},
    {row_zero, "tensor 'one': expected dimension 0 to be at least 1, found 0"},
    {type_4, "tensor 'one': type 4 is unknown, so is its size; expected f32, f16, bf16, q8_0, "},
    {type_huge, "tensor 'one': type 4294967295 is unknown, so is its size; expected f32, "},
    {row_no_block, "tensor 'one': expected a row of q8_0 to be a multiple of 32 values, found 8"},
    {dims_wrap_to_zero, "tensor 'one': the product of its dimensions is too large"},
    {dims_wrap_to_small, "tensor 'one': the product of its dimensions is too large"},
    {bytes_wrap, "tensor 'one': the product of its dimensions is too large"},
    {row_bytes_wrap, "tensor 'one': the product of its dimensions is too large"},
    {dims_negative, "tensor 'one': the product of its dimensions is too large"},
    {rows_beyond, "tensor 'one': 288 bytes at offset 0 lie outside the 256 bytes of data"},
    {offset_odd, "tensor 'two': expected an offset that is a multiple of 32, found 129"},
    {offset_beyond, "tensor 'two': 128 bytes at offset 1048576 lie outside the 256 bytes of data"},
    {offset_wraps, "tensor 'two': 128 bytes at offset 18446744073709551584 lie outside the"},
    {offset_at_end, "tensor 'two': 128 bytes at offset 256 lie outside the 256 bytes of data"},
    {overlap, "tensors 'one' and 'two' overlap"},
    {same_place, "overlap"},
};

static void expect_refusal(const tacit_buffer *b, const char *message)
{
    gguf_file *f;
    tacit_error err = {0};
    if (gguf_open_memory(&f, b->data, b->size, "h.gguf", &err) != TACIT_BAD_INPUT)
        fail_msg("not refused: %s", message);
    assert_null(f);
    assert_int_equal(err.status, TACIT_BAD_INPUT);
    assert_memory_equal(err.message, "h.gguf: ", 8);
    if (!strstr(err.message, message))
        fail_msg("expected '%s', found '%s'", message, err.message);
}

static void test_each_fault_is_refused(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        spec s;
        sound(&s);
        cases[i].spoil(&s);
        tacit_buffer b = encode(&s);
        expect_refusal(&b, cases[i].message);
        tacit_buffer_free(&b);
    }
}

/* What is often given for a model says what it is, and what helps; also where it ends early. */
static void test_foreign_files_are_named(void **state)
{
    (void)state;
#define F(bytes, what)                                                                             \
    {                                                                                              \
        bytes, sizeof bytes - 1, what                                                              \
    }
    static const struct {
        const char *bytes;
        size_t size;
        const char *what;
    } files[] = {
        F("PK\003\004\024\000\000\000", "a zip archive, as PyTorch saves models; convert"),
        F("\200\002\212\nl\374\234F", "a pickle, as PyTorch saves models; convert"),
        F("\050\001\0\0\0\0\0\0{\"__metadata__\"", "a safetensors file; convert the model to GGUF"),
        F("lmgg\001\0\0\0", "of the format before GGUF; convert the model anew"),
        F("version https://git-lfs.github.com/spec/v1\n", "Git LFS; get the file itself"),
        F("<!DOCTYPE html>", "a page of the web; download the file itself"),
        F("{\"file\": \"a.gguf\"}", "JSON; name the GGUF file that it is about"),
        F("\037\213\010\0\0\0\0\0", "compressed by gzip; unpack it"),
        F("\050\265\057\375\0\0\0\0", "compressed by zstd; unpack it"),
        F("\050\001\0\0\0\0\0\0", "no GGUF file"),
        F("version ", "no GGUF file"),
        F("........", "no GGUF file"),
    };
#undef F
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        /* Of exactly the size, for the sanitizer. */
        tacit_buffer b = {.data = malloc(files[i].size), .size = files[i].size};
        memcpy(b.data, files[i].bytes, b.size);
        expect_refusal(&b, files[i].what);
        free(b.data);
    }
}

static void test_the_sound_file_is_read(void **state)
{
    (void)state;
    for (uint32_t version = 2; version <= 3; version++) {
        spec s;
        sound(&s);
        s.version = version;
        tacit_buffer b = encode(&s);
        gguf_file *f;
        tacit_error err;
        assert_int_equal(gguf_open_memory(&f, b.data, b.size, "h.gguf", &err), TACIT_OK);
        assert_int_equal(gguf_tensor_find(f, "two")->data - gguf_tensor_find(f, "one")->data, 128);
        gguf_close(f);
        tacit_buffer_free(&b);
    }
}

/* A copy of exactly the size, so that the sanitizer sees a read of one byte too many. */
static void test_truncation_at_every_byte(void **state)
{
    (void)state;
    spec s;
    sound(&s);
    tacit_buffer b = encode(&s);
    for (size_t size = 0; size < b.size; size++) {
        uint8_t *copy = malloc(size ? size : 1);
        gguf_file *f;
        tacit_error err;
        memcpy(copy, b.data, size);
        assert_int_equal(gguf_open_memory(&f, copy, size, "h.gguf", &err), TACIT_BAD_INPUT);
        free(copy);
    }
    tacit_buffer_free(&b);
}

/* Every single byte changed in four ways: refused or read, but never out of bounds. */
static void test_flipped_bytes_do_no_harm(void **state)
{
    (void)state;
    static const uint8_t flips[] = {0x01, 0x80, 0xff, 0x20};
    spec s;
    sound(&s);
    tacit_buffer b = encode(&s);
    size_t refused = 0, head = b.size - s.data_size;
    for (size_t i = 0; i < head; i++)
        for (size_t k = 0; k < sizeof flips; k++) {
            gguf_file *f;
            tacit_error err;
            b.data[i] ^= flips[k];
            tacit_status status = gguf_open_memory(&f, b.data, b.size, "h.gguf", &err);
            assert_true(status == TACIT_OK || status == TACIT_BAD_INPUT);
            for (size_t t = 0; f && t < gguf_tensor_count(f); t++) {
                const gguf_tensor *tensor = gguf_tensor_at(f, t);
                assert_true(tensor->data >= b.data &&
                            tensor->data + tensor->bytes <= b.data + b.size);
            }
            refused += status != TACIT_OK;
            gguf_close(f);
            b.data[i] ^= flips[k];
        }
    assert_true(refused > head); /* most of them */
    tacit_buffer_free(&b);
}

static void test_a_map_is_checked_like_memory(void **state)
{
    (void)state;
    char path[] = "test_hostile.XXXXXX";
    gguf_file *f;
    tacit_error err;
    spec s;
    sound(&s);
    tacit_buffer b = encode(&s);
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, b.data, b.size - 1), (ssize_t)b.size - 1);
    close(fd);
    assert_int_equal(gguf_open(&f, path, &err), TACIT_BAD_INPUT);
    assert_non_null(strstr(err.message, "lie outside"));
    assert_int_equal(truncate(path, 0), 0);
    assert_int_equal(gguf_open(&f, path, &err), TACIT_BAD_INPUT);
    unlink(path);
    assert_int_equal(gguf_open(&f, path, &err), TACIT_NOT_FOUND);
    assert_int_equal(gguf_open(&f, "/", &err), TACIT_BAD_INPUT);
    assert_int_equal(gguf_open_memory(&f, b.data + 4, b.size - 4, "m", &err), TACIT_USAGE);
    tacit_buffer_free(&b);
}

/* The writer keeps the first failure and reports it when the file is asked for. */
static void expect_writer_failure(gguf_writer *w, const char *message)
{
    uint8_t *data;
    size_t size;
    tacit_error err;
    gguf_put_u32(w, "after", 1);
    assert_int_not_equal(gguf_write_memory(w, &data, &size, &err), TACIT_OK);
    assert_null(data);
    if (!strstr(err.message, message))
        fail_msg("expected '%s', found '%s'", message, err.message);
    gguf_writer_free(w);
}

static void test_the_writer_refuses_what_the_reader_would(void **state)
{
    (void)state;
    static const uint64_t shape[] = {8, 4}, zero[] = {8, 0}, huge[] = {1ull << 40, 1ull << 40};
    static const float values[32];
    gguf_writer *w = gguf_writer_new();
    gguf_put_u32(w, "a", 1);
    gguf_put_u32(w, "a", 2);
    expect_writer_failure(w, "key 'a' is put twice");
    w = gguf_writer_new();
    gguf_put_u32(w, "", 1);
    expect_writer_failure(w, "expected a name of 1 to 256 bytes");
    w = gguf_writer_new();
    gguf_put_u32(w, "general.alignment", 64);
    expect_writer_failure(w, "belongs to the writer");
    w = gguf_writer_new();
    gguf_put_array(w, "a", GGUF_STRING, values, 1);
    expect_writer_failure(w, "expected an array of numbers, found string");
    w = gguf_writer_new();
    gguf_put_tensor(w, "t", 2, zero, TACIT_TYPE_F32, values);
    expect_writer_failure(w, "tensor 't': expected dimension 1 to be at least 1");
    w = gguf_writer_new();
    gguf_put_tensor(w, "t", 2, huge, TACIT_TYPE_F32, values);
    expect_writer_failure(w, "tensor 't': the product of its dimensions is too large");
    w = gguf_writer_new();
    gguf_put_tensor(w, "t", 2, shape, TACIT_TYPE_Q4_0, values);
    expect_writer_failure(w, "multiple of 32 values, found 8");
    w = gguf_writer_new();
    gguf_put_tensor(w, "t", 2, shape, TACIT_TYPE_F32, values);
    gguf_put_tensor(w, "t", 2, shape, TACIT_TYPE_F16, values);
    expect_writer_failure(w, "tensor 't' is put twice");
    w = gguf_writer_new();
    gguf_put_tensor_bytes(w, "t", 2, shape, 0, values, 64);
    expect_writer_failure(w, "tensor 't': expected 128 bytes, found 64");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_the_sound_file_is_read),
        cmocka_unit_test(test_each_fault_is_refused),
        cmocka_unit_test(test_foreign_files_are_named),
        cmocka_unit_test(test_truncation_at_every_byte),
        cmocka_unit_test(test_flipped_bytes_do_no_harm),
        cmocka_unit_test(test_a_map_is_checked_like_memory),
        cmocka_unit_test(test_the_writer_refuses_what_the_reader_would),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
