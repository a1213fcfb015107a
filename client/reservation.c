#include "client/reservation.h"

#include "client/receipts.h"
#include "client/snapshot.h"
#include "common/clock.h"
#include "common/killpoint.h"
#include "common/log.h"
#include "common/message.h"
#include "common/text.h"

#include <dirent.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

tacit_status round_file(const client *c, const round_state *r, const char *ending,
                        char out[CLIENT_PATH_MAX], tacit_error *err)
{
    return client_hex_path(c, out, "rounds", r->round_id, sizeof r->round_id, ending, err);
}

void reservation_clean(const client *c, const round_state *r)
{
    static const char *const endings[] = {"jsonl", "ckpt", "sealed"};
    char path[CLIENT_PATH_MAX];
    for (size_t i = 0; i < sizeof endings / sizeof endings[0]; i++)
        if (round_file(c, r, endings[i], path, NULL) == TACIT_OK)
            unlink(path);
}

/* The hexadecimal id of the open round, or an empty text. */
static tacit_status open_round_name(const client *c, bool local,
                                    char out[2 * ROUND_STATE_ID_BYTES + 1], tacit_error *err)
{
    round_state r;
    tacit_status status = round_state_open(c->db, local, &r, err);
    out[0] = '\0';
    if (status == TACIT_OK) {
        tacit_hex(out, r.round_id, sizeof r.round_id);
        round_state_free(&r);
    }
    return status == TACIT_NOT_FOUND ? TACIT_OK : status;
}

tacit_status reservation_sweep(const client *c, tacit_error *err)
{
    char names[2][2 * ROUND_STATE_ID_BYTES + 1], folder[CLIENT_PATH_MAX], path[CLIENT_PATH_MAX];
    tacit_status status = client_path(c, folder, NULL, "rounds", err);
    for (int local = 0; local < 2 && status == TACIT_OK; local++)
        status = open_round_name(c, local != 0, names[local], err);
    if (status != TACIT_OK)
        return status;
    DIR *dir = opendir(folder);
    for (struct dirent *e; dir && (e = readdir(dir)) != NULL;) {
        size_t length = (size_t)2 * ROUND_STATE_ID_BYTES;
        bool kept = e->d_name[0] == '.' || strncmp(e->d_name, names[0], length) == 0 ||
                    strncmp(e->d_name, names[1], length) == 0;
        if (!kept && client_path(c, path, "rounds", e->d_name, NULL) == TACIT_OK)
            unlink(path);
    }
    if (dir)
        closedir(dir);
    return TACIT_OK;
}

/* --- making it --- */

static tacit_status copy_span(tacit_span from, uint8_t **to, size_t *size, tacit_error *err)
{
    *to = malloc(from.size + 1);
    if (!*to)
        return tacit_fail(err, TACIT_NO_MEMORY, "no memory for %zu bytes", from.size);
    memcpy(*to, from.data, from.size);
    *size = from.size;
    return TACIT_OK;
}

static tacit_status take_snapshot(const client *c, const round_state *r, tacit_error *err)
{
    char path[CLIENT_PATH_MAX], log_path[CLIENT_PATH_MAX];
    local_log log;
    tacit_status status = round_file(c, r, "jsonl", path, err);
    if (status == TACIT_OK)
        status = client_path(c, log_path, NULL, "local.log", err);
    if (status != TACIT_OK)
        return status;
    local_log_open(&log, log_path);
    status = snapshot_take(path, c->config.data, &log, err);
    local_log_close(&log);
    return status;
}

static tacit_status store(client *c, const tacit_reserve_request *request, round_state *r,
                          tacit_reservation *reserved, tacit_error *err)
{
    tacit_status status = tacit_database_begin(c->db, err);
    if (status != TACIT_OK)
        return status;
    status = tacit_account_reserve(c->account, request, reserved, err);
    if (status == TACIT_OK) {
        memcpy(r->reserve_hash, reserved->hash, sizeof r->reserve_hash);
        status = round_state_insert(c->db, r, err);
    }
    if (status == TACIT_OK)
        status = tacit_database_commit(c->db, err);
    if (status != TACIT_OK)
        tacit_database_rollback(c->db);
    return status;
}

static void report(client *c, const tacit_reservation *reserved)
{
    tacit_account_status now;
    if (isfinite(reserved->epsilon_after) &&
        tacit_account_status_get(c->account, &now, NULL) == TACIT_OK)
        tacit_log_info("reserved: epsilon %.4g of %.4g is spent with it", reserved->epsilon_after,
                       now.policy.epsilon_cap);
    else
        tacit_log_info("reserved: no privacy is claimed for this round (mechanism none)");
}

/* The copy is durable before the reserve is, and the reserve before anybody is told. The other way
 * round a power cut between the two would leave a reserve without its data: the round would be
 * spent on a later state of the data file, or on none. What the reserve covers does not depend on
 * the moment of the copy: it charges every unit of the store, present or not. A copy whose reserve
 * is refused is removed here; one that a power cut left alone, by reservation_sweep at the next
 * start; one whose round the server refuses, when the round is abandoned. */
