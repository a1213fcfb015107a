#include "privacy/policy.h"

#include "common/digest.h"
#include "common/message.h"
#include "privacy/entry.h"
#include "privacy/release.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#define POLICY_FORMAT 1
#define PLAN_FORMAT 1
#define SCHEDULE_FORMAT 1
#define SCHEDULE_ROUNDS_MAX 10000
#define PLAN_TARGETS_MAX 64
#define WINDOW_RESERVES_MOST "1000"

_Static_assert(TACIT_WINDOW_RESERVES_MAX == 1000, "what messages say");

/* --- the policy itself --- */

tacit_status tacit_policy_validate(const tacit_policy *p, tacit_error *err)
{
    const struct {
        const char *name, *expected;
        bool good;
        double found;
    } rules[] = {
        {"epsilon", "above 0, at most 1e6",
         isfinite(p->epsilon_cap) && p->epsilon_cap > 0 && p->epsilon_cap <= 1e6, p->epsilon_cap},
        {"delta", "above 0 and below 1", p->delta >= 1e-300 && p->delta < 1, p->delta},
        {"unit", "one of record, subject, device",
         p->unit >= TACIT_UNIT_RECORD && p->unit <= TACIT_UNIT_DEVICE, (double)p->unit},
        {"minimum_noise_multiplier", "0 or more",
         isfinite(p->minimum_noise_multiplier) && p->minimum_noise_multiplier >= 0,
         p->minimum_noise_multiplier},
        {"devices_per_subject", "1 to 1000000",
         p->devices_per_subject >= 1 && p->devices_per_subject <= 1000000,
         (double)p->devices_per_subject},
        {"window_epsilon",
         p->window_reserves ? "above 0, at most 1e6, with window_reserves"
                            : "0 without window_reserves (a window needs both)",
         p->window_reserves
             ? isfinite(p->window_epsilon) && p->window_epsilon > 0 && p->window_epsilon <= 1e6
             : p->window_epsilon == 0,
         p->window_epsilon},
        {"window_reserves", "0 to " WINDOW_RESERVES_MOST,
         p->window_reserves <= TACIT_WINDOW_RESERVES_MAX, (double)p->window_reserves},
    };
    for (size_t i = 0; i < sizeof rules / sizeof rules[0]; i++)
        if (!rules[i].good)
            return tacit_fail(err, TACIT_BAD_INPUT, "policy: %s: expected %s, found %g",
                              rules[i].name, rules[i].expected, rules[i].found);
    tacit_note_key witness;
    if (p->witness[0] && tacit_witness_key_parse(&witness, p->witness, err) != TACIT_OK)
        return tacit_fail_context(err, "policy: witness_key");
    return TACIT_OK;
}

tacit_status tacit_policy_pack(const tacit_policy *policy, uint8_t **bytes, size_t *size,
                               tacit_error *err)
{
    tacit_status status = tacit_policy_validate(policy, err);
    if (status != TACIT_OK)
        return status;
    Tacit__DevicePolicy m = TACIT__DEVICE_POLICY__INIT;
    m.format = POLICY_FORMAT;
    m.epsilon_cap = policy->epsilon_cap;
    m.delta = policy->delta;
    m.unit = policy->unit;
    m.minimum_noise_multiplier = policy->minimum_noise_multiplier;
    m.minimum_cohort = policy->minimum_cohort;
    m.minimum_quorum = policy->minimum_quorum;
    m.allow_non_private = policy->allow_non_private;
    m.devices_per_subject = policy->devices_per_subject;
    m.witness_key = (char *)(uintptr_t)policy->witness;
    m.window_epsilon = policy->window_epsilon;
    m.window_reserves = policy->window_reserves;
    m.serial = policy->serial;
    return tacit_message_pack(&m, TACIT_POLICY_MAX_BYTES, bytes, size, err);
}

