/* What a plan says of adapter and optimizer, number by number at its limits and beyond. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "engine/plan_spec.h"

#include <math.h>
#include <string.h>

static char *targets[TACIT_TRAINABLE_TARGETS_MAX + 1];
static uint8_t seed[33] = {7, 8, 9};

static Tacit__AdapterSpec usual_adapter(void)
{
    Tacit__AdapterSpec a = TACIT__ADAPTER_SPEC__INIT;
    for (size_t i = 0; i < sizeof targets / sizeof targets[0]; i++)
        targets[i] = i % 2 ? "attn_v" : "attn_q";
    a.kind = TACIT__ADAPTER_KIND__ADAPTER_LORA_FFA;
    a.targets = targets;
    a.n_targets = 2;
    a.rank = 8;
    a.alpha = 16;
    a.lineage_seed = (ProtobufCBinaryData){32, seed};
    return a;
}

static void test_adapter(void **state)
{
    (void)state;
    tacit_trainable_spec spec;
    tacit_error err = {0};
    Tacit__AdapterSpec a = usual_adapter();
    assert_int_equal(tacit_trainable_spec_from_message(&spec, &a, &err), TACIT_OK);
    assert_int_equal(spec.kind, TACIT_TRAIN_LORA_FFA);
    assert_int_equal(spec.n_targets, 2);
    assert_string_equal(spec.target[0], "attn_q");
    assert_string_equal(spec.target[1], "attn_v");
    assert_int_equal(spec.rank, 8);
    assert_true(spec.alpha == 16);
    assert_memory_equal(spec.seed, seed, 32);
    assert_true(!spec.rslora && spec.last_layers == 0);
    a.kind = TACIT__ADAPTER_KIND__ADAPTER_LORA_CORE;
    a.rslora = true;
    a.last_layers = 3;
    assert_int_equal(tacit_trainable_spec_from_message(&spec, &a, &err), TACIT_OK);
    assert_int_equal(spec.kind, TACIT_TRAIN_LORA_CORE);
    assert_true(spec.rslora && spec.last_layers == 3);
}

static void test_prompt(void **state)
{
    (void)state;
    const struct {
        uint32_t text, image, rank, last_layers;
        double alpha;
        size_t n_targets;
        bool rslora;
        const char *why; /* NULL: taken */
    } cases[] = {
        {16, 0, 0, 0, 0, 0, false, NULL},
        {0, 4096, 0, 0, 0, 0, false, NULL},
        {4096, 4096, 0, 0, 0, 0, false, NULL},
        {0, 0, 0, 0, 0, 0, false, "1 to 4096 virtual tokens, found 0 and 0"},
        {4097, 0, 0, 0, 0, 0, false, "found 4097 and 0"},
        {1, 4097, 0, 0, 0, 0, false, "found 1 and 4097"},
        {UINT32_MAX, 1, 0, 0, 0, 0, false, "found 4294967295 and 1"},
        {16, 0, 8, 0, 0, 0, false, "a soft prompt with"},
        {16, 0, 0, 1, 0, 0, false, "a soft prompt with"},
        {16, 0, 0, 0, 1, 0, false, "a soft prompt with"},
        {16, 0, 0, 0, 0, 1, false, "a soft prompt with"},
        {16, 0, 0, 0, 0, 0, true, "a soft prompt with"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        tacit_trainable_spec spec;
        tacit_error err = {0};
        Tacit__AdapterSpec a = usual_adapter();
        a.kind = TACIT__ADAPTER_KIND__ADAPTER_PROMPT;
        a.virtual_tokens = cases[i].text;
        a.image_virtual_tokens = cases[i].image;
        a.rank = cases[i].rank;
        a.last_layers = cases[i].last_layers;
        a.alpha = cases[i].alpha;
        a.n_targets = cases[i].n_targets;
        a.rslora = cases[i].rslora;
        assert_int_equal(tacit_trainable_spec_from_message(&spec, &a, &err),
                         cases[i].why ? TACIT_BAD_INPUT : TACIT_OK);
        if (cases[i].why && !strstr(err.message, cases[i].why))
            fail_msg("case %zu: %s", i, err.message);
        if (!cases[i].why)
            assert_true(spec.kind == TACIT_TRAIN_PROMPT && spec.virtual_tokens == cases[i].text &&
                        spec.image_virtual_tokens == cases[i].image);
    }
    tacit_trainable_spec spec;
    tacit_error err = {0};
    Tacit__AdapterSpec a = usual_adapter();
    a.image_virtual_tokens = 1;
    assert_int_equal(tacit_trainable_spec_from_message(&spec, &a, &err), TACIT_BAD_INPUT);
    assert_non_null(strstr(err.message, "a LoRA adapter with virtual tokens"));
}

