/* Reserves and uploads of honest and hostile devices: the intake gate's every reason, late and
 * foreign reserves, forked chains, interrupted and damaged uploads. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "fleet.h"

#include "common/text.h"
#include "privacy/audit.h"
#include "server/round_terms.h"

#include <dirent.h>

static fleet f;
static fleet_device one, two;
static fleet_task task;

static int setup(void **state)
{
    (void)state;
    fleet_start(&f, false);
    fleet_join_two(&one, &two, &f);
    json_decref(FLEET_ASK(&f, "round start", "rounds", "3", "steps", "2", "q", "0.25",
                          "noise-multiplier", "8", "unit", "record", "cohort", "2", "quorum", "1",
                          "deadline-seconds", "600", "pad-seconds", "0", "norm-bound", "32"));
    fleet_work(&f);
    fleet_take(&one, &task);
    fleet_must(fleet_reserve_locally(&one, &task), &one.err, "reserve");
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    fleet_task_free(&task);
    fleet_end_two(&one, &two, &f);
    return 0;
}

static void expect_clean_audit(void)
{
    fleet_expect_clean_audit(&f, false);
}

static void expect_frozen(const char *argument, bool frozen)
{
    json_t *device = FLEET_ASK(&f, "device show", argument);
    bool found = strcmp(json_string_value(json_object_get(device, "state")), "frozen") == 0;
    assert_int_equal(found, frozen);
    json_decref(device);
}

/* --- what the intake gate says --- */

typedef void (*spoil)(Tacit__Update *u, uint8_t *values);

/* The decision on an update that is honest but for what `change` did before it was sealed. */
static const char *decision(spoil change)
{
    Tacit__Update u;
    uint8_t *values = calloc(task.layout.values + 4, 4);
    assert_non_null(values);
    fleet_must(fleet_send_reserve(&one, &task), &one.err, "send reserve");
    fleet_fill(&one, &task, &u, values, 0.5);
    if (change)
        change(&u, values);
    fleet_seal(&one, &task, &u);
    const char *word = fleet_upload(&one, &task);
    free(values);
    return word;
}

static uint8_t other[32] = {9, 9, 9};

static void other_round(Tacit__Update *u, uint8_t *values)
{
    (void)values;
    u->round_id = tacit_field_of(other, 16);
}
static void other_base(Tacit__Update *u, uint8_t *values)
{
    (void)values;
    u->base_digest = tacit_field_of(other, 32);
}
static void other_plan(Tacit__Update *u, uint8_t *values)
{
    (void)values;
    u->plan_hash = tacit_field_of(other, 32);
}
static void other_parent(Tacit__Update *u, uint8_t *values)
{
    (void)values;
    u->parent_version = 3;
}
static void other_format(Tacit__Update *u, uint8_t *values)
{
    (void)values;
    u->format = 2;
}
static void other_device(Tacit__Update *u, uint8_t *values)
{
    (void)values;
    u->device = tacit_field_of(two.device, TACIT_DEVICE_BYTES);
}
static void other_reserve(Tacit__Update *u, uint8_t *values)
{
    (void)values;
    u->reserve_hash = tacit_field_of(other, 32);
}
static void other_layout(Tacit__Update *u, uint8_t *values)
{
    (void)values;
    u->layout_hash = tacit_field_of(other, 32);
}
static void one_value_less(Tacit__Update *u, uint8_t *values)
{
    (void)values;
    u->values.len -= 4;
}
static void one_value_more(Tacit__Update *u, uint8_t *values)
{
    (void)values;
    u->values.len += 4;
}
static void no_values(Tacit__Update *u, uint8_t *values)
{
    (void)values;
    u->values.len = 0;
}
static void nan_scale(Tacit__Update *u, uint8_t *values)
{
    (void)values;
    u->scale = NAN;
}
static void infinite_scale(Tacit__Update *u, uint8_t *values)
{
    (void)values;
    u->scale = INFINITY;
}
static void twice_the_scale(Tacit__Update *u, uint8_t *values)
{
    (void)values;
    u->scale *= 2;
}
static void huge_value(Tacit__Update *u, uint8_t *values)
{
    (void)u;
    tacit_store_u32(values + 8, (uint32_t)INT32_MIN);
}
static void twice_the_norm(Tacit__Update *u, uint8_t *values)
{
    for (size_t i = 0; i < u->values.len / 4; i++)
        tacit_store_u32(values + 4 * i, 4 * tacit_load_u32(values + 4 * i));
}
static void nan_values(Tacit__Update *u, uint8_t *values)
{
    for (size_t i = 0; i < u->values.len / 4; i++)
        tacit_store_u32(values + 4 * i, 0x7fc00000); /* what a NaN's bits are as a number */
}
static void all_zero(Tacit__Update *u, uint8_t *values)
{
    memset(values, 0, u->values.len);
}

