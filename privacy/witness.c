#include "privacy/witness.h"

#include "common/clock.h"
#include "common/digest.h"
#include "common/file.h"
#include "common/text.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define KEY_NAME "witness.key"
#define NAME_NAME "name"
#define LOCK_NAME "lock"
#define PATH_BYTES 4096
#define STATE_MAX (TACIT_VKEY_MAX + TACIT_CHECKPOINT_MAX)

struct tacit_witness {
    char dir[PATH_BYTES];
    int lock;
    tacit_identity *id;
    tacit_note_key key;
};

/* --- the folder --- */

tacit_status tacit_witness_create(const char *dir, const char *name, tacit_error *err)
{
    char path[PATH_BYTES];
    tacit_identity *id = NULL;
    tacit_note_key key;
    tacit_status status;
    static const uint8_t any[TACIT_SIGN_KEY_BYTES] = {0};
    TACIT_TRY(tacit_note_key_make(&key, name, any, err), done);
    TACIT_TRY(tacit_file_make_dir(dir, 0700, err), done);
    TACIT_TRY(tacit_file_join(path, sizeof path, dir, KEY_NAME, err), done);
    TACIT_TRY(tacit_identity_create(&id, path, err), done);
    TACIT_TRY(tacit_file_join(path, sizeof path, dir, NAME_NAME, err), done);
    status = tacit_file_write(path, name, strlen(name), 0644, err);
done:
    tacit_identity_free(id);
    return status;
}

static tacit_status take_lock(tacit_witness *w, tacit_error *err)
{
    char path[PATH_BYTES];
    tacit_status status = tacit_file_join(path, sizeof path, w->dir, LOCK_NAME, err);
    if (status == TACIT_OK)
        status = tacit_file_lock(path, &w->lock, err);
    if (status == TACIT_CONFLICT)
        return tacit_fail(err, TACIT_AGAIN, "%s: another process is this witness; try again later",
                          w->dir);
    return status;
}

static tacit_status load_key(tacit_witness *w, tacit_error *err)
{
    char path[PATH_BYTES];
    uint8_t *name = NULL;
    size_t size;
    tacit_status status;
    TACIT_TRY(tacit_file_join(path, sizeof path, w->dir, KEY_NAME, err), done);
    TACIT_TRY(tacit_identity_load(&w->id, path, err), done);
    TACIT_TRY(tacit_file_join(path, sizeof path, w->dir, NAME_NAME, err), done);
    TACIT_TRY(tacit_file_read(path, TACIT_NOTE_NAME_MAX, &name, &size, err), done);
    status = tacit_note_key_make(&w->key, (const char *)name, tacit_identity_sign_key(w->id), err);
done:
    free(name);
    return status;
}

tacit_status tacit_witness_open(tacit_witness **out, const char *dir, tacit_error *err)
{
    *out = NULL;
    tacit_witness *w = calloc(1, sizeof *w);
    if (!w)
        return tacit_fail(err, TACIT_NO_MEMORY, "witness: no memory");
    w->lock = -1;
    tacit_status status = TACIT_OK;
    if ((size_t)snprintf(w->dir, sizeof w->dir, "%s", dir) >= sizeof w->dir)
        status = tacit_fail(err, TACIT_BAD_INPUT, "witness: the path is too long");
    if (status == TACIT_OK)
        status = take_lock(w, err);
    if (status == TACIT_OK)
        status = load_key(w, err);
    if (status == TACIT_OK)
        *out = w;
    else
        tacit_witness_close(w);
    return status;
}

void tacit_witness_close(tacit_witness *w)
{
    if (!w)
        return;
    tacit_identity_free(w->id);
    if (w->lock >= 0)
        close(w->lock);
    free(w);
}

const tacit_note_key *tacit_witness_key(const tacit_witness *w)
{
    return &w->key;
}

/* --- what is known of a log: its key on a line, then the last cosigned checkpoint --- */

typedef struct known_log {
    char path[PATH_BYTES];
    bool found;
    tacit_note_key key;
    tacit_checkpoint last;
} known_log;

static tacit_status known_parse(known_log *k, char *text, size_t size, tacit_error *err)
{
    char *line_end = memchr(text, '\n', size);
    if (!line_end)
        return tacit_fail(err, TACIT_BAD_INPUT, "%s: expected a key and a checkpoint", k->path);
    *line_end = '\0';
    tacit_status status = tacit_note_key_parse(&k->key, text, err);
    if (status == TACIT_OK)
        status = tacit_checkpoint_verify(&k->last, line_end + 1,
                                         size - (size_t)(line_end + 1 - text), &k->key, err);
    k->found = status == TACIT_OK;
    return status == TACIT_OK ? TACIT_OK : tacit_fail_context(err, "%s", k->path);
}

static tacit_status known_load(known_log *k, const tacit_witness *w, const char *origin,
                               tacit_error *err)
{
    uint8_t digest[TACIT_DIGEST_BYTES], *text = NULL;
    char name[2 * TACIT_DIGEST_BYTES + 1];
    size_t size;
    *k = (known_log){.found = false};
    tacit_digest(digest, origin, strlen(origin));
    tacit_hex(name, digest, sizeof digest);
    tacit_status status = tacit_file_join(k->path, sizeof k->path, w->dir, name, err);
    if (status == TACIT_OK)
        status = tacit_file_read(k->path, STATE_MAX, &text, &size, err);
    if (status == TACIT_OK)
        status = known_parse(k, (char *)text, size, err);
    free(text);
    return status == TACIT_NOT_FOUND ? TACIT_OK : status;
}

