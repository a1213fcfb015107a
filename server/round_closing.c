/* Closing a round: the sum, the candidate, its evaluation, publication or failure. */
#include "server/round_steps.h"

#include "common/clock.h"
#include "common/file.h"
#include "common/killpoint.h"
#include "common/log.h"
#include "common/message.h"
#include "common/text.h"
#include "privacy/entry.h"
#include "privacy/published.h"
#include "server/aggregate.h"
#include "server/device_store.h"
#include "server/gate_evaluation.h"
#include "server/registry_store.h"
#include "server/server_events.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* A round on its way from the accepted set to its end. */
typedef struct closing {
    server *server;
    round_terms terms;
    update_row *accepted;
    size_t count;
    uint8_t (*signer)[TACIT_SIGN_KEY_BYTES]; /* of each accepted update */
    aggregate_sum sum;
    uint64_t version; /* that the candidate gets when it is published */
    char candidate[SERVER_PATH_MAX];
    gate_score score, parent_score;
    bool scored;
    const char *reason; /* of a failure */
    lineage_row lineage;
    Tacit__Schedule *schedule;
    tacit_summed_round *summed; /* rounds of the lineage with a sum, this one among them */
    size_t summed_count, summed_capacity;
} closing;

static void closing_free(closing *c)
{
    round_terms_free(&c->terms);
    lineage_row_free(&c->lineage);
    tacit_message_free(c->schedule);
    aggregate_fini(&c->sum);
    free(c->accepted);
    free(c->signer);
    free(c->summed);
}

static tacit_status candidate_path(closing *c, tacit_error *err)
{
    char hex[2 * ROUND_ID_BYTES + 1], name[128];
    tacit_hex(hex, c->terms.round.round_id, ROUND_ID_BYTES);
    snprintf(name, sizeof name, "adapters/candidate-%s.gguf", hex);
    return server_path(c->server, c->candidate, name, err);
}

static tacit_status load_lineage(closing *c, tacit_error *err)
{
    tacit_status status = lineage_get(c->server->db, c->terms.round.lineage, &c->lineage, err);
    if (status == TACIT_OK)
        status = TACIT_UNPACK(&c->schedule, tacit__schedule, c->lineage.schedule,
                              c->lineage.schedule_size, TACIT_MESSAGE_ENTRY_MAX, err);
    return status;
}

void round_announce(server *s, const round_row *r)
{
    char id[2 * ROUND_ID_BYTES + 1], lineage[2 * LINEAGE_BYTES + 1];
    tacit_hex(id, r->round_id, ROUND_ID_BYTES);
    tacit_hex(lineage, r->lineage, LINEAGE_BYTES);
    server_events_add(
        s->events,
        json_pack("{s:s, s:s, s:s, s:I, s:s, s:I, s:I, s:I, s:I, s:s, s:o, s:o}", "kind", "round",
                  "lineage", lineage, "round_id", id, "round", (json_int_t)r->index + 1, "state",
                  round_state_name(r->state), "asked", (json_int_t)r->asked, "reserved",
                  (json_int_t)r->reserved, "accepted", (json_int_t)r->accepted, "rejected",
                  (json_int_t)r->rejected, "reason", r->reason, "accuracy",
                  server_json_number(r->accuracy), "loss", server_json_number(r->loss)));
}

void round_announce_lineage(server *s, const lineage_row *lineage)
{
    char hex[2 * LINEAGE_BYTES + 1];
    tacit_hex(hex, lineage->lineage, sizeof lineage->lineage);
    server_events_add(s->events, json_pack("{s:s, s:s, s:s}", "kind", "lineage", "lineage", hex,
                                           "state", lineage_state_name(lineage->state)));
}

static void announce_end(const closing *c)
{
    if (c->lineage.state != LINEAGE_RUNNING)
        round_announce_lineage(c->server, &c->lineage);
}

/* --- failing --- */

/* The lineage goes on behind this round. Its state is read anew: it may have been cancelled since
 * this round was loaded. */
static tacit_status move_lineage(closing *c, tacit_error *err)
{
    uint32_t next = c->terms.round.index + 1;
    lineage_row_free(&c->lineage);
    tacit_status status = lineage_get(c->server->db, c->terms.round.lineage, &c->lineage, err);
    if (status != TACIT_OK)
        return status;
    if (c->lineage.state == LINEAGE_RUNNING && next >= c->lineage.rounds)
        c->lineage.state = LINEAGE_DONE;
    return lineage_set(c->server->db, c->lineage.lineage, c->lineage.state, next, err);
}

