#include "engine/vision_parts.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MAX_IMAGE 4096
#define MAX_PATCH 256
#define MAX_PATCHES 4096 /* attention holds patches^2 scores a thread */
#define MAX_WIDTH 8192
#define MAX_FF 65536
#define MAX_LAYERS 256
#define MAX_OUT 65536
#define MAX_PREPROC 16384
#define CACHE_VALUES ((size_t)4 << 20) /* towers of fewer weights keep fp32 copies */

#define PREFIX "clip.vision."

typedef struct vision_loader {
    tacit_vision *v;
    const gguf_file *file;
    tacit_error *err;
} vision_loader;

static tacit_status get_size(vision_loader *t, const char *key, uint32_t max, uint32_t *out)
{
    uint64_t v = 0;
    tacit_status status = gguf_get_u64(t->file, key, 1, max, &v, t->err);
    if (status == TACIT_NOT_FOUND)
        return tacit_fail(t->err, TACIT_BAD_INPUT, "%s: key %s is missing", gguf_name(t->file),
                          key);
    *out = (uint32_t)v;
    return status;
}

static const struct {
    const char *key;
    uint32_t max;
    size_t offset;
} size_keys[] = {
    {PREFIX "image_size", MAX_IMAGE, offsetof(vision_shape, image_size)},
    {PREFIX "patch_size", MAX_PATCH, offsetof(vision_shape, patch_size)},
    {PREFIX "embedding_length", MAX_WIDTH, offsetof(vision_shape, width)},
    {PREFIX "feed_forward_length", MAX_FF, offsetof(vision_shape, ff)},
    {PREFIX "block_count", MAX_LAYERS, offsetof(vision_shape, layers)},
    {PREFIX "attention.head_count", MAX_WIDTH, offsetof(vision_shape, heads)},
    {PREFIX "projector.scale_factor", MAX_IMAGE, offsetof(vision_shape, scale)},
};

/* A string key that must have one value. */
static tacit_status expect_string(vision_loader *t, const char *key, const char *expected,
                                  const char *hint)
{
    gguf_string s = {"", 0};
    tacit_status status = gguf_get_string(t->file, key, &s, t->err);
    if (status != TACIT_OK && status != TACIT_NOT_FOUND)
        return status;
    if (s.size == strlen(expected) && memcmp(s.data, expected, s.size) == 0)
        return TACIT_OK;
    return tacit_fail(t->err, TACIT_BAD_INPUT, "%s: %s is '%.*s': expected '%s'; %s",
                      gguf_name(t->file), key, (int)(s.size > 64 ? 64 : s.size), s.data, expected,
                      hint);
}

/* A boolean that must have one value; absent is `absent`. */
static tacit_status expect_bool(vision_loader *t, const char *key, bool absent, bool expected,
                                const char *hint)
{
    bool v = absent;
    tacit_status status = gguf_get_bool(t->file, key, &v, t->err);
    if (status != TACIT_OK && status != TACIT_NOT_FOUND)
        return status;
    if (v == expected)
        return TACIT_OK;
    return tacit_fail(t->err, TACIT_BAD_INPUT, "%s: %s is %s: %s", gguf_name(t->file), key,
                      v ? "true" : "false", hint);
}

static tacit_status check_kind(vision_loader *t)
{
    tacit_status status;
    TACIT_TRY(expect_string(t, "general.architecture", "clip", "a text model goes to -m"), done);
    TACIT_TRY(expect_bool(t, "clip.has_vision_encoder", false, true, "not an image encoder"), done);
    TACIT_TRY(
        expect_string(t, "clip.projector_type", "idefics3", "other projectors are not supported"),
        done);
    TACIT_TRY(expect_bool(t, "clip.use_silu", false, false, "only tanh GELU is supported"), done);
    status = expect_bool(t, "clip.use_gelu", false, true, "only tanh GELU is supported");
done:
    return status;
}

static tacit_status read_channel_numbers(vision_loader *t, const char *key, bool positive,
                                         float out[3])
{
    size_t count;
    tacit_status status = gguf_get_array(t->file, key, GGUF_F32, &count, t->err);
    if (status == TACIT_NOT_FOUND)
        return tacit_fail(t->err, TACIT_BAD_INPUT, "%s: key %s is missing", gguf_name(t->file),
                          key);
    if (status != TACIT_OK)
        return status;
    if (count != 3)
        return tacit_fail(t->err, TACIT_BAD_INPUT, "%s: %s has %zu numbers: expected 3",
                          gguf_name(t->file), key, count);
    for (size_t i = 0; i < 3; i++) {
        double v = gguf_array_number(t->file, key, i);
        if (!(fabs(v) <= 1000) || (positive && v < 1e-6))
            return tacit_fail(t->err, TACIT_BAD_INPUT, "%s: %s[%zu] is %g: expected a %s number",
                              gguf_name(t->file), key, i, v, positive ? "positive" : "finite");
        out[i] = (float)v;
    }
    return TACIT_OK;
}