tacit_status reservation_make(client *c, const checked_plan *plan, tacit_span plan_bytes,
                              tacit_span schedule_bytes, bool local, round_state *out,
                              tacit_error *err)
{
    static const uint8_t nobody[TACIT_DEVICE_BYTES];
    tacit_reservation reserved = {0};
    tacit_reserve_request request = {.device = c->enrolled ? c->enrolment.device : nobody,
                                     .plan = plan_bytes,
                                     .schedule = schedule_bytes,
                                     .local = local,
                                     .lineage_cap = c->config.lineage_epsilon};
    bool known;
    tacit_status status;
    *out = (round_state){0};
    status = round_state_exists(c->db, plan->plan->round_id.data, &known, err);
    if (status == TACIT_OK && known) /* its files are those of the round that is there */
        status = tacit_fail(err, TACIT_CONFLICT, "this round was reserved before");
    if (status != TACIT_OK)
        return status;
    *out = (round_state){
        .local = local, .state = ROUND_RESERVED, .reserved_ms = tacit_clock_wall_ms()};
    memcpy(out->round_id, plan->plan->round_id.data, sizeof out->round_id);
    TACIT_TRY(copy_span(plan_bytes, &out->plan, &out->plan_size, err), done);
    TACIT_TRY(copy_span(schedule_bytes, &out->schedule, &out->schedule_size, err), done);
    TACIT_TRY(take_snapshot(c, out, err), done);
    TACIT_TRY(store(c, &request, out, &reserved, err), done);
    report(c, &reserved);
    tacit_kill_point("client.reserved_locally");
done:
    if (status != TACIT_OK) {
        reservation_clean(c, out);
        round_state_free(out);
    }
    tacit_reservation_free(&reserved);
    return status;
}

/* --- the log's acknowledgement --- */

static tacit_status move(client *c, round_state *r, round_state_kind state, const char *reason,
                         tacit_error *err)
{
    r->state = state;
    snprintf(r->reason, sizeof r->reason, "%s", reason);
    return round_state_update(c->db, r, err);
}

static tacit_status store_acknowledgement(client *c, round_state *r, const receipt_reply *reply,
                                          tacit_error *err)
{
    tacit_status status = tacit_database_begin(c->db, err);
    if (status != TACIT_OK)
        return status;
    status = receipt_store(c, r->reserve_hash, reply, err);
    if (status == TACIT_OK && reply->nonce)
        status = move(c, r, ROUND_ACKNOWLEDGED, "", err);
    if (status == TACIT_OK)
        status = tacit_database_commit(c->db, err);
    if (status != TACIT_OK)
        tacit_database_rollback(c->db);
    return status;
}

tacit_status reservation_acknowledge(client *c, client_session *s, round_state *r, bool *taken,
                                     tacit_error *err)
{
    receipt_reply reply;
    uint8_t plan_hash[TACIT_DIGEST_BYTES];
    *taken = false;
    tacit_digest(plan_hash, r->plan, r->plan_size);
    tacit_status status = receipt_submit_reserve(c, s, plan_hash, &reply, err);
    if (status != TACIT_OK)
        return status;
    status = store_acknowledgement(c, r, &reply, err);
    *taken = status == TACIT_OK && reply.nonce != NULL;
    receipt_reply_free(&reply);
    if (status != TACIT_OK)
        return status;
    if (!*taken) {
        tacit_log_warn(
            "the log has the reserve, but the round goes on without this device: it came "
            "too late, or its cap was lowered meanwhile");
        return reservation_abandon(c, r, "superseded", err);
    }
    tacit_log_info("reserve acknowledged by the log");
    tacit_kill_point("client.reserve_acknowledged");
    return TACIT_OK;
}

/* Sealed bytes have a signed spend, and perhaps the server accepted them and its answer was lost: a
 * log does not take an abandon of an accepted update, and nothing after that. Their round ends with
 * the spend, which receipts_sync brings into the log. */
tacit_status reservation_abandon(client *c, round_state *r, const char *reason, tacit_error *err)
{
    tacit_reservation entry = {0};
    tacit_status status = tacit_database_begin(c->db, err);
    if (status != TACIT_OK)
        return status;
    if (r->state != ROUND_SEALED)
        status = tacit_account_abandon(c->account, r->reserve_hash, reason, &entry, err);
    if (status == TACIT_OK)
        status = move(c, r, ROUND_ABANDONED, reason, err);
    if (status == TACIT_OK)
        status = tacit_database_commit(c->db, err);
    if (status != TACIT_OK)
        tacit_database_rollback(c->db);
    else
        reservation_clean(c, r);
    tacit_reservation_free(&entry);
    return status;
}

tacit_status reservation_supersede(client *c, bool local, tacit_error *err)
{
    round_state round = {0};
    tacit_reservation ending = {0};
    bool ended;
    tacit_status status = round_state_open(c->db, local, &round, err);
    if (status != TACIT_OK)
        return status == TACIT_NOT_FOUND ? TACIT_OK : status;
    status = tacit_account_is_ended(c->account, round.reserve_hash, &ended, err);
    if (status == TACIT_OK && !ended)
        status = tacit_account_abandon(c->account, round.reserve_hash, "superseded", &ending, err);
    if (status == TACIT_OK)
        status = move(c, &round, ROUND_ABANDONED, "superseded", err);
    tacit_reservation_free(&ending);
    round_state_free(&round);
    return status;
}
