/* tacit-audit verify: an exported log, checked without its server. */
#include "common/file.h"
#include "common/options.h"
#include "common/text.h"
#include "privacy/audit.h"
#include "privacy/audit_commands.h"
#include "privacy/receipt.h"
#include "privacy/verify_schedules.h"

#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

/* --- for people --- */

static const char *const beyond_the_log[] = {
    "that a device really sampled, clipped and noised as it reserved (only its code and a test of "
    "its noise can show that)",
    "that the data of a device is what its owner believes, or that one subject is on no more "
    "devices than the policy says",
    "that a published file is what its aggregate amounts to (the updates are sealed; a receiver "
    "can "
    "check the file's digest alone)",
    "that a disk image was not rolled back in collusion with the server (a TPM counter would)",
    "that the server shows everybody this log: hold receipts of devices against it (--receipt); "
    "no witness has cosigned it",
};

static void print_number(double v)
{
    if (isinf(v))
        printf("infinite");
    else
        printf("%.6g", v);
}

static void print_devices(const tacit_audit *audit)
{
    printf("\ndevices: %zu\n  %-32s  %10s  %6s  %8s  %-8s %8s %8s  %s\n", audit->device_count,
           "pseudonym", "epsilon", "cap", "delta", "unit", "reserves", "accepted", "");
    for (size_t i = 0; i < audit->device_count; i++) {
        const tacit_audit_device *d = &audit->devices[i];
        char name[2 * TACIT_DEVICE_BYTES + 1];
        tacit_hex(name, d->device, TACIT_DEVICE_BYTES);
        printf("  %-32s  %10.6g  %6.4g  %8.2g  %-8s %8llu %8llu %s%s%s%s", name, d->epsilon, d->cap,
               d->delta, tacit_privacy_unit_name(d->unit), (unsigned long long)d->reserves,
               (unsigned long long)d->accepted, d->non_private ? " non-private rounds" : "",
               d->insecure ? " insecure seed" : "", d->revoked ? " revoked" : "",
               d->lost ? " account lost" : "");
        if (d->devices_per_subject > 1) {
            printf(" (subject on %u devices: ", d->devices_per_subject);
            print_number(d->epsilon_subject);
            printf(")");
        }
        printf("\n");
    }
}

static void print_publications(const tacit_audit *audit)
{
    printf("\npublications: %zu of %llu rounds\n", audit->publication_count,
           (unsigned long long)audit->rounds);
    for (size_t i = 0; i < audit->publication_count; i++) {
        const tacit_audit_publication *p = &audit->publications[i];
        printf("  version %llu (entry %llu): epsilon against the server ",
               (unsigned long long)p->version, (unsigned long long)p->entry);
        print_number(p->epsilon_server);
        printf(", published ");
        print_number(p->epsilon_published);
        printf(" at delta %.2g (%s), ", p->delta, p->rule);
        if (isnan(p->accuracy))
            printf("not evaluated\n");
        else
            printf("accuracy %.4g as the server states it\n", p->accuracy);
    }
}

/* delta times the number of devices: how likely some device is outside the guarantee. */
static void print_warnings(const tacit_audit *audit)
{
    double delta = 0;
    for (size_t i = 0; i < audit->device_count; i++)
        delta += audit->devices[i].delta;
    if (delta > 0.01)
        printf("\nwarning: delta summed over the devices is %.3g, above 0.01\n", delta);
}

static void print_list(const char *title, const tacit_violation *list, size_t count)
{
    printf("\n%s: %zu\n", title, count);
    for (size_t i = 0; i < count; i++) {
        if (list[i].entry == TACIT_AUDIT_NO_ENTRY)
            printf("  %s: %s\n", list[i].kind, list[i].detail);
        else
            printf("  %s at entry %llu: %s\n", list[i].kind, (unsigned long long)list[i].entry,
                   list[i].detail);
    }
}

