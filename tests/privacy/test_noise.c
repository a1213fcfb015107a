#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "../golden/drbg_noise.h"
#include "privacy/noise.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static tacit_drbg *seeded(uint8_t first, const char *domain)
{
    uint8_t seed[32], nonce[32];
    for (int i = 0; i < 32; i++) {
        seed[i] = (uint8_t)(first + i);
        nonce[i] = (uint8_t)(255 - i);
    }
    tacit_error err;
    tacit_drbg *g;
    assert_int_equal(tacit_drbg_new(&g, domain, nonce, seed, &err), TACIT_OK);
    return g;
}

/* --- The generator. --- */

static void test_drbg_known_answers(void **state)
{
    (void)state;
    tacit_drbg *g = seeded(0, "noise");
    uint8_t *stream = malloc(GOLDEN_DRBG_SEAM + 32);
    assert_non_null(stream);
    tacit_drbg_bytes(g, stream, GOLDEN_DRBG_SEAM + 32);
    assert_memory_equal(stream, golden_drbg_start, 64);
    assert_memory_equal(stream + GOLDEN_DRBG_SEAM - 32, golden_drbg_seam, 64);
    assert_true(tacit_drbg_insecure(g));
    free(stream);
    tacit_drbg_free(g);
}

static void test_drbg_chunks_equal_one_shot(void **state)
{
    (void)state;
    static uint8_t whole[50000], parts[50000];
    tacit_drbg *a = seeded(3, "x"), *b = seeded(3, "x");
    tacit_drbg_bytes(a, whole, sizeof whole);
    size_t at = 0;
    for (size_t n = 1; at < sizeof parts; n = (n * 7 + 3) % 4099) {
        size_t take = sizeof parts - at < n ? sizeof parts - at : n;
        tacit_drbg_bytes(b, parts + at, take);
        at += take;
    }
    assert_memory_equal(whole, parts, sizeof whole);
    tacit_drbg_refresh(a); /* changes nothing under a test seed */
    tacit_drbg_bytes(a, whole, 64);
    tacit_drbg_bytes(b, parts, 64);
    assert_memory_equal(whole, parts, 64);
    tacit_drbg_free(a);
    tacit_drbg_free(b);
}

static void test_drbg_inputs_all_matter(void **state)
{
    (void)state;
    uint8_t out[5][64], nonce[32] = {0}, other_nonce[32] = {1};
    tacit_error err;
    tacit_drbg *g[5] = {seeded(1, "noise"), seeded(1, "sampling"), seeded(2, "noise")};
    assert_int_equal(tacit_drbg_new(&g[3], "noise", nonce, NULL, &err), TACIT_OK);
    assert_int_equal(tacit_drbg_new(&g[4], "noise", other_nonce, NULL, &err), TACIT_OK);
    assert_false(tacit_drbg_insecure(g[3]));
    for (int i = 0; i < 5; i++) {
        tacit_drbg_bytes(g[i], out[i], 64);
        for (int k = 0; k < i; k++)
            assert_memory_not_equal(out[i], out[k], 64);
        tacit_drbg_free(g[i]);
    }
}

/* A forked child must not repeat its parent's bytes, not even under a test seed. */
static void test_drbg_parts_at_fork(void **state)
{
    (void)state;
    tacit_drbg *g = seeded(9, "noise");
    uint8_t mine[64], childs[64];
    int ends[2];
    tacit_drbg_bytes(g, mine, 1); /* a block is there, half used */
    assert_int_equal(pipe(ends), 0);
    pid_t child = fork();
    if (child == 0) {
        tacit_drbg_bytes(g, childs, sizeof childs);
        _exit(write(ends[1], childs, sizeof childs) == sizeof childs ? 0 : 1);
    }
    int status;
    assert_true(waitpid(child, &status, 0) == child && status == 0);
    assert_int_equal(read(ends[0], childs, sizeof childs), sizeof childs);
    tacit_drbg_bytes(g, mine, sizeof mine);
    assert_memory_not_equal(mine, childs, sizeof mine);
    close(ends[0]);
    close(ends[1]);
    tacit_drbg_free(g);
}

/* --- The law of the noise. --- */

static void check_known_noise(uint64_t b, const int64_t *expected, size_t n)
{
    static uint64_t words[4 * 256];
    static int64_t out[256];
    tacit_drbg *g = seeded(0, "noise");
    tacit_drbg_bytes(g, words, sizeof words);
    assert_int_equal(tacit_noise_trials(b, words, 256, out), n);
    assert_memory_equal(out, expected, n * sizeof *out);
    tacit_drbg_free(g);
    g = seeded(0, "noise");
    tacit_noise_draw(g, b, out, n);
    assert_memory_equal(out, expected, n * sizeof *out);
    tacit_drbg_free(g);
}

