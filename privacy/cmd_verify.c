/* tacit-audit verify: an exported log, checked without its server. */
#include "common/json_print.h"
#include "common/options.h"
#include "common/text.h"
#include "privacy/audit_commands.h"
#include "privacy/audit_json.h"
#include "privacy/cmd_audit.h"
#include "privacy/verify_schedules.h"

#include <math.h>
#include <stdio.h>

static void print_number(double v)
{
    if (isinf(v))
        printf("infinite");
    else
        printf("%.6g", v);
}

static void print_check(const tacit_audit_check *c)
{
    printf("  %-7s  %-22s  ", tacit_audit_outcome_name(c->outcome), c->name);
    if (c->outcome == TACIT_AUDIT_SKIPPED) {
        printf("%s\n", c->reason);
        return;
    }
    if (c->outcome == TACIT_AUDIT_PASS) {
        printf("%s (%s: %llu)\n", c->holds, c->noun, (unsigned long long)c->examined);
        return;
    }
    printf("%llu violation%s", (unsigned long long)c->failures, c->failures == 1 ? "" : "s");
    if (c->first_entry != TACIT_AUDIT_NO_ENTRY)
        printf(", first at entry %llu", (unsigned long long)c->first_entry);
    printf("; expected: %s\n", c->holds);
}

static void print_checks(const tacit_audit *audit)
{
    size_t outcomes[3] = {0};
    for (size_t i = 0; i < audit->check_count; i++)
        outcomes[audit->checks[i].outcome]++;
    printf("\nchecks: %zu passed, %zu failed, %zu skipped\n", outcomes[TACIT_AUDIT_PASS],
           outcomes[TACIT_AUDIT_FAIL], outcomes[TACIT_AUDIT_SKIPPED]);
    for (size_t i = 0; i < audit->check_count; i++)
        print_check(&audit->checks[i]);
}

static void print_devices(const tacit_audit *audit)
{
    printf("\ndevices: %zu\n  %-32s  %10s  %6s  %8s  %-8s %8s %8s  %s\n", audit->device_count,
           "pseudonym", "epsilon", "cap", "delta", "unit", "reserves", "accepted", "");
    for (size_t i = 0; i < audit->device_count; i++) {
        const tacit_audit_device *d = &audit->devices[i];
        char name[2 * TACIT_DEVICE_BYTES + 1];
        tacit_hex(name, d->device, TACIT_DEVICE_BYTES);
        printf("  %-32s  %10.6g  %6.4g  %8.2g  %-8s %8llu %8llu %s%s%s%s%s", name, d->epsilon,
               d->cap, d->delta, tacit_privacy_unit_name(d->unit), (unsigned long long)d->reserves,
               (unsigned long long)d->accepted, d->non_private ? " non-private rounds" : "",
               d->insecure ? " insecure seed" : "", d->revoked ? " revoked" : "",
               d->frozen ? " frozen" : "", d->lost ? " account lost" : "");
        if (d->devices_per_subject > 1) {
            printf(" (subject on %u such devices: ", d->devices_per_subject);
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

static void print_witness(const tacit_audit *audit)
{
    if (audit->witnessed)
        printf("\n%s has cosigned its first %llu entries as part of one log\n", audit->witness,
               (unsigned long long)audit->witnessed);
    else
        printf("\nno witness has cosigned it\n");
}

static void print_people(const tacit_audit *audit, const json_t *schedules, const char *folder)
{
    char root[2 * TACIT_HASH_BYTES + 1];
    tacit_hex(root, audit->checkpoint.root, TACIT_HASH_BYTES);
    printf("log %s: %llu entries, checkpoint of %llu, root %s\n", audit->checkpoint.origin,
           (unsigned long long)audit->entries, (unsigned long long)audit->checkpoint.size, root);
    printf("receipts held against it: %llu\n", (unsigned long long)audit->receipts);
    print_checks(audit);
    print_devices(audit);
    schedule_list_print(schedules);
    print_publications(audit);
    print_warnings(audit);
    print_list("notes", audit->notes, audit->note_count);
    print_list("violations", audit->violations, audit->violation_count);
    printf("\na log cannot prove\n");
    for (size_t i = 0; tacit_audit_limits[i]; i++)
        printf("  - %s\n", tacit_audit_limits[i]);
    print_witness(audit);
    printf("\n%s: %s\n", folder, audit->violation_count ? "VIOLATIONS FOUND" : "ok");
}

tacit_status cmd_verify(int argc, char **argv, tacit_error *err)
{
    audit_input in = {.log_key = NULL};
    const char *folder = NULL;
    size_t positionals = 0;
    bool json = false, help = false;
    const tacit_usage usage = {"tacit-audit verify", "EXPORT", 1, 1,
                               "an exported log, checked without its server"};
    const tacit_option table[] = {
        AUDIT_INPUT_OPTIONS(&in),
        {"json", 0, TACIT_OPTION_FLAG, &json, false, NULL, "one JSON object", 0, 0},
        {.name = NULL},
    };
    tacit_status status =
        tacit_options_parse(&usage, table, argc, argv, &folder, &positionals, &help, err);
    if (status != TACIT_OK || help)
        return status;
    status = audit_input_run(&in, folder, err);
    if (status != TACIT_OK)
        return status;
    if (json)
        status = tacit_json_print(audit_json(&in.audit, in.schedules), TACIT_JSON_DIGITS, err);
    else
        print_people(&in.audit, in.schedules, folder);
    if (status == TACIT_OK)
        status = audit_verdict(&in.audit, folder, err);
    audit_input_free(&in);
    return status;
}
