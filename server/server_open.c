#include "server/server.h"

#include "common/clock.h"
#include "common/file.h"
#include "common/log.h"
#include "common/secret.h"
#include "common/tls.h"
#include "privacy/entry.h"
#include "server/device_store.h"
#include "server/gate_data.h"
#include "server/registry_store.h"
#include "server/round_machine.h"
#include "server/round_store.h"
#include "server/server_events.h"
#include "server/server_init.h"

#include <errno.h>
#include <fcntl.h>
#include <sodium.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

tacit_status server_path(const server *s, char out[SERVER_PATH_MAX], const char *name,
                         tacit_error *err)
{
    return tacit_file_join(out, SERVER_PATH_MAX, s->dir, name, err);
}

static tacit_status lock_folder(server *s, tacit_error *err)
{
    char path[SERVER_PATH_MAX];
    tacit_status status = server_path(s, path, "lock", err);
    if (status == TACIT_OK)
        status = tacit_file_lock(path, &s->lock, err);
    if (status == TACIT_CONFLICT)
        return tacit_fail(err, status, "%s: another tacit-server serves this folder; stop it first",
                          s->dir);
    return status;
}

static tacit_status load_keys(server *s, tacit_error *err)
{
    char path[SERVER_PATH_MAX];
    uint8_t *text = NULL;
    size_t size = 0;
    tacit_secret nonce = {0};
    tacit_status status;
    TACIT_TRY(server_path(s, path, "keys/server.key", err), done);
    TACIT_TRY(tacit_identity_load(&s->key, path, err), done);
    TACIT_TRY(server_path(s, path, "keys/nonce.key", err), done);
    TACIT_TRY(tacit_secret_load(&nonce, path, sizeof s->nonce_key, sizeof s->nonce_key, err), done);
    memcpy(s->nonce_key, nonce.data, sizeof s->nonce_key);
    TACIT_TRY(server_path(s, path, "keys/operator.pub", err), done);
    TACIT_TRY(tacit_file_read(path, 4096, &text, &size, err), done);
    while (size && text[size - 1] == '\n')
        text[--size] = '\0';
    TACIT_TRY(tacit_note_key_parse(&s->operator_key, (char *)text, err), done);
    TACIT_TRY(server_path(s, path, "ca", err), done);
    status = tacit_ca_load(&s->ca, path, err);
done:
    tacit_secret_free(&nonce);
    free(text);
    return status;
}

static tacit_status read_origin(server *s, char origin[TACIT_NOTE_NAME_MAX + 1], tacit_error *err)
{
    char path[SERVER_PATH_MAX];
    uint8_t *text = NULL;
    size_t size = 0;
    tacit_status status = server_path(s, path, "keys/origin", err);
    if (status == TACIT_OK)
        status = tacit_file_read(path, TACIT_NOTE_NAME_MAX, &text, &size, err);
    if (status == TACIT_OK)
        memcpy(origin, text, size + 1);
    origin[strcspn(origin, "\n")] = '\0';
    free(text);
    return status;
}

static tacit_status open_database(server *s, tacit_error *err)
{
    char path[SERVER_PATH_MAX], origin[TACIT_NOTE_NAME_MAX + 1] = "";
    tacit_status status;
    TACIT_TRY(server_path(s, path, "server.db", err), done);
    TACIT_TRY(tacit_database_open(&s->db, path, err), done);
    TACIT_TRY(tacit_database_run(s->db, "PRAGMA secure_delete = ON", err), done);
    TACIT_TRY(device_store_open(s->db, err), done);
    TACIT_TRY(round_store_open(s->db, err), done);
    TACIT_TRY(registry_store_open(s->db, err), done);
    TACIT_TRY(read_origin(s, origin, err), done);
    status = tacit_ledger_open(&s->ledger, s->db, origin, s->key, err);
done:
    return status;
}

static tacit_status sign_checkpoint(void *ctx, char note[TACIT_CHECKPOINT_MAX], uint64_t *size,
                                    tacit_error *err)
{
    server *s = ctx;
    return tacit_ledger_checkpoint(s->ledger, note, size, err);
}

static tacit_status log_start(void *ctx, tacit_error *err)
{
    server *s = ctx;
    char version[] = TACIT_VERSION, origin[TACIT_NOTE_NAME_MAX + 1];
    Tacit__ServerStart body = TACIT__SERVER_START__INIT;
    Tacit__Entry entry = TACIT__ENTRY__INIT;
    const tacit_note_key *log = tacit_ledger_key(s->ledger);
    memcpy(origin, log->name, sizeof origin);
    body.version = version;
    body.origin = origin;
    body.log_key = tacit_field_of(log->key, TACIT_SIGN_KEY_BYTES);
    body.operator_key = tacit_field_of(s->operator_key.key, TACIT_SIGN_KEY_BYTES);
    entry.body_case = TACIT__ENTRY__BODY_SERVER_START;
    entry.server_start = &body;
    return tacit_ledger_record(s->ledger, &entry, NULL, NULL, err);
}

