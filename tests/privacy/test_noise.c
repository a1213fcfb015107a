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

/* The spare bits of a trial's last word. */
static uint64_t spare_bits(uint32_t below)
{
    return (uint64_t)below << 32;
}

/* A 95-bit number `apart` from word and below, which the caller knows to exist. */
static unsigned __int128 number_95(uint64_t word, uint32_t below, __int128 apart)
{
    return (((unsigned __int128)word << 31) | below) + (unsigned __int128)apart;
}

static int64_t y_of(unsigned __int128 n)
{
    const uint64_t words[4] = {(uint64_t)(n >> 31), 0, UINT64_MAX, (uint64_t)(n << 97 >> 65)};
    int64_t out[1];
    assert_int_equal(tacit_noise_trials(1, words, 1, out), 1);
    return out[0];
}

/* P(y <= k) to 95 bits, against exact fractions. With b = 1 a trial's value is its y. */
static void test_table_is_exact_to_95_bits(void **state)
{
    (void)state;
    for (unsigned k = 0; k < 8; k++) {
        assert_int_equal(y_of(number_95(golden_y[k].word, golden_y[k].below, -1)), k);
        assert_int_equal(y_of(number_95(golden_y[k].word, golden_y[k].below, 0)), k + 1);
        if (k < 6)
            assert_int_equal(y_of(number_95(golden_y[k].word, 0, (__int128)1 << 31)), k + 1);
        assert_int_equal(y_of(number_95(golden_y[k].word, 0, -1)), k);
    }
}

static bool trial_accepts(const struct golden_acceptance *g, unsigned __int128 n, uint64_t low)
{
    const uint64_t words[4] = {g->y_word, g->u_word, (uint64_t)(n >> 31),
                               spare_bits((uint32_t)(n & 0x7fffffff)) | low};
    int64_t out[1] = {-1};
    size_t count = tacit_noise_trials(g->b, words, 1, out);
    assert_true(count == 0 || out[0] == g->x);
    return count == 1;
}

/* 2^-(i + f) to 95 bits, against exact fractions and 60-digit decimals: the least number accepted,
 * on both sides of it at every distance, in the arithmetic of 64 bits and where that is in doubt.
 */
