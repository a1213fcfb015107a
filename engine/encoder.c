#include "engine/encoder.h"

#include "engine/model_parts.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Tensor i of an encoder is the table's entry `place[i]`, or ENCODER_FROZEN. */
#define ENCODER_FROZEN SIZE_MAX

/* One encoder's share of a workspace. */
typedef struct encoder_part {
    const model_encoder *encoder;
    size_t n_tensors;
    size_t *place;
    const float **weight; /* [n_tensors], of the last forward */
    float **grad;
    tacit_low_rank *pair;            /* [n_tensors], or NULL */
    train_pair *pair_place;          /* [n_tensors]: where their gradients go */
    linear_pair_gradient *pair_grad; /* [n_tensors], of the last backward */
    encoder_adapter adapter;         /* over those, where there are some */
    void *pass;                      /* for at most max_media; made when one comes */
    size_t max_media;
    const tacit_media **media; /* [max_media] each: those of the last forward */
    float **rows;
    size_t *index; /* of the example's media */
    size_t n;
} encoder_part;

struct encoder_train {
    const tacit_model *model;
    const tacit_trainable_entry *entry;
    bool trains;
    encoder_part part[ENCODER_KINDS_MAX];
};

static bool is_trained(const encoder_tensor *t, bool tower)
{
    return tower || t->projector;
}

size_t encoder_entries(const tacit_model *model, bool tower, tacit_trainable_entry *entry)
{
    size_t count = 0;
    for (size_t k = 0; k < model->n_encoders; k++) {
        const model_encoder *e = &model->encoder[k];
        for (size_t i = 0; i < e->kind->tensor_count(e->self); i++) {
            encoder_tensor t = e->kind->tensor_at(e->self, i);
            if (!is_trained(&t, tower))
                continue;
            if (entry) {
                snprintf(entry[count].name, sizeof entry[count].name, "%s", t.name);
                entry[count].rows = t.rows;
                entry[count].cols = t.cols;
            }
            count++;
        }
    }
    return count;
}

/* The tensor of any encoder that has this name; false when none does. */
static bool find_tensor(const tacit_model *model, const char *name, encoder_tensor *out)
{
    for (size_t k = 0; k < model->n_encoders; k++) {
        const model_encoder *e = &model->encoder[k];
        for (size_t i = 0; i < e->kind->tensor_count(e->self); i++) {
            *out = e->kind->tensor_at(e->self, i);
            if (strcmp(out->name, name) == 0)
                return true;
        }
    }
    return false;
}

tacit_status encoder_initial_values(const tacit_model *model, const tacit_trainable_entry *entry,
                                    size_t count, float *values, tacit_error *err)
{
    for (size_t e = 0; e < count; e++) {
        encoder_tensor t;
        if (!find_tensor(model, entry[e].name, &t))
            return tacit_fail(err, TACIT_USAGE, "encoder: no tensor '%s'", entry[e].name);
        t.data->traits->to_f32(values + entry[e].offset, t.data->data,
                               entry[e].rows * entry[e].cols);
    }
    return TACIT_OK;
}

/* ---- workspaces ---- */

/* `at` is the first entry of the table that may be this encoder's; the next one's comes back. */
static tacit_status start_part(encoder_part *p, const model_encoder *encoder, bool tower,
                               size_t *at, size_t count, tacit_error *err)
{
    size_t n = encoder->kind->tensor_count(encoder->self);
    *p = (encoder_part){.encoder = encoder, .n_tensors = n};
    p->place = calloc(n, sizeof *p->place);
    p->weight = calloc(n, sizeof *p->weight);
    p->grad = calloc(n, sizeof *p->grad);
    if (!p->place || !p->weight || !p->grad)
        return tacit_fail(err, TACIT_NO_MEMORY, "encoder: no memory for %zu tensors", n);
    for (size_t i = 0; i < n; i++) {
        encoder_tensor t = encoder->kind->tensor_at(encoder->self, i);
        p->place[i] = is_trained(&t, tower) && *at < count ? (*at)++ : ENCODER_FROZEN;
    }
    return TACIT_OK;
}

tacit_status encoder_train_new(encoder_train **out, const tacit_model *model, bool tower,
                               const tacit_trainable_entry *entry, size_t count, tacit_error *err)
{
    tacit_status status = TACIT_OK;
    size_t at = 0;
    encoder_train *e = calloc(1, sizeof *e);
    *out = NULL;
    if (!e)
        return tacit_fail(err, TACIT_NO_MEMORY, "encoder: no memory");
    e->model = model;
    e->entry = entry;
    e->trains = count > 0;
    for (size_t k = 0; k < model->n_encoders && status == TACIT_OK; k++)
        status = start_part(&e->part[k], &model->encoder[k], tower, &at, count, err);
    if (status != TACIT_OK)
        encoder_train_free(e);
    else
        *out = e;
    return status;
}

static void drop_pass(encoder_part *p)
{
    if (p->pass)
        p->encoder->kind->pass_free(p->pass);
    free(p->media);
    free(p->rows);
    free(p->index);
    p->pass = NULL;
    p->media = NULL;
    p->rows = NULL;
    p->index = NULL;
    p->max_media = 0;
}

void encoder_train_free(encoder_train *e)
{
    if (!e)
        return;
    for (size_t k = 0; k < e->model->n_encoders; k++) {
        encoder_part *p = &e->part[k];
        drop_pass(p);
        free(p->place);
        free(p->weight);
        free(p->grad);
        free(p->pair);
        free(p->pair_place);
        free(p->pair_grad);
    }
    free(e);
}

