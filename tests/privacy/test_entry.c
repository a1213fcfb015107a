/* Entries and policies. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "world.h"

static Tacit__Reserve good_reserve(uint8_t *bytes)
{
    Tacit__Reserve r = TACIT__RESERVE__INIT;
    r.round_id = tacit_field_of(bytes, 16);
    r.plan_hash = tacit_field_of(bytes, 32);
    r.lineage = tacit_field_of(bytes, 16);
    r.kind = TACIT_MECHANISM_SUBSAMPLED_GAUSSIAN;
    r.unit = TACIT_UNIT_RECORD;
    r.neighbours = TACIT_ADD_REMOVE;
    r.b = 100000;
    r.q_num = 1000;
    r.steps = 1;
    r.clip_norm = 1;
    r.delta = 1e-5;
    r.accountant = TACIT__ACCOUNTANT_KIND__ACCOUNTANT_PLD;
    r.accountant_version = (char *)(uintptr_t)TACIT_ACCOUNTANT_VERSION;
    r.epsilon_after = 1;
    r.epsilon_cap = 2;
    r.values = 5;
    return r;
}

static Tacit__Entry entry_of(Tacit__Reserve *r, uint8_t *bytes)
{
    Tacit__Entry e = TACIT__ENTRY__INIT;
    e.schema = TACIT_ENTRY_SCHEMA;
    e.device = tacit_field_of(bytes, 16);
    e.sequence = 1;
    e.body_case = TACIT__ENTRY__BODY_RESERVE;
    e.reserve = r;
    return e;
}

static uint8_t zeros[64];

/* A field of a good reserve, and what spoils it. */
#define SPOILS(ROW)                                                                                \
    ROW(plan_hash_short, r->plan_hash.len = 31)                                                    \
    ROW(lineage_empty, r->lineage.len = 0)                                                         \
    ROW(round_id_short, r->round_id.len = 8)                                                       \
    ROW(kind_unknown, r->kind = 4)                                                                 \
    ROW(kind_missing, r->kind = 0)                                                                 \
    ROW(unit_unknown, r->unit = 4)                                                                 \
    ROW(neighbours_missing, r->neighbours = 0)                                                     \
    ROW(b_above, r->b = TACIT_B_MAX + 1)                                                           \
    ROW(b_zero, r->b = 0)                                                                          \
    ROW(rate_zero, r->q_num = 0)                                                                   \
    ROW(rate_above, r->q_num = TACIT_Q_ONE + 1)                                                    \
    ROW(no_steps, r->steps = 0)                                                                    \
    ROW(clip_nan, r->clip_norm = NAN)                                                              \
    ROW(clip_zero, r->clip_norm = 0)                                                               \
    ROW(delta_zero, r->delta = 0)                                                                  \
    ROW(delta_one, r->delta = 1)                                                                   \
    ROW(delta_nan, r->delta = NAN)                                                                 \
    ROW(epsilon_nan, r->epsilon_after = NAN)                                                       \
    ROW(epsilon_infinite, r->epsilon_after = INFINITY)                                             \
    ROW(epsilon_negative, r->epsilon_after = -1)                                                   \
    ROW(cap_zero, r->epsilon_cap = 0)                                                              \
    ROW(cap_infinite, r->epsilon_cap = INFINITY)                                                   \
    ROW(no_values, r->values = 0)                                                                  \
    ROW(version_empty, r->accountant_version = (char *)(uintptr_t) "")                             \
    ROW(accountant_missing, r->accountant = 0)                                                     \
    ROW(none_with_noise, r->kind = TACIT_MECHANISM_NONE)                                           \
    ROW(schema_of_another, e->schema = 2)                                                          \
    ROW(device_short, e->device.len = 15)                                                          \
    ROW(sequence_zero, e->sequence = 0)                                                            \
    ROW(first_with_previous, e->previous = tacit_field_of(zeros, 32))                              \
    ROW(second_without_previous, e->sequence = 2)                                                  \
    ROW(no_body, e->body_case = TACIT__ENTRY__BODY__NOT_SET)                                       \
    ROW(count_below, r->quantile_b = TACIT_B_MIN - 1)                                              \
    ROW(count_above, r->quantile_b = TACIT_B_MAX + 1)                                              \
    ROW(count_of_nothing, r->kind = TACIT_MECHANISM_NONE; r->b = 0; r->clip_norm = 0;              \
        r->epsilon_after = INFINITY; r->quantile_b = TACIT_B_MIN)                                  \
    ROW(separation_of_no_tree, r->minimum_separation = 1)                                          \
    ROW(tree_without_separation, r->kind = TACIT_MECHANISM_TREE_GAUSSIAN)                          \
    ROW(separation_above_steps, r->kind = TACIT_MECHANISM_TREE_GAUSSIAN;                           \
        r->minimum_separation = r->steps + 1)                                                      \
    ROW(tree_with_count, r->kind = TACIT_MECHANISM_TREE_GAUSSIAN;                                  \
        r->minimum_separation = r->steps; r->quantile_b = TACIT_B_MIN)

