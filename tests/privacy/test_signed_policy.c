/* Policies that a policy key signs: what a signature is worth, and that log and auditor take and
 * refuse the same ones. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "audit_run.h"
#include "common/database.h"
#include "common/key_text.h"
#include "log_edits.h"
#include "privacy/ledger.h"

#include <unistd.h>

/* --- one signed policy --- */

typedef struct signing {
    tacit_error err;
    tacit_identity *key, *device, *other;
    uint8_t *bytes;
    size_t size;
} signing;

static const tacit_policy demanded = {.epsilon_cap = 12,
                                      .delta = 1e-5,
                                      .unit = TACIT_UNIT_SUBJECT,
                                      .minimum_noise_multiplier = 0.5,
                                      .minimum_cohort = 2,
                                      .minimum_quorum = 2,
                                      .devices_per_subject = 1,
                                      .serial = 5};
static const tacit_policy_words because = {"Dr. Ada", "privacy officer", "cap 12", "a study"};

static int set_up(void **state)
{
    signing *s = calloc(1, sizeof *s);
    OK(tacit_identity_ephemeral(&s->key, &s->err));
    OK(tacit_identity_ephemeral(&s->device, &s->err));
    OK(tacit_identity_ephemeral(&s->other, &s->err));
    OK(tacit_signed_policy_make(&demanded, tacit_identity_sign_key(s->device), &because, s->key,
                                &s->bytes, &s->size, &s->err));
    *state = s;
    return 0;
}

static int tear_down(void **state)
{
    signing *s = *state;
    tacit_identity_free(s->key);
    tacit_identity_free(s->device);
    tacit_identity_free(s->other);
    free(s->bytes);
    free(s);
    return 0;
}

static tacit_policy_signer signer_of(const uint8_t *bytes, size_t size,
                                     const tacit_identity *device, const tacit_identity *key)
{
    tacit_signed_policy opened;
    Tacit__PolicyChanged change;
    tacit_error err;
    if (tacit_signed_policy_open(&opened, bytes, size, &err) != TACIT_OK)
        return TACIT_POLICY_BY_NOBODY;
    tacit_signed_policy_change(opened.message, &change);
    tacit_policy_signer signer =
        tacit_policy_change_signer(&change, opened.policy.serial, tacit_identity_sign_key(device),
                                   key ? tacit_identity_sign_key(key) : NULL);
    tacit_message_free(opened.message);
    return signer;
}

static void test_it_says_who_what_and_why(void **state)
{
    signing *s = *state;
    tacit_signed_policy opened;
    OK(tacit_signed_policy_open(&opened, s->bytes, s->size, &s->err));
    assert_memory_equal(opened.message->identity_key.data, tacit_identity_sign_key(s->device), 32);
    assert_string_equal(opened.message->who, because.who);
    assert_string_equal(opened.message->role, because.role);
    assert_string_equal(opened.message->meaning, because.meaning);
    assert_string_equal(opened.message->reason, because.reason);
    assert_true(opened.policy.epsilon_cap == 12 && opened.policy.serial == 5);
    tacit_message_free(opened.message);
    assert_int_equal(signer_of(s->bytes, s->size, s->device, s->key), TACIT_POLICY_BY_KEY);
}

static void test_it_holds_for_one_device_and_one_key(void **state)
{
    signing *s = *state;
    assert_int_equal(signer_of(s->bytes, s->size, s->other, s->key), TACIT_POLICY_BY_NOBODY);
    assert_int_equal(signer_of(s->bytes, s->size, s->device, s->other), TACIT_POLICY_BY_NOBODY);
    assert_int_equal(signer_of(s->bytes, s->size, s->device, NULL), TACIT_POLICY_BY_NOBODY);
}

