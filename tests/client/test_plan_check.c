/* One crafted offer per refusal. The log, its proofs and its checkpoints are made by
 * tests/privacy/world.h, without the code that checks them here. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "../engine/tiny_model.h"
#include "../privacy/world.h"
#include "client/plan_check.h"
#include "common/memory_limit.h"

static size_t tiny_values;
static uint8_t tiny_base[TACIT_DIGEST_BYTES];

/* What makes the world's plans fit the tiny model; `spoil` is the case's own edit on top. */
static void (*spoil_plan)(Tacit__Plan *);
static void (*spoil_schedule)(Tacit__Schedule *);

static void fit_schedule(Tacit__Schedule *s)
{
    s->base_digest = tacit_field_of(tiny_base, sizeof tiny_base);
    if (spoil_schedule)
        spoil_schedule(s);
}

static void fit_plan(Tacit__Plan *p, int round)
{
    (void)round;
    p->base_digest = tacit_field_of(tiny_base, sizeof tiny_base);
    p->trainable_values = (uint32_t)tiny_values;
    p->optimizer->beta1 = 0.9;
    p->optimizer->beta2 = 0.99;
    p->optimizer->epsilon = 1e-8;
    if (spoil_plan)
        spoil_plan(p);
}

/* A world whose plan 0 is offered, and everything that the offer points to. */
typedef struct offered {
    world w;
    tacit_note_key key;
    tacit_policy policy;
    char note[TACIT_CHECKPOINT_MAX];
    tacit_checkpoint checkpoint;
    tacit_proof proof;
    plan_offer offer;
    plan_terms terms;
    checked_plan plan;
    tacit_error err;
} offered;

static void prove(offered *o, uint64_t index)
{
    tacit_merkle_store store = tacit_merkle_memory_store(&o->w.tree);
    world_checkpoint(&o->w, o->w.count, o->note);
    OK(tacit_checkpoint_verify(&o->checkpoint, o->note, strlen(o->note), &o->key, &o->err));
    OK(tacit_merkle_inclusion(&store, index, o->w.count, &o->proof, &o->err));
    o->offer.entry = (tacit_span){o->w.entry[index].bytes, o->w.entry[index].size};
    o->offer.index = index;
}

static void make_offer(offered *o, void (*edit_plan)(Tacit__Plan *),
                       void (*edit_schedule)(Tacit__Schedule *))
{
    memset(o, 0, sizeof *o);
    spoil_plan = edit_plan;
    spoil_schedule = edit_schedule;
    world_init(&o->w);
    o->w.edit_plan = fit_plan;
    o->w.edit_schedule = fit_schedule;
    world_plan_all(&o->w);
    world_start(&o->w);
    world_enrol(&o->w, 0);
    world_log_schedule(&o->w);
    world_log_plan(&o->w, 0);
    world_enrol(&o->w, 1);
    o->key = world_log_key(&o->w);
    o->policy = o->w.policy;
    prove(o, 3);
    o->offer.plan = (tacit_span){o->w.plan[0], o->w.plan_size[0]};
    o->offer.schedule = (tacit_span){o->w.schedule, o->w.schedule_size};
    o->offer.inclusion = &o->proof;
    o->offer.checkpoint = &o->checkpoint;
    o->terms = (plan_terms){
        .log = &o->key, .policy = &o->policy, .maximum_steps = 1000, .base_digest = tiny_base};
}

static void drop_offer(offered *o)
{
    checked_plan_free(&o->plan);
    world_free(&o->w);
}

static void expect_status(offered *o, tacit_status expected, const char *words)
{
    tacit_status found = plan_check(&o->plan, &o->offer, &o->terms, &o->err);
    if (found != expected)
        fail_msg("expected %s, found %s: %s", tacit_status_name(expected), tacit_status_name(found),
                 o->err.message);
    if (expected != TACIT_OK && !strstr(o->err.message, words))
        fail_msg("'%s' not in: %s", words, o->err.message);
    if (expected != TACIT_OK)
        assert_null(o->plan.plan);
}

