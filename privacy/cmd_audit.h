/* What the commands that audit an export have in common: their options, the audit, the verdict. */
#ifndef TACIT_PRIVACY_CMD_AUDIT_H
#define TACIT_PRIVACY_CMD_AUDIT_H

#include "common/options.h"
#include "privacy/audit.h"

#include <jansson.h>

typedef struct audit_input {
    tacit_option_list receipts; /* from the command line, as are the next three */
    const char *log_key, *witness;
    bool allow_non_private;
    bool keep_points; /* as in tacit_audit_options */

    tacit_audit audit;
    json_t *schedules; /* schedule_list of the audit */
} audit_input;

/* The rows of these options, for a table of tacit_option. */
/* clang-format off */
#define AUDIT_INPUT_OPTIONS(in)                                                                    \
    {"receipt", 0, TACIT_OPTION_LIST, &(in)->receipts, false, "FILE",                              \
     "a device's receipt to hold against the log", 0, 0},                         \
    {"log-key", 0, TACIT_OPTION_TEXT, &(in)->log_key, false, "VKEY",                               \
     "the log's key as a device pinned it (NAME+ID+BASE64)", 0, 0},                                \
    {"witness", 0, TACIT_OPTION_TEXT, &(in)->witness, false, "VKEY",                               \
     "a witness that must have cosigned the log", 0, 0},                                           \
    {"allow-non-private", 0, TACIT_OPTION_FLAG, &(in)->allow_non_private, false, NULL,             \
     "rounds of mechanism none are no violation", 0, 0}
/* clang-format on */

/* Reads the export and the receipts and runs every check. On failure nothing is to be freed. */
tacit_status audit_input_run(audit_input *in, const char *folder,
                             tacit_error *err) TACIT_MUST_CHECK;
void audit_input_free(audit_input *in);

/* TACIT_INTEGRITY with the number of violations and the first, or TACIT_OK. */
tacit_status audit_verdict(const tacit_audit *audit, const char *folder,
                           tacit_error *err) TACIT_MUST_CHECK;

#endif
