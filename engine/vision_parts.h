/* What a tower consists of: for the units that load and compute it. */
#ifndef TACIT_ENGINE_VISION_PARTS_H
#define TACIT_ENGINE_VISION_PARTS_H

#include "engine/linear.h"
#include "engine/vision.h"

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

struct tacit_vision {
    vision_shape shape;
    size_t count;
    vision_tensor *tensor; /* [count] */
    tacit_linear *linear;  /* [count]: over tensor i where it is a matrix product's weight */
    const float **plain;   /* [count]: fp32 values, NULL where a linear dequantizes as it goes */
    float **owned;         /* [count]: the copies behind `plain` that are not the file's own */
    size_t patch_weight, patch_bias, positions; /* indices; patch_bias may be VISION_ABSENT */
    size_t first_block;                         /* VISION_PARTS tensors a block from here on */
    size_t post_ln, post_ln_bias, projector;
};

static inline size_t vision_block_tensor(const tacit_vision *v, size_t layer, vision_part part)
{
    return v->first_block + layer * VISION_PARTS + part;
}

/* Activations of one block, each [patches, width] but for up and act, [patches, ff]. Without
 * training several share memory. */
typedef struct vision_block {
    float *norm1, *q, *k, *v, *mixed; /* mixed: the heads' outputs side by side */
    float *middle;                    /* x + out(mixed) */
    float *norm2, *up, *act;
} vision_block;

struct vision_pass {
    const tacit_vision *v;
    tacit_pool *pool;
    size_t max_images;
    bool train, keep_all;
    size_t n;             /* pictures of the last forward */
    const float **pixels; /* [max_images], of the last forward */
    const float **weight; /* [count], of the last forward: fp32 stand-ins or NULL */
    vision_block *block;  /* keep_all: [max_images, layers], else one */
    float *arena;
    float *patch;    /* [patches, 3 * patch_size^2] */
    float *x;        /* train: [max_images, layers + 1, patches, width], else [patches, width] */
    float *shuffled; /* [max_images or 1, rows, scale^2 * width] */
    float *scores;   /* [threads, 2 (train) or 1, patches, patches] */
    float *scratch;  /* of linear.h */
    /* Backward only. */
    float *dx, *dnorm, *dmixed, *dq, *dk, *dv; /* [patches, width] */
    float *dact, *dup;                         /* [patches, ff] */
};

/* Tensor i as the pass sees it now: the stand-in, or the file's fp32 values, or NULL. */
const float *vision_values(const vision_pass *p, size_t i);
/* The linear of weight tensor i and bias tensor i + 1, or without bias. */
tacit_linear vision_linear(const vision_pass *p, size_t i, bool bias);

/* The input of layer l (the output of layer l - 1) of picture `image`; train only. */
float *vision_layer_input(const vision_pass *p, size_t image, size_t l);
vision_block *vision_block_of(const vision_pass *p, size_t image, size_t l);

/* patch[patches, 3 * patch_size^2] from planes[3, image_size, image_size], each row by channel,
 * row, column as the kernel has it. */
void vision_cut_patches(const vision_shape *s, float *patch, const float *planes);
/* to[rows, scale^2 * width] from x[patches, width]: the scale x scale patches of a cell side by
 * side, row by row; and back. */
void vision_shuffle(const vision_shape *s, float *to, const float *x);
void vision_unshuffle(const vision_shape *s, float *x, const float *from);

/* scores[patches, patches] = softmax(q k^T / sqrt(head width)) of head h of block b. */
void vision_attend(const vision_shape *s, const vision_block *b, size_t h, float *scores);

/* out[patches, width] = block l of x[patches, width], filling b. out may be x. */
void vision_block_forward(vision_pass *p, size_t l, vision_block *b, const float *x, float *out);

#endif
