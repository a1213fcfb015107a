/* tacit-audit report: an audit as a page, a table and JSON. */
#include "common/file.h"
#include "common/json_print.h"
#include "privacy/audit_commands.h"
#include "privacy/audit_json.h"
#include "privacy/cmd_audit.h"
#include "privacy/report.h"

#include <stdio.h>

typedef struct outputs {
    const char *html, *csv, *schedules_csv, *rounds_csv, *date;
    bool json;
} outputs;

static tacit_status write_file(const char *path, void (*write)(markup *, const report *),
                               const report *r, tacit_error *err)
{
    markup m = {.status = TACIT_OK};
    write(&m, r);
    tacit_status status = markup_end(&m, err);
    if (status == TACIT_OK)
        status = tacit_file_write(path, m.out.data, m.out.size, 0644, err);
    markup_free(&m);
    return status;
}

static json_t *statement_json(const report *r)
{
    report_field fields[REPORT_FIELDS_MAX];
    size_t n = report_statement(r, fields);
    json_t *statement = json_object();
    for (size_t i = 0; i < n; i++)
        json_object_set_new(statement, fields[i].key, json_string(fields[i].text));
    return statement;
}

static json_t *warnings_json(const report *r)
{
    char lines[REPORT_WARNINGS_MAX][REPORT_FIELD_TEXT];
    size_t n = report_warnings(r, lines);
    json_t *list = json_array();
    for (size_t i = 0; i < n; i++)
        json_array_append_new(list, json_string(lines[i]));
    return list;
}

static tacit_status print_json(const report *r, json_t *schedules, tacit_error *err)
{
    json_t *root = audit_json(r->audit, schedules);
    bool whole = root && audit_json_extend(root, r->audit) &&
                 json_object_set_new(root, "statement", statement_json(r)) == 0 &&
                 json_object_set_new(root, "warnings", warnings_json(r)) == 0;
    if (!whole) {
        json_decref(root);
        root = NULL;
    }
    return tacit_json_print(root, TACIT_JSON_DIGITS, err);
}

static tacit_status write_all(const audit_input *in, const outputs *out, tacit_error *err)
{
    report r;
    tacit_status status = report_open(&r, &in->audit, out->date, err);
    if (status != TACIT_OK)
        return status;
    if (out->html)
        status = write_file(out->html, report_page, &r, err);
    if (status == TACIT_OK && out->csv)
        status = write_file(out->csv, report_csv, &r, err);
    if (status == TACIT_OK && out->schedules_csv)
        status = write_file(out->schedules_csv, report_csv_schedules, &r, err);
    if (status == TACIT_OK && out->rounds_csv)
        status = write_file(out->rounds_csv, report_csv_rounds, &r, err);
    if (status == TACIT_OK && out->json)
        status = print_json(&r, in->schedules, err);
    if (status == TACIT_OK && !out->json)
        printf("violations: %zu, devices: %zu, rounds: %llu\n", in->audit.violation_count,
               in->audit.device_count, (unsigned long long)in->audit.rounds);
    report_close(&r);
    return status;
}

tacit_status cmd_report(int argc, char **argv, tacit_error *err)
{
    audit_input in = {.keep_points = true};
    outputs out = {.html = NULL};
    const char *folder = NULL;
    size_t positionals = 0;
    bool help = false;
    const tacit_usage usage = {"tacit-audit report", "EXPORT", 1, 1,
                               "an audit as a page for people, a table of devices, or JSON"};
    const tacit_option table[] = {
        {"html", 0, TACIT_OPTION_TEXT, &out.html, false, "FILE",
         "one page that loads nothing: violations, statement of the guarantee, charts, tables", 0,
         0},
        {"csv", 0, TACIT_OPTION_TEXT, &out.csv, false, "FILE", "a row for each device", 0, 0},
        {"schedules-csv", 0, TACIT_OPTION_TEXT, &out.schedules_csv, false, "FILE",
         "what was promised before the first reserve: a row for each run of equal rounds", 0, 0},
        {"rounds-csv", 0, TACIT_OPTION_TEXT, &out.rounds_csv, false, "FILE",
         "a row for each round: mechanism, parameters, outcome, both epsilons", 0, 0},
        {"json", 0, TACIT_OPTION_FLAG, &out.json, false, NULL,
         "one JSON object: what verify prints, with curves, rounds, events and the statement", 0,
         0},
        {"date", 0, TACIT_OPTION_TEXT, &out.date, false, "TEXT",
         "the date that the page states; without it no clock is read", 0, 0},
        AUDIT_INPUT_OPTIONS(&in),
        {.name = NULL},
    };
    tacit_status status =
        tacit_options_parse(&usage, table, argc, argv, &folder, &positionals, &help, err);
    if (status != TACIT_OK || help)
        return status;
    if (!out.html && !out.csv && !out.schedules_csv && !out.rounds_csv && !out.json)
        return tacit_fail(err, TACIT_USAGE,
                          "report: nothing to write; give --html FILE, --csv FILE, "
                          "--schedules-csv FILE, --rounds-csv FILE or --json");
    const char *const result[] = {out.html, out.csv, out.schedules_csv, out.rounds_csv};
    status = tacit_file_check_results(result, 4, in.receipts.item, in.receipts.count, err);
    if (status != TACIT_OK)
        return status;
    status = audit_input_run(&in, folder, err);
    if (status != TACIT_OK)
        return status;
    status = write_all(&in, &out, err);
    if (status == TACIT_OK)
        status = audit_verdict(&in.audit, folder, err);
    audit_input_free(&in);
    return status;
}