static tacit_status take_pair(encoder_part *p, const lora_site *site, const tacit_low_rank *pair,
                              const train_pair *place, tacit_error *err)
{
    if (!p->pair) {
        p->pair = calloc(p->n_tensors, sizeof *p->pair);
        p->pair_place = calloc(p->n_tensors, sizeof *p->pair_place);
        p->pair_grad = calloc(p->n_tensors, sizeof *p->pair_grad);
    }
    if (!p->pair || !p->pair_place || !p->pair_grad)
        return tacit_fail(err, TACIT_NO_MEMORY, "encoder: no memory for %zu tensors", p->n_tensors);
    p->pair[site->part] = *pair;
    p->pair_place[site->part] = *place;
    p->adapter = (encoder_adapter){p->pair, p->pair_grad, p->adapter.max_rank};
    if (pair->rank > p->adapter.max_rank)
        p->adapter.max_rank = pair->rank;
    return TACIT_OK;
}

tacit_status encoder_train_adapt(encoder_train *e, const lora_sites *sites,
                                 const tacit_low_rank *pair, const train_pair *place,
                                 tacit_error *err)
{
    tacit_status status = TACIT_OK;
    for (size_t i = 0; i < sites->count && status == TACIT_OK; i++) {
        const lora_site *s = &sites->site[i];
        if (s->place != LORA_ENCODER)
            continue;
        status = take_pair(&e->part[s->encoder], s, &pair[i], &place[i], err);
        e->trains = true;
    }
    return status;
}

static tacit_status grow_part(encoder_part *p, size_t n, bool train, tacit_error *err)
{
    if (n <= p->max_media)
        return TACIT_OK;
    drop_pass(p);
    p->media = calloc(n, sizeof *p->media);
    p->rows = calloc(n, sizeof *p->rows);
    p->index = calloc(n, sizeof *p->index);
    if (!p->media || !p->rows || !p->index)
        return tacit_fail(err, TACIT_NO_MEMORY, "encoder: no memory for %zu media", n);
    tacit_status status = p->encoder->kind->pass_new(&p->pass, p->encoder->self, n,
                                                     train ? PASS_TRAIN : PASS_EXACT, NULL, err);
    if (status == TACIT_OK && p->pair)
        status = p->encoder->kind->pass_adapt(p->pass, &p->adapter, err);
    if (status == TACIT_OK)
        p->max_media = n;
    return status;
}

/* ---- forward and backward ---- */

static bool is_computed(const encoder_train *e, const tacit_media *media)
{
    return e->trains || !media->rows;
}

tacit_status encoder_train_check(const encoder_train *e, const tacit_media *media, tacit_error *err)
{
    const model_encoder *encoder = model_encoder_of(e->model, media->modality);
    if (!is_computed(e, media))
        return TACIT_OK;
    if (!encoder)
        return model_encoder_missing(media->modality, "a medium", err);
    if (!media->values)
        return tacit_fail(err, TACIT_BAD_INPUT, "%s without values: prepare it anew",
                          encoder->kind->word);
    return encoder->kind->check(encoder->self, media, err);
}

/* The media of one encoder, in the order of the example. */
static tacit_status gather(encoder_train *e, encoder_part *p, const tacit_media *media,
                           size_t n_media, float *const *rows, tacit_error *err)
{
    tacit_modality modality = p->encoder->kind->modality;
    size_t n = 0;
    for (size_t i = 0; i < n_media; i++)
        n += media[i].modality == modality && is_computed(e, &media[i]);
    p->n = 0;
    tacit_status status = grow_part(p, n, e->trains, err);
    for (size_t i = 0; i < n_media && status == TACIT_OK; i++) {
        if (media[i].modality != modality || !is_computed(e, &media[i]))
            continue;
        p->media[p->n] = &media[i];
        p->rows[p->n] = rows[i];
        p->index[p->n++] = i;
    }
    return status;
}

static tacit_status forward_part(encoder_train *e, encoder_part *p, const float *values,
                                 const tacit_media *media, size_t n_media, float *const *rows,
                                 tacit_error *err)
{
    tacit_status status = gather(e, p, media, n_media, rows, err);
    if (status != TACIT_OK || p->n == 0)
        return status;
    for (size_t i = 0; i < p->n_tensors; i++)
        p->weight[i] = p->place[i] == ENCODER_FROZEN ? NULL : values + e->entry[p->place[i]].offset;
    p->encoder->kind->forward(p->pass, p->weight, p->media, p->n, p->rows);
    return TACIT_OK;
}

tacit_status encoder_train_forward(encoder_train *e, const float *values, const tacit_media *media,
                                   size_t n_media, float *const *rows, tacit_error *err)
{
    size_t width = e->model->text.embedding;
    tacit_status status = TACIT_OK;
    for (size_t i = 0; i < n_media; i++)
        if (!is_computed(e, &media[i]))
            memcpy(rows[i], media[i].rows, media[i].n_rows * width * sizeof(float));
    for (size_t k = 0; k < e->model->n_encoders && status == TACIT_OK; k++)
        status = forward_part(e, &e->part[k], values, media, n_media, rows, err);
    return status;
}

void encoder_train_backward(encoder_train *e, float *const *d_rows, float *grad)
{
    for (size_t k = 0; k < e->model->n_encoders; k++) {
        encoder_part *p = &e->part[k];
        if (p->n == 0)
            continue;
        for (size_t i = 0; i < p->n; i++)
            p->rows[i] = d_rows[p->index[i]];
        for (size_t i = 0; i < p->n_tensors; i++)
            p->grad[i] = p->place[i] == ENCODER_FROZEN ? NULL : grad + e->entry[p->place[i]].offset;
        for (size_t i = 0; p->pair && i < p->n_tensors; i++)
            if (p->pair[i].rank > 0)
                p->pair_grad[i] = train_pair_gradient(&p->pair_place[i], grad);
        p->encoder->kind->backward(p->pass, (const float *const *)p->rows, p->grad);
    }
}