static tacit_status log_close(closing *c, bool published, const char *reason, tacit_error *err)
{
    char words[ROUND_REASON_MAX + 1];
    Tacit__RoundClosed body = TACIT__ROUND_CLOSED__INIT;
    Tacit__Entry entry = TACIT__ENTRY__INIT;
    snprintf(words, sizeof words, "%s", reason);
    body.round_id = tacit_field_of(c->terms.round.round_id, ROUND_ID_BYTES);
    body.published = published;
    body.reason = words;
    entry.body_case = TACIT__ENTRY__BODY_ROUND_CLOSED;
    entry.round_closed = &body;
    tacit_status status = tacit_ledger_record(c->server->ledger, &entry, NULL, NULL, err);
    if (status == TACIT_OK)
        status = round_move(c->server->db, c->terms.round.round_id, c->terms.round.state,
                            published ? ROUND_PUBLISHED : ROUND_FAILED, words,
                            tacit_clock_wall_ms(), err);
    writer_tidy(c->server->writer); /* the round's key must not stay in the write-ahead log */
    return status == TACIT_OK ? move_lineage(c, err) : status;
}

static tacit_status fail_job(void *ctx, tacit_error *err)
{
    closing *c = ctx;
    tacit_database *db = c->server->db;
    uint8_t id[ROUND_ID_BYTES];
    memcpy(id, c->terms.round.round_id, sizeof id);
    tacit_status status = round_get(db, id, &c->terms.round, err);
    if (status == TACIT_OK && round_state_is_final(c->terms.round.state))
        status = tacit_fail(err, TACIT_CONFLICT, "the round has ended already");
    if (status == TACIT_OK && isfinite(c->score.accuracy))
        status = round_set_evaluation(db, id, c->score.loss, c->score.accuracy, err);
    return status == TACIT_OK ? log_close(c, false, c->reason, err) : status;
}

static tacit_status fail_round(closing *c, const char *reason, tacit_error *err)
{
    c->reason = reason;
    round_row_free(&c->terms.round);
    tacit_status status = writer_run(c->server->writer, fail_job, NULL, c, err);
    if (status != TACIT_OK)
        return status;
    tacit_log_warn("round %u failed: %s", c->terms.round.index + 1, reason);
    c->terms.round.state = ROUND_FAILED;
    c->terms.round.accuracy = c->score.accuracy;
    c->terms.round.loss = c->score.loss;
    snprintf(c->terms.round.reason, sizeof c->terms.round.reason, "%s", reason);
    round_announce(c->server, &c->terms.round);
    announce_end(c);
    round_sweep(c->server);
    return TACIT_OK;
}

tacit_status round_fail(server *s, const round_row *round, const char *reason, tacit_error *err)
{
    closing c = {.server = s, .score = {NAN, NAN}};
    memcpy(c.terms.round.round_id, round->round_id, ROUND_ID_BYTES);
    tacit_status status = fail_round(&c, reason, err);
    closing_free(&c);
    return status;
}

tacit_status round_fail_here(server *s, const uint8_t round_id[ROUND_ID_BYTES], const char *reason,
                             tacit_error *err)
{
    closing c = {.server = s, .score = {NAN, NAN}, .reason = reason};
    memcpy(c.terms.round.round_id, round_id, ROUND_ID_BYTES);
    tacit_status status = fail_job(&c, err);
    closing_free(&c);
    return status;
}

/* --- aggregating --- */

static tacit_status load_accepted(closing *c, tacit_error *err)
{
    tacit_database *db = c->server->db;
    tacit_status status =
        update_list(db, c->terms.round.round_id, UPDATE_ACCEPTED, &c->accepted, &c->count, err);
    if (status != TACIT_OK)
        return status;
    c->signer = calloc(c->count + 1, sizeof *c->signer);
    if (!c->signer)
        return tacit_fail(err, TACIT_NO_MEMORY, "round: no memory for %zu keys", c->count);
    for (size_t i = 0; i < c->count; i++) {
        device_row device;
        status = device_get(db, c->accepted[i].device, &device, err);
        if (status != TACIT_OK)
            return status;
        memcpy(c->signer[i], device.identity_key, TACIT_SIGN_KEY_BYTES);
    }
    return TACIT_OK;
}

