/* The steps of `tacit train`: epochs over shuffled examples, a learning rate that follows its
 * schedule, an end where held-out examples stop improving, and a checkpoint from which the same
 * training goes on bit for bit after whatever ended it (or with another learning rate). Without
 * privacy. */
#ifndef TACIT_ENGINE_TRAIN_LOOP_H
#define TACIT_ENGINE_TRAIN_LOOP_H

#include "common/digest.h"
#include "engine/rate_schedule.h"
#include "engine/train_examples.h"
#include "engine/trainer.h"

#include <signal.h>

/* What an epoch came to. */
typedef struct train_epoch {
    uint64_t number, steps; /* from 1; steps since the beginning */
    double loss;            /* mean over the epoch's examples, each before its step */
    double eval_loss;       /* behind the epoch; 0 without held-out examples */
    double tokens_per_s;    /* of what this process trained */
    bool best;              /* no earlier one has a lower held-out loss */
} train_epoch;

typedef struct train_loop {
    tacit_trainer *trainer; /* its values are trained, and are the result */
    const tacit_optimizer_spec *optimizer;
    const train_examples *data, *eval;    /* eval may hold none */
    uint64_t epochs, batch, seed;         /* seed: of the order */
    uint64_t patience;                    /* epochs without a better held-out loss; 0: no end */
    const char *checkpoint;               /* file; NULL: none */
    uint64_t checkpoint_steps;            /* one is written after so many */
    uint8_t identity[TACIT_DIGEST_BYTES]; /* of files, set, optimizer, batch, seed */
    const volatile sig_atomic_t *stop;    /* not zero: ends between two steps */
    tacit_status (*report)(void *ctx, const train_epoch *epoch, tacit_error *err);
    void *ctx;
} train_loop;

/* Bytes for every trained value beside trainer and optimizer: best values, a checkpoint while it
 * is written. */
size_t train_loop_value_bytes(const train_loop *loop);

/* With patience the values are then those of the best epoch. *best_epoch is that with the lowest
 * held-out loss, 0 without held-out examples. TACIT_AGAIN when it was stopped, with
 * a checkpoint behind it if there is a file for one; TACIT_FAILED for a loss or a gradient that is
 * no number, which names the tensor, with a checkpoint of an earlier
 * state whose numbers were good if there is a file for one; TACIT_INTEGRITY for
 * the checkpoint of another training. The file stays: whoever has saved the result removes it. */
tacit_status train_loop_run(const train_loop *loop, uint64_t *best_epoch,
                            tacit_error *err) TACIT_MUST_CHECK;

#endif
