/* The operator's verbs over the control socket: words in, JSON out. Names and options of a verb,
 * its help and its handler are one row of control_verbs; the command line is made from the same
 * rows. Handlers run on the control listener's workers and reach the database through the writer.
 */
#ifndef TACIT_SERVER_CONTROL_H
#define TACIT_SERVER_CONTROL_H

#include "server/server.h"

#include <jansson.h>

#define CONTROL_OPTIONS_MAX 40

typedef struct control_option {
    const char *name;  /* NULL ends the list; without "--" */
    const char *value; /* what stands for its value in the help */
    const char *help;
} control_option;

/* The values of a call, in the order of the verb's options; NULL: not given. */
typedef struct control_call {
    server *server;
    const char *argument; /* the positional word, or NULL */
    const char *value[CONTROL_OPTIONS_MAX];
    json_t *result; /* set by the handler; the caller's reference */
} control_call;

typedef struct control_verb {
    const char *name;     /* "token create"; NULL ends the table */
    const char *argument; /* the positional word's name, or NULL; FILE and OUT are paths */
    const char *summary;
    const control_option *options; /* or NULL */
    bool is_list;                  /* its answer is an array, given in parts that fit one message */
    tacit_status (*run)(control_call *call, tacit_error *err);
} control_verb;

extern const control_verb control_verbs[];

/* A list's answer has at most this many bytes of JSON; "@N" before the verb asks for its rows from
 * number N on, and an empty array says that there are no more. */
#define CONTROL_PART_BYTES 200000

/* The handler of the control listener. */
bool control_serve(void *ctx, const uint8_t *request, size_t size, tacit_buffer *reply);

/* Value number `at` parsed, or `otherwise` when it was not given. */
tacit_status control_u64(const control_call *call, const control_option *options, size_t at,
                         uint64_t otherwise, uint64_t min, uint64_t max, uint64_t *out,
                         tacit_error *err) TACIT_MUST_CHECK;
tacit_status control_f64(const control_call *call, const control_option *options, size_t at,
                         double otherwise, double min, double max, double *out,
                         tacit_error *err) TACIT_MUST_CHECK;

/* Value number `at`, or `otherwise`, copied; a text goes into the log and must fit one entry. */
#define CONTROL_TEXT_MAX 255
tacit_status control_text(const control_call *call, const control_option *options, size_t at,
                          const char *otherwise, char out[CONTROL_TEXT_MAX + 1],
                          tacit_error *err) TACIT_MUST_CHECK;

/* Whether a word is an id of hex digits as the operator's lists show it: the whole of it, or its
 * beginning, of CONTROL_ID_SHOWN digits at least. */
#define CONTROL_ID_SHOWN 8
bool control_is_id(const char *word, const char *hex);

/* verbs_device.c */
tacit_status verb_token_create(control_call *call, tacit_error *err);
tacit_status verb_token_list(control_call *call, tacit_error *err);
tacit_status verb_token_revoke(control_call *call, tacit_error *err);
tacit_status verb_device_list(control_call *call, tacit_error *err);
tacit_status verb_device_show(control_call *call, tacit_error *err);
tacit_status verb_device_revoke(control_call *call, tacit_error *err);
tacit_status verb_budget_set(control_call *call, tacit_error *err);
tacit_status verb_budget_show(control_call *call, tacit_error *err);
tacit_status verb_budget_apply(control_call *call, tacit_error *err);
extern const control_option verb_token_create_options[];
extern const control_option verb_device_revoke_options[];
extern const control_option verb_budget_set_options[];

/* verbs_round.c */
tacit_status verb_round_start(control_call *call, tacit_error *err);
tacit_status verb_round_list(control_call *call, tacit_error *err);
tacit_status verb_round_show(control_call *call, tacit_error *err);
tacit_status verb_round_cancel(control_call *call, tacit_error *err);
tacit_status verb_adapter_list(control_call *call, tacit_error *err);
tacit_status verb_adapter_show(control_call *call, tacit_error *err);
tacit_status verb_adapter_publish(control_call *call, tacit_error *err);
tacit_status verb_adapter_rollback(control_call *call, tacit_error *err);
tacit_status verb_ledger_export(control_call *call, tacit_error *err);
tacit_status verb_ledger_cosign(control_call *call, tacit_error *err);
tacit_status verb_events(control_call *call, tacit_error *err);
extern const control_option verb_adapter_switch_options[];
extern const control_option verb_events_options[];

#endif
