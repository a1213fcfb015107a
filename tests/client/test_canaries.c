/* Training with canaries on a tiny random llama, and the test of the test: with the noise that was
 * accounted the bound lies under the claim, with faults of the private step above it. Everything
 * that is drawn follows from test seeds. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "../engine/tiny_model.h"
#include "client/local_training.h"
#include "numbered_records.h"
#include "privacy/accountant.h"
#include "privacy/canary_bound.h"
#include "private_step_faults.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define OK(call) assert_int_equal((call), TACIT_OK)

static tiny_model tiny;
static size_t values;
static char folder[64] = "/tmp/tacit-canaries-XXXXXX";
static char data_path[128], checkpoint_path[128];
static const uint8_t nonce[32], plan_hash[32] = {9};
static const tacit_trainable_spec spec = {.kind = TACIT_TRAIN_LORA_FFA,
                                          .target = {"attn_output", "ffn_down"},
                                          .n_targets = 2,
                                          .rank = 8,
                                          .alpha = 16};
static const tacit_optimizer_spec adam = {
    .kind = TACIT_ADAM, .learning_rate = 0.01, .beta1 = 0.9, .beta2 = 0.999, .epsilon = 1e-8};

static tacit_mechanism steps_of(uint32_t steps, double q, double z)
{
    tacit_mechanism m = {.kind = TACIT_MECHANISM_SUBSAMPLED_GAUSSIAN,
                         .unit = TACIT_UNIT_RECORD,
                         .neighbours = TACIT_ADD_REMOVE,
                         .clip_norm = 0.5,
                         .steps = steps,
                         .divisor = 8,
                         .unit_examples = 4};
    tacit_error err;
    OK(tacit_q_num_for_rate(&m.q_num, q, &err));
    OK(tacit_b_for_noise_multiplier(&m.b, z, &err));
    return m;
}

/* The least noise with which these steps cost `epsilon`. */
static tacit_mechanism steps_for(uint32_t steps, double q, double epsilon)
{
    const tacit_accountant *pld;
    tacit_event event = {TACIT_ADD_REMOVE, 1, q, steps};
    tacit_error err;
    double z;
    OK(tacit_accountant_find(&pld, "pld", &err));
    OK(tacit_accountant_calibrate(pld, &event, epsilon, 0.99e-5, &z, &err));
    return steps_of(steps, q, z);
}

static canary_set *make_set(size_t count, const tacit_mechanism *m, uint8_t seed)
{
    const uint8_t seeds[32] = {seed};
    canary_set *set;
    tacit_error err;
    OK(canary_set_new(&set, count, m, values, 1e-5, seeds, &err));
    return set;
}

static void stop_at_3(void *ctx, const training_progress *at)
{
    if (at->step == 3)
        *(volatile sig_atomic_t *)ctx = 1;
}

/* One call of local training: from the beginning, unless a checkpoint is there. */
static tacit_status train(canary_set *set, const tacit_mechanism *m, uint8_t seed,
                          volatile sig_atomic_t *stop, tacit_error *err)
{
    const uint8_t seeds[32] = {seed};
    snapshot_setup setup = {.path = data_path,
                            .media_folder = folder,
                            .model = tiny.model,
                            .unit = m->unit,
                            .max_rows = 128,
                            .memory = 1 << 20};
    training_job job = {.model = tiny.model,
                        .mechanism = m,
                        .spec = &spec,
                        .optimizer = &adam,
                        .local_steps = m->unit == TACIT_UNIT_DEVICE ? 2 : 0,
                        .values = values,
                        .max_rows = 128,
                        .canaries = set,
                        .nonce = nonce,
                        .test_seed = seeds,
                        .insecure = true,
                        .checkpoint = checkpoint_path,
                        .plan_hash = plan_hash,
                        .stop = stop,
                        .progress = stop ? stop_at_3 : NULL,
                        .ctx = (void *)(uintptr_t)stop};
    training_result result;
    OK(snapshot_open(&job.snapshot, &setup, err));
    tacit_status status = local_training_run(&job, &result, err);
    snapshot_close(job.snapshot);
    training_result_free(&result);
    return status;
}

static void fault(const char *name)
{
    assert_true(step_fault_set(name));
}

