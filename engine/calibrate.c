#include "engine/calibrate.h"

#include "common/log.h"
#include "engine/example.h"
#include "engine/model_parts.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#define ROW_CACHE_BYTES ((size_t)64 << 20)

/* The last of the linears that share an input, by the first of them. */
static const text_linear shares_until[TEXT_LINEARS] = {[TEXT_Q] = TEXT_V,
                                                       [TEXT_O] = TEXT_O,
                                                       [TEXT_GATE] = TEXT_UP,
                                                       [TEXT_DOWN] = TEXT_DOWN,
                                                       [TEXT_CONV_IN] = TEXT_CONV_IN,
                                                       [TEXT_CONV_OUT] = TEXT_CONV_OUT};

struct calibrate_sums {
    importance *to;
    size_t *first; /* [n_layers + 1]: entry of a layer's first linear, then the output's */
    const tacit_text_model *m;
    tacit_tap tap;
};

static tacit_status add_entry(importance *to, const char *name, size_t columns, tacit_error *err)
{
    return importance_add(to, name, columns, 1)
               ? TACIT_OK
               : tacit_fail(err, TACIT_NO_MEMORY, "no memory for the sums of %s", name);
}

static const char *output_name(const tacit_text_model *m)
{
    return m->tied ? "token_embd.weight" : "output.weight";
}

/* The linears that a layer has, layer by layer; the output's is the last. */
static tacit_status add_entries(calibrate_sums *s, tacit_error *err)
{
    const tacit_text_model *m = s->m;
    char name[64];
    tacit_status status = TACIT_OK;
    for (size_t i = 0; i < m->n_layers * TEXT_LINEARS && status == TACIT_OK; i++) {
        text_linear which = (text_linear)(i % TEXT_LINEARS);
        size_t layer = i / TEXT_LINEARS;
        if (which == 0)
            s->first[layer] = s->to->count;
        if (!text_has_linear(&m->layer[layer], which))
            continue;
        snprintf(name, sizeof name, "blk.%zu.%s.weight", layer, text_linear_name(which));
        status = add_entry(s->to, name, m->layer[layer].linear[which].n_in, err);
    }
    s->first[m->n_layers] = s->to->count;
    return status == TACIT_OK ? add_entry(s->to, output_name(m), m->embedding, err) : status;
}

/* Of the linears that a layer has, those before `which`. */
static size_t linears_before(const tacit_text_layer *l, size_t which)
{
    size_t n = 0;
    for (size_t i = 0; i < which; i++)
        n += text_has_linear(l, (text_linear)i);
    return n;
}

static void add_squares(importance_entry *e, const float *x, size_t rows)
{
    for (size_t r = 0; r < rows; r++)
        for (size_t i = 0; i < e->columns; i++)
            e->sum[i] += (double)x[r * e->columns + i] * (double)x[r * e->columns + i];
    *e->rows += (double)rows;
}

static void see(void *ctx, size_t layer, size_t which, const float *x, size_t rows)
{
    const calibrate_sums *s = ctx;
    importance_entry *e = &s->to->entry[s->first[layer]];
    if (layer == s->m->n_layers) {
        add_squares(e, x, rows);
        return;
    }
    e += linears_before(&s->m->layer[layer], which);
    for (size_t i = which; i <= shares_until[which]; i++)
        add_squares(e++, x, rows);
}

tacit_status calibrate_sums_new(calibrate_sums **out, importance *to, const tacit_model *model,
                                tacit_error *err)
{
    calibrate_sums *s = calloc(1, sizeof *s);
    *out = NULL;
    if (!s)
        return tacit_fail(err, TACIT_NO_MEMORY, "no memory for an importance matrix");
    *s = (calibrate_sums){.to = to, .m = &model->text, .tap = {see, s}};
    s->first = calloc(s->m->n_layers + 1, sizeof *s->first);
    tacit_status status =
        s->first ? add_entries(s, err)
                 : tacit_fail(err, TACIT_NO_MEMORY, "no memory for an importance matrix");
    if (status == TACIT_OK)
        *out = s;
    else
        calibrate_sums_free(s);
    return status;
}

void calibrate_sums_free(calibrate_sums *s)
{
    if (!s)
        return;
    free(s->first);
    free(s);
}

