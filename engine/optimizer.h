/* Optimizers over the flat vector. They see what they are given (in private training the noised
 * mean gradient), so their state is post-processing. Element-wise, hence independent of threads. */
#ifndef TACIT_ENGINE_OPTIMIZER_H
#define TACIT_ENGINE_OPTIMIZER_H

#include "common/status.h"
#include "engine/rate_schedule.h"

#include <stddef.h>
#include <stdint.h>

typedef enum tacit_optimizer_kind {
    TACIT_SGD,  /* v = momentum v + g; w -= lr v */
    TACIT_ADAM, /* Kingma and Ba 2015, bias-corrected */
    TACIT_ADAMW /* Loshchilov and Hutter 2019: decoupled weight decay */
} tacit_optimizer_kind;

/* The least epsilon of Adam: the second moment of a gradient below about 1e-20 is zero in single
 * precision, and with less in the denominator such a gradient, or none at all, would move a value
 * without bound or to NaN. */
#define TACIT_ADAM_EPSILON_MIN 1e-16

typedef struct tacit_optimizer_spec {
    tacit_optimizer_kind kind;
    double learning_rate, momentum, beta1, beta2, epsilon, weight_decay;
    /* How the learning rate goes, for whoever counts the steps: see tacit_optimizer_step. */
    tacit_rate_kind rate;
    uint32_t warmup; /* steps */
} tacit_optimizer_spec;

typedef struct tacit_optimizer {
    tacit_optimizer_spec spec;
    size_t count;
    uint64_t step;
    float *first;  /* [count]: velocity or first moment */
    float *second; /* [count]: second moment; NULL for SGD */
} tacit_optimizer;

/* State of zeros for `count` values; free it with tacit_optimizer_fini. TACIT_USAGE names a number
 * of the spec that is out of range; TACIT_NO_MEMORY says what the state needs. */
tacit_status tacit_optimizer_init(tacit_optimizer *o, const tacit_optimizer_spec *spec,
                                  size_t count, tacit_error *err) TACIT_MUST_CHECK;
void tacit_optimizer_fini(tacit_optimizer *o);
/* One step: values -= update(gradient), with the learning rate multiplied by `rate_scale`
 * (tacit_rate_at). */
void tacit_optimizer_step(tacit_optimizer *o, float *values, const float *gradient,
                          double rate_scale);

#endif
