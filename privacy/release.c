#include "privacy/release.h"

#include "privacy/dp_step.h"

#include <math.h>
#include <sodium.h>
#include <stdlib.h>

#define NORM_TAIL 9.5 /* sqrt(2 t) with e^-t <= 2^-65 */

bool tacit_mechanism_releases_whole(const tacit_mechanism *m)
{
    return m->unit == TACIT_UNIT_DEVICE && m->kind == TACIT_MECHANISM_SUBSAMPLED_GAUSSIAN;
}

double tacit_release_scale(const tacit_mechanism *m)
{
    return TACIT_GRID_NORM / m->clip_norm;
}

double tacit_release_norm_bound(const tacit_mechanism *m, size_t values)
{
    /* sigma is rounded down by two ulp where it is accounted, the bound up by far more here. */
    double sigma = tacit_noise_multiplier(m->b);
    return m->clip_norm * (1 + sigma * (sqrt((double)values) + NORM_TAIL)) * (1 + 1e-12);
}

static int32_t clamp(int64_t v)
{
    if (v > INT32_MAX)
        return INT32_MAX;
    return v < INT32_MIN ? INT32_MIN : (int32_t)v;
}

/* One step with one unit, drawn whatever the store holds; `mean` is in the values' units and only
 * passes by. */
static tacit_status noise_once(tacit_dp *dp, const float *delta, float *mean, tacit_error *err)
{
    const size_t *drawn;
    size_t n;
    tacit_status status = tacit_dp_begin_step(dp, 1, &drawn, &n, err);
    if (status == TACIT_OK)
        status = tacit_dp_add(dp, delta, err);
    return status == TACIT_OK ? tacit_dp_end_step(dp, mean, err) : status;
}

tacit_status tacit_release_make(int32_t *out, const float *delta, size_t values,
                                const tacit_mechanism *m,
                                const uint8_t nonce[TACIT_DRBG_NONCE_BYTES],
                                const uint8_t *test_seed, tacit_error *err)
{
    tacit_dp *dp = NULL;
    float *mean = NULL;
    tacit_status status;
    if (!tacit_mechanism_releases_whole(m))
        return tacit_fail(err, TACIT_USAGE,
                          "release: expected the device unit with noise, found unit %s, kind %s",
                          tacit_privacy_unit_name(m->unit), tacit_mechanism_kind_name(m->kind));
    TACIT_TRY(tacit_dp_new(&dp, m, values, nonce, test_seed, err), done);
    mean = malloc(values * sizeof *mean);
    if (!mean) {
        status = tacit_fail(err, TACIT_NO_MEMORY, "release: no memory for %zu values", values);
        goto done;
    }
    TACIT_TRY(noise_once(dp, delta, mean, err), done);
    const int64_t *sum = tacit_dp_noised_sum(dp);
    for (size_t i = 0; i < values; i++)
        out[i] = clamp(sum[i]);
done:
    tacit_dp_free(dp);
    if (mean)
        sodium_memzero(mean, values * sizeof *mean);
    free(mean);
    return status;
}
