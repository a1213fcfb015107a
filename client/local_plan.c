#include "client/local_plan.h"

#include "common/message.h"
#include "engine/plan_spec.h"
#include "privacy/budget.h"
#include "privacy/release.h"

#include <math.h>
#include <sodium.h>
#include <stdlib.h>
#include <string.h>

#define UPDATE_SCALE 1048576.0 /* of an update that is never made */

/* Everything the two messages point to. */
typedef struct making {
    const local_plan_request *asked;
    Tacit__Mechanism mechanism;
    Tacit__AdapterSpec adapter;
    Tacit__Optimizer optimizer;
    Tacit__ScheduledRound round;
    Tacit__ScheduledRound *rounds[1];
    char *target[TACIT_TRAINABLE_TARGETS_MAX];
    uint8_t seed[32], lineage[16], round_id[16], key[32], base[TACIT_DIGEST_BYTES];
    uint8_t schedule_hash[TACIT_DIGEST_BYTES];
} making;

static tacit_status set_lora(making *m, tacit_error *err)
{
    const local_plan_request *r = m->asked;
    Tacit__AdapterSpec *a = &m->adapter;
    if (r->n_targets < 1 || r->n_targets > TACIT_TRAINABLE_TARGETS_MAX)
        return tacit_fail(err, TACIT_USAGE, "targets: expected 1 to %d, found %zu",
                          TACIT_TRAINABLE_TARGETS_MAX, r->n_targets);
    for (size_t i = 0; i < r->n_targets; i++)
        m->target[i] = (char *)(uintptr_t)r->targets[i];
    a->kind =
        r->core ? TACIT__ADAPTER_KIND__ADAPTER_LORA_CORE : TACIT__ADAPTER_KIND__ADAPTER_LORA_FFA;
    a->targets = m->target;
    a->n_targets = r->n_targets;
    a->rank = r->rank;
    a->alpha = r->alpha;
    a->rslora = r->rslora;
    a->last_layers = r->last_layers;
    return TACIT_OK;
}

static tacit_status set_adapter(making *m, tacit_error *err)
{
    const local_plan_request *r = m->asked;
    Tacit__AdapterSpec *a = &m->adapter;
    *a = (Tacit__AdapterSpec)TACIT__ADAPTER_SPEC__INIT;
    randombytes_buf(m->seed, sizeof m->seed);
    a->lineage_seed = tacit_field_of(m->seed, sizeof m->seed);
    if (r->virtual_tokens + r->image_virtual_tokens == 0)
        return set_lora(m, err);
    a->kind = TACIT__ADAPTER_KIND__ADAPTER_PROMPT;
    a->virtual_tokens = r->virtual_tokens;
    a->image_virtual_tokens = r->image_virtual_tokens;
    return TACIT_OK;
}

/* What one round costs as an event; its sigma is to be found. */
static tacit_status shape_of(const making *m, tacit_event *event, tacit_error *err)
{
    tacit_mechanism shape;
    Tacit__Mechanism some = m->mechanism;
    some.b = TACIT_B_MIN; /* its place is held */
    some.clip_norm = m->asked->clip_norm;
    tacit_status status = tacit_mechanism_from_message(&shape, &some, err);
    return status == TACIT_OK ? tacit_event_from_mechanism(event, &shape, 1, err) : status;
}

/* The least noise for the epsilon asked, as the account will read it. */
static tacit_status calibrate(const making *m, size_t values, double *z, tacit_error *err)
{
    const local_plan_request *r = m->asked;
    tacit_event event;
    tacit_status status = shape_of(m, &event, err);
    if (status != TACIT_OK)
        return status;
    status = tacit_budget_calibrate(&event, tacit_step_noise_values(values, r->adapt.quantile != 0),
                                    r->epsilon, r->delta, z, err);
    return status == TACIT_OK ? status : tacit_fail_context(err, "--epsilon %g", r->epsilon);
}

static tacit_status set_mechanism(making *m, size_t values, tacit_error *err)
{
    const local_plan_request *r = m->asked;
    Tacit__Mechanism *out = &m->mechanism;
    double z = r->noise_multiplier;
    *out = (Tacit__Mechanism)TACIT__MECHANISM__INIT;
    out->kind = r->non_private  ? TACIT__MECHANISM_KIND__MECHANISM_NONE
                : r->separation ? TACIT__MECHANISM_KIND__MECHANISM_TREE_GAUSSIAN
                                : TACIT__MECHANISM_KIND__MECHANISM_SUBSAMPLED_GAUSSIAN;
    out->minimum_separation = r->separation;
    out->unit = (Tacit__Unit)r->unit;
    out->neighbours = TACIT__NEIGHBOURS__NEIGHBOURS_ADD_REMOVE;
    out->steps = r->unit == TACIT_UNIT_DEVICE ? 1 : r->steps;
    out->divisor = r->divisor;
    out->unit_examples = r->unit_examples;
    tacit_status status = tacit_q_num_for_rate(&out->q_num, r->separation ? 1 : r->q, err);
    if (status == TACIT_OK && !r->non_private && r->epsilon > 0)
        status = calibrate(m, values, &z, err);
    if (status == TACIT_OK && !r->non_private)
        status = tacit_mechanism_set_noise(out, r->clip_norm, z, &r->adapt, err);
    return status;
}

