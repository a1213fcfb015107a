#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "common/enrolment.h"
#include "common/message.h"

#include <string.h>

/* Made with Python: "tacit1-" + base64.urlsafe_b64encode(bytes(range(16)) +
 * (0x1d3b).to_bytes(2, "little") + bytes([0xf0 + i % 16 for i in range(32)])).rstrip(b"=") */
static const char known[] =
    "tacit1-AAECAwQFBgcICQoLDA0ODzsd8PHy8_T19vf4-fr7_P3-__Dx8vP09fb3-Pn6-_z9_v8";

static void test_token_text_is_as_python_writes_it(void **state)
{
    (void)state;
    tacit_error err;
    tacit_enrol_token token;
    char text[TACIT_TOKEN_TEXT];
    assert_int_equal(tacit_token_read(&token, known, &err), TACIT_OK);
    for (unsigned i = 0; i < 16; i++)
        assert_int_equal(token.secret[i], i);
    assert_int_equal(token.port, 0x1d3b);
    for (unsigned i = 0; i < 32; i++)
        assert_int_equal(token.root[i], 0xf0 + i % 16);
    tacit_token_write(&token, text);
    assert_string_equal(text, known);
}

static void test_other_texts_are_refused_unrepeated(void **state)
{
    (void)state;
    tacit_error err;
    tacit_enrol_token token;
    char text[sizeof known + 1];
    const char *bad[] = {"", "tacit1-",
                         "tacit2-AAECAwQFBgcICQoLDA0ODzsd8PHy8_T19vf4-fr7_P3-__Dx8vP"};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++)
        assert_int_equal(tacit_token_read(&token, bad[i], &err), TACIT_USAGE);
    for (size_t i = 0; i < sizeof known - 1; i++) {
        memcpy(text, known, sizeof known);
        text[i] = '*';
        assert_int_equal(tacit_token_read(&token, text, &err), TACIT_USAGE);
        assert_null(strstr(err.message, "AAECAwQF"));
    }
    memcpy(text, known, sizeof known);
    memcpy(text + sizeof known - 1, "A", 2);
    assert_int_equal(tacit_token_read(&token, text, &err), TACIT_USAGE);
}

static void test_every_field_counts_in_the_digest(void **state)
{
    (void)state;
    uint8_t nonce[TACIT_NONCE_BYTES] = {1}, plain[32], changed[32];
    char name[] = "cart 7", other[] = "cart 8";
    Tacit__EnrolRequest r = TACIT__ENROL_REQUEST__INIT;
    r.name = name;
    tacit_enrol_digest(plain, &r, nonce);
    r.name = other;
    tacit_enrol_digest(changed, &r, nonce);
    assert_memory_not_equal(plain, changed, 32);
    r.name = name;
    ProtobufCBinaryData *fields[] = {&r.token,  &r.identity_key,     &r.exchange_key, &r.csr,
                                     &r.policy, &r.policy_signature, &r.policy_key};
    for (size_t i = 0; i < sizeof fields / sizeof fields[0]; i++) {
        *fields[i] = tacit_field_of("x", 1);
        tacit_enrol_digest(changed, &r, nonce);
        assert_memory_not_equal(plain, changed, 32);
        *fields[i] = tacit_field_of(NULL, 0);
    }
    nonce[31] = 1;
    tacit_enrol_digest(changed, &r, nonce);
    assert_memory_not_equal(plain, changed, 32);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_token_text_is_as_python_writes_it),
        cmocka_unit_test(test_other_texts_are_refused_unrepeated),
        cmocka_unit_test(test_every_field_counts_in_the_digest),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
