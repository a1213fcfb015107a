/* An account whose store was restored from an older copy takes what the log has: afterwards both
 * hold the union of the reserves that the device ever signed. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "common/database.h"
#include "log_edits.h"
#include "privacy/account.h"

#include <unistd.h>

typedef struct store {
    char path[96];
    tacit_database *db;
    tacit_account *account;
} store;

typedef struct fixture {
    world w;
    char dir[64];
    store device, copy; /* the same device: as it is, and as it was */
    tacit_reservation entry[8];
    tacit_missed_entry missed[8]; /* what the copy lacks, oldest first */
    size_t count;
    tacit_error err;
} fixture;

static void store_open(fixture *f, store *s)
{
    OK(tacit_database_open(&s->db, s->path, &f->err));
    OK(tacit_account_open(&s->account, s->db, f->w.device[0].id, &f->err));
}

static void store_close(store *s)
{
    tacit_account_close(s->account);
    tacit_database_close(s->db);
    *s = (store){0};
}

static int set_up_as(void **state, bool adaptive)
{
    fixture *f = calloc(1, sizeof *f);
    snprintf(f->dir, sizeof f->dir, "/tmp/tacit-merge-XXXXXX");
    assert_non_null(mkdtemp(f->dir));
    world_init(&f->w);
    f->w.policy.epsilon_cap = 8;
    f->w.edit_schedule = adaptive ? world_adapt_schedule : NULL;
    f->w.edit_plan = adaptive ? world_adapt_plan : NULL;
    world_plan_all(&f->w);
    snprintf(f->device.path, sizeof f->device.path, "%s/device.db", f->dir);
    OK(tacit_database_open(&f->device.db, f->device.path, &f->err));
    OK(tacit_account_create(f->device.db, &f->w.policy, false, f->w.device[0].id, &f->err));
    OK(tacit_account_open(&f->device.account, f->device.db, f->w.device[0].id, &f->err));
    *state = f;
    return 0;
}

static int set_up(void **state)
{
    return set_up_as(state, false);
}

static int set_up_adaptive(void **state)
{
    return set_up_as(state, true);
}

static int tear_down(void **state)
{
    fixture *f = *state;
    char command[96];
    for (size_t i = 0; i < f->count; i++)
        tacit_reservation_free(&f->entry[i]);
    store_close(&f->device);
    store_close(&f->copy);
    snprintf(command, sizeof command, "rm -rf %s", f->dir);
    assert_int_equal(system(command), 0);
    world_free(&f->w);
    free(f);
    return 0;
}

/* The copy of now, opened beside the device. */
static void take_copy(fixture *f)
{
    char command[320];
    snprintf(f->copy.path, sizeof f->copy.path, "%s/copy.db", f->dir);
    OK(tacit_database_run(f->device.db, "PRAGMA wal_checkpoint(TRUNCATE)", &f->err));
    snprintf(command, sizeof command, "cp %s %s", f->device.path, f->copy.path);
    assert_int_equal(system(command), 0);
    store_open(f, &f->copy);
}

static tacit_status reserve_in(fixture *f, store *s, int round, bool local, tacit_reservation *out)
{
    tacit_reserve_request request = {.device = f->w.device[0].name,
                                     .plan = {f->w.plan[round], f->w.plan_size[round]},
                                     .schedule = {f->w.schedule, f->w.schedule_size},
                                     .local = local};
    return tacit_account_reserve(s->account, &request, out, &f->err);
}

/* The device's next reserve, which the copy misses. */
static void reserve(fixture *f, int round, bool local)
{
    OK(reserve_in(f, &f->device, round, local, &f->entry[f->count]));
    f->missed[f->count] =
        (tacit_missed_entry){.entry = {f->entry[f->count].entry, f->entry[f->count].entry_size},
                             .plan = {f->w.plan[round], local ? 0 : f->w.plan_size[round]},
                             .schedule = {f->w.schedule, local ? 0 : f->w.schedule_size}};
    f->count++;
}

static void spend(fixture *f, size_t of)
{
    const uint8_t digest[TACIT_HASH_BYTES] = {(uint8_t)(f->count + 1)};
    OK(tacit_account_spend(f->device.account, f->entry[of].hash, digest, &f->entry[f->count],
                           &f->err));
    f->missed[f->count] =
        (tacit_missed_entry){.entry = {f->entry[f->count].entry, f->entry[f->count].entry_size}};
    f->count++;
}

static tacit_status merge(fixture *f)
{
    return tacit_account_merge(f->copy.account, f->missed, f->count, &f->err);
}

static tacit_account_status status_of(fixture *f, store *s)
{
    tacit_account_status now;
    OK(tacit_account_status_get(s->account, &now, &f->err));
    return now;
}

static void expect_same(fixture *f, uint64_t abandons)
{
    tacit_account_status a = status_of(f, &f->device), b = status_of(f, &f->copy);
    assert_true(a.epsilon == b.epsilon && b.epsilon > 0);
    assert_int_equal(a.reserves, b.reserves);
    assert_int_equal(a.spends, b.spends);
    assert_int_equal(b.abandons, abandons);
    assert_int_equal(b.next_sequence, a.next_sequence + abandons - a.abandons);
    assert_false(b.lost);
    tacit_account_close(f->copy.account); /* what is stored adds up by itself */
    OK(tacit_account_open(&f->copy.account, f->copy.db, f->w.device[0].id, &f->err));
    assert_true(status_of(f, &f->copy).epsilon == a.epsilon);
    assert_false(status_of(f, &f->copy).lost);
}

