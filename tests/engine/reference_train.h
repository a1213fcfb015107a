/* A naive text model in double over named parameters: the oracle of
 * gradients. One loop a sum, no sharing with the engine but the GGUF reader that fetches
 * dequantized weights. Losses of perturbed parameters give central differences. */
#ifndef TACIT_TESTS_REFERENCE_TRAIN_H
#define TACIT_TESTS_REFERENCE_TRAIN_H

#include "engine/gguf.h"
#include "engine/input.h"
#include "reference_mask.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct ref_tensor {
    char name[GGUF_MAX_NAME + 1];
    size_t rows, cols;
    double *value;
} ref_tensor;

typedef struct ref_model {
    size_t width, layers, heads, kv_heads, head, ff, vocab;
    double eps, base, alpha;
    double factor; /* that slows the rotation of layers without a window; 0: 1 */
    bool halves;   /* rotation of pairs (i, i + head / 2) instead of (2i, 2i + 1) */
    reference_kind kind;
    double *const *media; /* rows of each picture, when not the example's cached ones */
    ref_tensor *tensor;
    size_t count;
} ref_model;

static ref_tensor *ref_named(const ref_model *m, const char *name)
{
    for (size_t i = 0; i < m->count; i++)
        if (strcmp(m->tensor[i].name, name) == 0)
            return &m->tensor[i];
    return NULL;
}

/* blk.LAYER.NAME.SUFFIX, or NULL. */
static ref_tensor *ref_of(const ref_model *m, size_t layer, const char *name, const char *suffix)
{
    char full[160];
    snprintf(full, sizeof full, "blk.%zu.%s.%s", layer, name, suffix);
    return ref_named(m, full);
}

static ref_tensor *ref_add(ref_model *m, const char *name, size_t rows, size_t cols)
{
    m->tensor = realloc(m->tensor, (m->count + 1) * sizeof *m->tensor);
    ref_tensor *t = &m->tensor[m->count++];
    snprintf(t->name, sizeof t->name, "%s", name);
    t->rows = rows;
    t->cols = cols;
    t->value = calloc(rows * cols, sizeof *t->value);
    return t;
}

static inline void ref_load(ref_model *m, const gguf_file *file)
{
    for (size_t i = 0; i < gguf_tensor_count(file); i++) {
        const gguf_tensor *g = gguf_tensor_at(file, i);
        ref_tensor *t = ref_add(m, g->name, g->rows, g->ne[0]);
        float *row = malloc(t->cols * sizeof *row);
        for (size_t r = 0; r < t->rows; r++) {
            g->traits->to_f32(row, g->data + r * g->row_bytes, t->cols);
            for (size_t c = 0; c < t->cols; c++)
                t->value[r * t->cols + c] = (double)row[c];
        }
        free(row);
    }
}

static inline void ref_free(ref_model *m)
{
    for (size_t i = 0; i < m->count; i++)
        free(m->tensor[i].value);
    free(m->tensor);
    *m = (ref_model){0};
}

/* y += factor * w x, [rows] = [rows, cols] [cols] */
static void ref_apply(double *y, const ref_tensor *w, const double *x, double factor)
{
    for (size_t r = 0; r < w->rows; r++)
        for (size_t c = 0; c < w->cols; c++)
            y[r] += factor * w->value[r * w->cols + c] * x[c];
}

static void ref_linear(const ref_model *m, double *y, size_t layer, const char *name,
                       const double *x)
{
    double low[64] = {0};
    const ref_tensor *w = ref_of(m, layer, name, "weight");
    const ref_tensor *bias = ref_of(m, layer, name, "bias");
    const ref_tensor *a = ref_of(m, layer, name, "weight.lora_a");
    const ref_tensor *b = ref_of(m, layer, name, "weight.lora_b");
    for (size_t r = 0; r < w->rows; r++)
        y[r] = bias ? bias->value[r] : 0;
    ref_apply(y, w, x, 1);
    if (a) {
        ref_apply(low, a, x, 1);
        ref_apply(y, b, low, m->alpha / (double)a->rows);
    }
}

/* Of as many values as the norm has; y may be x. */
static void ref_norm(const ref_model *m, double *y, const double *x, const ref_tensor *w)
{
    double sum = 0;
    for (size_t i = 0; i < w->cols; i++)
        sum += x[i] * x[i];
    for (size_t i = 0; i < w->cols; i++)
        y[i] = x[i] / sqrt(sum / (double)w->cols + m->eps) * w->value[i];
}