static void expect_decision(spoil change, const char *word)
{
    assert_string_equal(decision(change), word);
    expect_clean_audit();
    json_t *row = fleet_round(&f);
    bool accepted = word[0] == '\0';
    assert_int_equal(json_integer_value(json_object_get(row, "accepted")), accepted);
    assert_int_equal(json_integer_value(json_object_get(row, "rejected")), !accepted);
    json_decref(row);
}

#define DECISION(name, change, word)                                                               \
    static void name(void **state)                                                                 \
    {                                                                                              \
        (void)state;                                                                               \
        expect_decision(change, word);                                                             \
    }

DECISION(test_honest, NULL, "")
DECISION(test_all_zero, all_zero, "")
DECISION(test_other_round, other_round, "plan")
DECISION(test_other_base, other_base, "plan")
DECISION(test_other_plan, other_plan, "plan")
DECISION(test_other_parent, other_parent, "plan")
DECISION(test_other_format, other_format, "plan")
DECISION(test_other_device, other_device, "reserve")
DECISION(test_other_reserve, other_reserve, "reserve")
DECISION(test_other_layout, other_layout, "shape")
DECISION(test_one_value_less, one_value_less, "shape")
DECISION(test_one_value_more, one_value_more, "shape")
DECISION(test_no_values, no_values, "shape")
DECISION(test_nan_scale, nan_scale, "finite")
DECISION(test_infinite_scale, infinite_scale, "finite")
DECISION(test_twice_the_scale, twice_the_scale, "finite")
DECISION(test_huge_value, huge_value, "norm")
DECISION(test_twice_the_norm, twice_the_norm, "norm")
DECISION(test_nan_values, nan_values, "norm")

/* Bytes that are no seal, and a seal by another key. */
static void test_decrypt(void **state)
{
    (void)state;
    fleet_must(fleet_send_reserve(&one, &task), &one.err, "send reserve");
    fleet_seal_value(&one, &task, 0.5);
    task.sealed.data[200] ^= 1;
    assert_string_equal(fleet_upload(&one, &task), "decrypt");
    expect_clean_audit();
}

static void test_signature(void **state)
{
    (void)state;
    tacit_identity *own = one.id;
    fleet_must(fleet_send_reserve(&one, &task), &one.err, "send reserve");
    one.id = two.id; /* sealed rightly, signed by somebody else */
    fleet_seal_value(&one, &task, 0.5);
    one.id = own;
    assert_string_equal(fleet_upload(&one, &task), "signature");
    expect_clean_audit();
}

static size_t count_uploads(void)
{
    char path[SERVER_PATH_MAX];
    size_t n = 0;
    snprintf(path, sizeof path, "%s/uploads", f.dir);
    DIR *d = opendir(path);
    assert_non_null(d);
    for (struct dirent *e = readdir(d); e; e = readdir(d))
        n += e->d_name[0] != '.';
    closedir(d);
    return n;
}

/* The size that is announced is held against what the plan's adapter can need: its values as int32,
 * a kilobyte of other fields, and the seal. One byte more is refused before anything is kept. */
static void test_size(void **state)
{
    (void)state;
    char number[24];
    uint64_t offset = 0;
    fleet_must(fleet_send_reserve(&one, &task), &one.err, "send reserve");
    size_t most = tacit_seal_bound(task.layout.values * 4 + 1024);
    task.sealed = (tacit_buffer){.data = calloc(most + 1, 1), .size = most + 1};
    assert_non_null(task.sealed.data);
    assert_int_equal(fleet_begin(&one, &task, &offset), TACIT_BAD_INPUT);
    snprintf(number, sizeof number, "1 to %zu ", most);
    assert_non_null(strstr(one.err.message, number));
    snprintf(number, sizeof number, "found %zu", most + 1);
    assert_non_null(strstr(one.err.message, number));
    assert_int_equal(fleet_chunk(&one, &task, &offset, 10), TACIT_CONFLICT); /* not begun */
    assert_int_equal(count_uploads(), 0);
    expect_clean_audit();
}

static void test_largest_size(void **state)
{
    (void)state;
    fleet_must(fleet_send_reserve(&one, &task), &one.err, "send reserve");
    size_t most = tacit_seal_bound(task.layout.values * 4 + 1024);
    task.sealed = (tacit_buffer){.data = calloc(most, 1), .size = most};
    assert_non_null(task.sealed.data);
    assert_string_equal(fleet_upload(&one, &task), "decrypt");
    expect_clean_audit();
}

