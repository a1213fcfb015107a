#include "privacy/budget.h"

#include "common/bytes.h"
#include "privacy/noise.h"
#include "privacy/policy.h"

#include <math.h>
#include <string.h>

void tacit_budget_open(tacit_budget *b, double epsilon_cap, double delta)
{
    *b = (tacit_budget){.delta = delta, .filter_order = tacit_rdp_filter_order(epsilon_cap, delta)};
}

tacit_status tacit_budget_add(tacit_budget *b, const tacit_event *event, uint64_t values,
                              bool first_of_schedule, tacit_error *err)
{
    uint64_t drawn;
    if (!tacit_mul_u64(values, event->count, &drawn) ||
        !tacit_add_u64(b->noise_values, drawn, &drawn))
        return tacit_fail(err, TACIT_REFUSED, "budget: too many noise values to account for");
    tacit_status status = tacit_rdp_add(&b->spent, event, TACIT_RDP_TRUE, err);
    if (status != TACIT_OK)
        return status;
    b->noise_values = drawn;
    b->schedules += first_of_schedule;
    return TACIT_OK;
}

void tacit_budget_add_unprotected(tacit_budget *b)
{
    b->unprotected++;
}

/* Epsilon at the delta that the sampler leaves when it is charged for `assumed`. */
static double epsilon_assuming(const tacit_budget *b, double assumed)
{
    double delta = b->delta - tacit_noise_delta(b->noise_values, assumed);
    if (!(delta > 0))
        return INFINITY;
    return b->schedules > 1 ? tacit_rdp_epsilon_at(&b->spent, b->filter_order, delta)
                            : tacit_rdp_epsilon(&b->spent, delta, NULL);
}

#define SHARE_ITERATIONS 200

/* The least fixed point, from below: epsilon_assuming grows with what it assumes. What is returned
 * covers itself, epsilon_assuming(it) <= it. The steps shrink by a factor that is far below 1
 * unless the sampler takes nearly all of delta. */
static double epsilon_of(const tacit_budget *b)
{
    double epsilon = b->lost ? INFINITY : epsilon_assuming(b, 0);
    for (int i = 0; epsilon < INFINITY && i < SHARE_ITERATIONS; i++) {
        double next = epsilon_assuming(b, epsilon);
        if (next <= epsilon)
            return epsilon;
        epsilon = next;
    }
    return INFINITY;
}

/* An account without private events costs nothing, whatever its delta. */
double tacit_budget_epsilon(const tacit_budget *b)
{
    return b->noise_values || b->lost ? epsilon_of(b) : 0;
}

double tacit_budget_filter_epsilon(const tacit_budget *b)
{
    tacit_budget fixed = *b;
    fixed.schedules = 2;
    return tacit_budget_epsilon(&fixed);
}

double tacit_budget_epsilon_times(const tacit_budget *b, uint32_t times)
{
    tacit_budget all = *b;
    tacit_rdp doubled = b->spent; /* sums are exact, so their order does not matter */
    for (uint32_t left = times - (times > 0); left; left >>= 1) {
        if (left & 1)
            tacit_rdp_join(&all.spent, &doubled);
        tacit_rdp_join(&doubled, &doubled);
    }
    if (!tacit_mul_u64(b->noise_values, times, &all.noise_values))
        return INFINITY;
    return tacit_budget_epsilon(&all);
}

tacit_status tacit_budget_event(tacit_event *out, const Tacit__Reserve *reserve, tacit_error *err)
{
    tacit_mechanism m = tacit_reserve_mechanism(reserve);
    return tacit_event_price(out, &m, 1, err);
}

uint64_t tacit_budget_values(const Tacit__Reserve *reserve)
{
    return tacit_step_noise_values(reserve->values, reserve->quantile_b);
}

tacit_status tacit_budget_join(tacit_budget *b, const tacit_budget *other, tacit_error *err)
{
    if (!tacit_add_u64(b->noise_values, other->noise_values, &b->noise_values))
        return tacit_fail(err, TACIT_REFUSED, "budget: too many noise values to account for");
    tacit_rdp_join(&b->spent, &other->spent);
    b->schedules += other->schedules;
    b->unprotected += other->unprotected;
    b->lost = b->lost || other->lost;
    return TACIT_OK;
}

tacit_budget tacit_budget_empty_like(const tacit_budget *b)
{
    return (tacit_budget){.delta = b->delta, .filter_order = b->filter_order};
}

static bool same_event(const tacit_event *a, const tacit_event *b)
{
    return a->neighbours == b->neighbours && a->sigma == b->sigma && a->q == b->q &&
           a->count == b->count;
}

/* The last round that was added. Rounds are usually alike and rho is costly to compute: it is kept
 * in `one` and joined again, which gives the same integers. */
