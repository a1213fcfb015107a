/* The architectures of text models against a naive forward in double and PyTorch's losses, and what
 * their files may not be. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "engine/context.h"
#include "engine/text_arch.h"
#include "random_llama.h"
#include "reference_llama.h"
#include "train_fixture.h"

#include <unistd.h>

static void check(tacit_status status, const tacit_error *err)
{
    if (status != TACIT_OK)
        fail_msg("%s", err->message);
}

/* Tokens with gaps in their positions from `first` on; in groups and at several numbers where the
 * architecture has pictures do so. */
static tacit_row *new_rows(const random_llama *m, size_t n, uint32_t first)
{
    tacit_row *row = calloc(n, sizeof *row);
    uint64_t seed = 77;
    for (size_t i = 0; i < n; i++) {
        row[i].token = (int32_t)(numbers_next(&seed) % m->vocab);
        row[i].position = first + (uint32_t)(i + i / 11);
        if (m->window > 0 && i % 11 >= 3 && i % 11 < 9)
            row[i].group = (uint32_t)(i / 11 + 1);
        if (m->section[0] > 0) {
            const int32_t shift[3] = {(int32_t)(i % 5), (int32_t)(i % 3) - (i > 0), (int32_t)i};
            memcpy(row[i].shift, shift, sizeof shift);
        }
    }
    return row;
}

static double *expected_logits(const random_llama *m, const gguf_file *file, const tacit_row *row,
                               size_t n)
{
    llama_reference r = {.file = file, .width = m->width, .layers = m->layers, .head = m->head};
    r.eps = (double)1e-5f;
    r.vocab = m->vocab;
    r.base = m->base > 0 ? m->base : 10000;
    r.factor = m->factor > 0 ? m->factor : 1;
    r.trained = (double)m->trained;
    r.halves = strcmp(m->arch, "llama") != 0;
    r.kind = (reference_kind){.window = m->window, .pattern = m->pattern, .local_base = 10000};
    for (size_t i = 0; i < 4; i++)
        r.kind.section[i] = (size_t)m->section[i];
    r.kind.gelu = m->window > 0;
    double scale = m->window > 0 ? sqrt((double)m->width) : 1;
    for (size_t i = 0; i < m->layers; i++) {
        r.heads[i] = m->heads[i];
        r.kv_heads[i] = m->kv_heads[i];
        r.ff[i] = m->ff[i];
    }
    size_t rows, cols;
    double *embedding = llama_tensor(&r, "token_embd.weight", &rows, &cols);
    double *x = calloc(n * m->width, sizeof *x);
    for (size_t i = 0; i < n; i++)
        for (size_t c = 0; c < m->width; c++)
            x[i * m->width + c] = scale * embedding[(size_t)row[i].token * m->width + c];
    double *logits = llama_logits(&r, x, row, n);
    free(x);
    free(embedding);
    return logits;
}

typedef struct collected {
    float *logits;
    size_t vocab;
} collected;

static tacit_status collect(void *ctx, size_t row, const float *logits)
{
    collected *c = ctx;
    memcpy(c->logits + row * c->vocab, logits, c->vocab * sizeof *logits);
    return TACIT_OK;
}

static float *logits_of(const tacit_model *m, const tacit_row *row, size_t n,
                        const tacit_context_spec *spec, size_t threads)
{
    tacit_pool *pool;
    tacit_context *c;
    tacit_error err = {0};
    check(tacit_pool_new(&pool, threads, &err), &err);
    check(tacit_context_new(&c, m, spec, pool, &err), &err);
    collected got = {.vocab = m->text.vocab};
    got.logits = malloc(n * got.vocab * sizeof *got.logits);
    check(tacit_context_feed_all(c, row, n, NULL, 0, collect, &got, &err), &err);
    tacit_context_free(c);
    tacit_pool_free(pool);
    return got.logits;
}

/* `exact` against the naive forward; `fast` differs by the rounding of activations to 8 bits, which
 * through two layers stays below 3 %. */
static void compare(const random_llama *m, size_t n, uint32_t first)
{
    random_file f = random_llama_open(random_llama_writer(m));
    tacit_row *row = new_rows(m, n, first);
    double *expected = expected_logits(m, f.file, row, n);
    for (int cached = 0; cached < 2; cached++) {
        tacit_model *model = random_model(&f, cached);
        float *exact = logits_of(model, row, n, &(tacit_context_spec){.precision = TACIT_EXACT}, 1);
        float *fast = logits_of(model, row, n, &(tacit_context_spec){.precision = TACIT_FAST}, 1);
        double e = numbers_distance_to(exact, expected, n * m->vocab);
        double q = numbers_distance_to(fast, expected, n * m->vocab);
        if (!(e < 1e-5) || !(q < 3e-2))
            fail_msg("%s, type %d, cached %d: exact %g, fast %g", m->arch, (int)m->type, cached, e,
                     q);
        free(fast);
        free(exact);
        random_model_free(model);
    }
    free(expected);
    free(row);
    random_file_close(&f);
}

