/* Training through pictures: a tiny tower before a tiny llama. Oracle: central differences of both
 * naive models in double; cached rows against computed ones; each unit alone. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "reference_train.h"
#include "reference_vision.h"
#include "train_fixture.h"

#include <math.h>

#define PICTURES 3
#define EXAMPLES 4

static const reference_spec tower_spec = {.image = 8,
                                          .patch = 2,
                                          .width = 8,
                                          .ff = 12,
                                          .heads = 2,
                                          .layers = 2,
                                          .scale = 2,
                                          .out = 32,
                                          .linears = TACIT_TYPE_F32};

typedef struct scene {
    tacit_model *model;
    uint8_t *bytes;
    float *pixels[PICTURES];
    tacit_input input[EXAMPLES];
    const tacit_input *example[EXAMPLES];
} scene;

static void add_tower(scene *s)
{
    size_t size;
    tacit_error err = {0};
    gguf_file *file;
    gguf_writer *w = gguf_writer_new();
    reference_keys(w, &tower_spec);
    reference_tensors(w, &tower_spec);
    if (gguf_write_memory(w, &s->bytes, &size, &err) != TACIT_OK ||
        gguf_open_memory(&file, s->bytes, size, "tower", &err) != TACIT_OK ||
        model_add_encoder(s->model, file, &err) != TACIT_OK)
        fail_msg("%s", err.message);
    gguf_writer_free(w);
}

/* A question of a few tokens after the rows of `n` pictures, answered by four tokens. */
static void make_example(scene *s, tacit_input *in, size_t n, size_t turn)
{
    size_t rows = vision_get_shape(model_vision(s->model))->rows;
    in->n_media = n;
    in->media = calloc(n, sizeof *in->media);
    in->count = n * rows + 7 + turn;
    in->row = calloc(in->count, sizeof *in->row);
    for (size_t i = 0; i < n; i++)
        in->media[i] = (tacit_media){.modality = TACIT_MODALITY_IMAGE,
                                     .dim = {3, tower_spec.image, tower_spec.image},
                                     .values = s->pixels[(turn + i) % PICTURES],
                                     .n_rows = rows};
    for (size_t i = 0; i < in->count; i++) {
        tacit_row *row = &in->row[i];
        row->position = (uint32_t)i;
        row->token = (int32_t)((7 * i + 11 * turn) % 48);
        row->trained = i + 4 >= in->count;
        if (i < 1 || i > n * rows)
            continue;
        row->modality = TACIT_MODALITY_IMAGE;
        row->media = (uint16_t)((i - 1) / rows);
        row->token = (int32_t)((i - 1) % rows);
    }
}

static scene make_scene(void)
{
    scene s = {.model = fixture_model("tied", true)};
    size_t planes = (size_t)3 * tower_spec.image * tower_spec.image;
    add_tower(&s);
    for (uint32_t i = 0; i < PICTURES; i++) {
        s.pixels[i] = malloc(planes * sizeof(float));
        for (uint32_t k = 0; k < planes; k++)
            s.pixels[i][k] = 2 * reference_uniform(500 + i, k);
    }
    for (size_t i = 0; i < EXAMPLES; i++)
        make_example(&s, &s.input[i], i % 3, i);
    return s;
}

static void free_scene(scene *s)
{
    for (size_t i = 0; i < EXAMPLES; i++) {
        free(s->input[i].row);
        free(s->input[i].media);
    }
    for (size_t i = 0; i < PICTURES; i++)
        free(s->pixels[i]);
    model_remove_encoders(s->model);
    free(s->bytes);
    fixture_model_free(s->model);
}

/* The copies share the scene's memory. */
static void link_examples(scene *s)
{
    for (size_t i = 0; i < EXAMPLES; i++)
        s->example[i] = &s->input[i];
}