static tacit_status read_epsilon(vision_loader *t)
{
    double v = 0;
    const char *key = PREFIX "attention.layer_norm_epsilon";
    tacit_status status = gguf_get_f64(t->file, key, &v, t->err);
    if (status != TACIT_OK && status != TACIT_NOT_FOUND)
        return status;
    if (!(v > 0 && v <= 0.1))
        return tacit_fail(t->err, TACIT_BAD_INPUT, "%s: %s is %g: expected above 0, at most 0.1",
                          gguf_name(t->file), key, v);
    t->v->shape.epsilon = (float)v;
    return TACIT_OK;
}

static tacit_status expect_multiple(vision_loader *t, const char *what, uint32_t a, const char *of,
                                    uint32_t b)
{
    if (a % b == 0)
        return TACIT_OK;
    return tacit_fail(t->err, TACIT_BAD_INPUT, "%s: %s %u is no multiple of %s %u",
                      gguf_name(t->file), what, a, of, b);
}

static tacit_status derive_shape(vision_loader *t)
{
    vision_shape *s = &t->v->shape;
    tacit_status status;
    TACIT_TRY(expect_multiple(t, "image size", s->image_size, "patch size", s->patch_size), done);
    s->grid = s->image_size / s->patch_size;
    s->patches = s->grid * s->grid;
    TACIT_TRY(expect_multiple(t, "patch grid", s->grid, "scale factor", s->scale), done);
    TACIT_TRY(expect_multiple(t, "embedding length", s->width, "head count", s->heads), done);
    if (s->patches > MAX_PATCHES)
        return tacit_fail(t->err, TACIT_BAD_INPUT, "%s: %u patches: at most %d are supported",
                          gguf_name(t->file), s->patches, MAX_PATCHES);
    s->rows = s->grid / s->scale * (s->grid / s->scale);
done:
    return status;
}

static tacit_status read_shape(vision_loader *t)
{
    vision_shape *s = &t->v->shape;
    uint64_t preproc = 0;
    tacit_status status;
    for (size_t i = 0; i < sizeof size_keys / sizeof size_keys[0]; i++)
        TACIT_TRY(get_size(t, size_keys[i].key, size_keys[i].max,
                           (uint32_t *)(void *)((char *)s + size_keys[i].offset)),
                  done);
    status = gguf_get_u64(t->file, PREFIX "preproc_image_size", 0, MAX_PREPROC, &preproc, t->err);
    if (status != TACIT_OK && status != TACIT_NOT_FOUND)
        return status;
    s->preproc_size = (uint32_t)preproc;
    TACIT_TRY(read_epsilon(t), done);
    TACIT_TRY(read_channel_numbers(t, PREFIX "image_mean", false, s->mean), done);
    TACIT_TRY(read_channel_numbers(t, PREFIX "image_std", true, s->std), done);
    status = derive_shape(t);
done:
    return status;
}

/* Appends tensor `name`, whose shape must be ne[0..dims), as the matrix [rows, cols]. */
static tacit_status take(vision_loader *t, const char *name, size_t rows, size_t cols,
                         const uint64_t ne[GGUF_MAX_DIMS])
{
    const gguf_tensor *g = gguf_tensor_find(t->file, name);
    if (!g)
        return tacit_fail(t->err, TACIT_BAD_INPUT, "%s: tensor %s is missing; incomplete file",
                          gguf_name(t->file), name);
    if (memcmp(g->ne, ne, sizeof g->ne) != 0)
        return tacit_fail(t->err, TACIT_BAD_INPUT,
                          "%s: tensor %s: expected shape [%" PRIu64 ", %" PRIu64 ", %" PRIu64
                          ", %" PRIu64 "], found [%" PRIu64 ", %" PRIu64 ", %" PRIu64 ", %" PRIu64
                          "]",
                          gguf_name(t->file), name, ne[0], ne[1], ne[2], ne[3], g->ne[0], g->ne[1],
                          g->ne[2], g->ne[3]);
    if (!g->traits) {
        const char *type = tacit_type_ggml_name(g->type);
        return tacit_fail(t->err, TACIT_BAD_INPUT, "%s: tensor %s: type %s cannot be computed",
                          gguf_name(t->file), name, type ? type : "of an unknown number");
    }
    t->v->tensor[t->v->count++] =
        (vision_tensor){g->name, g, rows, cols, strncmp(name, "mm.", 3) == 0};
    return TACIT_OK;
}

