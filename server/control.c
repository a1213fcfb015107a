#include "server/control.h"

#include "common/envelope.h"
#include "common/log.h"
#include "common/message.h"
#include "common/text.h"
#include "proto/wire.pb-c.h"
#include "server/lineage_start.h"

#include <stdlib.h>
#include <string.h>

const control_option control_pages[] = {
    {"page", "N", "rows of one page, from 0 (all pages)"},
    {NULL, NULL, NULL},
};

const control_verb control_verbs[] = {
    {"token create", NULL, "makes one-time enrolment tokens", verb_token_create_options,
     verb_token_create},
    {"token list", NULL, "lists tokens by their names, never their text", control_pages,
     verb_token_list},
    {"token revoke", "ID", "makes a token worthless", NULL, verb_token_revoke},
    {"device list", NULL, "lists enrolled devices", control_pages, verb_device_list},
    {"device show", "DEVICE", "shows one device by name or pseudonym", NULL, verb_device_show},
    {"device revoke", "DEVICE", "ends a device for good", verb_device_revoke_options,
     verb_device_revoke},
    {"round start", NULL, "logs the schedule of a new lineage and runs its rounds",
     lineage_start_options, verb_round_start},
    {"round list", NULL, "lists rounds", control_pages, verb_round_list},
    {"round show", "ROUND", "shows one round by id", NULL, verb_round_show},
    {"round cancel", NULL, "ends the running lineage after failing its open round", NULL,
     verb_round_cancel},
    {"adapter list", NULL, "lists published adapters", control_pages, verb_adapter_list},
    {"adapter show", "VERSION", "shows one adapter of the newest lineage", NULL, verb_adapter_show},
    {"adapter rollback", "VERSION", "tells devices to fetch an earlier version",
     verb_adapter_switch_options, verb_adapter_rollback},
    {"adapter publish", "VERSION", "tells devices to fetch a later version again, after a rollback",
     verb_adapter_switch_options, verb_adapter_publish},
    {"budget show", NULL, "shows every device's epsilon against its cap", control_pages,
     verb_budget_show},
    {"budget set", "DEVICE", "lowers a device's epsilon cap; nobody but the device can raise it",
     verb_budget_set_options, verb_budget_set},
    {"ledger export", "OUT", "writes the log for an auditor", NULL, verb_ledger_export},
    {"watch", NULL, "follows rounds as they happen", verb_events_options, verb_events},
    {NULL, NULL, NULL, NULL, NULL},
};

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

/* Leaves the rows of the page that was asked for. */
static tacit_status cut_page(control_call *call, tacit_error *err)
{
    uint64_t page;
    tacit_status status = control_u64(call, control_pages, 0, 0, 0, UINT32_MAX, &page, err);
    if (status != TACIT_OK)
        return status;
    json_t *rows = json_array();
    for (size_t i = page * CONTROL_PAGE, n = 0; n < CONTROL_PAGE; i++, n++)
        if (i < json_array_size(call->result))
            json_array_append(rows, json_array_get(call->result, i));
    json_decref(call->result);
    call->result = rows;
    return TACIT_OK;
}

static tacit_status run_words(server *s, char **words, size_t n, json_t **result, tacit_error *err)
{
    control_call call = {.server = s};
    const control_verb *verb = n ? find_verb(words[0]) : NULL;
    if (!verb)
        return tacit_fail(err, TACIT_USAGE, "unknown command '%s'", n ? words[0] : "");
    tacit_status status = fill_call(&call, verb, words + 1, n - 1, err);
    if (status == TACIT_OK)
        status = verb->run(&call, err);
    if (status == TACIT_OK && verb->options == control_pages && call.value[0])
        status = cut_page(&call, err);
    *result = call.result;
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
    char *json = result && status == TACIT_OK
                     ? json_dumps(result, JSON_COMPACT | JSON_REAL_PRECISION(17))
                     : NULL;
    tacit_span body = {(uint8_t *)json, json ? strlen(json) : 0};
    bool built = tacit_reply_build(&received, status, status == TACIT_OK ? "" : err.message, NULL,
                                   body, NULL, reply, &err) == TACIT_OK;
    if (!built) { /* said, rather than taken for a server that is not there */
        tacit_log_error("control: %s", err.message);
        tacit_error none;
        built = tacit_reply_build(&received, TACIT_FAILED, err.message, NULL, (tacit_span){0}, NULL,
                                  reply, &none) == TACIT_OK;
    }
    json_decref(result);
    free(json);
    tacit_message_free(request);
    tacit_received_free(&received);
    return built;
}