static tacit_status log_stop(void *ctx, tacit_error *err)
{
    server *s = ctx;
    char reason[] = "stopped by the operator";
    Tacit__ServerStop body = TACIT__SERVER_STOP__INIT;
    Tacit__Entry entry = TACIT__ENTRY__INIT;
    body.reason = reason;
    entry.body_case = TACIT__ENTRY__BODY_SERVER_STOP;
    entry.server_stop = &body;
    return tacit_ledger_record(s->ledger, &entry, NULL, NULL, err);
}

tacit_status server_model_load(tacit_model **out, const char *text, const char *const *mmproj,
                               size_t n_mmproj, tacit_error *err)
{
    tacit_error why;
    tacit_status status = tacit_model_load(out, text, mmproj, n_mmproj, NULL, err);
    if (status != TACIT_OK || (status = tacit_model_check_chat(*out, &why)) == TACIT_OK)
        return status;
    tacit_model_free(*out);
    *out = NULL;
    return tacit_fail(err, status == TACIT_NO_MEMORY ? status : TACIT_BAD_INPUT,
                      "%s: %s; devices take the template of the model's file, so that all of a "
                      "federation have the same: name a file with one of those",
                      text, why.message);
}

static tacit_status load_model(server *s, tacit_error *err)
{
    const server_config *c = &s->config;
    return server_model_load(&s->model, c->model_text,
                             (const char *const *)(uintptr_t)c->model_mmproj.item,
                             c->model_mmproj.count, err);
}

static tacit_status new_server(server **out, const char *dir, tacit_error *err)
{
    server *s = calloc(1, sizeof *s);
    *out = s;
    if (!s)
        return tacit_fail(err, TACIT_NO_MEMORY, "server: no memory");
    s->lock = -1;
    pthread_mutex_init(&s->ca_lock, NULL);
    for (size_t i = 0; i < SERVER_UPLOAD_LOCKS; i++)
        pthread_mutex_init(&s->upload_lock[i], NULL);
    if (realpath(dir, s->dir))
        return TACIT_OK;
    return tacit_fail(err, TACIT_BAD_INPUT, "%s: %s; make it with 'tacit-server init'", dir,
                      strerror(errno));
}

/* Everything but the model, and nothing is logged yet. */
static tacit_status open_folder(server *s, tacit_error *err)
{
    tacit_status status;
    TACIT_TRY(lock_folder(s, err), done);
    TACIT_TRY(tacit_status_of_input(server_config_load(&s->config, s->dir, err), err), done);
    TACIT_TRY(tacit_status_of_input(load_keys(s, err), err), done);
    tacit_ca_set_days(s->ca, (unsigned)s->config.certificate_days);
done:
    return status;
}

static tacit_status open_log(server *s, tacit_error *err)
{
    tacit_status status = open_database(s, err);
    if (status == TACIT_OK)
        status = server_events_new(&s->events, err);
    return status == TACIT_OK ? writer_start(&s->writer, s->db, sign_checkpoint, s, err) : status;
}

tacit_status server_open(server **out, const char *dir, tacit_error *err)
{
    server *s;
    *out = NULL;
    tacit_status status;
    TACIT_TRY(new_server(&s, dir, err), done);
    TACIT_TRY(open_folder(s, err), done);
    TACIT_TRY(tacit_status_of_input(load_model(s, err), err), done);
    if (s->config.gate_data)
        TACIT_TRY(tacit_status_of_input(gate_data_check(s->config.gate_data, err), err), done);
    TACIT_TRY(open_log(s, err), done);
    TACIT_TRY(writer_run(s->writer, log_start, NULL, s, err), done);
    s->started = true;
    *out = s;
    return TACIT_OK;
done:
    server_close(s);
    return status;
}

tacit_status server_open_idle(server **out, const char *dir, tacit_error *err)
{
    server *s;
    *out = NULL;
    tacit_status status = new_server(&s, dir, err);
    if (status == TACIT_OK)
        status = open_folder(s, err);
    if (status == TACIT_OK)
        status = open_log(s, err);
    if (status == TACIT_OK)
        *out = s;
    else
        server_close(s);
    return status;
}

void server_close(server *s)
{
    if (!s)
        return;
    round_machine_stop(s->rounds);
    if (s->writer) {
        tacit_error err = {0};
        if (s->started && writer_run(s->writer, log_stop, NULL, s, &err) != TACIT_OK)
            tacit_log_warn("the stop was not logged: %s", err.message);
        writer_stop(s->writer);
    }
    tacit_ledger_close(s->ledger);
    tacit_database_close(s->db);
    server_events_free(s->events);
    tacit_model_free(s->model);
    tacit_ca_free(s->ca);
    tacit_identity_free(s->key);
    server_config_free(&s->config);
    if (s->lock >= 0)
        close(s->lock);
    sodium_memzero(s->nonce_key, sizeof s->nonce_key);
    pthread_mutex_destroy(&s->ca_lock);
    for (size_t i = 0; i < SERVER_UPLOAD_LOCKS; i++)
        pthread_mutex_destroy(&s->upload_lock[i]);
    free(s);
}
