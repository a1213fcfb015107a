/* Verbs about rounds, adapters, the log and what happens now. */
#include "server/control.h"

#include "common/clock.h"
#include "common/file.h"
#include "common/json_print.h"
#include "common/log.h"
#include "common/message.h"
#include "common/text.h"
#include "privacy/entry.h"
#include "privacy/export.h"
#include "proto/update.pb-c.h"
#include "server/lineage_start.h"
#include "server/registry_store.h"
#include "server/round_machine.h"
#include "server/round_steps.h"
#include "server/server_events.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>

typedef struct round_reading {
    control_call *call;
    json_t *json;
    round_row found; /* of a search */
    bool has_found;
    size_t hits;         /* of a search */
    lineage_row lineage; /* that was cancelled: its name and state alone */
} round_reading;

static tacit_status run_reading(control_call *call, writer_act job, json_t *json, tacit_error *err)
{
    round_reading r = {.call = call, .json = json};
    tacit_status status = writer_run(call->server->writer, job, NULL, &r, err);
    if (status == TACIT_OK)
        call->result = json;
    else
        json_decref(json);
    return status;
}

tacit_status verb_round_start(control_call *call, tacit_error *err)
{
    return lineage_start(call, err);
}

static json_t *round_json(const round_row *r)
{
    char id[2 * ROUND_ID_BYTES + 1], lineage[2 * LINEAGE_BYTES + 1];
    tacit_hex(id, r->round_id, sizeof r->round_id);
    tacit_hex(lineage, r->lineage, sizeof r->lineage);
    return json_pack("{s:s, s:s, s:I, s:s, s:I, s:I, s:I, s:I, s:o, s:o, s:s, s:I}", "round_id", id,
                     "lineage", lineage, "round", (json_int_t)r->index + 1, "state",
                     round_state_name(r->state), "asked", (json_int_t)r->asked, "reserved",
                     (json_int_t)r->reserved, "accepted", (json_int_t)r->accepted, "rejected",
                     (json_int_t)r->rejected, "loss", server_json_number(r->loss), "accuracy",
                     server_json_number(r->accuracy), "reason", r->reason, "deadline_ms",
                     (json_int_t)r->deadline_ms);
}

static tacit_status add_round(void *ctx, const round_row *row, tacit_error *err)
{
    round_reading *r = ctx;
    (void)err;
    json_array_append_new(r->json, round_json(row));
    return TACIT_OK;
}

static tacit_status list_rounds(void *ctx, tacit_error *err)
{
    round_reading *r = ctx;
    return round_each(r->call->server->db, add_round, r, err);
}

tacit_status verb_round_list(control_call *call, tacit_error *err)
{
    return run_reading(call, list_rounds, json_array(), err);
}

static tacit_status match_round(void *ctx, const round_row *row, tacit_error *err)
{
    round_reading *r = ctx;
    char id[2 * ROUND_ID_BYTES + 1];
    (void)err;
    tacit_hex(id, row->round_id, sizeof row->round_id);
    if (!control_is_id(r->call->argument, id))
        return TACIT_OK;
    json_t *json = round_json(row);
    json_object_update(r->json, json);
    json_decref(json);
    r->hits++;
    return TACIT_OK;
}

static tacit_status show_round(void *ctx, tacit_error *err)
{
    round_reading *r = ctx;
    tacit_status status = round_each(r->call->server->db, match_round, r, err);
    if (status == TACIT_OK && r->hits != 1)
        status = tacit_fail(err, TACIT_NOT_FOUND,
                            "'%s' names %zu rounds; give a round_id of 'round list' (%d digits or "
                            "more)",
                            r->call->argument, r->hits, CONTROL_ID_SHOWN);
    return status;
}

tacit_status verb_round_show(control_call *call, tacit_error *err)
{
    return run_reading(call, show_round, json_object(), err);
}

