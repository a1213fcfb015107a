/* Oracles: PyTorch in float64 on the dequantized weights (tests/golden/make_gradients.py), central
 * differences of a naive llama in double (reference_train.h), and identities between ways of
 * computing the same gradient. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "reference_train.h"
#include "train_fixture.h"

#include <math.h>

typedef struct fixture_unit {
    tacit_input input[2];
    const tacit_input *example[2];
    tacit_unit unit;
} fixture_unit;

/* Both golden examples as one unit. */
static void make_unit(fixture_unit *u, const gguf_file *golden)
{
    for (size_t i = 0; i < 2; i++) {
        u->input[i] = fixture_example(golden, i);
        u->example[i] = &u->input[i];
    }
    u->unit = (tacit_unit){u->example, 2};
}

static void free_unit(fixture_unit *u)
{
    for (size_t i = 0; i < 2; i++)
        fixture_example_free(&u->input[i]);
}

static double relative_l2(const float *found, const float *expected, size_t n)
{
    double difference = 0, norm = 0;
    for (size_t i = 0; i < n; i++) {
        double d = (double)found[i] - (double)expected[i];
        difference += d * d;
        norm += (double)expected[i] * (double)expected[i];
    }
    return sqrt(difference / norm);
}

static void compare_with_golden(const tacit_trainer *t, const gguf_file *golden, const char *kind,
                                const float *grad)
{
    const tacit_layout *l = tacit_trainer_layout(t);
    for (size_t i = 0; i < l->count; i++) {
        const tacit_trainable_entry *e = &l->entry[i];
        char name[200];
        snprintf(name, sizeof name, "%s/%s", kind, e->name);
        const gguf_tensor *g = gguf_tensor_find(golden, name);
        if (!g)
            fail_msg("no golden %s", name);
        assert_int_equal(g->rows * g->ne[0], e->rows * e->cols);
        double off =
            relative_l2(grad + e->offset, (const float *)(const void *)g->data, e->rows * e->cols);
        if (!(off <= 1e-5))
            fail_msg("%s: relative L2 %.3g", name, off);
    }
}

/* "lora", "ffa", "core", "mixed" or "all" */
static tacit_trainable_spec spec_of(const char *kind_word, const tacit_model *m)
{
    static const char *const words[] = {"lora", "ffa", "core", "all"};
    static const tacit_trainable_kind kinds[] = {TACIT_TRAIN_LORA, TACIT_TRAIN_LORA_FFA,
                                                 TACIT_TRAIN_LORA_CORE, TACIT_TRAIN_ALL};
    for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++)
        if (strcmp(kind_word, words[i]) == 0)
            return fixture_spec(kinds[i]);
    return fixture_mixed(m);
}

static void check_golden(const char *word, bool cached, const char *kind_word)
{
    tacit_model *m = fixture_model(word, cached);
    gguf_file *golden = fixture_file("gradients", word);
    tacit_trainable_spec spec = spec_of(kind_word, m);
    tacit_trainer *t = fixture_trainer(m, &spec, 32, NULL);
    fixture_unit u;
    char key[32];
    double loss;
    make_unit(&u, golden);
    if (spec.kind != TACIT_TRAIN_ALL)
        fixture_values(t, golden, kind_word);
    fixture_sink s = fixture_gradients(t, &u.unit, 1);
    compare_with_golden(t, golden, kind_word, s.grad);
    snprintf(key, sizeof key, "%s.loss", kind_word);
    double golden_loss[2] = {gguf_array_number(golden, key, 0), gguf_array_number(golden, key, 1)};
    assert_float_equal(s.loss[0], (golden_loss[0] + golden_loss[1]) / 2, 1e-5);
    for (size_t i = 0; i < 2; i++) {
        assert_int_equal(tacit_trainer_loss(t, &u.input[i], &loss, NULL), TACIT_OK);
        assert_float_equal(loss, golden_loss[i], 1e-5);
    }
    fixture_sink_free(&s);
    free_unit(&u);
    tacit_trainer_free(t);
    gguf_close(golden);
    fixture_model_free(m);
}