/* --- what a canary does --- */

/* Every unit in every step, nothing else in the sum, no noise: a canary that is in leaves exactly
 * the clip norm at its own value, truncated to the grid; one that is out leaves nothing. */
static void one_that_is_in_is_a_clipped_unit(void **state)
{
    tacit_mechanism m = steps_of(3, 1, 1);
    static const size_t counts[] = {1, 7, 1000, 1024};
    tacit_error err;
    (void)state;
    write_numbered_records(data_path, 0);
    fault("noise_off");
    for (size_t k = 0; k < 4; k++) {
        canary_set *set = make_set(counts[k], &m, (uint8_t)(k + 3));
        size_t in = 0;
        unlink(checkpoint_path);
        OK(train(set, &m, 1, NULL, &err));
        const tacit_canary_scores *s = canary_set_scores(set);
        assert_int_equal(s->count, counts[k]);
        for (size_t i = 0; i < s->count; i++) {
            double expected = s->included[i] ? 3 * m.clip_norm / m.divisor : 0;
            assert_true(fabs(s->score[i] - expected) <= 3 * m.clip_norm / m.divisor / 65536);
            in += s->included[i];
        }
        assert_int_equal(canary_set_units(set), in);
        assert_int_equal(step_units_seen, in); /* who is out is not even sampled */
        canary_set_free(set);
    }
}

/* With rate q each is drawn as often as a unit is: a binomial number of times. */
static void it_is_sampled_like_a_unit(void **state)
{
    tacit_mechanism m = steps_of(12, 0.25, 1);
    canary_set *set = make_set(1024, &m, 2);
    double one = m.clip_norm / m.divisor, times = 0, squares = 0;
    tacit_error err;
    (void)state;
    write_numbered_records(data_path, 0);
    fault("noise_off");
    unlink(checkpoint_path);
    OK(train(set, &m, 2, NULL, &err));
    const tacit_canary_scores *s = canary_set_scores(set);
    double n = (double)canary_set_units(set);
    for (size_t i = 0; i < s->count; i++) {
        double drawn = s->score[i] / one;
        assert_true(fabs(drawn - round(drawn)) < 1e-3);
        assert_true(s->included[i] || drawn == 0);
        times += drawn;
        squares += drawn * drawn;
    }
    double mean = times / n, variance = squares / n - mean * mean;
    /* 12 q = 3 and 12 q (1 - q) = 2.25, five deviations of about 500 */
    if (fabs(mean - 3) > 0.34 || fabs(variance - 2.25) > 0.75)
        fail_msg("mean %g, variance %g", mean, variance);
    canary_set_free(set);
}

/* Beside data, whose units are sampled too. */
static void data_keeps_its_units(void **state)
{
    tacit_mechanism m = steps_of(1, 1, 1);
    canary_set *set = make_set(10, &m, 4);
    tacit_error err;
    (void)state;
    write_numbered_records(data_path, 6);
    fault("none");
    unlink(checkpoint_path);
    OK(train(set, &m, 1, NULL, &err));
    assert_int_equal(step_units_seen, 6 + canary_set_units(set));
    unlink(checkpoint_path);
    OK(train(NULL, &m, 1, NULL, &err));
    assert_int_equal(step_units_seen, 6);
    canary_set_free(set);
}

/* Local steps of the device unit have no noise: whatever set is handed in sees nothing of them. */
static void means_without_noise_are_never_seen(void **state)
{
    tacit_mechanism m = steps_of(1, 1, 1), device = m;
    canary_set *set = make_set(100, &m, 4);
    tacit_error err;
    (void)state;
    device.unit = TACIT_UNIT_DEVICE;
    device.divisor = 1;
    write_numbered_records(data_path, 6);
    fault("none");
    unlink(checkpoint_path);
    OK(train(set, &device, 1, NULL, &err));
    for (size_t i = 0; i < 100; i++)
        assert_true(canary_set_scores(set)->score[i] == 0);
    canary_set_free(set);
}

