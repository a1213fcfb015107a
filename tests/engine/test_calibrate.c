/* Sums of squares against the inputs of linears computed once more, one by one and in double, from
 * the file itself. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "common/file.h"
#include "engine/calibrate.h"
#include "engine/example.h"
#include "engine/image.h"
#include "random_llama.h"
#include "reference_llama.h"
#include "tiny_model.h"

#include "../golden/pictures_pillow.h"

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

/* Adds to sum[width] the squares of one row after the first layer's norm, as its first linear meets
 * it. */
static void add_row(double *sum, const float *x, const float *norm, size_t width)
{
    double squares = 0;
    for (size_t i = 0; i < width; i++)
        squares += (double)x[i] * x[i];
    for (size_t i = 0; i < width; i++) {
        double h = x[i] / sqrt(squares / (double)width + (double)1e-5f) * norm[i];
        sum[i] += h * h;
    }
}

/* The first layer's inputs of an example, from the file's embeddings and the encoder's rows. */
static void expect_first_layer(const importance *m, const tiny_model *t, const tacit_input *in)
{
    enum { WIDTH = 32 };
    double sum[WIDTH] = {0};
    float norm[WIDTH], row[WIDTH];
    gguf_file *file;
    tacit_error err;
    assert_int_equal(gguf_open(&file, t->text, &err), TACIT_OK);
    const gguf_tensor *g = gguf_tensor_find(file, "blk.0.attn_norm.weight");
    g->traits->to_f32(norm, g->data, WIDTH);
    g = gguf_tensor_find(file, "token_embd.weight");
    for (size_t i = 0; i < in->count; i++) {
        const tacit_row *r = &in->row[i];
        if (r->modality == TACIT_MODALITY_TOKEN)
            g->traits->to_f32(row, g->data + (size_t)r->token * g->row_bytes, WIDTH);
        else
            memcpy(row, in->media[r->media].rows + (size_t)r->token * WIDTH, sizeof row);
        add_row(sum, row, norm, WIDTH);
    }
    const importance_entry *e = importance_find(m, "blk.0.attn_q.weight");
    assert_non_null(e);
    assert_true(*e->rows == (double)in->count);
    for (size_t i = 0; i < WIDTH; i++)
        assert_true(fabs(e->sum[i] - sum[i]) <= 1e-5 * sum[i]);
    gguf_close(file);
}

/* Rows of a picture are inputs like those of tokens. */
static void rows_of_media_count(void **state)
{
    (void)state;
    static const char line[] =
        "{\"id\":\"a\",\"messages\":[{\"role\":\"user\",\"content\":[{\"type\":\"image\","
        "\"image\":\"p.jpg\"},{\"type\":\"text\",\"text\":\"q\"}]},"
        "{\"role\":\"assistant\",\"content\":\"7\"}]}\n";
    tiny_model t = tiny_load(true);
    char picture[128], data[128];
    tacit_error err = {0};
    tacit_dataset d = {0};
    tacit_row_cache *cache;
    tacit_input in;
    importance m = {0};
    calibrate_result result;
    const calibrate_options how = {.strict = true};
    snprintf(picture, sizeof picture, "%s/p.jpg", t.folder);
    snprintf(data, sizeof data, "%s/d.jsonl", t.folder);
    assert_int_equal(tacit_file_write(picture, jpeg_plain, sizeof jpeg_plain, 0600, &err), 0);
    assert_int_equal(tacit_file_write(data, line, sizeof line - 1, 0600, &err), 0);
    assert_int_equal(tacit_dataset_load(&d, data, true, &err), TACIT_OK);
    if (calibrate_run(&m, &result, t.model, &d, &how, NULL, &err) != TACIT_OK)
        fail_msg("%s", err.message);
    assert_int_equal(tacit_example_build(&in, t.model, &d.record[0], NULL, &err), TACIT_OK);
    assert_int_equal(tacit_row_cache_new(&cache, t.model, 0, NULL, NULL, &err), TACIT_OK);
    assert_int_equal(tacit_row_cache_fill(cache, &in, &err), TACIT_OK);
    assert_int_equal(in.n_media, 1);
    assert_int_equal(result.records, 1);
    assert_int_equal(result.rows, in.count);
    expect_first_layer(&m, &t, &in);
    tacit_row_cache_free(cache);
    tacit_input_free(&in);
    importance_free(&m);
    tacit_dataset_free(&d);
    unlink(picture);
    unlink(data);
    tiny_free(&t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(sums_are_those_of_every_input),
                                       cmocka_unit_test(rows_of_media_count)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
