#include "privacy/note.h"

#include "common/text.h"

#include <sodium.h>
#include <stdio.h>
#include <string.h>

#define NOTE_ED25519 0x01
#define NOTE_DASH "\xe2\x80\x94 " /* em dash and a space, before each signature */
#define NOTE_DASH_BYTES 4
#define KEY_ID_BYTES 4

static tacit_status name_check(const char *name, tacit_error *err)
{
    size_t n = strlen(name);
    bool bad =
        n == 0 || n > TACIT_NOTE_NAME_MAX || !tacit_text_is_plain(name, n) || strpbrk(name, " +");
    if (!bad)
        return TACIT_OK;
    return tacit_fail(err, TACIT_BAD_INPUT,
                      "log name '%.60s': expected 1 to %d bytes of UTF-8 without spaces and '+'",
                      name, TACIT_NOTE_NAME_MAX);
}

tacit_status tacit_note_key_make(tacit_note_key *out, const char *name,
                                 const uint8_t key[TACIT_SIGN_KEY_BYTES], tacit_error *err)
{
    tacit_status status = name_check(name, err);
    if (status != TACIT_OK)
        return status;
    snprintf(out->name, sizeof out->name, "%s", name);
    memcpy(out->key, key, sizeof out->key);
    return TACIT_OK;
}

uint32_t tacit_note_key_id(const tacit_note_key *key)
{
    static const uint8_t separator[] = {'\n', NOTE_ED25519};
    uint8_t digest[crypto_hash_sha256_BYTES];
    crypto_hash_sha256_state state;
    crypto_hash_sha256_init(&state);
    crypto_hash_sha256_update(&state, (const uint8_t *)key->name, strlen(key->name));
    crypto_hash_sha256_update(&state, separator, sizeof separator);
    crypto_hash_sha256_update(&state, key->key, sizeof key->key);
    crypto_hash_sha256_final(&state, digest);
    return (uint32_t)digest[0] << 24 | (uint32_t)digest[1] << 16 | (uint32_t)digest[2] << 8 |
           digest[3];
}

void tacit_note_key_write(const tacit_note_key *key, char out[TACIT_VKEY_MAX])
{
    uint8_t typed[1 + TACIT_SIGN_KEY_BYTES] = {NOTE_ED25519};
    char base64[sodium_base64_ENCODED_LEN(sizeof typed, sodium_base64_VARIANT_ORIGINAL)];
    memcpy(typed + 1, key->key, TACIT_SIGN_KEY_BYTES);
    sodium_bin2base64(base64, sizeof base64, typed, sizeof typed, sodium_base64_VARIANT_ORIGINAL);
    snprintf(out, TACIT_VKEY_MAX, "%s+%08x+%s", key->name, tacit_note_key_id(key), base64);
}

/* Strict base64 with padding, of which a text has one form only. libsodium 1.0.18 takes some bytes
 * above 0x7f for characters of the alphabet, so that is checked first. */
static bool base64_decode(uint8_t *out, size_t cap, size_t *got, const char *text, size_t length)
{
    static const char alphabet[] =
        "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/=";
    const char *end = NULL;
    for (size_t i = 0; i < length; i++)
        if (!memchr(alphabet, text[i], sizeof alphabet - 1))
            return false;
    return sodium_base642bin(out, cap, text, length, NULL, got, &end,
                             sodium_base64_VARIANT_ORIGINAL) == 0 &&
           end == text + length;
}

static bool base64_read(uint8_t *out, size_t size, const char *text, size_t length)
{
    size_t got = 0;
    return base64_decode(out, size, &got, text, length) && got == size;
}

tacit_status tacit_note_key_parse(tacit_note_key *out, const char *text, tacit_error *err)
{
    const char *id_at = strchr(text, '+');
    const char *key_at = id_at ? strchr(id_at + 1, '+') : NULL;
    uint8_t typed[1 + TACIT_SIGN_KEY_BYTES], id[KEY_ID_BYTES];
    char name[TACIT_NOTE_NAME_MAX + 1], hex[2 * KEY_ID_BYTES + 1];
    if (!key_at || id_at - text > TACIT_NOTE_NAME_MAX || key_at - id_at != 2 * KEY_ID_BYTES + 1)
        return tacit_fail(err, TACIT_BAD_INPUT, "key '%.80s': expected NAME+KEYID+BASE64", text);
    snprintf(name, sizeof name, "%.*s", (int)(id_at - text), text);
    snprintf(hex, sizeof hex, "%.*s", 2 * KEY_ID_BYTES, id_at + 1);
    if (!tacit_unhex(id, sizeof id, hex) ||
        !base64_read(typed, sizeof typed, key_at + 1, strlen(key_at + 1)) ||
        typed[0] != NOTE_ED25519)
        return tacit_fail(err, TACIT_BAD_INPUT, "key '%.80s': expected an Ed25519 verifier key",
                          text);
    tacit_status status = tacit_note_key_make(out, name, typed + 1, err);
    if (status != TACIT_OK)
        return status;
    uint32_t expected =
        (uint32_t)id[0] << 24 | (uint32_t)id[1] << 16 | (uint32_t)id[2] << 8 | id[3];
    if (tacit_note_key_id(out) != expected)
        return tacit_fail(err, TACIT_BAD_INPUT, "key '%.80s': expected key id %08x", text,
                          tacit_note_key_id(out));
    return TACIT_OK;
}

