/* What `run` and `chat` share: sampling an answer from a context that holds the conversation, and
 * showing it as it grows. */
#ifndef TACIT_ENGINE_CMD_ANSWER_H
#define TACIT_ENGINE_CMD_ANSWER_H

#include "engine/cmd_session.h"
#include "engine/sample.h"
#include "engine/text_stream.h"

typedef struct cmd_answer_options {
    uint64_t tokens, top_k, seed;
    double temperature, top_p, min_p;
    tacit_option_list stop;
} cmd_answer_options;

#define CMD_ANSWER_DEFAULTS                                                                        \
    {                                                                                              \
        .tokens = 256, .top_p = 1                                                                  \
    }

/* Rows of a tacit_option table for a cmd_answer_options `o`. */
/* clang-format off */
#define CMD_ANSWER_ROWS(o)                                                                         \
    {"tokens", 'n', TACIT_OPTION_U64, &(o)->tokens, false, "N",                                    \
     "most tokens of an answer (256)", 1, 1e6},                                                    \
    {"temp", 0, TACIT_OPTION_REAL, &(o)->temperature, false, "T",                                  \
     "temperature; 0 takes the most likely token (0)", 0, 100},                                    \
    {"top-k", 0, TACIT_OPTION_U64, &(o)->top_k, false, "K",                                        \
     "only the K most likely tokens; 0: all (0)", 0, 1e9},                                         \
    {"top-p", 0, TACIT_OPTION_REAL, &(o)->top_p, false, "P",                                       \
     "only the most likely tokens that reach P together; 1: all (1)", 0, 1},                       \
    {"min-p", 0, TACIT_OPTION_REAL, &(o)->min_p, false, "P",                                       \
     "only tokens at least P times as likely as the most likely one (0)", 0, 1},                   \
    {"stop", 0, TACIT_OPTION_LIST, &(o)->stop, false, "TEXT",                                      \
     "ends an answer before this text", 0, 0},                                                     \
    {"seed", 0, TACIT_OPTION_U64, &(o)->seed, false, "S", "of the sampling (0)", 0, 0}
/* clang-format on */

typedef struct cmd_answer {
    const cmd_session *session;
    const tacit_option_list *stop;
    uint64_t most;
    bool shown;      /* on standard output, as it grows, with a line end behind it */
    bool special;    /* control tokens are part of the text */
    bool drop_space; /* a space that comes first is the tokenizer's */
    tacit_sampler sampler;
    tacit_tokens tokens; /* without the one that ends it; those of a text that does are there */
    tacit_buffer text;   /* valid UTF-8 */
    size_t seen;         /* bytes of the text that were shown */
    bool stopped;        /* by a text of `stop` */
    tacit_finish finish;
    double seconds;
} cmd_answer;

/* Refuses (TACIT_USAGE) texts that can stop nothing: before a model is loaded. */
tacit_status cmd_answer_check(const cmd_answer_options *options, tacit_error *err) TACIT_MUST_CHECK;

/* The session and the options, which passed cmd_answer_check, outlive the answer. TACIT_USAGE,
 * TACIT_NO_MEMORY. cmd_answer_fini also after a failure. */
tacit_status cmd_answer_init(cmd_answer *a, const cmd_session *session,
                             const cmd_answer_options *options, tacit_error *err) TACIT_MUST_CHECK;
void cmd_answer_fini(cmd_answer *a);

/* Another answer, behind the rows that the session's context holds: until an end token, a text that
 * stops it, as many tokens as were asked for, or the end of the context, which is said. What it fed
 * stays there: all tokens but the last, where it was cut off or completed a text that stops. */
tacit_status cmd_answer_generate(cmd_answer *a, tacit_error *err) TACIT_MUST_CHECK;

/* Tokens a second; 0 for no time. */
double cmd_answer_rate(size_t tokens, double seconds);

#endif