/* The recipient alone is not signed by itself: it is the device's own key that is asked about. */
static void test_no_byte_can_be_changed(void **state)
{
    signing *s = *state;
    tacit_signed_policy opened;
    OK(tacit_signed_policy_open(&opened, s->bytes, s->size, &s->err));
    const uint8_t *key = opened.message->identity_key.data;
    size_t at = 0;
    while (memcmp(s->bytes + at, key, 32) != 0)
        at++;
    tacit_message_free(opened.message);
    for (size_t i = 0; i < s->size; i++) {
        if (i >= at && i < at + 32)
            continue;
        s->bytes[i] ^= 0x11;
        assert_int_equal(signer_of(s->bytes, s->size, s->device, s->key), TACIT_POLICY_BY_NOBODY);
        s->bytes[i] ^= 0x11;
    }
    for (size_t size = 0; size < s->size; size++)
        assert_int_equal(signer_of(s->bytes, size, s->device, s->key), TACIT_POLICY_BY_NOBODY);
}

static void expect_refused(signing *s, const tacit_policy *policy, const tacit_policy_words *words,
                           const char *says)
{
    uint8_t *bytes = NULL;
    size_t size;
    assert_int_equal(tacit_signed_policy_make(policy, tacit_identity_sign_key(s->device), words,
                                              s->key, &bytes, &size, &s->err),
                     TACIT_BAD_INPUT);
    assert_non_null(strstr(s->err.message, says));
}

static void test_what_cannot_be_signed(void **state)
{
    signing *s = *state;
    char longer[257];
    tacit_policy policy = demanded;
    tacit_policy_words words = because;
    memset(longer, 'a', sizeof longer);
    longer[256] = '\0';
    policy.serial = 0;
    expect_refused(s, &policy, &because, "serial");
    policy.serial = TACIT_SIGNED_SERIAL_MAX + 1;
    expect_refused(s, &policy, &because, "serial");
    policy = demanded;
    policy.delta = 1;
    expect_refused(s, &policy, &because, "delta");
    words.who = longer;
    expect_refused(s, &demanded, &words, "who");
    words = because;
    words.reason = "";
    expect_refused(s, &demanded, &words, "reason");
    words.reason = "two\nlines";
    expect_refused(s, &demanded, &words, "reason");
}

/* --- keys as text --- */

static void test_a_key_survives_as_text_and_a_slip_is_noticed(void **state)
{
    signing *s = *state;
    char text[TACIT_KEY_TEXT], spoilt[TACIT_KEY_TEXT + 4];
    uint8_t key[TACIT_SIGN_KEY_BYTES];
    tacit_key_text_write(text, TACIT_KEY_POLICY, tacit_identity_sign_key(s->key));
    snprintf(spoilt, sizeof spoilt, "%s \r\n", text);
    OK(tacit_key_text_read(key, TACIT_KEY_POLICY, spoilt, &s->err));
    assert_memory_equal(key, tacit_identity_sign_key(s->key), sizeof key);
    for (size_t i = strlen(TACIT_KEY_POLICY) + 1; text[i]; i++) {
        snprintf(spoilt, sizeof spoilt, "%s", text);
        spoilt[i] = spoilt[i] == '0' ? '1' : '0';
        assert_int_equal(tacit_key_text_read(key, TACIT_KEY_POLICY, spoilt, &s->err),
                         TACIT_BAD_INPUT);
        snprintf(spoilt, i + 1, "%s", text);
        assert_int_equal(tacit_key_text_read(key, TACIT_KEY_POLICY, spoilt, &s->err),
                         TACIT_BAD_INPUT);
    }
    assert_int_equal(tacit_key_text_read(key, TACIT_KEY_DEVICE, text, &s->err), TACIT_BAD_INPUT);
}

/* --- in the log --- */

static void push_keyed(world *w, int d, int whom, double cap, uint64_t serial)
{
    tacit_policy policy = w->policy;
    policy.epsilon_cap = cap;
    policy.serial = serial;
    push_signed_policy(w, d, whom, &policy, w->policy_key);
}

static bool raised(world *w, Tacit__Entry *e, int round, int device)
{
    if (AT(PLAN, 1, -1))
        push_keyed(w, 0, 0, 30, 5);
    return true;
}

/* Serials of what the device declares are a line of their own. */
static bool raised_beside_declared(world *w, Tacit__Entry *e, int round, int device)
{
    if (AT(PLAN, 1, -1)) {
        w->policy.serial = 9;
        push_policy(w, 0, 4, 1e-5, w->device[0].id);
        push_keyed(w, 0, 0, 30, 5);
        w->policy.serial = 1;
        push_policy(w, 0, 31, 1e-5, w->device[0].id);
        w->policy.serial = 0;
        push_keyed(w, 0, 0, 32, 6);
    }
    return true;
}

