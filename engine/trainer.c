/* A unit's examples are dealt to lanes: example i belongs to lane i modulo their number, which
 * depends on the model and the unit's size alone. A lane's gradient is summed in the order of its
 * examples and a unit's in the order of its lanes, so its bits depend on the unit alone. Where
 * weights are plain fp32 and a workspace is small, lanes run side by side, each thread with a
 * workspace of its own. Otherwise examples that fit into one workspace go through the layers
 * together, so that a dequantized layer serves them all, and the pool works inside the products. */
#include "engine/trainer.h"

#include "common/memory_limit.h"
#include "common/secret.h"
#include "engine/layout.h"
#include "engine/model_parts.h"
#include "engine/ops.h"
#include "engine/soft_prompt.h"
#include "engine/train_memory.h"
#include "engine/train_values.h"
#include "engine/train_worker.h"

#include <stdlib.h>
#include <string.h>

#define SMALLER "train fewer values"

/* One lane of one unit. */
typedef struct train_lane {
    const tacit_unit *unit;
    size_t unit_index, first, step; /* examples first, first + step, ... */
    float *grad;
    double loss; /* sum over the lane's examples */
    double last; /* of the example at hand */
    tacit_status status;
    tacit_error err;
} train_lane;

struct tacit_trainer {
    tacit_trainable_spec spec;
    tacit_layout layout;
    tacit_pool *pool;
    lora_sites sites;     /* of a LoRA layout */
    tacit_low_rank *pair; /* of each */
    train_pair *place;
    float *values, *frozen;
    tacit_text_model bound; /* over the values, when the text model is trained */
    train_plan plan;
    train_setup setup;
    train_way way;
    train_worker **worker;
    size_t n_workers;
    train_lane *lane; /* [way.n_lanes] */
    size_t n_filled;
    float *grads; /* [way.n_lanes, layout.values] */
};

bool tacit_training_encodes(const tacit_model *model, const tacit_trainable_spec *spec)
{
    lora_sites sites;
    tacit_error none;
    if (!layout_is_adapter(spec->kind))
        return model->n_encoders > 0;
    if (!layout_is_lora(spec->kind))
        return false;
    if (lora_sites_of(&sites, model, spec, &none) != TACIT_OK)
        return false;
    bool encodes = sites.encoders;
    lora_sites_free(&sites);
    return encodes;
}

tacit_status tacit_training_prepend(const tacit_model *model, const tacit_trainable_spec *spec,
                                    tacit_input *example, tacit_error *err)
{
    soft_prompt prompt[SOFT_PROMPTS];
    soft_prompt_of_spec(prompt, spec);
    return soft_prompt_insert(example, prompt, model->text.embedding, NULL, err);
}

/* ---- construction ---- */

static tacit_status make_values(tacit_trainer *t, const tacit_model *model, tacit_error *err)
{
    size_t n_encoder = layout_is_adapter(t->spec.kind)
                           ? 0
                           : encoder_entries(model, t->spec.kind == TACIT_TRAIN_ALL, NULL);
    const tacit_trainable_entry *encoder = t->layout.entry + t->layout.count - n_encoder;
    t->values = calloc(t->layout.values, sizeof *t->values);
    if (!t->values)
        return tacit_memory_fail(t->layout.values * sizeof *t->values, "the values to train",
                                 SMALLER, err);
    t->setup.n_encoder = n_encoder;
    t->setup.encoder = n_encoder ? encoder : NULL;
    if (layout_is_lora(t->spec.kind))
        return train_values_lora(t->values, &t->frozen, &t->sites, &t->layout, &t->spec, err);
    if (t->spec.kind == TACIT_TRAIN_PROMPT) {
        train_values_prompts(t->values, model, &t->layout, &t->spec);
        return TACIT_OK;
    }
    tacit_status status = encoder_initial_values(model, encoder, n_encoder, t->values, err);
    if (status == TACIT_OK && t->spec.kind == TACIT_TRAIN_ALL)
        status = train_values_text(t->values, model, &t->layout, err);
    return status;
}

