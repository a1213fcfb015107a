/* The tokens around a picture of an idefics3 model, in the sequences in use:
 *
 *   HF_FRAME        <F><global-img> R <F>; HF too for a picture of one tile
 *   HF, tiles       per tile <F><row_r_col_c> R, "\n" after each tile row but the last, then
 *                   "\n\n" <F><global-img> R <F>
 *   MTMD            llama.cpp: always tiles, otherwise as HF
 *   MTMD_IK         ik_llama.cpp: always tiles, <F> once before the first tile, and "\n" where the
 *                   others have "\n\n"
 *
 * <F> is <fake_token_around_image>, R the rows of a frame. Frames are numbered row by row; the
 * overview is the last one. Immutable values; thread-safe. */
#ifndef TACIT_ENGINE_MEDIA_LAYOUT_H
#define TACIT_ENGINE_MEDIA_LAYOUT_H

#include "engine/tokenizer.h"

typedef enum media_form {
    MEDIA_FORM_HF,       /* Hugging Face's processor as the models are published: tiles */
    MEDIA_FORM_HF_FRAME, /* the same told not to split pictures: the overview alone */
    MEDIA_FORM_MTMD,
    MEDIA_FORM_MTMD_IK
} media_form;

#define MEDIA_MAX_GRID 8 /* tiles a side */
#define MEDIA_MAX_FRAMES (MEDIA_MAX_GRID * MEDIA_MAX_GRID + 1)

#define MEDIA_FORM_NAMES "hf, hf-frame, mtmd or mtmd-ik"
/* The form of that name, HF for NULL. TACIT_USAGE for another name. */
tacit_status media_form_choose(media_form *out, const char *name,
                               tacit_error *err) TACIT_MUST_CHECK;

/* Either a token (frame is -1) or the rows of one frame (token is -1). */
typedef struct media_step {
    int32_t token;
    int32_t frame;
} media_step;

typedef struct media_layout {
    media_step *step;
    size_t count;
    size_t frames; /* tiles and the overview */
} media_layout;

/* The sequence for grid_rows x grid_cols tiles; 0 x 0 is the overview alone, which only the HF
 * forms know. TACIT_BAD_INPUT names a marker token that the vocabulary lacks. */
tacit_status media_layout_make(media_layout *out, const tacit_tokenizer *tokenizer, media_form form,
                               uint32_t grid_rows, uint32_t grid_cols,
                               tacit_error *err) TACIT_MUST_CHECK;
void media_layout_free(media_layout *l);

#endif