static void print_people(const tacit_audit *audit, const json_t *schedules, const char *folder)
{
    char root[2 * TACIT_HASH_BYTES + 1];
    tacit_hex(root, audit->checkpoint.root, TACIT_HASH_BYTES);
    printf("log %s: %llu entries, checkpoint of %llu, root %s\n", audit->checkpoint.origin,
           (unsigned long long)audit->entries, (unsigned long long)audit->checkpoint.size, root);
    printf("receipts held against it: %llu\n", (unsigned long long)audit->receipts);
    print_devices(audit);
    schedule_list_print(schedules);
    print_publications(audit);
    print_warnings(audit);
    print_list("notes", audit->notes, audit->note_count);
    print_list("violations", audit->violations, audit->violation_count);
    printf("\na log cannot prove\n");
    for (size_t i = 0; i < sizeof beyond_the_log / sizeof beyond_the_log[0]; i++)
        printf("  - %s\n", beyond_the_log[i]);
    printf("\n%s: %s\n", folder, audit->violation_count ? "VIOLATIONS FOUND" : "ok");
}

/* --- for scripts --- */

static json_t *json_number(double v)
{
    return isfinite(v) ? json_real(v) : json_null();
}

static json_t *json_hex(const uint8_t *bytes, size_t size)
{
    char text[2 * TACIT_HASH_BYTES + 1];
    tacit_hex(text, bytes, size);
    return json_string(text);
}

static json_t *json_list(const tacit_violation *found, size_t count)
{
    json_t *list = json_array();
    for (size_t i = 0; i < count; i++) {
        const tacit_violation *v = &found[i];
        json_t *entry =
            v->entry == TACIT_AUDIT_NO_ENTRY ? json_null() : json_integer((json_int_t)v->entry);
        json_array_append_new(
            list, json_pack("{s:s,s:o,s:s}", "kind", v->kind, "entry", entry, "detail", v->detail));
    }
    return list;
}

static json_t *json_devices(const tacit_audit *audit)
{
    json_t *list = json_array();
    for (size_t i = 0; i < audit->device_count; i++) {
        const tacit_audit_device *d = &audit->devices[i];
        json_array_append_new(
            list, json_pack("{s:o,s:o,s:o,s:o,s:s,s:I,s:o,s:I,s:I,s:I,s:b,s:b,s:b,s:b}", "device",
                            json_hex(d->device, TACIT_DEVICE_BYTES), "epsilon",
                            json_number(d->epsilon), "epsilon_cap", json_number(d->cap), "delta",
                            json_number(d->delta), "unit", tacit_privacy_unit_name(d->unit),
                            "devices_per_subject", (json_int_t)d->devices_per_subject,
                            "epsilon_subject", json_number(d->epsilon_subject), "reserves",
                            (json_int_t)d->reserves, "spends", (json_int_t)d->spends, "accepted",
                            (json_int_t)d->accepted, "non_private", d->non_private, "insecure",
                            d->insecure, "revoked", d->revoked, "account_lost", d->lost));
    }
    return list;
}

static json_t *json_publications(const tacit_audit *audit)
{
    json_t *list = json_array();
    for (size_t i = 0; i < audit->publication_count; i++) {
        const tacit_audit_publication *p = &audit->publications[i];
        json_array_append_new(
            list, json_pack("{s:I,s:I,s:o,s:o,s:o,s:o,s:s,s:o}", "entry", (json_int_t)p->entry,
                            "version", (json_int_t)p->version, "lineage", json_hex(p->lineage, 16),
                            "epsilon_server", json_number(p->epsilon_server), "epsilon_published",
                            json_number(p->epsilon_published), "delta", json_number(p->delta),
                            "epsilon_rule", p->rule, "accuracy", json_number(p->accuracy)));
    }
    return list;
}

static double worst_epsilon(const tacit_audit *audit)
{
    double worst = 0;
    for (size_t i = 0; i < audit->device_count; i++)
        worst = fmax(worst, audit->devices[i].epsilon);
    return worst;
}