static tacit_status bind_pairs(tacit_trainer *t, tacit_error *err)
{
    t->pair = calloc(t->sites.count, sizeof *t->pair);
    t->place = calloc(t->sites.count, sizeof *t->place);
    if (!t->pair || !t->place)
        return tacit_fail(err, TACIT_NO_MEMORY, "trainer: no memory for the adapter's pairs");
    train_values_pairs(t->pair, &t->sites, &t->layout, t->spec.kind, t->values, t->frozen);
    train_plan_places(t->place, &t->sites, &t->layout, t->spec.kind);
    t->setup.sites = &t->sites;
    t->setup.pair = t->pair;
    t->setup.place = t->place;
    return train_plan_bind_pairs(&t->plan, &t->sites, t->pair, err);
}

static tacit_status make_plan(tacit_trainer *t, const tacit_model *model, tacit_error *err)
{
    tacit_status status = TACIT_OK;
    const tacit_text_model *text = &model->text;
    if (t->spec.kind == TACIT_TRAIN_ALL) {
        TACIT_TRY(train_model_bind(&t->bound, model, &t->layout, t->values, err), out);
        text = &t->bound;
    }
    TACIT_TRY(train_plan_new(&t->plan, text, err), out);
    train_plan_bind(&t->plan, &t->layout);
    if (layout_is_lora(t->spec.kind))
        TACIT_TRY(bind_pairs(t, err), out);
    t->plan.input_gradient = !layout_is_lora(t->spec.kind) || t->sites.encoders;
    train_plan_close(&t->plan);
out:
    return status;
}

static const tacit_trainable_entry *prompt_entry(const tacit_trainer *t, size_t place)
{
    size_t i = layout_find(&t->layout, soft_prompt_name((soft_prompt_place)place));
    return i < t->layout.count ? &t->layout.entry[i] : NULL;
}

static tacit_status make_workers(tacit_trainer *t, tacit_error *err)
{
    tacit_status status = TACIT_OK;
    tacit_pool *pool = t->way.side_by_side ? NULL : t->pool;
    t->worker = calloc(t->way.workers, sizeof(train_worker *));
    if (!t->worker)
        return tacit_fail(err, TACIT_NO_MEMORY, "trainer: no memory");
    for (size_t i = 0; i < t->way.workers && status == TACIT_OK; i++) {
        status = train_worker_new(&t->worker[i], &t->setup, pool, err);
        t->n_workers += status == TACIT_OK;
    }
    return status;
}

static tacit_status make_lanes(tacit_trainer *t, tacit_error *err)
{
    size_t n = t->way.n_lanes, bytes = n * t->layout.values * sizeof *t->grads;
    t->lane = calloc(n, sizeof *t->lane);
    t->grads = malloc(bytes);
    if (!t->lane || !t->grads)
        return tacit_memory_fail(bytes, "the gradients of units in flight", SMALLER, err);
    for (size_t i = 0; i < n; i++)
        t->lane[i].grad = t->grads + i * t->layout.values;
    return TACIT_OK;
}

tacit_status tacit_trainer_new(tacit_trainer **out, const tacit_model *model,
                               const tacit_trainable_spec *spec, size_t max_rows, tacit_pool *pool,
                               tacit_error *err)
{
    tacit_status status = TACIT_OK;
    if (max_rows < 1 || max_rows > model->text.context_length)
        return tacit_fail(err, TACIT_USAGE, "trainer: %zu rows; expected 1 to %zu", max_rows,
                          model->text.context_length);
    const tacit_training training = {.spec = spec, .max_rows = max_rows};
    status = tacit_training_check(model, &training, pool, err);
    if (status != TACIT_OK)
        return status;
    tacit_trainer *t = calloc(1, sizeof *t);
    if (!t)
        return tacit_fail(err, TACIT_NO_MEMORY, "trainer: no memory");
    t->spec = *spec;
    t->pool = pool;
    TACIT_TRY(tacit_layout_make(&t->layout, model, spec, err), fail);
    if (layout_is_lora(spec->kind))
        TACIT_TRY(lora_sites_of(&t->sites, model, spec, err), fail);
    TACIT_TRY(make_values(t, model, err), fail);
    TACIT_TRY(make_plan(t, model, err), fail);
    t->setup.model = model;
    t->setup.plan = &t->plan;
    t->setup.values = t->values;
    t->setup.tower = spec->kind == TACIT_TRAIN_ALL;
    for (size_t k = 0; k < SOFT_PROMPTS; k++)
        t->setup.prompt[k] = spec->kind == TACIT_TRAIN_PROMPT ? prompt_entry(t, k) : NULL;
    t->setup.max_rows = max_rows;
    t->way = train_way_of(&t->plan, t->layout.values, max_rows, tacit_pool_threads(pool));
    TACIT_TRY(make_workers(t, err), fail);
    TACIT_TRY(make_lanes(t, err), fail);
    *out = t;
    return TACIT_OK;
fail:
    tacit_trainer_free(t);
    return status;
}