/* The operator kept the first of two back and shows it after the second. */
static bool older_after_newer(world *w, Tacit__Entry *e, int round, int device)
{
    if (AT(PLAN, 1, -1)) {
        push_keyed(w, 0, 0, 3, 6);
        push_keyed(w, 0, 0, 30, 5);
    }
    return true;
}

static bool logged_again(world *w, Tacit__Entry *e, int round, int device)
{
    if (AT(PLAN, 1, -1)) {
        push_keyed(w, 0, 0, 30, 5);
        push_policy(w, 0, 3, 1e-5, NULL);
    }
    if (AT(PLAN, 2, -1))
        push_keyed(w, 0, 0, 30, 5);
    return true;
}

/* Also one that allows less: it would stand there in the officer's name at another time. */
static bool lower_logged_again(world *w, Tacit__Entry *e, int round, int device)
{
    if (AT(PLAN, 1, -1)) {
        push_keyed(w, 0, 0, 2.9, 5);
        push_keyed(w, 0, 0, 3, 6);
    }
    if (AT(PLAN, 2, -1))
        push_keyed(w, 0, 0, 2.9, 5);
    return true;
}

static bool for_another(world *w, Tacit__Entry *e, int round, int device)
{
    if (AT(PLAN, 1, -1))
        push_keyed(w, 0, 1, 30, 5);
    return true;
}

/* The bytes of a policy alone, as devices sign their own: they say nothing of a device. */
static bool for_nobody(world *w, Tacit__Entry *e, int round, int device)
{
    uint8_t signature[TACIT_SIGNATURE_BYTES], *bytes;
    size_t size;
    Tacit__PolicyChanged change = TACIT__POLICY_CHANGED__INIT;
    tacit_policy policy = w->policy;
    if (!AT(PLAN, 1, -1))
        return true;
    policy.epsilon_cap = 30;
    policy.serial = 5;
    OK(tacit_policy_pack(&policy, &bytes, &size, &w->err));
    OK(tacit_policy_sign(bytes, size, w->policy_key, signature, &w->err));
    change.who = change.role = change.meaning = change.reason = (char *)(uintptr_t) "operator";
    change.policy = tacit_field_of(bytes, size);
    change.signature = tacit_field_of(signature, sizeof signature);
    push_change(w, 0, &change);
    free(bytes);
    return true;
}

static bool none_pinned(world *w, Tacit__Entry *e, int round, int device)
{
    static uint8_t signature[TACIT_SIGNATURE_BYTES];
    if (AT(ENROL, -1, 0)) {
        OK(tacit_policy_sign(e->enrol->policy.data, e->enrol->policy.len, w->device[0].id,
                             signature, &w->err));
        e->enrol->policy_key = (ProtobufCBinaryData){0};
        e->enrol->policy_signature = tacit_field_of(signature, sizeof signature);
    }
    return raised(w, e, round, device);
}

static bool another_delta(world *w, Tacit__Entry *e, int round, int device)
{
    if (AT(PLAN, 1, -1))
        push_policy(w, 0, 30, 1e-6, w->policy_key);
    return true;
}

/* The account has reserved for records. */
static bool another_unit(world *w, Tacit__Entry *e, int round, int device)
{
    tacit_policy policy = w->policy;
    policy.unit = TACIT_UNIT_DEVICE;
    policy.serial = 5;
    if (AT(PLAN, 1, -1))
        push_signed_policy(w, 0, 0, &policy, w->policy_key);
    return true;
}

/* A raised cap does not bring back what was lost. */
static bool lost_then_raised(world *w, Tacit__Entry *e, int round, int device)
{
    if (AT(SPEND, 0, 0)) {
        Tacit__Entry o = TACIT__ENTRY__INIT;
        Tacit__AccountLost b = TACIT__ACCOUNT_LOST__INIT;
        o.body_case = TACIT__ENTRY__BODY_ACCOUNT_LOST;
        o.account_lost = &b;
        b.epsilon_counted = w->policy.epsilon_cap;
        slip_own(w, 0, &o, e);
    }
    if (AT(RESERVE, 1, 0))
        e->reserve->epsilon_cap = 30;
    return raised(w, e, round, device);
}

