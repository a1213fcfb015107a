#include "client/round_state_store.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *const state_words[] = {
    [ROUND_RESERVED] = "reserved", [ROUND_ACKNOWLEDGED] = "acknowledged", [ROUND_SEALED] = "sealed",
    [ROUND_DONE] = "done",         [ROUND_ABANDONED] = "abandoned",
};

const char *round_state_word(round_state_kind state)
{
    return state >= ROUND_RESERVED && state <= ROUND_ABANDONED ? state_words[state] : "unknown";
}

void round_state_free(round_state *r)
{
    free(r->plan);
    free(r->schedule);
    r->plan = r->schedule = NULL;
}

tacit_status round_state_insert(tacit_database *db, const round_state *r, tacit_error *err)
{
    tacit_statement *s;
    tacit_status status = tacit_statement_begin(
        db, &s,
        "INSERT INTO client_round (round_id, local, plan, schedule, reserve_hash, state,"
        " reserved_ms, upload_ms, sealed_bytes, reason)"
        " VALUES ($1, $2, $3, $4, $5, $6, $7, 0, 0, '')",
        err);
    if (status != TACIT_OK)
        return status;
    tacit_bind_blob(s, 1, r->round_id, sizeof r->round_id);
    tacit_bind_i64(s, 2, r->local);
    tacit_bind_blob(s, 3, r->plan, r->plan_size);
    tacit_bind_blob(s, 4, r->schedule, r->schedule_size);
    tacit_bind_blob(s, 5, r->reserve_hash, sizeof r->reserve_hash);
    tacit_bind_i64(s, 6, r->state);
    tacit_bind_u64(s, 7, r->reserved_ms);
    return tacit_statement_finish(s, err);
}

tacit_status round_state_update(tacit_database *db, const round_state *r, tacit_error *err)
{
    tacit_statement *s;
    tacit_status status = tacit_statement_begin(
        db, &s,
        "UPDATE client_round SET state = $2, upload_ms = $3, sealed_bytes = $4,"
        " sealed_digest = $5, reason = $6 WHERE round_id = $1",
        err);
    if (status != TACIT_OK)
        return status;
    tacit_bind_blob(s, 1, r->round_id, sizeof r->round_id);
    tacit_bind_i64(s, 2, r->state);
    tacit_bind_u64(s, 3, r->upload_ms);
    tacit_bind_u64(s, 4, r->sealed_bytes);
    tacit_bind_blob(s, 5, r->sealed_digest, sizeof r->sealed_digest);
    tacit_bind_text(s, 6, r->reason);
    status = tacit_statement_finish(s, err);
    if (status == TACIT_OK && tacit_database_changes(db) != 1)
        status = tacit_fail(err, TACIT_NOT_FOUND, "round: it is not stored");
    return status;
}

tacit_status round_state_exists(tacit_database *db, const uint8_t round_id[ROUND_STATE_ID_BYTES],
                                bool *exists, tacit_error *err)
{
    tacit_statement *s;
    *exists = false;
    tacit_status status =
        tacit_statement_begin(db, &s, "SELECT 1 FROM client_round WHERE round_id = $1", err);
    if (status != TACIT_OK)
        return status;
    tacit_bind_blob(s, 1, round_id, ROUND_STATE_ID_BYTES);
    status = tacit_statement_step(s, exists, err);
    tacit_statement_end(s);
    return status;
}

#define ROUND_SELECT                                                                               \
    "SELECT round_id, local, plan, schedule, reserve_hash, state, reserved_ms, upload_ms,"         \
    " sealed_bytes, sealed_digest, reason FROM client_round "

static tacit_status copy_blob(tacit_statement *s, int at, uint8_t **out, size_t *size,
                              tacit_error *err)
{
    tacit_span blob = tacit_column_blob(s, at);
    *out = malloc(blob.size + 1);
    if (!*out)
        return tacit_fail(err, TACIT_NO_MEMORY, "round: no memory for %zu bytes", blob.size);
    if (blob.size)
        memcpy(*out, blob.data, blob.size);
    *size = blob.size;
    return TACIT_OK;
}

static tacit_status take_round(tacit_statement *s, round_state *out, tacit_error *err)
{
    *out = (round_state){.local = tacit_column_i64(s, 1) != 0,
                         .state = (round_state_kind)tacit_column_i64(s, 5),
                         .reserved_ms = tacit_column_u64(s, 6),
                         .upload_ms = tacit_column_u64(s, 7),
                         .sealed_bytes = tacit_column_u64(s, 8)};
    tacit_column_bytes(s, 0, out->round_id, sizeof out->round_id);
    tacit_column_bytes(s, 4, out->reserve_hash, sizeof out->reserve_hash);
    if (!tacit_column_is_null(s, 9))
        tacit_column_bytes(s, 9, out->sealed_digest, sizeof out->sealed_digest);
    snprintf(out->reason, sizeof out->reason, "%s", tacit_column_text(s, 10));
    tacit_status status = copy_blob(s, 2, &out->plan, &out->plan_size, err);
    if (status == TACIT_OK)
        status = copy_blob(s, 3, &out->schedule, &out->schedule_size, err);
    if (status == TACIT_OK)
        status = tacit_statement_check(s, err);
    if (status != TACIT_OK)
        round_state_free(out);
    return status;
}

static tacit_status take_only(tacit_statement *s, round_state *out, tacit_error *err)
{
    bool row = false;
    tacit_status status = tacit_statement_step(s, &row, err);
    if (status == TACIT_OK)
        status = row ? take_round(s, out, err)
                     : tacit_fail(err, TACIT_NOT_FOUND, "round: there is none");
    tacit_statement_end(s);
    return status;
}

tacit_status round_state_open(tacit_database *db, bool local, round_state *out, tacit_error *err)
{
    tacit_statement *s;
    *out = (round_state){0};
    tacit_status status = tacit_statement_begin(
        db, &s, ROUND_SELECT "WHERE state < $1 AND local = $2 ORDER BY id DESC LIMIT 1", err);
    if (status != TACIT_OK)
        return status;
    tacit_bind_i64(s, 1, ROUND_DONE);
    tacit_bind_i64(s, 2, local);
    return take_only(s, out, err);
}

tacit_status round_state_find(tacit_database *db, const uint8_t reserve_hash[TACIT_DIGEST_BYTES],
                              round_state *out, tacit_error *err)
{
    tacit_statement *s;
    *out = (round_state){0};
    tacit_status status =
        tacit_statement_begin(db, &s, ROUND_SELECT "WHERE reserve_hash = $1", err);
    if (status != TACIT_OK)
        return status;
    tacit_bind_blob(s, 1, reserve_hash, TACIT_DIGEST_BYTES);
    return take_only(s, out, err);
}

tacit_status round_state_each(tacit_database *db, uint32_t limit,
                              tacit_status (*each)(void *ctx, const round_state *r,
                                                   tacit_error *err),
                              void *ctx, tacit_error *err)
{
    tacit_statement *s;
    bool row = false;
    tacit_status status =
        tacit_statement_begin(db, &s, ROUND_SELECT "ORDER BY id DESC LIMIT $1", err);
    if (status != TACIT_OK)
        return status;
    tacit_bind_i64(s, 1, limit);
    while ((status = tacit_statement_step(s, &row, err)) == TACIT_OK && row) {
        round_state r;
        status = take_round(s, &r, err);
        if (status == TACIT_OK)
            status = each(ctx, &r, err);
        round_state_free(&r);
        if (status != TACIT_OK)
            break;
    }
    tacit_statement_end(s);
    return status;
}
