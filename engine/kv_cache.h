/* Keys and values of a sequence in pages of 64 rows, and attention that reads them page by page.
 *
 * A page holds all layers and heads: K as [head_dim, 64] (ready to be multiplied by queries) and V
 * as [64, head_dim] for each key-value head, fp32. Scores exist for one page at a time: maximum and
 * sum are carried along (Milakov and Gimelshein 2018, arXiv 1805.02867). Pages are cut at fixed
 * rows, so a query's result depends on neither chunks nor threads. */
#ifndef TACIT_ENGINE_KV_CACHE_H
#define TACIT_ENGINE_KV_CACHE_H

#include "engine/text_model.h"

#define KV_PAGE_ROWS 64

typedef struct kv_cache {
    const tacit_text_model *m;
    size_t max_rows;
    size_t page_floats;
    size_t *layer_at; /* [n_layers]: where a layer begins in a page, in floats */
    float **page;     /* [max_rows / 64, rounded up], NULL where not needed yet */
} kv_cache;

/* The model outlives the cache. */
tacit_status kv_cache_init(kv_cache *c, const tacit_text_model *m, size_t max_rows,
                           tacit_error *err) TACIT_MUST_CHECK;
void kv_cache_fini(kv_cache *c);

/* Makes room for rows 0 .. rows - 1; rows <= max_rows. Nothing is lost on failure. */
tacit_status kv_cache_reserve(kv_cache *c, size_t rows, tacit_error *err) TACIT_MUST_CHECK;

/* Stores k and v [n, n_kv_heads * head_dim] of one layer as rows first .. first + n - 1, which are
 * reserved. */
void kv_cache_store(kv_cache *c, size_t layer, size_t first, size_t n, const float *k,
                    const float *v);

/* out[n, n_heads * head_dim]: the attention of q [n, n_heads * head_dim], rows first .. of the
 * sequence, each over the rows up to itself. scratch: kv_cache_scratch floats. */
void kv_cache_attend(tacit_pool *pool, const kv_cache *c, size_t layer, size_t first, size_t n,
                     float *out, const float *q, float *scratch);
size_t kv_cache_scratch(const tacit_text_model *m, size_t threads);

#endif
