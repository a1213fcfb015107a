/* A naive forward of the text architectures in double: the oracle of the inference path. It reads
 * the GGUF file itself (any numbers a layer, biases, norms of heads and behind halves of layers,
 * rope scaling and divisors, tied output) and shares nothing with the engine but the reader and the
 * dequantization of rows. */
#ifndef TACIT_TESTS_REFERENCE_LLAMA_H
#define TACIT_TESTS_REFERENCE_LLAMA_H

#include "engine/gguf.h"
#include "reference_mask.h"

#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct llama_reference {
    const gguf_file *file;
    size_t width, layers, head, vocab;
    size_t heads[8], kv_heads[8], ff[8];
    double eps, base, factor;
    bool halves;    /* rotation of pairs (i, i + head / 2) instead of (2i, 2i + 1) */
    double trained; /* YaRN from that context, with `factor`; 0: linear scaling */
    reference_kind kind;
} llama_reference;

static double *llama_tensor(const llama_reference *m, const char *name, size_t *rows, size_t *cols)
{
    const gguf_tensor *t = gguf_tensor_find(m->file, name);
    if (!t)
        return NULL;
    *rows = t->rows;
    *cols = t->ne[0];
    float *row = malloc(*cols * sizeof *row);
    double *value = malloc(*rows * *cols * sizeof *value);
    for (size_t r = 0; r < *rows; r++) {
        t->traits->to_f32(row, t->data + r * t->row_bytes, *cols);
        for (size_t c = 0; c < *cols; c++)
            value[r * *cols + c] = (double)row[c];
    }
    free(row);
    return value;
}

static double *llama_layer_tensor(const llama_reference *m, size_t layer, const char *name,
                                  size_t *rows, size_t *cols)
{
    char full[96];
    snprintf(full, sizeof full, "blk.%zu.%s", layer, name);
    return llama_tensor(m, full, rows, cols);
}

/* A new [n, rows of W] = x W^T + bias. */
static double *llama_linear(const llama_reference *m, size_t layer, const char *name,
                            const double *x, size_t n)
{
    char part[64];
    size_t rows, cols, one, count;
    snprintf(part, sizeof part, "%s.weight", name);
    double *w = llama_layer_tensor(m, layer, part, &rows, &cols);
    snprintf(part, sizeof part, "%s.bias", name);
    double *bias = llama_layer_tensor(m, layer, part, &one, &count);
    double *y = malloc(n * rows * sizeof *y);
    for (size_t i = 0; i < n; i++)
        for (size_t r = 0; r < rows; r++) {
            double sum = bias ? bias[r] : 0;
            for (size_t c = 0; c < cols; c++)
                sum += w[r * cols + c] * x[i * cols + c];
            y[i * rows + r] = sum;
        }
    free(w);
    free(bias);
    return y;
}

/* A new [n, size of the norm]. */
static double *llama_norm(const llama_reference *m, const char *name, const double *x, size_t n)
{
    size_t rows, cols;
    double *w = llama_tensor(m, name, &rows, &cols);
    double *y = malloc(n * cols * sizeof *y);
    for (size_t i = 0; i < n; i++) {
        double squares = 0;
        for (size_t c = 0; c < cols; c++)
            squares += x[i * cols + c] * x[i * cols + c];
        for (size_t c = 0; c < cols; c++)
            y[i * cols + c] = x[i * cols + c] / sqrt(squares / (double)cols + m->eps) * w[c];
    }
    free(w);
    return y;
}

/* Radians a position of pair j; layers of a window know no scaling. YaRN as in the appendix of
 * arXiv 2309.00071: a pair that turns at least 32 times in the trained context is left alone, one
 * that turns at most once is slowed by the factor; between, the share falls with the index of the
 * pair, counted from whole indices. */
