/* Rows of soft prompts in an input, their gradients, their file and what they do in inference. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "engine/adapter_parts.h"
#include "engine/context.h"
#include "engine/soft_prompt.h"
#include "reference_train.h"
#include "train_fixture.h"

#include <math.h>

#define WIDTH 32

static const uint8_t digest[32] = {9};

/* "T12 P0.1 I2.0": modality, then the token, or medium and row; positions follow it after '@'. */
static void expect_rows(const tacit_input *in, const char *wanted)
{
    static const char letters[] = "TIASP";
    char found[512] = "";
    for (size_t i = 0; i < in->count; i++) {
        const tacit_row *r = &in->row[i];
        size_t used = strlen(found);
        if (r->modality == TACIT_MODALITY_TOKEN)
            snprintf(found + used, sizeof found - used, "%sT%d@%u", i ? " " : "", r->token,
                     r->position);
        else
            snprintf(found + used, sizeof found - used, "%s%c%u.%d@%u", i ? " " : "",
                     letters[r->modality], r->media, r->token, r->position);
    }
    assert_string_equal(found, wanted);
}

/* Two pictures of two rows, the second behind a dropped position; a sound; tokens between. */
static tacit_input make_input(void)
{
    tacit_input in = {.row = calloc(8, sizeof *in.row), .count = 8};
    const struct {
        uint8_t modality;
        uint16_t media;
        int32_t token;
        uint32_t position;
    } rows[] = {{TACIT_MODALITY_TOKEN, 0, 7, 0}, {TACIT_MODALITY_IMAGE, 0, 0, 1},
                {TACIT_MODALITY_IMAGE, 0, 1, 2}, {TACIT_MODALITY_IMAGE, 2, 0, 4},
                {TACIT_MODALITY_IMAGE, 2, 1, 5}, {TACIT_MODALITY_AUDIO, 1, 0, 6},
                {TACIT_MODALITY_TOKEN, 0, 8, 7}, {TACIT_MODALITY_TOKEN, 0, 9, 8}};
    for (size_t i = 0; i < 8; i++)
        in.row[i] = (tacit_row){.modality = rows[i].modality,
                                .media = rows[i].media,
                                .token = rows[i].token,
                                .position = rows[i].position,
                                .trained = i == 7};
    in.media = calloc(3, sizeof *in.media);
    in.n_media = 3;
    return in;
}

static void rows_stand_where_they_belong(void **state)
{
    (void)state;
    float rows[3 * WIDTH];
    for (size_t i = 0; i < 3 * WIDTH; i++)
        rows[i] = (float)i;
    const soft_prompt both[SOFT_PROMPTS] = {{2, rows}, {1, rows + WIDTH}};
    const soft_prompt text[SOFT_PROMPTS] = {{3, NULL}, {0, NULL}};
    const soft_prompt image[SOFT_PROMPTS] = {{0, NULL}, {2, NULL}};
    const soft_prompt none[SOFT_PROMPTS] = {{0, NULL}, {0, NULL}};
    tacit_input in = make_input();
    assert_int_equal(soft_prompt_insert(&in, both, WIDTH, digest, NULL), TACIT_OK);
    expect_rows(&in, "P3.0@0 P3.1@1 T7@2 P4.0@3 I0.0@4 I0.1@5 P4.0@7 I2.0@8 I2.1@9 A1.0@10 T8@11 "
                     "T9@12");
    assert_int_equal(in.row[11].trained, 1);
    assert_int_equal(in.n_media, 5);
    assert_memory_equal(in.media[3].rows, rows, 2 * WIDTH * sizeof *rows);
    assert_memory_equal(in.media[4].rows, rows + WIDTH, WIDTH * sizeof *rows);
    assert_memory_not_equal(in.media[3].digest, in.media[4].digest, 32);
    tacit_input_free(&in);
    in = make_input();
    assert_int_equal(soft_prompt_insert(&in, text, WIDTH, NULL, NULL), TACIT_OK);
    expect_rows(&in, "P3.0@0 P3.1@1 P3.2@2 T7@3 I0.0@4 I0.1@5 I2.0@7 I2.1@8 A1.0@9 T8@10 T9@11");
    assert_null(in.media[3].rows);
    tacit_input_free(&in);
    in = make_input();
    assert_int_equal(soft_prompt_insert(&in, image, WIDTH, NULL, NULL), TACIT_OK);
    expect_rows(&in, "T7@0 P3.0@1 P3.1@2 I0.0@3 I0.1@4 P3.0@6 P3.1@7 I2.0@8 I2.1@9 A1.0@10 T8@11 "
                     "T9@12");
    assert_int_equal(in.n_media, 4);
    tacit_input_free(&in);
    in = make_input();
    assert_int_equal(soft_prompt_insert(&in, none, WIDTH, NULL, NULL), TACIT_OK);
    assert_int_equal(in.count, 8);
    in.n_media = UINT16_MAX - 1; /* no further medium has a number */
    tacit_error err = {0};
    assert_int_equal(soft_prompt_insert(&in, text, WIDTH, NULL, &err), TACIT_BAD_INPUT);
    in.n_media = 3;
    in.row[7].position = UINT32_MAX - 1;
    assert_int_equal(soft_prompt_insert(&in, text, WIDTH, NULL, &err), TACIT_BAD_INPUT);
    assert_int_equal(in.count, 8);
    tacit_input_free(&in);
}