static tacit_status load_round(void *ctx, tacit_error *err)
{
    closing *c = ctx;
    uint8_t id[ROUND_ID_BYTES];
    memcpy(id, c->terms.round.round_id, sizeof id);
    tacit_status status = round_terms_load(&c->terms, c->server, id, err);
    if (status == TACIT_OK)
        status = load_lineage(c, err);
    if (status == TACIT_OK)
        status = registry_next_version(c->server->db, c->terms.round.lineage, &c->version, err);
    return status == TACIT_OK ? load_accepted(c, err) : status;
}

static tacit_status add_summed(void *ctx, const round_row *r, tacit_error *err)
{
    closing *c = ctx;
    Tacit__Plan *plan = NULL;
    if (c->summed_count == c->summed_capacity) {
        size_t capacity = c->summed_capacity ? 2 * c->summed_capacity : 16;
        void *grown = realloc(c->summed, capacity * sizeof *c->summed);
        if (!grown)
            return tacit_fail(err, TACIT_NO_MEMORY, "round: no memory for %zu rounds", capacity);
        c->summed = grown;
        c->summed_capacity = capacity;
    }
    tacit_status status =
        TACIT_UNPACK(&plan, tacit__plan, r->plan, r->plan_size, TACIT_MESSAGE_ENTRY_MAX, err);
    if (status == TACIT_OK)
        c->summed[c->summed_count++] =
            (tacit_summed_round){r->index, r->accepted, plan->assumed_colluders, plan->norm_bound};
    tacit_message_free(plan);
    return status;
}

static tacit_status load_summed(void *ctx, tacit_error *err)
{
    closing *c = ctx;
    c->summed_count = 0;
    return round_each_summed(c->server->db, c->terms.round.lineage, add_summed, c, err);
}

static tacit_status add_one(closing *c, size_t i, tacit_error *err)
{
    char path[SERVER_PATH_MAX];
    uint8_t *sealed = NULL;
    size_t size = 0;
    const char *reason = NULL;
    intake_update update;
    intake_terms terms = round_terms_for(&c->terms, c->signer[i]);
    tacit_status status = round_upload_path(c->server, c->accepted[i].reserve_hash, path, err);
    if (status == TACIT_OK)
        status = tacit_file_read(path, SERVER_UPLOAD_MAX, &sealed, &size, err);
    if (status == TACIT_OK)
        status = intake_judge(&terms, &c->accepted[i], sealed, size, &update, &reason, err);
    free(sealed);
    if (status != TACIT_OK)
        return status;
    if (reason) /* it passed once: the file was changed since */
        return tacit_fail(err, TACIT_INTEGRITY, "%s: an accepted update is damaged (%s)", path,
                          reason);
    status = aggregate_add(&c->sum, update.values, err);
    intake_update_free(&update);
    return status;
}

/* The vector that the plan's parent holds; zeros for version 0. */
static tacit_status parent_values(closing *c, float *values, tacit_error *err)
{
    const Tacit__Plan *plan = c->terms.plan;
    char path[SERVER_PATH_MAX];
    memset(values, 0, c->sum.count * sizeof *values);
    if (plan->parent_version == 0)
        return TACIT_OK;
    tacit_status status = round_adapter_path(c->server, plan->parent_digest.data, path, err);
    return status == TACIT_OK
               ? tacit_adapter_read_values(path, c->server->model, &c->terms.spec, values, err)
               : status;
}

static tacit_status write_candidate(closing *c, tacit_error *err)
{
    tacit_adapter_info info = {.version = c->version,
                               .parent_version = c->terms.plan->parent_version,
                               .has_base_digest = true};
    float *values = calloc(2 * c->sum.count, sizeof *values);
    if (!values)
        return tacit_fail(err, TACIT_NO_MEMORY, "round: no memory for the adapter");
    memcpy(info.lineage, c->terms.round.lineage, sizeof info.lineage);
    memcpy(info.base_digest, tacit_model_base_digest(c->server->model), sizeof info.base_digest);
    tacit_status status = parent_values(c, values, err);
    if (status == TACIT_OK)
        status = aggregate_mean(&c->sum, c->terms.plan->update_scale, values, values + c->sum.count,
                                err);
    if (status == TACIT_OK)
        status = tacit_adapter_save(c->candidate, c->server->model, &c->terms.spec,
                                    values + c->sum.count, &info, err);
    free(values);
    return status;
}

