/* Soft prompts (Lester, Al-Rfou and Constant 2021, arXiv 2104.08691): trained rows of the decoder's
 * input, before the whole of it, and before the rows of every picture (of every tile of one that is
 * cut). In an input each prompt is a medium of its own, of modality PROMPT, whose dim[0] says which
 * of the two it is; all pictures share theirs. */
#ifndef TACIT_ENGINE_SOFT_PROMPT_H
#define TACIT_ENGINE_SOFT_PROMPT_H

#include "engine/input.h"
#include "engine/trainable.h"

#include <stddef.h>

typedef enum soft_prompt_place {
    SOFT_PROMPT_TEXT,
    SOFT_PROMPT_IMAGE,
    SOFT_PROMPTS
} soft_prompt_place;

#define SOFT_PROMPT_MAX_ROWS 4096

/* "prompt.text", "prompt.image": names of tensors and of entries of a layout. */
const char *soft_prompt_name(soft_prompt_place place);

typedef struct soft_prompt {
    size_t n_rows;     /* 0: none */
    const float *rows; /* [n_rows, embedding], copied; NULL: whoever computes has them */
} soft_prompt;

/* How many rows a spec trains, without the rows themselves: zeros unless it trains prompts. */
void soft_prompt_of_spec(soft_prompt out[SOFT_PROMPTS], const tacit_trainable_spec *spec);

/* Puts prompts into an input that has none, where there is something to stand before; rows behind
 * move on by as many positions. `digest` says whose they are, with rows. On failure
 * (TACIT_NO_MEMORY, TACIT_BAD_INPUT: more media or positions than can be numbered) the input is as
 * it was. */
tacit_status soft_prompt_insert(tacit_input *in, const soft_prompt prompt[SOFT_PROMPTS],
                                size_t width, const uint8_t digest[32],
                                tacit_error *err) TACIT_MUST_CHECK;

#endif
