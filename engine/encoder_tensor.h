/* One tensor of an encoder, whatever its medium. */
#ifndef TACIT_ENGINE_ENCODER_TENSOR_H
#define TACIT_ENGINE_ENCODER_TENSOR_H

#include "engine/gguf.h"

#include <stdbool.h>
#include <stddef.h>

/* Seen as the matrix [rows, cols]; vectors are [1, n]. `name` is the file's. */
typedef struct encoder_tensor {
    const char *name;
    const gguf_tensor *data;
    size_t rows, cols;
    bool projector; /* trained by TACIT_TRAIN_PROJECTOR */
    bool linear;    /* the weight of one: a low-rank pair may stand beside it (lora_sites.h) */
} encoder_tensor;

#endif
