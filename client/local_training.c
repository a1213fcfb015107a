#include "client/local_training.h"

#include "common/killpoint.h"
#include "common/memory_limit.h"
#include "common/secret.h"
#include "engine/adapter.h"
#include "engine/training_checkpoint.h"
#include "privacy/release.h"

#include <math.h>
#include <sodium.h>
#include <stdlib.h>
#include <string.h>

enum { UNITS_AT_ONCE = 16 };
#define FEWER "a plan of fewer values needs less"

typedef struct training {
    const training_job *job;
    tacit_trainer *trainer;
    tacit_optimizer optimizer;
    tacit_dp *dp;                        /* NULL with the device unit */
    float *parent, *mean;                /* mean: what the optimizer gets */
    tacit_gradient_sink take_unit;       /* the unit's gradient */
    training_place place;                /* whole steps taken, clip norm of the next one */
    uint32_t steps;                      /* of the plan */
    uint8_t seed[TACIT_TREE_SEED_BYTES]; /* of the round's tree noise; zeros for other mechanisms */
    /* Of the step that runs, for the local log. */
    double loss;
    size_t drawn, units, finite;
    tacit_error *err;
} training;

/* --- one step --- */

/* For the local log alone. */
static void note_unit(training *t, double loss)
{
    t->units++;
    if (isfinite(loss)) {
        t->loss += loss;
        t->finite++;
    }
}

/* The engine's sink of noised steps. Privacy counts a gradient that is not finite as zero. */
static tacit_status add_gradient(void *ctx, size_t unit, const float *grad, double loss)
{
    training *t = ctx;
    (void)unit;
    note_unit(t, loss);
    return tacit_dp_add(t->dp, grad, t->err);
}

/* The engine's sink of local steps: the device is the one unit. Not finite is zero here, too. */
static tacit_status keep_gradient(void *ctx, size_t unit, const float *grad, double loss)
{
    training *t = ctx;
    bool finite = true;
    (void)unit;
    note_unit(t, loss);
    for (size_t i = 0; i < t->job->values; i++)
        finite &= isfinite(grad[i]) != 0;
    if (finite)
        memcpy(t->mean, grad, t->job->values * sizeof *grad);
    return TACIT_OK;
}

/* Units that contribute nothing are added all the same: every drawn unit is, once. */
static tacit_status add_zeros(training *t, size_t n)
{
    tacit_status status = TACIT_OK;
    for (size_t i = 0; i < n && status == TACIT_OK; i++)
        status = tacit_dp_add(t->dp, NULL, t->err);
    return status;
}

typedef struct unit_batch {
    snapshot_examples examples[UNITS_AT_ONCE];
    tacit_unit unit[UNITS_AT_ONCE];
    size_t n_units, n_taken; /* taken: with those that have no example */
} unit_batch;

static void batch_release(unit_batch *b)
{
    for (size_t i = 0; i < b->n_units; i++)
        snapshot_release(&b->examples[i]);
}

/* Leaves out examples that the trainer would refuse, so that none can end a step. */
static void keep_trainable(training *t, snapshot_examples *e)
{
    size_t kept = 0;
    for (size_t i = 0; i < e->count; i++)
        if (tacit_trainer_check(t->trainer, e->example[i], NULL) == TACIT_OK)
            e->example[kept++] = e->example[i];
    e->count = kept;
}

/* Takes as many units as there is memory for, one at least: the rest is for the next batch. */
static tacit_status batch_prepare(training *t, unit_batch *b, const size_t *drawn, size_t n)
{
    const training_job *job = t->job;
    *b = (unit_batch){.n_units = 0};
    for (; b->n_taken < n; b->n_taken++) {
        snapshot_examples *e = &b->examples[b->n_units];
        tacit_status status = snapshot_prepare(job->snapshot, drawn[b->n_taken],
                                               job->mechanism->unit_examples, e, t->err);
        if (status == TACIT_NO_MEMORY && b->n_units)
            return TACIT_OK;
        if (status != TACIT_OK)
            return status;
        keep_trainable(t, e);
        if (e->count)
            b->unit[b->n_units++] = (tacit_unit){e->example, e->count};
        else
            snapshot_release(e);
    }
    return TACIT_OK;
}

/* A unit that fails counts as zero and changes nothing for the others: after a failure those that
 * are left run one by one. */
static void run_units(training *t, const unit_batch *b)
{
    size_t before = t->units;
    tacit_error why = {0};
    if (tacit_trainer_grads(t->trainer, b->unit, b->n_units, t->take_unit, t, &why) == TACIT_OK)
        return;
    for (size_t i = t->units - before; i < b->n_units; i++)
        if (tacit_trainer_grads(t->trainer, &b->unit[i], 1, t->take_unit, t, &why) != TACIT_OK)
            local_log_add(t->job->log, "gradient: %s; the unit counts as zero", why.message);
}

