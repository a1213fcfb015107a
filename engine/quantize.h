/* From one model file to another whose weights have other types: tensor by tensor, so that memory
 * holds one of them. Keys, names and order stay; general.file_type and quantization_version follow.
 *
 * Of text models the linears, the embedding and the output are converted, and everything of one
 * dimension (norms, biases, factors) becomes fp32; of encoders (mmproj) the linears alone, while
 * patch kernels, norms, biases and positions stay as they are. As in the ecosystem the output - the
 * embedding where both are one tensor - gets at least q6_k, because it costs the most. Rows that a
 * type's blocks do not divide fall back: q4_k to q5_0, q5_k to q5_1, q6_k to q8_0, types of 32
 * values to f16. */
#ifndef TACIT_ENGINE_QUANTIZE_H
#define TACIT_ENGINE_QUANTIZE_H

#include "common/pool.h"
#include "engine/importance.h"

typedef struct quantize_rule {
    const char *pattern; /* of tensor names: * and ? stand for any text, as in a shell */
    const tacit_type_traits *type;
} quantize_rule;

typedef struct quantize_options {
    const tacit_type_traits *type;
    const tacit_type_traits *output;    /* NULL: `type`, q6_k at least */
    const tacit_type_traits *embedding; /* NULL: `type`, or as the output where it is that */
    const quantize_rule *rule;          /* before all of these; the first that holds decides */
    size_t n_rules;
    const importance *weights; /* NULL: none */
    const char *weights_path;  /* what the file says of them; NULL without */
} quantize_options;

typedef struct quantize_tensor {
    const gguf_tensor *from;
    const tacit_type_traits *to;     /* NULL: the bytes are copied */
    const tacit_type_traits *wanted; /* another than `to` where its blocks do not fit the rows */
    const importance_entry *weights; /* NULL: none */
    double error;                    /* root mean square of the change; after writing */
} quantize_tensor;

typedef struct quantize_plan {
    const gguf_file *file;
    const quantize_options *options;
    quantize_tensor *tensor; /* one for each of the file's, in its order */
    size_t count;
    size_t requantized; /* of a quantized type before: they lose twice */
    size_t weighted;    /* converted with an entry of the weights given */
    size_t unweighted;  /* converted without one, though weights are given */
} quantize_plan;

/* Decides for every tensor. TACIT_BAD_INPUT: an adapter, an importance matrix, a part of a split
 * model, a file of no known kind, a type that cannot be read, weights of another width;
 * TACIT_USAGE: a rule that no tensor matches. File and options outlive the plan; free also after a
 * failure. */
tacit_status quantize_plan_make(quantize_plan *out, const gguf_file *file,
                                const quantize_options *options, tacit_error *err) TACIT_MUST_CHECK;
void quantize_plan_free(quantize_plan *p);

/* Writes the file, atomically. Rows are converted on the pool (NULL: in the caller); the bytes do
 * not depend on its threads. TACIT_NO_MEMORY, before anything is written, where the largest tensor
 * does not fit. A value that is not finite, or beyond what its type holds, is refused with the
 * tensor's name. seen(ctx, i) is called when tensor i is done; it may be NULL. */
tacit_status quantize_write(quantize_plan *p, const char *path, tacit_pool *pool,
                            void (*seen)(void *ctx, size_t i), void *ctx,
                            tacit_error *err) TACIT_MUST_CHECK;

#endif
