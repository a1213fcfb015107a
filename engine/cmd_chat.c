/* `tacit chat`: a conversation, turn by turn, from standard input. Of each turn only what the
 * context does not hold yet is computed: the rows of the conversation so far are compared with
 * those that were fed, since an answer's text need not be spelled by the tokens that said it. */
#include "common/clock.h"
#include "common/json_print.h"
#include "common/secret.h"
#include "engine/cmd_answer.h"
#include "engine/commands.h"
#include "engine/dataset.h"
#include "engine/example.h"
#include "engine/row_cache.h"

#include <errno.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define ROW_CACHE_BYTES ((size_t)256 << 20)
#define LINE_BYTES ((size_t)1 << 20)

/* Messages whose contents and strings are malloc'ed; what people say is wiped. */
typedef struct messages {
    tacit_message *at;
    size_t count;
} messages;

typedef struct chat {
    cmd_session_options options;
    cmd_answer_options how;
    bool json;
    bool talks; /* with a person: asks, and goes on after an error */
    cmd_session session;
    cmd_answer answer;
    tacit_row_cache *cache;
    tacit_example_options example;
    messages said;
    tacit_message next; /* the user's turn that media are put into */
    tacit_input held;   /* what was fed last; the context holds it and tokens of the answer */
    size_t kept;        /* rows of this turn that were there already */
    double prefill_seconds;
} chat;

static void free_message(tacit_message *m)
{
    for (size_t i = 0; i < m->n_content; i++)
        tacit_wipe_free(m->content[i].text);
    free(m->content);
    *m = (tacit_message){0};
}

static tacit_status add_content(tacit_message *m, tacit_content_kind kind, const char *value,
                                size_t size, tacit_error *err)
{
    tacit_content *more = realloc(m->content, (m->n_content + 1) * sizeof *more);
    char *copy = strndup(value, size);
    if (more)
        m->content = more;
    if (!more || !copy) {
        tacit_wipe_free(copy);
        return tacit_fail(err, TACIT_NO_MEMORY, "no memory for a turn");
    }
    m->content[m->n_content++] = (tacit_content){kind, copy};
    return TACIT_OK;
}

/* Takes the message over. */
static tacit_status add_message(messages *all, tacit_message *m, tacit_error *err)
{
    tacit_message *more = realloc(all->at, (all->count + 1) * sizeof *more);
    if (!more)
        return tacit_fail(err, TACIT_NO_MEMORY, "no memory for a turn");
    all->at = more;
    all->at[all->count++] = *m;
    *m = (tacit_message){0};
    return TACIT_OK;
}

static void drop_messages(messages *all, size_t from)
{
    while (all->count > from)
        free_message(&all->at[--all->count]);
}

/* ---- what the context holds ----------------------------------------------------------------- */

static bool same_row(const tacit_input *a, const tacit_row *x, const tacit_input *b,
                     const tacit_row *y)
{
    if (x->modality != y->modality || x->token != y->token)
        return false;
    return x->modality == TACIT_MODALITY_TOKEN ||
           memcmp(a->media[x->media].digest, b->media[y->media].digest, sizeof a->media->digest) ==
               0;
}

/* How many rows of `in` the context holds from the begin on. Positions follow from what is before a
 * row. */
static size_t common_rows(const chat *c, const tacit_input *in)
{
    size_t held = tacit_context_rows(c->session.context), n = 0;
    for (; n < held && n < in->count; n++) {
        const tacit_row *row = &in->row[n];
        if (n < c->held.count ? !same_row(&c->held, &c->held.row[n], in, row)
                              : row->modality != TACIT_MODALITY_TOKEN ||
                                    row->token != c->answer.tokens.id[n - c->held.count])
            break;
    }
    return n;
}

/* Feeds the conversation, whose last row is always computed: its logits are asked for. */
static tacit_status feed(chat *c, tacit_error *err)
{
    tacit_input in;
    double start = tacit_clock_seconds();
    tacit_status status = tacit_status_of_input(
        tacit_example_prompt(&in, c->session.model, c->said.at, c->said.count, &c->example, err),
        err);
    if (status != TACIT_OK)
        return status;
    TACIT_TRY(tacit_adapter_prepend(c->session.adapter, c->session.model, &in, err), failed);
    TACIT_TRY(tacit_status_of_input(tacit_row_cache_fill(c->cache, &in, err), err), failed);
    size_t common = common_rows(c, &in);
    common = common < in.count ? common : in.count - 1;
    c->kept = tacit_context_truncate(c->session.context, common);
    TACIT_TRY(tacit_context_feed(c->session.context, in.row + c->kept, in.count - c->kept, in.media,
                                 in.n_media, err),
              failed);
    tacit_input_free(&c->held);
    c->held = in;
    c->answer.tokens.count = 0;
    c->prefill_seconds = tacit_clock_seconds() - start;
    return TACIT_OK;
failed:
    /* Rows of the last feeding may have gone; the next one begins anew. */
    tacit_context_truncate(c->session.context, 0);
    tacit_input_free(&in);
    return status;
}