static void gradients_equal_pytorch(void **state)
{
    (void)state;
    for (int w = 0; w < FIXTURE_WORDS; w++)
        for (int cached = 0; cached < 2; cached++) {
            check_golden(fixture_words[w], cached, "lora");
            check_golden(fixture_words[w], cached, "all");
            if (w >= FIXTURE_LLAMA)
                continue;
            check_golden(fixture_words[w], cached, "ffa");
            check_golden(fixture_words[w], cached, "core");
            check_golden(fixture_words[w], cached, "mixed");
        }
}

/* The golden FFA run used A from a ChaCha20 in Python; here the adapter's file must hold its bits.
 */
static void ffa_matrices_have_the_published_bits(void **state)
{
    (void)state;
    tacit_model *m = fixture_model("tied", true);
    gguf_file *golden = fixture_file("gradients", "tied"), *file;
    tacit_trainable_spec spec = fixture_spec(TACIT_TRAIN_LORA_FFA);
    tacit_trainer *t = fixture_trainer(m, &spec, 8, NULL);
    tacit_adapter_info info = {.version = 1};
    const char *path = TACIT_BINARY_DIR "/ffa-bits.gguf";
    tacit_error err;
    if (tacit_adapter_save(path, m, &spec, tacit_trainer_values(t), &info, &err) != TACIT_OK)
        fail_msg("%s", err.message);
    assert_int_equal(gguf_open(&file, path, NULL), TACIT_OK);
    size_t seen = 0;
    for (size_t i = 0; i < gguf_tensor_count(golden); i++) {
        const gguf_tensor *g = gguf_tensor_at(golden, i);
        if (strncmp(g->name, "ffa.value/", 10) != 0 || g->name[strlen(g->name) - 1] != 'a')
            continue;
        const gguf_tensor *a = gguf_tensor_find(file, g->name + 10);
        assert_non_null(a);
        assert_int_equal(a->bytes, g->bytes);
        assert_memory_equal(a->data, g->data, g->bytes);
        seen++;
    }
    assert_int_equal(seen, 8);
    gguf_close(file);
    remove(path);
    tacit_trainer_free(t);
    gguf_close(golden);
    fixture_model_free(m);
}

/* ---- finite differences ---- */

static ref_model make_reference(const tacit_model *m, const tacit_trainer *t,
                                const tacit_trainable_spec *spec)
{
    ref_model r = {.width = m->text.embedding,
                   .layers = m->text.n_layers,
                   .heads = m->text.layer[0].n_heads,
                   .kv_heads = m->text.max_kv_heads,
                   .head = m->text.head_dim,
                   .ff = m->text.layer[0].n_ff,
                   .vocab = m->text.vocab,
                   .eps = (double)1e-5f,
                   .base = 10000,
                   .alpha = spec->alpha,
                   .halves = strcmp(m->text.architecture, "llama") != 0};
    const tacit_layout *l = tacit_trainer_layout(t);
    if (strcmp(m->text.architecture, "gemma3") == 0) { /* as make_gradients.py has it */
        r.kind = (reference_kind){.window = 3, .pattern = 2, .local_base = 10000, .gelu = true};
        r.kind.embedding_scale = sqrt((double)r.width);
        r.base = 1e6;
        r.factor = 8;
    }
    if (strcmp(m->text.architecture, "qwen2vl") == 0)
        r.kind = (reference_kind){.section = {1, 2, 1}};
    ref_load(&r, m->text_file);
    for (size_t i = 0; i < l->count && spec->kind == TACIT_TRAIN_LORA; i++) {
        const tacit_trainable_entry *e = &l->entry[i];
        ref_tensor *p = ref_add(&r, e->name, e->rows, e->cols);
        for (size_t k = 0; k < e->rows * e->cols; k++)
            p->value[k] =
                (double)tacit_trainer_values((tacit_trainer *)(uintptr_t)t)[e->offset + k];
    }
    return r;
}

