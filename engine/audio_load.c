#include "engine/audio_file.h"
#include "engine/audio_mel.h"
#include "engine/audio_parts.h"
#include "engine/mmproj_reader.h"

#include "common/secret.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MAX_WIDTH 8192
#define MAX_FF 65536
#define MAX_LAYERS 256
#define MAX_STACK 64
#define MAX_POSITIONS 8192
#define MAX_OUT 65536
#define MAX_FRAMES 360000              /* an hour */
#define USUAL_FRAMES 60000             /* ten minutes */
#define CACHE_VALUES ((size_t)4 << 20) /* towers of fewer weights keep fp32 copies */

#define PREFIX "clip.audio."

typedef struct audio_loader {
    tacit_audio *a;
    const gguf_file *file;
    tacit_error *err;
} audio_loader;

static const struct {
    const char *key;
    uint32_t max;
    size_t offset;
} size_keys[] = {
    {PREFIX "num_mel_bins", AUDIO_MEL_MAX_BINS, offsetof(audio_shape, n_mel)},
    {PREFIX "embedding_length", MAX_WIDTH, offsetof(audio_shape, width)},
    {PREFIX "feed_forward_length", MAX_FF, offsetof(audio_shape, ff)},
    {PREFIX "block_count", MAX_LAYERS, offsetof(audio_shape, layers)},
    {PREFIX "attention.head_count", MAX_WIDTH, offsetof(audio_shape, heads)},
    {PREFIX "projector.stack_factor", MAX_STACK, offsetof(audio_shape, stack)},
};

static tacit_status read_sizes(audio_loader *t)
{
    for (size_t i = 0; i < sizeof size_keys / sizeof size_keys[0]; i++) {
        uint32_t size;
        tacit_status status =
            mmproj_get_size(t->file, size_keys[i].key, size_keys[i].max, &size, t->err);
        if (status != TACIT_OK)
            return status;
        memcpy((char *)&t->a->shape + size_keys[i].offset, &size, sizeof size);
    }
    const audio_shape *s = &t->a->shape;
    if (s->width % s->heads != 0)
        return tacit_fail(t->err, TACIT_BAD_INPUT,
                          "%s: embedding length %u is no multiple of head count %u",
                          gguf_name(t->file), s->width, s->heads);
    return TACIT_OK;
}

static tacit_status check_kind(audio_loader *t)
{
    const char *projector = PREFIX "projector_type";
    bool has = false;
    tacit_status status;
    TACIT_TRY(mmproj_expect_string(t->file, "general.architecture", "clip",
                                   "a text model goes to -m", t->err),
              done);
    status = gguf_get_bool(t->file, "clip.has_audio_encoder", &has, t->err);
    if (status != TACIT_OK && status != TACIT_NOT_FOUND)
        return status;
    if (!has)
        return tacit_fail(t->err, TACIT_BAD_INPUT,
                          "%s: clip.has_audio_encoder is not true: not an audio encoder",
                          gguf_name(t->file));
    if (!gguf_has_key(t->file, projector))
        projector = "clip.projector_type";
    status = mmproj_expect_string(t->file, projector, "ultravox",
                                  "other projectors are not supported", t->err);
done:
    return status;
}

/* Appends tensor `name`, whose shape must be ne[0..dims), as the matrix [rows, cols]. */
static tacit_status take(audio_loader *t, const char *name, size_t rows, size_t cols,
                         const uint64_t ne[GGUF_MAX_DIMS])
{
    const gguf_tensor *g;
    tacit_status status = mmproj_find_tensor(t->file, name, ne, &g, t->err);
    if (status != TACIT_OK)
        return status;
    t->a->tensor[t->a->count++] = (encoder_tensor){.name = g->name,
                                                   .data = g,
                                                   .rows = rows,
                                                   .cols = cols,
                                                   .projector = strncmp(name, "mm.", 3) == 0};
    return TACIT_OK;
}

/* n_in 0: a vector of n_out values. */
static tacit_status take_matrix(audio_loader *t, const char *name, size_t n_out, size_t n_in)
{
    const uint64_t matrix[GGUF_MAX_DIMS] = {n_in, n_out, 1, 1};
    const uint64_t vector[GGUF_MAX_DIMS] = {n_out, 1, 1, 1};
    return n_in ? take(t, name, n_out, n_in, matrix) : take(t, name, 1, n_out, vector);
}

