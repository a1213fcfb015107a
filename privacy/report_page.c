/* The page as a whole. It loads nothing and runs nothing: its policy forbids everything but its one
 * style sheet, named by hash. */
#include "privacy/report.h"

#include "common/digest.h"
#include "common/text.h"

#include <sodium.h>

static const char style[] =
    ":root{color-scheme:light}"
    "*{box-sizing:border-box}"
    "body{margin:0;background:#fff;color:#1b1f24;font:16px/1.5 system-ui,sans-serif}"
    "main{max-width:78rem;margin:0 auto;padding:1rem}"
    "h1{font-size:1.6rem;line-height:1.25;margin:.5rem 0;overflow-wrap:anywhere}"
    "h2{font-size:1.2rem;margin:2.2rem 0 .6rem;border-bottom:1px solid #8c959f;"
    "padding-bottom:.2rem}"
    "p{margin:.5rem 0}"
    "code{font-family:ui-monospace,monospace;font-size:.85em;overflow-wrap:anywhere}"
    ".verdict{border:1px solid;border-left-width:.5rem;padding:.6rem .9rem;font-weight:600}"
    ".ok{border-color:#1a7f37;background:#f0fff4}"
    ".bad{border-color:#b42318;background:#fff1f0}"
    ".warnings{border:1px solid #9a6700;border-left-width:.5rem;background:#fff8e5;"
    "padding:.4rem .9rem .4rem 2rem}"
    ".note{color:#4b5563;font-size:.9rem}"
    "dl{margin:0}dt{font-weight:600;margin-top:.8rem}dd{margin:0;max-width:50rem}"
    ".facts{display:grid;grid-template-columns:fit-content(45%) 1fr;gap:.1rem "
    "1rem;margin-top:.8rem}"
    ".facts dt{margin:0;font-weight:400;color:#4b5563}.facts "
    "dd{max-width:none;overflow-wrap:anywhere}"
    ".charts{display:grid;grid-template-columns:repeat(auto-fit,minmax(19rem,1fr));gap:1.5rem}"
    "figure{margin:0}figcaption{font-weight:600}"
    "svg{width:100%;height:auto;display:block}"
    "svg text{font:13px system-ui,sans-serif;fill:#1b1f24}"
    "svg .end{text-anchor:end}svg .mid{text-anchor:middle}"
    "svg path{fill:none}"
    ".grid{stroke:#c9ced6}.cap{stroke:#b42318;stroke-dasharray:5 3}"
    ".one{stroke:#7d8794;stroke-width:.8}"
    ".median{stroke:#1b1f24;stroke-width:1.6;stroke-dasharray:2 3}"
    ".worst{stroke:#0b57b0;stroke-width:2}"
    ".bar{fill:#0b57b0}.over{fill:#b42318}"
    "svg.small{width:7.5rem;height:1.75rem}"
    ".scroll{overflow-x:auto;margin:.6rem 0}"
    "table{border-collapse:collapse;width:100%;min-width:46rem;font-size:.86rem}"
    "caption{text-align:left;font-weight:600;padding:.3rem .35rem}"
    "th,td{text-align:left;vertical-align:top;padding:.3rem .35rem;"
    "border-bottom:1px solid #d5d9df}"
    "thead th{border-bottom:2px solid #8c959f;vertical-align:bottom}"
    "tbody th{font-weight:400}"
    "td code,th code{white-space:nowrap}"
    "td .long,th .long{white-space:normal;display:inline-block;min-width:9rem;max-width:17rem}"
    "th.number,td.number{text-align:right;font-variant-numeric:tabular-nums}"
    ".words{min-width:12rem}"
    ".outcome{font-weight:600}.pass .outcome{color:#1a7f37}.fail .outcome{color:#b42318}"
    ".skipped .outcome{color:#7a5200}"
    "@media print{body{font-size:10pt}main{max-width:none;padding:0}"
    ".scroll{overflow:visible}table,.words{min-width:0}dd{max-width:none}table{font-size:7pt}td "
    ".long,th "
    ".long{min-width:0;max-width:11em}"
    "tr,figure,.verdict{break-inside:avoid}h2,caption,thead{break-after:avoid}thead{display:table-"
    "header-group}"
    "@page{size:A4 landscape;margin:12mm}}";

/* --- head --- */

static void policy(markup *m)
{
    uint8_t digest[TACIT_DIGEST_BYTES];
    char text[sodium_base64_ENCODED_LEN(TACIT_DIGEST_BYTES, sodium_base64_VARIANT_ORIGINAL)];
    tacit_digest(digest, style, sizeof style - 1);
    sodium_bin2base64(text, sizeof text, digest, sizeof digest, sodium_base64_VARIANT_ORIGINAL);
    markup_format(m,
                  "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; "
                  "style-src 'sha256-%s'; base-uri 'none'; form-action 'none'\">\n",
                  text);
}

static void head(markup *m, const report *r)
{
    markup_raw(m, "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n");
    policy(m);
    markup_raw(m, "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n"
                  "<title>Privacy audit of ");
    markup_text(m, r->audit->checkpoint.origin);
    markup_raw(m, "</title>\n<style>");
    markup_raw(m, style);
    markup_raw(m, "</style>\n</head>\n<body>\n<main>\n");
}

/* --- what comes first --- */

static void fact(markup *m, const char *name, const char *value)
{
    markup_format(m, "<dt>%s</dt><dd>", name);
    markup_text(m, value);
    markup_raw(m, "</dd>");
}

