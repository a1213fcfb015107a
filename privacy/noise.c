#include "privacy/noise.h"

#include <math.h>
#include <sodium.h>
#include <string.h>

#define WORDS_PER_TRIAL 4
#define BLOCK_TRIALS 256

/* P(y <= k) * 2^64, rounded to nearest, for P(y) = 2^(-y^2) / S, y = 0..8, S the sum of the nine:
 * y is the number of entries that a uniform 64-bit word reaches. tests/privacy/test_noise.c makes
 * them again in exact integers. */
static const uint64_t y_table[8] = {
    0xa3a2446c95b5b00a, 0xf57366a2e090880e, 0xffad8ae9a9ebe30f, 0xffff5c0be036bde7,
    0xffffffae24a3539d, 0xfffffffff5c589e7, 0xffffffffffffae2e, 0xffffffffffffffff,
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

/* 2^64 (1 - 2^-f) for the fraction f / 2^64, to about 2^-62: a uniform word that is at least this
 * has probability 2^-f. Alternating series of 1 - e^-z with z = f ln 2, by Horner. */
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

/* One trial: writes x (meaningless when refused) and returns 1 when it is accepted. */
static inline size_t noise_trial(const noise_scale *s, const uint64_t word[WORDS_PER_TRIAL],
                                 int64_t *out)
{
    uint64_t y = 0;
    for (size_t k = 0; k < 8; k++)
        y += word[0] >= y_table[k];
    unsigned __int128 product = (unsigned __int128)word[1] * s->b; /* Lemire 2019 */
    uint64_t u = (uint64_t)(product >> 64);
    uint64_t unbiased = (uint64_t)product >= s->biased;
    uint64_t v = (uint64_t)((unsigned __int128)u * s->reciprocal >> s->shift); /* u / b */
    unsigned __int128 t = multiply_high(v, v) + 2 * (unsigned __int128)v * y;
    uint64_t zeros = ((uint64_t)1 << (uint64_t)(t >> 64)) - 1;
    uint64_t whole = (word[3] & zeros) == 0;
    uint64_t fraction = word[2] >= refusal_threshold((uint64_t)t);
    uint64_t negative = word[3] >> 63;
    uint64_t x = s->b * y + u;
    uint64_t single_zero = (negative & (x == 0)) ^ 1;
    *out = (int64_t)((x ^ (0 - negative)) + negative);
    return (size_t)(unbiased & whole & fraction & single_zero);
}

size_t tacit_noise_trials(uint64_t b, const uint64_t *words, size_t trials, int64_t *out)
{
    noise_scale s = noise_scale_of(b);
    size_t count = 0;
    for (size_t t = 0; t < trials; t++)
        count += noise_trial(&s, words + WORDS_PER_TRIAL * t, &out[count]);
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

double tacit_noise_delta(uint64_t values, double epsilon)
{
    return values ? (1 + exp(epsilon)) * ((double)values * TACIT_NOISE_TV) : 0;
}
