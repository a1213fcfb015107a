#include "privacy/canary_bound.h"

#include <math.h>
#include <stdlib.h>

/* In hundredths of m. */
static const struct rule {
    unsigned top, bottom;
} rules[TACIT_CANARY_RULES] = {{25, 25}, {10, 10}, {25, 0}, {10, 0}};

/* Above what TACIT_CANARIES_MAX right guesses refute, which is below 15 for errors under 0.9. */
#define EPSILON_MOST 64.0
#define BISECTIONS 40 /* 64 / 2^40 < 1e-9 */

static double log_factorial(size_t n)
{
    int sign;
    return lgamma_r((double)n + 1, &sign);
}

/* log P(Bin(r, 1 / (1 + e^-epsilon)) = j) */
static double log_probability(size_t r, size_t j, double epsilon)
{
    double each = log1p(exp(-epsilon));
    return log_factorial(r) - log_factorial(j) - log_factorial(r - j) - (double)r * each -
           (double)(r - j) * epsilon;
}

/* P(Bin >= v), from the logarithm of P(Bin = v) upwards. */
static double upper_tail(size_t r, size_t v, double at_v, double epsilon)
{
    double sum = exp(at_v), log_p = at_v;
    for (size_t j = v; j < r; j++) {
        log_p += log((double)(r - j) / (double)(j + 1)) + epsilon;
        sum += exp(log_p);
    }
    return sum;
}

/* max over i in 1..v of P(v > Bin >= v - i) / i */
static double steepest_step(size_t r, size_t v, double at_v, double epsilon)
{
    double sum = 0, most = 0, log_p = at_v;
    for (size_t i = 1; i <= v; i++) {
        size_t j = v - i;
        log_p += log((double)(j + 1) / (double)(r - j)) - epsilon;
        sum += exp(log_p);
        most = fmax(most, sum / (double)i);
    }
    return most;
}

double tacit_canary_p_value(size_t m, size_t r, size_t v, double delta, double epsilon)
{
    if (v == 0)
        return 1;
    double at_v = log_probability(r, v, epsilon);
    double p = upper_tail(r, v, at_v, epsilon) +
               2 * (double)m * delta * steepest_step(r, v, at_v, epsilon);
    return fmin(p, 1);
}

/* p is a maximum over i of (1 - c) P(Bin >= v) + c P(Bin >= v - i), c = 2 m delta / i. With c <= 1
 * such a term grows with epsilon. With c > 1 it may grow and then fall, never the other way round
 * (the ratio of its two derivatives falls), and ends at 1: below 1 it grows as well. So the refuted
 * epsilons are one interval from 0, and halving finds its end. */
double tacit_canary_bound(size_t m, size_t r, size_t v, double delta, double error)
{
    double low = 0, high = EPSILON_MOST;
    if (tacit_canary_p_value(m, r, v, delta, 0) > error)
        return 0;
    for (int i = 0; i < BISECTIONS; i++) {
        double middle = (low + high) / 2;
        *(tacit_canary_p_value(m, r, v, delta, middle) > error ? &high : &low) = middle;
    }
    return low;
}

typedef struct ranked {
    double score;
    size_t canary;
} ranked;

/* The highest first; equal scores by number, which says nothing about the coin. */
static int by_score(const void *a, const void *b)
{
    const ranked *x = a, *y = b;
    if (x->score != y->score)
        return x->score > y->score ? -1 : 1;
    return x->canary < y->canary ? -1 : 1;
}

static void guess(tacit_canary_guesses *g, const ranked *order, const tacit_canary_scores *s,
                  double error)
{
    for (size_t i = 0; i < g->top; i++)
        g->right += s->included[order[i].canary];
    for (size_t i = 1; i <= g->bottom; i++)
        g->right += !s->included[order[s->count - i].canary];
    g->epsilon = tacit_canary_bound(s->count, g->top + g->bottom, g->right, s->delta, error);
}

tacit_status tacit_canary_test(tacit_canary_finding *out, const tacit_canary_scores *s,
                               double confidence, tacit_error *err)
{
    ranked *order = malloc(s->count * sizeof *order);
    *out = (tacit_canary_finding){.epsilon = 0};
    if (!order)
        return tacit_fail(err, TACIT_NO_MEMORY, "no memory to rank %zu canaries", s->count);
    for (size_t i = 0; i < s->count; i++)
        order[i] = (ranked){s->score[i], i};
    qsort(order, s->count, sizeof *order, by_score);
    for (size_t i = 0; i < TACIT_CANARY_RULES; i++) {
        out->rule[i] = (tacit_canary_guesses){.top = s->count * rules[i].top / 100,
                                              .bottom = s->count * rules[i].bottom / 100};
        guess(&out->rule[i], order, s, (1 - confidence) / TACIT_CANARY_RULES);
        out->epsilon = fmax(out->epsilon, out->rule[i].epsilon);
    }
    free(order);
    return TACIT_OK;
}
