/* nano's text model and image pair before training: shapes, hyper-parameters and random values. */
#include "scenes/pretrain.h"

#include "engine/gguf.h"
#include "scenes/pretrain_start_audio.h"
#include "scenes/scene_vocabulary.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    WIDTH = 128,
    LAYERS = 4,
    HEADS = 4,
    HEAD_SIZE = 32,
    KV_HEADS = 2,
    FF = 512,
    CONTEXT = 2048,
    PATCH = 8,
    GRID = SCENE_SIZE / PATCH,
    SHUFFLE = 3
};

#define STD 0.05                     /* of matrices that read the residual stream */
#define STD_OUT (STD / 2.8284271247) /* of those that write it: STD / sqrt(2 LAYERS) */
#define POSITION 0.4                 /* amplitude of a position's waves */
#define ONES (-1.0)                  /* instead of a deviation: all ones */

/* One tensor; `%d` in the name stands for the block. A deviation of 0 means zeros. */
typedef struct tensor_row {
    const char *name;
    uint32_t n_dims;
    uint64_t ne[4];
    double deviation;
} tensor_row;

static const tensor_row text_ends[] = {
    {"token_embd.weight", 2, {WIDTH, SCENE_VOCABULARY_TOKENS}, STD},
    {"output_norm.weight", 1, {WIDTH}, ONES},
};

static const tensor_row text_block[] = {
    {"blk.%d.attn_norm.weight", 1, {WIDTH}, ONES},
    {"blk.%d.attn_q.weight", 2, {WIDTH, HEADS *HEAD_SIZE}, STD},
    {"blk.%d.attn_k.weight", 2, {WIDTH, KV_HEADS *HEAD_SIZE}, STD},
    {"blk.%d.attn_v.weight", 2, {WIDTH, KV_HEADS *HEAD_SIZE}, STD},
    {"blk.%d.attn_output.weight", 2, {HEADS * HEAD_SIZE, WIDTH}, STD_OUT},
    {"blk.%d.ffn_norm.weight", 1, {WIDTH}, ONES},
    {"blk.%d.ffn_gate.weight", 2, {WIDTH, FF}, STD},
    {"blk.%d.ffn_up.weight", 2, {WIDTH, FF}, STD},
    {"blk.%d.ffn_down.weight", 2, {FF, WIDTH}, STD_OUT},
};

static const tensor_row tower_ends[] = {
    {"v.patch_embd.weight", 4, {PATCH, PATCH, 3, WIDTH}, STD},
    {"v.patch_embd.bias", 1, {WIDTH}, 0},
    {"v.position_embd.weight", 2, {WIDTH, GRID *GRID}, STD},
    {"v.post_ln.weight", 1, {WIDTH}, ONES},
    {"v.post_ln.bias", 1, {WIDTH}, 0},
    {"mm.model.fc.weight", 2, {WIDTH * SHUFFLE * SHUFFLE, WIDTH}, 0.006},
};