/* Mean loss of all examples in double, rows of pictures by the naive tower. */
static double naive_loss(ref_model *text, double *const *tower, const scene *s)
{
    const vision_shape *shape = vision_get_shape(model_vision(s->model));
    double *rows[2], sum = 0;
    for (size_t i = 0; i < 2; i++)
        rows[i] = calloc((size_t)shape->rows * shape->out_width, sizeof(double));
    text->media = rows;
    for (size_t e = 0; e < EXAMPLES; e++) {
        for (size_t i = 0; i < s->input[e].n_media; i++)
            reference_tower(shape, tower, s->input[e].media[i].values, rows[i]);
        sum += ref_loss(text, &s->input[e]);
    }
    free(rows[0]), free(rows[1]);
    return sum / EXAMPLES;
}

static double difference_at(ref_model *text, double *const *tower, const scene *s, double *at)
{
    double start = *at, h = 1e-5 * (1 + fabs(start));
    *at = start + h;
    double above = naive_loss(text, tower, s);
    *at = start - h;
    double below = naive_loss(text, tower, s);
    *at = start;
    return (above - below) / (2 * h);
}

/* The double behind an entry of the layout: in the text model or in the tower. */
static double *reference_of(ref_model *text, double *const *tower, const tacit_vision *v,
                            const char *name)
{
    ref_tensor *t = ref_named(text, name);
    for (size_t i = 0; !t && i < vision_tensor_count(v); i++)
        if (strcmp(vision_tensor_at(v, i)->name, name) == 0)
            return tower[i];
    return t ? t->value : NULL;
}

static void check_kind(tacit_trainable_kind kind, size_t samples)
{
    scene s = make_scene();
    const tacit_vision *v = model_vision(s.model);
    tacit_trainable_spec spec = {.kind = kind};
    tacit_trainer *t = fixture_trainer(s.model, &spec, 32, NULL);
    const tacit_layout *l = tacit_trainer_layout(t);
    ref_model text = {32, 2, 4, 2, 8, 64, 48, (double)1e-5f, 10000, 0, NULL, NULL, 0};
    double **tower = calloc(vision_tensor_count(v), sizeof *tower);
    link_examples(&s);
    tacit_unit unit = {s.example, EXAMPLES};
    ref_load(&text, s.model->text_file);
    for (size_t i = 0; i < vision_tensor_count(v); i++) {
        const vision_tensor *x = vision_tensor_at(v, i);
        tower[i] = calloc(x->rows * x->cols, sizeof(double));
        for (size_t k = 0; k < x->rows * x->cols; k++)
            tower[i][k] = (double)((const float *)(const void *)x->data->data)[k];
    }
    fixture_sink g = fixture_gradients(t, &unit, 1);
    assert_float_equal(g.loss[0], naive_loss(&text, tower, &s), 1e-5);
    for (size_t i = 0; i < l->count; i++) {
        const tacit_trainable_entry *e = &l->entry[i];
        double *from = reference_of(&text, tower, v, e->name), off = 0, norm = 0;
        size_t size = e->rows * e->cols, n = size < samples ? size : samples;
        for (size_t k = 0; k < n; k++) {
            size_t at = (k * 7919 + 13 * i) % size;
            double expected = difference_at(&text, tower, &s, &from[at]);
            double d = (double)g.grad[e->offset + at] - expected;
            off += d * d;
            norm += expected * expected;
        }
        if (!(sqrt(off) <= 1e-4 * (sqrt(norm) + 1e-3)))
            fail_msg("%s: differs by %.3g of %.3g", e->name, sqrt(off), sqrt(norm));
    }
    for (size_t i = 0; i < vision_tensor_count(v); i++)
        free(tower[i]);
    free(tower);
    ref_free(&text);
    fixture_sink_free(&g);
    tacit_trainer_free(t);
    free_scene(&s);
}

static void gradients_reach_the_projector(void **state)
{
    (void)state;
    check_kind(TACIT_TRAIN_PROJECTOR, 24);
}

static void gradients_reach_everything(void **state)
{
    (void)state;
    check_kind(TACIT_TRAIN_ALL, 4);
}

