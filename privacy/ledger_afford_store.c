#include "privacy/ledger_internal.h"

#include "common/message.h"
#include "privacy/window.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* --- plans and schedules --- */

static tacit_status bytes_by_hash(tacit_ledger *ledger, const char *sql, tacit_span hash,
                                  uint8_t **bytes, size_t *size, tacit_error *err)
{
    tacit_statement *s;
    bool row = false;
    tacit_status status = tacit_statement_begin(ledger->db, &s, sql, err);
    if (status != TACIT_OK)
        return status;
    tacit_bind_blob(s, 1, hash.data, hash.size);
    status = tacit_statement_step(s, &row, err);
    if (status == TACIT_OK && !row)
        status = tacit_fail(err, TACIT_NOT_FOUND, "ledger: it is not logged");
    if (status == TACIT_OK) {
        tacit_span found = tacit_column_blob(s, 0);
        *size = found.size;
        *bytes = malloc(found.size + 1);
        if (!*bytes)
            status = tacit_fail(err, TACIT_NO_MEMORY, "ledger: no memory for %zu bytes", *size);
        else
            memcpy(*bytes, found.data, found.size);
    }
    tacit_statement_end(s);
    return status;
}

tacit_status tacit_ledger_planned(tacit_ledger *ledger, const uint8_t plan_hash[TACIT_HASH_BYTES],
                                  uint8_t **plan, size_t *plan_size, uint8_t **schedule,
                                  size_t *schedule_size, tacit_error *err)
{
    const tacit_span hash = {plan_hash, TACIT_HASH_BYTES};
    *plan = *schedule = NULL;
    tacit_status status = bytes_by_hash(ledger, "SELECT bytes FROM ledger_plan WHERE hash = $1",
                                        hash, plan, plan_size, err);
    if (status == TACIT_OK)
        status = bytes_by_hash(ledger,
                               "SELECT s.bytes FROM ledger_plan p JOIN ledger_schedule s USING"
                               " (lineage) WHERE p.hash = $1",
                               hash, schedule, schedule_size, err);
    if (status != TACIT_OK) {
        free(*plan);
        *plan = NULL;
    }
    return status;
}

/* --- what a round costs --- */

static tacit_status price_fill(tacit_ledger_price *out, const Tacit__Schedule *schedule,
                               size_t index, uint64_t values, tacit_error *err)
{
    tacit_mechanism m;
    bool unprotected;
    memcpy(out->lineage, schedule->lineage.data, sizeof out->lineage);
    tacit_status status = tacit_mechanism_from_message(&m, schedule->rounds[index]->mechanism, err);
    if (status == TACIT_OK)
        status = tacit_budget_add_schedule(&out->whole, schedule, schedule->n_rounds, values,
                                           &unprotected, err);
    out->unprotected = status == TACIT_OK && m.kind == TACIT_MECHANISM_NONE;
    if (status != TACIT_OK || out->unprotected)
        return status;
    out->item.values = tacit_step_noise_values(values, m.quantile_b);
    status = tacit_event_from_mechanism(&out->item.event, &m, 1, err);
    if (status == TACIT_OK)
        status = tacit_window_push_schedule(&out->schedule, schedule, values, err);
    return status == TACIT_OK
               ? tacit_budget_add(&out->round, &out->item.event, out->item.values, false, err)
               : status;
}

tacit_status tacit_ledger_price_make(tacit_ledger_price *out, const Tacit__Schedule *schedule,
                                     size_t index, uint64_t values, tacit_error *err)
{
    *out = (tacit_ledger_price){.known_count = 0};
    tacit_status status = price_fill(out, schedule, index, values, err);
    if (status != TACIT_OK)
        tacit_ledger_price_free(out);
    return status;
}

void tacit_ledger_price_free(tacit_ledger_price *price)
{
    tacit_window_free(&price->schedule);
}

/* --- what an account holds --- */

