/* What the log knows of an account and its devices: the row behind a pseudonym or a key, read and
 * written by the kinds of entries, and what others ask about it; the rows of reserves; and the few
 * shapes of statement that the kinds have in common. */
#include "privacy/ledger_internal.h"

#include <stdlib.h>
#include <string.h>

/* --- accounts --- */

static tacit_status account_from_row(tacit_statement *s, ledger_account *out, tacit_error *err)
{
    *out = (ledger_account){0};
    tacit_column_bytes(s, 0, out->identity_key, TACIT_SIGN_KEY_BYTES);
    out->sequence = tacit_column_u64(s, 1);
    tacit_column_bytes(s, 2, out->head, TACIT_HASH_BYTES);
    tacit_span policy = tacit_column_blob(s, 3), key = tacit_column_blob(s, 4);
    out->has_policy_key = key.size == TACIT_SIGN_KEY_BYTES;
    if (out->has_policy_key)
        memcpy(out->policy_key, key.data, key.size);
    out->revoked = tacit_column_i64(s, 6) != 0;
    out->frozen = tacit_column_i64(s, 7) != 0;
    tacit_status status = tacit_policy_unpack(&out->policy, policy.data, policy.size, err);
    if (status != TACIT_OK)
        return status;
    tacit_span budget = tacit_column_blob(s, 5);
    status = tacit_budget_read(&out->budget, budget.data, budget.size, err);
    return status == TACIT_OK ? tacit_statement_check(s, err) : status;
}

tacit_status ledger_account_by_device(tacit_ledger *ledger, ProtobufCBinaryData device,
                                      ledger_account *out, tacit_error *err)
{
    tacit_statement *s;
    bool row = false;
    tacit_status status = tacit_statement_begin(
        ledger->db, &s,
        "SELECT a.identity_key, a.sequence, a.head, a.policy, a.policy_key, a.budget, d.revoked,"
        " d.frozen FROM ledger_device d JOIN ledger_account a USING (identity_key)"
        " WHERE d.device = $1",
        err);
    if (status != TACIT_OK)
        return status;
    tacit_bind_blob(s, 1, device.data, device.len);
    TACIT_TRY(tacit_statement_step(s, &row, err), done);
    status = row ? account_from_row(s, out, err)
                 : tacit_fail(err, TACIT_REFUSED, "ledger: unknown device");
done:
    tacit_statement_end(s);
    return status;
}

tacit_status ledger_account_by_key(tacit_ledger *ledger, ProtobufCBinaryData identity_key,
                                   bool *known, ledger_account *out, tacit_error *err)
{
    tacit_statement *s;
    *known = false;
    tacit_status status = tacit_statement_begin(
        ledger->db, &s,
        "SELECT a.identity_key, a.sequence, a.head, a.policy, a.policy_key, a.budget,"
        " max(d.revoked), max(d.frozen) FROM ledger_account a JOIN ledger_device d USING"
        " (identity_key) WHERE a.identity_key = $1 GROUP BY a.identity_key",
        err);
    if (status != TACIT_OK)
        return status;
    tacit_bind_blob(s, 1, identity_key.data, identity_key.len);
    status = tacit_statement_step(s, known, err);
    if (status == TACIT_OK && *known)
        status = account_from_row(s, out, err);
    tacit_statement_end(s);
    return status;
}

tacit_status ledger_account_write(tacit_ledger *ledger, const ledger_account *a, tacit_error *err)
{
    tacit_statement *s;
    uint8_t *policy, budget[TACIT_BUDGET_BYTES];
    size_t policy_size;
    tacit_budget_write(&a->budget, budget);
    tacit_status status = tacit_policy_pack(&a->policy, &policy, &policy_size, err);
    if (status != TACIT_OK)
        return status;
    status = tacit_statement_begin(
        ledger->db, &s,
        "INSERT INTO ledger_account (identity_key, sequence, head, policy, policy_key, budget)"
        " VALUES ($1, $2, $3, $4, $5, $6) ON CONFLICT (identity_key) DO UPDATE SET"
        " sequence = excluded.sequence, head = excluded.head, policy = excluded.policy,"
        " policy_key = excluded.policy_key, budget = excluded.budget",
        err);
    if (status == TACIT_OK) {
        tacit_bind_blob(s, 1, a->identity_key, TACIT_SIGN_KEY_BYTES);
        tacit_bind_u64(s, 2, a->sequence);
        tacit_bind_blob(s, 3, a->head, TACIT_HASH_BYTES);
        tacit_bind_blob(s, 4, policy, policy_size);
        tacit_bind_blob(s, 5, a->policy_key, a->has_policy_key ? TACIT_SIGN_KEY_BYTES : 0);
        tacit_bind_blob(s, 6, budget, sizeof budget);
        status = tacit_statement_finish(s, err);
    }
    free(policy);
    return status;
}

tacit_status ledger_budget_get(tacit_ledger *ledger, const uint8_t device[TACIT_DEVICE_BYTES],
                               ledger_budget *out, tacit_error *err)
{
    ledger_account a;
    tacit_status status =
        ledger_account_by_device(ledger, tacit_field_of(device, TACIT_DEVICE_BYTES), &a, err);
    if (status != TACIT_OK)
        return status;
    *out = (ledger_budget){.budget = a.budget, .policy = a.policy};
    memcpy(out->identity_key, a.identity_key, sizeof out->identity_key);
    return TACIT_OK;
}

