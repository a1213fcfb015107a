/* The mlp projector of LLaVA: y = mm.2 GELU(mm.0 x + bias) + bias for every patch.
 *
 * GELU is that of the models, by erf (torch.nn.GELU; "gelu" in their configurations). Other engines
 * take the tanh form, which differs by up to 5e-4. */
#include "engine/image.h"
#include "engine/media_layout.h"
#include "engine/vision_projector.h"

#include <math.h>
#include <string.h>

enum { MM0, MM0_BIAS, MM2, MM2_BIAS };

static const vision_activation *gelu(void)
{
    return vision_activation_find("gelu", 4);
}

/* Pairs of width and height, each whole frames. */
static tacit_status read_pinpoints(vision_loader *t, size_t count)
{
    vision_shape *s = &t->v->shape;
    const char *key = VISION_PREFIX "image_grid_pinpoints";
    if (count % 2 != 0 || count / 2 > VISION_MAX_PINPOINTS)
        return tacit_fail(t->err, TACIT_BAD_INPUT,
                          "%s: %s has %zu numbers: expected pairs of width and height, at most %d",
                          gguf_name(t->file), key, count, VISION_MAX_PINPOINTS);
    for (size_t i = 0; i < count; i++) {
        double v = gguf_array_number(t->file, key, i);
        double tiles = v / s->image_size;
        if (!(tiles >= 1 && tiles <= MEDIA_MAX_GRID) || tiles != floor(tiles))
            return tacit_fail(t->err, TACIT_BAD_INPUT,
                              "%s: %s[%zu] is %g: expected 1 to %d times the image size %u",
                              gguf_name(t->file), key, i, v, MEDIA_MAX_GRID, s->image_size);
        s->pinpoint[i / 2][i % 2] = (uint32_t)v;
        if (i % 2 == 1 &&
            (size_t)s->pinpoint[i / 2][0] * s->pinpoint[i / 2][1] > TACIT_IMAGE_MAX_PIXELS)
            return tacit_fail(t->err, TACIT_BAD_INPUT,
                              "%s: %s[%zu]: %u x %u pixels: expected at most %zu",
                              gguf_name(t->file), key, i - 1, s->pinpoint[i / 2][0],
                              s->pinpoint[i / 2][1], TACIT_IMAGE_MAX_PIXELS);
    }
    s->pinpoints = (uint32_t)(count / 2);
    return TACIT_OK;
}

/* "anyres" or "anyres_max_N". */
static bool read_anyres(vision_shape *s, gguf_string name)
{
    static const char plain[] = "anyres", limited[] = "anyres_max_";
    if (name.size == strlen(plain) && memcmp(name.data, plain, name.size) == 0)
        return true;
    size_t prefix = strlen(limited), max = 0;
    if (name.size <= prefix || name.size > prefix + 3 || memcmp(name.data, limited, prefix) != 0)
        return false;
    for (size_t i = prefix; i < name.size; i++) {
        if (name.data[i] < '0' || name.data[i] > '9')
            return false;
        max = 10 * max + (size_t)(name.data[i] - '0');
    }
    s->max_tiles = (uint32_t)max;
    return max > 0;
}

/* clip.vision.image_aspect_ratio, as converters copy it from the model: "pad", or "anyres" with
 * sizes to choose from. Without the key the sizes decide. */
static tacit_status read_cut(vision_loader *t)
{
    vision_shape *s = &t->v->shape;
    const char *key = VISION_PREFIX "image_aspect_ratio";
    size_t count = 0;
    gguf_string name = {NULL, 0};
    tacit_status status =
        gguf_get_array(t->file, VISION_PREFIX "image_grid_pinpoints", GGUF_I32, &count, t->err);
    if (status != TACIT_OK && status != TACIT_NOT_FOUND)
        return status;
    status = gguf_get_string(t->file, key, &name, t->err);
    if (status != TACIT_OK && status != TACIT_NOT_FOUND)
        return status;
    if (!name.data)
        name = count ? (gguf_string){"anyres", 6} : (gguf_string){"pad", 3};
    s->cut = VISION_CUT_PAD;
    if (name.size == 3 && memcmp(name.data, "pad", 3) == 0)
        return TACIT_OK;
    s->cut = VISION_CUT_ANYRES;
    if (!read_anyres(s, name))
        return tacit_fail(
            t->err, TACIT_BAD_INPUT, "%s: %s is '%.*s': expected pad, anyres or anyres_max_N",
            gguf_name(t->file), key, (int)(name.size > 64 ? 64 : name.size), name.data);
    if (count == 0)
        return tacit_fail(t->err, TACIT_BAD_INPUT,
                          "%s: %s is '%.*s', but %simage_grid_pinpoints is missing",
                          gguf_name(t->file), key, (int)name.size, name.data, VISION_PREFIX);
    return read_pinpoints(t, count);
}

