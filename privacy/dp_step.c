#include "privacy/dp_step.h"

#include "common/bytes.h"
#include "common/memory_limit.h"
#include "privacy/grid.h"
#include "privacy/noise.h"
#include "privacy/sampler.h"

#include <inttypes.h>
#include <math.h>
#include <sodium.h>
#include <stdlib.h>
#include <string.h>

#define UNITS_MAX ((size_t)1 << 32)

typedef enum dp_state { DP_BETWEEN_STEPS, DP_IN_STEP, DP_BROKEN } dp_state;

/* How the mechanisms differ; everything else is shared. */
typedef struct dp_rule {
    tacit_status (*begin)(tacit_dp *dp, tacit_error *err);
    void (*choose)(tacit_dp *dp, size_t n_units);
    void (*add)(tacit_dp *dp, const float *grad); /* NULL: a zero gradient */
    void (*mean)(tacit_dp *dp, float *mean);
} dp_rule;

struct tacit_dp {
    tacit_mechanism mechanism;
    const dp_rule *rule;
    dp_state state;
    uint32_t steps_done;
    size_t values;
    tacit_drbg *noise;
    tacit_drbg *sampling;
    double clip_norm;
    int64_t count; /* noise plus 2^16 for every unit within the clip, minus 2^16 for others */
    int64_t *sum;  /* [values]: noise plus clipped gradients, grid units */
    int32_t *grid; /* [values]: one unit's gradient on the grid */
    double *plain; /* [values]: kind NONE */
    size_t *drawn; /* [room], at least one */
    size_t room, n_drawn, n_added, n_clipped;
    tacit_tree_noise *tree; /* kind TREE, from here on */
    uint32_t *slot;         /* [n_slots] */
    size_t n_slots;
};

static tacit_status gaussian_begin(tacit_dp *dp, tacit_error *err)
{
    (void)err;
    tacit_noise_draw(dp->noise, dp->mechanism.b, dp->sum, dp->values);
    if (dp->mechanism.quantile_b)
        tacit_noise_draw(dp->noise, dp->mechanism.quantile_b, &dp->count, 1);
    return TACIT_OK;
}

static void poisson_choose(tacit_dp *dp, size_t n_units)
{
    tacit_sampler_draw(dp->sampling, dp->mechanism.q_num, n_units, dp->drawn, &dp->n_drawn);
}

static tacit_status tree_begin(tacit_dp *dp, tacit_error *err)
{
    return tacit_tree_noise_step(dp->tree, dp->steps_done + 1, dp->sum, err);
}

static void slot_choose(tacit_dp *dp, size_t n_units)
{
    uint32_t now = dp->steps_done % dp->mechanism.minimum_separation;
    dp->n_drawn = 0;
    for (size_t i = 0; i < n_units; i++)
        if (dp->slot[i] == now)
            dp->drawn[dp->n_drawn++] = i;
}

static void gaussian_add(tacit_dp *dp, const float *grad)
{
    bool within = true; /* a zero gradient is */
    if (grad) {
        within = tacit_grid_clip(dp->grid, grad, dp->values, dp->clip_norm);
        tacit_grid_add(dp->sum, dp->grid, dp->values);
    }
    dp->n_clipped += !within;
    if (dp->mechanism.quantile_b)
        dp->count += within ? TACIT_GRID_NORM : -TACIT_GRID_NORM;
}

/* The clip norm of the next step, from what was noised alone. */
static void adapt_clip(tacit_dp *dp)
{
    const tacit_mechanism *m = &dp->mechanism;
    if (m->quantile_b == 0)
        return;
    double share = (double)dp->count / (2.0 * TACIT_GRID_NORM) / m->divisor + 0.5;
    double next = dp->clip_norm * exp(-m->clip_rate * (share - m->quantile_target));
    dp->clip_norm = fmin(fmax(next, m->clip_min), m->clip_max);
}

static void gaussian_mean(tacit_dp *dp, float *mean)
{
    double scale = dp->clip_norm / TACIT_GRID_NORM / dp->mechanism.divisor;
    for (size_t i = 0; i < dp->values; i++)
        mean[i] = (float)((double)dp->sum[i] * scale);
    sodium_memzero(dp->grid, dp->values * sizeof *dp->grid);
    adapt_clip(dp);
}

static tacit_status plain_begin(tacit_dp *dp, tacit_error *err)
{
    (void)err;
    memset(dp->plain, 0, dp->values * sizeof *dp->plain);
    return TACIT_OK;
}

static void plain_add(tacit_dp *dp, const float *grad)
{
    bool finite = grad != NULL;
    for (size_t i = 0; grad && i < dp->values; i++)
        finite &= isfinite(grad[i]) != 0;
    for (size_t i = 0; finite && i < dp->values; i++)
        dp->plain[i] += (double)grad[i];
}