tacit_status tacit_policy_unpack(tacit_policy *out, const void *bytes, size_t size,
                                 tacit_error *err)
{
    Tacit__DevicePolicy *m;
    tacit_status status =
        TACIT_UNPACK(&m, tacit__device_policy, bytes, size, TACIT_POLICY_MAX_BYTES, err);
    if (status != TACIT_OK)
        return status;
    *out = (tacit_policy){
        .epsilon_cap = m->epsilon_cap,
        .delta = m->delta,
        .unit = (tacit_privacy_unit)m->unit,
        .minimum_noise_multiplier = m->minimum_noise_multiplier,
        .minimum_cohort = m->minimum_cohort,
        .minimum_quorum = m->minimum_quorum,
        .allow_non_private = m->allow_non_private,
        .devices_per_subject = m->devices_per_subject,
        .window_epsilon = m->window_epsilon,
        .window_reserves = m->window_reserves,
        .serial = m->serial,
    };
    uint32_t format = m->format;
    size_t witness_size = strlen(m->witness_key);
    if (witness_size < sizeof out->witness)
        memcpy(out->witness, m->witness_key, witness_size + 1);
    tacit_message_free(m);
    if (witness_size >= sizeof out->witness)
        return tacit_fail(err, TACIT_BAD_INPUT,
                          "policy: witness_key has %zu bytes, expected at most %zu", witness_size,
                          sizeof out->witness - 1);
    if (format != POLICY_FORMAT)
        return tacit_fail(err, TACIT_BAD_INPUT, "policy: expected format %d, found %u",
                          POLICY_FORMAT, format);
    return tacit_policy_validate(out, err);
}

tacit_status tacit_policy_sign(const void *bytes, size_t size, const tacit_identity *id,
                               uint8_t signature[TACIT_SIGNATURE_BYTES], tacit_error *err)
{
    return tacit_identity_sign(id, TACIT_POLICY_DOMAIN, bytes, size, signature, err);
}

#define KEYED_MAX (TACIT_SIGN_KEY_BYTES + TACIT_POLICY_MAX_BYTES)

/* policy key || policy; 0 when the policy is too long to be one. */
static size_t keyed_policy(uint8_t out[KEYED_MAX], const uint8_t *key, const void *policy,
                           size_t size)
{
    if (size > TACIT_POLICY_MAX_BYTES)
        return 0;
    memcpy(out, key, TACIT_SIGN_KEY_BYTES);
    memcpy(out + TACIT_SIGN_KEY_BYTES, policy, size);
    return TACIT_SIGN_KEY_BYTES + size;
}

tacit_status tacit_policy_enrol_sign(const void *bytes, size_t size,
                                     const uint8_t policy_key[TACIT_SIGN_KEY_BYTES],
                                     const tacit_identity *id,
                                     uint8_t signature[TACIT_SIGNATURE_BYTES], tacit_error *err)
{
    uint8_t keyed[KEYED_MAX];
    if (!policy_key)
        return tacit_policy_sign(bytes, size, id, signature, err);
    size_t keyed_size = keyed_policy(keyed, policy_key, bytes, size);
    if (!keyed_size)
        return tacit_fail(err, TACIT_BAD_INPUT, "policy: expected at most %d bytes, found %zu",
                          TACIT_POLICY_MAX_BYTES, size);
    return tacit_identity_sign(id, TACIT_POLICY_KEY_DOMAIN, keyed, keyed_size, signature, err);
}

bool tacit_policy_enrol_holds(const uint8_t identity_key[TACIT_SIGN_KEY_BYTES],
                              ProtobufCBinaryData policy, ProtobufCBinaryData policy_key,
                              const uint8_t signature[TACIT_SIGNATURE_BYTES])
{
    uint8_t keyed[KEYED_MAX];
    if (policy_key.len == 0)
        return tacit_signature_holds(identity_key, TACIT_POLICY_DOMAIN, policy.data, policy.len,
                                     signature);
    size_t size = policy_key.len == TACIT_SIGN_KEY_BYTES
                      ? keyed_policy(keyed, policy_key.data, policy.data, policy.len)
                      : 0;
    return size &&
           tacit_signature_holds(identity_key, TACIT_POLICY_KEY_DOMAIN, keyed, size, signature);
}

static bool window_weakens(const tacit_policy *from, const tacit_policy *to)
{
    return from->window_reserves && (to->window_epsilon > from->window_epsilon ||
                                     to->window_reserves < from->window_reserves);
}

