/* The evaluation gate: `tacit eval --json` on the server's held-out set, in a process of its own
 * with limits on time and memory, so that a hostile adapter can hurt nothing but its evaluation. */
#ifndef TACIT_SERVER_GATE_EVALUATION_H
#define TACIT_SERVER_GATE_EVALUATION_H

#include "server/server_config.h"

#include <stdatomic.h>
#include <stdbool.h>

typedef struct gate_score {
    double accuracy; /* exact match, 0 to 1 */
    double loss;     /* mean over examples, nats */
} gate_score;

/* Evaluates `adapter` (NULL: the base alone). Blocks at most config->gate_seconds; ends the process
 * when *stop becomes true (TACIT_AGAIN). TACIT_FAILED says what the program said. */
tacit_status gate_evaluate(gate_score *out, const server_config *config, const char *adapter,
                           const atomic_bool *stop, tacit_error *err) TACIT_MUST_CHECK;

/* Whether a candidate may be published after `parent`: its exact match is at most `margin` below,
 * and where it is equal its loss is not above by more than a factor 1 + margin. NaN never passes.
 */
bool gate_passes(const gate_score *parent, const gate_score *candidate, double margin);

/* Reads the JSON object that `tacit eval --json` printed last. Hostile text is fine. */
tacit_status gate_score_parse(gate_score *out, const char *text, size_t size,
                              tacit_error *err) TACIT_MUST_CHECK;

#endif
