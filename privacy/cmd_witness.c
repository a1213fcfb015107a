/* tacit-audit witness: cosigns the checkpoint of an export once it continues the last one. */
#include "common/file.h"
#include "common/json_print.h"
#include "common/options.h"
#include "privacy/audit_commands.h"
#include "privacy/witness.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct witness_options {
    const char *words[2]; /* DIR, EXPORT */
    size_t n_words;
    const char *name, *out, *log_key;
    bool json;
} witness_options;

static tacit_status print_key(const tacit_note_key *key, bool json, tacit_error *err)
{
    char text[TACIT_VKEY_MAX];
    tacit_witness_key_write(key, text);
    if (json)
        return tacit_json_print(json_pack("{s:s}", "witness", text), TACIT_JSON_DIGITS, err);
    puts(text);
    return TACIT_OK;
}

static tacit_status show(const witness_options *o, tacit_error *err)
{
    tacit_witness *w;
    tacit_status status = tacit_status_of_input(tacit_witness_open(&w, o->words[0], err), err);
    if (status != TACIT_OK)
        return status;
    status = print_key(tacit_witness_key(w), o->json, err);
    tacit_witness_close(w);
    return status;
}

static tacit_status print_cosigned(const tacit_witness *w, const char *note, const char *out,
                                   bool json, tacit_error *err)
{
    tacit_checkpoint c;
    tacit_status status = tacit_checkpoint_parse(&c, note, strlen(note), err);
    if (status == TACIT_OK && json)
        status = tacit_json_print(
            json_pack("{s:s,s:I}", "origin", c.origin, "cosigned", (json_int_t)c.size),
            TACIT_JSON_DIGITS, err);
    else if (status == TACIT_OK)
        printf("%s: %s has cosigned %llu entries of %s\n", out, tacit_witness_key(w)->name,
               (unsigned long long)c.size, c.origin);
    return status;
}

static tacit_status cosign(const witness_options *o, const tacit_note_key *log_key,
                           tacit_error *err)
{
    tacit_export log = {0};
    tacit_witness *w = NULL;
    char note[TACIT_CHECKPOINT_MAX];
    tacit_status status;
    TACIT_TRY(tacit_file_check_results(&o->out, 1, NULL, 0, err), done);
    TACIT_TRY(tacit_status_of_input(tacit_export_read(&log, o->words[1], err), err), done);
    TACIT_TRY(tacit_status_of_input(tacit_witness_open(&w, o->words[0], err), err), done);
    TACIT_TRY(tacit_witness_cosign(w, &log, log_key, note, err), done);
    TACIT_TRY(tacit_file_write(o->out, note, strlen(note), 0644, err), done);
    status = print_cosigned(w, note, o->out, o->json, err);
done:
    tacit_witness_close(w);
    tacit_export_free(&log);
    return status;
}

static tacit_status run_options(const witness_options *o, tacit_error *err)
{
    tacit_note_key log_key;
    if (o->n_words == 1 && !o->out && !o->log_key) {
        tacit_status status = o->name ? tacit_witness_create(o->words[0], o->name, err) : TACIT_OK;
        return status == TACIT_OK ? show(o, err) : status;
    }
    if (o->name || o->n_words != 2 || !o->out)
        return tacit_fail(err, TACIT_USAGE,
                          "witness: expected DIR --name NAME, to make one, DIR, to print its key "
                          "again, or DIR EXPORT --out FILE");
    if (o->log_key && tacit_note_key_parse(&log_key, o->log_key, err) != TACIT_OK) {
        err->status = TACIT_USAGE;
        return tacit_fail_context(err, "--log-key");
    }
    return cosign(o, o->log_key ? &log_key : NULL, err);
}

tacit_status cmd_witness(int argc, char **argv, tacit_error *err)
{
    witness_options o = {.n_words = 0};
    bool help = false;
    const tacit_usage usage = {"tacit-audit witness", "DIR [EXPORT]", 1, 2,
                               "cosigns the checkpoint of an export, as part of one log only"};
    const tacit_option table[] = {
        {"name", 0, TACIT_OPTION_TEXT, &o.name, false, "NAME",
         "makes a witness of this name in DIR and prints its key; DIR alone prints it again", 0, 0},
        {"out", 0, TACIT_OPTION_TEXT, &o.out, false, "FILE",
         "where the cosigned checkpoint goes, for 'tacit-server ledger cosign'", 0, 0},
        {"log-key", 0, TACIT_OPTION_TEXT, &o.log_key, false, "VKEY",
         "the log's key, the first time that this witness sees it", 0, 0},
        {"json", 0, TACIT_OPTION_FLAG, &o.json, false, NULL, "one JSON object", 0, 0},
        {.name = NULL},
    };
    tacit_status status =
        tacit_options_parse(&usage, table, argc, argv, o.words, &o.n_words, &help, err);
    return status == TACIT_OK && !help ? run_options(&o, err) : status;
}
