#include "engine/media_frames.h"

#include "common/digest.h"
#include "common/memory_limit.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* What the processors of both families resample by. */
#define TILE_FILTER TACIT_IMAGE_LANCZOS
#define MLP_FILTER TACIT_IMAGE_BICUBIC

#define HF_MAX_SIDE 4096
#define STRIP_ROWS 64

static uint32_t tiles_along(uint32_t side, uint32_t longest, const vision_shape *s)
{
    uint64_t scaled = (uint64_t)side * s->preproc_size / longest;
    return (uint32_t)((scaled + s->image_size - 1) / s->image_size);
}

/* The other side of a picture whose longer one becomes `longest`: in double and cut off, as the
 * processor does it, so that a picture gets the tiles that the model was trained with. */
static uint32_t other_side(uint32_t longest, uint32_t width, uint32_t height)
{
    double aspect = (double)width / height;
    return (uint32_t)(width >= height ? longest / aspect : longest * aspect);
}

static uint32_t at_least_one(uint32_t side)
{
    return side ? side : 1;
}

/* The steps of Hugging Face's processor: first[], then whole tiles. */
static media_grid hf_grid(const vision_shape *s, uint32_t width, uint32_t height)
{
    uint32_t tile = s->image_size, longest = s->preproc_size;
    uint32_t shorter = other_side(longest, width, height);
    bool wide = width >= height;
    shorter = at_least_one(shorter + shorter % 2);
    if (longest > HF_MAX_SIDE) {
        shorter = at_least_one(
            other_side(HF_MAX_SIDE, wide ? longest : shorter, wide ? shorter : longest));
        longest = HF_MAX_SIDE;
    }
    uint32_t first[2] = {wide ? longest : shorter, wide ? shorter : longest};
    uint32_t along = (longest + tile - 1) / tile;
    uint32_t across = (other_side(along * tile, first[0], first[1]) + tile - 1) / tile;
    across = at_least_one(across);
    return (media_grid){wide ? across : along, wide ? along : across, {first[0], first[1]}};
}

tacit_status media_grid_for(media_grid *out, const vision_shape *shape, media_form form,
                            uint32_t width, uint32_t height, tacit_error *err)
{
    *out = (media_grid){0};
    bool hf = form == MEDIA_FORM_HF || form == MEDIA_FORM_HF_FRAME;
    if (shape->preproc_size == 0) {
        if (hf)
            return TACIT_OK;
        return tacit_fail(
            err, TACIT_BAD_INPUT,
            "this tower has no clip.vision.preproc_image_size: pictures of it are not "
            "cut into tiles");
    }
    uint32_t longest = width > height ? width : height;
    media_grid grid = {.rows = at_least_one(tiles_along(height, longest, shape)),
                       .cols = at_least_one(tiles_along(width, longest, shape))};
    if (hf)
        grid = hf_grid(shape, width, height);
    if (form == MEDIA_FORM_HF_FRAME || (hf && grid.rows == 1 && grid.cols == 1))
        grid.rows = grid.cols = 0;
    if (grid.rows > MEDIA_MAX_GRID || grid.cols > MEDIA_MAX_GRID)
        return tacit_fail(err, TACIT_BAD_INPUT, "picture of %u x %u tiles: at most %d a side",
                          grid.rows, grid.cols, MEDIA_MAX_GRID);
    *out = grid;
    return TACIT_OK;
}

/* frame[rows * cols]: `large`, which is whole tiles, in pieces. */
static tacit_status cut_tiles(tacit_image *frame, const tacit_image *large, uint32_t rows,
                              uint32_t cols, uint32_t size, tacit_error *err)
{
    tacit_status status = TACIT_OK;
    for (uint32_t i = 0; i < rows * cols && status == TACIT_OK; i++)
        status =
            tacit_image_crop(&frame[i], large, i % cols * size, i / cols * size, size, size, err);
    return status;
}

static void drop_frames(tacit_image *frame, size_t count)
{
    for (size_t i = 0; i < count; i++)
        tacit_image_free(&frame[i]);
}