static tacit_trainable_spec prompt_of(uint32_t rows)
{
    tacit_trainable_spec s = {.kind = TACIT_TRAIN_PROMPT, .virtual_tokens = rows};
    for (size_t i = 0; i < sizeof s.seed; i++)
        s.seed[i] = (uint8_t)(100 + i);
    return s;
}

/* As rows of a medium they are what the naive model in double computes with: its differences, for
 * every architecture, with a picture among the rows and without. */
static void gradients_equal_finite_differences(void **state)
{
    (void)state;
    for (int w = 0; w < FIXTURE_LLAMA; w++)
        for (size_t e = 0; e < 2; e++) {
            tacit_model *m = fixture_model(fixture_words[w], e);
            gguf_file *golden = fixture_file("gradients", fixture_words[w]);
            tacit_trainable_spec spec = prompt_of(3);
            tacit_trainer *t = fixture_trainer(m, &spec, 32, NULL);
            tacit_input in = fixture_example(golden, e);
            size_t at = in.n_media;
            assert_int_equal(tacit_training_prepend(m, &spec, &in, NULL), TACIT_OK);
            assert_int_equal(in.n_media, at + 1);
            const tacit_input *example = &in;
            const tacit_unit unit = {&example, 1};
            fixture_sink s = fixture_gradients(t, &unit, 1);
            ref_model r = {.width = WIDTH,
                           .layers = m->text.n_layers,
                           .heads = 4,
                           .kv_heads = 2,
                           .head = 8,
                           .ff = 64,
                           .vocab = m->text.vocab,
                           .eps = (double)1e-5f,
                           .base = 10000};
            ref_load(&r, m->text_file);
            double *media[2], off = 0, norm = 0;
            for (size_t i = 0; i < in.n_media; i++) {
                size_t n = in.media[i].n_rows * WIDTH;
                const float *from = i == at ? tacit_trainer_values(t) : in.media[i].rows;
                media[i] = calloc(n, sizeof(double));
                for (size_t k = 0; k < n; k++)
                    media[i][k] = (double)from[k];
            }
            r.media = media;
            assert_float_equal(s.loss[0], ref_loss(&r, &in), 1e-5);
            for (size_t k = 0; k < 3 * WIDTH; k += 5) {
                double *x = &media[at][k], start = *x, loss[2];
                for (int side = 0; side < 2; side++) {
                    *x = start + (side ? -1e-5 : 1e-5);
                    loss[side] = ref_loss(&r, &in);
                }
                *x = start;
                double expected = (loss[0] - loss[1]) / 2e-5, d = (double)s.grad[k] - expected;
                off += d * d;
                norm += expected * expected;
            }
            if (!(norm > 0) || !(sqrt(off) <= 2e-5 * sqrt(norm)))
                fail_msg("%s: differs by %.3g of %.3g", fixture_words[w], sqrt(off), sqrt(norm));
            for (size_t i = 0; i < in.n_media; i++)
                free(media[i]);
            ref_free(&r);
            fixture_sink_free(&s);
            fixture_example_free(&in);
            tacit_trainer_free(t);
            gguf_close(golden);
            fixture_model_free(m);
        }
}

