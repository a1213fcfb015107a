/* Training through media: tiny vision and audio towers and a tiny sensor encoder before a
 * tiny llama.
 * Oracle: central differences of the naive models in double; cached rows against computed ones;
 * each unit alone. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "engine/adapter_parts.h"
#include "engine/context.h"
#include "engine/row_cache.h"
#include "engine/train_plan.h"
#include "engine/train_values.h"
#include "reference_audio.h"
#include "reference_sensor.h"
#include "reference_train.h"
#include "reference_vision.h"
#include "train_fixture.h"

#include <math.h>

#define PICTURES 3
#define MOST_MEDIA 4 /* of an example */
#define PATCHES 3    /* of a window */
#define FRAMES 11    /* of a clip */
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

enum { VISION, SENSOR, AUDIO, ENCODERS }; /* in the order of their files */

static const whisper_spec clip_spec = {.n_mel = 4,
                                       .width = 8,
                                       .ff = 12,
                                       .heads = 2,
                                       .layers = 1,
                                       .positions = 8,
                                       .stack = 2,
                                       .middle = 6,
                                       .out = 32,
                                       .linears = TACIT_TYPE_F32,
                                       .kernels = TACIT_TYPE_F32};

typedef struct scene {
    tacit_model *model;
    uint8_t *bytes[ENCODERS];
    float *pixels[PICTURES];
    float *window[PICTURES];
    float *clip[PICTURES];
    tacit_input input[EXAMPLES];
    const tacit_input *example[EXAMPLES];
} scene;

static void add_encoder(scene *s, int which)
{
    size_t size;
    tacit_error err = {0};
    gguf_file *file;
    gguf_writer *w = gguf_writer_new();
    if (which == VISION) {
        reference_keys(w, &tower_spec);
        reference_tensors(w, &tower_spec);
    } else if (which == AUDIO) {
        whisper_keys(w, &clip_spec);
        whisper_tensors(w, &clip_spec);
    } else {
        sensor_spec spec = reference_sensor_spec(TACIT_TYPE_F32, 32);
        reference_put_sensor(w, &spec);
    }
    if (gguf_write_memory(w, &s->bytes[which], &size, &err) != TACIT_OK ||
        gguf_open_memory(&file, s->bytes[which], size, "encoder", &err) != TACIT_OK ||
        model_add_encoder(s->model, file, &err) != TACIT_OK)
        fail_msg("%s", err.message);
    gguf_writer_free(w);
}

static const sensor_shape *window_shape(const scene *s)
{
    return sensor_get_shape(s->model->encoder[SENSOR].self);
}

static const tacit_audio *audio_of(const scene *s)
{
    return s->model->encoder[AUDIO].self;
}

static tacit_media medium_of(const scene *s, int kind, size_t number)
{
    if (kind == VISION)
        return (tacit_media){.modality = TACIT_MODALITY_IMAGE,
                             .dim = {3, tower_spec.image, tower_spec.image},
                             .values = s->pixels[number % PICTURES],
                             .n_rows = vision_get_shape(model_vision(s->model))->rows};
    if (kind == AUDIO)
        return (tacit_media){.modality = TACIT_MODALITY_AUDIO,
                             .dim = {1, FRAMES, clip_spec.n_mel},
                             .values = s->clip[number % PICTURES],
                             .n_rows = audio_rows(audio_of(s), FRAMES)};
    return (tacit_media){.modality = TACIT_MODALITY_SENSOR,
                         .dim = {1, PATCHES, window_shape(s)->patch_values},
                         .values = s->window[number % PICTURES],
                         .n_rows = PATCHES};
}

/* A question of a few tokens after the rows of `n` media, pictures, windows and clips in turn,
 * answered by four tokens. */
static void make_example(scene *s, tacit_input *in, size_t n, size_t turn)
{
    size_t rows = 0, at = 1;
    in->n_media = n;
    in->media = calloc(n, sizeof *in->media);
    for (size_t i = 0; i < n; i++) {
        in->media[i] = medium_of(s, (int)((i + (turn == 1)) % ENCODERS), turn + i);
        rows += in->media[i].n_rows;
    }
    in->count = rows + 7 + turn;
    in->row = calloc(in->count, sizeof *in->row);
    for (size_t i = 0; i < in->count; i++) {
        in->row[i].position = (uint32_t)i;
        in->row[i].token = (int32_t)((7 * i + 11 * turn) % 48);
        in->row[i].trained = i + 4 >= in->count;
    }
    for (size_t m = 0; m < n; m++)
        for (size_t i = 0; i < in->media[m].n_rows; i++, at++) {
            in->row[at].modality = in->media[m].modality;
            in->row[at].media = (uint16_t)m;
            in->row[at].token = (int32_t)i;
        }
}