static double central_difference(ref_model *r, double *at, const fixture_unit *u)
{
    double start = *at, h = 1e-5 * (1 + fabs(start)), loss[2] = {0, 0};
    for (int side = 0; side < 2; side++) {
        *at = side ? start - h : start + h;
        for (size_t i = 0; i < 2; i++)
            loss[side] += ref_loss(r, &u->input[i]) / 2;
    }
    *at = start;
    return (loss[0] - loss[1]) / (2 * h);
}

/* Of every tensor some values, spread over it. */
static void check_differences(ref_model *r, const tacit_layout *l, const float *grad,
                              const fixture_unit *u, size_t samples)
{
    for (size_t i = 0; i < l->count; i++) {
        const tacit_trainable_entry *e = &l->entry[i];
        size_t size = e->rows * e->cols, n = size < samples ? size : samples;
        double difference = 0, norm = 0;
        for (size_t k = 0; k < n; k++) {
            size_t at = (k * 7919 + 13 * i) % size;
            double expected = central_difference(r, &ref_named(r, e->name)->value[at], u);
            double d = (double)grad[e->offset + at] - expected;
            difference += d * d;
            norm += expected * expected;
        }
        if (!(sqrt(difference) <= 2e-5 * (sqrt(norm) + 1e-3)))
            fail_msg("%s: differs by %.3g of %.3g", e->name, sqrt(difference), sqrt(norm));
    }
}

static void gradients_equal_finite_differences(void **state)
{
    (void)state;
    static const tacit_trainable_kind kinds[2] = {TACIT_TRAIN_LORA, TACIT_TRAIN_ALL};
    for (int w = 0; w < FIXTURE_WORDS; w++)
        for (int k = 0; k < 2; k++) {
            tacit_model *m = fixture_model(fixture_words[w], false);
            gguf_file *golden = fixture_file("gradients", fixture_words[w]);
            tacit_trainable_spec spec = fixture_spec(kinds[k]);
            tacit_trainer *t = fixture_trainer(m, &spec, 24, NULL);
            fixture_unit u;
            make_unit(&u, golden);
            if (kinds[k] == TACIT_TRAIN_LORA)
                fixture_values(t, golden, "lora");
            fixture_sink s = fixture_gradients(t, &u.unit, 1);
            ref_model r = make_reference(m, t, &spec);
            assert_float_equal(s.loss[0],
                               (ref_loss(&r, &u.input[0]) + ref_loss(&r, &u.input[1])) / 2, 1e-5);
            check_differences(&r, tacit_trainer_layout(t), s.grad, &u, 8);
            ref_free(&r);
            fixture_sink_free(&s);
            free_unit(&u);
            tacit_trainer_free(t);
            gguf_close(golden);
            fixture_model_free(m);
        }
}

/* ---- bits ---- */

#define UNITS 9
#define LONGEST 150

/* Deterministic examples of different lengths, several a unit. */
typedef struct many_units {
    tacit_input input[UNITS * 3];
    const tacit_input *example[UNITS * 3];
    tacit_unit unit[UNITS];
} many_units;

static void make_many(many_units *m)
{
    uint64_t state = 88172645463325252u;
    size_t at = 0;
    for (size_t u = 0; u < UNITS; u++) {
        size_t n = 1 + u % 3;
        m->unit[u] = (tacit_unit){&m->example[at], n};
        for (size_t i = 0; i < n; i++, at++) {
            tacit_input *in = &m->input[at];
            in->count = u == 4 ? 140 : 6 + (at * 5) % 37;
            in->n_media = 0;
            in->media = NULL;
            in->row = calloc(in->count, sizeof *in->row);
            for (size_t r = 0; r < in->count; r++) {
                state ^= state << 13, state ^= state >> 7, state ^= state << 17;
                in->row[r].token = (int32_t)(state % 48);
                in->row[r].position = (uint32_t)r;
                in->row[r].trained = r > in->count / 2 && state % 3 != 0;
            }
            in->row[in->count - 1].trained = 1;
            m->example[at] = in;
        }
    }
}

static void free_many(many_units *m)
{
    for (size_t u = 0; u < UNITS; u++)
        for (size_t i = 0; i < m->unit[u].n_examples; i++)
            free(m->unit[u].example[i]->row);
}

