#include "engine/input.h"

#include "common/bytes.h"
#include "common/memory_limit.h"
#include "common/secret.h"

#include <stdio.h>
#include <stdlib.h>

void tacit_input_free(tacit_input *in)
{
    for (size_t i = 0; i < in->n_media; i++) {
        tacit_wipe_free(in->media[i].values);
        tacit_wipe_free(in->media[i].rows);
    }
    free(in->media);
    tacit_wipe_free(in->row);
    *in = (tacit_input){0};
}

tacit_status media_rows_alloc(float **out, const tacit_media *media, size_t width, tacit_error *err)
{
    char what[96];
    void *rows;
    size_t each;
    snprintf(what, sizeof what, "a medium of %zu rows of %zu values", media->n_rows, width);
    tacit_status status =
        tacit_mul_size(width, sizeof **out, &each)
            ? tacit_memory_alloc(&rows, media->n_rows, each, what, "give a shorter medium", err)
            : tacit_fail(err, TACIT_NO_MEMORY, "%s does not fit into memory", what);
    *out = status == TACIT_OK ? rows : NULL;
    return status;
}