static void architectures_equal_their_naive_twins(void **state)
{
    (void)state;
    static const tacit_type types[] = {TACIT_TYPE_F32, TACIT_TYPE_Q8_0, TACIT_TYPE_Q4_1};
    for (size_t a = 0; a < RANDOM_ARCHS; a++)
        for (size_t t = 0; t < sizeof types / sizeof types[0]; t++) {
            random_llama m = random_arch(random_archs[a]);
            m.type = types[t];
            compare(&m, 70, 0);
        }
}

/* Sizes that no vector divides: half a head is 5, then 21. */
static void odd_heads(void **state)
{
    (void)state;
    for (size_t a = 0; a < RANDOM_ARCHS; a++)
        for (size_t head = 10; head <= 42; head += 32) {
            random_llama m = random_arch(random_archs[a]);
            m.head = head;
            random_sections(&m);
            m.width = 36;
            m.heads[0] = m.heads[1] = 3;
            m.kv_heads[0] = m.kv_heads[1] = 1;
            m.vocab = 41;
            compare(&m, 67, 0);
        }
}

/* Every form of scaling, near the start and far behind the context it was trained on. */
static void stretched_contexts(void **state)
{
    (void)state;
    static const struct {
        const char *scaling;
        double factor;
        size_t trained;
        bool divisors;
    } cases[] = {{"linear", 4, 0, false}, {"yarn", 4, 256, false}, {"yarn", 32, 4096, false},
                 {"yarn", 1, 512, false}, {"none", 8, 0, false},   {"linear", 1, 0, true}};
    for (size_t a = 0; a < RANDOM_ARCHS; a++)
        for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
            random_llama m = random_arch(random_archs[a]);
            m.context = 16384;
            m.head = 32;
            random_sections(&m);
            m.base = 1e6;
            m.scaling = cases[i].scaling;
            m.factor = cases[i].factor;
            m.trained = cases[i].trained;
            m.divisors = cases[i].divisors && a == 0; /* llama's alone */
            random_llama expected = m;
            random_file f = random_llama_open(random_llama_writer(&m));
            if (strcmp(m.scaling, "none") == 0)
                expected.factor = 1;
            for (uint32_t first = 0; first <= 15000; first += 15000) {
                tacit_row *row = new_rows(&m, 40, first);
                double *logits = expected_logits(&expected, f.file, row, 40);
                tacit_model *model = random_model(&f, true);
                float *exact =
                    logits_of(model, row, 40, &(tacit_context_spec){.precision = TACIT_EXACT}, 1);
                double e = numbers_distance_to(exact, logits, 40 * m.vocab);
                if (!(e < 1e-5))
                    fail_msg("%s, case %zu, from %u: %g", m.arch, i, first, e);
                free(exact);
                random_model_free(model);
                free(logits);
                free(row);
            }
            random_file_close(&f);
        }
}

/* Neither threads nor, with cached weights, the cutting into chunks changes a bit. */
static void threads_and_chunks_change_no_bit(void **state)
{
    (void)state;
    for (size_t a = 0; a < RANDOM_ARCHS; a++) {
        random_llama m = random_arch(random_archs[a]);
        m.type = TACIT_TYPE_Q8_0;
        random_file f = random_llama_open(random_llama_writer(&m));
        tacit_row *row = new_rows(&m, 90, 0);
        tacit_model *model = random_model(&f, true);
        for (int fast = 0; fast < 2; fast++) {
            tacit_context_spec spec = {.precision = fast ? TACIT_FAST : TACIT_EXACT};
            float *one = logits_of(model, row, 90, &spec, 1);
            float *many = logits_of(model, row, 90, &spec, 3);
            assert_memory_equal(one, many, 90 * m.vocab * sizeof *one);
            free(many);
            spec.chunk = 7;
            many = logits_of(model, row, 90, &spec, 1);
            if (!fast)
                assert_memory_equal(one, many, 90 * m.vocab * sizeof *one);
            free(many);
            free(one);
        }
        random_model_free(model);
        free(row);
        random_file_close(&f);
    }
}

/* ---- inference against PyTorch (tests/golden/make_gradients.py) ------------------------------ */

static double log_likelihood(const float *logits, size_t vocab, int32_t token)
{
    double sum = 0;
    for (size_t i = 0; i < vocab; i++)
        sum += exp((double)logits[i]);
    return (double)logits[token] - log(sum);
}

