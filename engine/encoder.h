/* What the trainer asks of an encoder whose values it trains (TACIT_TRAIN_PROJECTOR: the projector
 * over a frozen tower, TACIT_TRAIN_ALL: tower and projector). The vision tower implements it; audio
 * and sensor encoders join behind the same functions.
 *
 * `entry` rows name the tensors in the order of the encoder's part of the flat vector: tower before
 * projector, each in the order of its file. A row's offset counts from the first value of the
 * layout's whole vector; the trainer fills it in and passes the same table everywhere. Values are
 * fp32, shapes as GGUF has them: cols = ne[0], rows = the product of the other dimensions.
 *
 * A workspace belongs to one thread; functions below run in the calling thread alone, so the
 * results do not depend on any thread count. Gradients are ADDED to `grad`, in an order that
 * depends on the pictures of this call alone. */
#ifndef TACIT_ENGINE_ENCODER_H
#define TACIT_ENGINE_ENCODER_H

#include "engine/input.h"
#include "engine/model.h"
#include "engine/trainable.h"

typedef struct encoder_train encoder_train;

/* Number of trained tensors; fills name, rows and cols of each when `entry` is not NULL. Zero
 * without an encoder. */
size_t encoder_entries(const tacit_model *model, bool tower, tacit_trainable_entry *entry);

/* Writes the file's dequantized values of every entry at values + entry[i].offset. */
tacit_status encoder_initial_values(const tacit_model *model, const tacit_trainable_entry *entry,
                                    size_t count, float *values, tacit_error *err) TACIT_MUST_CHECK;

/* A workspace for up to `max_media` pictures of one example at a time. `entry` outlives it. With a
 * count of 0 nothing is trained and only the forward may be called. */
tacit_status encoder_train_new(encoder_train **out, const tacit_model *model, bool tower,
                               const tacit_trainable_entry *entry, size_t count, size_t max_media,
                               tacit_error *err) TACIT_MUST_CHECK;
void encoder_train_free(encoder_train *e);

/* rows[i] receives media[i]'s rows [media[i].n_rows, embedding], computed from media[i].pixels with
 * the trained values (and the file's where frozen). What the backward needs is kept inside. */
tacit_status encoder_train_forward(encoder_train *e, const float *values, const tacit_media *media,
                                   size_t n_media, float *const *rows,
                                   tacit_error *err) TACIT_MUST_CHECK;

/* d_rows[i] is the gradient of the loss by rows[i] of the last forward, whose values and pictures
 * are still as they were. */
void encoder_train_backward(encoder_train *e, const float *const *d_rows, size_t n_media,
                            float *grad);

#endif