/* The gate itself, for bytes that came in before they were looked at. */
static void test_gate_says_size(void **state)
{
    (void)state;
    round_terms terms;
    intake_update update;
    const char *reason = NULL;
    tacit_error err;
    size_t most = tacit_seal_bound(task.layout.values * 4 + 1024);
    uint8_t *bytes = calloc(most + 1, 1);
    update_row row = {.size = most + 1};
    fleet_must(round_terms_load(&terms, f.server, task.plan->round_id.data, &err), &err, "terms");
    intake_terms view = round_terms_for(&terms, tacit_identity_sign_key(one.id));
    fleet_must(intake_judge(&view, &row, bytes, most + 1, &update, &reason, &err), &err, "judge");
    assert_string_equal(reason, "size");
    row.size = most; /* other than what was announced */
    fleet_must(intake_judge(&view, &row, bytes, most - 1, &update, &reason, &err), &err, "judge");
    assert_string_equal(reason, "size");
    round_terms_free(&terms);
    free(bytes);
}

/* A device has one unfinished upload at most: that of the round that runs. Bytes of an earlier
 * round are gone with it, and further ones are not kept. */
static void test_one_unfinished_upload(void **state)
{
    (void)state;
    fleet_task next;
    uint64_t offset = 0, again = 0;
    fleet_must(fleet_send_reserve(&one, &task), &one.err, "send");
    fleet_seal_value(&one, &task, 0.5);
    fleet_must(fleet_begin(&one, &task, &offset), &one.err, "begin");
    fleet_must(fleet_chunk(&one, &task, &offset, 100), &one.err, "chunk");
    assert_int_equal(count_uploads(), 1);
    atomic_fetch_add(&fleet_now, 600 * 1000); /* nobody else answers: the round fails */
    fleet_work(&f);
    fleet_hello(&one);
    fleet_take(&one, &next);
    assert_int_equal(next.plan->round_index, 1);
    fleet_must(fleet_reserve_locally(&one, &next), &one.err, "reserve");
    fleet_must(fleet_send_reserve(&one, &next), &one.err, "send");
    fleet_seal_value(&one, &next, 0.5);
    fleet_must(fleet_begin(&one, &next, &again), &one.err, "begin");
    fleet_must(fleet_chunk(&one, &next, &again, 100), &one.err, "chunk");
    fleet_must(fleet_chunk(&one, &task, &offset, 100), &one.err, "chunk of the round before");
    assert_int_equal(offset, task.sealed.size); /* "all is here": nothing is taken any more */
    assert_int_equal(count_uploads(), 1);
    fleet_task_free(&next);
}

/* What a round may bring has room on the disk before anybody is asked. */
static void test_room_for_a_round(void **state)
{
    (void)state;
    tacit_error err;
    char path[SERVER_PATH_MAX];
    uint64_t one_update = tacit_seal_bound(task.layout.values * 4 + 1024);
    uint64_t fits = ((uint64_t)1 << 20) / one_update; /* devices whose updates fit a MiB */
    json_decref(FLEET_ASK(&f, "round cancel"));
    f.server->config.uploads_max_mib = 1;
    snprintf(path, sizeof path, "%llu", (unsigned long long)fits);
    assert_int_equal(FLEET_VERB(&f, NULL, &err, "round start", "cohort", path), TACIT_USAGE);
    assert_non_null(strstr(err.message, "uploads.max_mib"));
    assert_non_null(strstr(err.message, "1048576"));
    snprintf(path, sizeof path, "%llu", (unsigned long long)(fits / 1.3) - 1);
    json_decref(FLEET_ASK(&f, "round start", "cohort", path));
    json_decref(FLEET_ASK(&f, "round cancel"));

    Tacit__Plan plan = TACIT__PLAN__INIT;
    plan.cohort = 1;
    plan.trainable_values = 16 << 20; /* 64 MiB of values */
    f.server->config.uploads_max_mib = 1 << 20;
    assert_int_equal(round_check_room(f.server, &plan, &err), TACIT_USAGE);
    assert_non_null(strstr(err.message, "67108864"));
    plan.trainable_values = 15 << 20;
    assert_int_equal(round_check_room(f.server, &plan, &err), TACIT_OK);
}

