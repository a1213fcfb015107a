/* From trained values to sealed bytes: scaling, rounding, clamping, and what the aggregator opens
 * with common/seal.h. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "client/update_seal.h"
#include "client/upload.h"
#include "common/message.h"
#include "common/seal.h"
#include "proto/update.pb-c.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define OK(call) assert_int_equal((call), TACIT_OK)
enum { N = 1000 };

static double norm_of(const int32_t *values, double scale)
{
    double sum = 0;
    for (size_t i = 0; i < N; i++)
        sum += (double)values[i] * (double)values[i];
    return sqrt(sum) / scale;
}

static void fill(float *trained, float *parent, float step)
{
    for (size_t i = 0; i < N; i++) {
        parent[i] = 0.001f * (float)(i % 97) - 0.04f;
        trained[i] = parent[i] + step * (float)((int)(i % 13) - 6);
    }
}

static void small_deltas_pass_unscaled(void **state)
{
    float trained[N], parent[N];
    int32_t out[N];
    (void)state;
    fill(trained, parent, 1e-4f);
    update_quantize(out, trained, parent, N, 3, 1048576);
    for (size_t i = 0; i < N; i++) {
        double exact = ((double)trained[i] - (double)parent[i]) * 1048576;
        assert_true(fabs((double)out[i] - exact) <= 0.5);
    }
}

/* Above the bound the direction stays and the norm is the bound, less what rounding moves. */
static void large_deltas_come_down_to_the_bound(void **state)
{
    float trained[N], parent[N];
    int32_t out[N];
    const double scale = 1048576, bound = 0.25;
    (void)state;
    fill(trained, parent, 0.5f);
    update_quantize(out, trained, parent, N, bound, scale);
    double slack = 0.5 * sqrt((double)N) / scale;
    assert_true(norm_of(out, scale) <= bound + slack);
    assert_true(norm_of(out, scale) >= bound - slack);
    double first = (double)out[0] / ((double)trained[0] - (double)parent[0]);
    for (size_t i = 1; i < N; i++)
        if (i % 13 != 6)
            assert_true(fabs((double)out[i] - first * ((double)trained[i] - (double)parent[i])) <
                        1.5);
}

/* A norm of zero divides nothing. */
static void no_change_is_all_zeros(void **state)
{
    float trained[N], parent[N];
    int32_t out[N];
    static const int32_t zeros[N];
    (void)state;
    fill(trained, parent, 1e-4f);
    memcpy(trained, parent, sizeof trained);
    memset(out, 0xff, sizeof out);
    update_quantize(out, trained, parent, N, 3, 1048576);
    assert_memory_equal(out, zeros, sizeof out);
}

static void what_is_not_finite_becomes_zeros(void **state)
{
    static const float bad[] = {NAN, INFINITY, -INFINITY};
    float trained[N], parent[N];
    int32_t out[N];
    static const int32_t zeros[N];
    (void)state;
    for (size_t k = 0; k < 3; k++) {
        fill(trained, parent, 1e-4f);
        trained[N / 2] = bad[k];
        memset(out, 0xff, sizeof out);
        update_quantize(out, trained, parent, N, 3, 1048576);
        assert_memory_equal(out, zeros, sizeof out);
    }
}

static void huge_scales_are_clamped(void **state)
{
    float trained[N] = {0}, parent[N] = {0};
    int32_t out[N];
    (void)state;
    trained[0] = 1;
    trained[1] = -1;
    update_quantize(out, trained, parent, N, 100, 1e15);
    assert_int_equal(out[0], INT32_MAX);
    assert_int_equal(out[1], INT32_MIN);
    assert_int_equal(out[2], 0);
}

/* A release passes bit for bit up to the bound; above it, it is scaled down, never past it. */
static void releases_pass_as_they_are(void **state)
{
    int32_t release[N], out[N];
    double sum = 0;
    (void)state;
    for (size_t i = 0; i < N; i++) {
        release[i] = (int32_t)(i * 2654435761u) / 3; /* all of the range, both signs */
        sum += (double)release[i] * (double)release[i];
    }
    update_fit(out, release, N, sqrt(sum) / 4096 * (1 + 1e-12), 4096);
    assert_memory_equal(out, release, sizeof out);
    update_fit(out, release, N, sqrt(sum) / 4096 / 3, 4096);
    assert_true(norm_of(out, 4096) <= sqrt(sum) / 4096 / 3);
    for (size_t i = 0; i < N; i++)
        assert_true(fabs((double)out[i] - (double)release[i] / 3) <= 1);
}

/* --- sealing --- */

