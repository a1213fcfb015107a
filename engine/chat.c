#include "engine/chat.h"

#include "common/bytes.h"
#include "common/secret.h"

#include <stdlib.h>
#include <string.h>

tacit_status tacit_chat_recognise(tacit_chat *out, const char *chat_template, tacit_error *err)
{
    *out = (tacit_chat){0};
    if (!chat_template)
        return tacit_fail(err, TACIT_NOT_FOUND,
                          "the model has no chat template, key 'tokenizer.chat_template'; those "
                          "supported are %s",
                          chat_form_names());
    tacit_status status = chat_form_recognise(&out->form, out->says, chat_template, err);
    if (status == TACIT_OK && out->form.says)
        memcpy(out->says, out->form.says, strlen(out->form.says) + 1);
    return status;
}

tacit_status tacit_chat_choose(tacit_chat *out, const char *name, tacit_error *err)
{
    *out = (tacit_chat){0};
    tacit_status status = chat_form_choose(&out->form, name, err);
    if (status == TACIT_OK && out->form.says)
        memcpy(out->says, out->form.says, strlen(out->form.says) + 1);
    return status;
}

/* ---- the vocabulary ---------------------------------------------------------------------- */

enum { MARK_CONTROL = 1, MARK_CONTROL_END, MARK_BOS, MARK_EOS };
static const char marks[] = {MARK_CONTROL, MARK_CONTROL_END, MARK_BOS, MARK_EOS, 0};

static tacit_status check_control(const chat_form *f, const char *text, size_t size,
                                  const tacit_tokenizer *t, tacit_error *err)
{
    tacit_tokens tokens = {0};
    tacit_status status = tacit_tokenize(t, text, size, true, &tokens, err);
    size_t count = tokens.count;
    tacit_tokens_free(&tokens);
    if (status != TACIT_OK || count == 1)
        return status;
    return tacit_fail(err, TACIT_BAD_INPUT,
                      "the chat template (%s) is made of the token '%.*s', which the vocabulary "
                      "does not have",
                      f->name, (int)size, text);
}

static tacit_status check_mark(bool bos, const tacit_tokenizer *t, tacit_error *err)
{
    if ((bos ? tacit_tokenizer_bos_token(t) : tacit_tokenizer_eos(t)) >= 0)
        return TACIT_OK;
    return tacit_fail(err, TACIT_BAD_INPUT,
                      "the chat template asks for the vocabulary's %s, and the file names none: "
                      "key 'tokenizer.ggml.%s_token_id'",
                      bos ? "BOS" : "EOS", bos ? "bos" : "eos");
}

static tacit_status check_text(const chat_form *f, const char *text, const tacit_tokenizer *t,
                               tacit_error *err)
{
    tacit_status status = TACIT_OK;
    while (*(text += strcspn(text, marks)) && status == TACIT_OK) {
        char mark = *text++;
        size_t n = strcspn(text, marks);
        if (mark == MARK_CONTROL)
            status = check_control(f, text, n, t, err);
        else if (mark != MARK_CONTROL_END)
            status = check_mark(mark == MARK_BOS, t, err);
    }
    return status;
}

tacit_status tacit_chat_check_tokens(const tacit_chat *chat, const tacit_tokenizer *t,
                                     tacit_error *err)
{
    const char *text;
    tacit_status status = TACIT_OK;
    for (size_t i = 0; status == TACIT_OK && (text = chat_form_text(&chat->form, i)); i++)
        status = check_text(&chat->form, text, t, err);
    return status;
}

/* ---- pieces ------------------------------------------------------------------------------ */

static tacit_piece *new_piece(tacit_pieces *p, tacit_piece_kind kind, bool trained)
{
    if (p->count == p->capacity) {
        size_t capacity = p->capacity ? 2 * p->capacity : 16;
        tacit_piece *grown = reallocarray(p->piece, capacity, sizeof *grown);
        if (!grown)
            return NULL;
        p->piece = grown;
        p->capacity = capacity;
    }
    p->piece[p->count] = (tacit_piece){.kind = kind, .trained = trained};
    return &p->piece[p->count++];
}