/* Kernel [3, channels, width] and bias; converters store the bias as [1, width]. */
static tacit_status take_convolution(audio_loader *t, int number, size_t channels)
{
    size_t width = t->a->shape.width;
    const uint64_t kernel[GGUF_MAX_DIMS] = {3, channels, width, 1};
    const uint64_t column[GGUF_MAX_DIMS] = {1, width, 1, 1};
    char name[64];
    tacit_status status;
    snprintf(name, sizeof name, "a.conv1d.%d.weight", number);
    TACIT_TRY(take(t, name, width, 3 * channels, kernel), done);
    snprintf(name, sizeof name, "a.conv1d.%d.bias", number);
    const gguf_tensor *bias = gguf_tensor_find(t->file, name);
    status = bias && bias->ne[0] == 1 && width > 1 ? take(t, name, 1, width, column)
                                                   : take_matrix(t, name, width, 0);
done:
    return status;
}

static tacit_status find_sizes(audio_loader *t)
{
    audio_shape *s = &t->a->shape;
    uint32_t both = 0;
    tacit_status status;
    TACIT_TRY(mmproj_get_extent(t->file, "a.position_embd.weight", 1, MAX_POSITIONS, &s->positions,
                                t->err),
              done);
    TACIT_TRY(mmproj_get_extent(t->file, "mm.a.mlp.1.weight", 1, 2 * MAX_FF, &both, t->err), done);
    s->middle = both / 2;
    if (gguf_tensor_find(t->file, "mm.a.mlp.1.weight") && both % 2 != 0)
        return tacit_fail(t->err, TACIT_BAD_INPUT,
                          "%s: tensor mm.a.mlp.1.weight has %u outputs: expected two equal halves",
                          gguf_name(t->file), both);
    status = mmproj_get_extent(t->file, "mm.a.mlp.2.weight", 1, MAX_OUT, &s->out_width, t->err);
done:
    return status;
}

/* Tacit's own keys. */
static tacit_status read_length(audio_loader *t)
{
    audio_shape *s = &t->a->shape;
    uint64_t frames = USUAL_FRAMES, chunk = 2 * (uint64_t)s->positions;
    s->unpadded = true;
    tacit_status status = gguf_get_bool(t->file, "tacit.audio.unpadded", &s->unpadded, t->err);
    if (status != TACIT_OK && status != TACIT_NOT_FOUND)
        return status;
    status = gguf_get_u64(t->file, "tacit.audio.max_frames", 2, MAX_FRAMES, &frames, t->err);
    if (status != TACIT_OK && status != TACIT_NOT_FOUND)
        return status;
    if (!s->unpadded && frames < chunk)
        return tacit_fail(t->err, TACIT_BAD_INPUT,
                          "%s: clips of at most %" PRIu64 " frames: expected at least %" PRIu64
                          ", one padded chunk",
                          gguf_name(t->file), frames, chunk);
    s->max_frames = (uint32_t)(s->unpadded ? frames : frames / chunk * chunk);
    return TACIT_OK;
}

/* Of the block's tensors: the name, and input and output as width (1) or feed-forward width (2). */
static const struct {
    const char *name;
    int in, out;
} parts[AUDIO_PARTS] = {
    {"ln1.weight", 0, 1},  {"ln1.bias", 0, 1},        {"attn_q.weight", 1, 1},
    {"attn_q.bias", 0, 1}, {"attn_k.weight", 1, 1},   {"attn_v.weight", 1, 1},
    {"attn_v.bias", 0, 1}, {"attn_out.weight", 1, 1}, {"attn_out.bias", 0, 1},
    {"ln2.weight", 0, 1},  {"ln2.bias", 0, 1},        {"ffn_up.weight", 1, 2},
    {"ffn_up.bias", 0, 2}, {"ffn_down.weight", 2, 1}, {"ffn_down.bias", 0, 1},
};

bool audio_has_bias(audio_part part)
{
    return part != AUDIO_K;
}

static tacit_status take_blocks(audio_loader *t)
{
    const audio_shape *s = &t->a->shape;
    const size_t sizes[] = {0, s->width, s->ff};
    for (size_t layer = 0; layer < s->layers; layer++)
        for (size_t i = 0; i < AUDIO_PARTS; i++) {
            char name[64];
            snprintf(name, sizeof name, "a.blk.%zu.%s", layer, parts[i].name);
            tacit_status status = take_matrix(t, name, sizes[parts[i].out], sizes[parts[i].in]);
            if (status != TACIT_OK)
                return status;
        }
    return TACIT_OK;
}

