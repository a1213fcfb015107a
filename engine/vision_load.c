#include "engine/media_layout.h"
#include "engine/mmproj_reader.h"
#include "engine/vision_loader.h"
#include "engine/vision_projector.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PREFIX VISION_PREFIX
#define MAX_PATCH 256
#define MAX_PATCHES 4096
#define MAX_WIDTH 8192
#define MAX_FF 65536
#define MAX_LAYERS 256
#define MAX_PREPROC 16384
#define MAX_TENSORS_BESIDE_BLOCKS 16
#define CACHE_VALUES ((size_t)4 << 20) /* towers of fewer weights keep fp32 copies */

static const vision_projector *const projectors[] = {&vision_idefics3, &vision_mlp};

tacit_status vision_get_size(vision_loader *t, const char *key, uint32_t max, uint32_t *out)
{
    return mmproj_get_size(t->file, key, max, out, t->err);
}

static const struct {
    const char *key;
    uint32_t max;
    size_t offset;
} size_keys[] = {
    {PREFIX "image_size", VISION_MAX_IMAGE, offsetof(vision_shape, image_size)},
    {PREFIX "patch_size", MAX_PATCH, offsetof(vision_shape, patch_size)},
    {PREFIX "embedding_length", MAX_WIDTH, offsetof(vision_shape, width)},
    {PREFIX "feed_forward_length", MAX_FF, offsetof(vision_shape, ff)},
    {PREFIX "block_count", MAX_LAYERS, offsetof(vision_shape, layers)},
    {PREFIX "attention.head_count", MAX_WIDTH, offsetof(vision_shape, heads)},
};

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

/* The kind that the file names, of this modality or of all that it has; files from before those
 * keys are mlp. */
static tacit_status find_projector(vision_loader *t)
{
    char known[64] = "";
    const char *key = PREFIX "projector_type";
    gguf_string name = {"mlp", 3};
    if (!gguf_has_key(t->file, key))
        key = "clip.projector_type";
    tacit_status status = gguf_get_string(t->file, key, &name, t->err);
    if (status != TACIT_OK && status != TACIT_NOT_FOUND)
        return status;
    for (size_t i = 0; i < sizeof projectors / sizeof projectors[0]; i++) {
        const char *kind = projectors[i]->name;
        if (name.size == strlen(kind) && memcmp(name.data, kind, name.size) == 0) {
            t->v->projector = projectors[i];
            return TACIT_OK;
        }
        snprintf(known + strlen(known), sizeof known - strlen(known), "%s'%s'", i ? ", " : "",
                 kind);
    }
    return tacit_fail(t->err, TACIT_BAD_INPUT, "%s: %s is '%.*s': supported are %s",
                      gguf_name(t->file), key, (int)(name.size > 64 ? 64 : name.size), name.data,
                      known);
}

static tacit_status get_flag(vision_loader *t, const char *key, bool *out)
{
    tacit_status status = gguf_get_bool(t->file, key, out, t->err);
    return status == TACIT_NOT_FOUND ? TACIT_OK : status;
}

/* tacit.vision.hidden_act where a file has it: the ecosystem's two flags cannot tell GELU by erf
 * from its tanh form. Without any flag it is CLIP's own. */
static tacit_status find_activation(vision_loader *t)
{
    const char *key = "tacit.vision.hidden_act";
    bool gelu = false, silu = false;
    gguf_string name = {NULL, 0};
    tacit_status status;
    TACIT_TRY(get_flag(t, "clip.use_gelu", &gelu), done);
    TACIT_TRY(get_flag(t, "clip.use_silu", &silu), done);
    if (gelu && silu)
        return tacit_fail(t->err, TACIT_BAD_INPUT,
                          "%s: clip.use_gelu and clip.use_silu are both true: expected at most one",
                          gguf_name(t->file));
    name.data = gelu ? "gelu_pytorch_tanh" : silu ? "silu" : "quick_gelu";
    name.size = strlen(name.data);
    status = gguf_get_string(t->file, key, &name, t->err);
    if (status != TACIT_OK && status != TACIT_NOT_FOUND)
        return status;
    status = TACIT_OK;
    t->v->activation = vision_activation_find(name.data, name.size);
    if (!t->v->activation)
        status =
            tacit_fail(t->err, TACIT_BAD_INPUT,
                       "%s: %s is '%.*s': expected gelu, gelu_pytorch_tanh, quick_gelu or "
                       "silu",
                       gguf_name(t->file), key, (int)(name.size > 64 ? 64 : name.size), name.data);
done:
    return status;
}