static scene make_scene(void)
{
    scene s = {.model = fixture_model("tied", true)};
    size_t planes = (size_t)3 * tower_spec.image * tower_spec.image;
    add_encoder(&s, VISION);
    add_encoder(&s, SENSOR);
    add_encoder(&s, AUDIO);
    for (uint32_t i = 0; i < PICTURES; i++) {
        s.pixels[i] = malloc(planes * sizeof(float));
        for (uint32_t k = 0; k < planes; k++)
            s.pixels[i][k] = 2 * reference_uniform(500 + i, k);
        s.window[i] = malloc(PATCHES * window_shape(&s)->patch_values * sizeof(float));
        for (uint32_t k = 0; k < PATCHES * window_shape(&s)->patch_values; k++)
            s.window[i][k] = 2 * reference_uniform(600 + i, k);
        s.clip[i] = malloc(FRAMES * clip_spec.n_mel * sizeof(float));
        for (uint32_t k = 0; k < FRAMES * clip_spec.n_mel; k++)
            s.clip[i][k] = 2 * reference_uniform(650 + i, k);
    }
    for (size_t i = 0; i < EXAMPLES; i++)
        make_example(&s, &s.input[i], i == 3 ? MOST_MEDIA : i, i);
    return s;
}

static void free_scene(scene *s)
{
    for (size_t i = 0; i < EXAMPLES; i++) {
        free(s->input[i].row);
        free(s->input[i].media);
    }
    for (size_t i = 0; i < PICTURES; i++)
        free(s->pixels[i]), free(s->window[i]), free(s->clip[i]);
    model_remove_encoders(s->model);
    for (size_t i = 0; i < ENCODERS; i++)
        free(s->bytes[i]);
    fixture_model_free(s->model);
}

/* The copies share the scene's memory. */
static void link_examples(scene *s)
{
    for (size_t i = 0; i < EXAMPLES; i++)
        s->example[i] = &s->input[i];
}

/* The encoders' tensors as doubles, each in its layout order. */
typedef struct naive_encoders {
    double **tensor[ENCODERS];
} naive_encoders;

static naive_encoders load_naive(const tacit_model *m)
{
    naive_encoders n;
    for (size_t k = 0; k < ENCODERS; k++) {
        const model_encoder *e = &m->encoder[k];
        n.tensor[k] = calloc(e->kind->tensor_count(e->self), sizeof *n.tensor[k]);
        for (size_t i = 0; i < e->kind->tensor_count(e->self); i++) {
            encoder_tensor t = e->kind->tensor_at(e->self, i);
            n.tensor[k][i] = calloc(t.rows * t.cols, sizeof(double));
            for (size_t v = 0; v < t.rows * t.cols; v++)
                n.tensor[k][i][v] = (double)((const float *)(const void *)t.data->data)[v];
        }
    }
    return n;
}

static void free_naive(naive_encoders *n, const tacit_model *m)
{
    for (size_t k = 0; k < ENCODERS; k++) {
        for (size_t i = 0; i < m->encoder[k].kind->tensor_count(m->encoder[k].self); i++)
            free(n->tensor[k][i]);
        free(n->tensor[k]);
    }
}

static void naive_rows(const naive_encoders *n, const scene *s, const tacit_media *m, double *rows)
{
    if (m->modality == TACIT_MODALITY_IMAGE)
        reference_tower(&tower_spec, n->tensor[VISION], m->values, rows);
    else if (m->modality == TACIT_MODALITY_AUDIO)
        reference_clip(audio_get_shape(audio_of(s)), n->tensor[AUDIO], m->values, FRAMES, rows);
    else
        reference_sensor(window_shape(s), n->tensor[SENSOR], m->values, PATCHES, rows);
}