static tacit_status run_batch(training *t, const size_t *drawn, size_t n, size_t *taken)
{
    unit_batch b;
    size_t before = t->units;
    tacit_status status = batch_prepare(t, &b, drawn, n);
    *taken = b.n_taken;
    if (status == TACIT_OK && b.n_units)
        run_units(t, &b);
    if (status == TACIT_OK)
        status = add_zeros(t, b.n_taken - (t->units - before));
    batch_release(&b);
    return status;
}

/* Canaries are the units behind those of the data, `first` on. */
static tacit_status run_canaries(training *t, size_t first, const size_t *drawn, size_t n)
{
    tacit_status status = TACIT_OK;
    for (size_t i = 0; i < n && status == TACIT_OK; i++)
        status =
            tacit_dp_add(t->dp, canary_set_gradient(t->job->canaries, drawn[i] - first), t->err);
    return status;
}

static tacit_status noised_step(training *t)
{
    const size_t *drawn;
    size_t all, n, taken = 0, units = snapshot_units(t->job->snapshot);
    tacit_status status = tacit_dp_begin_step(t->dp, units + canary_set_units(t->job->canaries),
                                              &drawn, &all, t->err);
    if (status != TACIT_OK)
        return status;
    for (n = all; n && drawn[n - 1] >= units; n--)
        continue;
    t->drawn = n;
    for (size_t i = 0; i < n && status == TACIT_OK; i += taken)
        status = run_batch(t, drawn + i, n - i < UNITS_AT_ONCE ? n - i : UNITS_AT_ONCE, &taken);
    if (status == TACIT_OK)
        status = run_canaries(t, units, drawn + n, all - n);
    if (status == TACIT_OK)
        status = tacit_dp_end_step(t->dp, t->mean, t->err);
    if (status == TACIT_OK && t->job->canaries)
        canary_set_observe(t->job->canaries, t->mean); /* noised: never a local step's mean */
    return status;
}

/* A gradient of zero unless the device has examples and theirs is finite. */
static tacit_status local_step(training *t)
{
    static const size_t whole = 0;
    unit_batch b = {.n_units = 0};
    tacit_status status = TACIT_OK;
    memset(t->mean, 0, t->job->values * sizeof *t->mean);
    t->drawn = snapshot_units(t->job->snapshot); /* one, or none */
    if (t->drawn)
        status = batch_prepare(t, &b, &whole, 1);
    if (status == TACIT_OK && b.n_units)
        run_units(t, &b);
    batch_release(&b);
    return status;
}

static double mean_loss(const training *t)
{
    return t->finite ? t->loss / (double)t->finite : 0;
}

static tacit_status run_step(training *t)
{
    t->loss = 0;
    t->drawn = t->units = t->finite = 0;
    tacit_status status = t->job->local_steps ? local_step(t) : noised_step(t);
    if (status != TACIT_OK)
        return status;
    const tacit_optimizer_spec *o = t->job->optimizer;
    const tacit_rate_schedule rate = {o->rate, o->warmup, t->steps};
    tacit_optimizer_step(&t->optimizer, tacit_trainer_values(t->trainer), t->mean,
                         tacit_rate_at(&rate, t->place.steps_done));
    local_log_add(t->job->log,
                  "step %u: %zu units drawn, %zu with a gradient, mean loss %.6g, clip %.6g",
                  t->place.steps_done + 1, t->drawn, t->units, mean_loss(t), t->place.clip_norm);
    t->place.steps_done++;
    if (t->dp)
        t->place.clip_norm = tacit_dp_clip_norm(t->dp);
    return TACIT_OK;
}

/* --- begin and end --- */

static tacit_status load_parent(training *t)
{
    const training_job *job = t->job;
    float *values = tacit_trainer_values(t->trainer);
    size_t found = tacit_trainer_layout(t->trainer)->values;
    if (found != job->values)
        return tacit_fail(t->err, TACIT_REFUSED,
                          "plan trains %zu values, its adapter has %zu on this base", job->values,
                          found);
    if (job->parent) {
        tacit_status status =
            tacit_adapter_read_values(job->parent, job->model, job->spec, values, t->err);
        if (status != TACIT_OK)
            return status;
    }
    t->parent = malloc(found * sizeof *t->parent);
    t->mean = malloc(found * sizeof *t->mean);
    if (!t->parent || !t->mean)
        return tacit_memory_fail(2 * found * sizeof *t->parent, "where the training starts", FEWER,
                                 t->err);
    memcpy(t->parent, values, found * sizeof *t->parent);
    return TACIT_OK;
}

