/* The tower once more, in double, one number at a time, from the description of the format alone:
 * the oracle of the fast one. Tensors are given as double arrays in the order of vision_tensor_at.
 * Also a small tower whose weights are a formula that make_vision.py knows too. */
#ifndef TACIT_TESTS_REFERENCE_VISION_H
#define TACIT_TESTS_REFERENCE_VISION_H

#include "engine/gguf.h"
#include "engine/vision.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Uniform in [-1/2, 1/2), exact in fp32: value number i of tensor t. */
static inline float reference_uniform(uint32_t t, uint32_t i)
{
    uint32_t x = i * 0x9E3779B1u + t * 0x85EBCA77u + 0x27D4EB2Fu;
    x = (x ^ x >> 16) * 0x7feb352du;
    x = (x ^ x >> 15) * 0x846ca68bu;
    x ^= x >> 16;
    return (float)(x >> 8) / 16777216.0f - 0.5f;
}

typedef enum reference_act {
    REFERENCE_TANH,
    REFERENCE_ERF,
    REFERENCE_QUICK,
    REFERENCE_SILU
} reference_act;

static inline double reference_gelu(double x)
{
    return 0.5 * x * (1 + tanh(sqrt(2 / M_PI) * (x + 0.044715 * x * x * x)));
}

static inline double reference_activate(reference_act act, double x)
{
    switch (act) {
    case REFERENCE_ERF:
        return 0.5 * x * (1 + erf(x / sqrt(2)));
    case REFERENCE_QUICK:
        return x / (1 + exp(-1.702 * x));
    case REFERENCE_SILU:
        return x / (1 + exp(-x));
    default:
        return reference_gelu(x);
    }
}

/* What a tower's file is made of. Zeros: an idefics3 file with tanh GELU. */
typedef struct reference_spec {
    uint32_t image, patch, width, ff, heads, layers, scale, out;
    uint32_t preproc; /* longest edge of idefics3's pictures; 0: image, one tile */
    tacit_type linears;
    float gain;   /* of the blocks' matrices; 0: 1 */
    bool swapped; /* ffn_up and ffn_down by their old names */
    reference_act act;
    bool class_token, pre_ln, no_patch_bias;
    /* The mlp kind. */
    bool mlp, post_ln, newline;
    uint32_t hidden;
    int32_t feature[8];
    uint32_t features; /* 0: no key, the last state */
    const char *aspect;
    int32_t pinpoint[16];
    uint32_t pinpoints; /* numbers, two a size */
} reference_spec;

static inline size_t reference_tokens(const reference_spec *s)
{
    size_t grid = s->image / s->patch;
    return grid * grid + s->class_token;
}

static inline size_t reference_features(const reference_spec *s)
{
    return s->features ? s->features : 1;
}

/* y[n_out] = W x + b */
static inline void reference_linear(double *y, const double *w, const double *b, const double *x,
                                    size_t n_out, size_t n_in)
{
    for (size_t o = 0; o < n_out; o++) {
        y[o] = b ? b[o] : 0;
        for (size_t i = 0; i < n_in; i++)
            y[o] += w[o * n_in + i] * x[i];
    }
}

static inline void reference_norm(double *y, const double *x, const double *w, const double *b,
                                  size_t n, double eps)
{
    double mean = 0, variance = 0;
    for (size_t i = 0; i < n; i++)
        mean += x[i] / (double)n;
    for (size_t i = 0; i < n; i++)
        variance += (x[i] - mean) * (x[i] - mean) / (double)n;
    for (size_t i = 0; i < n; i++)
        y[i] = (x[i] - mean) / sqrt(variance + eps) * w[i] + b[i];
}