static tacit_status append(tacit_piece *piece, const char *text, size_t size)
{
    char *grown = piece ? realloc(piece->text, piece->size + size + 1) : NULL;
    if (!grown)
        return TACIT_NO_MEMORY;
    memcpy(grown + piece->size, text, size);
    grown[piece->size + size] = '\0';
    piece->text = grown;
    piece->size += size;
    return TACIT_OK;
}

/* Neighbouring texts become one piece, unless only one of them is trained on. */
static tacit_status put_text(tacit_pieces *p, const char *text, size_t size, bool trained)
{
    tacit_piece *last = p->count ? &p->piece[p->count - 1] : NULL;
    if (size == 0)
        return TACIT_OK;
    if (!last || last->kind != TACIT_PIECE_TEXT || last->trained != trained)
        last = new_piece(p, TACIT_PIECE_TEXT, trained);
    return append(last, text, size);
}

/* The text of a form: marks become pieces of their own. */
static tacit_status put_form(tacit_pieces *p, const char *text, bool trained)
{
    tacit_status status = TACIT_OK;
    while (text && *text && status == TACIT_OK) {
        size_t n = strcspn(text, marks);
        char mark = n ? 0 : *text++;
        if (mark == 0) {
            status = put_text(p, text, n, trained);
            text += n;
        } else if (mark == MARK_CONTROL) {
            n = strcspn(text, marks);
            status = append(new_piece(p, TACIT_PIECE_CONTROL, trained), text, n);
            text += n + 1;
        } else if (!new_piece(p, mark == MARK_BOS ? TACIT_PIECE_BOS : TACIT_PIECE_EOS, trained)) {
            status = TACIT_NO_MEMORY;
        }
    }
    return status;
}

static tacit_status put_media(tacit_pieces *p, size_t media)
{
    tacit_piece *piece = new_piece(p, TACIT_PIECE_MEDIA, false);
    if (piece)
        piece->media = media;
    return piece ? TACIT_OK : TACIT_NO_MEMORY;
}

void tacit_pieces_free(tacit_pieces *p)
{
    for (size_t i = 0; i < p->count; i++)
        tacit_wipe_free(p->piece[i].text);
    free(p->piece);
    *p = (tacit_pieces){0};
}

/* ---- texts that the template changes ----------------------------------------------------- */

static bool has_media(const tacit_message *m)
{
    for (size_t i = 0; i < m->n_content; i++)
        if (m->content[i].kind != TACIT_CONTENT_TEXT)
            return true;
    return false;
}

/* The texts of a message as one, NUL-terminated. */
static tacit_status join_texts(const tacit_message *m, tacit_buffer *out)
{
    tacit_status status = TACIT_OK;
    for (size_t i = 0; i < m->n_content && status == TACIT_OK; i++)
        if (m->content[i].kind == TACIT_CONTENT_TEXT)
            status = tacit_buffer_append(out, m->content[i].text, strlen(m->content[i].text));
    return status == TACIT_OK ? tacit_buffer_append(out, "", 1) : status;
}

/* Bytes of the white space (Python's str.isspace) that `at` begins with, or 0. */
static size_t space_size(const char *at)
{
    static const char *const spaces[] = {
        "\t",           "\n",           "\v",           "\f",           "\r",
        "\x1c",         "\x1d",         "\x1e",         "\x1f",         " ",
        "\xc2\x85",     "\xc2\xa0",     "\xe1\x9a\x80", "\xe2\x80\x80", "\xe2\x80\x81",
        "\xe2\x80\x82", "\xe2\x80\x83", "\xe2\x80\x84", "\xe2\x80\x85", "\xe2\x80\x86",
        "\xe2\x80\x87", "\xe2\x80\x88", "\xe2\x80\x89", "\xe2\x80\x8a", "\xe2\x80\xa8",
        "\xe2\x80\xa9", "\xe2\x80\xaf", "\xe2\x81\x9f", "\xe3\x80\x80"};
    for (size_t i = 0; i < sizeof spaces / sizeof *spaces; i++) {
        size_t n = strlen(spaces[i]);
        if (strncmp(at, spaces[i], n) == 0)
            return n;
    }
    return 0;
}

typedef struct span {
    const char *text;
    size_t size;
} span;

