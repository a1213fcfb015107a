#include "engine/train_worker.h"

#include "common/memory_limit.h"
#include "common/secret.h"
#include "engine/kernels.h"
#include "engine/model_parts.h"
#include "engine/ops.h"

#include <stdlib.h>
#include <string.h>

struct train_worker {
    const train_setup *setup;
    text_train *text;
    text_place *place; /* [max_rows] each */
    size_t *predictor;
    int32_t *target;
    text_train_rows rows[TRAIN_JOBS_MAX]; /* of the jobs at hand that train something */
    double *loss[TRAIN_JOBS_MAX];
    size_t n_jobs, n_rows, n_predicted;
    encoder_train *encoder;
    size_t max_media;
    float **media_row; /* [max_media]: into `media` */
    float *media;      /* rows of the example's media, then their gradients */
    size_t media_floats;
};

tacit_status train_worker_new(train_worker **out, const train_setup *setup, tacit_pool *pool,
                              tacit_error *err)
{
    tacit_status status = TACIT_OK;
    text_train_options options = {.max_rows = setup->max_rows};
    train_worker *w = calloc(1, sizeof *w);
    if (!w)
        return tacit_fail(err, TACIT_NO_MEMORY, "trainer: no memory");
    w->setup = setup;
    w->place = calloc(setup->max_rows, sizeof *w->place);
    w->predictor = calloc(setup->max_rows, sizeof *w->predictor);
    w->target = calloc(setup->max_rows, sizeof *w->target);
    if (!w->place || !w->predictor || !w->target) {
        status =
            tacit_fail(err, TACIT_NO_MEMORY, "trainer: no memory for %zu rows", setup->max_rows);
        goto fail;
    }
    TACIT_TRY(encoder_train_new(&w->encoder, setup->model, setup->tower, setup->encoder,
                                setup->n_encoder, err),
              fail);
    if (setup->sites)
        TACIT_TRY(encoder_train_adapt(w->encoder, setup->sites, setup->pair, setup->place, err),
                  fail);
    TACIT_TRY(text_train_new(&w->text, setup->plan, &options, pool, err), fail);
    *out = w;
    return TACIT_OK;
fail:
    train_worker_free(w);
    return status;
}

void train_worker_free(train_worker *w)
{
    if (!w)
        return;
    text_train_free(w->text);
    encoder_train_free(w->encoder);
    free(w->place);
    free(w->predictor);
    tacit_wipe_free(w->target);
    free(w->media_row);
    tacit_wipe_free(w->media);
    free(w);
}

/* ---- checks ---- */

/* The trained prompt that a medium stands for, or NULL. */
static const tacit_trainable_entry *prompt_of(const train_setup *setup, const tacit_media *media)
{
    bool is_prompt = media->modality == TACIT_MODALITY_PROMPT && media->dim[0] < SOFT_PROMPTS;
    const tacit_trainable_entry *e = is_prompt ? setup->prompt[media->dim[0]] : NULL;
    return e && e->rows == media->n_rows ? e : NULL;
}

/* What is trained is predicted from a row before it. */
static tacit_status check_trained(const tacit_input *in, tacit_error *err)
{
    for (size_t i = 0; i < in->count; i++)
        if (in->row[i].trained && (in->row[i].modality != TACIT_MODALITY_TOKEN || i == 0))
            return tacit_fail(
                err, TACIT_BAD_INPUT,
                "row %zu is marked as trained; expected a token that follows another row", i);
    return TACIT_OK;
}

tacit_status train_worker_check(train_worker *w, const tacit_input *in, tacit_error *err)
{
    if (in->count > w->setup->max_rows)
        return tacit_fail(err, TACIT_BAD_INPUT,
                          "%zu rows; at most %zu were planned for: shorten the example", in->count,
                          w->setup->max_rows);
    for (size_t i = 0; i < in->n_media; i++) {
        if (prompt_of(w->setup, &in->media[i]))
            continue;
        tacit_status status = encoder_train_check(w->encoder, &in->media[i], err);
        if (status != TACIT_OK)
            return err ? tacit_fail_context(err, "medium %zu of the example", i) : status;
    }
    tacit_status status = text_rows_check(w->setup->plan->model, in->row, in->count, in->media,
                                          in->n_media, NULL, err);
    return status == TACIT_OK ? check_trained(in, err) : status;
}

/* ---- media ---- */

static tacit_status grow_places(train_worker *w, size_t n_media, tacit_error *err)
{
    if (n_media <= w->max_media)
        return TACIT_OK;
    float **grown = realloc(w->media_row, n_media * sizeof *grown);
    if (!grown)
        return tacit_fail(err, TACIT_NO_MEMORY, "trainer: no memory for %zu media", n_media);
    w->media_row = grown;
    w->max_media = n_media;
    return TACIT_OK;
}

/* Places for the rows of all media, one after the other. */
static tacit_status place_media(train_worker *w, const tacit_input *in, tacit_error *err)
{
    size_t width = w->setup->plan->model->embedding, rows = 0, floats;
    for (size_t i = 0; i < in->n_media; i++)
        if (!tacit_add_size(rows, in->media[i].n_rows, &rows))
            return tacit_fail(err, TACIT_BAD_INPUT, "media: too many rows");
    if (!tacit_mul_size(rows, width, &floats) || floats > SIZE_MAX / sizeof(float))
        return tacit_fail(err, TACIT_BAD_INPUT, "media: %zu rows are too many", rows);
    if (floats > w->media_floats) {
        void *grown;
        tacit_status status = tacit_memory_alloc(&grown, rows, width * sizeof *w->media,
                                                 "the rows of an example's media",
                                                 "give fewer or shorter media", err);
        if (status != TACIT_OK)
            return status;
        tacit_wipe_free(w->media);
        w->media = grown;
        w->media_floats = floats;
    }
    float *at = w->media;
    for (size_t i = 0; i < in->n_media; i++) {
        w->media_row[i] = at;
        at += in->media[i].n_rows * width;
    }
    return TACIT_OK;
}