/* Local training has no plan in the log: its reserve is a schedule by itself. */
static tacit_status price_reserve(tacit_ledger *ledger, uint64_t index, tacit_budget *whole,
                                  tacit_error *err)
{
    tacit_entry e = {0};
    tacit_event event;
    uint8_t *bytes = NULL;
    size_t size;
    tacit_status status = tacit_ledger_entry(ledger, index, &bytes, &size, err);
    if (status == TACIT_OK)
        status = tacit_entry_read(&e, bytes, size, err);
    if (status == TACIT_OK && e.entry->reserve->kind != TACIT_MECHANISM_NONE) {
        status = tacit_budget_event(&event, e.entry->reserve, err);
        if (status == TACIT_OK)
            status =
                tacit_budget_add(whole, &event, tacit_budget_values(e.entry->reserve), true, err);
    }
    tacit_entry_close(&e);
    free(bytes);
    return status;
}

static tacit_status price_schedule(tacit_span plan, tacit_span schedule, tacit_budget *whole,
                                   tacit_error *err)
{
    Tacit__Plan *p = NULL;
    Tacit__Schedule *s = NULL;
    bool unprotected;
    tacit_status status =
        TACIT_UNPACK(&p, tacit__plan, plan.data, plan.size, TACIT_MESSAGE_ENTRY_MAX, err);
    if (status == TACIT_OK)
        status = TACIT_UNPACK(&s, tacit__schedule, schedule.data, schedule.size,
                              TACIT_MESSAGE_ENTRY_MAX, err);
    if (status == TACIT_OK)
        status = tacit_budget_add_schedule(whole, s, s->n_rounds, p->trainable_values, &unprotected,
                                           err);
    tacit_message_free(s);
    tacit_message_free(p);
    return status;
}

/* Its rho is dear to compute and the same for every device: it is kept in the price. */
static tacit_status price_lineage(tacit_ledger *ledger, tacit_ledger_price *price,
                                  const uint8_t lineage[16], const uint8_t *plan_hash,
                                  uint64_t index, tacit_budget *whole, tacit_error *err)
{
    uint8_t *plan = NULL, *schedule = NULL;
    size_t plan_size, schedule_size;
    for (size_t i = 0; i < price->known_count; i++)
        if (memcmp(price->known[i].lineage, lineage, 16) == 0)
            return tacit_budget_join(whole, &price->known[i].whole, err);
    tacit_status status =
        tacit_ledger_planned(ledger, plan_hash, &plan, &plan_size, &schedule, &schedule_size, err);
    if (status == TACIT_NOT_FOUND)
        return price_reserve(ledger, index, whole, err);
    tacit_budget alone = {0};
    if (status == TACIT_OK)
        status = price_schedule((tacit_span){plan, plan_size},
                                (tacit_span){schedule, schedule_size}, &alone, err);
    free(plan);
    free(schedule);
    if (status == TACIT_OK && price->known_count < TACIT_LEDGER_KNOWN) {
        memcpy(price->known[price->known_count].lineage, lineage, 16);
        price->known[price->known_count++].whole = alone;
    }
    return status == TACIT_OK ? tacit_budget_join(whole, &alone, err) : status;
}

/* What the lineages that this key began hold, each whole and alone, and its first one at the fixed
 * order: the terms on which its account admits another (privacy/account.h). */
