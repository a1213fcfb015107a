#include "client/agent.h"

#include "client/activation.h"
#include "client/agent_events.h"
#include "client/checkin.h"
#include "client/enroll.h"
#include "client/pinned_policy.h"
#include "client/receipts.h"
#include "client/reservation.h"
#include "client/restoration.h"
#include "client/round_training.h"
#include "client/tls_files.h"
#include "client/upload.h"
#include "common/clock.h"
#include "common/log.h"
#include "common/text.h"
#include "common/tls.h"

#include <inttypes.h>
#include <math.h>
#include <sodium.h>
#include <stdatomic.h>
#include <string.h>

enum {
    POLL_LEAST_MS = 50,
    POLL_MOST_MS = 86400000,
    POLL_DEFAULT_MS = 30000,
    HOLD_MS = 5000,          /* a longer pause gives the connection back */
    RENEW_LEAST_MS = 60000,  /* from a renewal that failed to the next try, then twice as long, */
    RENEW_MOST_MS = 3600000, /* up to this; also how often the failure is logged */
    RENEW_SHARE = 10,        /* but no longer than this part of what is left of the certificate */
    GRACE_MS = 60000,        /* for an adapter after its round's deadline */
    CLOCK_SLACK_MS = 3600000 /* by which own and server's clock may differ; also the grace of a
                              * round that cannot be ended */
};

/* A renewal that fails while the certificate is still good. */
typedef struct renewal_retry {
    uint64_t wait_ms;   /* before the next try; 0: the last one did not fail */
    uint64_t next_ms;   /* wall clock */
    uint64_t logged_ms; /* wall clock, with `wait_ms` */
} renewal_retry;

/* What one turn of the loop came to. */
typedef enum agent_outcome {
    AGENT_IDLE,    /* nothing to do */
    AGENT_WORKED,  /* something was done: look again at once */
    AGENT_WAITING, /* the round's sealed bytes wait for their time; nothing is connected */
    AGENT_REFUSED  /* a plan or a reserve was refused; *err says why */
} agent_outcome;

typedef struct agent {
    client *client;
    const agent_setup *setup;
    client_session *session;
    uint64_t poll_ms;
    uint8_t refused_plan[TACIT_DIGEST_BYTES]; /* logged once, not at every check-in */
    bool declined;          /* the server is told of that plan: policy or account refused it */
    uint64_t policy_serial; /* of the policy that did */
    uint8_t bad_adapter[TACIT_DIGEST_BYTES]; /* not fetched again in this run */
    bool entries_refused;                    /* logged once */
    bool met;                                /* the newest check-in of this run was answered */
    bool doubts;                             /* what it said since is not of the log it showed */
    bool idle;                               /* the last turn found nothing to do */
    uint64_t wait_until_ms;                  /* wall clock, with AGENT_WAITING */
    renewal_retry retry;
    /* The round that this run has taken part in, until its adapter came. */
    bool awaiting;
    uint64_t awaited_above;  /* version */
    uint64_t awaiting_until; /* wall clock */
    bool finished_round;
    bool next_offered; /* the plan of a later round: what was awaited is over */
} agent;

static _Atomic(client_session *) interruptible;

void agent_interrupt(void)
{
    client_session *s = atomic_load(&interruptible);
    if (s)
        client_session_interrupt(s);
}

static void close_session(agent *a)
{
    atomic_store(&interruptible, NULL);
    client_session_close(a->session);
    a->session = NULL;
}

static tacit_status open_session(agent *a, tacit_error *err)
{
    if (a->session)
        return TACIT_OK;
    tacit_status status =
        client_session_open(&a->session, a->client, SESSION_DEVICE, a->setup->patience_ms, err);
    if (status == TACIT_OK)
        atomic_store(&interruptible, a->session);
    return status;
}

/* --- a plan --- */

static void report_plan(const checked_plan *p)
{
    char lineage[2 * CLIENT_LINEAGE_BYTES + 1];
    const tacit_mechanism *m = &p->mechanism;
    tacit_hex(lineage, p->plan->lineage.data, p->plan->lineage.len);
    if (m->kind == TACIT_MECHANISM_NONE)
        tacit_log_info("plan: round %u of %zu of lineage %.8s: mechanism none, %u steps",
                       p->plan->round_index + 1, p->schedule->n_rounds, lineage, m->steps);
    else
        tacit_log_info("plan: round %u of %zu of lineage %.8s: unit %s, noise multiplier %.4g, "
                       "q %.4g, clip %.4g%s, %u steps%s",
                       p->plan->round_index + 1, p->schedule->n_rounds, lineage,
                       tacit_privacy_unit_name(m->unit), tacit_mechanism_noise_multiplier(m),
                       tacit_sampling_rate(m->q_num), m->clip_norm,
                       m->quantile_b ? " that adapts" : "", m->steps,
                       m->kind == TACIT_MECHANISM_TREE_GAUSSIAN ? " with tree noise" : "");
}

