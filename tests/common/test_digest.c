#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "common/digest.h"
#include "common/file.h"
#include "common/text.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* FIPS 180-4 examples of NIST: "abc" and the 448-bit message. */
static const struct {
    const char *text, *digest;
} vectors[] = {
    {"", "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"},
    {"abc", "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"},
    {"abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq",
     "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1"},
};

static void assert_digest(const uint8_t digest[TACIT_DIGEST_BYTES], const char *expected)
{
    char hex[2 * TACIT_DIGEST_BYTES + 1];
    tacit_hex(hex, digest, TACIT_DIGEST_BYTES);
    assert_string_equal(hex, expected);
}

static void test_vectors(void **state)
{
    (void)state;
    char path[] = "/tmp/tacit-digest-XXXXXX";
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    close(fd);
    for (size_t i = 0; i < 3; i++) {
        uint8_t digest[TACIT_DIGEST_BYTES];
        tacit_error err = {0};
        size_t n = strlen(vectors[i].text);
        tacit_digest(digest, vectors[i].text, n);
        assert_digest(digest, vectors[i].digest);
        if (n == 0)
            continue; /* an empty file is not mapped */
        assert_int_equal(tacit_file_write(path, vectors[i].text, n, 0600, &err), TACIT_OK);
        assert_int_equal(tacit_digest_file(digest, path, &err), TACIT_OK);
        assert_digest(digest, vectors[i].digest);
    }
    assert_int_equal(unlink(path), 0);
}

typedef struct slices {
    const uint8_t *next;
    size_t count;
} slices;

static void follow(void *ctx, const void *data, size_t size)
{
    slices *s = ctx;
    assert_ptr_equal(data, s->next);
    s->next += size;
    s->count++;
}

/* By another library's SHA-256, and every byte is told of once. */
static void test_large(void **state)
{
    (void)state;
    const size_t sizes[] = {0, 1, (4 << 20) - 1, 4 << 20, (4 << 20) + 1, (9 << 20) + 5};
    uint8_t *data = malloc((9 << 20) + 5);
    assert_non_null(data);
    for (size_t i = 0; i < (9 << 20) + 5; i++)
        data[i] = (uint8_t)(i * 2654435761u >> 13);
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        uint8_t a[TACIT_DIGEST_BYTES], b[TACIT_DIGEST_BYTES];
        slices s = {.next = data};
        tacit_digest(a, data, sizes[i]);
        tacit_digest_large(b, data, sizes[i], follow, &s);
        assert_memory_equal(a, b, sizeof a);
        assert_ptr_equal(s.next, data + sizes[i]);
        assert_int_equal(s.count, (sizes[i] + (4 << 20) - 1) / (4 << 20));
        tacit_digest_large(b, data, sizes[i], NULL, NULL);
        assert_memory_equal(a, b, sizeof a);
    }
    free(data);
}

/* The bytes that are hashed, written out by hand. */
static void test_parts(void **state)
{
    (void)state;
    const tacit_span part[2] = {{(const uint8_t *)"ab", 2}, {(const uint8_t *)"c", 1}};
    static const char flat[] = "domain\0\2\0\0\0\0\0\0\0ab\1\0\0\0\0\0\0\0c";
    uint8_t a[TACIT_DIGEST_BYTES], b[TACIT_DIGEST_BYTES];
    tacit_digest_parts(a, "domain", part, 2);
    tacit_digest(b, flat, sizeof flat - 1);
    assert_memory_equal(a, b, sizeof a);
    const tacit_span other[2] = {{(const uint8_t *)"a", 1}, {(const uint8_t *)"bc", 2}};
    tacit_digest_parts(b, "domain", other, 2);
    assert_memory_not_equal(a, b, sizeof a);
}

static void test_missing_file(void **state)
{
    (void)state;
    uint8_t digest[TACIT_DIGEST_BYTES];
    tacit_error err = {0};
    assert_int_not_equal(tacit_digest_file(digest, "/nonexistent/model", &err), TACIT_OK);
    assert_non_null(strstr(err.message, "/nonexistent/model"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_vectors),
        cmocka_unit_test(test_large),
        cmocka_unit_test(test_parts),
        cmocka_unit_test(test_missing_file),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
