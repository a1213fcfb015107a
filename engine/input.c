#include "engine/input.h"

#include <stdlib.h>

void tacit_input_free(tacit_input *in)
{
    for (size_t i = 0; i < in->n_media; i++) {
        free(in->media[i].pixels);
        free(in->media[i].rows);
    }
    free(in->media);
    free(in->row);
    *in = (tacit_input){0};
}