void tacit_trainer_free(tacit_trainer *t)
{
    if (!t)
        return;
    for (size_t i = 0; i < t->n_workers; i++)
        train_worker_free(t->worker[i]);
    free(t->worker);
    free(t->lane);
    tacit_wipe_free(t->grads); /* of the last units, without noise */
    train_plan_free(&t->plan);
    train_model_unbind(&t->bound);
    tacit_wipe_free(t->values);
    free(t->frozen);
    free(t->pair);
    free(t->place);
    lora_sites_free(&t->sites);
    tacit_layout_free(&t->layout);
    free(t);
}

const tacit_layout *tacit_trainer_layout(const tacit_trainer *t)
{
    return &t->layout;
}

float *tacit_trainer_values(tacit_trainer *t)
{
    return t->values;
}

/* ---- gradients ---- */

static size_t lanes_of(const tacit_trainer *t, const tacit_unit *unit)
{
    size_t n = unit->n_examples < t->way.lanes_of_unit ? unit->n_examples : t->way.lanes_of_unit;
    return n > 0 ? n : 1;
}

static train_job job_of(train_lane *lane, size_t example)
{
    return (train_job){.example = lane->unit->example[example],
                       .gradient_scale = 1.0f / (float)lane->unit->n_examples,
                       .grad = lane->grad,
                       .loss = &lane->last};
}

static void start_lane(const tacit_trainer *t, train_lane *lane)
{
    memset(lane->grad, 0, t->layout.values * sizeof *lane->grad);
    lane->loss = 0;
    lane->status = TACIT_OK;
}

static void fail_lane(train_lane *lane, tacit_status status, size_t example)
{
    lane->status = status;
    tacit_fail_context(&lane->err, "unit %zu, example %zu", lane->unit_index, example);
}

static void run_lane(void *ctx, size_t i, size_t thread)
{
    tacit_trainer *t = ctx;
    train_lane *lane = &t->lane[i];
    start_lane(t, lane);
    for (size_t k = lane->first; k < lane->unit->n_examples; k += lane->step) {
        train_job job = job_of(lane, k);
        size_t failed;
        tacit_status status = train_worker_run(t->worker[thread], &job, 1, &failed, &lane->err);
        if (status != TACIT_OK) {
            fail_lane(lane, status, k);
            return;
        }
        lane->loss += lane->last;
    }
}

/* Jobs that wait to go through the layers together. */
typedef struct train_group {
    train_job job[TRAIN_JOBS_MAX];
    train_lane *lane[TRAIN_JOBS_MAX];
    size_t example[TRAIN_JOBS_MAX];
    double loss[TRAIN_JOBS_MAX];
    size_t count, rows;
} train_group;

/* None of the group's jobs was done: a unit before the failed one must not look finished. */
static void fail_group(const train_group *g, size_t failed, tacit_status status,
                       const tacit_error *err)
{
    train_lane *bad = g->lane[failed];
    bad->err = *err;
    fail_lane(bad, status, g->example[failed]);
    for (size_t i = 0; i < g->count; i++) {
        g->lane[i]->status = status;
        g->lane[i]->err = bad->err;
    }
}

static bool run_group(tacit_trainer *t, train_group *g)
{
    size_t failed = 0;
    tacit_error err;
    tacit_status status = train_worker_run(t->worker[0], g->job, g->count, &failed, &err);
    if (status != TACIT_OK) {
        fail_group(g, failed, status, &err);
        return false;
    }
    for (size_t i = 0; i < g->count; i++)
        g->lane[i]->loss += g->loss[i];
    g->count = g->rows = 0;
    return true;
}

