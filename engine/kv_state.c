#include "engine/kv_cache.h"

#include <string.h>

/* The last n_behind rows of a full page. */
static float *tail_of(const kv_cache *c, size_t layer, size_t page)
{
    const tacit_text_layer *l = &c->m->layer[layer];
    size_t at = c->layer_at[layer] + l->n_kv_heads * c->form->bytes(c->m->head_dim);
    return (float *)(void *)(c->page[page] + at);
}

void kv_state_before(const kv_cache *c, size_t layer, size_t first, float *out)
{
    const tacit_text_layer *l = &c->m->layer[layer];
    const float *open = c->state + c->state_at[layer];
    size_t slot = first % KV_PAGE_ROWS, page = first / KV_PAGE_ROWS;
    for (size_t k = 0; k < l->n_behind; k++, out += l->n_state) {
        const float *from = NULL; /* of row first - n_behind + k */
        if (slot + k >= l->n_behind)
            from = open + (slot + k - l->n_behind) * l->n_state;
        else if (page > 0)
            from = tail_of(c, layer, page - 1) + (slot + k) * l->n_state;
        if (from)
            memcpy(out, from, l->n_state * sizeof *out);
        else
            memset(out, 0, l->n_state * sizeof *out);
    }
}

void kv_state_store(kv_cache *c, size_t layer, size_t first, size_t n, const float *values)
{
    const tacit_text_layer *l = &c->m->layer[layer];
    float *open = c->state + c->state_at[layer];
    size_t row = l->n_state * sizeof *open;
    for (size_t r = first; r < first + n; r++, values += l->n_state) {
        size_t slot = r % KV_PAGE_ROWS;
        memcpy(open + slot * l->n_state, values, row);
        if (slot == KV_PAGE_ROWS - 1)
            memcpy(tail_of(c, layer, r / KV_PAGE_ROWS),
                   open + (KV_PAGE_ROWS - l->n_behind) * l->n_state, l->n_behind * row);
    }
    c->state_page = (first + n - 1) / KV_PAGE_ROWS;
}