/* Fills w->media_row: by the encoders, or from the example where they are frozen and it has cached
 * rows. */
static tacit_status encode_media(train_worker *w, const tacit_input *in, tacit_error *err)
{
    tacit_status status = grow_places(w, in->n_media, err);
    if (status == TACIT_OK)
        status = place_media(w, in, err);
    if (status == TACIT_OK)
        status = encoder_train_forward(w->encoder, w->setup->values, in->media, in->n_media,
                                       w->media_row, err);
    for (size_t i = 0; i < in->n_media && status == TACIT_OK; i++) {
        const tacit_trainable_entry *e = prompt_of(w->setup, &in->media[i]);
        if (e)
            memcpy(w->media_row[i], w->setup->values + e->offset,
                   e->rows * e->cols * sizeof *w->media_row[i]);
    }
    return status;
}

/* ---- jobs ---- */

bool train_worker_runs_together(const train_worker *w)
{
    return !w->setup->plan->input_gradient;
}

/* The next rows of the run: behind those of the jobs before. */
static text_train_rows *plan_rows(train_worker *w, const train_job *job)
{
    const tacit_input *in = job->example;
    text_train_rows *rows = &w->rows[w->n_jobs];
    text_place *place = w->place + w->n_rows;
    size_t *predictor = w->predictor + w->n_predicted;
    int32_t *target = w->target + w->n_predicted;
    *rows = (text_train_rows){.place = place, .predictor = predictor, .target = target};
    rows->gradient_scale = job->gradient_scale;
    rows->grad = job->grad;
    for (size_t i = 0; i < in->count; i++) {
        if (!in->row[i].trained)
            continue;
        predictor[rows->n_predicted] = i - 1;
        target[rows->n_predicted++] = in->row[i].token;
        rows->count = i;
    }
    text_places_set(place, in->row, rows->count, 0);
    return rows;
}

static void fill_input(train_worker *w, const tacit_input *in, size_t count)
{
    const tacit_text_model *m = w->setup->plan->model;
    float *x = text_train_input(w->text) + w->n_rows * m->embedding;
    for (size_t i = 0; i < count; i++, x += m->embedding) {
        const tacit_row *row = &in->row[i];
        if (row->modality == TACIT_MODALITY_TOKEN)
            text_embed(m, x, &row->token, 1);
        else
            memcpy(x, w->media_row[row->media] + (size_t)row->token * m->embedding,
                   m->embedding * sizeof *x);
    }
}

/* Lays one job's rows out; one that trains nothing is done with. */
static tacit_status add_job(train_worker *w, const train_job *job, tacit_error *err)
{
    tacit_status status = train_worker_check(w, job->example, err);
    if (status != TACIT_OK)
        return status;
    *job->loss = 0;
    text_train_rows *rows = plan_rows(w, job);
    if (rows->n_predicted == 0)
        return TACIT_OK;
    if (job->example->n_media > 0)
        status = encode_media(w, job->example, err);
    if (status != TACIT_OK)
        return status;
    fill_input(w, job->example, rows->count);
    w->loss[w->n_jobs++] = job->loss;
    w->n_rows += rows->count;
    w->n_predicted += rows->n_predicted;
    return TACIT_OK;
}

/* The gradient of the input rows goes on to the embedding, to prompts and to the encoder. */
static void spread_input_gradient(train_worker *w, const tacit_input *in, float *grad)
{
    const train_plan *plan = w->setup->plan;
    size_t width = plan->model->embedding;
    const float *dx = text_train_input_gradient(w->text);
    if (in->n_media > 0)
        memset(w->media, 0, w->media_floats * sizeof *w->media);
    for (size_t i = 0; i < w->n_rows; i++, dx += width) {
        const tacit_row *row = &in->row[i];
        if (row->modality != TACIT_MODALITY_TOKEN)
            ops_add(w->media_row[row->media] + (size_t)row->token * width, dx, width);
        else if (plan->embedding != TRAIN_FROZEN)
            kernels()->axpy(grad + plan->embedding + (size_t)row->token * width,
                            plan->model->embedding_scale, dx, width);
    }
    for (size_t i = 0; i < in->n_media; i++) {
        const tacit_trainable_entry *e = prompt_of(w->setup, &in->media[i]);
        if (e)
            ops_add(grad + e->offset, w->media_row[i], e->rows * e->cols);
    }
    if (in->n_media > 0 && (w->setup->n_encoder > 0 || w->setup->sites))
        encoder_train_backward(w->encoder, w->media_row, grad);
}

tacit_status train_worker_run(train_worker *w, const train_job *job, size_t n, size_t *failed,
                              tacit_error *err)
{
    w->n_jobs = w->n_rows = w->n_predicted = 0;
    for (*failed = 0; *failed < n; (*failed)++) {
        tacit_status status = add_job(w, &job[*failed], err);
        if (status != TACIT_OK)
            return status;
    }
    text_train_run(w->text, w->rows, w->n_jobs);
    for (size_t i = 0; i < w->n_jobs; i++)
        *w->loss[i] = w->rows[i].loss;
    if (w->n_jobs > 0 && job->grad && w->setup->plan->input_gradient)
        spread_input_gradient(w, job->example, job->grad);
    return TACIT_OK;
}