/* Mean loss of all examples in double, rows of media by the naive encoders. */
static double naive_loss(ref_model *text, const naive_encoders *n, const scene *s)
{
    double *rows[MOST_MEDIA], sum = 0;
    for (size_t i = 0; i < MOST_MEDIA; i++)
        rows[i] = calloc(8 * 32, sizeof(double));
    text->media = rows;
    for (size_t e = 0; e < EXAMPLES; e++) {
        for (size_t i = 0; i < s->input[e].n_media; i++)
            naive_rows(n, s, &s->input[e].media[i], rows[i]);
        sum += ref_loss(text, &s->input[e]);
    }
    for (size_t i = 0; i < MOST_MEDIA; i++)
        free(rows[i]);
    return sum / EXAMPLES;
}

static double difference_at(ref_model *text, const naive_encoders *n, const scene *s, double *at)
{
    double start = *at, h = 1e-5 * (1 + fabs(start));
    *at = start + h;
    double above = naive_loss(text, n, s);
    *at = start - h;
    double below = naive_loss(text, n, s);
    *at = start;
    return (above - below) / (2 * h);
}

/* The double behind an entry of the layout: in the text model or in an encoder. */
static double *reference_of(ref_model *text, const naive_encoders *n, const tacit_model *m,
                            const char *name)
{
    ref_tensor *t = ref_named(text, name);
    for (size_t k = 0; !t && k < ENCODERS; k++) {
        const model_encoder *e = &m->encoder[k];
        for (size_t i = 0; i < e->kind->tensor_count(e->self); i++)
            if (strcmp(e->kind->tensor_at(e->self, i).name, name) == 0)
                return n->tensor[k][i];
    }
    return t ? t->value : NULL;
}

static void check_entry(const tacit_trainable_entry *e, size_t number, const float *grad,
                        ref_model *text, const naive_encoders *n, const scene *s, size_t samples)
{
    double *from = reference_of(text, n, s->model, e->name), off = 0, norm = 0;
    size_t size = e->rows * e->cols, count = size < samples ? size : samples;
    assert_non_null(from);
    for (size_t k = 0; k < count; k++) {
        size_t at = (k * 7919 + 13 * number) % size;
        double expected = difference_at(text, n, s, &from[at]);
        double d = (double)grad[e->offset + at] - expected;
        off += d * d;
        norm += expected * expected;
    }
    if (!(sqrt(off) <= 1e-4 * (sqrt(norm) + 1e-3)))
        fail_msg("%s: differs by %.3g of %.3g", e->name, sqrt(off), sqrt(norm));
}

static void check_kind(tacit_trainable_kind kind, size_t entries, size_t samples)
{
    scene s = make_scene();
    tacit_trainable_spec spec = {.kind = kind};
    tacit_trainer *t = fixture_trainer(s.model, &spec, 40, NULL);
    const tacit_layout *l = tacit_trainer_layout(t);
    ref_model text = {.width = 32,
                      .layers = 2,
                      .heads = 4,
                      .kv_heads = 2,
                      .head = 8,
                      .ff = 64,
                      .vocab = 48,
                      .eps = (double)1e-5f,
                      .base = 10000};
    naive_encoders n = load_naive(s.model);
    link_examples(&s);
    tacit_unit unit = {s.example, EXAMPLES};
    ref_load(&text, s.model->text_file);
    fixture_sink g = fixture_gradients(t, &unit, 1);
    assert_float_equal(g.loss[0], naive_loss(&text, &n, &s), 1e-5);
    if (entries)
        assert_int_equal(l->count, entries);
    for (size_t i = 0; i < l->count; i++)
        check_entry(&l->entry[i], i, g.grad, &text, &n, &s, samples);
    free_naive(&n, s.model);
    ref_free(&text);
    fixture_sink_free(&g);
    tacit_trainer_free(t);
    free_scene(&s);
}

static void gradients_reach_every_projector(void **state)
{
    (void)state;
    check_kind(TACIT_TRAIN_PROJECTOR, 7, 24); /* mm.model.fc, mm.s.fc and its bias, four mm.a */
}

static void gradients_reach_everything(void **state)
{
    (void)state;
    check_kind(TACIT_TRAIN_ALL, 0, 4);
}

/* ---- pairs beside encoders' linears ---- */

static tacit_trainable_spec encoder_pairs(tacit_trainable_kind kind)
{
    return (tacit_trainable_spec){.kind = kind,
                                  .target = {"v.*", "a.*=2", "s.*", "mm.*=4", "attn_q"},
                                  .n_targets = 5,
                                  .rank = 3,
                                  .alpha = 6};
}

