#include "client/round_training.h"

#include "client/reservation.h"
#include "client/update_seal.h"
#include "client/upload.h"
#include "common/clock.h"
#include "common/file.h"
#include "common/killpoint.h"
#include "common/log.h"
#include "common/memory_limit.h"

#include <sodium.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define EXAMPLE_MEMORY ((size_t)96 << 20)

/* Every step for short rounds, about twenty lines for long ones. */
static void report_step(void *ctx, const training_progress *at)
{
    (void)ctx;
    uint32_t every = at->steps <= 20 ? 1 : at->steps / 20;
    if (at->step % every == 0 || at->step == at->steps)
        tacit_log_info("training step %u of %u", at->step, at->steps);
}

static void folder_of(const char *path, char *out, size_t size)
{
    const char *slash = strrchr(path, '/');
    size_t n = slash ? (size_t)(slash - path) : 0;
    if (slash == path)
        n = 1;
    if (!slash || n >= size) {
        memcpy(out, ".", 2);
        return;
    }
    memcpy(out, path, n);
    out[n] = '\0';
}

typedef struct training_files {
    char snapshot[CLIENT_PATH_MAX], checkpoint[CLIENT_PATH_MAX], parent[CLIENT_PATH_MAX];
    char log[CLIENT_PATH_MAX], folder[CLIENT_PATH_MAX];
} training_files;

static tacit_status name_files(training_files *f, const client *c, const round_state *r,
                               const Tacit__Plan *plan, tacit_error *err)
{
    folder_of(c->config.data, f->folder, sizeof f->folder);
    tacit_status status = round_file(c, r, "jsonl", f->snapshot, err);
    if (status == TACIT_OK)
        status = round_file(c, r, "ckpt", f->checkpoint, err);
    if (status == TACIT_OK)
        status = client_path(c, f->log, NULL, "local.log", err);
    if (status == TACIT_OK && plan->parent_version)
        status = client_hex_path(c, f->parent, "adapters", plan->parent_digest.data,
                                 plan->parent_digest.len, "gguf", err);
    return status;
}

/* Of examples that are kept between steps, and as much of encoder rows: a quarter of what the
 * training leaves. Keeping fewer costs time and changes no result. */
static tacit_status example_memory(size_t *out, const tacit_model *model,
                                   const tacit_training *training, tacit_pool *pool,
                                   tacit_error *err)
{
    tacit_training_plan p;
    tacit_status status = tacit_training_plan_of(&p, model, training, pool, err);
    if (status != TACIT_OK)
        return status;
    uint64_t there = tacit_memory_available_beside(p.weights);
    uint64_t left = there > p.total ? (there - p.total) / 4 : 0;
    *out = left < EXAMPLE_MEMORY ? (size_t)left : EXAMPLE_MEMORY;
    return TACIT_OK;
}

static tacit_status open_snapshot(client_snapshot **out, const training_files *f,
                                  const checked_plan *plan, const tacit_model *model,
                                  tacit_pool *pool, local_log *log, tacit_error *err)
{
    const tacit_training training = plan_training(plan, model);
    size_t memory;
    tacit_status status = example_memory(&memory, model, &training, pool, err);
    if (status != TACIT_OK)
        return status;
    snapshot_setup setup = {.path = f->snapshot,
                            .media_folder = f->folder,
                            .model = model,
                            .pool = pool,
                            .unit = plan->mechanism.unit,
                            .max_rows = training.max_rows,
                            .memory = memory,
                            .encodes = tacit_training_encodes(model, training.spec),
                            .spec = training.spec,
                            .log = log};
    return snapshot_open(out, &setup, err);
}

tacit_status round_train(client *c, const round_state *r, const checked_plan *plan,
                         const tacit_model *model, const uint8_t *nonce, canary_set *canaries,
                         const round_watch *watch, training_result *out, tacit_error *err)
{
    tacit_pool *pool = NULL;
    client_snapshot *snapshot = NULL;
    local_log log = {-1};
    tacit_status status = TACIT_NO_MEMORY;
    training_files *f = calloc(1, sizeof *f);
    if (!f)
        return tacit_fail(err, TACIT_NO_MEMORY, "training: no memory");
    TACIT_TRY(name_files(f, c, r, plan->plan, err), done);
    local_log_open(&log, f->log);
    TACIT_TRY(tacit_pool_new(&pool, c->config.threads, err), done);
    TACIT_TRY(open_snapshot(&snapshot, f, plan, model, pool, &log, err), done);
    training_job job = {.model = model,
                        .pool = pool,
                        .mechanism = &plan->mechanism,
                        .local_steps = plan->plan->local_steps,
                        .spec = &plan->spec,
                        .optimizer = &plan->optimizer,
                        .values = plan->plan->trainable_values,
                        .parent = plan->plan->parent_version ? f->parent : NULL,
                        .max_rows = plan->plan->max_tokens,
                        .snapshot = snapshot,
                        .canaries = canaries,
                        .nonce = nonce,
                        .checkpoint = f->checkpoint,
                        .plan_hash = plan->plan_hash,
                        .stop = c->stop,
                        .log = &log,
                        .progress = watch ? watch->progress : report_step,
                        .ctx = watch ? watch->ctx : NULL};
    TACIT_TRY(local_training_run(&job, out, err), done);
done:
    snapshot_close(snapshot);
    tacit_pool_free(pool);
    local_log_close(&log);
    free(f);
    return status;
}

