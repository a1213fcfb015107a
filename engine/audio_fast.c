#include "engine/audio_fast.h"

#include "engine/gelu_erf.h"

#include <stdlib.h>

tacit_status audio_fast_init(audio_pass *p, tacit_error *err)
{
    const tacit_audio *a = p->a;
    size_t positions = a->shape.positions;
    tower_part *part = calloc(a->count, sizeof *part);
    if (!part)
        return tacit_fail(err, TACIT_NO_MEMORY, "no memory to pack a tower");
    for (size_t i = 0; i < a->count; i++)
        part[i] = (tower_part){a->linear[i].type != NULL,
                               i < a->tail ? positions : audio_stacked(&a->shape, positions)};
    const tower_fast_spec spec = {.packing = a->packing,
                                  .linear = a->linear,
                                  .part = part,
                                  .count = a->count,
                                  .width = a->shape.width,
                                  .file = a->file,
                                  .what = "sound"};
    tacit_status status = tower_fast_init(&p->fast, &spec, p->pool, err);
    free(part);
    return status;
}

static tower_product product_of(const audio_pass *p, size_t i, bool bias)
{
    tower_product product =
        tower_product_of(&p->fast, i, audio_linear(p, i, bias), p->weight[i] != NULL);
    product.pair = encoder_pair(p->adapter, i);
    return product;
}

static tower_product part_of(const audio_pass *p, size_t l, audio_part part)
{
    return product_of(p, audio_block_tensor(l, part), audio_has_bias(part));
}

void audio_fast_block(audio_pass *p, size_t l, size_t positions, tower_block *b, float *x)
{
    const audio_shape *s = &p->a->shape;
    const tower_fast_block block = {
        .rows = positions,
        .width = s->width,
        .ff = s->ff,
        .heads = s->heads,
        .epsilon = s->epsilon,
        .norm1 = audio_values(p, audio_block_tensor(l, AUDIO_LN1)),
        .norm1_bias = audio_values(p, audio_block_tensor(l, AUDIO_LN1_BIAS)),
        .norm2 = audio_values(p, audio_block_tensor(l, AUDIO_LN2)),
        .norm2_bias = audio_values(p, audio_block_tensor(l, AUDIO_LN2_BIAS)),
        .activate = ops_gelu_erf_forward,
        .qkv = {part_of(p, l, AUDIO_Q), part_of(p, l, AUDIO_K), part_of(p, l, AUDIO_V)},
        .out = part_of(p, l, AUDIO_OUT),
        .up = part_of(p, l, AUDIO_UP),
        .down = part_of(p, l, AUDIO_DOWN),
    };
    tower_fast_forward(&p->fast, &block, b, x);
}

void audio_fast_linear(audio_pass *p, size_t i, bool bias, float *y, const float *x, size_t rows)
{
    const tower_product product = product_of(p, i, bias);
    tower_multiply(&p->fast, &product, y, x, rows);
}
