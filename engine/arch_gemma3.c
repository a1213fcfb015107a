/* Gemma 3 (Gemma Team 2025, arXiv 2503.19786, section 2): five layers of attention over a window
 * for each one over everything, each sort with a rotation of its own; heads of q and k normed,
 * norms behind both halves of a layer, GeGLU, embeddings times the root of their width. The files'
 * norms have the models' "1 + w" in them already. */
#include "engine/text_loader.h"

#include <math.h>

#define WINDOW_BASE 10000.0 /* of the rotation under a window: no key says it */
#define PATTERN 6           /* each so many-th layer sees everything */
#define LAYERS_OF_27B 62    /* whose scores are scaled by the width a head, not by the head's */

static void set_layer(tacit_text_model *m, size_t i, size_t window, size_t pattern)
{
    tacit_text_layer *l = &m->layer[i];
    bool local = window > 0 && (i + 1) % pattern != 0;
    l->window = local ? window : 0;
    l->rope = local ? 1 : 0;
    if (m->n_layers == LAYERS_OF_27B)
        l->scale = 1.0f / sqrtf((float)(m->embedding / l->n_heads));
}

static tacit_status set_layers(text_loader *t)
{
    tacit_text_model *m = t->m;
    size_t window, pattern;
    double base;
    tacit_status status;
    TACIT_TRY(text_get_optional_size(t, "attention.sliding_window", UINT32_MAX, 0, &window), done);
    TACIT_TRY(text_get_optional_size(t, "attention.sliding_window_pattern", m->n_layers + PATTERN,
                                     PATTERN, &pattern),
              done);
    TACIT_TRY(text_get_real(t, "rope.freq_base_swa", WINDOW_BASE, 1.001, 1e12, &base), done);
    TACIT_TRY(text_add_rope(t, base), done);
    m->embedding_scale = sqrtf((float)m->embedding);
    for (size_t i = 0; i < m->n_layers; i++)
        set_layer(m, i, window, pattern);
done:
    return status;
}

const text_arch arch_gemma3 = {
    .name = "gemma3",
    .rope = OPS_ROPE_HALVES,
    .activation = &ops_geglu,
    .norm = {[TEXT_ATTN_NORM] = TEXT_REQUIRED,
             [TEXT_FFN_NORM] = TEXT_REQUIRED,
             [TEXT_Q_NORM] = TEXT_REQUIRED,
             [TEXT_K_NORM] = TEXT_REQUIRED,
             [TEXT_ATTN_POST_NORM] = TEXT_REQUIRED,
             [TEXT_FFN_POST_NORM] = TEXT_REQUIRED},
    .windows = true,
    .layers = set_layers,
};
