#include "engine/vision_fast.h"

#include <stdlib.h>

tacit_status vision_fast_init(vision_pass *p, tacit_error *err)
{
    const tacit_vision *v = p->v;
    tower_part *part = calloc(v->count, sizeof *part);
    if (!part)
        return tacit_fail(err, TACIT_NO_MEMORY, "no memory to pack a tower");
    for (size_t i = 0; i < v->count; i++)
        part[i] =
            (tower_part){v->product[i], i < v->first_projector ? v->shape.tokens : v->shape.rows};
    const tower_fast_spec spec = {.packing = v->packing,
                                  .linear = v->linear,
                                  .part = part,
                                  .count = v->count,
                                  .width = v->shape.width,
                                  .file = v->file,
                                  .what = "pictures"};
    tacit_status status = tower_fast_init(&p->fast, &spec, p->pool, err);
    free(part);
    return status;
}

static tower_product product_of(const vision_pass *p, size_t i, bool bias)
{
    tower_product product =
        tower_product_of(&p->fast, i, vision_linear(p, i, bias), p->weight[i] != NULL);
    product.pair = encoder_pair(p->adapter, i);
    return product;
}

void vision_fast_block(vision_pass *p, size_t l, tower_block *b, float *x)
{
    const vision_shape *s = &p->v->shape;
    size_t base = vision_block_tensor(p->v, l, 0);
    const tower_fast_block block = {
        .rows = s->tokens,
        .width = s->width,
        .ff = s->ff,
        .heads = s->heads,
        .epsilon = s->epsilon,
        .norm1 = vision_values(p, base + VISION_LN1),
        .norm1_bias = vision_values(p, base + VISION_LN1 + 1),
        .norm2 = vision_values(p, base + VISION_LN2),
        .norm2_bias = vision_values(p, base + VISION_LN2 + 1),
        .activate = p->v->activation->forward,
        .qkv = {product_of(p, base + VISION_Q, true), product_of(p, base + VISION_K, true),
                product_of(p, base + VISION_V, true)},
        .out = product_of(p, base + VISION_OUT, true),
        .up = product_of(p, base + VISION_UP, true),
        .down = product_of(p, base + VISION_DOWN, true),
    };
    tower_fast_forward(&p->fast, &block, b, x);
}

void vision_fast_linear(vision_pass *p, size_t i, bool bias, float *y, const float *x, size_t rows)
{
    const tower_product product = product_of(p, i, bias);
    tower_multiply(&p->fast, &product, y, x, rows);
}