static void plain_mean(tacit_dp *dp, float *mean)
{
    for (size_t i = 0; i < dp->values; i++)
        mean[i] = (float)(dp->plain[i] / dp->mechanism.divisor);
}

static const dp_rule plain_rule = {plain_begin, poisson_choose, plain_add, plain_mean};
static const dp_rule gaussian_rule = {gaussian_begin, poisson_choose, gaussian_add, gaussian_mean};
static const dp_rule tree_rule = {tree_begin, slot_choose, gaussian_add, gaussian_mean};

static const dp_rule *rule_of(tacit_mechanism_kind kind)
{
    if (kind == TACIT_MECHANISM_NONE)
        return &plain_rule;
    return kind == TACIT_MECHANISM_TREE_GAUSSIAN ? &tree_rule : &gaussian_rule;
}

static tacit_status allocate(tacit_dp *dp, tacit_error *err)
{
    static const char what[] = "the sums of a private step";
    uint64_t bytes = dp->values * (dp->rule == &plain_rule ? sizeof *dp->plain
                                                           : sizeof *dp->sum + sizeof *dp->grid);
    bool ok;
    if (dp->rule == &plain_rule) {
        dp->plain = calloc(dp->values, sizeof *dp->plain);
        ok = dp->plain != NULL;
    } else {
        dp->sum = calloc(dp->values, sizeof *dp->sum);
        dp->grid = calloc(dp->values, sizeof *dp->grid);
        ok = dp->sum && dp->grid;
    }
    return ok ? TACIT_OK : tacit_memory_fail(bytes, what, "a plan of fewer values needs less", err);
}

tacit_status tacit_dp_new(tacit_dp **out, const tacit_mechanism *mechanism, size_t values,
                          const uint8_t nonce[TACIT_DRBG_NONCE_BYTES], const uint8_t *test_seed,
                          tacit_error *err)
{
    tacit_status status;
    tacit_dp *dp = NULL;
    *out = NULL;
    TACIT_TRY(tacit_mechanism_validate(mechanism, err), out);
    if (values == 0 || values > UINT32_MAX)
        return tacit_fail(err, TACIT_USAGE,
                          "private step: expected 1 to 2^32 - 1 trainable values, found %zu",
                          values);
    dp = calloc(1, sizeof *dp);
    if (!dp)
        return tacit_fail(err, TACIT_NO_MEMORY, "private step: no memory");
    dp->mechanism = *mechanism;
    dp->rule = rule_of(mechanism->kind);
    dp->values = values;
    dp->clip_norm = mechanism->clip_norm;
    TACIT_TRY(allocate(dp, err), out);
    TACIT_TRY(tacit_drbg_new(&dp->noise, "noise", nonce, test_seed, err), out);
    TACIT_TRY(tacit_drbg_new(&dp->sampling, "sampling", nonce, test_seed, err), out);
    *out = dp;
    return TACIT_OK;
out:
    tacit_dp_free(dp);
    return status;
}

static void wipe_free(void *data, size_t count, size_t size)
{
    if (data)
        sodium_memzero(data, count * size);
    free(data);
}

void tacit_dp_free(tacit_dp *dp)
{
    if (!dp)
        return;
    tacit_drbg_free(dp->noise);
    tacit_drbg_free(dp->sampling);
    wipe_free(dp->sum, dp->values, sizeof *dp->sum);
    wipe_free(dp->grid, dp->values, sizeof *dp->grid);
    wipe_free(dp->plain, dp->values, sizeof *dp->plain);
    wipe_free(dp->drawn, dp->room, sizeof *dp->drawn);
    wipe_free(dp->slot, dp->n_slots, sizeof *dp->slot);
    tacit_tree_noise_free(dp->tree);
    wipe_free(dp, 1, sizeof *dp); /* how many units were drawn */
}

static tacit_status misuse(tacit_dp *dp, tacit_error *err, const char *what)
{
    dp->state = DP_BROKEN;
    return tacit_fail(err, TACIT_CONFLICT,
                      "private step %" PRIu32 " of %" PRIu32 ": %s (%zu of %zu drawn units added); "
                      "this round cannot go on",
                      dp->steps_done + (dp->steps_done < dp->mechanism.steps), dp->mechanism.steps,
                      what, dp->n_added, dp->n_drawn);
}

tacit_status tacit_dp_tree_seed(uint8_t seed[TACIT_TREE_SEED_BYTES],
                                const uint8_t nonce[TACIT_DRBG_NONCE_BYTES],
                                const uint8_t *test_seed, tacit_error *err)
{
    tacit_drbg *g;
    tacit_status status = tacit_drbg_new(&g, "tree seed", nonce, test_seed, err);
    if (status == TACIT_OK)
        tacit_drbg_bytes(g, seed, TACIT_TREE_SEED_BYTES);
    tacit_drbg_free(g);
    return status;
}

