/* A picture of several frames, as LLaVA-NeXT and LLaVA-OneVision read it ("anyres"; Liu et al.
 * 2024, LLaVA-NeXT; Li et al. 2024, arXiv 2408.03326): an overview and the tiles of the picture
 * scaled into the best of the tower's sizes, joined again as features.
 *
 * The rows of a picture are those of the overview, then the joined features of the tiles without
 * what lies on the padding, row by row, each closed by the newline row where the tower has one.
 * Features of much more than shape.max_tiles tiles are scaled down bilinearly. A picture of one
 * frame has its rows, and the newline row once. */
#ifndef TACIT_ENGINE_VISION_PICTURE_H
#define TACIT_ENGINE_VISION_PICTURE_H

#include "engine/vision.h"

typedef struct vision_arrangement {
    uint32_t grid_rows, grid_cols; /* of tiles; 0 x 0: one frame alone */
    uint32_t width, height;        /* pixels of the picture in the middle of the tiles */
    uint32_t top, left;            /* what is kept of the joined features [grid_rows * grid, ...] */
    uint32_t rows, cols;
    uint32_t out_rows, out_cols; /* after scaling down */
    size_t frames;               /* the overview, then the tiles row by row */
    size_t total;                /* rows that the picture becomes */
} vision_arrangement;

/* How a picture of width x height pixels is arranged; 0 x 0: one frame alone. */
void vision_arrange(vision_arrangement *out, const vision_shape *shape, uint32_t width,
                    uint32_t height);

/* rows[total, out_width] from frames[a->frames, shape.rows, out_width] and newline[out_width],
 * which is read only if the shape has one. */
void vision_join(const vision_arrangement *a, const vision_shape *shape, float *rows,
                 const float *frames, const float *newline);
/* The adjoint: d_frames is written, d_newline added to; NULL when it is not wanted. */
void vision_join_backward(const vision_arrangement *a, const vision_shape *shape, float *d_frames,
                          float *d_newline, const float *d_rows);

#endif
