/* A device's account of which one field was damaged, each in turn: it may be lost, it may not open,
 * but it never has more left than before and never sends other bytes for a reserve. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "common/database.h"
#include "common/file.h"
#include "privacy/account.h"
#include "world.h"

#include <unistd.h>

typedef struct fixture {
    world w;
    char dir[64], path[128], good[128];
    tacit_database *db;
    tacit_account *account;
    uint8_t spent[TACIT_HASH_BYTES]; /* the reserve of round 0 */
    double epsilon;
    tacit_error err;
} fixture;

static tacit_status reserve(fixture *f, int round, uint8_t hash[TACIT_HASH_BYTES])
{
    tacit_reservation r;
    const tacit_reserve_request request = {.device = f->w.device[0].name,
                                           .plan = {f->w.plan[round], f->w.plan_size[round]},
                                           .schedule = {f->w.schedule, f->w.schedule_size}};
    tacit_status status = tacit_account_reserve(f->account, &request, &r, &f->err);
    memcpy(hash, r.hash, TACIT_HASH_BYTES);
    tacit_reservation_free(&r);
    return status;
}

static tacit_status spend(fixture *f, const uint8_t hash[TACIT_HASH_BYTES], uint8_t with)
{
    uint8_t digest[TACIT_HASH_BYTES];
    tacit_reservation r;
    memset(digest, with, sizeof digest);
    tacit_status status = tacit_account_spend(f->account, hash, digest, &r, &f->err);
    tacit_reservation_free(&r);
    return status;
}

static void shut(fixture *f)
{
    tacit_account_close(f->account);
    tacit_database_close(f->db);
    f->account = NULL;
    f->db = NULL;
}

static void copy(fixture *f, const char *from, const char *to)
{
    uint8_t *bytes;
    size_t size;
    OK(tacit_file_read(from, (size_t)1 << 24, &bytes, &size, &f->err));
    OK(tacit_file_write(to, bytes, size, 0600, &f->err));
    free(bytes);
}

/* Round 0 is spent, round 1 abandoned, round 2 not yet reserved. */
static int set_up(void **state)
{
    fixture *f = calloc(1, sizeof *f);
    tacit_account_status s;
    tacit_reservation r;
    uint8_t hash[TACIT_HASH_BYTES];
    world_init(&f->w);
    world_plan_all(&f->w);
    snprintf(f->dir, sizeof f->dir, "%s/tacit-damage-XXXXXX",
             access("/dev/shm", W_OK) == 0 ? "/dev/shm" : "/tmp");
    assert_non_null(mkdtemp(f->dir));
    snprintf(f->path, sizeof f->path, "%s/client.db", f->dir);
    snprintf(f->good, sizeof f->good, "%s/good.db", f->dir);
    OK(tacit_database_open(&f->db, f->path, &f->err));
    OK(tacit_account_create(f->db, &f->w.policy, false, f->w.device[0].id, &f->err));
    OK(tacit_account_open(&f->account, f->db, f->w.device[0].id, &f->err));
    OK(reserve(f, 0, f->spent));
    OK(spend(f, f->spent, 0x51));
    OK(reserve(f, 1, hash));
    OK(tacit_account_abandon(f->account, hash, "deadline", &r, &f->err));
    tacit_reservation_free(&r);
    OK(tacit_account_status_get(f->account, &s, &f->err));
    f->epsilon = s.epsilon;
    shut(f);
    copy(f, f->path, f->good);
    *state = f;
    return 0;
}

static int tear_down(void **state)
{
    fixture *f = *state;
    char command[128];
    shut(f);
    snprintf(command, sizeof command, "rm -rf '%s'", f->dir);
    assert_int_equal(system(command), 0);
    world_free(&f->w);
    free(f);
    return 0;
}

/* Opens a fresh copy after `damage`; false where the database itself does not take that. */
static bool damaged(fixture *f, const char *damage)
{
    copy(f, f->good, f->path);
    OK(tacit_database_open(&f->db, f->path, &f->err));
    OK(tacit_database_run(f->db, "PRAGMA foreign_keys = OFF", &f->err));
    OK(tacit_database_begin(f->db, &f->err));
    bool taken = tacit_database_run(f->db, damage, &f->err) == TACIT_OK;
    if (taken)
        OK(tacit_database_commit(f->db, &f->err));
    else
        tacit_database_rollback(f->db);
    tacit_database_close(f->db);
    OK(tacit_database_open(&f->db, f->path, &f->err));
    return taken;
}

