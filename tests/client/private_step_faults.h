/* Faults of the private step, put between the archives by the linker (tests/CMakeLists.txt wraps
 * the three functions below), so that everything else is the product's own code: accountant, plan,
 * reserve and claim do not know of them. Include in one file of a program. */
#ifndef TACIT_TESTS_PRIVATE_STEP_FAULTS_H
#define TACIT_TESTS_PRIVATE_STEP_FAULTS_H

#include "privacy/grid.h"
#include "privacy/mechanism.h"
#include "privacy/noise.h"
#include "privacy/sampler.h"

#include <stdbool.h>
#include <string.h>

/* All zero: no fault. */
typedef struct step_faults {
    const char *name;
    int64_t noise_divisor; /* the noise is divided by it, above 1 */
    bool no_noise;
    bool no_clip;
    bool all_drawn; /* every unit in every step */
} step_faults;

static const step_faults known_faults[] = {
    {.name = "none"},
    {.name = "noise_off", .no_noise = true},
    {.name = "sigma_2", .noise_divisor = 2},
    {.name = "sigma_4", .noise_divisor = 4},
    {.name = "sigma_8", .noise_divisor = 8},
    {.name = "clip_off", .no_clip = true},
    {.name = "always_drawn", .all_drawn = true},
};

static const step_faults *step_fault = &known_faults[0];
static size_t step_units_seen; /* that the last step sampled from */

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
    __real_tacit_sampler_draw(g, step_fault->all_drawn ? TACIT_Q_ONE : q_num, n_units, drawn,
                              n_drawn);
}

#endif
