#include "client/plan_check.h"

#include "client/local_training.h"
#include "common/message.h"
#include "common/text.h"
#include "engine/plan_spec.h"
#include "privacy/entry.h"

#include <inttypes.h>
#include <malloc.h>
#include <string.h>

void checked_plan_free(checked_plan *p)
{
    tacit_message_free(p->plan);
    tacit_message_free(p->schedule);
    *p = (checked_plan){0};
}

/* --- what the bytes say --- */

/* How long training takes follows from how many units were drawn. An upload that leaves when it
 * ends tells the server, so a guarantee needs a wait that training fits in. */
static tacit_status check_pad(const checked_plan *p, uint64_t minimum, tacit_error *err)
{
    const Tacit__Plan *plan = p->plan;
    if (p->mechanism.kind != TACIT_MECHANISM_NONE && plan->pad_seconds < minimum)
        return tacit_fail(err, TACIT_REFUSED,
                          "plan's pad of %u seconds from reserve to upload is below this device's "
                          "minimum_pad_seconds %llu",
                          plan->pad_seconds, (unsigned long long)minimum);
    if (plan->pad_seconds > PLAN_PAD_SECONDS_MAX)
        return tacit_fail(err, TACIT_REFUSED,
                          "plan's upload would wait %u seconds; this device waits at most %u",
                          plan->pad_seconds, PLAN_PAD_SECONDS_MAX);
    return TACIT_OK;
}

/* A round is trained to its last step whatever its deadline, so that nothing about the data shows:
 * what it may cost in time and power must be settled before the first one. */
static tacit_status check_steps(const checked_plan *p, uint64_t maximum, tacit_error *err)
{
    uint32_t steps = p->plan->local_steps ? p->plan->local_steps : p->mechanism.steps;
    if (steps <= maximum)
        return TACIT_OK;
    return tacit_fail(err, TACIT_REFUSED,
                      "plan's round of %u steps is above this device's maximum_steps %llu", steps,
                      (unsigned long long)maximum);
}

/* Rank and targets are the server's choice: on a model of 135M parameters the largest would take
 * gigabytes, and the device would be ended by its own system. */
static tacit_status check_values(const Tacit__Plan *plan, tacit_error *err)
{
    if (plan->trainable_values <= PLAN_VALUES_MAX)
        return TACIT_OK;
    return tacit_fail(
        err, TACIT_REFUSED,
        "plan trains %u values; this device trains at most %u, lower its rank or take "
        "fewer targets",
        plan->trainable_values, PLAN_VALUES_MAX);
}

tacit_status plan_open(checked_plan *out, tacit_span plan, tacit_span schedule, tacit_error *err)
{
    uint8_t schedule_hash[TACIT_DIGEST_BYTES];
    tacit_status status;
    *out = (checked_plan){0};
    TACIT_TRY(
        TACIT_UNPACK(&out->plan, tacit__plan, plan.data, plan.size, TACIT_MESSAGE_ENTRY_MAX, err),
        fail);
    TACIT_TRY(TACIT_UNPACK(&out->schedule, tacit__schedule, schedule.data, schedule.size,
                           TACIT_MESSAGE_ENTRY_MAX, err),
              fail);
    tacit_digest(out->plan_hash, plan.data, plan.size);
    tacit_digest(schedule_hash, schedule.data, schedule.size);
    TACIT_TRY(tacit_plan_validate(out->plan, err), fail);
    TACIT_TRY(tacit_schedule_validate(out->schedule, err), fail);
    TACIT_TRY(tacit_plan_follows_schedule(out->plan, out->schedule, schedule_hash, err), fail);
    TACIT_TRY(tacit_mechanism_from_plan(&out->mechanism, out->plan, err), fail);
    TACIT_TRY(tacit_trainable_spec_from_message(&out->spec, out->plan->adapter, err), fail);
    TACIT_TRY(tacit_optimizer_spec_from_message(&out->optimizer, out->plan->optimizer, err), fail);
    return TACIT_OK;
fail:
    checked_plan_free(out);
    return status;
}

/* --- where the bytes come from --- */

static tacit_status check_logged(const plan_offer *offer, const tacit_note_key *log,
                                 tacit_entry *entry, tacit_error *err)
{
    if (memcmp(entry->envelope->signer.data, log->key, TACIT_SIGN_KEY_BYTES) != 0)
        return tacit_fail(err, TACIT_INTEGRITY,
                          "plan: its entry is not signed by the log of this device's server");
    if (entry->entry->body_case != TACIT__ENTRY__BODY_PLAN)
        return tacit_fail(err, TACIT_INTEGRITY, "plan: the entry that came with it logs a %s",
                          tacit_entry_kind_name(entry->entry->body_case));
    const ProtobufCBinaryData *logged = &entry->entry->plan->plan;
    if (logged->len != offer->plan.size ||
        memcmp(logged->data, offer->plan.data, offer->plan.size) != 0)
        return tacit_fail(err, TACIT_INTEGRITY, "plan: it is not the one that its entry logs");
    tacit_status status =
        tacit_merkle_verify_inclusion(entry->leaf, offer->index, offer->checkpoint->size,
                                      offer->inclusion, offer->checkpoint->root, err);
    return status == TACIT_OK ? TACIT_OK : tacit_fail_context(err, "plan: it is not in the log");
}