/* --- notes --- */

static const uint8_t *find_end(const uint8_t *from, const uint8_t *end)
{
    return memchr(from, '\n', (size_t)(end - from));
}

/* Where the text ends: after the last LF LF, its first LF belongs to the text. */
static tacit_status text_end(const uint8_t *note, size_t size, size_t *text_size, tacit_error *err)
{
    bool plain = size <= TACIT_NOTE_MAX && tacit_utf8_valid(note, size);
    for (size_t i = 0; i < size && plain; i++)
        plain = note[i] == '\n' || (note[i] >= 0x20 && note[i] != 0x7f);
    *text_size = 0;
    for (size_t i = 1; plain && i + 1 < size; i++)
        if (note[i] == '\n' && note[i - 1] == '\n')
            *text_size = i;
    if (*text_size && note[size - 1] == '\n')
        return TACIT_OK;
    return tacit_fail(err, TACIT_BAD_INPUT,
                      "signed note: expected UTF-8 text, an empty line and signature lines");
}

typedef struct signature_line {
    const uint8_t *name;
    size_t name_size;
    uint8_t typed[KEY_ID_BYTES + TACIT_SIGNATURE_BYTES];
    bool ed25519_size;
} signature_line;

/* "— NAME BASE64": every line must have this form, of whatever algorithm. */
static bool line_parse(const uint8_t *line, const uint8_t *end, signature_line *out)
{
    if (end - line < NOTE_DASH_BYTES || memcmp(line, NOTE_DASH, NOTE_DASH_BYTES) != 0)
        return false;
    out->name = line + NOTE_DASH_BYTES;
    const uint8_t *space = memchr(out->name, ' ', (size_t)(end - out->name));
    if (!space || space == out->name || memchr(out->name, '+', (size_t)(space - out->name)))
        return false;
    out->name_size = (size_t)(space - out->name);
    const char *base64 = (const char *)space + 1;
    size_t length = (size_t)((const char *)end - base64), got = 0;
    uint8_t any[TACIT_NOTE_MAX];
    if (!base64_decode(any, sizeof any, &got, base64, length) || got <= KEY_ID_BYTES)
        return false;
    out->ed25519_size = got == sizeof out->typed;
    if (out->ed25519_size)
        memcpy(out->typed, any, sizeof out->typed);
    return true;
}

static bool line_is_by(const signature_line *line, const tacit_note_key *key)
{
    uint32_t id = tacit_note_key_id(key);
    const uint8_t expected[KEY_ID_BYTES] = {(uint8_t)(id >> 24), (uint8_t)(id >> 16),
                                            (uint8_t)(id >> 8), (uint8_t)id};
    return line->ed25519_size && line->name_size == strlen(key->name) &&
           memcmp(line->name, key->name, line->name_size) == 0 &&
           memcmp(line->typed, expected, sizeof expected) == 0;
}

static bool note_signature_holds(const uint8_t *note, size_t text_size, const signature_line *line,
                                 const tacit_note_key *key)
{
    return tacit_signature_holds(key->key, NULL, note, text_size, line->typed + KEY_ID_BYTES);
}

/* A key that signs twice, or once rightly and once wrongly, is refused. */
tacit_status tacit_note_verify(const void *note, size_t size, const tacit_note_key *key,
                               size_t *text_size, tacit_error *err)
{
    const uint8_t *bytes = note;
    tacit_status status = text_end(bytes, size, text_size, err);
    if (status != TACIT_OK)
        return status;
    size_t lines = 0, by_key = 0, good = 0;
    const uint8_t *end = bytes + size;
    for (const uint8_t *line = bytes + *text_size + 1; line < end; lines++) {
        const uint8_t *stop = find_end(line, end);
        signature_line parsed;
        if (!stop || lines == TACIT_NOTE_SIGNATURES || !line_parse(line, stop, &parsed))
            return tacit_fail(err, TACIT_BAD_INPUT, "signed note: signature line %zu is malformed",
                              lines + 1);
        if (line_is_by(&parsed, key)) {
            by_key++;
            good += note_signature_holds(bytes, *text_size, &parsed, key);
        }
        line = stop + 1;
    }
    if (by_key == 1 && good == 1)
        return TACIT_OK;
    return tacit_fail(err, TACIT_INTEGRITY, "signed note: %s by key '%s'",
                      by_key ? "the signature does not hold" : "it is not signed", key->name);
}

