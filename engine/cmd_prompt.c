#include "engine/cmd_prompt.h"

#include "common/bytes.h"
#include "common/file.h"
#include "common/log.h"
#include "common/secret.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define MOST_BYTES ((size_t)1 << 28)

static const char *name_of(const cmd_prompt *p)
{
    return strcmp(p->path, "-") == 0 ? "standard input" : p->path;
}

static tacit_status read_standard_input(cmd_prompt *p, tacit_error *err)
{
    tacit_buffer all = {.cap = MOST_BYTES + 1, .wiped = true};
    uint8_t piece[4096];
    tacit_status status = TACIT_OK;
    ssize_t n = 1;
    while (status == TACIT_OK && n != 0) {
        n = read(STDIN_FILENO, piece, sizeof piece);
        if (n > 0)
            status = tacit_buffer_append(&all, piece, (size_t)n);
        else if (n < 0 && errno != EINTR)
            status = tacit_file_fail(err, name_of(p), "read");
    }
    const size_t size = all.size;
    if (status == TACIT_OK)
        status = tacit_buffer_append(&all, "", 1);
    if (status == TACIT_BAD_INPUT)
        tacit_fail(err, status, "standard input: expected at most %zu bytes", MOST_BYTES);
    else if (status == TACIT_NO_MEMORY)
        tacit_fail(err, status, "no memory for standard input, of which %zu bytes were read", size);
    explicit_bzero(piece, sizeof piece);
    if (status != TACIT_OK) {
        tacit_buffer_free(&all);
        return status;
    }
    p->text = (char *)all.data;
    p->size = size;
    return TACIT_OK;
}

tacit_status cmd_prompt_read_bytes(cmd_prompt *p, tacit_error *err)
{
    uint8_t *bytes = NULL;
    if ((p->typed != NULL) == (p->path != NULL))
        return tacit_fail(err, TACIT_USAGE,
                          "expected either --prompt TEXT or --file FILE, which is - for standard "
                          "input");
    if (p->path && strcmp(p->path, "-") == 0)
        return read_standard_input(p, err);
    if (p->path) {
        tacit_status status = tacit_file_read(p->path, MOST_BYTES, &bytes, &p->size, err);
        p->text = (char *)bytes;
        return tacit_status_of_input(status, err);
    }
    p->size = strlen(p->typed);
    p->text = strdup(p->typed);
    return p->text ? TACIT_OK : tacit_fail(err, TACIT_NO_MEMORY, "no memory for the prompt");
}

tacit_status cmd_prompt_read(cmd_prompt *p, tacit_error *err)
{
    tacit_status status = cmd_prompt_read_bytes(p, err);
    if (status == TACIT_OK && p->size == 0)
        tacit_log_warn("%s is empty", p->path ? name_of(p) : "the prompt");
    if (status != TACIT_OK || !p->path)
        return status;
    const char *nul = memchr(p->text, '\0', p->size);
    if (nul)
        return tacit_fail(err, TACIT_BAD_INPUT, "%s: byte %zu: expected text, found a NUL",
                          name_of(p), (size_t)(nul - p->text));
    if (p->size > 0 && p->text[p->size - 1] == '\n')
        p->size--;
    if (p->size > 0 && p->text[p->size] == '\n' && p->text[p->size - 1] == '\r')
        p->size--;
    p->text[p->size] = '\0';
    return TACIT_OK;
}

void cmd_prompt_free(cmd_prompt *p)
{
    tacit_wipe_free(p->text);
    p->text = NULL;
    p->size = 0;
}