/* Heads of q or k: normed where the model has such a norm, and turned. */
static void ref_heads(const ref_model *m, double *x, size_t layer, const char *norm, size_t heads,
                      const tacit_row *row)
{
    const ref_tensor *w = ref_of(m, layer, norm, "weight");
    bool local = reference_is_local(&m->kind, layer);
    double base = local ? m->kind.local_base : m->base;
    double factor = local || !(m->factor > 0) ? 1 : m->factor;
    for (size_t h = 0; h < heads; h++) {
        if (w)
            ref_norm(m, x + h * m->head, x + h * m->head, w);
        for (size_t i = 0; i < m->head / 2; i++) {
            double *p = x + h * m->head + (m->halves ? i : 2 * i), first = *p;
            double *q = p + (m->halves ? m->head / 2 : 1), second = *q;
            double angle = reference_position(&m->kind, row, i) / factor *
                           pow(base, -2.0 * (double)i / (double)m->head);
            *p = first * cos(angle) - second * sin(angle);
            *q = first * sin(angle) + second * cos(angle);
        }
    }
}

static void ref_attend(const ref_model *m, double *out, const double *q, const double *k,
                       const double *v, size_t layer, const tacit_input *in, size_t row)
{
    size_t stride = m->kv_heads * m->head, n = in->count;
    size_t window = reference_is_local(&m->kind, layer) ? m->kind.window : 0;
    double *p = malloc(n * sizeof *p);
    for (size_t h = 0; h < m->heads; h++) {
        size_t at = h / (m->heads / m->kv_heads) * m->head;
        double sum = 0;
        for (size_t j = 0; j < n; j++) {
            p[j] = 0;
            if (!reference_sees(in->row, row, j, window))
                continue;
            for (size_t i = 0; i < m->head; i++)
                p[j] += q[row * m->heads * m->head + h * m->head + i] * k[j * stride + at + i];
            p[j] = exp(p[j] / sqrt((double)m->head));
            sum += p[j];
        }
        for (size_t i = 0; i < m->head; i++) {
            out[h * m->head + i] = 0;
            for (size_t j = 0; j < n; j++)
                out[h * m->head + i] += p[j] / sum * v[j * stride + at + i];
        }
    }
    free(p);
}

/* x [width] += y, by way of the layer's norm of that name where it has one. */
static void ref_add_half(const ref_model *m, double *x, double *y, size_t layer, const char *norm)
{
    const ref_tensor *w = ref_of(m, layer, norm, "weight");
    if (w)
        ref_norm(m, y, y, w);
    for (size_t i = 0; i < m->width; i++)
        x[i] += y[i];
}

/* y [width]: LFM2's gated short convolution of row `row` of normed rows h [rows, width]. */
static void ref_convolve(const ref_model *m, double *y, const double *h, size_t layer, size_t row)
{
    const ref_tensor *w = ref_of(m, layer, "shortconv.conv", "weight");
    size_t d = m->width;
    double *own = calloc(3 * d, sizeof *own), *bcx = calloc(3 * d, sizeof *bcx);
    double *gated = calloc(d, sizeof *gated);
    ref_linear(m, own, layer, "shortconv.in_proj", h + row * d);
    for (size_t back = 0; back < w->cols && back <= row; back++) {
        ref_linear(m, bcx, layer, "shortconv.in_proj", h + (row - back) * d);
        for (size_t i = 0; i < d; i++)
            gated[i] +=
                own[d + i] * w->value[i * w->cols + w->cols - 1 - back] * bcx[i] * bcx[2 * d + i];
    }
    ref_linear(m, y, layer, "shortconv.out_proj", gated);
    free(own), free(bcx), free(gated);
}