static void fill_values(tacit_trainer *t)
{
    float *v = tacit_trainer_values(t);
    for (size_t i = 0; i < tacit_trainer_layout(t)->values; i++)
        v[i] += 0.02f * (float)((int)(i * 31 % 17) - 8);
}

static void expect_same_bits(const fixture_sink *found, const fixture_sink *alone, size_t first,
                             size_t n)
{
    for (size_t i = 0; i < n; i++) {
        assert_memory_equal(found->grad + i * found->values,
                            alone->grad + (first + i) * alone->values,
                            found->values * sizeof(float));
        assert_memory_equal(&found->loss[i], &alone->loss[first + i], sizeof(double));
    }
}

/* Each unit alone on one thread with the smallest plan against batches of every size and start, on
 * 1 to 3 threads, with another plan of memory. */
static void check_bits(const char *word, tacit_trainable_kind kind, bool cached)
{
    tacit_model *m = fixture_model(word, cached);
    m->text.context_length = 512;
    tacit_trainable_spec spec = fixture_spec(kind);
    many_units units;
    make_many(&units);
    tacit_trainer *one = fixture_trainer(m, &spec, LONGEST, NULL);
    fill_values(one);
    fixture_sink alone = {.values = tacit_trainer_layout(one)->values};
    alone.grad = calloc(UNITS * alone.values, sizeof(float));
    alone.loss = calloc(UNITS, sizeof(double));
    for (size_t u = 0; u < UNITS; u++) {
        fixture_sink s = fixture_gradients(one, &units.unit[u], 1);
        memcpy(alone.grad + u * alone.values, s.grad, alone.values * sizeof(float));
        alone.loss[u] = s.loss[0];
        fixture_sink_free(&s);
    }
    for (size_t threads = 1; threads <= 3; threads++) {
        tacit_pool *pool;
        assert_int_equal(tacit_pool_new(&pool, threads, NULL), TACIT_OK);
        tacit_trainer *t = fixture_trainer(m, &spec, 512, pool);
        fill_values(t);
        for (size_t n = 1; n <= UNITS; n++) {
            size_t first = (n * 5) % (UNITS - n + 1);
            fixture_sink s = fixture_gradients(t, &units.unit[first], n);
            expect_same_bits(&s, &alone, first, n);
            fixture_sink_free(&s);
        }
        tacit_trainer_free(t);
        tacit_pool_free(pool);
    }
    fixture_sink_free(&alone);
    free_many(&units);
    tacit_trainer_free(one);
    fixture_model_free(m);
}

static void bits_depend_on_the_unit_alone(void **state)
{
    (void)state;
    for (int cached = 0; cached < 2; cached++) {
        check_bits("untied", TACIT_TRAIN_LORA_FFA, cached);
        check_bits("untied", TACIT_TRAIN_LORA, cached);
        check_bits("untied", TACIT_TRAIN_LORA_CORE, cached);
    }
    check_bits("untied", TACIT_TRAIN_ALL, false);
    for (int w = FIXTURE_LLAMA; w < FIXTURE_WORDS; w++) {
        check_bits(fixture_words[w], TACIT_TRAIN_LORA, w % 2);
        check_bits(fixture_words[w], TACIT_TRAIN_ALL, false);
    }
}

static void check_order(const char *word)
{
    tacit_model *m = fixture_model(word, true);
    m->text.context_length = 512;
    tacit_trainable_spec spec = fixture_spec(TACIT_TRAIN_LORA_FFA);
    tacit_trainer *t = fixture_trainer(m, &spec, LONGEST, NULL);
    many_units units;
    tacit_unit reversed[UNITS];
    make_many(&units);
    fill_values(t);
    for (size_t u = 0; u < UNITS; u++)
        reversed[u] = units.unit[UNITS - 1 - u];
    fixture_sink forward = fixture_gradients(t, units.unit, UNITS);
    fixture_sink backward = fixture_gradients(t, reversed, UNITS);
    for (size_t u = 0; u < UNITS; u++)
        assert_memory_equal(forward.grad + u * forward.values,
                            backward.grad + (UNITS - 1 - u) * forward.values,
                            forward.values * sizeof(float));
    fixture_sink_free(&forward);
    fixture_sink_free(&backward);
    free_many(&units);
    tacit_trainer_free(t);
    fixture_model_free(m);
}

