/* Keys and values of a sequence in pages of 64 rows, and the state of layers of other kinds.
 *
 * A page holds all layers and heads in one of the forms of kv_page.h. The page that a row belongs
 * to is fp32 for that row whatever the form: rows become F16 or INT8 when their page is full, and
 * what a row sees of earlier pages is that. So a row's result depends neither on how the sequence
 * was cut into chunks nor on threads. */
#ifndef TACIT_ENGINE_KV_CACHE_H
#define TACIT_ENGINE_KV_CACHE_H

#include "engine/kv_page.h"
#include "engine/text_place.h"

typedef struct kv_cache {
    const tacit_text_model *m;
    const kv_form *form;
    size_t max_rows;
    size_t page_bytes;
    text_place *place;      /* [max_rows]: where the rows stand */
    size_t *layer_at;       /* [n_layers]: where a layer begins in a page, in bytes */
    uint8_t **page;         /* [max_rows / 64, rounded up], NULL where not needed yet */
    size_t *layer_open_at;  /* [n_layers]: where a layer begins in `open`, in floats */
    float *open;            /* the last page of every layer as fp32; NULL where the form is fp32 */
    size_t *open_page;      /* [n_layers]: which page that is */
    float *stage;           /* pages that the layer stored last has filled since, as fp32 */
    size_t stage_first;     /* number of the first of them */
    size_t max_stage_pages; /* that a chunk can fill */
    float *state;           /* rows of the last page of every layer that has state; or NULL */
    size_t *state_at;       /* [n_layers]: where a layer begins there */
    size_t state_page;      /* which page that is */
} kv_cache;

/* The model outlives the cache. Calls of kv_cache_store have at most max_chunk rows. */
tacit_status kv_cache_init(kv_cache *c, const tacit_text_model *m, tacit_kv_type type,
                           size_t max_rows, size_t max_chunk, tacit_error *err) TACIT_MUST_CHECK;
void kv_cache_fini(kv_cache *c);

/* Bytes that a cache of `rows` rows comes to; saturates. */
uint64_t kv_cache_bytes(const tacit_text_model *m, tacit_kv_type type, size_t rows,
                        size_t max_chunk);

/* The longest sequence whose pages are there or fit into `available` bytes. */
size_t kv_cache_rows_that_fit(const kv_cache *c, uint64_t available);

/* Makes room for rows 0 .. rows - 1; rows <= max_rows. Nothing is lost on failure, which says how
 * many rows fit. */
tacit_status kv_cache_reserve(kv_cache *c, size_t rows, tacit_error *err) TACIT_MUST_CHECK;

/* Rows first .. first + n - 1, which are reserved, follow those held and pass text_rows_check. */
void kv_cache_place(kv_cache *c, size_t first, size_t n, const tacit_row *row);

/* Stores k and v [n, n_kv_heads * head_dim] of one layer as rows first .. first + n - 1, which are
 * placed and follow what the layer holds. */
void kv_cache_store(kv_cache *c, size_t layer, size_t first, size_t n, const float *k,
                    const float *v);

/* Only the first `rows` rows remain; where layers have state, and those end within a page that is
 * not the last, only the rows before that page. Returns how many. Where that reopens a full page
 * its rows are what its form kept of them. */
size_t kv_cache_truncate(kv_cache *c, size_t rows);

/* Keys [head_dim, 64] and values [64, head_dim] of a page as a row of page `seen_from` sees them,
 * of the layer stored last: pages from its own on as they are; in `buffer` [2 * 64 * head_dim]
 * where the form is not fp32. */
void kv_cache_read(const kv_cache *c, size_t layer, size_t head, size_t page, size_t seen_from,
                   float *buffer, const float **keys, const float **values);

/* out[n, n_heads * head_dim]: the attention of q [n, n_heads * head_dim], rows first .. of the
 * sequence, each over what it sees under the layer's window (text_place.h), right after their
 * kv_cache_store; a mask group lies within one call. Scores exist for one page at a time: maximum
 * and sum are carried along (Milakov and Gimelshein 2018, arXiv 1805.02867); pages that no row of
 * a block sees are not read. scratch: kv_cache_scratch floats. */
void kv_cache_attend(tacit_pool *pool, const kv_cache *c, size_t layer, size_t first, size_t n,
                     float *out, const float *q, float *scratch);
size_t kv_cache_scratch(const tacit_text_model *m, size_t threads);

/* State of other kinds than attention (kv_state.c): each row leaves n_state values of a layer, and
 * the n_behind rows before a row reach it; of a full page those alone are kept. out[n_behind,
 * n_state] of the rows before row `first`, zeros before the sequence; and the values [n, n_state]
 * of rows first .. first + n - 1, which follow what the layer holds. */
void kv_state_before(const kv_cache *c, size_t layer, size_t first, float *out);
void kv_state_store(kv_cache *c, size_t layer, size_t first, size_t n, const float *values);

#endif
