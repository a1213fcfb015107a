/* Which linears a spec adapts, with what rank and scale. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "engine/lora_sites.h"
#include "train_fixture.h"

#include <math.h>

static lora_sites sites_of(const tacit_model *m, const tacit_trainable_spec *spec)
{
    lora_sites s;
    tacit_error err;
    if (lora_sites_of(&s, m, spec, &err) != TACIT_OK)
        fail_msg("%s", err.message);
    return s;
}

/* "NAME:RANK" of every site, in order. */
static void expect_sites(const tacit_model *m, const tacit_trainable_spec *spec,
                         const char *const *wanted, size_t count)
{
    lora_sites s = sites_of(m, spec);
    size_t most = 0;
    for (size_t i = 0; i < s.count; i++) {
        char found[160];
        snprintf(found, sizeof found, "%s:%u", s.site[i].tensor, s.site[i].rank);
        if (i >= count || strcmp(found, wanted[i]) != 0)
            fail_msg("site %zu: found %s, expected %s", i, found, i < count ? wanted[i] : "none");
        most = s.site[i].rank > most ? s.site[i].rank : most;
    }
    assert_int_equal(s.count, count);
    assert_int_equal(s.max_rank, most);
    lora_sites_free(&s);
}

static void a_target_is_a_pattern_with_a_rank(void **state)
{
    (void)state;
    tacit_model *m = fixture_model("untied", true); /* two layers */
    tacit_trainable_spec s = {.rank = 4, .alpha = 8};
    static const char *const everywhere[] = {"blk.0.attn_q.weight:4", "blk.1.attn_q.weight:4"};
    static const char *const whole[] = {"blk.1.ffn_down.weight:9"};
    static const char *const stars[] = {"blk.0.attn_k.weight:4", "blk.0.attn_v.weight:2",
                                        "blk.1.attn_k.weight:4", "blk.1.attn_v.weight:2"};
    static const char *const out[] = {"blk.1.ffn_gate.weight:4", "blk.1.ffn_up.weight:4",
                                      "blk.1.ffn_down.weight:4", "output.weight:1"};
    s.target[0] = "attn_q", s.n_targets = 1;
    expect_sites(m, &s, everywhere, 2);
    s.target[0] = "blk.1.ffn_down=9";
    expect_sites(m, &s, whole, 1);
    /* The first one that fits gives the rank. */
    s.target[0] = "attn_k", s.target[1] = "blk.?.attn_[kv]=3", s.target[2] = "b*k*.attn_v=2";
    s.n_targets = 3;
    tacit_error err;
    lora_sites none;
    assert_int_equal(lora_sites_of(&none, m, &s, &err), TACIT_USAGE); /* no classes */
    s.target[1] = s.target[2], s.n_targets = 2;
    expect_sites(m, &s, stars, 4);
    s.target[0] = "ffn_*", s.target[1] = "output=1", s.last_layers = 1;
    expect_sites(m, &s, out, 4);
    fixture_model_free(m);
}

static void everything_that_fits_is_taken_once(void **state)
{
    (void)state;
    tacit_model *m = fixture_model("untied", true);
    tacit_trainable_spec s = {.rank = 2, .alpha = 8, .target = {"*"}, .n_targets = 1};
    lora_sites all = sites_of(m, &s);
    assert_int_equal(all.count, 2 * 7 + 1);
    assert_int_equal(all.site[14].place, LORA_OUTPUT);
    assert_int_equal(all.site[14].n_out, m->text.vocab);
    for (size_t i = 0; i < all.count; i++) {
        lora_site found;
        assert_true(lora_site_find(&found, m, all.site[i].tensor));
        assert_true(found.n_in == all.site[i].n_in && found.n_out == all.site[i].n_out);
        for (size_t k = 0; k < i; k++)
            assert_string_not_equal(all.site[i].tensor, all.site[k].tensor);
    }
    lora_sites_free(&all);
    fixture_model_free(m);
}

static void names_that_are_no_linears_are_none(void **state)
{
    (void)state;
    static const char *const no[] = {"blk.0.attn_q",
                                     "blk.2.attn_q.weight",
                                     "blk.00.attn_q.weight",
                                     "blk..attn_q.weight",
                                     "blk.0.attn_norm.weight",
                                     "token_embd.weight",
                                     "output_norm.weight",
                                     "blk.0.attn_q.bias",
                                     "blk.0.attn_q.weight ",
                                     "",
                                     "blk.99999999999999999999.attn_q.weight"};
    tacit_model *m = fixture_model("tied", true);
    lora_site s;
    for (size_t i = 0; i < sizeof no / sizeof no[0]; i++)
        assert_false(lora_site_find(&s, m, no[i]));
    assert_false(lora_site_find(&s, m, "output.weight"));
    assert_true(lora_site_find(&s, m, "blk.1.attn_q.weight"));
    assert_true(s.layer == 1 && s.which == TEXT_Q);
    fixture_model_free(m);
}