static void bits_do_not_depend_on_the_order(void **state)
{
    (void)state;
    for (int w = 0; w < FIXTURE_WORDS; w++)
        check_order(fixture_words[w]);
}

/* ---- what is trained on ---- */

/* Tokens after the last trained one, and which tokens they are, change nothing; a trained token
 * changes the loss. */
static void only_trained_tokens_count(void **state)
{
    (void)state;
    tacit_model *m = fixture_model("untied", true);
    gguf_file *golden = fixture_file("gradients", "untied");
    tacit_trainable_spec spec = fixture_spec(TACIT_TRAIN_ALL);
    tacit_trainer *t = fixture_trainer(m, &spec, 32, NULL);
    tacit_input in = fixture_example(golden, 0);
    const tacit_input *example = &in;
    tacit_unit unit = {&example, 1};
    fixture_sink before = fixture_gradients(t, &unit, 1);
    in.row[in.count - 1].token ^= 1; /* not trained, nothing follows */
    fixture_sink after = fixture_gradients(t, &unit, 1);
    assert_memory_equal(before.grad, after.grad, before.values * sizeof(float));
    assert_true(before.loss[0] == after.loss[0]);
    in.row[in.count - 2].token ^= 1; /* trained */
    fixture_sink other = fixture_gradients(t, &unit, 1);
    assert_true(before.loss[0] != other.loss[0]);
    fixture_sink_free(&before);
    fixture_sink_free(&after);
    fixture_sink_free(&other);
    for (size_t i = 0; i < in.count; i++)
        in.row[i].trained = 0;
    fixture_sink none = fixture_gradients(t, &unit, 1);
    assert_true(none.loss[0] == 0);
    for (size_t i = 0; i < none.values; i++)
        assert_true(none.grad[i] == 0);
    fixture_sink_free(&none);
    fixture_example_free(&in);
    tacit_trainer_free(t);
    gguf_close(golden);
    fixture_model_free(m);
}

static void not_a_number_comes_out_as_such(void **state)
{
    (void)state;
    for (int cached = 0; cached < 2; cached++) {
        tacit_model *m = fixture_model("untied", cached);
        gguf_file *golden = fixture_file("gradients", "untied");
        tacit_trainable_spec spec = fixture_spec(TACIT_TRAIN_LORA_FFA);
        tacit_trainer *t = fixture_trainer(m, &spec, 32, NULL);
        tacit_input in = fixture_example(golden, 0);
        const tacit_input *example = &in;
        tacit_unit unit = {&example, 1};
        in.media->rows[3] = NAN;
        fixture_sink s = fixture_gradients(t, &unit, 1);
        size_t bad = 0;
        for (size_t i = 0; i < s.values; i++)
            bad += !isfinite(s.grad[i]);
        assert_true(bad > 0);
        assert_false(isfinite(s.loss[0]));
        fixture_sink_free(&s);
        fixture_example_free(&in);
        tacit_trainer_free(t);
        gguf_close(golden);
        fixture_model_free(m);
    }
}

static tacit_status refuse(void *ctx, size_t unit, const float *grad, double loss)
{
    (void)ctx, (void)unit, (void)grad, (void)loss;
    return TACIT_REFUSED;
}

/* Of LFM2's layers two convolve and one attends: targets lie where their linears are, and one that
 * no layer has is refused by its name. */
