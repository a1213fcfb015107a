#include "engine/context_plan.h"

#include "common/memory_limit.h"
#include "engine/fast_model.h"
#include "engine/kv_cache.h"
#include "engine/model_parts.h"
#include "engine/text_forward.h"

#include <stdio.h>

tacit_context_spec context_plan_complete(const tacit_model *model, const tacit_context_spec *spec)
{
    tacit_context_spec s = spec ? *spec : (tacit_context_spec){0};
    if (s.max_rows == 0)
        s.max_rows = model->text.context_length;
    if (s.chunk == 0)
        s.chunk = CONTEXT_CHUNK;
    if (s.chunk > s.max_rows)
        s.chunk = s.max_rows;
    return s;
}

static uint64_t file_bytes(const tacit_linear *l)
{
    return (uint64_t)l->n_out * l->row_bytes;
}

/* Panels take the place of the file's pages, which packing gives back (fast_model.h). */
static uint64_t linear_bytes(const tacit_linear *l, tacit_precision precision, uint64_t *mapped)
{
    fast_weight packed;
    size_t panels = precision == TACIT_FAST ? fast_model_plan(&packed, l) : 0;
    if (panels > 0)
        return panels;
    *mapped = tacit_memory_sum(*mapped, file_bytes(l));
    return file_bytes(l);
}

/* Norms and biases are too small to count, and so are the rows that tokens look up in a file whose
 * output is packed. */
uint64_t context_plan_weights(const tacit_text_model *m, tacit_precision precision,
                              uint64_t *mapped)
{
    uint64_t bytes = *mapped = m->tied ? 0 : file_bytes(&m->token_embedding);
    bytes = tacit_memory_sum(bytes, linear_bytes(&m->output, precision, mapped));
    for (size_t i = 0; i < m->n_layers; i++)
        for (int which = 0; which < TEXT_LINEARS; which++)
            bytes = tacit_memory_sum(bytes,
                                     linear_bytes(&m->layer[i].linear[which], precision, mapped));
    return bytes;
}

/* Of a complete spec. */
static tacit_context_plan plan_of(const tacit_model *model, const tacit_context_spec *s,
                                  size_t rows, tacit_pool *pool)
{
    const tacit_text_model *m = &model->text;
    tacit_context_plan p = {0};
    p.weights = context_plan_weights(m, s->precision, &p.mapped);
    p.keys_values = kv_cache_bytes(m, s->kv, rows, s->chunk);
    p.working = text_forward_bytes(m, pool, s->precision, s->chunk, 0);
    p.working = tacit_memory_sum(
        p.working, (s->chunk * m->embedding + CONTEXT_LOGIT_ROWS * m->vocab) * sizeof(float));
    p.total = tacit_memory_sum(tacit_memory_sum(p.weights, p.keys_values), p.working);
    return p;
}

tacit_context_plan tacit_context_plan_of(const tacit_model *model, const tacit_context_spec *spec,
                                         tacit_pool *pool)
{
    tacit_context_spec s = context_plan_complete(model, spec);
    return plan_of(model, &s, s.max_rows, pool);
}

/* The most rows, a multiple of a page's, that fit with keys and values of a form. */
static size_t rows_that_fit(const tacit_model *model, const tacit_context_spec *spec,
                            tacit_kv_type kv, tacit_pool *pool, uint64_t available)
{
    tacit_context_spec s = *spec;
    s.kv = kv;
    size_t least = 0, most = s.max_rows / KV_PAGE_ROWS + 1; /* pages: `most` do not fit */
    while (most - least > 1) {
        size_t middle = least + (most - least) / 2;
        if (plan_of(model, &s, middle * KV_PAGE_ROWS, pool).total <= available)
            least = middle;
        else
            most = middle;
    }
    return least * KV_PAGE_ROWS;
}

static void advise(char *out, size_t size, const tacit_model *model, const tacit_context_spec *s,
                   tacit_pool *pool, uint64_t available)
{
    size_t same = rows_that_fit(model, s, s->kv, pool, available);
    size_t small = rows_that_fit(model, s, TACIT_KV_INT8, pool, available);
    const char *name = kv_form_of(s->kv)->name;
    if (small == 0)
        snprintf(out, size,
                 "not even one page of 64 rows fits: use a smaller model, or a file of a "
                 "smaller element type");
    else if (s->kv == TACIT_KV_INT8 || small == same)
        snprintf(out, size, "%zu rows fit", small);
    else
        snprintf(out, size, "%zu rows fit in %s, %zu in int8", same, name, small);
}

tacit_status context_plan_check(const tacit_model *model, const tacit_context_spec *spec,
                                size_t rows, tacit_pool *pool, uint64_t available, tacit_error *err)
{
    tacit_context_plan p = plan_of(model, spec, rows, pool);
    char total[TACIT_MEMORY_TEXT], weights[TACIT_MEMORY_TEXT], kv[TACIT_MEMORY_TEXT];
    char working[TACIT_MEMORY_TEXT], there[TACIT_MEMORY_TEXT], advice[160];
    if (p.total <= available)
        return TACIT_OK;
    advise(advice, sizeof advice, model, spec, pool, available);
    return tacit_fail(
        err, TACIT_NO_MEMORY,
        "the model needs %s (weights %s, keys and values of %zu rows in %s %s, working "
        "memory %s), %s are available: %s",
        tacit_memory_text(total, p.total), tacit_memory_text(weights, p.weights), rows,
        kv_form_of(spec->kv)->name, tacit_memory_text(kv, p.keys_values),
        tacit_memory_text(working, p.working), tacit_memory_text(there, available), advice);
}