static tacit_status check_training(client *c, const checked_plan *plan, tacit_error *err)
{
    tacit_model *model;
    tacit_status status = client_load_model(c, &model, err);
    if (status != TACIT_OK)
        return status;
    status = plan_check_layout(plan, model, NULL, err);
    if (status == TACIT_OK)
        status = plan_check_memory(plan, model, c->config.threads, err);
    tacit_model_free(model);
    return status;
}

/* Checks everything, fetches what the plan starts from, and reserves. */
static tacit_status accept_plan(agent *a, const client_checkin *in, tacit_error *err)
{
    client *c = a->client;
    checked_plan plan = {0};
    round_state round = {0};
    uint8_t base[TACIT_DIGEST_BYTES];
    plan_terms terms = {.log = &c->enrolment.log,
                        .policy = &c->config.policy,
                        .minimum_pad_seconds = c->config.minimum_pad_seconds,
                        .maximum_steps = c->config.maximum_steps,
                        .base_digest = base};
    tacit_status status;
    TACIT_TRY(client_base_digest(c, base, err), done);
    TACIT_TRY(plan_check(&plan, &in->offer, &terms, err), done);
    tacit_tls_raise_time_floor(plan.logged_ms);
    report_plan(&plan);
    if (a->setup->json)
        agent_event_plan(&plan);
    TACIT_TRY(check_training(c, &plan, err), done);
    TACIT_TRY(adapter_fetch_parent(c, a->session, in, plan.plan, err), done);
    TACIT_TRY(receipts_sync(c, a->session, err), done);
    TACIT_TRY(reservation_make(c, &plan, in->offer.plan, in->offer.schedule, false, &round, err),
              done);
    if (a->setup->json)
        agent_event_round(&round);
done:
    round_state_free(&round);
    checked_plan_free(&plan);
    return status;
}

/* A plan that is only put off: it is looked at again at every check-in. */
static bool awaits_witness(const client_checkin *in, const tacit_policy *policy)
{
    return policy->witness[0] && in->offer.index >= in->offer.witnessed;
}

/* For 'status': losing it costs nothing. NULL: a plan was taken. */
static void note_refusal(agent *a, const char *reason)
{
    tacit_database *db = a->client->db;
    if (tacit_database_begin(db, NULL) != TACIT_OK)
        return;
    if (client_refusal_put(db, reason, tacit_clock_wall_ms(), NULL) != TACIT_OK ||
        tacit_database_commit(db, NULL) != TACIT_OK)
        tacit_database_rollback(db);
}

/* What was declined, unless another policy came since. Sub-caps and client.yaml change between runs
 * alone, and a run declines nothing before it is asked. */
static const uint8_t *declined_plan(const agent *a)
{
    return a->declined && a->policy_serial == a->client->config.policy.serial ? a->refused_plan
                                                                              : NULL;
}

static tacit_status consider_plan(agent *a, const client_checkin *in, agent_outcome *outcome,
                                  tacit_error *err)
{
    uint8_t hash[TACIT_DIGEST_BYTES];
    tacit_status status = accept_plan(a, in, err);
    a->declined = status == TACIT_REFUSED;
    a->policy_serial = a->client->config.policy.serial;
    bool waits = status == TACIT_AGAIN && awaits_witness(in, &a->client->config.policy);
    *outcome = AGENT_WORKED;
    if (status == TACIT_OK)
        note_refusal(a, NULL);
    if (status != TACIT_REFUSED && status != TACIT_BAD_INPUT && !waits)
        return status;
    *outcome = AGENT_REFUSED;
    tacit_digest(hash, in->offer.plan.data, in->offer.plan.size);
    if (memcmp(hash, a->refused_plan, sizeof hash) != 0) {
        tacit_log_warn("plan %s: %s", waits ? "waits" : "refused", err->message);
        if (a->setup->json)
            agent_event_refused(err->message);
        note_refusal(a, err->message);
    }
    memcpy(a->refused_plan, hash, sizeof hash);
    return TACIT_OK;
}

/* --- a check-in --- */

