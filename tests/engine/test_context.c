#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "engine/adapter_parts.h"
#include "engine/context.h"
#include "engine/kernels.h"
#include "random_llama.h"
#include "reference_llama.h"

#include <unistd.h>

#define MEDIA_ROWS 5

static void check(tacit_status status, const tacit_error *err)
{
    if (status != TACIT_OK)
        fail_msg("%s", err->message);
}

/* n rows: tokens, with the rows of one picture in between, and gaps in the positions. */
typedef struct sequence {
    tacit_row *row;
    size_t n;
    tacit_media media;
} sequence;

static sequence new_sequence(const random_llama *m, size_t n)
{
    sequence s = {.row = calloc(n, sizeof *s.row), .n = n};
    uint64_t seed = 77;
    uint32_t position = 0;
    s.media.n_rows = MEDIA_ROWS;
    s.media.rows = numbers_new(MEDIA_ROWS * m->width, 1, 78);
    for (size_t i = 0; i < n; i++) {
        position += i % 11 == 7 ? 3 : 1;
        bool picture = i >= 3 && i < 3 + MEDIA_ROWS;
        s.row[i].modality = picture ? TACIT_MODALITY_IMAGE : TACIT_MODALITY_TOKEN;
        s.row[i].token = picture ? (int32_t)(i - 3) : (int32_t)(numbers_next(&seed) % m->vocab);
        s.row[i].position = position;
    }
    return s;
}

static void free_sequence(sequence *s)
{
    free(s->row);
    free(s->media.rows);
}

static double *expected_logits(const random_llama *m, const gguf_file *file, const sequence *s)
{
    llama_reference r = {.file = file, .width = m->width, .layers = m->layers, .head = m->head};
    r.eps = (double)1e-5f;
    r.vocab = m->vocab;
    r.base = m->base > 0 ? m->base : 10000;
    r.factor = m->factor > 0 ? m->factor : 1;
    for (size_t i = 0; i < m->layers; i++) {
        r.heads[i] = m->heads[i];
        r.kv_heads[i] = m->kv_heads[i];
        r.ff[i] = m->ff[i];
    }
    size_t rows, cols;
    double *embedding = llama_tensor(&r, "token_embd.weight", &rows, &cols);
    double *x = calloc(s->n * m->width, sizeof *x);
    for (size_t i = 0; i < s->n; i++)
        for (size_t c = 0; c < m->width; c++) {
            size_t at = (size_t)s->row[i].token * m->width + c;
            x[i * m->width + c] = s->row[i].modality == TACIT_MODALITY_TOKEN
                                      ? embedding[at]
                                      : (double)s->media.rows[at];
        }
    double *logits = llama_logits(&r, x, s->row, s->n);
    free(x);
    free(embedding);
    return logits;
}

typedef struct collected {
    float *logits;
    size_t vocab, next;
} collected;

static tacit_status collect(void *ctx, size_t row, const float *logits)
{
    collected *c = ctx;
    if (row != c->next++)
        return TACIT_FAILED;
    memcpy(c->logits + row * c->vocab, logits, c->vocab * sizeof *logits);
    return TACIT_OK;
}

static tacit_context *new_context(const tacit_model *m, tacit_precision precision, size_t chunk,
                                  tacit_pool *pool)
{
    const tacit_context_spec spec = {.precision = precision, .chunk = chunk};
    tacit_context *c;
    tacit_error err = {0};
    check(tacit_context_new(&c, m, &spec, pool, &err), &err);
    return c;
}

static float *logits_of(const tacit_model *m, const sequence *s, tacit_precision precision,
                        size_t chunk, size_t threads)
{
    tacit_pool *pool;
    tacit_error err = {0};
    check(tacit_pool_new(&pool, threads, &err), &err);
    tacit_context *c = new_context(m, precision, chunk, pool);
    collected got = {.vocab = m->text.vocab};
    got.logits = malloc(s->n * got.vocab * sizeof *got.logits);
    check(tacit_context_feed_all(c, s->row, s->n, &s->media, 1, collect, &got, &err), &err);
    assert_int_equal(got.next, s->n);
    assert_int_equal(tacit_context_rows(c), s->n);
    assert_memory_equal(tacit_context_logits(c), got.logits + (s->n - 1) * got.vocab,
                        got.vocab * sizeof *got.logits);
    tacit_context_free(c);
    tacit_pool_free(pool);
    return got.logits;
}

