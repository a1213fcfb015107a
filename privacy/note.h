/* C2SP signed notes (c2sp.org/signed-note) and checkpoints (c2sp.org/tlog-checkpoint) with Ed25519
 * signatures:
 *
 *     ORIGIN LF  SIZE LF  BASE64(ROOT) LF  LF  "— " NAME " " BASE64(KEY ID || SIGNATURE) LF
 *
 * The signature is over the text up to and with the LF before the empty line; the key id is the
 * first 4 bytes of SHA-256(NAME || LF || 0x01 || KEY). Lines by unknown keys are skipped, as the
 * format asks. Extension lines are accepted and ignored; we write none.
 *
 * A witness adds a line of its own (c2sp.org/tlog-cosignature, type 0x04 in place of 0x01): it says
 * that at that time the tree continued every tree of the log that it had cosigned before. Its
 * signature is over "cosignature/v1" LF "time " SECONDS LF and the text; the line holds KEY ID ||
 * SECONDS as u64 big-endian || SIGNATURE. Pure, any thread. */
#ifndef TACIT_PRIVACY_NOTE_H
#define TACIT_PRIVACY_NOTE_H

#include "common/identity.h"
#include "common/status.h"
#include "privacy/merkle.h"

#define TACIT_NOTE_MAX 16384      /* bytes of a note that is read */
#define TACIT_NOTE_NAME_MAX 128   /* bytes of a key's or log's name, without NUL */
#define TACIT_NOTE_SIGNATURES 16  /* most signature lines */
#define TACIT_CHECKPOINT_MAX 1024 /* bytes of a checkpoint that tacit_checkpoint_sign writes */

/* Who may sign: a name (no spaces, no '+', no control bytes) and an Ed25519 key. */
typedef struct tacit_note_key {
    char name[TACIT_NOTE_NAME_MAX + 1];
    uint8_t key[TACIT_SIGN_KEY_BYTES];
} tacit_note_key;

/* TACIT_BAD_INPUT for a name that the format does not allow. */
tacit_status tacit_note_key_make(tacit_note_key *out, const char *name,
                                 const uint8_t key[TACIT_SIGN_KEY_BYTES],
                                 tacit_error *err) TACIT_MUST_CHECK;
/* The four bytes before each signature that say whose it is: a hint, no proof. */
uint32_t tacit_note_key_id(const tacit_note_key *key);

/* "NAME+HEX KEY ID+BASE64(0x01 || KEY)", the format's verifier key. */
#define TACIT_VKEY_MAX (TACIT_NOTE_NAME_MAX + 64)
void tacit_note_key_write(const tacit_note_key *key, char out[TACIT_VKEY_MAX]);
tacit_status tacit_note_key_parse(tacit_note_key *out, const char *text,
                                  tacit_error *err) TACIT_MUST_CHECK;

typedef struct tacit_checkpoint {
    char origin[TACIT_NOTE_NAME_MAX + 1];
    uint64_t size;
    uint8_t root[TACIT_HASH_BYTES];
} tacit_checkpoint;

/* Signs a checkpoint under the name `checkpoint->origin`. `out` receives a NUL-terminated note. */
tacit_status tacit_checkpoint_sign(const tacit_checkpoint *checkpoint, const tacit_identity *log,
                                   char out[TACIT_CHECKPOINT_MAX],
                                   tacit_error *err) TACIT_MUST_CHECK;

/* Parses hostile bytes strictly. TACIT_BAD_INPUT when they are no checkpoint. Proves nothing. */
tacit_status tacit_checkpoint_parse(tacit_checkpoint *out, const void *note, size_t size,
                                    tacit_error *err) TACIT_MUST_CHECK;

/* Parses and verifies: the origin is the key's name and its signature holds. TACIT_INTEGRITY when
 * the key has not signed or the signature is wrong. */
tacit_status tacit_checkpoint_verify(tacit_checkpoint *out, const void *note, size_t size,
                                     const tacit_note_key *log, tacit_error *err) TACIT_MUST_CHECK;

/* A witness's verifier key, "NAME+HEX KEY ID+BASE64(0x04 || KEY)". */
void tacit_witness_key_write(const tacit_note_key *witness, char out[TACIT_VKEY_MAX]);
tacit_status tacit_witness_key_parse(tacit_note_key *out, const char *text,
                                     tacit_error *err) TACIT_MUST_CHECK;

/* Adds the cosignature of `witness`, whose identity is `id`, made at `time_s` (seconds since 1970).
 * TACIT_CONFLICT when it has one; TACIT_BAD_INPUT when the note has no room. */
tacit_status tacit_checkpoint_cosign(char note[TACIT_CHECKPOINT_MAX], const tacit_note_key *witness,
                                     const tacit_identity *id, uint64_t time_s,
                                     tacit_error *err) TACIT_MUST_CHECK;
/* TACIT_OK when the witness's cosignature holds; *time_s (may be NULL) is when it was made.
 * TACIT_INTEGRITY when there is none or it does not. The log's signature is not checked here. */
tacit_status tacit_checkpoint_cosigned(const void *note, size_t size, const tacit_note_key *witness,
                                       uint64_t *time_s, tacit_error *err) TACIT_MUST_CHECK;
/* Copies the witness's line of `cosigned`, once it holds, to the same checkpoint `note`, which may
 * have it already. TACIT_INTEGRITY when it does not hold or is of another text. */
tacit_status tacit_checkpoint_add_cosignature(char note[TACIT_CHECKPOINT_MAX], const void *cosigned,
                                              size_t size, const tacit_note_key *witness,
                                              tacit_error *err) TACIT_MUST_CHECK;

/* The general note: TACIT_OK when `key` signed it; *text_size is the length of the signed text. */
tacit_status tacit_note_verify(const void *note, size_t size, const tacit_note_key *key,
                               size_t *text_size, tacit_error *err) TACIT_MUST_CHECK;

#endif
