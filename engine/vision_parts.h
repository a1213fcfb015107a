/* What a tower consists of: for the units that load and compute it. */
#ifndef TACIT_ENGINE_VISION_PARTS_H
#define TACIT_ENGINE_VISION_PARTS_H

#include "engine/encoder_adapter.h"
#include "engine/linear.h"
#include "engine/tower_block.h"
#include "engine/tower_fast.h"
#include "engine/vision.h"
#include "engine/vision_activation.h"

/* Tensors of one block, in layout order; a bias follows its weight. */
typedef enum vision_part {
    VISION_LN1,
    VISION_LN1_BIAS,
    VISION_Q,
    VISION_Q_BIAS,
    VISION_K,
    VISION_K_BIAS,
    VISION_V,
    VISION_V_BIAS,
    VISION_OUT,
    VISION_OUT_BIAS,
    VISION_LN2,
    VISION_LN2_BIAS,
    VISION_UP,
    VISION_UP_BIAS,
    VISION_DOWN,
    VISION_DOWN_BIAS,
    VISION_PARTS
} vision_part;

#define VISION_ABSENT SIZE_MAX

typedef struct vision_projector vision_projector;

struct tacit_vision {
    vision_shape shape;
    const gguf_file *file;
    fast_tower *packing; /* of the linears, for fast passes */
    const vision_projector *projector;
    const vision_activation *activation; /* of the blocks */
    size_t count;
    encoder_tensor *tensor; /* [count] */
    bool *product;          /* [count]: multiplies rows */
    tacit_linear *linear;   /* [count]: over tensor i where it is a matrix product's weight */
    const float **plain;    /* [count]: fp32 values, NULL where a linear dequantizes as it goes */
    float **owned;          /* [count]: the copies behind `plain` that are not the file's own */
    /* Indices; VISION_ABSENT where the file has none. The bias of a norm follows its weight. */
    size_t patch_weight, patch_bias, class_embedding, positions, pre_ln;
    size_t first_block; /* VISION_PARTS tensors a block from here on */
    size_t post_ln;
    size_t first_projector; /* the projector's tensors, in its own order */
    size_t newline;
};

static inline size_t vision_block_tensor(const tacit_vision *v, size_t layer, vision_part part)
{
    return v->first_block + layer * VISION_PARTS + part;
}

struct vision_pass {
    const tacit_vision *v;
    tacit_pool *pool;
    size_t max_images;
    bool train, keep_all;
    tower_fast fast;                /* of a fast pass */
    const encoder_adapter *adapter; /* or NULL */
    float *wide_scratch;            /* of linear.h with pairs, in the place of the arena's */
    size_t n;                       /* pictures of the last forward */
    const float **pixels;           /* [max_images], of the last forward */
    const float **weight;           /* [count], of the last forward: fp32 stand-ins or NULL */
    tower_block *block;             /* keep_all: [max_images, layers], else one */
    float *arena;
    float *patch;    /* [patches, 3 * patch_size^2] */
    float *embedded; /* before pre_ln, train only: [max_images, tokens, width] */
    float *x;        /* train: [max_images, layers + 1, tokens, width], else [tokens, width] */
    float *features; /* [max_images or 1, patches, features * width] */
    float *scores;   /* [threads, 2 (train) or 1, VISION_QUERIES, tokens] */
    float *work;     /* of the projector */
    float *scratch;  /* of linear.h */
    /* Backward only. */
    float *dx, *dnorm, *dmixed, *dq, *dk, *dv; /* [tokens, width] */
    float *dact, *dup;                         /* [tokens, ff] */
    float *dfeatures;                          /* as features of one picture */
};

/* Rows of attention that are held at a time: their scores stay in a cache, and memory does not grow
 * with the square of the picture. */
#define VISION_QUERIES 64

/* Tensor i as the pass sees it now: the stand-in, or the file's fp32 values, or NULL. */
const float *vision_values(const vision_pass *p, size_t i);
/* The linear of weight tensor i and bias tensor i + 1, or without bias. */
tacit_linear vision_linear(const vision_pass *p, size_t i, bool bias);

/* y[rows, n_out] = weight tensor i times x[rows, n_in], in the pass's precision; tensor i + 1 is
 * the bias, where there is one. */
void vision_multiply(vision_pass *p, size_t i, bool bias, float *y, const float *x, size_t rows);

/* The input of layer l (the output of layer l - 1) of picture `image`; train only. */
float *vision_layer_input(const vision_pass *p, size_t image, size_t l);
tower_block *vision_block_of(const vision_pass *p, size_t image, size_t l);

/* patch[patches, 3 * patch_size^2] from planes[3, image_size, image_size], each row by channel,
 * row, column as the kernel has it. Pixels right of and below the last whole patch are not read. */
void vision_cut_patches(const vision_shape *s, float *patch, const float *planes);

/* x[tokens, width] = class token, then kernel of each patch + bias; each + its position. */
void vision_embed(vision_pass *p, float *x, const float *planes);

/* The heads of block b over all tokens. */
tower_heads vision_heads(const vision_pass *p, const tower_block *b);

/* y[rows, width] = norm with the tensors `weight` and `weight` + 1. */
void vision_norm(vision_pass *p, size_t weight, float *y, const float *x, size_t rows);

/* y[rows, width] = activation of x. y may be x. */
void vision_activate(vision_pass *p, const vision_activation *activation, float *y, const float *x,
                     size_t rows, size_t width);

/* The state before block l + 1 (0: before the first) is feature number `slot` of shape.features;
 * returns false when it is none. */
bool vision_feature_slot(const vision_shape *s, size_t state, size_t *slot);

/* out[tokens, width] = block l of x[tokens, width], filling b. out may be x. */
void vision_block_forward(vision_pass *p, size_t l, tower_block *b, const float *x, float *out);

#endif