static void test_limits_of_adapters(void **state)
{
    (void)state;
    const struct {
        uint32_t rank;
        double alpha;
        size_t n_targets, seed_bytes;
        const char *why; /* NULL: taken */
    } cases[] = {
        {1, 1e-300, 1, 32, NULL},
        {1024, 1e6, 16, 32, NULL},
        {0, 1, 1, 32, "a rank from 1 to 1024, found 0"},
        {1025, 1, 1, 32, "a rank from 1 to 1024, found 1025"},
        {8, 0, 1, 32, "alpha above 0, at most 1e+06, found 0"},
        {8, -1, 1, 32, "found -1"},
        {8, 1.1e6, 1, 32, "alpha above 0, at most 1e+06, found 1.1e+06"},
        {8, (double)INFINITY, 1, 32, "found inf"},
        {8, (double)NAN, 1, 32, "found nan"},
        {8, 1, 0, 32, "1 to 16 targets, found 0"},
        {8, 1, 17, 32, "1 to 16 targets, found 17"},
        {8, 1, 1, 31, "a seed of 32 bytes, found 31"},
        {8, 1, 1, 33, "a seed of 32 bytes, found 33"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        tacit_trainable_spec spec;
        tacit_error err = {0};
        Tacit__AdapterSpec a = usual_adapter();
        a.rank = cases[i].rank;
        a.alpha = cases[i].alpha;
        a.n_targets = cases[i].n_targets;
        a.lineage_seed.len = cases[i].seed_bytes;
        assert_int_equal(tacit_trainable_spec_from_message(&spec, &a, &err),
                         cases[i].why ? TACIT_BAD_INPUT : TACIT_OK);
        if (cases[i].why && !strstr(err.message, cases[i].why))
            fail_msg("case %zu: %s", i, err.message);
    }
    tacit_trainable_spec spec;
    tacit_error err = {0};
    Tacit__AdapterSpec other = usual_adapter();
    other.kind = TACIT__ADAPTER_KIND__ADAPTER_PROMPT + 1;
    assert_int_equal(tacit_trainable_spec_from_message(&spec, &other, &err), TACIT_BAD_INPUT);
    assert_int_equal(tacit_trainable_spec_from_message(&spec, NULL, &err), TACIT_BAD_INPUT);
    assert_non_null(strstr(err.message, "lora-ffa"));
}

/* Numbers that a kind does not use are zero: a plan does not say what nobody does. */
static void test_optimizers(void **state)
{
    (void)state;
    enum {
        SGD = TACIT__OPTIMIZER_KIND__OPTIMIZER_SGD,
        ADAM = TACIT__OPTIMIZER_KIND__OPTIMIZER_ADAM,
        ADAMW = TACIT__OPTIMIZER_KIND__OPTIMIZER_ADAMW
    };
    const struct {
        int kind;
        double rate, momentum, beta1, beta2, epsilon;
        const char *why;
    } cases[] = {
        {SGD, 0.1, 0.9, 0, 0, 0, NULL},
        {SGD, 1e-12, 0, 0, 0, 0, NULL},
        {SGD, 0, 0, 0, 0, 0, "learning rate"},
        {SGD, 2e6, 0, 0, 0, 0, "learning rate"},
        {SGD, (double)NAN, 0, 0, 0, 0, "learning rate"},
        {SGD, 0.1, 1, 0, 0, 0, "momentum"},
        {SGD, 0.1, -0.1, 0, 0, 0, "momentum"},
        {SGD, 0.1, 0, 0.9, 0, 0, "beta1: expected 0 to 0"},
        {SGD, 0.1, 0, 0, 0.9, 0, "beta2: expected 0 to 0"},
        {SGD, 0.1, 0, 0, 0, 1e-8, "epsilon: expected 0 to 0"},
        {ADAM, 0.1, 0, 0.9, 0.999, 1e-8, NULL},
        {ADAM, 0.1, 0, 0, 0, TACIT_ADAM_EPSILON_MIN, NULL},
        {ADAM, 0.1, 0.5, 0.9, 0.999, 1e-8, "momentum: expected 0 to 0"},
        {ADAM, 0.1, 0, 1, 0.999, 1e-8, "beta1"},
        {ADAM, 0.1, 0, 0.9, 1, 1e-8, "beta2"},
        {ADAM, 0.1, 0, 0.9, 0.999, 0, "epsilon"},
        {ADAM, 0.1, 0, 0.9, 0.999, 1e-17, "epsilon"},
        {ADAM, 0.1, 0, 0.9, 0.999, (double)INFINITY, "epsilon"},
        {ADAMW, 0.1, 0, 0.9, 0.999, 1e-8, NULL},
        {ADAMW, 0.1, 0.5, 0.9, 0.999, 1e-8, "momentum: expected 0 to 0"},
        {ADAMW, 0.1, 0, 1, 0.999, 1e-8, "beta1"},
        {0, 0.1, 0, 0, 0, 0, "sgd, adam or adamw"},
        {99, 0.1, 0, 0, 0, 0, "sgd, adam or adamw"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        tacit_optimizer_spec spec;
        tacit_error err = {0};
        Tacit__Optimizer o = TACIT__OPTIMIZER__INIT;
        o.kind = (Tacit__OptimizerKind)cases[i].kind;
        o.learning_rate = cases[i].rate;
        o.momentum = cases[i].momentum;
        o.beta1 = cases[i].beta1;
        o.beta2 = cases[i].beta2;
        o.epsilon = cases[i].epsilon;
        tacit_status status = tacit_optimizer_spec_from_message(&spec, &o, &err);
        assert_int_equal(status, cases[i].why ? TACIT_BAD_INPUT : TACIT_OK);
        if (cases[i].why && !strstr(err.message, cases[i].why))
            fail_msg("case %zu: %s", i, err.message);
        if (cases[i].why)
            continue;
        assert_int_equal(spec.kind, cases[i].kind == SGD    ? TACIT_SGD
                                    : cases[i].kind == ADAM ? TACIT_ADAM
                                                            : TACIT_ADAMW);
        assert_true(spec.learning_rate == cases[i].rate && spec.momentum == cases[i].momentum);
        assert_true(spec.beta1 == cases[i].beta1 && spec.beta2 == cases[i].beta2);
        assert_true(spec.epsilon == cases[i].epsilon && spec.weight_decay == 0);
    }
    tacit_optimizer_spec spec;
    assert_int_equal(tacit_optimizer_spec_from_message(&spec, NULL, NULL), TACIT_BAD_INPUT);
}

/* Decay is AdamW's alone; the learning rate's course is anybody's. */
static void test_decay_and_rates(void **state)
{
    (void)state;
    const struct {
        int kind, rate;
        double decay;
        const char *why;
    } cases[] = {
        {TACIT__OPTIMIZER_KIND__OPTIMIZER_ADAMW, 0, 0.01, NULL},
        {TACIT__OPTIMIZER_KIND__OPTIMIZER_ADAMW, 1, 1e3, NULL},
        {TACIT__OPTIMIZER_KIND__OPTIMIZER_ADAMW, 0, 1.1e3, "weight decay: expected 0 to 1000"},
        {TACIT__OPTIMIZER_KIND__OPTIMIZER_ADAMW, 0, -0.1, "weight decay"},
        {TACIT__OPTIMIZER_KIND__OPTIMIZER_ADAMW, 0, (double)NAN, "weight decay"},
        {TACIT__OPTIMIZER_KIND__OPTIMIZER_ADAM, 0, 0.01, "weight decay: expected 0 to 0"},
        {TACIT__OPTIMIZER_KIND__OPTIMIZER_ADAM, 2, 0, NULL},
        {TACIT__OPTIMIZER_KIND__OPTIMIZER_ADAM, 3, 0, "constant, linear or cosine"},
        {TACIT__OPTIMIZER_KIND__OPTIMIZER_ADAM, -1, 0, "constant, linear or cosine"},
    };
    static const tacit_rate_kind rates[] = {TACIT_RATE_CONSTANT, TACIT_RATE_LINEAR,
                                            TACIT_RATE_COSINE};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        tacit_optimizer_spec spec;
        tacit_error err = {0};
        Tacit__Optimizer o = TACIT__OPTIMIZER__INIT;
        o.kind = (Tacit__OptimizerKind)cases[i].kind;
        o.learning_rate = 0.1;
        o.epsilon = 1e-8;
        o.weight_decay = cases[i].decay;
        o.rate_schedule = (Tacit__RateSchedule)cases[i].rate;
        o.warmup_steps = 7;
        tacit_status status = tacit_optimizer_spec_from_message(&spec, &o, &err);
        assert_int_equal(status, cases[i].why ? TACIT_BAD_INPUT : TACIT_OK);
        if (cases[i].why && !strstr(err.message, cases[i].why))
            fail_msg("case %zu: %s", i, err.message);
        if (cases[i].why)
            continue;
        assert_true(spec.weight_decay == cases[i].decay && spec.rate == rates[cases[i].rate] &&
                    spec.warmup == 7);
        Tacit__Optimizer back;
        tacit_optimizer_message_of_spec(&back, &spec);
        assert_int_equal(back.kind, o.kind);
        assert_int_equal(back.rate_schedule, o.rate_schedule);
        assert_true(back.learning_rate == 0.1 && back.epsilon == 1e-8 && back.momentum == 0 &&
                    back.weight_decay == cases[i].decay && back.warmup_steps == 7);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_adapter),
        cmocka_unit_test(test_prompt),
        cmocka_unit_test(test_limits_of_adapters),
        cmocka_unit_test(test_optimizers),
        cmocka_unit_test(test_decay_and_rates),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
