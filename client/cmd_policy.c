/* tacit-client policy key, sign, show: for whoever may raise devices' caps without being there. The
 * private key stays with that person; what travels are the public key and signed policies. */
#include "client/client_commands.h"

#include "client/client_config.h"
#include "common/clock.h"
#include "common/file.h"
#include "common/json_print.h"
#include "common/key_text.h"
#include "common/message.h"
#include "common/options.h"
#include "privacy/signed_policy.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* --- key --- */

tacit_status cmd_policy_key(int argc, char **argv, tacit_error *err)
{
    const char *path = NULL;
    char text[TACIT_KEY_TEXT];
    size_t n;
    bool json = false, help = false, public_half = false;
    tacit_identity *key;
    const tacit_option table[] = {
        {"public", 0, TACIT_OPTION_FLAG, &public_half, false, NULL,
         "print the public key of a FILE that is there", 0, 0},
        {"json", 0, TACIT_OPTION_FLAG, &json, false, NULL, "print JSON", 0, 0},
        {.name = NULL},
    };
    const tacit_usage usage = {"tacit-client policy key", "FILE", 1, 1,
                               "makes a private policy key in FILE, never on the server, and "
                               "prints the public one, which devices pin ('enroll --policy-key')"};
    tacit_status status = tacit_options_parse(&usage, table, argc, argv, &path, &n, &help, err);
    if (status != TACIT_OK || help)
        return status;
    status = public_half ? tacit_status_of_input(tacit_identity_load(&key, path, err), err)
                         : tacit_identity_create(&key, path, err);
    if (status != TACIT_OK)
        return status;
    tacit_key_text_write(text, TACIT_KEY_POLICY, tacit_identity_sign_key(key));
    tacit_identity_free(key);
    if (json)
        return tacit_json_print(json_pack("{s:s}", "policy_key", text), TACIT_JSON_DIGITS, err);
    puts(text);
    return TACIT_OK;
}

/* --- what a signed policy says --- */

static json_t *describe(const tacit_signed_policy *p)
{
    const tacit_policy *policy = &p->policy;
    char device[TACIT_KEY_TEXT];
    tacit_key_text_write(device, TACIT_KEY_DEVICE, p->message->identity_key.data);
    json_t *root =
        json_pack("{s:s, s:I, s:s, s:s, s:s, s:s}", "device_key", device, "serial",
                  (json_int_t)policy->serial, "who", p->message->who, "role", p->message->role,
                  "meaning", p->message->meaning, "reason", p->message->reason);
    json_t *terms = json_pack(
        "{s:f, s:f, s:s, s:f, s:I, s:I, s:b, s:I, s:f, s:I, s:s}", "epsilon", policy->epsilon_cap,
        "delta", policy->delta, "unit", tacit_privacy_unit_name(policy->unit),
        "minimum_noise_multiplier", policy->minimum_noise_multiplier, "minimum_cohort",
        (json_int_t)policy->minimum_cohort, "minimum_quorum", (json_int_t)policy->minimum_quorum,
        "allow_non_private", policy->allow_non_private, "devices_per_subject",
        (json_int_t)policy->devices_per_subject, "window_epsilon", policy->window_epsilon,
        "window_reserves", (json_int_t)policy->window_reserves, "witness_key", policy->witness);
    json_object_set_new(root, "policy", terms);
    return root;
}

static void print_values(json_t *object)
{
    const char *key;
    json_t *v;
    json_object_foreach(object, key, v)
    {
        if (json_is_object(v))
            print_values(v);
        else if (json_is_string(v))
            printf("%-26s%s\n", key, json_string_length(v) ? json_string_value(v) : "none");
        else if (json_is_boolean(v))
            printf("%-26s%s\n", key, json_is_true(v) ? "true" : "false");
        else
            printf("%-26s%.12g\n", key, json_number_value(v));
    }
}

/* `checked`: it is known who signed it. */
static tacit_status print_signed(const tacit_signed_policy *p, bool checked, bool json,
                                 tacit_error *err)
{
    json_t *root = describe(p);
    json_object_set_new(root, "signature", json_string(checked ? "holds" : "not checked"));
    if (json)
        return tacit_json_print(root, TACIT_JSON_DIGITS, err);
    print_values(root);
    json_decref(root);
    return TACIT_OK;
}

/* --- sign --- */

typedef struct signing {
    const char *key, *policy, *device, *out;
    tacit_policy_words words;
    uint64_t serial;
    bool json;
} signing;