/* The lineage ends; its open round is failed by the caller. */
static tacit_status cancel_lineage(void *ctx, tacit_error *err)
{
    round_reading *r = ctx;
    tacit_database *db = r->call->server->db;
    lineage_row lineage = {0};
    tacit_status status = lineage_running(db, &lineage, err);
    memcpy(r->lineage.lineage, lineage.lineage, LINEAGE_BYTES);
    if (status == TACIT_NOT_FOUND)
        return tacit_fail(err, TACIT_CONFLICT, "no lineage is running");
    if (status == TACIT_OK)
        status = lineage_set(db, lineage.lineage, LINEAGE_CANCELLED, lineage.next_round, err);
    lineage_row_free(&lineage);
    if (status != TACIT_OK)
        return status;
    status = round_current(db, &r->found, err);
    r->has_found = status == TACIT_OK;
    return status == TACIT_NOT_FOUND ? TACIT_OK : status;
}

tacit_status verb_round_cancel(control_call *call, tacit_error *err)
{
    round_reading r = {.call = call, .lineage = {.state = LINEAGE_CANCELLED}};
    tacit_status status = writer_run(call->server->writer, cancel_lineage, NULL, &r, err);
    if (status == TACIT_OK && !r.has_found)
        round_announce_lineage(call->server, &r.lineage);
    if (status == TACIT_OK && r.has_found)
        status = round_fail(call->server, &r.found, "cancelled", err);
    if (status == TACIT_CONFLICT && r.has_found) /* it ended by itself meanwhile */
        status = TACIT_OK;
    if (r.has_found)
        round_row_free(&r.found);
    if (status == TACIT_OK)
        call->result = json_pack("{s:b}", "cancelled", 1);
    return status;
}

/* --- adapters --- */

static json_t *adapter_json(const adapter_row *a, tacit_status *status, tacit_error *err)
{
    char lineage[2 * LINEAGE_BYTES + 1], digest[2 * TACIT_DIGEST_BYTES + 1];
    Tacit__AdapterManifest *m = NULL;
    *status = TACIT_UNPACK(&m, tacit__adapter_manifest, a->manifest, a->manifest_size,
                           TACIT_MESSAGE_ENTRY_MAX, err);
    if (*status != TACIT_OK)
        return NULL;
    tacit_hex(lineage, a->lineage, sizeof a->lineage);
    tacit_hex(digest, a->file_digest, sizeof a->file_digest);
    json_t *json = json_pack("{s:s, s:I, s:I, s:s, s:b, s:o, s:o, s:o, s:o, s:s, s:f}", "lineage",
                             lineage, "version", (json_int_t)a->version, "parent_version",
                             (json_int_t)a->parent_version, "file_digest", digest, "current",
                             a->current, "accuracy", server_json_number(m->evaluation_accuracy),
                             "loss", server_json_number(m->evaluation_loss), "epsilon_server",
                             server_json_number(m->epsilon_server), "epsilon_published",
                             server_json_number(m->epsilon_published), "epsilon_rule",
                             m->epsilon_rule, "delta", m->delta);
    tacit_message_free(m);
    return json;
}

static tacit_status add_adapter(void *ctx, const adapter_row *row, tacit_error *err)
{
    round_reading *r = ctx;
    tacit_status status;
    json_t *json = adapter_json(row, &status, err);
    if (status == TACIT_OK)
        json_array_append_new(r->json, json);
    return status;
}

static tacit_status list_adapters(void *ctx, tacit_error *err)
{
    round_reading *r = ctx;
    return registry_each(r->call->server->db, add_adapter, r, err);
}

tacit_status verb_adapter_list(control_call *call, tacit_error *err)
{
    return run_reading(call, list_adapters, json_array(), err);
}

/* The version that the argument names, in the newest lineage. */
static tacit_status named_adapter(round_reading *r, adapter_row *current, adapter_row *out,
                                  tacit_error *err)
{
    uint64_t version;
    tacit_database *db = r->call->server->db;
    tacit_status status =
        tacit_parse_u64(r->call->argument, "version", 1, UINT32_MAX, &version, err);
    if (status == TACIT_OK)
        status = registry_current(db, NULL, current, err);
    return status == TACIT_OK ? registry_get(db, current->lineage, version, out, err) : status;
}

