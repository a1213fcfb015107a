/* Scales that are searched for, against trying everything: every choice of whole numbers for few
 * values, a fine grid of steps and offsets for whole blocks; and against the ggml project's own
 * quantizers by their figures. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "engine/types.h"
#include "engine/types_fit.h"
#include "numbers.h"

#include <stdbool.h>
#include <string.h>

/* Sums of 12 uniform numbers, with a mean of 0 and a variance of 1. */
static void fill_normal(float *out, size_t n, uint64_t seed)
{
    for (size_t i = 0; i < n; i++) {
        double sum = -6;
        for (int k = 0; k < 12; k++)
            sum += (double)(numbers_next(&seed) >> 40) / 16777216.0;
        out[i] = (float)sum;
    }
}

static void fill_weights(float *w, size_t n, uint64_t seed)
{
    fill_normal(w, n, seed);
    for (size_t i = 0; i < n; i++)
        w[i] = expf(1.5f * w[i]);
}

static double error_of(const float *x, const float *w, size_t n, double d, double m, double low,
                       double high)
{
    double sum = 0;
    for (size_t i = 0; i < n; i++) {
        double q = d != 0 ? fmin(fmax(nearbyint((x[i] - m) / d), low), high) : 0;
        double e = x[i] - d * q - m;
        sum += w[i] * e * e;
    }
    return sum;
}

/* The least error over all (high - low + 1)^n choices, each with its own best step. */
static double least_of_all(const float *x, const float *w, size_t n, int low, int high)
{
    double best = INFINITY;
    int q[8];
    size_t choices = 1, values = (size_t)(high - low + 1);
    for (size_t i = 0; i < n; i++)
        choices *= values;
    for (size_t c = 0; c < choices; c++) {
        double xq = 0, qq = 0, xx = 0;
        size_t rest = c;
        for (size_t i = 0; i < n; i++, rest /= values) {
            q[i] = low + (int)(rest % values);
            xq += (double)w[i] * x[i] * q[i];
            qq += (double)w[i] * q[i] * q[i];
            xx += (double)w[i] * x[i] * x[i];
        }
        best = fmin(best, qq > 0 ? xx - xq * xq / qq : xx);
    }
    return best;
}

static void steps_come_close_to_the_best_of_all_choices(void **state)
{
    (void)state;
    double found = 0, least = 0;
    for (uint64_t seed = 1; seed <= 200; seed++) {
        float x[6], w[6];
        fill_normal(x, 6, seed);
        fill_weights(w, 6, seed + 1000);
        double d = types_fit_step(x, w, 6, -2, 1);
        double error = error_of(x, w, 6, d, 0, -2, 1), best = least_of_all(x, w, 6, -2, 1);
        assert_true(error >= best - 1e-5);
        found += error;
        least += best;
    }
    assert_true(found <= 1.03 * least);
}

/* The best step of a grid of 4000, and what is found, differ little: weights spread over e^±4. */
static void steps_are_as_good_as_a_fine_grid(void **state)
{
    (void)state;
    static const struct {
        float low, high;
        size_t n;
    } cases[] = {{-8, 7, 32}, {-16, 15, 32}, {-32, 31, 16}};
    for (size_t c = 0; c < 3; c++) {
        double found = 0, grid = 0;
        for (uint64_t seed = 1; seed <= 40; seed++) {
            float x[32], w[32], most = 0;
            fill_normal(x, cases[c].n, seed);
            fill_weights(w, cases[c].n, seed + 1000);
            for (size_t i = 0; i < cases[c].n; i++)
                most = fmaxf(most, fabsf(x[i]));
            double best = INFINITY,
                   d = types_fit_step(x, w, cases[c].n, cases[c].low, cases[c].high);
            for (int k = -2000; k <= 2000; k++)
                best =
                    fmin(best, error_of(x, w, cases[c].n, k / 2000.0 * 1.6 * most / cases[c].high,
                                        0, cases[c].low, cases[c].high));
            found += error_of(x, w, cases[c].n, d, 0, cases[c].low, cases[c].high);
            grid += best;
        }
        assert_true(found <= 1.04 * grid);
    }
}

static double best_line(const float *x, const float *w, float high, bool not_above)
{
    double least = x[0], most = x[0], best = INFINITY;
    for (size_t i = 0; i < 32; i++) {
        least = fmin(least, x[i]);
        most = fmax(most, x[i]);
    }
    for (int a = 0; a <= 120; a++)
        for (int b = 0; b <= 120; b++) {
            double m = least - 0.2 + a * 0.008 * (most - least), d = (most - least) / high;
            d *= 0.55 + 0.005 * b;
            best = fmin(best, error_of(x, w, 32, d, not_above && m > 0 ? 0 : m, 0, high));
        }
    return best;
}