const tacit_tap *calibrate_sums_tap(const calibrate_sums *s)
{
    return &s->tap;
}

/* ---- a dataset ---- */

typedef struct calibration {
    const tacit_model *model;
    const calibrate_options *options;
    calibrate_result *result;
    calibrate_sums *sums;
    tacit_context *context;
    tacit_row_cache *cache;
} calibration;

/* Asking for the logits of every row makes every row an input of the output. */
static tacit_status ignore_logits(void *ctx, size_t row, const float *logits)
{
    (void)ctx, (void)row, (void)logits;
    return TACIT_OK;
}

static tacit_status feed_record(calibration *c, const tacit_record *record, tacit_error *err)
{
    const tacit_example_options how = {.form = c->options->form};
    tacit_input in = {0};
    tacit_status status;
    TACIT_TRY(tacit_example_build(&in, c->model, record, &how, err), done);
    TACIT_TRY(tacit_row_cache_fill(c->cache, &in, err), done);
    tacit_context_truncate(c->context, 0);
    TACIT_TRY(tacit_context_feed_all(c->context, in.row, in.count, in.media, in.n_media,
                                     ignore_logits, NULL, err),
              done);
    c->result->rows += in.count;
    c->result->records++;
done:
    tacit_input_free(&in);
    return status;
}

static tacit_status feed_all(calibration *c, const tacit_dataset *dataset, tacit_error *err)
{
    size_t limit = c->options->limit ? c->options->limit : dataset->count;
    for (size_t i = 0; i < dataset->count && i < limit; i++) {
        size_t line = dataset->record[i].line;
        tacit_status status = feed_record(c, &dataset->record[i], err);
        bool of_the_record = status == TACIT_BAD_INPUT || status == TACIT_NOT_FOUND;
        if (status == TACIT_OK)
            continue;
        if (c->options->strict || !of_the_record)
            return tacit_fail_context(err, "%s:%zu", dataset->path, line);
        tacit_log_warn("%s:%zu: %s; record skipped", dataset->path, line, err->message);
        c->result->skipped++;
    }
    if (c->result->records == 0)
        return tacit_fail(err, TACIT_BAD_INPUT, "%s: %s", dataset->path,
                          dataset->count + dataset->bad_lines == 0
                              ? "the file has no records"
                              : "no record could be used, for the reasons above");
    return TACIT_OK;
}

/* Sums of values that overflowed say nothing: naming the linear tells where the model breaks. */
static tacit_status check_sums(const importance *m, tacit_error *err)
{
    for (size_t e = 0; e < m->count; e++)
        for (size_t i = 0; i < m->entry[e].columns; i++)
            if (!isfinite((float)m->entry[e].sum[i]))
                return tacit_fail(err, TACIT_BAD_INPUT,
                                  "%s: the squares of input %zu sum to what is no finite number; "
                                  "nothing was written",
                                  m->entry[e].name, i);
    return TACIT_OK;
}

tacit_status calibrate_run(importance *out, calibrate_result *result, const tacit_model *model,
                           const tacit_dataset *dataset, const calibrate_options *options,
                           tacit_pool *pool, tacit_error *err)
{
    const tacit_context_spec spec = {.precision = TACIT_EXACT};
    tacit_error own;
    calibration c = {.model = model, .options = options, .result = result};
    tacit_status status;
    *result = (calibrate_result){.skipped = dataset->bad_lines};
    err = err ? err : &own;
    TACIT_TRY(calibrate_sums_new(&c.sums, out, model, err), done);
    TACIT_TRY(tacit_row_cache_new(&c.cache, model, ROW_CACHE_BYTES, NULL, pool, err), done);
    TACIT_TRY(tacit_context_new(&c.context, model, &spec, pool, err), done);
    tacit_context_tap(c.context, calibrate_sums_tap(c.sums));
    TACIT_TRY(feed_all(&c, dataset, err), done);
    TACIT_TRY(check_sums(out, err), done);
    out->chunks = (uint32_t)result->records;
    out->chunk_size = (uint32_t)((result->rows + result->records - 1) / result->records);
done:
    tacit_context_free(c.context);
    tacit_row_cache_free(c.cache);
    calibrate_sums_free(c.sums);
    return status;
}
