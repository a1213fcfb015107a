/* What of a model file this engine cannot use, and why. Private to the engine room. */
#ifndef TACIT_ENGINE_SUPPORT_H
#define TACIT_ENGINE_SUPPORT_H

#include "engine/gguf.h"

typedef struct support_gap {
    const char *what; /* "text model", "tokenizer", "chat template", "type", ... */
    char why[TACIT_ERROR_MAX];
} support_gap;

typedef struct support_gaps {
    support_gap *gap;
    size_t count;
} support_gaps;

/* Asks the loaders themselves, so that the answer is what loading would say. TACIT_NO_MEMORY is
 * the only failure; *out is the caller's to free, also then. */
tacit_status support_find_gaps(support_gaps *out, const gguf_file *file,
                               tacit_error *err) TACIT_MUST_CHECK;
void support_gaps_free(support_gaps *g);

/* "text", "mmproj", "adapter" or "other". */
const char *support_kind(const gguf_file *file);

#endif