/* Mean negative log-likelihood of the trained tokens by inference. */
static double inferred_loss(const tacit_model *m, const tacit_adapter *adapter,
                            const tacit_input *in)
{
    const tacit_context_spec spec = {.precision = TACIT_EXACT};
    size_t vocab = m->text.vocab, trained = 0;
    collected got = {.vocab = vocab, .logits = calloc(in->count * vocab, sizeof(float))};
    tacit_context *c;
    tacit_error err = {0};
    double sum = 0;
    check(tacit_context_new(&c, m, &spec, NULL, &err), &err);
    check(tacit_context_bind(c, adapter, &err), &err);
    check(
        tacit_context_feed_all(c, in->row, in->count, in->media, in->n_media, collect, &got, &err),
        &err);
    for (size_t r = 1; r < in->count; r++)
        if (in->row[r].trained) {
            sum -= log_likelihood(got.logits + (r - 1) * vocab, vocab, in->row[r].token);
            trained++;
        }
    tacit_context_free(c);
    free(got.logits);
    return sum / (double)trained;
}

/* Through the file that an adapter is written to; this program runs several times at once, with
 * other kernels. */
static tacit_adapter *golden_adapter(const tacit_model *m, const gguf_file *golden)
{
    char path[256];
    snprintf(path, sizeof path, "%s/test-text-arch-%ld.gguf", TACIT_BINARY_DIR, (long)getpid());
    tacit_trainable_spec spec = fixture_spec(TACIT_TRAIN_LORA);
    tacit_trainer *t = fixture_trainer(m, &spec, 32, NULL);
    const tacit_adapter_info info = {.version = 1};
    tacit_adapter *a;
    tacit_error err = {0};
    fixture_values(t, golden, "lora");
    check(tacit_adapter_save(path, m, &spec, tacit_trainer_values(t), &info, &err), &err);
    check(tacit_adapter_load(&a, m, path, &err), &err);
    remove(path);
    tacit_trainer_free(t);
    return a;
}

/* With and without an adapter, with and without rows of a picture. */
static void inference_gives_the_losses_of_pytorch(void **state)
{
    (void)state;
    for (int w = 0; w < FIXTURE_WORDS; w++)
        for (int cached = 0; cached < 2; cached++) {
            tacit_model *m = fixture_model(fixture_words[w], cached);
            gguf_file *golden = fixture_file("gradients", fixture_words[w]);
            tacit_adapter *a = golden_adapter(m, golden);
            for (size_t i = 0; i < 2; i++) {
                tacit_input in = fixture_example(golden, i);
                assert_float_equal(inferred_loss(m, NULL, &in),
                                   gguf_array_number(golden, "all.loss", i), 1e-5);
                assert_float_equal(inferred_loss(m, a, &in),
                                   gguf_array_number(golden, "lora.loss", i), 1e-5);
                fixture_example_free(&in);
            }
            tacit_adapter_free(a);
            gguf_close(golden);
            fixture_model_free(m);
        }
}

/* ---- refusals: each names file, architecture and what is wrong ------------------------------ */

static void expect_refusal(gguf_writer *w, const char *const *why)
{
    random_file f = random_llama_open(w);
    tacit_text_model text;
    tacit_error err = {0};
    assert_int_equal(text_model_load(&text, f.file, &err), TACIT_BAD_INPUT);
    assert_non_null(strstr(err.message, "random"));
    for (; *why; why++)
        if (!strstr(err.message, *why))
            fail_msg("'%s' does not name '%s'", err.message, *why);
    assert_null(text.layer);
    random_file_close(&f);
}

static void what_is_not_supported_is_named_with_what_is(void **state)
{
    (void)state;
    static const char *const others[] = {"llama4",  "qwen",     "qwen25vl", "qwen2moe", "qwen3moe",
                                         "qwen3vl", "gemma2",   "gemma3n",  "phi3",     "mistral3",
                                         "lfm2moe", "granite",  "bert",     "LLAMA",    "llama ",
                                         "qwen22",  "deepseek2"};
    char known[64];
    text_arch_names(known, sizeof known);
    assert_string_equal(known, "gemma3, lfm2, llama, qwen2, qwen2vl, qwen3");
    for (size_t i = 0; i < sizeof others / sizeof others[0]; i++) {
        gguf_writer *w = gguf_writer_new();
        gguf_put_string(w, "general.architecture", others[i], strlen(others[i]));
        expect_refusal(w, (const char *const[]){others[i], "not supported", known, NULL});
    }
    gguf_writer *w = gguf_writer_new();
    gguf_put_string(w, "general.architecture", "clip", 4);
    expect_refusal(w, (const char *const[]){"'clip'", "an encoder", "--mmproj", NULL});
}

