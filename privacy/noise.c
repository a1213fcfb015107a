#include "privacy/noise.h"

#include <math.h>
#include <sodium.h>
#include <string.h>

#define WORDS_PER_TRIAL 4
#define BLOCK_TRIALS 256

/* 2^128 P(y <= k) rounded up, high and low word, for P(y) = 2^(-y^2) / S, y = 0..8, S the sum of
 * the nine: y is the number of entries that a uniform 128-bit number reaches. The tests make them
 * again in exact integers. */
typedef struct table_entry {
    uint64_t high, low;
} table_entry;

static const table_entry y_table[8] = {
    {0xa3a2446c95b5b009, 0x85dbe9b0d319f98e}, {0xf57366a2e090880e, 0x48c9de893ca6f655},
    {0xffad8ae9a9ebe30e, 0xe1279d2449d895ee}, {0xffff5c0be036bde6, 0xe5ea8b19224222ea},
    {0xffffffae24a3539c, 0x95f410f50bf2f604}, {0xfffffffff5c589e7, 0x70cc15b7f9e7ce6e},
    {0xffffffffffffae2e, 0x3a2770b892458d09}, {0xffffffffffffffff, 0x5c5dbb936a4a4ff7},
};

/* 2^64 ln 2, and 2^64 / n! for n = 18 down to 2: the first term left out of the series below is
 * under 2^-66. */
#define LN2_64 0xb17217f7d1cf79acull
static const uint64_t inverse_factorial[17] = {
    0xb41,
    0xca96,
    0xd73fa,
    0xd73f9f,
    0xc9cba54,
    0xb092309d,
    0x8f76c77fc,
    0x6b99159fd5,
    0x49f93edde28,
    0x2e3bc74aad8e,
    0x1a01a01a01a02,
    0xd00d00d00d00d,
    0x5b05b05b05b05b,
    0x222222222222222,
    0xaaaaaaaaaaaaaab,
    0x2aaaaaaaaaaaaaab,
    0x8000000000000000,
};

static inline uint64_t multiply_high(uint64_t a, uint64_t b)
{
    return (uint64_t)((unsigned __int128)a * b >> 64);
}

/* 2^64 (1 - 2^-f) for the fraction f / 2^64, to 9 units: a uniform word that is at least this has
 * probability 2^-f. Alternating series of 1 - e^-z with z = f ln 2, by Horner. (z is off by less
 * than 2 units; a step e of Horner's by at most 2 + 2 sum + z e, so by less than 8 in the end.) */
static inline uint64_t refusal_threshold(uint64_t f)
{
    uint64_t z = multiply_high(f, LN2_64);
    uint64_t sum = inverse_factorial[0];
    for (size_t i = 1; i < 17; i++)
        sum = inverse_factorial[i] - multiply_high(z, sum);
    return z - multiply_high(z, multiply_high(z, sum));
}

/* Constants of one b. reciprocal / 2^shift is 2^64 / b from below, so that u / b becomes a 64-bit
 * fraction with two multiplications fewer than a division takes. */
typedef struct noise_scale {
    uint64_t b;
    uint64_t reciprocal;
    unsigned shift;
    uint64_t biased; /* 2^64 mod b: products with a smaller low word would be drawn too often */
} noise_scale;

static noise_scale noise_scale_of(uint64_t b)
{
    noise_scale s = {.b = b, .shift = 0, .biased = (0 - b) % b};
    while (b >> (s.shift + 1))
        s.shift++;
    unsigned __int128 one = (unsigned __int128)1 << (64 + s.shift);
    s.reciprocal = (uint64_t)((one - 1) / b);
    return s;
}

/* The uniform u in [0, b) of a word and whether the word may count (Lemire 2019). */
static inline uint64_t uniform_below_b(const noise_scale *s, uint64_t word, uint64_t *unbiased)
{
    unsigned __int128 product = (unsigned __int128)word * s->b;
    *unbiased = (uint64_t)product >= s->biased;
    return (uint64_t)(product >> 64);
}

/* The end of a trial: writes x (meaningless when refused), returns 1 when it is accepted. */
static inline size_t signed_value(uint64_t x, uint64_t word, uint64_t accepted, int64_t *out)
{
    uint64_t negative = word >> 63;
    uint64_t single_zero = (negative & (x == 0)) ^ 1;
    *out = (int64_t)((x ^ (0 - negative)) + negative);
    return (size_t)(accepted & single_zero);
}

/* One trial in 64-bit arithmetic. Sets *doubt unless exact_trial is certain to do the same. With y
 * at most 8, v is short of u / b by less than 3 units of 2^-64 and t by less than 7 + 6 y <= 55,
 * the threshold is off by less than 55 ln 2 + 9 < DOUBT. */
#define DOUBT 64ull
static inline size_t noise_trial(const noise_scale *s, const uint64_t word[WORDS_PER_TRIAL],
                                 int64_t *out, uint64_t *doubt)
{
    uint64_t y = 0, tie = 0, unbiased;
    for (size_t k = 0; k < 8; k++) {
        y += word[0] >= y_table[k].high;
        tie |= word[0] == y_table[k].high;
    }
    uint64_t u = uniform_below_b(s, word[1], &unbiased);
    uint64_t v = (uint64_t)((unsigned __int128)u * s->reciprocal >> s->shift); /* u / b */
    unsigned __int128 t = multiply_high(v, v) + 2 * (unsigned __int128)v * y;
    uint64_t zeros = ((uint64_t)1 << (uint64_t)(t >> 64)) - 1;
    uint64_t whole = (word[3] & zeros) == 0;
    uint64_t threshold = refusal_threshold((uint64_t)t);
    uint64_t fraction = word[2] >= threshold;
    *doubt |= tie | (word[2] - threshold + DOUBT <= 2 * DOUBT) | ((uint64_t)t >= 0 - DOUBT);
    return signed_value(s->b * y + u, word[3], unbiased & whole & fraction, out);
}