static void coins_are_fair_and_secret(void **state)
{
    tacit_mechanism m = steps_of(1, 1, 1);
    canary_set *set, *other;
    tacit_error err;
    size_t in, equal = 0;
    enum { N = 100000 };
    (void)state;
    OK(canary_set_new(&set, N, &m, N, 1e-5, NULL, &err));
    OK(canary_set_new(&other, N, &m, N, 1e-5, NULL, &err));
    in = canary_set_units(set);
    for (size_t i = 0; i < N; i++)
        equal += canary_set_scores(set)->included[i] == canary_set_scores(other)->included[i];
    /* six deviations of 100,000 coins */
    assert_true(in > N / 2 - 950 && in < N / 2 + 950);
    assert_true(equal > N / 2 - 950 && equal < N / 2 + 950);
    canary_set_free(set);
    canary_set_free(other);
}

static void impossible_sets_are_refused(void **state)
{
    tacit_mechanism m = steps_of(1, 1, 1), none = m, device = m, adaptive = m, tree = m;
    canary_set *set;
    tacit_error err;
    (void)state;
    none.kind = TACIT_MECHANISM_NONE;
    none.b = 0;
    none.clip_norm = 0;
    device.unit = TACIT_UNIT_DEVICE;
    assert_int_equal(canary_set_new(&set, 1, &device, values, 1e-5, NULL, &err), TACIT_USAGE);
    assert_non_null(strstr(err.message, "device"));
    adaptive.quantile_b = 400000;
    adaptive.quantile_target = 0.5;
    adaptive.clip_rate = 0.2;
    adaptive.clip_min = adaptive.clip_norm / 2;
    adaptive.clip_max = adaptive.clip_norm * 2;
    assert_int_equal(canary_set_new(&set, 1, &adaptive, values, 1e-5, NULL, &err), TACIT_USAGE);
    assert_non_null(strstr(err.message, "leave out --quantile"));
    assert_int_equal(canary_set_new(&set, 0, &m, values, 1e-5, NULL, &err), TACIT_USAGE);
    assert_int_equal(canary_set_new(&set, values + 1, &m, values, 1e-5, NULL, &err), TACIT_USAGE);
    assert_non_null(strstr(err.message, "trainable value of its own"));
    assert_int_equal(canary_set_new(&set, 100001, &m, 200000, 1e-5, NULL, &err), TACIT_USAGE);
    assert_int_equal(canary_set_new(&set, 1, &none, values, 1e-5, NULL, &err), TACIT_USAGE);
    tree.kind = TACIT_MECHANISM_TREE_GAUSSIAN;
    tree.q_num = TACIT_Q_ONE;
    tree.minimum_separation = tree.steps;
    OK(tacit_mechanism_validate(&tree, &err));
    assert_int_equal(canary_set_new(&set, 1, &tree, values, 1e-5, NULL, &err), TACIT_USAGE);
    assert_non_null(strstr(err.message, "tree noise"));
    assert_null(set);
}

/* --- interruption --- */

/* The set of the second call has other coins until it reads the checkpoint's. */
static void a_restart_keeps_coins_and_scores(void **state)
{
    tacit_mechanism m = steps_of(5, 1, 1);
    canary_set *first = make_set(500, &m, 5), *second = make_set(500, &m, 6);
    volatile sig_atomic_t stop = 0;
    tacit_error err;
    (void)state;
    write_numbered_records(data_path, 0);
    fault("noise_off");
    unlink(checkpoint_path);
    assert_int_equal(train(first, &m, 1, &stop, &err), TACIT_AGAIN);
    assert_memory_not_equal(canary_set_scores(first)->included, canary_set_scores(second)->included,
                            500);
    OK(train(second, &m, 1, NULL, &err));
    assert_memory_equal(canary_set_scores(first)->included, canary_set_scores(second)->included,
                        500);
    for (size_t i = 0; i < 500; i++) {
        const tacit_canary_scores *s = canary_set_scores(second);
        double expected = s->included[i] ? 5 * m.clip_norm / m.divisor : 0;
        assert_true(fabs(s->score[i] - expected) <= 5 * m.clip_norm / m.divisor / 65536);
    }
    canary_set_free(first);
    canary_set_free(second);
}