static tacit_status take_vector(vision_loader *t, const char *name, size_t n)
{
    const uint64_t ne[GGUF_MAX_DIMS] = {n, 1, 1, 1};
    return take(t, name, 1, n, ne);
}

static tacit_status take_matrix(vision_loader *t, const char *name, size_t n_out, size_t n_in)
{
    const uint64_t ne[GGUF_MAX_DIMS] = {n_in, n_out, 1, 1};
    return take(t, name, n_out, n_in, ne);
}

/* Of the block's tensors: the name, and input and output as width (1) or feed-forward width (2). */
static const struct {
    const char *name;
    int in, out;
} parts[VISION_PARTS / 2] = {
    {"ln1", 0, 1},      {"attn_q", 1, 1}, {"attn_k", 1, 1}, {"attn_v", 1, 1},
    {"attn_out", 1, 1}, {"ln2", 0, 1},    {"ffn_up", 1, 2}, {"ffn_down", 2, 1},
};

/* Old converters called the first layer of the feed-forward net ffn_down and the second ffn_up. */
static bool has_swapped_names(vision_loader *t, size_t layer)
{
    char name[64];
    snprintf(name, sizeof name, "v.blk.%zu.ffn_down.weight", layer);
    const gguf_tensor *down = gguf_tensor_find(t->file, name);
    const vision_shape *s = &t->v->shape;
    return down && s->width != s->ff && down->ne[0] == s->width && down->ne[1] == s->ff;
}

static tacit_status take_block(vision_loader *t, size_t layer)
{
    const vision_shape *s = &t->v->shape;
    const size_t sizes[] = {0, s->width, s->ff};
    bool swapped = has_swapped_names(t, layer);
    tacit_status status = TACIT_OK;
    for (size_t i = 0; i < VISION_PARTS / 2 && status == TACIT_OK; i++) {
        char name[64];
        const char *stored = parts[i].name;
        if (swapped && strncmp(stored, "ffn_", 4) == 0)
            stored = strcmp(stored, "ffn_up") == 0 ? "ffn_down" : "ffn_up";
        snprintf(name, sizeof name, "v.blk.%zu.%s.weight", layer, stored);
        status = parts[i].in ? take_matrix(t, name, sizes[parts[i].out], sizes[parts[i].in])
                             : take_vector(t, name, sizes[parts[i].out]);
        snprintf(name, sizeof name, "v.blk.%zu.%s.bias", layer, stored);
        if (status == TACIT_OK)
            status = take_vector(t, name, sizes[parts[i].out]);
    }
    return status;
}

static tacit_status take_patches(vision_loader *t)
{
    tacit_vision *v = t->v;
    const vision_shape *s = &v->shape;
    const uint64_t kernel[GGUF_MAX_DIMS] = {s->patch_size, s->patch_size, 3, s->width};
    tacit_status status;
    v->patch_weight = v->count;
    TACIT_TRY(
        take(t, "v.patch_embd.weight", s->width, (size_t)3 * s->patch_size * s->patch_size, kernel),
        done);
    v->patch_bias = VISION_ABSENT;
    if (gguf_tensor_find(t->file, "v.patch_embd.bias")) {
        v->patch_bias = v->count;
        TACIT_TRY(take_vector(t, "v.patch_embd.bias", s->width), done);
    }
    v->positions = v->count;
    status = take_matrix(t, "v.position_embd.weight", s->patches, s->width);
done:
    return status;
}

static tacit_status take_head(vision_loader *t)
{
    tacit_vision *v = t->v;
    vision_shape *s = &v->shape;
    const char *name = "mm.model.fc.weight";
    const gguf_tensor *fc = gguf_tensor_find(t->file, name);
    tacit_status status;
    v->post_ln = v->count;
    v->post_ln_bias = v->count + 1;
    TACIT_TRY(take_vector(t, "v.post_ln.weight", s->width), done);
    TACIT_TRY(take_vector(t, "v.post_ln.bias", s->width), done);
    if (fc && (fc->ne[1] == 0 || fc->ne[1] > MAX_OUT))
        return tacit_fail(t->err, TACIT_BAD_INPUT,
                          "%s: %s has %" PRIu64 " outputs: expected 1 to %d", gguf_name(t->file),
                          name, fc->ne[1], MAX_OUT);
    s->out_width = fc ? (uint32_t)fc->ne[1] : 1;
    v->projector = v->count;
    status = take_matrix(t, name, s->out_width, (size_t)s->scale * s->scale * s->width);
done:
    return status;
}

/* A tensor that was not taken (a class token, a norm before the blocks, ...) would change the rows.
 */
