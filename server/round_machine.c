#include "server/round_machine.h"

#include "common/clock.h"
#include "common/log.h"
#include "common/message.h"
#include "server/round_steps.h"
#include "server/server.h"

#include <stdlib.h>
#include <string.h>

#define IDLE_MS 500     /* looks at the clock this often for deadlines */
#define TROUBLE_MS 5000 /* waits this long after a failure before it tries again */

struct round_machine {
    server *server;
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t wake;
    bool woken;
    atomic_bool stopping;
};

/* What the database says now. */
typedef struct machine_look {
    server *server;
    bool has_round, has_lineage;
    round_row round;
    lineage_row lineage;
    uint32_t quorum, target, answered; /* answered, or revoked and so never going to */
} machine_look;

static tacit_status count_answers(machine_look *l, tacit_error *err)
{
    Tacit__Plan *plan = NULL;
    update_row *rows = NULL;
    size_t count = 0;
    uint32_t ended = 0;
    tacit_status status = TACIT_UNPACK(&plan, tacit__plan, l->round.plan, l->round.plan_size,
                                       TACIT_MESSAGE_ENTRY_MAX, err);
    if (status != TACIT_OK)
        return status;
    l->quorum = plan->quorum;
    l->target = plan->target;
    tacit_message_free(plan);
    status = update_list(l->server->db, l->round.round_id, (update_state)0, &rows, &count, err);
    for (size_t i = 0; i < count; i++)
        l->answered += rows[i].state >= UPDATE_ACCEPTED;
    free(rows);
    if (status == TACIT_OK)
        status = round_members_ended(l->server->db, l->round.round_id, &ended, err);
    l->answered += ended;
    return status;
}

static tacit_status look(void *ctx, tacit_error *err)
{
    machine_look *l = ctx;
    tacit_status status = round_current(l->server->db, &l->round, err);
    l->has_round = status == TACIT_OK;
    if (status == TACIT_NOT_FOUND)
        status = TACIT_OK;
    if (status == TACIT_OK && l->has_round)
        return count_answers(l, err);
    if (status == TACIT_OK)
        status = lineage_running(l->server->db, &l->lineage, err);
    l->has_lineage = status == TACIT_OK && !l->has_round;
    return status == TACIT_NOT_FOUND ? TACIT_OK : status;
}

typedef struct machine_move {
    server *server;
    const round_row *round;
} machine_move;

static tacit_status fix_accepted_set(void *ctx, tacit_error *err)
{
    machine_move *m = ctx;
    return round_move(m->server->db, m->round->round_id, ROUND_COLLECTING, ROUND_AGGREGATING, "",
                      tacit_clock_wall_ms(), err);
}

/* Whether collecting is over, and how. */
static tacit_status collect_step(server *s, machine_look *l, bool *worked, tacit_error *err)
{
    const round_row *r = &l->round;
    uint32_t missing = r->asked > l->answered ? r->asked - l->answered : 0;
    bool over = r->accepted >= l->target || missing == 0 || r->accepted + missing < l->quorum ||
                tacit_clock_wall_ms() >= r->deadline_ms;
    *worked = over;
    if (!over)
        return TACIT_OK;
    if (r->accepted < l->quorum)
        return round_fail(s, r, "quorum", err);
    machine_move move = {s, r};
    return writer_run(s->writer, fix_accepted_set, NULL, &move, err);
}

/* One event for each change of a round that runs, however often the machine looks at it. */
static void tell_change(server *s, const round_row *r)
{
    bool same = memcmp(s->told.round_id, r->round_id, ROUND_ID_BYTES) == 0 &&
                s->told.state == (uint32_t)r->state && s->told.reserved == r->reserved &&
                s->told.accepted == r->accepted && s->told.rejected == r->rejected;
    if (same)
        return;
    memcpy(s->told.round_id, r->round_id, ROUND_ID_BYTES);
    s->told.state = r->state;
    s->told.reserved = r->reserved;
    s->told.accepted = r->accepted;
    s->told.rejected = r->rejected;
    round_announce(s, r);
}

static tacit_status take_step(server *s, machine_look *l, const atomic_bool *stop, bool *worked,
                              tacit_error *err)
{
    *worked = l->has_round;
    if (l->has_lineage)
        return round_open_next(s, &l->lineage, worked, err);
    if (!l->has_round)
        return TACIT_OK;
    tell_change(s, &l->round);
    if (l->round.state == ROUND_COLLECTING)
        return collect_step(s, l, worked, err);
    return l->round.state == ROUND_AGGREGATING ? round_aggregate(s, &l->round, err)
                                               : round_evaluate(s, &l->round, stop, err);
}

tacit_status round_machine_step(server *s, const atomic_bool *stop, bool *worked, tacit_error *err)
{
    machine_look l = {.server = s};
    *worked = false;
    tacit_status status = writer_run(s->writer, look, NULL, &l, err);
    if (status == TACIT_OK)
        status = take_step(s, &l, stop, worked, err);
    round_row_free(&l.round);
    lineage_row_free(&l.lineage);
    return status;
}

static void wait_for_work(round_machine *m, uint32_t ms)
{
    struct timespec until = tacit_clock_after_ms(ms);
    pthread_mutex_lock(&m->lock);
    while (!m->woken && !atomic_load(&m->stopping) &&
           pthread_cond_timedwait(&m->wake, &m->lock, &until) == 0)
        continue;
    m->woken = false;
    pthread_mutex_unlock(&m->lock);
}

static void *machine_main(void *arg)
{
    round_machine *m = arg;
    round_sweep(m->server);
    while (!atomic_load(&m->stopping)) {
        tacit_error err = {0};
        bool worked = false;
        tacit_status status = round_machine_step(m->server, &m->stopping, &worked, &err);
        bool mild = status == TACIT_OK || status == TACIT_CONFLICT; /* a verb may come first */
        if (!mild && status != TACIT_AGAIN)
            tacit_log_error("round: %s; trying again", err.message);
        if (status != TACIT_OK || !worked)
            wait_for_work(m, mild ? IDLE_MS : TROUBLE_MS);
    }
    return NULL;
}

tacit_status round_machine_start(round_machine **out, server *s, tacit_error *err)
{
    round_machine *m = calloc(1, sizeof *m);
    if (!m)
        return tacit_fail(err, TACIT_NO_MEMORY, "round machine: no memory");
    m->server = s;
    pthread_mutex_init(&m->lock, NULL);
    tacit_clock_condition_init(&m->wake);
    if (pthread_create(&m->thread, NULL, machine_main, m) != 0) {
        free(m);
        return tacit_fail(err, TACIT_FAILED, "round machine: cannot start a thread");
    }
    *out = m;
    return TACIT_OK;
}

void round_machine_wake(round_machine *m)
{
    if (!m)
        return;
    pthread_mutex_lock(&m->lock);
    m->woken = true;
    pthread_cond_signal(&m->wake);
    pthread_mutex_unlock(&m->lock);
}

void round_machine_stop(round_machine *m)
{
    if (!m)
        return;
    atomic_store(&m->stopping, true);
    round_machine_wake(m);
    pthread_join(m->thread, NULL);
    pthread_cond_destroy(&m->wake);
    pthread_mutex_destroy(&m->lock);
    free(m);
}
