#include "engine/sample.h"

#include "common/secret.h"

#include <math.h>
#include <stdbool.h>
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
    if (!(spec->min_p >= 0 && spec->min_p <= 1))
        return tacit_fail(err, TACIT_USAGE, "min-p %g: expected 0 to 1", spec->min_p);
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
    tacit_wipe_free(s->candidate); /* logits: they tell about what was said */
    memset(s, 0, sizeof *s);
}

int32_t tacit_argmax(const float *logits, size_t vocab)
{
    int32_t best = vocab > 0 ? 0 : -1;
    for (size_t i = 0; i < vocab; i++) {
        if (isnan(logits[i]))
            return -1;
        if (logits[i] > logits[best])
            best = (int32_t)i;
    }
    return best;
}

/* The candidates: all tokens, in the order of their ids; none where a logit is NaN. */
static size_t collect(tacit_sampler *s, const float *logits)
{
    size_t n = 0;
    for (; n < s->vocab && !isnan(logits[n]); n++)
        s->candidate[n] = (sample_candidate){.id = (int32_t)n, .logit = logits[n]};
    return n < s->vocab ? 0 : n;
}

/* ---- the most likely first: a heap, because few of many are asked for ---- */

static bool more_likely(const sample_candidate *a, const sample_candidate *b)
{
    return a->logit != b->logit ? a->logit > b->logit : a->id < b->id;
}

static void sift_down(sample_candidate *heap, size_t n, size_t at)
{
    const sample_candidate moved = heap[at];
    for (size_t child; (child = 2 * at + 1) < n; at = child) {
        if (child + 1 < n && more_likely(&heap[child + 1], &heap[child]))
            child++;
        if (!more_likely(&heap[child], &moved))
            break;
        heap[at] = heap[child];
    }
    heap[at] = moved;
}

static void make_heap(sample_candidate *heap, size_t n)
{
    for (size_t i = n / 2; i-- > 0;)
        sift_down(heap, n, i);
}

/* Moves the most likely of n to heap[n - 1], behind those that are left. */
static const sample_candidate *take_first(sample_candidate *heap, size_t n)
{
    const sample_candidate first = heap[0];
    heap[0] = heap[n - 1];
    heap[n - 1] = first;
    sift_down(heap, n - 1, 0);
    return &heap[n - 1];
}

size_t tacit_sampler_top(tacit_sampler *s, const float *logits, size_t k, sample_candidate *out)
{
    size_t n = collect(s, logits);
    k = k < n ? k : n;
    make_heap(s->candidate, n);
    for (size_t i = 0; i < k; i++)
        out[i] = *take_first(s->candidate, n - i);
    return k;
}

/* ---- drawing ---- */

/* Weights of c[count] at a temperature, relative to the largest logit, `most`, and their sum.
 * Logits may be infinite: those equal to `most` weigh 1, and infinitely less than it weighs
 * nothing, at any temperature. */
static double weigh(sample_candidate *c, size_t count, float most, double temperature)
{
    double total = 0;
    for (size_t i = 0; i < count; i++) {
        double below = (double)c[i].logit - (double)most;
        bool infinite = isinf(c[i].logit) || isinf(most);
        float weight = infinite ? 0 : expf((float)(below / temperature));
        c[i].weight = c[i].logit == most ? 1 : weight;
        total += (double)c[i].weight;
    }
    return total;
}

static int32_t draw(tacit_sampler *s, const sample_candidate *c, size_t count, double total)
{
    double u = (double)(next_word(s->state) >> 11) * 0x1p-53, sum = 0;
    for (size_t i = 0; i < count; i++) {
        sum += (double)c[i].weight;
        if (sum > u * total)
            return c[i].id;
    }
    return c[count - 1].id;
}

/* As many of a heap of n weighed candidates, whose weights sum up to `total`, as min_p and top_p
 * keep, one at least: moved behind the others. */
static size_t shorten(tacit_sampler *s, size_t n, double total)
{
    const tacit_sampler_spec *spec = &s->spec;
    double enough = spec->top_p < 1 ? spec->top_p * total : INFINITY, sum = 0;
    size_t kept = 0;
    for (; kept < n && (kept == 0 || sum < enough); kept++) {
        double weight = (double)s->candidate[0].weight;
        if (kept > 0 && weight < spec->min_p)
            break;
        sum += weight;
        take_first(s->candidate, n - kept);
    }
    return kept;
}

static float largest(const sample_candidate *c, size_t n)
{
    float most = c[0].logit;
    for (size_t i = 1; i < n; i++)
        most = c[i].logit > most ? c[i].logit : most;
    return most;
}

int32_t tacit_sampler_next(tacit_sampler *s, const float *logits)
{
    const tacit_sampler_spec *spec = &s->spec;
    if (spec->temperature == 0)
        return tacit_argmax(logits, s->vocab);
    size_t n = collect(s, logits);
    if (n == 0)
        return -1;
    sample_candidate *c = s->candidate;
    if (spec->top_k > 0 && spec->top_k < n) {
        make_heap(c, n);
        for (size_t i = 0; i < spec->top_k; i++)
            take_first(c, n - i);
        memmove(c, c + n - spec->top_k, spec->top_k * sizeof *c);
        n = spec->top_k;
    }
    float most = largest(c, n);
    if (spec->min_p > 0 || spec->top_p < 1) {
        double total = weigh(c, n, most, 1);
        make_heap(c, n);
        size_t kept = shorten(s, n, total);
        c += n - kept;
        n = kept;
    }
    return draw(s, c, n, weigh(c, n, most, spec->temperature));
}

const char *tacit_finish_name(tacit_finish why)
{
    static const char *const names[TACIT_FINISHES] = {"stop", "length", "context"};
    return names[why];
}
