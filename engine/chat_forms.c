#include "engine/chat_forms.h"

#include <stdio.h>
#include <string.h>

/* ---- the table --------------------------------------------------------------------------- */

#define CHATML_TURN(role)                                                                          \
    {                                                                                              \
        CHAT_CONTROL("<|im_start|>") role "\n", "", CHAT_CONTROL("<|im_end|>"), "\n"               \
    }
#define CHATML_GENERATION CHAT_CONTROL("<|im_start|>") "assistant\n"
#define THINKING_GENERATION CHATML_GENERATION CHAT_CONTROL("<think>") "\n"
/* What a member of the family differs in follows. */
#define CHATML_FORM(...)                                                                           \
    {                                                                                              \
        .system = CHATML_TURN("system"), .user = CHATML_TURN("user"),                              \
        .assistant = CHATML_TURN("assistant"), __VA_ARGS__                                         \
    }
#define SMOLVLM_TURN(role)                                                                         \
    {                                                                                              \
        role, " ", CHAT_CONTROL("<end_of_utterance>"), "\n"                                        \
    }
#define LLAMA3_HEAD(role)                                                                          \
    CHAT_CONTROL("<|start_header_id|>") role CHAT_CONTROL("<|end_header_id|>") "\n\n"
#define LLAMA3_TURN(role)                                                                          \
    {                                                                                              \
        LLAMA3_HEAD(role), "", CHAT_CONTROL("<|eot_id|>"), ""                                      \
    }
#define ONEVISION_TURN(role)                                                                       \
    {                                                                                              \
        CHAT_CONTROL("<|im_start|>") role " ", "", CHAT_CONTROL("<|im_end|>"), ""                  \
    }
#define GEMMA_HEAD(role) CHAT_CONTROL("<start_of_turn>") role "\n"
#define GEMMA_TURN(role)                                                                           \
    {                                                                                              \
        GEMMA_HEAD(role), "", CHAT_CONTROL("<end_of_turn>"), "\n"                                  \
    }
#define VICUNA_SAYS                                                                                \
    "A chat between a curious user and an artificial intelligence assistant. The assistant gives " \
    "helpful, detailed, and polite answers to the user's questions."
enum { MOST_SIGNS = 8 };

typedef tacit_status vary_fn(chat_form *form, char says[CHAT_SAYS_MAX], const char *text,
                             tacit_error *err);
static vary_fn vary_chatml, vary_bos, vary_qwq, vary_mistral, vary_mistral_prompt, vary_gemma;

/* A template is known by texts that it must have and texts that it must not have; the first row
 * that fits counts, and its function reads the rest off the text. A row without texts can be chosen
 * by its name alone. */