static void targets_lie_where_their_linears_are(void **state)
{
    (void)state;
    static const char *const wanted[] = {"blk.0.shortconv.in_proj.weight.lora_b",
                                         "blk.1.attn_q.weight.lora_b",
                                         "blk.2.shortconv.in_proj.weight.lora_b"};
    tacit_trainable_spec spec = {.kind = TACIT_TRAIN_LORA_FFA,
                                 .target = {"attn_q", "shortconv.in_proj"},
                                 .n_targets = 2,
                                 .rank = 4,
                                 .alpha = 4};
    tacit_layout layout;
    tacit_error err = {0};
    tacit_model *m = fixture_model("lfm2", true);
    assert_int_equal(tacit_layout_make(&layout, m, &spec, &err), TACIT_OK);
    assert_int_equal(layout.count, 3);
    for (size_t i = 0; i < 3; i++)
        assert_string_equal(layout.entry[i].name, wanted[i]);
    tacit_layout_free(&layout);
    fixture_model_free(m);
    m = fixture_model("qwen3", true);
    assert_int_equal(tacit_layout_make(&layout, m, &spec, &err), TACIT_USAGE);
    assert_non_null(strstr(err.message, "qwen3"));
    assert_non_null(strstr(err.message, "'shortconv.in_proj'"));
    fixture_model_free(m);
}

/* The entry of a name, which is there. */
static const tacit_trainable_entry *entry_of(const tacit_layout *l, const char *name)
{
    for (size_t i = 0; i < l->count; i++)
        if (strcmp(l->entry[i].name, name) == 0)
            return &l->entry[i];
    fail_msg("no %s", name);
    return NULL;
}

/* `among` trains all linears, of which only those of `target` get values that are not zero. */
static void compare_alone(const tacit_model *m, const tacit_unit *unit, tacit_trainer *among,
                          const char *target)
{
    tacit_trainable_spec spec = fixture_spec(TACIT_TRAIN_LORA);
    spec.target[0] = target, spec.n_targets = 1;
    tacit_trainer *alone = fixture_trainer(m, &spec, 64, NULL);
    const tacit_layout *l = tacit_trainer_layout(alone), *all = tacit_trainer_layout(among);
    float *own = tacit_trainer_values(alone), *values = tacit_trainer_values(among);
    memset(values, 0, all->values * sizeof *values);
    for (size_t i = 0; i < l->values; i++)
        own[i] = (float)((7 * i + 3) % 41) / 80.0f - 0.25f;
    for (size_t i = 0; i < l->count; i++) {
        const tacit_trainable_entry *e = &l->entry[i];
        memcpy(values + entry_of(all, e->name)->offset, own + e->offset,
               e->rows * e->cols * sizeof *own);
    }
    fixture_sink one = fixture_gradients(alone, unit, 1);
    fixture_sink many = fixture_gradients(among, unit, 1);
    for (size_t i = 0; i < l->count; i++) {
        const tacit_trainable_entry *e = &l->entry[i];
        const float *g = one.grad + e->offset, *h = many.grad + entry_of(all, e->name)->offset;
        double off = 0, size = 0;
        for (size_t k = 0; k < e->rows * e->cols; k++) {
            off += ((double)g[k] - (double)h[k]) * ((double)g[k] - (double)h[k]);
            size += (double)h[k] * (double)h[k];
        }
        if (!(size > 0) || off > 1e-12 * size)
            fail_msg("%s: %s alone: off by %g of %g", m->text.architecture, e->name, sqrt(off),
                     sqrt(size));
    }
    fixture_sink_free(&one);
    fixture_sink_free(&many);
    tacit_trainer_free(alone);
}

/* The backward leaves out what nothing trained needs, and nothing else: every linear has the
 * gradient alone that it has among all. */
static void every_linear_trains_alone(void **state)
{
    (void)state;
    for (size_t w = 0; w < FIXTURE_WORDS; w++) {
        tacit_model *m = fixture_model(fixture_words[w], true);
        gguf_file *golden = fixture_file("gradients", fixture_words[w]);
        tacit_trainable_spec spec = fixture_spec(TACIT_TRAIN_LORA);
        tacit_input in = fixture_example(golden, 0);
        const tacit_input *example = &in;
        const tacit_unit unit = {&example, 1};
        spec.n_targets = 0;
        for (int k = 0; k < TEXT_LINEARS; k++) {
            bool is_there = false;
            for (size_t i = 0; i < m->text.n_layers; i++)
                is_there |= text_has_linear(&m->text.layer[i], (text_linear)k);
            if (is_there)
                spec.target[spec.n_targets++] = text_linear_name((text_linear)k);
        }
        tacit_trainer *among = fixture_trainer(m, &spec, 64, NULL);
        for (size_t i = 0; i < spec.n_targets; i++)
            compare_alone(m, &unit, among, spec.target[i]);
        tacit_trainer_free(among);
        fixture_example_free(&in);
        gguf_close(golden);
        fixture_model_free(m);
    }
}

