#include "client/local_evaluation.h"

#include "engine/adapter.h"
#include "engine/evaluate.h"

tacit_status local_evaluation_run(local_evaluation *out, const tacit_model *model,
                                  const char *adapter, const tacit_dataset *heldout,
                                  tacit_pool *pool, tacit_error *err)
{
    tacit_adapter *trained = NULL;
    tacit_evaluation base, fast, exact;
    tacit_status status;
    TACIT_TRY(tacit_adapter_load(&trained, model, adapter, err), done);
    const tacit_evaluation_options of_base = {.precision = TACIT_FAST};
    const tacit_evaluation_options of_fast = {.precision = TACIT_FAST, .adapter = trained};
    const tacit_evaluation_options of_exact = {.precision = TACIT_EXACT, .adapter = trained};
    TACIT_TRY(tacit_evaluate(&base, model, heldout, &of_base, pool, err), done);
    TACIT_TRY(tacit_evaluate(&fast, model, heldout, &of_fast, pool, err), done);
    TACIT_TRY(tacit_evaluate(&exact, model, heldout, &of_exact, pool, err), done);
    *out = (local_evaluation){.examples = fast.score.examples,
                              .accuracy = tacit_evaluation_share(fast.score),
                              .loss = fast.loss,
                              .accuracy_base = tacit_evaluation_share(base.score),
                              .loss_base = base.loss,
                              .loss_exact = exact.loss};
done:
    tacit_adapter_free(trained);
    return status;
}