/* mixed [rows, width] of normed rows h. */
static void ref_mix(const ref_model *m, double *mixed, const double *h, size_t layer,
                    const tacit_input *in)
{
    size_t n = in->count, d = m->width, qw = m->heads * m->head, kw = m->kv_heads * m->head;
    double *q = calloc(n * qw, sizeof *q), *k = calloc(n * kw, sizeof *k);
    double *v = calloc(n * kw, sizeof *v), *out = calloc(qw, sizeof *out);
    bool attends = ref_of(m, layer, "attn_q", "weight");
    for (size_t r = 0; attends && r < n; r++) {
        ref_linear(m, q + r * qw, layer, "attn_q", h + r * d);
        ref_linear(m, k + r * kw, layer, "attn_k", h + r * d);
        ref_linear(m, v + r * kw, layer, "attn_v", h + r * d);
        ref_heads(m, q + r * qw, layer, "attn_q_norm", m->heads, &in->row[r]);
        ref_heads(m, k + r * kw, layer, "attn_k_norm", m->kv_heads, &in->row[r]);
    }
    for (size_t r = 0; r < n; r++) {
        if (!attends) {
            ref_convolve(m, mixed + r * d, h, layer, r);
            continue;
        }
        ref_attend(m, out, q, k, v, layer, in, r);
        ref_linear(m, mixed + r * d, layer, "attn_output", out);
    }
    free(q), free(k), free(v), free(out);
}

static void ref_layer(const ref_model *m, double *x, size_t layer, const tacit_input *in)
{
    size_t n = in->count, d = m->width;
    double *h = calloc(n * d, sizeof *h), *mixed = calloc(n * d, sizeof *mixed);
    double *y = calloc(d, sizeof *y), *gate = calloc(m->ff, sizeof *gate);
    double *up = calloc(m->ff, sizeof *up);
    for (size_t r = 0; r < n; r++)
        ref_norm(m, h + r * d, x + r * d, ref_of(m, layer, "attn_norm", "weight"));
    ref_mix(m, mixed, h, layer, in);
    for (size_t r = 0; r < n; r++) {
        double *xr = x + r * d;
        ref_add_half(m, xr, mixed + r * d, layer, "post_attention_norm");
        ref_norm(m, h, xr, ref_of(m, layer, "ffn_norm", "weight"));
        ref_linear(m, gate, layer, "ffn_gate", h);
        ref_linear(m, up, layer, "ffn_up", h);
        for (size_t i = 0; i < m->ff; i++)
            gate[i] = reference_gated(&m->kind, gate[i]) * up[i];
        ref_linear(m, y, layer, "ffn_down", gate);
        ref_add_half(m, xr, y, layer, "post_ffw_norm");
    }
    free(h), free(mixed), free(y), free(gate), free(up);
}

static double ref_row_loss(const ref_model *m, const double *x, size_t target)
{
    const ref_tensor *w = ref_named(m, "output.weight");
    double *h = calloc(m->width, sizeof *h), *logit = calloc(m->vocab, sizeof *logit), sum = 0;
    const ref_tensor *norm = ref_named(m, "output_norm.weight");
    ref_norm(m, h, x, norm ? norm : ref_named(m, "token_embd_norm.weight"));
    ref_apply(logit, w ? w : ref_named(m, "token_embd.weight"), h, 1);
    for (size_t i = 0; i < m->vocab; i++)
        sum += exp(logit[i]);
    double loss = log(sum) - logit[target];
    free(h), free(logit);
    return loss;
}

static double ref_input(const ref_model *m, const tacit_input *in, const tacit_row *row, size_t i)
{
    size_t at = (size_t)row->token * m->width + i;
    double scale = m->kind.embedding_scale > 0 ? m->kind.embedding_scale : 1;
    if (row->modality == TACIT_MODALITY_TOKEN)
        return scale * ref_named(m, "token_embd.weight")->value[at];
    return m->media ? m->media[row->media][at] : (double)in->media[row->media].rows[at];
}

static inline double ref_loss(const ref_model *m, const tacit_input *in)
{
    double *x = calloc(in->count * m->width, sizeof *x), sum = 0;
    size_t trained = 0;
    for (size_t r = 0; r < in->count; r++)
        for (size_t i = 0; i < m->width; i++)
            x[r * m->width + i] = ref_input(m, in, &in->row[r], i);
    for (size_t i = 0; i < m->layers; i++)
        ref_layer(m, x, i, in);
    for (size_t r = 1; r < in->count; r++)
        if (in->row[r].trained) {
            sum += ref_row_loss(m, x + (r - 1) * m->width, (size_t)in->row[r].token);
            trained++;
        }
    free(x);
    return sum / (double)trained;
}

#endif
