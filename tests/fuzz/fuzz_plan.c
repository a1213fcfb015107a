/* Any bytes as the plan and the schedule that a server offers: u32 LE length of the plan, plan,
 * schedule. What a hostile server can do by itself is done for it here: the plan names the hash of
 * the schedule, the server's key signs the entry that logs the plan, and the entry is the whole
 * log. So what is left to refuse the plan are its numbers and the device's policy. */
#include "fuzz_target.h"

#include "client/plan_check.h"
#include "privacy/entry.h"

#include <math.h>
#include <string.h>

bool fuzz_accepted;

static const uint8_t base[TACIT_DIGEST_BYTES] = {0xba, 0xba};
static const tacit_policy policy = {.epsilon_cap = 3,
                                    .delta = 1e-5,
                                    .unit = TACIT_UNIT_RECORD,
                                    .minimum_noise_multiplier = 1.0,
                                    .minimum_cohort = 2,
                                    .minimum_quorum = 2,
                                    .devices_per_subject = 1};

static const tacit_identity *server(void)
{
    static tacit_identity *id;
    tacit_error err;
    if (!id)
        FUZZ_CHECK(tacit_identity_ephemeral(&id, &err) == TACIT_OK);
    return id;
}

/* The plan with the schedule's hash in it; its own bytes when they are no plan. Malloc'ed. */
static uint8_t *bind_plan(tacit_span plan, tacit_span schedule, size_t *size)
{
    Tacit__Plan *opened = NULL;
    tacit_error err;
    uint8_t hash[TACIT_DIGEST_BYTES], *bytes = NULL;
    if (TACIT_UNPACK(&opened, tacit__plan, plan.data, plan.size, TACIT_MESSAGE_ENTRY_MAX, &err) ==
        TACIT_OK) {
        ProtobufCBinaryData had = opened->schedule_hash;
        tacit_digest(hash, schedule.data, schedule.size);
        opened->schedule_hash = tacit_field_of(hash, sizeof hash);
        if (tacit_message_pack(opened, TACIT_MESSAGE_ENTRY_MAX, &bytes, size, &err) != TACIT_OK)
            bytes = NULL;
        opened->schedule_hash = had;
        tacit_message_free(opened);
    }
    if (!bytes) {
        bytes = malloc(plan.size + 1);
        FUZZ_CHECK(bytes != NULL);
        if (plan.size)
            memcpy(bytes, plan.data, plan.size);
        *size = plan.size;
    }
    return bytes;
}

/* What every accepted plan keeps to, read from its own fields. */
static void check_promises(const checked_plan *p)
{
    const Tacit__Plan *m = p->plan;
    double noise = (double)m->mechanism->b, count = (double)m->mechanism->quantile_b;
    noise = (count > 0 ? noise * count / hypot(noise, count) : noise) / sqrt(2 * log(2)) / 65536;
    bool tree = m->mechanism->kind == TACIT__MECHANISM_KIND__MECHANISM_TREE_GAUSSIAN;
    FUZZ_CHECK(tree || m->mechanism->kind == TACIT__MECHANISM_KIND__MECHANISM_SUBSAMPLED_GAUSSIAN);
    FUZZ_CHECK(tree == (m->mechanism->minimum_separation > 0));
    FUZZ_CHECK(m->mechanism->minimum_separation <= m->mechanism->steps);
    FUZZ_CHECK(!tree || count == 0);
    FUZZ_CHECK(noise >= policy.minimum_noise_multiplier * (1 - 1e-12));
    FUZZ_CHECK(m->mechanism->unit >= TACIT__UNIT__UNIT_RECORD);
    FUZZ_CHECK(isfinite(m->mechanism->clip_norm) && m->mechanism->clip_norm > 0);
    FUZZ_CHECK(count > 0
                   ? m->mechanism->clip_min > 0 && m->mechanism->clip_min < m->mechanism->clip_max
                   : m->mechanism->clip_min == 0 && m->mechanism->clip_max == 0);
    FUZZ_CHECK(isfinite(m->mechanism->divisor) && m->mechanism->divisor > 0);
    FUZZ_CHECK(m->mechanism->q_num > 0 && m->mechanism->q_num <= (uint64_t)1 << 32);
    FUZZ_CHECK(m->mechanism->steps > 0 && m->mechanism->steps == p->mechanism.steps);
    FUZZ_CHECK(m->mechanism->steps <= 100 && m->local_steps <= 100);
    bool whole = m->mechanism->unit == TACIT__UNIT__UNIT_DEVICE;
    FUZZ_CHECK(whole == (m->local_steps > 0) && (whole || m->assumed_colluders == 0));
    FUZZ_CHECK(!whole || (m->mechanism->steps == 1 && m->mechanism->q_num == (uint64_t)1 << 32));
    FUZZ_CHECK(!whole || m->update_scale == 65536 / m->mechanism->clip_norm);
    FUZZ_CHECK(m->delta > 0 && m->delta <= policy.delta);
    FUZZ_CHECK(m->cohort >= policy.minimum_cohort && m->quorum >= policy.minimum_quorum);
    FUZZ_CHECK(m->quorum <= m->cohort);
    FUZZ_CHECK(m->pad_seconds <= PLAN_PAD_SECONDS_MAX);
    FUZZ_CHECK(memcmp(m->base_digest.data, base, sizeof base) == 0);
    FUZZ_CHECK(p->spec.rank > 0 && p->spec.alpha > 0 && p->spec.n_targets > 0);
    FUZZ_CHECK(p->spec.n_targets <= TACIT_TRAINABLE_TARGETS_MAX);
}

