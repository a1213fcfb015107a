#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "common/message.h"
#include "proto/ledger.pb-c.h"
#include "proto/plan.pb-c.h"
#include "proto/wire.pb-c.h"

#include <stdlib.h>
#include <string.h>

static tacit_status unpack_request(const void *bytes, size_t size, tacit_error *err)
{
    Tacit__Request *request;
    tacit_status status = TACIT_UNPACK(&request, tacit__request, bytes, size, 1024, err);
    if (status == TACIT_OK)
        tacit_message_free(request);
    else
        assert_null(request);
    return status;
}

static void test_a_message_comes_back(void **state)
{
    (void)state;
    tacit_error err;
    uint8_t *bytes;
    size_t size;
    Tacit__Request request = TACIT__REQUEST__INIT;
    request.method = TACIT__METHOD__METHOD_RESERVE;
    request.counter = 1ull << 60;
    request.body = tacit_field_of("abc", 3);
    assert_int_equal(tacit_message_pack(&request, 1024, &bytes, &size, &err), TACIT_OK);
    Tacit__Request *back;
    assert_int_equal(TACIT_UNPACK(&back, tacit__request, bytes, size, size, &err), TACIT_OK);
    assert_int_equal(back->method, TACIT__METHOD__METHOD_RESERVE);
    assert_true(back->counter == 1ull << 60);
    assert_true(tacit_bytes_are(back->body, 3));
    assert_memory_equal(back->body.data, "abc", 3);
    tacit_message_free(back);
    assert_int_equal(TACIT_UNPACK(&back, tacit__request, bytes, size, size - 1, &err),
                     TACIT_BAD_INPUT);
    for (size_t cut = 1; cut < size; cut++) {
        tacit_status status = TACIT_UNPACK(&back, tacit__request, bytes, cut, size, &err);
        if (status == TACIT_OK) /* a cut between two fields is a shorter message */
            assert_true(back->body.len == 0);
        tacit_message_free(back);
    }
    free(bytes);
    assert_int_equal(tacit_message_pack(&request, 4, &bytes, &size, &err), TACIT_USAGE);
}

static void test_the_empty_message_is_all_zero(void **state)
{
    (void)state;
    tacit_error err;
    Tacit__Request *request;
    assert_int_equal(TACIT_UNPACK(&request, tacit__request, NULL, 0, 0, &err), TACIT_OK);
    assert_int_equal(request->method, 0);
    tacit_message_free(request);
}

/* Bytes written by hand from the encoding's own definition, with what is wrong in each. */
static const struct {
    const char *what;
    const char *bytes;
    size_t size;
    const char *says;
} hostile[] = {
    {"unknown field 15", "\x78\x01", 2, "unknown field 15"},
    {"unknown enum value", "\x10\x63", 2, "expected a Method, found 99"},
    {"negative enum value", "\x10\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01", 11, "found -1"},
    {"length beyond the end",
     "\x1a\x05"
     "ab",
     4, "malformed"},
    {"length of 2^31", "\x1a\xff\xff\xff\xff\x07", 6, "malformed"},
    {"length of 2^63", "\x1a\xff\xff\xff\xff\xff\xff\xff\xff\x7f", 10, "malformed"},
    {"varint without an end", "\x08\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff", 12, "malformed"},
    {"padded varint", "\x08\x81\x00", 3, "shortest"},
    {"spelt-out default", "\x08\x00", 2, "shortest"},
    {"one field twice", "\x08\x01\x08\x02", 4, "shortest"},
    {"wrong wire type", "\x0a\x01\x01", 3, "malformed"},
    {"tag zero", "\x00\x01", 2, ""},
};

static void test_hostile_bytes_are_refused(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof hostile / sizeof hostile[0]; i++) {
        tacit_error err;
        tacit_status status = unpack_request(hostile[i].bytes, hostile[i].size, &err);
        if (status != TACIT_BAD_INPUT || !strstr(err.message, hostile[i].says))
            print_error("%s: %d %s\n", hostile[i].what, status, err.message);
        assert_int_equal(status, TACIT_BAD_INPUT);
        assert_non_null(strstr(err.message, hostile[i].says));
    }
}

static void test_text_is_utf8_without_nul(void **state)
{
    (void)state;
    tacit_error err;
    Tacit__HelloRequest *hello;
    const uint8_t good[] = {0x1a, 2, 0xc3, 0xa9}, bad[] = {0x1a, 2, 0xc3, 0x28},
                  nul[] = {0x1a, 3, 'a', 0, 'b'};
    assert_int_equal(TACIT_UNPACK(&hello, tacit__hello_request, good, 4, 99, &err), TACIT_OK);
    tacit_message_free(hello);
    assert_int_equal(TACIT_UNPACK(&hello, tacit__hello_request, bad, 4, 99, &err), TACIT_BAD_INPUT);
    assert_non_null(strstr(err.message, "UTF-8"));
    assert_int_equal(TACIT_UNPACK(&hello, tacit__hello_request, nul, 5, 99, &err), TACIT_BAD_INPUT);
}

