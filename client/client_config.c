#include "client/client_config.h"

#include "client/plan_check.h"
#include "common/file.h"

#include <errno.h>
#include <limits.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { PAD_SECONDS_DEFAULT = 60, STEPS_DEFAULT = 1000 };

#define AT(field) offsetof(client_config, field)

static const char *const unit_words[] = {"record", "subject", "device", NULL};
static const tacit_privacy_unit unit_values[] = {TACIT_UNIT_RECORD, TACIT_UNIT_SUBJECT,
                                                 TACIT_UNIT_DEVICE};

/* Numbers that the file holds as 64 bits and the policy as 32. */
typedef struct config_file {
    client_config config;
    uint64_t cohort, quorum, devices, window_reserves;
    char *witness;
} config_file;

#define FILE_AT(field) offsetof(config_file, field)

static const tacit_config_row config_rows[] = {
    {.key = "server", .kind = TACIT_CONFIG_TEXT, .at = AT(server), .min = 1, .max = 512},
    {.key = "enrol", .kind = TACIT_CONFIG_TEXT, .at = AT(enrol), .min = 1, .max = 512},
    {.key = "model.text", .kind = TACIT_CONFIG_TEXT, .at = AT(model_text), .required = true},
    {.key = "model.mmproj", .kind = TACIT_CONFIG_LIST, .at = AT(model_mmproj), .max = 4},
    {.key = "data", .kind = TACIT_CONFIG_TEXT, .at = AT(data), .required = true},
    {.key = "threads", .kind = TACIT_CONFIG_U64, .at = AT(threads), .min = 0, .max = 256},
    {.key = "poll_seconds",
     .kind = TACIT_CONFIG_U64,
     .at = AT(poll_seconds),
     .min = 0,
     .max = 86400},
    {.key = "policy.epsilon",
     .kind = TACIT_CONFIG_REAL,
     .at = AT(policy.epsilon_cap),
     .required = true,
     .min = 1e-6,
     .max = 1e6},
    {.key = "policy.delta",
     .kind = TACIT_CONFIG_REAL,
     .at = AT(policy.delta),
     .required = true,
     .min = 1e-300,
     .max = 0.5},
    {.key = "policy.unit",
     .kind = TACIT_CONFIG_WORD,
     .at = AT(unit),
     .required = true,
     .words = unit_words},
    {.key = "policy.minimum_noise_multiplier",
     .kind = TACIT_CONFIG_REAL,
     .at = AT(policy.minimum_noise_multiplier),
     .required = true,
     .min = 0,
     .max = 1e4},
    {.key = "policy.minimum_cohort",
     .kind = TACIT_CONFIG_U64,
     .at = FILE_AT(cohort),
     .required = true,
     .min = 1,
     .max = UINT32_MAX},
    {.key = "policy.minimum_quorum",
     .kind = TACIT_CONFIG_U64,
     .at = FILE_AT(quorum),
     .required = true,
     .min = 1,
     .max = UINT32_MAX},
    {.key = "policy.minimum_pad_seconds",
     .kind = TACIT_CONFIG_U64,
     .at = AT(minimum_pad_seconds),
     .min = 0,
     .max = PLAN_PAD_SECONDS_MAX},
    {.key = "policy.maximum_steps",
     .kind = TACIT_CONFIG_U64,
     .at = AT(maximum_steps),
     .min = 1,
     .max = TACIT_STEPS_MAX},
    {.key = "policy.allow_non_private",
     .kind = TACIT_CONFIG_BOOL,
     .at = AT(policy.allow_non_private)},
    {.key = "policy.devices_per_subject",
     .kind = TACIT_CONFIG_U64,
     .at = FILE_AT(devices),
     .min = 1,
     .max = 1000000},
    {.key = "policy.witness_key",
     .kind = TACIT_CONFIG_TEXT,
     .at = FILE_AT(witness),
     .min = 1,
     .max = TACIT_VKEY_MAX - 1},
    {.key = "policy.lineage_epsilon",
     .kind = TACIT_CONFIG_REAL,
     .at = AT(lineage_epsilon),
     .min = 0,
     .max = 1e6},
    {.key = "policy.window_epsilon",
     .kind = TACIT_CONFIG_REAL,
     .at = AT(policy.window_epsilon),
     .min = 0,
     .max = 1e6},
    {.key = "policy.window_reserves",
     .kind = TACIT_CONFIG_U64,
     .at = FILE_AT(window_reserves),
     .min = 0,
     .max = TACIT_WINDOW_RESERVES_MAX},
    {.key = NULL},
};