/* --- The same trial to 95 bits: reached once in about 2^57 trials. --- */

#define LN2_128 ((unsigned __int128)0xb17217f7d1cf79ab << 64 | 0xc9e3b39803f2f6af)
#define SERIES_TERMS 40 /* the first one left out is under 2^-170 */

static unsigned __int128 multiply_high_128(unsigned __int128 a, unsigned __int128 b)
{
    uint64_t a1 = (uint64_t)(a >> 64), a0 = (uint64_t)a, b1 = (uint64_t)(b >> 64), b0 = (uint64_t)b;
    unsigned __int128 left = (unsigned __int128)a1 * b0, right = (unsigned __int128)a0 * b1;
    unsigned __int128 middle =
        (unsigned __int128)multiply_high(a0, b0) + (uint64_t)left + (uint64_t)right;
    return (unsigned __int128)a1 * b1 + (left >> 64) + (right >> 64) + (middle >> 64);
}

/* 2^128 (1 - 2^-f) for the fraction f / 2^128, to 2^5 units: 1 - e^-z is
 * z (1 - z/2 (1 - z/3 (1 - ...))); in brackets 2^127 is one. */
static unsigned __int128 exact_threshold(unsigned __int128 f)
{
    const unsigned __int128 one = (unsigned __int128)1 << 127;
    unsigned __int128 z = multiply_high_128(f, LN2_128), bracket = one;
    for (unsigned n = SERIES_TERMS; n >= 2; n--)
        bracket = one - multiply_high_128(z, bracket) / n;
    return 2 * multiply_high_128(z, bracket);
}

/* 2^128 rest / square, rounded down, by long division; rest < square <= 2^62. */
static unsigned __int128 exact_fraction(uint64_t rest, uint64_t square)
{
    unsigned __int128 quotient = 0;
    for (int bit = 0; bit < 128; bit++) {
        rest <<= 1;
        uint64_t reached = rest >= square;
        rest -= square & (0 - reached);
        quotient = quotient << 1 | reached;
    }
    return quotient;
}

/* A word with the 31 spare bits of the trial's last word below it, as 128-bit number. */
static unsigned __int128 extended(uint64_t word, uint64_t last)
{
    return (unsigned __int128)word << 64 | (last << 1 >> 33) << 33;
}

static size_t exact_trial(const noise_scale *s, const uint64_t word[WORDS_PER_TRIAL], int64_t *out)
{
    uint64_t y = 0, unbiased, u = uniform_below_b(s, word[1], &unbiased), square = s->b * s->b;
    for (size_t k = 0; k < 8; k++)
        y += extended(word[0], word[3]) >=
             ((unsigned __int128)y_table[k].high << 64 | y_table[k].low);
    unsigned __int128 above = (unsigned __int128)u * u + (unsigned __int128)2 * s->b * y * u;
    uint64_t zeros = ((uint64_t)1 << (uint64_t)(above / square)) - 1;
    uint64_t whole = (word[3] & zeros) == 0;
    uint64_t fraction = extended(word[2], word[3]) >=
                        exact_threshold(exact_fraction((uint64_t)(above % square), square));
    return signed_value(s->b * y + u, word[3], unbiased & whole & fraction, out);
}

size_t tacit_noise_trials(uint64_t b, const uint64_t *words, size_t trials, int64_t *out)
{
    noise_scale s = noise_scale_of(b);
    size_t count = 0;
    uint64_t doubt = 0;
    for (size_t t = 0; t < trials; t++)
        count += noise_trial(&s, words + WORDS_PER_TRIAL * t, &out[count], &doubt);
    if (!doubt)
        return count;
    count = 0;
    for (size_t t = 0; t < trials; t++)
        count += exact_trial(&s, words + WORDS_PER_TRIAL * t, &out[count]);
    return count;
}

void tacit_noise_draw(tacit_drbg *g, uint64_t b, int64_t *out, size_t n)
{
    uint64_t words[WORDS_PER_TRIAL * BLOCK_TRIALS];
    int64_t accepted[BLOCK_TRIALS];
    while (n > 0) {
        tacit_drbg_bytes(g, words, sizeof words);
        size_t count = tacit_noise_trials(b, words, BLOCK_TRIALS, accepted);
        size_t take = count < n ? count : n;
        memcpy(out, accepted, take * sizeof *out);
        out += take;
        n -= take;
    }
    sodium_memzero(words, sizeof words);
    sodium_memzero(accepted, sizeof accepted);
}

double tacit_noise_dominating(double sigma)
{
    return nextafter(sigma / (1 + 1 / (8 * sigma * sigma)), 0);
}

double tacit_noise_delta(uint64_t values, double epsilon)
{
    return values ? (1 + exp(epsilon)) * ((double)values * TACIT_NOISE_TV) : 0;
}
