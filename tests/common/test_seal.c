/* Sealed updates: round trips around chunk borders, every altered byte, every wrong key and
 * binding, bombs. The format is opened once more by hand, from the description in the header alone.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "common/seal.h"

#include <sodium.h>
#include <stdlib.h>
#include <string.h>
#include <zstd.h>

static tacit_identity *device, *other;
static tacit_secret secret, other_secret;
static uint8_t aggregator[32], other_aggregator[32];
static const uint8_t id[16] = {1}, plan[32] = {2}, reserve[32] = {3};
static const tacit_seal_binding binding = {id, plan, reserve};

static int setup(void **state)
{
    tacit_error err;
    (void)state;
    return tacit_identity_ephemeral(&device, &err) != TACIT_OK ||
           tacit_identity_ephemeral(&other, &err) != TACIT_OK ||
           tacit_seal_keypair(aggregator, &secret, &err) != TACIT_OK ||
           tacit_seal_keypair(other_aggregator, &other_secret, &err) != TACIT_OK;
}

static int teardown(void **state)
{
    (void)state;
    tacit_identity_free(device);
    tacit_identity_free(other);
    tacit_secret_free(&secret);
    tacit_secret_free(&other_secret);
    return 0;
}

/* Bytes that zstd cannot shrink. */
static uint8_t *noise(size_t size)
{
    static const uint8_t seed[randombytes_SEEDBYTES] = {7};
    uint8_t *data = malloc(size + 1);
    randombytes_buf_deterministic(data, size, seed);
    return data;
}

static void seal_ok(tacit_buffer *out, const void *data, size_t size)
{
    tacit_error err;
    out->size = 0;
    assert_int_equal(tacit_seal(out, data, size, &binding, device, aggregator, &err), TACIT_OK);
    assert_int_equal(out->size, tacit_seal_bound(size));
}

static tacit_status open_with(tacit_buffer *out, const tacit_buffer *sealed, tacit_error *err)
{
    return tacit_seal_open(out, sealed->data, sealed->size, &binding,
                           tacit_identity_sign_key(device), &secret, err);
}

static void round_trips_at_every_border(void **state)
{
    static const size_t sizes[] = {0,     1,     1000,  65400, 65450,  65451,  65452,
                                   65463, 65464, 65465, 65536, 131000, 131072, 400000};
    (void)state;
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        uint8_t *data = noise(sizes[i]);
        tacit_buffer sealed = {0}, out = {.cap = sizes[i] + 1};
        tacit_error err;
        seal_ok(&sealed, data, sizes[i]);
        assert_int_equal(open_with(&out, &sealed, &err), TACIT_OK);
        assert_int_equal(out.size, sizes[i]);
        assert_memory_equal(out.data, data, sizes[i]);
        tacit_buffer_free(&sealed);
        tacit_buffer_free(&out);
        free(data);
    }
}

/* The header's description, step by step, with libsodium and zstd alone. */
static void format_is_what_the_header_says(void **state)
{
    const char text[] = "an update";
    tacit_buffer sealed = {0};
    uint8_t point[32], key[32], context[72 + 80], plain[4096], tag;
    uint8_t hashed[12 + 32 + 32 + 80], named[15 + 80 + 32 + 8 + 32] = "tacit-update-1";
    unsigned long long n;
    crypto_secretstream_xchacha20poly1305_state stream;
    (void)state;
    seal_ok(&sealed, text, sizeof text);
    assert_memory_equal(sealed.data, "tacit-sealed-1\0\0", 16);
    memcpy(context, sealed.data, 72);
    memcpy(context + 72, id, 16);
    memcpy(context + 88, plan, 32);
    memcpy(context + 120, reserve, 32);
    assert_int_equal(crypto_scalarmult(point, secret.data, sealed.data + 16), 0);
    memcpy(hashed, "tacit-seal-1", 12);
    memcpy(hashed + 12, sealed.data + 16, 32);
    memcpy(hashed + 44, aggregator, 32);
    memcpy(hashed + 76, context + 72, 80);
    crypto_generichash(key, 32, hashed, sizeof hashed, point, 32);
    assert_int_equal(
        crypto_secretstream_xchacha20poly1305_init_pull(&stream, sealed.data + 48, key), 0);
    assert_int_equal(crypto_secretstream_xchacha20poly1305_pull(&stream, plain, &n, &tag,
                                                                sealed.data + 72, sealed.size - 72,
                                                                context, sizeof context),
                     0);
    assert_int_equal(tag, crypto_secretstream_xchacha20poly1305_TAG_FINAL);
    memcpy(named + 15, context + 72, 80);
    memcpy(named + 95, aggregator, 32);
    memcpy(named + 127, plain + 64, 8);
    crypto_hash_sha256(named + 135, plain + 72, n - 72);
    assert_int_equal(
        crypto_sign_verify_detached(plain, named, sizeof named, tacit_identity_sign_key(device)),
        0);
    char out[64];
    size_t frame = ZSTD_findFrameCompressedSize(plain + 72, (size_t)n - 72), rest = 72 + frame;
    assert_int_equal(ZSTD_decompress(out, sizeof out, plain + 72, frame), sizeof text);
    assert_string_equal(out, text);
    assert_memory_equal(plain + rest, "\x50\x2a\x4d\x18", 4); /* RFC 8878, section 3.1.2 */
    assert_int_equal(tacit_load_u32(plain + rest + 4), n - rest - 8);
    assert_true(sodium_is_zero(plain + rest + 8, (size_t)n - rest - 8));
    tacit_buffer_free(&sealed);
}

