/* The decoder's input, plain values: rows of mixed origin, and the example built from them. */
#ifndef TACIT_ENGINE_INPUT_H
#define TACIT_ENGINE_INPUT_H

#include "common/status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef enum tacit_modality {
    TACIT_MODALITY_TOKEN,
    TACIT_MODALITY_IMAGE,
    TACIT_MODALITY_AUDIO,
    TACIT_MODALITY_SENSOR,
    TACIT_MODALITY_PROMPT
} tacit_modality;

/* One row of the decoder's input. It stands at four numbers (OPS_ROPE_AXES): `position` and
 * position + shift[0..2], of which models that know one number take the first. Rows of a mask group
 * see each other whatever their order; they follow one another, their groups are numbered
 * ascendingly, and no row of a group is trained. */
typedef struct tacit_row {
    int32_t token;     /* TOKEN: id. Otherwise: index of the row within `media` */
    uint8_t modality;  /* tacit_modality */
    uint8_t trained;   /* 1: the loss is taken on predicting THIS row's token from the past */
    uint16_t media;    /* not TOKEN: which entry of tacit_input.media */
    uint32_t position; /* of RoPE and of windows of attention; kept when rows are dropped */
    int32_t shift[3];  /* M-RoPE: height, width and one to spare, less `position`; 0 elsewhere */
    uint32_t group;    /* mask group; 0: the row sees the rows before it and itself */
} tacit_row;

/* One picture, clip of sound or window of sensors of an input. `values` are what its encoder reads,
 * prepared, [dim[0], dim[1], dim[2]]:
 *
 *   IMAGE    [3 frames, height, width]: planes of the frames, (v / 255 - mean) / std
 *   AUDIO    [1, frames, mel bins]: log-mel (audio.h)
 *   SENSOR   [1, patches, values of a patch] (sensor.h)
 *
 * `rows` is the encoder's output [n_rows, embedding] where it is cached, else NULL and the encoder
 * runs. Row r covers the time from start + r * row_seconds on, in seconds of the medium's own
 * clock; both are 0 for a picture. */
typedef struct tacit_media {
    uint8_t modality; /* tacit_modality: whose encoder */
    uint32_t dim[3];
    uint32_t extent[2]; /* IMAGE: width and height that the frames come from; 0: one frame alone */
    uint32_t grid[2];   /* height and width in rows, where positions have both (M-RoPE); else 0 */
    bool together;      /* its rows are a mask group */
    float *values;
    float *rows;
    size_t n_rows;
    double start, row_seconds;
    uint8_t digest[32]; /* of (media bytes, preprocessing): the key of caches */
} tacit_media;

/* Owns everything it points to. */
typedef struct tacit_input {
    tacit_row *row;
    size_t count;
    tacit_media *media;
    size_t n_media;
} tacit_input;

void tacit_input_free(tacit_input *in);

/* What its rows and media take, `width` values a row of a medium. */
uint64_t tacit_input_bytes(const tacit_input *in, size_t width);

/* Room for the rows of a medium [n_rows, width], judged before it is taken: how many a medium
 * becomes, and how wide, is what files say. Freed with tacit_wipe_free. */
tacit_status media_rows_alloc(float **out, const tacit_media *media, size_t width,
                              tacit_error *err) TACIT_MUST_CHECK;

#endif