static void lines_are_as_good_as_a_fine_grid(void **state)
{
    (void)state;
    for (int c = 0; c < 4; c++) {
        bool not_above = c % 2;
        float high = c / 2 ? 31 : 15;
        double found = 0, grid = 0;
        for (uint64_t seed = 1; seed <= 20; seed++) {
            float x[32], w[32], d, m;
            fill_normal(x, 32, seed);
            fill_weights(w, 32, seed + 1000);
            for (size_t i = 0; i < 32 && seed % 4 == 0; i++)
                x[i] += 2.5f; /* all or nearly all above 0 */
            types_fit_step_offset(x, w, 32, high, not_above, &d, &m);
            assert_true(d >= 0 && (!not_above || m <= 0));
            found += error_of(x, w, 32, (double)d, (double)m, 0, (double)high);
            grid += best_line(x, w, high, not_above);
        }
        assert_true(found <= 1.06 * grid);
    }
}

static void blocks_without_anything_to_fit(void **state)
{
    (void)state;
    float x[32] = {0}, w[32], d, m;
    for (size_t i = 0; i < 32; i++)
        w[i] = 1;
    assert_true(types_fit_step(x, w, 32, -8, 7) == 0);
    types_fit_step_offset(x, w, 32, 15, 0, &d, &m);
    assert_true(d == 0 && m == 0);
    for (size_t i = 0; i < 32; i++)
        x[i] = 3;
    types_fit_step_offset(x, w, 32, 15, 0, &d, &m);
    assert_true(d == 0 && m == 3);
    types_fit_step_offset(x, w, 32, 15, 1, &d, &m);
    assert_true(m <= 0 && fabs((double)(d * 15 + m - 3)) < 1e-6);
    x[7] = 1e-42f; /* its inverse overflows */
    for (size_t i = 0; i < 32; i++)
        x[i] = i == 7 ? x[7] : 0;
    assert_true(types_fit_step(x, w, 32, -8, 7) == 0);
}

/* ---- whole types ---- */

enum { ROWS = 64, COLUMNS = 512 };

static double written_error(const tacit_type_traits *t, const float *x, const float *w)
{
    static float y[COLUMNS];
    static uint8_t bytes[COLUMNS * 4];
    double sum = 0, all = 0;
    for (size_t r = 0; r < ROWS; r++) {
        if (t->fit)
            t->fit(bytes, x + r * COLUMNS, w, COLUMNS);
        else
            t->from_f32(bytes, x + r * COLUMNS, COLUMNS);
        t->to_f32(y, bytes, COLUMNS);
        for (size_t i = 0; i < COLUMNS; i++) {
            double e = (double)y[i] - (double)x[r * COLUMNS + i], weight = w ? (double)w[i] : 1;
            sum += weight * e * e;
            all += weight;
        }
    }
    return sqrt(sum / all);
}

/* Root mean squares of what ggml's quantize_* leave of the same 64 rows of 512 normal numbers,
 * without and with the same weights (both weighted), measured with the sources in llama-cpp-python
 * 0.3.36. */
static const struct {
    const char *type;
    double alike, weighted;
} ggml_error[] = {
#include "../golden/types_error.h"
};

static void no_type_loses_more_than_the_ggml_project(void **state)
{
    (void)state;
    static float x[ROWS * COLUMNS], w[COLUMNS];
    fill_normal(x, ROWS * COLUMNS, 42);
    fill_weights(w, COLUMNS, 43);
    for (size_t i = 0; i < sizeof ggml_error / sizeof ggml_error[0]; i++) {
        const tacit_type_traits *t = tacit_type_by_name(ggml_error[i].type);
        double alike = written_error(t, x, NULL), weighted = written_error(t, x, w);
        if (alike > 1.01 * ggml_error[i].alike || weighted > 1.01 * ggml_error[i].weighted)
            fail_msg("%s: %g and %g, of ggml %g and %g", t->name, alike, weighted,
                     ggml_error[i].alike, ggml_error[i].weighted);
        assert_true(alike > 0.3 * ggml_error[i].alike); /* nobody can be that much better */
    }
}

/* K types go on from the first fit of their scales; a search that stops there loses half a percent,
 * one that stops a step earlier 0.15. Root mean squares of the same weighted rows. */
