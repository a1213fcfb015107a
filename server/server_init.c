#include "server/server_init.h"

#include "common/certificate.h"
#include "common/envelope.h"
#include "common/file.h"
#include "common/identity.h"
#include "common/secret.h"
#include "privacy/note.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define PATH_MAX_HERE 4096

static tacit_status make_folders(const char *dir, tacit_error *err)
{
    static const char *const folders[] = {"ca", "keys", "uploads", "adapters"};
    char path[PATH_MAX_HERE];
    tacit_status status = tacit_file_make_dir(dir, 0750, err);
    for (size_t i = 0; status == TACIT_OK && i < sizeof folders / sizeof folders[0]; i++) {
        status = tacit_file_join(path, sizeof path, dir, folders[i], err);
        if (status == TACIT_OK)
            status = tacit_file_make_dir(path, 0700, err);
    }
    return status;
}

static tacit_status write_text(const char *dir, const char *name, const char *text,
                               tacit_error *err)
{
    char path[PATH_MAX_HERE];
    tacit_status status = tacit_file_join(path, sizeof path, dir, name, err);
    return status == TACIT_OK ? tacit_file_write(path, text, strlen(text), 0644, err) : status;
}

/* Keys that an interrupted init made have signed nothing: they are as good as new ones. */
static tacit_status make_identity(const char *path, tacit_identity **out, tacit_error *err)
{
    tacit_status status = tacit_identity_create(out, path, err);
    return status == TACIT_CONFLICT ? tacit_identity_load(out, path, err) : status;
}

static tacit_status make_own_identity(const char *dir, const char *name, tacit_identity **out,
                                      tacit_error *err)
{
    char path[PATH_MAX_HERE];
    tacit_status status = tacit_file_join(path, sizeof path, dir, name, err);
    return status == TACIT_OK ? make_identity(path, out, err) : status;
}

/* The offline key: its public half stays, the private one is elsewhere or is to be moved away. */
static tacit_status make_operator_key(const char *dir, const char *origin, const char *path,
                                      tacit_error *err)
{
    tacit_identity *id = NULL;
    tacit_note_key key;
    char name[TACIT_NOTE_NAME_MAX + 1], line[TACIT_VKEY_MAX + 1];
    if ((size_t)snprintf(name, sizeof name, "%s/operator", origin) >= sizeof name)
        return tacit_fail(err, TACIT_USAGE, "--origin: expected at most %d characters",
                          TACIT_NOTE_NAME_MAX - 9);
    tacit_status status = path ? make_identity(path, &id, err)
                               : make_own_identity(dir, "keys/operator.key", &id, err);
    if (status == TACIT_OK)
        status = tacit_note_key_make(&key, name, tacit_identity_sign_key(id), err);
    tacit_identity_free(id);
    if (status != TACIT_OK)
        return status;
    tacit_note_key_write(&key, line);
    strncat(line, "\n", sizeof line - strlen(line) - 1);
    return write_text(dir, "keys/operator.pub", line, err);
}

static tacit_status make_nonce_key(const char *dir, tacit_error *err)
{
    char path[PATH_MAX_HERE];
    tacit_secret key = {0};
    tacit_status status = tacit_file_join(path, sizeof path, dir, "keys/nonce.key", err);
    if (status == TACIT_OK)
        status = tacit_secret_random(&key, TACIT_NONCE_KEY_BYTES, err);
    if (status == TACIT_OK)
        status = tacit_secret_store(&key, path, err);
    tacit_secret_free(&key);
    return status;
}

/* The certificate is written after its key: with one the root is whole, a key without one was never
 * used. */
static tacit_status make_root(const char *dir, tacit_error *err)
{
    char folder[PATH_MAX_HERE], path[PATH_MAX_HERE];
    tacit_status status = tacit_file_join(path, sizeof path, dir, "ca/ca.pem", err);
    if (status == TACIT_OK && access(path, F_OK) == 0)
        return TACIT_OK;
    if (status == TACIT_OK)
        status = tacit_file_join(path, sizeof path, dir, "ca/ca.key", err);
    if (status == TACIT_OK && unlink(path) != 0 && errno != ENOENT)
        status = tacit_file_fail(err, path, "remove");
    if (status == TACIT_OK)
        status = tacit_file_join(folder, sizeof folder, dir, "ca", err);
    return status == TACIT_OK ? tacit_ca_create(folder, "Tacit root", err) : status;
}

static tacit_status make_certificates(const char *dir, tacit_error *err)
{
    char path[PATH_MAX_HERE];
    tacit_status status = make_root(dir, err);
    if (status == TACIT_OK)
        status = tacit_file_join(path, sizeof path, dir, "keys/tls.key", err);
    return status == TACIT_OK ? tacit_tls_key_create(path, err) : status;
}

/* A folder with one of these is, or was, a server's. */
static tacit_status check_unused(const char *dir, tacit_error *err)
{
    static const char *const marks[] = {"server.yaml", "server.db"};
    char path[PATH_MAX_HERE];
    tacit_status status = TACIT_OK;
    for (size_t i = 0; status == TACIT_OK && i < sizeof marks / sizeof marks[0]; i++) {
        status = tacit_file_join(path, sizeof path, dir, marks[i], err);
        if (status == TACIT_OK && access(path, F_OK) == 0)
            status = tacit_fail(err, TACIT_CONFLICT,
                                "%s exists already; edit server.yaml or take another folder", path);
    }
    return status;
}

tacit_status server_init(const char *dir, const char *origin, const char *operator_key,
                         const server_config_choice *choice, tacit_error *err)
{
    tacit_identity *key = NULL;
    tacit_note_key probe;
    char line[TACIT_NOTE_NAME_MAX + 2];
    tacit_status status;
    TACIT_TRY(check_unused(dir, err), done);
    TACIT_TRY(make_folders(dir, err), done);
    TACIT_TRY(make_own_identity(dir, "keys/server.key", &key, err), done);
    TACIT_TRY(tacit_note_key_make(&probe, origin, tacit_identity_sign_key(key), err), done);
    snprintf(line, sizeof line, "%s\n", origin);
    TACIT_TRY(write_text(dir, "keys/origin", line, err), done);
    TACIT_TRY(make_operator_key(dir, origin, operator_key, err), done);
    TACIT_TRY(make_nonce_key(dir, err), done);
    TACIT_TRY(make_certificates(dir, err), done);
    status = server_config_write(dir, choice, err); /* the last: with it the folder is whole */
done:
    tacit_identity_free(key);
    return status;
}
