#include "engine/chat.h"

#include "common/secret.h"

#include <stdlib.h>
#include <string.h>

/* ---- recognising ------------------------------------------------------------------------- */

enum { MOST_SIGNS = 4 };

/* A template is known by texts that it must have and texts that it must not have. */
static const struct template_row {
    tacit_chat_kind kind;
    const char *name;
    const char *has[MOST_SIGNS];
    const char *has_not[MOST_SIGNS];
} templates[] = {
    {TACIT_CHAT_SMOLVLM,
     "SmolVLM",
     {"<|im_start|>{%", "capitalize}}", "<end_of_utterance>", "'Assistant:'"},
     {"<|im_end|>"}},
    {TACIT_CHAT_CHATML,
     "ChatML (<|im_start|>role ... <|im_end|>)",
     {"<|im_start|>", "<|im_end|>", "add_generation_prompt"},
     {"<end_of_utterance>", "capitalize", "trim", "[INST]"}},
};

enum { N_TEMPLATES = sizeof templates / sizeof *templates };

static bool matches(const struct template_row *row, const char *text)
{
    for (size_t i = 0; i < MOST_SIGNS; i++) {
        if (row->has[i] && !strstr(text, row->has[i]))
            return false;
        if (row->has_not[i] && strstr(text, row->has_not[i]))
            return false;
    }
    return true;
}

static const struct template_row *find_template(const char *text)
{
    for (size_t i = 0; i < N_TEMPLATES; i++)
        if (matches(&templates[i], text))
            return &templates[i];
    return NULL;
}

/* Length of a Jinja string literal's content with its escapes undone, which goes to `out` as far as
 * it fits; 0 when the text is no constant. */
static size_t read_literal(const char *from, const char *end, char *out, size_t out_size)
{
    size_t used = 0;
    for (; from < end; from++) {
        char c = *from;
        if (strchr("'\"{}", c))
            return 0;
        if (c == '\\' && ++from < end)
            c = *from == 'n' ? '\n' : *from;
        if (used + 1 < out_size)
            out[used] = c;
        used++;
    }
    out[used < out_size ? used : out_size - 1] = '\0';
    return used;
}

/* After "<|im_start|>system" the newline is itself or its escape. */
static const char *skip_newline(const char *at)
{
    if (*at == '\n')
        return at + 1;
    return at[0] == '\\' && at[1] == 'n' ? at + 2 : NULL;
}

/* The first constant system turn that the template spells, if any. */
static tacit_status find_system(const char *text, char *out, size_t out_size, tacit_error *err)
{
    static const char head[] = "<|im_start|>system";
    size_t length = 0;
    for (const char *at = strstr(text, head); at && !length; at = strstr(at + 1, head)) {
        const char *begin = skip_newline(at + sizeof head - 1);
        const char *end = begin ? strstr(begin, "<|im_end|>") : NULL;
        length = end ? read_literal(begin, end, out, out_size) : 0;
    }
    if (length >= out_size)
        return tacit_fail(err, TACIT_BAD_INPUT,
                          "the chat template's own system turn: expected at most %zu bytes, found "
                          "%zu",
                          out_size - 1, length);
    if (!length)
        out[0] = '\0';
    return TACIT_OK;
}

