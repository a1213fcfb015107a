/* DIR/client.yaml: what the owner of a device sets. The file that `enroll` writes is the manual of
 * its keys. */
#ifndef TACIT_CLIENT_CLIENT_CONFIG_H
#define TACIT_CLIENT_CLIENT_CONFIG_H

#include "common/config.h"
#include "common/status.h"
#include "privacy/policy.h"

#include <stdint.h>

typedef struct client_config {
    char *server; /* "tls+tcp://HOST:PORT"; NULL before enrolment */
    char *enrol;  /* the enrolment listener; NULL before enrolment */
    char *model_text;
    tacit_config_list model_mmproj;
    char *data;            /* JSON Lines; media are relative to it */
    uint64_t threads;      /* 0: all that the machine gives */
    uint64_t poll_seconds; /* between check-ins; 0: as the server says */
    tacit_policy policy;
    uint64_t minimum_pad_seconds; /* least wait from reserve to upload of a plan with a guarantee */
    uint64_t maximum_steps;       /* of a round */
    double lineage_epsilon;       /* sub-cap of a lineage that has none of its own; 0: the cap */
    int unit;                     /* index into the words record, subject, device */
} client_config;

/* Paths in the file are relative to `dir`; they come out absolute or as given. TACIT_NOT_FOUND when
 * there is no file, TACIT_BAD_INPUT names file, line and key. Free with client_config_free. */
tacit_status client_config_load(client_config *out, const char *dir,
                                tacit_error *err) TACIT_MUST_CHECK;
void client_config_free(client_config *c);

/* The `policy` of a file in the form of client.yaml; its other keys need not be there. The keys of
 * `policy` that are the device's own affair (minimum_pad_seconds, maximum_steps, lineage_epsilon)
 * are not part of it. Errors as client_config_load's. */
tacit_status client_config_policy(tacit_policy *out, const char *path,
                                  tacit_error *err) TACIT_MUST_CHECK;

typedef struct client_config_choice {
    const char *model_text; /* NULL: model.gguf */
    const char *const *mmproj;
    size_t n_mmproj;
    const char *data; /* NULL: data.jsonl */
    bool data_once;   /* data is for one run: a file that is there may name other data */
    const char *unit; /* of the new file's policy: record, subject or device; NULL: subject */
} client_config_choice;

/* Writes a commented client.yaml with the default policy when there is none. Relative paths of the
 * choice are taken from the working folder. TACIT_BAD_INPUT when a file of the choice cannot be
 * read (nothing is written then), TACIT_CONFLICT when there is a client.yaml that names others. */
tacit_status client_config_create(const char *dir, const client_config_choice *choice,
                                  tacit_error *err) TACIT_MUST_CHECK;

/* Adds the keys `server` and `enrol` at the end of the file. When the file has them with other
 * values: TACIT_CONFLICT. */
tacit_status client_config_set_server(const char *dir, const char *server, const char *enrol,
                                      tacit_error *err) TACIT_MUST_CHECK;

#endif
