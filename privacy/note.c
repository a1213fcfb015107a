#include "privacy/note.h"

#include "common/text.h"

#include <sodium.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define NOTE_ED25519 0x01
#define NOTE_COSIGNATURE 0x04
#define NOTE_DASH "\xe2\x80\x94 " /* em dash and a space, before each signature */
#define NOTE_DASH_BYTES 4
#define KEY_ID_BYTES 4
#define TIME_BYTES 8 /* in a cosignature, between id and signature */

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

static uint32_t key_id(const tacit_note_key *key, uint8_t type)
{
    const uint8_t separator[] = {'\n', type};
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

uint32_t tacit_note_key_id(const tacit_note_key *key)
{
    return key_id(key, NOTE_ED25519);
}

static void key_write(const tacit_note_key *key, uint8_t type, char out[TACIT_VKEY_MAX])
{
    uint8_t typed[1 + TACIT_SIGN_KEY_BYTES] = {type};
    char base64[sodium_base64_ENCODED_LEN(sizeof typed, sodium_base64_VARIANT_ORIGINAL)];
    memcpy(typed + 1, key->key, TACIT_SIGN_KEY_BYTES);
    sodium_bin2base64(base64, sizeof base64, typed, sizeof typed, sodium_base64_VARIANT_ORIGINAL);
    snprintf(out, TACIT_VKEY_MAX, "%s+%08x+%s", key->name, key_id(key, type), base64);
}

void tacit_note_key_write(const tacit_note_key *key, char out[TACIT_VKEY_MAX])
{
    key_write(key, NOTE_ED25519, out);
}

void tacit_witness_key_write(const tacit_note_key *witness, char out[TACIT_VKEY_MAX])
{
    key_write(witness, NOTE_COSIGNATURE, out);
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

static tacit_status key_parse(tacit_note_key *out, const char *text, uint8_t type, tacit_error *err)
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
        !base64_read(typed, sizeof typed, key_at + 1, strlen(key_at + 1)) || typed[0] != type)
        return tacit_fail(err, TACIT_BAD_INPUT, "key '%.80s': expected an Ed25519 verifier key",
                          text);
    tacit_status status = tacit_note_key_make(out, name, typed + 1, err);
    if (status != TACIT_OK)
        return status;
    uint32_t expected =
        (uint32_t)id[0] << 24 | (uint32_t)id[1] << 16 | (uint32_t)id[2] << 8 | id[3];
    if (key_id(out, type) != expected)
        return tacit_fail(err, TACIT_BAD_INPUT, "key '%.80s': expected key id %08x", text,
                          key_id(out, type));
    return TACIT_OK;
}

tacit_status tacit_note_key_parse(tacit_note_key *out, const char *text, tacit_error *err)
{
    return key_parse(out, text, NOTE_ED25519, err);
}

tacit_status tacit_witness_key_parse(tacit_note_key *out, const char *text, tacit_error *err)
{
    return key_parse(out, text, NOTE_COSIGNATURE, err);
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
    const uint8_t *name, *start;
    size_t name_size, size; /* of the name; of the line with its LF */
    uint8_t typed[KEY_ID_BYTES + TIME_BYTES + TACIT_SIGNATURE_BYTES];
    size_t typed_size; /* 0: of no algorithm that is known here */
} signature_line;

static size_t typed_size_of(uint8_t type)
{
    return KEY_ID_BYTES + (type == NOTE_COSIGNATURE ? TIME_BYTES : 0) + TACIT_SIGNATURE_BYTES;
}

/* "— NAME BASE64": every line must have this form, of whatever algorithm. */
static bool line_parse(const uint8_t *line, const uint8_t *end, signature_line *out)
{
    if (end - line < NOTE_DASH_BYTES || memcmp(line, NOTE_DASH, NOTE_DASH_BYTES) != 0)
        return false;
    out->start = line;
    out->size = (size_t)(end - line) + 1;
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
    out->typed_size = got <= sizeof out->typed ? got : 0;
    memcpy(out->typed, any, out->typed_size);
    return true;
}

static void store_key_id(uint8_t out[KEY_ID_BYTES], const tacit_note_key *key, uint8_t type)
{
    uint32_t id = key_id(key, type);
    for (int i = 0; i < KEY_ID_BYTES; i++)
        out[i] = (uint8_t)(id >> (24 - 8 * i));
}

static bool line_is_by(const signature_line *line, const tacit_note_key *key, uint8_t type)
{
    uint8_t expected[KEY_ID_BYTES];
    store_key_id(expected, key, type);
    return line->typed_size == typed_size_of(type) && line->name_size == strlen(key->name) &&
           memcmp(line->name, key->name, line->name_size) == 0 &&
           memcmp(line->typed, expected, sizeof expected) == 0;
}

/* What a witness signs: malloc'ed, NULL when memory is short. */
static uint8_t *cosigned_message(const uint8_t *text, size_t text_size, uint64_t time_s,
                                 size_t *size)
{
    char head[64];
    int n = snprintf(head, sizeof head, "cosignature/v1\ntime %llu\n", (unsigned long long)time_s);
    uint8_t *message = malloc((size_t)n + text_size);
    if (!message)
        return NULL;
    memcpy(message, head, (size_t)n);
    memcpy(message + n, text, text_size);
    *size = (size_t)n + text_size;
    return message;
}

static uint64_t line_time(const signature_line *line)
{
    uint64_t time_s = 0;
    for (size_t i = 0; i < TIME_BYTES; i++)
        time_s = time_s << 8 | line->typed[KEY_ID_BYTES + i];
    return time_s;
}