tacit_status tacit_chat_recognise(tacit_chat *out, const char *chat_template, tacit_error *err)
{
    const char *supported = "(supported: ChatML and SmolVLM's)";
    *out = (tacit_chat){0};
    if (!chat_template)
        return tacit_fail(err, TACIT_NOT_FOUND,
                          "the model has no chat template, key 'tokenizer.chat_template' %s",
                          supported);
    const struct template_row *row = find_template(chat_template);
    if (!row)
        return tacit_fail(err, TACIT_BAD_INPUT,
                          "the model's chat template, which begins with '%.48s', is not supported "
                          "%s",
                          chat_template, supported);
    out->kind = row->kind;
    if (row->kind == TACIT_CHAT_CHATML)
        return find_system(chat_template, out->system, sizeof out->system, err);
    return TACIT_OK;
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

static tacit_status append(tacit_piece *piece, const char *text)
{
    size_t more = piece ? strlen(text) : 0;
    char *grown = piece ? realloc(piece->text, piece->size + more + 1) : NULL;
    if (!grown)
        return TACIT_NO_MEMORY;
    memcpy(grown + piece->size, text, more + 1);
    piece->text = grown;
    piece->size += more;
    return TACIT_OK;
}

static tacit_status put_control(tacit_pieces *p, const char *text, bool trained)
{
    return append(new_piece(p, TACIT_PIECE_CONTROL, trained), text);
}

/* Neighbouring texts become one piece, unless only one of them is trained on. */
static tacit_status put_text(tacit_pieces *p, const char *text, bool trained)
{
    tacit_piece *last = p->count ? &p->piece[p->count - 1] : NULL;
    if (!last || last->kind != TACIT_PIECE_TEXT || last->trained != trained)
        last = *text ? new_piece(p, TACIT_PIECE_TEXT, trained) : NULL;
    return *text ? append(last, text) : TACIT_OK;
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

/* ---- rendering --------------------------------------------------------------------------- */

typedef struct rendering {
    tacit_pieces *out;
    size_t n_media; /* so far */
} rendering;

static tacit_status put_contents(rendering *r, const tacit_message *m)
{
    tacit_status status = TACIT_OK;
    bool trained = m->role == TACIT_ROLE_ASSISTANT;
    for (size_t i = 0; i < m->n_content && status == TACIT_OK; i++) {
        const tacit_content *c = &m->content[i];
        status = c->kind == TACIT_CONTENT_TEXT ? put_text(r->out, c->text, trained)
                                               : put_media(r->out, r->n_media++);
    }
    return status;
}

static tacit_status put_chatml_head(rendering *r, const char *role)
{
    tacit_status status;
    TACIT_TRY(put_control(r->out, "<|im_start|>", false), done);
    TACIT_TRY(put_text(r->out, role, false), done);
    TACIT_TRY(put_text(r->out, "\n", false), done);
done:
    return status;
}

static const char *chatml_role(tacit_role role)
{
    static const char *const names[] = {"system", "user", "assistant"};
    return names[role];
}

static tacit_status put_chatml_system(rendering *r, const char *text)
{
    tacit_status status;
    TACIT_TRY(put_chatml_head(r, "system"), done);
    TACIT_TRY(put_text(r->out, text, false), done);
    TACIT_TRY(put_control(r->out, "<|im_end|>", false), done);
    TACIT_TRY(put_text(r->out, "\n", false), done);
done:
    return status;
}

static tacit_status render_chatml(rendering *r, const tacit_chat *chat, const tacit_message *m,
                                  size_t n, bool add_generation_prompt)
{
    tacit_status status = TACIT_OK;
    if (chat->system[0] && n > 0 && m[0].role != TACIT_ROLE_SYSTEM)
        TACIT_TRY(put_chatml_system(r, chat->system), done);
    for (size_t i = 0; i < n; i++) {
        TACIT_TRY(put_chatml_head(r, chatml_role(m[i].role)), done);
        TACIT_TRY(put_contents(r, &m[i]), done);
        TACIT_TRY(put_control(r->out, "<|im_end|>", m[i].role == TACIT_ROLE_ASSISTANT), done);
        TACIT_TRY(put_text(r->out, "\n", false), done);
    }
    if (add_generation_prompt)
        TACIT_TRY(put_chatml_head(r, "assistant"), done);
done:
    return status;
}

static const char *smolvlm_role(tacit_role role)
{
    static const char *const names[] = {"System:", "User:", "Assistant:"};
    return names[role];
}

/* The space after "Assistant:" belongs to the answer: the generation prompt ends before it. */
static tacit_status render_smolvlm(rendering *r, const tacit_message *m, size_t n,
                                   bool add_generation_prompt)
{
    tacit_status status;
    TACIT_TRY(put_control(r->out, "<|im_start|>", false), done);
    for (size_t i = 0; i < n; i++) {
        bool media_first = m[i].n_content && m[i].content[0].kind != TACIT_CONTENT_TEXT;
        bool trained = m[i].role == TACIT_ROLE_ASSISTANT;
        TACIT_TRY(put_text(r->out, smolvlm_role(m[i].role), false), done);
        TACIT_TRY(put_text(r->out, media_first ? "" : " ", trained), done);
        TACIT_TRY(put_contents(r, &m[i]), done);
        TACIT_TRY(put_control(r->out, "<end_of_utterance>", trained), done);
        TACIT_TRY(put_text(r->out, "\n", false), done);
    }
    if (add_generation_prompt)
        TACIT_TRY(put_text(r->out, smolvlm_role(TACIT_ROLE_ASSISTANT), false), done);
done:
    return status;
}

tacit_status tacit_chat_render(const tacit_chat *chat, const tacit_message *messages, size_t n,
                               bool add_generation_prompt, tacit_pieces *out, tacit_error *err)
{
    rendering r = {.out = out};
    *out = (tacit_pieces){0};
    tacit_status status = chat->kind == TACIT_CHAT_CHATML
                              ? render_chatml(&r, chat, messages, n, add_generation_prompt)
                              : render_smolvlm(&r, messages, n, add_generation_prompt);
    if (status != TACIT_OK)
        return tacit_fail(err, status, "no memory for a conversation of %zu messages", n);
    return TACIT_OK;
}