/* A frozen tower: computing the rows in the trainer and giving them cached is the same. */
static void cached_rows_equal_computed_ones(void **state)
{
    (void)state;
    scene s = make_scene();
    const vision_shape *shape = vision_get_shape(model_vision(s.model));
    size_t floats = (size_t)shape->rows * shape->out_width;
    tacit_trainable_spec spec = fixture_spec(TACIT_TRAIN_LORA_FFA);
    tacit_trainer *t = fixture_trainer(s.model, &spec, 32, NULL);
    link_examples(&s);
    tacit_unit unit = {s.example, EXAMPLES};
    fixture_sink computed = fixture_gradients(t, &unit, 1);
    for (size_t e = 0; e < EXAMPLES; e++)
        for (size_t i = 0; i < s.input[e].n_media; i++) {
            tacit_media *m = &s.input[e].media[i];
            const float *pixels = m->values;
            vision_pass *pass;
            m->rows = malloc(floats * sizeof(float));
            assert_int_equal(vision_pass_new(&pass, model_vision(s.model), 1, false, NULL, NULL),
                             TACIT_OK);
            vision_forward(pass, NULL, &pixels, 1, m->rows);
            vision_pass_free(pass);
            m->values = NULL;
        }
    fixture_sink cached = fixture_gradients(t, &unit, 1);
    assert_memory_equal(computed.grad, cached.grad, computed.values * sizeof(float));
    assert_true(computed.loss[0] == cached.loss[0]);
    for (size_t e = 0; e < EXAMPLES; e++)
        for (size_t i = 0; i < s.input[e].n_media; i++)
            free(s.input[e].media[i].rows);
    fixture_sink_free(&computed);
    fixture_sink_free(&cached);
    tacit_trainer_free(t);
    free_scene(&s);
}

static void bits_depend_on_the_unit_alone(void **state)
{
    (void)state;
    scene s = make_scene();
    tacit_trainable_spec spec = {.kind = TACIT_TRAIN_ALL};
    tacit_trainer *one = fixture_trainer(s.model, &spec, 32, NULL);
    link_examples(&s);
    tacit_unit units[EXAMPLES];
    for (size_t i = 0; i < EXAMPLES; i++)
        units[i] = (tacit_unit){s.example + i, EXAMPLES - i};
    for (size_t threads = 1; threads <= 3; threads++) {
        tacit_pool *pool;
        assert_int_equal(tacit_pool_new(&pool, threads, NULL), TACIT_OK);
        tacit_trainer *t = fixture_trainer(s.model, &spec, 40, pool);
        fixture_sink all = fixture_gradients(t, units, EXAMPLES);
        for (size_t i = 0; i < EXAMPLES; i++) {
            fixture_sink alone = fixture_gradients(one, &units[i], 1);
            assert_memory_equal(alone.grad, all.grad + i * all.values, all.values * sizeof(float));
            fixture_sink_free(&alone);
        }
        fixture_sink_free(&all);
        tacit_trainer_free(t);
        tacit_pool_free(pool);
    }
    tacit_trainer_free(one);
    free_scene(&s);
}

static void a_picture_of_another_size_is_refused(void **state)
{
    (void)state;
    scene s = make_scene();
    tacit_trainable_spec spec = {.kind = TACIT_TRAIN_PROJECTOR};
    tacit_trainer *t = fixture_trainer(s.model, &spec, 32, NULL);
    double loss;
    tacit_error err = {0};
    s.input[1].media[0].dim[2] = 9;
    assert_int_equal(tacit_trainer_loss(t, &s.input[1], &loss, &err), TACIT_BAD_INPUT);
    assert_non_null(strstr(err.message, "8x8"));
    s.input[1].media[0].dim[2] = 8;
    assert_int_equal(tacit_trainer_loss(t, &s.input[1], &loss, &err), TACIT_OK);
    tacit_trainer_free(t);
    free_scene(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(gradients_reach_the_projector),
        cmocka_unit_test(gradients_reach_everything),
        cmocka_unit_test(cached_rows_equal_computed_ones),
        cmocka_unit_test(bits_depend_on_the_unit_alone),
        cmocka_unit_test(a_picture_of_another_size_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