#define SPOIL(name, how)                                                                           \
    static void name(Tacit__Reserve *r, Tacit__Entry *e)                                           \
    {                                                                                              \
        (void)r;                                                                                   \
        (void)e;                                                                                   \
        how;                                                                                       \
    }
#define LISTED(name, how) {#name, name},

SPOILS(SPOIL)

static const struct {
    const char *what;
    void (*spoil)(Tacit__Reserve *, Tacit__Entry *);
} spoils[] = {SPOILS(LISTED)};

static void test_every_field_is_validated(void **state)
{
    (void)state;
    tacit_error err;
    Tacit__Reserve r = good_reserve(zeros);
    Tacit__Entry e = entry_of(&r, zeros);
    assert_int_equal(tacit_entry_validate(&e, &err), TACIT_OK);
    for (size_t i = 0; i < sizeof spoils / sizeof spoils[0]; i++) {
        r = good_reserve(zeros);
        e = entry_of(&r, zeros);
        spoils[i].spoil(&r, &e);
        tacit_status status = tacit_entry_validate(&e, &err);
        if (status != TACIT_BAD_INPUT)
            fail_msg("%s: %s", spoils[i].what, tacit_status_name(status));
    }
}

static void test_an_entry_round_trips_and_binds_its_signer(void **state)
{
    (void)state;
    tacit_error err;
    tacit_identity *id;
    uint8_t *bytes, leaf[32], naive[32];
    size_t size;
    tacit_entry e;
    assert_int_equal(tacit_identity_ephemeral(&id, &err), TACIT_OK);
    Tacit__Reserve r = good_reserve(zeros);
    Tacit__Entry entry = entry_of(&r, zeros);
    assert_int_equal(tacit_entry_sign(&entry, id, &bytes, &size, leaf, &err), TACIT_OK);
    /* RFC 6962's leaf hash by hand. */
    uint8_t *prefixed = calloc(1, size + 1);
    memcpy(prefixed + 1, bytes, size);
    crypto_hash_sha256(naive, prefixed, size + 1);
    free(prefixed);
    assert_memory_equal(leaf, naive, 32);
    assert_int_equal(tacit_entry_open(&e, bytes, size, &err), TACIT_OK);
    assert_true(e.device_signed);
    assert_memory_equal(e.leaf, leaf, 32);
    assert_memory_equal(e.envelope->signer.data, tacit_identity_sign_key(id), 32);
    /* The signature is Ed25519 over the domain, a NUL and the inner bytes, nothing else. */
    uint8_t signed_bytes[1024] = "tacit-entry-1";
    memcpy(signed_bytes + 14, e.envelope->entry.data, e.envelope->entry.len);
    assert_int_equal(crypto_sign_verify_detached(e.envelope->signature.data, signed_bytes,
                                                 14 + e.envelope->entry.len,
                                                 tacit_identity_sign_key(id)),
                     0);
    tacit_entry_close(&e);
    for (size_t i = 0; i < size; i++)
        for (unsigned bit = 0; bit < 8; bit++) {
            bytes[i] ^= (uint8_t)(1u << bit);
            assert_int_not_equal(tacit_entry_open(&e, bytes, size, &err), TACIT_OK);
            bytes[i] ^= (uint8_t)(1u << bit);
        }
    free(bytes);
    tacit_identity_free(id);
}