static tacit_status check_origin(const plan_offer *offer, const tacit_note_key *log,
                                 uint64_t *logged_ms, tacit_error *err)
{
    tacit_entry entry;
    tacit_status status = tacit_entry_open(&entry, offer->entry.data, offer->entry.size, err);
    if (status != TACIT_OK)
        return tacit_fail_context(err, "plan: its entry");
    status = check_logged(offer, log, &entry, err);
    *logged_ms = entry.entry->time_ms;
    tacit_entry_close(&entry);
    return status;
}

static tacit_status check_base(const Tacit__Plan *plan, const uint8_t *base, tacit_error *err)
{
    char wanted[2 * TACIT_DIGEST_BYTES + 1], have[2 * TACIT_DIGEST_BYTES + 1];
    if (memcmp(plan->base_digest.data, base, TACIT_DIGEST_BYTES) == 0)
        return TACIT_OK;
    tacit_hex(wanted, plan->base_digest.data, TACIT_DIGEST_BYTES);
    tacit_hex(have, base, TACIT_DIGEST_BYTES);
    return tacit_fail(err, TACIT_REFUSED,
                      "plan is for the base %s, this device has %s; give it that model in "
                      "client.yaml",
                      wanted, have);
}

/* What a witness has cosigned, it has seen as part of one log only. */
static tacit_status check_witness(const plan_offer *offer, const tacit_policy *policy,
                                  tacit_error *err)
{
    if (!policy->witness[0] || offer->index < offer->witnessed)
        return TACIT_OK;
    return tacit_fail(err, TACIT_AGAIN,
                      "plan: it is entry %" PRIu64
                      " of the log and this device's witness %.*s has cosigned the first %" PRIu64
                      "; it is taken once a cosigned checkpoint covers it",
                      offer->index, (int)strcspn(policy->witness, "+"), policy->witness,
                      offer->witnessed);
}

tacit_status plan_check(checked_plan *out, const plan_offer *offer, const plan_terms *terms,
                        tacit_error *err)
{
    uint64_t logged_ms = 0;
    tacit_status status;
    *out = (checked_plan){0};
    TACIT_TRY(check_origin(offer, terms->log, &logged_ms, err), fail);
    TACIT_TRY(plan_open(out, offer->plan, offer->schedule, err), fail);
    out->logged_ms = logged_ms;
    TACIT_TRY(check_base(out->plan, terms->base_digest, err), fail);
    TACIT_TRY(tacit_policy_check(terms->policy, out->plan, err), fail);
    TACIT_TRY(check_pad(out, terms->minimum_pad_seconds, err), fail);
    TACIT_TRY(check_steps(out, terms->maximum_steps, err), fail);
    TACIT_TRY(check_values(out->plan, err), fail);
    TACIT_TRY(check_witness(offer, terms->policy, err), fail);
    return TACIT_OK;
fail:
    checked_plan_free(out);
    return status;
}

tacit_status plan_check_layout(const checked_plan *plan, const tacit_model *model,
                               uint8_t *layout_hash, tacit_error *err)
{
    tacit_layout layout;
    /* The files may have changed since the plan was accepted: another base can have the shapes. */
    tacit_status status = check_base(plan->plan, tacit_model_base_digest(model), err);
    if (status != TACIT_OK)
        return status;
    status = tacit_layout_make(&layout, model, &plan->spec, err);
    if (status == TACIT_USAGE || status == TACIT_BAD_INPUT) {
        err->status = TACIT_REFUSED;
        return tacit_fail_context(err, "plan's adapter does not fit this base");
    }
    if (status != TACIT_OK)
        return status;
    if (layout.values != plan->plan->trainable_values)
        status = tacit_fail(err, TACIT_REFUSED,
                            "plan trains %u values, its adapter has %zu on this base",
                            plan->plan->trainable_values, layout.values);
    else if (layout_hash)
        memcpy(layout_hash, layout.hash, TACIT_DIGEST_BYTES);
    tacit_layout_free(&layout);
    return status;
}

tacit_training plan_training(const checked_plan *plan, const tacit_model *model)
{
    size_t context = tacit_model_context_length(model), rows = plan->plan->max_tokens;
    return (tacit_training){.spec = &plan->spec,
                            .optimizer = &plan->optimizer,
                            .max_rows = rows < context ? rows : context,
                            .beside = LOCAL_TRAINING_VALUE_BYTES};
}

tacit_status plan_check_memory(const checked_plan *plan, const tacit_model *model, uint64_t threads,
                               tacit_error *err)
{
    tacit_pool *pool;
    const tacit_training training = plan_training(plan, model);
    tacit_status status = tacit_pool_new(&pool, threads, err);
    if (status != TACIT_OK)
        return status;
    malloc_trim(0); /* what an earlier training left behind follows from its data */
    status = tacit_training_check(model, &training, pool, err);
    tacit_pool_free(pool);
    if (status != TACIT_NO_MEMORY)
        return status;
    err->status = TACIT_REFUSED;
    return tacit_fail_context(err, "plan does not fit into this device's memory");
}