/* What an account that opened and is not lost still says and does. */
static bool holds(fixture *f)
{
    uint8_t hash[TACIT_HASH_BYTES];
    tacit_account_status s;
    if (tacit_account_status_get(f->account, &s, &f->err) != TACIT_OK || s.lost)
        return true;
    if (!(s.epsilon >= f->epsilon) || spend(f, f->spent, 0x52) == TACIT_OK ||
        reserve(f, 0, hash) == TACIT_OK || reserve(f, 1, hash) == TACIT_OK)
        return false;
    if (reserve(f, 2, hash) != TACIT_OK)
        return true;
    return tacit_account_status_get(f->account, &s, &f->err) == TACIT_OK && s.epsilon > f->epsilon;
}

static void test_no_field_loosens_the_account(void **state)
{
    fixture *f = *state;
    static const char *const fields[] = {
        "account_terms SET policy",
        "account_terms SET opening_cap",
        "account_terms SET budget",
        "account_terms SET sequence",
        "account_terms SET head",
        "account_terms SET lost",
        "account_terms SET lost_reason",
        "account_entry SET sequence",
        "account_entry SET leaf",
        "account_entry SET bytes",
        "account_entry SET receipt",
        "account_entry SET nonce",
        "account_reserve SET leaf",
        "account_reserve SET plan_hash",
        "account_reserve SET device",
        "account_reserve SET lineage",
        "account_reserve SET round_index",
        "account_reserve SET spend_leaf",
        "account_reserve SET abandon_leaf",
        "account_reserve SET update_digest",
        "account_lineage SET lineage",
        "account_lineage SET epsilon_cap",
        "account_lineage SET schedule_hash",
        "account_lineage SET filter_epsilon",
    };
    static const char *const values[] = {
        "NULL", "''",    "x''", "zeroblob(32)", "zeroblob(16)", "0", "-1", "9223372036854775807",
        "-1.0", "9e999",
    };
    size_t taken = 0;
    for (size_t i = 0; i < sizeof fields / sizeof fields[0]; i++)
        for (size_t k = 0; k < sizeof values / sizeof values[0]; k++)
            for (int row = 0; row < 2; row++) {
                char damage[256];
                snprintf(damage, sizeof damage,
                         "UPDATE %s = %s WHERE rowid IN (SELECT rowid FROM"
                         " %.*s ORDER BY rowid LIMIT 1 OFFSET %d)",
                         fields[i], values[k], (int)strcspn(fields[i], " "), fields[i], row);
                if (damaged(f, damage)) {
                    taken++;
                    if (tacit_account_open(&f->account, f->db, f->w.device[0].id, &f->err) ==
                            TACIT_OK &&
                        !holds(f)) {
                        print_error("not noticed: %s\n", damage);
                        fail();
                    }
                }
                shut(f);
            }
    assert_true(taken > 100);
}

/* Rows that vanish, or say that nothing was spent on anything. */
static void test_rows_that_contradict_the_entries_are_damage(void **state)
{
    fixture *f = *state;
    static const char *const damage[] = {
        "UPDATE account_reserve SET spend_leaf = NULL, update_digest = NULL WHERE round_index = 0",
        "UPDATE account_reserve SET update_digest = zeroblob(32) WHERE round_index = 0",
        "UPDATE account_reserve SET abandon_leaf = NULL WHERE round_index = 1",
        "UPDATE account_reserve SET spend_leaf = leaf, update_digest = leaf WHERE round_index = 1",
        "UPDATE account_reserve SET plan_hash = zeroblob(32) WHERE round_index = 1",
        "UPDATE account_reserve SET device = zeroblob(16) WHERE round_index = 1",
        "UPDATE account_lineage SET schedule_hash = NULL",
        "UPDATE account_lineage SET epsilon_cap = -3.0",
        "UPDATE account_lineage SET lineage = zeroblob(16)",
        "DELETE FROM account_lineage",
        "INSERT INTO account_reserve (leaf, plan_hash, device, lineage, round_index)"
        " VALUES (zeroblob(32), zeroblob(32), zeroblob(16), zeroblob(16), 5)",
    };
    for (size_t i = 0; i < sizeof damage / sizeof damage[0]; i++) {
        tacit_account_status s;
        assert_true(damaged(f, damage[i]));
        OK(tacit_account_open(&f->account, f->db, f->w.device[0].id, &f->err));
        OK(tacit_account_status_get(f->account, &s, &f->err));
        if (!s.lost)
            print_error("not noticed: %s\n", damage[i]);
        assert_true(s.lost);
        assert_non_null(strstr(s.lost_reason, "stored"));
        shut(f);
    }
    assert_true(damaged(f, "UPDATE account_terms SET lost_reason = ''"));
    OK(tacit_account_open(&f->account, f->db, f->w.device[0].id, &f->err));
    assert_true(holds(f) && spend(f, f->spent, 0x51) == TACIT_OK);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_no_field_loosens_the_account, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_rows_that_contradict_the_entries_are_damage, set_up,
                                        tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