static bool is_full(const tacit_trainer *t, const train_group *g, const tacit_input *next)
{
    return g->count > 0 &&
           (g->count == TRAIN_JOBS_MAX || g->rows + next->count > t->setup.max_rows ||
            !train_worker_runs_together(t->worker[0]));
}

/* Every lane in flight, in order; ends at the first failure. */
static void run_lanes_together(tacit_trainer *t)
{
    train_group g;
    g.count = g.rows = 0;
    for (size_t i = 0; i < t->n_filled; i++)
        start_lane(t, &t->lane[i]);
    for (size_t i = 0; i < t->n_filled; i++) {
        train_lane *lane = &t->lane[i];
        for (size_t k = lane->first; k < lane->unit->n_examples; k += lane->step) {
            if (is_full(t, &g, lane->unit->example[k]) && !run_group(t, &g))
                return;
            g.job[g.count] = job_of(lane, k);
            g.job[g.count].loss = &g.loss[g.count];
            g.lane[g.count] = lane;
            g.example[g.count++] = k;
            g.rows += lane->unit->example[k]->count;
        }
    }
    if (g.count > 0)
        run_group(t, &g);
}

static void set_lane(train_lane *lane, const tacit_unit *units, size_t unit, size_t first,
                     size_t step)
{
    lane->unit = &units[unit];
    lane->unit_index = unit;
    lane->first = first;
    lane->step = step;
}

static tacit_status lane_error(const train_lane *lane, tacit_error *err)
{
    if (err)
        *err = lane->err;
    return lane->status;
}

static double mean_loss(const tacit_unit *unit, double sum)
{
    return unit->n_examples ? sum / (double)unit->n_examples : 0;
}

/* Sums the lanes of each unit into its first and hands it on. */
static tacit_status deliver_units(tacit_trainer *t, tacit_gradient_sink sink, void *ctx,
                                  tacit_error *err)
{
    for (size_t at = 0; at < t->n_filled;) {
        train_lane *first = &t->lane[at];
        double sum = first->loss;
        if (first->status != TACIT_OK)
            return lane_error(first, err);
        for (size_t k = 1; k < first->step; k++) {
            train_lane *lane = &t->lane[at + k];
            if (lane->status != TACIT_OK)
                return lane_error(lane, err);
            ops_add(first->grad, lane->grad, t->layout.values);
            sum += lane->loss;
        }
        tacit_status status =
            sink(ctx, first->unit_index, first->grad, mean_loss(first->unit, sum));
        if (status != TACIT_OK)
            return tacit_fail(err, status, "unit %zu: the sink of gradients stopped",
                              first->unit_index);
        at += first->step;
    }
    return TACIT_OK;
}

tacit_status tacit_trainer_grads(tacit_trainer *t, const tacit_unit *units, size_t n,
                                 tacit_gradient_sink sink, void *ctx, tacit_error *err)
{
    for (size_t unit = 0; unit < n;) {
        t->n_filled = 0;
        while (unit < n && t->n_filled + lanes_of(t, &units[unit]) <= t->way.n_lanes) {
            size_t lanes = lanes_of(t, &units[unit]);
            for (size_t k = 0; k < lanes; k++)
                set_lane(&t->lane[t->n_filled++], units, unit, k, lanes);
            unit++;
        }
        if (t->way.side_by_side)
            tacit_pool_run(t->pool, t->n_filled, run_lane, t);
        else
            run_lanes_together(t);
        tacit_status status = deliver_units(t, sink, ctx, err);
        if (status != TACIT_OK)
            return status;
    }
    return TACIT_OK;
}

tacit_status tacit_trainer_loss(tacit_trainer *t, const tacit_input *example, double *loss,
                                tacit_error *err)
{
    size_t failed;
    train_job job = {.example = example, .loss = loss};
    return train_worker_run(t->worker[0], &job, 1, &failed, err);
}

tacit_status tacit_trainer_check(tacit_trainer *t, const tacit_input *example, tacit_error *err)
{
    return train_worker_check(t->worker[0], example, err);
}
