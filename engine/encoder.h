/* What the trainer asks of a model's encoders whose values it trains (TACIT_TRAIN_PROJECTOR: every
 * projector over a frozen tower, TACIT_TRAIN_ALL: towers and projectors), or beside whose linears
 * it trains low-rank pairs.
 *
 * `entry` rows name the tensors in the order of the encoders' part of the flat vector: encoders in
 * the order of their mmproj files, each tower before its projector, each in the order of
 * encoder_kind.tensor_at. A row's offset counts from the first value of the layout's whole vector;
 * the trainer fills it in and passes the same table everywhere. Values are fp32, shapes as GGUF has
 * them: cols = ne[0], rows = the product of the other dimensions.
 *
 * A workspace belongs to one thread; functions below run in the calling thread alone, so the
 * results do not depend on any thread count. Gradients are ADDED to `grad`: encoder by encoder in
 * the order of files, within one in the order of the example's media; so they depend on the media
 * of this call alone. */
#ifndef TACIT_ENGINE_ENCODER_H
#define TACIT_ENGINE_ENCODER_H

#include "engine/input.h"
#include "engine/lora_sites.h"
#include "engine/model.h"
#include "engine/train_plan.h"
#include "engine/trainable.h"

typedef struct encoder_train encoder_train;

/* Number of trained tensors; fills name, rows and cols of each when `entry` is not NULL. Zero
 * without an encoder. */
size_t encoder_entries(const tacit_model *model, bool tower, tacit_trainable_entry *entry);

/* Writes the file's dequantized values of every entry at values + entry[i].offset. */
tacit_status encoder_initial_values(const tacit_model *model, const tacit_trainable_entry *entry,
                                    size_t count, float *values, tacit_error *err) TACIT_MUST_CHECK;

/* A workspace; it grows with the examples it sees. `entry` outlives it. With a count of 0 nothing
 * is trained and only the forward may be called. */
tacit_status encoder_train_new(encoder_train **out, const tacit_model *model, bool tower,
                               const tacit_trainable_entry *entry, size_t count,
                               tacit_error *err) TACIT_MUST_CHECK;
void encoder_train_free(encoder_train *e);

/* From now on the pairs of those sites that are of encoders stand beside their linears, and are
 * trained: pair[i] is that of site i over the values, place[i] where its gradients go in the flat
 * vector. Copies all of it. Called once, before the first forward, with a count of 0 above. */
tacit_status encoder_train_adapt(encoder_train *e, const lora_sites *sites,
                                 const tacit_low_rank *pair, const train_pair *place,
                                 tacit_error *err) TACIT_MUST_CHECK;

/* Refuses (TACIT_BAD_INPUT) a medium whose rows cannot be had: it has none that may be used and no
 * values, no encoder computes it, or its dimensions are not the encoder's. */
tacit_status encoder_train_check(const encoder_train *e, const tacit_media *media,
                                 tacit_error *err) TACIT_MUST_CHECK;

/* rows[i] receives media[i]'s rows [media[i].n_rows, embedding]: computed from its values with the
 * trained values (and the file's where frozen), or copied where nothing is trained and it has rows.
 * What the backward needs is kept inside. Every medium passed encoder_train_check. */
tacit_status encoder_train_forward(encoder_train *e, const float *values, const tacit_media *media,
                                   size_t n_media, float *const *rows,
                                   tacit_error *err) TACIT_MUST_CHECK;

/* d_rows[i] is the gradient of the loss by rows[i] of the last forward, whose values and media are
 * still as they were. */
void encoder_train_backward(encoder_train *e, float *const *d_rows, float *grad);

#endif