static tacit_status refuse_others(vision_loader *t)
{
    for (size_t i = 0; i < gguf_tensor_count(t->file); i++) {
        const gguf_tensor *g = gguf_tensor_at(t->file, i);
        size_t j = 0;
        while (j < t->v->count && t->v->tensor[j].data != g)
            j++;
        if (j == t->v->count)
            return tacit_fail(t->err, TACIT_BAD_INPUT,
                              "%s: tensor %s is not part of an idefics3 tower of %u blocks",
                              gguf_name(t->file), g->name, t->v->shape.layers);
    }
    return TACIT_OK;
}

static tacit_status take_all(vision_loader *t)
{
    tacit_vision *v = t->v;
    tacit_status status;
    size_t most = 6 + (size_t)v->shape.layers * VISION_PARTS;
    v->tensor = calloc(most, sizeof *v->tensor);
    v->linear = calloc(most, sizeof *v->linear);
    v->plain = calloc(most, sizeof *v->plain);
    v->owned = calloc(most, sizeof *v->owned);
    if (!v->tensor || !v->linear || !v->plain || !v->owned)
        return tacit_fail(t->err, TACIT_NO_MEMORY, "no memory for %zu tensors", most);
    TACIT_TRY(take_patches(t), done);
    v->first_block = v->count;
    for (size_t i = 0; i < v->shape.layers; i++)
        TACIT_TRY(take_block(t, i), done);
    TACIT_TRY(take_head(t), done);
    status = refuse_others(t);
done:
    return status;
}

/* The weights that multiply rows: they may stay in the file's type. */
static bool is_linear(const tacit_vision *v, size_t i)
{
    if (i < v->first_block || i >= v->post_ln)
        return i == v->projector;
    const size_t part = (i - v->first_block) % VISION_PARTS;
    return part % 2 == 0 && parts[part / 2].in > 0;
}

/* fp32 values of a tensor: the map's where they lie aligned, else a copy. */
static tacit_status make_plain(vision_loader *t, size_t i)
{
    tacit_vision *v = t->v;
    const gguf_tensor *g = v->tensor[i].data;
    size_t n = v->tensor[i].rows * v->tensor[i].cols;
    if (g->type == TACIT_TYPE_F32 && (uintptr_t)g->data % sizeof(float) == 0) {
        v->plain[i] = (const float *)(const void *)g->data;
        return TACIT_OK;
    }
    v->owned[i] = malloc(n * sizeof(float));
    if (!v->owned[i])
        return tacit_fail(t->err, TACIT_NO_MEMORY, "no memory for tensor %s", g->name);
    g->traits->to_f32(v->owned[i], g->data, n);
    v->plain[i] = v->owned[i];
    return TACIT_OK;
}

static tacit_status make_linear(vision_loader *t, size_t i, bool cache)
{
    tacit_vision *v = t->v;
    tacit_linear *l = &v->linear[i];
    tacit_status status =
        linear_init(l, v->tensor[i].data, NULL, v->tensor[i].cols, v->tensor[i].rows, t->err);
    if (status != TACIT_OK || !cache)
        return status;
    status = linear_cache(l);
    return status == TACIT_OK ? status : tacit_fail(t->err, status, "no memory for the tower");
}

static tacit_status prepare(vision_loader *t)
{
    tacit_vision *v = t->v;
    size_t values = 0;
    tacit_status status = TACIT_OK;
    for (size_t i = 0; i < v->count; i++)
        values += v->tensor[i].rows * v->tensor[i].cols;
    for (size_t i = 0; i < v->count && status == TACIT_OK; i++)
        status = is_linear(v, i) ? make_linear(t, i, values <= CACHE_VALUES) : make_plain(t, i);
    return status;
}

tacit_status vision_load(tacit_vision **out, const gguf_file *file, tacit_error *err)
{
    tacit_status status;
    vision_loader t = {calloc(1, sizeof *t.v), file, err};
    *out = NULL;
    if (!t.v)
        return tacit_fail(err, TACIT_NO_MEMORY, "no memory for a vision tower");
    TACIT_TRY(check_kind(&t), done);
    TACIT_TRY(read_shape(&t), done);
    TACIT_TRY(take_all(&t), done);
    TACIT_TRY(prepare(&t), done);
    *out = t.v;
    return TACIT_OK;
done:
    vision_free(t.v);
    return status;
}

void vision_free(tacit_vision *v)
{
    if (!v)
        return;
    for (size_t i = 0; i < v->count; i++) {
        linear_drop_cache(&v->linear[i]);
        free(v->owned[i]);
    }
    free(v->tensor);
    free(v->linear);
    free(v->plain);
    free(v->owned);
    free(v);
}

const vision_shape *vision_get_shape(const tacit_vision *v)
{
    return &v->shape;
}

size_t vision_tensor_count(const tacit_vision *v)
{
    return v->count;
}

const vision_tensor *vision_tensor_at(const tacit_vision *v, size_t i)
{
    return &v->tensor[i];
}