bool tacit_policy_weakens(const tacit_policy *from, const tacit_policy *to)
{
    return to->epsilon_cap > from->epsilon_cap || to->delta != from->delta ||
           to->unit != from->unit ||
           to->minimum_noise_multiplier < from->minimum_noise_multiplier ||
           to->minimum_cohort < from->minimum_cohort || to->minimum_quorum < from->minimum_quorum ||
           to->allow_non_private > from->allow_non_private ||
           to->devices_per_subject < from->devices_per_subject || window_weakens(from, to) ||
           (from->witness[0] && strcmp(from->witness, to->witness) != 0);
}

/* In the widest policy of a device that had several. */
#define ANY_UNIT ((tacit_privacy_unit)0)

/* No window is the widest of all. */
static void widen_window(tacit_policy *widest, const tacit_policy *p)
{
    bool open = !widest->window_reserves || !p->window_reserves;
    widest->window_epsilon = open ? 0 : fmax(widest->window_epsilon, p->window_epsilon);
    if (open || p->window_reserves < widest->window_reserves)
        widest->window_reserves = open ? 0 : p->window_reserves;
}

void tacit_policy_widen(tacit_policy *widest, const tacit_policy *p)
{
    widest->epsilon_cap = fmax(widest->epsilon_cap, p->epsilon_cap);
    if (p->unit != widest->unit)
        widest->unit = ANY_UNIT;
    widest->minimum_noise_multiplier =
        fmin(widest->minimum_noise_multiplier, p->minimum_noise_multiplier);
    if (p->minimum_cohort < widest->minimum_cohort)
        widest->minimum_cohort = p->minimum_cohort;
    if (p->minimum_quorum < widest->minimum_quorum)
        widest->minimum_quorum = p->minimum_quorum;
    widest->allow_non_private = widest->allow_non_private || p->allow_non_private;
    if (p->devices_per_subject < widest->devices_per_subject)
        widest->devices_per_subject = p->devices_per_subject;
    if (strcmp(widest->witness, p->witness) != 0)
        widest->witness[0] = '\0';
    widen_window(widest, p);
}

/* --- a plan against a policy --- */

static tacit_status check_protection(const tacit_policy *policy, const tacit_mechanism *m,
                                     double delta, tacit_error *err)
{
    if (m->kind == TACIT_MECHANISM_NONE) {
        if (policy->allow_non_private)
            return TACIT_OK;
        return tacit_fail(err, TACIT_REFUSED,
                          "plan's mechanism is none, which this device refuses; set "
                          "allow_non_private in its policy if nothing on it is private");
    }
    double z = tacit_mechanism_noise_multiplier(m);
    if (policy->unit != ANY_UNIT && m->unit != policy->unit)
        return tacit_fail(err, TACIT_REFUSED,
                          "plan's unit is %s, this device's is %s: an epsilon for one is none for "
                          "the other; ask for plans of its unit",
                          tacit_privacy_unit_name(m->unit), tacit_privacy_unit_name(policy->unit));
    if (z < policy->minimum_noise_multiplier)
        return tacit_fail(err, TACIT_REFUSED,
                          "plan's noise multiplier %.6g is below this device's minimum %.6g", z,
                          policy->minimum_noise_multiplier);
    if (delta > policy->delta)
        return tacit_fail(err, TACIT_REFUSED, "plan's delta %.6g is above this device's %.6g",
                          delta, policy->delta);
    return TACIT_OK;
}

tacit_status tacit_policy_check(const tacit_policy *policy, const Tacit__Plan *plan,
                                tacit_error *err)
{
    tacit_mechanism m;
    tacit_status status = tacit_mechanism_from_plan(&m, plan, err);
    if (status == TACIT_OK)
        status = check_protection(policy, &m, plan->delta, err);
    if (status != TACIT_OK)
        return status;
    if (plan->cohort < policy->minimum_cohort)
        return tacit_fail(err, TACIT_REFUSED, "plan's cohort %u is below this device's minimum %u",
                          plan->cohort, policy->minimum_cohort);
    if (plan->quorum < policy->minimum_quorum)
        return tacit_fail(err, TACIT_REFUSED, "plan's quorum %u is below this device's minimum %u",
                          plan->quorum, policy->minimum_quorum);
    return TACIT_OK;
}

