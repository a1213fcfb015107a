/* Local training on a tiny random llama. Oracles: sums of single gradients that the engine gives
 * outside the code under test, runs without interruption, and runs on other data under one seed. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "../engine/tiny_model.h"
#include "client/local_training.h"
#include "engine/adapter.h"
#include "engine/example.h"
#include "engine/training_checkpoint.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#define OK(call) assert_int_equal((call), TACIT_OK)

static tiny_model tiny;
static char folder[64] = "/tmp/tacit-training-XXXXXX";
static char data_path[128], checkpoint_path[128], poisoned_path[128];
static const uint8_t nonce[32] = {3}, plan_hash[32] = {9}, seed[32] = {5};
static tacit_trainable_spec spec = {
    .kind = TACIT_TRAIN_LORA_FFA, .target = {"attn_output"}, .n_targets = 1, .rank = 2, .alpha = 4};

/* --- data --- */

static void add_record(FILE *f, const char *id, const char *subject, const char *question)
{
    fprintf(
        f,
        "{\"id\":\"%s\",\"subject\":\"%s\",\"messages\":[{\"role\":\"user\",\"content\":\"%s\"},"
        "{\"role\":\"assistant\",\"content\":\"ok %s\"}]}\n",
        id, subject, question, id);
}

static void write_records(size_t n)
{
    FILE *f = fopen(data_path, "w");
    char id[16], subject[16];
    assert_non_null(f);
    for (size_t i = 0; i < n; i++) {
        snprintf(id, sizeof id, "r%zu", i);
        snprintf(subject, sizeof subject, "s%zu", i);
        add_record(f, id, subject, "how many?");
    }
    assert_int_equal(fclose(f), 0);
}

static void write_text(const char *text)
{
    FILE *f = fopen(data_path, "w");
    assert_non_null(f);
    fputs(text, f);
    assert_int_equal(fclose(f), 0);
}

/* --- one run --- */

typedef struct run {
    tacit_mechanism mechanism;
    tacit_optimizer_spec optimizer;
    training_job job;
    tacit_layout layout;
    training_result result;
    volatile sig_atomic_t stop;
    uint32_t stop_after, steps_seen;
    training_progress last;
    tacit_status status;
    tacit_error err;
} run;

static void see_step(void *ctx, const training_progress *at)
{
    run *r = ctx;
    r->steps_seen++;
    r->last = *at;
    assert_int_equal(at->steps, r->job.local_steps ? r->job.local_steps : r->mechanism.steps);
    if (at->step == r->stop_after)
        r->stop = 1;
}

static tacit_mechanism private_steps(uint32_t steps)
{
    return (tacit_mechanism){.kind = TACIT_MECHANISM_SUBSAMPLED_GAUSSIAN,
                             .unit = TACIT_UNIT_RECORD,
                             .neighbours = TACIT_ADD_REMOVE,
                             .clip_norm = 1,
                             .b = 100000,
                             .q_num = TACIT_Q_ONE / 2,
                             .steps = steps,
                             .divisor = 4,
                             .unit_examples = 4};
}

/* Every unit in every step, no noise: what comes out is determined. */
static tacit_mechanism plain_steps(uint32_t steps)
{
    tacit_mechanism m = private_steps(steps);
    m.kind = TACIT_MECHANISM_NONE;
    m.clip_norm = 0;
    m.b = 0;
    m.q_num = TACIT_Q_ONE;
    return m;
}

static void run_begin(run *r, const tacit_model *model, tacit_mechanism mechanism)
{
    *r = (run){.mechanism = mechanism,
               .optimizer = {.kind = TACIT_ADAM,
                             .learning_rate = 0.01,
                             .beta1 = 0.9,
                             .beta2 = 0.99,
                             .epsilon = 1e-8}};
    OK(tacit_layout_make(&r->layout, model, &spec, &r->err));
    r->job = (training_job){.model = model,
                            .mechanism = &r->mechanism,
                            .spec = &spec,
                            .optimizer = &r->optimizer,
                            .values = r->layout.values,
                            .max_rows = 256,
                            .nonce = nonce,
                            .checkpoint = checkpoint_path,
                            .plan_hash = plan_hash,
                            .stop = &r->stop,
                            .progress = see_step,
                            .ctx = r};
    unlink(checkpoint_path);
}

static void run_go(run *r)
{
    snapshot_setup setup = {.path = data_path,
                            .media_folder = folder,
                            .model = r->job.model,
                            .unit = r->mechanism.unit,
                            .max_rows = r->job.max_rows,
                            .memory = 1 << 20};
    OK(snapshot_open(&r->job.snapshot, &setup, &r->err));
    r->status = local_training_run(&r->job, &r->result, &r->err);
    snapshot_close(r->job.snapshot);
}

static void run_end(run *r)
{
    training_result_free(&r->result);
    tacit_layout_free(&r->layout);
}

static bool differs(const training_result *r, size_t n)
{
    return memcmp(r->parent, r->trained, n * sizeof *r->parent) != 0;
}

/* --- the number of steps --- */

static void steps_are_the_plans_whatever_the_data(void **state)
{
    static const char *const texts[] = {
        "", "\n\n", "this is no JSON\n", "{\"id\":\"x\"}\n",
        "{\"id\":\"a\",\"messages\":[{\"role\":\"user\",\"content\":\"no answer\"}]}\n"};
    (void)state;
    for (size_t i = 0; i < 7; i++) {
        run r;
        unlink(data_path);
        if (i < 5)
            write_text(texts[i]);
        else if (i == 5)
            write_records(9);
        run_begin(&r, tiny.model, private_steps(5)); /* i == 6: no file at all */
        run_go(&r);
        OK(r.status);
        assert_int_equal(r.steps_seen, 5);
        assert_true(differs(&r.result, r.job.values)); /* noise came in every case */
        run_end(&r);
    }
}

