/* Verbs about tokens, devices and budgets. */
#include "server/control.h"

#include "common/clock.h"
#include "common/enrolment.h"
#include "common/file.h"
#include "common/key_text.h"
#include "common/log.h"
#include "common/message.h"
#include "common/text.h"
#include "privacy/entry.h"
#include "server/device_store.h"
#include "server/round_terms.h"
#include "server/server_events.h"
#include "server/signed_entry.h"

#include <math.h>
#include <sodium.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static tacit_status give(control_call *call, json_t *result, tacit_error *err)
{
    call->result = result;
    return result ? TACIT_OK : tacit_fail(err, TACIT_NO_MEMORY, "no memory for the answer");
}

/* --- tokens --- */

enum { AT_COUNT, AT_HOURS };

const control_option verb_token_create_options[] = {
    [AT_COUNT] = {"count", "N", "how many (1)"},
    [AT_HOURS] = {"hours", "H", "how long they are good for (24)"},
    {NULL, NULL, NULL},
};

typedef struct token_making {
    control_call *call;
    uint64_t count, expires_ms;
    json_t *list;
} token_making;

static tacit_status make_one_token(token_making *m, tacit_error *err)
{
    server *s = m->call->server;
    tacit_enrol_token token = {.port = s->enrol_port};
    char text[TACIT_TOKEN_TEXT], id[TOKEN_ID_TEXT];
    randombytes_buf(token.secret, sizeof token.secret);
    tacit_ca_fingerprint(s->ca, token.root);
    tacit_status status =
        token_insert(s->db, token.secret, tacit_clock_wall_ms(), m->expires_ms, id, err);
    tacit_token_write(&token, text);
    if (status == TACIT_OK)
        json_array_append_new(m->list, json_pack("{s:s, s:s, s:I}", "id", id, "token", text,
                                                 "expires_ms", (json_int_t)m->expires_ms));
    sodium_memzero(&token, sizeof token);
    sodium_memzero(text, sizeof text);
    return status;
}

static tacit_status make_tokens(void *ctx, tacit_error *err)
{
    token_making *m = ctx;
    tacit_status status = TACIT_OK;
    for (uint64_t i = 0; i < m->count && status == TACIT_OK; i++)
        status = make_one_token(m, err);
    return status;
}

tacit_status verb_token_create(control_call *call, tacit_error *err)
{
    uint64_t hours;
    token_making m = {.call = call};
    tacit_status status =
        control_u64(call, verb_token_create_options, AT_COUNT, 1, 1, 1000, &m.count, err);
    if (status == TACIT_OK)
        status = control_u64(call, verb_token_create_options, AT_HOURS, 24, 1, 720, &hours, err);
    if (status != TACIT_OK)
        return status;
    m.expires_ms = tacit_clock_wall_ms() + hours * 3600000;
    m.list = json_array();
    status = writer_run(call->server->writer, make_tokens, NULL, &m, err);
    if (status == TACIT_OK)
        return give(call, m.list, err);
    json_decref(m.list);
    return status;
}

/* Verbs that read run one function on the writer's thread, which fills a JSON value. */
typedef struct reading {
    control_call *call;
    json_t *json;
    tacit_status (*fill)(struct reading *r, tacit_error *err);
    tacit_ledger_price price; /* of the running lineage's next round, once asked for */
    bool priced, has_price;
} reading;

static tacit_status read_job(void *ctx, tacit_error *err)
{
    reading *r = ctx;
    return r->fill(r, err);
}

static tacit_status read_json(control_call *call, json_t *json,
                              tacit_status (*fill)(reading *r, tacit_error *err), tacit_error *err)
{
    reading r = {.call = call, .json = json, .fill = fill};
    tacit_status status = writer_run(call->server->writer, read_job, NULL, &r, err);
    tacit_ledger_price_free(&r.price);
    if (status == TACIT_OK)
        return give(call, json, err);
    json_decref(json);
    return status;
}

