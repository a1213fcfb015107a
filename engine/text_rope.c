/* The frequencies of the rotation: base, the scalings that stretch a model's context, divisors. */
#include "engine/text_loader.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define TURN 6.28318530717958647692 /* radians */

typedef enum rope_scaling { SCALING_NONE, SCALING_LINEAR, SCALING_YARN } rope_scaling;

static const char *const scaling_name[] = {"none", "linear", "yarn"};
#define SCALINGS (sizeof scaling_name / sizeof scaling_name[0])

typedef struct rope_numbers {
    rope_scaling scaling;
    double base, factor;
    double original;             /* context that the model was trained on */
    double beta_fast, beta_slow; /* turns in that context: more are left alone, fewer stretched */
    double attention_factor;     /* as the file says it */
} rope_numbers;

static tacit_status read_scaling(text_loader *t, rope_scaling *out)
{
    gguf_string type;
    const char *key = text_key(t, "rope.scaling.type");
    *out = SCALING_LINEAR; /* by either key of a factor, which is 1 when neither is there */
    if (!gguf_has_key(t->file, key))
        return TACIT_OK;
    tacit_status status = gguf_get_string(t->file, key, &type, t->err);
    if (status != TACIT_OK)
        return status;
    for (size_t i = 0; i < SCALINGS; i++)
        if (type.size == strlen(scaling_name[i]) &&
            memcmp(type.data, scaling_name[i], type.size) == 0) {
            *out = (rope_scaling)i;
            return TACIT_OK;
        }
    return tacit_fail(t->err, TACIT_BAD_INPUT,
                      "%s: %s is '%.*s', which is not supported; expected none, linear or yarn",
                      gguf_name(t->file), key, (int)(type.size > 64 ? 64 : type.size), type.data);
}

/* A part of YaRN that some files set and that is not computed. */
static tacit_status check_yarn(text_loader *t)
{
    double extrapolation, multiplier;
    tacit_status status;
    TACIT_TRY(text_get_real(t, "rope.scaling.yarn_ext_factor", 1, 1, 1, &extrapolation), done);
    TACIT_TRY(text_get_real(t, "rope.scaling.yarn_log_multiplier", 0, 0, 0, &multiplier), done);
done:
    return status;
}

static tacit_status read_numbers(text_loader *t, rope_numbers *n)
{
    const char *factor =
        text_has_key(t, "rope.scaling.factor") ? "rope.scaling.factor" : "rope.scale_linear";
    size_t original;
    double also;
    tacit_status status;
    TACIT_TRY(read_scaling(t, &n->scaling), done);
    TACIT_TRY(text_get_real(t, "rope.freq_base", 10000, 1.001, 1e12, &n->base), done);
    TACIT_TRY(text_get_real(t, factor, 1, n->scaling == SCALING_YARN ? 1 : 1e-3, 1e6, &n->factor),
              done);
    TACIT_TRY(text_get_real(t, "rope.scaling.attn_factor", 1, 1e-3, 1e3, &n->attention_factor),
              done);
    if (n->scaling != SCALING_YARN)
        return TACIT_OK;
    TACIT_TRY(check_yarn(t), done);
    TACIT_TRY(text_get_optional_size(t, "rope.scaling.original_context_length", UINT32_MAX,
                                     t->m->context_length, &original),
              done);
    TACIT_TRY(text_get_real(t, "rope.scaling.yarn_beta_fast", 32, 1e-3, 1e6, &n->beta_fast), done);
    TACIT_TRY(text_get_real(t, "rope.scaling.yarn_beta_slow", 1, 1e-3, 1e6, &n->beta_slow), done);
    TACIT_TRY(text_get_real(t, "rope.scaling.yarn_attn_factor", 1, 1e-3, 1e3, &also), done);
    n->attention_factor *= also;
    n->original = (double)original;
done:
    return status;
}

/* The pair that turns `turns` times in the original context, as a real index. */
static double pair_of_turns(const rope_numbers *n, double turns, size_t head_dim)
{
    return (double)head_dim * log(n->original / (turns * TURN)) / (2 * log(n->base));
}

/* YaRN (Peng et al. 2023, arXiv 2309.00071, section 3.2 "NTK-by-parts"): pairs of many turns keep
 * their frequency, those of few are stretched by the factor, those between are blended linearly by
 * their index; its ends are whole indices, as in the paper's code. */
static void blend_yarn(double *frequency, const rope_numbers *n, size_t head_dim)
{
    double low = floor(pair_of_turns(n, n->beta_fast, head_dim));
    double high = ceil(pair_of_turns(n, n->beta_slow, head_dim));
    low = fmax(low, 0);
    high = fmin(high, (double)head_dim - 1);
    for (size_t i = 0; i < head_dim / 2; i++) {
        double stretched = ((double)i - low) / fmax(high - low, 1e-3);
        stretched = fmin(fmax(stretched, 0), 1);
        frequency[i] *= stretched / n->factor + (1 - stretched);
    }
}

