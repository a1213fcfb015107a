#include "common/file.h"
#include "common/json_print.h"
#include "common/log.h"
#include "server/commands_server.h"
#include "server/server_restore.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>

static tacit_status print_json(const server_restored *done, tacit_error *err)
{
    const tacit_restore *r = &done->restore;
    json_t *object = json_pack("{s:s, s:I, s:I, s:I, s:I, s:b}", "origin", r->new_origin,
                               "generation", (json_int_t)r->generation, "kept", (json_int_t)r->size,
                               "last_known", (json_int_t)r->last.size, "entry",
                               (json_int_t)done->entry, "round_closed", done->round_closed);
    return tacit_json_print(object, TACIT_JSON_DIGITS, err);
}

static void print_people(const server_restored *done, const char *dir)
{
    const tacit_restore *r = &done->restore;
    printf(
        "%s goes on as %s from its first %llu entries; %llu more are known to have been there%s.\n"
        "Devices bring their own by themselves. What the operator did since the backup is lost:\n"
        "revoke again whom you revoked, lower again the caps that you lowered. Unused tokens are\n"
        "revoked. Take a backup now, before\n"
        "  tacit-server run --dir %s\n",
        r->old_origin, r->new_origin, (unsigned long long)r->size,
        (unsigned long long)(r->last.size - r->size),
        done->round_closed ? ". The round that was open has failed" : "", dir);
}

static tacit_status restore(const char *dir, const char *key_path, const char *note_path, bool json,
                            tacit_error *err)
{
    tacit_identity *operator_id = NULL;
    uint8_t *note = NULL;
    size_t size = 0;
    server_restored done;
    tacit_status status;
    TACIT_TRY(tacit_status_of_input(tacit_identity_load(&operator_id, key_path, err), err), done);
    if (note_path)
        TACIT_TRY(tacit_status_of_input(
                      tacit_file_read(note_path, TACIT_CHECKPOINT_MAX - 1, &note, &size, err), err),
                  done);
    TACIT_TRY(server_restore(&done, dir, operator_id, (const char *)note, err), done);
    if (json)
        status = print_json(&done, err);
    else
        print_people(&done, dir);
done:
    tacit_identity_free(operator_id);
    free(note);
    return status;
}

tacit_status cmd_restore(int argc, char **argv, tacit_error *err)
{
    const char *dir = NULL, *key = NULL, *note = NULL;
    bool json = false, help;
    const tacit_option table[] = {
        {.name = "dir",
         .kind = TACIT_OPTION_TEXT,
         .to = &dir,
         .value = "DIR",
         .help = "fresh copy of a backup, which nobody has served yet",
         .required = true},
        {.name = "operator-key",
         .kind = TACIT_OPTION_TEXT,
         .to = &key,
         .value = "FILE",
         .help = "the operator.key that 'init' made, from its offline media",
         .required = true},
        {.name = "checkpoint",
         .kind = TACIT_OPTION_TEXT,
         .to = &note,
         .value = "FILE",
         .help =
             "newest checkpoint known of the log (of an export, a witness, or ahead.checkpoint)"},
        {.name = "json", .kind = TACIT_OPTION_FLAG, .to = &json, .help = "one JSON object"},
        {NULL},
    };
    const tacit_usage usage = {"tacit-server restore", NULL, 0, 0,
                               "lets a folder that was restored from a backup go on"};
    tacit_status status = tacit_options_parse(&usage, table, argc, argv, NULL, NULL, &help, err);
    return status == TACIT_OK && !help ? restore(dir, key, note, json, err) : status;
}