/* What a reserve does not log has no bearing on its cost. */
tacit_mechanism tacit_reserve_mechanism(const Tacit__Reserve *r)
{
    bool adapts = r->quantile_b != 0;
    return (tacit_mechanism){
        .kind = (tacit_mechanism_kind)r->kind,
        .unit = (tacit_privacy_unit)r->unit,
        .neighbours = (tacit_neighbours)r->neighbours,
        .clip_norm = r->clip_norm,
        .b = r->b,
        .q_num = r->q_num,
        .steps = r->steps,
        .divisor = 1,
        .unit_examples = 1,
        .quantile_b = r->quantile_b,
        .quantile_target = adapts ? 0.5 : 0,
        .clip_rate = adapts ? 1 : 0,
        .clip_min = adapts ? TACIT_CLIP_NORM_MIN : 0,
        .clip_max = adapts ? TACIT_CLIP_NORM_MAX : 0,
        .minimum_separation = r->minimum_separation,
    };
}

tacit_status tacit_policy_check_reserve(const tacit_policy *policy, const Tacit__Reserve *reserve,
                                        tacit_error *err)
{
    tacit_mechanism m = tacit_reserve_mechanism(reserve);
    tacit_status status = tacit_mechanism_validate(&m, err);
    if (status == TACIT_OK)
        status = check_protection(policy, &m, reserve->delta, err);
    return status;
}

/* --- structure --- */

static const char *adapter_complaint(const Tacit__AdapterSpec *a)
{
    if (!a || a->kind == TACIT__ADAPTER_KIND__ADAPTER_UNSPECIFIED)
        return "adapter is missing";
    bool prompt = a->kind == TACIT__ADAPTER_KIND__ADAPTER_PROMPT;
    if (prompt && a->virtual_tokens + (uint64_t)a->image_virtual_tokens < 1)
        return "adapter virtual tokens are missing";
    if (!prompt && (a->n_targets < 1 || a->n_targets > PLAN_TARGETS_MAX))
        return "adapter targets are missing or too many";
    if (!prompt && (a->rank < 1 || a->rank > 65536 || !isfinite(a->alpha) || a->alpha <= 0))
        return "adapter rank or alpha is out of range";
    return a->lineage_seed.len == 32 ? NULL : "adapter lineage_seed has not 32 bytes";
}

/* Budgets and reserves are kept by one rule (privacy/budget.h): a log that names another accountant
 * would say what nobody enforces. */
static const char not_pld[] = "accountant: expected pld, the one that budgets are kept by";

static bool delta_fits(double delta, bool all_none)
{
    return all_none ? delta >= 0 && delta < 1 : delta > 0 && delta < 1;
}

tacit_status tacit_schedule_validate(const Tacit__Schedule *s, tacit_error *err)
{
    const char *complaint = NULL;
    size_t none = 0;
    if (s->format != SCHEDULE_FORMAT)
        complaint = "format is unknown";
    else if (s->lineage.len != 16 || s->base_digest.len != 32)
        complaint = "lineage or base_digest has a wrong length";
    else if (s->n_rounds < 1 || s->n_rounds > SCHEDULE_ROUNDS_MAX)
        complaint = "rounds are missing or too many";
    else if (s->accountant != TACIT__ACCOUNTANT_KIND__ACCOUNTANT_PLD)
        complaint = not_pld;
    else if (s->initial_adapter.len != 0 && s->initial_adapter.len != 32)
        complaint = "initial_adapter has neither 0 nor 32 bytes";
    else
        complaint = adapter_complaint(s->adapter);
    for (size_t i = 0; i < s->n_rounds && !complaint; i++) {
        tacit_mechanism m;
        tacit_status status = tacit_mechanism_from_message(&m, s->rounds[i]->mechanism, err);
        if (status != TACIT_OK)
            return tacit_fail_context(err, "schedule round %zu", i);
        none += m.kind == TACIT_MECHANISM_NONE;
    }
    if (!complaint && none && none != s->n_rounds)
        complaint = "rounds of mechanism none are mixed with private ones";
    if (!complaint && !delta_fits(s->delta, none > 0))
        complaint = "delta is out of range";
    if (complaint)
        return tacit_fail(err, TACIT_BAD_INPUT, "schedule: %s", complaint);
    return TACIT_OK;
}