static const tacit_type types[] = {TACIT_TYPE_F32,  TACIT_TYPE_F16,  TACIT_TYPE_BF16,
                                   TACIT_TYPE_Q8_0, TACIT_TYPE_Q4_0, TACIT_TYPE_Q4_1};

/* What fast precision differs by at least, so that it is not exact in disguise; 0: it is exact.
 * Tiles of integers round by 2^-16. */
static double least_difference(tacit_type type, size_t rows)
{
    const fast_kernels *k = kernels()->fast;
    bool bf16 = fast_takes_tiles(k, FAST_BF16);
    if (type == TACIT_TYPE_Q8_0 && fast_takes_tiles(k, FAST_8) && !k->tiles->for_refined &&
        rows >= k->tiles->from_rows)
        return bf16 ? 1e-4 : 1e-5;
    return tacit_type_find(type)->block_values > 1 || (type == TACIT_TYPE_BF16 && bf16) ? 1e-4 : 0;
}

/* `exact` against the naive forward on the same dequantized weights; `fast` differs from it by the
 * rounding of activations to 8 bits, which through two or three layers stays below 3 %. */
static void compare(const random_llama *m, size_t n)
{
    random_file f = random_llama_open(random_llama_writer(m));
    sequence s = new_sequence(m, n);
    double *expected = expected_logits(m, f.file, &s);
    for (int cached = 0; cached < 2; cached++) {
        tacit_model *model = random_model(&f, cached);
        float *exact = logits_of(model, &s, TACIT_EXACT, 0, 1);
        float *fast = logits_of(model, &s, TACIT_FAST, 0, 1);
        double e = numbers_distance_to(exact, expected, n * m->vocab);
        double q = numbers_distance_to(fast, expected, n * m->vocab);
        if (!(e < 1e-5) || !(q < 3e-2))
            fail_msg("type %d, cached %d: exact %g, fast %g", (int)m->type, cached, e, q);
        double least = least_difference(m->type, n);
        assert_true(least > 0 ? q > least : q < 1e-5);
        free(fast);
        free(exact);
        random_model_free(model);
    }
    free(expected);
    free_sequence(&s);
    random_file_close(&f);
}

static void test_against_the_reference(void **state)
{
    (void)state;
    for (size_t t = 0; t < sizeof types / sizeof types[0]; t++) {
        random_llama m = random_llama_usual();
        m.type = types[t];
        m.untied = t % 2;
        compare(&m, 40);
    }
}

static void test_every_feature_of_the_file(void **state)
{
    (void)state;
    random_llama m = {.width = 96,
                      .layers = 3,
                      .head = 32,
                      .vocab = 70,
                      .context = 256,
                      .heads = {3, 4, 1},
                      .kv_heads = {1, 4, 1},
                      .ff = {64, 160, 32},
                      .per_layer = true,
                      .type = TACIT_TYPE_Q8_0,
                      .untied = true,
                      .biases = true,
                      .divisors = true,
                      .base = 50000,
                      .factor = 4};
    compare(&m, 140);
}

/* Sizes that no vector, tile or block divides, and more rows than two pages hold. */
static void test_odd_sizes(void **state)
{
    (void)state;
    random_llama m = random_llama_usual();
    m.width = 30;
    m.head = 10;
    m.heads[0] = m.heads[1] = 3;
    m.kv_heads[0] = m.kv_heads[1] = 1;
    m.ff[0] = m.ff[1] = 37;
    m.vocab = 41;
    compare(&m, 131);
}

static void test_threads_change_no_bit(void **state)
{
    (void)state;
    const tacit_type tried[] = {TACIT_TYPE_Q4_1, TACIT_TYPE_Q8_0};
    for (size_t t = 0; t < 2; t++) {
        random_llama m = random_llama_usual();
        m.type = tried[t];
        random_file f = random_llama_open(random_llama_writer(&m));
        sequence s = new_sequence(&m, 90);
        for (int way = 0; way < 4; way++) {
            tacit_model *model = random_model(&f, way & 1);
            tacit_precision precision = way & 2 ? TACIT_FAST : TACIT_EXACT;
            float *one = logits_of(model, &s, precision, 0, 1);
            for (size_t threads = 2; threads <= 3; threads++) {
                float *many = logits_of(model, &s, precision, 0, threads);
                assert_memory_equal(many, one, s.n * m.vocab * sizeof *one);
                free(many);
            }
            free(one);
            random_model_free(model);
        }
        free_sequence(&s);
        random_file_close(&f);
    }
}