/* Schedule -> rounds (5) -> mechanism (1) -> kind (1): faults are found at every depth. */
static void test_nested_messages_are_checked(void **state)
{
    (void)state;
    tacit_error err;
    Tacit__Schedule *schedule;
    const uint8_t good[] = {0x2a, 4, 0x0a, 2, 0x08, 2}, bad_enum[] = {0x2a, 4, 0x0a, 2, 0x08, 9},
                  unknown[] = {0x2a, 4, 0x0a, 2, 0x78, 2};
    assert_int_equal(TACIT_UNPACK(&schedule, tacit__schedule, good, 6, 99, &err), TACIT_OK);
    assert_int_equal(schedule->rounds[0]->mechanism->kind, 2);
    tacit_message_free(schedule);
    assert_int_equal(TACIT_UNPACK(&schedule, tacit__schedule, bad_enum, 6, 99, &err),
                     TACIT_BAD_INPUT);
    assert_non_null(strstr(err.message, "MechanismKind"));
    assert_int_equal(TACIT_UNPACK(&schedule, tacit__schedule, unknown, 6, 99, &err),
                     TACIT_BAD_INPUT);
    assert_non_null(strstr(err.message, "unknown field 15"));
}

/* Two wire bytes make a ScheduledRound of dozens of bytes in memory: the budget holds. */
static void test_memory_is_bounded(void **state)
{
    (void)state;
    tacit_error err;
    enum { MANY = 100000 };
    uint8_t *bytes = malloc(2 * MANY);
    for (size_t i = 0; i < MANY; i++) {
        bytes[2 * i] = 0x2a;
        bytes[2 * i + 1] = 0;
    }
    Tacit__Schedule *schedule;
    tacit_status status = TACIT_UNPACK(&schedule, tacit__schedule, bytes, 2 * MANY, 2 * MANY, &err);
    if (status == TACIT_OK) {
        assert_int_equal(schedule->n_rounds, MANY);
        tacit_message_free(schedule);
    } else {
        assert_int_equal(status, TACIT_BAD_INPUT);
    }
    assert_int_equal(
        TACIT_UNPACK(&schedule, tacit__schedule, bytes, 2 * MANY, (size_t)100000, &err),
        TACIT_BAD_INPUT);
    /* Unknown fields cost the most memory a byte; they are refused whatever their number. */
    for (size_t i = 0; i < MANY; i++)
        bytes[2 * i] = 0x78;
    assert_int_equal(TACIT_UNPACK(&schedule, tacit__schedule, bytes, 2 * MANY, 2 * MANY, &err),
                     TACIT_BAD_INPUT);
    free(bytes);
}

/* Every single-byte change of an entry unpacks to an error or to something that packs back to
 * the very same length; nothing crashes (the sanitizer build watches). */
static void test_flipped_bytes_never_crash(void **state)
{
    (void)state;
    tacit_error err;
    uint8_t *bytes, hash[32] = {1};
    size_t size;
    Tacit__Entry entry = TACIT__ENTRY__INIT;
    Tacit__Reserve reserve = TACIT__RESERVE__INIT;
    entry.schema = 1;
    entry.previous = tacit_field_of(hash, 32);
    entry.body_case = TACIT__ENTRY__BODY_RESERVE;
    entry.reserve = &reserve;
    reserve.plan_hash = tacit_field_of(hash, 32);
    reserve.accountant_version = (char *)(uintptr_t) "rdp-1";
    reserve.epsilon_after = 1.5;
    assert_int_equal(tacit_message_pack(&entry, 1024, &bytes, &size, &err), TACIT_OK);
    for (size_t i = 0; i < size; i++) {
        for (unsigned flip = 1; flip < 256; flip++) {
            Tacit__Entry *back;
            bytes[i] ^= (uint8_t)flip;
            if (TACIT_UNPACK(&back, tacit__entry, bytes, size, 1024, &err) == TACIT_OK)
                assert_int_equal(tacit__entry__get_packed_size(back), size);
            tacit_message_free(back);
            bytes[i] ^= (uint8_t)flip;
        }
    }
    free(bytes);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_message_comes_back),
        cmocka_unit_test(test_the_empty_message_is_all_zero),
        cmocka_unit_test(test_hostile_bytes_are_refused),
        cmocka_unit_test(test_text_is_utf8_without_nul),
        cmocka_unit_test(test_nested_messages_are_checked),
        cmocka_unit_test(test_memory_is_bounded),
        cmocka_unit_test(test_flipped_bytes_never_crash),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
