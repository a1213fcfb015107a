#include "engine/context.h"

#include "common/memory_limit.h"
#include "common/secret.h"
#include "engine/adapter_parts.h"
#include "engine/context_plan.h"
#include "engine/model_parts.h"
#include "engine/text_forward.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LOGIT_ROWS CONTEXT_LOGIT_ROWS /* of feed_all, computed at a time */
#define EMBEDDED_ROWS 8               /* whose pages stay in memory */

struct tacit_context {
    const tacit_model *model;
    tacit_pool *pool;
    tacit_context_spec spec;
    text_forward forward;
    kv_cache cache;
    size_t rows;
    float *x;             /* [chunk, embedding] */
    float *logits;        /* [LOGIT_ROWS, vocab] */
    tacit_low_rank *pair; /* [n_layers * TEXT_LINEARS] of the adapter bound */
    text_pairs pairs;
    const fast_model *packed; /* NULL: exact precision */
    size_t embedded;          /* rows of embeddings read since pages were given back */
    fast_packing *own;        /* where the model has no place for packed weights */
    const tacit_tap *tap;
};

static tacit_status check_spec(tacit_context *c, const tacit_context_spec *spec, tacit_error *err)
{
    size_t most = c->model->text.context_length;
    c->spec = context_plan_complete(c->model, spec);
    if (c->spec.max_rows > most)
        return tacit_fail(err, TACIT_USAGE, "a context of %zu rows: the model has at most %zu",
                          c->spec.max_rows, most);
    size_t asked = spec ? spec->max_rows : 0;
    uint64_t mapped;
    (void)context_plan_weights(&c->model->text, c->spec.precision, &mapped);
    return context_plan_check(c->model, &c->spec, asked > 0 ? asked : 1, c->pool,
                              tacit_memory_available_beside(mapped), err);
}

static tacit_status pack_weights(tacit_context *c, tacit_error *err)
{
    fast_packing *packing = c->model->packing;
    if (c->spec.precision != TACIT_FAST)
        return TACIT_OK;
    if (!packing)
        packing = c->own = fast_packing_new();
    if (!packing)
        return tacit_fail(err, TACIT_NO_MEMORY, "no memory to pack a model");
    return fast_packing_get(packing, &c->packed, &c->model->text, c->model->text_file, c->pool,
                            err);
}

tacit_status tacit_context_new(tacit_context **out, const tacit_model *model,
                               const tacit_context_spec *spec, tacit_pool *pool, tacit_error *err)
{
    const tacit_text_model *m = &model->text;
    *out = NULL;
    tacit_context *c = calloc(1, sizeof *c);
    if (!c)
        return tacit_fail(err, TACIT_NO_MEMORY, "no memory for a context");
    c->model = model;
    c->pool = pool;
    tacit_status status;
    TACIT_TRY(check_spec(c, spec, err), failed);
    TACIT_TRY(kv_cache_init(&c->cache, m, c->spec.kv, c->spec.max_rows, c->spec.chunk, err),
              failed);
    c->x = malloc(c->spec.chunk * m->embedding * sizeof *c->x);
    c->logits = calloc(LOGIT_ROWS * m->vocab, sizeof *c->logits);
    c->pair = calloc(m->n_layers * TEXT_LINEARS, sizeof *c->pair);
    if (!c->x || !c->logits || !c->pair) {
        status = tacit_fail(err, TACIT_NO_MEMORY, "no memory for a context of %zu rows",
                            c->spec.max_rows);
        goto failed;
    }
    TACIT_TRY(pack_weights(c, err), failed);
    TACIT_TRY(tacit_context_bind(c, NULL, err), failed);
    *out = c;
    return TACIT_OK;
failed:
    tacit_context_free(c);
    return status;
}

void tacit_context_free(tacit_context *c)
{
    if (!c)
        return;
    text_forward_fini(&c->forward);
    kv_cache_fini(&c->cache);
    fast_packing_free(c->own);
    free(c->pair);
    tacit_wipe_free(c->logits);
    tacit_wipe_free(c->x);
    free(c);
}

/* Looks the adapter's pairs up once for every linear of the model. */
static void set_pairs(tacit_context *c, const tacit_adapter *adapter)
{
    char name[64];
    c->pairs = (text_pairs){.pair = c->pair, .output = adapter_low_rank(adapter, "output.weight")};
    c->pairs.max_rank = c->pairs.output.rank;
    for (size_t i = 0; i < c->model->text.n_layers * TEXT_LINEARS; i++) {
        snprintf(name, sizeof name, "blk.%zu.%s.weight", i / TEXT_LINEARS,
                 text_linear_name((text_linear)(i % TEXT_LINEARS)));
        c->pair[i] = adapter_low_rank(adapter, name);
        if (c->pair[i].rank > c->pairs.max_rank)
            c->pairs.max_rank = c->pair[i].rank;
    }
    if (adapter)
        memcpy(c->pairs.digest, adapter_digest(adapter), sizeof c->pairs.digest);
}