/* A limit that was lowered under a lineage that runs: its next round asks nobody. */
static void test_no_room_any_more(void **state)
{
    (void)state;
    tacit_error err;
    bool worked;
    atomic_bool stop = false;
    json_decref(FLEET_ASK(&f, "round cancel"));
    json_decref(FLEET_ASK(&f, "round start", "cohort", "2", "unit", "record"));
    uint64_t kept = f.server->config.uploads_max_mib;
    f.server->config.uploads_max_mib = 0;
    assert_int_equal(round_machine_step(f.server, &stop, &worked, &err), TACIT_USAGE);
    assert_non_null(strstr(err.message, "uploads.max_mib"));
    f.server->config.uploads_max_mib = kept;
    fleet_work(&f);
    fleet_expect_round(&f, "collecting", "");
}

/* A round's key opens nothing of another round, and nothing outlives the round. */
static void test_key_is_erased(void **state)
{
    (void)state;
    tacit_secret secret = {0};
    uint8_t id[ROUND_ID_BYTES];
    tacit_error err;
    assert_string_equal(decision(NULL), "");
    memcpy(id, task.plan->round_id.data, sizeof id);
    fleet_must(round_secret(f.server->db, id, &secret, &err), &err, "secret");
    uint8_t kept[32];
    memcpy(kept, secret.data, sizeof kept);
    tacit_secret_free(&secret);
    json_decref(FLEET_ASK(&f, "round cancel"));
    assert_int_equal(round_secret(f.server->db, id, &secret, &err), TACIT_NOT_FOUND);
    static const char *const files[] = {"server.db", "server.db-wal"};
    for (size_t i = 0; i < 2; i++) {
        char path[SERVER_PATH_MAX];
        uint8_t *bytes;
        size_t size;
        snprintf(path, sizeof path, "%s/%s", f.dir, files[i]);
        if (tacit_file_read(path, (size_t)1 << 30, &bytes, &size, &err) != TACIT_OK)
            continue;
        assert_null(memmem(bytes, size, kept, sizeof kept));
        free(bytes);
    }
}

/* --- reserves --- */

static void test_reserve_again(void **state)
{
    (void)state;
    uint8_t first[32];
    fleet_must(fleet_send_reserve(&one, &task), &one.err, "send");
    memcpy(first, task.nonce, sizeof first);
    fleet_restart(&f);
    fleet_must(fleet_send_reserve(&one, &task), &one.err, "send again"); /* another counter */
    assert_memory_equal(first, task.nonce, sizeof first);
    json_t *row = fleet_round(&f);
    assert_int_equal(json_integer_value(json_object_get(row, "reserved")), 1);
    json_decref(row);
    Tacit__CheckInReply *idle = NULL;
    fleet_must(fleet_check_in(&one, &idle), &one.err, "check-in");
    assert_int_equal(idle->plan.len, 0); /* it has reserved: nothing more to do */
    tacit_message_free(idle);
}

/* A reserve that was signed in time and comes too late is logged and takes no part. */
static void test_late_reserve(void **state)
{
    (void)state;
    atomic_fetch_add(&fleet_now, 600 * 1000);
    fleet_hello(&one);
    fleet_must(fleet_send_reserve(&one, &task), &one.err, "send");
    assert_false(task.takes_part);
    fleet_work(&f);
    fleet_must(fleet_send_reserve(&one, &task), &one.err, "send again");
    assert_false(task.takes_part);
    /* Its chain has no gap: the next round takes it. */
    fleet_task next;
    fleet_take(&one, &next);
    assert_int_equal(next.plan->round_index, 1);
    fleet_must(fleet_reserve_locally(&one, &next), &one.err, "reserve");
    fleet_must(fleet_send_reserve(&one, &next), &one.err, "send");
    assert_true(next.takes_part);
    fleet_task_free(&next);
    expect_clean_audit();
}

/* A device that was not asked learns a plan from another one. */
static void test_reserve_of_a_stranger(void **state)
{
    (void)state;
    fleet_device three;
    fleet_join(&three, &f, "three");
    fleet_task stolen = {.asked = task.asked};
    tacit_reserve_request r = {.device = three.device,
                               .plan = tacit_span_of(task.asked->plan),
                               .schedule = tacit_span_of(task.asked->schedule)};
    fleet_must(tacit_account_reserve(three.account, &r, &stolen.reserve, &three.err), &three.err,
               "reserve");
    fleet_must(fleet_send_reserve(&three, &stolen), &three.err, "send");
    assert_false(stolen.takes_part);
    stolen.asked = NULL;
    fleet_task_free(&stolen);
    fleet_device_free(&three);
}