static void tensors_of_each_architecture(void **state)
{
    (void)state;
    static const struct {
        const char *arch, *without, *with, *why;
    } cases[] = {
        {"qwen2", "blk.1.attn_k.bias", NULL, "blk.1.attn_k.bias"},
        {"qwen2", "blk.0.attn_q.bias", NULL, "every file of architecture qwen2"},
        {"qwen3", "blk.1.attn_q_norm.weight", NULL, "blk.1.attn_q_norm.weight"},
        {"qwen3", "blk.0.attn_k_norm.weight", NULL, "every file of architecture qwen3"},
        {"qwen2", NULL, "blk.0.attn_q_norm.weight", "no place in architecture qwen2"},
        {"qwen2", NULL, "rope_freqs.weight", "no place in architecture qwen2"},
        {"qwen2", NULL, "blk.0.attn_output.bias", "blk.0.attn_output.bias"},
        {"qwen3", NULL, "blk.0.attn_q.bias", "no place in architecture qwen3"},
        {"llama", NULL, "blk.0.attn_k_norm.weight", "no place in architecture llama"},
        {"llama", NULL, "blk.0.post_ffw_norm.weight", "no place in architecture llama"},
        {"lfm2", "blk.0.shortconv.conv.weight", NULL, "blk.0.shortconv.conv.weight"},
        {"lfm2", "blk.2.shortconv.in_proj.weight", NULL, "every file of architecture lfm2"},
        {"lfm2", "blk.1.attn_q_norm.weight", NULL, "blk.1.attn_q_norm.weight"},
        {"lfm2", NULL, "blk.0.attn_q.weight", "no place in architecture lfm2"},
        {"qwen3", NULL, "blk.0.shortconv.conv.weight", "no place in architecture qwen3"},
        {"gemma3", "blk.1.post_attention_norm.weight", NULL, "blk.1.post_attention_norm.weight"},
        {"gemma3", "blk.0.post_ffw_norm.weight", NULL, "every file of architecture gemma3"},
        {"gemma3", NULL, "blk.0.attn_q.bias", "no place in architecture gemma3"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        random_llama m = random_arch(cases[i].arch);
        m.without = cases[i].without;
        m.with = cases[i].with;
        expect_refusal(random_llama_writer(&m), (const char *const[]){cases[i].why, NULL});
    }
    random_llama m = random_arch("qwen3"); /* a norm over all heads instead of each */
    const uint64_t ne[1] = {96};
    const float ones[96] = {1};
    m.without = "blk.0.attn_q_norm.weight";
    gguf_writer *w = random_llama_writer(&m);
    gguf_put_tensor(w, "blk.0.attn_q_norm.weight", 1, ne, TACIT_TYPE_F32, ones);
    expect_refusal(w, (const char *const[]){"blk.0.attn_q_norm.weight", "24", "96", NULL});
}

/* What of Gemma 3's and Qwen 2 VL's own keys cannot be. */
static void keys_of_layers_that_differ(void **state)
{
    (void)state;
    static const struct {
        const char *arch;
        size_t window, pattern;
        int32_t section[4];
        const char *why;
    } cases[] = {
        {"lfm2", 0, 0, {0}, "lfm2.shortconv.l_cache is missing"},
        {"gemma3", 20, 0, {0}, "sliding_window_pattern"},
        {"gemma3", 20, 9, {0}, "sliding_window_pattern"},
        {"qwen2vl", 0, 0, {0}, "rope.dimension_sections"},
        {"qwen2vl", 0, 0, {3, 3, 3, 0}, "the 8 pairs"},
        {"qwen2vl", 0, 0, {3, 3, 1, 0}, "the 8 pairs"},
        {"qwen2vl", 0, 0, {9, -1, 0, 0}, "the 8 pairs"},
        {"qwen2vl", 0, 0, {INT32_MAX, 0, 0, 0}, "the 8 pairs"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        random_llama m = random_arch(cases[i].arch);
        m.window = cases[i].window;
        m.pattern = cases[i].pattern;
        memcpy(m.section, cases[i].section, sizeof m.section);
        m.without = "lfm2.shortconv.l_cache";
        expect_refusal(random_llama_writer(&m), (const char *const[]){cases[i].why, NULL});
    }
}

/* As published: of Gemma 3's layers each sixth sees everything and turns by the file's base, the
 * others look back and turn by 10,000; 27B scales scores by its width a head. */
static void layers_of_gemma3(void **state)
{
    (void)state;
    random_llama m = random_arch("gemma3");
    m.layers = 7;
    m.base = 1e6;
    for (size_t i = 0; i < m.layers; i++) {
        m.heads[i] = m.kv_heads[i] = 1;
        m.ff[i] = 8;
    }
    m.pattern = 6;
    random_file f = random_llama_open(random_llama_writer(&m));
    tacit_model *model = random_model(&f, true);
    for (size_t i = 0; i < m.layers; i++) {
        const tacit_text_layer *l = &model->text.layer[i];
        double base = i == 5 ? 1e6 : 10000;
        assert_int_equal(l->window, i == 5 ? 0 : 20);
        assert_true(fabs(model->text.rope[l->rope].frequency[1] - pow(base, -2.0 / 24)) < 1e-12);
        assert_true(fabs((double)l->scale - 1 / sqrt(24)) < 1e-7);
    }
    assert_true(model->text.embedding_scale == 8);
    random_model_free(model);
    random_file_close(&f);
}

/* Rows that do not fit together are refused by what is wrong; those that do are computed. */
static void places_that_cannot_be(void **state)
{
    (void)state;
    static const struct {
        const char *arch;
        tacit_row row[3];
        const char *why; /* NULL: fine */
    } cases[] = {
        {"llama", {{.position = 4}, {.position = 4}, {.position = 5}}, "row 1: position 4 after 4"},
        {"llama", {{.shift = {1}}, {.position = 1}, {.position = 2}}, "architecture llama"},
        {"qwen2vl", {{0}, {.shift = {0, 1}}, {.shift = {1}}}, NULL},
        {"qwen2vl", {{0}, {.shift = {1}}, {.shift = {1}}}, "row 2: position 0 after 0"},
        {"qwen2vl", {{.shift = {-1}}, {.position = 1}, {.position = 2}}, "row 0: position 0"},
        {"qwen2vl", {{0}, {.position = 1}, {.position = 2, .shift = {600}}}, "context of 512"},
        {"gemma3", {{.group = 2}, {.position = 1, .group = 2}, {.position = 2, .group = 3}}, NULL},
        {"gemma3", {{.group = 2}, {.position = 1}, {.position = 2, .group = 2}}, "side by side"},
        {"gemma3", {{.group = 2}, {.position = 1, .group = 1}, {.position = 2}}, "ascending order"},
        {"gemma3",
         {{.group = 2}, {.position = 1, .group = 2}, {.position = 2, .group = 2}},
         "larger chunk"},
        {"gemma3", {{.group = 1, .trained = 1}, {.position = 1}, {.position = 2}}, "trained"},
    };
    const tacit_context_spec spec = {.precision = TACIT_EXACT, .chunk = 2};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        random_llama m = random_arch(cases[i].arch);
        random_file f = random_llama_open(random_llama_writer(&m));
        tacit_model *model = random_model(&f, true);
        tacit_context *c;
        tacit_error err = {0};
        check(tacit_context_new(&c, model, &spec, NULL, &err), &err);
        tacit_status status = tacit_context_feed(c, cases[i].row, 3, NULL, 0, &err);
        assert_int_equal(status, cases[i].why ? TACIT_BAD_INPUT : TACIT_OK);
        if (cases[i].why && !strstr(err.message, cases[i].why))
            fail_msg("'%s' does not name '%s'", err.message, cases[i].why);
        assert_int_equal(tacit_context_rows(c), cases[i].why ? 0 : 3);
        tacit_context_free(c);
        random_model_free(model);
        random_file_close(&f);
    }
}

/* Forgetting part of a mask group forgets the group; the next token stands behind all numbers of
 * the last row. Both against a context that was only fed what remains. */
static void what_remains_of_groups(void **state)
{
    (void)state;
    random_llama m = random_arch("gemma3"), v = random_arch("qwen2vl");
    random_file f = random_llama_open(random_llama_writer(&m));
    tacit_model *model = random_model(&f, true);
    tacit_row *row = new_rows(&m, 40, 0); /* rows 14 to 19 are a group */
    const tacit_context_spec spec = {.precision = TACIT_EXACT};
    tacit_context *c;
    tacit_error err = {0};
    check(tacit_context_new(&c, model, &spec, NULL, &err), &err);
    check(tacit_context_feed(c, row, 40, NULL, 0, &err), &err);
    assert_int_equal(tacit_context_truncate(c, 50), 40);
    assert_int_equal(tacit_context_truncate(c, 21), 21);
    assert_int_equal(tacit_context_truncate(c, 20), 20);
    assert_int_equal(tacit_context_truncate(c, 17), 14);
    check(tacit_context_feed(c, row + 14, 26, NULL, 0, &err), &err);
    float *whole = logits_of(model, row, 40, &spec, 1);
    assert_memory_equal(tacit_context_logits(c), whole + 39 * m.vocab, m.vocab * sizeof *whole);
    free(whole);
    tacit_context_free(c);
    free(row);
    random_model_free(model);
    random_file_close(&f);

    f = random_llama_open(random_llama_writer(&v));
    model = random_model(&f, true);
    tacit_row picture[3] = {{.token = 1}, {.token = 2, .position = 1, .shift = {2, 6}}};
    check(tacit_context_new(&c, model, &spec, NULL, &err), &err);
    check(tacit_context_feed(c, picture, 2, NULL, 0, &err), &err);
    check(tacit_context_feed_token(c, 7, &err), &err);
    picture[2] = (tacit_row){.token = 7, .position = 8};
    whole = logits_of(model, picture, 3, &spec, 1);
    assert_memory_equal(tacit_context_logits(c), whole + 2 * v.vocab, v.vocab * sizeof *whole);
    free(whole);
    tacit_context_free(c);
    random_model_free(model);
    random_file_close(&f);
}

/* Of the state of convolutions a full page keeps its last rows: going back leads to the begin of a
 * page, or to any row of the last; and on from there as if nothing had been. */
static void what_remains_of_convolutions(void **state)
{
    (void)state;
    static const struct {
        size_t back_to, remain;
    } cases[] = {{199, 199}, {193, 193}, {192, 192}, {191, 128}, {130, 128}, {128, 128},
                 {65, 64},   {64, 64},   {63, 0},    {1, 0},     {0, 0}};
    random_llama m = random_arch("lfm2");
    random_file f = random_llama_open(random_llama_writer(&m));
    tacit_model *model = random_model(&f, true);
    tacit_row *row = new_rows(&m, 200, 0);
    for (int kv = TACIT_KV_F32; kv <= TACIT_KV_F16; kv++) {
        const tacit_context_spec spec = {.precision = TACIT_EXACT, .kv = (tacit_kv_type)kv};
        float *whole = logits_of(model, row, 200, &spec, 1);
        for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
            tacit_context *c;
            tacit_error err = {0};
            check(tacit_context_new(&c, model, &spec, NULL, &err), &err);
            check(tacit_context_feed(c, row, 200, NULL, 0, &err), &err);
            size_t left = tacit_context_truncate(c, cases[i].back_to);
            assert_int_equal(left, cases[i].remain);
            assert_int_equal(tacit_context_rows(c), left);
            for (; left < 199; left++) /* one by one: every row reads its state from the cache */
                check(tacit_context_feed(c, row + left, 1, NULL, 0, &err), &err);
            check(tacit_context_feed(c, row + 199, 1, NULL, 0, &err), &err);
            assert_memory_equal(tacit_context_logits(c), whole + 199 * m.vocab,
                                m.vocab * sizeof *whole);
            tacit_context_free(c);
        }
        free(whole);
    }
    free(row);
    random_model_free(model);
    random_file_close(&f);
}

