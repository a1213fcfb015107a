/* A public key as text that people carry from one machine to another: PREFIX-HEX, where HEX is the
 * key and four bytes of a check value, so that a slip of the hand is noticed. Pure, any thread. */
#ifndef TACIT_COMMON_KEY_TEXT_H
#define TACIT_COMMON_KEY_TEXT_H

#include "common/identity.h"

#define TACIT_KEY_TEXT 96 /* bytes of the text with its NUL, whatever the prefix */

/* What a key is for; one kind is not read as another. */
#define TACIT_KEY_POLICY "policykey1" /* may raise caps of devices that pinned it */
#define TACIT_KEY_DEVICE "devicekey1" /* a device's identity: whom a signed policy is for */

void tacit_key_text_write(char out[TACIT_KEY_TEXT], const char *prefix,
                          const uint8_t key[TACIT_SIGN_KEY_BYTES]);

/* TACIT_BAD_INPUT unless `text`, but for blanks and line ends behind it, is such a key with its
 * check value. */
tacit_status tacit_key_text_read(uint8_t key[TACIT_SIGN_KEY_BYTES], const char *prefix,
                                 const char *text, tacit_error *err) TACIT_MUST_CHECK;

#endif
