/* What a device takes of its policy key: by file and from a log that lies; what stands in for
 * client.yaml, and until when. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "../privacy/world.h"
#include "client/pinned_policy.h"
#include "device_folder.h"
#include "privacy/receipt.h"

static tiny_model tiny;

/* An enrolled device that pinned w.policy_key; client.yaml is the default: epsilon 8. */
typedef struct fixture {
    world w;
    fake_device d;
    tacit_error err;
} fixture;

static void enrol(fixture *f)
{
    client *c = f->d.client;
    client_enrolment e = {.log = world_log_key(&f->w), .has_policy_key = true};
    uint8_t *policy;
    memset(e.device, 0xe7, sizeof e.device);
    memcpy(e.policy_key, tacit_identity_sign_key(f->w.policy_key), sizeof e.policy_key);
    OK(tacit_policy_pack(&c->config.policy, &policy, &e.policy_size, &f->err));
    memcpy(e.policy, policy, e.policy_size);
    free(policy);
    OK(client_config_set_server(f->d.dir, "tls+tcp://a:1", "tls+tcp://a:2", &f->err));
    OK(tacit_database_begin(c->db, &f->err));
    OK(client_enrolment_put(c->db, &e, &f->err));
    OK(tacit_database_commit(c->db, &f->err));
}

static void reopen(fixture *f)
{
    fake_device_close(&f->d);
    fake_device_open(&f->d, CLIENT_FEDERATES);
}

static int set_up(void **state)
{
    fixture *f = calloc(1, sizeof *f);
    world_init(&f->w);
    fake_device_make(&f->d, &tiny, 0);
    fake_device_open(&f->d, CLIENT_WORKS);
    OK(client_make_account(f->d.client, &f->err));
    enrol(f);
    reopen(f);
    *state = f;
    return 0;
}

static int tear_down(void **state)
{
    fixture *f = *state;
    fake_device_drop(&f->d);
    world_free(&f->w);
    free(f);
    return 0;
}

/* --- signing --- */

static tacit_policy raised(const fixture *f, double cap, uint64_t serial)
{
    tacit_policy policy = f->d.client->yaml_policy;
    policy.epsilon_cap = cap;
    policy.serial = serial;
    return policy;
}

static uint8_t *signed_by(fixture *f, const tacit_policy *policy, const tacit_identity *device,
                          const tacit_identity *key, size_t *size)
{
    const tacit_policy_words words = {"Dr. Ada", "privacy officer", "another cap", "a study"};
    uint8_t *bytes;
    OK(tacit_signed_policy_make(policy, tacit_identity_sign_key(device), &words, key, &bytes, size,
                                &f->err));
    return bytes;
}

static tacit_status take_file(fixture *f, double cap, uint64_t serial)
{
    char path[128];
    size_t size;
    const tacit_policy policy = raised(f, cap, serial);
    uint8_t *bytes = signed_by(f, &policy, f->d.client->identity, f->w.policy_key, &size);
    snprintf(path, sizeof path, "%s/signed", f->d.folder);
    OK(tacit_file_write(path, bytes, size, 0600, &f->err));
    free(bytes);
    return pinned_policy_take_file(f->d.client, path, &f->err);
}

static void expect_cap(fixture *f, double cap)
{
    tacit_account_status now;
    OK(tacit_account_status_get(f->d.client->account, &now, &f->err));
    assert_true(now.policy.epsilon_cap == cap);
}

/* --- from the log --- */

typedef struct lie {
    const char *what, *says; /* says NULL: no lie */
    bool by_stranger, for_another, about_another, entry_by_stranger, unproved, unsigned_one;
    double delta;
    uint64_t serial;
} lie;

