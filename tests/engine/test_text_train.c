/* Identities: activations kept, or computed again; logits all at once or row by row; dequantized
 * once or tile by tile. And attention against a naive twin in double. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "engine/layout.h"
#include "engine/text_attention.h"
#include "engine/text_train.h"
#include "engine/train_values.h"
#include "reference_mask.h"
#include "reference_train.h"
#include "train_fixture.h"

#include <math.h>

#define ROWS 23

static uint32_t random_state = 12345;

static uint32_t random_word(void)
{
    random_state = random_state * 1664525u + 1013904223u;
    return random_state >> 8;
}

static void fill_random(float *x, size_t n)
{
    for (size_t i = 0; i < n; i++)
        x[i] = (float)random_word() / 8388608.0f - 1.0f;
}

/* Gradient of everything trained for one fixed example; returns the loss. */
static double run_example(const train_plan *plan, const text_train_options *options, float *grad,
                          size_t values, const float *input)
{
    tacit_row row[ROWS] = {0};
    text_place place[ROWS];
    size_t predictor[] = {3, 4, 9, 10, 17, 21, 22};
    int32_t target[] = {1, 5, 7, 47, 0, 5, 30};
    text_train *t;
    tacit_error err;
    for (size_t i = 0; i < ROWS; i++)
        row[i].position = (uint32_t)(i + 2 * (i > 8));
    text_places_set(place, row, ROWS, 0);
    if (text_train_new(&t, plan, options, NULL, &err) != TACIT_OK)
        fail_msg("%s", err.message);
    text_train_rows rows = {ROWS, place, 7, predictor, target, 1.0f, grad, 0};
    memcpy(text_train_input(t), input, ROWS * plan->model->embedding * sizeof(float));
    memset(grad, 0, values * sizeof *grad);
    text_train_run(t, &rows, 1);
    double loss = rows.loss;
    rows.grad = NULL;
    memcpy(text_train_input(t), input, ROWS * plan->model->embedding * sizeof(float));
    text_train_run(t, &rows, 1);
    assert_true(loss == rows.loss);
    text_train_free(t);
    return loss;
}

/* The plan of a LoRA training of both halves over `values`. */
static void plan_pairs(train_plan *plan, const tacit_model *m, const tacit_trainable_spec *spec,
                       const tacit_layout *layout, const float *values)
{
    lora_sites sites;
    assert_int_equal(lora_sites_of(&sites, m, spec, NULL), TACIT_OK);
    tacit_low_rank *pair = calloc(sites.count, sizeof *pair);
    train_values_pairs(pair, &sites, layout, spec->kind, values, NULL);
    assert_int_equal(train_plan_new(plan, &m->text, NULL), TACIT_OK);
    train_plan_bind(plan, layout);
    assert_int_equal(train_plan_bind_pairs(plan, &sites, pair, NULL), TACIT_OK);
    train_plan_close(plan);
    free(pair);
    lora_sites_free(&sites);
}

static void memory_plans_agree(void **state)
{
    (void)state;
    for (int way = 0; way < 2 * FIXTURE_WORDS; way++) {
        tacit_model *m = fixture_model(fixture_words[way / 2], way % 2);
        tacit_trainable_spec spec = fixture_spec(TACIT_TRAIN_LORA);
        tacit_layout layout;
        train_plan plan;
        assert_int_equal(tacit_layout_make(&layout, m, &spec, NULL), TACIT_OK);
        float *values = calloc(layout.values, sizeof *values);
        float *kept = calloc(layout.values, sizeof *kept),
              *other = calloc(layout.values, sizeof *kept);
        float input[ROWS * 32];
        fill_random(values, layout.values);
        fill_random(input, ROWS * 32);
        plan_pairs(&plan, m, &spec, &layout, values);
        text_train_options keep = {.max_rows = ROWS}, again = {.max_rows = 40, .recompute = true};
        text_train_options small = {.max_rows = ROWS, .logit_rows = 2};
        double loss = run_example(&plan, &keep, kept, layout.values, input);
        assert_true(loss > 0.5);
        assert_true(run_example(&plan, &again, other, layout.values, input) == loss);
        assert_memory_equal(kept, other, layout.values * sizeof *kept);
        assert_true(fabs(run_example(&plan, &small, other, layout.values, input) - loss) < 1e-6);
        for (size_t i = 0; i < layout.values; i++)
            assert_float_equal(kept[i], other[i], 1e-5);
        free(values), free(kept), free(other);
        train_plan_free(&plan);
        tacit_layout_free(&layout);
        fixture_model_free(m);
    }
}

