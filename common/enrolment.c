#include "common/enrolment.h"

#include "common/message.h"

#include <sodium.h>
#include <stdio.h>
#include <string.h>

#define TOKEN_PREFIX "tacit1-"
#define TOKEN_BODY (TACIT_TOKEN_SECRET_BYTES + 2 + TACIT_DIGEST_BYTES)

_Static_assert(sizeof TOKEN_PREFIX - 1 +
                       sodium_base64_ENCODED_LEN(TOKEN_BODY,
                                                 sodium_base64_VARIANT_URLSAFE_NO_PADDING) ==
                   TACIT_TOKEN_TEXT,
               "the text of a token has one length");

void tacit_token_write(const tacit_enrol_token *token, char out[TACIT_TOKEN_TEXT])
{
    uint8_t body[TOKEN_BODY];
    memcpy(body, token->secret, TACIT_TOKEN_SECRET_BYTES);
    tacit_store_u16(body + TACIT_TOKEN_SECRET_BYTES, token->port);
    memcpy(body + TACIT_TOKEN_SECRET_BYTES + 2, token->root, TACIT_DIGEST_BYTES);
    memcpy(out, TOKEN_PREFIX, sizeof TOKEN_PREFIX - 1);
    sodium_bin2base64(out + sizeof TOKEN_PREFIX - 1, TACIT_TOKEN_TEXT - (sizeof TOKEN_PREFIX - 1),
                      body, sizeof body, sodium_base64_VARIANT_URLSAFE_NO_PADDING);
    sodium_memzero(body, sizeof body);
}

tacit_status tacit_token_read(tacit_enrol_token *out, const char *text, tacit_error *err)
{
    uint8_t body[TOKEN_BODY];
    size_t size = 0, prefix = sizeof TOKEN_PREFIX - 1;
    if (strlen(text) != TACIT_TOKEN_TEXT - 1 || memcmp(text, TOKEN_PREFIX, prefix) != 0 ||
        sodium_base642bin(body, sizeof body, text + prefix, strlen(text + prefix), NULL, &size,
                          NULL, sodium_base64_VARIANT_URLSAFE_NO_PADDING) != 0 ||
        size != sizeof body)
        return tacit_fail(err, TACIT_USAGE,
                          "token: expected %d characters that begin with '%s', as 'tacit-server "
                          "token create' prints them",
                          TACIT_TOKEN_TEXT - 1, TOKEN_PREFIX);
    tacit_cursor c = tacit_cursor_over(body, sizeof body);
    memcpy(out->secret, tacit_cursor_take(&c, TACIT_TOKEN_SECRET_BYTES).data,
           TACIT_TOKEN_SECRET_BYTES);
    out->port = tacit_cursor_u16(&c);
    memcpy(out->root, tacit_cursor_take(&c, TACIT_DIGEST_BYTES).data, TACIT_DIGEST_BYTES);
    sodium_memzero(body, sizeof body);
    return TACIT_OK;
}

void tacit_enrol_digest(uint8_t out[TACIT_DIGEST_BYTES], const Tacit__EnrolRequest *request,
                        const uint8_t nonce[TACIT_NONCE_BYTES])
{
    const tacit_span parts[] = {
        tacit_span_of(request->token),
        {(const uint8_t *)request->name, strlen(request->name)},
        tacit_span_of(request->identity_key),
        tacit_span_of(request->exchange_key),
        tacit_span_of(request->csr),
        tacit_span_of(request->policy),
        tacit_span_of(request->policy_signature),
        tacit_span_of(request->policy_key),
        {nonce, TACIT_NONCE_BYTES},
    };
    tacit_digest_parts(out, TACIT_ENROL_DOMAIN, parts, sizeof parts / sizeof parts[0]);
}
