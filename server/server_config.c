#include "server/server_config.h"

#include "common/certificate.h"
#include "common/file.h"

#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define AT(field) offsetof(server_config, field)

static const tacit_config_row config_rows[] = {
    {.key = "listen.host", .kind = TACIT_CONFIG_TEXT, .at = AT(host), .required = true, .max = 255},
    {.key = "listen.port",
     .kind = TACIT_CONFIG_U64,
     .at = AT(port),
     .required = true,
     .max = 65535},
    {.key = "listen.enrol_port",
     .kind = TACIT_CONFIG_U64,
     .at = AT(enrol_port),
     .required = true,
     .max = 65535},
    {.key = "listen.names",
     .kind = TACIT_CONFIG_LIST,
     .at = AT(names),
     .required = true,
     .min = 1,
     .max = 16},
    {.key = "listen.workers", .kind = TACIT_CONFIG_U64, .at = AT(workers), .min = 1, .max = 64},
    {.key = "listen.max_connections",
     .kind = TACIT_CONFIG_U64,
     .at = AT(max_connections),
     .min = 1,
     .max = 100000},
    {.key = "listen.max_per_address",
     .kind = TACIT_CONFIG_U64,
     .at = AT(max_per_address),
     .min = 1,
     .max = 100000},
    {.key = "uploads.max_mib",
     .kind = TACIT_CONFIG_U64,
     .at = AT(uploads_max_mib),
     .min = 1,
     .max = (uint64_t)1 << 30},
    {.key = "model.text", .kind = TACIT_CONFIG_TEXT, .at = AT(model_text), .required = true},
    {.key = "model.mmproj", .kind = TACIT_CONFIG_LIST, .at = AT(model_mmproj), .max = 4},
    {.key = "gate.data", .kind = TACIT_CONFIG_TEXT, .at = AT(gate_data)},
    {.key = "gate.margin", .kind = TACIT_CONFIG_REAL, .at = AT(gate_margin), .min = 0, .max = 1},
    {.key = "gate.seconds",
     .kind = TACIT_CONFIG_U64,
     .at = AT(gate_seconds),
     .min = 1,
     .max = 86400},
    {.key = "gate.tacit", .kind = TACIT_CONFIG_TEXT, .at = AT(tacit)},
    {.key = "certificate_days",
     .kind = TACIT_CONFIG_U64,
     .at = AT(certificate_days),
     .min = 1,
     .max = 398},
    {.key = "poll_ms", .kind = TACIT_CONFIG_U64, .at = AT(poll_ms), .min = 10, .max = 86400000},
    {.key = NULL},
};

/* The program `tacit` beside the one that runs. */
static tacit_status default_tacit(char **out, tacit_error *err)
{
    char own[4096];
    ssize_t n = readlink("/proc/self/exe", own, sizeof own - 8);
    if (n <= 0)
        return tacit_fail(err, TACIT_FAILED,
                          "cannot find the program's own folder; set gate.tacit");
    own[n] = '\0';
    char *slash = strrchr(own, '/');
    snprintf(slash + 1, sizeof own - (size_t)(slash + 1 - own), "tacit");
    *out = strdup(own);
    return *out ? TACIT_OK : tacit_fail(err, TACIT_NO_MEMORY, "no memory for a path");
}