static tacit_status take_tail(audio_loader *t)
{
    const audio_shape *s = &t->a->shape;
    size_t stacked = (size_t)s->stack * s->width;
    const struct {
        const char *name;
        size_t n_out, n_in;
    } tail[AUDIO_TAIL] = {
        {"a.post_ln.weight", s->width, 0},
        {"a.post_ln.bias", s->width, 0},
        {"mm.a.norm_pre.weight", stacked, 0},
        {"mm.a.mlp.1.weight", (size_t)2 * s->middle, stacked},
        {"mm.a.norm_mid.weight", s->middle, 0},
        {"mm.a.mlp.2.weight", s->out_width, s->middle},
    };
    t->a->tail = t->a->count;
    for (size_t i = 0; i < AUDIO_TAIL; i++) {
        tacit_status status = take_matrix(t, tail[i].name, tail[i].n_out, tail[i].n_in);
        if (status != TACIT_OK)
            return status;
    }
    return TACIT_OK;
}

/* A tensor that was not taken (a bias of k, a norm after the projector, ...) would change the
 * rows. */
static tacit_status refuse_others(audio_loader *t)
{
    for (size_t i = 0; i < gguf_tensor_count(t->file); i++) {
        const gguf_tensor *g = gguf_tensor_at(t->file, i);
        size_t j = 0;
        while (j < t->a->count && t->a->tensor[j].data != g)
            j++;
        if (j == t->a->count)
            return tacit_fail(t->err, TACIT_BAD_INPUT,
                              "%s: tensor %s is not part of an ultravox tower of %u blocks",
                              gguf_name(t->file), g->name, t->a->shape.layers);
    }
    return TACIT_OK;
}

static tacit_status take_all(audio_loader *t)
{
    tacit_audio *a = t->a;
    const audio_shape *s = &a->shape;
    tacit_status status;
    size_t most = AUDIO_FIRST_BLOCK + (size_t)s->layers * AUDIO_PARTS + AUDIO_TAIL;
    a->tensor = calloc(most, sizeof *a->tensor);
    a->linear = calloc(most, sizeof *a->linear);
    a->plain = calloc(most, sizeof *a->plain);
    a->owned = calloc(most, sizeof *a->owned);
    if (!a->tensor || !a->linear || !a->plain || !a->owned)
        return tacit_fail(t->err, TACIT_NO_MEMORY, "no memory for %zu tensors", most);
    TACIT_TRY(find_sizes(t), done);
    TACIT_TRY(read_length(t), done);
    TACIT_TRY(take_convolution(t, 1, s->n_mel), done);
    TACIT_TRY(take_convolution(t, 2, s->width), done);
    TACIT_TRY(take_matrix(t, "a.position_embd.weight", s->positions, s->width), done);
    TACIT_TRY(take_blocks(t), done);
    TACIT_TRY(take_tail(t), done);
    status = refuse_others(t);
done:
    return status;
}

/* The weights that multiply rows: they may stay in the file's type. */
static bool is_linear(const tacit_audio *a, size_t i)
{
    if (i < AUDIO_FIRST_BLOCK)
        return false;
    if (i >= a->tail)
        return i == a->tail + AUDIO_MLP1 || i == a->tail + AUDIO_MLP2;
    return parts[(i - AUDIO_FIRST_BLOCK) % AUDIO_PARTS].in > 0;
}

static tacit_status check_attention(audio_loader *t)
{
    const audio_shape *s = &t->a->shape;
    size_t longest = 2 * (size_t)s->positions;
    size_t frames = s->max_frames < longest ? s->max_frames : longest;
    const mmproj_attention a = {"a clip", s->layers, (uint32_t)((frames + 1) / 2),
                                s->width, s->heads,  (s->max_frames + frames - 1) / frames};
    return mmproj_check_attention(t->file, &a, t->err);
}

static tacit_status make_plain(audio_loader *t, size_t i)
{
    return mmproj_plain_values(t->file, t->a->tensor[i].data, &t->a->plain[i], &t->a->owned[i],
                               t->err);
}