static tacit_status check_kind(vision_loader *t)
{
    tacit_status status;
    TACIT_TRY(mmproj_expect_string(t->file, "general.architecture", "clip",
                                   "a text model goes to -m", t->err),
              done);
    TACIT_TRY(expect_bool(t, "clip.has_vision_encoder", false, true, "not an image encoder"), done);
    TACIT_TRY(find_projector(t), done);
    status = find_activation(t);
done:
    return status;
}

static tacit_status read_channel_numbers(vision_loader *t, const char *key, bool positive,
                                         float out[3])
{
    size_t count;
    tacit_status status = gguf_get_array(t->file, key, GGUF_F32, &count, t->err);
    if (status == TACIT_NOT_FOUND)
        return mmproj_missing(t->file, key, t->err);
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

tacit_status vision_expect_multiple(vision_loader *t, const char *what, uint32_t a, const char *of,
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
    s->grid = s->image_size / s->patch_size;
    s->patches = s->grid * s->grid;
    s->tokens = s->patches + (gguf_tensor_find(t->file, "v.class_embd") ? 1 : 0);
    if (s->patches == 0 || s->patches > MAX_PATCHES)
        return tacit_fail(t->err, TACIT_BAD_INPUT,
                          "%s: image size %u and patch size %u make %u patches: expected 1 to %d",
                          gguf_name(t->file), s->image_size, s->patch_size, s->patches,
                          MAX_PATCHES);
    TACIT_TRY(vision_expect_multiple(t, "embedding length", s->width, "head count", s->heads),
              done);
    status = t->v->projector->read_keys(t);
done:
    return status;
}

/* Without the key: the last state. */
static tacit_status read_features(vision_loader *t)
{
    vision_shape *s = &t->v->shape;
    const char *key = PREFIX "feature_layer";
    size_t count = 0;
    tacit_status status = gguf_get_array(t->file, key, GGUF_I32, &count, t->err);
    if (status == TACIT_NOT_FOUND || (status == TACIT_OK && count == 0)) {
        s->features = 1;
        s->feature[0] = s->layers;
        return TACIT_OK;
    }
    if (status != TACIT_OK)
        return status;
    if (count > VISION_MAX_FEATURES)
        return tacit_fail(t->err, TACIT_BAD_INPUT, "%s: %s has %zu layers: at most %d",
                          gguf_name(t->file), key, count, VISION_MAX_FEATURES);
    if (gguf_tensor_find(t->file, "v.post_ln.weight"))
        return tacit_fail(t->err, TACIT_BAD_INPUT,
                          "%s: %s names states before the last norm, and the file has "
                          "v.post_ln.weight: convert it without one of them",
                          gguf_name(t->file), key);
    for (size_t i = 0; i < count; i++) {
        double v = gguf_array_number(t->file, key, i);
        if (!(v >= 0 && v <= s->layers) || (i > 0 && v <= s->feature[i - 1]))
            return tacit_fail(t->err, TACIT_BAD_INPUT,
                              "%s: %s[%zu] is %g: expected ascending states from 0 to %u",
                              gguf_name(t->file), key, i, v, s->layers);
        s->feature[i] = (uint32_t)v;
    }
    s->features = (uint32_t)count;
    return TACIT_OK;
}

static tacit_status read_shape(vision_loader *t)
{
    vision_shape *s = &t->v->shape;
    uint64_t preproc = 0;
    tacit_status status;
    for (size_t i = 0; i < sizeof size_keys / sizeof size_keys[0]; i++)
        TACIT_TRY(vision_get_size(t, size_keys[i].key, size_keys[i].max,
                                  (uint32_t *)(void *)((char *)s + size_keys[i].offset)),
                  done);
    status = gguf_get_u64(t->file, PREFIX "preproc_image_size", 0, MAX_PREPROC, &preproc, t->err);
    if (status != TACIT_OK && status != TACIT_NOT_FOUND)
        return status;
    s->preproc_size = (uint32_t)preproc;
    TACIT_TRY(
        mmproj_get_epsilon(t->file, PREFIX "attention.layer_norm_epsilon", &s->epsilon, t->err),
        done);
    TACIT_TRY(read_channel_numbers(t, PREFIX "image_mean", false, s->mean), done);
    TACIT_TRY(read_channel_numbers(t, PREFIX "image_std", true, s->std), done);
    TACIT_TRY(read_features(t), done);
    status = derive_shape(t);
done:
    return status;
}

/* Appends tensor `name`, whose shape must be ne[0..dims), as the matrix [rows, cols]. */
static tacit_status take(vision_loader *t, const char *name, size_t rows, size_t cols,
                         const uint64_t ne[GGUF_MAX_DIMS])
{
    const gguf_tensor *g;
    tacit_status status = mmproj_find_tensor(t->file, name, ne, &g, t->err);
    if (status != TACIT_OK)
        return status;
    t->v->tensor[t->v->count] =
        (encoder_tensor){.name = g->name,
                         .data = g,
                         .rows = rows,
                         .cols = cols,
                         .projector = t->v->first_projector != VISION_ABSENT,
                         .linear = t->v->product[t->v->count]};
    t->v->count++;
    return TACIT_OK;
}

tacit_status vision_take_vector(vision_loader *t, const char *name, size_t n)
{
    const uint64_t ne[GGUF_MAX_DIMS] = {n, 1, 1, 1};
    return take(t, name, 1, n, ne);
}

static tacit_status take_matrix(vision_loader *t, const char *name, size_t n_out, size_t n_in)
{
    const uint64_t ne[GGUF_MAX_DIMS] = {n_in, n_out, 1, 1};
    return take(t, name, n_out, n_in, ne);
}

tacit_status vision_take_product(vision_loader *t, const char *name, size_t n_out, size_t n_in)
{
    t->v->product[t->v->count] = true;
    return take_matrix(t, name, n_out, n_in);
}

tacit_status vision_outputs(vision_loader *t, const char *name, uint32_t *out)
{
    return mmproj_get_extent(t->file, name, 1, VISION_MAX_OUT, out, t->err);
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
        status = parts[i].in ? vision_take_product(t, name, sizes[parts[i].out], sizes[parts[i].in])
                             : vision_take_vector(t, name, sizes[parts[i].out]);
        snprintf(name, sizeof name, "v.blk.%zu.%s.bias", layer, stored);
        if (status == TACIT_OK)
            status = vision_take_vector(t, name, sizes[parts[i].out]);
    }
    return status;
}

