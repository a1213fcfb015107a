/* A device's account that is damaged, missing or another identity's: it is lost, and its cap counts
 * as spent. (test_account_damage.c damages every field in turn.) */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "account_fixture.h"

static void test_damage_makes_the_account_lost(void **state)
{
    static const char *const damage[] = {
        "UPDATE account_entry SET bytes = zeroblob(200) WHERE sequence = 1",
        "DELETE FROM account_entry WHERE sequence = 3",
        "UPDATE account_entry SET sequence = 9 WHERE sequence = 2",
        "UPDATE account_terms SET sequence = 2",
        "UPDATE account_terms SET head = zeroblob(32)",
        "UPDATE account_terms SET opening_cap = 100.0",
        "UPDATE account_reserve SET leaf = zeroblob(32) WHERE round_index = 0",
        "UPDATE account_terms SET budget = zeroblob(length(budget))",
        "UPDATE account_terms SET budget = CAST(substr(budget, 1, 36) ||"
        " zeroblob(length(budget) - 36) AS BLOB)",
    };
    for (size_t i = 0; i < sizeof damage / sizeof damage[0]; i++) {
        fixture *f = *state;
        tacit_reservation r, out;
        const uint8_t digest[32] = {1};
        start(f);
        OK(reserve(f, 0, &r));
        OK(tacit_account_spend(f->account, r.hash, digest, &out, &f->err));
        tacit_reservation_free(&out);
        tacit_reservation_free(&r);
        OK(reserve(f, 1, &r));
        tacit_reservation_free(&r);
        OK(tacit_database_run(f->db, "PRAGMA foreign_keys = OFF", &f->err));
        if (tacit_database_run(f->db, damage[i], &f->err) != TACIT_OK)
            fail_msg("%s: %s", damage[i], f->err.message);
        tacit_account_close(f->account);
        f->account = NULL;
        tacit_status status = tacit_account_open(&f->account, f->db, f->w.device[0].id, &f->err);
        if (status == TACIT_OK && !status_of(f).lost)
            print_error("not noticed: %s\n", damage[i]);
        if (status == TACIT_OK) {
            assert_true(status_of(f).lost);
            /* A cap that was made up counts as well: more, never less. */
            double counted = strstr(damage[i], "opening_cap") ? 100 : 3;
            assert_true(status_of(f).epsilon == counted && status_of(f).remaining == 0);
            assert_int_equal(reserve(f, 2, &r), TACIT_REFUSED);
            assert_non_null(strstr(f->err.message, "lifetime cap of 3 counts as spent"));
            reopen(f);
            assert_true(status_of(f).lost);
        } else { /* terms that cannot even be read: nothing opens, nothing is reserved */
            assert_int_equal(status, TACIT_BAD_INPUT);
        }
        tear_down(state);
        set_up(state);
    }
}

static void budget_of(fixture *f, tacit_budget *out)
{
    tacit_statement *s;
    bool row;
    OK(tacit_statement_begin(f->db, &s, "SELECT budget FROM account_terms", &f->err));
    OK(tacit_statement_step(s, &row, &f->err));
    tacit_span bytes = tacit_column_blob(s, 0);
    OK(tacit_budget_read(out, bytes.data, bytes.size, &f->err));
    tacit_statement_end(s);
}

static void set_budget(fixture *f, const tacit_budget *b)
{
    tacit_statement *s;
    uint8_t bytes[TACIT_BUDGET_BYTES];
    tacit_budget_write(b, bytes);
    OK(tacit_statement_begin(f->db, &s, "UPDATE account_terms SET budget = $1", &f->err));
    tacit_bind_blob(s, 1, bytes, sizeof bytes);
    OK(tacit_statement_finish(s, &f->err));
}

/* Another libm rounds the last bits of every rho otherwise. That is no damage: the account opens
 * and goes on with the larger; a difference that rounding cannot make is. */