/* In fast precision: bitwise where every chunk has enough rows for the same kernels, tiles or not;
 * one row at a time is near. */
static void check_fast_chunks(const tacit_model *model, const sequence *s)
{
    size_t n = s->n * model->text.vocab, thirds = s->n / 3, halves = s->n / 2;
    const fast_tiles *tiles = kernels()->fast->tiles;
    float *one = logits_of(model, s, TACIT_FAST, s->n, 1);
    float *cut = logits_of(model, s, TACIT_FAST, thirds, 2);
    assert_true(s->n % 6 == 0 && (!tiles || thirds >= tiles->from_rows));
    assert_memory_equal(cut, one, n * sizeof *one);
    free(cut);
    cut = logits_of(model, s, TACIT_FAST, halves, 1);
    assert_memory_equal(cut, one, n * sizeof *one);
    free(cut);
    cut = logits_of(model, s, TACIT_FAST, 1, 1);
    assert_true(numbers_distance(cut, one, n) < (tiles ? 3e-2 : 1e-2));
    free(cut);
    free(one);
}

/* Chunks, and one token at a time, give what one go gives: bitwise with cached weights, where the
 * same kernels run whatever the number of rows. */
static void test_chunks(void **state)
{
    (void)state;
    random_llama m = random_llama_usual();
    m.type = TACIT_TYPE_Q8_0;
    random_file f = random_llama_open(random_llama_writer(&m));
    sequence s = new_sequence(&m, 150);
    const size_t chunk[] = {1, 2, 7, 64, 100};
    for (int cached = 0; cached < 2; cached++) {
        tacit_model *model = random_model(&f, cached);
        float *one = logits_of(model, &s, TACIT_EXACT, 150, 1);
        for (size_t i = 0; i < 5; i++) {
            float *cut = logits_of(model, &s, TACIT_EXACT, chunk[i], 2);
            assert_true(numbers_distance(cut, one, s.n * m.vocab) < 1e-5);
            if (cached && chunk[i] > 2)
                assert_memory_equal(cut + 8 * m.vocab, one + 8 * m.vocab,
                                    (s.n - 8) * m.vocab * sizeof *one);
            free(cut);
        }
        check_fast_chunks(model, &s);
        free(one);
        random_model_free(model);
    }
    free_sequence(&s);
    random_file_close(&f);
}

/* A shared prefix and another continuation equal that continuation alone. */
static void test_truncate(void **state)
{
    (void)state;
    random_llama m = random_llama_usual();
    random_file f = random_llama_open(random_llama_writer(&m));
    tacit_model *model = random_model(&f, true);
    sequence s = new_sequence(&m, 80);
    tacit_error err = {0};
    tacit_context *a = new_context(model, TACIT_EXACT, 0, NULL);
    tacit_context *b = new_context(model, TACIT_EXACT, 0, NULL);
    check(tacit_context_feed(a, s.row, 80, &s.media, 1, &err), &err);
    tacit_context_truncate(a, 70);
    assert_int_equal(tacit_context_rows(a), 70);
    check(tacit_context_feed(b, s.row, 70, &s.media, 1, &err), &err);
    for (int32_t token = 5; token < 8; token++) {
        check(tacit_context_feed_token(a, token, &err), &err);
        check(tacit_context_feed_token(b, token, &err), &err);
    }
    assert_true(numbers_distance(tacit_context_logits(a), tacit_context_logits(b), m.vocab) < 1e-6);
    tacit_context_truncate(a, 0);
    check(tacit_context_feed(a, s.row, 73, &s.media, 1, &err), &err);
    assert_true(numbers_distance(tacit_context_logits(a), tacit_context_logits(b), m.vocab) > 1e-3);
    tacit_context_free(b);
    tacit_context_free(a);
    free_sequence(&s);
    random_model_free(model);
    random_file_close(&f);
}