typedef struct sealed_case {
    Tacit__Plan plan;
    tacit_identity *id;
    tacit_secret secret;
    uint8_t public_key[32], round_id[16], base[32], hash[32], reserve[32], device[16], layout[32];
    int32_t values[N];
    tacit_buffer sealed;
    tacit_error err;
} sealed_case;

static void seal_case(sealed_case *c)
{
    memset(c, 0, sizeof *c);
    OK(tacit_identity_ephemeral(&c->id, &c->err));
    OK(tacit_seal_keypair(c->public_key, &c->secret, &c->err));
    memset(c->round_id, 1, 16);
    memset(c->base, 2, 32);
    memset(c->hash, 3, 32);
    memset(c->reserve, 4, 32);
    memset(c->device, 5, 16);
    memset(c->layout, 6, 32);
    for (int i = 0; i < N; i++)
        c->values[i] = (i - 500) * 12345;
    c->plan = (Tacit__Plan)TACIT__PLAN__INIT;
    c->plan.round_id = tacit_field_of(c->round_id, 16);
    c->plan.base_digest = tacit_field_of(c->base, 32);
    c->plan.parent_version = 4;
    c->plan.update_scale = 1048576;
    c->plan.trainable_values = N;
    c->plan.aggregator_key = tacit_field_of(c->public_key, 32);
    update_terms terms = {&c->plan, c->hash, c->reserve, c->device, c->layout, c->id};
    OK(update_seal(&c->sealed, &terms, c->values, &c->err));
}

static void drop_case(sealed_case *c)
{
    tacit_buffer_free(&c->sealed);
    tacit_secret_free(&c->secret);
    tacit_identity_free(c->id);
}

static void the_aggregator_opens_what_was_sealed(void **state)
{
    sealed_case c;
    tacit_buffer plain = {.cap = 1 << 20};
    Tacit__Update *u;
    (void)state;
    seal_case(&c);
    tacit_seal_binding binding = {c.device, c.hash, c.reserve};
    OK(tacit_seal_open(&plain, c.sealed.data, c.sealed.size, &binding,
                       tacit_identity_sign_key(c.id), &c.secret, &c.err));
    OK(TACIT_UNPACK(&u, tacit__update, plain.data, plain.size, plain.cap, &c.err));
    assert_int_equal(u->format, 1);
    assert_int_equal(u->parent_version, 4);
    assert_true(u->scale == 1048576);
    assert_memory_equal(u->layout_hash.data, c.layout, 32);
    assert_int_equal(u->values.len, 4 * N);
    for (size_t i = 0; i < N; i++)
        assert_int_equal((int32_t)tacit_load_u32(u->values.data + 4 * i), c.values[i]);
    tacit_message_free(u);
    tacit_buffer_free(&plain);
    drop_case(&c);
}

static void sealed_bytes_are_bound_to_their_reserve(void **state)
{
    sealed_case c;
    tacit_buffer plain = {.cap = 1 << 20};
    (void)state;
    seal_case(&c);
    c.reserve[7] ^= 1;
    tacit_seal_binding binding = {c.device, c.hash, c.reserve};
    assert_int_equal(tacit_seal_open(&plain, c.sealed.data, c.sealed.size, &binding,
                                     tacit_identity_sign_key(c.id), &c.secret, &c.err),
                     TACIT_INTEGRITY);
    tacit_buffer_free(&plain);
    drop_case(&c);
}

/* --- when it leaves --- */

static void uploads_leave_at_multiples_of_the_pad(void **state)
{
    static const struct {
        uint64_t reserved;
        uint32_t pad;
        uint64_t now, expected;
    } cases[] = {
        {1000000, 60, 1000000, 1060000}, /* training took no time */
        {1000000, 60, 1059999, 1060000}, {1000000, 60, 1060000, 1060000},
        {1000000, 60, 1060001, 1120000}, /* it took longer: the next multiple */
        {1000000, 60, 1120000, 1120000}, {1000000, 60, 9999999, 10000000},
        {1000000, 0, 1060001, 1000000}, /* no pad: at once */
        {1000000, 60, 500, 1060000},    /* the clock went back */
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
        assert_int_equal(upload_time(cases[i].reserved, cases[i].pad, cases[i].now),
                         cases[i].expected);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(small_deltas_pass_unscaled),
        cmocka_unit_test(large_deltas_come_down_to_the_bound),
        cmocka_unit_test(no_change_is_all_zeros),
        cmocka_unit_test(what_is_not_finite_becomes_zeros),
        cmocka_unit_test(huge_scales_are_clamped),
        cmocka_unit_test(releases_pass_as_they_are),
        cmocka_unit_test(the_aggregator_opens_what_was_sealed),
        cmocka_unit_test(sealed_bytes_are_bound_to_their_reserve),
        cmocka_unit_test(uploads_leave_at_multiples_of_the_pad),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