static tacit_status parse_signing(signing *s, int argc, char **argv, bool *help, tacit_error *err)
{
    const tacit_option table[] = {
        {"key", 0, TACIT_OPTION_TEXT, &s->key, true, "FILE", "the private key of 'policy key'", 0,
         0},
        {"policy", 0, TACIT_OPTION_TEXT, &s->policy, true, "FILE.yaml",
         "the whole new policy: a file with the 'policy' of client.yaml", 0, 0},
        {"device", 0, TACIT_OPTION_TEXT, &s->device, true, "DEVICEKEY",
         "whom it is for: the device key of its 'tacit-client status'", 0, 0},
        {"who", 0, TACIT_OPTION_TEXT, &s->words.who, true, "TEXT", "who signs, for the log", 0, 0},
        {"role", 0, TACIT_OPTION_TEXT, &s->words.role, false, "TEXT", "as what (privacy officer)",
         0, 0},
        {"meaning", 0, TACIT_OPTION_TEXT, &s->words.meaning, false, "TEXT",
         "what it changes, for the log (its cap, delta, unit and least noise)", 0, 0},
        {"reason", 0, TACIT_OPTION_TEXT, &s->words.reason, true, "TEXT", "why, for the log", 0, 0},
        {"serial", 0, TACIT_OPTION_U64, &s->serial, false, "N",
         "above that of every policy signed for this device before (the time in seconds)", 1,
         (double)TACIT_SIGNED_SERIAL_MAX},
        {"out", 0, TACIT_OPTION_TEXT, &s->out, true, "FILE",
         "for 'tacit-server budget apply' or 'tacit-client budget --signed'", 0, 0},
        {"json", 0, TACIT_OPTION_FLAG, &s->json, false, NULL, "print JSON", 0, 0},
        {.name = NULL},
    };
    const tacit_usage usage = {"tacit-client policy sign", NULL, 0, 0,
                               "signs a policy for one device that pinned this key"};
    return tacit_options_parse(&usage, table, argc, argv, NULL, NULL, help, err);
}

static tacit_status read_policy(const signing *s, tacit_policy *policy, tacit_error *err)
{
    tacit_status status = tacit_status_of_input(client_config_policy(policy, s->policy, err), err);
    policy->serial = s->serial ? s->serial : tacit_clock_wall_ms() / 1000;
    return status;
}

static tacit_status sign(const signing *s, tacit_error *err)
{
    uint8_t device[TACIT_SIGN_KEY_BYTES], *bytes = NULL;
    size_t size;
    char meaning[256];
    tacit_policy policy;
    tacit_identity *key = NULL;
    tacit_signed_policy made = {0};
    tacit_policy_words words = s->words;
    const char *const source[] = {s->key, s->policy};
    tacit_status status = tacit_key_text_read(device, TACIT_KEY_DEVICE, s->device, err);
    if (status != TACIT_OK)
        return tacit_fail_context(err, "--device");
    TACIT_TRY(tacit_file_check_results(&s->out, 1, source, 2, err), done);
    TACIT_TRY(read_policy(s, &policy, err), done);
    snprintf(meaning, sizeof meaning, "cap %.6g, delta %.3g, unit %s, noise at least %.6g",
             policy.epsilon_cap, policy.delta, tacit_privacy_unit_name(policy.unit),
             policy.minimum_noise_multiplier);
    if (!words.meaning)
        words.meaning = meaning;
    TACIT_TRY(tacit_status_of_input(tacit_identity_load(&key, s->key, err), err), done);
    TACIT_TRY(tacit_signed_policy_make(&policy, device, &words, key, &bytes, &size, err), done);
    TACIT_TRY(tacit_file_write(s->out, bytes, size, 0644, err), done);
    TACIT_TRY(tacit_signed_policy_open(&made, bytes, size, err), done);
    status = print_signed(&made, true, s->json, err);
done:
    tacit_message_free(made.message);
    tacit_identity_free(key);
    free(bytes);
    return status;
}

tacit_status cmd_policy_sign(int argc, char **argv, tacit_error *err)
{
    signing s = {.words.role = "privacy officer"};
    bool help = false;
    tacit_status status = parse_signing(&s, argc, argv, &help, err);
    return status == TACIT_OK && !help ? sign(&s, err) : status;
}

/* --- show --- */

static tacit_status check_signature(const tacit_signed_policy *p, const char *text,
                                    tacit_error *err)
{
    uint8_t key[TACIT_SIGN_KEY_BYTES];
    Tacit__PolicyChanged change;
    tacit_status status = tacit_key_text_read(key, TACIT_KEY_POLICY, text, err);
    if (status != TACIT_OK)
        return tacit_fail_context(err, "--policy-key");
    tacit_signed_policy_change(p->message, &change);
    if (tacit_policy_change_signer(&change, p->policy.serial, p->message->identity_key.data, key) ==
        TACIT_POLICY_BY_KEY)
        return TACIT_OK;
    return tacit_fail(err, TACIT_INTEGRITY,
                      "signed policy: it is not signed by this policy key, or was altered");
}

tacit_status cmd_policy_show(int argc, char **argv, tacit_error *err)
{
    const char *path = NULL, *key = NULL;
    uint8_t *bytes = NULL;
    size_t n, size;
    bool json = false, help = false;
    tacit_signed_policy p = {0};
    const tacit_option table[] = {
        {"policy-key", 0, TACIT_OPTION_TEXT, &key, false, "PUBLIC",
         "check that this key signed it; without, nothing is checked", 0, 0},
        {"json", 0, TACIT_OPTION_FLAG, &json, false, NULL, "print JSON", 0, 0},
        {.name = NULL},
    };
    const tacit_usage usage = {"tacit-client policy show", "FILE", 1, 1,
                               "shows what a signed policy says"};
    tacit_status status = tacit_options_parse(&usage, table, argc, argv, &path, &n, &help, err);
    if (status != TACIT_OK || help)
        return status;
    TACIT_TRY(tacit_status_of_input(
                  tacit_file_read(path, TACIT_SIGNED_POLICY_MAX, &bytes, &size, err), err),
              done);
    TACIT_TRY(tacit_signed_policy_open(&p, bytes, size, err), done);
    if (key)
        TACIT_TRY(check_signature(&p, key, err), done);
    status = print_signed(&p, key != NULL, json, err);
done:
    tacit_message_free(p.message);
    free(bytes);
    return status;
}