static tacit_status add_token(void *ctx, const token_row *t, tacit_error *err)
{
    reading *r = ctx;
    (void)err;
    const char *state = t->revoked                               ? "revoked"
                        : t->used_ms                             ? "used"
                        : t->expires_ms <= tacit_clock_wall_ms() ? "expired"
                                                                 : "open";
    json_array_append_new(r->json, json_pack("{s:s, s:s, s:I}", "id", t->id, "state", state,
                                             "expires_ms", (json_int_t)t->expires_ms));
    return TACIT_OK;
}

static tacit_status fill_tokens(reading *r, tacit_error *err)
{
    return token_each(r->call->server->db, add_token, r, err);
}

tacit_status verb_token_list(control_call *call, tacit_error *err)
{
    return read_json(call, json_array(), fill_tokens, err);
}

static tacit_status revoke_token(reading *r, tacit_error *err)
{
    return token_revoke(r->call->server->db, r->call->argument, err);
}

tacit_status verb_token_revoke(control_call *call, tacit_error *err)
{
    return read_json(call, json_pack("{s:s}", "revoked", call->argument), revoke_token, err);
}

/* --- devices --- */

/* Why it is not asked: what of its account does not hold the next round of the lineage that runs;
 * the cap, when it holds nothing at all any more. */
static tacit_status limit_of(reading *r, const device_row *d, const tacit_ledger_device *logged,
                             tacit_ledger_limit *limit, tacit_error *err)
{
    tacit_ledger_answer answer = {.limit = TACIT_LIMIT_NONE};
    tacit_status status = TACIT_OK;
    if (!r->priced)
        status = round_next_price(r->call->server, &r->price, &r->has_price, err);
    r->priced = true;
    if (status == TACIT_OK && r->has_price)
        status = tacit_ledger_affords(r->call->server->ledger, d->device, &r->price, &answer, err);
    *limit = logged->epsilon < logged->policy.epsilon_cap ? answer.limit : TACIT_LIMIT_CAP;
    return status;
}

/* Its own policy or account, sub-caps included, refuses the lineage that runs; it said so. */
static bool declines(const reading *r, const device_row *d)
{
    return d->has_declined && r->has_price &&
           memcmp(d->declined, r->price.lineage, sizeof d->declined) == 0;
}

static tacit_status state_of(reading *r, const device_row *d, const tacit_ledger_device *logged,
                             const char **state, tacit_error *err)
{
    static const char *const full[] = {[TACIT_LIMIT_LOST] = "exhausted",
                                       [TACIT_LIMIT_CAP] = "exhausted",
                                       [TACIT_LIMIT_LINEAGES] = "lineages-full",
                                       [TACIT_LIMIT_WINDOW] = "window-full"};
    tacit_ledger_limit limit;
    tacit_status status = limit_of(r, d, logged, &limit, err);
    *state = d->revoked || logged->revoked ? "revoked"
             : d->frozen || logged->frozen ? "frozen"
             : limit != TACIT_LIMIT_NONE   ? full[limit]
             : declines(r, d)              ? "declined"
                                           : "active";
    return status;
}

static double remaining_of(const tacit_ledger_device *logged)
{
    return fmax(0, logged->policy.epsilon_cap - logged->epsilon);
}

static json_t *device_json(reading *r, const device_row *d, tacit_status *status, tacit_error *err)
{
    char hex[2 * TACIT_DEVICE_BYTES + 1];
    const char *state;
    tacit_ledger_device logged;
    *status = tacit_ledger_device_get(r->call->server->ledger, d->device, &logged, err);
    if (*status == TACIT_OK)
        *status = state_of(r, d, &logged, &state, err);
    if (*status != TACIT_OK)
        return NULL;
    tacit_hex(hex, d->device, sizeof d->device);
    return json_pack("{s:s, s:s, s:s, s:I, s:I, s:I, s:o, s:f, s:f, s:f, s:b}", "device", hex,
                     "name", d->name, "state", state, "seen_ms", (json_int_t)d->seen_ms,
                     "certificate_until_ms", (json_int_t)d->certificate_until_ms, "active_version",
                     (json_int_t)d->active_version, "epsilon", server_json_number(logged.epsilon),
                     "epsilon_cap", logged.policy.epsilon_cap, "remaining", remaining_of(&logged),
                     "delta", logged.policy.delta, "non_private", logged.non_private);
}

