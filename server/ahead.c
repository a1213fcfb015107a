#include "server/ahead.h"

#include "common/file.h"
#include "common/log.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define AHEAD_NAME "ahead.checkpoint"

tacit_status ahead_read(const server *s, char note[TACIT_CHECKPOINT_MAX], bool *found,
                        tacit_error *err)
{
    char path[SERVER_PATH_MAX];
    uint8_t *text = NULL;
    size_t size = 0;
    *found = false;
    tacit_status status = server_path(s, path, AHEAD_NAME, err);
    if (status == TACIT_OK)
        status = tacit_file_read(path, TACIT_CHECKPOINT_MAX - 1, &text, &size, err);
    if (status == TACIT_OK) {
        memcpy(note, text, size + 1);
        *found = true;
    }
    free(text);
    return status == TACIT_NOT_FOUND ? TACIT_OK : status;
}

void ahead_forget(const server *s)
{
    char path[SERVER_PATH_MAX];
    if (server_path(s, path, AHEAD_NAME, NULL) == TACIT_OK)
        unlink(path);
}

static uint64_t stored_size(const server *s)
{
    char note[TACIT_CHECKPOINT_MAX];
    tacit_checkpoint c;
    bool found;
    if (ahead_read(s, note, &found, NULL) != TACIT_OK || !found ||
        tacit_checkpoint_parse(&c, note, strlen(note), NULL) != TACIT_OK)
        return 0;
    return c.size;
}

void ahead_note(server *s, const tacit_checkpoint *held, tacit_span note, uint64_t own_size)
{
    char path[SERVER_PATH_MAX];
    tacit_error err;
    if (s->ahead_size == 0)
        s->ahead_size = stored_size(s);
    if (held->size <= s->ahead_size || note.size >= TACIT_CHECKPOINT_MAX)
        return;
    s->ahead_size = held->size;
    tacit_log_error(
        "a device holds a checkpoint of %llu entries, this log has %llu: this folder is "
        "an older copy, and devices that saw more refuse it; stop the server and see "
        "'tacit-server restore --help'",
        (unsigned long long)held->size, (unsigned long long)own_size);
    if (server_path(s, path, AHEAD_NAME, &err) != TACIT_OK ||
        tacit_file_write(path, note.data, note.size, 0600, &err) != TACIT_OK)
        tacit_log_warn("%s", err.message);
}