/* x[n, width] in place through one block whose 16 tensors begin at t. */
static inline void reference_block(const reference_spec *s, double *const *t, double *x)
{
    size_t n = reference_tokens(s), d = s->width, head = d / s->heads;
    double *h = calloc(n * d, sizeof *h), *q = calloc(n * d, sizeof *q);
    double *k = calloc(n * d, sizeof *k), *v = calloc(n * d, sizeof *v);
    double *mixed = calloc(n * d, sizeof *mixed), *score = calloc(n, sizeof *score);
    double *up = calloc(s->ff, sizeof *up), *out = calloc(d, sizeof *out);
    for (size_t i = 0; i < n; i++) {
        reference_norm(h + i * d, x + i * d, t[0], t[1], d, 1e-6f);
        reference_linear(q + i * d, t[2], t[3], h + i * d, d, d);
        reference_linear(k + i * d, t[4], t[5], h + i * d, d, d);
        reference_linear(v + i * d, t[6], t[7], h + i * d, d, d);
    }
    for (size_t i = 0; i < n; i++)
        for (size_t at = 0; at < d; at += head) {
            double sum = 0;
            for (size_t j = 0; j < n; j++) {
                double dot = 0;
                for (size_t c = at; c < at + head; c++)
                    dot += q[i * d + c] * k[j * d + c];
                sum += score[j] = exp(dot / sqrt((double)head));
            }
            for (size_t j = 0; j < n; j++)
                for (size_t c = at; c < at + head; c++)
                    mixed[i * d + c] += score[j] / sum * v[j * d + c];
        }
    for (size_t i = 0; i < n; i++) {
        reference_linear(out, t[8], t[9], mixed + i * d, d, d);
        for (size_t c = 0; c < d; c++)
            x[i * d + c] += out[c];
        reference_norm(h, x + i * d, t[10], t[11], d, 1e-6f);
        reference_linear(up, t[12], t[13], h, s->ff, d);
        for (size_t c = 0; c < s->ff; c++)
            up[c] = reference_activate(s->act, up[c]);
        reference_linear(out, t[14], t[15], up, d, s->ff);
        for (size_t c = 0; c < d; c++)
            x[i * d + c] += out[c];
    }
    free(h), free(q), free(k), free(v), free(mixed), free(score), free(up), free(out);
}

/* x[tokens, width] from the kernel t[0] and the tensors behind it; returns the first of the
 * blocks'.
 */
static inline double *const *reference_embed(const reference_spec *s, double *const *t,
                                             const float *planes, double *x)
{
    size_t d = s->width, p = s->patch, grid = s->image / p, first = s->class_token;
    const double *kernel = *t++, *bias = s->no_patch_bias ? NULL : *t++;
    const double *class_token = s->class_token ? *t++ : NULL, *positions = *t++;
    for (size_t o = 0; class_token && o < d; o++)
        x[o] = class_token[o] + positions[o];
    for (size_t gy = 0; gy < grid; gy++)
        for (size_t gx = 0; gx < grid; gx++)
            for (size_t o = 0; o < d; o++) {
                size_t at = first + gy * grid + gx;
                double sum = (bias ? bias[o] : 0) + positions[at * d + o];
                for (size_t c = 0; c < 3; c++)
                    for (size_t y = 0; y < p; y++)
                        for (size_t xx = 0; xx < p; xx++)
                            sum += kernel[((o * 3 + c) * p + y) * p + xx] *
                                   (double)
                                       planes[(c * s->image + gy * p + y) * s->image + gx * p + xx];
                x[at * d + o] = sum;
            }
    for (size_t i = 0; s->pre_ln && i < reference_tokens(s); i++)
        reference_norm(x + i * d, x + i * d, t[0], t[1], d, 1e-6f);
    return t + (s->pre_ln ? 2 : 0);
}

/* The patches' part of state number `state` to its slots of features[patches, n, width]. */
static inline void reference_keep(const reference_spec *s, double *features, const double *x,
                                  uint32_t state)
{
    size_t d = s->width, n = reference_features(s), first = s->class_token;
    for (size_t slot = 0; slot < n; slot++)
        if (state == (s->features ? (uint32_t)s->feature[slot] : s->layers))
            for (size_t i = first; i < reference_tokens(s); i++)
                memcpy(features + ((i - first) * n + slot) * d, x + i * d, d * sizeof *features);
}

static inline void reference_mlp(const reference_spec *s, double *const *t, const double *features,
                                 double *rows)
{
    size_t patches = reference_tokens(s) - s->class_token, in = reference_features(s) * s->width;
    double *hidden = calloc(s->hidden, sizeof *hidden);
    for (size_t i = 0; i < patches; i++) {
        reference_linear(hidden, t[0], t[1], features + i * in, s->hidden, in);
        for (size_t h = 0; h < s->hidden; h++)
            hidden[h] = reference_activate(REFERENCE_ERF, hidden[h]);
        reference_linear(rows + i * s->out, t[2], t[3], hidden, s->out, s->hidden);
    }
    free(hidden);
}