static double llama_frequency(const llama_reference *m, size_t layer, size_t j)
{
    double d = (double)m->head, slow, from, to;
    if (reference_is_local(&m->kind, layer))
        return pow(m->kind.local_base, -2.0 * (double)j / d);
    double frequency = pow(m->base, -2.0 * (double)j / d);
    if (m->trained <= 0)
        return frequency / m->factor;
    from = floor(d / 2 * log(m->trained / (32 * 2 * acos(-1))) / log(m->base));
    to = ceil(d / 2 * log(m->trained / (2 * acos(-1))) / log(m->base));
    from = from < 0 ? 0 : from;
    to = to > d - 1 ? d - 1 : to;
    slow = ((double)j - from) / (to > from ? to - from : 1e-3);
    slow = slow < 0 ? 0 : slow > 1 ? 1 : slow;
    return (1 - slow) * frequency + slow * frequency / m->factor;
}

static void llama_turn(const llama_reference *m, size_t layer, double *x, size_t n, size_t heads,
                       const tacit_row *row)
{
    size_t rows, cols;
    double *divisor = llama_tensor(m, "rope_freqs.weight", &rows, &cols);
    bool stretched = m->trained > 0 && !reference_is_local(&m->kind, layer);
    double magnitude = stretched ? 1 + log(m->factor) / 10 : 1;
    for (size_t i = 0; i < n * heads; i++)
        for (size_t j = 0; j < m->head / 2; j++) {
            double *one = x + i * m->head + (m->halves ? j : 2 * j);
            double *two = one + (m->halves ? m->head / 2 : 1), a = *one, b = *two;
            double position = reference_position(&m->kind, &row[i / heads], j);
            double angle = position * llama_frequency(m, layer, j) / (divisor ? divisor[j] : 1);
            *one = magnitude * (a * cos(angle) - b * sin(angle));
            *two = magnitude * (a * sin(angle) + b * cos(angle));
        }
    free(divisor);
}

/* `x` [n, heads * head], normed by head and turned; replaced when it is normed. */
static double *llama_heads(const llama_reference *m, size_t layer, const char *norm, double *x,
                           size_t n, size_t heads, const tacit_row *row)
{
    char name[64];
    snprintf(name, sizeof name, "blk.%zu.%s.weight", layer, norm);
    if (gguf_tensor_find(m->file, name)) {
        double *normed = llama_norm(m, name, x, n * heads);
        free(x);
        x = normed;
    }
    llama_turn(m, layer, x, n, heads, row);
    return x;
}

static double *llama_attend(const llama_reference *m, size_t layer, const double *q,
                            const double *k, const double *v, const tacit_row *row, size_t n)
{
    size_t window = reference_is_local(&m->kind, layer) ? m->kind.window : 0;
    size_t heads = m->heads[layer], kv = m->kv_heads[layer], d = m->head;
    double *out = calloc(n * heads * d, sizeof *out), *p = malloc(n * sizeof *p);
    for (size_t i = 0; i < n; i++)
        for (size_t h = 0; h < heads; h++) {
            size_t shared = h * kv / heads;
            double sum = 0;
            for (size_t j = 0; j < n; j++) {
                double score = 0;
                p[j] = 0;
                if (!reference_sees(row, i, j, window))
                    continue;
                for (size_t c = 0; c < d; c++)
                    score += q[(i * heads + h) * d + c] * k[(j * kv + shared) * d + c];
                p[j] = exp(score / sqrt((double)d));
                sum += p[j];
            }
            for (size_t j = 0; j < n; j++)
                for (size_t c = 0; c < d; c++)
                    out[(i * heads + h) * d + c] += p[j] / sum * v[(j * kv + shared) * d + c];
        }
    free(p);
    return out;
}

/* A new [n, width]: the gated short convolution of LFM2 by its definition. */
static double *llama_convolve(const llama_reference *m, size_t layer, const double *h, size_t n)
{
    size_t d = m->width, rows, taps;
    double *w = llama_layer_tensor(m, layer, "shortconv.conv.weight", &rows, &taps);
    double *bcx = llama_linear(m, layer, "shortconv.in_proj", h, n);
    double *gated = calloc(n * d, sizeof *gated);
    for (size_t r = 0; r < n; r++)
        for (size_t i = 0; i < d; i++)
            for (size_t back = 0; back < taps && back <= r; back++) {
                const double *from = bcx + (r - back) * 3 * d + i;
                gated[r * d + i] +=
                    bcx[r * 3 * d + d + i] * w[i * taps + taps - 1 - back] * from[0] * from[2 * d];
            }
    double *out = llama_linear(m, layer, "shortconv.out_proj", gated, n);
    free(gated);
    free(bcx);
    free(w);
    return out;
}