static const char *plan_complaint(const Tacit__Plan *p)
{
    const struct {
        bool good;
        const char *complaint;
    } rules[] = {
        {p->format == PLAN_FORMAT, "format is unknown"},
        {p->round_id.len == 16 && p->lineage.len == 16, "round_id or lineage has not 16 bytes"},
        {p->schedule_hash.len == 32 && p->base_digest.len == 32,
         "schedule_hash or base_digest has not 32 bytes"},
        {p->parent_digest.len == (p->parent_version ? 32u : 0u), "parent_digest is wrong"},
        {p->trainable_values >= 1, "trainable_values is missing"},
        {p->optimizer && p->optimizer->kind != TACIT__OPTIMIZER_KIND__OPTIMIZER_UNSPECIFIED,
         "optimizer is missing"},
        {p->accountant == TACIT__ACCOUNTANT_KIND__ACCOUNTANT_PLD, not_pld},
        {isfinite(p->norm_bound) && p->norm_bound > 0, "norm_bound is out of range"},
        {isfinite(p->update_scale) && p->update_scale > 0, "update_scale is out of range"},
        {p->cohort >= 1 && p->quorum >= 1 && p->quorum <= p->cohort,
         "quorum is not within 1 and cohort"},
        {p->aggregator_key.len == 32, "aggregator_key has not 32 bytes"},
        {p->max_tokens >= 1, "max_tokens is missing"},
    };
    for (size_t i = 0; i < sizeof rules / sizeof rules[0]; i++)
        if (!rules[i].good)
            return rules[i].complaint;
    return adapter_complaint(p->adapter);
}

/* What only plans of the device unit have, and must have. */
static tacit_status check_whole_device(const Tacit__Plan *p, const tacit_mechanism *m,
                                       tacit_error *err)
{
    bool whole = m->unit == TACIT_UNIT_DEVICE;
    uint32_t least = whole ? 1 : 0, most = whole ? TACIT_STEPS_MAX : 0;
    if (p->local_steps < least || p->local_steps > most)
        return tacit_fail(err, TACIT_BAD_INPUT,
                          "plan: local_steps: expected %u to %u with unit %s, found %u", least,
                          most, tacit_privacy_unit_name(m->unit), p->local_steps);
    if (p->assumed_colluders && !whole)
        return tacit_fail(err, TACIT_BAD_INPUT,
                          "plan: assumed_colluders: expected 0 with unit %s, found %u",
                          tacit_privacy_unit_name(m->unit), p->assumed_colluders);
    if (tacit_mechanism_releases_whole(m) && p->update_scale != tacit_release_scale(m))
        return tacit_fail(err, TACIT_BAD_INPUT,
                          "plan: update_scale: expected %.17g, one unit of the grid that clip_norm "
                          "%g gives, found %.17g",
                          tacit_release_scale(m), m->clip_norm, p->update_scale);
    return TACIT_OK;
}

tacit_status tacit_plan_validate(const Tacit__Plan *plan, tacit_error *err)
{
    const char *complaint = plan_complaint(plan);
    if (complaint)
        return tacit_fail(err, TACIT_BAD_INPUT, "plan: %s", complaint);
    tacit_mechanism m;
    tacit_status status = tacit_mechanism_from_plan(&m, plan, err);
    if (status != TACIT_OK)
        return tacit_fail_context(err, "plan");
    status = check_whole_device(plan, &m, err);
    if (status != TACIT_OK)
        return status;
    if (!delta_fits(plan->delta, m.kind == TACIT_MECHANISM_NONE))
        return tacit_fail(err, TACIT_BAD_INPUT, "plan: delta %g is out of range", plan->delta);
    return TACIT_OK;
}

/* --- equality --- */

static bool fields_equal(ProtobufCBinaryData a, ProtobufCBinaryData b)
{
    return a.len == b.len && (a.len == 0 || memcmp(a.data, b.data, a.len) == 0);
}

static bool field_is(ProtobufCBinaryData a, const uint8_t *bytes, size_t size)
{
    return a.len == size && memcmp(a.data, bytes, size) == 0;
}

