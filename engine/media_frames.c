#include "engine/media_frames.h"

#include "common/digest.h"

#include <stdlib.h>
#include <string.h>

/* SmolVLM's processor resamples by Lanczos. */
#define FRAME_FILTER TACIT_IMAGE_LANCZOS

static uint32_t tiles_along(uint32_t side, uint32_t longest, const vision_shape *s)
{
    uint64_t scaled = (uint64_t)side * s->preproc_size / longest;
    return (uint32_t)((scaled + s->image_size - 1) / s->image_size);
}

tacit_status media_grid_for(media_grid *out, const vision_shape *shape, media_form form, bool tiles,
                            uint32_t width, uint32_t height, tacit_error *err)
{
    *out = (media_grid){0, 0};
    bool hf = form == MEDIA_FORM_HF;
    if (shape->preproc_size == 0) {
        if (hf)
            return TACIT_OK;
        return tacit_fail(
            err, TACIT_BAD_INPUT,
            "this tower has no clip.vision.preproc_image_size: pictures of it are not "
            "cut into tiles");
    }
    uint32_t longest = width > height ? width : height;
    media_grid grid = {tiles_along(height, longest, shape), tiles_along(width, longest, shape)};
    grid.rows += grid.rows == 0;
    grid.cols += grid.cols == 0;
    if (hf && (!tiles || (grid.rows == 1 && grid.cols == 1)))
        return TACIT_OK;
    if (grid.rows > MEDIA_MAX_GRID || grid.cols > MEDIA_MAX_GRID)
        return tacit_fail(err, TACIT_BAD_INPUT, "picture of %u x %u tiles: at most %d a side",
                          grid.rows, grid.cols, MEDIA_MAX_GRID);
    *out = grid;
    return TACIT_OK;
}

static tacit_status cut_tiles(tacit_image *frame, const tacit_image *picture, media_grid grid,
                              uint32_t size, tacit_error *err)
{
    tacit_image large;
    tacit_status status =
        tacit_image_resize(&large, picture, grid.cols * size, grid.rows * size, FRAME_FILTER, err);
    for (uint32_t i = 0; i < grid.rows * grid.cols && status == TACIT_OK; i++)
        status = tacit_image_crop(&frame[i], &large, i % grid.cols * size, i / grid.cols * size,
                                  size, size, err);
    tacit_image_free(&large);
    return status;
}

tacit_status media_frames_cut(tacit_image *frame, const tacit_image *picture, media_grid grid,
                              const vision_shape *shape, tacit_error *err)
{
    size_t count = (size_t)grid.rows * grid.cols + 1;
    tacit_status status = TACIT_OK;
    memset(frame, 0, count * sizeof *frame);
    if (count > 1)
        status = cut_tiles(frame, picture, grid, shape->image_size, err);
    if (status == TACIT_OK)
        status = tacit_image_resize(&frame[count - 1], picture, shape->image_size,
                                    shape->image_size, FRAME_FILTER, err);
    for (size_t i = 0; status != TACIT_OK && i < count; i++)
        tacit_image_free(&frame[i]);
    return status;
}

tacit_status media_prepare(tacit_media *out, const tacit_image *frame, const vision_shape *shape,
                           tacit_error *err)
{
    size_t pixels = (size_t)frame->width * frame->height;
    const uint32_t size[2] = {frame->width, frame->height};
    const tacit_span parts[] = {
        {frame->rgb, 3 * pixels},
        {(const uint8_t *)size, sizeof size},
        {(const uint8_t *)shape->mean, sizeof shape->mean},
        {(const uint8_t *)shape->std, sizeof shape->std},
    };
    *out = (tacit_media){.modality = TACIT_MODALITY_IMAGE,
                         .dim = {3, frame->height, frame->width},
                         .n_rows = shape->rows};
    out->values = malloc(3 * pixels * sizeof *out->values);
    if (!out->values)
        return tacit_fail(err, TACIT_NO_MEMORY, "no memory for a picture of %u x %u", frame->width,
                          frame->height);
    tacit_image_planes(out->values, frame, shape->mean, shape->std);
    tacit_digest_parts(out->digest, "tacit-frame-1", parts, sizeof parts / sizeof parts[0]);
    return TACIT_OK;
}