/* --- checkpoints --- */

tacit_status tacit_checkpoint_sign(const tacit_checkpoint *checkpoint, const tacit_identity *log,
                                   char out[TACIT_CHECKPOINT_MAX], tacit_error *err)
{
    tacit_note_key key;
    tacit_status status =
        tacit_note_key_make(&key, checkpoint->origin, tacit_identity_sign_key(log), err);
    if (status != TACIT_OK)
        return status;
    char root[sodium_base64_ENCODED_LEN(TACIT_HASH_BYTES, sodium_base64_VARIANT_ORIGINAL)];
    sodium_bin2base64(root, sizeof root, checkpoint->root, TACIT_HASH_BYTES,
                      sodium_base64_VARIANT_ORIGINAL);
    int text = snprintf(out, TACIT_CHECKPOINT_MAX, "%s\n%llu\n%s\n", checkpoint->origin,
                        (unsigned long long)checkpoint->size, root);
    uint8_t typed[KEY_ID_BYTES + TACIT_SIGNATURE_BYTES];
    status = tacit_identity_sign(log, NULL, out, (size_t)text, typed + KEY_ID_BYTES, err);
    if (status != TACIT_OK)
        return status;
    uint32_t id = tacit_note_key_id(&key);
    for (int i = 0; i < KEY_ID_BYTES; i++)
        typed[i] = (uint8_t)(id >> (24 - 8 * i));
    char signature[sodium_base64_ENCODED_LEN(sizeof typed, sodium_base64_VARIANT_ORIGINAL)];
    sodium_bin2base64(signature, sizeof signature, typed, sizeof typed,
                      sodium_base64_VARIANT_ORIGINAL);
    snprintf(out + text, TACIT_CHECKPOINT_MAX - (size_t)text, "\n" NOTE_DASH "%s %s\n", key.name,
             signature);
    return TACIT_OK;
}

/* Copies the line at *at without its LF and steps over it; false when it is missing or longer. */
static bool take_line(const uint8_t *text, size_t size, size_t *at, char *out, size_t out_size)
{
    const uint8_t *end = *at < size ? memchr(text + *at, '\n', size - *at) : NULL;
    size_t n = end ? (size_t)(end - (text + *at)) : 0;
    if (!end || n == 0 || n >= out_size)
        return false;
    memcpy(out, text + *at, n);
    out[n] = '\0';
    *at += n + 1;
    return true;
}

tacit_status tacit_checkpoint_parse(tacit_checkpoint *out, const void *note, size_t size,
                                    tacit_error *err)
{
    const uint8_t *bytes = note;
    size_t text_size, at = 0;
    char number[24], root[48];
    *out = (tacit_checkpoint){0};
    tacit_status status = text_end(bytes, size, &text_size, err);
    if (status != TACIT_OK)
        return status;
    if (!take_line(bytes, text_size, &at, out->origin, sizeof out->origin) ||
        !take_line(bytes, text_size, &at, number, sizeof number) ||
        !take_line(bytes, text_size, &at, root, sizeof root) ||
        tacit_parse_u64(number, "size", 0, INT64_MAX, &out->size, NULL) != TACIT_OK ||
        !base64_read(out->root, sizeof out->root, root, strlen(root)) ||
        name_check(out->origin, NULL) != TACIT_OK)
        return tacit_fail(err, TACIT_BAD_INPUT,
                          "checkpoint: expected lines with origin, size and base64 root");
    return TACIT_OK;
}

tacit_status tacit_checkpoint_verify(tacit_checkpoint *out, const void *note, size_t size,
                                     const tacit_note_key *log, tacit_error *err)
{
    size_t text_size;
    tacit_status status = tacit_checkpoint_parse(out, note, size, err);
    if (status != TACIT_OK)
        return status;
    if (strcmp(out->origin, log->name) != 0)
        return tacit_fail(err, TACIT_INTEGRITY, "checkpoint: expected origin '%s', found '%s'",
                          log->name, out->origin);
    status = tacit_note_verify(note, size, log, &text_size, err);
    return status == TACIT_OK ? TACIT_OK : tacit_fail_context(err, "checkpoint");
}