/* Keys and values in less than fp32: near what fp32 gives, and bit for bit alike whatever the
 * chunks of one precision. */
static void test_small_keys_and_values(void **state)
{
    (void)state;
    static const double most[] = {0, 1e-3, 2e-2};
    random_llama m = random_llama_usual();
    random_file f = random_llama_open(random_llama_writer(&m));
    tacit_model *model = random_model(&f, true);
    sequence s = new_sequence(&m, 150);
    tacit_error err = {0};
    float *plain = logits_of(model, &s, TACIT_EXACT, 0, 1);
    for (int kv = TACIT_KV_F16; kv <= TACIT_KV_INT8; kv++) {
        const tacit_context_spec spec = {.kv = (tacit_kv_type)kv};
        tacit_context *c;
        check(tacit_context_new(&c, model, &spec, NULL, &err), &err);
        check(tacit_context_feed(c, s.row, 64, &s.media, 1, &err), &err);
        assert_true(numbers_distance(tacit_context_logits(c), plain + 63 * m.vocab, m.vocab) <
                    1e-6);
        check(tacit_context_feed(c, s.row + 64, 86, &s.media, 1, &err), &err);
        double d = numbers_distance(tacit_context_logits(c), plain + 149 * m.vocab, m.vocab);
        if (!(d > 1e-7 && d < most[kv]))
            fail_msg("keys and values of type %d: off by %g", kv, d);
        tacit_context_free(c);
    }
    free(plain);
    free_sequence(&s);
    random_model_free(model);
    random_file_close(&f);
}

static const tacit_trainable_spec small_lora = {.kind = TACIT_TRAIN_LORA,
                                                .target = {"attn_output", "ffn_down"},
                                                .n_targets = 2,
                                                .rank = 3,
                                                .alpha = 6};

/* Publishes an adapter of random values under `path`, over whatever is there. */
static void write_adapter(const char *path, const tacit_model *model, uint64_t seed)
{
    tacit_error err = {0};
    tacit_layout layout;
    const tacit_adapter_info info = {.version = seed};
    check(tacit_layout_make(&layout, model, &small_lora, &err), &err);
    float *values = numbers_new(layout.values, 0.3f, seed);
    check(tacit_adapter_save(path, model, &small_lora, values, &info, &err), &err);
    free(values);
    tacit_layout_free(&layout);
}

static tacit_adapter *load_adapter(const char *path, const tacit_model *model)
{
    tacit_adapter *a;
    tacit_error err = {0};
    check(tacit_adapter_load(&a, model, path, &err), &err);
    return a;
}

/* W + scale B A of every adapted linear, in `m`, which then owns nothing of it: free with merged.
 */
static void merge_pairs(tacit_model *m, const tacit_layout *l, const float *values, float scale,
                        float **merged)
{
    size_t entry = 0;
    for (size_t i = 0; i < m->text.n_layers; i++)
        for (int k = TEXT_O; k <= TEXT_DOWN; k += TEXT_DOWN - TEXT_O) {
            tacit_linear *w = &m->text.layer[i].linear[k];
            const tacit_trainable_entry *a = &l->entry[entry], *b = &l->entry[entry + 1];
            float *sum = malloc(w->n_in * w->n_out * sizeof *sum);
            tacit_linear flat;
            linear_init_f32(&flat, sum, w->bias, w->n_in, w->n_out);
            for (size_t o = 0; o < w->n_out; o++) {
                linear_row(w, o, sum + o * w->n_in);
                for (size_t c = 0; c < w->n_in; c++)
                    for (size_t r = 0; r < a->rows; r++)
                        sum[o * w->n_in + c] += scale * values[b->offset + o * a->rows + r] *
                                                values[a->offset + r * w->n_in + c];
            }
            linear_drop_cache(w);
            *w = flat;
            merged[entry / 2] = sum;
            entry += 2;
        }
    assert_int_equal(entry, l->count);
}

/* An adapter computes what the same model with the merged weights computes, an unbound context
 * what the base does, and binding forgets rows made with other weights. */