static void fill_pairs(tacit_trainer *t)
{
    for (size_t i = 0; i < tacit_trainer_layout(t)->values; i++)
        tacit_trainer_values(t)[i] = 0.4f * reference_uniform(71, (uint32_t)i);
}

/* One part of a pair as doubles [rows, cols]: trained, drawn, or the identity. */
typedef struct part_of_pair {
    double *value;
    size_t rows, cols;
} part_of_pair;

static part_of_pair part(const float *from, size_t rows, size_t cols)
{
    part_of_pair p = {calloc(rows * cols, sizeof(double)), rows, cols};
    for (size_t i = 0; i < rows * cols; i++)
        p.value[i] = from ? (double)from[i] : (double)(i / cols == i % cols);
    return p;
}

/* x y, x^T y or x y^T; the operands are freed with `last`. */
static part_of_pair product(const part_of_pair *x, bool x_turned, const part_of_pair *y,
                            bool y_turned)
{
    size_t rows = x_turned ? x->cols : x->rows, inner = x_turned ? x->rows : x->cols;
    part_of_pair p = {NULL, rows, y_turned ? y->rows : y->cols};
    p.value = calloc(p.rows * p.cols, sizeof(double));
    for (size_t i = 0; i < p.rows; i++)
        for (size_t j = 0; j < p.cols; j++)
            for (size_t k = 0; k < inner; k++)
                p.value[i * p.cols + j] += x->value[x_turned ? k * x->cols + i : i * x->cols + k] *
                                           y->value[y_turned ? j * y->cols + k : k * y->cols + j];
    return p;
}

static void expect_part(const char *tensor, const char *name, const float *found,
                        const part_of_pair *expected, double scale)
{
    double off = 0, norm = 0;
    for (size_t i = 0; i < expected->rows * expected->cols; i++) {
        double e = scale * expected->value[i], d = (double)found[i] - e;
        off += d * d;
        norm += e * e;
    }
    if (!(norm > 0) || !(sqrt(off) <= 2e-5 * sqrt(norm)))
        fail_msg("%s, %s: differs by %.3g of %.3g", tensor, name, sqrt(off), sqrt(norm));
}

/* The gradients of a pair follow from that of the weight that it comes to, W + scale B R A: by B
 * scale dW A^T, by A scale B^T dW, by R scale B^T dW A^T. `merged` trains every tensor. */
static void check_pair_of(const lora_site *s, const tacit_low_rank *p, const train_pair *at,
                          const float *grad, const float *d_weight)
{
    part_of_pair a = part(p->a, p->rank, s->n_in), b = part(p->b, s->n_out, p->rank);
    part_of_pair dw = part(d_weight, s->n_out, s->n_in);
    part_of_pair db = product(&dw, false, &a, true), da = product(&b, true, &dw, false);
    part_of_pair dr = product(&da, false, &a, true);
    double scale = (double)p->scale;
    if (at->a != TRAIN_FROZEN)
        expect_part(s->tensor, "A", grad + at->a, &da, scale);
    if (at->b != TRAIN_FROZEN)
        expect_part(s->tensor, "B", grad + at->b, &db, scale);
    if (at->core != TRAIN_FROZEN)
        expect_part(s->tensor, "core", grad + at->core, &dr, scale);
    free(a.value), free(b.value), free(dw.value), free(db.value), free(da.value), free(dr.value);
}

static size_t entry_named(const tacit_layout *l, const char *name)
{
    size_t i = 0;
    while (i < l->count && strcmp(l->entry[i].name, name) != 0)
        i++;
    assert_true(i < l->count);
    return i;
}

static void add_pair_to(float *weight, const lora_site *s, const tacit_low_rank *p)
{
    part_of_pair a = part(p->a, p->rank, s->n_in), b = part(p->b, s->n_out, p->rank);
    part_of_pair r = part(p->core, p->rank, p->rank), br = product(&b, false, &r, false);
    part_of_pair sum = product(&br, false, &a, false);
    for (size_t i = 0; i < s->n_out * s->n_in; i++)
        weight[i] += (float)((double)p->scale * sum.value[i]);
    free(a.value), free(b.value), free(r.value), free(br.value), free(sum.value);
}

/* Linears of the text model have the gradients of test_trainer.c: here encoders' are held to the
 * merged model's. */
