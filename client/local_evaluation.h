/* What a trained adapter is worth on held-out records: judged by inference with the file that was
 * written, in the precision in which it will run, not by the loss of training. What it finds comes
 * from the device's data without noise: it is for the person at the device, and goes nowhere. */
#ifndef TACIT_CLIENT_LOCAL_EVALUATION_H
#define TACIT_CLIENT_LOCAL_EVALUATION_H

#include "common/pool.h"
#include "engine/dataset.h"
#include "engine/model.h"

typedef struct local_evaluation {
    size_t examples;
    double accuracy, loss;           /* with the adapter, fast */
    double accuracy_base, loss_base; /* without, fast */
    double loss_exact;               /* with the adapter, exact: how much fast mode changes */
} local_evaluation;

/* Refuses what tacit_adapter_load and tacit_evaluate refuse. `adapter`: its file. */
tacit_status local_evaluation_run(local_evaluation *out, const tacit_model *model,
                                  const char *adapter, const tacit_dataset *heldout,
                                  tacit_pool *pool, tacit_error *err) TACIT_MUST_CHECK;

#endif
