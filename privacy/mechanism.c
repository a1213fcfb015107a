#include "privacy/mechanism.h"

#include <inttypes.h>
#include <math.h>
#include <stddef.h>

/* 1 / sqrt(2 ln 2): the standard deviation of 2^(-x^2), so sigma = b times this. */
#define SIGMA_PER_B 0.84932180028801904272

static tacit_status check_real(const char *field, double v, double min, double max,
                               tacit_error *err)
{
    if (v >= min && v <= max)
        return TACIT_OK;
    return tacit_fail(err, TACIT_BAD_INPUT,
                      "mechanism.%s: expected a number from %g to %g, found %g; correct the plan",
                      field, min, max, v);
}

static tacit_status check_integer(const char *field, uint64_t v, uint64_t min, uint64_t max,
                                  tacit_error *err)
{
    if (v >= min && v <= max)
        return TACIT_OK;
    return tacit_fail(err, TACIT_BAD_INPUT,
                      "mechanism.%s: expected an integer from %" PRIu64 " to %" PRIu64
                      ", found %" PRIu64 "; correct the plan",
                      field, min, max, v);
}

static tacit_status check_quantile(const tacit_mechanism *m, tacit_error *err)
{
    tacit_status status;
    if (m->quantile_b == 0 && m->quantile_target == 0 && m->clip_rate == 0 && m->clip_min == 0 &&
        m->clip_max == 0)
        return TACIT_OK;
    TACIT_TRY(check_integer("quantile_b", m->quantile_b, TACIT_B_MIN, TACIT_B_MAX, err), out);
    TACIT_TRY(check_real("quantile_target", m->quantile_target, TACIT_QUANTILE_MIN,
                         1 - TACIT_QUANTILE_MIN, err),
              out);
    TACIT_TRY(check_real("clip_rate", m->clip_rate, TACIT_CLIP_RATE_MIN, TACIT_CLIP_RATE_MAX, err),
              out);
    TACIT_TRY(check_real("clip_min", m->clip_min, TACIT_CLIP_NORM_MIN, m->clip_norm, err), out);
    TACIT_TRY(check_real("clip_max", m->clip_max, m->clip_norm, TACIT_CLIP_NORM_MAX, err), out);
    if (m->clip_min == m->clip_max)
        status = tacit_fail(err, TACIT_BAD_INPUT,
                            "mechanism.clip_max: expected more than clip_min %g; a clip norm that "
                            "cannot move needs no quantile_b",
                            m->clip_min);
    else if (m->unit == TACIT_UNIT_DEVICE)
        status = tacit_fail(err, TACIT_BAD_INPUT,
                            "mechanism.quantile_b: the device unit is released once and has no "
                            "quantile to follow; set quantile_b and what belongs to it to 0");
    else if (m->kind == TACIT_MECHANISM_TREE_GAUSSIAN)
        status = tacit_fail(err, TACIT_BAD_INPUT,
                            "mechanism.quantile_b: tree noise is shared by steps and needs one "
                            "clip norm for all of them, yet this one adapts; set quantile_b and "
                            "what belongs to it to 0");
out:
    return status;
}

static tacit_status check_gaussian(const tacit_mechanism *m, tacit_error *err)
{
    tacit_status status;
    TACIT_TRY(check_integer("b", m->b, TACIT_B_MIN, TACIT_B_MAX, err), out);
    TACIT_TRY(check_real("clip_norm", m->clip_norm, TACIT_CLIP_NORM_MIN, TACIT_CLIP_NORM_MAX, err),
              out);
    status = check_quantile(m, err);
out:
    return status;
}

