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

static inline double reference_gelu(double x)
{
    return 0.5 * x * (1 + tanh(sqrt(2 / M_PI) * (x + 0.044715 * x * x * x)));
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
static inline void reference_block(const vision_shape *s, double *const *t, double *x)
{
    size_t n = s->patches, d = s->width, head = d / s->heads;
    double *h = calloc(n * d, sizeof *h), *q = calloc(n * d, sizeof *q);
    double *k = calloc(n * d, sizeof *k), *v = calloc(n * d, sizeof *v);
    double *mixed = calloc(n * d, sizeof *mixed), *score = calloc(n, sizeof *score);
    double *up = calloc(s->ff, sizeof *up), *out = calloc(d, sizeof *out);
    for (size_t i = 0; i < n; i++) {
        reference_norm(h + i * d, x + i * d, t[0], t[1], d, s->epsilon);
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
        reference_norm(h, x + i * d, t[10], t[11], d, s->epsilon);
        reference_linear(up, t[12], t[13], h, s->ff, d);
        for (size_t c = 0; c < s->ff; c++)
            up[c] = reference_gelu(up[c]);
        reference_linear(out, t[14], t[15], up, d, s->ff);
        for (size_t c = 0; c < d; c++)
            x[i * d + c] += out[c];
    }
    free(h), free(q), free(k), free(v), free(mixed), free(score), free(up), free(out);
}

/* rows[s->rows, s->out_width]. t[0] kernel, t[1] its bias, t[2] positions, blocks, norm, projector.
 */
static inline void reference_tower(const vision_shape *s, double *const *t, const float *planes,
                                   double *rows)
{
    size_t d = s->width, p = s->patch_size, cells = s->grid / s->scale;
    double *x = calloc(s->patches * d, sizeof *x);
    double *cell = calloc(s->scale * s->scale * d, sizeof *cell);
    for (size_t gy = 0; gy < s->grid; gy++)
        for (size_t gx = 0; gx < s->grid; gx++)
            for (size_t o = 0; o < d; o++) {
                double sum = t[1][o] + t[2][(gy * s->grid + gx) * d + o];
                for (size_t c = 0; c < 3; c++)
                    for (size_t y = 0; y < p; y++)
                        for (size_t xx = 0; xx < p; xx++)
                            sum += t[0][((o * 3 + c) * p + y) * p + xx] *
                                   (double)planes[(c * s->image_size + gy * p + y) * s->image_size +
                                                  gx * p + xx];
                x[(gy * s->grid + gx) * d + o] = sum;
            }
    for (size_t l = 0; l < s->layers; l++)
        reference_block(s, t + 3 + 16 * l, x);
    double *const *last = t + 3 + 16 * s->layers;
    for (size_t i = 0; i < s->patches; i++)
        reference_norm(x + i * d, x + i * d, last[0], last[1], d, s->epsilon);
    for (size_t cy = 0; cy < cells; cy++)
        for (size_t cx = 0; cx < cells; cx++) {
            for (size_t dy = 0; dy < s->scale; dy++)
                for (size_t dx = 0; dx < s->scale; dx++)
                    for (size_t c = 0; c < d; c++)
                        cell[(dy * s->scale + dx) * d + c] =
                            x[((cy * s->scale + dy) * s->grid + cx * s->scale + dx) * d + c];
            reference_linear(rows + (cy * cells + cx) * s->out_width, last[2], NULL, cell,
                             s->out_width, s->scale * s->scale * d);
        }
    free(x), free(cell);
}

/* What a tower's file is made of. */
typedef struct reference_spec {
    uint32_t image, patch, width, ff, heads, layers, scale, out;
    tacit_type linears;
    bool swapped; /* ffn_up and ffn_down by their old names */
} reference_spec;

static inline void reference_keys(gguf_writer *w, const reference_spec *s)
{
    const float half[3] = {0.5f, 0.5f, 0.5f};
    gguf_put_string(w, "general.architecture", "clip", 4);
    gguf_put_bool(w, "clip.has_vision_encoder", true);
    gguf_put_string(w, "clip.projector_type", "idefics3", 8);
    gguf_put_bool(w, "clip.use_gelu", true);
    gguf_put_u32(w, "clip.vision.image_size", s->image);
    gguf_put_u32(w, "clip.vision.patch_size", s->patch);
    gguf_put_u32(w, "clip.vision.embedding_length", s->width);
    gguf_put_u32(w, "clip.vision.feed_forward_length", s->ff);
    gguf_put_u32(w, "clip.vision.block_count", s->layers);
    gguf_put_u32(w, "clip.vision.attention.head_count", s->heads);
    gguf_put_u32(w, "clip.vision.projector.scale_factor", s->scale);
    gguf_put_u32(w, "clip.vision.preproc_image_size", s->image);
    gguf_put_u32(w, "clip.vision.projection_dim", s->out);
    gguf_put_f32(w, "clip.vision.attention.layer_norm_epsilon", 1e-6f);
    gguf_put_array(w, "clip.vision.image_mean", GGUF_F32, half, 3);
    gguf_put_array(w, "clip.vision.image_std", GGUF_F32, half, 3);
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

static inline void reference_tensors(gguf_writer *w, const reference_spec *s)
{
    static const char *const names[] = {"ln1",      "attn_q", "attn_k", "attn_v",
                                        "attn_out", "ln2",    "ffn_up", "ffn_down"};
    uint64_t grid = s->image / s->patch, d = s->width;
    const uint64_t kernel[] = {s->patch, s->patch, 3, d}, vector[] = {d}, wide[] = {s->ff};
    const uint64_t positions[] = {d, grid * grid}, square[] = {d, d}, up[] = {d, s->ff},
                   down[] = {s->ff, d}, fc[] = {d * s->scale * s->scale, s->out};
    uint32_t t = 0;
    char name[64];
    reference_put(w, t++, "v.patch_embd.weight", 4, kernel, TACIT_TYPE_F32, 0.5f, 0);
    reference_put(w, t++, "v.patch_embd.bias", 1, vector, TACIT_TYPE_F32, 0.5f, 0);
    reference_put(w, t++, "v.position_embd.weight", 2, positions, TACIT_TYPE_F32, 1, 0);
    for (uint32_t l = 0; l < s->layers; l++)
        for (int i = 0; i < 8; i++) {
            bool norm = i == 0 || i == 5;
            const char *stored = s->swapped && i >= 6 ? names[13 - i] : names[i];
            const uint64_t *ne = i == 6 ? up : i == 7 ? down : norm ? vector : square;
            snprintf(name, sizeof name, "v.blk.%u.%s.weight", l, stored);
            reference_put(w, t++, name, norm ? 1 : 2, ne, norm ? TACIT_TYPE_F32 : s->linears, 1,
                          norm ? 1 : 0);
            snprintf(name, sizeof name, "v.blk.%u.%s.bias", l, stored);
            reference_put(w, t++, name, 1, i == 6 ? wide : vector, TACIT_TYPE_F32, 0.5f, 0);
        }
    reference_put(w, t++, "v.post_ln.weight", 1, vector, TACIT_TYPE_F32, 0.5f, 1);
    reference_put(w, t++, "v.post_ln.bias", 1, vector, TACIT_TYPE_F32, 0.5f, 0);
    reference_put(w, t++, "mm.model.fc.weight", 2, fc, s->linears, 0.5f, 0);
}

#endif