/* alpha / rank, or alpha / sqrt(rank); a file has one alpha, and B makes up for the rest. */
static void scales_are_those_of_the_file(void **state)
{
    (void)state;
    tacit_model *m = fixture_model("untied", true);
    tacit_trainable_spec s = {
        .rank = 4, .alpha = 6, .target = {"attn_q=9", "attn_k"}, .n_targets = 2};
    for (int rs = 0; rs < 2; rs++) {
        s.rslora = rs;
        lora_sites sites = sites_of(m, &s);
        for (size_t i = 0; i < sites.count; i++) {
            double rank = i % 2 ? 4 : 9, wanted = rs ? 6 / sqrt(rank) : 6 / rank;
            double read = (double)lora_file_alpha(&s) / rank;
            assert_true(fabs((double)sites.site[i].scale / wanted - 1) < 1e-6);
            read *= (double)lora_file_factor(&s, sites.site[i].rank);
            assert_true(fabs(read / wanted - 1) < 1e-6);
        }
        assert_true(lora_file_factor(&s, 4) == 1.0f);
        lora_sites_free(&sites);
    }
    fixture_model_free(m);
}

static void impossible_targets_are_refused(void **state)
{
    (void)state;
    static const struct {
        const char *target, *said;
    } cases[] = {
        {"attn_x", "fits"},
        {"", "PATTERN"},
        {"=4", "PATTERN"},
        {"attn_q=", "number"},
        {"attn_q=4x", "number"},
        {"attn_q=-4", "number"},
        {"attn_q=0", "rank"},
        {"attn_q=1025", "rank"},
        {"attn_q=9999999999999", "number"},
        {"blk.0.attn_v", "twice"},
        {"token_embd", "embedding"},
        {"output", "embedding's"},
        {"blk.7.*", "fits"},
        {"*.attn_norm", "fits"},
        {"attn_norm", "fits"},
        {"aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"
         "aaaaaaaa",
         "at most"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        tacit_model *m = fixture_model("tied", true);
        tacit_trainable_spec s = {
            .rank = 4, .alpha = 6, .target = {"attn_v", cases[i].target}, .n_targets = 2};
        lora_sites sites;
        tacit_error err = {0};
        if (lora_sites_of(&sites, m, &s, &err) != TACIT_USAGE ||
            !strstr(err.message, cases[i].said))
            fail_msg("'%s': '%s', expected '%s'", cases[i].target, err.message, cases[i].said);
        fixture_model_free(m);
    }
    tacit_model *m = fixture_model("tied", true);
    tacit_trainable_spec s = {
        .rank = 4, .alpha = 6, .target = {"attn_v"}, .n_targets = 1, .last_layers = 3};
    lora_sites sites;
    tacit_error err = {0};
    assert_int_equal(lora_sites_of(&sites, m, &s, &err), TACIT_USAGE);
    assert_non_null(strstr(err.message, "has 2"));
    fixture_model_free(m);
}

/* Stars that fit almost everywhere would take time without end where each is tried at each place.
 */
static void many_stars_take_no_time(void **state)
{
    (void)state;
    tacit_model *m = fixture_model("tied", true);
    tacit_trainable_spec s = {.rank = 4, .alpha = 6, .n_targets = 1};
    lora_sites sites;
    tacit_error err;
    s.target[0] = "*?*?*?*?*?*?*?*?*?*?*?*?*?*?*?*?*?*?*?*?*?*?*?*?*?*?*?*?*?*?*?*?x";
    assert_int_equal(lora_sites_of(&sites, m, &s, &err), TACIT_USAGE);
    s.target[0] = "*b*l*k*.*a*t*t*n*_*q*";
    sites = sites_of(m, &s);
    assert_int_equal(sites.count, 2);
    lora_sites_free(&sites);
    fixture_model_free(m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_target_is_a_pattern_with_a_rank),
        cmocka_unit_test(everything_that_fits_is_taken_once),
        cmocka_unit_test(names_that_are_no_linears_are_none),
        cmocka_unit_test(scales_are_those_of_the_file),
        cmocka_unit_test(impossible_targets_are_refused),
        cmocka_unit_test(many_stars_take_no_time),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