static tacit_status log_aggregate(void *ctx, tacit_error *err)
{
    closing *c = ctx;
    server *s = c->server;
    uint8_t digest[TACIT_DIGEST_BYTES];
    Tacit__Aggregate body = TACIT__AGGREGATE__INIT;
    Tacit__Entry entry = TACIT__ENTRY__INIT;
    ProtobufCBinaryData *hashes = calloc(c->count + 1, sizeof *hashes);
    if (!hashes)
        return tacit_fail(err, TACIT_NO_MEMORY, "round: no memory");
    for (size_t i = 0; i < c->count; i++)
        hashes[i] = tacit_field_of(c->accepted[i].reserve_hash, TACIT_DIGEST_BYTES);
    aggregate_digest(&c->sum, digest);
    body.round_id = tacit_field_of(c->terms.round.round_id, ROUND_ID_BYTES);
    body.reserve_hashes = hashes;
    body.n_reserve_hashes = c->count;
    body.quorum = c->terms.plan->quorum;
    body.result_digest = tacit_field_of(digest, sizeof digest);
    entry.body_case = TACIT__ENTRY__BODY_AGGREGATE;
    entry.aggregate = &body;
    tacit_status status = tacit_ledger_record(s->ledger, &entry, NULL, NULL, err);
    free(hashes);
    if (status == TACIT_OK)
        status = round_set_result(s->db, c->terms.round.round_id, digest, err);
    return status == TACIT_OK ? round_move(s->db, c->terms.round.round_id, ROUND_AGGREGATING,
                                           ROUND_EVALUATING, "", tacit_clock_wall_ms(), err)
                              : status;
}

tacit_status round_aggregate(server *s, const round_row *round, tacit_error *err)
{
    closing c = {.server = s, .score = {NAN, NAN}};
    memcpy(c.terms.round.round_id, round->round_id, ROUND_ID_BYTES);
    tacit_status status;
    TACIT_TRY(writer_run(s->writer, load_round, NULL, &c, err), done);
    TACIT_TRY(candidate_path(&c, err), done);
    TACIT_TRY(aggregate_init(&c.sum, c.terms.layout.values, err), done);
    for (size_t i = 0; i < c.count && status == TACIT_OK; i++)
        status = add_one(&c, i, err);
    if (status == TACIT_INTEGRITY || status == TACIT_NOT_FOUND) {
        /* All or nothing: an accepted update that is damaged or gone ends the round. */
        tacit_log_error("round %u: %s", round->index + 1, err->message);
        status = fail_round(&c, "damaged", err);
        goto done;
    }
    TACIT_TRY(status, done);
    TACIT_TRY(write_candidate(&c, err), done);
    TACIT_TRY(writer_run(s->writer, log_aggregate, NULL, &c, err), done);
    tacit_log_info("round %u: summed %zu updates of %zu values", round->index + 1, c.count,
                   c.sum.count);
    tacit_kill_point("server.aggregated");
done:
    closing_free(&c);
    return status;
}

/* --- evaluating and publishing --- */

/* The parent's score as its manifest states it. */
static tacit_status load_parent_score(void *ctx, tacit_error *err)
{
    closing *c = ctx;
    adapter_row parent = {0};
    Tacit__AdapterManifest *m = NULL;
    if (c->terms.plan->parent_version == 0)
        return TACIT_OK;
    tacit_status status = registry_get(c->server->db, c->terms.round.lineage,
                                       c->terms.plan->parent_version, &parent, err);
    if (status == TACIT_OK)
        status = TACIT_UNPACK(&m, tacit__adapter_manifest, parent.manifest, parent.manifest_size,
                              TACIT_MESSAGE_ENTRY_MAX, err);
    if (status == TACIT_OK) {
        c->parent_score = (gate_score){m->evaluation_accuracy, m->evaluation_loss};
        c->scored = isfinite(m->evaluation_accuracy) && isfinite(m->evaluation_loss);
    }
    tacit_message_free(m);
    registry_row_free(&parent);
    return status;
}

