#include "engine/optimizer.h"

#include "common/memory_limit.h"
#include "common/secret.h"

#include <math.h>
#include <stdbool.h>
#include <stdlib.h>

#define SMALLER "sgd keeps half of adam's; or train fewer values"

static bool in_unit(double v)
{
    return v >= 0.0 && v < 1.0;
}

static tacit_status check_spec(const tacit_optimizer_spec *s, tacit_error *err)
{
    if (!(s->learning_rate > 0.0) || !isfinite(s->learning_rate))
        return tacit_fail(err, TACIT_USAGE,
                          "optimizer: learning rate %g; expected a finite number above 0",
                          s->learning_rate);
    if (!(s->weight_decay >= 0.0) || !isfinite(s->weight_decay))
        return tacit_fail(err, TACIT_USAGE, "optimizer: weight decay %g; expected at least 0",
                          s->weight_decay);
    if (s->kind == TACIT_SGD)
        return in_unit(s->momentum)
                   ? TACIT_OK
                   : tacit_fail(err, TACIT_USAGE, "optimizer: momentum %g; expected [0, 1)",
                                s->momentum);
    if (s->kind != TACIT_ADAM && s->kind != TACIT_ADAMW)
        return tacit_fail(err, TACIT_USAGE, "optimizer: unknown kind %d", (int)s->kind);
    if (!in_unit(s->beta1) || !in_unit(s->beta2))
        return tacit_fail(err, TACIT_USAGE, "optimizer: betas %g and %g; expected [0, 1)", s->beta1,
                          s->beta2);
    if (!(s->epsilon >= TACIT_ADAM_EPSILON_MIN) || !isfinite(s->epsilon))
        return tacit_fail(err, TACIT_USAGE, "optimizer: epsilon %g; expected at least %g",
                          s->epsilon, TACIT_ADAM_EPSILON_MIN);
    return TACIT_OK;
}

tacit_status tacit_optimizer_init(tacit_optimizer *o, const tacit_optimizer_spec *spec,
                                  size_t count, tacit_error *err)
{
    *o = (tacit_optimizer){0};
    tacit_status status = check_spec(spec, err);
    if (status != TACIT_OK)
        return status;
    o->spec = *spec;
    o->count = count;
    uint64_t bytes = count * (uint64_t)sizeof *o->first * (spec->kind == TACIT_SGD ? 1 : 2);
    status = tacit_memory_judge(bytes, "the state of the optimizer", SMALLER, err);
    if (status != TACIT_OK)
        return status;
    o->first = calloc(count ? count : 1, sizeof *o->first);
    if (spec->kind != TACIT_SGD)
        o->second = calloc(count ? count : 1, sizeof *o->second);
    if (o->first && (o->second || spec->kind == TACIT_SGD))
        return TACIT_OK;
    tacit_optimizer_fini(o);
    return tacit_memory_fail(bytes, "the state of the optimizer", SMALLER, err);
}

void tacit_optimizer_fini(tacit_optimizer *o)
{
    tacit_wipe_free(o->first); /* of gradients without noise where a device trains for itself */
    tacit_wipe_free(o->second);
    *o = (tacit_optimizer){0};
}

static void step_sgd(tacit_optimizer *o, float *values, const float *gradient, double rate)
{
    float momentum = (float)o->spec.momentum, decay = (float)o->spec.weight_decay;
    float lr = (float)rate;
    for (size_t i = 0; i < o->count; i++) {
        o->first[i] = momentum * o->first[i] + (gradient[i] + decay * values[i]);
        values[i] -= lr * o->first[i];
    }
}

/* `coupled` decay joins the gradient (Adam), `decoupled` shrinks the value (AdamW). The bias
 * corrections are folded into the step length and the denominator as in section 2 of the paper. */
static void step_adam(tacit_optimizer *o, float *values, const float *gradient, double rate)
{
    const tacit_optimizer_spec *s = &o->spec;
    double t = (double)o->step;
    float b1 = (float)s->beta1, b2 = (float)s->beta2;
    float c1 = (float)(1.0 - s->beta1), c2 = (float)(1.0 - s->beta2);
    float step = (float)(rate / (1.0 - pow(s->beta1, t)));
    float correction = (float)(1.0 / sqrt(1.0 - pow(s->beta2, t)));
    float epsilon = (float)s->epsilon;
    float coupled = s->kind == TACIT_ADAM ? (float)s->weight_decay : 0.0f;
    float keep = s->kind == TACIT_ADAMW ? (float)(1.0 - rate * s->weight_decay) : 1.0f;
    for (size_t i = 0; i < o->count; i++) {
        float g = gradient[i] + coupled * values[i];
        float m = b1 * o->first[i] + c1 * g;
        float v = b2 * o->second[i] + c2 * (g * g);
        o->first[i] = m;
        o->second[i] = v;
        values[i] = keep * values[i] - step * m / (sqrtf(v) * correction + epsilon);
    }
}

void tacit_optimizer_step(tacit_optimizer *o, float *values, const float *gradient,
                          double rate_scale)
{
    double rate = o->spec.learning_rate * rate_scale;
    o->step++;
    if (o->spec.kind == TACIT_SGD)
        step_sgd(o, values, gradient, rate);
    else
        step_adam(o, values, gradient, rate);
}
