/* What the room asks of an encoder, whatever its medium: one row of a table per kind. A further
 * encoder is one file that fills in a row, and one line in encoder_kind.c.
 *
 * `self` is a loaded encoder: immutable, shared by threads. A pass holds the buffers of one thread
 * of control. Media of a call are computed one by one: the rows of one do not depend on the others,
 * gradients are summed in the order of the media, neither depends on the number of threads. */
#ifndef TACIT_ENGINE_ENCODER_KIND_H
#define TACIT_ENGINE_ENCODER_KIND_H

#include "common/pool.h"
#include "engine/dataset.h"
#include "engine/encoder_adapter.h"
#include "engine/encoder_tensor.h"
#include "engine/input.h"
#include "engine/media_layout.h"
#include "engine/precision.h"
#include "engine/tokenizer.h"

/* The bytes of one medium, and how it is wanted. */
typedef struct media_request {
    const uint8_t *data;
    size_t size;
    const char *name; /* of the file, for errors */
    const tacit_tokenizer *tokenizer;
    media_form form; /* of pictures */
    bool several;    /* other media of the kind are in the conversation */
} media_request;

/* Takes what a medium becomes, in order: tokens, and prepared media whose rows stand in their
 * place. `media` takes the values over, also on failure. */
typedef struct media_sink {
    void *ctx;
    tacit_status (*token)(void *ctx, int32_t id);
    tacit_status (*media)(void *ctx, tacit_media *media);
} media_sink;

typedef struct encoder_kind {
    tacit_modality modality;
    tacit_content_kind content;
    const char *word;  /* "image": of content types, options and messages */
    const char *claim; /* the key by which a clip file is of this kind; NULL: "tacit.WORD" is */
    const char *begin, *end; /* markers around a medium where the file names none; or NULL */
    size_t max_file;         /* largest file of the medium */

    tacit_status (*load)(void **self, const gguf_file *file, tacit_error *err) TACIT_MUST_CHECK;
    void (*free)(void *self);
    size_t (*width)(const void *self); /* values of a row */
    size_t (*tensor_count)(const void *self);
    encoder_tensor (*tensor_at)(const void *self, size_t i);

    /* Decodes, prepares and hands to `sink`. TACIT_BAD_INPUT: not a medium of this kind. Errors
     * begin with the request's name. */
    tacit_status (*lay_out)(const void *self, const media_request *request, const media_sink *sink,
                            tacit_error *err) TACIT_MUST_CHECK;
    /* TACIT_BAD_INPUT unless `media` has the dimensions and rows that the encoder computes. */
    tacit_status (*check)(const void *self, const tacit_media *media,
                          tacit_error *err) TACIT_MUST_CHECK;

    /* A kind without a fast form computes exactly. */
    tacit_status (*pass_new)(void **pass, const void *self, size_t max_media, pass_use use,
                             tacit_pool *pool, tacit_error *err) TACIT_MUST_CHECK;
    void (*pass_free)(void *pass);
    /* What such a pass takes; `use` is not PASS_FAST. */
    uint64_t (*pass_bytes)(const void *self, size_t max_media, pass_use use, tacit_pool *pool);
    /* From now on `adapter` stands beside the file's weights, forward and backward; it outlives its
     * use here. NULL: none. */
    tacit_status (*pass_adapt)(void *pass, const encoder_adapter *adapter,
                               tacit_error *err) TACIT_MUST_CHECK;
    /* rows[i][n_rows, width] of n checked media, n at most max_media. `weights` has an entry a
     * tensor: fp32 values that stand for the file's, or NULL; it may be NULL itself. */
    void (*forward)(void *pass, const float *const *weights, const tacit_media *const *media,
                    size_t n, float *const *rows);
    /* Adds to grads[tensor], where not NULL, the gradient for d_rows[i] by the rows of the last
     * forward, whose media and weights are as they were; and what the adapter asks for. */
    void (*backward)(void *pass, const float *const *d_rows, float *const *grads);
} encoder_kind;

#define ENCODER_KINDS_MAX 3 /* rows of the table at most: a model has one encoder of a kind */

extern const encoder_kind encoder_image;
extern const encoder_kind encoder_audio;
extern const encoder_kind encoder_sensor;

size_t encoder_kind_count(void);
const encoder_kind *encoder_kind_at(size_t i);
const encoder_kind *encoder_kind_of_modality(tacit_modality modality);   /* or NULL */
const encoder_kind *encoder_kind_of_content(tacit_content_kind content); /* or NULL: text */

/* What kind of encoder a file says it holds. TACIT_BAD_INPUT: none, several, or one that is not
 * known; the error says what is. */
tacit_status encoder_kind_of_file(const encoder_kind **out, const gguf_file *file,
                                  tacit_error *err) TACIT_MUST_CHECK;
/* Whether general.architecture is one that encoder files have. */
bool encoder_kind_is_encoder_file(const gguf_file *file);

#endif