static void send_entry(fleet_device *d, const uint8_t *entry, size_t size, tacit_status expected)
{
    Tacit__ReserveRequest r = TACIT__RESERVE_REQUEST__INIT;
    r.entry = tacit_field_of(entry, size);
    assert_int_equal(fleet_call(d, TACIT__METHOD__METHOD_RESERVE, &r, NULL, NULL), expected);
}

/* Two copies of one account that reserve the same plan apart: another entry with a used sequence.
 * The device is frozen, in a commit of its own, and stays so. */
static void test_forked_chain(void **state)
{
    (void)state;
    fleet_device copy = {0};
    tacit_reservation fork = {0};
    fleet_device_new(&copy, &f, "copy");
    tacit_identity_free(copy.id);
    copy.id = one.id;
    fleet_device_open_account(&copy);
    memcpy(copy.device, one.device, sizeof copy.device);
    tacit_reserve_request r = {.device = one.device,
                               .plan = tacit_span_of(task.asked->plan),
                               .schedule = tacit_span_of(task.asked->schedule)};
    atomic_fetch_add(&fleet_now, 5); /* so that the copy's entry has other bytes */
    fleet_must(tacit_account_reserve(copy.account, &r, &fork, &copy.err), &copy.err, "fork");
    assert_memory_not_equal(fork.hash, task.reserve.hash, sizeof fork.hash);
    fleet_must(fleet_send_reserve(&one, &task), &one.err, "send");
    expect_frozen("=one", false);
    send_entry(&one, fork.entry, fork.entry_size, TACIT_REFUSED);
    assert_non_null(strstr(one.err.message, "clone"));
    expect_frozen("=one", true);
    fleet_restart(&f);
    expect_frozen("=one", true);
    send_entry(&one, task.reserve.entry, task.reserve.entry_size, TACIT_REFUSED);
    expect_frozen("=two", false);
    tacit_reservation_free(&fork);
    copy.id = NULL;
    fleet_device_free(&copy);
    expect_clean_audit();
}

/* Entries of others and of other kinds freeze nobody. */
static void test_foreign_entries(void **state)
{
    (void)state;
    uint8_t *bytes;
    size_t size;
    tacit_error err;
    send_entry(&two, task.reserve.entry, task.reserve.entry_size, TACIT_BAD_INPUT);
    fleet_must(tacit_ledger_entry(f.server->ledger, 0, &bytes, &size, &err), &err, "entry");
    send_entry(&two, bytes, size, TACIT_BAD_INPUT);
    free(bytes);
    task.reserve.entry[task.reserve.entry_size - 1] ^= 1; /* in the signature */
    send_entry(&one, task.reserve.entry, task.reserve.entry_size, TACIT_BAD_INPUT);
    task.reserve.entry[task.reserve.entry_size - 1] ^= 1;
    expect_frozen("=one", false);
    expect_frozen("=two", false);
    fleet_must(fleet_send_reserve(&one, &task), &one.err, "send");
}

static void lower_budget(const char *epsilon)
{
    json_t *row = FLEET_ASK(&f, "budget set", "=one", "epsilon", epsilon);
    assert_true(json_real_value(json_object_get(row, "epsilon_cap")) == strtod(epsilon, NULL));
    json_decref(row);
}

/* What the server shows of the account is what the device itself has. */
static void expect_charged(void)
{
    tacit_account_status own;
    json_t *row = FLEET_ASK(&f, "device show", "=one");
    fleet_must(tacit_account_status_get(one.account, &own, &one.err), &one.err, "account");
    assert_true(own.epsilon > 0);
    assert_true(json_real_value(json_object_get(row, "epsilon")) == own.epsilon);
    json_decref(row);
}

static void expect_asked(fleet_device *d, bool asked, double cap)
{
    Tacit__CheckInReply *told = NULL;
    fleet_must(fleet_check_in(d, &told), &d->err, "check-in");
    assert_int_equal(told->plan.len > 0, asked);
    assert_true(told->epsilon_cap == cap);
    tacit_message_free(told);
}

static void abandon(fleet_device *d, fleet_task *t)
{
    Tacit__AbandonRequest r = TACIT__ABANDON_REQUEST__INIT;
    tacit_reservation entry;
    fleet_must(tacit_account_abandon(d->account, t->reserve.hash, "superseded", &entry, &d->err),
               &d->err, "abandon");
    r.entry = tacit_field_of(entry.entry, entry.entry_size);
    fleet_must(fleet_call(d, TACIT__METHOD__METHOD_ABANDON, &r, NULL, NULL), &d->err, "abandon");
    tacit_reservation_free(&entry);
}