static bool adapters_equal(const Tacit__AdapterSpec *a, const Tacit__AdapterSpec *b)
{
    bool equal = a->kind == b->kind && a->n_targets == b->n_targets && a->rank == b->rank &&
                 a->alpha == b->alpha && fields_equal(a->lineage_seed, b->lineage_seed) &&
                 a->rslora == b->rslora && a->last_layers == b->last_layers &&
                 a->virtual_tokens == b->virtual_tokens &&
                 a->image_virtual_tokens == b->image_virtual_tokens;
    for (size_t i = 0; equal && i < a->n_targets; i++)
        equal = strcmp(a->targets[i], b->targets[i]) == 0;
    return equal;
}

static tacit_status differs(const char *who, const char *field, tacit_error *err)
{
    return tacit_fail(err, TACIT_INTEGRITY, "%s: %s differs", who, field);
}

static bool round_mechanism_equal(const Tacit__Plan *plan, const Tacit__Schedule *schedule)
{
    tacit_mechanism planned, scheduled;
    return tacit_mechanism_from_plan(&planned, plan, NULL) == TACIT_OK &&
           tacit_mechanism_from_message(&scheduled, schedule->rounds[plan->round_index]->mechanism,
                                        NULL) == TACIT_OK &&
           tacit_mechanism_equal(&planned, &scheduled);
}

tacit_status tacit_plan_follows_schedule(const Tacit__Plan *plan, const Tacit__Schedule *schedule,
                                         const uint8_t schedule_hash[32], tacit_error *err)
{
    static const char who[] = "plan against its schedule";
    if (!field_is(plan->schedule_hash, schedule_hash, 32))
        return differs(who, "schedule_hash", err);
    if (plan->round_index >= schedule->n_rounds)
        return tacit_fail(err, TACIT_INTEGRITY, "%s: round %u of %zu", who, plan->round_index,
                          schedule->n_rounds);
    const struct {
        const char *field;
        bool equal;
    } rules[] = {
        {"lineage", fields_equal(plan->lineage, schedule->lineage)},
        {"base_digest", fields_equal(plan->base_digest, schedule->base_digest)},
        {"adapter",
         plan->adapter && schedule->adapter && adapters_equal(plan->adapter, schedule->adapter)},
        {"delta", plan->delta == schedule->delta},
        {"accountant", plan->accountant == schedule->accountant},
        {"mechanism", round_mechanism_equal(plan, schedule)},
    };
    for (size_t i = 0; i < sizeof rules / sizeof rules[0]; i++)
        if (!rules[i].equal)
            return differs(who, rules[i].field, err);
    return TACIT_OK;
}

tacit_status tacit_reserve_follows_plan(const Tacit__Reserve *reserve, const Tacit__Plan *plan,
                                        const uint8_t plan_hash[32], tacit_error *err)
{
    tacit_mechanism m;
    tacit_status status = tacit_mechanism_from_plan(&m, plan, err);
    if (status != TACIT_OK)
        return status;
    const struct {
        const char *field;
        bool equal;
    } rules[] = {
        {"plan_hash", field_is(reserve->plan_hash, plan_hash, 32)},
        {"round_id", reserve->round_id.len == 0 || fields_equal(reserve->round_id, plan->round_id)},
        {"lineage", fields_equal(reserve->lineage, plan->lineage)},
        {"kind", reserve->kind == (uint32_t)m.kind},
        {"unit", reserve->unit == (uint32_t)m.unit},
        {"neighbours", reserve->neighbours == (uint32_t)m.neighbours},
        {"b", reserve->b == m.b},
        {"q_num", reserve->q_num == m.q_num},
        {"steps", reserve->steps == m.steps},
        {"clip_norm", reserve->clip_norm == m.clip_norm},
        {"quantile_b", reserve->quantile_b == m.quantile_b},
        {"minimum_separation", reserve->minimum_separation == m.minimum_separation},
        {"values", reserve->values == plan->trainable_values},
    };
    for (size_t i = 0; i < sizeof rules / sizeof rules[0]; i++)
        if (!rules[i].equal)
            return differs("reserve against its plan", rules[i].field, err);
    return TACIT_OK;
}
