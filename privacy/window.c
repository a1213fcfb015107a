#include "privacy/window.h"

#include "common/bytes.h"
#include "privacy/budget.h"
#include "privacy/entry.h"

#include <math.h>
#include <stdlib.h>

void tacit_window_free(tacit_window *w)
{
    free(w->item);
    *w = (tacit_window){0};
}

tacit_status tacit_window_push(tacit_window *w, const tacit_event *event, uint64_t values,
                               tacit_error *err)
{
    if (w->count == w->capacity) {
        size_t capacity = w->capacity ? 2 * w->capacity : 16;
        tacit_window_item *grown = realloc(w->item, capacity * sizeof *grown);
        if (!grown)
            return tacit_fail(err, TACIT_NO_MEMORY, "window: no memory for %zu reserves", capacity);
        w->item = grown;
        w->capacity = capacity;
    }
    w->item[w->count++] = (tacit_window_item){*event, values};
    return TACIT_OK;
}

tacit_status tacit_window_push_reserve(tacit_window *w, const Tacit__Reserve *reserve,
                                       tacit_error *err)
{
    tacit_event event;
    if (reserve->kind == TACIT_MECHANISM_NONE)
        return TACIT_OK;
    tacit_status status = tacit_budget_event(&event, reserve, err);
    return status == TACIT_OK ? tacit_window_push(w, &event, tacit_budget_values(reserve), err)
                              : status;
}

tacit_status tacit_window_push_schedule(tacit_window *w, const Tacit__Schedule *schedule,
                                        uint64_t values, tacit_error *err)
{
    tacit_status status = TACIT_OK;
    for (size_t i = 0; i < schedule->n_rounds && status == TACIT_OK; i++) {
        tacit_mechanism m;
        tacit_event event;
        status = tacit_mechanism_from_message(&m, schedule->rounds[i]->mechanism, err);
        if (status != TACIT_OK || m.kind == TACIT_MECHANISM_NONE)
            continue;
        status = tacit_event_from_mechanism(&event, &m, 1, err);
        if (status == TACIT_OK)
            status =
                tacit_window_push(w, &event, tacit_step_noise_values(values, m.quantile_b), err);
    }
    return status;
}

tacit_status tacit_window_push_entry(tacit_window *w, const void *bytes, size_t size,
                                     tacit_error *err)
{
    tacit_entry e;
    tacit_status status = tacit_entry_read(&e, bytes, size, err);
    if (status != TACIT_OK)
        return status;
    status = e.entry->body_case == TACIT__ENTRY__BODY_RESERVE
                 ? tacit_window_push_reserve(w, e.entry->reserve, err)
                 : tacit_fail(err, TACIT_BAD_INPUT, "window: the entry is no reserve");
    tacit_entry_close(&e);
    return status;
}

void tacit_window_reverse(tacit_window *w)
{
    for (size_t i = 0, j = w->count; i + 1 < j; i++) {
        tacit_window_item kept = w->item[i];
        w->item[i] = w->item[--j];
        w->item[j] = kept;
    }
}

size_t tacit_window_back(const tacit_policy *policy)
{
    return policy->window_reserves ? policy->window_reserves - 1 : 0;
}

/* What one item costs at the window's order; sums are exact, so they can be taken back. */
typedef struct window_cost {
    unsigned __int128 rho;
    uint64_t noise_values;
} window_cost;

bool tacit_window_same(const tacit_window_item *a, const tacit_window_item *b)
{
    return a->values == b->values && a->event.neighbours == b->event.neighbours &&
           a->event.sigma == b->event.sigma && a->event.q == b->event.q &&
           a->event.count == b->event.count;
}

/* At the window's order alone: who reserves what has no two rounds alike must not make everybody
 * else compute all the others. Rounds are usually alike: an equal neighbour's cost is taken over.
 */
static tacit_status cost_items(window_cost *cost, const tacit_window *w, size_t order,
                               tacit_error *err)
{
    for (size_t i = 0; i < w->count; i++) {
        if (i && tacit_window_same(&w->item[i], &w->item[i - 1])) {
            cost[i] = cost[i - 1];
            continue;
        }
        const tacit_event *event = &w->item[i].event;
        if (!tacit_mul_u64(w->item[i].values, event->count, &cost[i].noise_values))
            return tacit_fail(err, TACIT_REFUSED, "window: too many noise values to account for");
        tacit_status status = tacit_rdp_add_at(&cost[i].rho, event, order, err);
        if (status != TACIT_OK)
            return status;
    }
    return TACIT_OK;
}

/* Epsilon of the items [begin, end) at the order that `b` was opened with. Infinite costs stay so.
 */
static double epsilon_of(tacit_budget *b, const window_cost *cost, size_t begin, size_t end)
{
    unsigned __int128 rho = 0;
    uint64_t noise_values = 0;
    for (size_t i = begin; i < end; i++)
        if (__builtin_add_overflow(rho, cost[i].rho, &rho) ||
            __builtin_add_overflow(noise_values, cost[i].noise_values, &noise_values))
            return INFINITY;
    b->spent.rho[b->filter_order] = rho;
    b->noise_values = noise_values;
    return tacit_budget_filter_epsilon(b);
}

tacit_status tacit_window_worst(double *worst, const tacit_policy *policy, const tacit_window *w,
                                size_t from, tacit_error *err)
{
    tacit_budget b;
    *worst = 0;
    if (policy->window_reserves == 0 || from >= w->count)
        return TACIT_OK;
    window_cost *cost = calloc(w->count, sizeof *cost);
    if (!cost)
        return tacit_fail(err, TACIT_NO_MEMORY, "window: no memory for %zu reserves", w->count);
    tacit_budget_open(&b, policy->window_epsilon, policy->delta);
    tacit_status status = cost_items(cost, w, b.filter_order, err);
    for (size_t end = from + 1; status == TACIT_OK && end <= w->count; end++) {
        size_t begin = end > policy->window_reserves ? end - policy->window_reserves : 0;
        *worst = fmax(*worst, epsilon_of(&b, cost, begin, end));
    }
    free(cost);
    return status;
}

tacit_status tacit_window_check(const tacit_policy *policy, const tacit_window *w, size_t from,
                                const char *what, tacit_error *err)
{
    double worst;
    tacit_status status = tacit_window_worst(&worst, policy, w, from, err);
    if (status == TACIT_OK && policy->window_reserves && !(worst <= policy->window_epsilon))
        status =
            tacit_fail(err, TACIT_REFUSED,
                       "%s brings %u reserves in a row to epsilon %.6g at delta %.6g, this "
                       "device's window allows %.6g; ask the operator for cheaper rounds",
                       what, policy->window_reserves, worst, policy->delta, policy->window_epsilon);
    return status;
}
