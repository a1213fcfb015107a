/* Encoder rows by the digest of (media, encoder, preprocessing): a frozen tower runs once per
 * medium. Bounded in memory (the least recently used entry goes first) and, where a file is given,
 * kept there too: rows tell about media as media do, so that file belongs beside the data.
 * Rows are exact unless tacit_row_cache_use says otherwise: training wants them so. One thread at a
 * time. */
#ifndef TACIT_ENGINE_ROW_CACHE_H
#define TACIT_ENGINE_ROW_CACHE_H

#include "common/pool.h"
#include "engine/adapter.h"
#include "engine/input.h"
#include "engine/model.h"
#include "engine/precision.h"

typedef struct tacit_row_cache tacit_row_cache;

typedef struct tacit_row_cache_stats {
    uint64_t hits, encoded, evicted;
    size_t bytes;
} tacit_row_cache_stats;

/* `max_bytes` bounds the rows held, and so does a quarter of the memory that is there now. `path`
 * may be NULL; a file of another model or a torn tail is dropped with a warning and written anew.
 * `model` outlives the cache; `pool` may be NULL. */
tacit_status tacit_row_cache_new(tacit_row_cache **out, const tacit_model *model, size_t max_bytes,
                                 const char *path, tacit_pool *pool,
                                 tacit_error *err) TACIT_MUST_CHECK;
void tacit_row_cache_free(tacit_row_cache *c);

/* From now on rows are those of this precision: rows of another are neither given nor lost. */
void tacit_row_cache_use(tacit_row_cache *c, tacit_precision precision);

/* From now on the adapter's pairs stand beside the encoders' linears, where it has such (NULL: the
 * base alone); it outlives its use here. Rows of another are neither given nor lost. */
tacit_status tacit_row_cache_bind(tacit_row_cache *c, const tacit_adapter *adapter,
                                  tacit_error *err) TACIT_MUST_CHECK;

/* Gives every media of `input` without rows its rows (malloc'ed, the input's), from the cache or
 * its encoder, and frees its values. TACIT_BAD_INPUT: it does not fit the model's encoder. */
tacit_status tacit_row_cache_fill(tacit_row_cache *c, tacit_input *input,
                                  tacit_error *err) TACIT_MUST_CHECK;

tacit_row_cache_stats tacit_row_cache_get_stats(const tacit_row_cache *c);

#endif