static bool line_holds(const uint8_t *note, size_t text_size, const signature_line *line,
                       const tacit_note_key *key, uint8_t type)
{
    size_t size;
    if (type == NOTE_ED25519)
        return tacit_signature_holds(key->key, NULL, note, text_size, line->typed + KEY_ID_BYTES);
    uint8_t *message = cosigned_message(note, text_size, line_time(line), &size);
    bool holds = message && tacit_signature_holds(key->key, NULL, message, size,
                                                  line->typed + KEY_ID_BYTES + TIME_BYTES);
    free(message);
    return holds;
}

/* The one line by the key. A key that signs twice, or once rightly and once wrongly, is refused. */
static tacit_status find_line(const void *note, size_t size, const tacit_note_key *key,
                              uint8_t type, size_t *text_size, signature_line *found,
                              tacit_error *err)
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
        if (line_is_by(&parsed, key, type)) {
            by_key++;
            good += line_holds(bytes, *text_size, &parsed, key, type);
            *found = parsed;
        }
        line = stop + 1;
    }
    if (by_key == 1 && good == 1)
        return TACIT_OK;
    return tacit_fail(err, TACIT_INTEGRITY, "signed note: %s by key '%s'",
                      by_key ? "the signature does not hold" : "it is not signed", key->name);
}

tacit_status tacit_note_verify(const void *note, size_t size, const tacit_note_key *key,
                               size_t *text_size, tacit_error *err)
{
    signature_line line;
    return find_line(note, size, key, NOTE_ED25519, text_size, &line, err);
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
    store_key_id(typed, &key, NOTE_ED25519);
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

/* --- cosignatures --- */

static tacit_status add_line(char note[TACIT_CHECKPOINT_MAX], const char *line, size_t size,
                             tacit_error *err)
{
    size_t used = strlen(note);
    if (used + size >= TACIT_CHECKPOINT_MAX)
        return tacit_fail(err, TACIT_BAD_INPUT,
                          "checkpoint: expected at most %d bytes with the cosignature, found %zu",
                          TACIT_CHECKPOINT_MAX - 1, used + size);
    memcpy(note + used, line, size);
    note[used + size] = '\0';
    return TACIT_OK;
}

tacit_status tacit_checkpoint_cosign(char note[TACIT_CHECKPOINT_MAX], const tacit_note_key *witness,
                                     const tacit_identity *id, uint64_t time_s, tacit_error *err)
{
    tacit_checkpoint checkpoint;
    size_t text_size, size;
    uint8_t typed[KEY_ID_BYTES + TIME_BYTES + TACIT_SIGNATURE_BYTES];
    if (tacit_checkpoint_cosigned(note, strlen(note), witness, NULL, err) == TACIT_OK)
        return tacit_fail(err, TACIT_CONFLICT, "checkpoint: '%s' has cosigned it", witness->name);
    tacit_status status = tacit_checkpoint_parse(&checkpoint, note, strlen(note), err);
    if (status == TACIT_OK)
        status = text_end((const uint8_t *)note, strlen(note), &text_size, err);
    if (status != TACIT_OK)
        return status;
    uint8_t *message = cosigned_message((const uint8_t *)note, text_size, time_s, &size);
    if (!message)
        return tacit_fail(err, TACIT_NO_MEMORY, "checkpoint: no memory to cosign it");
    store_key_id(typed, witness, NOTE_COSIGNATURE);
    for (size_t i = 0; i < TIME_BYTES; i++)
        typed[KEY_ID_BYTES + i] = (uint8_t)(time_s >> (56 - 8 * i));
    status = tacit_identity_sign(id, NULL, message, size, typed + KEY_ID_BYTES + TIME_BYTES, err);
    free(message);
    if (status != TACIT_OK)
        return status;
    char base64[sodium_base64_ENCODED_LEN(sizeof typed, sodium_base64_VARIANT_ORIGINAL)];
    char line[TACIT_NOTE_NAME_MAX + sizeof base64 + 16];
    sodium_bin2base64(base64, sizeof base64, typed, sizeof typed, sodium_base64_VARIANT_ORIGINAL);
    int n = snprintf(line, sizeof line, NOTE_DASH "%s %s\n", witness->name, base64);
    return add_line(note, line, (size_t)n, err);
}

tacit_status tacit_checkpoint_cosigned(const void *note, size_t size, const tacit_note_key *witness,
                                       uint64_t *time_s, tacit_error *err)
{
    size_t text_size;
    signature_line line;
    tacit_status status = find_line(note, size, witness, NOTE_COSIGNATURE, &text_size, &line, err);
    if (status == TACIT_OK && time_s)
        *time_s = line_time(&line);
    return status;
}

tacit_status tacit_checkpoint_add_cosignature(char note[TACIT_CHECKPOINT_MAX], const void *cosigned,
                                              size_t size, const tacit_note_key *witness,
                                              tacit_error *err)
{
    size_t own_text = 0, text_size;
    signature_line line;
    tacit_status status =
        find_line(cosigned, size, witness, NOTE_COSIGNATURE, &text_size, &line, err);
    if (status == TACIT_OK)
        status = text_end((const uint8_t *)note, strlen(note), &own_text, err);
    if (status != TACIT_OK)
        return status;
    if (own_text != text_size || memcmp(note, cosigned, text_size) != 0)
        return tacit_fail(err, TACIT_INTEGRITY, "checkpoint: the cosignature is of another one");
    if (tacit_checkpoint_cosigned(note, strlen(note), witness, NULL, err) == TACIT_OK)
        return TACIT_OK;
    return add_line(note, (const char *)line.start, line.size, err);
}
