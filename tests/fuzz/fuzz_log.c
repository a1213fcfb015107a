/* Any bytes as an exported log.bin: split, every entry read, the whole audited. */
#include "fuzz_target.h"

#include "privacy/audit.h"

#include <string.h>

bool fuzz_accepted;

/* The key that the log says it began under, so that the audit goes as deep as it can. */
static void take_log_key(tacit_export *log)
{
    tacit_entry e;
    if (log->count &&
        tacit_entry_read(&e, log->entries[0].data, log->entries[0].size, NULL) == TACIT_OK) {
        if (e.entry->body_case == TACIT__ENTRY__BODY_SERVER_START)
            (void)!tacit_note_key_make(&log->log_key, e.entry->server_start->origin,
                                       e.entry->server_start->log_key.data, NULL);
        tacit_entry_close(&e);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const tacit_audit_options options;
    static char note[] = "";
    tacit_export log = {.checkpoint = note};
    tacit_audit audit;
    tacit_error err;
    fuzz_accepted = tacit_export_split(data, size, &log.entries, &log.count, &err) == TACIT_OK;
    if (!fuzz_accepted)
        return 0;
    take_log_key(&log);
    for (size_t i = 0; i < log.count; i++) {
        tacit_entry e;
        bool opened =
            tacit_entry_open(&e, log.entries[i].data, log.entries[i].size, &err) == TACIT_OK;
        fuzz_accepted = fuzz_accepted && opened;
        if (opened)
            FUZZ_CHECK(e.entry && e.envelope->signer.len == 32);
        tacit_entry_close(&e);
    }
    FUZZ_CHECK(tacit_audit_run(&audit, &log, &options, &err) == TACIT_OK);
    FUZZ_CHECK(audit.violation_count > 0); /* no checkpoint covers it */
    tacit_audit_free(&audit);
    free(log.entries);
    return 0;
}