/* With one seed a data set that gives nothing leaves exactly what the empty one leaves. */
static void useless_data_is_empty_data(void **state)
{
    run empty, useless;
    (void)state;
    write_text("");
    run_begin(&empty, tiny.model, private_steps(3));
    empty.job.test_seed = seed;
    empty.job.insecure = true;
    run_go(&empty);
    write_text("nonsense\n{\"id\":\"x\",\"messages\":[]}\n");
    run_begin(&useless, tiny.model, private_steps(3));
    useless.job.test_seed = seed;
    useless.job.insecure = true;
    run_go(&useless);
    OK(empty.status);
    OK(useless.status);
    assert_memory_equal(empty.result.trained, useless.result.trained,
                        empty.job.values * sizeof(float));
    run_end(&empty);
    run_end(&useless);
}

/* --- one unit changes one unit --- */

static size_t units_of(tacit_privacy_unit unit, size_t *examples)
{
    client_snapshot *snapshot;
    tacit_error err;
    snapshot_setup setup = {.path = data_path,
                            .media_folder = folder,
                            .model = tiny.model,
                            .unit = unit,
                            .max_rows = 256,
                            .memory = 1 << 20};
    OK(snapshot_open(&snapshot, &setup, &err));
    size_t n = snapshot_units(snapshot);
    *examples = 0;
    for (size_t i = 0; i < n; i++) {
        snapshot_examples e;
        OK(snapshot_prepare(snapshot, i, 100, &e, &err));
        *examples += e.count;
        snapshot_release(&e);
    }
    snapshot_close(snapshot);
    return n;
}

/* Two subjects and the nameless one use the same id; so does one of them twice. */
static void write_same_ids(bool with_first)
{
    FILE *f = fopen(data_path, "w");
    assert_non_null(f);
    if (with_first)
        add_record(f, "same", "first", "how many?");
    add_record(f, "same", "second", "how many?");
    add_record(f, "same", "second", "again?");
    fputs("{\"id\":\"same\",\"messages\":[{\"role\":\"user\",\"content\":\"q\"},"
          "{\"role\":\"assistant\",\"content\":\"a\"}]}\n",
          f);
    assert_int_equal(fclose(f), 0);
}

static void a_unit_displaces_no_other(void **state)
{
    size_t examples;
    (void)state;
    write_same_ids(true);
    assert_int_equal(units_of(TACIT_UNIT_SUBJECT, &examples), 3);
    assert_int_equal(examples, 3);
    assert_int_equal(units_of(TACIT_UNIT_RECORD, &examples), 1);
    assert_int_equal(units_of(TACIT_UNIT_DEVICE, &examples), 1);
    assert_int_equal(examples, 1);
    write_same_ids(false);
    assert_int_equal(units_of(TACIT_UNIT_SUBJECT, &examples), 2);
    assert_int_equal(examples, 2);
}

static void another_number_of_values_is_refused(void **state)
{
    run r;
    (void)state;
    write_records(1);
    run_begin(&r, tiny.model, private_steps(1));
    r.job.values++;
    run_go(&r);
    assert_int_equal(r.status, TACIT_REFUSED);
    run_end(&r);
}

/* --- what is computed --- */

typedef struct gradient_sum {
    double *sum;
    size_t values;
} gradient_sum;

static tacit_status sum_up(void *ctx, size_t unit, const float *grad, double loss)
{
    gradient_sum *g = ctx;
    (void)unit;
    (void)loss;
    for (size_t i = 0; i < g->values; i++)
        g->sum[i] += (double)grad[i];
    return TACIT_OK;
}

/* Adds the gradient of one record, alone, at B = 0. */
static void add_gradient_of(gradient_sum *g, const tacit_model *model, const char *line)
{
    tacit_record record;
    tacit_input input;
    tacit_trainer *t;
    tacit_error err;
    OK(tacit_record_parse(&record, line, strlen(line), folder, &err));
    OK(tacit_example_build(&input, model, &record, NULL, &err));
    OK(tacit_trainer_new(&t, model, &spec, 256, NULL, &err));
    const tacit_input *example = &input;
    tacit_unit unit = {&example, 1};
    OK(tacit_trainer_grads(t, &unit, 1, sum_up, g, &err));
    tacit_trainer_free(t);
    tacit_input_free(&input);
    tacit_record_free(&record);
}

static void sum_of_file(gradient_sum *g, const tacit_model *model, const char *skip)
{
    char line[4096];
    FILE *f = fopen(data_path, "r");
    assert_non_null(f);
    while (fgets(line, sizeof line, f)) {
        line[strcspn(line, "\n")] = '\0';
        if (!skip || !strstr(line, skip))
            add_gradient_of(g, model, line);
    }
    fclose(f);
}