/* ---- turns ---------------------------------------------------------------------------------- */

static tacit_status print_json(const chat *c, tacit_error *err)
{
    const cmd_answer *a = &c->answer;
    const char *text = a->text.size ? (const char *)a->text.data : "";
    size_t fed = c->held.count - c->kept;
    json_t *object = json_pack("{s:s%, s:s, s:I, s:I, s:I, s:f, s:f}", "text", text, a->text.size,
                               "finish_reason", tacit_finish_name(a->finish), "tokens",
                               (json_int_t)a->tokens.count, "prompt_rows",
                               (json_int_t)c->held.count, "kept_rows", (json_int_t)c->kept,
                               "prefill_tokens_per_s", cmd_answer_rate(fed, c->prefill_seconds),
                               "decode_tokens_per_s", cmd_answer_rate(a->tokens.count, a->seconds));
    return tacit_json_print(object, TACIT_JSON_DIGITS, err);
}

/* The user's turn and the answer; a turn that fails is as if it had not been said. */
static tacit_status take_turn(chat *c, const char *text, size_t size, tacit_error *err)
{
    size_t before = c->said.count;
    tacit_message answer = {.role = TACIT_ROLE_ASSISTANT};
    tacit_status status;
    TACIT_TRY(add_content(&c->next, TACIT_CONTENT_TEXT, text, size, err), failed);
    c->next.role = TACIT_ROLE_USER;
    TACIT_TRY(add_message(&c->said, &c->next, err), failed);
    TACIT_TRY(feed(c, err), failed);
    TACIT_TRY(cmd_answer_generate(&c->answer, err), failed);
    const tacit_buffer *said = &c->answer.text;
    TACIT_TRY(add_content(&answer, TACIT_CONTENT_TEXT, said->size ? (const char *)said->data : "",
                          said->size, err),
              failed);
    TACIT_TRY(add_message(&c->said, &answer, err), failed);
    return c->json ? print_json(c, err) : TACIT_OK;
failed:
    free_message(&answer);
    free_message(&c->next);
    drop_messages(&c->said, before);
    return status;
}

static void begin_anew(chat *c)
{
    drop_messages(&c->said, c->options.system ? 1 : 0);
    free_message(&c->next);
}

static const struct {
    const char *word;
    tacit_content_kind kind;
} media_words[] = {
    {"/image ", TACIT_CONTENT_IMAGE},
    {"/audio ", TACIT_CONTENT_AUDIO},
    {"/sensor ", TACIT_CONTENT_SENSOR},
};
#define MEDIA_WORDS (sizeof media_words / sizeof media_words[0])
#define WORDS "/image FILE, /audio FILE, /sensor FILE (for the next turn), /new, /quit"

/* A line that begins with a slash; two of them are one of the text. */
static tacit_status obey(chat *c, const char *line, bool *quits, tacit_error *err)
{
    for (size_t i = 0; i < MEDIA_WORDS; i++) {
        size_t n = strlen(media_words[i].word);
        if (strncmp(line, media_words[i].word, n) != 0)
            continue;
        if (access(line + n, R_OK) != 0)
            return tacit_fail(err, TACIT_BAD_INPUT, "%s: cannot open: %s", line + n,
                              strerror(errno));
        return add_content(&c->next, media_words[i].kind, line + n, strlen(line + n), err);
    }
    *quits = strcmp(line, "/quit") == 0;
    if (strcmp(line, "/new") == 0)
        begin_anew(c);
    else if (!*quits)
        return tacit_fail(err, TACIT_USAGE,
                          "'%s': expected " WORDS ", or two slashes for a text that begins with "
                          "one",
                          line);
    return TACIT_OK;
}

static tacit_status take_line(chat *c, char *line, size_t size, bool *quits, tacit_error *err)
{
    if (size == 0)
        return TACIT_OK;
    if (memchr(line, '\0', size))
        return tacit_fail(err, TACIT_BAD_INPUT, "the line holds a NUL, which no text has");
    if (line[0] == '/' && line[1] != '/')
        return obey(c, line, quits, err);
    size_t skipped = line[0] == '/';
    return take_turn(c, line + skipped, size - skipped, err);
}

/* One line without its end, a NUL behind it; false at the end of standard input. */
static bool read_line(char *line, size_t *size, tacit_status *status, tacit_error *err)
{
    int c = getchar();
    for (*size = 0; *size < LINE_BYTES && c != EOF && c != '\n'; c = getchar())
        line[(*size)++] = (char)c;
    line[*size] = '\0';
    if (ferror(stdin))
        *status = tacit_fail(err, TACIT_IO, "cannot read standard input");
    else if (*size == LINE_BYTES && c != EOF && c != '\n')
        *status = tacit_fail(err, TACIT_BAD_INPUT,
                             "a line of more than %zu bytes, which are the most of a turn; read a "
                             "long text with 'tacit run -f'",
                             LINE_BYTES);
    return *status != TACIT_OK || *size > 0 || c != EOF;
}