static void pairs_beside_encoders_train(void **state)
{
    (void)state;
    static const tacit_trainable_kind kinds[] = {TACIT_TRAIN_LORA, TACIT_TRAIN_LORA_FFA,
                                                 TACIT_TRAIN_LORA_CORE};
    for (size_t k = 0; k < 3; k++) {
        scene s = make_scene();
        tacit_trainable_spec spec = encoder_pairs(kinds[k]), whole = {.kind = TACIT_TRAIN_ALL};
        tacit_trainer *t = fixture_trainer(s.model, &spec, 40, NULL);
        tacit_trainer *merged = fixture_trainer(s.model, &whole, 40, NULL);
        const tacit_layout *l = tacit_trainer_layout(t), *all = tacit_trainer_layout(merged);
        lora_sites sites;
        float *unused = calloc(l->values, sizeof *unused), *frozen = NULL;
        assert_int_equal(lora_sites_of(&sites, s.model, &spec, NULL), TACIT_OK);
        assert_true(sites.encoders);
        assert_true(tacit_training_encodes(s.model, &spec));
        assert_int_equal(train_values_lora(unused, &frozen, &sites, l, &spec, NULL), TACIT_OK);
        tacit_low_rank *pair = calloc(sites.count, sizeof *pair);
        train_pair *place = calloc(sites.count, sizeof *place);
        fill_pairs(t);
        train_values_pairs(pair, &sites, l, spec.kind, tacit_trainer_values(t), frozen);
        train_plan_places(place, &sites, l, spec.kind);
        for (size_t i = 0; i < sites.count; i++)
            add_pair_to(tacit_trainer_values(merged) +
                            all->entry[entry_named(all, sites.site[i].tensor)].offset,
                        &sites.site[i], &pair[i]);
        link_examples(&s);
        tacit_unit unit = {s.example, EXAMPLES};
        fixture_sink g = fixture_gradients(t, &unit, 1), m = fixture_gradients(merged, &unit, 1);
        assert_float_equal(g.loss[0], m.loss[0], 1e-5);
        size_t beside[ENCODERS] = {0};
        for (size_t i = 0; i < sites.count; i++) {
            const lora_site *site = &sites.site[i];
            size_t at = all->entry[entry_named(all, site->tensor)].offset;
            check_pair_of(site, &pair[i], &place[i], g.grad, m.grad + at);
            if (site->place == LORA_ENCODER)
                beside[site->encoder]++;
        }
        /* Two blocks of six and the connector; patches and the connector; a block and two. */
        assert_int_equal(beside[VISION], 13);
        assert_int_equal(beside[SENSOR], 2);
        assert_int_equal(beside[AUDIO], 8);
        fixture_sink_free(&g);
        fixture_sink_free(&m);
        free(unused), free(frozen), free(pair), free(place);
        lora_sites_free(&sites);
        tacit_trainer_free(merged);
        tacit_trainer_free(t);
        free_scene(&s);
    }
}

/* Their file is of Tacit's own kind, gives the values back, and by the row cache the same rows that
 * training computed; the base's rows stay the base's. */