typedef struct last_round {
    tacit_event event;
    uint64_t values;
    tacit_budget one; /* its cost; nothing yet while it has no noise values */
} last_round;

static tacit_status add_round(tacit_budget *b, const tacit_event *event, uint64_t values,
                              last_round *last, tacit_error *err)
{
    if (last->one.noise_values == 0 || last->values != values || !same_event(event, &last->event)) {
        *last = (last_round){.event = *event, .values = values};
        tacit_status status = tacit_budget_add(&last->one, event, values, false, err);
        if (status != TACIT_OK)
            return status;
    }
    return tacit_budget_join(b, &last->one, err);
}

tacit_status tacit_budget_add_schedule(tacit_budget *b, const Tacit__Schedule *schedule,
                                       size_t rounds, uint64_t values, bool *unprotected,
                                       tacit_error *err)
{
    tacit_budget all = tacit_budget_empty_like(b);
    tacit_event event;
    last_round last = {.values = 0};
    *unprotected = false;
    for (size_t i = 0; i < rounds && i < schedule->n_rounds; i++) {
        tacit_mechanism m;
        tacit_status status = tacit_mechanism_from_message(&m, schedule->rounds[i]->mechanism, err);
        *unprotected = *unprotected || m.kind == TACIT_MECHANISM_NONE;
        if (status == TACIT_OK && m.kind == TACIT_MECHANISM_NONE)
            continue;
        if (status == TACIT_OK)
            status = tacit_event_from_mechanism(&event, &m, 1, err);
        if (status == TACIT_OK)
            status =
                add_round(&all, &event, tacit_step_noise_values(values, m.quantile_b), &last, err);
        if (status != TACIT_OK)
            return status;
        all.schedules = 1;
    }
    return tacit_budget_join(b, &all, err);
}

tacit_status tacit_budget_schedule_epsilon(double *epsilon, const Tacit__Schedule *schedule,
                                           size_t rounds, uint64_t values, tacit_error *err)
{
    tacit_budget b;
    bool unprotected;
    tacit_budget_open(&b, 1, schedule->delta);
    tacit_status status =
        tacit_budget_add_schedule(&b, schedule, rounds, values, &unprotected, err);
    if (status == TACIT_OK)
        *epsilon = unprotected ? INFINITY : tacit_budget_epsilon(&b);
    return status;
}

#define BUDGET_FORMAT 1

void tacit_budget_write(const tacit_budget *b, uint8_t out[TACIT_BUDGET_BYTES])
{
    uint64_t delta;
    memcpy(&delta, &b->delta, sizeof delta);
    tacit_store_u32(out, BUDGET_FORMAT);
    tacit_store_u64(out + 4, delta);
    tacit_store_u32(out + 12, (uint32_t)b->filter_order);
    tacit_store_u64(out + 16, b->noise_values);
    tacit_store_u32(out + 24, b->schedules);
    tacit_store_u32(out + 28, b->unprotected);
    tacit_store_u32(out + 32, b->lost);
    for (size_t i = 0; i < TACIT_RDP_ORDERS; i++) {
        tacit_store_u64(out + 36 + 16 * i, (uint64_t)b->spent.rho[i]);
        tacit_store_u64(out + 44 + 16 * i, (uint64_t)(b->spent.rho[i] >> 64));
    }
}

tacit_status tacit_budget_read(tacit_budget *out, const void *bytes, size_t size, tacit_error *err)
{
    tacit_cursor c = tacit_cursor_over(bytes, size);
    uint32_t format = tacit_cursor_u32(&c);
    *out = (tacit_budget){.delta = tacit_cursor_f64(&c)};
    out->filter_order = tacit_cursor_u32(&c);
    out->noise_values = tacit_cursor_u64(&c);
    out->schedules = tacit_cursor_u32(&c);
    out->unprotected = tacit_cursor_u32(&c);
    uint32_t lost = tacit_cursor_u32(&c);
    out->lost = lost == 1;
    for (size_t i = 0; i < TACIT_RDP_ORDERS; i++) {
        uint64_t low = tacit_cursor_u64(&c);
        out->spent.rho[i] = (unsigned __int128)tacit_cursor_u64(&c) << 64 | low;
    }
    if (c.failed || size != TACIT_BUDGET_BYTES || format != BUDGET_FORMAT || lost > 1 ||
        out->filter_order >= TACIT_RDP_ORDERS || !(out->delta > 0 && out->delta < 1))
        return tacit_fail(err, TACIT_BAD_INPUT, "stored budget: malformed");
    return TACIT_OK;
}

bool tacit_budget_same(double a, double b)
{
    if (isinf(a) || isinf(b))
        return a == b;
    return fabs(a - b) <= 1e-9 * fmax(fabs(a), fabs(b));
}