static bool has_tree(const training_job *job)
{
    return job->mechanism->kind == TACIT_MECHANISM_TREE_GAUSSIAN;
}

/* Beside the values: the seed of tree noise, or the canaries, of which there are none with it. */
static tacit_status keep(training *t)
{
    const training_job *job = t->job;
    tacit_buffer beside = {.cap = 0};
    tacit_status status = has_tree(job) ? tacit_buffer_append(&beside, t->seed, sizeof t->seed)
                                        : canary_set_save(job->canaries, &beside, t->err);
    if (status == TACIT_OK)
        status = training_checkpoint_write(job->checkpoint, job->plan_hash, t->place,
                                           tacit_trainer_values(t->trainer), &t->optimizer,
                                           (tacit_span){beside.data, beside.size}, t->err);
    else if (has_tree(job))
        status = tacit_fail(t->err, status, "training: no memory for a checkpoint");
    if (beside.data)
        sodium_memzero(beside.data, beside.size);
    tacit_buffer_free(&beside);
    return status;
}

static tacit_status restore_beside(training *t, tacit_span beside)
{
    const training_job *job = t->job;
    if (!has_tree(job))
        return canary_set_restore(job->canaries, beside, job->checkpoint, t->err);
    if (beside.size != sizeof t->seed)
        return tacit_fail(t->err, TACIT_INTEGRITY,
                          "%s: expected the seed of tree noise, found %zu bytes", job->checkpoint,
                          beside.size);
    memcpy(t->seed, beside.data, sizeof t->seed);
    return TACIT_OK;
}

/* Tree noise has a seed from before the first step on: a restart goes on with the same nodes. */
static tacit_status begin_anew(training *t)
{
    const training_job *job = t->job;
    if (!has_tree(job))
        return TACIT_OK;
    tacit_status status = tacit_dp_tree_seed(t->seed, job->nonce, job->test_seed, t->err);
    return status == TACIT_OK ? keep(t) : status;
}

static tacit_status resume(training *t)
{
    const training_job *job = t->job;
    tacit_buffer beside = {.cap = 0};
    bool found;
    tacit_status status = training_checkpoint_read(job->checkpoint, job->plan_hash, &t->place,
                                                   tacit_trainer_values(t->trainer), &t->optimizer,
                                                   &beside, &found, t->err);
    if (status == TACIT_OK)
        status = found ? restore_beside(t, (tacit_span){beside.data, beside.size}) : begin_anew(t);
    if (status == TACIT_OK && t->place.steps_done > t->steps)
        status = tacit_fail(t->err, TACIT_INTEGRITY, "%s: it has more steps than the plan",
                            job->checkpoint);
    if (status == TACIT_OK && job->mechanism->quantile_b == 0 &&
        t->place.clip_norm != job->mechanism->clip_norm)
        status =
            tacit_fail(t->err, TACIT_INTEGRITY, "%s: expected the plan's clip norm %g, found %g",
                       job->checkpoint, job->mechanism->clip_norm, t->place.clip_norm);
    if (beside.data)
        sodium_memzero(beside.data, beside.size);
    tacit_buffer_free(&beside);
    return status;
}

static tacit_status begin(training *t)
{
    const training_job *job = t->job;
    size_t rows = tacit_model_context_length(job->model);
    tacit_status status;
    if (job->max_rows < rows)
        rows = job->max_rows;
    t->steps = job->local_steps ? job->local_steps : job->mechanism->steps;
    t->take_unit = job->local_steps ? keep_gradient : add_gradient;
    const tacit_training whole = {.spec = job->spec,
                                  .optimizer = job->optimizer,
                                  .max_rows = rows,
                                  .beside = LOCAL_TRAINING_VALUE_BYTES};
    TACIT_TRY(tacit_training_check(job->model, &whole, job->pool, t->err), done);
    TACIT_TRY(tacit_trainer_new(&t->trainer, job->model, job->spec, rows, job->pool, t->err), done);
    TACIT_TRY(load_parent(t), done);
    TACIT_TRY(tacit_optimizer_init(&t->optimizer, job->optimizer, job->values, t->err), done);
    TACIT_TRY(resume(t), done);
done:
    return status;
}

/* Which step a unit enters follows from who it is and the plan. */
static tacit_status set_tree(training *t)
{
    const training_job *job = t->job;
    size_t n = snapshot_units(job->snapshot);
    uint64_t *tags = malloc((n + 1) * sizeof *tags);
    if (!tags)
        return tacit_fail(t->err, TACIT_NO_MEMORY, "training: no memory for %zu units", n);
    for (size_t i = 0; i < n; i++)
        tags[i] = snapshot_unit_tag(job->snapshot, i, job->plan_hash);
    tacit_status status = tacit_dp_set_tree(t->dp, t->seed, t->place.steps_done, tags, n, t->err);
    tacit_wipe_free(tags);
    return status;
}