static void push_entry(fixture *f, const lie *l)
{
    static const uint8_t other[TACIT_DEVICE_BYTES] = {1};
    client *c = f->d.client;
    tacit_policy policy = raised(f, 30, l->serial ? l->serial : 6);
    tacit_signed_policy p;
    Tacit__PolicyChanged change;
    Tacit__Entry e = TACIT__ENTRY__INIT;
    size_t size;
    if (l->delta > 0)
        policy.delta = l->delta;
    uint8_t *bytes = signed_by(f, &policy, l->for_another ? f->w.device[0].id : c->identity,
                               l->by_stranger ? f->w.stranger : f->w.policy_key, &size);
    OK(tacit_signed_policy_open(&p, bytes, size, &f->err));
    tacit_signed_policy_change(p.message, &change);
    if (l->unsigned_one)
        change.signature = (ProtobufCBinaryData){0};
    e.device = tacit_field_of(l->about_another ? other : c->enrolment.device, TACIT_DEVICE_BYTES);
    e.body_case = TACIT__ENTRY__BODY_POLICY_CHANGED;
    e.policy_changed = &change;
    world_push(&f->w, &e, l->entry_by_stranger ? f->w.stranger : f->w.log, NULL);
    tacit_message_free(p.message);
    free(bytes);
}

static tacit_status take_reply(fixture *f, const lie *l)
{
    Tacit__CheckInReply r = TACIT__CHECK_IN_REPLY__INIT;
    tacit_checkpoint checkpoint = {.size = f->w.count + 1};
    tacit_merkle_store store = tacit_merkle_memory_store(&f->w.tree);
    tacit_proof proof;
    ProtobufCBinaryData fields[TACIT_PROOF_MAX];
    push_entry(f, l);
    r.policy_index = f->w.count - 1;
    OK(tacit_merkle_root(&store, f->w.count, checkpoint.root, &f->err));
    OK(tacit_merkle_inclusion(&store, r.policy_index, f->w.count, &proof, &f->err));
    if (l->unproved)
        proof.hash[0][3] ^= 1;
    tacit_proof_to_fields(&proof, fields);
    r.policy_proof = fields;
    r.n_policy_proof = proof.count;
    r.policy_entry =
        tacit_field_of(f->w.entry[r.policy_index].bytes, f->w.entry[r.policy_index].size);
    return pinned_policy_take_reply(f->d.client, &r, &checkpoint, &f->err);
}

static void a_log_that_lies_raises_nothing(void **state)
{
    static const lie lies[] = {
        {.what = "by a stranger",
         .says = "policy key that this device pinned",
         .by_stranger = true},
        {.what = "for another device", .says = "policy key that", .for_another = true},
        {.what = "about another device", .says = "about this device", .about_another = true},
        {.what = "by another log", .says = "about this device", .entry_by_stranger = true},
        {.what = "not in the log", .says = "", .unproved = true},
        {.what = "unsigned", .says = "signature", .unsigned_one = true},
        {.what = "an older one", .says = "has taken serial 5", .serial = 4},
        {.what = "the same serial", .says = "has taken serial 5", .serial = 5},
        {.what = "another delta", .says = "for life", .delta = 1e-6},
    };
    fixture *f = *state;
    const lie first = {.serial = 1};
    push_entry(f, &first); /* so that proofs have a hash to spoil */
    OK(take_file(f, 9, 5));
    for (size_t i = 0; i < sizeof lies / sizeof lies[0]; i++) {
        f->err.message[0] = '\0';
        tacit_status status = take_reply(f, &lies[i]);
        if (status != TACIT_INTEGRITY || !strstr(f->err.message, lies[i].says))
            fail_msg("%s: %d %s", lies[i].what, status, f->err.message);
        expect_cap(f, 9);
        assert_true(f->d.client->config.policy.epsilon_cap == 9);
    }
    const lie none = {.what = "none"};
    OK(take_reply(f, &none));
    expect_cap(f, 30);
}

/* What came from the log need not be brought there. */
static void only_a_file_waits_for_the_log(void **state)
{
    fixture *f = *state;
    const lie none = {.what = "none"};
    bool pending;
    OK(pinned_policy_is_pending(f->d.client, &pending, &f->err));
    assert_false(pending);
    OK(take_file(f, 9, 5));
    OK(take_file(f, 9, 5)); /* again */
    OK(pinned_policy_is_pending(f->d.client, &pending, &f->err));
    assert_true(pending);
    OK(take_reply(f, &none));
    OK(pinned_policy_is_pending(f->d.client, &pending, &f->err));
    assert_false(pending);
}