static void test_another_rounding_is_no_damage(void **state)
{
    static const struct {
        int shift;
        bool up, lost;
    } changes[] = {{33, true, false},
                   {33, false, false},
                   {60, false, false},
                   {24, true, true},
                   {24, false, true}};
    for (size_t i = 0; i < sizeof changes / sizeof changes[0]; i++) {
        fixture *f = *state;
        tacit_reservation r;
        tacit_budget made, stored, opened;
        start(f);
        OK(reserve(f, 0, &r));
        tacit_reservation_free(&r);
        budget_of(f, &made);
        stored = made;
        for (size_t k = 0; k < TACIT_RDP_ORDERS; k++) {
            unsigned __int128 by = made.spent.rho[k] >> changes[i].shift;
            stored.spent.rho[k] += changes[i].up ? by : -by;
        }
        set_budget(f, &stored);
        reopen(f);
        assert_int_equal(status_of(f).lost, changes[i].lost);
        if (!changes[i].lost) {
            budget_of(f, &opened);
            const tacit_budget *larger = changes[i].up ? &stored : &made;
            assert_memory_equal(&opened.spent, &larger->spent, sizeof opened.spent);
            OK(reserve(f, 1, &r));
            tacit_reservation_free(&r);
        }
        tear_down(state);
        set_up(state);
    }
}

static void test_another_identity_does_not_fit(void **state)
{
    fixture *f = *state;
    tacit_reservation r;
    start(f);
    OK(reserve(f, 0, &r));
    tacit_reservation_free(&r);
    tacit_account_close(f->account);
    OK(tacit_account_open(&f->account, f->db, f->w.device[1].id, &f->err));
    assert_true(status_of(f).lost);
}

static void test_a_missing_account_starts_spent(void **state)
{
    fixture *f = *state;
    tacit_reservation r;
    tacit_entry e;
    world_plan_all(&f->w);
    assert_int_equal(tacit_account_open(&f->account, f->db, f->w.device[0].id, &f->err),
                     TACIT_NOT_FOUND);
    OK(tacit_account_create(f->db, &f->w.policy, true, f->w.device[0].id, &f->err));
    OK(tacit_account_open(&f->account, f->db, f->w.device[0].id, &f->err));
    assert_int_equal(reserve(f, 0, &r), TACIT_REFUSED);
    const uint8_t head[32] = {5};
    OK(tacit_account_lost_entry(f->account, f->w.device[0].name, 7, head, &r, &f->err));
    OK(tacit_entry_open(&e, r.entry, r.entry_size, &f->err));
    assert_int_equal(e.entry->sequence, 7);
    assert_memory_equal(e.entry->previous.data, head, 32);
    assert_true(e.entry->account_lost->epsilon_counted == 3);
    tacit_entry_close(&e);
    tacit_reservation_free(&r);
}

/* What may have been spent under the cap of the opening is not taken back by a lower one. */
static void test_a_lost_account_counts_the_cap_before_it_was_lowered(void **state)
{
    fixture *f = *state;
    tacit_reservation r;
    tacit_entry e;
    start(f);
    OK(reserve(f, 0, &r));
    tacit_reservation_free(&r);
    tacit_policy lower = f->w.policy;
    lower.epsilon_cap = 0.5;
    OK(tacit_account_set_policy(f->account, &lower, &f->err));
    tacit_account_close(f->account);
    OK(tacit_account_open(&f->account, f->db, f->w.device[1].id, &f->err));
    assert_true(status_of(f).lost);
    assert_true(status_of(f).epsilon == 3);
    assert_true(status_of(f).remaining == 0);
    OK(tacit_account_lost_entry(f->account, f->w.device[1].name, 0, NULL, &r, &f->err));
    OK(tacit_entry_open(&e, r.entry, r.entry_size, &f->err));
    assert_true(e.entry->account_lost->epsilon_counted == 3);
    tacit_entry_close(&e);
    tacit_reservation_free(&r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        WITH(test_damage_makes_the_account_lost),
        WITH(test_another_rounding_is_no_damage),
        WITH(test_another_identity_does_not_fit),
        WITH(test_a_missing_account_starts_spent),
        WITH(test_a_lost_account_counts_the_cap_before_it_was_lowered),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