static span strip_ends(span s, bool left, bool right)
{
    size_t n, end = 0;
    while (left && s.size && (n = space_size(s.text)) > 0)
        s = (span){s.text + n, s.size - n};
    for (size_t i = 0; i < s.size;) {
        n = space_size(s.text + i);
        i += n ? n : 1;
        if (n == 0)
            end = i;
    }
    return (span){s.text, right ? end : s.size};
}

static span skip_newlines(span s)
{
    while (s.size && s.text[0] == '\n')
        s = (span){s.text + 1, s.size - 1};
    return s;
}

static span strip_newlines(span s)
{
    s = skip_newlines(s);
    while (s.size && s.text[s.size - 1] == '\n')
        s.size--;
    return s;
}

/* ---- rendering --------------------------------------------------------------------------- */

typedef struct rendering {
    const tacit_chat *chat;
    const tacit_message *message;
    size_t n;             /* messages */
    size_t system_at;     /* the user's turn that the system's text goes into; n: none */
    size_t last_question; /* Qwen 3: answers before it come without their reasoning; n: none */
    size_t last_answer;   /* n: none */
    size_t n_media;       /* so far */
    tacit_pieces *out;
    tacit_error *err;
} rendering;

static const char think_end[] = "</think>";

typedef struct answer {
    span thought, content;
    bool divided; /* "</think>" stands in it */
} answer;

/* Reasoning and content apart, as the templates split them. */
static answer split_answer(span text)
{
    answer a = {{"", 0}, text, false};
    const char *first = memmem(text.text, text.size, think_end, sizeof think_end - 1), *next;
    const char *end = text.text + text.size, *last = first;
    if (!first)
        return a;
    while ((next = memmem(last + 1, (size_t)(end - last) - 1, think_end, sizeof think_end - 1)))
        last = next;
    a.divided = true;
    a.content.text = last + sizeof think_end - 1;
    a.content.size = (size_t)(end - a.content.text);
    a.thought = (span){text.text, (size_t)(first - text.text)};
    for (const char *open; (open = memmem(a.thought.text, a.thought.size, "<think>", 7));)
        a.thought = (span){open + 7, (size_t)(first - open) - 7};
    return a;
}

static tacit_status put_span(rendering *r, span s)
{
    return put_text(r->out, s.text, s.size, true);
}

static tacit_status put_thought(rendering *r, span thought)
{
    tacit_status status;
    TACIT_TRY(put_form(r->out, CHAT_CONTROL("<think>") "\n", true), done);
    TACIT_TRY(put_span(r, thought), done);
    status = put_form(r->out, "\n" CHAT_CONTROL("</think>") "\n\n", true);
done:
    return status;
}

static tacit_status put_qwen3(rendering *r, size_t index, span text)
{
    answer a = split_answer(text);
    tacit_status status = TACIT_OK;
    a.thought = strip_newlines(a.thought);
    if (a.divided)
        a.content = skip_newlines(a.content);
    if (index > r->last_question && (index + 1 == r->n || a.thought.size > 0)) {
        status = put_thought(r, a.thought);
        a.content = skip_newlines(a.content);
    }
    return status == TACIT_OK ? put_span(r, a.content) : status;
}

static tacit_status put_qwen35(rendering *r, size_t index, span text)
{
    answer a = split_answer(strip_ends(text, true, true));
    tacit_status status = TACIT_OK;
    if (a.divided)
        a.content = skip_newlines(a.content);
    if (index > r->last_question)
        status = put_thought(r, strip_ends(a.thought, true, true));
    return status == TACIT_OK ? put_span(r, a.content) : status;
}

/* An answer of texts alone, with what the template makes of its reasoning. */
static tacit_status put_answer(rendering *r, size_t index, span text)
{
    answer a = split_answer(text);
    switch (r->chat->form.thinking) {
    case CHAT_THINKING_QWEN3:
        return put_qwen3(r, index, text);
    case CHAT_THINKING_QWEN35:
        return put_qwen35(r, index, text);
    case CHAT_THINKING_LAST:
        return put_span(r, index + 1 == r->n ? text : skip_newlines(a.content));
    case CHAT_THINKING_NEVER:
        return put_span(r, skip_newlines(a.content));
    case CHAT_THINKING_LAST_ANSWER:
        return put_span(
            r, index == r->last_answer || !a.divided ? text : strip_ends(a.content, true, true));
    case CHAT_THINKING_SAID:
        break;
    }
    return put_span(r, text);
}