tacit_status media_frames_cut(tacit_image *frame, const tacit_image *picture, media_grid grid,
                              const vision_shape *shape, tacit_error *err)
{
    size_t tiles = (size_t)grid.rows * grid.cols;
    uint32_t size = shape->image_size;
    tacit_image first = {0}, large = {0};
    const tacit_image *from = picture, *overview = picture;
    tacit_status status = TACIT_OK;
    memset(frame, 0, (tiles + 1) * sizeof *frame);
    if (grid.first[0] > 0) {
        TACIT_TRY(
            tacit_image_resize(&first, picture, grid.first[0], grid.first[1], TILE_FILTER, err),
            done);
        from = overview = &first;
    }
    if (tiles > 0) {
        TACIT_TRY(
            tacit_image_resize(&large, from, grid.cols * size, grid.rows * size, TILE_FILTER, err),
            done);
        TACIT_TRY(cut_tiles(frame, &large, grid.rows, grid.cols, size, err), done);
        if (grid.first[0] > 0)
            overview = &large;
    }
    status = tacit_image_resize(&frame[tiles], overview, size, size, TILE_FILTER, err);
done:
    tacit_image_free(&large);
    tacit_image_free(&first);
    if (status != TACIT_OK)
        drop_frames(frame, tiles + 1);
    return status;
}

/* Fills an image with one colour. */
static tacit_status make_plain(tacit_image *out, uint32_t width, uint32_t height,
                               const uint8_t colour[3], tacit_error *err)
{
    tacit_status status = image_blank(out, width, height, "padding", err);
    for (size_t i = 0; status == TACIT_OK && i < (size_t)width * height; i++)
        memcpy(out->rgb + 3 * i, colour, 3);
    return status;
}

/* Rows [from, from + n) of `in` to row `y`, column `x` of `to`. */
static void put_rows(tacit_image *to, uint32_t x, uint32_t y, const tacit_image *in, uint32_t from,
                     uint32_t n)
{
    for (uint32_t i = 0; i < n; i++)
        memcpy(to->rgb + ((size_t)(y + i) * to->width + x) * 3,
               in->rgb + (size_t)(from + i) * in->width * 3, (size_t)in->width * 3);
}

/* The part [row, row + n) of the square around a picture, scaled along rows, to those rows of
 * `narrow`, which is of the colour. */
static tacit_status narrow_strip(tacit_image *narrow, const tacit_image *picture, uint32_t row,
                                 uint32_t n, const uint8_t colour[3], tacit_error *err)
{
    uint32_t side = narrow->height;
    uint32_t left = (side - picture->width) / 2, top = (side - picture->height) / 2;
    uint32_t from = row > top ? row : top;
    uint32_t to = row + n < top + picture->height ? row + n : top + picture->height;
    tacit_image strip = {0}, scaled = {0};
    tacit_status status;
    if (from >= to)
        return TACIT_OK; /* one colour, as `narrow` has it already */
    TACIT_TRY(make_plain(&strip, side, n, colour, err), done);
    put_rows(&strip, left, from - row, picture, from - top, to - from);
    TACIT_TRY(tacit_image_resize(&scaled, &strip, narrow->width, n, MLP_FILTER, err), done);
    put_rows(narrow, 0, row, &scaled, 0, n);
done:
    tacit_image_free(&scaled);
    tacit_image_free(&strip);
    return status;
}

/* The square is never held: it may have a hundred times the pixels of the picture. */
tacit_status media_frame_padded(tacit_image *frame, const tacit_image *picture,
                                const vision_shape *shape, tacit_error *err)
{
    uint32_t side = picture->width > picture->height ? picture->width : picture->height;
    uint8_t colour[3];
    tacit_image narrow = {0};
    tacit_status status;
    *frame = (tacit_image){0};
    for (int c = 0; c < 3; c++) {
        float v = shape->mean[c] * 255;
        colour[c] = (uint8_t)(v < 0 ? 0 : v > 255 ? 255 : v);
    }
    TACIT_TRY(make_plain(&narrow, shape->image_size, side, colour, err), done);
    for (uint32_t row = 0; row < side; row += STRIP_ROWS)
        TACIT_TRY(narrow_strip(&narrow, picture, row,
                               side - row < STRIP_ROWS ? side - row : STRIP_ROWS, colour, err),
                  done);
    status =
        tacit_image_resize(frame, &narrow, shape->image_size, shape->image_size, MLP_FILTER, err);
done:
    tacit_image_free(&narrow);
    return status;
}