tacit_status tacit_context_bind(tacit_context *c, const tacit_adapter *adapter, tacit_error *err)
{
    c->rows = 0;
    text_forward_fini(&c->forward);
    set_pairs(c, adapter);
    tacit_status status = text_forward_init(&c->forward, &c->model->text, c->pool, c->packed,
                                            c->spec.chunk, c->pairs.max_rank, err);
    c->forward.pairs = adapter ? &c->pairs : NULL;
    c->forward.tap = c->tap;
    return status;
}

/* What a context demands of rows beyond text_rows_check. */
static tacit_status check_row(const tacit_row *row, size_t i, const tacit_media *media,
                              tacit_error *err)
{
    if (row->modality != TACIT_MODALITY_TOKEN && !media[row->media].rows)
        return tacit_fail(err, TACIT_BAD_INPUT,
                          "row %zu: media %u has no rows yet; encode it first", i,
                          (unsigned)row->media);
    return TACIT_OK;
}

/* Rows of the next chunk, of n that are left: a mask group is not cut. 0 where it is longer than a
 * chunk. */
static size_t chunk_rows(const tacit_context *c, const tacit_row *row, size_t n)
{
    size_t rows = n < c->spec.chunk ? n : c->spec.chunk;
    while (rows > 0 && rows < n && row[rows].group != 0 && row[rows].group == row[rows - 1].group)
        rows--;
    return rows;
}

static tacit_status check_groups(const tacit_context *c, const tacit_row *row, size_t n,
                                 tacit_error *err)
{
    for (size_t at = 0, rows; at < n; at += rows) {
        rows = chunk_rows(c, row + at, n - at);
        if (rows == 0)
            return tacit_fail(err, TACIT_BAD_INPUT,
                              "row %zu: mask group %u has more rows than the %zu that the context "
                              "computes together; ask for a larger chunk",
                              at, (unsigned)row[at].group, c->spec.chunk);
    }
    return TACIT_OK;
}

static tacit_status fail_full(const tacit_context *c, size_t n, tacit_error *err)
{
    size_t most = c->model->text.context_length;
    char held[48] = "", larger[80] = ", which is all that the model has; shorten the input";
    if (c->rows > 0)
        snprintf(held, sizeof held, " behind the %zu that are there", c->rows);
    if (c->spec.max_rows < most)
        snprintf(larger, sizeof larger,
                 ", the model's up to %zu; shorten the input or enlarge the "
                 "context",
                 most);
    return tacit_fail(err, TACIT_BAD_INPUT, "an input of %zu rows%s: the context holds %zu%s", n,
                      held, c->spec.max_rows, larger);
}

static tacit_status check_rows(const tacit_context *c, const tacit_row *row, size_t n,
                               const tacit_media *media, size_t n_media, tacit_error *err)
{
    if (n == 0)
        return tacit_fail(
            err, TACIT_USAGE,
            "no rows to compute: the prompt is empty, and the model wants nothing before it; "
            "say something");
    if (n > c->spec.max_rows - c->rows)
        return fail_full(c, n, err);
    const text_place *before = c->rows > 0 ? &c->cache.place[c->rows - 1] : NULL;
    tacit_status status = text_rows_check(&c->model->text, row, n, media, n_media, before, err);
    for (size_t i = 0; i < n && status == TACIT_OK; i++)
        status = check_row(&row[i], i, media, err);
    return status == TACIT_OK ? check_groups(c, row, n, err) : status;
}

/* What was read of the embeddings is given back soon: where the output is tied to them, they are in
 * memory a second time, and a row that is read maps many around it. */
static void forget_embeddings(tacit_context *c)
{
    const tacit_linear *l = &c->model->text.token_embedding;
    if (!c->packed || !c->model->text_file || ++c->embedded < EMBEDDED_ROWS)
        return;
    c->embedded = 0;
    gguf_forget(c->model->text_file, l->weight, l->n_out * l->row_bytes);
}

