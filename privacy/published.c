#include "privacy/published.h"

#include "common/bytes.h"
#include "privacy/budget.h"
#include "privacy/noise.h"
#include "privacy/release.h"

#include <math.h>

/* 2^-64 that a device's release was touched, in noise values of TACIT_NOISE_TV each. */
#define TOUCHED_VALUES ((uint64_t)(0x1p-64 / TACIT_NOISE_TV))

/* Devices whose noise hides one device from a recipient; 1 when it is its own alone. */
static uint64_t hiding(const tacit_mechanism *m, const tacit_summed_round *r, uint64_t values)
{
    uint64_t out = 1 + (uint64_t)r->assumed_colluders;
    bool untouched = r->norm_bound >= tacit_release_norm_bound(m, values);
    return untouched && r->accepted > out ? r->accepted - out : 1;
}

/* The noise multiplier of a sum of h, rounded down. */
static double summed_multiplier(uint64_t b, uint64_t h)
{
    double z = tacit_noise_multiplier(b);
    return h == 1 ? z : nextafter(nextafter(z * sqrt((double)h), 0), 0);
}

static tacit_status add_round(tacit_budget *b, const Tacit__Schedule *schedule,
                              const tacit_summed_round *r, uint64_t values, tacit_error *err)
{
    tacit_mechanism m;
    tacit_event event;
    uint64_t drawn;
    if (r->index >= schedule->n_rounds)
        return tacit_fail(err, TACIT_USAGE, "published epsilon: round %u of %zu", r->index,
                          schedule->n_rounds);
    tacit_status status =
        tacit_mechanism_from_message(&m, schedule->rounds[r->index]->mechanism, err);
    if (status == TACIT_OK)
        status = tacit_event_from_mechanism(&event, &m, 1, err);
    if (status != TACIT_OK)
        return status;
    uint64_t h = hiding(&m, r, values);
    event.sigma = summed_multiplier(m.b, h);
    if (!tacit_mul_u64(values + (h > 1 ? TOUCHED_VALUES : 0), h, &drawn))
        return tacit_fail(err, TACIT_REFUSED, "published epsilon: too many noise values");
    return tacit_budget_add(b, &event, drawn, false, err);
}

/* True when every round of the schedule releases one whole vector per device. */
static bool releases_whole(const Tacit__Schedule *schedule, size_t rounds)
{
    bool all = schedule->n_rounds > 0;
    for (size_t i = 0; all && i < rounds && i < schedule->n_rounds; i++) {
        tacit_mechanism m;
        all = tacit_mechanism_from_message(&m, schedule->rounds[i]->mechanism, NULL) == TACIT_OK &&
              tacit_mechanism_releases_whole(&m);
    }
    return all;
}

tacit_status tacit_published_epsilon(tacit_published *out, const Tacit__Schedule *schedule,
                                     size_t rounds, uint64_t values,
                                     const tacit_summed_round *summed, size_t n, tacit_error *err)
{
    tacit_budget b;
    tacit_status status =
        tacit_budget_schedule_epsilon(&out->epsilon_server, schedule, rounds, values, err);
    if (status != TACIT_OK)
        return status;
    out->epsilon_published = out->epsilon_server;
    out->rule = isinf(out->epsilon_server) ? "none" : "post-processing";
    if (!releases_whole(schedule, rounds))
        return TACIT_OK;
    tacit_budget_open(&b, 1, schedule->delta);
    b.schedules = 1;
    for (size_t i = 0; i < n && status == TACIT_OK; i++)
        if (summed[i].index < rounds)
            status = add_round(&b, schedule, &summed[i], values, err);
    if (status != TACIT_OK)
        return status;
    double epsilon;
    status = tacit_budget_epsilon(&b, &epsilon, err);
    if (status != TACIT_OK)
        return status;
    if (epsilon < out->epsilon_published) {
        out->epsilon_published = epsilon;
        out->rule = "summed-noise";
    }
    return TACIT_OK;
}
