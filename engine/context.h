/* Inference: rows in, logits out, with keys and values kept in pages of 64 rows.
 *
 * A context belongs to one thread of control, which drives the pool; the model is shared. Rows are
 * computed in chunks. What a row sees says text_place.h; positions ascend. In
 * `exact` precision (fp32 on dequantized weights) a row's logits do not depend on the number of
 * threads; `fast` multiplies quantized weights by activations quantized to blocks of 8 bits. Where
 * the kernels have tiles, a fast row's bits also depend on whether its chunk has enough rows for
 * them (fast.h): the last rows of a prompt, and generated ones, may have too few. */
#ifndef TACIT_ENGINE_CONTEXT_H
#define TACIT_ENGINE_CONTEXT_H

#include "common/pool.h"
#include "engine/adapter.h"
#include "engine/input.h"
#include "engine/model.h"
#include "engine/precision.h"

typedef struct tacit_context tacit_context;

/* How rows of full pages of keys and values are kept (kv_page.h): INT8 takes a quarter of F32. */
typedef enum tacit_kv_type { TACIT_KV_F32, TACIT_KV_F16, TACIT_KV_INT8 } tacit_kv_type;

typedef struct tacit_context_spec {
    tacit_precision precision;
    tacit_kv_type kv;
    size_t max_rows; /* longest sequence; 0: the model's context length. Pages come as needed */
    size_t chunk;    /* rows computed together; 0: 128 */
} tacit_context_spec;

/* What a context takes, in bytes: the weights (the file's, which it reads through and through, or
 * in fast precision the panels that they are packed into), keys and values of all its rows, and its
 * working memory. Saturates. `spec` and `pool` may be NULL. */
typedef struct tacit_context_plan {
    uint64_t weights, keys_values, working, total;
    uint64_t mapped; /* of the weights: pages of the file, which limits of a process leave alone */
} tacit_context_plan;
tacit_context_plan tacit_context_plan_of(const tacit_model *model, const tacit_context_spec *spec,
                                         tacit_pool *pool);

/* `spec` and `pool` may be NULL; model and pool outlive the context. TACIT_USAGE when max_rows is
 * above the model's context length. TACIT_NO_MEMORY when the plan is more than is available
 * (common/memory_limit.h): the message says what it comes to and what would fit. Where max_rows is
 * 0 only the first page of keys and values is counted; later ones are judged as they come. */
tacit_status tacit_context_new(tacit_context **out, const tacit_model *model,
                               const tacit_context_spec *spec, tacit_pool *pool,
                               tacit_error *err) TACIT_MUST_CHECK;
void tacit_context_free(tacit_context *c);

/* From now on computes with the adapter (NULL: the base alone), which outlives its use here. The
 * rows held are forgotten: keys and values of another adapter are wrong. */
tacit_status tacit_context_bind(tacit_context *c, const tacit_adapter *adapter,
                                tacit_error *err) TACIT_MUST_CHECK;

/* Appends n >= 1 rows and computes the logits of the last one. `media` is what the rows that are
 * not tokens refer to; their encoder rows must be there. A mask group lies within one call and
 * within a chunk. TACIT_BAD_INPUT: a token outside the vocabulary, a media row that is not there,
 * positions that do not ascend or are beyond the model's context length, a group that does not fit
 * a chunk, or more rows than the context holds; then the context holds the rows it held before. */
tacit_status tacit_context_feed(tacit_context *c, const tacit_row *row, size_t n,
                                const tacit_media *media, size_t n_media,
                                tacit_error *err) TACIT_MUST_CHECK;

/* As feed, and calls sink(ctx, i, logits) for every row i in [0, n), in order; logits[vocab] is
 * valid during the call. A status other than TACIT_OK ends the feeding with it, and of the rows
 * held before those remain that tacit_context_truncate would leave. */
typedef tacit_status (*tacit_logits_sink)(void *ctx, size_t row, const float *logits);
tacit_status tacit_context_feed_all(tacit_context *c, const tacit_row *row, size_t n,
                                    const tacit_media *media, size_t n_media,
                                    tacit_logits_sink sink, void *ctx,
                                    tacit_error *err) TACIT_MUST_CHECK;

/* Appends one token at the position behind all numbers of the last row's. */
tacit_status tacit_context_feed_token(tacit_context *c, int32_t token,
                                      tacit_error *err) TACIT_MUST_CHECK;

/* [vocab] of the last row fed; valid until the next feed. Zeros before the first. */
const float *tacit_context_logits(const tacit_context *c);

/* Sees what enters the linears: x[rows, n_in] of linear `which` (text_linear) of `layer`, called
 * once for those that share an input, with the first of them; layer n_layers and which 0 is the
 * output. */
typedef struct tacit_tap {
    void (*see)(void *ctx, size_t layer, size_t which, const float *x, size_t rows);
    void *ctx;
} tacit_tap;

/* From now on every row fed is seen too; NULL: none. The tap outlives its use here. */
void tacit_context_tap(tacit_context *c, const tacit_tap *tap);

size_t tacit_context_rows(const tacit_context *c);
size_t tacit_context_max_rows(const tacit_context *c);
/* Forgets all rows but the first `rows`, so that several continuations share a prefix; a mask group
 * that this cuts is forgotten whole, and layers with state of their own (text_mixer.h) go back to
 * the begin of a page. Returns how many remain. Within a full page that is kept in less than F32,
 * what continues sees its rows as they were kept. */
size_t tacit_context_truncate(tacit_context *c, size_t rows);

#endif