static tacit_status begun_lineages(tacit_ledger *ledger, tacit_ledger_price *price,
                                   const ledger_budget *b, double *sum, double *first,
                                   bool *this_one, tacit_error *err)
{
    tacit_statement *s;
    bool row = true;
    *sum = *first = 0;
    *this_one = false;
    tacit_status status = tacit_statement_begin(
        ledger->db, &s,
        "SELECT lineage, plan_hash, min(idx) FROM ledger_reserve WHERE identity_key = $1"
        " GROUP BY lineage ORDER BY min(idx)",
        err);
    if (status != TACIT_OK)
        return status;
    tacit_bind_blob(s, 1, b->identity_key, TACIT_SIGN_KEY_BYTES);
    while ((status = tacit_statement_step(s, &row, err)) == TACIT_OK && row) {
        uint8_t lineage[16], plan_hash[TACIT_HASH_BYTES];
        tacit_budget whole = tacit_budget_empty_like(&b->budget);
        tacit_column_bytes(s, 0, lineage, sizeof lineage);
        tacit_column_bytes(s, 1, plan_hash, sizeof plan_hash);
        *this_one |= memcmp(lineage, price->lineage, sizeof lineage) == 0;
        status =
            price_lineage(ledger, price, lineage, plan_hash, tacit_column_u64(s, 2), &whole, err);
        if (status != TACIT_OK)
            break;
        if (*sum == 0)
            *first = tacit_budget_filter_epsilon(&whole);
        double epsilon;
        status = tacit_budget_epsilon(&whole, &epsilon, err);
        if (status != TACIT_OK)
            break;
        *sum += epsilon;
    }
    tacit_statement_end(s);
    return status;
}

static tacit_status fits(tacit_ledger *ledger, const ledger_budget *b, tacit_ledger_price *price,
                         bool *begun, tacit_ledger_answer *out, tacit_error *err)
{
    double sum, first, by_itself, cap = b->policy.epsilon_cap;
    tacit_budget all = b->budget, alone = tacit_budget_empty_like(&b->budget);
    tacit_status status = begun_lineages(ledger, price, b, &sum, &first, begun, err);
    if (status == TACIT_OK)
        status = tacit_budget_join(&all, *begun ? &price->round : &price->whole, err);
    if (status == TACIT_OK)
        status = tacit_budget_join(&alone, &price->whole, err);
    if (status == TACIT_OK)
        status = tacit_budget_epsilon(&all, &out->epsilon, err);
    if (status == TACIT_OK)
        status = tacit_budget_epsilon(&alone, &by_itself, err);
    if (status != TACIT_OK)
        return status;
    if (!(out->epsilon <= cap))
        out->limit = TACIT_LIMIT_CAP;
    else if (!*begun && !(sum + by_itself <= cap && first <= cap))
        out->limit = TACIT_LIMIT_LINEAGES;
    return TACIT_OK;
}

/* A schedule that could not go on to its end is not begun. */
static tacit_status window_fits(tacit_ledger *ledger, const ledger_budget *b,
                                const tacit_ledger_price *price, bool begun,
                                tacit_ledger_answer *out, tacit_error *err)
{
    tacit_error reason;
    const tacit_window next = {(tacit_window_item *)(uintptr_t)&price->item, 1, 1};
    tacit_status status = ledger_window_allowed(ledger, b->identity_key, &b->policy,
                                                begun ? &next : &price->schedule, &reason);
    if (status == TACIT_REFUSED)
        out->limit = TACIT_LIMIT_WINDOW;
    else if (status != TACIT_OK)
        return tacit_fail(err, status, "%s", reason.message);
    return TACIT_OK;
}

tacit_status tacit_ledger_affords(tacit_ledger *ledger, const uint8_t device[TACIT_DEVICE_BYTES],
                                  tacit_ledger_price *price, tacit_ledger_answer *out,
                                  tacit_error *err)
{
    ledger_budget b;
    bool begun;
    *out = (tacit_ledger_answer){TACIT_LIMIT_LOST, INFINITY};
    tacit_status status = ledger_budget_get(ledger, device, &b, err);
    if (status != TACIT_OK || b.budget.lost)
        return status;
    out->limit = TACIT_LIMIT_NONE;
    if (price->unprotected)
        return tacit_budget_epsilon(&b.budget, &out->epsilon, err);
    status = fits(ledger, &b, price, &begun, out, err);
    return status == TACIT_OK && out->limit == TACIT_LIMIT_NONE
               ? window_fits(ledger, &b, price, begun, out, err)
               : status;
}