static tacit_status make_linear(audio_loader *t, size_t i, bool cache)
{
    tacit_linear *l = &t->a->linear[i];
    encoder_tensor *tensor = &t->a->tensor[i];
    tensor->linear = true;
    tacit_status status = linear_init(l, tensor->data, NULL, tensor->cols, tensor->rows, t->err);
    if (status != TACIT_OK || !cache)
        return status;
    status = linear_cache(l);
    return status == TACIT_OK ? status : tacit_fail(t->err, status, "no memory for the tower");
}

static tacit_status prepare(audio_loader *t)
{
    tacit_audio *a = t->a;
    size_t values = 0;
    tacit_status status = TACIT_OK;
    for (size_t i = 0; i < a->count; i++)
        values += a->tensor[i].rows * a->tensor[i].cols;
    if (values <= CACHE_VALUES)
        status = linear_cache_judge(values, t->err);
    for (size_t i = 0; i < a->count && status == TACIT_OK; i++)
        status = is_linear(a, i) ? make_linear(t, i, values <= CACHE_VALUES) : make_plain(t, i);
    return status;
}

tacit_status audio_load(tacit_audio **out, const gguf_file *file, tacit_error *err)
{
    tacit_status status;
    audio_loader t = {calloc(1, sizeof *t.a), file, err};
    *out = NULL;
    if (t.a)
        t.a->packing = fast_tower_new();
    if (!t.a || !t.a->packing) {
        audio_free(t.a);
        return tacit_fail(err, TACIT_NO_MEMORY, "no memory for an audio tower");
    }
    t.a->file = file;
    TACIT_TRY(check_kind(&t), done);
    TACIT_TRY(read_sizes(&t), done);
    TACIT_TRY(
        mmproj_get_epsilon(file, PREFIX "attention.layer_norm_epsilon", &t.a->shape.epsilon, err),
        done);
    TACIT_TRY(take_all(&t), done);
    TACIT_TRY(check_attention(&t), done);
    TACIT_TRY(prepare(&t), done);
    *out = t.a;
    return TACIT_OK;
done:
    audio_free(t.a);
    return status;
}

void audio_free(tacit_audio *a)
{
    if (!a)
        return;
    for (size_t i = 0; i < a->count; i++) {
        linear_drop_cache(&a->linear[i]);
        free(a->owned[i]);
    }
    free(a->tensor);
    free(a->linear);
    free(a->plain);
    free(a->owned);
    fast_tower_free(a->packing);
    free(a);
}

const audio_shape *audio_get_shape(const tacit_audio *a)
{
    return &a->shape;
}

size_t audio_tensor_count(const tacit_audio *a)
{
    return a->count;
}

const encoder_tensor *audio_tensor_at(const tacit_audio *a, size_t i)
{
    return &a->tensor[i];
}

bool audio_chunk_of(const tacit_audio *a, const audio_clip *clip, size_t index, audio_chunk *c)
{
    const audio_shape *s = &a->shape;
    size_t most = 2 * (size_t)s->positions, first = index * most;
    if (first >= clip->n_frames)
        return false;
    size_t frames = clip->n_frames - first < most ? clip->n_frames - first : most;
    size_t positions = (frames + 1) / 2;
    *c = (audio_chunk){.mel = clip->mel ? clip->mel + first * s->n_mel : NULL,
                       .frames = frames,
                       .positions = positions,
                       .rows = audio_stacked(s, positions)};
    return true;
}

size_t audio_rows(const tacit_audio *a, size_t n_frames)
{
    const audio_clip clip = {NULL, n_frames};
    audio_chunk c;
    size_t rows = 0;
    for (size_t i = 0; audio_chunk_of(a, &clip, i, &c); i++)
        rows += c.rows;
    return rows;
}

tacit_status audio_prepare(float **frames, size_t *n_frames, const tacit_audio *a,
                           const void *bytes, size_t size, const char *name, tacit_error *err)
{
    const audio_shape *s = &a->shape;
    size_t multiple = s->unpadded ? 1 : 2 * (size_t)s->positions, count;
    float *samples;
    *frames = NULL;
    *n_frames = 0;
    tacit_status status = audio_file_decode(&samples, &count, bytes, size, name,
                                            (size_t)s->max_frames * AUDIO_HOP, err);
    if (status != TACIT_OK)
        return status;
    status = audio_mel(frames, samples, count, multiple, s->n_mel, err);
    if (status == TACIT_OK)
        *n_frames = audio_mel_frames(count, multiple);
    else
        tacit_fail_context(err, "%s", name);
    tacit_wipe_free(samples);
    return status;
}