static const tensor_row tower_block[] = {
    {"v.blk.%d.ln1.weight", 1, {WIDTH}, ONES},
    {"v.blk.%d.ln1.bias", 1, {WIDTH}, 0},
    {"v.blk.%d.attn_q.weight", 2, {WIDTH, WIDTH}, STD},
    {"v.blk.%d.attn_q.bias", 1, {WIDTH}, 0},
    {"v.blk.%d.attn_k.weight", 2, {WIDTH, WIDTH}, STD},
    {"v.blk.%d.attn_k.bias", 1, {WIDTH}, 0},
    {"v.blk.%d.attn_v.weight", 2, {WIDTH, WIDTH}, STD},
    {"v.blk.%d.attn_v.bias", 1, {WIDTH}, 0},
    {"v.blk.%d.attn_out.weight", 2, {WIDTH, WIDTH}, STD_OUT},
    {"v.blk.%d.attn_out.bias", 1, {WIDTH}, 0},
    {"v.blk.%d.ln2.weight", 1, {WIDTH}, ONES},
    {"v.blk.%d.ln2.bias", 1, {WIDTH}, 0},
    {"v.blk.%d.ffn_up.weight", 2, {WIDTH, FF}, STD},
    {"v.blk.%d.ffn_up.bias", 1, {FF}, 0},
    {"v.blk.%d.ffn_down.weight", 2, {FF, WIDTH}, STD_OUT},
    {"v.blk.%d.ffn_down.bias", 1, {WIDTH}, 0},
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

/* Positions start as waves along x (first half of the channels) and y, eight lengths from 2 to 24
 * patches in both phases: patches that are near are alike, which attention uses from the start. */
static void add_waves(float *values)
{
    enum { AXIS = WIDTH / 2, LENGTHS = 8 };
    for (size_t i = 0; i < (size_t)GRID * GRID * WIDTH; i++) {
        size_t patch = i / WIDTH, channel = i % WIDTH;
        double at = channel < AXIS ? (double)(patch % GRID) : (double)(patch / GRID);
        double length = 2 * pow(GRID, (double)(channel / 2 % LENGTHS) / (LENGTHS - 1));
        double turn = at / length + (channel % 2 ? 0.25 : 0);
        values[i] += (float)(POSITION * cos(2 * M_PI * turn));
    }
}

static tacit_status put_row(gguf_writer *w, const tensor_row *row, int block, uint64_t seed,
                            tacit_error *err)
{
    char name[64];
    size_t n = 1, at = 0;
    const char *mark = strstr(row->name, "%d");
    at = mark ? (size_t)(mark - row->name) : strlen(row->name);
    snprintf(name, sizeof name, "%.*s", (int)at, row->name);
    if (mark)
        snprintf(name + at, sizeof name - at, "%d%s", block, mark + 2);
    for (uint32_t i = 0; i < row->n_dims; i++)
        n *= row->ne[i];
    float *values = malloc(n * sizeof *values);
    if (!values)
        return tacit_fail(err, TACIT_NO_MEMORY, "no memory for %s", name);
    scene_prng prng = scene_prng_make(seed, name, 0);
    for (size_t i = 0; i < n; i++)
        values[i] = row->deviation < 0 ? 1 : (float)row->deviation * draw_normal(&prng);
    if (strcmp(name, "v.position_embd.weight") == 0)
        add_waves(values);
    gguf_put_tensor(w, name, row->n_dims, row->ne, TACIT_TYPE_F32, values);
    free(values);
    return TACIT_OK;
}

/* Tensors of which a file has one each, and of which it has one a block. */
typedef struct tensor_set {
    const tensor_row *ends;
    size_t n_ends;
    const tensor_row *block;
    size_t n_block;
} tensor_set;

static const tensor_set text_set = {text_ends, COUNT_OF(text_ends), text_block,
                                    COUNT_OF(text_block)};
static const tensor_set tower_set = {tower_ends, COUNT_OF(tower_ends), tower_block,
                                     COUNT_OF(tower_block)};

static tacit_status put_tensors(gguf_writer *w, const tensor_set *set, uint64_t seed,
                                tacit_error *err)
{
    tacit_status status = TACIT_OK;
    for (size_t i = 0; i < set->n_ends && status == TACIT_OK; i++)
        status = put_row(w, &set->ends[i], 0, seed, err);
    for (int b = 0; b < LAYERS; b++)
        for (size_t i = 0; i < set->n_block && status == TACIT_OK; i++)
            status = put_row(w, &set->block[i], b, seed, err);
    return status;
}

static void put_text(gguf_writer *w, const char *key, const char *text)
{
    gguf_put_string(w, key, text, strlen(text));
}

static void put_text_keys(gguf_writer *w)
{
    put_text(w, "general.architecture", "llama");
    put_text(w, "general.type", "model");
    put_text(w, "general.name", "nano");
    put_text(w, "general.license", "apache-2.0");
    gguf_put_u32(w, "general.file_type", 0);
    gguf_put_u32(w, "general.quantization_version", 2);
    gguf_put_u32(w, "llama.context_length", CONTEXT);
    gguf_put_u32(w, "llama.embedding_length", WIDTH);
    gguf_put_u32(w, "llama.block_count", LAYERS);
    gguf_put_u32(w, "llama.feed_forward_length", FF);
    gguf_put_u32(w, "llama.attention.head_count", HEADS);
    gguf_put_u32(w, "llama.attention.head_count_kv", KV_HEADS);
    gguf_put_f32(w, "llama.attention.layer_norm_rms_epsilon", 1e-5f);
    gguf_put_u32(w, "llama.rope.dimension_count", HEAD_SIZE);
    gguf_put_f32(w, "llama.rope.freq_base", 10000.0f);
    gguf_put_u32(w, "llama.vocab_size", SCENE_VOCABULARY_TOKENS);
}

static void put_tower_keys(gguf_writer *w)
{
    const float half[3] = {0.5f, 0.5f, 0.5f};
    put_text(w, "general.architecture", "clip");
    put_text(w, "general.type", "mmproj");
    put_text(w, "general.name", "nano");
    put_text(w, "general.description", "image encoder of nano");
    gguf_put_u32(w, "general.file_type", 0);
    gguf_put_u32(w, "general.quantization_version", 2);
    gguf_put_bool(w, "clip.has_vision_encoder", true);
    put_text(w, "clip.projector_type", "idefics3");
    gguf_put_bool(w, "clip.use_gelu", true);
    gguf_put_u32(w, "clip.vision.image_size", SCENE_SIZE);
    gguf_put_u32(w, "clip.vision.preproc_image_size", SCENE_SIZE);
    gguf_put_u32(w, "clip.vision.patch_size", PATCH);
    gguf_put_u32(w, "clip.vision.embedding_length", WIDTH);
    gguf_put_u32(w, "clip.vision.feed_forward_length", FF);
    gguf_put_u32(w, "clip.vision.block_count", LAYERS);
    gguf_put_u32(w, "clip.vision.projection_dim", WIDTH);
    gguf_put_u32(w, "clip.vision.attention.head_count", HEADS);
    gguf_put_f32(w, "clip.vision.attention.layer_norm_epsilon", 1e-6f);
    gguf_put_u32(w, "clip.vision.projector.scale_factor", SHUFFLE);
    gguf_put_array(w, "clip.vision.image_mean", GGUF_F32, half, 3);
    gguf_put_array(w, "clip.vision.image_std", GGUF_F32, half, 3);
}

static tacit_status put_text_file(gguf_writer *w, tacit_error *err)
{
    scene_vocabulary v = {0};
    tacit_status status = scene_vocabulary_make(&v, err);
    if (status != TACIT_OK)
        return status;
    put_text_keys(w);
    scene_vocabulary_put(&v, w);
    scene_vocabulary_free(&v);
    return TACIT_OK;
}

/* One file; `put_keys` NULL: the text model's, whose vocabulary may fail. */
static tacit_status write_file(const char *path, void (*put_keys)(gguf_writer *w),
                               const tensor_set *set, uint64_t seed, tacit_error *err)
{
    gguf_writer *w = gguf_writer_new();
    tacit_status status = TACIT_OK;
    if (!w)
        return tacit_fail(err, TACIT_NO_MEMORY, "%s: no memory", path);
    if (put_keys)
        put_keys(w);
    else
        TACIT_TRY(put_text_file(w, err), out);
    TACIT_TRY(put_tensors(w, set, seed, err), out);
    status = gguf_write(w, path, err);
out:
    gguf_writer_free(w);
    return status;
}

tacit_status pretrain_write_start(const pretrain_files *files, uint64_t seed, tacit_error *err)
{
    const char *const *path = files->path;
    tacit_status status;
    TACIT_TRY(write_file(path[PRETRAIN_TEXT], NULL, &text_set, seed, err), out);
    TACIT_TRY(write_file(path[PRETRAIN_IMAGE], put_tower_keys, &tower_set, seed, err), out);
    TACIT_TRY(pretrain_write_start_audio(path[PRETRAIN_AUDIO], TACIT_TYPE_F32, seed, err), out);
    status = pretrain_write_sensor(path[PRETRAIN_SENSOR], WIDTH, seed, err);
out:
    return status;
}