/* Until the end of standard input. Where nobody sits there an error ends it. */
static tacit_status talk(chat *c, tacit_error *err)
{
    size_t size;
    bool quits = false;
    tacit_status status = TACIT_OK;
    char *line = malloc(LINE_BYTES + 1);
    if (!line)
        return tacit_fail(err, TACIT_NO_MEMORY, "no memory for a line");
    while (status == TACIT_OK && !quits) {
        if (c->talks)
            fprintf(stderr, "> ");
        if (!read_line(line, &size, &status, err))
            break;
        if (status == TACIT_OK)
            status = take_line(c, line, size, &quits, err);
        if (status != TACIT_OK && c->talks) {
            fprintf(stderr, "%s\n", err->message);
            status = TACIT_OK;
        }
    }
    tacit_wipe_free(line);
    return status;
}

static tacit_status add_named(chat *c, const tacit_option_list *list, tacit_content_kind kind,
                              tacit_error *err)
{
    tacit_status status = TACIT_OK;
    for (size_t i = 0; i < list->count && status == TACIT_OK; i++)
        status = add_content(&c->next, kind, list->item[i], strlen(list->item[i]), err);
    return status;
}

/* What the command line puts before the first turn. */
static tacit_status begin(chat *c, tacit_error *err)
{
    const cmd_session_options *o = &c->options;
    tacit_message system = {.role = TACIT_ROLE_SYSTEM};
    tacit_status status = TACIT_OK;
    if (o->system) {
        TACIT_TRY(add_content(&system, TACIT_CONTENT_TEXT, o->system, strlen(o->system), err),
                  done);
        TACIT_TRY(add_message(&c->said, &system, err), done);
    }
    TACIT_TRY(add_named(c, &o->image, TACIT_CONTENT_IMAGE, err), done);
    TACIT_TRY(add_named(c, &o->audio, TACIT_CONTENT_AUDIO, err), done);
    TACIT_TRY(add_named(c, &o->sensor, TACIT_CONTENT_SENSOR, err), done);
done:
    free_message(&system);
    return status;
}

static tacit_status chat_all(chat *c, tacit_error *err)
{
    tacit_status status;
    TACIT_TRY(cmd_answer_check(&c->how, err), done);
    TACIT_TRY(media_form_choose(&c->example.form, c->options.form, err), done);
    TACIT_TRY(cmd_session_open(&c->session, &c->options, 0, err), done);
    if (!c->options.chat_template)
        TACIT_TRY(cmd_choose_chat(c->session.model, NULL, err), done);
    c->example.max_rows = tacit_context_max_rows(c->session.context);
    TACIT_TRY(cmd_answer_init(&c->answer, &c->session, &c->how, err), done);
    c->answer.shown = !c->json;
    c->answer.drop_space = tacit_tokenizer_adds_space(tacit_model_tokenizer(c->session.model));
    TACIT_TRY(tacit_row_cache_new(&c->cache, c->session.model, ROW_CACHE_BYTES, NULL,
                                  c->session.pool, err),
              done);
    tacit_row_cache_use(c->cache, c->session.precision);
    TACIT_TRY(tacit_row_cache_bind(c->cache, c->session.adapter, err), done);
    TACIT_TRY(begin(c, err), done);
    c->talks = isatty(STDIN_FILENO);
    if (c->talks)
        fprintf(stderr, "each line is a turn; " WORDS "\n");
    TACIT_TRY(talk(c, err), done);
done:
    return status;
}

tacit_status cmd_chat(int argc, char **argv, tacit_error *err)
{
    chat c = {.how = CMD_ANSWER_DEFAULTS};
    bool help;
    const tacit_option table[] = {
        CMD_SESSION_ROWS(&c.options),
        CMD_SESSION_MEDIA_ROWS(&c.options),
        CMD_ANSWER_ROWS(&c.how),
        {"json", 0, TACIT_OPTION_FLAG, &c.json, false, NULL,
         "one JSON object an answer instead of text as it grows", 0, 0},
        {.name = NULL},
    };
    const tacit_usage usage = {"tacit chat", NULL, 0, 0,
                               "answers lines of standard input as turns of one conversation; "
                               "lines for it itself: " WORDS};
    tacit_status status = tacit_options_parse(&usage, table, argc, argv, NULL, NULL, &help, err);
    if (status == TACIT_OK && !help)
        status = chat_all(&c, err);
    drop_messages(&c.said, 0);
    free(c.said.at);
    free_message(&c.next);
    cmd_answer_fini(&c.answer);
    tacit_input_free(&c.held);
    tacit_row_cache_free(c.cache);
    cmd_session_close(&c.session);
    return status;
}