static void k_types_refine_their_scales(void **state)
{
    (void)state;
    static const struct {
        const char *type;
        double weighted;
    } measured[] = {{"q4_k", 0.0553432}, {"q5_k", 0.0274922}, {"q6_k", 0.0127659}};
    static float x[ROWS * COLUMNS], w[COLUMNS];
    fill_normal(x, ROWS * COLUMNS, 42);
    fill_weights(w, COLUMNS, 43);
    for (size_t i = 0; i < sizeof measured / sizeof measured[0]; i++) {
        double found = written_error(tacit_type_by_name(measured[i].type), x, w);
        if (found > 1.001 * measured[i].weighted)
            fail_msg("%s: %g, expected %g", measured[i].type, found, measured[i].weighted);
    }
}

/* A column that does not count may hold anything. */
static void columns_of_no_importance_are_given_up(void **state)
{
    (void)state;
    float x[256], w[256], y[256], plain[256];
    uint8_t bytes[256];
    for (size_t k = 0; tacit_type_at(k); k++) {
        const tacit_type_traits *t = tacit_type_at(k);
        double with = 0, without = 0;
        if (!t->fit)
            continue;
        fill_normal(x, 256, 7);
        for (size_t i = 0; i < 256; i++) {
            w[i] = i % 8 == 3 ? 0 : 1;
            x[i] = i % 8 == 3 ? 12 : x[i];
        }
        t->fit(bytes, x, w, 256);
        t->to_f32(y, bytes, 256);
        t->fit(bytes, x, NULL, 256);
        t->to_f32(plain, bytes, 256);
        for (size_t i = 0; i < 256; i++) {
            with += w[i] * (double)(x[i] - y[i]) * (double)(x[i] - y[i]);
            without += w[i] * (double)(x[i] - plain[i]) * (double)(x[i] - plain[i]);
        }
        assert_true(with < 0.5 * without);
    }
}

/* What was read from a written block is written again with next to no loss. */
static void reading_and_writing_again_is_stable(void **state)
{
    (void)state;
    float x[512], y[512], z[512];
    uint8_t bytes[512 * 4];
    for (size_t k = 0; tacit_type_at(k); k++) {
        const tacit_type_traits *t = tacit_type_at(k);
        double first = 0, second = 0;
        if (!t->fit)
            continue;
        for (uint64_t seed = 1; seed <= 20; seed++) {
            fill_normal(x, 512, seed);
            t->fit(bytes, x, NULL, 512);
            t->to_f32(y, bytes, 512);
            t->fit(bytes, y, NULL, 512);
            t->to_f32(z, bytes, 512);
            for (size_t i = 0; i < 512; i++) {
                first += (double)(x[i] - y[i]) * (double)(x[i] - y[i]);
                second += (double)(y[i] - z[i]) * (double)(y[i] - z[i]);
            }
        }
        if (second > 0.1 * first)
            fail_msg("%s: %g after %g", t->name, second, first);
    }
}

static void scales_follow_the_values(void **state)
{
    (void)state;
    float x[256], y[256], z[256];
    uint8_t bytes[256 * 4];
    for (size_t k = 0; tacit_type_at(k); k++) {
        const tacit_type_traits *t = tacit_type_at(k);
        fill_normal(x, 256, 9);
        (t->fit ? t->fit(bytes, x, NULL, 256) : t->from_f32(bytes, x, 256));
        t->to_f32(y, bytes, 256);
        for (size_t i = 0; i < 256; i++)
            x[i] *= 0.25f; /* exact: no half of these gets subnormal */
        (t->fit ? t->fit(bytes, x, NULL, 256) : t->from_f32(bytes, x, 256));
        t->to_f32(z, bytes, 256);
        assert_true(numbers_distance(z, x, 256) < 1.02 * numbers_distance(y, x, 256) ||
                    t->block_values == 1);
        for (size_t i = 0; i < 256; i++)
            y[i] *= 0.25f;
        assert_true(numbers_distance(z, y, 256) < 0.02);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(steps_come_close_to_the_best_of_all_choices),
        cmocka_unit_test(steps_are_as_good_as_a_fine_grid),
        cmocka_unit_test(lines_are_as_good_as_a_fine_grid),
        cmocka_unit_test(blocks_without_anything_to_fit),
        cmocka_unit_test(no_type_loses_more_than_the_ggml_project),
        cmocka_unit_test(k_types_refine_their_scales),
        cmocka_unit_test(columns_of_no_importance_are_given_up),
        cmocka_unit_test(reading_and_writing_again_is_stable),
        cmocka_unit_test(scales_follow_the_values),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
