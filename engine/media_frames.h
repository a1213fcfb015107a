/* The frames of a picture: the overview and, where a form wants them, tiles of an enlarged copy
 * (idefics3: the longer side becomes preproc_size, both sides are rounded up to whole tiles). */
#ifndef TACIT_ENGINE_MEDIA_FRAMES_H
#define TACIT_ENGINE_MEDIA_FRAMES_H

#include "engine/image.h"
#include "engine/input.h"
#include "engine/media_layout.h"
#include "engine/vision.h"

typedef struct media_grid {
    uint32_t rows, cols; /* of tiles; 0 x 0: the overview alone */
} media_grid;

/* How a picture of that size is cut. HF without `tiles`, and HF where one tile would do, has the
 * overview alone. TACIT_BAD_INPUT for more than MEDIA_MAX_GRID tiles a side. */
tacit_status media_grid_for(media_grid *out, const vision_shape *shape, media_form form, bool tiles,
                            uint32_t width, uint32_t height, tacit_error *err) TACIT_MUST_CHECK;

/* frame[rows * cols + 1]: the tiles row by row, then the overview, each image_size square. The
 * caller frees each; on failure none is left. */
tacit_status media_frames_cut(tacit_image *frame, const tacit_image *picture, media_grid grid,
                              const vision_shape *shape, tacit_error *err) TACIT_MUST_CHECK;

/* Preprocessed planes, number of rows and digest of a frame. */
tacit_status media_prepare(tacit_media *out, const tacit_image *frame, const vision_shape *shape,
                           tacit_error *err) TACIT_MUST_CHECK;

#endif
