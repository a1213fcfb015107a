/* Normal form C equals utf8proc's own, which orders marks by another method. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "common/secret.h"
#include "engine/normal_form.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <utf8proc.h>

#define COUNT(table) (sizeof(table) / sizeof(table)[0])

static void check(const char *text, size_t size)
{
    char *found;
    size_t n;
    tacit_error err = {0};
    utf8proc_uint8_t *expected = NULL;
    if (normal_form_c(&found, &n, text, size, &err) != TACIT_OK)
        fail_msg("%s", err.message);
    utf8proc_ssize_t length =
        utf8proc_map((const utf8proc_uint8_t *)text, (utf8proc_ssize_t)size, &expected,
                     (utf8proc_option_t)(UTF8PROC_STABLE | UTF8PROC_COMPOSE));
    assert_int_equal(n, length);
    assert_memory_equal(found, expected, n);
    free(expected);
    tacit_wipe_free(found);
}

/* Letters, marks of many classes, characters that come apart into several, Hangul. */
static void random_texts_equal_the_library(void **state)
{
    (void)state;
    static const int32_t some[] = {
        'a',    'e',    0xe9,    0x300,   0x301,   0x308,   0x323,   0x327,  0x334,  0x344,
        0x345,  0x5b0,  0x5bc,   0x64b,   0x651,   0x93c,   0xf71,   0xf73,  0xf75,  0xf81,
        0x1e69, 0x1f82, 0x1100,  0x1161,  0x11a8,  0xac00,  0xac01,  0x3099, 0x304b, 0x2126,
        0x212b, 0xfb1d, 0x1d15e, 0x1d165, 0x1e8d0, 0x110ba, 0x10ffff};
    uint32_t seed = 1;
    for (int round = 0; round < 2000; round++) {
        utf8proc_uint8_t text[64 * 4];
        size_t size = 0, count = (size_t)round % 64;
        for (size_t i = 0; i < count; i++) {
            seed = seed * 1664525 + 1013904223;
            size += (size_t)utf8proc_encode_char(some[(seed >> 8) % COUNT(some)], text + size);
        }
        check((const char *)text, size);
    }
}

static void every_character_alone_and_twice(void **state)
{
    (void)state;
    for (int32_t c = 1; c <= 0x10ffff; c++) {
        utf8proc_uint8_t text[9] = {'a'};
        if (c >= 0xd800 && c < 0xe000)
            continue;
        size_t n = (size_t)utf8proc_encode_char(c, text + 1);
        memcpy(text + 1 + n, text + 1, n);
        if (utf8proc_get_property(c)->decomp_seqindex != UINT16_MAX ||
            utf8proc_get_property(c)->combining_class != 0 || c % 64 == 0)
            check((const char *)text, 1 + 2 * n);
    }
}

static void bytes_that_are_no_text_are_refused(void **state)
{
    (void)state;
    char *out;
    size_t n;
    tacit_error err = {0};
    assert_int_equal(normal_form_c(&out, &n, "a\xff", 2, &err), TACIT_FAILED);
    assert_null(out);
    assert_non_null(strstr(err.message, "cannot normalize"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(random_texts_equal_the_library),
        cmocka_unit_test(every_character_alone_and_twice),
        cmocka_unit_test(bytes_that_are_no_text_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