tacit_status tacit_dp_set_tree(tacit_dp *dp, const uint8_t seed[TACIT_TREE_SEED_BYTES],
                               uint32_t steps_done, const uint64_t *tags, size_t n_units,
                               tacit_error *err)
{
    if (dp->rule != &tree_rule || dp->slot || steps_done > dp->mechanism.steps ||
        n_units > UNITS_MAX)
        return tacit_fail(err, TACIT_USAGE,
                          "private step: tree noise is set once, before the first step of a plan "
                          "that has it");
    dp->slot = malloc((n_units + 1) * sizeof *dp->slot);
    if (!dp->slot)
        return tacit_fail(err, TACIT_NO_MEMORY, "private step: no memory for %zu units", n_units);
    dp->n_slots = n_units;
    for (size_t i = 0; i < n_units; i++)
        dp->slot[i] = (uint32_t)(tags[i] % dp->mechanism.minimum_separation);
    dp->steps_done = steps_done;
    return tacit_tree_noise_new(&dp->tree, dp->mechanism.b, dp->values, seed, err);
}

static tacit_status make_room(tacit_dp *dp, size_t n_units, tacit_error *err)
{
    if (n_units > UNITS_MAX)
        return tacit_fail(err, TACIT_USAGE, "private step: expected at most 2^32 units, found %zu",
                          n_units);
    if (dp->drawn && n_units <= dp->room)
        return TACIT_OK;
    size_t room = n_units ? n_units : 1;
    size_t *drawn = malloc(room * sizeof *drawn);
    if (!drawn)
        return tacit_fail(err, TACIT_NO_MEMORY, "private step: no memory for %zu units", n_units);
    wipe_free(dp->drawn, dp->room, sizeof *dp->drawn);
    dp->drawn = drawn;
    dp->room = room;
    return TACIT_OK;
}

tacit_status tacit_dp_begin_step(tacit_dp *dp, size_t n_units, const size_t **drawn,
                                 size_t *n_drawn, tacit_error *err)
{
    if (dp->state != DP_BETWEEN_STEPS)
        return misuse(dp, err, "begun before the last one ended");
    if (dp->steps_done == dp->mechanism.steps)
        return tacit_fail(err, TACIT_REFUSED,
                          "private step: all %" PRIu32
                          " steps of the plan were taken; more need a new reserve",
                          dp->mechanism.steps);
    if (dp->rule == &tree_rule && (!dp->tree || n_units != dp->n_slots))
        return misuse(dp, err, "its units are not those that tree noise was set for");
    tacit_status status = make_room(dp, n_units, err);
    tacit_drbg_refresh(dp->noise);
    tacit_drbg_refresh(dp->sampling);
    if (status == TACIT_OK)
        status = dp->rule->begin(dp, err);
    if (status != TACIT_OK) {
        dp->state = DP_BROKEN;
        return status;
    }
    dp->rule->choose(dp, n_units);
    dp->n_added = dp->n_clipped = 0;
    dp->state = DP_IN_STEP;
    *drawn = dp->drawn;
    *n_drawn = dp->n_drawn;
    return TACIT_OK;
}

tacit_status tacit_dp_add(tacit_dp *dp, const float *grad, tacit_error *err)
{
    if (dp->state != DP_IN_STEP)
        return misuse(dp, err, "a gradient was added outside a step");
    if (dp->n_added == dp->n_drawn)
        return misuse(dp, err, "more gradients were added than units drawn");
    dp->rule->add(dp, grad);
    dp->n_added++;
    return TACIT_OK;
}

tacit_status tacit_dp_end_step(tacit_dp *dp, float *mean, tacit_error *err)
{
    if (dp->state != DP_IN_STEP)
        return misuse(dp, err, "ended without a beginning");
    if (dp->n_added != dp->n_drawn)
        return misuse(dp, err, "ended before every drawn unit was added");
    dp->rule->mean(dp, mean);
    dp->steps_done++;
    dp->state = DP_BETWEEN_STEPS;
    return TACIT_OK;
}

double tacit_dp_clip_norm(const tacit_dp *dp)
{
    return dp->clip_norm;
}

size_t tacit_dp_clipped(const tacit_dp *dp)
{
    return dp->n_clipped;
}

int64_t tacit_dp_noised_count(const tacit_dp *dp)
{
    return dp->count;
}

bool tacit_dp_insecure(const tacit_dp *dp)
{
    return tacit_drbg_insecure(dp->noise);
}

const int64_t *tacit_dp_noised_sum(const tacit_dp *dp)
{
    return dp->sum;
}