/* With o and down trained, the lowest layer needs nothing of q, k and v and no gradient of rows. */
static void the_backward_ends_where_nothing_is_trained(void **state)
{
    (void)state;
    tacit_model *m = fixture_model("untied", true);
    tacit_trainable_spec spec = fixture_spec(TACIT_TRAIN_LORA);
    tacit_layout layout;
    train_plan plan;
    spec.n_targets = 2; /* attn_output, ffn_down */
    assert_int_equal(tacit_layout_make(&layout, m, &spec, NULL), TACIT_OK);
    float *values = calloc(layout.values, sizeof *values);
    plan_pairs(&plan, m, &spec, &layout, values);
    assert_int_equal(plan.first_layer, 0);
    assert_true(plan.layer[0].need_act && plan.layer[0].need_mid);
    assert_false(plan.layer[0].need_qkv || plan.layer[0].need_h || plan.layer[0].need_input);
    assert_true(plan.layer[1].need_qkv && plan.layer[1].need_h && plan.layer[1].need_input);
    free(values);
    train_plan_free(&plan);
    tacit_layout_free(&layout);
    fixture_model_free(m);
}

/* ---- attention ---- */

enum { KEYS = 150, HEADS = 6, KV_HEADS = 2, DIM = 8, QW = HEADS * DIM, KW = KV_HEADS * DIM };

typedef struct attention_data {
    float q[KEYS * QW], k[KEYS * KW], v[KEYS * KW], dout[KEYS * QW];
    double dq[KEYS * QW], dk[KEYS * KW], dv[KEYS * KW], out[KEYS * QW];
} attention_data;

/* What queries see: all rows, or some of them, of a sequence. */
typedef struct attention_mask {
    const tacit_row *row;
    size_t window;
    const size_t *query; /* rows of the sequence, or NULL: all */
    size_t queries;
} attention_mask;

/* One query of one head, forward and backward, in double. */
static void naive_query(attention_data *d, const attention_mask *m, size_t row, size_t head)
{
    size_t at = m->query ? m->query[row] : row;
    size_t q = row * QW + head * DIM, kv = head / (HEADS / KV_HEADS) * DIM;
    double p[KEYS], dp[KEYS], sum = 0, along = 0, scale = 0.3;
    for (size_t j = 0; j < KEYS; j++) {
        double s = 0;
        p[j] = 0;
        if (!reference_sees(m->row, at, j, m->window))
            continue;
        for (size_t i = 0; i < DIM; i++)
            s += (double)d->q[q + i] * (double)d->k[j * KW + kv + i];
        sum += p[j] = exp(s * scale);
    }
    for (size_t j = 0; j < KEYS; j++) {
        p[j] /= sum;
        dp[j] = 0;
        for (size_t i = 0; i < DIM; i++) {
            d->out[q + i] += p[j] * (double)d->v[j * KW + kv + i];
            d->dv[j * KW + kv + i] += p[j] * (double)d->dout[q + i];
            dp[j] += (double)d->dout[q + i] * (double)d->v[j * KW + kv + i];
        }
        along += p[j] * dp[j];
    }
    for (size_t j = 0; j < KEYS; j++)
        for (size_t i = 0; i < DIM; i++) {
            double ds = p[j] * (dp[j] - along) * scale;
            d->dq[q + i] += ds * (double)d->k[j * KW + kv + i];
            d->dk[j * KW + kv + i] += ds * (double)d->q[q + i];
        }
}

static void expect_close(const float *found, const double *expected, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (!(fabs((double)found[i] - expected[i]) <= 2e-5))
            fail_msg("value %zu: %.9g, expected %.9g", i, (double)found[i], expected[i]);
}