static tacit_status add_device(void *ctx, const device_row *d, tacit_error *err)
{
    reading *r = ctx;
    tacit_status status;
    json_t *json = device_json(r, d, &status, err);
    if (status == TACIT_OK)
        json_array_append_new(r->json, json);
    return status;
}

static tacit_status fill_devices(reading *r, tacit_error *err)
{
    return device_each(r->call->server->db, add_device, r, err);
}

tacit_status verb_device_list(control_call *call, tacit_error *err)
{
    return read_json(call, json_array(), fill_devices, err);
}

static tacit_status add_budget(void *ctx, const device_row *d, tacit_error *err)
{
    reading *r = ctx;
    char hex[2 * TACIT_DEVICE_BYTES + 1];
    tacit_ledger_device logged;
    const char *state;
    tacit_status status = tacit_ledger_device_get(r->call->server->ledger, d->device, &logged, err);
    if (status == TACIT_OK)
        status = state_of(r, d, &logged, &state, err);
    if (status != TACIT_OK)
        return status;
    tacit_hex(hex, d->device, sizeof d->device);
    json_array_append_new(
        r->json,
        json_pack("{s:s, s:s, s:s, s:o, s:f, s:f, s:f, s:f, s:I, s:b}", "device", hex, "name",
                  d->name, "state", state, "epsilon", server_json_number(logged.epsilon),
                  "epsilon_cap", logged.policy.epsilon_cap, "remaining", remaining_of(&logged),
                  "delta", logged.policy.delta, "window_epsilon", logged.policy.window_epsilon,
                  "window_reserves", (json_int_t)logged.policy.window_reserves, "non_private",
                  logged.non_private));
    return TACIT_OK;
}

static tacit_status fill_budgets(reading *r, tacit_error *err)
{
    return device_each(r->call->server->db, add_budget, r, err);
}

tacit_status verb_budget_show(control_call *call, tacit_error *err)
{
    return read_json(call, json_array(), fill_budgets, err);
}

/* The one device that a word names: its pseudonym, or its name or the beginning of its pseudonym
 * when they are no other's. Devices choose their names, so a name never hides a pseudonym. */
typedef struct device_search {
    const char *word;
    const uint8_t *key; /* or that of its identity */
    device_row found;
    size_t hits;
    bool whole; /* the found one's pseudonym is the word */
} device_search;

static tacit_status match_device(void *ctx, const device_row *d, tacit_error *err)
{
    device_search *search = ctx;
    char hex[2 * TACIT_DEVICE_BYTES + 1];
    (void)err;
    tacit_hex(hex, d->device, sizeof d->device);
    bool whole = strcmp(search->word, hex) == 0;
    if (whole || control_is_id(search->word, hex) || strcmp(search->word, d->name) == 0) {
        search->hits++;
        if (!search->whole)
            search->found = *d;
        search->whole |= whole;
    }
    return TACIT_OK;
}

static tacit_status find_device(control_call *call, device_row *out, tacit_error *err)
{
    device_search search = {.word = call->argument};
    tacit_status status = device_each(call->server->db, match_device, &search, err);
    if (status == TACIT_OK && search.hits == 0)
        status = tacit_fail(err, TACIT_NOT_FOUND,
                            "'%s' is no device; give a name or a pseudonym (%d digits or more) of "
                            "'device list'",
                            call->argument, CONTROL_ID_SHOWN);
    if (status == TACIT_OK && search.hits > 1 && !search.whole)
        status = tacit_fail(err, TACIT_NOT_FOUND,
                            "'%s' names %zu devices; give a whole pseudonym of 'device list "
                            "--json'",
                            call->argument, search.hits);
    *out = search.found;
    return status;
}