static tacit_status check_none(const tacit_mechanism *m, tacit_error *err)
{
    if (m->b == 0 && m->clip_norm == 0 && m->quantile_b == 0 && m->quantile_target == 0 &&
        m->clip_rate == 0 && m->clip_min == 0 && m->clip_max == 0)
        return TACIT_OK;
    return tacit_fail(err, TACIT_BAD_INPUT,
                      "mechanism.kind: none adds no noise, yet b is %" PRIu64
                      ", clip_norm %g and quantile_b %" PRIu64
                      "; set these and what belongs to them to 0, or ask for noise by its kind",
                      m->b, m->clip_norm, m->quantile_b);
}

static tacit_status check_device_unit(const tacit_mechanism *m, tacit_error *err)
{
    if (m->unit != TACIT_UNIT_DEVICE)
        return TACIT_OK;
    if (m->q_num != TACIT_Q_ONE || m->steps != 1 || m->divisor != 1 ||
        m->neighbours != TACIT_ADD_REMOVE)
        return tacit_fail(err, TACIT_BAD_INPUT,
                          "mechanism.unit: the device unit is released once and whole: expected "
                          "q_num 2^32, steps 1, divisor 1 and neighbours add-remove, found %" PRIu64
                          ", %" PRIu32 ", %g and %s; correct the plan",
                          m->q_num, m->steps, m->divisor, tacit_neighbours_name(m->neighbours));
    return m->kind == TACIT_MECHANISM_NONE
               ? TACIT_OK
               : check_integer("b", m->b, TACIT_B_MIN, TACIT_B_WHOLE_MAX, err);
}

static tacit_status check_tree(const tacit_mechanism *m, tacit_error *err)
{
    if (m->kind != TACIT_MECHANISM_TREE_GAUSSIAN)
        return check_integer("minimum_separation", m->minimum_separation, 0, 0, err);
    if (m->q_num != TACIT_Q_ONE || m->unit == TACIT_UNIT_DEVICE ||
        m->neighbours != TACIT_ADD_REMOVE)
        return tacit_fail(err, TACIT_BAD_INPUT,
                          "mechanism.kind: tree noise samples nothing and protects records or "
                          "subjects: expected q_num 2^32, unit record or subject and neighbours "
                          "add-remove, found %" PRIu64 ", %s and %s; correct the plan",
                          m->q_num, tacit_privacy_unit_name(m->unit),
                          tacit_neighbours_name(m->neighbours));
    tacit_status status = check_integer("steps", m->steps, 1, TACIT_TREE_STEPS_MAX, err);
    return status == TACIT_OK
               ? check_integer("minimum_separation", m->minimum_separation, 1, m->steps, err)
               : status;
}

tacit_status tacit_mechanism_validate(const tacit_mechanism *m, tacit_error *err)
{
    tacit_status status;
    TACIT_TRY(check_integer("kind", (uint64_t)m->kind, TACIT_MECHANISM_NONE,
                            TACIT_MECHANISM_TREE_GAUSSIAN, err),
              out);
    TACIT_TRY(check_integer("unit", (uint64_t)m->unit, TACIT_UNIT_RECORD, TACIT_UNIT_DEVICE, err),
              out);
    TACIT_TRY(check_integer("neighbours", (uint64_t)m->neighbours, TACIT_ADD_REMOVE,
                            TACIT_REPLACE_ONE, err),
              out);
    TACIT_TRY(check_integer("q_num", m->q_num, 1, TACIT_Q_ONE, err), out);
    TACIT_TRY(check_integer("steps", m->steps, 1, TACIT_STEPS_MAX, err), out);
    TACIT_TRY(check_real("divisor", m->divisor, TACIT_DIVISOR_MIN, TACIT_DIVISOR_MAX, err), out);
    TACIT_TRY(check_integer("unit_examples", m->unit_examples, 1, TACIT_UNIT_EXAMPLES_MAX, err),
              out);
    TACIT_TRY(m->kind == TACIT_MECHANISM_NONE ? check_none(m, err) : check_gaussian(m, err), out);
    TACIT_TRY(check_tree(m, err), out);
    status = check_device_unit(m, err);
out:
    return status;
}

