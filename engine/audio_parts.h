/* What an audio tower consists of: for the units that load and compute it. */
#ifndef TACIT_ENGINE_AUDIO_PARTS_H
#define TACIT_ENGINE_AUDIO_PARTS_H

#include "engine/audio.h"
#include "engine/encoder_adapter.h"
#include "engine/linear.h"
#include "engine/tower_block.h"
#include "engine/tower_fast.h"

/* Tensors of one block, in layout order; a bias follows its weight. */
typedef enum audio_part {
    AUDIO_LN1,
    AUDIO_LN1_BIAS,
    AUDIO_Q,
    AUDIO_Q_BIAS,
    AUDIO_K,
    AUDIO_V,
    AUDIO_V_BIAS,
    AUDIO_OUT,
    AUDIO_OUT_BIAS,
    AUDIO_LN2,
    AUDIO_LN2_BIAS,
    AUDIO_UP,
    AUDIO_UP_BIAS,
    AUDIO_DOWN,
    AUDIO_DOWN_BIAS,
    AUDIO_PARTS
} audio_part;

/* Where the other tensors are; blocks begin at AUDIO_FIRST_BLOCK, and the tail follows them. */
enum { AUDIO_CONV1, AUDIO_CONV1_BIAS, AUDIO_CONV2, AUDIO_CONV2_BIAS, AUDIO_POSITIONS };
#define AUDIO_FIRST_BLOCK 5
enum {
    AUDIO_POST_LN,
    AUDIO_POST_LN_BIAS,
    AUDIO_NORM_PRE,
    AUDIO_MLP1,
    AUDIO_NORM_MID,
    AUDIO_MLP2,
    AUDIO_TAIL
};

#define AUDIO_PROJECTOR_EPSILON 1e-6f /* of both RMSNorms; no file says it */

struct tacit_audio {
    audio_shape shape;
    size_t count;
    encoder_tensor *tensor; /* [count] */
    tacit_linear *linear;   /* [count]: over tensor i where it is a matrix product's weight */
    const float **plain;    /* [count]: fp32 values, NULL where a linear dequantizes as it goes */
    float **owned;          /* [count]: the copies behind `plain` that are not the file's own */
    size_t tail;            /* index of AUDIO_POST_LN */
    const gguf_file *file;
    fast_tower *packing; /* of fast passes */
};

static inline size_t audio_block_tensor(size_t layer, audio_part part)
{
    return AUDIO_FIRST_BLOCK + layer * AUDIO_PARTS + part;
}

/* Rows that `positions` of one chunk become. */
static inline size_t audio_stacked(const audio_shape *s, size_t positions)
{
    return (positions + s->stack - 1) / s->stack;
}

/* Activations of one chunk. */
typedef struct audio_slot {
    float *conv1, *conv2; /* before GELU: [2 positions, width], [positions, width] */
    float *x;             /* train: [layers + 1, positions, width], else [positions, width] */
    float *stacked;       /* after the last norm: [rows, stack * width], zeros at the end */
    float *pre, *hidden;  /* [rows, stack * width], [rows, 2 middle] */
    float *gated, *mid;   /* [rows, middle] */
    tower_block *block;   /* keep_all: [layers], else one that every slot shares */
} audio_slot;

/* One chunk of a clip, while it is computed. */
typedef struct audio_chunk {
    const float *mel;
    size_t frames, positions, rows;
    audio_slot *slot;
} audio_chunk;

struct audio_pass {
    const tacit_audio *a;
    tacit_pool *pool;
    size_t max_clips, slots;
    bool train, keep_all;
    tower_fast fast;                /* of a fast pass */
    const encoder_adapter *adapter; /* or NULL */
    float *wide_scratch;            /* of linear.h with pairs, in the place of the arena's */
    size_t n;                       /* clips of the last forward */
    audio_clip *clips;              /* [max_clips], of the last forward */
    const float **weight;           /* [count], of the last forward: fp32 stand-ins or NULL */
    audio_slot *slot;               /* [slots]: one a chunk with keep_all, else one */
    tower_block *block;
    float *arena;
    float *patch;   /* [AUDIO_CONV_ROWS, 3 * width or n_mel] */
    float *conv;    /* [2 positions, width]: conv 1 after GELU */
    float *scores;  /* [threads, 2 (train) or 1, AUDIO_QUERIES, positions] */
    float *scratch; /* of linear.h */
    /* Backward only. */
    float *dpatch;                             /* as patch */
    float *dconv;                              /* [2 positions, width] */
    float *dx, *dnorm, *dmixed, *dq, *dk, *dv; /* [positions, width] */
    float *dact, *dup;                         /* [positions, ff] */
    float *dstacked, *dpre;                    /* [rows, stack * width] */
    float *dhidden, *dgated, *dmid;            /* [rows, 2 middle], [rows, middle] twice */
};

#define AUDIO_CONV_ROWS ((size_t)256) /* rows of a convolution at a time */
#define AUDIO_QUERIES ((size_t)128)   /* rows of scores at a time */

/* Tensor i as the pass sees it now: the stand-in, or the file's fp32 values, or NULL. */
const float *audio_values(const audio_pass *p, size_t i);
/* The linear of weight tensor i, with tensor i + 1 as its bias or without. */
tacit_linear audio_linear(const audio_pass *p, size_t i, bool bias);
bool audio_has_bias(audio_part part);

/* Chunk number `index` of a clip; false when there is none. The slot is not chosen. */
bool audio_chunk_of(const tacit_audio *a, const audio_clip *clip, size_t index, audio_chunk *c);

/* The input of layer l (the output of layer l - 1); train only. */
float *audio_layer_input(const audio_pass *p, const audio_slot *s, size_t l);
tower_block *audio_block_of(const audio_pass *p, const audio_slot *s, size_t l);

/* patch[rows, 3 * channels]: the taps of outputs `first`, first + 1, ... of a convolution of width
 * 3 over x[n, channels], zeros beyond its ends, in the order of the kernel: by input, then tap. */
void audio_cut_patches(float *patch, const float *x, size_t n, size_t channels, size_t stride,
                       size_t first, size_t rows);

/* The heads of block b over the rows of a chunk. */
tower_heads audio_heads(const audio_pass *p, const tower_block *b, size_t positions);

/* out[positions, width] = block l of x, filling b. out may be x. */
void audio_block_forward(audio_pass *p, size_t l, size_t positions, tower_block *b, const float *x,
                         float *out);

/* Everything up to the rows [c->rows, out_width] of a chunk, which may be NULL (the slot is filled
 * all the same). */
void audio_chunk_forward(audio_pass *p, const audio_chunk *c, float *rows);

#endif