/* They start as embeddings of tokens, the same on every machine, others with another seed. */
static void prompts_start_as_tokens(void **state)
{
    (void)state;
    tacit_model *m = fixture_model("tied", true);
    tacit_trainable_spec spec = prompt_of(40);
    tacit_trainer *t = fixture_trainer(m, &spec, 8, NULL);
    size_t known = 0, first = SIZE_MAX, others = 0;
    for (size_t i = 0; i < 40; i++)
        for (int32_t token = 0; token < (int32_t)m->text.vocab; token++) {
            float row[WIDTH];
            text_embed(&m->text, row, &token, 1);
            if (memcmp(row, tacit_trainer_values(t) + i * WIDTH, sizeof row) != 0)
                continue;
            known++;
            first = i == 0 ? (size_t)token : first;
            others += (size_t)token != first;
            break;
        }
    assert_int_equal(known, 40);
    assert_true(others > 20);
    spec.seed[0] ^= 1;
    tacit_trainer *other = fixture_trainer(m, &spec, 8, NULL);
    assert_memory_not_equal(tacit_trainer_values(t), tacit_trainer_values(other),
                            40 * WIDTH * sizeof(float));
    tacit_trainer_free(other);
    tacit_trainer_free(t);
    fixture_model_free(m);
}

static void a_file_infers_as_it_trained(void **state)
{
    (void)state;
    static const char path[] = TACIT_BINARY_DIR "/soft-prompt.gguf";
    tacit_model *m = fixture_model("tied", true);
    gguf_file *golden = fixture_file("gradients", "tied");
    tacit_trainable_spec spec = prompt_of(5), other = prompt_of(6);
    tacit_trainer *t = fixture_trainer(m, &spec, 40, NULL);
    const tacit_adapter_info info = {.version = 3};
    float back[6 * WIDTH];
    tacit_adapter *a;
    tacit_context *c;
    tacit_error err = {0};
    double trained;
    for (size_t i = 0; i < 5 * WIDTH; i++)
        tacit_trainer_values(t)[i] += (float)(i % 7) / 10;
    if (tacit_adapter_save(path, m, &spec, tacit_trainer_values(t), &info, &err) != TACIT_OK)
        fail_msg("%s", err.message);
    assert_int_equal(tacit_adapter_read_values(path, m, &spec, back, &err), TACIT_OK);
    assert_memory_equal(back, tacit_trainer_values(t), 5 * WIDTH * sizeof *back);
    assert_int_equal(tacit_adapter_read_values(path, m, &other, back, &err), TACIT_BAD_INPUT);
    assert_non_null(strstr(err.message, "prompt.text has 5 rows"));
    assert_int_equal(tacit_adapter_load(&a, m, path, &err), TACIT_OK);
    assert_int_equal(adapter_pair_count(a), 0);
    assert_int_equal(adapter_prompt(a, SOFT_PROMPT_TEXT).n_rows, 5);
    assert_int_equal(tacit_context_new(&c, m, NULL, NULL, &err), TACIT_OK);
    assert_int_equal(tacit_context_bind(c, a, &err), TACIT_OK);
    for (size_t e = 0; e < 2; e++) {
        tacit_input in = fixture_example(golden, e), bare = fixture_example(golden, e);
        assert_int_equal(tacit_training_prepend(m, &spec, &bare, &err), TACIT_OK);
        assert_int_equal(tacit_trainer_loss(t, &bare, &trained, &err), TACIT_OK);
        assert_int_equal(tacit_adapter_prepend(a, m, &in, &err), TACIT_OK);
        assert_int_equal(tacit_adapter_prepend(NULL, m, &in, &err), TACIT_OK);
        fixture_loss s = {.in = &in, .vocab = m->text.vocab};
        tacit_context_truncate(c, 0);
        if (tacit_context_feed_all(c, in.row, in.count, in.media, in.n_media, fixture_add_loss, &s,
                                   &err) != TACIT_OK)
            fail_msg("%s", err.message);
        assert_float_equal(s.sum / (double)s.trained, trained, 1e-5);
        fixture_example_free(&in);
        fixture_example_free(&bare);
    }
    tacit_context_free(c);
    tacit_adapter_free(a);
    tacit_trainer_free(t);
    gguf_close(golden);
    fixture_model_free(m);
    remove(path);
}

