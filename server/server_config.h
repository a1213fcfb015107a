/* DIR/server.yaml: what the operator sets. The file that `init` writes is the manual of its keys.
 */
#ifndef TACIT_SERVER_SERVER_CONFIG_H
#define TACIT_SERVER_SERVER_CONFIG_H

#include "common/config.h"
#include "common/status.h"

#include <stdint.h>

typedef struct server_config {
    char *host;              /* address to listen on */
    uint64_t port;           /* devices; 0: a free one */
    uint64_t enrol_port;     /* enrolment and renewal of expired certificates; 0: a free one */
    tacit_config_list names; /* DNS names and addresses in the server's certificate */
    char *model_text;
    tacit_config_list model_mmproj;
    char *gate_data;    /* held-out set of the server; absent: publication without evaluation */
    double gate_margin; /* largest drop of exact match, 0 to 1, that is still published */
    uint64_t gate_seconds;
    char *tacit;               /* program that evaluates; absent: beside this one */
    uint64_t certificate_days; /* life of the certificates of devices and server */
    uint64_t poll_ms;
    uint64_t workers;
    uint64_t max_connections, max_per_address;
    uint64_t uploads_max_mib; /* sealed updates of one round on disk */
} server_config;

/* Paths in the file are relative to `dir`; they come out absolute or as given. Free with
 * server_config_free. */
tacit_status server_config_load(server_config *out, const char *dir,
                                tacit_error *err) TACIT_MUST_CHECK;
void server_config_free(server_config *c);

/* Writes a commented server.yaml; an existing one is TACIT_CONFLICT. */
typedef struct server_config_choice {
    const char *host;
    uint64_t port, enrol_port;
    const char *const *names;
    size_t n_names;
    const char *model_text; /* NULL: left out */
    const char *const *mmproj;
    size_t n_mmproj;
    const char *gate_data; /* NULL: left out */
} server_config_choice;

tacit_status server_config_write(const char *dir, const server_config_choice *choice,
                                 tacit_error *err) TACIT_MUST_CHECK;

#endif
