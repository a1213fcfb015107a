/* Sums of squares against the inputs of linears computed once more, one by one and in double, from
 * the file itself. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "engine/calibrate.h"
#include "random_llama.h"
#include "reference_llama.h"

enum { ROWS = 150 }; /* more than a chunk */

static llama_reference reference_of(const random_llama *m, const gguf_file *file)
{
    llama_reference r = {.file = file, .width = m->width, .layers = m->layers, .head = m->head};
    r.eps = (double)1e-5f;
    r.vocab = m->vocab;
    r.base = 10000;
    r.factor = 1;
    for (size_t i = 0; i < m->layers; i++) {
        r.heads[i] = m->heads[i];
        r.kv_heads[i] = m->kv_heads[i];
        r.ff[i] = m->ff[i];
    }
    return r;
}

static void expect_sums(const importance *m, size_t layer, const char *linear, const double *x,
                        size_t columns)
{
    char name[64];
    snprintf(name, sizeof name, "blk.%zu.%s.weight", layer, linear);
    const importance_entry *e = importance_find(m, linear[0] == 'o' ? "output.weight" : name);
    assert_non_null(e);
    assert_int_equal(e->columns, columns);
    assert_int_equal(e->matrices, 1);
    assert_true(*e->rows == ROWS);
    for (size_t c = 0; c < columns; c++) {
        double sum = 0;
        for (size_t r = 0; r < ROWS; r++)
            sum += x[r * columns + c] * x[r * columns + c];
        assert_true(fabs(e->sum[c] - sum) <= 1e-5 * sum);
    }
}

/* One layer on x[ROWS, width], every linear's input compared on the way. */
static void expect_layer(const llama_reference *r, const importance *m, size_t layer, double *x,
                         const tacit_row *row)
{
    char name[64];
    size_t n = ROWS, d = r->width;
    snprintf(name, sizeof name, "blk.%zu.attn_norm.weight", layer);
    double *h = llama_norm(r, name, x, n);
    expect_sums(m, layer, "attn_q", h, d);
    expect_sums(m, layer, "attn_k", h, d);
    expect_sums(m, layer, "attn_v", h, d);
    double *q = llama_linear(r, layer, "attn_q", h, n), *k = llama_linear(r, layer, "attn_k", h, n);
    double *v = llama_linear(r, layer, "attn_v", h, n);
    llama_turn(r, layer, q, n, r->heads[layer], row);
    llama_turn(r, layer, k, n, r->kv_heads[layer], row);
    double *attended = llama_attend(r, layer, q, k, v, row, n);
    expect_sums(m, layer, "attn_output", attended, r->heads[layer] * r->head);
    double *o = llama_linear(r, layer, "attn_output", attended, n);
    for (size_t i = 0; i < n * d; i++)
        x[i] += o[i];
    snprintf(name, sizeof name, "blk.%zu.ffn_norm.weight", layer);
    double *h2 = llama_norm(r, name, x, n);
    expect_sums(m, layer, "ffn_gate", h2, d);
    expect_sums(m, layer, "ffn_up", h2, d);
    double *gate = llama_linear(r, layer, "ffn_gate", h2, n);
    double *up = llama_linear(r, layer, "ffn_up", h2, n);
    for (size_t i = 0; i < n * r->ff[layer]; i++)
        gate[i] = gate[i] / (1 + exp(-gate[i])) * up[i];
    expect_sums(m, layer, "ffn_down", gate, r->ff[layer]);
    double *down = llama_linear(r, layer, "ffn_down", gate, n);
    for (size_t i = 0; i < n * d; i++)
        x[i] += down[i];
    double *const parts[] = {h, q, k, v, attended, o, h2, gate, up, down};
    for (size_t i = 0; i < sizeof parts / sizeof parts[0]; i++)
        free(parts[i]);
}

static tacit_status ignore(void *ctx, size_t row, const float *logits)
{
    (void)ctx, (void)row, (void)logits;
    return TACIT_OK;
}

static importance collect(tacit_model *model, const tacit_row *row, size_t threads)
{
    importance m = {0};
    tacit_error err = {0};
    tacit_pool *pool;
    tacit_context *c;
    calibrate_sums *sums;
    assert_int_equal(tacit_pool_new(&pool, threads, &err), TACIT_OK);
    assert_int_equal(tacit_context_new(&c, model, NULL, pool, &err), TACIT_OK);
    assert_int_equal(calibrate_sums_new(&sums, &m, model, &err), TACIT_OK);
    tacit_context_tap(c, calibrate_sums_tap(sums));
    assert_int_equal(tacit_context_bind(c, NULL, &err), TACIT_OK); /* the tap stays */
    assert_int_equal(tacit_context_feed_all(c, row, ROWS, NULL, 0, ignore, NULL, &err), TACIT_OK);
    tacit_context_tap(c, NULL);
    tacit_context_truncate(c, 0);
    assert_int_equal(tacit_context_feed(c, row, ROWS, NULL, 0, &err), TACIT_OK); /* not seen */
    tacit_context_free(c);
    calibrate_sums_free(sums);
    tacit_pool_free(pool);
    return m;
}

static void sums_are_those_of_every_input(void **state)
{
    (void)state;
    random_llama m = random_llama_usual();
    m.untied = true;
    m.heads[1] = 2, m.kv_heads[1] = 1, m.ff[1] = 32, m.per_layer = true;
    random_file f = random_llama_open(random_llama_writer(&m));
    llama_reference r = reference_of(&m, f.file);
    tacit_model *model = random_model(&f, true);
    tacit_row row[ROWS] = {0};
    uint64_t seed = 5;
    size_t rows, cols;
    double *embedding = llama_tensor(&r, "token_embd.weight", &rows, &cols);
    double *x = malloc(ROWS * m.width * sizeof *x);
    for (size_t i = 0; i < ROWS; i++) {
        row[i].token = (int32_t)(numbers_next(&seed) % m.vocab);
        row[i].position = (uint32_t)i;
        memcpy(x + i * m.width, embedding + (size_t)row[i].token * m.width, m.width * sizeof *x);
    }
    importance one = collect(model, row, 1), three = collect(model, row, 3);
    assert_int_equal(one.count, m.layers * (TEXT_DOWN + 1) + 1);
    for (size_t layer = 0; layer < m.layers; layer++)
        expect_layer(&r, &one, layer, x, row);
    double *last = llama_norm(&r, "output_norm.weight", x, ROWS);
    expect_sums(&one, 0, "output", last, m.width);
    for (size_t i = 0; i < one.count; i++) /* whatever the threads */
        assert_memory_equal(one.entry[i].sum, three.entry[i].sum,
                            one.entry[i].columns * sizeof(double));
    importance_free(&one);
    importance_free(&three);
    free(last);
    free(x);
    free(embedding);
    random_model_free(model);
    random_file_close(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(sums_are_those_of_every_input)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