tacit_status media_frames_arranged(tacit_image *frame, const tacit_image *picture,
                                   const vision_arrangement *a, const vision_shape *shape,
                                   tacit_error *err)
{
    const uint8_t black[3] = {0};
    uint32_t size = shape->image_size;
    uint32_t width = a->grid_cols * size, height = a->grid_rows * size;
    tacit_image scaled = {0}, canvas = {0};
    tacit_status status;
    memset(frame, 0, a->frames * sizeof *frame);
    TACIT_TRY(tacit_image_resize(&frame[0], picture, size, size, MLP_FILTER, err), done);
    TACIT_TRY(tacit_image_resize(&scaled, picture, a->width, a->height, MLP_FILTER, err), done);
    TACIT_TRY(make_plain(&canvas, width, height, black, err), done);
    put_rows(&canvas, (width - a->width) / 2, (height - a->height) / 2, &scaled, 0, a->height);
    status = cut_tiles(frame + 1, &canvas, a->grid_rows, a->grid_cols, size, err);
done:
    tacit_image_free(&canvas);
    tacit_image_free(&scaled);
    if (status != TACIT_OK)
        drop_frames(frame, a->frames);
    return status;
}

/* frame[n] of one picture of `extent`, or one frame alone. */
static tacit_status prepare(tacit_media *out, const tacit_image *frame, size_t n,
                            const uint32_t extent[2], size_t n_rows, const vision_shape *shape,
                            tacit_error *err)
{
    size_t values = (size_t)3 * frame->width * frame->height;
    const uint32_t size[2] = {frame->width, frame->height};
    tacit_span part[MEDIA_MAX_FRAMES + 4];
    for (size_t i = 0; i < n; i++)
        part[i] = (tacit_span){frame[i].rgb, values};
    part[n] = (tacit_span){(const uint8_t *)size, sizeof size};
    part[n + 1] = (tacit_span){(const uint8_t *)shape->mean, sizeof shape->mean};
    part[n + 2] = (tacit_span){(const uint8_t *)shape->std, sizeof shape->std};
    part[n + 3] = (tacit_span){(const uint8_t *)extent, 2 * sizeof *extent};
    *out = (tacit_media){.modality = TACIT_MODALITY_IMAGE,
                         .dim = {(uint32_t)(3 * n), frame->height, frame->width},
                         .extent = {extent[0], extent[1]},
                         .n_rows = n_rows};
    char what[64];
    void *planes;
    snprintf(what, sizeof what, "a picture of %zu frames of %u x %u", n, frame->width,
             frame->height);
    tacit_status status = tacit_memory_alloc(&planes, n, values * sizeof *out->values, what,
                                             "take an encoder of smaller frames", err);
    if (status != TACIT_OK)
        return status;
    out->values = planes;
    for (size_t i = 0; i < n; i++)
        tacit_image_planes(out->values + i * values, &frame[i], shape->mean, shape->std);
    tacit_digest_parts(out->digest, "tacit-frame-1", part, n + (extent[0] ? 4 : 3));
    return TACIT_OK;
}

tacit_status media_prepare(tacit_media *out, const tacit_image *frame, const vision_shape *shape,
                           tacit_error *err)
{
    const uint32_t alone[2] = {0, 0};
    return prepare(out, frame, 1, alone, shape->rows, shape, err);
}

/* Features without a limit are LLaVA-NeXT's, which cuts every picture. */
static bool is_cut(const vision_shape *shape, bool alone)
{
    return shape->cut == VISION_CUT_ANYRES && (alone || shape->max_tiles == 0);
}

tacit_status media_prepare_picture(tacit_media *out, const tacit_image *picture,
                                   const vision_shape *shape, bool alone, tacit_error *err)
{
    tacit_image frame[MEDIA_MAX_FRAMES];
    vision_arrangement a;
    bool cut = is_cut(shape, alone);
    const uint32_t extent[2] = {cut ? picture->width : 0, cut ? picture->height : 0};
    vision_arrange(&a, shape, extent[0], extent[1]);
    tacit_status status = cut ? media_frames_arranged(frame, picture, &a, shape, err)
                              : media_frame_padded(frame, picture, shape, err);
    if (status != TACIT_OK)
        return status;
    status = prepare(out, frame, a.frames, extent, a.total, shape, err);
    drop_frames(frame, a.frames);
    return status;
}