/* --- the device unit --- */

static void whole_device(Tacit__Mechanism *m)
{
    m->unit = TACIT__UNIT__UNIT_DEVICE;
    m->q_num = TACIT_Q_ONE;
    m->steps = 1;
    m->divisor = 1;
    m->unit_examples = 4;
}
static void schedule_whole(Tacit__Schedule *s)
{
    for (size_t i = 0; i < s->n_rounds; i++)
        whole_device(s->rounds[i]->mechanism);
}
static void plan_whole(Tacit__Plan *p)
{
    whole_device(p->mechanism);
    p->local_steps = 7;
    p->update_scale = 65536 / 0.5; /* one unit of the grid of C = 0.5 */
}
static void whole_without_steps(Tacit__Plan *p)
{
    plan_whole(p);
    p->local_steps = 0;
}
static void whole_with_endless_steps(Tacit__Plan *p)
{
    plan_whole(p);
    p->local_steps = TACIT_STEPS_MAX + 1;
}
static void whole_at_another_scale(Tacit__Plan *p)
{
    plan_whole(p);
    p->update_scale *= 2;
}
static void record_with_local_steps(Tacit__Plan *p)
{
    p->local_steps = 1;
}
static void record_with_colluders(Tacit__Plan *p)
{
    p->assumed_colluders = 1;
}

