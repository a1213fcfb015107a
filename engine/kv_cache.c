#include "engine/kv_cache.h"

#include "common/memory_limit.h"
#include "common/secret.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* fp32 values of a layer in a page. */
static size_t layer_floats(const tacit_text_model *m, size_t layer)
{
    return 2 * m->layer[layer].n_kv_heads * m->head_dim * KV_PAGE_ROWS;
}

static size_t largest_layer(const tacit_text_model *m)
{
    return 2 * m->max_kv_heads * m->head_dim * KV_PAGE_ROWS;
}

/* Bytes of a layer in a page: keys and values, then the last rows of its state. */
static size_t layer_bytes(const tacit_text_model *m, const kv_form *form, size_t layer)
{
    const tacit_text_layer *l = &m->layer[layer];
    return l->n_kv_heads * form->bytes(m->head_dim) + l->n_behind * l->n_state * sizeof(float);
}

static size_t state_floats(const tacit_text_model *m)
{
    size_t floats = 0;
    for (size_t i = 0; i < m->n_layers; i++)
        floats += KV_PAGE_ROWS * m->layer[i].n_state;
    return floats;
}

static size_t page_count(size_t rows)
{
    return rows / KV_PAGE_ROWS + (rows % KV_PAGE_ROWS > 0);
}

static tacit_status place_state(kv_cache *c, tacit_error *err)
{
    const tacit_text_model *m = c->m;
    size_t floats = state_floats(m);
    c->state_at = calloc(m->n_layers, sizeof *c->state_at);
    if (floats > 0)
        c->state = calloc(floats, sizeof *c->state);
    if (!c->state_at || (floats > 0 && !c->state))
        return tacit_fail(err, TACIT_NO_MEMORY, "no memory for the state of a cache");
    for (size_t i = 0, at = 0; i < m->n_layers; at += KV_PAGE_ROWS * m->layer[i++].n_state)
        c->state_at[i] = at;
    return TACIT_OK;
}

static tacit_status place_layers(kv_cache *c, tacit_error *err)
{
    const tacit_text_model *m = c->m;
    c->layer_at = calloc(m->n_layers, sizeof *c->layer_at);
    c->layer_open_at = calloc(m->n_layers, sizeof *c->layer_open_at);
    c->open_page = calloc(m->n_layers, sizeof *c->open_page);
    c->page = calloc(page_count(c->max_rows), sizeof *c->page);
    c->place = malloc(c->max_rows * sizeof *c->place);
    if (!c->layer_at || !c->layer_open_at || !c->open_page || !c->page || !c->place)
        return tacit_fail(err, TACIT_NO_MEMORY, "no memory for a cache of %zu rows", c->max_rows);
    size_t floats = 0;
    for (size_t i = 0; i < m->n_layers; i++) {
        c->layer_at[i] = c->page_bytes;
        c->layer_open_at[i] = floats;
        c->page_bytes += layer_bytes(m, c->form, i);
        floats += layer_floats(m, i);
    }
    if (c->form->type == TACIT_KV_F32)
        return TACIT_OK;
    c->open = calloc(floats, sizeof *c->open);
    c->stage = calloc(c->max_stage_pages * largest_layer(m), sizeof *c->stage);
    if (!c->open || !c->stage)
        return tacit_fail(err, TACIT_NO_MEMORY, "no memory for the open page of a cache");
    return TACIT_OK;
}

tacit_status kv_cache_init(kv_cache *c, const tacit_text_model *m, tacit_kv_type type,
                           size_t max_rows, size_t max_chunk, tacit_error *err)
{
    *c = (kv_cache){.m = m, .form = kv_form_of(type), .max_rows = max_rows};
    c->max_stage_pages = max_chunk / KV_PAGE_ROWS + 1;
    tacit_status status = place_layers(c, err);
    if (status == TACIT_OK)
        status = place_state(c, err);
    if (status != TACIT_OK)
        kv_cache_fini(c);
    return status;
}