static void put_word(gguf_writer *w, const char *key, const char *word)
{
    gguf_put_string(w, key, word, strlen(word));
}

static void strange_prompts_are_refused(void **state)
{
    (void)state;
    static const char path[] = TACIT_BINARY_DIR "/soft-prompt-odd.gguf";
    static const struct {
        const char *tensor, *said;
        uint64_t ne[2];
        float first;
    } cases[] = {{"prompt.texts", "prompt.text or", {WIDTH, 2}, 1},
                 {"prompt.text", "[16, 2]; expected [32, rows]", {16, 2}, 1},
                 {"prompt.image", "1 to 4096 rows", {WIDTH, 4097}, 1},
                 {"prompt.text", "not finite", {WIDTH, 2}, NAN},
                 {"blk.0.attn_q.weight.lora_a", "prompt.text or", {WIDTH, 2}, 1}};
    tacit_model *m = fixture_model("tied", true);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        gguf_writer *w = gguf_writer_new();
        tacit_adapter *a;
        tacit_error err = {0};
        float *values = calloc(cases[i].ne[0] * cases[i].ne[1], sizeof *values);
        values[0] = cases[i].first;
        put_word(w, "general.architecture", "llama");
        put_word(w, "general.type", "adapter");
        put_word(w, "adapter.type", "tacit.prompt");
        gguf_put_tensor(w, cases[i].tensor, 2, cases[i].ne, TACIT_TYPE_F32, values);
        assert_int_equal(gguf_write(w, path, &err), TACIT_OK);
        gguf_writer_free(w);
        free(values);
        assert_int_equal(tacit_adapter_load(&a, m, path, &err), TACIT_BAD_INPUT);
        if (!strstr(err.message, cases[i].said))
            fail_msg("case %zu: '%s'", i, err.message);
    }
    const struct {
        uint32_t text, image;
        const char *said;
    } specs[] = {{0, 0, "no rows"}, {4097, 0, "at most 4096"}, {0, 4, "no image encoder"}};
    for (size_t i = 0; i < sizeof specs / sizeof specs[0]; i++) {
        tacit_trainable_spec s = prompt_of(specs[i].text);
        tacit_layout l;
        tacit_error err = {0};
        s.image_virtual_tokens = specs[i].image;
        assert_int_equal(tacit_layout_make(&l, m, &s, &err), TACIT_USAGE);
        assert_non_null(strstr(err.message, specs[i].said));
    }
    fixture_model_free(m);
    remove(path);
}

/* A prompt of another size than is trained, or one that nobody trains, has no rows to compute. */
static void an_example_without_its_rows_is_refused(void **state)
{
    (void)state;
    tacit_model *m = fixture_model("tied", true);
    gguf_file *golden = fixture_file("gradients", "tied");
    tacit_trainable_spec spec = prompt_of(3), other = prompt_of(4),
                         lora = fixture_spec(TACIT_TRAIN_LORA);
    tacit_trainer *t = fixture_trainer(m, &spec, 40, NULL),
                  *l = fixture_trainer(m, &lora, 40, NULL);
    tacit_input in = fixture_example(golden, 1);
    tacit_error err = {0};
    assert_int_equal(tacit_training_prepend(m, &other, &in, &err), TACIT_OK);
    assert_int_equal(tacit_trainer_check(t, &in, &err), TACIT_BAD_INPUT);
    assert_int_equal(tacit_trainer_check(l, &in, &err), TACIT_BAD_INPUT);
    fixture_example_free(&in);
    tacit_trainer_free(l);
    tacit_trainer_free(t);
    gguf_close(golden);
    fixture_model_free(m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rows_stand_where_they_belong),
        cmocka_unit_test(gradients_equal_finite_differences),
        cmocka_unit_test(prompts_start_as_tokens),
        cmocka_unit_test(a_file_infers_as_it_trained),
        cmocka_unit_test(strange_prompts_are_refused),
        cmocka_unit_test(an_example_without_its_rows_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
