/* tacit-client status: what the device knows about itself; asks nobody. */
#include "client/client_commands.h"

#include "client/activation.h"
#include "client/plan_check.h"
#include "client/round_state_store.h"
#include "client/tls_files.h"
#include "common/clock.h"
#include "common/json_print.h"
#include "common/key_text.h"
#include "common/message.h"
#include "common/options.h"
#include "common/text.h"

#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

enum { ROUNDS_SHOWN = 20 };

/* null for what is not a number in JSON. */
static json_t *number(double v)
{
    return isfinite(v) ? json_real(v) : json_null();
}

static json_t *hex_of(const uint8_t *data, size_t size)
{
    char hex[2 * TACIT_DIGEST_BYTES + 1];
    tacit_hex(hex, data, size);
    return json_string(hex);
}

static json_t *time_of(uint64_t ms)
{
    char text[32];
    struct tm tm;
    time_t s = (time_t)(ms / 1000);
    if (!gmtime_r(&s, &tm) || strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%SZ", &tm) == 0)
        return json_null();
    return json_string(text);
}

/* Why the last plan that was offered was not taken. */
static tacit_status add_refusal(json_t *root, client *c, tacit_error *err)
{
    client_refusal last;
    tacit_status status = client_refusal_get(c->db, &last, err);
    if (status == TACIT_OK)
        json_object_set_new(root, "refused",
                            last.reason[0] ? json_pack("{s:s, s:o}", "reason", last.reason, "time",
                                                       time_of(last.time_ms))
                                           : json_null());
    return status;
}

static tacit_status add_account(json_t *root, client *c, tacit_error *err)
{
    tacit_account_status a;
    double written = 0;
    if (!c->account) {
        json_object_set_new(root, "account", json_null());
        return TACIT_OK;
    }
    tacit_status status = tacit_account_status_get(c->account, &a, err);
    if (status == TACIT_OK)
        status = client_owner_cap_get(c->db, &written, err);
    if (status != TACIT_OK)
        return status;
    json_t *o =
        json_pack("{s:o, s:o, s:o, s:b, s:o, s:o, s:b, s:b, s:I, s:I, s:I, s:I}", "epsilon",
                  number(a.epsilon), "epsilon_cap", number(a.policy.epsilon_cap), "epsilon_cap_own",
                  number(c->config.policy.epsilon_cap), "epsilon_cap_own_applied",
                  written == c->config.policy.epsilon_cap, "remaining", number(a.remaining),
                  "delta", number(a.policy.delta), "non_private", a.non_private, "lost", a.lost,
                  "reserves", (json_int_t)a.reserves, "spends", (json_int_t)a.spends, "abandons",
                  (json_int_t)a.abandons, "checkpoint_size", (json_int_t)a.checkpoint_size);
    json_object_set_new(root, "account", o);
    status = add_refusal(root, c, err);
    if (status != TACIT_OK)
        return status;
    json_object_set_new(root, "policy",
                        json_pack("{s:s, s:o, s:I, s:I, s:I, s:I, s:b, s:I, s:o, s:I, s:o}", "unit",
                                  tacit_privacy_unit_name(a.policy.unit),
                                  "minimum_noise_multiplier",
                                  number(a.policy.minimum_noise_multiplier), "minimum_cohort",
                                  (json_int_t)a.policy.minimum_cohort, "minimum_quorum",
                                  (json_int_t)a.policy.minimum_quorum, "minimum_pad_seconds",
                                  (json_int_t)c->config.minimum_pad_seconds, "maximum_steps",
                                  (json_int_t)c->config.maximum_steps, "allow_non_private",
                                  a.policy.allow_non_private, "devices_per_subject",
                                  (json_int_t)a.policy.devices_per_subject, "window_epsilon",
                                  number(a.policy.window_epsilon), "window_reserves",
                                  (json_int_t)a.policy.window_reserves, "lineage_epsilon",
                                  number(c->config.lineage_epsilon)));
    return TACIT_OK;
}

/* Rounds and the lineages they belong to. */
typedef struct round_lists {
    json_t *rounds, *lineages;
} round_lists;

static json_t *lineage_of(round_lists *lists, const Tacit__Plan *plan)
{
    char hex[2 * CLIENT_LINEAGE_BYTES + 1];
    tacit_hex(hex, plan->lineage.data, plan->lineage.len);
    json_t *o = json_object_get(lists->lineages, hex);
    if (!o) {
        o = json_pack("{s:i, s:i}", "rounds", 0, "accepted", 0);
        json_object_set_new(lists->lineages, hex, o);
    }
    return o;
}

static void count(json_t *o, const char *key)
{
    json_object_set_new(o, key, json_integer(json_integer_value(json_object_get(o, key)) + 1));
}

static tacit_status add_round(void *ctx, const round_state *r, tacit_error *err)
{
    round_lists *lists = ctx;
    checked_plan plan;
    tacit_status status = plan_open(&plan, (tacit_span){r->plan, r->plan_size},
                                    (tacit_span){r->schedule, r->schedule_size}, err);
    if (status != TACIT_OK)
        return status;
    json_t *o = json_pack("{s:o, s:o, s:I, s:s, s:s, s:b, s:o, s:o}", "round_id",
                          hex_of(r->round_id, sizeof r->round_id), "lineage",
                          hex_of(plan.plan->lineage.data, plan.plan->lineage.len), "round",
                          (json_int_t)plan.plan->round_index + 1, "state",
                          round_state_word(r->state), "reason", r->reason, "local", r->local,
                          "sigma", number(tacit_mechanism_noise_multiplier(&plan.mechanism)),
                          "reserved", time_of(r->reserved_ms));
    json_array_append_new(lists->rounds, o);
    json_t *lineage = lineage_of(lists, plan.plan);
    count(lineage, "rounds");
    if (strcmp(r->reason, "accepted") == 0)
        count(lineage, "accepted");
    checked_plan_free(&plan);
    return TACIT_OK;
}

static tacit_status add_rounds(json_t *root, client *c, tacit_error *err)
{
    round_lists lists = {json_array(), json_object()};
    json_object_set_new(root, "rounds", lists.rounds);
    json_object_set_new(root, "lineages", lists.lineages);
    return round_state_each(c->db, ROUNDS_SHOWN, add_round, &lists, err);
}

static tacit_status add_adapter(json_t *root, client *c, tacit_error *err)
{
    active_adapter current, previous;
    client_adapter known;
    tacit_status status = active_adapter_read(c, &current, &previous, err);
    if (status != TACIT_OK)
        return status;
    if (!current.exists) {
        json_object_set_new(root, "active_adapter", json_null());
        return TACIT_OK;
    }
    status = client_adapter_get(c->db, current.digest, &known, err);
    if (status != TACIT_OK && status != TACIT_NOT_FOUND)
        return status;
    json_t *o =
        json_pack("{s:I, s:o, s:o, s:o, s:o, s:o, s:o}", "version", (json_int_t)current.version,
                  "lineage", hex_of(current.lineage, sizeof current.lineage), "digest",
                  hex_of(current.digest, sizeof current.digest), "epsilon",
                  number(status == TACIT_OK ? known.epsilon_published : NAN), "accuracy",
                  number(status == TACIT_OK ? known.accuracy : NAN), "loss",
                  number(status == TACIT_OK ? known.loss : NAN), "previous_version",
                  previous.exists ? json_integer((json_int_t)previous.version) : json_null());
    json_object_set_new(root, "active_adapter", o);
    return TACIT_OK;
}

static json_t *key_of(const char *prefix, const uint8_t key[TACIT_SIGN_KEY_BYTES])
{
    char text[TACIT_KEY_TEXT];
    tacit_key_text_write(text, prefix, key);
    return json_string(text);
}

/* What was pinned at enrolment, and whom a signed policy is for. */
static void add_keys(json_t *root, const client *c)
{
    const client_enrolment *e = &c->enrolment;
    char log_key[TACIT_VKEY_MAX];
    tacit_note_key_write(&e->log, log_key);
    json_object_set_new(root, "log_origin", json_string(e->log.name));
    json_object_set_new(root, "log_key", json_string(log_key));
    json_object_set_new(root, "device_key",
                        key_of(TACIT_KEY_DEVICE, tacit_identity_sign_key(c->identity)));
    json_object_set_new(root, "policy_key",
                        e->has_policy_key ? key_of(TACIT_KEY_POLICY, e->policy_key) : json_null());
}

static tacit_status add_signed_policy(json_t *root, client *c, tacit_error *err)
{
    client_signed_policy stored;
    tacit_signed_policy p;
    json_object_set_new(root, "signed_policy", json_null());
    tacit_status status = client_signed_policy_get(c->db, &stored, err);
    if (status != TACIT_OK || stored.size == 0)
        return status;
    status = tacit_signed_policy_open(&p, stored.bytes, stored.size, err);
    if (status != TACIT_OK)
        return status;
    json_object_set_new(root, "signed_policy",
                        json_pack("{s:I, s:s, s:s, s:s, s:s, s:b, s:b}", "serial",
                                  (json_int_t)stored.serial, "who", p.message->who, "role",
                                  p.message->role, "meaning", p.message->meaning, "reason",
                                  p.message->reason, "logged", !stored.pending, "stands_in",
                                  c->config.policy.serial == stored.serial));
    tacit_message_free(p.message);
    return TACIT_OK;
}

static tacit_status add_enrolment(json_t *root, client *c, tacit_error *err)
{
    tacit_certificate_info info;
    json_object_set_new(root, "enrolled", json_boolean(c->enrolled));
    if (!c->enrolled)
        return TACIT_OK;
    json_object_set_new(root, "device", hex_of(c->enrolment.device, sizeof c->enrolment.device));
    json_object_set_new(root, "server", json_string(c->config.server));
    add_keys(root, c);
    tacit_status status = client_tls_info(c, &info, err);
    if (status != TACIT_OK)
        return status;
    uint64_t half = info.not_before_ms + (info.not_after_ms - info.not_before_ms) / 2;
    json_object_set_new(root, "certificate",
                        json_pack("{s:o, s:o, s:b}", "not_after", time_of(info.not_after_ms),
                                  "renewal", time_of(half), "expired",
                                  tacit_clock_wall_ms() >= info.not_after_ms));
    return add_signed_policy(root, c, err);
}

static const char *text_at(json_t *root, const char *group, const char *key)
{
    const char *text = json_string_value(json_object_get(json_object_get(root, group), key));
    return text ? text : "-";
}

static double real_at(json_t *root, const char *group, const char *key)
{
    return json_number_value(json_object_get(json_object_get(root, group), key));
}

static void print_rounds(json_t *root)
{
    size_t i;
    json_t *r;
    json_array_foreach(json_object_get(root, "rounds"), i, r)
    {
        const char *reason = json_string_value(json_object_get(r, "reason"));
        printf("round        %" JSON_INTEGER_FORMAT " of lineage %.8s: %s%s%s\n",
               json_integer_value(json_object_get(r, "round")),
               json_string_value(json_object_get(r, "lineage")),
               json_string_value(json_object_get(r, "state")), *reason ? ", " : "", reason);
    }
}

static void print_account(json_t *root)
{
    double in_force = real_at(root, "account", "epsilon_cap"),
           own = real_at(root, "account", "epsilon_cap_own");
    printf("epsilon      %.6g of %.6g at delta %.3g%s\n", real_at(root, "account", "epsilon"),
           in_force, real_at(root, "account", "delta"),
           json_is_true(json_object_get(json_object_get(root, "account"), "lost"))
               ? " (the account is lost)"
               : "");
    if (real_at(root, "policy", "window_reserves") > 0)
        printf("window       %.6g for any %g reserves in a row\n",
               real_at(root, "policy", "window_epsilon"),
               real_at(root, "policy", "window_reserves"));
    if (json_is_object(json_object_get(root, "refused")))
        printf("refused      %s: %s\n", text_at(root, "refused", "time"),
               text_at(root, "refused", "reason"));
    if (in_force < own &&
        !json_is_true(json_object_get(json_object_get(root, "account"), "epsilon_cap_own_applied")))
        printf("cap          %.6g is in force; the %.6g of client.yaml is not declared yet\n",
               in_force, own);
    else if (in_force < own)
        printf("cap          lowered to %.6g by the operator; the owner's in %s is %.6g\n",
               in_force,
               json_is_true(json_object_get(json_object_get(root, "signed_policy"), "stands_in"))
                   ? "the signed policy"
                   : "client.yaml",
               own);
}

static void print_enrolment(json_t *root)
{
    json_t *key = json_object_get(root, "policy_key"),
           *signed_policy = json_object_get(root, "signed_policy");
    printf("device       %s of %s\ncertificate  until %s, renewed from %s\n",
           json_string_value(json_object_get(root, "device")),
           json_string_value(json_object_get(root, "server")),
           text_at(root, "certificate", "not_after"), text_at(root, "certificate", "renewal"));
    printf("log key      %s\ndevice key   %s\npolicy key   %s\n",
           json_string_value(json_object_get(root, "log_key")),
           json_string_value(json_object_get(root, "device_key")),
           json_is_string(key) ? json_string_value(key) : "none was pinned");
    if (!json_is_object(signed_policy))
        return;
    bool stands_in = json_is_true(json_object_get(signed_policy, "stands_in"));
    printf("policy       signed by %s (%s), serial %" JSON_INTEGER_FORMAT ": %s; because: %s%s%s\n",
           text_at(root, "signed_policy", "who"), text_at(root, "signed_policy", "role"),
           json_integer_value(json_object_get(signed_policy, "serial")),
           text_at(root, "signed_policy", "meaning"), text_at(root, "signed_policy", "reason"),
           json_is_true(json_object_get(signed_policy, "logged")) ? "" : "; not in the log yet",
           stands_in ? "" : "; client.yaml, changed or declared since, has its place");
}

static void print_people(json_t *root)
{
    json_t *adapter = json_object_get(root, "active_adapter");
    if (json_is_true(json_object_get(root, "enrolled")))
        print_enrolment(root);
    else
        printf("device       not enrolled\n");
    if (!json_is_null(json_object_get(root, "account")))
        print_account(root);
    json_t *pad = json_object_get(json_object_get(root, "policy"), "minimum_pad_seconds");
    if (pad)
        printf("upload       at least %" JSON_INTEGER_FORMAT " s after the reserve%s\n",
               json_integer_value(pad),
               json_integer_value(pad) ? "" : ": the server can see how long training takes");
    if (json_is_null(adapter))
        printf("adapter      none\n");
    else
        printf("adapter      version %" JSON_INTEGER_FORMAT " of lineage %.8s\n",
               json_integer_value(json_object_get(adapter, "version")),
               text_at(root, "active_adapter", "lineage"));
    print_rounds(root);
}

static tacit_status collect(json_t *root, client *c, tacit_error *err)
{
    tacit_status status = add_enrolment(root, c, err);
    if (status == TACIT_OK)
        status = add_account(root, c, err);
    if (status == TACIT_OK)
        status = add_adapter(root, c, err);
    return status == TACIT_OK ? add_rounds(root, c, err) : status;
}

tacit_status cmd_status(int argc, char **argv, tacit_error *err)
{
    const char *dir = NULL;
    bool json = false, help = false;
    client *c;
    const tacit_option table[] = {
        {"dir", 0, TACIT_OPTION_TEXT, &dir, true, "DIR", "the device's folder", 0, 0},
        {"json", 0, TACIT_OPTION_FLAG, &json, false, NULL, "print JSON", 0, 0},
        {.name = NULL},
    };
    const tacit_usage usage = {"tacit-client status", NULL, 0, 0,
                               "account, rounds, adapter and certificate of this device"};
    tacit_status status = tacit_options_parse(&usage, table, argc, argv, NULL, NULL, &help, err);
    if (status != TACIT_OK || help)
        return status;
    status = client_open(&c, dir, CLIENT_READS, err);
    if (status != TACIT_OK)
        return status;
    json_t *root = json_object();
    status = collect(root, c, err);
    if (status == TACIT_OK && json)
        status = tacit_json_print(json_incref(root), TACIT_JSON_DIGITS, err);
    else if (status == TACIT_OK)
        print_people(root);
    json_decref(root);
    client_close(c);
    return status;
}
