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

/* What is there was allocated, so its size is no overflow. */
uint64_t tacit_input_bytes(const tacit_input *in, size_t width)
{
    uint64_t bytes = in->count * sizeof *in->row + in->n_media * sizeof *in->media;
    for (size_t i = 0; i < in->n_media; i++) {
        const tacit_media *m = &in->media[i];
        bytes += m->rows ? m->n_rows * width * sizeof *m->rows : 0;
        bytes += m->values ? (uint64_t)m->dim[0] * m->dim[1] * m->dim[2] * sizeof *m->values : 0;
    }
    return bytes;
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