tacit_status server_config_load(server_config *out, const char *dir, tacit_error *err)
{
    char path[4096];
    *out = (server_config){.gate_margin = 0.02,
                           .gate_seconds = 600,
                           .certificate_days = TACIT_CERTIFICATE_DAYS,
                           .poll_ms = 30000,
                           .workers = 2,
                           .max_connections = 1024,
                           .max_per_address = 256,
                           .uploads_max_mib = 16384};
    tacit_status status = tacit_file_join(path, sizeof path, dir, "server.yaml", err);
    if (status == TACIT_OK)
        status = tacit_config_read(path, config_rows, out, err);
    if (status != TACIT_OK)
        return status;
    TACIT_TRY(tacit_config_anchor(&out->model_text, dir, err), fail);
    for (size_t i = 0; i < out->model_mmproj.count; i++)
        TACIT_TRY(tacit_config_anchor(&out->model_mmproj.item[i], dir, err), fail);
    TACIT_TRY(tacit_config_anchor(&out->gate_data, dir, err), fail);
    TACIT_TRY(out->tacit ? tacit_config_anchor(&out->tacit, dir, err)
                         : default_tacit(&out->tacit, err),
              fail);
    return TACIT_OK;
fail:
    server_config_free(out);
    return status;
}

void server_config_free(server_config *c)
{
    tacit_config_free(config_rows, c);
}

/* Appends formatted text to a buffer that was planned large enough; too long is cut and noticed. */
TACIT_PRINTF(4, 5)
static void add(char *text, size_t size, size_t *used, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    int n = vsnprintf(text + *used, size - *used, format, args);
    va_end(args);
    *used = n < 0 || (size_t)n >= size - *used ? size : *used + (size_t)n;
}

static void add_list(char *text, size_t size, size_t *used, const char *const *item, size_t count)
{
    for (size_t i = 0; i < count && *used < size; i++)
        add(text, size, used, "    - \"%s\"\n", item[i]);
}

static void describe_model(const server_config_choice *choice, char *text, size_t size,
                           size_t *used)
{
    add(text, size, used, "model:  # the base that devices have; never sent to them\n");
    add(text, size, used, "  text: \"%s\"\n",
        choice->model_text ? choice->model_text : "model.gguf");
    if (choice->n_mmproj) {
        add(text, size, used, "  mmproj:\n");
        add_list(text, size, used, choice->mmproj, choice->n_mmproj);
    }
    if (*used < size && choice->gate_data)
        add(text, size, used,
            "gate:   # a candidate is published only if it passes on this held-out set\n"
            "  data: \"%s\"\n  margin: 0.02   # largest drop of exact match that passes\n"
            "  seconds: 600\n",
            choice->gate_data);
}

tacit_status server_config_write(const char *dir, const server_config_choice *choice,
                                 tacit_error *err)
{
    char path[4096], text[32768];
    size_t used = 0;
    tacit_status status = tacit_file_join(path, sizeof path, dir, "server.yaml", err);
    if (status != TACIT_OK)
        return status;
    if (access(path, F_OK) == 0)
        return tacit_fail(err, TACIT_CONFLICT, "%s exists already; edit it or take another folder",
                          path);
    add(text, sizeof text, &used,
        "# Tacit's aggregation server. Paths are relative to this folder.\n"
        "listen:\n  host: \"%s\"\n  port: %llu         # devices, mutual TLS; 0: a free one\n"
        "  enrol_port: %llu   # enrolment, server-authenticated TLS; 0: a free one\n"
        "  names:             # in the server's certificate: how devices call this host\n",
        choice->host, (unsigned long long)choice->port, (unsigned long long)choice->enrol_port);
    add_list(text, sizeof text, &used, choice->names, choice->n_names);
    if (used < sizeof text)
        add(text, sizeof text, &used,
            "  workers: 2\n  max_connections: 1024\n"
            "  max_per_address: 256  # raise it when more devices come from behind one address\n");
    if (used < sizeof text)
        describe_model(choice, text, sizeof text, &used);
    if (used < sizeof text)
        add(text, sizeof text, &used,
            "certificate_days: 30  # devices renew theirs at half of this, this server its own\n"
            "poll_ms: 30000        # devices ask again after this long\n"
            "uploads:\n  max_mib: 16384  # disk for the sealed updates of one round\n");
    if (used >= sizeof text)
        return tacit_fail(err, TACIT_USAGE, "server.yaml: names and paths are too long");
    return tacit_file_write(path, text, used, 0640, err);
}
