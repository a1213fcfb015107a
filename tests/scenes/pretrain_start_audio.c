/* nano's audio pair before training: a Whisper encoder in small, for clips of at most 4 seconds. */
#include "scenes/pretrain_start_audio.h"

#include "engine/gguf.h"
#include "scenes/scene_prng.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    MEL = 48,
    WIDTH = 64,
    LAYERS = 2,
    HEADS = 4,
    FF = 128,
    FRAMES = 400, /* 4 seconds */
    POSITIONS = FRAMES / 2,
    STACK = 8,
    MIDDLE = 32,
    OUT = 128 /* of nano's text model */
};

#define STD 0.1           /* of matrices that read the residual stream: nearly 1 / sqrt(WIDTH) */
#define STD_OUT (STD / 2) /* of those that write it: STD / sqrt(2 LAYERS) */
#define ONES (-1.0)       /* instead of a deviation: all ones */

/* One tensor; `%d` in the name stands for the block. A deviation of 0 means zeros. */
typedef struct tensor_row {
    const char *name;
    uint32_t n_dims;
    uint64_t ne[3];
    double deviation;
} tensor_row;

static const tensor_row ends[] = {
    {"a.conv1d.1.weight", 3, {3, MEL, WIDTH}, 0.09}, /* about 1 / sqrt(inputs) */
    {"a.conv1d.1.bias", 2, {1, WIDTH}, 0},
    {"a.conv1d.2.weight", 3, {3, WIDTH, WIDTH}, 0.1}, /* GELU has halved what comes in */
    {"a.conv1d.2.bias", 2, {1, WIDTH}, 0},
    {"a.position_embd.weight", 2, {WIDTH, POSITIONS}, 0},
    {"a.post_ln.weight", 1, {WIDTH}, ONES},
    {"a.post_ln.bias", 1, {WIDTH}, 0},
    {"mm.a.norm_pre.weight", 1, {STACK * WIDTH}, ONES},
    {"mm.a.mlp.1.weight", 2, {STACK * WIDTH, 2 * MIDDLE}, 0.044},
    {"mm.a.norm_mid.weight", 1, {MIDDLE}, ONES},
    /* Rows start in the size of the text model's token embeddings, 0.05. */
    {"mm.a.mlp.2.weight", 2, {MIDDLE, OUT}, 0.009},
};

static const tensor_row block[] = {
    {"a.blk.%d.ln1.weight", 1, {WIDTH}, ONES},
    {"a.blk.%d.ln1.bias", 1, {WIDTH}, 0},
    {"a.blk.%d.attn_q.weight", 2, {WIDTH, WIDTH}, STD},
    {"a.blk.%d.attn_q.bias", 1, {WIDTH}, 0},
    {"a.blk.%d.attn_k.weight", 2, {WIDTH, WIDTH}, STD},
    {"a.blk.%d.attn_v.weight", 2, {WIDTH, WIDTH}, STD},
    {"a.blk.%d.attn_v.bias", 1, {WIDTH}, 0},
    {"a.blk.%d.attn_out.weight", 2, {WIDTH, WIDTH}, STD_OUT},
    {"a.blk.%d.attn_out.bias", 1, {WIDTH}, 0},
    {"a.blk.%d.ln2.weight", 1, {WIDTH}, ONES},
    {"a.blk.%d.ln2.bias", 1, {WIDTH}, 0},
    {"a.blk.%d.ffn_up.weight", 2, {WIDTH, FF}, STD},
    {"a.blk.%d.ffn_up.bias", 1, {FF}, 0},
    {"a.blk.%d.ffn_down.weight", 2, {FF, WIDTH}, STD_OUT},
    {"a.blk.%d.ffn_down.bias", 1, {WIDTH}, 0},
};

#define COUNT_OF(list) (sizeof(list) / sizeof((list)[0]))

/* Nearly normal without libm, so that the bytes are the same everywhere: twelve uniforms. */
static float draw_normal(scene_prng *p)
{
    double sum = -6;
    for (int i = 0; i < 12; i++)
        sum += scene_prng_unit(p);
    return (float)sum;
}

