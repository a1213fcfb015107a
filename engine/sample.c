#include "engine/sample.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static uint64_t splitmix(uint64_t *state)
{
    uint64_t z = *state += 0x9e3779b97f4a7c15u;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    return z ^ z >> 31;
}

static uint64_t rotate_left(uint64_t v, unsigned n)
{
    return v << n | v >> (64 - n);
}

static uint64_t next_word(uint64_t s[4])
{
    uint64_t result = rotate_left(s[0] + s[3], 23) + s[0], t = s[1] << 17;
    s[2] ^= s[0];
    s[3] ^= s[1];
    s[1] ^= s[2];
    s[0] ^= s[3];
    s[2] ^= t;
    s[3] = rotate_left(s[3], 45);
    return result;
}

tacit_status tacit_sampler_init(tacit_sampler *s, const tacit_sampler_spec *spec, size_t vocab,
                                tacit_error *err)
{
    *s = (tacit_sampler){.spec = *spec, .vocab = vocab};
    if (!(spec->temperature >= 0) || !isfinite(spec->temperature))
        return tacit_fail(err, TACIT_USAGE, "temperature %g: expected 0 or more",
                          spec->temperature);
    if (!(spec->top_p >= 0 && spec->top_p <= 1))
        return tacit_fail(err, TACIT_USAGE, "top-p %g: expected 0 to 1", spec->top_p);
    s->candidate = malloc(vocab * sizeof *s->candidate);
    if (!s->candidate)
        return tacit_fail(err, TACIT_NO_MEMORY, "no memory to sample from %zu tokens", vocab);
    uint64_t seed = spec->seed;
    for (size_t i = 0; i < 4; i++)
        s->state[i] = splitmix(&seed);
    return TACIT_OK;
}

void tacit_sampler_fini(tacit_sampler *s)
{
    free(s->candidate);
    memset(s, 0, sizeof *s);
}

int32_t tacit_argmax(const float *logits, size_t vocab)
{
    int32_t best = -1;
    for (size_t i = 0; i < vocab; i++)
        if (!isnan(logits[i]) && (best < 0 || logits[i] > logits[best]))
            best = (int32_t)i;
    return best;
}

static int more_likely(const void *a, const void *b)
{
    const sample_candidate *x = a, *y = b;
    if (x->logit != y->logit)
        return x->logit > y->logit ? -1 : 1;
    return x->id < y->id ? -1 : 1;
}

/* Sorts all tokens that are not NaN. */
static size_t collect(tacit_sampler *s, const float *logits)
{
    size_t n = 0;
    for (size_t i = 0; i < s->vocab; i++)
        if (!isnan(logits[i]))
            s->candidate[n++] = (sample_candidate){(int32_t)i, logits[i]};
    qsort(s->candidate, n, sizeof *s->candidate, more_likely);
    return n;
}

size_t tacit_sampler_top(tacit_sampler *s, const float *logits, size_t k, sample_candidate *out)
{
    size_t n = collect(s, logits);
    n = k < n ? k : n;
    memcpy(out, s->candidate, n * sizeof *out);
    return n;
}

/* The probability of candidate i relative to the first's. Logits may be infinite: equal ones weigh
 * the same. */
static double weight_of(const tacit_sampler *s, size_t i)
{
    double most = s->candidate[0].logit, logit = s->candidate[i].logit;
    return logit == most ? 1 : exp((logit - most) / s->spec.temperature);
}

/* How many of the n sorted candidates together reach top_p. */
static size_t within_top_p(const tacit_sampler *s, size_t n)
{
    double total = 0, sum = 0;
    for (size_t i = 0; i < n; i++)
        total += weight_of(s, i);
    for (size_t i = 0; i < n; i++) {
        sum += weight_of(s, i);
        if (sum >= s->spec.top_p * total)
            return i + 1;
    }
    return n;
}

int32_t tacit_sampler_next(tacit_sampler *s, const float *logits)
{
    if (s->spec.temperature == 0)
        return tacit_argmax(logits, s->vocab);
    size_t n = collect(s, logits);
    if (n == 0)
        return -1;
    if (s->spec.top_k > 0 && s->spec.top_k < n)
        n = s->spec.top_k;
    if (s->spec.top_p > 0 && s->spec.top_p < 1)
        n = within_top_p(s, n);
    double total = 0, u = (double)(next_word(s->state) >> 11) * 0x1p-53;
    for (int pass = 0; pass < 2; pass++) {
        double sum = 0;
        for (size_t i = 0; i < n; i++) {
            sum += weight_of(s, i);
            if (pass == 1 && sum > u * total)
                return s->candidate[i].id;
        }
        total = sum;
    }
    return s->candidate[n - 1].id;
}

const char *tacit_finish_name(tacit_finish why)
{
    static const char *const names[TACIT_FINISHES] = {"stop", "length", "context"};
    return names[why];
}