static void test_adapter(void **state)
{
    (void)state;
    random_llama m = random_llama_usual();
    random_file f = random_llama_open(random_llama_writer(&m));
    tacit_model *model = random_model(&f, true), *other = random_model(&f, true);
    char path[] = "/tmp/tacit-context-XXXXXX";
    close(mkstemp(path));
    tacit_error err = {0};
    tacit_layout layout;
    check(tacit_layout_make(&layout, model, &small_lora, &err), &err);
    float *values = numbers_new(layout.values, 0.3f, 91), *merged[4];
    write_adapter(path, model, 91);
    tacit_adapter *adapter = load_adapter(path, model);
    merge_pairs(other, &layout, values, 2, merged);
    sequence s = new_sequence(&m, 30);
    float *base = logits_of(model, &s, TACIT_EXACT, 0, 1);
    float *expected = logits_of(other, &s, TACIT_EXACT, 0, 1);
    for (int precision = TACIT_EXACT; precision <= TACIT_FAST; precision++) {
        tacit_context *c = new_context(model, (tacit_precision)precision, 8, NULL);
        check(tacit_context_feed(c, s.row, s.n, &s.media, 1, &err), &err);
        check(tacit_context_bind(c, adapter, &err), &err);
        assert_int_equal(tacit_context_rows(c), 0);
        check(tacit_context_feed(c, s.row, s.n, &s.media, 1, &err), &err);
        const float *last = expected + (s.n - 1) * m.vocab;
        assert_true(numbers_distance(tacit_context_logits(c), last, m.vocab) < 1e-5);
        check(tacit_context_bind(c, NULL, &err), &err);
        check(tacit_context_feed(c, s.row, s.n, &s.media, 1, &err), &err);
        assert_true(numbers_distance(tacit_context_logits(c), base + (s.n - 1) * m.vocab, m.vocab) <
                    1e-5);
        assert_true(numbers_distance(tacit_context_logits(c), last, m.vocab) > 1e-2);
        tacit_context_free(c);
    }
    free(expected);
    free(base);
    free_sequence(&s);
    tacit_adapter_free(adapter);
    for (size_t i = 0; i < 4; i++)
        free(merged[i]);
    free(values);
    tacit_layout_free(&layout);
    assert_int_equal(unlink(path), 0);
    random_model_free(other);
    random_model_free(model);
    random_file_close(&f);
}

/* An adapter replaced under its name: what is bound goes on as it was, and the new one, once bound,
 * computes as if the context had never held a row. */
static void test_adapter_replaced_under_its_name(void **state)
{
    (void)state;
    random_llama m = random_llama_usual();
    random_file f = random_llama_open(random_llama_writer(&m));
    tacit_model *model = random_model(&f, true);
    sequence s = new_sequence(&m, 40);
    size_t bytes = m.vocab * sizeof(float);
    char path[] = "/tmp/tacit-context-XXXXXX";
    tacit_error err = {0};
    close(mkstemp(path));
    write_adapter(path, model, 5);
    tacit_adapter *before = load_adapter(path, model), *twin = load_adapter(path, model);
    tacit_context *c = new_context(model, TACIT_EXACT, 8, NULL);
    tacit_context *alone = new_context(model, TACIT_EXACT, 8, NULL);
    check(tacit_context_bind(c, before, &err), &err);
    check(tacit_context_bind(alone, twin, &err), &err);
    check(tacit_context_feed(c, s.row, 30, &s.media, 1, &err), &err);
    write_adapter(path, model, 6);
    check(tacit_context_feed(c, s.row + 30, 10, &s.media, 1, &err), &err);
    check(tacit_context_feed(alone, s.row, 30, &s.media, 1, &err), &err);
    check(tacit_context_feed(alone, s.row + 30, 10, &s.media, 1, &err), &err);
    assert_memory_equal(tacit_context_logits(c), tacit_context_logits(alone), bytes);

    tacit_adapter *after = load_adapter(path, model);
    assert_memory_equal(adapter_digest(before), adapter_digest(twin), TACIT_DIGEST_BYTES);
    assert_memory_not_equal(adapter_digest(before), adapter_digest(after), TACIT_DIGEST_BYTES);
    tacit_context *fresh = new_context(model, TACIT_EXACT, 8, NULL);
    check(tacit_context_bind(fresh, after, &err), &err);
    check(tacit_context_bind(c, after, &err), &err);
    assert_int_equal(tacit_context_rows(c), 0);
    tacit_context_truncate(c, 30); /* asking for the old prefix brings no row back */
    assert_int_equal(tacit_context_rows(c), 0);
    check(tacit_context_feed(fresh, s.row, 40, &s.media, 1, &err), &err);
    check(tacit_context_feed(c, s.row, 40, &s.media, 1, &err), &err);
    assert_memory_equal(tacit_context_logits(c), tacit_context_logits(fresh), bytes);
    assert_true(numbers_distance(tacit_context_logits(c), tacit_context_logits(alone), m.vocab) >
                1e-2);
    tacit_context_free(fresh);
    tacit_context_free(alone);
    tacit_context_free(c);
    tacit_adapter_free(after);
    tacit_adapter_free(twin);
    tacit_adapter_free(before);
    assert_int_equal(unlink(path), 0);
    free_sequence(&s);
    random_model_free(model);
    random_file_close(&f);
}