/* --- sealing --- */

typedef struct sealing {
    client *client;
    round_state *round;
    checked_plan plan;
    tacit_model *model;
    uint8_t layout_hash[TACIT_DIGEST_BYTES];
    uint8_t nonce[32];
    training_result result;
    tacit_buffer sealed;
} sealing;

static tacit_status prepare(sealing *s, tacit_error *err)
{
    const round_state *r = s->round;
    tacit_reservation reserved = {0};
    tacit_status status;
    TACIT_TRY(plan_open(&s->plan, (tacit_span){r->plan, r->plan_size},
                        (tacit_span){r->schedule, r->schedule_size}, err),
              done);
    TACIT_TRY(tacit_account_find(s->client->account, s->plan.plan_hash, &reserved, err), done);
    if (!reserved.acknowledged) {
        status = tacit_fail(err, TACIT_INTEGRITY,
                            "account: the log has not acknowledged this reserve; nothing is "
                            "trained before");
        goto done;
    }
    memcpy(s->nonce, reserved.nonce, sizeof s->nonce);
    TACIT_TRY(client_load_model(s->client, &s->model, err), done);
    TACIT_TRY(plan_check_layout(&s->plan, s->model, s->layout_hash, err), done);
done:
    tacit_reservation_free(&reserved);
    return status;
}

static tacit_status seal(sealing *s, tacit_error *err)
{
    const Tacit__Plan *plan = s->plan.plan;
    const client *c = s->client;
    update_terms terms = {.plan = plan,
                          .plan_hash = s->plan.plan_hash,
                          .reserve_hash = s->round->reserve_hash,
                          .device = c->enrolment.device,
                          .layout_hash = s->layout_hash,
                          .signer = c->identity};
    int32_t *values = malloc((size_t)plan->trainable_values * sizeof *values);
    if (!values)
        return tacit_fail(err, TACIT_NO_MEMORY, "update: no memory");
    if (s->result.release)
        update_fit(values, s->result.release, plan->trainable_values, plan->norm_bound,
                   plan->update_scale);
    else
        update_quantize(values, s->result.trained, s->result.parent, plan->trainable_values,
                        plan->norm_bound, plan->update_scale);
    tacit_status status = update_seal(&s->sealed, &terms, values, err);
    sodium_memzero(values, (size_t)plan->trainable_values * sizeof *values);
    free(values);
    return status;
}

/* The bytes first, then the signature over their digest: what is signed for exists. Bytes of an
 * earlier attempt without a signature are overwritten and were never sent. */
static tacit_status store(sealing *s, tacit_error *err)
{
    char path[CLIENT_PATH_MAX];
    client *c = s->client;
    round_state *r = s->round;
    tacit_reservation spend = {0};
    tacit_status status;
    TACIT_TRY(round_file(c, r, "sealed", path, err), done);
    TACIT_TRY(tacit_file_write(path, s->sealed.data, s->sealed.size, 0600, err), done);
    tacit_digest(r->sealed_digest, s->sealed.data, s->sealed.size);
    r->sealed_bytes = s->sealed.size;
    r->upload_ms = upload_time(r->reserved_ms, s->plan.plan->pad_seconds, tacit_clock_wall_ms());
    r->state = ROUND_SEALED;
    TACIT_TRY(tacit_database_begin(c->db, err), done);
    TACIT_TRY(tacit_account_spend(c->account, r->reserve_hash, r->sealed_digest, &spend, err),
              done);
    TACIT_TRY(round_state_update(c->db, r, err), done);
    TACIT_TRY(tacit_database_commit(c->db, err), done);
done:
    tacit_database_rollback(c->db);
    if (status != TACIT_OK)
        r->state = ROUND_ACKNOWLEDGED;
    tacit_reservation_free(&spend);
    return status;
}

static void drop_training_files(const client *c, const round_state *r)
{
    char path[CLIENT_PATH_MAX];
    if (round_file(c, r, "ckpt", path, NULL) == TACIT_OK)
        unlink(path);
    if (round_file(c, r, "jsonl", path, NULL) == TACIT_OK)
        unlink(path);
}

tacit_status round_train_and_seal(client *c, round_state *r, tacit_error *err)
{
    sealing s = {.client = c, .round = r};
    tacit_status status;
    TACIT_TRY(prepare(&s, err), done);
    TACIT_TRY(round_train(c, r, &s.plan, s.model, s.nonce, NULL, NULL, &s.result, err), done);
    tacit_kill_point("client.trained");
    TACIT_TRY(seal(&s, err), done);
    TACIT_TRY(store(&s, err), done);
    tacit_log_info("update sealed: %llu bytes", (unsigned long long)r->sealed_bytes);
    tacit_kill_point("client.sealed");
    drop_training_files(c, r);
done:
    sodium_memzero(s.nonce, sizeof s.nonce);
    training_result_free(&s.result);
    tacit_buffer_free(&s.sealed);
    tacit_model_free(s.model);
    checked_plan_free(&s.plan);
    return status;
}