/* Stops a feeding at one of its rows. */
static tacit_status stop_at(void *ctx, size_t row, const float *logits)
{
    (void)logits;
    return row == *(size_t *)ctx ? TACIT_CONFLICT : TACIT_OK;
}

/* A context that was stopped goes on as one whose rows were taken back. */
static void stops_like_truncated(const tacit_model *model, const tacit_context_spec *spec,
                                 const tacit_row *row, size_t held, size_t stop)
{
    tacit_context *stopped, *truncated;
    tacit_error err = {0};
    check(tacit_context_new(&stopped, model, spec, NULL, &err), &err);
    check(tacit_context_new(&truncated, model, spec, NULL, &err), &err);
    check(tacit_context_feed(stopped, row, held, NULL, 0, &err), &err);
    assert_int_equal(
        tacit_context_feed_all(stopped, row + held, 200 - held, NULL, 0, stop_at, &stop, &err),
        TACIT_CONFLICT);
    /* Rows of the chunk that the sink stopped in were computed. */
    size_t computed = (stop / spec->chunk + 1) * spec->chunk;
    computed = computed < 200 - held ? computed : 200 - held;
    check(tacit_context_feed(truncated, row, held + computed, NULL, 0, &err), &err);
    size_t left = tacit_context_truncate(truncated, held);
    assert_int_equal(tacit_context_rows(stopped), left);
    for (size_t n; left < 200; left += n) {
        n = 200 - left < 10 ? 200 - left : 10;
        check(tacit_context_feed(stopped, row + left, n, NULL, 0, &err), &err);
        check(tacit_context_feed(truncated, row + left, n, NULL, 0, &err), &err);
        assert_memory_equal(tacit_context_logits(stopped), tacit_context_logits(truncated),
                            model->text.vocab * sizeof(float));
    }
    tacit_context_free(stopped);
    tacit_context_free(truncated);
}