static void check_attention(const attention_mask *m)
{
    size_t queries = m->queries;
    text_place place[KEYS];
    text_span span[KEYS];
    attention_data *d = calloc(1, sizeof *d);
    float *out = calloc(4 * KEYS * QW, sizeof *out), *dq = out + KEYS * QW, *dk = dq + KEYS * QW;
    float *dv = dk + KEYS * QW;
    float *scratch = malloc(text_attention_scratch(KEYS, 1) * sizeof *scratch);
    text_attention s = {HEADS, KV_HEADS, DIM, KEYS, queries, 0.3f, span};
    text_places_set(place, m->row, KEYS, 0);
    for (size_t i = 0; i < queries; i++)
        span[i] = text_place_sees(place, m->query ? m->query[i] : i, m->window);
    fill_random(d->q, KEYS * QW), fill_random(d->k, KEYS * KW);
    fill_random(d->v, KEYS * KW), fill_random(d->dout, KEYS * QW);
    for (size_t row = 0; row < queries; row++)
        for (size_t head = 0; head < HEADS; head++)
            naive_query(d, m, row, head);
    text_attention_forward(NULL, &s, out, d->q, d->k, d->v, scratch);
    expect_close(out, d->out, queries * QW);
    memcpy(dq, d->dout, sizeof d->dout); /* dq is the memory of dout */
    text_attention_backward(NULL, &s, dq, dk, dv, dq, d->q, d->k, d->v, scratch);
    expect_close(dq, d->dq, queries * QW);
    expect_close(dk, d->dk, KEYS * KW);
    expect_close(dv, d->dv, KEYS * KW);
    free(out), free(scratch), free(d);
}

static void attention_equals_its_naive_twin(void **state)
{
    (void)state;
    static const size_t some[] = {0, 1, 39, 63, 64, 148};
    static const size_t windows[] = {0, 1, 2, 20, 64, 1000};
    tacit_row row[KEYS] = {0};
    for (int grouped = 0; grouped < 2; grouped++) {
        reference_places(row, KEYS, grouped);
        for (size_t i = 0; i < sizeof windows / sizeof windows[0]; i++) {
            check_attention(&(attention_mask){row, windows[i], NULL, KEYS});
            check_attention(&(attention_mask){row, windows[i], some, 6});
        }
    }
}

/* ---- a large vocabulary ---- */

enum { WIDE = 32, MANY = 40960 };

static void put_tensor(gguf_writer *w, const char *name, uint64_t cols, uint64_t rows, float scale,
                       float offset)
{
    const uint64_t ne[2] = {cols, rows};
    float *x = malloc(cols * rows * sizeof *x);
    fill_random(x, cols * rows);
    for (size_t i = 0; i < cols * rows; i++)
        x[i] = x[i] * scale + offset;
    gguf_put_tensor(w, name, rows > 1 ? 2 : 1, ne, TACIT_TYPE_F32, x);
    free(x);
}

/* Embeddings that are alike but for a hundredth: the gradient is what is left when nearly equal
 * vectors, one for each word, cancel. */
static uint8_t *write_alike_words(size_t *size)
{
    static const struct {
        const char *name;
        uint64_t cols, rows;
    } tensors[] = {
        {"blk.0.attn_q.weight", WIDE, WIDE},       {"blk.0.attn_k.weight", WIDE, WIDE},
        {"blk.0.attn_v.weight", WIDE, WIDE},       {"blk.0.attn_output.weight", WIDE, WIDE},
        {"blk.0.ffn_gate.weight", WIDE, 2 * WIDE}, {"blk.0.ffn_up.weight", WIDE, 2 * WIDE},
        {"blk.0.ffn_down.weight", 2 * WIDE, WIDE}};
    static const char *const norms[] = {"blk.0.attn_norm.weight", "blk.0.ffn_norm.weight",
                                        "output_norm.weight"};
    gguf_writer *w = gguf_writer_new();
    uint8_t *bytes;
    gguf_put_string(w, "general.architecture", "llama", 5);
    gguf_put_u32(w, "llama.context_length", 64);
    gguf_put_u32(w, "llama.embedding_length", WIDE);
    gguf_put_u32(w, "llama.block_count", 1);
    gguf_put_u32(w, "llama.feed_forward_length", 2 * WIDE);
    gguf_put_u32(w, "llama.attention.head_count", 2);
    gguf_put_u32(w, "llama.vocab_size", MANY);
    gguf_put_f32(w, "llama.attention.layer_norm_rms_epsilon", 1e-5f);
    put_tensor(w, "token_embd.weight", WIDE, MANY, 0.02f, 2);
    for (size_t i = 0; i < 3; i++)
        put_tensor(w, norms[i], WIDE, 1, 0.1f, 1);
    for (size_t i = 0; i < sizeof tensors / sizeof tensors[0]; i++)
        put_tensor(w, tensors[i].name, tensors[i].cols, tensors[i].rows, 0.3f, 0);
    assert_int_equal(gguf_write_memory(w, &bytes, size, NULL), TACIT_OK);
    gguf_writer_free(w);
    return bytes;
}