static void test_a_budget_is_only_lowered(void **state)
{
    (void)state;
    tacit_error err;
    assert_int_equal(FLEET_VERB(&f, NULL, &err, "budget set", "=one", "epsilon", "9"),
                     TACIT_REFUSED);
    assert_int_equal(FLEET_VERB(&f, NULL, &err, "budget set", "=one"), TACIT_USAGE);
    assert_int_equal(FLEET_VERB(&f, NULL, &err, "budget set", "=one", "epsilon", "nan"),
                     TACIT_USAGE);
    lower_budget("5");
    /* Not back to what the device declared, nor to anything between. */
    assert_int_equal(FLEET_VERB(&f, NULL, &err, "budget set", "=one", "epsilon", "8"),
                     TACIT_REFUSED);
    assert_int_equal(FLEET_VERB(&f, NULL, &err, "budget set", "=one", "epsilon", "6"),
                     TACIT_REFUSED);
    expect_asked(&one, true, 5);
    fleet_restart(&f);
    expect_asked(&one, true, 5);
    lower_budget("4");
    expect_asked(&one, true, 4);
    expect_clean_audit();
}

/* The device signed its reserve before the operator lowered its cap. The log has it and the account
 * is charged, the round goes on without the device, and its chain is not stuck: in the next round,
 * which fits the lower cap, it takes part. */
static void test_cap_lowered_before_the_log_has_the_reserve(void **state)
{
    (void)state;
    fleet_task next;
    lower_budget("5");
    fleet_must(fleet_send_reserve(&one, &task), &one.err, "send");
    assert_false(task.takes_part);
    expect_charged();
    fleet_restart(&f);
    fleet_must(fleet_send_reserve(&one, &task), &one.err, "send again");
    assert_false(task.takes_part);
    expect_frozen("=one", false);
    expect_asked(&one, false, 5); /* this plan is answered */
    abandon(&one, &task);
    one.policy.epsilon_cap = 5;
    fleet_must(tacit_account_set_policy(one.account, &one.policy, &one.err), &one.err, "policy");
    fleet_serve_round(&two, 0.25);
    fleet_work(&f); /* nobody is waited for */
    fleet_take(&one, &next);
    assert_int_equal(next.plan->round_index, 1);
    fleet_must(fleet_reserve_locally(&one, &next), &one.err, "reserve");
    fleet_must(fleet_send_reserve(&one, &next), &one.err, "send");
    assert_true(next.takes_part);
    fleet_seal_value(&one, &next, 0.25);
    assert_string_equal(fleet_upload(&one, &next), "");
    expect_charged();
    fleet_task_free(&next);
    expect_clean_audit();
}

/* Lowered below what the reserve comes to, and a device that uploads all the same. */
static void test_no_update_under_an_outdated_reserve(void **state)
{
    (void)state;
    uint64_t offset = 0;
    char word[32];
    lower_budget("0.001");
    fleet_must(fleet_send_reserve(&one, &task), &one.err, "send");
    assert_false(task.takes_part);
    expect_charged();
    expect_asked(&one, false, 0.001);
    fleet_seal_value(&one, &task, 0.5);
    assert_int_equal(fleet_begin(&one, &task, &offset), TACIT_CONFLICT);
    (void)!fleet_chunk(&one, &task, &offset, 10); /* of no use, as after any end */
    assert_int_equal(count_uploads(), 0);
    assert_int_equal(fleet_commit(&one, &task, word), TACIT_CONFLICT);
    json_t *row = fleet_round(&f);
    assert_int_equal(json_integer_value(json_object_get(row, "accepted")), 0);
    json_decref(row);
    expect_frozen("=one", false);
    expect_clean_audit();
}

/* --- uploads --- */