static tacit_status show_adapter(void *ctx, tacit_error *err)
{
    round_reading *r = ctx;
    adapter_row current = {0}, row = {0};
    tacit_status status = named_adapter(r, &current, &row, err);
    if (status == TACIT_OK) {
        json_t *json = adapter_json(&row, &status, err);
        json_object_update(r->json, json);
        json_decref(json);
    }
    registry_row_free(&current);
    registry_row_free(&row);
    return status;
}

tacit_status verb_adapter_show(control_call *call, tacit_error *err)
{
    return run_reading(call, show_adapter, json_object(), err);
}

const control_option verb_adapter_switch_options[] = {
    {"reason", "TEXT", "for the log (by the operator)"},
    {NULL, NULL, NULL},
};

/* The log knows one kind of change between published versions, in both directions. */
static tacit_status log_switch(server *s, const adapter_row *from, const adapter_row *to,
                               char *reason, tacit_error *err)
{
    Tacit__AdapterRolledBack body = TACIT__ADAPTER_ROLLED_BACK__INIT;
    Tacit__Entry entry = TACIT__ENTRY__INIT;
    body.lineage = tacit_field_of(to->lineage, LINEAGE_BYTES);
    body.from_version = from->version;
    body.to_version = to->version;
    body.reason = reason;
    entry.body_case = TACIT__ENTRY__BODY_ROLLED_BACK;
    entry.rolled_back = &body;
    tacit_status status = registry_set_current(s->db, to->lineage, to->version, err);
    if (status == TACIT_OK)
        status = tacit_ledger_record(s->ledger, &entry, NULL, NULL, err);
    if (status == TACIT_OK)
        tacit_log_warn("adapter version %llu takes the place of %llu: %s",
                       (unsigned long long)to->version, (unsigned long long)from->version, reason);
    return status;
}

/* Makes the named version current, which must lie before the current one, or after it. */
static tacit_status switch_adapter(round_reading *r, bool back, tacit_error *err)
{
    adapter_row current = {0}, row = {0};
    char reason[CONTROL_TEXT_MAX + 1];
    tacit_status status =
        control_text(r->call, verb_adapter_switch_options, 0, "by the operator", reason, err);
    if (status == TACIT_OK)
        status = named_adapter(r, &current, &row, err);
    bool fits = back ? row.version < current.version : row.version > current.version;
    if (status == TACIT_OK && !fits)
        status = tacit_fail(err, TACIT_CONFLICT, "version %llu is not %s the current %llu",
                            (unsigned long long)row.version, back ? "before" : "after",
                            (unsigned long long)current.version);
    if (status == TACIT_OK)
        status = log_switch(r->call->server, &current, &row, reason, err);
    registry_row_free(&current);
    registry_row_free(&row);
    return status;
}

static tacit_status roll_back(void *ctx, tacit_error *err)
{
    return switch_adapter(ctx, true, err);
}

static tacit_status publish_again(void *ctx, tacit_error *err)
{
    return switch_adapter(ctx, false, err);
}

tacit_status verb_adapter_rollback(control_call *call, tacit_error *err)
{
    return run_reading(call, roll_back, json_pack("{s:s}", "current", call->argument), err);
}

tacit_status verb_adapter_publish(control_call *call, tacit_error *err)
{
    return run_reading(call, publish_again, json_pack("{s:s}", "current", call->argument), err);
}

/* --- the log --- */

/* Through a connection of its own: a long log takes minutes, and the writer has devices to serve.
 */
static tacit_status export_log(const server *s, const char *out, tacit_error *err)
{
    char path[SERVER_PATH_MAX];
    tacit_database *db = NULL;
    tacit_ledger *view = NULL;
    tacit_status status;
    TACIT_TRY(server_path(s, path, "server.db", err), done);
    TACIT_TRY(tacit_database_open(&db, path, err), done);
    TACIT_TRY(tacit_ledger_view(&view, s->ledger, db, err), done);
    status = tacit_export_write(view, &s->operator_key, out, err);
done:
    tacit_ledger_close(view);
    tacit_database_close(db);
    return status;
}