static tacit_status print_json(const tacit_audit *audit, json_t *schedules, tacit_error *err)
{
    json_t *root = json_pack(
        "{s:s,s:s,s:I,s:I,s:o,s:I,s:I,s:o,s:o,s:O,s:o,s:o,s:o}", "audit",
        audit->violation_count ? "violations" : "ok", "origin", audit->checkpoint.origin, "entries",
        (json_int_t)audit->entries, "checkpoint_size", (json_int_t)audit->checkpoint.size, "root",
        json_hex(audit->checkpoint.root, TACIT_HASH_BYTES), "rounds", (json_int_t)audit->rounds,
        "receipts", (json_int_t)audit->receipts, "epsilon_max", json_number(worst_epsilon(audit)),
        "devices", json_devices(audit), "schedules", schedules, "publications",
        json_publications(audit), "violations",
        json_list(audit->violations, audit->violation_count), "notes",
        json_list(audit->notes, audit->note_count));
    char *text = root ? json_dumps(root, JSON_COMPACT) : NULL;
    json_decref(root);
    if (!text)
        return tacit_fail(err, TACIT_NO_MEMORY, "verify: no memory for the report");
    puts(text);
    free(text);
    return TACIT_OK;
}

/* --- the command --- */

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

static tacit_status verify_folder(const char *folder, const tacit_audit_options *options, bool json,
                                  tacit_error *err)
{
    tacit_export log;
    tacit_audit audit;
    tacit_status status = tacit_status_of_input(tacit_export_read(&log, folder, err), err);
    if (status != TACIT_OK)
        return status;
    status = tacit_status_of_input(tacit_audit_run(&audit, &log, options, err), err);
    tacit_export_free(&log);
    if (status != TACIT_OK)
        return status;
    json_t *schedules = schedule_list(&audit);
    if (json)
        status = print_json(&audit, schedules, err);
    else
        print_people(&audit, schedules, folder);
    json_decref(schedules);
    if (status == TACIT_OK && audit.violation_count)
        status = tacit_fail(err, TACIT_INTEGRITY, "%s: %zu violation%s, the first is %s", folder,
                            audit.violation_count, audit.violation_count == 1 ? "" : "s",
                            audit.violations[0].kind);
    tacit_audit_free(&audit);
    return status;
}

tacit_status cmd_verify(int argc, char **argv, tacit_error *err)
{
    tacit_option_list paths = {.count = 0};
    receipt_files files = {.count = 0};
    tacit_note_key pinned;
    tacit_pool *pool = NULL;
    const char *folder = NULL, *pinned_text = NULL;
    size_t positionals = 0;
    bool json = false, help = false, allow = false;
    const tacit_usage usage = {"tacit-audit verify", "EXPORT", 1, 1,
                               "an exported log, checked without its server"};
    const tacit_option table[] = {
        {"receipt", 0, TACIT_OPTION_LIST, &paths, false, "FILE",
         "a device's receipt to hold against the log; may be repeated", 0, 0},
        {"log-key", 0, TACIT_OPTION_TEXT, &pinned_text, false, "VKEY",
         "the log's key as a device pinned it (NAME+ID+BASE64)", 0, 0},
        {"allow-non-private", 0, TACIT_OPTION_FLAG, &allow, false, NULL,
         "rounds of mechanism none are no violation", 0, 0},
        {"json", 0, TACIT_OPTION_FLAG, &json, false, NULL, "one JSON object", 0, 0},
        {.name = NULL},
    };
    tacit_status status;
    TACIT_TRY(tacit_options_parse(&usage, table, argc, argv, &folder, &positionals, &help, err),
              done);
    if (help)
        return TACIT_OK;
    TACIT_TRY(tacit_status_of_input(receipts_read(&files, &paths, err), err), done);
    if (pinned_text && tacit_note_key_parse(&pinned, pinned_text, err) != TACIT_OK) {
        err->status = TACIT_USAGE; /* a word of the command line, like any other */
        status = tacit_fail_context(err, "--log-key");
        goto done;
    }
    TACIT_TRY(tacit_pool_new(&pool, 0, err), done);
    const tacit_audit_options options = {.allow_non_private = allow,
                                         .receipts = files.span,
                                         .receipt_names = paths.item,
                                         .receipt_count = files.count,
                                         .log_key = pinned_text ? &pinned : NULL,
                                         .pool = pool};
    status = verify_folder(folder, &options, json, err);
done:
    tacit_pool_free(pool);
    for (size_t i = 0; i < files.count; i++)
        free(files.data[i]);
    return status;
}
