/* What a tacit_model consists of: for the units of this room that compute with it. */
#ifndef TACIT_ENGINE_MODEL_PARTS_H
#define TACIT_ENGINE_MODEL_PARTS_H

#include "engine/chat.h"
#include "engine/model.h"
#include "engine/text_model.h"
#include "engine/vision.h"

struct tacit_model {
    gguf_file *text_file;
    tacit_text_model text;
    tacit_tokenizer *tokenizer;
    tacit_chat chat;        /* instead of the file's template, if it has a name */
    gguf_file *vision_file; /* what `vision` reads from; NULL without one */
    tacit_vision *vision;   /* NULL without an image encoder */
    uint8_t base_digest[TACIT_DIGEST_BYTES];
};

#endif