static void pairs_beside_encoders_infer_as_they_train(void **state)
{
    (void)state;
    static const char path[] = TACIT_BINARY_DIR "/encoder-pairs.gguf";
    static const tacit_trainable_kind kinds[] = {TACIT_TRAIN_LORA, TACIT_TRAIN_LORA_CORE};
    for (size_t k = 0; k < 2; k++) {
        scene s = make_scene();
        tacit_trainable_spec spec = encoder_pairs(kinds[k]);
        tacit_trainer *t = fixture_trainer(s.model, &spec, 40, NULL);
        const tacit_layout *l = tacit_trainer_layout(t);
        const tacit_adapter_info info = {.version = 1};
        tacit_adapter *adapter;
        tacit_row_cache *cache;
        tacit_context *c;
        tacit_error err = {0};
        double trained;
        fill_pairs(t);
        float *back = calloc(l->values, sizeof *back);
        if (tacit_adapter_save(path, s.model, &spec, tacit_trainer_values(t), &info, &err) !=
            TACIT_OK)
            fail_msg("%s", err.message);
        assert_int_equal(tacit_adapter_read_values(path, s.model, &spec, back, &err), TACIT_OK);
        assert_memory_equal(back, tacit_trainer_values(t), l->values * sizeof *back);
        assert_int_equal(tacit_adapter_load(&adapter, s.model, path, &err), TACIT_OK);
        assert_int_equal(tacit_trainer_loss(t, &s.input[3], &trained, &err), TACIT_OK);
        assert_int_equal(tacit_row_cache_new(&cache, s.model, 1 << 20, NULL, NULL, &err), TACIT_OK);
        assert_int_equal(tacit_context_new(&c, s.model, NULL, NULL, &err), TACIT_OK);
        for (int bound = 1; bound >= 0; bound--) {
            tacit_input in = s.input[3];
            double loss = 0;
            in.media = calloc(in.n_media, sizeof *in.media);
            for (size_t i = 0; i < in.n_media; i++) {
                in.media[i] = s.input[3].media[i];
                size_t n = (size_t)in.media[i].dim[0] * in.media[i].dim[1] * in.media[i].dim[2];
                in.media[i].digest[0] = (uint8_t)(i + 1);
                in.media[i].values = malloc(n * sizeof(float));
                memcpy(in.media[i].values, s.input[3].media[i].values, n * sizeof(float));
            }
            assert_int_equal(tacit_row_cache_bind(cache, bound ? adapter : NULL, &err), TACIT_OK);
            assert_int_equal(tacit_context_bind(c, bound ? adapter : NULL, &err), TACIT_OK);
            if (tacit_row_cache_fill(cache, &in, &err) != TACIT_OK)
                fail_msg("%s", err.message);
            for (size_t i = 0; i < 5; i++) { /* the last four tokens are predicted */
                size_t first = i == 0 ? 0 : in.count - 5 + i, n = i == 0 ? in.count - 4 : 1;
                const float *logits;
                double sum = 0;
                if (i == 4)
                    break;
                assert_int_equal(
                    tacit_context_feed(c, in.row + first, n, in.media, in.n_media, &err), TACIT_OK);
                logits = tacit_context_logits(c);
                for (size_t v = 0; v < 48; v++)
                    sum += exp((double)logits[v]);
                loss += (log(sum) - (double)logits[in.row[first + n].token]) / 4;
            }
            if (bound)
                assert_float_equal(loss, trained, 1e-4);
            else
                assert_true(fabs(loss - trained) > 1e-3);
            assert_int_equal(tacit_row_cache_get_stats(cache).encoded, bound ? 4 : 8);
            for (size_t i = 0; i < in.n_media; i++)
                free(in.media[i].rows);
            free(in.media);
        }
        tacit_context_free(c);
        tacit_row_cache_free(cache);
        tacit_adapter_free(adapter);
        free(back);
        tacit_trainer_free(t);
        free_scene(&s);
        remove(path);
    }
}

/* malloc'ed rows of a medium by its encoder, in the place of its values. */
static void cache_rows(const tacit_model *model, tacit_media *m)
{
    const model_encoder *e = model_encoder_of(model, m->modality);
    const tacit_media *of = m;
    void *pass;
    m->rows = malloc(m->n_rows * 32 * sizeof(float));
    assert_int_equal(e->kind->pass_new(&pass, e->self, 1, PASS_EXACT, NULL, NULL), TACIT_OK);
    e->kind->forward(pass, NULL, &of, 1, &m->rows);
    e->kind->pass_free(pass);
    m->values = NULL;
}

/* Frozen towers: computing the rows in the trainer and giving them cached is the same, whether all
 * are cached or one after the other. */
static void cached_rows_equal_computed_ones(void **state)
{
    (void)state;
    scene s = make_scene();
    tacit_trainable_spec spec = fixture_spec(TACIT_TRAIN_LORA_FFA);
    tacit_trainer *t = fixture_trainer(s.model, &spec, 40, NULL);
    link_examples(&s);
    tacit_unit unit = {s.example, EXAMPLES};
    fixture_sink computed = fixture_gradients(t, &unit, 1);
    for (size_t i = 0; i < MOST_MEDIA; i++) {
        for (size_t e = 0; e < EXAMPLES; e++)
            if (i < s.input[e].n_media)
                cache_rows(s.model, &s.input[e].media[i]);
        fixture_sink cached = fixture_gradients(t, &unit, 1);
        assert_memory_equal(computed.grad, cached.grad, computed.values * sizeof(float));
        assert_true(computed.loss[0] == cached.loss[0]);
        fixture_sink_free(&cached);
    }
    for (size_t e = 0; e < EXAMPLES; e++)
        for (size_t i = 0; i < s.input[e].n_media; i++)
            free(s.input[e].media[i].rows);
    fixture_sink_free(&computed);
    tacit_trainer_free(t);
    free_scene(&s);
}