static void assert_refused(tacit_context *c, const sequence *s, size_t n, size_t n_media,
                           const char *why)
{
    tacit_error err = {0};
    size_t before = tacit_context_rows(c);
    assert_int_equal(tacit_context_feed(c, s->row, n, &s->media, n_media, &err), TACIT_BAD_INPUT);
    if (!strstr(err.message, why))
        fail_msg("'%s' does not say '%s'", err.message, why);
    assert_int_equal(tacit_context_rows(c), before);
}

static void test_bad_rows(void **state)
{
    (void)state;
    random_llama m = random_llama_usual();
    random_file f = random_llama_open(random_llama_writer(&m));
    tacit_model *model = random_model(&f, true);
    sequence s = new_sequence(&m, 20);
    tacit_context *c;
    tacit_error err = {0};
    const tacit_context_spec small = {.max_rows = 15}, large = {.max_rows = 513};
    assert_int_equal(tacit_context_new(&c, model, &large, NULL, &err), TACIT_USAGE);
    assert_non_null(strstr(err.message, "512"));
    check(tacit_context_new(&c, model, &small, NULL, &err), &err);
    assert_refused(c, &s, 16, 1,
                   "an input of 16 rows: the context holds 15, the model's up to 512");
    assert_refused(c, &s, 10, 0, "media");
    s.media.n_rows = 3;
    assert_refused(c, &s, 10, 1, "row 3 of media 0");
    s.media.n_rows = MEDIA_ROWS;
    float *encoded = s.media.rows;
    s.media.rows = NULL;
    assert_refused(c, &s, 10, 1, "row 3: media 0 has no rows yet; encode it first");
    s.media.rows = encoded;
    s.row[9].token = 50;
    assert_refused(c, &s, 10, 1, "token 50");
    s.row[9].token = -1;
    assert_refused(c, &s, 10, 1, "token -1");
    check(tacit_context_feed(c, s.row, 9, &s.media, 1, &err), &err);
    s.row[9].token = 1;
    assert_refused(c, &s, 3, 1, "ascending");
    assert_int_equal(tacit_context_feed(c, s.row, 0, NULL, 0, &err), TACIT_USAGE);
    assert_int_equal(tacit_context_feed_token(c, 50, &err), TACIT_BAD_INPUT);
    for (int i = 0; i < 6; i++)
        check(tacit_context_feed_token(c, i, &err), &err);
    assert_int_equal(tacit_context_feed_token(c, 1, &err), TACIT_BAD_INPUT);
    assert_string_equal(err.message,
                        "an input of 1 rows behind the 15 that are there: the context holds 15, "
                        "the model's up to 512; shorten the input or enlarge the context");
    tacit_context_free(c);
    tacit_context_free(NULL);
    free_sequence(&s);
    random_model_free(model);
    random_file_close(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_against_the_reference),
        cmocka_unit_test(test_every_feature_of_the_file),
        cmocka_unit_test(test_odd_sizes),
        cmocka_unit_test(test_threads_change_no_bit),
        cmocka_unit_test(test_chunks),
        cmocka_unit_test(test_truncate),
        cmocka_unit_test(test_small_keys_and_values),
        cmocka_unit_test(test_adapter),
        cmocka_unit_test(test_adapter_replaced_under_its_name),
        cmocka_unit_test(test_bad_rows),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
