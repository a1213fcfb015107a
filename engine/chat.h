/* Conversations as a model's chat template spells them. Two templates are known: ChatML (SmolLM2,
 * Qwen2: "<|im_start|>role\n...<|im_end|>\n") and SmolVLM's ("<|im_start|>User: ...
 * <end_of_utterance>\nAssistant:"); the file's own tokenizer.chat_template says which one.
 *
 * A conversation becomes pieces. CONTROL pieces are tokenized with special = true; TEXT pieces,
 * which hold all that people wrote, with special = false, so nobody's text turns into a control
 * token. Joined, the pieces are what the template prints; text that the template puts right before
 * a content ("user\n", ": ") shares its TEXT piece, so the token boundaries are those of the whole
 * string. */
#ifndef TACIT_ENGINE_CHAT_H
#define TACIT_ENGINE_CHAT_H

#include "common/status.h"
#include "engine/dataset.h"

#include <stdbool.h>
#include <stddef.h>

typedef enum tacit_chat_kind { TACIT_CHAT_CHATML, TACIT_CHAT_SMOLVLM } tacit_chat_kind;

#define TACIT_CHAT_SYSTEM_MAX 1024

typedef struct tacit_chat {
    tacit_chat_kind kind;
    /* What the template says itself when a conversation does not begin with a system turn;
     * empty when it says nothing. */
    char system[TACIT_CHAT_SYSTEM_MAX];
} tacit_chat;

/* Recognises a template (tacit_tokenizer_chat_template). NULL is TACIT_NOT_FOUND, an unknown one
 * TACIT_BAD_INPUT; both errors name the templates that are supported. */
tacit_status tacit_chat_recognise(tacit_chat *out, const char *chat_template, tacit_error *err)
    TACIT_MUST_CHECK;

typedef enum tacit_piece_kind {
    TACIT_PIECE_CONTROL,
    TACIT_PIECE_TEXT,
    TACIT_PIECE_MEDIA /* the whole block of one medium, with its marker tokens */
} tacit_piece_kind;

typedef struct tacit_piece {
    tacit_piece_kind kind;
    char *text; /* owned, NUL-terminated; NULL for MEDIA */
    size_t size;
    size_t media; /* MEDIA: which one of the conversation, from 0 in order of appearance */
    bool trained; /* the assistant's content and the end token after it */
} tacit_piece;

typedef struct tacit_pieces {
    tacit_piece *piece;
    size_t count, capacity;
} tacit_pieces;

/* Renders `n` messages; with `add_generation_prompt` the assistant's header follows, and what a
 * model answers continues there. *out is zeroed first and freed by the caller, also on failure. */
tacit_status tacit_chat_render(const tacit_chat *chat, const tacit_message *messages, size_t n,
                               bool add_generation_prompt, tacit_pieces *out, tacit_error *err)
    TACIT_MUST_CHECK;
void tacit_pieces_free(tacit_pieces *p);

#endif
