/* What guesses about canaries prove: the one-run audit of Steinke, Nasr and Jagielski 2023
 * (arXiv 2305.08846, theorem 5.2).
 *
 * m canaries were each put into one training run by an independent fair coin. An adversary sees the
 * released values and guesses the coins of r canaries of its choice; v guesses are right. If the
 * run is (epsilon, delta)-differentially private under adding or removing one canary, v or more
 * right guesses have at most the probability
 *
 *   p = P(Bin(r, a) >= v) + 2 m delta max_{i = 1..v} P(v > Bin(r, a) >= v - i) / i,
 *   a = 1 / (1 + e^-epsilon),
 *
 * so every epsilon with p at most 1 - confidence is refuted. The adversary here ranks canaries by
 * score and says "in" of the highest and "out" of the lowest; how many of each is fixed below,
 * before any score is seen. The rules share the error probability equally (Bonferroni), so that the
 * best of their bounds holds with the whole confidence.
 *
 * A low bound means little: half of the noise often goes unseen. A bound above the claim is proof
 * of a fault, but for the chance of 1 - confidence. Pure functions, any thread. */
#ifndef TACIT_PRIVACY_CANARY_BOUND_H
#define TACIT_PRIVACY_CANARY_BOUND_H

#include "privacy/canary_scores.h"

/* Of each rule: how many of m are said to be in and out. Both ends of the order, and the upper end
 * alone, because a canary that was in but never drawn looks like one that was out. */
#define TACIT_CANARY_RULES 4

typedef struct tacit_canary_guesses {
    size_t top, bottom; /* guessed in, guessed out: r = top + bottom */
    size_t right;       /* v */
    double epsilon;     /* refuted below it, at this rule's share of the error */
} tacit_canary_guesses;

typedef struct tacit_canary_finding {
    tacit_canary_guesses rule[TACIT_CANARY_RULES];
    double epsilon; /* the largest of the rules' bounds; 0 when nothing is refuted */
} tacit_canary_finding;

/* p as above; 0 <= v <= r <= m, epsilon >= 0. With r = 0 it is 1. */
double tacit_canary_p_value(size_t m, size_t r, size_t v, double delta, double epsilon);

/* The epsilon up to which p is at most `error`, within 1e-9; 0 when p is larger even there. */
double tacit_canary_bound(size_t m, size_t r, size_t v, double delta, double error);

/* `confidence` in (0, 1). TACIT_NO_MEMORY. */
tacit_status tacit_canary_test(tacit_canary_finding *out, const tacit_canary_scores *scores,
                               double confidence, tacit_error *err) TACIT_MUST_CHECK;

#endif