static tacit_status take_optional(vision_loader *t, const char *name, size_t *at)
{
    if (!gguf_tensor_find(t->file, name))
        return TACIT_OK;
    *at = t->v->count;
    return vision_take_vector(t, name, t->v->shape.width);
}

/* A norm that the file may lack: weight, then bias. */
static tacit_status take_norm(vision_loader *t, const char *name, size_t *at)
{
    char bias[32];
    snprintf(bias, sizeof bias, "%.*s.bias", (int)(strlen(name) - strlen(".weight")), name);
    tacit_status status = take_optional(t, name, at);
    if (status == TACIT_OK && *at != VISION_ABSENT)
        status = vision_take_vector(t, bias, t->v->shape.width);
    return status;
}

static tacit_status take_embedding(vision_loader *t)
{
    tacit_vision *v = t->v;
    const vision_shape *s = &v->shape;
    const uint64_t kernel[GGUF_MAX_DIMS] = {s->patch_size, s->patch_size, 3, s->width};
    tacit_status status;
    v->patch_weight = v->count;
    TACIT_TRY(
        take(t, "v.patch_embd.weight", s->width, (size_t)3 * s->patch_size * s->patch_size, kernel),
        done);
    TACIT_TRY(take_optional(t, "v.patch_embd.bias", &v->patch_bias), done);
    TACIT_TRY(take_optional(t, "v.class_embd", &v->class_embedding), done);
    v->positions = v->count;
    TACIT_TRY(take_matrix(t, "v.position_embd.weight", s->tokens, s->width), done);
    status = take_norm(t, "v.pre_ln.weight", &v->pre_ln);
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
            return tacit_fail(
                t->err, TACIT_BAD_INPUT,
                "%s: tensor %s is not part of a tower of %u blocks with the projector "
                "'%s'",
                gguf_name(t->file), g->name, t->v->shape.layers, t->v->projector->name);
    }
    return TACIT_OK;
}