/* The steps that are left, and no more: privacy's own count is of this run. Tree noise has a place
 * for every step of the plan. */
static tacit_status begin_steps(training *t)
{
    tacit_mechanism left = *t->job->mechanism;
    bool tree = has_tree(t->job);
    left.steps -= tree ? 0 : t->place.steps_done;
    left.clip_norm = t->place.clip_norm;
    tacit_status status =
        tacit_dp_new(&t->dp, &left, t->job->values, t->job->nonce, t->job->test_seed, t->err);
    return status == TACIT_OK && tree ? set_tree(t) : status;
}

static tacit_status run_steps(training *t)
{
    const training_job *job = t->job;
    bool noised = !job->local_steps && t->place.steps_done < t->steps;
    tacit_status status = noised ? begin_steps(t) : TACIT_OK;
    while (status == TACIT_OK && t->place.steps_done < t->steps) {
        if (job->stop && *job->stop)
            return tacit_fail(t->err, TACIT_AGAIN, "training was interrupted after step %u of %u",
                              t->place.steps_done, t->steps);
        training_progress at = {.clip_norm = job->local_steps ? 0 : t->place.clip_norm};
        status = run_step(t);
        if (status == TACIT_OK)
            status = keep(t);
        if (status == TACIT_OK && job->progress) {
            at.step = t->place.steps_done;
            at.steps = t->steps;
            at.drawn = t->drawn;
            at.gradients = t->units;
            at.clipped = t->dp ? tacit_dp_clipped(t->dp) : 0;
            at.loss = mean_loss(t);
            job->progress(job->ctx, &at);
        }
        if (status == TACIT_OK)
            tacit_kill_point("client.mid_training");
    }
    return status;
}

/* From here on the values are where the device started plus what it releases: nothing of what it
 * learned without noise goes further. */
static tacit_status release_whole(training *t, training_result *out)
{
    const training_job *job = t->job;
    float *values = tacit_trainer_values(t->trainer), *delta = t->mean;
    double scale = tacit_release_scale(job->mechanism);
    out->release = malloc(job->values * sizeof *out->release);
    if (!out->release)
        return tacit_memory_fail(job->values * sizeof *out->release, "the release", FEWER, t->err);
    for (size_t i = 0; i < job->values; i++)
        delta[i] = values[i] - t->parent[i];
    tacit_status status = tacit_release_make(out->release, delta, job->values, job->mechanism,
                                             job->nonce, job->test_seed, t->err);
    for (size_t i = 0; i < job->values && status == TACIT_OK; i++)
        values[i] = (float)((double)t->parent[i] + (double)out->release[i] / scale);
    return status;
}

static tacit_status take_result(training *t, training_result *out)
{
    tacit_status status = TACIT_OK;
    if (tacit_mechanism_releases_whole(t->job->mechanism))
        status = release_whole(t, out);
    if (status != TACIT_OK)
        return status;
    out->trained = malloc(t->job->values * sizeof *out->trained);
    if (!out->trained)
        return tacit_memory_fail(t->job->values * sizeof *out->trained, "the result", FEWER,
                                 t->err);
    memcpy(out->trained, tacit_trainer_values(t->trainer), t->job->values * sizeof *out->trained);
    out->parent = t->parent;
    t->parent = NULL;
    return TACIT_OK;
}

tacit_status local_training_run(const training_job *job, training_result *out, tacit_error *err)
{
    training t = {.job = job, .place.clip_norm = job->mechanism->clip_norm, .err = err};
    *out = (training_result){0};
    if (job->test_seed && !job->insecure)
        return tacit_fail(err, TACIT_REFUSED,
                          "training: a test seed is set and the reserve does not say insecure");
    tacit_status status = begin(&t);
    if (status == TACIT_OK)
        status = run_steps(&t);
    if (status == TACIT_OK)
        status = take_result(&t, out);
    sodium_memzero(t.seed, sizeof t.seed);
    tacit_dp_free(t.dp);
    tacit_optimizer_fini(&t.optimizer);
    tacit_trainer_free(t.trainer);
    free(t.parent);
    tacit_wipe_free(t.mean);
    return status;
}

void training_result_free(training_result *r)
{
    free(r->parent);
    tacit_wipe_free(r->trained);
    tacit_wipe_free(r->release);
    *r = (training_result){0};
}