void kv_cache_fini(kv_cache *c)
{
    for (size_t i = 0; c->page && i < page_count(c->max_rows); i++)
        tacit_wipe_free(c->page[i]);
    free(c->page);
    free(c->place);
    tacit_wipe_free(c->open);
    tacit_wipe_free(c->stage);
    tacit_wipe_free(c->state);
    free(c->state_at);
    free(c->open_page);
    free(c->layer_open_at);
    free(c->layer_at);
    memset(c, 0, sizeof *c);
}

uint64_t kv_cache_bytes(const tacit_text_model *m, tacit_kv_type type, size_t rows,
                        size_t max_chunk)
{
    const kv_form *form = kv_form_of(type);
    size_t page = 0, floats = 0;
    for (size_t i = 0; i < m->n_layers; i++) {
        page += layer_bytes(m, form, i);
        floats += layer_floats(m, i);
    }
    page += KV_PAGE_ROWS * sizeof(text_place);
    floats += (max_chunk / KV_PAGE_ROWS + 1) * largest_layer(m);
    floats = (type != TACIT_KV_F32 ? floats : 0) + state_floats(m);
    return tacit_memory_sum(tacit_memory_product(page, page_count(rows)), floats * sizeof(float));
}

/* Bytes of the pages that rows 0 .. rows - 1 need and are not there. */
static uint64_t missing_bytes(const kv_cache *c, size_t rows)
{
    uint64_t bytes = 0;
    for (size_t i = 0; i < page_count(rows); i++)
        bytes += c->page[i] ? 0 : c->page_bytes;
    return bytes;
}

size_t kv_cache_rows_that_fit(const kv_cache *c, uint64_t available)
{
    size_t pages = 0, most = page_count(c->max_rows);
    for (size_t i = 0; i < most; i++)
        pages += c->page[i] != NULL;
    if (c->page_bytes == 0)
        return c->max_rows;
    pages = available / c->page_bytes < most - pages ? pages + (size_t)(available / c->page_bytes)
                                                     : most;
    size_t rows = pages * KV_PAGE_ROWS;
    return rows < c->max_rows ? rows : c->max_rows;
}

tacit_status kv_cache_reserve(kv_cache *c, size_t rows, tacit_error *err)
{
    uint64_t bytes = missing_bytes(c, rows);
    char what[64], advice[128];
    if (bytes == 0) /* most tokens: memory is asked for once a page */
        return TACIT_OK;
    snprintf(what, sizeof what, "a sequence of %zu rows", rows);
    snprintf(advice, sizeof advice, "%zu rows fit: use a shorter one%s",
             kv_cache_rows_that_fit(c, tacit_memory_available()),
             c->form->type == TACIT_KV_INT8 ? "" : ", or keep keys and values in int8");
    tacit_status status = tacit_memory_require(bytes, what, advice, err);
    for (size_t i = 0; i < page_count(rows) && status == TACIT_OK; i++) {
        if (!c->page[i])
            c->page[i] = calloc(c->page_bytes, 1);
        if (!c->page[i])
            status = tacit_memory_fail(bytes, what, advice, err);
    }
    return status;
}

void kv_cache_place(kv_cache *c, size_t first, size_t n, const tacit_row *row)
{
    text_places_set(c->place + first, row, n, first);
}

static uint8_t *head_bytes(const kv_cache *c, size_t page, size_t layer, size_t head)
{
    return c->page[page] + c->layer_at[layer] + head * c->form->bytes(c->m->head_dim);
}

/* A layer of a page as fp32, heads one after the other: keys, then values. Pages of a sequence that
 * its last rows fill are staged; the last one is open. */
static float *layer_values(const kv_cache *c, size_t layer, size_t page)
{
    if (c->form->type == TACIT_KV_F32)
        return (float *)(void *)head_bytes(c, page, layer, 0);
    if (page == c->open_page[layer])
        return c->open + c->layer_open_at[layer];
    return c->stage + (page - c->stage_first) * largest_layer(c->m);
}