static void fact_count(markup *m, const char *name, uint64_t value)
{
    markup_format(m, "<dt>%s</dt><dd>%llu</dd>", name, (unsigned long long)value);
}

static void facts(markup *m, const report *r)
{
    char root[2 * TACIT_HASH_BYTES + 1];
    tacit_hex(root, r->audit->checkpoint.root, TACIT_HASH_BYTES);
    markup_raw(m, "<dl class=\"facts\">");
    if (r->date)
        fact(m, "Date of the audit", r->date);
    fact(m, "Log", r->audit->checkpoint.origin);
    fact_count(m, "Entries", r->audit->entries);
    fact_count(m, "Covered by the checkpoint", r->audit->checkpoint.size);
    fact(m, "Root of the checkpoint", root);
    fact_count(m, "Receipts held against it", r->audit->receipts);
    fact_count(m, "Devices", r->audit->device_count);
    fact_count(m, "Rounds", r->audit->rounds);
    markup_raw(m, "</dl>\n");
}

static void verdict(markup *m, const report *r)
{
    size_t outcomes[3] = {0}, n = r->audit->violation_count;
    for (size_t i = 0; i < r->audit->check_count; i++)
        outcomes[r->audit->checks[i].outcome]++;
    markup_format(m, "<p class=\"verdict %s\">", n ? "bad" : "ok");
    if (n)
        markup_format(m, "%zu violation%s found", n, n == 1 ? " was" : "s were");
    else
        markup_raw(m, "No violation was found");
    markup_format(m, ". Checks: %zu passed, %zu failed, %zu skipped.</p>\n",
                  outcomes[TACIT_AUDIT_PASS], outcomes[TACIT_AUDIT_FAIL],
                  outcomes[TACIT_AUDIT_SKIPPED]);
}

static void warnings(markup *m, const report *r)
{
    char lines[REPORT_WARNINGS_MAX][REPORT_FIELD_TEXT];
    size_t n = report_warnings(r, lines);
    if (n)
        markup_raw(m, "<h2>Warnings</h2>\n<ul class=\"warnings\">");
    for (size_t i = 0; i < n; i++) {
        markup_raw(m, "<li>");
        markup_text(m, lines[i]);
        markup_raw(m, "</li>");
    }
    if (n)
        markup_raw(m, "</ul>\n");
}

/* --- sections --- */

static void statement(markup *m, const report *r)
{
    report_field fields[REPORT_FIELDS_MAX];
    size_t n = report_statement(r, fields);
    markup_raw(m, "<h2>Statement of the guarantee</h2>\n<p class=\"note\">In the order of NIST SP "
                  "800-226, from the parameters down to the collection of data.</p>\n<dl>");
    for (size_t i = 0; i < n; i++) {
        markup_format(m, "<dt>%s</dt><dd>", fields[i].title);
        markup_text(m, fields[i].text);
        markup_raw(m, "</dd>");
    }
    markup_raw(m, "</dl>\n");
}

static void limits(markup *m)
{
    markup_raw(m, "<h2>What a log cannot prove</h2>\n<ul>");
    for (size_t i = 0; tacit_audit_limits[i]; i++) {
        markup_raw(m, "<li>");
        markup_text(m, tacit_audit_limits[i]);
        markup_raw(m, "</li>");
    }
    markup_raw(m, "</ul>\n");
}

static void spending(markup *m, const report *r)
{
    markup_raw(m, "<h2>Who spent what</h2>\n<div class=\"charts\"><figure><figcaption>Share of its "
                  "cap that a device has spent, over the log</figcaption>");
    report_chart_curves(m, r);
    markup_raw(m, "</figure><figure><figcaption>Devices by the share of their cap "
                  "spent</figcaption>");
    report_chart_shares(m, r);
    markup_raw(m, "</figure></div>\n");
    report_table_devices(m, r);
    markup_raw(m, "<p class=\"note\">The small curves go from the first entry of the log to the "
                  "last; the dashed line is the cap. Left is what a device may still spend; a "
                  "device that has not yet reserved counts as zero. Rounds without noise, whose "
                  "epsilon is infinite, are in no curve.</p>\n");
}

void report_page(markup *m, const report *r)
{
    const tacit_audit *a = r->audit;
    head(m, r);
    markup_raw(m, "<h1>Privacy audit of ");
    markup_text(m, a->checkpoint.origin);
    markup_raw(m, "</h1>\n");
    verdict(m, r);
    if (a->violation_count)
        markup_raw(m, "<h2>Violations</h2>\n");
    report_list(m, "Violations in the order of the log", a->violations, a->violation_count);
    warnings(m, r);
    facts(m, r);
    if (a->note_count)
        markup_raw(m, "<h2>Notes, which are no violations</h2>\n");
    report_list(m, "Notes", a->notes, a->note_count);
    spending(m, r);
    statement(m, r);
    markup_raw(m, "<h2>Schedules</h2>\n");
    report_table_schedules(m, r);
    markup_raw(m, "<h2>Rounds</h2>\n");
    report_table_rounds(m, r);
    markup_raw(m, "<h2>Publications</h2>\n");
    report_table_publications(m, r);
    markup_raw(m, "<h2>Events</h2>\n");
    report_table_events(m, r);
    markup_raw(m, "<h2>Checks</h2>\n");
    report_table_checks(m, r);
    limits(m);
    markup_raw(m, "</main>\n</body>\n</html>\n");
}