/* One step of SGD with learning rate 1: trained = -sum / divisor. */
static void check_plain_step(const tacit_model *model, const char *skip)
{
    run r;
    run_begin(&r, model, plain_steps(1));
    r.optimizer = (tacit_optimizer_spec){.kind = TACIT_SGD, .learning_rate = 1};
    run_go(&r);
    OK(r.status);
    gradient_sum g = {calloc(r.job.values, sizeof(double)), r.job.values};
    sum_of_file(&g, model, skip);
    double largest = 0;
    for (size_t i = 0; i < g.values; i++) {
        double expected = -g.sum[i] / r.mechanism.divisor;
        largest = fabs(expected) > largest ? fabs(expected) : largest;
        if (!(fabs((double)r.result.trained[i] - expected) <= 1e-6 * fabs(expected) + 1e-12))
            fail_msg("value %zu: expected %.9g, found %.9g", i, expected,
                     (double)r.result.trained[i]);
    }
    assert_true(largest > 1e-6); /* the oracle is not all zeros */
    free(g.sum);
    run_end(&r);
}

static void mechanism_none_is_the_naive_mean(void **state)
{
    (void)state;
    write_records(5);
    check_plain_step(tiny.model, NULL);
}

/* What the person at the device is told of a step. */
static void progress_tells_what_a_step_did(void **state)
{
    (void)state;
    run r;
    write_records(5);
    run_begin(&r, tiny.model, private_steps(1));
    r.mechanism.q_num = TACIT_Q_ONE;
    r.mechanism.clip_norm = 0x1p-10; /* below the norm of any record's gradient */
    run_go(&r);
    OK(r.status);
    assert_int_equal(r.last.drawn, 5);
    assert_int_equal(r.last.gradients, 5);
    assert_int_equal(r.last.clipped, 5);
    assert_true(r.last.clip_norm == 0x1p-10);
    assert_true(r.last.loss > 1 && r.last.loss < 20); /* a random model's, of 284 tokens: 5.6 */
    run_end(&r);
    run_begin(&r, tiny.model, private_steps(1));
    r.mechanism.q_num = TACIT_Q_ONE;
    r.mechanism.clip_norm = 0x1p10;
    run_go(&r);
    OK(r.status);
    assert_true(r.last.gradients == 5 && r.last.clipped == 0);
    run_end(&r);
}

/* The learning rate's course over the steps of the plan, also behind an interruption: a first step
 * at 1/3 of the rate is a third of the plain one, and one that goes on is at its own place. */
static void the_learning_rate_follows_its_schedule(void **state)
{
    (void)state;
    write_records(5);
    run plain, warm, whole, cut;
    run_begin(&plain, tiny.model, plain_steps(1));
    plain.optimizer = (tacit_optimizer_spec){.kind = TACIT_SGD, .learning_rate = 1};
    run_go(&plain);
    OK(plain.status);
    run_begin(&warm, tiny.model, plain_steps(1));
    warm.optimizer = (tacit_optimizer_spec){
        .kind = TACIT_SGD, .learning_rate = 1, .rate = TACIT_RATE_LINEAR, .warmup = 2};
    run_go(&warm);
    OK(warm.status);
    for (size_t i = 0; i < plain.job.values; i++) {
        double expected = (double)plain.result.trained[i] / 3;
        assert_true(fabs((double)warm.result.trained[i] - expected) <= 1e-6 * fabs(expected));
    }
    run_end(&plain);
    run_end(&warm);
    tacit_optimizer_spec decays = {
        .kind = TACIT_SGD, .learning_rate = 1, .rate = TACIT_RATE_COSINE, .warmup = 1};
    run_begin(&whole, tiny.model, plain_steps(5));
    whole.optimizer = decays;
    run_go(&whole);
    OK(whole.status);
    run_begin(&cut, tiny.model, plain_steps(5));
    cut.optimizer = decays;
    cut.stop_after = 3;
    run_go(&cut);
    assert_int_equal(cut.status, TACIT_AGAIN);
    cut.stop = 0;
    cut.stop_after = 0;
    run_go(&cut);
    OK(cut.status);
    assert_memory_equal(whole.result.trained, cut.result.trained,
                        whole.job.values * sizeof *whole.result.trained);
    run_end(&whole);
    run_end(&cut);
}

static tacit_model *load_poisoned(void)
{
    tacit_model *m;
    tacit_error err;
    tiny_write_poisoned(poisoned_path);
    OK(tacit_model_load(&m, poisoned_path, NULL, 0, NULL, &err));
    return m;
}

static void write_with_last(const char *question)
{
    FILE *f = fopen(data_path, "w");
    assert_non_null(f);
    for (int i = 0; i < 3; i++) {
        char id[16];
        snprintf(id, sizeof id, "g%d", i);
        add_record(f, id, id, "how many?");
    }
    add_record(f, "last", "last", question);
    fclose(f);
}

static void not_a_number_counts_as_zero(void **state)
{
    tacit_model *m = load_poisoned();
    (void)state;
    write_with_last("what is a Z?");
    gradient_sum g = {calloc(4096, sizeof(double)), 0};
    tacit_layout layout;
    OK(tacit_layout_make(&layout, m, &spec, NULL));
    g.values = layout.values;
    sum_of_file(&g, m, "\"id\":\"g"); /* the last one alone: it does spoil a sum */
    assert_true(isnan(g.sum[0]));
    free(g.sum);
    tacit_layout_free(&layout);
    check_plain_step(m, "\"id\":\"last\"");
    tacit_model_free(m);
}

/* Under one seed, with as many units: a unit of NaN, one that is too long and one without a usable
 * example leave the same bits. */