static void what_remains_when_a_sink_stops(void **state)
{
    (void)state;
    static const char *const archs[] = {"llama", "lfm2"};
    static const struct {
        size_t held, stop;
    } cases[] = {{100, 0}, {100, 99}, {40, 2}, {64, 30}, {130, 1}};
    for (size_t a = 0; a < sizeof archs / sizeof archs[0]; a++) {
        random_llama m = random_arch(archs[a]);
        random_file f = random_llama_open(random_llama_writer(&m));
        tacit_model *model = random_model(&f, true);
        tacit_row *row = new_rows(&m, 200, 0);
        for (int kv = TACIT_KV_F32; kv <= TACIT_KV_INT8; kv++)
            for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
                const tacit_context_spec spec = {
                    .precision = TACIT_EXACT, .kv = (tacit_kv_type)kv, .chunk = i % 2 ? 32 : 128};
                stops_like_truncated(model, &spec, row, cases[i].held, cases[i].stop);
            }
        free(row);
        random_model_free(model);
        random_file_close(&f);
    }
}

typedef struct number_key {
    const char *name;
    char kind; /* of the value: u32, f32, bool */
    double value;
    const char *why; /* NULL: the file loads */
} number_key;

static const number_key number_keys[] = {
    {"expert_count", 'u', 8, "a mixture of experts"},
    {"expert_count", 'u', 0, NULL},
    {"attention.sliding_window", 'u', 128, "sliding window"},
    {"attention.sliding_window", 'u', 511, "context of 512"},
    {"attention.sliding_window", 'u', 512, NULL},
    {"attention.sliding_window", 'u', 0, NULL},
    {"attention.causal", 'b', 0, "later tokens"},
    {"attention.causal", 'b', 1, NULL},
    {"attention.scale", 'f', 0.1, "scale of attention"},
    {"final_logit_softcapping", 'f', 30, "soft-capped logits"},
    {"logit_scale", 'f', 0.5, "scaled logits"},
    {"logit_scale", 'f', 1, NULL},
    {"embedding_scale", 'f', 12, "scaled embeddings"},
    {"residual_scale", 'f', 0.2, "residual"},
    {"attention.clamp_kqv", 'f', 8, "clamping"},
    {"rope.dimension_count", 'u', 8, "rope dimensions 8"},
};

