#include "privacy/restore.h"

#include "common/message.h"

#include <stdio.h>
#include <string.h>

tacit_status tacit_restore_origin(char out[TACIT_NOTE_NAME_MAX + 1], const char *first,
                                  uint32_t generation, tacit_error *err)
{
    int n = generation == 1
                ? snprintf(out, TACIT_NOTE_NAME_MAX + 1, "%s", first)
                : snprintf(out, TACIT_NOTE_NAME_MAX + 1, "%s/%u", first, (unsigned)generation);
    if (n > 0 && n <= TACIT_NOTE_NAME_MAX)
        return TACIT_OK;
    return tacit_fail(err, TACIT_BAD_INPUT,
                      "restore: the log's name '%.60s' has no room for a generation", first);
}

tacit_status tacit_restore_sign(const tacit_restore *r, tacit_span last_note,
                                const tacit_identity *operator_id, uint8_t **statement,
                                size_t *size, uint8_t signature[TACIT_SIGNATURE_BYTES],
                                tacit_error *err)
{
    char old_origin[TACIT_NOTE_NAME_MAX + 1], new_origin[TACIT_NOTE_NAME_MAX + 1];
    Tacit__RestoreStatement m = TACIT__RESTORE_STATEMENT__INIT;
    memcpy(old_origin, r->old_origin, sizeof old_origin);
    memcpy(new_origin, r->new_origin, sizeof new_origin);
    m.generation = r->generation;
    m.old_origin = old_origin;
    m.new_origin = new_origin;
    m.size = r->size;
    m.root = tacit_field_of(r->root, sizeof r->root);
    m.log_key = tacit_field_of(r->log_key, sizeof r->log_key);
    m.last_checkpoint = tacit_field_of(last_note.data, last_note.size);
    tacit_status status = tacit_message_pack(&m, TACIT_RESTORE_STATEMENT_MAX, statement, size, err);
    return status == TACIT_OK ? tacit_identity_sign(operator_id, TACIT_RESTORE_DOMAIN, *statement,
                                                    *size, signature, err)
                              : status;
}

static tacit_status take_name(char out[TACIT_NOTE_NAME_MAX + 1], const char *name,
                              const uint8_t key[TACIT_SIGN_KEY_BYTES], tacit_error *err)
{
    tacit_note_key made;
    tacit_status status = tacit_note_key_make(&made, name, key, err);
    if (status == TACIT_OK)
        memcpy(out, made.name, sizeof made.name);
    return status == TACIT_OK ? TACIT_OK : tacit_fail_context(err, "restore");
}

static tacit_status take_statement(tacit_restore *out, const Tacit__RestoreStatement *m,
                                   tacit_error *err)
{
    if (m->generation < 2)
        return tacit_fail(err, TACIT_BAD_INPUT, "restore: generation: expected 2 or more, found %u",
                          (unsigned)m->generation);
    if (!tacit_bytes_are(m->root, TACIT_HASH_BYTES) ||
        !tacit_bytes_are(m->log_key, TACIT_SIGN_KEY_BYTES))
        return tacit_fail(err, TACIT_BAD_INPUT,
                          "restore: root and log_key: expected 32 bytes each, found %zu and %zu",
                          m->root.len, m->log_key.len);
    *out = (tacit_restore){.generation = m->generation, .size = m->size};
    memcpy(out->root, m->root.data, sizeof out->root);
    memcpy(out->log_key, m->log_key.data, sizeof out->log_key);
    tacit_status status = take_name(out->old_origin, m->old_origin, out->log_key, err);
    if (status == TACIT_OK)
        status = take_name(out->new_origin, m->new_origin, out->log_key, err);
    if (status == TACIT_OK && strcmp(out->old_origin, out->new_origin) == 0)
        status = tacit_fail(err, TACIT_BAD_INPUT,
                            "restore: new_origin: expected another name than the old origin's, "
                            "found '%s'",
                            out->new_origin);
    return status;
}

/* The old origin's last word covers at least what is kept of it. */
static tacit_status take_last(tacit_restore *out, tacit_span note, tacit_error *err)
{
    tacit_note_key log;
    tacit_status status = tacit_note_key_make(&log, out->old_origin, out->log_key, err);
    if (status == TACIT_OK)
        status = tacit_checkpoint_verify(&out->last, note.data, note.size, &log, err);
    if (status != TACIT_OK)
        return tacit_fail_context(err, "restore's last checkpoint");
    if (out->last.size < out->size ||
        (out->last.size == out->size && memcmp(out->last.root, out->root, sizeof out->root) != 0))
        return tacit_fail(
            err, TACIT_INTEGRITY,
            "restore: its last checkpoint, of %llu entries, contradicts the %llu that "
            "are kept",
            (unsigned long long)out->last.size, (unsigned long long)out->size);
    return TACIT_OK;
}

tacit_status tacit_restore_read(tacit_restore *out, const Tacit__Restored *body, tacit_error *err)
{
    Tacit__RestoreStatement *m = NULL;
    *out = (tacit_restore){0};
    tacit_status status = TACIT_UNPACK(&m, tacit__restore_statement, body->statement.data,
                                       body->statement.len, TACIT_RESTORE_STATEMENT_MAX, err);
    if (status != TACIT_OK)
        return tacit_fail_context(err, "restore");
    status = take_statement(out, m, err);
    if (status == TACIT_OK)
        status = take_last(out, tacit_span_of(m->last_checkpoint), err);
    tacit_message_free(m);
    return status;
}

tacit_status tacit_restore_open(tacit_restore *out, const Tacit__Restored *body,
                                const uint8_t operator_key[TACIT_SIGN_KEY_BYTES], tacit_error *err)
{
    *out = (tacit_restore){0};
    if (!tacit_bytes_are(body->signature, TACIT_SIGNATURE_BYTES) ||
        !tacit_signature_holds(operator_key, TACIT_RESTORE_DOMAIN, body->statement.data,
                               body->statement.len, body->signature.data))
        return tacit_fail(err, TACIT_INTEGRITY,
                          "restore: the statement is not signed by the operator key");
    tacit_status status = tacit_restore_read(out, body, err);
    if (status == TACIT_OK && memcmp(out->log_key, operator_key, sizeof out->log_key) == 0)
        status = tacit_fail(err, TACIT_INTEGRITY,
                            "restore: the operator key is the log's own key, which vouches for "
                            "nothing: the server has it");
    return status;
}
