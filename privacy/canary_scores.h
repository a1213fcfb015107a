/* The scores of a training run with canaries: what `tacit-client train --canaries` measured and
 * `tacit-audit canary` judges.
 *
 * A canary is a unit of the run like any other, with a gradient that is as harmful as one unit's
 * can be: all of the clip norm, and more, along one trainable value that no other canary has. Each
 * was put in by a fair coin. Its score is the sum over the steps of the released, noised mean at
 * its value: what somebody sees who sees every step.
 *
 * The file is JSON Lines, the head first, then one line for each canary in the order of their
 * values (numbers as JSON has them; no other keys, no empty lines):
 *
 *   {"format":"tacit-canary-scores","version":1,"canaries":1000,"reserve":"64 hex digits",
 *    "values":4096,"delta":1e-05,"epsilon":1.99,"mechanism":{"kind":"subsampled_gaussian",
 *    "unit":"subject","neighbours":"add-remove","clip_norm":1.0,"b":111461,"q_num":214748364,
 *    "steps":100,"divisor":32.0,"unit_examples":8}}
 *   {"included":true,"score":0.4375}
 *
 * `reserve` names the reserve in the device's account and in the log. `epsilon` is what the
 * accountant says of this mechanism, once, by itself: the claim under test. It is stated by the
 * device and recomputed by the auditor. */
#ifndef TACIT_PRIVACY_CANARY_SCORES_H
#define TACIT_PRIVACY_CANARY_SCORES_H

#include "common/bytes.h"
#include "common/digest.h"
#include "privacy/mechanism.h"

#define TACIT_CANARIES_MAX 100000u
#define TACIT_CANARY_FILE_MAX ((size_t)16 << 20)

typedef struct tacit_canary_scores {
    uint8_t reserve[TACIT_DIGEST_BYTES];
    tacit_mechanism mechanism; /* with a guarantee, add-remove */
    uint64_t values;           /* length of the trainable vector, at least `count` */
    double delta, epsilon;
    size_t count;
    bool *included; /* [count] */
    double *score;  /* [count], finite */
} tacit_canary_scores;

/* `count` canaries, none included, scores zero; the rest is zero and the caller's to fill. */
tacit_status tacit_canary_scores_new(tacit_canary_scores *out, size_t count,
                                     tacit_error *err) TACIT_MUST_CHECK;
void tacit_canary_scores_free(tacit_canary_scores *s);

/* What one run of `m` on `values` trainable values costs at `delta`, by the arithmetic of accounts
 * (budget.h). TACIT_REFUSED for kind none. */
tacit_status tacit_canary_claim(double *epsilon, const tacit_mechanism *m, uint64_t values,
                                double delta, tacit_error *err) TACIT_MUST_CHECK;

/* Appends the file's bytes to `out`. TACIT_USAGE when a score is not finite. */
tacit_status tacit_canary_scores_write(tacit_buffer *out, const tacit_canary_scores *s,
                                       tacit_error *err) TACIT_MUST_CHECK;

/* TACIT_BAD_INPUT names the line and what is wrong with it; TACIT_INTEGRITY when the mechanism does
 * not cost what `epsilon` claims. Free with tacit_canary_scores_free after TACIT_OK. */
tacit_status tacit_canary_scores_read(tacit_canary_scores *out, const void *bytes, size_t size,
                                      tacit_error *err) TACIT_MUST_CHECK;

#endif