/* Keys that change the answers are refused by their name, in every architecture; at the values that
 * change nothing they are not. */
static void keys_that_would_change_answers(void **state)
{
    (void)state;
    for (size_t a = 0; a < RANDOM_ARCHS; a++)
        for (size_t i = 0; i < sizeof number_keys / sizeof number_keys[0]; i++) {
            const number_key *k = &number_keys[i];
            random_llama m = random_arch(random_archs[a]);
            char key[96];
            gguf_writer *w = random_llama_writer(&m);
            random_name(key, &m, k->name);
            if (m.window > 0 && strcmp(k->name, "attention.sliding_window") == 0) {
                gguf_writer_free(w);
                continue; /* it is gemma3's own */
            }
            if (k->kind == 'u')
                gguf_put_u32(w, key, (uint32_t)k->value);
            else if (k->kind == 'b')
                gguf_put_bool(w, key, k->value != 0);
            else
                gguf_put_f32(w, key, (float)k->value);
            if (k->why) {
                expect_refusal(w, (const char *const[]){m.arch, k->why, NULL});
                continue;
            }
            random_file f = random_llama_open(w);
            tacit_model *model = random_model(&f, true);
            random_model_free(model);
            random_file_close(&f);
        }
}

static void scalings_that_are_not_computed(void **state)
{
    (void)state;
    static const struct {
        const char *scaling;
        double factor;
        const char *key; /* one more */
        float value;
        const char *why;
    } cases[] = {{"longrope", 4, NULL, 0, "'longrope'"},
                 {"llama3", 8, NULL, 0, "none, linear or yarn"},
                 {"yarn", 0.5, NULL, 0, "rope.scaling.factor is 0.5"},
                 {"yarn", 4, "rope.scaling.yarn_ext_factor", 0.5f, "yarn_ext_factor"},
                 {"yarn", 4, "rope.scaling.yarn_log_multiplier", 0.1f, "yarn_log_multiplier"},
                 {"yarn", 4, "rope.scaling.yarn_beta_fast", -1, "yarn_beta_fast"},
                 {"linear", 1e9, NULL, 0, "rope.scaling.factor"},
                 {"linear", 4, "rope.scaling.attn_factor", NAN, "attn_factor"}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        random_llama m = random_arch("qwen2");
        char key[96];
        m.scaling = cases[i].scaling;
        m.factor = cases[i].factor;
        gguf_writer *w = random_llama_writer(&m);
        if (cases[i].key)
            gguf_put_f32(w, random_name(key, &m, cases[i].key), cases[i].value);
        expect_refusal(w, (const char *const[]){cases[i].why, NULL});
    }
}

/* Files say a factor by the new key or the old one, with a type or without. Without a type it is
 * linear, and the new key goes first: so llama.cpp reads them. */
static void keys_of_a_factor(void **state)
{
    (void)state;
    static const struct {
        const char *type;
        float factor, old; /* 0: no such key */
        double expected;
    } cases[] = {{NULL, 4, 0, 4},     {NULL, 0, 4, 4},     {NULL, 4, 8, 4},
                 {"linear", 4, 0, 4}, {"linear", 0, 4, 4}, {"linear", 0, 0, 1},
                 {"none", 4, 0, 1},   {"none", 0, 4, 1},   {NULL, 0, 0, 1}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        random_llama m = random_arch("llama");
        char key[96];
        gguf_writer *w = random_llama_writer(&m);
        if (cases[i].type)
            gguf_put_string(w, random_name(key, &m, "rope.scaling.type"), cases[i].type,
                            strlen(cases[i].type));
        if (cases[i].factor > 0)
            gguf_put_f32(w, random_name(key, &m, "rope.scaling.factor"), cases[i].factor);
        if (cases[i].old > 0)
            gguf_put_f32(w, random_name(key, &m, "rope.scale_linear"), cases[i].old);
        random_file f = random_llama_open(w);
        tacit_model *model = random_model(&f, true);
        const ops_rope *rope = &model->text.rope[0];
        for (size_t j = 0; j < m.head / 2; j++) {
            double plain = pow(10000, -2.0 * (double)j / (double)m.head);
            if (!(fabs(rope->frequency[j] / plain * cases[i].expected - 1) < 1e-12))
                fail_msg("case %zu, pair %zu: %g of %g", i, j, rope->frequency[j], plain);
        }
        assert_true(rope->magnitude == 1);
        random_model_free(model);
        random_file_close(&f);
    }
}