/* Whisper's positions: sines, then cosines, of lengths from 2 pi to 2 pi 10000 positions. */
static void fill_waves(float *values)
{
    enum { HALF = WIDTH / 2 };
    for (size_t at = 0; at < POSITIONS; at++)
        for (size_t i = 0; i < HALF; i++) {
            double angle = (double)at * pow(10000, -(double)i / (HALF - 1));
            values[at * WIDTH + i] = (float)sin(angle);
            values[at * WIDTH + HALF + i] = (float)cos(angle);
        }
}

static tacit_status put_row(gguf_writer *w, const tensor_row *row, int number, tacit_type type,
                            uint64_t seed, tacit_error *err)
{
    char name[64];
    size_t n = 1;
    const char *mark = strstr(row->name, "%d");
    size_t at = mark ? (size_t)(mark - row->name) : strlen(row->name);
    snprintf(name, sizeof name, "%.*s", (int)at, row->name);
    if (mark)
        snprintf(name + at, sizeof name - at, "%d%s", number, mark + 2);
    for (uint32_t i = 0; i < row->n_dims; i++)
        n *= row->ne[i];
    float *values = malloc(n * sizeof *values);
    if (!values)
        return tacit_fail(err, TACIT_NO_MEMORY, "no memory for %s", name);
    scene_prng prng = scene_prng_make(seed, name, 0);
    for (size_t i = 0; i < n; i++)
        values[i] = row->deviation < 0 ? 1 : (float)row->deviation * draw_normal(&prng);
    if (strcmp(name, "a.position_embd.weight") == 0)
        fill_waves(values);
    bool matrix = row->n_dims > 1 && row->ne[0] > 1;
    gguf_put_tensor(w, name, row->n_dims, row->ne, matrix ? type : TACIT_TYPE_F32, values);
    free(values);
    return TACIT_OK;
}

static void put_text(gguf_writer *w, const char *key, const char *text)
{
    gguf_put_string(w, key, text, strlen(text));
}

static void put_keys(gguf_writer *w, tacit_type type)
{
    put_text(w, "general.architecture", "clip");
    put_text(w, "general.type", "mmproj");
    put_text(w, "general.name", "nano");
    put_text(w, "general.description", "audio encoder of nano");
    gguf_put_u32(w, "general.file_type", tacit_type_find(type)->file_type);
    gguf_put_u32(w, "general.quantization_version", 2);
    gguf_put_bool(w, "clip.has_audio_encoder", true);
    put_text(w, "clip.projector_type", "ultravox");
    gguf_put_u32(w, "clip.audio.num_mel_bins", MEL);
    gguf_put_u32(w, "clip.audio.embedding_length", WIDTH);
    gguf_put_u32(w, "clip.audio.feed_forward_length", FF);
    gguf_put_u32(w, "clip.audio.block_count", LAYERS);
    gguf_put_u32(w, "clip.audio.projection_dim", OUT);
    gguf_put_u32(w, "clip.audio.attention.head_count", HEADS);
    gguf_put_f32(w, "clip.audio.attention.layer_norm_epsilon", 1e-5f);
    gguf_put_u32(w, "clip.audio.projector.stack_factor", STACK);
    gguf_put_bool(w, "tacit.audio.unpadded", true);
    gguf_put_u32(w, "tacit.audio.max_frames", FRAMES);
    put_text(w, "tacit.media_begin", "<audio>");
    put_text(w, "tacit.media_end", "</audio>");
}

tacit_status pretrain_write_start_audio(const char *path, tacit_type type, uint64_t seed,
                                        tacit_error *err)
{
    tacit_status status = TACIT_OK;
    gguf_writer *w = gguf_writer_new();
    if (!w)
        return tacit_fail(err, TACIT_NO_MEMORY, "%s: no memory", path);
    put_keys(w, type);
    for (size_t i = 0; i < COUNT_OF(ends) && status == TACIT_OK; i++)
        status = put_row(w, &ends[i], 0, type, seed, err);
    for (int b = 0; b < LAYERS; b++)
        for (size_t i = 0; i < COUNT_OF(block) && status == TACIT_OK; i++)
            status = put_row(w, &block[i], b, type, seed, err);
    if (status == TACIT_OK)
        status = gguf_write(w, path, err);
    gguf_writer_free(w);
    return status;
}
