/* The packed weights of a text model: made at the first fast context, shared by all of them.
 *
 * The file's pages are given back to the system as soon as they are packed, so that the resident
 * set stays near the file's size; exact contexts and training read the map again. */
#ifndef TACIT_ENGINE_FAST_MODEL_H
#define TACIT_ENGINE_FAST_MODEL_H

#include "engine/fast_pack.h"
#include "engine/text_model.h"

typedef struct fast_model {
    fast_weight *layer; /* [n_layers * TEXT_LINEARS] */
    fast_weight output;
    uint8_t *memory; /* all panels */
    size_t bytes;
} fast_model;

/* Holds one fast_model from its first use on. Thread-safe. */
typedef struct fast_packing fast_packing;

/* NULL when there is no memory. */
fast_packing *fast_packing_new(void);
void fast_packing_free(fast_packing *p);

/* The packed weights of m, which came from `file` (NULL: not from a map); `pool` (the caller's own)
 * does the work at the first call. They live as long as the packing. TACIT_NO_MEMORY. */
tacit_status fast_packing_get(fast_packing *p, const fast_model **out, const tacit_text_model *m,
                              const gguf_file *file, tacit_pool *pool,
                              tacit_error *err) TACIT_MUST_CHECK;

/* As fast_weight_plan, for the kernels in use. F32 stays as the file has it: split (fast_kernels.h)
 * it takes as much memory, and a single row as much time. */
size_t fast_model_plan(fast_weight *w, const tacit_linear *l);

#endif
