/* The text model of a GGUF file, every key and shape checked at loading.
 *
 * The structure is plain on purpose: training copies it and points linears and norms at its own
 * values. Numbers, norms, rotation, window and activation are per layer. Immutable after loading
 * and shared by contexts and threads. What architectures differ in are fields: biases, norms that
 * may be NULL, scales (text_arch.h). x = embedding * embedding_scale of a token, or a medium's row;
 * per layer (Touvron et al. 2023; the post norms: Gemma Team 2024, arXiv 2408.00118, section 2):
 *   x += attn_post_norm(mix(rms_norm(x, attn_norm))): mix is the layer's kind (text_mixer.h)
 *   x += ffn_post_norm(down(act(gate(h)) * up(h))), h = rms_norm(x, ffn_norm)
 * and logits = output(rms_norm(x, output_norm)). Without a post norm nothing is there. */
#ifndef TACIT_ENGINE_TEXT_MODEL_H
#define TACIT_ENGINE_TEXT_MODEL_H

#include "engine/gguf.h"
#include "engine/linear.h"
#include "engine/ops.h"

/* The linears of a layer, in the order of computation: of attention, of the feed-forward, of a
 * short convolution. A layer has those of its kind; the others have no outputs (text_has_linear).
 */
typedef enum text_linear {
    TEXT_Q,
    TEXT_K,
    TEXT_V,
    TEXT_O,
    TEXT_GATE,
    TEXT_UP,
    TEXT_DOWN,
    TEXT_CONV_IN,
    TEXT_CONV_OUT,
    TEXT_LINEARS
} text_linear;

/* "attn_q", "attn_k", "attn_v", "attn_output", "ffn_gate", "ffn_up", "ffn_down",
 * "shortconv.in_proj", "shortconv.out_proj": the middle part of GGUF tensor names blk.N.NAME.weight
 * and words of tacit_trainable_spec.target. */
const char *text_linear_name(text_linear which);
/* TEXT_LINEARS when there is none of that name. */
text_linear text_linear_find(const char *name);
/* All of them with commas between, for errors; out[160] is enough. Returns `out`. */
const char *text_linear_names(char *out, size_t size);

/* The norms of a layer; Q and K: of every head, shared by the heads; POST: of what a half of the
 * layer adds to the stream. Kept among them: the kernel of a short convolution, a small tensor too.
 */
typedef enum text_norm {
    TEXT_ATTN_NORM,
    TEXT_FFN_NORM,
    TEXT_Q_NORM,
    TEXT_K_NORM,
    TEXT_ATTN_POST_NORM,
    TEXT_FFN_POST_NORM,
    TEXT_CONV_KERNEL,
    TEXT_NORMS
} text_norm;

/* "attn_norm", "ffn_norm", "attn_q_norm", "attn_k_norm", "post_attention_norm", "post_ffw_norm",
 * "shortconv.conv": the middle part of GGUF tensor names. */
const char *text_norm_name(text_norm which);
/* TEXT_NORMS when there is none of that name. */
text_norm text_norm_find(const char *name);

/* Rotations of a model: that of its first layers, and another for some (Gemma 3's windows). */
#define TEXT_ROPES 2

typedef struct text_mixer text_mixer;

typedef struct tacit_text_layer {
    const text_mixer *mixer; /* the layer's kind */
    size_t n_heads, n_kv_heads, n_ff;
    /* State of its kind beside keys and values: values a row, of so many rows before a row. */
    size_t n_state, n_behind;
    size_t rope;   /* which of the model's */
    size_t window; /* of attention (text_place.h); 0: none */
    float scale;   /* of the scores of attention */
    const ops_gated *activation;
    /* Q and K [head_dim], the kernel [embedding, conv_width], the others [embedding]; NULL where
     * the model has none. */
    const float *norm[TEXT_NORMS];
    /* Q [embedding -> n_heads * head_dim], K and V [embedding -> n_kv_heads * head_dim],
     * O [n_heads * head_dim -> embedding], GATE and UP [embedding -> n_ff], DOWN back; CONV_IN
     * [embedding -> 3 * embedding], CONV_OUT [embedding -> embedding]. */
    tacit_linear linear[TEXT_LINEARS];
} tacit_text_layer;

typedef struct tacit_text_model {
    const char *architecture; /* "llama": what the file says */
    size_t embedding, vocab, n_layers, context_length;
    size_t head_dim;
    size_t conv_width; /* rows that a short convolution sums over; 0: there is none */
    size_t max_heads, max_kv_heads, max_ff; /* over the layers: for planning memory */
    float rms_eps;
    float embedding_scale; /* of tokens' rows */
    size_t n_ropes;
    ops_rope rope[TEXT_ROPES];    /* all scaling applied; frequencies and axes are the model's */
    tacit_linear token_embedding; /* [vocab, embedding]: rows by linear_row */
    tacit_linear output;          /* [vocab, embedding]; the embedding's weight when tied */
    bool tied;
    const float *output_norm;     /* [embedding] */
    const char *output_norm_name; /* of the tensor: "output_norm.weight" but for LFM2 */
    tacit_text_layer *layer;      /* [n_layers] */
    float **owned;                /* small tensors converted to fp32 at loading */
    size_t n_owned;
} tacit_text_model;

/* `file` must outlive the model. Refuses (TACIT_BAD_INPUT) other architectures by name, missing
 * keys, numbers that do not fit together (heads do not divide, rope dimension other than the head,
 * ...), keys that would change the answers (experts, a window of attention, ...), every tensor of
 * another shape, naming tensor, expected and found, and every tensor that has no place. Models of
 * at most TEXT_CACHE_VALUES weights keep fp32 copies (linear_cache). */
tacit_status text_model_load(tacit_text_model *out, const gguf_file *file,
                             tacit_error *err) TACIT_MUST_CHECK;
void text_model_unload(tacit_text_model *m);

#define TEXT_CACHE_VALUES (4u << 20)

/* A row of one of the norms: embedding or head_dim; they are one row but for the kernel. */
size_t text_norm_size(const tacit_text_model *m, text_norm which);
size_t text_norm_rows(const tacit_text_model *m, text_norm which);
bool text_has_linear(const tacit_text_layer *l, text_linear which);
/* Whether any layer has it. */
bool text_has_norm(const tacit_text_model *m, text_norm which);

/* The low-rank pairs of an adapter: pair[layer * TEXT_LINEARS + which], rank 0 where the adapter
 * has none. What a context binds and the trainer builds over its flat vector. */
typedef struct text_pairs {
    const tacit_low_rank *pair; /* [n_layers * TEXT_LINEARS] */
    tacit_low_rank output;
    size_t max_rank;
    uint8_t digest[32]; /* of the adapter's content: part of the key of cached keys and values */
} text_pairs;

/* The pair of one linear, or NULL; `pairs` may be NULL. */
const tacit_low_rank *text_pair(const text_pairs *pairs, size_t layer, text_linear which);
const tacit_low_rank *text_output_pair(const text_pairs *pairs);

/* x[rows, embedding] = the scaled embeddings of `token` (each in [0, vocab)). */
void text_embed(const tacit_text_model *m, float *x, const int32_t *token, size_t rows);

#endif
