#include "engine/input.h"

#include "common/secret.h"

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
