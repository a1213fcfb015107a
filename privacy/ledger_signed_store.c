/* The newest policy of each account that its policy key signed: its serial, above which the next
 * one must be, and its place in the log, where the device gets it from. */
#include "privacy/ledger_internal.h"

static tacit_status signed_get(tacit_ledger *ledger,
                               const uint8_t identity_key[TACIT_SIGN_KEY_BYTES],
                               tacit_ledger_signed *out, tacit_error *err)
{
    tacit_statement *s;
    bool row = false;
    *out = (tacit_ledger_signed){0};
    tacit_status status = tacit_statement_begin(
        ledger->db, &s, "SELECT serial, idx FROM ledger_signed_policy WHERE identity_key = $1",
        err);
    if (status != TACIT_OK)
        return status;
    tacit_bind_blob(s, 1, identity_key, TACIT_SIGN_KEY_BYTES);
    status = tacit_statement_step(s, &row, err);
    if (status == TACIT_OK && row) {
        out->serial = tacit_column_u64(s, 0);
        out->index = tacit_column_u64(s, 1);
        status = tacit_statement_check(s, err);
    }
    tacit_statement_end(s);
    return status;
}

static tacit_status signed_put(tacit_ledger *ledger,
                               const uint8_t identity_key[TACIT_SIGN_KEY_BYTES],
                               const tacit_ledger_signed *signed_policy, tacit_error *err)
{
    tacit_statement *s;
    tacit_status status = tacit_statement_begin(
        ledger->db, &s,
        "INSERT INTO ledger_signed_policy (identity_key, serial, idx) VALUES ($1, $2, $3)"
        " ON CONFLICT (identity_key) DO UPDATE SET serial = excluded.serial, idx = excluded.idx",
        err);
    if (status != TACIT_OK)
        return status;
    tacit_bind_blob(s, 1, identity_key, TACIT_SIGN_KEY_BYTES);
    tacit_bind_u64(s, 2, signed_policy->serial);
    tacit_bind_u64(s, 3, signed_policy->index);
    return tacit_statement_finish(s, err);
}

tacit_status ledger_signed_take(tacit_ledger *ledger,
                                const uint8_t identity_key[TACIT_SIGN_KEY_BYTES], uint64_t serial,
                                uint64_t index, tacit_error *err)
{
    tacit_ledger_signed before;
    tacit_status status = signed_get(ledger, identity_key, &before, err);
    if (status != TACIT_OK)
        return status;
    if (serial <= before.serial)
        return tacit_fail(err, TACIT_REFUSED,
                          "ledger: the policy key signed serial %llu, the log has its serial %llu; "
                          "sign one with a higher serial",
                          (unsigned long long)serial, (unsigned long long)before.serial);
    return signed_put(ledger, identity_key, &(tacit_ledger_signed){serial, index}, err);
}

tacit_status tacit_ledger_signed_policy(tacit_ledger *ledger,
                                        const uint8_t device[TACIT_DEVICE_BYTES],
                                        tacit_ledger_signed *out, tacit_error *err)
{
    ledger_budget known;
    tacit_status status = ledger_budget_get(ledger, device, &known, err);
    return status == TACIT_OK ? signed_get(ledger, known.identity_key, out, err) : status;
}