static void every_altered_byte_is_noticed(void **state)
{
    uint8_t *data = noise(300);
    tacit_buffer sealed = {0}, out = {.cap = 1000};
    tacit_error err;
    (void)state;
    seal_ok(&sealed, data, 300);
    for (size_t i = 0; i < sealed.size; i++) {
        for (int bit = 0; bit < 8; bit++) {
            sealed.data[i] ^= (uint8_t)(1 << bit);
            tacit_status status = open_with(&out, &sealed, &err);
            /* The top bit of an X25519 key is ignored by RFC 7748, but not by the key derivation.
             */
            assert_true(status == TACIT_INTEGRITY || (i < 16 && status == TACIT_BAD_INPUT));
            assert_int_equal(out.size, 0);
            sealed.data[i] ^= (uint8_t)(1 << bit);
        }
    }
    assert_int_equal(open_with(&out, &sealed, &err), TACIT_OK);
    tacit_buffer_free(&sealed);
    tacit_buffer_free(&out);
    free(data);
}

static void every_cut_and_shuffle_is_noticed(void **state)
{
    const size_t chunk = TACIT_SEAL_CHUNK + 17;
    uint8_t *data = noise(200000);
    tacit_buffer sealed = {0}, out = {.cap = 300000};
    tacit_error err;
    (void)state;
    seal_ok(&sealed, data, 200000); /* four chunks */
    size_t whole = sealed.size;
    assert_true(whole > 72 + 3 * chunk);
    for (size_t cut = 0; cut < whole; cut += cut < 300 ? 1 : 997) {
        sealed.size = cut;
        assert_int_not_equal(open_with(&out, &sealed, &err), TACIT_OK);
    }
    for (size_t chunks = 1; chunks <= 3; chunks++) { /* whole chunks missing at the end */
        sealed.size = 72 + chunks * chunk;
        assert_int_equal(open_with(&out, &sealed, &err), TACIT_INTEGRITY);
    }
    sealed.size = whole;
    uint8_t *saved = malloc(chunk);
    memcpy(saved, sealed.data + 72, chunk); /* first and second chunk change places */
    memcpy(sealed.data + 72, sealed.data + 72 + chunk, chunk);
    memcpy(sealed.data + 72 + chunk, saved, chunk);
    assert_int_equal(open_with(&out, &sealed, &err), TACIT_INTEGRITY);
    free(saved);
    tacit_buffer_free(&sealed);
    tacit_buffer_free(&out);
    free(data);
}

static void bindings_and_keys_must_match(void **state)
{
    static const uint8_t x16[16] = {9}, x32[32] = {9};
    const tacit_seal_binding wrong[] = {
        {x16, plan, reserve}, {id, x32, reserve}, {id, plan, x32}, {id, reserve, plan}};
    tacit_buffer sealed = {0}, out = {.cap = 1000};
    tacit_error err;
    (void)state;
    seal_ok(&sealed, "update", 6);
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
        assert_int_equal(tacit_seal_open(&out, sealed.data, sealed.size, &wrong[i],
                                         tacit_identity_sign_key(device), &secret, &err),
                         TACIT_INTEGRITY);
    assert_int_equal(tacit_seal_open(&out, sealed.data, sealed.size, &binding,
                                     tacit_identity_sign_key(other), &secret, &err),
                     TACIT_INTEGRITY);
    assert_non_null(strstr(err.message, "signature"));
    assert_int_equal(tacit_seal_open(&out, sealed.data, sealed.size, &binding,
                                     tacit_identity_sign_key(device), &other_secret, &err),
                     TACIT_INTEGRITY);
    uint8_t zero[32] = {0};
    assert_int_equal(tacit_seal(&sealed, "x", 1, &binding, device, zero, &err), TACIT_INTEGRITY);
    assert_non_null(strstr(err.message, "small order"));
    tacit_buffer_free(&sealed);
    tacit_buffer_free(&out);
}