static void units_without_a_gradient_are_alike(void **state)
{
    static char long_question[600];
    tacit_model *m = load_poisoned();
    float *first = NULL;
    (void)state;
    memset(long_question, 'a', sizeof long_question - 1);
    const char *const last[] = {"what is a Z?", long_question};
    for (size_t i = 0; i < 2; i++) {
        run r;
        write_with_last(last[i]);
        run_begin(&r, m, private_steps(3));
        r.mechanism.q_num = TACIT_Q_ONE;
        r.job.test_seed = seed;
        r.job.insecure = true;
        run_go(&r);
        OK(r.status);
        if (i == 0) {
            first = r.result.trained;
            r.result.trained = NULL;
        } else {
            assert_memory_equal(first, r.result.trained, r.job.values * sizeof(float));
        }
        run_end(&r);
    }
    free(first);
    tacit_model_free(m);
}

/* --- the device unit: local steps, then one release --- */

/* An adapter file of small values to start from; the values are the caller's to free. */
static float *write_parent(char path[128], size_t n)
{
    tacit_adapter_info info = {.version = 3, .parent_version = 2, .has_base_digest = true};
    tacit_error err;
    float *values = malloc(n * sizeof *values);
    assert_non_null(values);
    for (size_t i = 0; i < n; i++)
        values[i] = 0.001f * (float)(i % 31) - 0.01f;
    memcpy(info.base_digest, tacit_model_base_digest(tiny.model), sizeof info.base_digest);
    snprintf(path, 128, "%s/parent.gguf", folder);
    OK(tacit_adapter_save(path, tiny.model, &spec, values, &info, &err));
    return values;
}

static tacit_mechanism whole_device(bool noised)
{
    tacit_mechanism m = private_steps(1);
    m.unit = TACIT_UNIT_DEVICE;
    m.q_num = TACIT_Q_ONE;
    m.divisor = 1;
    m.unit_examples = 100;
    m.kind = noised ? m.kind : TACIT_MECHANISM_NONE;
    m.b = noised ? m.b : 0;
    m.clip_norm = noised ? 0.05 : 0;
    return m;
}

static const char *whole_parent; /* of these runs; NULL: B = 0 */

/* A run of `steps` local steps over the data as it stands, under the one seed. */
static void run_whole(run *r, const tacit_model *model, bool noised, uint32_t steps)
{
    run_begin(r, model, whole_device(noised));
    r->job.local_steps = steps;
    r->job.test_seed = seed;
    r->job.insecure = true;
    r->job.parent = whole_parent;
    run_go(r);
    OK(r->status);
    assert_int_equal(r->steps_seen, steps);
    assert_true(noised == (r->result.release != NULL));
}

/* One local step of SGD with rate 1 is the mean gradient of the examples that are finite. */
static void check_local_step(const tacit_model *model, size_t n)
{
    run r;
    run_begin(&r, model, whole_device(false));
    r.optimizer = (tacit_optimizer_spec){.kind = TACIT_SGD, .learning_rate = 1};
    r.job.local_steps = 1;
    run_go(&r);
    OK(r.status);
    gradient_sum g = {calloc(r.job.values, sizeof(double)), r.job.values};
    sum_of_file(&g, model, NULL);
    double largest = 0;
    for (size_t i = 0; i < g.values; i++)
        largest = fmax(largest, fabs(g.sum[i]));
    assert_true(n == 0 || largest > 1e-3);
    for (size_t i = 0; i < g.values; i++) {
        double expected = n ? -g.sum[i] / (double)n : 0;
        if (!(fabs((double)r.result.trained[i] - expected) <= 1e-5 * largest))
            fail_msg("value %zu: expected %.9g, found %.9g", i, expected,
                     (double)r.result.trained[i]);
    }
    free(g.sum);
    run_end(&r);
}

static void a_local_step_is_a_step_on_the_device(void **state)
{
    (void)state;
    write_records(5);
    check_local_step(tiny.model, 5);
    write_text("");
    check_local_step(tiny.model, 0);
}

/* The release less the noise of an empty store, which moves nothing, is the clipped delta that the
 * same steps give without noise; the adapter is the parent plus the release. */
static void a_release_is_the_clipped_delta_and_noise(void **state)
{
    run plain, noised, empty;
    char path[128];
    tacit_layout layout;
    (void)state;
    OK(tacit_layout_make(&layout, tiny.model, &spec, NULL));
    free(write_parent(path, layout.values));
    tacit_layout_free(&layout);
    whole_parent = path;
    write_records(5);
    run_whole(&plain, tiny.model, false, 4);
    run_whole(&noised, tiny.model, true, 4);
    write_text("");
    run_whole(&empty, tiny.model, true, 4);
    double squares = 0, sum = 0;
    for (size_t i = 0; i < plain.job.values; i++)
        squares += pow((double)plain.result.trained[i] - (double)plain.result.parent[i], 2);
    assert_true(sqrt(squares) > 0.05); /* what is clipped */
    for (size_t i = 0; i < plain.job.values; i++) {
        double delta = (double)plain.result.trained[i] - (double)plain.result.parent[i];
        double exact = delta / sqrt(squares) * 65536;
        double x = (double)(noised.result.release[i] - empty.result.release[i]);
        assert_true(fabs(x - exact) < 1.5);
        sum += x * x;
        double left = (double)noised.result.parent[i] + noised.result.release[i] * 0.05 / 65536;
        assert_true(fabs((double)noised.result.trained[i] - left) <= 1e-6 * fabs(left));
    }
    assert_true(sum <= 65536.0 * 65536.0);
    whole_parent = NULL;
    unlink(path);
    run_end(&plain);
    run_end(&noised);
    run_end(&empty);
}

