/* The tiny models of tests/golden without a tokenizer, their golden examples, and a sink that keeps
 * gradients. Include after cmocka.h. */
#ifndef TACIT_TESTS_TRAIN_FIXTURE_H
#define TACIT_TESTS_TRAIN_FIXTURE_H

#include "engine/model_parts.h"
#include "engine/trainer.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The first two are llama. */
static const char *const fixture_words[] = {"untied", "tied",    "qwen2", "qwen3",
                                            "gemma3", "qwen2vl", "lfm2"};
enum { FIXTURE_LLAMA = 2, FIXTURE_WORDS = 7 };

/* tests/golden/KIND-WORD.gguf */
static gguf_file *fixture_file(const char *kind, const char *word)
{
    char path[512];
    tacit_error err;
    gguf_file *file;
    snprintf(path, sizeof path, TACIT_SOURCE_DIR "/tests/golden/%s-%s.gguf", kind, word);
    if (gguf_open(&file, path, &err) != TACIT_OK)
        fail_msg("%s", err.message);
    return file;
}

/* Weights are dequantized tile by tile unless `cached`. */
static tacit_model *fixture_model(const char *word, bool cached)
{
    tacit_error err;
    tacit_model *m = calloc(1, sizeof *m);
    m->text_file = fixture_file("tiny", word);
    if (text_model_load(&m->text, m->text_file, &err) != TACIT_OK)
        fail_msg("%s", err.message);
    for (size_t i = 0; !cached && i < m->text.n_layers; i++)
        for (int k = 0; k < TEXT_LINEARS; k++)
            linear_drop_cache(&m->text.layer[i].linear[k]);
    memset(m->base_digest, 7, sizeof m->base_digest);
    return m;
}

static inline void fixture_model_free(tacit_model *m)
{
    text_model_unload(&m->text);
    gguf_close(m->text_file);
    free(m);
}

/* 0 where the golden file says nothing. */
static double fixture_number(const gguf_file *f, size_t example, const char *field, size_t i)
{
    char key[64];
    snprintf(key, sizeof key, "example.%zu.%s", example, field);
    return gguf_array_number(f, key, i);
}

/* Golden example 0 has four rows of a picture, 1 is plain. */
static inline tacit_input fixture_example(const gguf_file *f, size_t example)
{
    tacit_input in = {0};
    char name[64];
    snprintf(name, sizeof name, "example.%zu.token", example);
    if (gguf_get_array(f, name, GGUF_I32, &in.count, NULL) != TACIT_OK)
        fail_msg("no %s", name);
    in.row = calloc(in.count, sizeof *in.row);
    for (size_t i = 0; i < in.count; i++) {
        in.row[i].token = (int32_t)fixture_number(f, example, "token", i);
        in.row[i].position = (uint32_t)fixture_number(f, example, "position", i);
        in.row[i].trained = (uint8_t)fixture_number(f, example, "trained", i);
        in.row[i].modality = (uint8_t)fixture_number(f, example, "modality", i);
        in.row[i].group = (uint32_t)fixture_number(f, example, "group", i);
        for (size_t k = 0; k < 3; k++)
            in.row[i].shift[k] = (int32_t)fixture_number(f, example, "shift", 3 * i + k);
    }
    snprintf(name, sizeof name, "example.%zu.media", example);
    const gguf_tensor *rows = gguf_tensor_find(f, name);
    if (rows) {
        in.media = calloc(1, sizeof *in.media);
        in.n_media = 1;
        in.media->n_rows = rows->rows;
        in.media->rows = malloc(rows->bytes);
        memcpy(in.media->rows, rows->data, rows->bytes);
    }
    return in;
}

static inline void fixture_example_free(tacit_input *in)
{
    for (size_t i = 0; i < in->n_media; i++)
        free(in->media[i].rows);
    free(in->media);
    free(in->row);
}