static void a_restart_has_the_same_canaries_or_none(void **state)
{
    tacit_mechanism m = steps_of(5, 1, 1);
    canary_set *set = make_set(50, &m, 5), *more = make_set(51, &m, 5);
    volatile sig_atomic_t stop = 0;
    tacit_error err;
    (void)state;
    write_numbered_records(data_path, 0);
    fault("none");
    unlink(checkpoint_path);
    assert_int_equal(train(set, &m, 1, &stop, &err), TACIT_AGAIN);
    assert_int_equal(train(more, &m, 1, NULL, &err), TACIT_USAGE);
    assert_non_null(strstr(err.message, "has 50 canaries, this one 51"));
    assert_int_equal(train(NULL, &m, 1, NULL, &err), TACIT_USAGE);
    assert_non_null(strstr(err.message, "has 50 canaries, this one 0"));
    OK(train(set, &m, 1, NULL, &err));
    unlink(checkpoint_path);
    stop = 0;
    assert_int_equal(train(NULL, &m, 1, &stop, &err), TACIT_AGAIN);
    assert_int_equal(train(set, &m, 1, NULL, &err), TACIT_USAGE);
    assert_non_null(strstr(err.message, "has 0 canaries, this one 50"));
    canary_set_free(set);
    canary_set_free(more);
}

/* --- the test of the test --- */

static double bound_of(const char *name, const tacit_mechanism *m, uint8_t seed, double *claim)
{
    canary_set *set = make_set(1000, m, seed);
    tacit_canary_finding found;
    tacit_error err;
    fault(name);
    unlink(checkpoint_path);
    OK(train(set, m, seed, NULL, &err));
    OK(tacit_canary_test(&found, canary_set_scores(set), 0.95, &err));
    *claim = canary_set_scores(set)->epsilon;
    canary_set_free(set);
    print_message("%s, seed %u: at least %.3f, claimed %.3f\n", name, seed, found.epsilon, *claim);
    return found.epsilon;
}

static void the_noise_that_was_accounted_keeps_the_claim(void **state)
{
    static const double claims[] = {0.25, 1, 2};
    double claim;
    (void)state;
    write_numbered_records(data_path, 20);
    for (size_t k = 0; k < 3; k++) {
        tacit_mechanism m = steps_for(10, 0.2, claims[k]);
        for (uint8_t seed = 1; seed <= 4; seed++) {
            double bound = bound_of("none", &m, seed, &claim);
            assert_true(claim > 0.99 * claims[k] && claim <= claims[k]);
            assert_true(bound <= claim);
        }
    }
}

static void faults_are_found(void **state)
{
    static const char *const faults[] = {"noise_off", "clip_off", "always_drawn", "sigma_8"};
    tacit_mechanism m = steps_for(30, 0.05, 2);
    double claim;
    (void)state;
    write_numbered_records(data_path, 20);
    for (size_t k = 0; k < sizeof faults / sizeof faults[0]; k++)
        for (uint8_t seed = 1; seed <= 3; seed++)
            assert_true(bound_of(faults[k], &m, seed, &claim) > claim);
}

static int set_up(void **state)
{
    tacit_layout layout;
    tacit_error err;
    (void)state;
    tiny = tiny_load(false);
    if (!mkdtemp(folder) || tacit_layout_make(&layout, tiny.model, &spec, &err) != TACIT_OK)
        return -1;
    values = layout.values;
    tacit_layout_free(&layout);
    snprintf(data_path, sizeof data_path, "%s/data.jsonl", folder);
    snprintf(checkpoint_path, sizeof checkpoint_path, "%s/run.ckpt", folder);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    unlink(data_path);
    unlink(checkpoint_path);
    rmdir(folder);
    tiny_free(&tiny);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_that_is_in_is_a_clipped_unit),
        cmocka_unit_test(it_is_sampled_like_a_unit),
        cmocka_unit_test(data_keeps_its_units),
        cmocka_unit_test(means_without_noise_are_never_seen),
        cmocka_unit_test(coins_are_fair_and_secret),
        cmocka_unit_test(impossible_sets_are_refused),
        cmocka_unit_test(a_restart_keeps_coins_and_scores),
        cmocka_unit_test(a_restart_has_the_same_canaries_or_none),
        cmocka_unit_test(the_noise_that_was_accounted_keeps_the_claim),
        cmocka_unit_test(faults_are_found),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