/* The file of the plan's parent; NULL stands for the base alone. */
static tacit_status parent_path(closing *c, char path[SERVER_PATH_MAX], const char **out,
                                tacit_error *err)
{
    *out = NULL;
    if (c->terms.plan->parent_version == 0)
        return TACIT_OK;
    *out = path;
    return round_adapter_path(c->server, c->terms.plan->parent_digest.data, path, err);
}

static tacit_status score(closing *c, const atomic_bool *stop, tacit_error *err)
{
    const server_config *config = &c->server->config;
    c->score = c->parent_score = (gate_score){NAN, NAN};
    if (!config->gate_data)
        return TACIT_OK;
    char path[SERVER_PATH_MAX];
    const char *parent;
    tacit_status status = writer_run(c->server->writer, load_parent_score, NULL, c, err);
    if (status == TACIT_OK && !c->scored)
        status = parent_path(c, path, &parent, err);
    if (status == TACIT_OK && !c->scored)
        status = gate_evaluate(&c->parent_score, config, parent, stop, err);
    if (status == TACIT_OK)
        status = gate_evaluate(&c->score, config, c->candidate, stop, err);
    return status;
}

/* The candidate under its final name: a copy by link, so that a crash leaves either or both. */
static tacit_status name_by_digest(closing *c, uint8_t digest[TACIT_DIGEST_BYTES], uint64_t *bytes,
                                   tacit_error *err)
{
    char path[SERVER_PATH_MAX], folder[SERVER_PATH_MAX];
    uint8_t *data = NULL;
    size_t size = 0;
    tacit_status status = tacit_file_read(c->candidate, (size_t)1 << 31, &data, &size, err);
    if (status != TACIT_OK)
        return status;
    tacit_digest(digest, data, size);
    *bytes = size;
    free(data);
    status = round_adapter_path(c->server, digest, path, err);
    if (status == TACIT_OK && link(c->candidate, path) != 0 && errno != EEXIST)
        status = tacit_file_fail(err, path, "publish the candidate");
    if (status == TACIT_OK)
        status = server_path(c->server, folder, "adapters", err);
    return status == TACIT_OK ? tacit_file_sync_dir(folder, err) : status;
}

typedef struct publication {
    closing *closing;
    Tacit__AdapterManifest manifest;
    uint8_t digest[TACIT_DIGEST_BYTES];
    char rule[32];
    adapter_row row;
} publication;

static tacit_status fill_manifest(publication *p, tacit_error *err)
{
    closing *c = p->closing;
    Tacit__AdapterManifest *m = &p->manifest;
    const Tacit__Plan *plan = c->terms.plan;
    tacit_published views;
    tacit_status status = writer_run(c->server->writer, load_summed, NULL, c, err);
    if (status == TACIT_OK)
        status = tacit_published_epsilon(&views, c->schedule, c->terms.round.index + 1,
                                         c->terms.layout.values, c->summed, c->summed_count, err);
    if (status != TACIT_OK)
        return status;
    snprintf(p->rule, sizeof p->rule, "%s", views.rule);
    m->format = 1;
    m->lineage = tacit_field_of(c->terms.round.lineage, LINEAGE_BYTES);
    m->version = c->version;
    m->parent_version = plan->parent_version;
    m->base_digest = plan->base_digest;
    m->file_digest = tacit_field_of(p->digest, sizeof p->digest);
    m->round_id = tacit_field_of(c->terms.round.round_id, ROUND_ID_BYTES);
    m->evaluation_loss = c->score.loss;
    m->evaluation_accuracy = c->score.accuracy;
    m->epsilon_server = views.epsilon_server;
    m->epsilon_published = views.epsilon_published;
    m->delta = c->schedule->delta;
    m->epsilon_rule = p->rule;
    return TACIT_OK;
}

static tacit_status sign_manifest(publication *p, tacit_error *err)
{
    tacit_status status = tacit_message_pack(&p->manifest, TACIT_MESSAGE_ENTRY_MAX,
                                             &p->row.manifest, &p->row.manifest_size, err);
    if (status != TACIT_OK)
        return status;
    p->row.version = p->manifest.version;
    p->row.parent_version = p->manifest.parent_version;
    p->row.published_ms = tacit_clock_wall_ms();
    memcpy(p->row.lineage, p->closing->terms.round.lineage, LINEAGE_BYTES);
    memcpy(p->row.file_digest, p->digest, TACIT_DIGEST_BYTES);
    return tacit_identity_sign(p->closing->server->key, TACIT_MANIFEST_DOMAIN, p->row.manifest,
                               p->row.manifest_size, p->row.signature, err);
}