static inline void reference_idefics3(const reference_spec *s, double *const *t,
                                      const double *features, double *rows)
{
    size_t d = s->width, grid = s->image / s->patch, cells = grid / s->scale;
    double *cell = calloc((size_t)s->scale * s->scale * d, sizeof *cell);
    for (size_t cy = 0; cy < cells; cy++)
        for (size_t cx = 0; cx < cells; cx++) {
            for (size_t dy = 0; dy < s->scale; dy++)
                for (size_t dx = 0; dx < s->scale; dx++)
                    for (size_t c = 0; c < d; c++)
                        cell[(dy * s->scale + dx) * d + c] =
                            features[((cy * s->scale + dy) * grid + cx * s->scale + dx) * d + c];
            reference_linear(rows + (cy * cells + cx) * s->out, t[0], NULL, cell, s->out,
                             (size_t)s->scale * s->scale * d);
        }
    free(cell);
}

/* rows[rows of a frame, out]. */
static inline void reference_tower(const reference_spec *s, double *const *t, const float *planes,
                                   double *rows)
{
    size_t d = s->width, tokens = reference_tokens(s), patches = tokens - s->class_token;
    double *x = calloc(tokens * d, sizeof *x);
    double *features = calloc(patches * reference_features(s) * d, sizeof *features);
    double *const *block = reference_embed(s, t, planes, x);
    reference_keep(s, features, x, 0);
    for (uint32_t l = 0; l < s->layers; l++) {
        reference_block(s, block + (size_t)16 * l, x);
        reference_keep(s, features, x, l + 1);
    }
    double *const *last = block + (size_t)16 * s->layers;
    if (!s->mlp || s->post_ln) {
        for (size_t i = 0; i < patches; i++)
            reference_norm(features + i * d, features + i * d, last[0], last[1], d, 1e-6f);
        last += 2;
    }
    (s->mlp ? reference_mlp : reference_idefics3)(s, last, features, rows);
    free(x), free(features);
}

static inline void reference_kind_keys(gguf_writer *w, const reference_spec *s)
{
    if (!s->mlp) {
        gguf_put_u32(w, "clip.vision.projector.scale_factor", s->scale);
        gguf_put_u32(w, "clip.vision.preproc_image_size", s->preproc ? s->preproc : s->image);
    }
    if (s->features)
        gguf_put_array(w, "clip.vision.feature_layer", GGUF_I32, s->feature, s->features);
    if (s->aspect)
        gguf_put_string(w, "clip.vision.image_aspect_ratio", s->aspect, strlen(s->aspect));
    if (s->pinpoints)
        gguf_put_array(w, "clip.vision.image_grid_pinpoints", GGUF_I32, s->pinpoint, s->pinpoints);
    if (s->act == REFERENCE_ERF)
        gguf_put_string(w, "tacit.vision.hidden_act", "gelu", 4);
}

static inline void reference_keys(gguf_writer *w, const reference_spec *s)
{
    const float half[3] = {0.5f, 0.5f, 0.5f};
    gguf_put_string(w, "general.architecture", "clip", 4);
    gguf_put_bool(w, "clip.has_vision_encoder", true);
    gguf_put_string(w, "clip.projector_type", s->mlp ? "mlp" : "idefics3", s->mlp ? 3 : 8);
    gguf_put_bool(w, "clip.use_gelu", s->act == REFERENCE_TANH || s->act == REFERENCE_ERF);
    gguf_put_bool(w, "clip.use_silu", s->act == REFERENCE_SILU);
    gguf_put_u32(w, "clip.vision.image_size", s->image);
    gguf_put_u32(w, "clip.vision.patch_size", s->patch);
    gguf_put_u32(w, "clip.vision.embedding_length", s->width);
    gguf_put_u32(w, "clip.vision.feed_forward_length", s->ff);
    gguf_put_u32(w, "clip.vision.block_count", s->layers);
    gguf_put_u32(w, "clip.vision.attention.head_count", s->heads);
    gguf_put_u32(w, "clip.vision.projection_dim", s->out);
    gguf_put_f32(w, "clip.vision.attention.layer_norm_epsilon", 1e-6f);
    gguf_put_array(w, "clip.vision.image_mean", GGUF_F32, half, 3);
    gguf_put_array(w, "clip.vision.image_std", GGUF_F32, half, 3);
    reference_kind_keys(w, s);
}

