#include "privacy/cmd_audit.h"

#include "common/file.h"
#include "privacy/receipt.h"
#include "privacy/verify_schedules.h"

#include <stdlib.h>

typedef struct receipt_files {
    tacit_span span[TACIT_OPTION_LIST_MAX];
    uint8_t *data[TACIT_OPTION_LIST_MAX];
    size_t count;
} receipt_files;

static tacit_status receipts_read(receipt_files *files, const tacit_option_list *paths,
                                  tacit_error *err)
{
    for (size_t i = 0; i < paths->count; i++) {
        size_t size;
        tacit_status status =
            tacit_file_read(paths->item[i], TACIT_RECEIPT_MAX, &files->data[i], &size, err);
        if (status != TACIT_OK)
            return status;
        files->span[i] = (tacit_span){files->data[i], size};
        files->count++;
    }
    return TACIT_OK;
}

static tacit_status audit_folder(audit_input *in, const char *folder,
                                 const tacit_audit_options *options, tacit_error *err)
{
    tacit_export log;
    tacit_status status = tacit_status_of_input(tacit_export_read(&log, folder, err), err);
    if (status != TACIT_OK)
        return status;
    status = tacit_status_of_input(tacit_audit_run(&in->audit, &log, options, err), err);
    if (status == TACIT_OK && !(in->schedules = schedule_list(&in->audit))) {
        tacit_audit_free(&in->audit);
        status = tacit_fail(err, TACIT_NO_MEMORY, "%s: no memory for its schedules", folder);
    }
    tacit_export_free(&log);
    return status;
}

tacit_status audit_input_run(audit_input *in, const char *folder, tacit_error *err)
{
    receipt_files files = {.count = 0};
    tacit_note_key pinned;
    tacit_pool *pool = NULL;
    tacit_status status;
    TACIT_TRY(tacit_status_of_input(receipts_read(&files, &in->receipts, err), err), done);
    if (in->log_key && tacit_note_key_parse(&pinned, in->log_key, err) != TACIT_OK) {
        err->status = TACIT_USAGE; /* a word of the command line, like any other */
        status = tacit_fail_context(err, "--log-key");
        goto done;
    }
    TACIT_TRY(tacit_pool_new(&pool, 0, err), done);
    const tacit_audit_options options = {.allow_non_private = in->allow_non_private,
                                         .keep_points = in->keep_points,
                                         .receipts = files.span,
                                         .receipt_names = in->receipts.item,
                                         .receipt_count = files.count,
                                         .log_key = in->log_key ? &pinned : NULL,
                                         .pool = pool};
    status = audit_folder(in, folder, &options, err);
done:
    tacit_pool_free(pool);
    for (size_t i = 0; i < files.count; i++)
        free(files.data[i]);
    return status;
}

void audit_input_free(audit_input *in)
{
    json_decref(in->schedules);
    tacit_audit_free(&in->audit);
}

tacit_status audit_verdict(const tacit_audit *audit, const char *folder, tacit_error *err)
{
    if (!audit->violation_count)
        return TACIT_OK;
    return tacit_fail(err, TACIT_INTEGRITY, "%s: %zu violation%s, the first is %s", folder,
                      audit->violation_count, audit->violation_count == 1 ? "" : "s",
                      audit->violations[0].kind);
}