static const struct row {
    const char *has[MOST_SIGNS], *has_not[MOST_SIGNS];
    vary_fn *vary; /* or NULL */
    chat_form form;
} rows[] = {
    {{"<|im_start|>{%", "capitalize}}", "<end_of_utterance>", "'Assistant:'"},
     {"<|im_end|>"},
     NULL,
     {.name = "smolvlm",
      .opening = CHAT_CONTROL("<|im_start|>"),
      .generation = "Assistant:",
      .system = SMOLVLM_TURN("System:"),
      .user = SMOLVLM_TURN("User:"),
      .assistant = SMOLVLM_TURN("Assistant:"),
      .no_lead_before_media = true,
      .opens_when_empty = true}},
    {{"'<|im_start|>' + message['role'] + ' '", "Render all images first", "add_generation_prompt",
      "'\\n' + content['text']"},
     {"trim", "eos_token"},
     NULL,
     {.name = "llava-onevision",
      .generation = CHATML_GENERATION,
      .system = ONEVISION_TURN("system"),
      .user = ONEVISION_TURN("user"),
      .assistant = ONEVISION_TURN("assistant"),
      .media_first = true,
      .text_before = "\n"}},
    {{"<|im_start|>", "<|im_end|>", "last_query_index", "reasoning_content.strip('\\n')",
      "enable_thinking is false", "content.startswith('<tool_response>')"},
     {"trim", "<|im_start|>assistant\\n<think>", "render_content", "vision_start", "bos_token"},
     NULL,
     CHATML_FORM(.name = "qwen3", .generation = CHATML_GENERATION,
                 .thinking = CHAT_THINKING_QWEN3)},
    {{"'<|im_start|>system\\n' + content + '<|im_end|>\\n'",
      "render_content(messages[0].content, false, true)|trim",
      "render_content(message.content, true)|trim",
      "'<|im_start|>' + message.role + '\\n' + content + '<|im_end|>' + '\\n'",
      "if loop.index0 > ns.last_query_index %}",
      "'\\n<think>\\n' + reasoning_content + '\\n</think>\\n\\n' + content",
      "set reasoning_content = reasoning_content|trim", "No user query found in messages"},
     {"bos_token", "strftime", "reasoning_content.strip(", "preserve_thinking"},
     vary_qwq,
     CHATML_FORM(.name = "qwen3.5", .generation = THINKING_GENERATION, .strips = true,
                 .system_is_first = true, .system_is_text = true, .needs_question = true,
                 .thinking = CHAT_THINKING_QWEN35)},
    {{"'<|im_start|>system\\n' + messages[0]['content'] + '<|im_end|>\\n'",
      "'<|im_start|>' + message.role + '\\n' + message.content + '<|im_end|>' + '\\n'",
      "'<|im_start|>' + message.role + '\\n' + content + '<|im_end|>' + '\\n'",
      "message.content.split('</think>')[-1].lstrip('\\n')", "add_generation_prompt"},
     {"trim", "bos_token", "reasoning_content", "last_query_index", "strftime"},
     vary_qwq,
     CHATML_FORM(.name = "qwq", .generation = THINKING_GENERATION,
                 .thinking = CHAT_THINKING_NEVER)},
    {{"\"<|im_start|>system\\n\" + system_message }}",
      "'<|im_start|>' + message.role + '\\n' + message.content + '<|im_end|>' + '\\n' }}",
      "render_extra_keys", "'<|im_start|>assistant\\n' }}", "set loop_messages = messages[1:]"},
     {"think", "bos_token", "strip(", "strftime"},
     NULL,
     CHATML_FORM(.name = "chatml", .generation = CHATML_GENERATION)}, /* Qwen 3 Coder */
    {{"\"<|im_start|>system\\n\" + ns.system_prompt + \"<|im_end|>\\n\"",
      "\"<|im_start|>\" + message[\"role\"] + \"\\n\"", "content + \"<|im_end|>\\n\"",
      "content.split(\"</think>\")[-1] | trim", "loop.index0 != ns.last_assistant_index",
      "keep_past_thinking | default(false)", "\"<|im_start|>assistant\\n\" -}}"},
     {"strip(", "strftime", "<think>"},
     vary_bos,
     CHATML_FORM(.name = "lfm2.5", .generation = CHATML_GENERATION,
                 .thinking = CHAT_THINKING_LAST_ANSWER)},
    {{"<|im_start|>", "<|im_end|>", "add_generation_prompt"},
     {"<end_of_utterance>", "capitalize", "trim", "[INST]", "think", "<|im_sep|>", "+ ' '",
      "strip("},
     vary_chatml,
     CHATML_FORM(.name = "chatml", .generation = CHATML_GENERATION)},
    {{"<|start_header_id|>", "<|eot_id|>", "trim", "bos_token",
      "Cutting Knowledge Date: December 2023", "date_string = \"26 Jul 2024\""},
     {"datetime", "<think>"},
     NULL,
     {.name = "llama3.1",
      .opening = CHAT_BOS,
      .generation = LLAMA3_HEAD("assistant"),
      .system = LLAMA3_TURN("system"),
      .user = LLAMA3_TURN("user"),
      .assistant = LLAMA3_TURN("assistant"),
      .first_system = "Cutting Knowledge Date: December 2023\nToday Date: 26 Jul 2024\n\n",
      .where_system = CHAT_SYSTEM_ALWAYS,
      .strips = true,
      .opens_when_empty = true}},
    {{"<|start_header_id|>", "<|eot_id|>", "| trim", "bos_token", "loop.index0 == 0"},
     {"Cutting Knowledge", "tools", "datetime", "<|begin_of_text|>"},
     NULL,
     {.name = "llama3",
      .opening = CHAT_BOS,
      .generation = LLAMA3_HEAD("assistant"),
      .system = LLAMA3_TURN("system"),
      .user = LLAMA3_TURN("user"),
      .assistant = LLAMA3_TURN("assistant"),
      .strips = true}},
    {{"'[SYSTEM_PROMPT]' + ", "'[INST]'", "'[/INST]'", "eos_token", "bos_token",
      " = default_system_message %}", "set default_system_message = "},
     {"[INST] ", " [/INST]", "[THINK]", "<<SYS>>", "strip(", "|trim", "| trim", "eos_token + ' '"},
     vary_mistral_prompt,
     {.name = "mistral-v7-tekken",
      .opening = CHAT_BOS,
      .system = {CHAT_CONTROL("[SYSTEM_PROMPT]"), "", CHAT_CONTROL("[/SYSTEM_PROMPT]"), ""},
      .user = {CHAT_CONTROL("[INST]"), "", CHAT_CONTROL("[/INST]"), ""},
      .assistant = {"", "", CHAT_EOS, ""},
      .system_is_text = true,
      .opens_when_empty = true}},
    {{"[INST]", "[/INST]", "eos_token", "bos_token"},
     {"<<SYS>>", "strip(", "for idx", "strftime_now", "default_system_message", "[ASST]",
      "[THINK]"},
     vary_mistral,
     {.name = "mistral-v1", /* the marks are no tokens of its vocabulary: plain text */
      .opening = CHAT_BOS,
      .user = {"[INST] ", "", " [/INST]", ""},
      .assistant = {"", "", CHAT_EOS, ""},
      .where_system = CHAT_SYSTEM_FIRST_USER,
      .alternates = true,
      .opens_when_empty = true}},
    {.form = {.name = "mistral-v3",
              .opening = CHAT_BOS,
              .user = {CHAT_CONTROL("[INST]") " ", "", CHAT_CONTROL("[/INST]"), ""},
              .assistant = {"", " ", CHAT_EOS, ""},
              .where_system = CHAT_SYSTEM_LAST_USER,
              .alternates = true,
              .opens_when_empty = true}},
    {.form = {.name = "mistral-tekken",
              .opening = CHAT_BOS,
              .user = {CHAT_CONTROL("[INST]"), "", CHAT_CONTROL("[/INST]"), ""},
              .assistant = {"", "", CHAT_EOS, ""},
              .where_system = CHAT_SYSTEM_LAST_USER,
              .alternates = true,
              .opens_when_empty = true}},
    {.form = {.name = "mistral-v7",
              .opening = CHAT_BOS,
              .system = {CHAT_CONTROL("[SYSTEM_PROMPT]") " ", "", CHAT_CONTROL("[/SYSTEM_PROMPT]"),
                         ""},
              .user = {CHAT_CONTROL("[INST]") " ", "", CHAT_CONTROL("[/INST]"), ""},
              .assistant = {"", " ", CHAT_EOS, ""},
              .opens_when_empty = true}},
    {{"'<start_of_turn>' + role + '", "<end_of_turn>", "<start_of_turn>model",
      "message['content'] | trim", "(message['role'] == 'assistant')", "set role = message['role']",
      "add_generation_prompt"},
     {"tools", "think", "strftime", "developer", "strip(", "<|turn>", "eos_token", "<unused"},
     vary_gemma,
     {.name = "gemma",
      .opening = CHAT_BOS,
      .generation = GEMMA_HEAD("model"),
      .user = GEMMA_TURN("user"),
      .assistant = GEMMA_TURN("model"),
      .where_system = CHAT_SYSTEM_FIRST_USER,
      .strips_turns = true,
      .alternates = true}},
    {{"message['role'].upper() + ': '", "Render all images first", "'<image>\\n'", "'ASSISTANT:'",
      "content['text'] + ' '"},
     {"eos_token", "bos_token", "[INST]", "<|im_start|>"},
     NULL,
     {.name = "llava-1.5",
      .generation = "ASSISTANT:",
      .user = {"USER:", " ", "", ""},
      .assistant = {"ASSISTANT:", " ", "", ""},
      .media_first = true,
      .media_after = "\n",
      .text_after = " "}},
    {{"' USER: ' + message['content'].strip()", "' ASSISTANT: ' + message['content'].strip() + eos",
      "' ASSISTANT:'"},
     {"[INST]", "<|im_start|>"},
     NULL,
     {.name = "vicuna",
      .generation = " ASSISTANT:",
      .user = {" USER:", " ", "", ""},
      .assistant = {" ASSISTANT:", " ", CHAT_EOS, ""},
      .says = VICUNA_SAYS,
      .strips = true,
      .alternates = true}},
    {{"'USER: ' + message", "'ASSISTANT: ' + message['content'] + '</s>", "'ASSISTANT:'",
      "'SYSTEM: ' + message"},
     {"trim", "strip("},
     NULL,
     {.name = "vicuna-orca",
      .generation = "ASSISTANT:",
      .system = {"SYSTEM: ", "", "", "\n"},
      .user = {"USER:", " ", "", "\n"},
      .assistant = {"ASSISTANT:", " ", CHAT_EOS, "\n"}}},
    {{"'USER: ' + message", "'ASSISTANT: ' + message['content'] + '</s>", "'ASSISTANT:'"},
     {"trim", "strip(", "SYSTEM"},
     NULL,
     {.name = "vicuna-1.1",
      .generation = "ASSISTANT:",
      .system = {"", "", "", "\n\n"},
      .user = {"USER:", " ", "", "\n"},
      .assistant = {"ASSISTANT:", " ", CHAT_EOS, "\n"}}},
};