static tacit_status fill_device(reading *r, tacit_error *err)
{
    device_row d;
    tacit_status status = find_device(r->call, &d, err);
    if (status != TACIT_OK)
        return status;
    char key[TACIT_KEY_TEXT];
    json_t *json = device_json(r, &d, &status, err);
    tacit_key_text_write(key, TACIT_KEY_DEVICE, d.identity_key);
    if (status == TACIT_OK) {
        json_object_update(r->json, json);
        json_object_set_new(r->json, "device_key", json_string(key));
    }
    json_decref(json);
    return status;
}

tacit_status verb_device_show(control_call *call, tacit_error *err)
{
    return read_json(call, json_object(), fill_device, err);
}

const control_option verb_device_revoke_options[] = {
    {"reason", "TEXT", "for the log, seen by auditors (revoked by the operator)"},
    {NULL, NULL, NULL},
};

static tacit_status revoke_device(reading *r, tacit_error *err)
{
    server *s = r->call->server;
    device_row d;
    char reason[CONTROL_TEXT_MAX + 1];
    Tacit__Revoke body = TACIT__REVOKE__INIT;
    Tacit__Entry entry = TACIT__ENTRY__INIT;
    tacit_status status = find_device(r->call, &d, err);
    if (status != TACIT_OK)
        return status;
    if (d.revoked)
        return tacit_fail(err, TACIT_CONFLICT, "device %s is revoked already",
                          device_called(&d).text);
    status = control_text(r->call, verb_device_revoke_options, 0, "revoked by the operator", reason,
                          err);
    if (status != TACIT_OK)
        return status;
    body.reason = reason;
    entry.device = tacit_field_of(d.device, sizeof d.device);
    entry.body_case = TACIT__ENTRY__BODY_REVOKE;
    entry.revoke = &body;
    status = device_revoke(s->db, d.device, err);
    if (status == TACIT_OK)
        status = tacit_ledger_record(s->ledger, &entry, NULL, NULL, err);
    if (status == TACIT_OK)
        tacit_log_warn("device %s is revoked: %s", device_called(&d).text, reason);
    return status;
}

tacit_status verb_device_revoke(control_call *call, tacit_error *err)
{
    return read_json(call, json_pack("{s:s}", "revoked", call->argument), revoke_device, err);
}

/* --- budgets --- */

enum { AT_EPSILON, AT_REASON };

const control_option verb_budget_set_options[] = {
    [AT_EPSILON] = {"epsilon", "E", "the new cap, below the one in force (required)"},
    [AT_REASON] = {"reason", "TEXT", "for the log (lowered by the operator)"},
    {NULL, NULL, NULL},
};

/* The policy in force with another cap, packed. */
static tacit_status lowered_policy(control_call *call, const device_row *d, uint8_t **bytes,
                                   size_t *size, tacit_error *err)
{
    tacit_ledger_device logged;
    double cap;
    if (!call->value[AT_EPSILON])
        return tacit_fail(err, TACIT_USAGE, "budget set: --epsilon is missing");
    tacit_status status = tacit_ledger_device_get(call->server->ledger, d->device, &logged, err);
    if (status == TACIT_OK)
        status = control_f64(call, verb_budget_set_options, AT_EPSILON, 0, 1e-6, 1e6, &cap, err);
    if (status != TACIT_OK)
        return status;
    if (!(cap < logged.policy.epsilon_cap))
        return tacit_fail(
            err, TACIT_REFUSED,
            "budget set: the cap of %s is %g; a server can only lower it, give less than "
            "that (a policy that the device or its policy key signs can raise it)",
            device_called(d).text, logged.policy.epsilon_cap);
    logged.policy.epsilon_cap = cap;
    return tacit_policy_pack(&logged.policy, bytes, size, err);
}