/* How long the sealed bytes are says how long the update is and nothing else: zeros, which compress
 * to nothing, noise, which does not compress, and small integers. */
static void the_length_does_not_depend_on_the_content(void **state)
{
    static const size_t sizes[] = {1, 300, 5000, 65536, 400000};
    (void)state;
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        uint8_t *random = noise(sizes[i]), *zeros = calloc(1, sizes[i]), *small = noise(sizes[i]);
        const uint8_t *content[] = {random, zeros, small};
        for (size_t k = 0; k < sizes[i]; k++)
            small[k] = k % 4 < 2 ? small[k] : 0;
        for (size_t k = 0; k < 3; k++) {
            tacit_buffer sealed = {0}, out = {.cap = sizes[i]};
            tacit_error err;
            seal_ok(&sealed, content[k], sizes[i]); /* which looks at the length */
            assert_int_equal(open_with(&out, &sealed, &err), TACIT_OK);
            assert_memory_equal(out.data, content[k], sizes[i]);
            tacit_buffer_free(&sealed);
            tacit_buffer_free(&out);
        }
        free(random);
        free(zeros);
        free(small);
    }
}

/* What a hostile device with valid keys can send: it may choose the plaintext. `claimed` is the
 * size that it signs, `frame` what it calls a zstd frame. */
static void seal_by_hand(tacit_buffer *out, uint64_t claimed, const uint8_t *frame, size_t size)
{
    uint8_t own[32], header[72] = "tacit-sealed-1", point[32], key[32], context[152];
    uint8_t hashed[156], named[15 + 152] = "tacit-update-1";
    crypto_secretstream_xchacha20poly1305_state stream;
    size_t plain_size = 72 + size;
    uint8_t *plain = calloc(1, plain_size), *sealed = malloc(plain_size + 17);
    tacit_error err;
    assert_true(plain_size <= TACIT_SEAL_CHUNK);
    randombytes_buf(own, 32);
    crypto_scalarmult_base(header + 16, own);
    assert_int_equal(crypto_scalarmult(point, own, aggregator), 0);
    memcpy(context + 72, id, 16);
    memcpy(context + 88, plan, 32);
    memcpy(context + 120, reserve, 32);
    memcpy(hashed, "tacit-seal-1", 12);
    memcpy(hashed + 12, header + 16, 32);
    memcpy(hashed + 44, aggregator, 32);
    memcpy(hashed + 76, context + 72, 80);
    crypto_generichash(key, 32, hashed, sizeof hashed, point, 32);
    crypto_secretstream_xchacha20poly1305_init_push(&stream, header + 48, key);
    memcpy(context, header, 72);
    memcpy(named + 15, context + 72, 80);
    memcpy(named + 95, aggregator, 32);
    tacit_store_u64(named + 127, claimed);
    crypto_hash_sha256(named + 135, frame, size);
    assert_int_equal(tacit_identity_sign(device, NULL, named, sizeof named, plain, &err), TACIT_OK);
    tacit_store_u64(plain + 64, claimed);
    memcpy(plain + 72, frame, size);
    crypto_secretstream_xchacha20poly1305_push(&stream, sealed, NULL, plain, plain_size, context,
                                               sizeof context,
                                               crypto_secretstream_xchacha20poly1305_TAG_FINAL);
    out->size = 0;
    assert_int_equal(tacit_buffer_append(out, header, 72), TACIT_OK);
    assert_int_equal(tacit_buffer_append(out, sealed, plain_size + 17), TACIT_OK);
    free(plain);
    free(sealed);
}