#define CHECK_KNOWN(b) check_known_noise(b, golden_noise_##b, sizeof golden_noise_##b / 8)

static void test_known_answers(void **state)
{
    (void)state;
    CHECK_KNOWN(1);
    CHECK_KNOWN(5);
    CHECK_KNOWN(772);
    CHECK_KNOWN(77163);
    CHECK_KNOWN(2147483648);
}

/* The smallest word[2] with which the trial is accepted, and 2^64 (1 - 2^-f) with the exact f. */
static uint64_t threshold_found(uint64_t b, uint64_t y_word, uint64_t u_word)
{
    uint64_t low = 0, high = UINT64_MAX; /* high is accepted: 2^-f > 2^-64 */
    while (low < high) {
        uint64_t middle = low + (high - low) / 2;
        const uint64_t words[4] = {y_word, u_word, middle, 0};
        int64_t out[1];
        if (tacit_noise_trials(b, words, 1, out))
            high = middle;
        else
            low = middle + 1;
    }
    return low;
}

static long double threshold_exact(uint64_t b, uint64_t y, uint64_t u)
{
    unsigned __int128 rest = (unsigned __int128)u * u + (unsigned __int128)2 * b * y * u;
    unsigned __int128 square = (unsigned __int128)b * b;
    uint64_t f = 0;
    rest %= square;
    for (int bit = 0; bit < 64; bit++) { /* long division: 64 binary digits of rest / square */
        rest <<= 1;
        f = f << 1 | (rest >= square);
        rest -= rest >= square ? square : 0;
    }
    return -ldexpl(expm1l(-0.693147180559945309417232121458L * ldexpl((long double)f, -64)), 64);
}

static void test_acceptance_is_exact_to_58_bits(void **state)
{
    (void)state;
    const uint64_t bs[] = {1, 3, 5, 772, 65536, 77163, 1000003, 2147483647, 2147483648};
    const uint64_t y_words[] = {0, 0xb000000000000000, 0xf800000000000000, 0xffb0000000000000};
    tacit_drbg *g = seeded(4, "noise");
    for (size_t i = 0; i < sizeof bs / sizeof bs[0]; i++)
        for (int k = 0; k < 200; k++) {
            uint64_t u_word, y = (uint64_t)k % 4;
            tacit_drbg_bytes(g, &u_word, sizeof u_word);
            uint64_t u = (uint64_t)((unsigned __int128)u_word * bs[i] >> 64);
            long double found = (long double)threshold_found(bs[i], y_words[y], u_word);
            assert_true(fabsl(found - threshold_exact(bs[i], y, u)) <= 32 + 16 * (long double)y);
        }
    tacit_drbg_free(g);
}

/* The table of y: the word at which y steps from k - 1 to k, against exact integer arithmetic on
 * weights 2^(64 - y^2). u = 0 keeps every trial (u_word 0 is unbiased for b = 1). */
static void test_table_is_exact(void **state)
{
    (void)state;
    unsigned __int128 total = 0, reached = 0;
    for (unsigned y = 0; y <= 8; y++)
        total += (unsigned __int128)1 << (64 - y * y);
    for (unsigned k = 0; k < 8; k++) {
        reached += (unsigned __int128)1 << (64 - k * k);
        unsigned __int128 rest = reached;
        uint64_t entry = 0;
        for (int bit = 0; bit < 64; bit++) {
            rest <<= 1;
            entry = entry << 1 | (rest >= total);
            rest -= rest >= total ? total : 0;
        }
        entry += 2 * rest >= total;
        for (int below = 0; below < 2; below++) {
            const uint64_t words[4] = {entry - (uint64_t)below, 0, UINT64_MAX, 0};
            int64_t out[1];
            assert_int_equal(tacit_noise_trials(1, words, 1, out), 1);
            assert_int_equal(out[0], below ? k : k + 1);
        }
    }
}

/* Multiply-shift draws some u once too often unless words with a low product below 2^64 mod b are
 * refused: the word 0, whose product is 0, among them. */
static void test_biased_words_are_refused(void **state)
{
    (void)state;
    const uint64_t bs[] = {3, 5, 7, 772, 77163, 2147483647};
    for (size_t i = 0; i < sizeof bs / sizeof bs[0]; i++)
        for (uint64_t word = 0; word < 3; word++) {
            uint64_t remainder = UINT64_MAX % bs[i] + 1; /* of 2^64, up to b */
            const uint64_t words[4] = {0, word, UINT64_MAX, 0};
            int64_t out[1];
            bool kept = word * bs[i] >= remainder % bs[i];
            assert_int_equal(tacit_noise_trials(bs[i], words, 1, out), kept);
        }
}

/* Standard score of the chi-square statistic of n draws with scale b against the law of scale
 * law_b, over bins of `width` integers; bins with small expectation are joined at the ends. */