static const struct judgement {
    const char *what;
    world_hook *hook;
    tacit_status status; /* of the ledger's first refusal; TACIT_OK: it takes everything */
    const char *says;
    const char *kind; /* which the auditor finds, NULL: nothing */
} judgements[] = {
    {"raised", raised, TACIT_OK, "", NULL},
    {"raised beside what the device declares", raised_beside_declared, TACIT_OK, "", NULL},
    {"older after newer", older_after_newer, TACIT_REFUSED,
     "signed serial 5, the log has its serial 6", "policy_replayed"},
    {"logged again", logged_again, TACIT_REFUSED, "signed serial 5, the log has its serial 5",
     "policy_replayed"},
    {"a lower one again", lower_logged_again, TACIT_REFUSED,
     "signed serial 5, the log has its serial 6", "policy_replayed"},
    {"for another device", for_another, TACIT_REFUSED, "must be signed", "policy_weakened"},
    {"for no device", for_nobody, TACIT_REFUSED, "must be signed", "policy_weakened"},
    {"no key pinned", none_pinned, TACIT_REFUSED, "must be signed", "policy_weakened"},
    {"another delta", another_delta, TACIT_REFUSED, "delta cannot change", "bad_policy"},
    {"another unit", another_unit, TACIT_REFUSED, "cannot change to device", "outdated_accepted"},
    {"lost", lost_then_raised, TACIT_REFUSED, "account lost", "after_account_lost"},
};

/* The ledger must take every entry, or refuse one and say why. */
static void feed_ledger(world *w, const struct judgement *j)
{
    char dir[] = "/tmp/tacit-signed-XXXXXX", path[64], command[64];
    tacit_database *db;
    tacit_ledger *ledger;
    tacit_error err = {.message = ""};
    tacit_status status = TACIT_OK;
    uint8_t leaf[TACIT_HASH_BYTES];
    uint64_t index;
    assert_non_null(mkdtemp(dir));
    snprintf(path, sizeof path, "%s/server.db", dir);
    OK(tacit_database_open(&db, path, &err));
    OK(tacit_ledger_open(&ledger, db, WORLD_ORIGIN, w->log, &err));
    OK(tacit_database_begin(db, &err));
    for (size_t i = 0; i < w->count && status == TACIT_OK; i++)
        status =
            tacit_ledger_append(ledger, w->entry[i].bytes, w->entry[i].size, &index, leaf, &err);
    if (status != j->status || !strstr(err.message, j->says))
        print_error("%s: the ledger says %d %s\n", j->what, status, err.message);
    assert_int_equal(status, j->status);
    assert_non_null(strstr(err.message, j->says));
    tacit_database_rollback(db);
    tacit_ledger_close(ledger);
    tacit_database_close(db);
    snprintf(command, sizeof command, "rm -rf %s", dir);
    assert_int_equal(system(command), 0);
}

static void feed_auditor(world *w, const struct judgement *j)
{
    exported x;
    tacit_audit audit;
    export_of(w, &x);
    run(&x, NULL, &audit);
    bool good = j->kind ? has(&audit, j->kind) : audit.violation_count == 0;
    if (!good)
        print_all(j->what, &audit);
    assert_true(good);
    tacit_audit_free(&audit);
    export_done(&x);
}

static void test_log_and_auditor_judge_the_same(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof judgements / sizeof judgements[0]; i++) {
        world w;
        world_init(&w);
        w.hook = judgements[i].hook;
        w.policy.epsilon_cap = 3;
        world_plan_all(&w);
        world_log(&w);
        feed_ledger(&w, &judgements[i]);
        feed_auditor(&w, &judgements[i]);
        world_free(&w);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_it_says_who_what_and_why, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_it_holds_for_one_device_and_one_key, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(test_no_byte_can_be_changed, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_what_cannot_be_signed, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_a_key_survives_as_text_and_a_slip_is_noticed, set_up,
                                        tear_down),
        cmocka_unit_test(test_log_and_auditor_judge_the_same),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