/* An adapter that does not hold is left alone; the device goes on with the one it has. */
static tacit_status follow_adapter(agent *a, const client_checkin *in, bool *switched,
                                   tacit_error *err)
{
    const ProtobufCBinaryData *m = &in->reply->manifest;
    uint8_t hash[TACIT_DIGEST_BYTES];
    *switched = false;
    tacit_digest(hash, m->data, m->len);
    if (m->len == 0 || memcmp(hash, a->bad_adapter, sizeof hash) == 0)
        return TACIT_OK;
    tacit_status status = adapter_follow(a->client, a->session, in, switched, err);
    if ((status != TACIT_INTEGRITY && status != TACIT_BAD_INPUT) || a->setup->once)
        return status;
    tacit_log_error("adapter refused: %s", err->message);
    memcpy(a->bad_adapter, hash, sizeof hash);
    return TACIT_OK;
}

static void report_adapter(const agent *a)
{
    active_adapter current, previous;
    if (a->setup->json && active_adapter_read(a->client, &current, &previous, NULL) == TACIT_OK &&
        current.exists)
        agent_event_adapter(&current);
}

static void take_poll(agent *a, uint32_t server_ms)
{
    uint64_t ms = a->client->config.poll_seconds * 1000;
    if (!ms)
        ms = server_ms ? server_ms : POLL_DEFAULT_MS;
    if (ms < POLL_LEAST_MS)
        ms = POLL_LEAST_MS;
    a->poll_ms = ms > POLL_MOST_MS ? POLL_MOST_MS : ms;
}

/* Adapters are followed whatever becomes of the own entries; a plan is refused (accept_plan asks
 * again) as long as the log does not take them. */
static tacit_status sync_entries(agent *a, tacit_error *err)
{
    tacit_status status = receipts_sync(a->client, a->session, err);
    bool refused = status == TACIT_REFUSED;
    if (refused && !a->entries_refused)
        tacit_log_error("%s", err->message);
    a->entries_refused = refused;
    return refused ? TACIT_OK : status;
}

/* A policy that came by file goes into the log before anything else of this device does, and before
 * it what a restored server may have lost. */
static tacit_status bring_policy(agent *a, bool *brought, tacit_error *err)
{
    bool again = false;
    tacit_status status = client_redeclare(a->client, a->session, &again, err);
    if (status == TACIT_OK)
        status = pinned_policy_is_pending(a->client, brought, err);
    if (status == TACIT_OK && *brought)
        status = pinned_policy_bring(a->client, a->session, err);
    *brought |= again;
    return status;
}

static tacit_status check_in(agent *a, agent_outcome *outcome, tacit_error *err)
{
    client_checkin in;
    bool switched = false, brought = false;
    tacit_status status = client_check_in(&in, a->client, a->session, declined_plan(a), err);
    a->met = status == TACIT_OK;
    if (status != TACIT_OK)
        return status;
    tacit_log_debug("checked in: log of %" PRIu64 " entries, %s", in.checkpoint.size,
                    in.has_plan ? "a plan" : "no plan");
    take_poll(a, in.reply->poll_after_ms);
    status = bring_policy(a, &brought, err);
    if (status != TACIT_OK || brought) { /* what was answered is of the policy before */
        *outcome = AGENT_WORKED;
        client_checkin_free(&in);
        return status;
    }
    status = sync_entries(a, err);
    if (status == TACIT_OK)
        status = follow_adapter(a, &in, &switched, err);
    if (status == TACIT_OK && switched) {
        *outcome = AGENT_WORKED;
        report_adapter(a);
    }
    if (a->setup->once && a->finished_round)
        a->next_offered = in.has_plan;
    else if (status == TACIT_OK && in.has_plan)
        status = consider_plan(a, &in, outcome, err);
    client_checkin_free(&in);
    return status;
}

/* --- the open round --- */

static void begin_awaiting(agent *a, const round_state *r)
{
    checked_plan plan;
    tacit_error none;
    a->finished_round = true;
    if (strcmp(r->reason, "accepted") != 0 ||
        plan_open(&plan, (tacit_span){r->plan, r->plan_size},
                  (tacit_span){r->schedule, r->schedule_size}, &none) != TACIT_OK)
        return;
    a->awaiting = true;
    a->awaited_above = plan.plan->parent_version;
    a->awaiting_until = plan.plan->deadline_ms + GRACE_MS;
    checked_plan_free(&plan);
}