static void test_an_older_copy_takes_the_union(void **state)
{
    fixture *f = *state;
    tacit_reservation again;
    OK(reserve_in(f, &f->device, 0, false, &again));
    tacit_reservation_free(&again);
    take_copy(f);
    reserve(f, 1, false);
    spend(f, 0);
    reserve(f, 2, false);
    spend(f, 2);
    assert_true(status_of(f, &f->copy).epsilon < status_of(f, &f->device).epsilon);
    OK(merge(f));
    expect_same(f, 0);
    /* A round that was spent elsewhere is not spent again, and another plan of it not at all. */
    assert_int_equal(reserve_in(f, &f->copy, 1, false, &again), TACIT_CONFLICT);
    const uint8_t other[TACIT_HASH_BYTES] = {0xee};
    assert_int_equal(tacit_account_spend(f->copy.account, f->entry[0].hash, other, &again, &f->err),
                     TACIT_CONFLICT);
}

/* From nothing, with local training among it, and a reserve that nothing ended: it is abandoned. */
static void test_an_empty_copy_takes_everything(void **state)
{
    fixture *f = *state;
    take_copy(f);
    reserve(f, 0, false);
    spend(f, 0);
    reserve(f, 1, false);
    OK(merge(f));
    expect_same(f, 1);
    tacit_reservation again;
    assert_int_equal(reserve_in(f, &f->copy, 1, false, &again), TACIT_CONFLICT);
    OK(reserve_in(f, &f->copy, 2, false, &again));
    tacit_reservation_free(&again);
}

static void test_local_training_is_part_of_the_union(void **state)
{
    fixture *f = *state;
    take_copy(f);
    reserve(f, 0, true);
    OK(merge(f));
    expect_same(f, 1);
}

/* The count of a clip that adapts is a noise value of each step; what is stored must say so, too.
 */
static void test_adaptive_clips_are_charged_as_signed(void **state)
{
    fixture *f = *state;
    take_copy(f);
    reserve(f, 0, false);
    spend(f, 0);
    reserve(f, 1, false);
    spend(f, 2);
    OK(merge(f));
    expect_same(f, 0);
}

/* The union is what was signed, whatever the caps of the copy say. */
static void test_the_union_may_stand_above_a_lowered_cap(void **state)
{
    fixture *f = *state;
    tacit_reservation none;
    take_copy(f);
    tacit_policy low = f->w.policy;
    low.epsilon_cap = 0.01;
    OK(tacit_account_set_policy(f->copy.account, &low, &f->err));
    reserve(f, 0, false);
    spend(f, 0);
    OK(merge(f));
    assert_true(status_of(f, &f->copy).epsilon == status_of(f, &f->device).epsilon);
    assert_true(status_of(f, &f->copy).remaining == 0);
    assert_int_equal(reserve_in(f, &f->copy, 1, false, &none), TACIT_REFUSED);
}

static void expect_refused(fixture *f, const char *why)
{
    tacit_account_status before = status_of(f, &f->copy);
    assert_int_equal(merge(f), TACIT_INTEGRITY);
    assert_non_null(strstr(f->err.message, why));
    tacit_account_status after = status_of(f, &f->copy);
    assert_true(before.epsilon == after.epsilon && before.next_sequence == after.next_sequence);
}

static void test_what_does_not_continue_the_chain_is_not_taken(void **state)
{
    fixture *f = *state;
    tacit_reservation own;
    take_copy(f);
    reserve(f, 0, false);
    spend(f, 0);
    reserve(f, 1, false);
    tacit_missed_entry kept = f->missed[1];
    f->missed[1] = f->missed[2]; /* one left out */
    f->count = 2;
    expect_refused(f, "does not continue this device's chain");
    f->missed[1] = kept;
    f->count = 3;
    f->missed[2].plan = (tacit_span){f->w.plan[2], f->w.plan_size[2]}; /* another plan */
    expect_refused(f, "plan_hash differs");
    f->missed[2].plan = (tacit_span){f->w.plan[1], f->w.plan_size[1]};
    /* The copy has signed an entry of its own: two chains from one head are not joined. */
    OK(reserve_in(f, &f->copy, 0, false, &own));
    tacit_reservation_free(&own);
    expect_refused(f, "does not continue this device's chain");
}

static void test_another_devices_entries_are_not_taken(void **state)
{
    fixture *f = *state;
    take_copy(f);
    reserve(f, 0, false);
    tacit_account_close(f->copy.account);
    f->copy.account = NULL;
    OK(tacit_account_open(&f->copy.account, f->copy.db, f->w.device[1].id, &f->err));
    expect_refused(f, "does not continue this device's chain");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_an_older_copy_takes_the_union, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_an_empty_copy_takes_everything, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_local_training_is_part_of_the_union, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(test_adaptive_clips_are_charged_as_signed, set_up_adaptive,
                                        tear_down),
        cmocka_unit_test_setup_teardown(test_the_union_may_stand_above_a_lowered_cap, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(test_what_does_not_continue_the_chain_is_not_taken, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(test_another_devices_entries_are_not_taken, set_up,
                                        tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
