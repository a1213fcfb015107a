/* The audio tower once more, in double, one number at a time, from the description of the format
 * alone: the oracle of the fast one. Tensors are given as double arrays in the order of
 * audio_tensor_at. Also a small tower whose weights are a formula that make_audio.py knows too. */
#ifndef TACIT_TESTS_REFERENCE_AUDIO_H
#define TACIT_TESTS_REFERENCE_AUDIO_H

#include "engine/audio.h"
#include "engine/gguf.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Uniform in [-1/2, 1/2), exact in fp32: value number i of tensor t. */
static inline float whisper_uniform(uint32_t t, uint32_t i)
{
    uint32_t x = i * 0x9E3779B1u + t * 0x85EBCA77u + 0x27D4EB2Fu;
    x = (x ^ x >> 16) * 0x7feb352du;
    x = (x ^ x >> 15) * 0x846ca68bu;
    x ^= x >> 16;
    return (float)(x >> 8) / 16777216.0f - 0.5f;
}

static inline double whisper_gelu(double x)
{
    return 0.5 * x * (1 + erf(x / sqrt(2)));
}

/* y[n_out] = W x + b */
static inline void whisper_linear(double *y, const double *w, const double *b, const double *x,
                                  size_t n_out, size_t n_in)
{
    for (size_t o = 0; o < n_out; o++) {
        y[o] = b ? b[o] : 0;
        for (size_t i = 0; i < n_in; i++)
            y[o] += w[o * n_in + i] * x[i];
    }
}