static void test_kinds_have_names_and_signers(void **state)
{
    (void)state;
    assert_string_equal(tacit_entry_kind_name(TACIT__ENTRY__BODY_ENROL), "enrol");
    assert_string_equal(tacit_entry_kind_name(TACIT__ENTRY__BODY_POLICY_CHANGED), "policy_changed");
    assert_string_equal(tacit_entry_kind_name(TACIT__ENTRY__BODY__NOT_SET), "unknown");
    /* Every body of the message is in the table. */
    for (unsigned i = 0; i < tacit__entry__descriptor.n_fields; i++) {
        const ProtobufCFieldDescriptor *field = &tacit__entry__descriptor.fields[i];
        if (field->type != PROTOBUF_C_TYPE_MESSAGE)
            continue;
        assert_string_equal(tacit_entry_kind_name((Tacit__Entry__BodyCase)field->id), field->name);
    }
    assert_true(tacit_entry_kind_is_device_signed(TACIT__ENTRY__BODY_SPEND));
    assert_false(tacit_entry_kind_is_device_signed(TACIT__ENTRY__BODY_UPDATE));
    assert_true(tacit_entry_is_reject_reason("norm"));
    assert_false(tacit_entry_is_reject_reason("because"));
}

static void test_policies_weaken_in_every_field(void **state)
{
    (void)state;
    const tacit_policy from = {.epsilon_cap = 8,
                               .delta = 1e-5,
                               .unit = TACIT_UNIT_SUBJECT,
                               .minimum_noise_multiplier = 1,
                               .minimum_cohort = 10,
                               .minimum_quorum = 5,
                               .devices_per_subject = 2};
    tacit_policy to[9], stricter = {.epsilon_cap = 4,
                                    .delta = 1e-5,
                                    .unit = TACIT_UNIT_SUBJECT,
                                    .minimum_noise_multiplier = 2,
                                    .minimum_cohort = 20,
                                    .minimum_quorum = 6,
                                    .devices_per_subject = 3};
    for (int i = 0; i < 9; i++)
        to[i] = stricter;
    to[0].epsilon_cap = 8.1;
    to[1].delta = 1e-6;
    to[2].unit = TACIT_UNIT_RECORD;
    to[3].minimum_noise_multiplier = 0.9;
    to[4].minimum_cohort = 9;
    to[5].minimum_quorum = 4;
    to[6].allow_non_private = true;
    to[7].devices_per_subject = 1;
    to[8].unit = TACIT_UNIT_DEVICE; /* no unit holds another */
    assert_false(tacit_policy_weakens(&from, &from));
    assert_false(tacit_policy_weakens(&from, &stricter));
    for (int i = 0; i < 9; i++)
        assert_true(tacit_policy_weakens(&from, &to[i]));
}

static void test_policies_round_trip(void **state)
{
    (void)state;
    tacit_error err;
    uint8_t *bytes;
    size_t size;
    tacit_policy policy = {.epsilon_cap = 8,
                           .delta = 1e-5,
                           .unit = TACIT_UNIT_SUBJECT,
                           .minimum_noise_multiplier = 0.5,
                           .minimum_cohort = 2,
                           .minimum_quorum = 2,
                           .allow_non_private = true,
                           .devices_per_subject = 1},
                 back;
    assert_int_equal(tacit_policy_pack(&policy, &bytes, &size, &err), TACIT_OK);
    assert_int_equal(tacit_policy_unpack(&back, bytes, size, &err), TACIT_OK);
    assert_true(back.epsilon_cap == 8 && back.delta == 1e-5 && back.allow_non_private &&
                back.unit == TACIT_UNIT_SUBJECT && back.minimum_quorum == 2);
    free(bytes);
    policy.delta = 0;
    assert_int_equal(tacit_policy_pack(&policy, &bytes, &size, &err), TACIT_BAD_INPUT);
    assert_int_equal(tacit_policy_unpack(&back, "\x08\x09", 2, &err), TACIT_BAD_INPUT);
}

int main(void)
{
    if (sodium_init() < 0)
        return 1;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_field_is_validated),
        cmocka_unit_test(test_an_entry_round_trips_and_binds_its_signer),
        cmocka_unit_test(test_kinds_have_names_and_signers),
        cmocka_unit_test(test_policies_weaken_in_every_field),
        cmocka_unit_test(test_policies_round_trip),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