static float *head_values(const kv_cache *c, size_t layer, size_t page, size_t head)
{
    return layer_values(c, layer, page) + 2 * head * c->m->head_dim * KV_PAGE_ROWS;
}

static void store_row(kv_cache *c, size_t layer, size_t row, const float *k, const float *v)
{
    size_t dim = c->m->head_dim, slot = row % KV_PAGE_ROWS;
    for (size_t h = 0; h < c->m->layer[layer].n_kv_heads; h++) {
        float *keys = head_values(c, layer, row / KV_PAGE_ROWS, h);
        float *values = keys + dim * KV_PAGE_ROWS;
        for (size_t i = 0; i < dim; i++)
            keys[i * KV_PAGE_ROWS + slot] = k[h * dim + i];
        memcpy(values + slot * dim, v + h * dim, dim * sizeof *values);
    }
}

static void encode_layer(kv_cache *c, size_t layer, size_t page)
{
    size_t dim = c->m->head_dim;
    for (size_t h = 0; h < c->m->layer[layer].n_kv_heads; h++) {
        const float *keys = head_values(c, layer, page, h);
        c->form->encode(head_bytes(c, page, layer, h), keys, keys + dim * KV_PAGE_ROWS, dim);
    }
}

/* The page that rows from `first` on continue moves to the stage where they also begin another. */
static void open_last(kv_cache *c, size_t layer, size_t first, size_t n)
{
    size_t page = first / KV_PAGE_ROWS, last = (first + n - 1) / KV_PAGE_ROWS;
    c->stage_first = page;
    if (first % KV_PAGE_ROWS > 0 && last > page)
        memcpy(c->stage, c->open + c->layer_open_at[layer],
               layer_floats(c->m, layer) * sizeof *c->stage);
    c->open_page[layer] = last;
}

void kv_cache_store(kv_cache *c, size_t layer, size_t first, size_t n, const float *k,
                    const float *v)
{
    size_t width = c->m->layer[layer].n_kv_heads * c->m->head_dim;
    bool kept = c->form->type == TACIT_KV_F32;
    if (!kept)
        open_last(c, layer, first, n);
    for (size_t r = 0; r < n; r++) {
        store_row(c, layer, first + r, k + r * width, v + r * width);
        if (!kept && (first + r) % KV_PAGE_ROWS == KV_PAGE_ROWS - 1)
            encode_layer(c, layer, (first + r) / KV_PAGE_ROWS);
    }
}

static void reopen(kv_cache *c, size_t layer, size_t page)
{
    size_t dim = c->m->head_dim;
    c->open_page[layer] = page;
    for (size_t h = 0; h < c->m->layer[layer].n_kv_heads; h++) {
        float *keys = head_values(c, layer, page, h);
        c->form->decode(keys, keys + dim * KV_PAGE_ROWS, head_bytes(c, page, layer, h), dim);
    }
}

size_t kv_cache_truncate(kv_cache *c, size_t rows)
{
    size_t page = rows / KV_PAGE_ROWS;
    if (c->state && page != c->state_page)
        rows = page * KV_PAGE_ROWS;
    bool open = c->form->type == TACIT_KV_F32 || rows % KV_PAGE_ROWS == 0;
    for (size_t i = 0; !open && i < c->m->n_layers; i++)
        if (c->open_page[i] != page)
            reopen(c, i, page);
    return rows;
}

void kv_cache_read(const kv_cache *c, size_t layer, size_t head, size_t page, size_t seen_from,
                   float *buffer, const float **keys, const float **values)
{
    size_t floats = c->m->head_dim * KV_PAGE_ROWS;
    bool plain = c->form->type == TACIT_KV_F32 || page >= seen_from;
    *keys = plain ? head_values(c, layer, page, head) : buffer;
    *values = *keys + floats;
    if (!plain)
        c->form->decode(buffer, buffer + floats, head_bytes(c, page, layer, head), c->m->head_dim);
}