static tacit_status put_stripped(rendering *r, span s, bool trained)
{
    s = strip_ends(s, true, true);
    return put_text(r->out, s.text, s.size, trained);
}

static bool strips(const chat_form *f, const tacit_message *m)
{
    return f->strips || (f->strips_answers && m->role == TACIT_ROLE_ASSISTANT) ||
           (f->strips_turns && m->role != TACIT_ROLE_SYSTEM);
}

/* A message of texts alone whose text the template changes. */
static tacit_status put_changed(rendering *r, size_t index)
{
    const tacit_message *m = &r->message[index];
    bool trained = m->role == TACIT_ROLE_ASSISTANT;
    tacit_buffer text = {0};
    tacit_status status = join_texts(m, &text);
    span s = {(const char *)text.data, text.size ? text.size - 1 : 0};
    if (status == TACIT_OK && trained && r->chat->form.thinking != CHAT_THINKING_SAID)
        status = put_answer(r, index, s);
    else if (status == TACIT_OK)
        status = put_stripped(r, s, trained);
    tacit_wipe_free(text.data);
    return status;
}

static tacit_status put_media_first(rendering *r, const tacit_message *m)
{
    const chat_form *f = &r->chat->form;
    bool trained = m->role == TACIT_ROLE_ASSISTANT;
    tacit_status status = TACIT_OK;
    for (size_t i = 0; i < m->n_content && status == TACIT_OK; i++) {
        if (m->content[i].kind == TACIT_CONTENT_TEXT)
            continue;
        TACIT_TRY(put_media(r->out, r->n_media++), done);
        TACIT_TRY(put_form(r->out, f->media_after, false), done);
    }
    for (size_t i = 0; i < m->n_content && status == TACIT_OK; i++) {
        const tacit_content *c = &m->content[i];
        if (c->kind != TACIT_CONTENT_TEXT)
            continue;
        TACIT_TRY(put_form(r->out, f->text_before, false), done);
        TACIT_TRY(put_text(r->out, c->text, strlen(c->text), trained), done);
        TACIT_TRY(put_form(r->out, f->text_after, false), done);
    }
done:
    return status;
}

/* A medium, or a text that is not white space alone. */
static bool says_something(const tacit_content *c)
{
    return c->kind != TACIT_CONTENT_TEXT ||
           strip_ends((span){c->text, strlen(c->text)}, true, true).size > 0;
}

/* The contents in their order. A template sees one text, media and all, so white space goes at its
 * ends; Gemma's sees each content. */
static tacit_status put_in_order(rendering *r, const tacit_message *m)
{
    const chat_form *f = &r->chat->form;
    tacit_status status = TACIT_OK;
    bool trained = m->role == TACIT_ROLE_ASSISTANT, stripped = strips(f, m);
    size_t first = 0, last = m->n_content; /* that say something; `last` is behind it */
    while (stripped && first < last && !says_something(&m->content[first]))
        first++;
    while (stripped && last > first && !says_something(&m->content[last - 1]))
        last--;
    for (size_t i = 0; i < m->n_content && status == TACIT_OK; i++) {
        const tacit_content *c = &m->content[i];
        if (c->kind != TACIT_CONTENT_TEXT) {
            status = put_media(r->out, r->n_media++);
            continue;
        }
        span s = {c->text, strlen(c->text)};
        if (stripped)
            s = strip_ends(s, f->strips_turns || i <= first, f->strips_turns || i + 1 >= last);
        status = put_text(r->out, s.text, s.size, trained);
    }
    return status;
}

static tacit_status put_contents(rendering *r, size_t index)
{
    const tacit_message *m = &r->message[index];
    const chat_form *f = &r->chat->form;
    bool reasons = m->role == TACIT_ROLE_ASSISTANT && f->thinking != CHAT_THINKING_SAID;
    if (f->media_first)
        return put_media_first(r, m);
    if ((strips(f, m) || reasons) && !has_media(m))
        return put_changed(r, index);
    return put_in_order(r, m);
}