static void test_upload_resumes(void **state)
{
    (void)state;
    uint64_t offset = 0;
    char word[32];
    fleet_must(fleet_send_reserve(&one, &task), &one.err, "send");
    fleet_seal_value(&one, &task, 0.5);
    assert_int_equal(fleet_chunk(&one, &task, &offset, 10), TACIT_CONFLICT); /* not begun */
    assert_int_equal(fleet_commit(&one, &task, word), TACIT_CONFLICT);
    fleet_must(fleet_begin(&one, &task, &offset), &one.err, "begin");
    assert_int_equal(offset, 0);
    fleet_must(fleet_chunk(&one, &task, &offset, 100), &one.err, "chunk");
    offset = 0; /* the acknowledgement was lost: the same bytes again, and more */
    fleet_must(fleet_chunk(&one, &task, &offset, 200), &one.err, "chunk");
    assert_int_equal(offset, 200);
    offset = 50; /* an older offset never takes back what is here */
    fleet_must(fleet_chunk(&one, &task, &offset, 100), &one.err, "chunk");
    assert_int_equal(offset, 200);
    offset = 201; /* a hole */
    assert_int_equal(fleet_chunk(&one, &task, &offset, 10), TACIT_CONFLICT);
    assert_int_equal(fleet_commit(&one, &task, word), TACIT_CONFLICT); /* the rest is missing */
    fleet_restart(&f);
    fleet_must(fleet_begin(&one, &task, &offset), &one.err, "begin");
    assert_int_equal(offset, 200);
    assert_string_equal(fleet_upload(&one, &task), "");
    fleet_must(fleet_commit(&one, &task, word), &one.err, "commit again"); /* another counter */
    assert_string_equal(word, "");
    json_t *row = fleet_round(&f);
    assert_int_equal(json_integer_value(json_object_get(row, "accepted")), 1);
    json_decref(row);
    expect_clean_audit();
}

static void test_chunks_out_of_bounds(void **state)
{
    (void)state;
    uint64_t offset = 0;
    fleet_must(fleet_send_reserve(&one, &task), &one.err, "send");
    fleet_seal_value(&one, &task, 0.5);
    fleet_must(fleet_begin(&one, &task, &offset), &one.err, "begin");
    Tacit__UploadChunkRequest r = TACIT__UPLOAD_CHUNK_REQUEST__INIT;
    r.reserve_hash = tacit_field_of(task.reserve.hash, TACIT_HASH_BYTES);
    r.data = tacit_field_of(task.sealed.data, 100);
    static const struct {
        uint64_t offset;
        size_t size;
    } rows[] = {{UINT64_MAX, 100}, {UINT64_MAX - 50, 100}, {1u << 30, 1}, {0, 0}};
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        r.offset = rows[i].offset;
        r.data.len = rows[i].size;
        assert_int_equal(fleet_call(&one, TACIT__METHOD__METHOD_UPLOAD_CHUNK, &r, NULL, NULL),
                         TACIT_BAD_INPUT);
    }
    r.offset = 0;
    r.data.len = 100;
    assert_int_equal(fleet_call(&two, TACIT__METHOD__METHOD_UPLOAD_CHUNK, &r, NULL, NULL),
                     TACIT_REFUSED); /* another device's */
    assert_string_equal(fleet_upload(&one, &task), "");
}

/* Announcing twice, with other bytes or a spend of something else. */
static void test_second_announcement(void **state)
{
    (void)state;
    uint64_t offset = 0;
    fleet_must(fleet_send_reserve(&one, &task), &one.err, "send");
    fleet_seal_value(&one, &task, 0.5);
    fleet_must(fleet_begin(&one, &task, &offset), &one.err, "begin");
    fleet_seal_value(&one, &task, 0.5); /* sealing again gives other bytes */
    assert_int_equal(fleet_begin(&one, &task, &offset), TACIT_CONFLICT);
    expect_frozen("=one", false);
}

/* What was damaged on the way or on the server's disk is sent again. */
static void test_damaged_bytes(void **state)
{
    (void)state;
    uint64_t offset = 0;
    char word[32];
    fleet_must(fleet_send_reserve(&one, &task), &one.err, "send");
    fleet_seal_value(&one, &task, 0.5);
    fleet_must(fleet_begin(&one, &task, &offset), &one.err, "begin");
    task.sealed.data[5] ^= 1;
    fleet_must(fleet_chunk(&one, &task, &offset, task.sealed.size), &one.err, "chunk");
    task.sealed.data[5] ^= 1;
    assert_int_equal(fleet_commit(&one, &task, word), TACIT_CONFLICT);
    fleet_must(fleet_begin(&one, &task, &offset), &one.err, "begin");
    assert_int_equal(offset, 0);
    assert_string_equal(fleet_upload(&one, &task), "");
    expect_clean_audit();
}