/* How tiles are joined: "spatial_unpad" is what is computed; "flat" belongs to models without a
 * newline row, which are cut otherwise. */
static tacit_status check_merge(vision_loader *t)
{
    const char *key = VISION_PREFIX "mm_patch_merge_type", *expected = "spatial_unpad";
    gguf_string name = {expected, strlen(expected)};
    tacit_status status = gguf_get_string(t->file, key, &name, t->err);
    if (status != TACIT_OK && status != TACIT_NOT_FOUND)
        return status;
    if (t->v->shape.cut != VISION_CUT_ANYRES ||
        (name.size == strlen(expected) && memcmp(name.data, expected, name.size) == 0))
        return TACIT_OK;
    return tacit_fail(t->err, TACIT_BAD_INPUT, "%s: %s is '%.*s': expected %s", gguf_name(t->file),
                      key, (int)(name.size > 64 ? 64 : name.size), name.data, expected);
}

static tacit_status read_keys(vision_loader *t)
{
    vision_shape *s = &t->v->shape;
    tacit_status status;
    s->scale = 1;
    s->rows = s->patches;
    s->preproc_size = 0;
    TACIT_TRY(read_cut(t), done);
    status = check_merge(t);
done:
    return status;
}

static tacit_status take(vision_loader *t)
{
    tacit_vision *v = t->v;
    vision_shape *s = &v->shape;
    uint32_t hidden;
    tacit_status status;
    TACIT_TRY(vision_outputs(t, "mm.0.weight", &hidden), done);
    TACIT_TRY(vision_outputs(t, "mm.2.weight", &s->out_width), done);
    TACIT_TRY(vision_take_product(t, "mm.0.weight", hidden, (size_t)s->features * s->width), done);
    TACIT_TRY(vision_take_vector(t, "mm.0.bias", hidden), done);
    TACIT_TRY(vision_take_product(t, "mm.2.weight", s->out_width, hidden), done);
    TACIT_TRY(vision_take_vector(t, "mm.2.bias", s->out_width), done);
    if (gguf_tensor_find(t->file, "model.image_newline")) {
        v->newline = v->count;
        s->newline = true;
        TACIT_TRY(vision_take_vector(t, "model.image_newline", s->out_width), done);
    }
done:
    return status;
}

static size_t hidden_values(const tacit_vision *v)
{
    return (size_t)v->shape.patches * v->tensor[v->first_projector + MM0].rows;
}

/* Before and behind the activation; their gradients. */
static size_t work(const tacit_vision *v, bool backward)
{
    return hidden_values(v) * (backward ? 4 : 1);
}

static tacit_linear layer(const vision_pass *p, size_t part)
{
    return vision_linear(p, p->v->first_projector + part, true);
}

static void forward(vision_pass *p, float *rows, const float *features, float *work)
{
    size_t patches = p->v->shape.patches, first = p->v->first_projector;
    vision_multiply(p, first + MM0, true, work, features, patches);
    vision_activate(p, gelu(), work, work, patches, p->v->tensor[first + MM0].rows);
    vision_multiply(p, first + MM2, true, rows, work, patches);
}

static void backward_layer(vision_pass *p, size_t part, float *dx, float *const *grads,
                           const float *dy, const float *x)
{
    size_t rows = p->v->shape.patches, i = p->v->first_projector + part;
    tacit_linear l = layer(p, part);
    if (grads[i])
        linear_backward_weight(p->pool, &l, grads[i], dy, x, rows);
    if (grads[i + 1])
        linear_backward_bias(&l, grads[i + 1], dy, rows);
    encoder_pair_backward(p->pool, p->adapter, i, &l, dy, x, rows, p->scratch);
    if (dx)
        linear_backward_input(p->pool, &l, encoder_pair(p->adapter, i), dx, dy, rows, false,
                              p->scratch);
}

static void backward(vision_pass *p, float *d_features, float *const *grads, const float *d_rows,
                     const float *features, float *work)
{
    size_t n = hidden_values(p->v);
    float *hidden = work, *act = work + n, *d_act = work + 2 * n, *d_hidden = work + 3 * n;
    tacit_linear first = layer(p, MM0);
    linear_forward(p->pool, &first, encoder_pair(p->adapter, p->v->first_projector + MM0), hidden,
                   features, p->v->shape.patches, p->scratch);
    gelu()->forward(act, hidden, n);
    backward_layer(p, MM2, d_act, grads, d_rows, act);
    memset(d_hidden, 0, n * sizeof *d_hidden);
    gelu()->backward(d_hidden, d_act, hidden, n);
    backward_layer(p, MM0, d_features, grads, d_hidden, features);
}

const vision_projector vision_mlp = {"mlp", read_keys, take, work, forward, backward};
