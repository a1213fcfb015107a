/* The text that a command is about: typed, out of a file, or from standard input. */
#ifndef TACIT_ENGINE_CMD_PROMPT_H
#define TACIT_ENGINE_CMD_PROMPT_H

#include "common/options.h"

typedef struct cmd_prompt {
    const char *typed, *path; /* of the command line: one of them */
    char *text;               /* malloc'ed, a NUL behind its `size` bytes */
    size_t size;
} cmd_prompt;

/* Rows of a tacit_option table for a cmd_prompt `p`. */
#define CMD_PROMPT_ROWS(p, what)                                                                   \
    {"prompt", 'p', TACIT_OPTION_TEXT, &(p)->typed, false, "TEXT", what, 0, 0},                    \
    {                                                                                              \
        "file", 'f', TACIT_OPTION_TEXT, &(p)->path, false, "FILE",                                 \
            "the same out of a file, - is standard input; one of both is required", 0, 0           \
    }

/* The bytes as they are. TACIT_USAGE unless one of both options is given. */
tacit_status cmd_prompt_read_bytes(cmd_prompt *p, tacit_error *err) TACIT_MUST_CHECK;
/* The same of a text: without the end of its last line where it is out of a file, since editors and
 * shells put one there. A NUL is TACIT_BAD_INPUT. */
tacit_status cmd_prompt_read(cmd_prompt *p, tacit_error *err) TACIT_MUST_CHECK;
/* Wipes and frees the text. */
void cmd_prompt_free(cmd_prompt *p);

#endif