/* Whatever the data: the same steps, and with nothing usable the release of an empty store. */
static void a_whole_device_is_blind(void **state)
{
    static char long_question[600];
    static const char *const texts[] = {"", "this is no JSON\n", "{\"id\":\"x\"}\n"};
    tacit_model *m = load_poisoned();
    run empty, r;
    (void)state;
    memset(long_question, 'a', sizeof long_question - 1);
    write_text("");
    run_whole(&empty, m, true, 3);
    for (size_t i = 0; i < 5; i++) {
        if (i < 3)
            write_text(texts[i]);
        else
            write_with_last(i == 3 ? "what is a Z?" : long_question);
        run_whole(&r, m, true, 3);
        /* With 'Z' among the examples no gradient of the device is finite; what is too long alone
         * leaves the other three examples. */
        if (i == 4)
            assert_memory_not_equal(empty.result.release, r.result.release,
                                    r.job.values * sizeof(int32_t));
        else
            assert_memory_equal(empty.result.release, r.result.release,
                                r.job.values * sizeof(int32_t));
        run_end(&r);
    }
    run_end(&empty);
    tacit_model_free(m);
}

/* A gradient that is not finite is a step that moves nothing, and no more than that: one example of
 * four spoils the steps that draw it. (None or all of 60 do so with probability 4e-8.) */
static void a_local_step_is_spoilt_alone(void **state)
{
    tacit_model *m = load_poisoned();
    run r;
    (void)state;
    write_with_last("what is a Z?");
    run_begin(&r, m, whole_device(false));
    r.mechanism.unit_examples = 1;
    r.optimizer.learning_rate = 1e-4;
    r.job.local_steps = 60;
    run_go(&r);
    OK(r.status);
    assert_true(differs(&r.result, r.job.values));
    for (size_t i = 0; i < r.job.values; i++)
        assert_true(isfinite(r.result.trained[i]));
    run_end(&r);
    tacit_model_free(m);
}

/* A restart continues the local steps bit for bit; noise is drawn when they are done. */
static void a_whole_device_restarts_bit_exact(void **state)
{
    run whole, cut;
    (void)state;
    write_records(4);
    run_whole(&whole, tiny.model, true, 6);
    run_begin(&cut, tiny.model, whole_device(true));
    cut.job.local_steps = 6;
    cut.job.test_seed = seed;
    cut.job.insecure = true;
    cut.stop_after = 2;
    run_go(&cut);
    assert_int_equal(cut.status, TACIT_AGAIN);
    assert_null(cut.result.release);
    cut.stop = 0;
    cut.stop_after = 0;
    run_go(&cut);
    OK(cut.status);
    assert_int_equal(cut.steps_seen, 6);
    assert_memory_equal(whole.result.release, cut.result.release, cut.job.values * sizeof(int32_t));
    /* Without the seed a second release of the same checkpoint has noise of its own. */
    training_result_free(&cut.result);
    cut.job.test_seed = NULL;
    run_go(&cut);
    OK(cut.status);
    assert_memory_not_equal(whole.result.release, cut.result.release,
                            cut.job.values * sizeof(int32_t));
    run_end(&whole);
    run_end(&cut);
}

/* What the log does not call insecure has no seed: nothing is trained. */
static void a_test_seed_needs_a_reserve_that_says_so(void **state)
{
    run r;
    (void)state;
    write_records(3);
    run_begin(&r, tiny.model, private_steps(2));
    r.job.test_seed = seed;
    run_go(&r);
    assert_int_equal(r.status, TACIT_REFUSED);
    assert_null(r.result.trained);
    assert_int_equal(r.steps_seen, 0);
    run_end(&r);
}

/* --- tree noise: each unit in its own steps --- */

static tacit_mechanism tree_steps(uint32_t steps, uint32_t separation)
{
    tacit_mechanism m = private_steps(steps);
    m.kind = TACIT_MECHANISM_TREE_GAUSSIAN;
    m.q_num = TACIT_Q_ONE;
    m.minimum_separation = separation;
    return m;
}

static void run_tree(run *r, uint32_t stop_after)
{
    run_begin(r, tiny.model, tree_steps(6, 3));
    r->job.test_seed = seed;
    r->job.insecure = true;
    r->stop_after = stop_after;
    run_go(r);
}

/* A restart anywhere, the noise of whole subtrees before it: the same bits. */
static void tree_noise_restarts_bit_exact(void **state)
{
    run whole, cut;
    (void)state;
    write_records(7);
    run_tree(&whole, 0);
    OK(whole.status);
    run_tree(&cut, 3);
    assert_int_equal(cut.status, TACIT_AGAIN);
    cut.stop = 0;
    cut.stop_after = 5;
    run_go(&cut);
    assert_int_equal(cut.status, TACIT_AGAIN);
    cut.stop = 0;
    cut.stop_after = 0;
    run_go(&cut);
    OK(cut.status);
    assert_int_equal(cut.steps_seen, 6);
    assert_memory_equal(whole.result.trained, cut.result.trained, whole.job.values * sizeof(float));
    run_end(&whole);
    run_end(&cut);
}

/* The seed is the round's own and lies in the checkpoint: without a test seed, a restart goes on
 * with it, which another run does not have. */
static void tree_noise_keeps_its_seed(void **state)
{
    run first, other;
    (void)state;
    write_text("");
    run_begin(&first, tiny.model, tree_steps(4, 4));
    run_go(&first);
    OK(first.status);
    run_begin(&other, tiny.model, tree_steps(4, 4));
    run_go(&other);
    OK(other.status);
    assert_memory_not_equal(first.result.trained, other.result.trained,
                            first.job.values * sizeof(float));
    run_end(&first);
    run_end(&other);
}

/* A unit's slot is its own: another record changes nothing of the steps that it is not in. So with
 * every unit in one step of six, a unit more moves one step, seen in the local log. */
