/* What a tacit_tokenizer consists of: for tokenizer.c, tokenizer_load.c and spm.c. */
#ifndef TACIT_ENGINE_TOKENIZER_PARTS_H
#define TACIT_ENGINE_TOKENIZER_PARTS_H

#include "engine/bpe.h"
#include "engine/pretokenize.h"
#include "engine/tokenizer.h"
#include "engine/whole_tokens.h"

#include <sodium.h>

enum {
    TOKENIZER_MOST_TOKENS = 1 << 22,
    TOKENIZER_MOST_TOKEN_BYTES = 1024,
    TOKENIZER_MOST_TEMPLATE_BYTES = 131072, /* published chat templates have up to 30 KiB */
    ALPHABET_END = 0x144                    /* one past the last character that stands for a byte */
};

/* tokenizer.ggml.token_type */
typedef enum token_kind {
    TOKEN_NORMAL = 1,
    TOKEN_UNKNOWN = 2,
    TOKEN_CONTROL = 3,
    TOKEN_USER_DEFINED = 4,
    TOKEN_UNUSED = 5,
    TOKEN_BYTE = 6
} token_kind;

typedef struct token {
    const char *text; /* in `texts`, as the file has it */
    uint32_t size;
    uint8_t kind;
    bool is_end;
    bool is_shown; /* a control token that the file calls user-defined: part of the answer's text */
} token;

struct tacit_tokenizer {
    bool is_spm; /* SentencePiece; else byte-level BPE */
    token *token;
    size_t count, longest; /* tokens; bytes of the longest one */
    char *texts;
    int32_t *slot; /* ids by hash of the text, -1: empty; a power of two of them */
    size_t slot_mask;
    unsigned slot_shift; /* 64 less the bits of the mask */
    uint64_t hash_add, hash_multiply;
    uint8_t hash_key[crypto_shorthash_KEYBYTES];
    int32_t byte_token[256]; /* -1: the vocabulary lacks that byte */
    whole_tokens whole[2];   /* [special]: what is matched as a whole */
    int32_t bos, eos, end_of_turn, end_of_message, unknown;
    bool adds_bos;
    char *chat_template;
    /* byte-level BPE */
    bpe_merges *merges;
    pretokenizer *pretokenizer;
    uint16_t byte_character[256];
    int16_t character_byte[ALPHABET_END];
    /* SentencePiece */
    uint32_t *rank; /* by token: 0 has the highest score, equal scores have equal ranks */
    bool has_unused, adds_space;
    bool words_stay_apart; /* no token has a space after another character */
};

/* The slot of a token by its text, or the empty one where it would go. */
int32_t *tokenizer_find_slot(const tacit_tokenizer *t, const char *text, size_t size);
int32_t tokenizer_find_text(const tacit_tokenizer *t, const char *text, size_t size);
/* True for tokens that are found in raw text as they are. */
bool tokenizer_is_whole(const token *k, bool special);
/* What a text may become by itself: everything but what steers the model. */
bool tokenizer_is_ordinary(const tacit_tokenizer *t, int32_t id);
/* The character of GPT-2's alphabet as UTF-8 (1 or 2 bytes); returns its size. */
size_t tokenizer_encode_character(char *out, uint16_t character);

/* Whether the working memory of one piece or word of `size` bytes fits. Short ones are not asked
 * about: there are many. */
tacit_status tokenizer_judge_piece(size_t size, uint64_t bytes, tacit_error *err) TACIT_MUST_CHECK;

#endif