tacit_status tacit_ledger_device_get(tacit_ledger *ledger, const uint8_t device[TACIT_DEVICE_BYTES],
                                     tacit_ledger_device *out, tacit_error *err)
{
    ledger_account a;
    double epsilon;
    tacit_status status =
        ledger_account_by_device(ledger, tacit_field_of(device, TACIT_DEVICE_BYTES), &a, err);
    if (status == TACIT_OK)
        status = tacit_budget_epsilon(&a.budget, &epsilon, err);
    if (status != TACIT_OK)
        return status;
    *out = (tacit_ledger_device){
        .next_sequence = a.sequence + 1,
        .revoked = a.revoked,
        .frozen = a.frozen,
        .policy = a.policy,
        .epsilon = epsilon,
        .non_private = a.budget.unprotected > 0,
    };
    memcpy(out->identity_key, a.identity_key, sizeof out->identity_key);
    memcpy(out->head, a.head, sizeof out->head);
    return TACIT_OK;
}

/* --- reserves --- */

tacit_status tacit_ledger_reserve_get(tacit_ledger *ledger, const uint8_t leaf[TACIT_HASH_BYTES],
                                      tacit_ledger_reserve *out, tacit_error *err)
{
    tacit_statement *s;
    bool row = false;
    tacit_status status = tacit_statement_begin(
        ledger->db, &s,
        "SELECT idx, device, plan_hash, update_digest, abandoned, decided, accepted, outdated"
        " FROM ledger_reserve WHERE leaf = $1",
        err);
    if (status != TACIT_OK)
        return status;
    tacit_bind_blob(s, 1, leaf, TACIT_HASH_BYTES);
    TACIT_TRY(tacit_statement_step(s, &row, err), done);
    if (!row) {
        status = tacit_fail(err, TACIT_NOT_FOUND, "ledger: the reserve is not logged");
        goto done;
    }
    *out = (tacit_ledger_reserve){.index = tacit_column_u64(s, 0)};
    memcpy(out->leaf, leaf, sizeof out->leaf);
    tacit_column_bytes(s, 1, out->device, sizeof out->device);
    tacit_column_bytes(s, 2, out->plan_hash, sizeof out->plan_hash);
    out->spent = !tacit_column_is_null(s, 3);
    if (out->spent)
        tacit_column_bytes(s, 3, out->update_digest, sizeof out->update_digest);
    out->abandoned = tacit_column_i64(s, 4) != 0;
    out->decided = tacit_column_i64(s, 5) != 0;
    out->accepted = tacit_column_i64(s, 6) != 0;
    out->outdated = tacit_column_i64(s, 7) != 0;
    status = tacit_statement_check(s, err);
done:
    tacit_statement_end(s);
    return status;
}

/* --- statements --- */

tacit_status ledger_run_blobs(tacit_ledger *ledger, const char *sql, const tacit_span *blobs,
                              size_t n, tacit_error *err)
{
    tacit_statement *s;
    tacit_status status = tacit_statement_begin(ledger->db, &s, sql, err);
    if (status != TACIT_OK)
        return status;
    for (size_t i = 0; i < n; i++)
        tacit_bind_blob(s, (int)i + 1, blobs[i].data, blobs[i].size);
    return tacit_statement_finish(s, err);
}

tacit_status ledger_taken(tacit_status status, const char *what, tacit_error *err)
{
    return status == TACIT_CONFLICT ? tacit_fail(err, status, "ledger: %s already", what) : status;
}

tacit_status ledger_exists_blobs(tacit_ledger *ledger, const char *sql, const tacit_span *blobs,
                                 size_t n, bool *row, tacit_error *err)
{
    tacit_statement *s;
    *row = false;
    tacit_status status = tacit_statement_begin(ledger->db, &s, sql, err);
    if (status != TACIT_OK)
        return status;
    for (size_t i = 0; i < n; i++)
        tacit_bind_blob(s, (int)i + 1, blobs[i].data, blobs[i].size);
    status = tacit_statement_step(s, row, err);
    tacit_statement_end(s);
    return status;
}

tacit_status ledger_message_by_hash(tacit_ledger *ledger, const char *sql, const char *what,
                                    ProtobufCBinaryData hash,
                                    const ProtobufCMessageDescriptor *kind, ProtobufCMessage **out,
                                    tacit_error *err)
{
    tacit_statement *s;
    bool row = false;
    *out = NULL;
    tacit_status status = tacit_statement_begin(ledger->db, &s, sql, err);
    if (status != TACIT_OK)
        return status;
    tacit_bind_blob(s, 1, hash.data, hash.len);
    TACIT_TRY(tacit_statement_step(s, &row, err), done);
    if (row) {
        tacit_span bytes = tacit_column_blob(s, 0);
        status =
            tacit_message_unpack(out, kind, bytes.data, bytes.size, TACIT_MESSAGE_ENTRY_MAX, err);
    } else {
        status = tacit_fail(err, TACIT_NOT_FOUND, "ledger: the %s is not logged", what);
    }
done:
    tacit_statement_end(s);
    return status;
}