static tacit_status send_sealed(agent *a, round_state *r, tacit_error *err)
{
    tacit_status status = receipts_sync(a->client, a->session, err);
    if (status == TACIT_OK)
        status = upload_send(a->client, a->session, r, err);
    if (status == TACIT_OK)
        begin_awaiting(a, r);
    return status;
}

/* Whether nothing can come of the round any more, by the clock alone. A stored plan that this
 * program cannot read never ends by itself: that round is over as well. */
static bool is_past_deadline(const round_state *r)
{
    checked_plan plan;
    tacit_status status = plan_open(&plan, (tacit_span){r->plan, r->plan_size},
                                    (tacit_span){r->schedule, r->schedule_size}, NULL);
    if (status != TACIT_OK)
        return status != TACIT_NO_MEMORY;
    uint64_t end = plan.plan->deadline_ms;
    checked_plan_free(&plan);
    return end < UINT64_MAX - CLOCK_SLACK_MS && tacit_clock_wall_ms() > end + CLOCK_SLACK_MS;
}

/* Whatever kept the round from ending, it is given up: what it reserved stays spent, the next
 * check-in tells the log, and later rounds find the device free. */
static tacit_status give_up(agent *a, round_state *r, const char *why, tacit_error *err)
{
    tacit_log_warn("round given up, its deadline has passed: %s", why);
    tacit_status status = reservation_abandon(a->client, r, "deadline", err);
    a->finished_round |= status == TACIT_OK;
    return status;
}

/* A reserve that the log refuses will not be acknowledged by asking again: the round ends here, the
 * reserve stays spent, and receipts_sync goes on offering it in its place in the chain. */
static tacit_status acknowledge(agent *a, round_state *r, agent_outcome *outcome, tacit_error *err)
{
    bool taken = false;
    tacit_status status = receipts_sync(a->client, a->session, err);
    if (status == TACIT_OK)
        status = reservation_acknowledge(a->client, a->session, r, &taken, err);
    if (status == TACIT_REFUSED) {
        tacit_log_error("round given up, the log refuses its reserve: %s", err->message);
        if (a->setup->json)
            agent_event_refused(err->message);
        *outcome = AGENT_REFUSED;
        status = reservation_abandon(a->client, r, "cancelled", err);
    }
    a->finished_round |= status == TACIT_OK && !taken;
    return status;
}

/* From a round's acknowledgement to the time of its upload nothing is sent, opened or closed: when
 * training ends follows from the data, and so would whatever followed from its end. */
static bool is_silent(const round_state *r)
{
    return r->state == ROUND_ACKNOWLEDGED ||
           (r->state == ROUND_SEALED && tacit_clock_wall_ms() < r->upload_ms);
}

static tacit_status work_silently(agent *a, round_state *r, agent_outcome *outcome,
                                  tacit_error *err)
{
    close_session(a); /* before training, never after */
    *outcome = AGENT_WORKED;
    if (r->state == ROUND_ACKNOWLEDGED)
        return is_past_deadline(r) ? give_up(a, r, "this device was off meanwhile", err)
                                   : round_train_and_seal(a->client, r, err);
    a->wait_until_ms = r->upload_ms;
    *outcome = AGENT_WAITING;
    return TACIT_OK;
}

/* One stage of the round with the server; the next turn takes the next. Sealed bytes are sent even
 * late, so that the log hears of the spend, but not for ever. */
static tacit_status work_connected(agent *a, round_state *r, agent_outcome *outcome,
                                   tacit_error *err)
{
    bool past = is_past_deadline(r);
    *outcome = AGENT_WORKED;
    if (r->state == ROUND_RESERVED)
        return past ? give_up(a, r, "its reserve was never acknowledged", err)
                    : acknowledge(a, r, outcome, err);
    tacit_status status = send_sealed(a, r, err);
    if (status == TACIT_OK || !past || client_stopped(a->client))
        return status;
    close_session(a); /* it may be in the middle of a request */
    return give_up(a, r, err ? err->message : "its update cannot be sent", err);
}

/* --- the loop --- */