tacit_status tacit_mechanism_from_message(tacit_mechanism *out, const Tacit__Mechanism *message,
                                          tacit_error *err)
{
    if (!message)
        return tacit_fail(err, TACIT_BAD_INPUT,
                          "mechanism: missing; a plan without one trains nothing");
    *out = (tacit_mechanism){
        .kind = (tacit_mechanism_kind)message->kind,
        .unit = (tacit_privacy_unit)message->unit,
        .neighbours = (tacit_neighbours)message->neighbours,
        .clip_norm = message->clip_norm,
        .b = message->b,
        .q_num = message->q_num,
        .steps = message->steps,
        .divisor = message->divisor,
        .unit_examples = message->unit_examples,
        .quantile_b = message->quantile_b,
        .quantile_target = message->quantile_target,
        .clip_rate = message->clip_rate,
        .clip_min = message->clip_min,
        .clip_max = message->clip_max,
        .minimum_separation = message->minimum_separation,
    };
    return tacit_mechanism_validate(out, err);
}

tacit_status tacit_mechanism_from_plan(tacit_mechanism *out, const Tacit__Plan *plan,
                                       tacit_error *err)
{
    return tacit_mechanism_from_message(out, plan->mechanism, err);
}

bool tacit_mechanism_equal(const tacit_mechanism *a, const tacit_mechanism *b)
{
    return a->kind == b->kind && a->unit == b->unit && a->neighbours == b->neighbours &&
           a->clip_norm == b->clip_norm && a->b == b->b && a->q_num == b->q_num &&
           a->steps == b->steps && a->divisor == b->divisor &&
           a->unit_examples == b->unit_examples && a->quantile_b == b->quantile_b &&
           a->quantile_target == b->quantile_target && a->clip_rate == b->clip_rate &&
           a->clip_min == b->clip_min && a->clip_max == b->clip_max &&
           a->minimum_separation == b->minimum_separation;
}

double tacit_noise_multiplier(uint64_t b)
{
    if (b == 0)
        return 0;
    double z = (double)b * SIGMA_PER_B / TACIT_GRID_NORM;
    return nextafter(nextafter(z, 0), 0);
}

/* Six roundings of at most 2^-53 each, taken off with one to spare. */
double tacit_step_noise_multiplier(uint64_t b, uint64_t quantile_b)
{
    double sum = tacit_noise_multiplier(b), count = tacit_noise_multiplier(quantile_b);
    if (quantile_b == 0 || b == 0)
        return sum;
    return sum * count / sqrt(sum * sum + count * count) * (1 - 0x1p-50);
}

double tacit_mechanism_noise_multiplier(const tacit_mechanism *m)
{
    return tacit_step_noise_multiplier(m->b, m->quantile_b);
}

uint64_t tacit_step_noise_values(uint64_t values, uint64_t quantile_b)
{
    return values + (quantile_b != 0);
}

double tacit_sampling_rate(uint64_t q_num)
{
    return (double)q_num / (double)TACIT_Q_ONE;
}

tacit_status tacit_b_for_noise_multiplier(uint64_t *b, double noise_multiplier, tacit_error *err)
{
    double least = tacit_noise_multiplier(TACIT_B_MIN), most = tacit_noise_multiplier(TACIT_B_MAX);
    if (!(noise_multiplier > 0 && noise_multiplier <= most))
        return tacit_fail(err, TACIT_BAD_INPUT,
                          "noise multiplier: expected a number from %g to %g, found %g", least,
                          most, noise_multiplier);
    uint64_t low = (uint64_t)(noise_multiplier * TACIT_GRID_NORM / SIGMA_PER_B);
    *b = low > TACIT_B_MIN ? low - 1 : TACIT_B_MIN;
    while (tacit_noise_multiplier(*b) < noise_multiplier)
        ++*b;
    return TACIT_OK;
}