/* An export takes the place of an empty folder; uploads and adapters are empty at times. */
static tacit_status check_outside(const server *s, const char *out, tacit_error *err)
{
    char parent[PATH_MAX], real[PATH_MAX];
    size_t own = strlen(s->dir), n = strlen(out);
    while (n > 1 && out[n - 1] == '/')
        n--;
    while (n > 1 && out[n - 1] != '/')
        n--;
    if (n >= sizeof parent)
        return tacit_fail(err, TACIT_USAGE, "ledger export: the path is too long");
    memcpy(parent, out, n);
    parent[n] = '\0';
    if (!realpath(parent, real)) /* the export says why */
        return TACIT_OK;
    bool inside = strncmp(real, s->dir, own) == 0 && (real[own] == '/' || real[own] == '\0');
    return inside ? tacit_fail(err, TACIT_CONFLICT,
                               "%s: lies in the server's own folder; choose another", out)
                  : TACIT_OK;
}

tacit_status verb_ledger_export(control_call *call, tacit_error *err)
{
    if (call->argument[0] != '/')
        return tacit_fail(err, TACIT_USAGE, "ledger export: the server needs an absolute path");
    tacit_status status = check_outside(call->server, call->argument, err);
    if (status != TACIT_OK)
        return status;
    status = export_log(call->server, call->argument, err);
    if (status == TACIT_OK)
        call->result = json_pack("{s:o}", "exported", tacit_json_name(call->argument));
    return status;
}

/* --- a witness's word on it --- */

typedef struct cosigning {
    server *server;
    tacit_note_key witness;
    uint8_t *note;
    size_t size;
} cosigning;

static tacit_status cosign_log(void *ctx, tacit_error *err)
{
    cosigning *c = ctx;
    return tacit_ledger_cosign(c->server->ledger, c->note, c->size, &c->witness, err);
}

tacit_status verb_ledger_cosign(control_call *call, tacit_error *err)
{
    cosigning c = {.server = call->server};
    tacit_checkpoint checkpoint;
    const char *key = call->server->config.witness_key;
    if (!key)
        return tacit_fail(
            err, TACIT_CONFLICT,
            "ledger cosign: no witness is known here; set witness_key in server.yaml");
    tacit_status status = tacit_witness_key_parse(&c.witness, key, err);
    if (status == TACIT_OK)
        status = tacit_status_of_input(
            tacit_file_read(call->argument, TACIT_NOTE_MAX, &c.note, &c.size, err), err);
    if (status != TACIT_OK)
        return status;
    status = writer_run(call->server->writer, cosign_log, NULL, &c, err);
    if (status == TACIT_OK)
        status = tacit_checkpoint_parse(&checkpoint, c.note, c.size, err);
    free(c.note);
    if (status == TACIT_OK)
        call->result = json_pack("{s:I, s:s}", "cosigned", (json_int_t)checkpoint.size, "witness",
                                 c.witness.name);
    return status;
}

/* --- what happens --- */

const control_option verb_events_options[] = {
    {"after", "N", "only events with a higher number (0)"},
    {"wait-ms", "MS", "wait this long for one (10000)"},
    {NULL, NULL, NULL},
};

tacit_status verb_events(control_call *call, tacit_error *err)
{
    uint64_t after, wait;
    tacit_status status =
        control_u64(call, verb_events_options, 0, 0, 0, (uint64_t)1 << 53, &after, err);
    if (status == TACIT_OK)
        status = control_u64(call, verb_events_options, 1, 10000, 0, 30000, &wait, err);
    if (status != TACIT_OK)
        return status;
    call->result = server_events_since(call->server->events, after, (uint32_t)wait);
    return call->result ? TACIT_OK : tacit_fail(err, TACIT_NO_MEMORY, "watch: no memory");
}