/* The published example of YaRN: LLaMA 2 (base 10000, heads of 128, 4,096 tokens) stretched 16
 * times. Pairs before index 20 turn as they did, those from 46 on 16 times slower (arXiv
 * 2309.00071: at least 32 and at most one turn in 4,096 tokens), and sqrt(1/t) is 0.1 ln(16) + 1.
 */
static void yarn_of_llama_2(void **state)
{
    (void)state;
    random_llama m = random_arch("llama");
    m.head = 128;
    m.context = 65536;
    m.scaling = "yarn";
    m.factor = 16;
    m.trained = 4096;
    random_file f = random_llama_open(random_llama_writer(&m));
    tacit_model *model = random_model(&f, true);
    const ops_rope *rope = &model->text.rope[0];
    assert_true(fabs(rope->magnitude - 1.2772588722239782) < 1e-12);
    for (size_t i = 0; i < 64; i++) {
        double plain = pow(10000, -(double)i / 64), turns = 4096 * plain / (2 * acos(-1));
        double ratio = rope->frequency[i] / plain;
        if (turns >= 32 * 1.16) /* one index of rounding down */
            assert_true(fabs(ratio - 1) < 1e-12);
        else if (turns <= 1 / 1.16)
            assert_true(fabs(ratio - 1.0 / 16) < 1e-12);
        else
            assert_true(ratio >= 1.0 / 16 && ratio <= 1);
        assert_true(i == 0 || rope->frequency[i] < rope->frequency[i - 1]);
    }
    assert_true(fabs(rope->frequency[33] / pow(10000, -33.0 / 64) - 0.53125) < 1e-12);
    random_model_free(model);
    random_file_close(&f);

    /* Files may have two more factors of it. */
    char key[96];
    gguf_writer *w = random_llama_writer(&m);
    gguf_put_f32(w, random_name(key, &m, "rope.scaling.attn_factor"), 1.5f);
    gguf_put_f32(w, random_name(key, &m, "rope.scaling.yarn_attn_factor"), 0.25f);
    f = random_llama_open(w);
    model = random_model(&f, true);
    assert_true(fabs(model->text.rope[0].magnitude - 1.2772588722239782 * 0.375) < 1e-12);
    random_model_free(model);
    random_file_close(&f);
}

/* A row beyond the context that the file states is an error that says both. */
static void rows_beyond_the_context(void **state)
{
    (void)state;
    for (size_t a = 0; a < RANDOM_ARCHS; a++) {
        random_llama m = random_arch(random_archs[a]);
        tacit_context *c;
        tacit_error err = {0};
        m.context = 64;
        random_file f = random_llama_open(random_llama_writer(&m));
        tacit_model *model = random_model(&f, true);
        tacit_row *row = new_rows(&m, 65, 0);
        for (uint32_t i = 0; i < 65; i++)
            row[i] = (tacit_row){.token = row[i].token, .position = i};
        const tacit_context_spec spec = {.precision = TACIT_EXACT};
        check(tacit_context_new(&c, model, &spec, NULL, &err), &err);
        check(tacit_context_feed(c, row, 64, NULL, 0, &err), &err);
        assert_int_equal(tacit_context_feed(c, row + 64, 1, NULL, 0, &err), TACIT_BAD_INPUT);
        assert_non_null(strstr(err.message, "64"));
        tacit_context_truncate(c, 1); /* room enough, but a position that the model never saw */
        assert_int_equal(tacit_context_feed(c, row + 64, 1, NULL, 0, &err), TACIT_BAD_INPUT);
        assert_non_null(strstr(err.message, "context of 64"));
        check(tacit_context_feed(c, row + 63, 1, NULL, 0, &err), &err);
        tacit_context_free(c);
        free(row);
        random_model_free(model);
        random_file_close(&f);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(architectures_equal_their_naive_twins),
        cmocka_unit_test(odd_heads),
        cmocka_unit_test(stretched_contexts),
        cmocka_unit_test(threads_and_chunks_change_no_bit),
        cmocka_unit_test(inference_gives_the_losses_of_pytorch),
        cmocka_unit_test(what_is_not_supported_is_named_with_what_is),
        cmocka_unit_test(tensors_of_each_architecture),
        cmocka_unit_test(keys_of_layers_that_differ),
        cmocka_unit_test(layers_of_gemma3),
        cmocka_unit_test(places_that_cannot_be),
        cmocka_unit_test(what_remains_of_groups),
        cmocka_unit_test(what_remains_of_convolutions),
        cmocka_unit_test(what_remains_when_a_sink_stops),
        cmocka_unit_test(keys_that_would_change_answers),
        cmocka_unit_test(scalings_that_are_not_computed),
        cmocka_unit_test(keys_of_a_factor),
        cmocka_unit_test(yarn_of_llama_2),
        cmocka_unit_test(rows_beyond_the_context),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