/* The layout is the text model's, then each encoder's in the order of the files; one that an
 * example does not use gets no gradient. */
static void the_order_is_that_of_the_files(void **state)
{
    (void)state;
    scene s = make_scene();
    tacit_trainable_spec spec = {.kind = TACIT_TRAIN_ALL};
    tacit_trainer *t = fixture_trainer(s.model, &spec, 40, NULL);
    const tacit_layout *l = tacit_trainer_layout(t);
    static const char *const prefix[] = {"v.", "s.", "a."};
    size_t first[ENCODERS], i = 0;
    for (size_t k = 0; k < ENCODERS; k++) {
        while (i < l->count && strncmp(l->entry[i].name, prefix[k], 2) != 0)
            i++;
        first[k] = i;
    }
    assert_string_equal(l->entry[first[1] - 1].name, "mm.model.fc.weight");
    assert_string_equal(l->entry[first[2] - 1].name, "mm.s.fc.bias");
    assert_string_equal(l->entry[l->count - 1].name, "mm.a.mlp.2.weight");
    link_examples(&s);
    const tacit_unit window_alone = {&s.example[1], 1}; /* its one medium is a window */
    fixture_sink g = fixture_gradients(t, &window_alone, 1);
    double norm = 0;
    for (size_t v = l->entry[first[0]].offset; v < l->values; v++) {
        bool of_window = v >= l->entry[first[1]].offset && v < l->entry[first[2]].offset;
        assert_true(of_window || g.grad[v] == 0);
        norm += (double)g.grad[v] * (double)g.grad[v];
    }
    assert_true(norm > 0);
    fixture_sink_free(&g);
    tacit_trainer_free(t);
    free_scene(&s);
}

static void bits_depend_on_the_unit_alone(void **state)
{
    (void)state;
    scene s = make_scene();
    tacit_trainable_spec spec = {.kind = TACIT_TRAIN_ALL};
    tacit_trainer *one = fixture_trainer(s.model, &spec, 40, NULL);
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

static void expect_refusal(tacit_trainer *t, const tacit_input *in, const char *about)
{
    double loss;
    tacit_error err = {0};
    assert_int_equal(tacit_trainer_loss(t, in, &loss, &err), TACIT_BAD_INPUT);
    if (!strstr(err.message, about))
        fail_msg("'%s' does not say '%s'", err.message, about);
}

static void media_that_do_not_fit_are_refused(void **state)
{
    (void)state;
    scene s = make_scene();
    tacit_trainable_spec spec = {.kind = TACIT_TRAIN_PROJECTOR};
    tacit_trainer *t = fixture_trainer(s.model, &spec, 40, NULL);
    double loss;
    tacit_media *picture = &s.input[2].media[0], *window = &s.input[2].media[1];
    float *values = window->values;
    picture->dim[2] = 9;
    expect_refusal(t, &s.input[2], "8x8");
    picture->dim[2] = 8;
    window->dim[1] = 6;
    expect_refusal(t, &s.input[2], "1 to 5 patches");
    window->dim[1] = PATCHES;
    window->values = NULL;
    expect_refusal(t, &s.input[2], "medium 1 of the example: sensor without values");
    window->values = values;
    window->modality = TACIT_MODALITY_AUDIO;
    expect_refusal(t, &s.input[2], "expected a clip of");
    window->modality = TACIT_MODALITY_PROMPT;
    expect_refusal(t, &s.input[2], "encoder");
    window->modality = TACIT_MODALITY_SENSOR;
    assert_int_equal(tacit_trainer_loss(t, &s.input[2], &loss, NULL), TACIT_OK);
    tacit_trainer_free(t);
    free_scene(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(gradients_reach_every_projector),
        cmocka_unit_test(gradients_reach_everything),
        cmocka_unit_test(pairs_beside_encoders_train),
        cmocka_unit_test(pairs_beside_encoders_infer_as_they_train),
        cmocka_unit_test(cached_rows_equal_computed_ones),
        cmocka_unit_test(bits_depend_on_the_unit_alone),
        cmocka_unit_test(the_order_is_that_of_the_files),
        cmocka_unit_test(media_that_do_not_fit_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