static void load_rows(tacit_context *c, const tacit_row *row, size_t n, const tacit_media *media)
{
    const tacit_text_model *m = &c->model->text;
    for (size_t i = 0; i < n; i++) {
        float *x = c->x + i * m->embedding;
        if (row[i].modality == TACIT_MODALITY_TOKEN)
            text_embed(m, x, &row[i].token, 1);
        else
            memcpy(x, media[row[i].media].rows + (size_t)row[i].token * m->embedding,
                   m->embedding * sizeof *x);
        forget_embeddings(c);
    }
}

/* Gives the logits of rows [0, n) of c->x, the first of which is row `at` of the call. */
static tacit_status give_logits(tacit_context *c, size_t at, size_t n, tacit_logits_sink sink,
                                void *ctx)
{
    const tacit_text_model *m = &c->model->text;
    for (size_t i = 0; i < n; i += LOGIT_ROWS) {
        size_t rows = n - i < LOGIT_ROWS ? n - i : LOGIT_ROWS;
        text_forward_logits(&c->forward, c->logits, c->x + i * m->embedding, rows);
        for (size_t r = 0; r < rows; r++) {
            tacit_status status = sink(ctx, at + i + r, c->logits + r * m->vocab);
            if (status != TACIT_OK)
                return status;
        }
    }
    return TACIT_OK;
}

/* Forgets n rows that were computed behind those held: the cache has opened their pages. */
static void take_back(tacit_context *c, size_t n)
{
    size_t held = c->rows;
    c->rows += n;
    (void)tacit_context_truncate(c, held);
}

static tacit_status feed(tacit_context *c, const tacit_row *row, size_t n, const tacit_media *media,
                         size_t n_media, tacit_logits_sink sink, void *ctx, tacit_error *err)
{
    const tacit_text_model *m = &c->model->text;
    tacit_status status = check_rows(c, row, n, media, n_media, err);
    if (status == TACIT_OK)
        status = kv_cache_reserve(&c->cache, c->rows + n, err);
    if (status != TACIT_OK)
        return status;
    kv_cache_place(&c->cache, c->rows, n, row);
    size_t rows = 0;
    for (size_t at = 0; at < n; at += rows) {
        rows = chunk_rows(c, row + at, n - at);
        load_rows(c, row + at, rows, media);
        text_forward_layers(&c->forward, 0, m->n_layers, &c->cache, c->rows + at, c->x, rows);
        if (sink && status == TACIT_OK)
            status = give_logits(c, at, rows, sink, ctx);
        if (status != TACIT_OK) {
            take_back(c, at + rows);
            return status;
        }
    }
    /* With a sink the last row's logits are there already: the last of its last few. */
    size_t last = (rows - 1) % LOGIT_ROWS;
    if (sink)
        memmove(c->logits, c->logits + last * m->vocab, m->vocab * sizeof *c->logits);
    else
        text_forward_logits(&c->forward, c->logits, c->x + (rows - 1) * m->embedding, 1);
    c->rows += n;
    return TACIT_OK;
}

tacit_status tacit_context_feed(tacit_context *c, const tacit_row *row, size_t n,
                                const tacit_media *media, size_t n_media, tacit_error *err)
{
    return feed(c, row, n, media, n_media, NULL, NULL, err);
}

tacit_status tacit_context_feed_all(tacit_context *c, const tacit_row *row, size_t n,
                                    const tacit_media *media, size_t n_media,
                                    tacit_logits_sink sink, void *ctx, tacit_error *err)
{
    return feed(c, row, n, media, n_media, sink, ctx, err);
}

tacit_status tacit_context_feed_token(tacit_context *c, int32_t token, tacit_error *err)
{
    tacit_row row = {.token = token, .modality = TACIT_MODALITY_TOKEN};
    row.position = c->rows > 0 ? text_place_next(&c->cache.place[c->rows - 1]) : 0;
    return feed(c, &row, 1, NULL, 0, NULL, NULL, err);
}

const float *tacit_context_logits(const tacit_context *c)
{
    return c->logits;
}

void tacit_context_tap(tacit_context *c, const tacit_tap *tap)
{
    c->tap = tap;
    c->forward.tap = tap;
}

size_t tacit_context_rows(const tacit_context *c)
{
    return c->rows;
}

size_t tacit_context_max_rows(const tacit_context *c)
{
    return c->spec.max_rows;
}

size_t tacit_context_truncate(tacit_context *c, size_t rows)
{
    if (rows >= c->rows)
        return c->rows;
    do { /* rows of a group have seen the ones to forget */
        c->rows = rows;
        rows = kv_cache_truncate(&c->cache, c->cache.place[rows].group_first);
    } while (rows != c->rows);
    return rows;
}