static inline tacit_trainable_spec fixture_spec(tacit_trainable_kind kind)
{
    tacit_trainable_spec s = {.kind = kind,
                              .target = {"attn_output", "ffn_down", "attn_q", "attn_v"},
                              .n_targets = 4,
                              .rank = 4,
                              .alpha = 6};
    for (size_t i = 0; i < sizeof s.seed; i++)
        s.seed[i] = (uint8_t)(100 + i);
    return s;
}

/* Golden "mixed": ranks of their own under rsLoRA, and the output where it has a tensor. */
static inline tacit_trainable_spec fixture_mixed(const tacit_model *m)
{
    tacit_trainable_spec s = {
        .kind = TACIT_TRAIN_LORA,
        .target = {"attn_q=2", "blk.*.ffn_up", "ffn_down", "*1.attn_k=1", "output=3"},
        .n_targets = m->text.tied ? 4 : 5,
        .rank = 4,
        .alpha = 6,
        .rslora = true};
    return s;
}

static inline tacit_trainer *fixture_trainer(const tacit_model *m, const tacit_trainable_spec *spec,
                                             size_t max_rows, tacit_pool *pool)
{
    tacit_error err;
    tacit_trainer *t;
    if (tacit_trainer_new(&t, m, spec, max_rows, pool, &err) != TACIT_OK)
        fail_msg("%s", err.message);
    return t;
}

/* Golden values of the adapter into the flat vector. */
static inline void fixture_values(tacit_trainer *t, const gguf_file *golden, const char *kind)
{
    const tacit_layout *l = tacit_trainer_layout(t);
    for (size_t i = 0; i < l->count; i++) {
        char name[200];
        snprintf(name, sizeof name, "%s.value/%s", kind, l->entry[i].name);
        const gguf_tensor *g = gguf_tensor_find(golden, name);
        if (!g)
            fail_msg("no golden %s", name);
        memcpy(tacit_trainer_values(t) + l->entry[i].offset, g->data, g->bytes);
    }
}

typedef struct fixture_sink {
    float *grad; /* [units, values] */
    double *loss;
    size_t values, seen;
} fixture_sink;

static tacit_status fixture_keep(void *ctx, size_t unit, const float *grad, double loss)
{
    fixture_sink *s = ctx;
    if (unit != s->seen++)
        return TACIT_FAILED;
    memcpy(s->grad + unit * s->values, grad, s->values * sizeof *grad);
    s->loss[unit] = loss;
    return TACIT_OK;
}

/* Gradients of `n` units; release with fixture_sink_free. */
static inline fixture_sink fixture_gradients(tacit_trainer *t, const tacit_unit *units, size_t n)
{
    tacit_error err;
    fixture_sink s = {.values = tacit_trainer_layout(t)->values};
    s.grad = calloc(n * s.values, sizeof *s.grad);
    s.loss = calloc(n, sizeof *s.loss);
    if (tacit_trainer_grads(t, units, n, fixture_keep, &s, &err) != TACIT_OK)
        fail_msg("%s", err.message);
    assert_int_equal(s.seen, n);
    return s;
}

static inline void fixture_sink_free(fixture_sink *s)
{
    free(s->grad);
    free(s->loss);
}

/* Of inference: the sum of the losses of trained rows, a sink of logits of all rows. */
typedef struct fixture_loss {
    const tacit_input *in;
    size_t vocab, trained;
    double sum;
} fixture_loss;

static inline tacit_status fixture_add_loss(void *ctx, size_t row, const float *logits)
{
    fixture_loss *s = ctx;
    double sum = 0;
    if (row + 1 == s->in->count || !s->in->row[row + 1].trained)
        return TACIT_OK;
    for (size_t i = 0; i < s->vocab; i++)
        sum += exp((double)logits[i]);
    s->sum += log(sum) - (double)logits[s->in->row[row + 1].token];
    s->trained++;
    return TACIT_OK;
}

#endif
