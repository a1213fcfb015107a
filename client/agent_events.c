#include "client/agent_events.h"

#include "common/json_print.h"
#include "common/log.h"
#include "common/text.h"

#include <jansson.h>

/* Takes the reference. A line that cannot be made is not worth ending the work for. */
static void print_event(json_t *event)
{
    tacit_error err;
    if (tacit_json_print(event, TACIT_JSON_DIGITS, &err) != TACIT_OK)
        tacit_log_warn("%s", err.message);
}

void agent_event_plan(const checked_plan *p)
{
    char lineage[2 * CLIENT_LINEAGE_BYTES + 1], round[2 * ROUND_STATE_ID_BYTES + 1];
    const tacit_mechanism *m = &p->mechanism;
    tacit_hex(lineage, p->plan->lineage.data, p->plan->lineage.len);
    tacit_hex(round, p->plan->round_id.data, p->plan->round_id.len);
    print_event(json_pack(
        "{s:s, s:s, s:s, s:I, s:I, s:s, s:s, s:f, s:f, s:I, s:f}", "event", "plan", "round_id",
        round, "lineage", lineage, "round", (json_int_t)p->plan->round_index + 1, "rounds",
        (json_int_t)p->schedule->n_rounds, "mechanism", tacit_mechanism_kind_name(m->kind), "unit",
        tacit_privacy_unit_name(m->unit), "sigma", tacit_mechanism_noise_multiplier(m), "q",
        tacit_sampling_rate(m->q_num), "steps", (json_int_t)m->steps, "delta", p->plan->delta));
}

void agent_event_refused(const char *why)
{
    print_event(json_pack("{s:s, s:s}", "event", "refused", "reason", why));
}

void agent_event_round(const round_state *r)
{
    char id[2 * ROUND_STATE_ID_BYTES + 1];
    tacit_hex(id, r->round_id, sizeof r->round_id);
    print_event(json_pack("{s:s, s:s, s:s, s:s}", "event", "round", "round_id", id, "state",
                          round_state_word(r->state), "reason", r->reason));
}

void agent_event_adapter(const active_adapter *a)
{
    char lineage[2 * CLIENT_LINEAGE_BYTES + 1], digest[2 * TACIT_DIGEST_BYTES + 1];
    tacit_hex(lineage, a->lineage, sizeof a->lineage);
    tacit_hex(digest, a->digest, sizeof a->digest);
    print_event(json_pack("{s:s, s:I, s:s, s:s}", "event", "adapter", "version",
                          (json_int_t)a->version, "lineage", lineage, "digest", digest));
}
