#include "common/key_text.h"

#include "common/digest.h"
#include "common/text.h"

#include <stdio.h>
#include <string.h>

enum { CHECK_BYTES = 4, BODY_BYTES = TACIT_SIGN_KEY_BYTES + CHECK_BYTES };

static void make_body(uint8_t body[BODY_BYTES], const char *prefix, const uint8_t *key)
{
    uint8_t digest[TACIT_DIGEST_BYTES];
    const tacit_span part = {key, TACIT_SIGN_KEY_BYTES};
    tacit_digest_parts(digest, prefix, &part, 1);
    memcpy(body, key, TACIT_SIGN_KEY_BYTES);
    memcpy(body + TACIT_SIGN_KEY_BYTES, digest, CHECK_BYTES);
}

void tacit_key_text_write(char out[TACIT_KEY_TEXT], const char *prefix,
                          const uint8_t key[TACIT_SIGN_KEY_BYTES])
{
    uint8_t body[BODY_BYTES];
    char hex[2 * BODY_BYTES + 1];
    make_body(body, prefix, key);
    tacit_hex(hex, body, sizeof body);
    snprintf(out, TACIT_KEY_TEXT, "%s-%s", prefix, hex);
}

tacit_status tacit_key_text_read(uint8_t key[TACIT_SIGN_KEY_BYTES], const char *prefix,
                                 const char *text, tacit_error *err)
{
    uint8_t found[BODY_BYTES], expected[BODY_BYTES];
    char hex[2 * BODY_BYTES + 1];
    size_t before = strlen(prefix), size = strlen(text);
    while (size && strchr(" \t\r\n", text[size - 1]))
        size--;
    bool shaped = size == before + 1 + 2 * BODY_BYTES && strncmp(text, prefix, before) == 0 &&
                  text[before] == '-';
    if (shaped) {
        memcpy(hex, text + before + 1, 2 * BODY_BYTES);
        hex[2 * BODY_BYTES] = '\0';
        shaped = tacit_unhex(found, BODY_BYTES, hex);
    }
    if (!shaped)
        return tacit_fail(err, TACIT_BAD_INPUT,
                          "expected %s- and %d hexadecimal digits, found %zu "
                          "bytes that are not",
                          prefix, 2 * BODY_BYTES, size);
    make_body(expected, prefix, found);
    if (memcmp(found, expected, BODY_BYTES) != 0)
        return tacit_fail(err, TACIT_BAD_INPUT,
                          "the check value of this %s does not fit: a digit of it was changed",
                          prefix);
    memcpy(key, found, TACIT_SIGN_KEY_BYTES);
    return TACIT_OK;
}
