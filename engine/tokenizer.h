/* Text to token ids and back, by what a model file says: byte-level BPE (tokenizer.ggml.model
 * "gpt2") with the pre-tokenizers of a table (pretokenize.c), and SentencePiece BPE ("llama").
 * Immutable after loading and shared by threads. */
#ifndef TACIT_ENGINE_TOKENIZER_H
#define TACIT_ENGINE_TOKENIZER_H

#include "common/bytes.h"
#include "engine/gguf.h"

#include <stdbool.h>
#include <stdint.h>

typedef struct tacit_tokenizer tacit_tokenizer;

typedef struct tacit_tokens {
    int32_t *id; /* malloc'ed */
    size_t count;
    size_t capacity;
} tacit_tokens;

/* Keeps nothing of the file. TACIT_BAD_INPUT names the key, token or merge that cannot be used;
 * TACIT_NO_MEMORY. */
tacit_status tacit_tokenizer_load(tacit_tokenizer **out, const gguf_file *file,
                                  tacit_error *err) TACIT_MUST_CHECK;
void tacit_tokenizer_free(tacit_tokenizer *t);

/* Appends the tokens of `text`. With `special` false, text that spells a control token is ordinary
 * text: what a user wrote is always encoded so. Adds no BOS. SentencePiece vocabularies that ask
 * for it (tokenizer.ggml.add_space_prefix) get a space before the text and after every token that
 * is matched as a whole. */
tacit_status tacit_tokenize(const tacit_tokenizer *t, const char *text, size_t size, bool special,
                            tacit_tokens *out, tacit_error *err) TACIT_MUST_CHECK;

/* The same for text that goes on where ordinary text ended: no space is put before it. */
tacit_status tacit_tokenize_more(const tacit_tokenizer *t, const char *text, size_t size,
                                 bool special, tacit_tokens *out,
                                 tacit_error *err) TACIT_MUST_CHECK;

/* Appends the bytes of one token; control tokens yield their text only when `special`. A UTF-8
 * character may end in a later token. SentencePiece: the first one brings the space that encoding
 * put before the text (tacit_tokenizer_adds_space; text_stream.h drops it). */
tacit_status tacit_detokenize(const tacit_tokenizer *t, int32_t id, bool special, tacit_buffer *out,
                              tacit_error *err) TACIT_MUST_CHECK;

size_t tacit_tokenizer_vocab(const tacit_tokenizer *t);
/* The token whose text is exactly `text` ("<image>"), or -1. */
int32_t tacit_tokenizer_find(const tacit_tokenizer *t, const char *text);
int32_t tacit_tokenizer_bos(const tacit_tokenizer *t);       /* -1: none is to be added */
int32_t tacit_tokenizer_bos_token(const tacit_tokenizer *t); /* -1: the vocabulary has none */
bool tacit_tokenizer_adds_space(const tacit_tokenizer *t);
int32_t tacit_tokenizer_eos(const tacit_tokenizer *t);               /* -1: likewise */
bool tacit_tokenizer_is_end(const tacit_tokenizer *t, int32_t id);   /* end of generation */
const char *tacit_tokenizer_chat_template(const tacit_tokenizer *t); /* or NULL */

/* Wipes the ids. */
void tacit_tokens_free(tacit_tokens *t);
/* To zero-initialised tokens too. TACIT_NO_MEMORY leaves them as they were. */
tacit_status tacit_tokens_push(tacit_tokens *t, int32_t id) TACIT_MUST_CHECK;

#endif
