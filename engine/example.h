/* From a conversation to the decoder's input: chat template, tokens, media, flags of what is
 * trained. Stateless; may run on several threads over one model. */
#ifndef TACIT_ENGINE_EXAMPLE_H
#define TACIT_ENGINE_EXAMPLE_H

#include "engine/dataset.h"
#include "engine/input.h"
#include "engine/media_layout.h"
#include "engine/model.h"

/* Where media come from. `read` yields malloc'ed bytes of the media that `path` names, for instance
 * from a sealed store or from memory. */
typedef struct tacit_media_source {
    void *ctx;
    tacit_status (*read)(void *ctx, const char *path, uint8_t **data, size_t *size,
                         tacit_error *err);
} tacit_media_source;

typedef struct tacit_example_options {
    media_form form;                  /* zero: Hugging Face's */
    size_t max_rows;                  /* longest input accepted; 0: the model's context length */
    const tacit_media_source *source; /* NULL: files */
} tacit_example_options;

/* The whole conversation, its assistant turns (content and end of turn) marked as trained.
 * TACIT_BAD_INPUT: unreadable media, a medium whose encoder the model lacks, too many rows, nothing
 * to train on. `options` may be NULL. *out is the caller's to tacit_input_free. */
tacit_status tacit_example_build(tacit_input *out, const tacit_model *model,
                                 const tacit_record *record, const tacit_example_options *options,
                                 tacit_error *err) TACIT_MUST_CHECK;

/* The first n messages followed by the opening of an assistant turn, for generation. Nothing is
 * marked as trained. */
tacit_status tacit_example_prompt(tacit_input *out, const tacit_model *model,
                                  const tacit_message *messages, size_t n,
                                  const tacit_example_options *options,
                                  tacit_error *err) TACIT_MUST_CHECK;

#endif
