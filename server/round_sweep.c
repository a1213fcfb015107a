/* Files of rounds that have ended. */
#include "server/round_steps.h"

#include "common/text.h"

#include <dirent.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* The files that the round which runs may still need are kept; everything else of its kind is
 * removed. Each file is judged by what the database says at that moment: a round may open
 * meanwhile. */
typedef struct sweep {
    server *server;
    bool has_round;
    round_brief round;
    const char *name; /* of the file that is looked at */
    bool keep;
} sweep;

static tacit_status find_current(void *ctx, tacit_error *err)
{
    sweep *w = ctx;
    tacit_status status = round_brief_current(w->server->db, &w->round, err);
    w->has_round = status == TACIT_OK;
    return status == TACIT_NOT_FOUND ? TACIT_OK : status;
}

static tacit_status judge_upload(void *ctx, tacit_error *err)
{
    sweep *w = ctx;
    char hex[2 * TACIT_DIGEST_BYTES + 1];
    uint8_t hash[TACIT_DIGEST_BYTES];
    update_row row;
    snprintf(hex, sizeof hex, "%s", w->name);
    w->keep = false;
    tacit_status status = find_current(w, err);
    if (status != TACIT_OK || !w->has_round || !tacit_unhex(hash, sizeof hash, hex))
        return status;
    status = update_get(w->server->db, hash, &row, err);
    w->keep = status == TACIT_OK && memcmp(row.round_id, w->round.round_id, ROUND_ID_BYTES) == 0;
    return status == TACIT_NOT_FOUND ? TACIT_OK : status;
}

static bool is_kept_upload(sweep *w)
{
    tacit_error err;
    if (!strstr(w->name, ".sealed"))
        return true;
    return writer_run(w->server->writer, judge_upload, NULL, w, &err) != TACIT_OK || w->keep;
}

static bool is_kept_adapter(sweep *w)
{
    char own[2 * ROUND_ID_BYTES + 1];
    tacit_error err;
    if (strncmp(w->name, "candidate-", 10) != 0 ||
        writer_run(w->server->writer, find_current, NULL, w, &err) != TACIT_OK)
        return true;
    tacit_hex(own, w->round.round_id, ROUND_ID_BYTES);
    return w->has_round && strncmp(w->name + 10, own, sizeof own - 1) == 0;
}

static void sweep_folder(sweep *w, const char *folder, bool (*is_kept)(sweep *w))
{
    char path[SERVER_PATH_MAX], file[SERVER_PATH_MAX];
    DIR *d = server_path(w->server, path, folder, NULL) == TACIT_OK ? opendir(path) : NULL;
    if (!d)
        return;
    for (struct dirent *entry = readdir(d); entry; entry = readdir(d)) {
        w->name = entry->d_name;
        if (entry->d_name[0] == '.' || is_kept(w))
            continue;
        if (snprintf(file, sizeof file, "%s/%s", path, entry->d_name) < (int)sizeof file)
            unlink(file);
    }
    closedir(d);
}

void round_sweep(server *s)
{
    sweep w = {.server = s};
    sweep_folder(&w, "uploads", is_kept_upload);
    sweep_folder(&w, "adapters", is_kept_adapter);
}
