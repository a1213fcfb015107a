/* Splitting of text into the pieces within which byte pairs are merged. Private to the engine
 * room. */
#ifndef TACIT_ENGINE_PRETOKENIZE_H
#define TACIT_ENGINE_PRETOKENIZE_H

#include "common/status.h"

#include <stdbool.h>
#include <stddef.h>

/* Compiled patterns; immutable, shared by threads. */
typedef struct pretokenizer pretokenizer;

/* `name` is tokenizer.ggml.pre (`size` bytes). An unknown one is TACIT_BAD_INPUT and the error
 * lists those of the table. */
tacit_status pretokenizer_new(pretokenizer **out, const char *name, size_t size,
                              tacit_error *err) TACIT_MUST_CHECK;
void pretokenizer_free(pretokenizer *p);

/* What else the name says: a piece that is a token is that token, without merging; a BOS begins
 * every text unless the file says otherwise. */
bool pretokenizer_ignores_merges(const pretokenizer *p);
bool pretokenizer_adds_bos(const pretokenizer *p);

/* Calls piece(ctx, ...) for every piece in order; together they are the text, in Unicode's normal
 * form C where the model's own tokenizer normalizes. Bytes that are no UTF-8 belong to no letter,
 * number or space and end the piece before them. */
tacit_status pretokenizer_run(const pretokenizer *p, const char *text, size_t size,
                              tacit_status (*piece)(void *ctx, const char *text, size_t size),
                              void *ctx, tacit_error *err) TACIT_MUST_CHECK;

#endif