static tacit_status anchor_paths(client_config *c, const char *dir, tacit_error *err)
{
    tacit_status status = tacit_config_anchor(&c->model_text, dir, err);
    for (size_t i = 0; i < c->model_mmproj.count && status == TACIT_OK; i++)
        status = tacit_config_anchor(&c->model_mmproj.item[i], dir, err);
    return status == TACIT_OK ? tacit_config_anchor(&c->data, dir, err) : status;
}

static config_file file_defaults(void)
{
    return (config_file){.config.minimum_pad_seconds = PAD_SECONDS_DEFAULT,
                         .config.maximum_steps = STEPS_DEFAULT,
                         .devices = 1};
}

/* Puts together what the file holds apart. */
static tacit_status finish_policy(config_file *file, const char *path, tacit_error *err)
{
    tacit_policy *policy = &file->config.policy;
    policy->minimum_cohort = (uint32_t)file->cohort;
    policy->minimum_quorum = (uint32_t)file->quorum;
    policy->devices_per_subject = (uint32_t)file->devices;
    policy->unit = unit_values[file->config.unit];
    if (file->witness)
        snprintf(policy->witness, sizeof policy->witness, "%s", file->witness);
    free(file->witness);
    file->witness = NULL;
    policy->window_reserves = (uint32_t)file->window_reserves;
    if (tacit_policy_validate(policy, err) != TACIT_OK)
        return tacit_fail_context(err, "%s", path);
    return TACIT_OK;
}

tacit_status client_config_load(client_config *out, const char *dir, tacit_error *err)
{
    char path[4096];
    config_file file = file_defaults();
    *out = (client_config){0};
    tacit_status status = tacit_file_join(path, sizeof path, dir, "client.yaml", err);
    if (status == TACIT_OK)
        status = tacit_config_read(path, config_rows, &file, err);
    if (status == TACIT_NOT_FOUND)
        return tacit_fail(err, TACIT_NOT_FOUND,
                          "%s: no such file; 'tacit-client enroll --dir %s' makes it", path, dir);
    if (status != TACIT_OK)
        return status;
    status = finish_policy(&file, path, err);
    if (status == TACIT_OK)
        status = anchor_paths(&file.config, dir, err);
    if (status == TACIT_OK)
        *out = file.config;
    else
        client_config_free(&file.config);
    return status;
}

tacit_status client_config_policy(tacit_policy *out, const char *path, tacit_error *err)
{
    tacit_config_row rows[sizeof config_rows / sizeof config_rows[0]];
    config_file file = file_defaults();
    memcpy(rows, config_rows, sizeof rows);
    for (size_t i = 0; rows[i].key; i++)
        if (strncmp(rows[i].key, "policy.", 7) != 0)
            rows[i].required = false;
    tacit_status status = tacit_config_read(path, rows, &file, err);
    if (status != TACIT_OK)
        return status;
    status = finish_policy(&file, path, err);
    *out = file.config.policy;
    client_config_free(&file.config);
    return status;
}

void client_config_free(client_config *c)
{
    config_file file = {.config = *c};
    tacit_config_free(config_rows, &file);
    *c = (client_config){0};
}

/* --- writing --- */

/* Text that is built to a fixed size; too long is noticed once, at the end. */
typedef struct config_text {
    char text[32768];
    size_t used;
} config_text;