static void bombs_do_not_go_off(void **state)
{
    const size_t huge = (size_t)64 << 20;
    uint8_t *zeros = calloc(1, huge), *frame = malloc(ZSTD_compressBound(huge));
    size_t size = ZSTD_compress(frame, ZSTD_compressBound(huge), zeros, huge, 19);
    tacit_buffer sealed = {0}, out = {.cap = 100000};
    tacit_error err;
    (void)state;
    assert_true(size < 20000);
    seal_by_hand(&sealed, huge, frame, size); /* honest about its size */
    assert_int_equal(open_with(&out, &sealed, &err), TACIT_BAD_INPUT);
    assert_non_null(strstr(err.message, "at most 100000"));
    seal_by_hand(&sealed, 1000, frame, size); /* lies about it */
    assert_int_equal(open_with(&out, &sealed, &err), TACIT_BAD_INPUT);
    seal_by_hand(&sealed, UINT64_MAX, frame, size);
    assert_int_equal(open_with(&out, &sealed, &err), TACIT_BAD_INPUT);
    assert_null(out.data);
    /* Two frames, the second beyond what the first announces; no frame; a cut frame. */
    size_t first = ZSTD_compress(frame, 1000, "abc", 3, 1);
    size_t second = ZSTD_compress(frame + first, 1000, "def", 3, 1);
    seal_by_hand(&sealed, 3, frame, first + second);
    assert_int_equal(open_with(&out, &sealed, &err), TACIT_BAD_INPUT);
    seal_by_hand(&sealed, 3, frame, first - 1);
    assert_int_equal(open_with(&out, &sealed, &err), TACIT_BAD_INPUT);
    seal_by_hand(&sealed, 3, frame, 0);
    assert_int_equal(open_with(&out, &sealed, &err), TACIT_BAD_INPUT);
    seal_by_hand(&sealed, 3, frame, first); /* nothing behind the frame, not even empty padding */
    assert_int_equal(open_with(&out, &sealed, &err), TACIT_BAD_INPUT);
    const uint8_t padding[] = {0x50, 0x2a, 0x4d, 0x18, 2, 0, 0, 0, 0, 0};
    memcpy(frame + first, padding, sizeof padding);
    seal_by_hand(&sealed, 3, frame, first + sizeof padding); /* the same by hand, and right */
    assert_int_equal(open_with(&out, &sealed, &err), TACIT_OK);
    assert_memory_equal(out.data, "abc", 3);
    seal_by_hand(&sealed, 3, frame, first + sizeof padding - 1);
    assert_int_equal(open_with(&out, &sealed, &err), TACIT_BAD_INPUT);
    frame[first + sizeof padding - 1] = 1; /* padding that says something */
    seal_by_hand(&sealed, 3, frame, first + sizeof padding);
    assert_int_equal(open_with(&out, &sealed, &err), TACIT_BAD_INPUT);
    tacit_buffer_free(&sealed);
    tacit_buffer_free(&out);
    free(zeros);
    free(frame);
}

static void caps_come_first(void **state)
{
    uint8_t *data = noise(5000);
    tacit_buffer sealed = {0}, out = {.cap = 4000};
    tacit_error err;
    (void)state;
    seal_ok(&sealed, data, 5000);
    assert_int_equal(open_with(&out, &sealed, &err), TACIT_BAD_INPUT);
    assert_non_null(strstr(err.message, "at most"));
    out.cap = 0;
    assert_int_equal(open_with(&out, &sealed, &err), TACIT_USAGE);
    tacit_buffer small = {.cap = 100};
    assert_int_not_equal(tacit_seal(&small, data, 5000, &binding, device, aggregator, &err),
                         TACIT_OK);
    assert_int_equal(small.size, 0);
    tacit_buffer_free(&small);
    tacit_buffer_free(&sealed);
    tacit_buffer_free(&out);
    free(data);
}

static void sealing_twice_differs(void **state)
{
    tacit_buffer one = {0}, two = {0};
    (void)state;
    seal_ok(&one, "same", 4);
    seal_ok(&two, "same", 4);
    assert_int_equal(one.size, two.size);
    assert_memory_not_equal(one.data + 16, two.data + 16, 32);
    assert_memory_not_equal(one.data + 72, two.data + 72, one.size - 72);
    tacit_buffer_free(&one);
    tacit_buffer_free(&two);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(round_trips_at_every_border),
        cmocka_unit_test(format_is_what_the_header_says),
        cmocka_unit_test(every_altered_byte_is_noticed),
        cmocka_unit_test(every_cut_and_shuffle_is_noticed),
        cmocka_unit_test(bindings_and_keys_must_match),
        cmocka_unit_test(the_length_does_not_depend_on_the_content),
        cmocka_unit_test(bombs_do_not_go_off),
        cmocka_unit_test(caps_come_first),
        cmocka_unit_test(sealing_twice_differs),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
