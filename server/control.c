#include "server/control.h"

#include "common/envelope.h"
#include "common/log.h"
#include "common/message.h"
#include "common/text.h"
#include "proto/wire.pb-c.h"
#include "server/lineage_start.h"

#include <stdlib.h>
#include <string.h>

const control_verb control_verbs[] = {
    {"token create", NULL, "makes one-time enrolment tokens", verb_token_create_options, false,
     verb_token_create},
    {"token list", NULL, "lists tokens by their names, never their text", NULL, true,
     verb_token_list},
    {"token revoke", "ID", "makes a token worthless", NULL, false, verb_token_revoke},
    {"device list", NULL, "lists enrolled devices", NULL, true, verb_device_list},
    {"device show", "DEVICE", "shows one device by name or pseudonym", NULL, false,
     verb_device_show},
    {"device revoke", "DEVICE", "ends a device for good", verb_device_revoke_options, false,
     verb_device_revoke},
    {"round start", NULL, "logs the schedule of a new lineage and runs its rounds",
     lineage_start_options, false, verb_round_start},
    {"round list", NULL, "lists rounds", NULL, true, verb_round_list},
    {"round show", "ROUND", "shows one round by id", NULL, false, verb_round_show},
    {"round cancel", NULL, "ends the running lineage after failing its open round", NULL, false,
     verb_round_cancel},
    {"adapter list", NULL, "lists published adapters", NULL, true, verb_adapter_list},
    {"adapter show", "VERSION", "shows one adapter of the newest lineage", NULL, false,
     verb_adapter_show},
    {"adapter rollback", "VERSION", "tells devices to fetch an earlier version",
     verb_adapter_switch_options, false, verb_adapter_rollback},
    {"adapter publish", "VERSION", "tells devices to fetch a later version again, after a rollback",
     verb_adapter_switch_options, false, verb_adapter_publish},
    {"budget show", NULL, "shows every device's epsilon against its cap", NULL, true,
     verb_budget_show},
    {"budget set", "DEVICE",
     "lowers a device's epsilon cap; the device or its policy key alone can raise it",
     verb_budget_set_options, false, verb_budget_set},
    {"budget apply", "FILE", "logs a policy that a device's policy key signed; the device takes it",
     NULL, false, verb_budget_apply},
    {"ledger export", "OUT", "writes the log for an auditor", NULL, false, verb_ledger_export},
    {"ledger cosign", "FILE", "takes a checkpoint that the witness of server.yaml cosigned", NULL,
     false, verb_ledger_cosign},
    {"watch", NULL, "follows rounds as they happen", verb_events_options, false, verb_events},
    {NULL, NULL, NULL, NULL, false, NULL},
};

bool control_is_id(const char *word, const char *hex)
{
    size_t n = strlen(word);
    return n >= CONTROL_ID_SHOWN && strncmp(word, hex, n) == 0;
}

tacit_status control_u64(const control_call *call, const control_option *options, size_t at,
                         uint64_t otherwise, uint64_t min, uint64_t max, uint64_t *out,
                         tacit_error *err)
{
    *out = otherwise;
    return call->value[at] ? tacit_parse_u64(call->value[at], options[at].name, min, max, out, err)
                           : TACIT_OK;
}

tacit_status control_f64(const control_call *call, const control_option *options, size_t at,
                         double otherwise, double min, double max, double *out, tacit_error *err)
{
    *out = otherwise;
    return call->value[at] ? tacit_parse_f64(call->value[at], options[at].name, min, max, out, err)
                           : TACIT_OK;
}

tacit_status control_text(const control_call *call, const control_option *options, size_t at,
                          const char *otherwise, char out[CONTROL_TEXT_MAX + 1], tacit_error *err)
{
    const char *text = call->value[at] ? call->value[at] : otherwise;
    size_t size = strlen(text);
    if (size == 0 || size > CONTROL_TEXT_MAX)
        return tacit_fail(err, TACIT_USAGE, "%s: expected 1 to %d bytes, found %zu",
                          options[at].name, CONTROL_TEXT_MAX, size);
    memcpy(out, text, size + 1);
    return TACIT_OK;
}

static const control_verb *find_verb(const char *name)
{
    for (const control_verb *v = control_verbs; v->name; v++)
        if (strcmp(v->name, name) == 0)
            return v;
    return NULL;
}