static tacit_status log_policy(control_call *call, const device_row *d, const uint8_t *bytes,
                               size_t size, tacit_error *err)
{
    char who[] = "operator", role[] = "server operator", meaning[] = "lower epsilon cap",
         reason[CONTROL_TEXT_MAX + 1];
    Tacit__PolicyChanged body = TACIT__POLICY_CHANGED__INIT;
    Tacit__Entry entry = TACIT__ENTRY__INIT;
    tacit_status status = control_text(call, verb_budget_set_options, AT_REASON,
                                       "lowered by the operator", reason, err);
    if (status != TACIT_OK)
        return status;
    body.who = who;
    body.role = role;
    body.meaning = meaning;
    body.reason = reason;
    body.policy = tacit_field_of(bytes, size);
    entry.device = tacit_field_of(d->device, sizeof d->device);
    entry.body_case = TACIT__ENTRY__BODY_POLICY_CHANGED;
    entry.policy_changed = &body;
    return tacit_ledger_record(call->server->ledger, &entry, NULL, NULL, err);
}

static tacit_status set_budget(reading *r, tacit_error *err)
{
    device_row d;
    uint8_t *bytes = NULL;
    size_t size = 0;
    tacit_status status = find_device(r->call, &d, err);
    if (status == TACIT_OK)
        status = lowered_policy(r->call, &d, &bytes, &size, err);
    if (status == TACIT_OK)
        status = log_policy(r->call, &d, bytes, size, err);
    free(bytes);
    if (status == TACIT_OK)
        tacit_log_warn("device %s: epsilon cap lowered to %s", device_called(&d).text,
                       r->call->value[AT_EPSILON]);
    return status == TACIT_OK ? fill_device(r, err) : status;
}

tacit_status verb_budget_set(control_call *call, tacit_error *err)
{
    return read_json(call, json_object(), set_budget, err);
}

/* --- a policy that a policy key signed --- */

static tacit_status match_key(void *ctx, const device_row *d, tacit_error *err)
{
    device_search *search = ctx;
    (void)err;
    if (memcmp(d->identity_key, search->key, TACIT_SIGN_KEY_BYTES) != 0)
        return TACIT_OK;
    search->found = *d;
    search->hits++;
    return TACIT_OK;
}

/* A file of the operator's: it says itself whom it is for. */
typedef struct applying {
    server *server;
    tacit_signed_policy policy;
    device_row device;
    uint64_t index;
} applying;

static tacit_status apply_policy(void *ctx, tacit_error *err)
{
    applying *a = ctx;
    device_search search = {.key = a->policy.message->identity_key.data};
    tacit_status status = device_each(a->server->db, match_key, &search, err);
    if (status == TACIT_OK && search.hits == 0)
        status = tacit_fail(err, TACIT_NOT_FOUND,
                            "signed policy: no device of this server has the key that it is for");
    if (status != TACIT_OK)
        return status;
    a->device = search.found;
    return signed_entry_log(a->server, &a->device, &a->policy, &a->index, err);
}

static json_t *applied_json(const applying *a)
{
    const Tacit__SignedPolicy *m = a->policy.message;
    char hex[2 * TACIT_DEVICE_BYTES + 1];
    tacit_hex(hex, a->device.device, sizeof a->device.device);
    return json_pack("{s:s, s:s, s:I, s:f, s:I, s:s, s:s, s:s}", "device", hex, "name",
                     a->device.name, "entry", (json_int_t)a->index, "epsilon_cap",
                     a->policy.policy.epsilon_cap, "serial", (json_int_t)a->policy.policy.serial,
                     "who", m->who, "role", m->role, "reason", m->reason);
}

tacit_status verb_budget_apply(control_call *call, tacit_error *err)
{
    applying a = {.server = call->server};
    uint8_t *bytes = NULL;
    size_t size;
    tacit_status status = tacit_status_of_input(
        tacit_file_read(call->argument, TACIT_SIGNED_POLICY_MAX, &bytes, &size, err), err);
    if (status == TACIT_OK)
        status = tacit_signed_policy_open(&a.policy, bytes, size, err);
    if (status == TACIT_OK)
        status = writer_run(call->server->writer, apply_policy, NULL, &a, err);
    if (status == TACIT_OK)
        status = give(call, applied_json(&a), err);
    tacit_message_free(a.policy.message);
    free(bytes);
    return status;
}