/* The round ends in the middle of an upload. */
static void test_round_ends_during_upload(void **state)
{
    (void)state;
    uint64_t offset = 0;
    char word[32], path[SERVER_PATH_MAX];
    tacit_error err;
    fleet_must(fleet_send_reserve(&one, &task), &one.err, "send");
    fleet_seal_value(&one, &task, 0.5);
    fleet_must(fleet_begin(&one, &task, &offset), &one.err, "begin");
    fleet_must(fleet_chunk(&one, &task, &offset, 100), &one.err, "chunk");
    json_decref(FLEET_ASK(&f, "round cancel"));
    fleet_must(fleet_chunk(&one, &task, &offset, 100), &one.err, "chunk");
    assert_int_equal(offset, task.sealed.size);
    fleet_must(fleet_begin(&one, &task, &offset), &one.err, "begin");
    assert_int_equal(offset, task.sealed.size);
    fleet_must(fleet_commit(&one, &task, word), &one.err, "commit");
    assert_string_equal(word, "late");
    fleet_must(round_upload_path(f.server, task.reserve.hash, path, &err), &err, "path");
    assert_int_not_equal(access(path, F_OK), 0);
    expect_clean_audit();
}

/* Colluding devices: one enrols under the pseudonym of another, which the operator must be able to
 * revoke all the same, and alone. */
static void test_a_name_that_is_a_pseudonym(void **state)
{
    (void)state;
    fleet_device squatter;
    char hex[2 * TACIT_DEVICE_BYTES + 1], second[2 * TACIT_DEVICE_BYTES + 1], argument[80];
    tacit_hex(hex, one.device, TACIT_DEVICE_BYTES);
    fleet_join(&squatter, &f, hex);
    tacit_hex(second, squatter.device, TACIT_DEVICE_BYTES);
    snprintf(argument, sizeof argument, "=%s", hex);
    json_decref(FLEET_ASK(&f, "device revoke", argument));
    const char *const device[] = {hex, second}, *const expected[] = {"revoked", "active"};
    for (int i = 0; i < 2; i++) {
        snprintf(argument, sizeof argument, "=%s", device[i]);
        json_t *row = FLEET_ASK(&f, "device show", argument);
        assert_string_equal(json_string_value(json_object_get(row, "device")), device[i]);
        assert_string_equal(json_string_value(json_object_get(row, "state")), expected[i]);
        json_decref(row);
    }
    fleet_device_free(&squatter);
}

/* A name is shown in the operator's terminal: nothing in it may steer that. */
static void test_names_that_steer_terminals(void **state)
{
    (void)state;
    static const char *const names[] = {"cart\x1b[2J", "cart\n2026 info",
                                        "cart\xc2\x9b"
                                        "2J",
                                        "\xe2\x80\xaetrac", "cart\x7f"};
    uint8_t secret[TACIT_TOKEN_SECRET_BYTES];
    fleet_token(&f, secret, NULL);
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        fleet_device d;
        Tacit__EnrolReply *reply = NULL;
        fleet_device_new(&d, &f, "steering");
        assert_int_equal(fleet_enrol(&d, names[i], secret, &reply), TACIT_BAD_INPUT);
        assert_non_null(strstr(d.err.message, "control character"));
        fleet_device_free(&d);
    }
    fleet_device d;
    Tacit__EnrolReply *reply = NULL;
    fleet_device_new(&d, &f, "plain");
    fleet_must(fleet_enrol(&d, "W\xc3\xa4gelchen \xe2\x84\x96 3", secret, &reply), &d.err, "enrol");
    tacit_message_free(reply);
    fleet_device_free(&d);
}

int main(void)
{
#define T(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
    const struct CMUnitTest tests[] = {
        T(test_honest),
        T(test_all_zero),
        T(test_other_round),
        T(test_other_base),
        T(test_other_plan),
        T(test_other_parent),
        T(test_other_format),
        T(test_other_device),
        T(test_other_reserve),
        T(test_other_layout),
        T(test_one_value_less),
        T(test_one_value_more),
        T(test_no_values),
        T(test_nan_scale),
        T(test_infinite_scale),
        T(test_twice_the_scale),
        T(test_huge_value),
        T(test_twice_the_norm),
        T(test_nan_values),
        T(test_decrypt),
        T(test_signature),
        T(test_size),
        T(test_largest_size),
        T(test_gate_says_size),
        T(test_one_unfinished_upload),
        T(test_room_for_a_round),
        T(test_no_room_any_more),
        T(test_key_is_erased),
        T(test_reserve_again),
        T(test_late_reserve),
        T(test_reserve_of_a_stranger),
        T(test_forked_chain),
        T(test_foreign_entries),
        T(test_a_budget_is_only_lowered),
        T(test_cap_lowered_before_the_log_has_the_reserve),
        T(test_no_update_under_an_outdated_reserve),
        T(test_upload_resumes),
        T(test_chunks_out_of_bounds),
        T(test_second_announcement),
        T(test_damaged_bytes),
        T(test_round_ends_during_upload),
        T(test_a_name_that_is_a_pseudonym),
        T(test_names_that_steer_terminals),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