/* A server that held a policy back brings it after the owner declared another: too late. */
static void what_was_declared_since_stays_in_force(void **state)
{
    fixture *f = *state;
    const lie held_back = {.what = "none"}, newer = {.what = "none", .serial = 7};
    client *c = f->d.client;
    client_signed_policy stored;
    OK(tacit_database_begin(c->db, &f->err));
    OK(client_declared_end_put(c->db, f->w.count + 1, &f->err)); /* behind the next entry */
    OK(tacit_database_commit(c->db, &f->err));
    OK(take_reply(f, &held_back));
    expect_cap(f, 8);
    assert_true(c->config.policy.epsilon_cap == 8);
    OK(client_signed_policy_get(c->db, &stored, &f->err));
    assert_int_equal(stored.serial, 6);
    assert_false(stored.pending || stored.over_size);
    reopen(f);
    OK(client_apply_policy(f->d.client, &f->err));
    expect_cap(f, 8);
    assert_int_equal(take_file(f, 40, 5), TACIT_REFUSED);
    OK(take_reply(f, &newer)); /* signed after it */
    expect_cap(f, 30);
}

/* --- beside client.yaml --- */

static void expect_in_force(fixture *f, double cap)
{
    reopen(f);
    OK(client_apply_policy(f->d.client, &f->err));
    assert_true(f->d.client->config.policy.epsilon_cap == cap);
    expect_cap(f, cap);
}

static void it_stands_in_until_client_yaml_is_edited(void **state)
{
    fixture *f = *state;
    OK(take_file(f, 30, 5));
    expect_in_force(f, 30);
    fake_device_set(&f->d, "  epsilon", "29");
    expect_in_force(f, 29);
    fake_device_set(&f->d, "  epsilon", "31");
    reopen(f);
    assert_int_equal(client_apply_policy(f->d.client, &f->err), TACIT_REFUSED);
    expect_cap(f, 29);
    OK(take_file(f, 12, 6)); /* a lower one; now client.yaml says 31 */
    expect_in_force(f, 12);
    assert_int_equal(take_file(f, 30, 5), TACIT_REFUSED);
    expect_cap(f, 12);
}

static void what_the_operator_lowered_stays_lowered(void **state)
{
    fixture *f = *state;
    tacit_account_status now;
    OK(take_file(f, 30, 5));
    OK(tacit_account_status_get(f->d.client->account, &now, &f->err));
    now.policy.epsilon_cap = 2; /* as a check-in does */
    OK(tacit_account_set_policy(f->d.client->account, &now.policy, &f->err));
    reopen(f);
    OK(client_apply_policy(f->d.client, &f->err));
    expect_cap(f, 2);
    OK(take_file(f, 30, 6));
    expect_cap(f, 30);
}

/* --- what no policy brings back --- */

static void a_lost_account_stays_lost(void **state)
{
    fixture *f = *state;
    char command[256];
    tacit_account_status now;
    fake_device_close(&f->d);
    snprintf(command, sizeof command, "rm %s/client.db*", f->d.dir);
    assert_int_equal(system(command), 0);
    fake_device_open(&f->d, CLIENT_WORKS);
    enrol(f);
    reopen(f);
    OK(take_file(f, 30, 5));
    OK(tacit_account_status_get(f->d.client->account, &now, &f->err));
    assert_true(now.lost && now.remaining == 0 && now.epsilon == 30);
}

/* Without an enrolment, or with one that pinned none, files are nothing. */
static void nothing_is_taken_without_a_pinned_key(void **state)
{
    fixture *f = *state;
    f->d.client->enrolment.has_policy_key = false;
    assert_int_equal(take_file(f, 9, 5), TACIT_REFUSED);
    assert_non_null(strstr(f->err.message, "pinned no policy key"));
    expect_cap(f, 8);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_log_that_lies_raises_nothing, set_up, tear_down),
        cmocka_unit_test_setup_teardown(only_a_file_waits_for_the_log, set_up, tear_down),
        cmocka_unit_test_setup_teardown(what_was_declared_since_stays_in_force, set_up, tear_down),
        cmocka_unit_test_setup_teardown(it_stands_in_until_client_yaml_is_edited, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(what_the_operator_lowered_stays_lowered, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_lost_account_stays_lost, set_up, tear_down),
        cmocka_unit_test_setup_teardown(nothing_is_taken_without_a_pinned_key, set_up, tear_down),
    };
    tiny = tiny_load(false);
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    tiny_free(&tiny);
    return failed;
}