static double error_of_alike_words(uint32_t seed)
{
    tacit_model m = {0};
    tacit_error err;
    size_t size;
    random_state = seed;
    uint8_t *bytes = write_alike_words(&size);
    if (gguf_open_memory(&m.text_file, bytes, size, "words", &err) != TACIT_OK ||
        text_model_load(&m.text, m.text_file, &err) != TACIT_OK)
        fail_msg("%s", err.message);
    tacit_row row[4];
    for (int i = 0; i < 4; i++)
        row[i] = (tacit_row){.token = 9999 * i, .trained = i > 1, .position = (uint32_t)i};
    tacit_input in = {.row = row, .count = 4};
    const tacit_input *example = &in;
    tacit_unit unit = {&example, 1};
    tacit_trainable_spec spec = fixture_spec(TACIT_TRAIN_LORA);
    spec.n_targets = 2;
    tacit_trainer *t = fixture_trainer(&m, &spec, 8, NULL);
    const tacit_layout *l = tacit_trainer_layout(t);
    fixture_sink s = fixture_gradients(t, &unit, 1);
    ref_model r = {.width = WIDE,
                   .layers = 1,
                   .heads = 2,
                   .kv_heads = 2,
                   .head = WIDE / 2,
                   .ff = 2 * WIDE,
                   .vocab = MANY,
                   .eps = (double)1e-5f,
                   .base = 10000,
                   .alpha = 6};
    ref_load(&r, m.text_file);
    for (size_t i = 0; i < l->count; i++) {
        ref_tensor *p = ref_add(&r, l->entry[i].name, l->entry[i].rows, l->entry[i].cols);
        for (size_t k = 0; k < p->rows * p->cols; k++)
            p->value[k] = (double)tacit_trainer_values(t)[l->entry[i].offset + k];
    }
    assert_float_equal(s.loss[0], ref_loss(&r, &in), 1e-5);
    size_t b = layout_find(l, "blk.0.ffn_down.weight.lora_b");
    double *value = ref_named(&r, l->entry[b].name)->value, off = 0, norm = 0;
    for (size_t k = 0; k < 16; k++) {
        double loss[2];
        for (int side = 0; side < 2; side++) {
            value[5 * k] = side ? -1e-5 : 1e-5;
            loss[side] = ref_loss(&r, &in);
        }
        value[5 * k] = 0;
        double expected = (loss[0] - loss[1]) / 2e-5;
        double d = (double)s.grad[l->entry[b].offset + 5 * k] - expected;
        off += d * d;
        norm += expected * expected;
    }
    ref_free(&r);
    fixture_sink_free(&s);
    tacit_trainer_free(t);
    text_model_unload(&m.text);
    gguf_close(m.text_file);
    free(bytes);
    return sqrt(off / norm);
}

/* Words are 2 and a uniform part of 0.02: what is left where they cancel has 0.0115 a value, so a
 * factor that is rounded to single precision (the probabilities' has one) shows as
 * 2^-24 * 2 / 0.0115 = 1e-5. A sum of a slice that the target's term had brought to its size would
 * round at every word after it, 3.4e-8 * sqrt(64) * 2 / 0.0115 = 5e-5. */
static void small_terms_of_a_large_vocabulary_count(void **state)
{
    (void)state;
    for (uint32_t seed = 1; seed <= 4; seed++) {
        double error = error_of_alike_words(seed * 2654435761u);
        if (!(error <= 2e-5))
            fail_msg("seed %u: relative L2 %.3g", seed, error);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(memory_plans_agree),
        cmocka_unit_test(the_backward_ends_where_nothing_is_trained),
        cmocka_unit_test(attention_equals_its_naive_twin),
        cmocka_unit_test(small_terms_of_a_large_vocabulary_count),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
