/* A naive llama forward in double: the oracle of the inference path. It reads the GGUF file itself
 * (any numbers a layer, biases, rope scaling and divisors, tied output) and shares nothing with the
 * engine but the reader and the dequantization of rows. */
#ifndef TACIT_TESTS_REFERENCE_LLAMA_H
#define TACIT_TESTS_REFERENCE_LLAMA_H

#include "engine/gguf.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct llama_reference {
    const gguf_file *file;
    size_t width, layers, head, vocab;
    size_t heads[8], kv_heads[8], ff[8];
    double eps, base, factor;
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

static void llama_turn(const llama_reference *m, double *x, size_t n, size_t heads,
                       const uint32_t *position)
{
    size_t rows, cols;
    double *divisor = llama_tensor(m, "rope_freqs.weight", &rows, &cols);
    for (size_t i = 0; i < n * heads; i++)
        for (size_t j = 0; j < m->head / 2; j++) {
            double *pair = x + i * m->head + 2 * j, even = pair[0], odd = pair[1];
            double angle = position[i / heads] / m->factor / (divisor ? divisor[j] : 1) /
                           pow(m->base, 2.0 * (double)j / (double)m->head);
            pair[0] = even * cos(angle) - odd * sin(angle);
            pair[1] = even * sin(angle) + odd * cos(angle);
        }
    free(divisor);
}

static double *llama_attend(const llama_reference *m, size_t layer, const double *q,
                            const double *k, const double *v, size_t n)
{
    size_t heads = m->heads[layer], kv = m->kv_heads[layer], d = m->head;
    double *out = calloc(n * heads * d, sizeof *out), *p = malloc(n * sizeof *p);
    for (size_t i = 0; i < n; i++)
        for (size_t h = 0; h < heads; h++) {
            size_t shared = h * kv / heads;
            double sum = 0;
            for (size_t j = 0; j <= i; j++) {
                double score = 0;
                for (size_t c = 0; c < d; c++)
                    score += q[(i * heads + h) * d + c] * k[(j * kv + shared) * d + c];
                p[j] = exp(score / sqrt((double)d));
                sum += p[j];
            }
            for (size_t j = 0; j <= i; j++)
                for (size_t c = 0; c < d; c++)
                    out[(i * heads + h) * d + c] += p[j] / sum * v[(j * kv + shared) * d + c];
        }
    free(p);
    return out;
}

static void llama_layer(const llama_reference *m, size_t layer, double *x, const uint32_t *position,
                        size_t n)
{
    char name[64];
    snprintf(name, sizeof name, "blk.%zu.attn_norm.weight", layer);
    double *h = llama_norm(m, name, x, n);
    double *q = llama_linear(m, layer, "attn_q", h, n), *k = llama_linear(m, layer, "attn_k", h, n);
    double *v = llama_linear(m, layer, "attn_v", h, n);
    llama_turn(m, q, n, m->heads[layer], position);
    llama_turn(m, k, n, m->kv_heads[layer], position);
    double *attended = llama_attend(m, layer, q, k, v, n);
    double *o = llama_linear(m, layer, "attn_output", attended, n);
    for (size_t i = 0; i < n * m->width; i++)
        x[i] += o[i];
    snprintf(name, sizeof name, "blk.%zu.ffn_norm.weight", layer);
    double *h2 = llama_norm(m, name, x, n);
    double *gate = llama_linear(m, layer, "ffn_gate", h2, n);
    double *up = llama_linear(m, layer, "ffn_up", h2, n);
    for (size_t i = 0; i < n * m->ff[layer]; i++)
        gate[i] = gate[i] / (1 + exp(-gate[i])) * up[i];
    double *down = llama_linear(m, layer, "ffn_down", gate, n);
    for (size_t i = 0; i < n * m->width; i++)
        x[i] += down[i];
    double *const parts[] = {h, q, k, v, attended, o, h2, gate, up, down};
    for (size_t i = 0; i < sizeof parts / sizeof parts[0]; i++)
        free(parts[i]);
}

/* A new [n, vocab] from x [n, width], which is spoilt. */
static inline double *llama_logits(const llama_reference *m, double *x, const uint32_t *position,
                                   size_t n)
{
    size_t rows, cols;
    for (size_t i = 0; i < m->layers; i++)
        llama_layer(m, i, x, position, n);
    double *h = llama_norm(m, "output_norm.weight", x, n);
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