static void slots_follow_from_who_a_unit_is(void **state)
{
    static const uint8_t key[32] = {7}, other_key[32] = {8};
    static const tacit_privacy_unit kinds[] = {TACIT_UNIT_RECORD, TACIT_UNIT_SUBJECT};
    (void)state;
    for (size_t k = 0; k < 2; k++) {
        uint64_t tags[2][4] = {{0}};
        size_t other = 0;
        for (size_t with = 0; with < 2; with++) {
            client_snapshot *s;
            tacit_error err;
            snapshot_setup setup = {.path = data_path,
                                    .media_folder = folder,
                                    .model = tiny.model,
                                    .unit = kinds[k],
                                    .max_rows = 256};
            FILE *f = fopen(data_path, "w");
            if (with)
                add_record(f, "a", "a", "first in every order");
            add_record(f, "m", "m", "how many?");
            add_record(f, "z", "z", "how many?");
            fputs("{\"id\":\"n\",\"messages\":[{\"role\":\"user\",\"content\":\"q\"},"
                  "{\"role\":\"assistant\",\"content\":\"a\"}]}\n",
                  f);
            fclose(f);
            OK(snapshot_open(&s, &setup, &err));
            assert_int_equal(snapshot_units(s), 3 + with);
            for (size_t i = 0; i < 3 + with; i++) {
                tags[with][i] = snapshot_unit_tag(s, i, key);
                assert_true(tags[with][i] != snapshot_unit_tag(s, i, other_key));
            }
            snapshot_close(s);
        }
        for (size_t i = 0; i < 4; i++) { /* all but one of the larger store, in its order */
            bool known = tags[1][i] == tags[0][i - other];
            other += !known;
        }
        assert_int_equal(other, 1);
    }
}

/* --- interruption --- */

static void restart_is_bit_exact(void **state)
{
    run whole, cut;
    (void)state;
    write_records(4);
    run_begin(&whole, tiny.model, plain_steps(6));
    run_go(&whole);
    OK(whole.status);
    run_begin(&cut, tiny.model, plain_steps(6));
    cut.stop_after = 2;
    run_go(&cut);
    assert_int_equal(cut.status, TACIT_AGAIN);
    assert_int_equal(cut.steps_seen, 2);
    cut.stop = 0;
    cut.stop_after = 5;
    run_go(&cut);
    assert_int_equal(cut.status, TACIT_AGAIN);
    assert_int_equal(cut.steps_seen, 5);
    cut.stop = 0;
    cut.stop_after = 0;
    run_go(&cut);
    OK(cut.status);
    assert_int_equal(cut.steps_seen, 6);
    assert_memory_equal(whole.result.trained, cut.result.trained, whole.job.values * sizeof(float));
    run_end(&whole);
    run_end(&cut);
}

/* A run that has all its steps needs none: the same values come out, whatever the data is now. */
static void finished_training_is_only_read(void **state)
{
    run r;
    (void)state;
    write_records(4);
    run_begin(&r, tiny.model, private_steps(3));
    run_go(&r);
    OK(r.status);
    float *before = r.result.trained;
    r.result.trained = NULL;
    training_result_free(&r.result);
    write_text("");
    run_go(&r);
    OK(r.status);
    assert_int_equal(r.steps_seen, 3);
    assert_memory_equal(before, r.result.trained, r.job.values * sizeof(float));
    free(before);
    run_end(&r);
}

static void checkpoints_hold_every_bit(void **state)
{
    enum { N = 37 };
    static const uint8_t bytes[] = {1, 0, 255, 3, 4, 5, 6};
    float values[N], read_values[N];
    tacit_optimizer a, b;
    tacit_optimizer_spec kinds[] = {
        {.kind = TACIT_ADAM, .learning_rate = 1, .beta1 = 0.9, .beta2 = 0.99, .epsilon = 1e-8},
        {.kind = TACIT_SGD, .learning_rate = 1, .momentum = 0.5}};
    tacit_error err;
    training_place place = {0};
    bool found;
    (void)state;
    for (size_t k = 0; k < 2; k++) {
        OK(tacit_optimizer_init(&a, &kinds[k], N, &err));
        OK(tacit_optimizer_init(&b, &kinds[k], N, &err));
        for (size_t i = 0; i < N; i++)
            values[i] = ldexpf((float)i - 17.3f, (int)i - 140); /* denormals as well */
        values[0] = -0.0f;
        tacit_optimizer_step(&a, values, values, 1);
        OK(training_checkpoint_write(checkpoint_path, plan_hash,
                                     (training_place){4, 0.1 + (double)k}, values, &a,
                                     (tacit_span){bytes, 7 * k}, &err));
        tacit_buffer beside = {.cap = 0};
        OK(training_checkpoint_read(checkpoint_path, plan_hash, &place, read_values, &b, &beside,
                                    &found, &err));
        assert_true(found);
        assert_int_equal(beside.size, 7 * k);
        if (k)
            assert_memory_equal(beside.data, bytes, 7 * k);
        tacit_buffer_free(&beside);
        assert_int_equal(place.steps_done, 4);
        assert_true(place.clip_norm == 0.1 + (double)k);
        assert_int_equal(b.step, a.step);
        assert_memory_equal(values, read_values, sizeof values);
        assert_memory_equal(a.first, b.first, sizeof values);
        if (a.second)
            assert_memory_equal(a.second, b.second, sizeof values);
        tacit_optimizer_fini(&a);
        tacit_optimizer_fini(&b);
    }
    struct stat st;
    assert_int_equal(stat(checkpoint_path, &st), 0);
    assert_int_equal(st.st_mode & 0777, 0600);
}