static const chat_turn *turn_of(const chat_form *f, tacit_role role)
{
    return role == TACIT_ROLE_SYSTEM ? &f->system
           : role == TACIT_ROLE_USER ? &f->user
                                     : &f->assistant;
}

/* The system's text within a user's turn. */
static tacit_status put_system_before(rendering *r)
{
    tacit_status status = put_contents(r, 0);
    return status == TACIT_OK ? put_text(r->out, "\n\n", 2, false) : status;
}

static tacit_status put_message(rendering *r, size_t index)
{
    const tacit_message *m = &r->message[index];
    const chat_form *f = &r->chat->form;
    const chat_turn *turn = turn_of(f, m->role);
    bool trained = m->role == TACIT_ROLE_ASSISTANT;
    bool media_first = m->n_content && m->content[0].kind != TACIT_CONTENT_TEXT;
    tacit_status status;
    TACIT_TRY(put_form(r->out, turn->before, false), done);
    if (index == 0 && m->role == TACIT_ROLE_SYSTEM)
        TACIT_TRY(put_form(r->out, f->first_system, false), done);
    if (!(f->no_lead_before_media && media_first))
        TACIT_TRY(put_form(r->out, turn->lead, trained), done);
    if (index == r->system_at)
        TACIT_TRY(put_system_before(r), done);
    TACIT_TRY(put_contents(r, index), done);
    TACIT_TRY(put_form(r->out, turn->end, trained), done);
    TACIT_TRY(put_form(r->out, turn->after, false), done);
done:
    return status;
}

/* What the template says when the conversation does not begin with a system turn. */
static tacit_status put_own_system(rendering *r)
{
    const chat_form *f = &r->chat->form;
    const char *says = r->chat->says;
    tacit_status status = TACIT_OK;
    if (!says[0] && f->where_system != CHAT_SYSTEM_ALWAYS)
        return TACIT_OK;
    TACIT_TRY(put_form(r->out, f->system.before, false), done);
    TACIT_TRY(put_form(r->out, f->first_system, false), done);
    TACIT_TRY(put_form(r->out, f->system.lead, false), done);
    TACIT_TRY(put_text(r->out, says, strlen(says), false), done);
    TACIT_TRY(put_form(r->out, f->system.end, false), done);
    TACIT_TRY(put_form(r->out, f->system.after, false), done);
done:
    return status;
}

static tacit_status render(rendering *r, bool add_generation_prompt)
{
    const chat_form *f = &r->chat->form;
    bool system_first = r->n > 0 && r->message[0].role == TACIT_ROLE_SYSTEM;
    tacit_status status = TACIT_OK;
    if (r->n > 0 || f->opens_when_empty)
        TACIT_TRY(put_form(r->out, f->opening, false), done);
    if (r->n > 0 && !system_first)
        TACIT_TRY(put_own_system(r), done);
    for (size_t i = system_first && r->system_at < r->n; i < r->n; i++)
        TACIT_TRY(put_message(r, i), done);
    if (add_generation_prompt)
        TACIT_TRY(put_form(r->out, f->generation, false), done);
done:
    return status;
}

/* ---- what is known before --------------------------------------------------------------- */

static bool is_in_users_turn(const chat_form *f)
{
    return f->where_system == CHAT_SYSTEM_FIRST_USER || f->where_system == CHAT_SYSTEM_LAST_USER;
}

/* What the template demands of a system turn. */
static tacit_status check_system(const rendering *r)
{
    const chat_form *f = &r->chat->form;
    bool given = r->n > 0 && r->message[0].role == TACIT_ROLE_SYSTEM;
    if (f->says_the_date && !given)
        return tacit_fail(r->err, TACIT_BAD_INPUT,
                          "no system message: this model's chat template (%s) says today's date "
                          "there, so that answers would depend on the day; give one",
                          f->name);
    if (given && is_in_users_turn(f) && r->system_at == r->n)
        return tacit_fail(r->err, TACIT_BAD_INPUT,
                          "a system message alone: this model's chat template (%s) puts its text "
                          "into a user's turn; add one",
                          f->name);
    if (given && (is_in_users_turn(f) || f->system_is_text) && has_media(&r->message[0]))
        return tacit_fail(r->err, TACIT_BAD_INPUT,
                          "the system message has media: this model's chat template (%s) takes "
                          "text alone there; move them to a user's turn",
                          f->name);
    return TACIT_OK;
}