static tacit_status append_packed(tacit_buffer *out, const void *message, tacit_error *err)
{
    uint8_t *bytes = NULL;
    size_t size = 0;
    tacit_status status = tacit_message_pack(message, TACIT_MESSAGE_ENTRY_MAX, &bytes, &size, err);
    if (status == TACIT_OK && tacit_buffer_append(out, bytes, size) != TACIT_OK)
        status = tacit_fail(err, TACIT_NO_MEMORY, "no memory for a plan");
    free(bytes);
    return status;
}

static tacit_status pack_schedule(making *m, tacit_buffer *out, tacit_error *err)
{
    Tacit__Schedule s = TACIT__SCHEDULE__INIT;
    m->round = (Tacit__ScheduledRound)TACIT__SCHEDULED_ROUND__INIT;
    m->round.mechanism = &m->mechanism;
    m->rounds[0] = &m->round;
    randombytes_buf(m->lineage, sizeof m->lineage);
    s.format = 1;
    s.lineage = tacit_field_of(m->lineage, sizeof m->lineage);
    s.base_digest = tacit_field_of(m->base, sizeof m->base);
    s.adapter = &m->adapter;
    s.rounds = m->rounds;
    s.n_rounds = 1;
    s.delta = m->asked->non_private ? 0 : m->asked->delta;
    s.accountant = TACIT__ACCOUNTANT_KIND__ACCOUNTANT_PLD;
    tacit_status status = append_packed(out, &s, err);
    if (status == TACIT_OK)
        tacit_digest(m->schedule_hash, out->data, out->size);
    return status;
}

static tacit_status pack_plan(making *m, size_t values, const tacit_policy *policy,
                              tacit_buffer *out, tacit_error *err)
{
    Tacit__Plan p = TACIT__PLAN__INIT;
    tacit_mechanism mechanism;
    tacit_status status = tacit_mechanism_from_message(&mechanism, &m->mechanism, err);
    if (status != TACIT_OK)
        return status;
    randombytes_buf(m->round_id, sizeof m->round_id);
    randombytes_buf(m->key, sizeof m->key);
    p.format = 1;
    p.round_id = tacit_field_of(m->round_id, sizeof m->round_id);
    p.lineage = tacit_field_of(m->lineage, sizeof m->lineage);
    p.schedule_hash = tacit_field_of(m->schedule_hash, sizeof m->schedule_hash);
    p.base_digest = tacit_field_of(m->base, sizeof m->base);
    p.adapter = &m->adapter;
    p.trainable_values = (uint32_t)values;
    p.optimizer = &m->optimizer;
    p.mechanism = &m->mechanism;
    p.delta = m->asked->non_private ? 0 : m->asked->delta;
    p.accountant = TACIT__ACCOUNTANT_KIND__ACCOUNTANT_PLD;
    p.norm_bound = 1; /* no update leaves the device: these are never used */
    p.update_scale =
        tacit_mechanism_releases_whole(&mechanism) ? tacit_release_scale(&mechanism) : UPDATE_SCALE;
    p.local_steps = mechanism.unit == TACIT_UNIT_DEVICE ? m->asked->steps : 0;
    p.cohort = policy->minimum_cohort > policy->minimum_quorum ? policy->minimum_cohort
                                                               : policy->minimum_quorum;
    p.quorum = p.target = policy->minimum_quorum;
    p.aggregator_key = tacit_field_of(m->key, sizeof m->key);
    p.max_tokens = m->asked->max_tokens;
    return append_packed(out, &p, err);
}

static tacit_status count_values(const making *m, const tacit_model *model, size_t *values,
                                 tacit_error *err)
{
    tacit_trainable_spec spec;
    tacit_layout layout;
    tacit_status status = tacit_trainable_spec_from_message(&spec, &m->adapter, err);
    if (status == TACIT_OK)
        status = tacit_layout_make(&layout, model, &spec, err);
    if (status != TACIT_OK)
        return status;
    *values = layout.values;
    tacit_layout_free(&layout);
    return *values <= UINT32_MAX
               ? TACIT_OK
               : tacit_fail(err, TACIT_USAGE, "the adapter has more than 2^32 values");
}

tacit_status local_plan_make(tacit_buffer *plan, tacit_buffer *schedule,
                             const local_plan_request *request, const tacit_policy *policy,
                             const tacit_model *model, tacit_error *err)
{
    making m = {.asked = request};
    size_t values = 0;
    tacit_status status;
    memcpy(m.base, tacit_model_base_digest(model), sizeof m.base);
    TACIT_TRY(set_adapter(&m, err), done);
    TACIT_TRY(count_values(&m, model, &values, err), done);
    TACIT_TRY(set_mechanism(&m, values, err), done);
    tacit_optimizer_message_of_spec(&m.optimizer, &m.asked->optimizer);
    TACIT_TRY(pack_schedule(&m, schedule, err), done);
    TACIT_TRY(pack_plan(&m, values, policy, plan, err), done);
done:
    return status;
}
