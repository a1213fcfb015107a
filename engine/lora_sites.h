/* Which linears of a model the low-rank pairs of an adapter stand beside, and with what rank.
 *
 * A target of tacit_trainable_spec is PATTERN or PATTERN=RANK; * stands for any characters, ? for
 * one. Without a dot PATTERN is about the text model's linears by their short names ("attn_q",
 * "ffn_*": in all layers that have them; "output"), with one about whole tensor names without
 * ".weight", encoders' as well ("blk.1?.ffn_*", "v.blk.*.attn_q", "mm.*"); "shortconv.in_proj" is a
 * short name. The first target that fits a linear gives it its rank. Embeddings are no linears, and
 * an output that shares their tensor is none either. */
#ifndef TACIT_ENGINE_LORA_SITES_H
#define TACIT_ENGINE_LORA_SITES_H

#include "engine/model.h"
#include "engine/text_model.h"
#include "engine/trainable.h"

typedef enum lora_place {
    LORA_LAYER,  /* a linear of a layer of the text model */
    LORA_OUTPUT, /* the text model's output */
    LORA_ENCODER /* a linear of an encoder, projectors among them */
} lora_place;

typedef struct lora_site {
    char tensor[128]; /* of the base: "blk.3.attn_q.weight" */
    lora_place place;
    size_t layer; /* of LORA_LAYER */
    text_linear which;
    size_t encoder, part; /* of LORA_ENCODER: the model's encoder, and which of its tensors */
    size_t n_in, n_out;
    uint32_t rank; /* by a spec; lora_site_find leaves it and scale at 0 */
    float scale;   /* by which the product of the pair counts */
} lora_site;

/* The linear whose weight is `tensor`; false when no pair can stand beside it. */
bool lora_site_find(lora_site *out, const tacit_model *model, const char *tensor);

typedef struct lora_sites {
    lora_site *site; /* layers in order, of one by target; the output; encoders, tensor by tensor */
    size_t count, max_rank;
    bool encoders; /* some are of encoders */
} lora_sites;

/* TACIT_USAGE: a rank or alpha that cannot be, a target that is malformed, fits nothing of the
 * model or only what earlier ones took. Free with lora_sites_free. */
tacit_status lora_sites_of(lora_sites *out, const tacit_model *model,
                           const tacit_trainable_spec *spec, tacit_error *err) TACIT_MUST_CHECK;
void lora_sites_free(lora_sites *s);

/* adapter.lora.alpha of a file of such an adapter: readers scale a pair by it over the rank. */
float lora_file_alpha(const tacit_trainable_spec *spec);
/* What B is multiplied by in a file, so that readers scale the pair as the spec does; 1 but for
 * rsLoRA beside a rank other than the spec's. */
float lora_file_factor(const tacit_trainable_spec *spec, uint32_t rank);

#endif