static tacit_status known_store(const known_log *k, const char *note, tacit_error *err)
{
    char key[TACIT_VKEY_MAX], text[STATE_MAX + 2];
    tacit_note_key_write(&k->key, key);
    int n = snprintf(text, sizeof text, "%s\n%s", key, note);
    return tacit_file_write(k->path, text, (size_t)n, 0644, err);
}

static tacit_status known_key(known_log *k, const tacit_note_key *log_key, const char *origin,
                              tacit_error *err)
{
    if (!k->found && !log_key)
        return tacit_fail(err, TACIT_USAGE,
                          "witness: the log '%s' is new to this witness; name the key that its "
                          "devices pinned with --log-key",
                          origin);
    if (k->found && log_key && memcmp(k->key.key, log_key->key, sizeof k->key.key) != 0)
        return tacit_fail(err, TACIT_INTEGRITY, "witness: the log '%s' is known under another key",
                          origin);
    if (!k->found)
        k->key = *log_key;
    return TACIT_OK;
}

/* --- cosigning --- */

/* The roots of the first `old_size` and `size` entries. */
static tacit_status read_roots(const tacit_export *log, uint64_t old_size, uint64_t size,
                               uint8_t old_root[TACIT_HASH_BYTES], uint8_t root[TACIT_HASH_BYTES],
                               uint64_t *got, tacit_error *err)
{
    tacit_merkle_frontier tree = {.size = 0};
    tacit_export_cursor c = tacit_export_cursor_over(log);
    tacit_status status = tacit_export_next(&c, err);
    while (status == TACIT_OK && c.count && tree.size < size) {
        for (size_t i = 0; i < c.count && tree.size < size; i++) {
            uint8_t leaf[TACIT_HASH_BYTES];
            if (tree.size == old_size)
                tacit_merkle_frontier_root(&tree, old_root);
            tacit_merkle_leaf(leaf, c.entry[i].data, c.entry[i].size);
            tacit_merkle_frontier_append(&tree, leaf);
        }
        status = tacit_export_next(&c, err);
    }
    tacit_export_cursor_free(&c);
    tacit_merkle_frontier_root(&tree, root);
    if (old_size == tree.size)
        memcpy(old_root, root, TACIT_HASH_BYTES);
    *got = tree.size;
    return status;
}

static tacit_status check_growth(const tacit_export *log, const known_log *k,
                                 const tacit_checkpoint *now, tacit_error *err)
{
    uint8_t old_root[TACIT_HASH_BYTES] = {0}, root[TACIT_HASH_BYTES];
    uint64_t got;
    if (now->size < k->last.size)
        return tacit_fail(err, TACIT_INTEGRITY,
                          "witness: this checkpoint covers %llu entries, the last cosigned one "
                          "%llu: it is older, or the log was cut",
                          (unsigned long long)now->size, (unsigned long long)k->last.size);
    tacit_status status = read_roots(log, k->last.size, now->size, old_root, root, &got, err);
    if (status != TACIT_OK)
        return status;
    if (got != now->size || memcmp(root, now->root, sizeof root) != 0)
        return tacit_fail(err, TACIT_INTEGRITY,
                          "witness: the export's %llu entries are not what its checkpoint of %llu "
                          "signs",
                          (unsigned long long)got, (unsigned long long)now->size);
    if (k->found && memcmp(old_root, k->last.root, sizeof old_root) != 0)
        return tacit_fail(
            err, TACIT_INTEGRITY,
            "witness: the log does not continue the one of %llu entries that was "
            "cosigned: it was rewritten or split; keep %s and this export as evidence",
            (unsigned long long)k->last.size, k->path);
    return TACIT_OK;
}

tacit_status tacit_witness_cosign(tacit_witness *w, const tacit_export *log,
                                  const tacit_note_key *log_key, char note[TACIT_CHECKPOINT_MAX],
                                  tacit_error *err)
{
    tacit_checkpoint now;
    known_log k;
    tacit_status status = tacit_checkpoint_parse(&now, log->checkpoint, log->checkpoint_size, err);
    if (status == TACIT_OK && log->checkpoint_size >= TACIT_CHECKPOINT_MAX)
        status = tacit_fail(err, TACIT_BAD_INPUT, "witness: the checkpoint is too long");
    if (status == TACIT_OK)
        status = known_load(&k, w, now.origin, err);
    if (status == TACIT_OK)
        status = known_key(&k, log_key, now.origin, err);
    if (status == TACIT_OK)
        status = tacit_checkpoint_verify(&now, log->checkpoint, log->checkpoint_size, &k.key, err);
    if (status == TACIT_OK)
        status = check_growth(log, &k, &now, err);
    if (status != TACIT_OK)
        return status;
    memcpy(note, log->checkpoint, log->checkpoint_size);
    note[log->checkpoint_size] = '\0';
    status = tacit_checkpoint_cosign(note, &w->key, w->id, tacit_clock_wall_ms() / 1000, err);
    if (status == TACIT_CONFLICT) /* it is this witness's own, and the state has it */
        status = TACIT_OK;
    return status == TACIT_OK ? known_store(&k, note, err) : status;
}