static tacit_status apply_divisors(text_loader *t, double *frequency, size_t half)
{
    if (t->arch->rope_divisors == TEXT_ABSENT)
        return TACIT_OK;
    const gguf_tensor *divisors = text_take_tensor(t, "rope_freqs.weight");
    if (!divisors)
        return TACIT_OK;
    if (divisors->type != TACIT_TYPE_F32 || divisors->ne[0] != half || divisors->rows != 1)
        return tacit_fail(t->err, TACIT_BAD_INPUT,
                          "%s: tensor rope_freqs.weight: expected %zu values of f32",
                          gguf_name(t->file), half);
    for (size_t i = 0; i < half; i++) {
        float divisor;
        memcpy(&divisor, divisors->data + i * sizeof divisor, sizeof divisor);
        if (!(divisor > 0) || !isfinite(divisor))
            return tacit_fail(t->err, TACIT_BAD_INPUT,
                              "%s: rope_freqs.weight[%zu] is %g: expected a positive number",
                              gguf_name(t->file), i, (double)divisor);
        frequency[i] /= (double)divisor;
    }
    return TACIT_OK;
}

/* The model's next rotation: pair i turns base^(-2i / head_dim) / divisor a position. Its
 * frequencies are the model's from now on. */
static tacit_status add_rope(text_loader *t, double base, double divisor, double **frequency)
{
    tacit_text_model *m = t->m;
    size_t half = m->head_dim / 2;
    *frequency = malloc(half * sizeof **frequency);
    if (!*frequency)
        return tacit_fail(t->err, TACIT_NO_MEMORY, "no memory for the rope table");
    for (size_t i = 0; i < half; i++)
        (*frequency)[i] = pow(base, -2.0 * (double)i / (double)m->head_dim) / divisor;
    m->rope[m->n_ropes++] = (ops_rope){
        .form = t->arch->rope, .head_dim = m->head_dim, .frequency = *frequency, .magnitude = 1};
    return TACIT_OK;
}

tacit_status text_add_rope(text_loader *t, double base)
{
    double *frequency;
    return add_rope(t, base, 1, &frequency);
}

static tacit_status fail_sections(text_loader *t)
{
    return tacit_fail(t->err, TACIT_BAD_INPUT,
                      "%s: %s: expected 1 to %d counts that add up to the %zu pairs of a head, as "
                      "every file of architecture %s has them",
                      gguf_name(t->file), text_key(t, "rope.dimension_sections"), OPS_ROPE_AXES,
                      t->m->head_dim / 2, t->arch->name);
}

/* Pairs [0, count 0) of a head turn by a position's first number, the next by its second, ... */
static tacit_status read_sections(text_loader *t, ops_rope *rope)
{
    size_t half = t->m->head_dim / 2, count = 0, at = 0;
    const char *key = text_key(t, "rope.dimension_sections");
    if (t->arch->rope_sections == TEXT_ABSENT)
        return TACIT_OK;
    if (gguf_get_array(t->file, key, GGUF_I32, &count, NULL) != TACIT_OK || count > OPS_ROPE_AXES)
        return fail_sections(t);
    uint8_t *axis = calloc(half, sizeof *axis);
    if (!axis)
        return tacit_fail(t->err, TACIT_NO_MEMORY, "no memory for the rope table");
    rope->axis = axis;
    for (size_t i = 0; i < count; i++) {
        double pairs = gguf_array_number(t->file, key, i);
        if (!(pairs >= 0 && pairs <= (double)(half - at)))
            return fail_sections(t);
        memset(axis + at, (int)i, (size_t)pairs);
        at += (size_t)pairs;
    }
    return at == half ? TACIT_OK : fail_sections(t);
}

tacit_status text_read_rope(text_loader *t)
{
    tacit_text_model *m = t->m;
    rope_numbers n = {0};
    double *frequency;
    tacit_status status;
    TACIT_TRY(read_numbers(t, &n), done);
    TACIT_TRY(add_rope(t, n.base, n.scaling == SCALING_LINEAR ? n.factor : 1, &frequency), done);
    m->rope[0].magnitude = n.attention_factor;
    if (n.scaling == SCALING_YARN) {
        blend_yarn(frequency, &n, m->head_dim);
        m->rope[0].magnitude *= 1 + 0.1 * log(n.factor); /* the paper's section 3.4 */
    }
    TACIT_TRY(apply_divisors(t, frequency, m->head_dim / 2), done);
    TACIT_TRY(read_sections(t, &m->rope[0]), done);
done:
    return status;
}