/* The bytes of a double in a file, at `at`: a checkpoint's clip norm. */
enum { CLIP_AT = 8 + 32 + 4 + 8 + 4 + 8 };

static double checkpoint_clip(void)
{
    FILE *file = fopen(checkpoint_path, "rb");
    double clip = 0; /* little-endian like the file on what runs tests */
    assert_non_null(file);
    assert_int_equal(fseek(file, CLIP_AT, SEEK_SET), 0);
    assert_int_equal(fread(&clip, sizeof clip, 1, file), 1);
    assert_int_equal(fclose(file), 0);
    return clip;
}

static tacit_mechanism adaptive_steps(uint32_t steps)
{
    tacit_mechanism m = private_steps(steps);
    m.clip_norm = 50;
    m.quantile_b = 400000;
    m.quantile_target = 0.5;
    m.clip_rate = 0.5;
    m.clip_min = 0.001;
    m.clip_max = 100;
    return m;
}

/* A restart goes on at the clip norm that the last whole step left, and so does what it noises:
 * with one seed, steps that are the first of their run differ from each other by their clip norm
 * alone. */
static void a_restart_goes_on_at_its_clip_norm(void **state)
{
    run first, second, alone;
    (void)state;
    write_text(""); /* noise alone: what a step leaves is proportional to its clip norm */
    run_begin(&first, tiny.model, adaptive_steps(2));
    first.job.test_seed = seed;
    first.job.insecure = true;
    first.optimizer = (tacit_optimizer_spec){.kind = TACIT_SGD, .learning_rate = 1};
    first.stop_after = 1;
    run_go(&first);
    assert_int_equal(first.status, TACIT_AGAIN);
    double clip = checkpoint_clip();
    assert_true(clip > 0.001 && clip < 100 && clip != 50);
    first.stop = 0;
    first.stop_after = 0;
    run_go(&first); /* its second step, with the noise of a first one */
    OK(first.status);
    run_begin(&second, tiny.model, adaptive_steps(1));
    second.job.test_seed = seed;
    second.job.insecure = true;
    second.optimizer = first.optimizer;
    run_go(&second);
    OK(second.status);
    run_begin(&alone, tiny.model, adaptive_steps(1));
    alone.mechanism.clip_norm = clip;
    alone.job.test_seed = seed;
    alone.job.insecure = true;
    alone.optimizer = first.optimizer;
    run_go(&alone);
    OK(alone.status);
    for (size_t i = 0; i < first.job.values; i++) {
        float both = second.result.trained[i] + (alone.result.trained[i] - alone.result.parent[i]);
        assert_true(fabsf(first.result.trained[i] - both) <= 1e-5f * (1 + fabsf(both)));
    }
    run_end(&first);
    run_end(&second);
    run_end(&alone);
}

/* With a fixed clip norm the checkpoint's is the plan's, or it is not this plan's checkpoint. */
static void a_fixed_clip_norm_is_the_plans(void **state)
{
    run r;
    (void)state;
    write_records(2);
    run_begin(&r, tiny.model, private_steps(3));
    r.stop_after = 1;
    run_go(&r);
    assert_int_equal(r.status, TACIT_AGAIN);
    assert_true(checkpoint_clip() == 1);
    r.stop = 0;
    r.mechanism.clip_norm = 0.5;
    run_go(&r);
    assert_int_equal(r.status, TACIT_INTEGRITY);
    run_end(&r);
}

static void torn_checkpoints_begin_anew(void **state)
{
    run r;
    struct stat st;
    (void)state;
    write_records(4);
    run_begin(&r, tiny.model, plain_steps(3));
    r.stop_after = 2;
    run_go(&r);
    assert_int_equal(r.status, TACIT_AGAIN);
    assert_int_equal(stat(checkpoint_path, &st), 0);
    assert_int_equal(truncate(checkpoint_path, st.st_size - 1), 0);
    r.stop = 0;
    r.stop_after = r.steps_seen = 0;
    run_go(&r);
    OK(r.status);
    assert_int_equal(r.steps_seen, 3);
    run_end(&r);
}

static void checkpoints_of_other_plans_are_refused(void **state)
{
    static const uint8_t other[32] = {1};
    run r;
    (void)state;
    write_records(2);
    run_begin(&r, tiny.model, plain_steps(2));
    run_go(&r);
    OK(r.status);
    training_result_free(&r.result);
    r.job.plan_hash = other;
    run_go(&r);
    assert_int_equal(r.status, TACIT_INTEGRITY);
    run_end(&r);
}

/* --- the parent --- */

static void training_starts_at_the_parent(void **state)
{
    run r;
    char path[128];
    (void)state;
    write_text("");
    run_begin(&r, tiny.model, plain_steps(1));
    float *values = write_parent(path, r.job.values);
    r.job.parent = path;
    run_go(&r);
    OK(r.status);
    assert_memory_equal(r.result.parent, values, r.job.values * sizeof *values);
    assert_memory_equal(r.result.trained, values, r.job.values * sizeof *values); /* no data */
    free(values);
    unlink(path);
    run_end(&r);
}

/* --- the adapter that leaves --- */

typedef struct loss_sum {
    double loss;
    size_t records;
} loss_sum;

static tacit_status add_loss(void *ctx, size_t unit, const float *grad, double loss)
{
    loss_sum *s = ctx;
    (void)unit;
    (void)grad;
    s->loss += loss;
    s->records++;
    return TACIT_OK;
}

