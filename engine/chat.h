/* Conversations as a model's chat template spells them. The family is recognised from the file's
 * own tokenizer.chat_template (chat_forms.c has the table: ChatML, Qwen 3, QwQ, LFM2.5, SmolVLM,
 * LLaVA, Llama 3, Mistral, Gemma, Vicuna), or chosen by name. Stateless; thread-safe.
 *
 * A conversation becomes pieces. CONTROL pieces are tokenized with special = true; TEXT pieces,
 * which hold all that people wrote, with special = false, so nobody's text turns into a control
 * token. Joined, the pieces are what the template prints; text that the template puts right before
 * a content ("user\n", ": ") shares its TEXT piece, so the token boundaries are those of the whole
 * string.
 *
 * What cannot be kept apart: Vicuna's "USER:" and the "[INST]" of Mistral before v3 are ordinary
 * text to the model, so a person who types them looks like the template. Where templates differ
 * from what is printed here: Mistral's of v3 and later leave the system's text out of a
 * conversation that ends with an answer, here it stays with the last user; their v0.1 and v0.2, and
 * Gemma's before 3, refuse a system turn, here it goes to the first user as in their successors.
 * The date that Llama 3.1 prints is its template's default, 26 Jul 2024, also where the template
 * would ask the clock; Mistral's since Small 3 have no such default, so a conversation without a
 * system turn, where they would print the date, is refused. Gemma's strip each text of a turn that
 * they are given as a list: here that is done in turns with media, the texts of others are one. */
#ifndef TACIT_ENGINE_CHAT_H
#define TACIT_ENGINE_CHAT_H

#include "engine/chat_forms.h"
#include "engine/dataset.h"
#include "engine/tokenizer.h"

#include <stdbool.h>
#include <stddef.h>

typedef struct tacit_chat {
    chat_form form;
    char says[CHAT_SAYS_MAX]; /* the system's text when nobody gives one; empty: none */
} tacit_chat;

/* Recognises a template (tacit_tokenizer_chat_template). NULL is TACIT_NOT_FOUND, an unknown one
 * TACIT_BAD_INPUT; both errors list the names of the forms. */
tacit_status tacit_chat_recognise(tacit_chat *out, const char *chat_template,
                                  tacit_error *err) TACIT_MUST_CHECK;
/* By name; TACIT_USAGE lists the names. */
tacit_status tacit_chat_choose(tacit_chat *out, const char *name,
                               tacit_error *err) TACIT_MUST_CHECK;

/* Whether the vocabulary has what the form is made of: each control token as one token, BOS and EOS
 * where they are printed. TACIT_BAD_INPUT names the first that is missing: spelled letter by letter
 * it would mean nothing to the model. */
tacit_status tacit_chat_check_tokens(const tacit_chat *chat, const tacit_tokenizer *t,
                                     tacit_error *err) TACIT_MUST_CHECK;

typedef enum tacit_piece_kind {
    TACIT_PIECE_CONTROL,
    TACIT_PIECE_TEXT,
    TACIT_PIECE_MEDIA, /* the whole block of one medium, with its marker tokens */
    TACIT_PIECE_BOS,   /* the vocabulary's own; at the very start at most one is meant */
    TACIT_PIECE_EOS
} tacit_piece_kind;

typedef struct tacit_piece {
    tacit_piece_kind kind;
    char *text; /* owned, NUL-terminated; NULL for MEDIA, BOS, EOS */
    size_t size;
    size_t media; /* MEDIA: which one of the conversation, from 0 in order of appearance */
    bool trained; /* the assistant's content and the end token after it */
} tacit_piece;

typedef struct tacit_pieces {
    tacit_piece *piece;
    size_t count, capacity;
} tacit_pieces;

/* Renders `n` messages; with `add_generation_prompt` the assistant's header follows, and what a
 * model answers continues there. TACIT_BAD_INPUT: turns in an order that the template refuses. *out
 * is zeroed first and freed by the caller, also on failure. */
tacit_status tacit_chat_render(const tacit_chat *chat, const tacit_message *messages, size_t n,
                               bool add_generation_prompt, tacit_pieces *out,
                               tacit_error *err) TACIT_MUST_CHECK;
void tacit_pieces_free(tacit_pieces *p);

#endif
