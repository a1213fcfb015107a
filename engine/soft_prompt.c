#include "engine/soft_prompt.h"

#include "common/digest.h"
#include "common/memory_limit.h"
#include "common/secret.h"

#include <stdlib.h>
#include <string.h>

#define SMALLER "take a prompt of fewer rows"

static const char *const names[SOFT_PROMPTS] = {"prompt.text", "prompt.image"};

const char *soft_prompt_name(soft_prompt_place place)
{
    return names[place];
}

void soft_prompt_of_spec(soft_prompt out[SOFT_PROMPTS], const tacit_trainable_spec *spec)
{
    bool trained = spec->kind == TACIT_TRAIN_PROMPT;
    out[SOFT_PROMPT_TEXT] = (soft_prompt){.n_rows = trained ? spec->virtual_tokens : 0};
    out[SOFT_PROMPT_IMAGE] = (soft_prompt){.n_rows = trained ? spec->image_virtual_tokens : 0};
}

/* Whether the rows of a picture, or of a tile, begin at row i. */
static bool begins_picture(const tacit_input *in, size_t i)
{
    const tacit_row *row = &in->row[i];
    if (row->modality != TACIT_MODALITY_IMAGE)
        return false;
    return i == 0 || row[-1].modality != TACIT_MODALITY_IMAGE || row[-1].media != row->media;
}

/* Where prompts go, and what of them. */
typedef struct insertion {
    const soft_prompt *prompt;
    size_t pictures;
    uint16_t medium[SOFT_PROMPTS]; /* of the input, once it has them */
} insertion;

static size_t rows_added(const insertion *n)
{
    return n->prompt[SOFT_PROMPT_TEXT].n_rows + n->pictures * n->prompt[SOFT_PROMPT_IMAGE].n_rows;
}

static bool is_used(const insertion *n, size_t place)
{
    return n->prompt[place].n_rows > 0 && (place == SOFT_PROMPT_TEXT || n->pictures > 0);
}

/* Rows of one prompt from position `at` on; returns the row behind them. */
static tacit_row *put_prompt(tacit_row *to, const insertion *n, soft_prompt_place place,
                             uint32_t at)
{
    for (size_t i = 0; i < n->prompt[place].n_rows; i++)
        *to++ = (tacit_row){.modality = TACIT_MODALITY_PROMPT,
                            .media = n->medium[place],
                            .token = (int32_t)i,
                            .position = at + (uint32_t)i};
    return to;
}

static void put_rows(tacit_row *to, const tacit_input *in, const insertion *n)
{
    uint32_t moved = (uint32_t)n->prompt[SOFT_PROMPT_TEXT].n_rows;
    to = put_prompt(to, n, SOFT_PROMPT_TEXT, in->count > 0 ? in->row[0].position : 0);
    for (size_t i = 0; i < in->count; i++) {
        if (n->pictures > 0 && begins_picture(in, i)) {
            to = put_prompt(to, n, SOFT_PROMPT_IMAGE, in->row[i].position + moved);
            moved += (uint32_t)n->prompt[SOFT_PROMPT_IMAGE].n_rows;
        }
        *to = in->row[i];
        to++->position += moved;
    }
}

static tacit_status make_medium(tacit_media *out, const soft_prompt *prompt, size_t place,
                                size_t width, const uint8_t digest[32], tacit_error *err)
{
    *out = (tacit_media){.modality = TACIT_MODALITY_PROMPT,
                         .dim = {(uint32_t)place, 0, 0},
                         .n_rows = prompt->n_rows};
    if (!prompt->rows)
        return TACIT_OK;
    const uint8_t which = (uint8_t)place;
    const tacit_span parts[] = {{digest, 32}, {&which, 1}};
    tacit_digest_parts(out->digest, "tacit-soft-prompt-1", parts, 2);
    tacit_status status = media_rows_alloc(&out->rows, out, width, err);
    if (status == TACIT_OK)
        memcpy(out->rows, prompt->rows, prompt->n_rows * width * sizeof *out->rows);
    return status;
}

static tacit_status judge(const tacit_input *in, const insertion *n, tacit_error *err)
{
    uint64_t last = in->count > 0 ? in->row[in->count - 1].position : 0;
    if (in->n_media + SOFT_PROMPTS > UINT16_MAX || last + rows_added(n) > UINT32_MAX)
        return tacit_fail(err, TACIT_BAD_INPUT,
                          "a soft prompt of %zu rows beside %zu media: more than can be numbered; "
                          "shorten the input",
                          rows_added(n), in->n_media);
    return TACIT_OK;
}

tacit_status soft_prompt_insert(tacit_input *in, const soft_prompt prompt[SOFT_PROMPTS],
                                size_t width, const uint8_t digest[32], tacit_error *err)
{
    insertion n = {.prompt = prompt};
    tacit_media medium[SOFT_PROMPTS] = {0};
    size_t media = in->n_media;
    void *rows = NULL;
    tacit_status status;
    for (size_t i = 0; prompt[SOFT_PROMPT_IMAGE].n_rows > 0 && i < in->count; i++)
        n.pictures += begins_picture(in, i);
    if (rows_added(&n) == 0)
        return TACIT_OK;
    TACIT_TRY(judge(in, &n, err), fail);
    for (size_t k = 0; k < SOFT_PROMPTS; k++)
        if (is_used(&n, k)) {
            TACIT_TRY(make_medium(&medium[k], &prompt[k], k, width, digest, err), fail);
            n.medium[k] = (uint16_t)media++;
        }
    TACIT_TRY(tacit_memory_alloc(&rows, in->count + rows_added(&n), sizeof *in->row,
                                 "an input with its soft prompt", SMALLER, err),
              fail);
    tacit_media *grown = realloc(in->media, media * sizeof *grown);
    if (!grown) {
        status = tacit_fail(err, TACIT_NO_MEMORY, "no memory for %zu media", media);
        goto fail;
    }
    in->media = grown;
    for (size_t k = 0; k < SOFT_PROMPTS; k++)
        if (is_used(&n, k))
            in->media[in->n_media++] = medium[k];
    put_rows(rows, in, &n);
    tacit_wipe_free(in->row);
    in->row = rows;
    in->count += rows_added(&n);
    return TACIT_OK;
fail:
    for (size_t k = 0; k < SOFT_PROMPTS; k++)
        tacit_wipe_free(medium[k].rows);
    tacit_wipe_free(rows);
    return status;
}