/* Refuses orders of turns that the template refuses or has no place for. */
static tacit_status check_order(const rendering *r)
{
    const chat_form *f = &r->chat->form;
    size_t first = r->n > 0 && r->message[0].role == TACIT_ROLE_SYSTEM;
    for (size_t i = first; i < r->n; i++) {
        tacit_role role = r->message[i].role,
                   due = (i - first) % 2 ? TACIT_ROLE_ASSISTANT : TACIT_ROLE_USER;
        if ((is_in_users_turn(f) || f->system_is_first) && role == TACIT_ROLE_SYSTEM)
            return tacit_fail(r->err, TACIT_BAD_INPUT,
                              "message %zu of %zu is a system message: this model's chat template "
                              "(%s) takes one only at the start",
                              i + 1, r->n, f->name);
        if (f->alternates && role != due)
            return tacit_fail(r->err, TACIT_BAD_INPUT,
                              "message %zu of %zu: this model's chat template (%s) expects user "
                              "and assistant in turn after an optional system message",
                              i + 1, r->n, f->name);
    }
    if (f->needs_question && r->last_question == r->n)
        return tacit_fail(r->err, TACIT_BAD_INPUT,
                          "no user message: this model's chat template (%s) expects a question",
                          f->name);
    return TACIT_OK;
}

static void find_system_turn(rendering *r)
{
    const chat_form *f = &r->chat->form;
    r->system_at = r->n;
    if (r->n == 0 || r->message[0].role != TACIT_ROLE_SYSTEM || !is_in_users_turn(f))
        return;
    for (size_t i = 1; i < r->n; i++) {
        if (r->message[i].role != TACIT_ROLE_USER)
            continue;
        r->system_at = i;
        if (f->where_system == CHAT_SYSTEM_FIRST_USER)
            return;
    }
}

static bool surrounds(span text, const char *start, const char *end)
{
    size_t n = text.size, s = strlen(start), e = strlen(end);
    return n >= s && n >= e && memcmp(text.text, start, s) == 0 &&
           memcmp(text.text + n - e, end, e) == 0;
}

/* The last user's turn that is no answer of a tool, and the last answer. */
static tacit_status find_last_turns(rendering *r)
{
    r->last_question = r->last_answer = r->n;
    for (size_t i = r->n; i-- > 0;) {
        tacit_buffer text = {0};
        if (r->message[i].role == TACIT_ROLE_ASSISTANT && r->last_answer == r->n)
            r->last_answer = i;
        if (r->message[i].role != TACIT_ROLE_USER || r->last_question < r->n)
            continue;
        tacit_status status = join_texts(&r->message[i], &text);
        span s = {(const char *)text.data, text.size ? text.size - 1 : 0};
        if (r->chat->form.strips)
            s = strip_ends(s, true, true);
        bool tool = status == TACIT_OK && surrounds(s, "<tool_response>", "</tool_response>");
        tacit_wipe_free(text.data);
        if (status != TACIT_OK)
            return tacit_fail(r->err, status, "no memory for a message");
        if (!tool)
            r->last_question = i;
    }
    return TACIT_OK;
}

tacit_status tacit_chat_render(const tacit_chat *chat, const tacit_message *messages, size_t n,
                               bool add_generation_prompt, tacit_pieces *out, tacit_error *err)
{
    rendering r = {.chat = chat, .message = messages, .n = n, .out = out, .err = err};
    *out = (tacit_pieces){0};
    find_system_turn(&r);
    tacit_status status = find_last_turns(&r);
    if (status == TACIT_OK)
        status = check_system(&r);
    if (status == TACIT_OK)
        status = check_order(&r);
    if (status != TACIT_OK)
        return status;
    if (r.last_question == n) /* as the templates count */
        r.last_question = n ? n - 1 : 0;
    if (render(&r, add_generation_prompt) != TACIT_OK)
        return tacit_fail(err, TACIT_NO_MEMORY, "no memory for a conversation of %zu messages", n);
    return TACIT_OK;
}