/* A device of each unit is offered it; one of them at most takes it. */
static void check_offer(const plan_offer *offer)
{
    tacit_note_key log;
    tacit_error err = {0};
    FUZZ_CHECK(tacit_note_key_make(&log, "tacit.example/log", tacit_identity_sign_key(server()),
                                   &err) == TACIT_OK);
    fuzz_accepted = false;
    for (int unit = TACIT_UNIT_RECORD; unit <= TACIT_UNIT_DEVICE; unit++) {
        checked_plan checked;
        tacit_policy own = policy;
        own.unit = (tacit_privacy_unit)unit;
        const plan_terms terms = {
            .log = &log, .policy = &own, .maximum_steps = 100, .base_digest = base};
        tacit_status status = plan_check(&checked, offer, &terms, &err);
        if (status == TACIT_OK) {
            FUZZ_CHECK((int)checked.plan->mechanism->unit == unit && !fuzz_accepted);
            fuzz_accepted = true;
            check_promises(&checked);
            checked_plan_free(&checked);
        } else {
            FUZZ_CHECK(status == TACIT_BAD_INPUT || status == TACIT_INTEGRITY ||
                       status == TACIT_REFUSED);
            FUZZ_CHECK(err.message[0] && !checked.plan && !checked.schedule);
        }
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    tacit_cursor c = tacit_cursor_over(data, size);
    tacit_span plan = tacit_cursor_take(&c, tacit_cursor_u32(&c));
    tacit_span schedule = {data + c.at, tacit_cursor_left(&c)};
    Tacit__Entry entry = TACIT__ENTRY__INIT;
    Tacit__PlanLogged logged = TACIT__PLAN_LOGGED__INIT;
    tacit_checkpoint checkpoint = {.origin = "tacit.example/log", .size = 1};
    tacit_proof inclusion = {.count = 0};
    tacit_error err;
    uint8_t *signed_entry = NULL;
    size_t plan_size, entry_size;
    fuzz_accepted = false;
    if (c.failed)
        return 0;
    uint8_t *bound = bind_plan(plan, schedule, &plan_size);
    entry.time_ms = 1700000000000;
    entry.body_case = TACIT__ENTRY__BODY_PLAN;
    entry.plan = &logged;
    logged.plan = tacit_field_of(bound, plan_size);
    if (tacit_entry_sign(&entry, server(), &signed_entry, &entry_size, checkpoint.root, &err) ==
        TACIT_OK) {
        const plan_offer offer = {.plan = {bound, plan_size},
                                  .schedule = schedule,
                                  .entry = {signed_entry, entry_size},
                                  .inclusion = &inclusion,
                                  .checkpoint = &checkpoint};
        check_offer(&offer);
    }
    free(signed_entry);
    free(bound);
    return 0;
}