/* The trainer's mean loss over the records of the data file, at these values. */
static double trainers_loss(const tacit_model *model, const float *values, size_t n)
{
    char line[4096];
    tacit_trainer *t;
    tacit_error err;
    loss_sum sum = {0};
    FILE *f = fopen(data_path, "r");
    assert_non_null(f);
    OK(tacit_trainer_new(&t, model, &spec, 256, NULL, &err));
    if (values)
        memcpy(tacit_trainer_values(t), values, n * sizeof *values);
    while (fgets(line, sizeof line, f)) {
        tacit_record record;
        tacit_input input;
        line[strcspn(line, "\n")] = '\0';
        OK(tacit_record_parse(&record, line, strlen(line), folder, &err));
        OK(tacit_example_build(&input, model, &record, NULL, &err));
        const tacit_input *example = &input;
        tacit_unit unit = {&example, 1};
        OK(tacit_trainer_grads(t, &unit, 1, add_loss, &sum, &err));
        tacit_input_free(&input);
        tacit_record_free(&record);
    }
    tacit_trainer_free(t);
    fclose(f);
    return sum.loss / (double)sum.records;
}

/* What the program `tacit eval` says about the data file under an adapter. */
static double evaluated_loss(const char *adapter)
{
    char command[600], text[2048] = "";
    snprintf(command, sizeof command,
             TACIT_BINARY_DIR "/bin/tacit eval -m %s --adapter %s --data %s -n 1 -t 1 --json",
             tiny.text, adapter, data_path);
    FILE *f = popen(command, "r");
    assert_non_null(f);
    size_t n = fread(text, 1, sizeof text - 1, f);
    text[n] = '\0';
    assert_int_equal(pclose(f), 0);
    const char *loss = strstr(text, "\"loss\":");
    assert_non_null(loss);
    return strtod(loss + 7, NULL);
}

/* The noised values as the device exports them, judged by inference in another program: the file's
 * loss is the trainer's, which noise has moved far from the base's. */
static void an_exported_adapter_infers_what_was_trained(void **state)
{
    run r;
    char path[128];
    tacit_adapter_info info = {.version = 1, .has_base_digest = true};
    (void)state;
    write_records(6);
    run_begin(&r, tiny.model, private_steps(8));
    r.optimizer.learning_rate = 0.05;
    run_go(&r);
    OK(r.status);
    memcpy(info.base_digest, tacit_model_base_digest(tiny.model), sizeof info.base_digest);
    snprintf(path, sizeof path, "%s/out.gguf", folder);
    OK(tacit_adapter_save(path, tiny.model, &spec, r.result.trained, &info, &r.err));
    double base = trainers_loss(tiny.model, NULL, 0);
    double trained = trainers_loss(tiny.model, r.result.trained, r.job.values);
    double inferred = evaluated_loss(path);
    if (!(fabs(inferred - trained) <= 2e-5 * fabs(trained)) ||
        !(fabs(trained - base) > 1e-3 * fabs(base)))
        fail_msg("base %.9g, trainer %.9g, tacit eval %.9g", base, trained, inferred);
    unlink(path);
    run_end(&r);
}

static int set_up(void **state)
{
    (void)state;
    tiny = tiny_load(false);
    if (!mkdtemp(folder))
        return -1;
    snprintf(data_path, sizeof data_path, "%s/data.jsonl", folder);
    snprintf(checkpoint_path, sizeof checkpoint_path, "%s/run.ckpt", folder);
    snprintf(poisoned_path, sizeof poisoned_path, "%s/poisoned.gguf", folder);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    unlink(data_path);
    unlink(checkpoint_path);
    unlink(poisoned_path);
    rmdir(folder);
    tiny_free(&tiny);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(steps_are_the_plans_whatever_the_data),
        cmocka_unit_test(useless_data_is_empty_data),
        cmocka_unit_test(a_unit_displaces_no_other),
        cmocka_unit_test(another_number_of_values_is_refused),
        cmocka_unit_test(mechanism_none_is_the_naive_mean),
        cmocka_unit_test(progress_tells_what_a_step_did),
        cmocka_unit_test(the_learning_rate_follows_its_schedule),
        cmocka_unit_test(not_a_number_counts_as_zero),
        cmocka_unit_test(units_without_a_gradient_are_alike),
        cmocka_unit_test(a_local_step_is_a_step_on_the_device),
        cmocka_unit_test(a_release_is_the_clipped_delta_and_noise),
        cmocka_unit_test(a_whole_device_is_blind),
        cmocka_unit_test(a_local_step_is_spoilt_alone),
        cmocka_unit_test(a_whole_device_restarts_bit_exact),
        cmocka_unit_test(a_test_seed_needs_a_reserve_that_says_so),
        cmocka_unit_test(tree_noise_restarts_bit_exact),
        cmocka_unit_test(tree_noise_keeps_its_seed),
        cmocka_unit_test(slots_follow_from_who_a_unit_is),
        cmocka_unit_test(restart_is_bit_exact),
        cmocka_unit_test(finished_training_is_only_read),
        cmocka_unit_test(checkpoints_hold_every_bit),
        cmocka_unit_test(a_restart_goes_on_at_its_clip_norm),
        cmocka_unit_test(a_fixed_clip_norm_is_the_plans),
        cmocka_unit_test(torn_checkpoints_begin_anew),
        cmocka_unit_test(checkpoints_of_other_plans_are_refused),
        cmocka_unit_test(training_starts_at_the_parent),
        cmocka_unit_test(an_exported_adapter_infers_what_was_trained),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