static tacit_status take_all(vision_loader *t)
{
    tacit_vision *v = t->v;
    tacit_status status;
    size_t most = MAX_TENSORS_BESIDE_BLOCKS + (size_t)v->shape.layers * VISION_PARTS;
    v->tensor = calloc(most, sizeof *v->tensor);
    v->product = calloc(most, sizeof *v->product);
    v->linear = calloc(most, sizeof *v->linear);
    v->plain = calloc(most, sizeof *v->plain);
    v->owned = calloc(most, sizeof *v->owned);
    if (!v->tensor || !v->product || !v->linear || !v->plain || !v->owned)
        return tacit_fail(t->err, TACIT_NO_MEMORY, "no memory for %zu tensors", most);
    TACIT_TRY(take_embedding(t), done);
    v->first_block = v->count;
    for (size_t i = 0; i < v->shape.layers; i++)
        TACIT_TRY(take_block(t, i), done);
    TACIT_TRY(take_norm(t, "v.post_ln.weight", &v->post_ln), done);
    v->first_projector = v->count;
    TACIT_TRY(v->projector->take(t), done);
    status = refuse_others(t);
done:
    return status;
}

/* The most frames that a picture becomes. */
static size_t most_frames(const vision_shape *s)
{
    size_t most = 1;
    if (s->cut == VISION_CUT_TILES && s->preproc_size > s->image_size) {
        size_t side = (s->preproc_size + s->image_size - 1) / s->image_size;
        side = side < MEDIA_MAX_GRID ? side : MEDIA_MAX_GRID;
        most = side * side + 1;
    }
    for (size_t i = 0; s->cut == VISION_CUT_ANYRES && i < s->pinpoints; i++) {
        size_t tiles =
            (size_t)s->pinpoint[i][0] / s->image_size * (s->pinpoint[i][1] / s->image_size);
        most = tiles + 1 > most ? tiles + 1 : most;
    }
    return most;
}

static tacit_status check_attention(vision_loader *t)
{
    const vision_shape *s = &t->v->shape;
    const mmproj_attention a = {"a picture", s->layers, s->tokens,
                                s->width,    s->heads,  most_frames(s)};
    return mmproj_check_attention(t->file, &a, t->err);
}

static tacit_status make_plain(vision_loader *t, size_t i)
{
    return mmproj_plain_values(t->file, t->v->tensor[i].data, &t->v->plain[i], &t->v->owned[i],
                               t->err);
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
    if (values <= CACHE_VALUES)
        status = linear_cache_judge(values, t->err);
    for (size_t i = 0; i < v->count && status == TACIT_OK; i++)
        status = v->product[i] ? make_linear(t, i, values <= CACHE_VALUES) : make_plain(t, i);
    return status;
}

tacit_status vision_load(tacit_vision **out, const gguf_file *file, tacit_error *err)
{
    tacit_status status;
    vision_loader t = {calloc(1, sizeof *t.v), file, err};
    *out = NULL;
    if (!t.v)
        return tacit_fail(err, TACIT_NO_MEMORY, "no memory for a vision tower");
    t.v->file = file;
    t.v->packing = fast_tower_new();
    t.v->patch_bias = t.v->class_embedding = t.v->pre_ln = VISION_ABSENT;
    t.v->post_ln = t.v->first_projector = t.v->newline = VISION_ABSENT;
    if (!t.v->packing) {
        status = tacit_fail(err, TACIT_NO_MEMORY, "no memory for a vision tower");
        goto done;
    }
    TACIT_TRY(check_kind(&t), done);
    TACIT_TRY(read_shape(&t), done);
    TACIT_TRY(take_all(&t), done);
    TACIT_TRY(check_attention(&t), done);
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
    fast_tower_free(v->packing);
    free(v->tensor);
    free(v->product);
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

const encoder_tensor *vision_tensor_at(const tacit_vision *v, size_t i)
{
    return &v->tensor[i];
}

size_t vision_newline(const tacit_vision *v)
{
    return v->newline == VISION_ABSENT ? v->count : v->newline;
}

const float *vision_newline_values(const tacit_vision *v)
{
    return v->newline == VISION_ABSENT ? NULL : v->plain[v->newline];
}