/* Words: verb, then "=argument" or pairs of option and value. */
static tacit_status fill_call(control_call *call, const control_verb *verb, char **words, size_t n,
                              tacit_error *err)
{
    size_t at = 0;
    if (verb->argument) {
        if (n == 0 || words[0][0] != '=')
            return tacit_fail(err, TACIT_USAGE, "%s: expected %s", verb->name, verb->argument);
        call->argument = words[at++] + 1;
    }
    for (; at + 1 < n; at += 2) {
        size_t i = 0;
        while (verb->options && verb->options[i].name &&
               strcmp(verb->options[i].name, words[at]) != 0)
            i++;
        if (!verb->options || !verb->options[i].name || i >= CONTROL_OPTIONS_MAX)
            return tacit_fail(err, TACIT_USAGE, "%s: unknown option '%s'", verb->name, words[at]);
        call->value[i] = words[at + 1];
    }
    return at == n ? TACIT_OK
                   : tacit_fail(err, TACIT_USAGE, "%s: an option lacks its value", verb->name);
}

/* The rows of an array from number `from` on, as many as fit. */
static json_t *part_of(json_t *rows, uint64_t from)
{
    size_t used = 2;
    json_t *part = json_array();
    for (size_t i = (size_t)from; part && i < json_array_size(rows); i++) {
        char *text = json_dumps(json_array_get(rows, i), JSON_COMPACT | JSON_REAL_PRECISION(17));
        used += text ? strlen(text) + 1 : 0;
        free(text);
        if (used > CONTROL_PART_BYTES)
            break;
        json_array_append(part, json_array_get(rows, i));
    }
    return part;
}

/* "@N" before the verb of a list. */
static tacit_status take_from(char ***words, size_t *n, uint64_t *from, tacit_error *err)
{
    *from = 0;
    if (*n == 0 || (*words)[0][0] != '@')
        return TACIT_OK;
    const char *number = (*words)[0] + 1;
    ++*words;
    --*n;
    return tacit_parse_u64(number, "row", 0, UINT32_MAX, from, err);
}

static tacit_status run_words(server *s, char **words, size_t n, json_t **result, tacit_error *err)
{
    control_call call = {.server = s};
    uint64_t from;
    tacit_status status = take_from(&words, &n, &from, err);
    if (status != TACIT_OK)
        return status;
    const control_verb *verb = n ? find_verb(words[0]) : NULL;
    if (!verb)
        return tacit_fail(err, TACIT_USAGE, "unknown command '%s'", n ? words[0] : "");
    status = fill_call(&call, verb, words + 1, n - 1, err);
    if (status == TACIT_OK)
        status = verb->run(&call, err);
    *result = call.result;
    if (status == TACIT_OK && verb->is_list) {
        *result = part_of(call.result, from);
        json_decref(call.result);
    }
    return status;
}

bool control_serve(void *ctx, const uint8_t *bytes, size_t size, tacit_buffer *reply)
{
    tacit_received received;
    tacit_error err = {0};
    Tacit__ControlRequest *request = NULL;
    json_t *result = NULL;
    if (tacit_request_parse(&received, bytes, size, &err) != TACIT_OK)
        return false;
    tacit_status status = TACIT_UNPACK(&request, tacit__control_request, received.request.body.data,
                                       received.request.body.size, TACIT_MESSAGE_WIRE_MAX, &err);
    if (status == TACIT_OK && received.request.method != TACIT__METHOD__METHOD_CONTROL)
        status = tacit_fail(&err, TACIT_USAGE, "the control socket serves operators only");
    if (status == TACIT_OK)
        status = run_words(ctx, request->words, request->n_words, &result, &err);
    char *json = result ? json_dumps(result, JSON_COMPACT | JSON_REAL_PRECISION(17)) : NULL;
    tacit_span body = {(uint8_t *)json, json ? strlen(json) : 0};
    bool built = tacit_reply_build(&received, status, status == TACIT_OK ? "" : err.message, NULL,
                                   body, NULL, reply, &err) == TACIT_OK;
    if (!built)
        tacit_log_error("control: %s", err.message);
    json_decref(result);
    free(json);
    tacit_message_free(request);
    tacit_received_free(&received);
    return built;
}
