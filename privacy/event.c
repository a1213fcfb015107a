#include "privacy/event.h"

#include "privacy/tree_noise.h"

#include <inttypes.h>

#define SIGMA_MIN 1e-3
#define SIGMA_MAX 1e9
#define COUNT_MAX ((uint64_t)1 << 40)

tacit_status tacit_event_validate(const tacit_event *event, tacit_error *err)
{
    if (event->neighbours != TACIT_ADD_REMOVE && event->neighbours != TACIT_REPLACE_ONE)
        return tacit_fail(err, TACIT_BAD_INPUT,
                          "event: expected neighbours add-remove or replace-one, found %d",
                          (int)event->neighbours);
    if (!(event->sigma >= SIGMA_MIN && event->sigma <= SIGMA_MAX))
        return tacit_fail(err, TACIT_BAD_INPUT,
                          "event: expected a noise multiplier from %g to %g, found %g", SIGMA_MIN,
                          SIGMA_MAX, event->sigma);
    if (!(event->q > 0 && event->q <= 1))
        return tacit_fail(err, TACIT_BAD_INPUT,
                          "event: expected a sampling rate above 0 and at most 1, found %g",
                          event->q);
    if (event->count > COUNT_MAX)
        return tacit_fail(err, TACIT_BAD_INPUT, "event: expected at most 2^40 runs, found %" PRIu64,
                          event->count);
    return TACIT_OK;
}

tacit_status tacit_event_price(tacit_event *out, const tacit_mechanism *m, uint64_t rounds,
                               tacit_error *err)
{
    bool tree = m->kind == TACIT_MECHANISM_TREE_GAUSSIAN;
    tacit_status status = tree ? tacit_mechanism_validate(m, err) : TACIT_OK;
    if (status != TACIT_OK)
        return status;
    *out = (tacit_event){
        .neighbours = m->neighbours,
        .sigma = tacit_mechanism_noise_multiplier(m),
        .q = tacit_sampling_rate(m->q_num),
    };
    uint64_t runs = tree ? tacit_tree_runs(m->steps, m->minimum_separation) : m->steps;
    if (__builtin_mul_overflow(rounds, runs, &out->count))
        return tacit_fail(err, TACIT_BAD_INPUT, "event: %" PRIu64 " rounds are too many", rounds);
    return tacit_event_validate(out, err);
}

tacit_status tacit_event_from_mechanism(tacit_event *out, const tacit_mechanism *m, uint64_t rounds,
                                        tacit_error *err)
{
    tacit_status status = tacit_mechanism_validate(m, err);
    if (status != TACIT_OK)
        return status;
    if (m->kind == TACIT_MECHANISM_NONE)
        return tacit_fail(err, TACIT_REFUSED,
                          "mechanism none has no finite epsilon; it cannot enter an account");
    return tacit_event_price(out, m, rounds, err);
}