/* The last layer alone, and the output alone: what is trained has the gradient that it has among
 * all layers, and the backward does not go below. */
static void a_depth_limit_changes_no_gradient(void **state)
{
    (void)state;
    tacit_model *m = fixture_model("untied", true);
    gguf_file *golden = fixture_file("gradients", "untied");
    tacit_trainable_spec whole = fixture_mixed(m), last = whole;
    fixture_unit u;
    make_unit(&u, golden);
    tacit_trainer *t = fixture_trainer(m, &whole, 32, NULL);
    fixture_values(t, golden, "mixed");
    fixture_sink all = fixture_gradients(t, &u.unit, 1);
    last.last_layers = 1;
    for (int deep = 1; deep >= 0; deep--) {
        if (!deep)
            last.target[0] = "output=3", last.n_targets = 1;
        tacit_trainer *top = fixture_trainer(m, &last, 32, NULL);
        const tacit_layout *l = tacit_trainer_layout(top), *w = tacit_trainer_layout(t);
        assert_int_equal(l->count, deep ? 10 : 2);
        /* Layer 0 has pairs of zeros here, so it has them there. */
        for (size_t i = 0; i < w->count; i++)
            if (!deep ? strncmp(w->entry[i].name, "output", 6) != 0
                      : strncmp(w->entry[i].name, "blk.0", 5) == 0)
                memset(tacit_trainer_values(t) + w->entry[i].offset, 0,
                       w->entry[i].rows * w->entry[i].cols * sizeof(float));
        fixture_sink_free(&all);
        all = fixture_gradients(t, &u.unit, 1);
        fixture_values(top, golden, "mixed");
        fixture_sink s = fixture_gradients(top, &u.unit, 1);
        for (size_t i = 0; i < l->count; i++) {
            const tacit_trainable_entry *e = &l->entry[i];
            assert_memory_equal(s.grad + e->offset, all.grad + entry_of(w, e->name)->offset,
                                e->rows * e->cols * sizeof(float));
        }
        fixture_sink_free(&s);
        tacit_trainer_free(top);
    }
    fixture_sink_free(&all);
    tacit_trainer_free(t);
    free_unit(&u);
    gguf_close(golden);
    fixture_model_free(m);
}

static void impossible_examples_are_refused(void **state)
{
    (void)state;
    tacit_model *m = fixture_model("tied", true);
    gguf_file *golden = fixture_file("gradients", "tied");
    tacit_trainable_spec spec = fixture_spec(TACIT_TRAIN_LORA_FFA);
    tacit_trainer *t = fixture_trainer(m, &spec, 13, NULL);
    for (int fault = 0; fault < 10; fault++) {
        tacit_input in = fixture_example(golden, fault == 9 ? 1 : 0);
        const tacit_input *example = &in;
        tacit_unit unit = {&example, 1};
        tacit_error err = {0};
        float *rows = in.n_media ? in.media->rows : NULL;
        switch (fault) {
        case 0:
            in.row[5].token = 48;
            break;
        case 1:
            in.row[5].token = -1;
            break;
        case 2:
            in.row[2].media = 1;
            break;
        case 3:
            in.row[2].token = 4;
            break;
        case 4:
            in.row[6].position = in.row[5].position;
            break;
        case 5:
            in.row[0].trained = 1;
            break;
        case 6:
            in.row[2].trained = 1;
            break;
        case 7:
            in.media->rows = NULL;
            break;
        case 8:
            in.row[in.count - 1].position = (uint32_t)m->text.context_length;
            break;
        default: /* 21 rows, planned for 13 */
            break;
        }
        assert_int_equal(tacit_trainer_check(t, &in, &err), TACIT_BAD_INPUT);
        assert_int_equal(tacit_trainer_grads(t, &unit, 1, refuse, NULL, &err), TACIT_BAD_INPUT);
        assert_non_null(strstr(err.message, "unit 0, example 0"));
        if (in.n_media)
            in.media->rows = rows;
        fixture_example_free(&in);
    }
    tacit_input in = fixture_example(golden, 0);
    const tacit_input *example = &in;
    tacit_unit unit = {&example, 1};
    in.row[in.count - 1].position = (uint32_t)m->text.context_length - 1; /* the last there is */
    assert_int_equal(tacit_trainer_check(t, &in, NULL), TACIT_OK);
    assert_int_equal(tacit_trainer_grads(t, &unit, 1, refuse, NULL, NULL), TACIT_REFUSED);
    fixture_example_free(&in);
    tacit_trainer_free(t);
    gguf_close(golden);
    fixture_model_free(m);
}

