/* A model: text file, encoders with projectors (mmproj files) and tokenizer. Immutable after
 * loading, shared by contexts and threads; weights stay quantized in the maps. */
#ifndef TACIT_ENGINE_MODEL_H
#define TACIT_ENGINE_MODEL_H

#include "common/digest.h"
#include "engine/gguf.h"
#include "engine/tokenizer.h"

typedef struct tacit_model tacit_model;

/* `mmproj` may be empty. `base_digest` (32 bytes, from a cache keyed by inode, size and time) saves
 * computing it. TACIT_BAD_INPUT says what of a file is not supported or does not fit the others: a
 * projector whose output width is not the text model's embedding length with both numbers. */
tacit_status tacit_model_load(tacit_model **out, const char *text, const char *const *mmproj,
                              size_t n_mmproj, const uint8_t *base_digest,
                              tacit_error *err) TACIT_MUST_CHECK;
void tacit_model_free(tacit_model *m);

/* Takes a chat template by its name (chat_forms.h) instead of the file's. Before the model is
 * shared; TACIT_USAGE lists the names, TACIT_BAD_INPUT names a token of the template that the
 * vocabulary lacks. */
tacit_status tacit_model_choose_chat(tacit_model *m, const char *name,
                                     tacit_error *err) TACIT_MUST_CHECK;

/* Whether conversations can be had with the model: TACIT_NOT_FOUND when its file has no chat
 * template, TACIT_BAD_INPUT when it is not supported or the vocabulary lacks its tokens. A fault of
 * the model, so ask before reading data: every record would meet it. */
tacit_status tacit_model_check_chat(const tacit_model *m, tacit_error *err) TACIT_MUST_CHECK;

const tacit_tokenizer *tacit_model_tokenizer(const tacit_model *m);
/* SHA-256 over "tacit-base-1" and the SHA-256 of the text file and of each mmproj, which are read
 * as a whole the first time that it is asked for. Thread-safe. */
const uint8_t *tacit_model_base_digest(const tacit_model *m);
size_t tacit_model_embedding(const tacit_model *m);
size_t tacit_model_context_length(const tacit_model *m);
size_t tacit_model_vocab(const tacit_model *m);

#endif