static uint64_t least_of(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

/* `left_ms` is what the certificate has still to live. */
static void renew_later(agent *a, uint64_t left_ms, const tacit_error *err)
{
    renewal_retry *r = &a->retry;
    uint64_t now = tacit_clock_wall_ms();
    if (r->wait_ms == 0 || now < r->logged_ms || now - r->logged_ms >= RENEW_MOST_MS) {
        tacit_log_warn("the certificate cannot be renewed, it is good for another %" PRIu64
                       " minutes: %s; trying again",
                       left_ms / 60000, err->message);
        r->logged_ms = now;
    }
    r->wait_ms = r->wait_ms ? least_of(2 * r->wait_ms, RENEW_MOST_MS) : RENEW_LEAST_MS;
    r->next_ms = now + least_of(r->wait_ms, left_ms / RENEW_SHARE);
}

/* Whether a try that failed is recent; a clock that was set back ends the wait. */
static bool renewed_lately(const renewal_retry *r)
{
    uint64_t now = tacit_clock_wall_ms();
    return r->wait_ms && now < r->next_ms && r->next_ms - now <= RENEW_MOST_MS;
}

/* What is left of the certificate's life; 0 once it has expired. */
static tacit_status certificate_left(const client *c, uint64_t *left_ms, tacit_error *err)
{
    tacit_certificate_info info;
    uint64_t now = tacit_tls_now_ms();
    tacit_status status = client_tls_info(c, &info, err);
    *left_ms = status == TACIT_OK && info.not_after_ms > now ? info.not_after_ms - now : 0;
    return status;
}

/* A certificate that is valid still is used, whatever became of its renewal. */
static tacit_status renew(agent *a, tacit_error *err)
{
    bool renewed;
    uint64_t left_ms;
    tacit_error why = {0};
    tacit_status status = certificate_left(a->client, &left_ms, err);
    if (status != TACIT_OK || (left_ms && renewed_lately(&a->retry)))
        return status;
    status = client_renew_if_due(a->client, a->setup->patience_ms, &renewed, &why);
    if (renewed)
        close_session(a); /* the next request shows the new certificate */
    if (status == TACIT_OK) {
        a->retry = (renewal_retry){0};
        return TACIT_OK;
    }
    if (client_stopped(a->client) || certificate_left(a->client, &left_ms, err) != TACIT_OK ||
        left_ms == 0)
        return tacit_fail(err, status, "%s", why.message);
    renew_later(a, left_ms, &why);
    return TACIT_OK;
}

/* Before a run goes on with a round that it found open, or after the server's log was not what it
 * had been: whether the folder is the newest of this device, since an older copy must not sign
 * anything (recovery.h), and whether the server was restored meanwhile (restoration.h). */
static tacit_status meet(agent *a, bool *followed, tacit_error *err)
{
    client_checkin in;
    *followed = false;
    if (a->met)
        return TACIT_OK;
    tacit_status status = client_check_in(&in, a->client, a->session, declined_plan(a), err);
    a->met = status == TACIT_OK;
    *followed = in.followed;
    client_checkin_free(&in);
    return status;
}

/* With a connection: the open round, after a check-in. */
static tacit_status work_on_round(agent *a, round_state *r, agent_outcome *outcome,
                                  tacit_error *err)
{
    bool followed, brought = false;
    tacit_status status = meet(a, &followed, err);
    if (status == TACIT_OK && followed) { /* the round is given up */
        *outcome = AGENT_WORKED;
        return TACIT_OK;
    }
    if (status == TACIT_OK)
        status = bring_policy(a, &brought, err);
    if (status == TACIT_UNREACHABLE && is_past_deadline(r))
        status = TACIT_OK; /* given up by the clock alone */
    return status == TACIT_OK ? work_connected(a, r, outcome, err) : status;
}

/* A server that was restored after it had answered the check-in shows another log from one reply to
 * the next: a run that goes on meets it once more before all ends. */
static tacit_status doubt(agent *a, tacit_status status, tacit_error *err)
{
    bool again = status == TACIT_INTEGRITY && a->met && !a->doubts && !a->setup->once;
    if (status == TACIT_OK || again)
        a->doubts = again;
    if (again && err)
        err->status = TACIT_AGAIN;
    return again ? TACIT_AGAIN : status;
}

/* With a fresh certificate and a connection: `r` is the open round, or NULL to check in. */
static tacit_status turn_connected(agent *a, round_state *r, agent_outcome *outcome,
                                   tacit_error *err)
{
    tacit_status status = renew(a, err);
    if (status == TACIT_OK)
        status = open_session(a, err);
    if (status == TACIT_OK)
        return doubt(a, r ? work_on_round(a, r, outcome, err) : check_in(a, outcome, err), err);
    if (status != TACIT_UNREACHABLE || !r || !is_past_deadline(r))
        return status;
    *outcome = AGENT_WORKED;
    return give_up(a, r, err ? err->message : "the server cannot be reached", err);
}

static tacit_status turn(agent *a, agent_outcome *outcome, tacit_error *err)
{
    round_state round = {0};
    *outcome = AGENT_IDLE;
    tacit_status status = round_state_open(a->client->db, false, &round, err);
    if (status == TACIT_NOT_FOUND)
        return turn_connected(a, NULL, outcome, err);
    if (status == TACIT_OK)
        status = is_silent(&round) ? work_silently(a, &round, outcome, err)
                                   : turn_connected(a, &round, outcome, err);
    if (status == TACIT_OK && *outcome == AGENT_WORKED && a->setup->json)
        agent_event_round(&round);
    round_state_free(&round);
    return status;
}

/* The server refused the certificate although the own clock finds it good: renew it by the
 * identity key. */
static tacit_status recover_certificate(agent *a, tacit_status status, tacit_error *err)
{
    if (status != TACIT_UNREACHABLE || !a->session || !client_session_was_refused(a->session))
        return status;
    tacit_log_warn("%s; renewing the certificate", err->message);
    close_session(a);
    return client_renew_refused(a->client, a->setup->patience_ms, err);
}

static bool is_over(agent *a, agent_outcome outcome)
{
    active_adapter current, previous;
    if (outcome == AGENT_REFUSED)
        return true;
    if (a->awaiting) {
        if (active_adapter_read(a->client, &current, &previous, NULL) == TACIT_OK &&
            current.exists && current.version > a->awaited_above)
            return true;
        if (a->next_offered || tacit_clock_wall_ms() > a->awaiting_until) {
            tacit_log_warn("the round ended without a new adapter");
            return true;
        }
        return false;
    }
    return a->finished_round || outcome == AGENT_IDLE;
}

/* In this run nothing would come of trying again. */
static bool is_final(tacit_status status)
{
    return status == TACIT_REFUSED || status == TACIT_INTEGRITY || status == TACIT_BAD_INPUT;
}

/* Between the interval and a tenth more: a fleet does not knock at one moment. */
static void pause_loop(agent *a, agent_outcome outcome)
{
    uint64_t now = tacit_clock_wall_ms(),
             ms = a->poll_ms + randombytes_uniform((uint32_t)(a->poll_ms / 10 + 1));
    if (outcome == AGENT_WORKED)
        return;
    if (outcome == AGENT_WAITING)
        ms = a->wait_until_ms > now ? a->wait_until_ms - now : 0;
    if (ms > HOLD_MS) /* a server has fewer places than devices */
        close_session(a);
    uint64_t end = tacit_clock_monotonic_ms() + ms;
    while (!client_stopped(a->client) && (now = tacit_clock_monotonic_ms()) < end)
        tacit_clock_sleep_ms(end - now < 1000 ? end - now : 1000);
}

/* Once each time that there is nothing to do: silence would look like a hang. */
static void say_when_idle(agent *a, agent_outcome outcome)
{
    if (outcome == AGENT_IDLE && !a->idle && !a->awaiting)
        tacit_log_info("no round for this device now; asking again every %u s",
                       (unsigned)(a->poll_ms / 1000));
    a->idle = outcome == AGENT_IDLE;
}

static tacit_status run_loop(agent *a, tacit_error *err)
{
    while (!client_stopped(a->client)) {
        agent_outcome outcome = AGENT_IDLE;
        tacit_status status = turn(a, &outcome, err);
        if (client_stopped(a->client))
            break;
        status = recover_certificate(a, status, err);
        if (status != TACIT_OK && (a->setup->once || is_final(status)))
            return status;
        if (status != TACIT_OK) {
            tacit_log_warn("%s; trying again", err->message);
            close_session(a);
            a->met = false;
        } else if (a->setup->once && is_over(a, outcome)) {
            if (outcome == AGENT_IDLE && !a->finished_round)
                tacit_log_info("the server has no round for this device now");
            return outcome == AGENT_REFUSED ? err->status : TACIT_OK;
        }
        if (status == TACIT_OK)
            say_when_idle(a, outcome);
        pause_loop(a, outcome);
    }
    return TACIT_OK;
}

tacit_status agent_run(client *c, const agent_setup *setup, tacit_error *err)
{
    agent a = {.client = c, .setup = setup, .poll_ms = POLL_DEFAULT_MS};
    tacit_status status = client_apply_policy(c, err);
    if (status == TACIT_OK)
        status = client_declare_lost(c, err);
    if (status == TACIT_OK)
        status = reservation_sweep(c, err);
    if (status == TACIT_OK)
        status = run_loop(&a, err);
    close_session(&a);
    return status;
}