/* Tensor number t of the layout: values uniform, scaled by `scale` and shifted by `shift`. */
static inline void reference_put(gguf_writer *w, uint32_t t, const char *name, uint32_t n_dims,
                                 const uint64_t *ne, tacit_type type, float scale, float shift)
{
    size_t n = 1;
    for (uint32_t i = 0; i < n_dims; i++)
        n *= ne[i];
    float *values = malloc(n * sizeof *values);
    for (size_t i = 0; i < n; i++)
        values[i] = reference_uniform(t, (uint32_t)i) * scale + shift;
    gguf_put_tensor(w, name, n_dims, ne, type, values);
    free(values);
}

static inline void reference_put_vector(gguf_writer *w, uint32_t *t, const char *name, uint64_t n,
                                        float scale, float shift)
{
    reference_put(w, (*t)++, name, 1, &n, TACIT_TYPE_F32, scale, shift);
}

static inline void reference_put_matrix(gguf_writer *w, uint32_t *t, const char *name,
                                        uint64_t n_in, uint64_t n_out, tacit_type type, float scale)
{
    const uint64_t ne[] = {n_in, n_out};
    reference_put(w, (*t)++, name, 2, ne, type, scale, 0);
}

static inline void reference_put_tower_block(gguf_writer *w, uint32_t *t, const reference_spec *s,
                                             uint32_t l)
{
    static const char *const names[] = {"ln1",      "attn_q", "attn_k", "attn_v",
                                        "attn_out", "ln2",    "ffn_up", "ffn_down"};
    for (int i = 0; i < 8; i++) {
        char name[64];
        const char *stored = s->swapped && i >= 6 ? names[13 - i] : names[i];
        uint32_t in = i == 7 ? s->ff : s->width, out = i == 6 ? s->ff : s->width;
        snprintf(name, sizeof name, "v.blk.%u.%s.weight", l, stored);
        if (i == 0 || i == 5)
            reference_put_vector(w, t, name, s->width, 1, 1);
        else
            reference_put_matrix(w, t, name, in, out, s->linears, s->gain > 0 ? s->gain : 1);
        snprintf(name, sizeof name, "v.blk.%u.%s.bias", l, stored);
        reference_put_vector(w, t, name, out, 0.5f, 0);
    }
}

static inline void reference_put_projector(gguf_writer *w, uint32_t *t, const reference_spec *s)
{
    if (!s->mlp) {
        reference_put_matrix(w, t, "mm.model.fc.weight", s->width * s->scale * s->scale, s->out,
                             s->linears, 0.5f);
        return;
    }
    reference_put_matrix(w, t, "mm.0.weight", reference_features(s) * s->width, s->hidden,
                         s->linears, 0.5f);
    reference_put_vector(w, t, "mm.0.bias", s->hidden, 0.5f, 0);
    reference_put_matrix(w, t, "mm.2.weight", s->hidden, s->out, s->linears, 0.5f);
    reference_put_vector(w, t, "mm.2.bias", s->out, 0.5f, 0);
    if (s->newline)
        reference_put_vector(w, t, "model.image_newline", s->out, 1, 0);
}

static inline void reference_put_norm(gguf_writer *w, uint32_t *t, const char *name, uint64_t n)
{
    char part[64];
    snprintf(part, sizeof part, "%s.weight", name);
    reference_put_vector(w, t, part, n, 0.5f, 1);
    snprintf(part, sizeof part, "%s.bias", name);
    reference_put_vector(w, t, part, n, 0.5f, 0);
}

static inline void reference_tensors(gguf_writer *w, const reference_spec *s)
{
    const uint64_t kernel[] = {s->patch, s->patch, 3, s->width};
    uint32_t t = 0;
    reference_put(w, t++, "v.patch_embd.weight", 4, kernel, TACIT_TYPE_F32, 0.5f, 0);
    if (!s->no_patch_bias)
        reference_put_vector(w, &t, "v.patch_embd.bias", s->width, 0.5f, 0);
    if (s->class_token)
        reference_put_vector(w, &t, "v.class_embd", s->width, 1, 0);
    reference_put_matrix(w, &t, "v.position_embd.weight", s->width, reference_tokens(s),
                         TACIT_TYPE_F32, 1);
    if (s->pre_ln)
        reference_put_norm(w, &t, "v.pre_ln", s->width);
    for (uint32_t l = 0; l < s->layers; l++)
        reference_put_tower_block(w, &t, s, l);
    if (!s->mlp || s->post_ln)
        reference_put_norm(w, &t, "v.post_ln", s->width);
    reference_put_projector(w, &t, s);
}

#endif