static tacit_status publish_job(void *ctx, tacit_error *err)
{
    publication *p = ctx;
    server *s = p->closing->server;
    Tacit__AdapterPublished body = TACIT__ADAPTER_PUBLISHED__INIT;
    Tacit__Entry entry = TACIT__ENTRY__INIT;
    const round_row *round = &p->closing->terms.round;
    body.manifest = tacit_field_of(p->row.manifest, p->row.manifest_size);
    body.signature = tacit_field_of(p->row.signature, TACIT_SIGNATURE_BYTES);
    entry.body_case = TACIT__ENTRY__BODY_PUBLISHED;
    entry.published = &body;
    tacit_status status = tacit_ledger_record(s->ledger, &entry, &p->row.entry_index, NULL, err);
    if (status == TACIT_OK)
        status = registry_insert(s->db, &p->row, err);
    if (status == TACIT_OK && isfinite(p->closing->score.accuracy))
        status = round_set_evaluation(s->db, round->round_id, p->closing->score.loss,
                                      p->closing->score.accuracy, err);
    return status == TACIT_OK ? log_close(p->closing, true, "", err) : status;
}

static void announce_publication(const publication *p)
{
    const closing *c = p->closing;
    char lineage[2 * LINEAGE_BYTES + 1];
    round_row now = c->terms.round;
    now.state = ROUND_PUBLISHED;
    now.accuracy = c->score.accuracy;
    now.loss = c->score.loss;
    round_announce(c->server, &now);
    tacit_hex(lineage, now.lineage, LINEAGE_BYTES);
    server_events_add(c->server->events,
                      json_pack("{s:s, s:s, s:I, s:I, s:o}", "kind", "adapter", "lineage", lineage,
                                "round", (json_int_t)now.index + 1, "version",
                                (json_int_t)p->manifest.version, "epsilon",
                                server_json_number(p->manifest.epsilon_published)));
    announce_end(c);
    tacit_log_info("published adapter version %llu after round %u: accuracy %.4f, loss %.4f, "
                   "epsilon %.4f (%s), against the server %.4f, at delta %g",
                   (unsigned long long)p->manifest.version, c->terms.round.index + 1,
                   c->score.accuracy, c->score.loss, p->manifest.epsilon_published, p->rule,
                   p->manifest.epsilon_server, p->manifest.delta);
}

static tacit_status publish(closing *c, tacit_error *err)
{
    publication p = {.closing = c, .manifest = TACIT__ADAPTER_MANIFEST__INIT};
    tacit_status status = name_by_digest(c, p.digest, &p.manifest.file_bytes, err);
    if (status == TACIT_OK)
        status = fill_manifest(&p, err);
    if (status == TACIT_OK)
        status = sign_manifest(&p, err);
    if (status == TACIT_OK)
        status = writer_run(c->server->writer, publish_job, NULL, &p, err);
    if (status == TACIT_OK)
        announce_publication(&p);
    registry_row_free(&p.row);
    return status;
}

tacit_status round_evaluate(server *s, const round_row *round, const atomic_bool *stop,
                            tacit_error *err)
{
    closing c = {.server = s};
    memcpy(c.terms.round.round_id, round->round_id, ROUND_ID_BYTES);
    tacit_status status;
    TACIT_TRY(writer_run(s->writer, load_round, NULL, &c, err), done);
    TACIT_TRY(candidate_path(&c, err), done);
    TACIT_TRY(score(&c, stop, err), done);
    tacit_kill_point("server.evaluated");
    if (s->config.gate_data && !gate_passes(&c.parent_score, &c.score, s->config.gate_margin)) {
        tacit_log_warn("round %u: accuracy %.4f after %.4f, loss %.4f after %.4f: not published",
                       round->index + 1, c.score.accuracy, c.parent_score.accuracy, c.score.loss,
                       c.parent_score.loss);
        status = fail_round(&c, "gate", err);
    } else {
        TACIT_TRY(publish(&c, err), done);
        tacit_kill_point("server.published");
        round_sweep(s);
    }
done:
    closing_free(&c);
    return status;
}
