/* The families of chat templates: what stands around every turn of a conversation. A form is data;
 * chat.c renders it. Private to the engine room; use chat.h.
 *
 * Texts of a form may hold marks: CHAT_CONTROL("<|im_end|>") is a control token, CHAT_BOS and
 * CHAT_EOS are the vocabulary's own. */
#ifndef TACIT_ENGINE_CHAT_FORMS_H
#define TACIT_ENGINE_CHAT_FORMS_H

#include "common/status.h"

#include <stdbool.h>
#include <stddef.h>

#define CHAT_CONTROL(text) "\1" text "\2"
#define CHAT_BOS "\3"
#define CHAT_EOS "\4"

/* before, lead, content, end, after. Of the assistant's turns lead, content and end are trained. */
typedef struct chat_turn {
    const char *before, *lead, *end, *after;
} chat_turn;

/* What becomes of reasoning, "<think>...</think>" before what an answer says. */
typedef enum chat_thinking {
    CHAT_THINKING_SAID,        /* part of what is said */
    CHAT_THINKING_QWEN3,       /* after the last question alone, and only what there is to show */
    CHAT_THINKING_QWEN35,      /* after the last question, also where it is empty */
    CHAT_THINKING_LAST,        /* of the last message alone (QwQ) */
    CHAT_THINKING_NEVER,       /* QwQ as first published */
    CHAT_THINKING_LAST_ANSWER, /* of the last answer alone (LFM2.5) */
} chat_thinking;

typedef enum chat_system {
    CHAT_SYSTEM_TURN,       /* a turn of its own */
    CHAT_SYSTEM_ALWAYS,     /* the same, printed also when nothing was said in it */
    CHAT_SYSTEM_FIRST_USER, /* before the first user's content and an empty line */
    CHAT_SYSTEM_LAST_USER   /* before the last user's */
} chat_system;

typedef struct chat_form {
    const char *name; /* as people choose it */
    const char *opening, *generation;
    chat_turn system, user, assistant;
    const char *first_system; /* between the opening system turn's head and its text */
    const char *says;         /* the system's text when nobody gives one */
    /* LLaVA's processors put a turn's pictures first, then its texts, with these around. */
    const char *media_after, *text_before, *text_after;
    chat_system where_system;
    bool media_first;
    bool no_lead_before_media; /* SmolVLM: "User:<image>" but "User: Hi" */
    bool strips;               /* white space around contents, as Python's str.strip */
    bool strips_answers;       /* only around the assistant's */
    bool strips_turns;         /* around the user's and the assistant's; beside media each text's */
    bool alternates;           /* user and assistant must take turns */
    bool opens_when_empty;     /* the opening stands also before no turns */
    bool system_is_first;      /* a system turn elsewhere is refused */
    bool system_is_text;       /* media in it are refused */
    bool needs_question;       /* conversations that nobody asks anything in are refused */
    bool says_the_date;        /* where no system text is given: then one must be */
    chat_thinking thinking;
} chat_form;

enum { CHAT_SAYS_MAX = 8192 };

/* The texts of a form one by one, NULL after the last; `i` counts from 0. */
const char *chat_form_text(const chat_form *form, size_t i);
/* The reasoning's marks, as a text of a form; "" where the form does not print them. */
const char *chat_form_thinking_marks(const chat_form *form);

/* The form that the text of a template (tokenizer.chat_template) belongs to. `says` is empty and
 * receives what the template itself spells as the system's text, if it does: that goes before
 * out->says. TACIT_BAD_INPUT: no form, or the text has no room. */
tacit_status chat_form_recognise(chat_form *out, char says[CHAT_SAYS_MAX],
                                 const char *chat_template, tacit_error *err) TACIT_MUST_CHECK;
/* The form of that name; TACIT_USAGE lists the names. */
tacit_status chat_form_choose(chat_form *out, const char *name, tacit_error *err) TACIT_MUST_CHECK;
/* The names, with commas between. */
const char *chat_form_names(void);

#endif