/* A new [n, width]: attention of normed rows. */
static double *llama_mix(const llama_reference *m, size_t layer, const double *h,
                         const tacit_row *row, size_t n)
{
    double *q = llama_linear(m, layer, "attn_q", h, n), *k = llama_linear(m, layer, "attn_k", h, n);
    double *v = llama_linear(m, layer, "attn_v", h, n);
    q = llama_heads(m, layer, "attn_q_norm", q, n, m->heads[layer], row);
    k = llama_heads(m, layer, "attn_k_norm", k, n, m->kv_heads[layer], row);
    double *attended = llama_attend(m, layer, q, k, v, row, n);
    double *out = llama_linear(m, layer, "attn_output", attended, n);
    free(attended);
    free(v);
    free(k);
    free(q);
    return out;
}

/* x += h, normed by the layer's norm of that name where it has one; h is replaced then. */
static double *llama_add(const llama_reference *m, size_t layer, const char *norm, double *x,
                         double *h, size_t n)
{
    char name[64];
    snprintf(name, sizeof name, "blk.%zu.%s.weight", layer, norm);
    if (gguf_tensor_find(m->file, name)) {
        double *normed = llama_norm(m, name, h, n);
        free(h);
        h = normed;
    }
    for (size_t i = 0; i < n * m->width; i++)
        x[i] += h[i];
    return h;
}

static void llama_layer(const llama_reference *m, size_t layer, double *x, const tacit_row *row,
                        size_t n)
{
    char name[64];
    snprintf(name, sizeof name, "blk.%zu.attn_norm.weight", layer);
    double *h = llama_norm(m, name, x, n);
    double *o =
        m->kv_heads[layer] > 0 ? llama_mix(m, layer, h, row, n) : llama_convolve(m, layer, h, n);
    o = llama_add(m, layer, "post_attention_norm", x, o, n);
    snprintf(name, sizeof name, "blk.%zu.ffn_norm.weight", layer);
    double *h2 = llama_norm(m, name, x, n);
    double *gate = llama_linear(m, layer, "ffn_gate", h2, n);
    double *up = llama_linear(m, layer, "ffn_up", h2, n);
    for (size_t i = 0; i < n * m->ff[layer]; i++)
        gate[i] = reference_gated(&m->kind, gate[i]) * up[i];
    double *down = llama_linear(m, layer, "ffn_down", gate, n);
    down = llama_add(m, layer, "post_ffw_norm", x, down, n);
    double *const parts[] = {h, o, h2, gate, up, down};
    for (size_t i = 0; i < sizeof parts / sizeof parts[0]; i++)
        free(parts[i]);
}

/* A new [n, vocab] from x [n, width], which is spoilt. */
static inline double *llama_logits(const llama_reference *m, double *x, const tacit_row *row,
                                   size_t n)
{
    size_t rows, cols;
    for (size_t i = 0; i < m->layers; i++)
        llama_layer(m, i, x, row, n);
    bool other = gguf_tensor_find(m->file, "token_embd_norm.weight");
    double *h = llama_norm(m, other ? "token_embd_norm.weight" : "output_norm.weight", x, n);
    double *w = llama_tensor(m, "output.weight", &rows, &cols);
    if (!w)
        w = llama_tensor(m, "token_embd.weight", &rows, &cols);
    double *logits = calloc(n * rows, sizeof *logits);
    for (size_t i = 0; i < n; i++)
        for (size_t r = 0; r < rows; r++)
            for (size_t c = 0; c < cols; c++)
                logits[i * rows + r] += w[r * cols + c] * h[i * cols + c];
    free(w);
    free(h);
    return logits;
}

#endif
