#include "engine/chat_forms.h"

#include <stdio.h>
#include <string.h>

/* ---- the table --------------------------------------------------------------------------- */

#define CHATML_TURN(role)                                                                          \
    {                                                                                              \
        CHAT_CONTROL("<|im_start|>") role "\n", "", CHAT_CONTROL("<|im_end|>"), "\n"               \
    }
#define CHATML_GENERATION CHAT_CONTROL("<|im_start|>") "assistant\n"
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
#define VICUNA_SAYS                                                                                \
    "A chat between a curious user and an artificial intelligence assistant. The assistant gives " \
    "helpful, detailed, and polite answers to the user's questions."
enum { MOST_SIGNS = 8 };

typedef tacit_status vary_fn(chat_form *form, char says[CHAT_SAYS_MAX], const char *text,
                             tacit_error *err);
static vary_fn vary_chatml, vary_mistral;

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
     {.name = "qwen3",
      .generation = CHATML_GENERATION,
      .system = CHATML_TURN("system"),
      .user = CHATML_TURN("user"),
      .assistant = CHATML_TURN("assistant"),
      .thinks = true}},
    {{"<|im_start|>", "<|im_end|>", "add_generation_prompt"},
     {"<end_of_utterance>", "capitalize", "trim", "[INST]", "think", "<|im_sep|>", "+ ' '",
      "strip("},
     vary_chatml,
     {.name = "chatml",
      .generation = CHATML_GENERATION,
      .system = CHATML_TURN("system"),
      .user = CHATML_TURN("user"),
      .assistant = CHATML_TURN("assistant")}},
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

static tacit_status vary_chatml(chat_form *form, char says[CHAT_SAYS_MAX], const char *text,
                                tacit_error *err)
{
    size_t length = find_system(text, says);
    if (length >= CHAT_SAYS_MAX)
        return tacit_fail(err, TACIT_BAD_INPUT,
                          "the chat template's own system turn: expected at most %d bytes, found "
                          "%zu",
                          CHAT_SAYS_MAX - 1, length);
    if (!length)
        says[0] = '\0';
    if (opens_with_bos(text)) {
        form->opening = CHAT_BOS;
        form->opens_when_empty = true;
    }
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
    return "smolvlm, llava-onevision, qwen3, chatml, llama3.1, llama3, mistral-v1, mistral-v3, "
           "mistral-tekken, mistral-v7, llava-1.5, vicuna, vicuna-orca, vicuna-1.1";
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
    return tacit_fail(err, TACIT_BAD_INPUT,
                      "the model's chat template, which begins with '%.48s', is not one of those "
                      "supported: choose the nearest with --chat-template (%s)",
                      chat_template, chat_form_names());
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
