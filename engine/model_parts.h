/* What a tacit_model consists of: for the units of this room that compute with it. */
#ifndef TACIT_ENGINE_MODEL_PARTS_H
#define TACIT_ENGINE_MODEL_PARTS_H

#include "engine/chat.h"
#include "engine/encoder_kind.h"
#include "engine/fast_model.h"
#include "engine/model.h"
#include "engine/text_model.h"
#include "engine/vision.h"

typedef struct model_encoder {
    const encoder_kind *kind;
    gguf_file *file;
    void *self;
    int32_t begin, end; /* tokens around each medium, -1: none */
} model_encoder;

typedef struct model_digest model_digest;

struct tacit_model {
    gguf_file *text_file;
    tacit_text_model text;
    fast_packing *packing; /* shared by the contexts; NULL: each fast context packs for itself */
    tacit_tokenizer *tokenizer;
    tacit_chat chat;                          /* without a name: there is none to be had */
    model_encoder encoder[ENCODER_KINDS_MAX]; /* in the order of their files, one of a kind */
    size_t n_encoders;
    model_digest *digest; /* computed when it is first asked for; NULL: base_digest is given */
    uint8_t base_digest[TACIT_DIGEST_BYTES];
};

/* The encoder of an open file joins the model, which owns the file from here on, also on failure.
 * The text model is loaded; without a tokenizer markers are not looked for. */
tacit_status model_add_encoder(tacit_model *m, gguf_file *file, tacit_error *err) TACIT_MUST_CHECK;
void model_remove_encoders(tacit_model *m);

/* The encoder of a modality, or NULL. */
const model_encoder *model_encoder_of(const tacit_model *m, tacit_modality modality);
/* TACIT_BAD_INPUT naming the encoder that the model lacks, and what to do. */
tacit_status model_encoder_missing(tacit_modality modality, const char *medium, tacit_error *err);
/* The vision tower, or NULL without an image encoder. */
const tacit_vision *model_vision(const tacit_model *m);

#endif