static void test_acceptance_is_exact_to_95_bits(void **state)
{
    (void)state;
    const size_t n = sizeof golden_acceptance / sizeof golden_acceptance[0];
    const unsigned __int128 end = (unsigned __int128)1 << 95;
    for (size_t k = 0; k < n; k++) {
        const struct golden_acceptance *g = &golden_acceptance[k];
        unsigned __int128 least = number_95(g->word, g->below, 0);
        for (int bit = 0; bit < 95; bit++) {
            unsigned __int128 apart = (unsigned __int128)1 << bit;
            if (apart <= least)
                assert_false(trial_accepts(g, least - apart, 0));
            if (least + apart < end)
                assert_true(trial_accepts(g, least + apart, 0));
        }
        for (uint64_t units = 0; units < 130; units++) { /* across the margin of doubt */
            unsigned __int128 apart = (unsigned __int128)units << 31;
            if (apart < least)
                assert_false(trial_accepts(g, least - apart - 1, 0));
            if (least + apart < end)
                assert_true(trial_accepts(g, least + apart, 0));
        }
        for (unsigned bit = 0; bit < 32; bit++)
            assert_int_equal(trial_accepts(g, end - 1, (uint64_t)1 << bit), bit >= g->zeros);
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

/* Probability with which the trial of y and u is accepted: 2^-i from the zero bits asked for, times
 * the share of word[2] that is let through, found by halving. */
static long double acceptance_found(uint64_t b, uint64_t y_word, uint64_t u)
{
    uint64_t remainder = UINT64_MAX % b + 1, low = 0, high = UINT64_MAX;
    uint64_t u_word = (uint64_t)((((unsigned __int128)u << 64) + remainder % b + b - 1) / b);
    uint64_t words[4] = {y_word, u_word, UINT64_MAX, spare_bits(0x7fffffff)};
    int64_t out[1];
    int zeros = 0;
    while (words[3] |= (uint64_t)1 << zeros, !tacit_noise_trials(b, words, 1, out)) {
        words[3] = spare_bits(0x7fffffff);
        assert_true(++zeros < 32);
    }
    words[3] = spare_bits(0x7fffffff);
    while (low < high) {
        words[2] = low + (high - low) / 2;
        if (tacit_noise_trials(b, words, 1, out))
            high = words[2];
        else
            low = words[2] + 1;
    }
    return ldexpl((long double)(UINT64_MAX - low) + 1, -64 - zeros);
}

/* law[9 b]: P(|x|) for |x| below 9 b, of what the core does with uniform words: every y and u. */
static long double *law_of_core(uint64_t b)
{
    long double *law = calloc(9 * b, sizeof *law), total = 0;
    assert_non_null(law);
    unsigned __int128 from = 0;
    for (uint64_t y = 0; y <= 8; y++) {
        unsigned __int128 to =
            y < 8 ? number_95(golden_y[y].word, golden_y[y].below, 0) : (unsigned __int128)1 << 95;
        uint64_t y_word = (uint64_t)((from + (to - from) / 2) >> 31);
        for (uint64_t u = 0; u < b; u++) {
            long double p = ldexpl((long double)(to - from), -95) / (long double)b;
            p *= acceptance_found(b, y < 8 ? y_word : UINT64_MAX, u);
            law[b * y + u] = y + u ? p : p / 2; /* negative zero is refused */
            total += law[b * y + u];
        }
        from = to;
    }
    for (uint64_t x = 0; x < 9 * b; x++)
        law[x] /= total;
    return law;
}

/* The same of the discrete Gaussian, by its definition. */
static long double *law_exact(uint64_t b)
{
    long double *law = calloc(9 * b, sizeof *law), total = 0;
    assert_non_null(law);
    for (uint64_t x = 9 * b; x-- > 0;) {
        long double v = (long double)x / (long double)b;
        law[x] = (x ? 2 : 1) * exp2l(-v * v);
        total += law[x];
    }
    for (uint64_t x = 0; x < 9 * b; x++)
        law[x] /= total;
    return law;
}

static long double tail_of(const long double *law, uint64_t b, double deviations)
{
    long double sum = 0;
    for (uint64_t x = 9 * b; x-- > 0;)
        if ((double)x >= deviations * (double)b * 0.84932180028801904)
            sum += law[x];
    return sum;
}

/* Not a sample: the whole law that the core gives to uniform words, tails to 6 sigma and beyond.
 * The slack is long double's. */
static void test_whole_law_and_tails(void **state)
{
    (void)state;
    const uint64_t bs[] = {1, 2, 5, 13, 100, 772};
    for (size_t i = 0; i < sizeof bs / sizeof bs[0]; i++) {
        long double *found = law_of_core(bs[i]), *exact = law_exact(bs[i]), distance = 0;
        for (uint64_t x = 0; x < 9 * bs[i]; x++) {
            distance += fabsl(found[x] - exact[x]) / 2;
            if (x < 6 * bs[i])
                assert_true(fabsl(found[x] / exact[x] - 1) < 0x1p-57L);
        }
        assert_true(distance < 0x1p-58L);
        for (double k = 4; k <= 6; k++) {
            long double off = tail_of(found, bs[i], k) / tail_of(exact, bs[i], k) - 1;
            assert_true(fabsl(off) < 0x1p-57L);
        }
        print_message("b=%d: distance %.2Lg, beyond 6 sigma %.10Lg\n", (int)bs[i], distance,
                      tail_of(found, bs[i], 6));
        free(found);
        free(exact);
    }
}

/* --- What a run of draws looks like. Seeds are fixed: a score is the same at every run. --- */

typedef struct sample {
    double mean, square, fourth, serial; /* raw moments of x / sigma */
    double beyond[7];                    /* values at k sigma or beyond */
} sample;

enum { CHUNK = 4096 };

static sample sample_of(uint64_t b, size_t chunks)
{
    static int64_t draws[CHUNK];
    sample s = {0};
    double sigma = (double)b * 0.84932180028801904, last = 0, n = (double)chunks * CHUNK;
    tacit_drbg *g = seeded((uint8_t)(77 + b % 100), "noise");
    for (size_t c = 0; c < chunks; c++) {
        tacit_noise_draw(g, b, draws, CHUNK);
        for (size_t i = 0; i < CHUNK; i++) {
            double x = (double)draws[i] / sigma;
            s.mean += x / n;
            s.square += x * x / n;
            s.fourth += x * x * x * x / n;
            s.serial += x * last / n;
            for (int k = 4; k <= 6; k++)
                s.beyond[k] += fabs(x) >= k;
            last = x;
        }
    }
    tacit_drbg_free(g);
    return s;
}

static double exact_moment(const long double *law, uint64_t b, int power)
{
    long double sum = 0;
    for (uint64_t x = 9 * b; x-- > 0;)
        sum += law[x] * powl((long double)x / ((long double)b * 0.84932180028801904272L), power);
    return (double)sum;
}

/* Mean, variance, fourth moment (kurtosis at a known variance) and serial correlation. The standard
 * error of the mean of x^k is sqrt((E x^2k - (E x^k)^2) / n), from the exact law of that b. */
static void check_moments(uint64_t b, size_t chunks)
{
    long double *law = law_exact(b);
    double m2 = exact_moment(law, b, 2), m4 = exact_moment(law, b, 4);
    double m8 = exact_moment(law, b, 8), root = sqrt((double)chunks * CHUNK);
    free(law);
    sample s = sample_of(b, chunks);
    double mean = s.mean * root / sqrt(m2), variance = (s.square - m2) * root / sqrt(m4 - m2 * m2);
    double fourth = (s.fourth - m4) * root / sqrt(m8 - m4 * m4), serial = s.serial * root / m2;
    print_message("b=%d: scores of mean %.2f, variance %.2f, fourth moment %.2f, serial %.2f\n",
                  (int)b, mean, variance, fourth, serial);
    assert_true(fabs(mean) < 4 && fabs(variance) < 4 && fabs(fourth) < 4 && fabs(serial) < 4);
}

static void test_moments(void **state)
{
    (void)state;
    check_moments(1, 256);
    check_moments(5, 256);
    check_moments(772, 256);
    check_moments(77163, 1024);
}

/* Counts of 8M draws beyond 4, 5 and 6 sigma, Poisson of mean n erfc(k / sqrt 2): 531, 4.8, 0.02.
 */
static void test_tail_counts(void **state)
{
    (void)state;
    const size_t chunks = 2048;
    sample s = sample_of(77163, chunks);
    double expected = (double)chunks * CHUNK * erfc(4 / sqrt(2));
    print_message("beyond 4, 5, 6 sigma: %.0f, %.0f, %.0f\n", s.beyond[4], s.beyond[5],
                  s.beyond[6]);
    assert_true(fabs(s.beyond[4] - expected) < 4 * sqrt(expected));
    assert_true(s.beyond[5] >= 1 && s.beyond[5] <= 15); /* 0.8 %, 6e-5 */
    assert_true(s.beyond[6] <= 1);
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
    static int64_t draws[CHUNK];
    tacit_drbg *g = seeded((uint8_t)(40 + b % 100), "noise");
    for (size_t at = 0; at < n; at += CHUNK) {
        tacit_noise_draw(g, b, draws, CHUNK);
        for (size_t i = 0; i < CHUNK; i++) {
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
    const struct {
        uint64_t b;
        int64_t width;
        size_t draws;
    } rows[] = {{1, 1, 2048 * 1024},  {2, 1, 1024 * 1024},    {5, 1, 2048 * 1024},
                {17, 1, 1024 * 1024}, {772, 15, 2048 * 1024}, {77163, 1543, 4096 * 1024}};
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        double score = chi_square_score(rows[i].b, rows[i].b, rows[i].width, rows[i].draws);
        print_message("b=%d: chi-square score %.2f\n", (int)rows[i].b, score);
        assert_true(fabs(score) < 4);
    }
    /* The statistic sees a scale that is off by 2 %. */
    assert_true(chi_square_score(50, 51, 1, 1024 * 1024) > 20);
}

/* --- What the work shows: how many blocks of words a draw takes, which is how many trials were
 * refused. Nothing else of it depends on values (noise.c has no branch and no index on one). --- */

enum { BLOCK = 256 };

/* A draw of n takes whole blocks, as many as accepted counts call for, and leaves the generator
 * behind them. */
static void test_words_drawn_follow_the_refusals_alone(void **state)
{
    (void)state;
    const size_t sizes[] = {1, 100, 174, 1000, 5000};
    static uint64_t words[4 * BLOCK];
    static int64_t out[BLOCK], drawn[5000];
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        tacit_drbg *replayed = seeded(20, "noise"), *g = seeded(20, "noise");
        uint8_t next[2][32];
        size_t count = 0;
        while (count < sizes[i]) {
            tacit_drbg_bytes(replayed, words, sizeof words);
            size_t accepted = tacit_noise_trials(77163, words, BLOCK, out);
            for (size_t k = 0; k < accepted; k++)
                words[4 * k + 3] ^= (uint64_t)1 << 63; /* other signs, the same count */
            assert_int_equal(tacit_noise_trials(77163, words, BLOCK, out), accepted);
            count += accepted;
        }
        tacit_noise_draw(g, 77163, drawn, sizes[i]);
        tacit_drbg_bytes(g, next[0], sizeof next[0]);
        tacit_drbg_bytes(replayed, next[1], sizeof next[1]);
        assert_memory_equal(next[0], next[1], sizeof next[0]);
        tacit_drbg_free(replayed);
        tacit_drbg_free(g);
    }
}

/* The number accepted in a block says nothing about the values: correlation of the two over 20,000
 * blocks, for size and sign. */
static void test_refusals_say_nothing_of_the_values(void **state)
{
    (void)state;
    enum { BLOCKS = 20000 };
    static uint64_t words[4 * BLOCK];
    static int64_t out[BLOCK];
    const double share = 0.6804, sigma = 77163 * 0.84932180028801904;
    double by_sign = 0, by_size = 0;
    tacit_drbg *g = seeded(21, "noise");
    for (int block = 0; block < BLOCKS; block++) {
        tacit_drbg_bytes(g, words, sizeof words);
        size_t n = tacit_noise_trials(77163, words, BLOCK, out);
        double count = ((double)n - BLOCK * share) / sqrt(BLOCK * share * (1 - share));
        double sum = 0, square = 0;
        for (size_t k = 0; k < n; k++) {
            sum += (double)out[k] / sigma;
            square += (double)out[k] / sigma * (double)out[k] / sigma - 1;
        }
        by_sign += count * sum / sqrt((double)n);
        by_size += count * square / sqrt(2 * (double)n);
    }
    tacit_drbg_free(g);
    print_message("score of refusals against sign %.2f, size %.2f\n", by_sign / sqrt(BLOCKS),
                  by_size / sqrt(BLOCKS));
    assert_true(fabs(by_sign) < 4 * sqrt(BLOCKS) && fabs(by_size) < 4 * sqrt(BLOCKS));
}

static void test_total_variation_bound(void **state)
{
    (void)state;
    assert_true(tacit_noise_delta(0, INFINITY) == 0);
    assert_true(tacit_noise_delta((uint64_t)1 << 30, 0) == 0x1p-49);
    assert_true(fabs(tacit_noise_delta((uint64_t)1 << 30, log(3)) / 0x1p-48 - 1) < 1e-14);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_drbg_known_answers),
        cmocka_unit_test(test_drbg_chunks_equal_one_shot),
        cmocka_unit_test(test_drbg_inputs_all_matter),
        cmocka_unit_test(test_drbg_parts_at_fork),
        cmocka_unit_test(test_known_answers),
        cmocka_unit_test(test_acceptance_is_exact_to_95_bits),
        cmocka_unit_test(test_table_is_exact_to_95_bits),
        cmocka_unit_test(test_biased_words_are_refused),
        cmocka_unit_test(test_whole_law_and_tails),
        cmocka_unit_test(test_chi_square),
        cmocka_unit_test(test_moments),
        cmocka_unit_test(test_tail_counts),
        cmocka_unit_test(test_words_drawn_follow_the_refusals_alone),
        cmocka_unit_test(test_refusals_say_nothing_of_the_values),
        cmocka_unit_test(test_total_variation_bound),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
