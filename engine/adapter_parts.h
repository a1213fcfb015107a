/* What the rest of the engine sees of a loaded adapter: one low-rank pair per adapted tensor. */
#ifndef TACIT_ENGINE_ADAPTER_PARTS_H
#define TACIT_ENGINE_ADAPTER_PARTS_H

#include "engine/adapter.h"
#include "engine/encoder_adapter.h"
#include "engine/model_parts.h"
#include "engine/soft_prompt.h"

/* y += scale * b (core (a x)), with a[rank, n_in], b[n_out, rank] and core[rank, rank], fp32,
 * row-major. Owned by the adapter. */
typedef struct adapter_pair {
    const char *tensor; /* name of the base tensor, "blk.3.attn_output.weight" */
    size_t rank, n_in, n_out;
    float scale; /* alpha / rank; 1 where the file has no alpha or alpha 0 */
    float *a, *b;
    float *core; /* NULL: the identity */
} adapter_pair;

/* What general.type "adapter" is further said to be in adapter.type. */
#define ADAPTER_TYPE_LORA "lora"
/* Pairs beside encoders' linears among them: other programs would not find those. */
#define ADAPTER_TYPE_TACIT_LORA "tacit.lora"
/* Cores alone, between halves that are drawn from tacit.seed: not of the ecosystem. */
#define ADAPTER_TYPE_CORE "tacit.core"

/* Soft prompts, no pairs. */
#define ADAPTER_TYPE_PROMPT "tacit.prompt"

/* What the keys of an adapter's file say by themselves. */
typedef struct adapter_keys {
    const char *type; /* one of the above */
    tacit_adapter_info info;
    uint8_t seed[32]; /* of ADAPTER_TYPE_CORE */
    double alpha;     /* 0: none, pairs count as they are */
} adapter_keys;

/* TACIT_BAD_INPUT: no adapter, of no known type or format, or keys that are malformed. Canaries are
 * told in the log. */
tacit_status adapter_keys_read(adapter_keys *out, const gguf_file *file,
                               tacit_error *err) TACIT_MUST_CHECK;
/* Puts those of a file for `model`; `base_digest` NULL: nobody knows what it was trained on. */
void adapter_keys_put(gguf_writer *w, const tacit_model *model, const adapter_keys *keys,
                      const uint8_t *base_digest);

/* The adapter in an open file, which may be closed afterwards; its digest stays zero. */
tacit_status adapter_from_file(tacit_adapter **out, const tacit_model *model, const gguf_file *file,
                               tacit_error *err) TACIT_MUST_CHECK;

/* The pair of a base tensor, or NULL when the adapter leaves it alone. */
const adapter_pair *adapter_find(const tacit_adapter *a, const char *tensor);
/* The same as what linears compute with; of rank 0 where there is none. `a` may be NULL. */
tacit_low_rank adapter_low_rank(const tacit_adapter *a, const char *tensor);
/* Those beside an encoder's linears: max_rank is 0 when there are none. out->pair is malloc'ed, its
 * halves are the adapter's. */
tacit_status adapter_beside(encoder_adapter *out, const tacit_adapter *a, const model_encoder *e,
                            tacit_error *err) TACIT_MUST_CHECK;
size_t adapter_pair_count(const tacit_adapter *a);
/* A soft prompt, of no rows where the adapter has none; the adapter's. */
soft_prompt adapter_prompt(const tacit_adapter *a, soft_prompt_place place);
const adapter_keys *adapter_get_keys(const tacit_adapter *a);
const adapter_pair *adapter_pair_at(const tacit_adapter *a, size_t i);
/* SHA-256 of the file: with the base digest the key of anything computed under this adapter. */
const uint8_t *adapter_digest(const tacit_adapter *a);

#endif
