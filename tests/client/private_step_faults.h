/* Faults of the private step, put between the archives by the linker (tests/CMakeLists.txt wraps
 * the functions below), so that everything else is the product's own code: accountant, plan,
 * reserve and claim do not know of them. Include in one file of a program. */
#ifndef TACIT_TESTS_PRIVATE_STEP_FAULTS_H
#define TACIT_TESTS_PRIVATE_STEP_FAULTS_H

#include "privacy/dp_step.h"
#include "privacy/grid.h"
#include "privacy/mechanism.h"
#include "privacy/noise.h"
#include "privacy/sampler.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

/* All zero: no fault. */
typedef struct step_faults {
    const char *name;
    int64_t noise_divisor; /* the noise is divided by it, above 1 */
    double noise_factor;   /* above 0: the noise is multiplied by it */
    bool no_noise;
    bool same_noise; /* that of the first step in all steps */
    bool no_clip;
    bool all_drawn;     /* every unit in every step */
    bool shuffled;      /* batches of one size from a shuffled list, every unit once a pass */
    bool batch_divisor; /* the mean is over the units drawn */
} step_faults;

static const step_faults known_faults[] = {
    {.name = "none"},
    {.name = "noise_off", .no_noise = true},
    {.name = "sigma_2", .noise_divisor = 2},
    {.name = "sigma_4", .noise_divisor = 4},
    {.name = "sigma_8", .noise_divisor = 8},
    {.name = "noise_5_less", .noise_factor = 0.95},
    {.name = "noise_again", .same_noise = true},
    {.name = "clip_off", .no_clip = true},
    {.name = "always_drawn", .all_drawn = true},
    {.name = "shuffled", .shuffled = true},
    {.name = "batch_divisor", .batch_divisor = true},
};

static const step_faults *step_fault = &known_faults[0];
static size_t step_units_seen;  /* that the last step sampled from */
static size_t step_units_drawn; /* by it */
static size_t step_values;      /* of the training */
static double step_divisor;     /* of its plan */
enum { STEP_UNITS_MAX = 1024, STEP_VALUES_MAX = 1 << 16 };

/* False for a word that is no fault's. */
static inline bool step_fault_set(const char *name)
{
    for (size_t i = 0; i < sizeof known_faults / sizeof known_faults[0]; i++)
        if (strcmp(known_faults[i].name, name) == 0) {
            step_fault = &known_faults[i];
            return true;
        }
    return false;
}

static inline void step_repeat_noise(int64_t *out, size_t n)
{
    static int64_t first[STEP_VALUES_MAX];
    static size_t drawn;
    if (n > STEP_VALUES_MAX)
        abort();
    if (drawn != n)
        memcpy(first, out, n * sizeof *out);
    drawn = n;
    memcpy(out, first, n * sizeof *out);
}

/* Unit (k + place) mod n of one order is in the batch, which moves on: no two steps of a pass share
 * a unit, and every batch is as large as the last. */
static inline void step_draw_shuffled(uint64_t q_num, size_t n, size_t *drawn, size_t *n_drawn)
{
    static size_t place;
    bool in[STEP_UNITS_MAX] = {false};
    if (n > STEP_UNITS_MAX)
        abort();
    size_t batch = (size_t)((double)q_num / (double)TACIT_Q_ONE * (double)n);
    for (size_t k = 0; k < batch; k++)
        in[(place + k) * 7 % n] = true; /* n is no multiple of 7 */
    place += batch;
    *n_drawn = 0;
    for (size_t i = 0; i < n; i++)
        if (in[i])
            drawn[(*n_drawn)++] = i;
}

void __real_tacit_noise_draw(tacit_drbg *g, uint64_t b, int64_t *out, size_t n);
void __wrap_tacit_noise_draw(tacit_drbg *g, uint64_t b, int64_t *out, size_t n);
void __wrap_tacit_noise_draw(tacit_drbg *g, uint64_t b, int64_t *out, size_t n)
{
    const step_faults *f = step_fault;
    __real_tacit_noise_draw(g, b, out, n);
    if (f->no_noise)
        memset(out, 0, n * sizeof *out);
    for (size_t i = 0; f->noise_divisor && i < n; i++)
        out[i] /= f->noise_divisor;
    for (size_t i = 0; f->noise_factor > 0 && i < n; i++)
        out[i] = (int64_t)((double)out[i] * f->noise_factor);
    if (f->same_noise)
        step_repeat_noise(out, n);
}

void __real_tacit_grid_clip(int32_t *grid, const float *grad, size_t n, double clip_norm);
void __wrap_tacit_grid_clip(int32_t *grid, const float *grad, size_t n, double clip_norm);
void __wrap_tacit_grid_clip(int32_t *grid, const float *grad, size_t n, double clip_norm)
{
    __real_tacit_grid_clip(grid, grad, n, clip_norm);
    for (size_t i = 0; step_fault->no_clip && i < n; i++)
        grid[i] = (int32_t)((double)grad[i] / clip_norm * TACIT_GRID_NORM);
}

void __real_tacit_sampler_draw(tacit_drbg *g, uint64_t q_num, size_t n_units, size_t *drawn,
                               size_t *n_drawn);
void __wrap_tacit_sampler_draw(tacit_drbg *g, uint64_t q_num, size_t n_units, size_t *drawn,
                               size_t *n_drawn);
void __wrap_tacit_sampler_draw(tacit_drbg *g, uint64_t q_num, size_t n_units, size_t *drawn,
                               size_t *n_drawn)
{
    step_units_seen = n_units;
    if (step_fault->shuffled)
        step_draw_shuffled(q_num, n_units, drawn, n_drawn);
    else
        __real_tacit_sampler_draw(g, step_fault->all_drawn ? TACIT_Q_ONE : q_num, n_units, drawn,
                                  n_drawn);
    step_units_drawn = *n_drawn;
}

tacit_status __real_tacit_dp_new(tacit_dp **out, const tacit_mechanism *m, size_t values,
                                 const uint8_t *nonce, const uint8_t *test_seed, tacit_error *err);
tacit_status __wrap_tacit_dp_new(tacit_dp **out, const tacit_mechanism *m, size_t values,
                                 const uint8_t *nonce, const uint8_t *test_seed, tacit_error *err);
tacit_status __wrap_tacit_dp_new(tacit_dp **out, const tacit_mechanism *m, size_t values,
                                 const uint8_t *nonce, const uint8_t *test_seed, tacit_error *err)
{
    step_values = values;
    step_divisor = m->divisor;
    return __real_tacit_dp_new(out, m, values, nonce, test_seed, err);
}

tacit_status __real_tacit_dp_end_step(tacit_dp *dp, float *mean, tacit_error *err);
tacit_status __wrap_tacit_dp_end_step(tacit_dp *dp, float *mean, tacit_error *err);
tacit_status __wrap_tacit_dp_end_step(tacit_dp *dp, float *mean, tacit_error *err)
{
    tacit_status status = __real_tacit_dp_end_step(dp, mean, err);
    for (size_t i = 0; step_fault->batch_divisor && status == TACIT_OK && i < step_values; i++)
        mean[i] *= (float)(step_divisor / (double)(step_units_drawn ? step_units_drawn : 1));
    return status;
}

#endif