static void whole_devices_have_local_steps(void **state)
{
    static const struct {
        void (*plan)(Tacit__Plan *);
        void (*schedule)(Tacit__Schedule *);
        uint64_t maximum;
        tacit_status expected;
        const char *words;
    } cases[] = {
        {plan_whole, schedule_whole, 7, TACIT_OK, ""},
        {plan_whole, schedule_whole, 6, TACIT_REFUSED, "7 steps is above this device's"},
        {whole_without_steps, schedule_whole, 7, TACIT_BAD_INPUT, "local_steps"},
        {whole_with_endless_steps, schedule_whole, 7, TACIT_BAD_INPUT, "local_steps"},
        {whole_at_another_scale, schedule_whole, 7, TACIT_BAD_INPUT, "update_scale"},
        {record_with_local_steps, NULL, 1000, TACIT_BAD_INPUT, "local_steps"},
        {record_with_colluders, NULL, 1000, TACIT_BAD_INPUT, "assumed_colluders"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        offered o;
        make_offer(&o, cases[i].plan, cases[i].schedule);
        o.policy.unit = cases[i].schedule ? TACIT_UNIT_DEVICE : TACIT_UNIT_RECORD;
        o.terms.maximum_steps = cases[i].maximum;
        expect_status(&o, cases[i].expected, cases[i].words);
        drop_offer(&o);
    }
}

/* --- a good plan --- */

static void a_good_plan_passes(void **state)
{
    offered o;
    uint8_t hash[TACIT_DIGEST_BYTES];
    (void)state;
    make_offer(&o, NULL, NULL);
    expect_status(&o, TACIT_OK, "");
    tacit_digest(hash, o.offer.plan.data, o.offer.plan.size);
    assert_memory_equal(o.plan.plan_hash, hash, sizeof hash);
    assert_int_equal(o.plan.mechanism.steps, 10);
    assert_int_equal(o.plan.mechanism.b, 100000);
    assert_int_equal(o.plan.spec.rank, 8);
    assert_int_equal(o.plan.optimizer.kind, TACIT_ADAM);
    assert_true(o.plan.logged_ms >= 1700000000000);
    drop_offer(&o);
}

/* --- the policy: the limit itself passes, what lies below does not --- */

typedef struct policy_case {
    void (*tighten)(tacit_policy *);
    void (*edit)(Tacit__Plan *);
    const char *words;
} policy_case;

static void want_noise(tacit_policy *p)
{
    p->minimum_noise_multiplier = 1.3;
}
static void want_unit(tacit_policy *p)
{
    p->unit = TACIT_UNIT_SUBJECT;
}
static void want_cohort(tacit_policy *p)
{
    p->minimum_cohort = WORLD_DEVICES + 1;
}
static void want_quorum(tacit_policy *p)
{
    p->minimum_quorum = 3;
}
static void want_delta(tacit_policy *p)
{
    p->delta = 9e-6;
}
static void long_pad(Tacit__Plan *p)
{
    p->pad_seconds = PLAN_PAD_SECONDS_MAX + 1;
}

static void plans_below_the_policy_are_refused(void **state)
{
    static const policy_case cases[] = {
        {want_noise, NULL, "noise multiplier"},
        {want_unit, NULL, "unit is record, this device's is subject"},
        {want_cohort, NULL, "cohort 3"},
        {want_quorum, NULL, "quorum 2"},
        {want_delta, NULL, "delta"},
        {NULL, long_pad, "would wait"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        offered o;
        make_offer(&o, cases[i].edit, NULL);
        if (cases[i].tighten)
            cases[i].tighten(&o.policy);
        expect_status(&o, TACIT_REFUSED, cases[i].words);
        drop_offer(&o);
    }
}

static void the_limits_of_the_policy_pass(void **state)
{
    offered o;
    (void)state;
    make_offer(&o, NULL, NULL);
    o.policy.minimum_noise_multiplier = tacit_noise_multiplier(100000);
    o.policy.unit = TACIT_UNIT_RECORD;
    o.policy.minimum_cohort = WORLD_DEVICES;
    o.policy.minimum_quorum = 2;
    expect_status(&o, TACIT_OK, "");
    drop_offer(&o);
}

static void plan_without_noise(Tacit__Plan *p)
{
    p->mechanism->kind = TACIT__MECHANISM_KIND__MECHANISM_NONE;
    p->mechanism->b = 0;
    p->mechanism->clip_norm = 0;
    p->delta = 0;
}

static void schedule_without_noise(Tacit__Schedule *s)
{
    for (size_t i = 0; i < s->n_rounds; i++) {
        s->rounds[i]->mechanism->kind = TACIT__MECHANISM_KIND__MECHANISM_NONE;
        s->rounds[i]->mechanism->b = 0;
        s->rounds[i]->mechanism->clip_norm = 0;
    }
    s->delta = 0;
}

static void mechanism_none_needs_permission(void **state)
{
    offered o;
    (void)state;
    make_offer(&o, plan_without_noise, schedule_without_noise);
    expect_status(&o, TACIT_REFUSED, "mechanism is none");
    o.policy.allow_non_private = true;
    expect_status(&o, TACIT_OK, "");
    drop_offer(&o);
}

/* The world's plan 0 waits one second: enough for a minimum of 1, too little for one of 2. Nothing
 * is promised without noise, so nothing is demanded there. */
static void a_guarantee_needs_the_least_pad(void **state)
{
    offered o;
    (void)state;
    make_offer(&o, NULL, NULL);
    o.terms.minimum_pad_seconds = 1;
    expect_status(&o, TACIT_OK, "");
    checked_plan_free(&o.plan);
    o.terms.minimum_pad_seconds = 2;
    expect_status(&o, TACIT_REFUSED, "pad of 1 seconds");
    assert_non_null(strstr(o.err.message, "minimum_pad_seconds 2"));
    drop_offer(&o);
    make_offer(&o, plan_without_noise, schedule_without_noise);
    o.policy.allow_non_private = true;
    o.terms.minimum_pad_seconds = PLAN_PAD_SECONDS_MAX;
    expect_status(&o, TACIT_OK, "");
    drop_offer(&o);
}

/* The world's plans have ten steps; noise or none, the owner bounds what a round costs. */
static void a_round_of_too_many_steps_is_refused(void **state)
{
    offered o;
    (void)state;
    make_offer(&o, NULL, NULL);
    o.terms.maximum_steps = 10;
    expect_status(&o, TACIT_OK, "");
    checked_plan_free(&o.plan);
    o.terms.maximum_steps = 9;
    expect_status(&o, TACIT_REFUSED, "round of 10 steps");
    assert_non_null(strstr(o.err.message, "maximum_steps 9"));
    drop_offer(&o);
    make_offer(&o, plan_without_noise, schedule_without_noise);
    o.policy.allow_non_private = true;
    o.terms.maximum_steps = 9;
    expect_status(&o, TACIT_REFUSED, "maximum_steps 9");
    drop_offer(&o);
}

/* --- base and shapes --- */

static void another_base_is_named(void **state)
{
    offered o;
    uint8_t other[TACIT_DIGEST_BYTES];
    (void)state;
    make_offer(&o, NULL, NULL);
    memset(other, 0x5a, sizeof other);
    o.terms.base_digest = other;
    expect_status(&o, TACIT_REFUSED, "5a5a5a5a");
    drop_offer(&o);
}

static void one_value_too_many(Tacit__Plan *p)
{
    p->trainable_values++;
}

static void other_shapes_are_refused(void **state)
{
    tiny_model *tiny = *state;
    offered o;
    uint8_t hash[TACIT_DIGEST_BYTES] = {0}, zeros[TACIT_DIGEST_BYTES] = {0};
    make_offer(&o, NULL, NULL);
    expect_status(&o, TACIT_OK, "");
    OK(plan_check_layout(&o.plan, tiny->model, hash, &o.err));
    assert_memory_not_equal(hash, zeros, sizeof hash);
    drop_offer(&o);
    make_offer(&o, one_value_too_many, NULL);
    expect_status(&o, TACIT_OK, "");
    assert_int_equal(plan_check_layout(&o.plan, tiny->model, NULL, &o.err), TACIT_REFUSED);
    assert_non_null(strstr(o.err.message, "values"));
    drop_offer(&o);
}

static uint64_t fixed(void *ctx)
{
    return *(uint64_t *)ctx;
}

/* The least that will do is the plan's: the trainer's parts, Adam's state, and forty bytes a value.
 */
static void plans_that_do_not_fit_are_refused(void **state)
{
    const tiny_model *tiny = *state;
    offered o;
    tacit_training_plan p;
    make_offer(&o, NULL, NULL);
    expect_status(&o, TACIT_OK, "");
    const tacit_training training = plan_training(&o.plan, tiny->model);
    tacit_pool *pool;
    OK(tacit_pool_new(&pool, 2, &o.err));
    OK(tacit_training_plan_of(&p, tiny->model, &training, pool, &o.err));
    tacit_pool_free(pool);
    assert_int_equal(p.beside, 40 * tiny_values);
    assert_int_equal(p.optimizer, 8 * tiny_values);
    tacit_memory_inject(fixed, &p.total);
    OK(plan_check_memory(&o.plan, tiny->model, 2, &o.err));
    p.total--;
    assert_int_equal(plan_check_memory(&o.plan, tiny->model, 2, &o.err), TACIT_REFUSED);
    tacit_memory_inject(NULL, NULL);
    assert_non_null(strstr(o.err.message, "plan does not fit into this device's memory: training"));
    assert_non_null(strstr(o.err.message, " would fit"));
    drop_offer(&o);
}

static void of_another_base(Tacit__Schedule *s)
{
    static uint8_t other[TACIT_DIGEST_BYTES] = {0x5a};
    s->base_digest = tacit_field_of(other, sizeof other);
}

static void planned_for_another_base(Tacit__Plan *p)
{
    static uint8_t other[TACIT_DIGEST_BYTES] = {0x5a};
    p->base_digest = tacit_field_of(other, sizeof other);
}

/* What was reserved is trained on the base it was reserved for, whatever lies in its place now. */
static void a_base_of_the_same_shape_is_refused(void **state)
{
    const tiny_model *tiny = *state;
    offered o;
    uint8_t other[TACIT_DIGEST_BYTES] = {0x5a};
    make_offer(&o, planned_for_another_base, of_another_base);
    o.terms.base_digest = other;
    expect_status(&o, TACIT_OK, "");
    assert_int_equal(plan_check_layout(&o.plan, tiny->model, NULL, &o.err), TACIT_REFUSED);
    assert_non_null(strstr(o.err.message, "is for the base 5a"));
    drop_offer(&o);
}

static void unknown_target(Tacit__Plan *p)
{
    static char name[] = "attn_nothing";
    p->adapter->targets[0] = name;
}

static void schedule_with_unknown_target(Tacit__Schedule *s)
{
    static char name[] = "attn_nothing";
    s->adapter->targets[0] = name;
}

static void targets_that_the_base_lacks_are_refused(void **state)
{
    tiny_model *tiny = *state;
    offered o;
    Tacit__AdapterSpec a = TACIT__ADAPTER_SPEC__INIT;
    world_adapter(&a);
    char *first = a.targets[0];
    make_offer(&o, unknown_target, schedule_with_unknown_target);
    expect_status(&o, TACIT_OK, "");
    assert_int_equal(plan_check_layout(&o.plan, tiny->model, NULL, &o.err), TACIT_REFUSED);
    drop_offer(&o);
    a.targets[0] = first; /* the world's list is shared by all of them */
}

/* --- the schedule --- */

static void more_noise(Tacit__Plan *p)
{
    p->mechanism->b = 200000;
}
static void less_noise(Tacit__Plan *p)
{
    p->mechanism->b = 99999;
}
static void more_steps(Tacit__Plan *p)
{
    p->mechanism->steps = 11;
}
static void other_clip(Tacit__Plan *p)
{
    p->mechanism->clip_norm = 0.25;
}
static void other_rank(Tacit__Plan *p)
{
    p->adapter->rank = 4;
}
static void other_scale(Tacit__Plan *p)
{
    p->adapter->rslora = true;
}
static void other_layers(Tacit__Plan *p)
{
    p->adapter->last_layers = 1;
}
static void other_prompt(Tacit__Plan *p)
{
    p->adapter->virtual_tokens = 1;
}
static void other_image_prompt(Tacit__Plan *p)
{
    p->adapter->image_virtual_tokens = 1;
}
static void other_kind(Tacit__Plan *p)
{
    p->adapter->kind = TACIT__ADAPTER_KIND__ADAPTER_LORA_CORE;
}
static void no_such_round(Tacit__Plan *p)
{
    p->round_index = WORLD_ROUNDS;
}
static void other_lineage(Tacit__Plan *p)
{
    static uint8_t other[16] = {7};
    p->lineage = tacit_field_of(other, sizeof other);
}
static void other_schedule(Tacit__Plan *p)
{
    static uint8_t other[32] = {7};
    p->schedule_hash = tacit_field_of(other, sizeof other);
}

static void adapting(Tacit__Plan *p)
{
    world_adapt(p->mechanism);
}
static void adapting_schedule(Tacit__Schedule *s)
{
    world_adapt_schedule(s);
}
static void less_count_noise(Tacit__Plan *p)
{
    adapting(p);
    p->mechanism->quantile_b -= 1;
}
static void other_target(Tacit__Plan *p)
{
    adapting(p);
    p->mechanism->quantile_target = 0.6;
}
static void other_clip_rate(Tacit__Plan *p)
{
    adapting(p);
    p->mechanism->clip_rate = 0.3;
}
static void lower_clip_min(Tacit__Plan *p)
{
    adapting(p);
    p->mechanism->clip_min = 0.04;
}
static void higher_clip_max(Tacit__Plan *p)
{
    adapting(p);
    p->mechanism->clip_max = 6;
}

/* Every field of an adaptive clip is the schedule's. */
static void an_adaptive_clip_is_its_schedules(void **state)
{
    static void (*const edits[])(Tacit__Plan *) = {
        less_count_noise, other_target, other_clip_rate, lower_clip_min, higher_clip_max, NULL};
    offered o;
    (void)state;
    make_offer(&o, adapting, adapting_schedule);
    expect_status(&o, TACIT_OK, "");
    assert_true(o.plan.mechanism.quantile_b == 400000 && o.plan.mechanism.clip_max == 5);
    drop_offer(&o);
    for (size_t i = 0; i < sizeof edits / sizeof edits[0]; i++) {
        make_offer(&o, edits[i], adapting_schedule); /* NULL: the plan's clip is fixed */
        expect_status(&o, TACIT_INTEGRITY, "mechanism differs");
        drop_offer(&o);
    }
    make_offer(&o, adapting, NULL);
    expect_status(&o, TACIT_INTEGRITY, "mechanism differs");
    drop_offer(&o);
}

/* The policy's least noise is that of gradients and count together. */
static void a_count_is_noise_that_the_policy_sees(void **state)
{
    double step = 1 / sqrt(1 / pow(tacit_noise_multiplier(100000), 2) +
                           1 / pow(tacit_noise_multiplier(400000), 2));
    offered o;
    (void)state;
    make_offer(&o, adapting, adapting_schedule);
    o.policy.minimum_noise_multiplier = step * (1 - 1e-12);
    expect_status(&o, TACIT_OK, "");
    drop_offer(&o);
    make_offer(&o, adapting, adapting_schedule);
    o.policy.minimum_noise_multiplier = step * (1 + 1e-12);
    expect_status(&o, TACIT_REFUSED, "noise multiplier");
    drop_offer(&o);
}

static void a_plan_must_be_its_schedules_round(void **state)
{
    static void (*const edits[])(Tacit__Plan *) = {
        more_noise,    less_noise,    more_steps,     other_clip,         other_rank,
        other_scale,   other_layers,  other_prompt,   other_image_prompt, other_kind,
        no_such_round, other_lineage, other_schedule,
    };
    (void)state;
    for (size_t i = 0; i < sizeof edits / sizeof edits[0]; i++) {
        offered o;
        make_offer(&o, edits[i], NULL);
        expect_status(&o, TACIT_INTEGRITY, "plan against its schedule");
        drop_offer(&o);
    }
}

static void planned_by_pld(Tacit__Plan *p)
{
    p->accountant = TACIT__ACCOUNTANT_KIND__ACCOUNTANT_RDP;
}
static void scheduled_by_pld(Tacit__Schedule *s)
{
    s->accountant = TACIT__ACCOUNTANT_KIND__ACCOUNTANT_RDP;
}

/* The device enforces its cap by rdp: what says otherwise, in both or in one, is not taken. */
static void an_accountant_that_nobody_keeps_is_refused(void **state)
{
    offered o;
    (void)state;
    make_offer(&o, planned_by_pld, scheduled_by_pld);
    expect_status(&o, TACIT_BAD_INPUT, "accountant: expected pld");
    drop_offer(&o);
    make_offer(&o, planned_by_pld, NULL);
    expect_status(&o, TACIT_BAD_INPUT, "accountant: expected pld");
    drop_offer(&o);
}

/* --- the log --- */

static void bytes_that_the_entry_does_not_log_are_refused(void **state)
{
    offered o;
    uint8_t *changed;
    (void)state;
    make_offer(&o, NULL, NULL);
    o.offer.plan = (tacit_span){o.w.plan[1], o.w.plan_size[1]};
    expect_status(&o, TACIT_INTEGRITY, "not the one that its entry logs");
    changed = malloc(o.w.plan_size[0]);
    memcpy(changed, o.w.plan[0], o.w.plan_size[0]);
    changed[o.w.plan_size[0] / 2] ^= 1;
    o.offer.plan = (tacit_span){changed, o.w.plan_size[0]};
    expect_status(&o, TACIT_INTEGRITY, "not the one that its entry logs");
    free(changed);
    drop_offer(&o);
}

static void a_stranger_cannot_log_a_plan(void **state)
{
    offered o;
    Tacit__Entry e = TACIT__ENTRY__INIT;
    Tacit__PlanLogged p = TACIT__PLAN_LOGGED__INIT;
    (void)state;
    make_offer(&o, NULL, NULL);
    e.body_case = TACIT__ENTRY__BODY_PLAN;
    e.plan = &p;
    p.plan = tacit_field_of(o.w.plan[0], o.w.plan_size[0]);
    world_push(&o.w, &e, o.w.stranger, NULL);
    prove(&o, o.w.count - 1);
    expect_status(&o, TACIT_INTEGRITY, "not signed by the log");
    drop_offer(&o);
}

static void a_damaged_signature_is_refused(void **state)
{
    offered o;
    uint8_t *copy;
    (void)state;
    make_offer(&o, NULL, NULL);
    copy = malloc(o.offer.entry.size);
    memcpy(copy, o.offer.entry.data, o.offer.entry.size);
    copy[o.offer.entry.size - 1] ^= 1; /* the signature is the last field */
    o.offer.entry.data = copy;
    expect_status(&o, TACIT_INTEGRITY, "");
    free(copy);
    drop_offer(&o);
}

static void another_kind_of_entry_is_refused(void **state)
{
    offered o;
    (void)state;
    make_offer(&o, NULL, NULL);
    prove(&o, 2);
    expect_status(&o, TACIT_INTEGRITY, "logs a schedule");
    drop_offer(&o);
}

static void a_plan_outside_the_log_is_refused(void **state)
{
    offered o;
    (void)state;
    make_offer(&o, NULL, NULL);
    o.offer.index = 2;
    expect_status(&o, TACIT_INTEGRITY, "not in the log");
    o.offer.index = 3;
    o.proof.hash[0][0] ^= 1;
    expect_status(&o, TACIT_INTEGRITY, "not in the log");
    o.proof.hash[0][0] ^= 1;
    o.checkpoint.root[5] ^= 1;
    expect_status(&o, TACIT_INTEGRITY, "not in the log");
    o.checkpoint.root[5] ^= 1;
    o.checkpoint.size = 3; /* a checkpoint from before the plan */
    expect_status(&o, TACIT_INTEGRITY, "not in the log");
    drop_offer(&o);
}

static void bytes_that_are_no_plan_are_refused(void **state)
{
    offered o;
    static const uint8_t junk[] = {0xff, 0xff, 0xff, 0xff};
    (void)state;
    make_offer(&o, NULL, NULL);
    o.offer.entry = (tacit_span){junk, sizeof junk};
    expect_status(&o, TACIT_BAD_INPUT, "");
    drop_offer(&o);
    make_offer(&o, NULL, NULL);
    o.offer.schedule = (tacit_span){junk, sizeof junk};
    expect_status(&o, TACIT_BAD_INPUT, "");
    drop_offer(&o);
}

/* --- the tiny model --- */

static tiny_model tiny;

static int load_model(void **state)
{
    tacit_layout layout;
    tacit_error err;
    Tacit__AdapterSpec a = TACIT__ADAPTER_SPEC__INIT;
    tacit_trainable_spec spec = {.kind = TACIT_TRAIN_LORA_FFA, .rank = 8, .alpha = 16};
    world_adapter(&a);
    spec.n_targets = a.n_targets;
    for (size_t i = 0; i < a.n_targets; i++)
        spec.target[i] = a.targets[i];
    tiny = tiny_load(false);
    if (tacit_layout_make(&layout, tiny.model, &spec, &err) != TACIT_OK)
        return -1;
    tiny_values = layout.values;
    tacit_layout_free(&layout);
    memcpy(tiny_base, tacit_model_base_digest(tiny.model), sizeof tiny_base);
    *state = &tiny;
    return 0;
}

static int unload_model(void **state)
{
    (void)state;
    tiny_free(&tiny);
    return 0;
}

static void train_the_most(Tacit__Plan *p)
{
    p->trainable_values = 16777216;
}

static void train_one_more(Tacit__Plan *p)
{
    p->trainable_values = 16777217;
}

static void train_all_that_fits(Tacit__Plan *p)
{
    p->trainable_values = UINT32_MAX;
}

/* An update has four bytes a value, and 64 MiB are the most that a server takes. */
static void plans_without_end_are_refused(void **state)
{
    static void (*const edits[])(Tacit__Plan *) = {train_one_more, train_all_that_fits};
    offered o;
    (void)state;
    make_offer(&o, train_the_most, NULL);
    expect_status(&o, TACIT_OK, "");
    drop_offer(&o);
    for (size_t i = 0; i < sizeof edits / sizeof edits[0]; i++) {
        make_offer(&o, edits[i], NULL);
        expect_status(&o, TACIT_REFUSED, "at most 16777216");
        drop_offer(&o);
    }
}

/* The plan is entry 3: a witness who has cosigned four entries has cosigned it. */
static void a_witness_must_have_cosigned_the_plan(void **state)
{
    offered o;
    tacit_note_key witness;
    (void)state;
    make_offer(&o, NULL, NULL);
    expect_status(&o, TACIT_OK, ""); /* without one in the policy */
    checked_plan_free(&o.plan);
    OK(tacit_note_key_make(&witness, "w", tacit_identity_sign_key(o.w.stranger), &o.err));
    tacit_witness_key_write(&witness, o.policy.witness);
    expect_status(&o, TACIT_AGAIN, "witness w has cosigned the first 0");
    o.offer.witnessed = 3;
    expect_status(&o, TACIT_AGAIN, "witness w has cosigned the first 3");
    o.offer.witnessed = 4;
    expect_status(&o, TACIT_OK, "");
    checked_plan_free(&o.plan);
    drop_offer(&o);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_witness_must_have_cosigned_the_plan),
        cmocka_unit_test(a_good_plan_passes),
        cmocka_unit_test(whole_devices_have_local_steps),
        cmocka_unit_test(plans_below_the_policy_are_refused),
        cmocka_unit_test(the_limits_of_the_policy_pass),
        cmocka_unit_test(mechanism_none_needs_permission),
        cmocka_unit_test(a_guarantee_needs_the_least_pad),
        cmocka_unit_test(a_round_of_too_many_steps_is_refused),
        cmocka_unit_test(plans_without_end_are_refused),
        cmocka_unit_test(another_base_is_named),
        cmocka_unit_test(other_shapes_are_refused),
        cmocka_unit_test(plans_that_do_not_fit_are_refused),
        cmocka_unit_test(a_base_of_the_same_shape_is_refused),
        cmocka_unit_test(targets_that_the_base_lacks_are_refused),
        cmocka_unit_test(an_adaptive_clip_is_its_schedules),
        cmocka_unit_test(a_count_is_noise_that_the_policy_sees),
        cmocka_unit_test(a_plan_must_be_its_schedules_round),
        cmocka_unit_test(an_accountant_that_nobody_keeps_is_refused),
        cmocka_unit_test(bytes_that_the_entry_does_not_log_are_refused),
        cmocka_unit_test(a_stranger_cannot_log_a_plan),
        cmocka_unit_test(a_damaged_signature_is_refused),
        cmocka_unit_test(another_kind_of_entry_is_refused),
        cmocka_unit_test(a_plan_outside_the_log_is_refused),
        cmocka_unit_test(bytes_that_are_no_plan_are_refused),
    };
    return cmocka_run_group_tests(tests, load_model, unload_model);
}