/* Units 0 and 2 are good, 1 is not: what is handed on before the failure is whole. */
static void a_failure_leaves_no_half_gradients(void **state)
{
    (void)state;
    for (int cached = 0; cached < 2; cached++) {
        tacit_model *m = fixture_model("untied", cached);
        m->text.context_length = 512;
        tacit_trainable_spec spec = fixture_spec(TACIT_TRAIN_LORA_FFA);
        tacit_trainer *t = fixture_trainer(m, &spec, 512, NULL);
        many_units units;
        make_many(&units);
        fill_values(t);
        fixture_sink alone = fixture_gradients(t, &units.unit[0], 1);
        units.input[1].row[1].token = -1;
        fixture_sink s = {.values = alone.values};
        s.grad = calloc(3 * s.values, sizeof *s.grad);
        s.loss = calloc(3, sizeof *s.loss);
        tacit_error err = {0};
        assert_int_equal(tacit_trainer_grads(t, units.unit, 3, fixture_keep, &s, &err),
                         TACIT_BAD_INPUT);
        assert_non_null(strstr(err.message, "unit 1, example 0"));
        assert_true(s.seen <= 1);
        expect_same_bits(&s, &alone, 0, s.seen);
        fixture_sink_free(&s);
        fixture_sink_free(&alone);
        free_many(&units);
        tacit_trainer_free(t);
        fixture_model_free(m);
    }
}

static void impossible_specs_are_refused(void **state)
{
    (void)state;
    tacit_model *m = fixture_model("tied", true);
    for (int fault = 0; fault < 8; fault++) {
        tacit_trainable_spec s = fixture_spec(TACIT_TRAIN_LORA);
        tacit_trainer *t;
        tacit_error err = {0};
        switch (fault) {
        case 0:
            s.rank = 0;
            break;
        case 1:
            s.rank = 4096;
            break;
        case 2:
            s.alpha = 0;
            break;
        case 3:
            s.alpha = NAN;
            break;
        case 4:
            s.n_targets = 0;
            break;
        case 5:
            s.target[1] = "token_embd";
            break;
        case 6:
            s.target[1] = s.target[0];
            break;
        default:
            s.kind = TACIT_TRAIN_PROJECTOR; /* the model has none */
            break;
        }
        assert_int_equal(tacit_trainer_new(&t, m, &s, 8, NULL, &err), TACIT_USAGE);
        assert_true(strlen(err.message) > 10);
    }
    fixture_model_free(m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(gradients_equal_pytorch),
        cmocka_unit_test(ffa_matrices_have_the_published_bits),
        cmocka_unit_test(gradients_equal_finite_differences),
        cmocka_unit_test(bits_depend_on_the_unit_alone),
        cmocka_unit_test(bits_do_not_depend_on_the_order),
        cmocka_unit_test(only_trained_tokens_count),
        cmocka_unit_test(not_a_number_comes_out_as_such),
        cmocka_unit_test(every_linear_trains_alone),
        cmocka_unit_test(targets_lie_where_their_linears_are),
        cmocka_unit_test(a_depth_limit_changes_no_gradient),
        cmocka_unit_test(impossible_examples_are_refused),
        cmocka_unit_test(a_failure_leaves_no_half_gradients),
        cmocka_unit_test(impossible_specs_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