tacit_status tacit_b_beside_count(uint64_t *b, uint64_t quantile_b, double noise_multiplier,
                                  tacit_error *err)
{
    double count = tacit_noise_multiplier(quantile_b), share = noise_multiplier / count;
    if (quantile_b == 0)
        return tacit_b_for_noise_multiplier(b, noise_multiplier, err);
    if (!(share < 1))
        return tacit_fail(err, TACIT_BAD_INPUT,
                          "noise multiplier of the count: expected more than the step's %g, found "
                          "%g",
                          noise_multiplier, count);
    tacit_status status =
        tacit_b_for_noise_multiplier(b, noise_multiplier / sqrt(1 - share * share), err);
    while (status == TACIT_OK && tacit_step_noise_multiplier(*b, quantile_b) < noise_multiplier)
        status = check_integer("b", ++*b, TACIT_B_MIN, TACIT_B_MAX, err);
    while (status == TACIT_OK && *b > TACIT_B_MIN &&
           tacit_step_noise_multiplier(*b - 1, quantile_b) >= noise_multiplier)
        --*b;
    return status;
}

static double or_else(double value, double otherwise)
{
    return value != 0 ? value : otherwise;
}

#define COUNT_NOISE_RATIO 10 /* then the count raises the noise of the sum by half a percent */
#define CLIP_RATE 0.2
#define CLIP_REACH 10

tacit_status tacit_mechanism_set_noise(Tacit__Mechanism *out, double clip_norm,
                                       double noise_multiplier, const tacit_clip_request *r,
                                       tacit_error *err)
{
    out->clip_norm = clip_norm;
    if (r->quantile == 0 && (r->count_noise != 0 || r->rate != 0 || r->min != 0 || r->max != 0))
        return tacit_fail(
            err, TACIT_USAGE,
            "quantile-noise, clip-rate, clip-min and clip-max are of a clip norm that "
            "adapts; give quantile with them");
    if (r->quantile == 0)
        return tacit_b_for_noise_multiplier(&out->b, noise_multiplier, err);
    double most = tacit_noise_multiplier(TACIT_B_MAX);
    double count = or_else(r->count_noise, fmin(COUNT_NOISE_RATIO * noise_multiplier, most));
    out->quantile_target = r->quantile;
    out->clip_rate = or_else(r->rate, CLIP_RATE);
    out->clip_min = or_else(r->min, fmax(clip_norm / CLIP_REACH, TACIT_CLIP_NORM_MIN));
    out->clip_max = or_else(r->max, fmin(clip_norm * CLIP_REACH, TACIT_CLIP_NORM_MAX));
    tacit_status status = tacit_b_for_noise_multiplier(&out->quantile_b, count, err);
    if (status == TACIT_OK)
        status = tacit_b_beside_count(&out->b, out->quantile_b, noise_multiplier, err);
    return status;
}

tacit_status tacit_q_num_for_rate(uint64_t *q_num, double q, tacit_error *err)
{
    if (!(q >= 0x1p-32 && q <= 1))
        return tacit_fail(err, TACIT_BAD_INPUT,
                          "sampling rate: expected a number from 2^-32 to 1, found %g", q);
    *q_num = (uint64_t)(q * (double)TACIT_Q_ONE);
    return TACIT_OK;
}

const char *tacit_mechanism_kind_name(tacit_mechanism_kind kind)
{
    static const char *const names[] = {"unspecified", "none", "subsampled_gaussian",
                                        "tree_gaussian"};
    return (unsigned)kind < 4 ? names[kind] : names[0];
}

const char *tacit_privacy_unit_name(tacit_privacy_unit unit)
{
    static const char *const names[] = {"unspecified", "record", "subject", "device"};
    return (unsigned)unit < 4 ? names[unit] : names[0];
}

const char *tacit_neighbours_name(tacit_neighbours neighbours)
{
    return neighbours == TACIT_REPLACE_ONE ? "replace-one" : "add-remove";
}
