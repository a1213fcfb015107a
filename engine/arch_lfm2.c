/* LFM2 (Liquid AI 2025, arXiv 2511.23404, section 2): some layers attend, with normed heads of q
 * and k, the others convolve over the last few rows. In the files those have no key-value heads. */
#include "engine/kv_page.h"
#include "engine/text_mixer.h"

static tacit_status set_layers(text_loader *t)
{
    tacit_text_model *m = t->m;
    tacit_status status = text_get_size(t, "shortconv.l_cache", KV_PAGE_ROWS, &m->conv_width);
    for (size_t i = 0; status == TACIT_OK && i < m->n_layers; i++) {
        tacit_text_layer *l = &m->layer[i];
        if (l->n_kv_heads > 0)
            continue;
        l->mixer = &mixer_shortconv;
        l->n_state = m->embedding;
        l->n_behind = m->conv_width - 1;
    }
    return status;
}

const text_arch arch_lfm2 = {
    .name = "lfm2",
    .rope = OPS_ROPE_HALVES,
    .activation = &ops_swiglu,
    .norm = {[TEXT_ATTN_NORM] = TEXT_REQUIRED,
             [TEXT_FFN_NORM] = TEXT_REQUIRED,
             [TEXT_Q_NORM] = TEXT_REQUIRED,
             [TEXT_K_NORM] = TEXT_REQUIRED,
             [TEXT_CONV_KERNEL] = TEXT_REQUIRED},
    .output_norm = "token_embd_norm.weight",
    .convolves = true,
    .layers = set_layers,
};
