/* SentencePiece's BPE (tokenizer.ggml.model "llama"): Kudo and Richardson 2018, and the merging of
 * its bpe_model.cc. The characters of a text are merged pair by pair, always the pair whose joined
 * text is the token of highest score, the leftmost of several. Private to the engine room. */
#ifndef TACIT_ENGINE_SPM_H
#define TACIT_ENGINE_SPM_H

#include "engine/tokenizer.h"

/* Scratch space that several texts share. Zero-initialise, free with spm_scratch_free. */
typedef struct spm_scratch {
    char *text; /* spaces escaped */
    struct spm_symbol *symbol;
    struct merge_candidate *heap;
    uint32_t *split; /* by token: where an unused one comes apart again */
    size_t text_capacity, symbol_capacity;
    bool unknown; /* the character before had no token */
} spm_scratch;

void spm_scratch_free(spm_scratch *s);

/* Appends the tokens of `text`, which holds no whole tokens. Spaces become U+2581, and with
 * `space_first` one more stands before the text. Characters that are no token become byte tokens,
 * and where the vocabulary lacks one of those, a run of them becomes one unknown token. Bytes that
 * are no UTF-8 are never merged. O(n log n) in the size of the text. */
tacit_status spm_encode(const tacit_tokenizer *t, spm_scratch *s, const char *text, size_t size,
                        bool space_first, tacit_tokens *out, tacit_error *err) TACIT_MUST_CHECK;

/* Where the next word of an escaped text begins after `from`: at a U+2581 that follows another
 * character; `size` when there is none. */
size_t spm_next_word(const char *text, size_t size, size_t from);

/* Appends the text of a token with U+2581 as spaces. */
tacit_status spm_append_decoded(const char *text, size_t size, tacit_buffer *out) TACIT_MUST_CHECK;

/* The byte that "<0xNN>" (two capital hexadecimal digits) names, or -1. */
int spm_byte_of(const char *text, size_t size);

#endif
