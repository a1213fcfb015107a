/* Canaries of a training run: units that are there to be found out (privacy/canary_scores.h).
 *
 * Canary i has the trainable value i * values / count of its own, spread over the whole vector. A
 * fair coin from the kernel's generator puts it in or leaves it out. One that is in is a unit
 * behind the data's: sampled, clipped, summed and noised by the same code; its gradient is zero but
 * for its value, which is 1024 times the clip norm, so that a clip that fails shows as well. One
 * that is out is nowhere. What is learned about each is the sum of the released means at its value.
 *
 * One owner, not thread-safe. */
#ifndef TACIT_CLIENT_CANARY_SET_H
#define TACIT_CLIENT_CANARY_SET_H

#include "privacy/canary_scores.h"

typedef struct canary_set canary_set;

/* Draws the coins. `values`: length of the trainable vector. `test_seed` as in dp_step.h: NULL, or
 * 32 bytes that give the same coins again. TACIT_USAGE for a count of 0, above `values` or above
 * TACIT_CANARIES_MAX, for the device unit (nothing is beside it), for a clip norm that adapts, for
 * tree noise and for a mechanism without a finite claim at `delta`. */
tacit_status canary_set_new(canary_set **out, size_t count, const tacit_mechanism *m, size_t values,
                            double delta, const uint8_t *test_seed,
                            tacit_error *err) TACIT_MUST_CHECK;
void canary_set_free(canary_set *c);

/* How many are in: units 0 .. this - 1 of the next two. NULL has none. */
size_t canary_set_units(const canary_set *c);

/* grad[values] of a unit, valid until the next call. */
const float *canary_set_gradient(canary_set *c, size_t unit);

/* Adds a released mean [values] to the scores. */
void canary_set_observe(canary_set *c, const float *mean);

/* Claim, coins and scores so far; `reserve` is the caller's to fill. */
const tacit_canary_scores *canary_set_scores(const canary_set *c);

/* What a checkpoint keeps, coins and scores bit for bit: written behind what `out` has, read back
 * whole. TACIT_USAGE when `state` is of another number of canaries, of none (empty) too; `path`
 * names it. `c` may be NULL: then it must be empty. */
tacit_status canary_set_save(const canary_set *c, tacit_buffer *out,
                             tacit_error *err) TACIT_MUST_CHECK;
tacit_status canary_set_restore(canary_set *c, tacit_span state, const char *path,
                                tacit_error *err) TACIT_MUST_CHECK;

#endif
