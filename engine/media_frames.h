/* The frames of a picture, as the processors of the models cut them.
 *
 * idefics3, forms HF: the longer side becomes preproc_size (at most 4096), then both sides whole
 *   tiles; the overview is taken from that copy. Lanczos throughout. The other forms make whole
 *   tiles of the picture itself, and so the overview.
 * mlp, cut PAD: the picture in the middle of a square of the mean colour, bicubic to one frame.
 * mlp, cut ANYRES: bicubic to one frame, and into the middle of black tiles (vision_picture.h);
 * where features have a limit (max_tiles: LLaVA-OneVision), a picture among others becomes one
 * frame as with PAD. */
#ifndef TACIT_ENGINE_MEDIA_FRAMES_H
#define TACIT_ENGINE_MEDIA_FRAMES_H

#include "engine/image.h"
#include "engine/input.h"
#include "engine/media_layout.h"
#include "engine/vision_picture.h"

typedef struct media_grid {
    uint32_t rows, cols; /* of tiles; 0 x 0: the overview alone */
    uint32_t first[2];   /* width and height that are taken first; 0 x 0: none */
} media_grid;

/* How a picture of that size is cut. HF_FRAME, and HF where one tile would do, have the overview
 * alone. TACIT_BAD_INPUT for more than MEDIA_MAX_GRID tiles a side. */
tacit_status media_grid_for(media_grid *out, const vision_shape *shape, media_form form,
                            uint32_t width, uint32_t height, tacit_error *err) TACIT_MUST_CHECK;

/* frame[rows * cols + 1]: the tiles row by row, then the overview, each image_size square. The
 * caller frees each; on failure none is left. */
tacit_status media_frames_cut(tacit_image *frame, const tacit_image *picture, media_grid grid,
                              const vision_shape *shape, tacit_error *err) TACIT_MUST_CHECK;

/* A picture of an mlp tower: planes of its frames one behind the other, number of rows and digest.
 * `alone`: no other picture is in the conversation. */
tacit_status media_prepare_picture(tacit_media *out, const tacit_image *picture,
                                   const vision_shape *shape, bool alone,
                                   tacit_error *err) TACIT_MUST_CHECK;

/* frame[0] of a picture for the cut PAD. The caller frees it. */
tacit_status media_frame_padded(tacit_image *frame, const tacit_image *picture,
                                const vision_shape *shape, tacit_error *err) TACIT_MUST_CHECK;
/* frame[a->frames] for the cut ANYRES. The caller frees each; on failure none is left. */
tacit_status media_frames_arranged(tacit_image *frame, const tacit_image *picture,
                                   const vision_arrangement *a, const vision_shape *shape,
                                   tacit_error *err) TACIT_MUST_CHECK;

/* Preprocessed planes, number of rows and digest of a frame. */
tacit_status media_prepare(tacit_media *out, const tacit_image *frame, const vision_shape *shape,
                           tacit_error *err) TACIT_MUST_CHECK;

#endif