static inline void whisper_norm(double *y, const double *x, const double *w, const double *b,
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

static inline void reference_rms_norm(double *y, const double *x, const double *w, size_t n)
{
    double square = 0;
    for (size_t i = 0; i < n; i++)
        square += x[i] * x[i] / (double)n;
    for (size_t i = 0; i < n; i++)
        y[i] = x[i] / sqrt(square + 1e-6) * w[i];
}

/* y[n_out, width] = gelu(b + sum over inputs c and taps k of w[o][c][k] x[stride t + k - 1][c]) */
static inline void reference_convolution(double *y, size_t n_out, size_t width, const double *w,
                                         const double *b, const double *x, size_t n,
                                         size_t channels, size_t stride)
{
    for (size_t t = 0; t < n_out; t++)
        for (size_t o = 0; o < width; o++) {
            double sum = b[o];
            for (size_t c = 0; c < channels; c++)
                for (size_t k = 0; k < 3; k++) {
                    long at = (long)(stride * t + k) - 1;
                    if (at >= 0 && at < (long)n)
                        sum += w[(o * channels + c) * 3 + k] * x[(size_t)at * channels + c];
                }
            y[t * width + o] = whisper_gelu(sum);
        }
}

/* mixed[n, d] = attention of q, k, v[n, d] in heads of `head`. */
static inline void reference_attention(double *mixed, const double *q, const double *k,
                                       const double *v, size_t n, size_t d, size_t head)
{
    double *score = calloc(n, sizeof *score);
    memset(mixed, 0, n * d * sizeof *mixed);
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
    free(score);
}

/* x[n, width] in place through one block whose 15 tensors begin at t. */
static inline void whisper_block(const audio_shape *s, double *const *t, double *x, size_t n)
{
    size_t d = s->width;
    double *h = calloc(n * d, sizeof *h), *q = calloc(n * d, sizeof *q);
    double *k = calloc(n * d, sizeof *k), *v = calloc(n * d, sizeof *v);
    double *mixed = calloc(n * d, sizeof *mixed);
    double *up = calloc(s->ff, sizeof *up), *out = calloc(d, sizeof *out);
    for (size_t i = 0; i < n; i++) {
        whisper_norm(h, x + i * d, t[0], t[1], d, (double)s->epsilon);
        whisper_linear(q + i * d, t[2], t[3], h, d, d);
        whisper_linear(k + i * d, t[4], NULL, h, d, d);
        whisper_linear(v + i * d, t[5], t[6], h, d, d);
    }
    reference_attention(mixed, q, k, v, n, d, d / s->heads);
    for (size_t i = 0; i < n; i++) {
        whisper_linear(out, t[7], t[8], mixed + i * d, d, d);
        for (size_t c = 0; c < d; c++)
            x[i * d + c] += out[c];
        whisper_norm(h, x + i * d, t[9], t[10], d, (double)s->epsilon);
        whisper_linear(up, t[11], t[12], h, s->ff, d);
        for (size_t c = 0; c < s->ff; c++)
            up[c] = whisper_gelu(up[c]);
        whisper_linear(out, t[13], t[14], up, d, s->ff);
        for (size_t c = 0; c < d; c++)
            x[i * d + c] += out[c];
    }
    free(h), free(q), free(k), free(v), free(mixed), free(up), free(out);
}

/* One row from stack * width values; t[0] norm_pre, then mlp.1, norm_mid, mlp.2. */
static inline void reference_project(const audio_shape *s, double *const *t, const double *stacked,
                                     double *row)
{
    size_t n = (size_t)s->stack * s->width, m = s->middle;
    double *pre = calloc(n, sizeof *pre), *hidden = calloc(2 * m, sizeof *hidden);
    reference_rms_norm(pre, stacked, t[0], n);
    whisper_linear(hidden, t[1], NULL, pre, 2 * m, n);
    for (size_t i = 0; i < m; i++)
        hidden[i] *= hidden[m + i] / (1 + exp(-hidden[m + i]));
    reference_rms_norm(hidden, hidden, t[2], m);
    whisper_linear(row, t[3], NULL, hidden, s->out_width, m);
    free(pre), free(hidden);
}

/* rows of one chunk of `frames` mel frames. */
static inline void reference_chunk(const audio_shape *s, double *const *t, const float *mel,
                                   size_t frames, double *rows)
{
    size_t d = s->width, n = (frames + 1) / 2, n_rows = (n + s->stack - 1) / s->stack;
    size_t stacked = (size_t)s->stack * d;
    double *x0 = calloc(frames * s->n_mel, sizeof *x0), *x1 = calloc(frames * d, sizeof *x1);
    double *x = calloc(n_rows * stacked, sizeof *x);
    for (size_t i = 0; i < frames * s->n_mel; i++)
        x0[i] = (double)mel[i];
    reference_convolution(x1, frames, d, t[0], t[1], x0, frames, s->n_mel, 1);
    reference_convolution(x, n, d, t[2], t[3], x1, frames, d, 2);
    for (size_t i = 0; i < n * d; i++)
        x[i] += t[4][i];
    for (size_t l = 0; l < s->layers; l++)
        whisper_block(s, t + 5 + 15 * l, x, n);
    double *const *last = t + 5 + 15 * s->layers;
    for (size_t i = 0; i < n; i++)
        whisper_norm(x + i * d, x + i * d, last[0], last[1], d, (double)s->epsilon);
    for (size_t r = 0; r < n_rows; r++)
        reference_project(s, last + 2, x + r * stacked, rows + r * s->out_width);
    free(x0), free(x1), free(x);
}

/* rows of a clip, and how many. */
static inline size_t reference_clip(const audio_shape *s, double *const *t, const float *mel,
                                    size_t frames, double *rows)
{
    size_t chunk = 2 * (size_t)s->positions, n_rows = 0;
    for (size_t at = 0; at < frames; at += chunk) {
        size_t n = frames - at < chunk ? frames - at : chunk;
        reference_chunk(s, t, mel + at * s->n_mel, n, rows + n_rows * s->out_width);
        n_rows += ((n + 1) / 2 + s->stack - 1) / s->stack;
    }
    return n_rows;
}

/* What a tower's file is made of. */
typedef struct whisper_spec {
    uint32_t n_mel, width, ff, heads, layers, positions, stack, middle, out, max_frames;
    tacit_type linears, kernels;
    bool padded, flat_bias; /* flat: biases of convolutions as [width] */
    float gain;             /* of the blocks' matrices; 0: 1 */
} whisper_spec;

static inline void whisper_keys(gguf_writer *w, const whisper_spec *s)
{
    gguf_put_string(w, "general.architecture", "clip", 4);
    gguf_put_bool(w, "clip.has_audio_encoder", true);
    gguf_put_string(w, "clip.projector_type", "ultravox", 8);
    gguf_put_u32(w, "clip.audio.num_mel_bins", s->n_mel);
    gguf_put_u32(w, "clip.audio.embedding_length", s->width);
    gguf_put_u32(w, "clip.audio.feed_forward_length", s->ff);
    gguf_put_u32(w, "clip.audio.block_count", s->layers);
    gguf_put_u32(w, "clip.audio.attention.head_count", s->heads);
    gguf_put_u32(w, "clip.audio.projector.stack_factor", s->stack);
    gguf_put_u32(w, "clip.audio.projection_dim", s->out);
    gguf_put_f32(w, "clip.audio.attention.layer_norm_epsilon", 1e-5f);
    if (s->padded)
        gguf_put_bool(w, "tacit.audio.unpadded", false);
    if (s->max_frames)
        gguf_put_u32(w, "tacit.audio.max_frames", s->max_frames);
}

/* Tensor number t of the layout: values uniform, scaled by `scale` and shifted by `shift`. */
static inline void whisper_put(gguf_writer *w, uint32_t t, const char *name, uint32_t n_dims,
                               const uint64_t *ne, tacit_type type, float scale, float shift)
{
    size_t n = 1;
    for (uint32_t i = 0; i < n_dims; i++)
        n *= ne[i];
    float *values = calloc(n, sizeof *values);
    for (size_t i = 0; i < n; i++)
        values[i] = whisper_uniform(t, (uint32_t)i) * scale + shift;
    gguf_put_tensor(w, name, n_dims, ne, type, values);
    free(values);
}

static inline void reference_put_block(gguf_writer *w, const whisper_spec *s, uint32_t layer,
                                       uint32_t *t)
{
    const struct {
        const char *name;
        uint64_t in, out; /* in 0: a vector */
        float scale, shift;
    } parts[] = {
        {"ln1.weight", 0, s->width, 1, 1},           {"ln1.bias", 0, s->width, 0.5f, 0},
        {"attn_q.weight", s->width, s->width, 1, 0}, {"attn_q.bias", 0, s->width, 0.5f, 0},
        {"attn_k.weight", s->width, s->width, 1, 0}, {"attn_v.weight", s->width, s->width, 1, 0},
        {"attn_v.bias", 0, s->width, 0.5f, 0},       {"attn_out.weight", s->width, s->width, 1, 0},
        {"attn_out.bias", 0, s->width, 0.5f, 0},     {"ln2.weight", 0, s->width, 1, 1},
        {"ln2.bias", 0, s->width, 0.5f, 0},          {"ffn_up.weight", s->width, s->ff, 1, 0},
        {"ffn_up.bias", 0, s->ff, 0.5f, 0},          {"ffn_down.weight", s->ff, s->width, 1, 0},
        {"ffn_down.bias", 0, s->width, 0.5f, 0},
    };
    for (size_t i = 0; i < sizeof parts / sizeof parts[0]; i++) {
        char name[64];
        bool matrix = parts[i].in > 0;
        const uint64_t ne[2] = {matrix ? parts[i].in : parts[i].out, parts[i].out};
        snprintf(name, sizeof name, "a.blk.%u.%s", layer, parts[i].name);
        whisper_put(w, (*t)++, name, matrix ? 2 : 1, ne, matrix ? s->linears : TACIT_TYPE_F32,
                    matrix && s->gain > 0 ? s->gain : parts[i].scale, parts[i].shift);
    }
}

static inline void whisper_tensors(gguf_writer *w, const whisper_spec *s)
{
    uint64_t d = s->width, stacked = d * s->stack;
    const uint64_t first[] = {3, s->n_mel, d}, second[] = {3, d, d}, column[] = {1, d};
    const uint64_t vector[] = {d}, positions[] = {d, s->positions}, pre[] = {stacked};
    const uint64_t mlp1[] = {stacked, (uint64_t)2 * s->middle}, mid[] = {s->middle};
    const uint64_t mlp2[] = {s->middle, s->out};
    uint32_t t = 0, dims = s->flat_bias ? 1 : 2;
    const uint64_t *bias = s->flat_bias ? vector : column;
    whisper_put(w, t++, "a.conv1d.1.weight", 3, first, s->kernels, 0.5f, 0);
    whisper_put(w, t++, "a.conv1d.1.bias", dims, bias, TACIT_TYPE_F32, 0.5f, 0);
    whisper_put(w, t++, "a.conv1d.2.weight", 3, second, s->kernels, 0.5f, 0);
    whisper_put(w, t++, "a.conv1d.2.bias", dims, bias, TACIT_TYPE_F32, 0.5f, 0);
    whisper_put(w, t++, "a.position_embd.weight", 2, positions, TACIT_TYPE_F32, 1, 0);
    for (uint32_t l = 0; l < s->layers; l++)
        reference_put_block(w, s, l, &t);
    whisper_put(w, t++, "a.post_ln.weight", 1, vector, TACIT_TYPE_F32, 0.5f, 1);
    whisper_put(w, t++, "a.post_ln.bias", 1, vector, TACIT_TYPE_F32, 0.5f, 0);
    whisper_put(w, t++, "mm.a.norm_pre.weight", 1, pre, TACIT_TYPE_F32, 0.5f, 1);
    whisper_put(w, t++, "mm.a.mlp.1.weight", 2, mlp1, s->linears, 1, 0);
    whisper_put(w, t++, "mm.a.norm_mid.weight", 1, mid, TACIT_TYPE_F32, 0.5f, 1);
    whisper_put(w, t++, "mm.a.mlp.2.weight", 2, mlp2, s->linears, 1, 0);
}

#endif