static double chi_square_score(uint64_t b, uint64_t law_b, int64_t width, size_t n)
{
    enum { SIDE = 400 };
    static double expected[2 * SIDE + 1], observed[2 * SIDE + 1];
    memset(expected, 0, sizeof expected);
    memset(observed, 0, sizeof observed);
    double total = 0;
    int64_t reach = (int64_t)(9 * law_b);
    for (int64_t x = -reach; x <= reach; x++) {
        double p = exp2(-((double)x / (double)law_b) * ((double)x / (double)law_b));
        int64_t bin = (x + width * SIDE + width / 2) / width;
        expected[bin < 0 ? 0 : bin > 2 * SIDE ? 2 * SIDE : bin] += p;
        total += p;
    }
    static int64_t draws[4096];
    tacit_drbg *g = seeded((uint8_t)(40 + b % 100), "noise");
    for (size_t at = 0; at < n; at += 4096) {
        tacit_noise_draw(g, b, draws, 4096);
        for (size_t i = 0; i < 4096; i++) {
            int64_t bin = (draws[i] + width * SIDE + width / 2) / width;
            observed[bin < 0 ? 0 : bin > 2 * SIDE ? 2 * SIDE : bin]++;
        }
    }
    tacit_drbg_free(g);
    double chi = 0, rest_expected = 0, rest_observed = 0;
    int bins = 0;
    for (int i = 0; i <= 2 * SIDE; i++) {
        rest_expected += expected[i] / total * (double)n;
        rest_observed += observed[i];
        if (rest_expected < 20 && i < 2 * SIDE)
            continue;
        if (rest_expected > 0)
            chi +=
                (rest_observed - rest_expected) * (rest_observed - rest_expected) / rest_expected;
        bins += rest_expected > 0;
        rest_expected = rest_observed = 0;
    }
    return (chi - (bins - 1)) / sqrt(2.0 * (bins - 1));
}

static void test_chi_square(void **state)
{
    (void)state;
    double one = chi_square_score(1, 1, 1, 2048 * 1024),
           five = chi_square_score(5, 5, 1, 2048 * 1024);
    double grid = chi_square_score(77163, 77163, 1543, 4096 * 1024);
    print_message("chi-square scores: b=1 %.2f, b=5 %.2f, b=77163 %.2f\n", one, five, grid);
    assert_true(fabs(one) < 4 && fabs(five) < 4 && fabs(grid) < 4);
    /* The statistic sees a scale that is off by 2 %. */
    assert_true(chi_square_score(50, 51, 1, 1024 * 1024) > 20);
}

/* Moments and serial correlation over 4M draws: sd of the mean square is sigma^2 sqrt(2 / n). */
static void test_moments(void **state)
{
    (void)state;
    const size_t n = 4096 * 1024;
    const double sigma = 77163 * 0.84932180028801904;
    static int64_t draws[4096];
    double sum = 0, square = 0, fourth = 0, serial = 0, last = 0;
    tacit_drbg *g = seeded(77, "noise");
    for (size_t at = 0; at < n; at += 4096) {
        tacit_noise_draw(g, 77163, draws, 4096);
        for (size_t i = 0; i < 4096; i++) {
            double x = (double)draws[i] / sigma;
            sum += x;
            square += x * x;
            fourth += x * x * x * x;
            serial += x * last;
            last = x;
        }
    }
    tacit_drbg_free(g);
    double root = sqrt((double)n);
    assert_true(fabs(sum / root) < 4);
    assert_true(fabs((square / (double)n - 1) * root / sqrt(2)) < 4);
    assert_true(fabs((fourth / (double)n - 3) * root / sqrt(96)) < 4);
    assert_true(fabs(serial / root) < 4);
}

static void test_total_variation_bound(void **state)
{
    (void)state;
    assert_true(tacit_noise_delta(0, INFINITY) == 0);
    assert_true(tacit_noise_delta((uint64_t)1 << 30, 0) == 0x1p-26);
    assert_true(fabs(tacit_noise_delta((uint64_t)1 << 30, log(3)) / 0x1p-25 - 1) < 1e-14);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_drbg_known_answers),
        cmocka_unit_test(test_drbg_chunks_equal_one_shot),
        cmocka_unit_test(test_drbg_inputs_all_matter),
        cmocka_unit_test(test_drbg_parts_at_fork),
        cmocka_unit_test(test_known_answers),
        cmocka_unit_test(test_acceptance_is_exact_to_58_bits),
        cmocka_unit_test(test_table_is_exact),
        cmocka_unit_test(test_biased_words_are_refused),
        cmocka_unit_test(test_chi_square),
        cmocka_unit_test(test_moments),
        cmocka_unit_test(test_total_variation_bound),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