TACIT_PRINTF(2, 3)
static void add(config_text *t, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    int n = vsnprintf(t->text + t->used, sizeof t->text - t->used, format, args);
    va_end(args);
    bool fits = n >= 0 && (size_t)n < sizeof t->text - t->used;
    t->used = fits ? t->used + (size_t)n : sizeof t->text - 1;
}

/* A double-quoted YAML scalar. */
static void add_quoted(config_text *t, const char *value)
{
    add(t, "\"");
    for (const char *c = value; *c; c++)
        add(t, *c == '"' || *c == '\\' ? "\\%c" : "%c", *c);
    add(t, "\"\n");
}

/* Paths given on a command line are meant from where it was typed. */
static void add_path(config_text *t, const char *path)
{
    char here[4096], joined[8200];
    if (*path != '/' && getcwd(here, sizeof here)) {
        snprintf(joined, sizeof joined, "%s/%s", here, path);
        path = joined;
    }
    add_quoted(t, path);
}

static void add_files(config_text *t, const client_config_choice *choice)
{
    add(t, "model:  # the base that is trained on; never sent or fetched\n  text: ");
    if (choice->model_text)
        add_path(t, choice->model_text);
    else
        add(t, "model.gguf\n");
    if (choice->n_mmproj)
        add(t, "  mmproj:\n");
    for (size_t i = 0; i < choice->n_mmproj; i++) {
        add(t, "    - ");
        add_path(t, choice->mmproj[i]);
    }
    add(t, "data: ");
    if (choice->data)
        add_path(t, choice->data);
    else
        add(t, "data.jsonl\n");
}

static const char policy_before_unit[] =
    "threads: 0        # 0: all that the machine gives\n"
    "poll_seconds: 0   # between check-ins; 0: as the server says\n"
    "policy:           # what this device demands of every plan, and the most it ever spends\n"
    "  epsilon: 8                      # for life, all lineages and local training together\n"
    "  delta: 1e-5                     # cannot be changed later\n";

static const char policy_after_unit[] =
    "  minimum_noise_multiplier: 0.5\n"
    "  minimum_cohort: 2               # devices asked in a round\n"
    "  minimum_quorum: 2               # updates summed before anything is published\n"
    "  minimum_pad_seconds: 60         # least wait from reserve to upload, so that the server "
    "does\n"
    "                                  # not see how long training took; 0 lets it see\n"
    "  maximum_steps: 1000             # of a round: bounds what a plan costs in time and power\n"
    "  allow_non_private: false        # true: take plans without noise (epsilon infinite)\n"
    "  devices_per_subject: 1          # most devices that one subject can appear on\n"
    "  lineage_epsilon: 0              # most that one lineage may hold of epsilon; 0: all of it\n"
    "  window_epsilon: 0               # most that window_reserves rounds in a row may cost, in\n"
    "  window_reserves: 0              # the order in which they were reserved; 0: no window\n"
    "  # witness_key: NAME+ID+KEY       # take plans only from a log that this witness cosigned\n";

static tacit_status check_readable(const char *path, tacit_error *err)
{
    if (!path || access(path, R_OK) == 0)
        return TACIT_OK;
    return tacit_fail(err, TACIT_BAD_INPUT, "%s: cannot read: %s; name a file that is there", path,
                      strerror(errno));
}

/* A wrong path in a new client.yaml would outlive the command that it was typed in. */
static tacit_status check_choice(const client_config_choice *choice, tacit_error *err)
{
    tacit_status status = check_readable(choice->model_text, err);
    for (size_t i = 0; status == TACIT_OK && i < choice->n_mmproj; i++)
        status = check_readable(choice->mmproj[i], err);
    return status == TACIT_OK ? check_readable(choice->data, err) : status;
}

static bool same_file(const char *a, const char *b)
{
    char real_a[PATH_MAX], real_b[PATH_MAX];
    return strcmp(a, b) == 0 ||
           (realpath(a, real_a) && realpath(b, real_b) && strcmp(real_a, real_b) == 0);
}