enum { N_ROWS = sizeof rows / sizeof *rows };

/* ---- reading a template's text ----------------------------------------------------------- */

static bool has(const char *text, const char *sign)
{
    return strstr(text, sign) != NULL;
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
            c = (char)(*from == 'n' ? '\n' : *from);
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
static size_t find_system(const char *text, char out[CHAT_SAYS_MAX])
{
    static const char head[] = "<|im_start|>system";
    size_t length = 0;
    for (const char *at = strstr(text, head); at && !length; at = strstr(at + 1, head)) {
        const char *begin = skip_newline(at + sizeof head - 1);
        const char *end = begin ? strstr(begin, "<|im_end|>") : NULL;
        length = end ? read_literal(begin, end, out, CHAT_SAYS_MAX) : 0;
    }
    return length;
}

/* Whether the template prints the BOS and nothing between it and the first turn; white space is
 * nothing beside a mark with a minus. */
static bool opens_with_bos(const char *text)
{
    const char *bos = strstr(text, "bos_token"), *end = bos ? strstr(bos, "}}") : NULL;
    if (!end)
        return false;
    const char *next = end + 2 + strspn(end + 2, " \t\n");
    bool stripped = end[-1] == '-' || (next[0] == '{' && next[1] && next[2] == '-');
    return *next == '{' && (next == end + 2 || stripped);
}

static tacit_status fail_unknown(const char *text, tacit_error *err)
{
    return tacit_fail(err, TACIT_BAD_INPUT,
                      "the model's chat template, which begins with '%.48s', is not one of those "
                      "supported (%s)",
                      text, chat_form_names());
}

static tacit_status check_length(size_t length, tacit_error *err)
{
    if (length < CHAT_SAYS_MAX)
        return TACIT_OK;
    return tacit_fail(err, TACIT_BAD_INPUT,
                      "the chat template's own system turn: expected at most %d bytes, found %zu",
                      CHAT_SAYS_MAX - 1, length);
}

static tacit_status vary_bos(chat_form *form, char says[CHAT_SAYS_MAX], const char *text,
                             tacit_error *err)
{
    (void)says, (void)err;
    if (opens_with_bos(text)) {
        form->opening = CHAT_BOS;
        form->opens_when_empty = true;
    }
    return TACIT_OK;
}

static tacit_status vary_chatml(chat_form *form, char says[CHAT_SAYS_MAX], const char *text,
                                tacit_error *err)
{
    size_t length = find_system(text, says);
    tacit_status status = check_length(length, err);
    if (!length)
        says[0] = '\0';
    return status == TACIT_OK ? vary_bos(form, says, text, err) : status;
}

/* Templates whose answers begin with reasoning: how they open it, and whether the last message
 * keeps its own. `enable_thinking` is what nobody sets. */
static tacit_status vary_qwq(chat_form *form, char says[CHAT_SAYS_MAX], const char *text,
                             tacit_error *err)
{
    bool opens = has(text, "'<|im_start|>assistant\\n<think>\\n' }}") ||
                 has(text, "{%- else %}\n        {{- '<think>\\n' }}");
    bool closes = has(text, "{%- if not enable_thinking -%}{{- '</think>' -}}{%- endif -%}");
    bool asks = has(text, "enable_thinking is defined and enable_thinking is false");
    (void)says;
    if (!opens || has(text, "enable_thinking") != (closes || asks))
        return fail_unknown(text, err);
    if (closes)
        form->generation = THINKING_GENERATION CHAT_CONTROL("</think>");
    if (form->thinking == CHAT_THINKING_NEVER && has(text, "if not loop.last %}"))
        form->thinking = CHAT_THINKING_LAST;
    return TACIT_OK;
}

static const chat_form *find_form(const char *name)
{
    for (size_t i = 0; i < N_ROWS; i++)
        if (strcmp(rows[i].form.name, name) == 0)
            return &rows[i].form;
    return NULL;
}

/* Mistral's templates differ in spaces around the marks, in where the system's text goes, and in
 * whether the marks are tokens: all that is in the literals. */
static tacit_status vary_mistral(chat_form *form, char says[CHAT_SAYS_MAX], const char *text,
                                 tacit_error *err)
{
    (void)says;
    (void)err;
    bool plain = has(text, "' [/INST]'") || has(text, "\" [/INST]\"");
    bool space_after = has(text, "[INST] '") || has(text, "[INST] \"");
    bool space_before = has(text, "' [INST]") || has(text, "\" [INST]");
    bool prompt = has(text, "[SYSTEM_PROMPT]");
    *form = *find_form(plain         ? "mistral-v1"
                       : prompt      ? "mistral-v7"
                       : space_after ? "mistral-v3"
                                     : "mistral-tekken");
    if (plain && space_before)
        form->user.before = " [INST] ";
    if (prompt && !space_after)
        form->user.before = CHAT_CONTROL("[INST]");
    if (prompt && !has(text, "[SYSTEM_PROMPT] '"))
        form->system.before = CHAT_CONTROL("[SYSTEM_PROMPT]");
    form->assistant.lead = has(text, "' ' + message") || has(text, "\" \" + message") ? " " : "";
    form->assistant.after = has(text, "eos_token + ' '") ? " " : "";
    form->strips_answers = has(text, "|trim + eos") || has(text, "| trim + eos");
    form->alternates = has(text, "% 2");
    if (!prompt && !has(text, "loop.last and system_message"))
        form->where_system = CHAT_SYSTEM_FIRST_USER;
    return TACIT_OK;
}

/* A Jinja string with the quotes around it: the byte after it, its text in `out` as far as it fits,
 * *length without that limit. NULL: there is none, it does not end, or it has an escape that is not
 * known here. */
static const char *read_string(const char *at, char *out, size_t out_size, size_t *length)
{
    static const char escapes[] = "nt\\'\"", meant[] = "\n\t\\'\"";
    const char quote = *at;
    size_t used = 0;
    if (quote != '"' && quote != '\'')
        return NULL;
    for (at++; *at && *at != quote; at++) {
        char c = *at;
        if (c == '\\') {
            const char *known = *++at ? strchr(escapes, *at) : NULL;
            if (!known)
                return NULL;
            c = meant[known - escapes];
        }
        if (used + 1 < out_size)
            out[used] = c;
        used++;
    }
    out[used < out_size ? used : out_size - 1] = '\0';
    *length = used;
    return *at == quote ? at + 1 : NULL;
}

/* Mistral's templates since Small 3, which say something of their own where no system text is
 * given: a constant, or one with today's date in it. */
static tacit_status vary_mistral_prompt(chat_form *form, char says[CHAT_SAYS_MAX], const char *text,
                                        tacit_error *err)
{
    static const char head[] = "set default_system_message = ";
    const char *begin = strstr(text, head) + sizeof head - 1;
    size_t length = 0;
    const char *end = read_string(begin, says, CHAT_SAYS_MAX, &length);
    bool date = has(text, "strftime_now");
    if (!end || (!date && strncmp(end, " %}", 3) != 0))
        return fail_unknown(text, err);
    form->alternates = has(text, "% 2");
    form->says_the_date = date;
    if (date)
        says[0] = '\0';
    return date ? TACIT_OK : check_length(length, err);
}

/* Gemma 3 puts the system's text and an empty line before the first user's, and strips the texts of
 * a list one by one; those before it refuse a system turn and see one text. */
static tacit_status vary_gemma(chat_form *form, char says[CHAT_SAYS_MAX], const char *text,
                               tacit_error *err)
{
    bool third = (has(text, "first_user_prefix = messages[0]['content'] + '\n\n'") ||
                  has(text, "first_user_prefix = messages[0]['content'] + '\\n\\n'")) &&
                 has(text, "item['text'] | trim");
    bool earlier = has(text, "System role not supported") && !has(text, "item");
    (void)says;
    if (!third && !earlier)
        return fail_unknown(text, err);
    form->strips_turns = third;
    form->strips = earlier;
    form->alternates = has(text, "% 2");
    if (!has(text, "bos_token"))
        form->opening = "";
    return TACIT_OK;
}

/* ---- the texts of a form ------------------------------------------------------------------ */

const char *chat_form_thinking_marks(const chat_form *form)
{
    bool printed = form->thinking == CHAT_THINKING_QWEN3 || form->thinking == CHAT_THINKING_QWEN35;
    return printed ? CHAT_CONTROL("<think>") CHAT_CONTROL("</think>") : "";
}

const char *chat_form_text(const chat_form *f, size_t i)
{
    const chat_turn *s = &f->system, *u = &f->user, *a = &f->assistant;
    const char *const text[] = {
        f->opening,
        f->generation,
        s->before,
        s->lead,
        s->end,
        s->after,
        u->before,
        u->lead,
        u->end,
        u->after,
        a->before,
        a->lead,
        a->end,
        a->after,
        f->first_system,
        f->media_after,
        f->text_before,
        f->text_after,
        chat_form_thinking_marks(f),
    };
    if (i >= sizeof text / sizeof *text)
        return NULL;
    return text[i] ? text[i] : "";
}

/* ---- finding a form ---------------------------------------------------------------------- */

static bool matches(const struct row *row, const char *text)
{
    for (size_t i = 0; i < MOST_SIGNS; i++) {
        if (row->has[i] && !has(text, row->has[i]))
            return false;
        if (row->has_not[i] && has(text, row->has_not[i]))
            return false;
    }
    return row->has[0] != NULL;
}

const char *chat_form_names(void)
{
    return "smolvlm, llava-onevision, qwen3, qwen3.5, qwq, chatml, lfm2.5, llama3.1, llama3, "
           "mistral-v7-tekken, mistral-v1, mistral-v3, mistral-tekken, mistral-v7, gemma, "
           "llava-1.5, vicuna, vicuna-orca, vicuna-1.1";
}

tacit_status chat_form_recognise(chat_form *out, char says[CHAT_SAYS_MAX],
                                 const char *chat_template, tacit_error *err)
{
    for (size_t i = 0; i < N_ROWS; i++) {
        if (!matches(&rows[i], chat_template))
            continue;
        *out = rows[i].form;
        return rows[i].vary ? rows[i].vary(out, says, chat_template, err) : TACIT_OK;
    }
    return fail_unknown(chat_template, err);
}

tacit_status chat_form_choose(chat_form *out, const char *name, tacit_error *err)
{
    const chat_form *form = find_form(name);
    if (!form)
        return tacit_fail(err, TACIT_USAGE, "chat template '%s': expected one of %s", name,
                          chat_form_names());
    *out = *form;
    return TACIT_OK;
}
