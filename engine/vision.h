/* The vision tower: a ViT with a projector, from an mmproj GGUF file.
 *
 * Patches of patch_size, a class token where the file has one, learned positions, a norm before the
 * blocks where the file has one, pre-norm blocks with bidirectional attention and the file's
 * activation, a norm after them where the file has one (Dosovitskiy et al. 2021, arXiv 2010.11929;
 * Radford et al. 2021, arXiv 2103.00020; Zhai et al. 2023, arXiv 2303.15343). Then the projector:
 *   idefics3  pixel shuffle by `scale` and one matrix (Laurencon et al. 2024, arXiv 2408.12637)
 *   mlp       two matrices with GELU between (Liu et al. 2023, arXiv 2310.03744); the class token
 *             goes no further; a picture may become several frames (vision_picture.h)
 * Activations are fp32 on dequantized weights, but for inference in fast precision (PASS_FAST):
 * there weights of blocks (fast_tower.h) are multiplied by rows of 16 bits, others in fp32, or all
 * as pairs of bf16 on matrix tiles.
 *
 * A tacit_vision is immutable and shared by threads. A vision_pass holds the buffers of one thread
 * of control. Pictures are computed one after the other, so a picture's rows do not depend on the
 * others of a call, gradients are summed in the order of pictures, and neither depends on the
 * number of threads, bit for bit. */
#ifndef TACIT_ENGINE_VISION_H
#define TACIT_ENGINE_VISION_H

#include "common/pool.h"
#include "common/status.h"
#include "engine/encoder_adapter.h"
#include "engine/encoder_tensor.h"
#include "engine/precision.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct tacit_vision tacit_vision;

#define VISION_MAX_FEATURES 8
#define VISION_MAX_PINPOINTS 64

/* How a picture becomes frames. */
typedef enum vision_cut {
    VISION_CUT_TILES, /* idefics3: media_frames.h */
    VISION_CUT_PAD,   /* one frame: the picture on a square of the mean colour */
    VISION_CUT_ANYRES /* an overview and the tiles of the best of `pinpoint` */
} vision_cut;

typedef struct vision_shape {
    uint32_t image_size; /* pixels, both sides */
    uint32_t patch_size;
    uint32_t grid;    /* whole patches along image_size */
    uint32_t patches; /* grid^2 */
    uint32_t tokens;  /* patches and the class token, where there is one */
    uint32_t width;
    uint32_t ff;
    uint32_t heads;
    uint32_t layers;
    uint32_t scale;        /* idefics3: pixel shuffle */
    uint32_t rows;         /* rows that one frame becomes */
    uint32_t out_width;    /* the text model's embedding length */
    uint32_t preproc_size; /* longest edge before a picture is cut into tiles; 0: never cut */
    float epsilon;
    float mean[3], std[3];
    /* States side by side in front of the projector, one a feature: 0 is the first block's input,
     * l the output of block l. Without clip.vision.feature_layer the last one alone. */
    uint32_t features, feature[VISION_MAX_FEATURES];
    vision_cut cut;
    bool newline;       /* a learned row after each row of tiles' features */
    uint32_t max_tiles; /* features of more tiles than these are scaled down; 0: never */
    uint32_t pinpoints, pinpoint[VISION_MAX_PINPOINTS][2]; /* width, height in pixels */
} vision_shape;

/* Reads the tower of `file`, which outlives it. clip.projector_type is "idefics3" or "mlp" (absent:
 * "mlp"); others are refused by name with what is supported (TACIT_BAD_INPUT), as is every
 * hyper-parameter or shape that does not fit: scale not dividing the grid, heads not dividing the
 * width, mean or std not three finite numbers, feature layers that are not there, tiles that are no
 * whole frames, sizes above the caps. FF's up and down are told apart by shape, because old
 * converters swapped their names. All block_count blocks are computed: converters leave out those
 * that the projector does not see. */
tacit_status vision_load(tacit_vision **out, const gguf_file *file,
                         tacit_error *err) TACIT_MUST_CHECK;
void vision_free(tacit_vision *v);

const vision_shape *vision_get_shape(const tacit_vision *v);

/* The tensors in layout order: patch kernel [width, 3 * patch_size^2], its bias, class token,
 * positions, norm before the blocks, per block ln1, q, k, v, out, ln2, up, down (each weight, then
 * bias), norm after them, the projector's; what the file may lack only where it has it. */
size_t vision_tensor_count(const tacit_vision *v);
const encoder_tensor *vision_tensor_at(const tacit_vision *v, size_t i);

/* The learned newline row among the tensors, or vision_tensor_count where the shape has none.
 * vision_forward and vision_backward leave it to vision_picture.h. */
size_t vision_newline(const tacit_vision *v);
/* Its values [out_width] in the file; NULL where the shape has none. */
const float *vision_newline_values(const tacit_vision *v);

typedef struct vision_pass vision_pass;

/* Buffers for up to `max_images` pictures a call. For training the activations that
 * vision_backward needs are kept: all of them when they fit in 32 MiB a pass, else the inputs of
 * layers, from which the rest is computed again bit for bit. The first fast pass of a tower packs
 * its weights, for all of them. What this takes is judged first: TACIT_NO_MEMORY says how much it
 * is and how much there is; TACIT_USAGE how many pictures there may be (65,536). `pool` may be
 * NULL; the pass does not own it. */
tacit_status vision_pass_new(vision_pass **out, const tacit_vision *v, size_t max_images,
                             pass_use use, tacit_pool *pool, tacit_error *err) TACIT_MUST_CHECK;
void vision_pass_free(vision_pass *p);
/* What an exact pass takes, or one for training. */
uint64_t vision_pass_bytes(const tacit_vision *v, size_t max_images, bool train, tacit_pool *pool);

/* From now on the pairs of `adapter` (encoder_adapter.h) stand beside the file's weights; it
 * outlives its use here. NULL: none. Not beside stand-ins of the same tensors. TACIT_NO_MEMORY: as
 * before. */
tacit_status vision_adapt(vision_pass *p, const encoder_adapter *adapter,
                          tacit_error *err) TACIT_MUST_CHECK;

/* rows[n, shape.rows, shape.out_width] of n pictures, each planes [3, image_size, image_size].
 * `weights` has vision_tensor_count entries: fp32 values that stand for tensor i, or NULL for the
 * file's; the array itself may be NULL. n is at most max_images. */
void vision_forward(vision_pass *p, const float *const *weights, const float *const *pixels,
                    size_t n, float *rows);

/* Adds to grads[i] ([rows, cols] of tensor i) the gradient for d_rows [n, shape.rows,
 * shape.out_width], for the pictures, weights and n of the last vision_forward, which outlive this
 * call, and to those of the adapter. An entry that is NULL is not wanted; the computation ends at
 * the lowest one wanted. */
void vision_backward(vision_pass *p, const float *d_rows, float *const *grads);

#endif