static tacit_status check_same(const char *dir, const char *key, const char *chosen,
                               const char *written, tacit_error *err)
{
    if (!chosen || (written && same_file(chosen, written)))
        return TACIT_OK;
    return tacit_fail(err, TACIT_CONFLICT,
                      "%s/client.yaml: '%s' is %s there, not %s; edit it, or leave the option out",
                      dir, key, written ? written : "not given", chosen);
}

/* What is typed counts for a new file alone: it must not be passed over in silence later. */
static tacit_status check_written(const char *dir, const client_config_choice *choice,
                                  tacit_error *err)
{
    client_config c;
    tacit_status status = client_config_load(&c, dir, err);
    if (status != TACIT_OK)
        return status;
    status = check_same(dir, "model.text", choice->model_text, c.model_text, err);
    for (size_t i = 0; status == TACIT_OK && i < choice->n_mmproj; i++)
        status = check_same(dir, "model.mmproj", choice->mmproj[i],
                            i < c.model_mmproj.count ? c.model_mmproj.item[i] : NULL, err);
    if (status == TACIT_OK && !choice->data_once)
        status = check_same(dir, "data", choice->data, c.data, err);
    client_config_free(&c);
    return status;
}

tacit_status client_config_create(const char *dir, const client_config_choice *choice,
                                  tacit_error *err)
{
    char path[4096];
    config_text t = {.used = 0};
    tacit_status status = tacit_file_join(path, sizeof path, dir, "client.yaml", err);
    if (status == TACIT_OK && access(path, F_OK) == 0)
        return tacit_status_of_input(check_written(dir, choice, err), err);
    if (status == TACIT_OK)
        status = check_choice(choice, err);
    if (status != TACIT_OK)
        return status;
    add(&t, "# Tacit's device agent. Paths are relative to this folder.\n");
    add_files(&t, choice);
    add(&t, "%s", policy_before_unit);
    add(&t,
        "  unit: %-8s                  # what is protected, for life: record, subject or device\n",
        choice->unit ? choice->unit : "subject");
    add(&t, "%s", policy_after_unit);
    if (t.used >= sizeof t.text - 1)
        return tacit_fail(err, TACIT_USAGE, "client.yaml: the paths are too long");
    return tacit_file_write(path, t.text, t.used, 0600, err);
}

/* TACIT_OK and *have true when both keys stand there with these values. */
static tacit_status compare_server(const char *dir, const char *server, const char *enrol,
                                   bool *have, tacit_error *err)
{
    client_config c;
    tacit_status status = client_config_load(&c, dir, err);
    if (status != TACIT_OK)
        return status;
    *have = c.server && c.enrol && !strcmp(c.server, server) && !strcmp(c.enrol, enrol);
    if (!*have && (c.server || c.enrol))
        status = tacit_fail(err, TACIT_CONFLICT,
                            "%s/client.yaml names the server %s; remove the keys 'server' and "
                            "'enrol' there to enrol with %s",
                            dir, c.server ? c.server : c.enrol, server);
    client_config_free(&c);
    return status;
}

tacit_status client_config_set_server(const char *dir, const char *server, const char *enrol,
                                      tacit_error *err)
{
    char path[4096];
    uint8_t *old = NULL;
    size_t size = 0;
    bool have;
    config_text t = {.used = 0};
    tacit_status status = compare_server(dir, server, enrol, &have, err);
    if (status != TACIT_OK || have)
        return status;
    TACIT_TRY(tacit_file_join(path, sizeof path, dir, "client.yaml", err), done);
    TACIT_TRY(tacit_file_read(path, sizeof t.text - 2048, &old, &size, err), done);
    add(&t, "%s%s", (char *)old, size && old[size - 1] == '\n' ? "" : "\n");
    add(&t, "# written by enroll\nserver: ");
    add_quoted(&t, server);
    add(&t, "enrol: ");
    add_quoted(&t, enrol);
    status = tacit_file_write(path, t.text, t.used, 0600, err);
done:
    free(old);
    return status;
}
