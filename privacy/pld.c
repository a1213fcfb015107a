#include "privacy/pld.h"

#include "privacy/gaussian.h"
#include "privacy/loss_sum.h"

#include <math.h>
#include <stdbool.h>
#include <stdlib.h>

#define DEFAULT_STEP 1e-4
#define LEAST_STEP 1e-12
#define DEFAULT_EXCESS 1e-4         /* step^2 / (12 v) of the default grid */
#define DEFAULT_TAIL 9.64374924e-23 /* e^-50 / 2 */
#define TAIL_OF_DELTA 1e-6          /* what the tails of all runs may take of delta */
/* Longest grid or window for which the default step stays below 1e-4, and longest at all. */
#define FINE_POINTS 0x1p20
#define MOST_POINTS 0x1p22

/* --- Events, merged. --- */

/* Distinct sampled events in a fixed order, and all unsampled ones as one Gaussian. */
typedef struct plan {
    tacit_event *events;
    size_t n;
    double gaussian_sigma; /* 0: none */
    double step, tail;
    bool replace, adapt; /* adapt: the step may grow where a window would be too long */
} plan;

static tacit_status check_events(const tacit_event *events, size_t n, tacit_error *err)
{
    for (size_t i = 0; i < n; i++) {
        tacit_status status = tacit_event_validate(&events[i], err);
        if (status != TACIT_OK)
            return status;
        if (events[i].neighbours != events[0].neighbours)
            return tacit_fail(err, TACIT_BAD_INPUT,
                              "pld accountant: all events must have the same neighbours");
    }
    return TACIT_OK;
}

static loss_pair first_pair(const plan *p)
{
    return p->replace ? LOSS_REPLACE : LOSS_REMOVE;
}

static loss_shape sampled_shape(const plan *p, const tacit_event *e)
{
    return (loss_shape){first_pair(p), e->sigma, e->q, p->step, p->tail};
}

/* N(0) against N(2) is N(0) against N(1) at half the noise. */
static loss_shape gaussian_shape(const plan *p)
{
    return (loss_shape){LOSS_REMOVE, p->gaussian_sigma / (p->replace ? 2 : 1), 1, p->step, p->tail};
}

static double most_points(const plan *p)
{
    double most = 0;
    for (size_t i = 0; i < p->n; i++) {
        loss_shape shape = sampled_shape(p, &p->events[i]);
        most = fmax(most, loss_grid_points(&shape));
    }
    if (p->gaussian_sigma > 0) {
        loss_shape shape = gaussian_shape(p);
        most = fmax(most, loss_grid_points(&shape));
    }
    return most;
}

static bool too_long(double points, double step)
{
    return points > (step < DEFAULT_STEP ? FINE_POINTS : MOST_POINTS);
}

/* The next step where one makes too many points. Below 1e-4 all are whole parts of it: a grid that
 * holds the points of a coarser one gives no more than that. */
static double coarser(double step)
{
    double parts = round(DEFAULT_STEP / step);
    return parts > 1 ? DEFAULT_STEP / ceil(parts / 2) : 2 * step;
}

double tacit_pld_run_variance(const tacit_event *event)
{
    double of_one = 1 / (event->sigma * event->sigma);
    return event->q < 1 ? event->q * event->q * expm1(of_one) : of_one;
}

/* sqrt(12 excess v), v the mean variance of one run: the step that DEFAULT_EXCESS asks for. */
static double wanted_step(const plan *p)
{
    double variance = 0, runs = 0;
    for (size_t i = 0; i < p->n; i++) {
        const tacit_event *e = &p->events[i];
        variance += (double)e->count * tacit_pld_run_variance(e);
        runs += (double)e->count;
    }
    if (p->gaussian_sigma > 0) {
        variance += 1 / (p->gaussian_sigma * p->gaussian_sigma);
        runs += 1;
    }
    return sqrt(12 * DEFAULT_EXCESS * variance / runs);
}

/* 1e-4, or the part of it that is at most what is wanted; coarser where a grid is too long. */
static void choose_step(plan *p)
{
    double wanted = wanted_step(p);
    p->step = DEFAULT_STEP / fmax(1, ceil(DEFAULT_STEP / fmax(wanted, LEAST_STEP)));
    while (too_long(most_points(p), p->step))
        p->step = coarser(p->step);
}

static int compare_events(const void *left, const void *right)
{
    const tacit_event *a = left, *b = right;
    if (a->sigma != b->sigma)
        return a->sigma < b->sigma ? -1 : 1;
    return a->q < b->q ? -1 : a->q > b->q;
}

/* p->events: those that are sampled, equal ones as one, so that the answer depends neither on their
 * order nor on how runs are split into events. */
static tacit_status merge_events(plan *p, const tacit_event *events, size_t n, tacit_error *err)
{
    size_t sampled = 0;
    p->events = calloc(n + 1, sizeof *p->events);
    if (!p->events)
        return tacit_fail(err, TACIT_NO_MEMORY, "pld accountant: no memory for %zu events", n);
    for (size_t i = 0; i < n; i++)
        if (events[i].q < 1 && events[i].count > 0)
            p->events[sampled++] = events[i];
    qsort(p->events, sampled, sizeof *p->events, compare_events);
    for (size_t i = 0; i < sampled; i++) {
        if (p->n == 0 || compare_events(&p->events[p->n - 1], &p->events[i]) != 0)
            p->events[p->n++] = p->events[i];
        else if (__builtin_add_overflow(p->events[p->n - 1].count, p->events[i].count,
                                        &p->events[p->n - 1].count))
            return tacit_fail(err, TACIT_BAD_INPUT, "pld accountant: more than 2^64 runs");
    }
    return TACIT_OK;
}

/* `delta` is 1 where it is what is asked for. */
static tacit_status plan_init(plan *p, const tacit_event *events, size_t n, double delta,
                              const tacit_pld_grid *grid, tacit_error *err)
{
    *p = (plan){.replace = n && events[0].neighbours == TACIT_REPLACE_ONE};
    double squares = 0, runs = 1;
    for (size_t i = 0; i < n; i++) {
        runs += (double)events[i].count;
        if (events[i].q == 1)
            squares += (double)events[i].count / (events[i].sigma * events[i].sigma);
    }
    tacit_status status = merge_events(p, events, n, err);
    if (status != TACIT_OK)
        return status;
    p->gaussian_sigma = squares > 0 ? 1 / sqrt(squares) : 0;
    p->tail = grid->tail > 0 ? grid->tail : fmin(DEFAULT_TAIL, TAIL_OF_DELTA * delta / runs);
    p->step = grid->interval;
    p->adapt = grid->interval == 0;
    if (p->adapt && (p->n > 0 || p->gaussian_sigma > 0))
        choose_step(p);
    return TACIT_OK;
}

/* --- One pair of distributions: the grids of all events. --- */

static tacit_status add_grid(loss_sum *sum, const loss_shape *shape, uint64_t count,
                             tacit_error *err)
{
    loss_grid grid;
    tacit_status status = loss_grid_init(&grid, shape, err);
    return status == TACIT_OK ? loss_sum_add(sum, &grid, count, err) : status;
}

static tacit_status add_both(loss_sum *first, loss_sum *other, const loss_shape *shape,
                             uint64_t count, tacit_error *err)
{
    loss_grid remove, add;
    tacit_status status = loss_grid_init_both(&remove, &add, shape, err);
    if (status != TACIT_OK)
        return status;
    status = loss_sum_add(first, &remove, count, err);
    if (status == TACIT_OK)
        return loss_sum_add(other, &add, count, err);
    loss_grid_fini(&add);
    return status;
}

/* *other is NULL where one direction is as bad as the other. */
static tacit_status sums_new(loss_sum **first, loss_sum **other, const plan *p, tacit_error *err)
{
    tacit_status status;
    *other = NULL;
    TACIT_TRY(loss_sum_new(first, p->n + 1, err), out);
    if (!p->replace && p->n > 0)
        TACIT_TRY(loss_sum_new(other, p->n + 1, err), out);
    for (size_t i = 0; i < p->n; i++) {
        loss_shape shape = sampled_shape(p, &p->events[i]);
        if (*other)
            TACIT_TRY(add_both(*first, *other, &shape, p->events[i].count, err), out);
        else
            TACIT_TRY(add_grid(*first, &shape, p->events[i].count, err), out);
    }
    if (p->gaussian_sigma > 0) {
        loss_shape shape = gaussian_shape(p);
        TACIT_TRY(add_grid(*first, &shape, 1, err), out);
        if (*other)
            TACIT_TRY(add_grid(*other, &shape, 1, err), out);
    }
out:
    return status;
}

/* One attempt at p->step. *again: where it may adapt, a window that is too long only makes p->step
 * coarser, as often as needed; a guess that was wrong is not made again. */
static tacit_status ask_once(plan *p, loss_query *q, bool adapt, double *answer, bool *again,
                             tacit_error *err)
{
    tacit_status status;
    loss_sum *first = NULL, *other = NULL;
    *again = false;
    TACIT_TRY(sums_new(&first, &other, p, err), out);
    double points = loss_sum_aim(first, q);
    if (other)
        points = fmax(points, loss_sum_aim(other, q));
    if (adapt && too_long(points, p->step)) {
        *again = true;
        while (too_long(points, p->step) && points < INFINITY) {
            double step = coarser(p->step);
            points *= p->step / step;
            p->step = step;
        }
    } else {
        status = loss_sum_solve(first, other, points, q, answer, err);
        *again = status == TACIT_OK && isnan(*answer);
        q->guess = q->guess && !*again;
    }
out:
    loss_sum_free(first);
    loss_sum_free(other);
    return status;
}

static tacit_status ask(plan *p, loss_query q, double *answer, tacit_error *err)
{
    bool again = true;
    tacit_status status = TACIT_OK;
    for (int attempt = 0; again && status == TACIT_OK; attempt++)
        status = ask_once(p, &q, p->adapt && attempt < 7, answer, &again, err);
    return status;
}

/* The plan, whose events are freed by the caller; `grid` may be NULL. */
static tacit_status prepare(plan *p, const tacit_event *events, size_t n, double delta,
                            const tacit_pld_grid *grid, tacit_error *err)
{
    static const tacit_pld_grid defaults = {0, 0};
    tacit_status status = check_events(events, n, err);
    if (status != TACIT_OK)
        return status;
    grid = grid ? grid : &defaults;
    if (!(grid->interval >= 0 && grid->interval <= 1))
        return tacit_fail(err, TACIT_BAD_INPUT,
                          "pld accountant: expected an interval up to 1, found %g", grid->interval);
    if (!(grid->tail == 0 ||
          (grid->tail >= TACIT_PLD_TAIL_MIN && grid->tail <= TACIT_PLD_TAIL_MAX)))
        return tacit_fail(err, TACIT_BAD_INPUT,
                          "pld accountant: expected a tail mass from %g to %g, found %g",
                          TACIT_PLD_TAIL_MIN, TACIT_PLD_TAIL_MAX, grid->tail);
    return plan_init(p, events, n, delta, grid, err);
}

tacit_status tacit_pld_epsilon(const tacit_event *events, size_t n, double delta,
                               const tacit_pld_grid *grid, double *epsilon, tacit_error *err)
{
    plan p = {.events = NULL};
    tacit_status status;
    if (!(delta > 0 && delta < 1))
        return tacit_fail(err, TACIT_BAD_INPUT,
                          "delta: expected a number between 0 and 1, found %g", delta);
    TACIT_TRY(prepare(&p, events, n, delta, grid, err), out);
    *epsilon = 0;
    if (p.n == 0 && (p.adapt || p.gaussian_sigma == 0)) {
        double mu = p.gaussian_sigma > 0 ? (p.replace ? 2 : 1) / p.gaussian_sigma : 0;
        *epsilon = tacit_gaussian_epsilon(delta, mu);
    } else {
        const loss_query q = {.for_epsilon = true, .guess = true, .delta = delta};
        status = ask(&p, q, epsilon, err);
    }
out:
    free(p.events);
    return status;
}

tacit_status tacit_pld_delta(const tacit_event *events, size_t n, double epsilon,
                             const tacit_pld_grid *grid, double *delta, tacit_error *err)
{
    plan p = {.events = NULL};
    tacit_status status;
    TACIT_TRY(prepare(&p, events, n, 1, grid, err), out);
    if (!(epsilon >= 0 && epsilon < INFINITY)) {
        status = tacit_fail(err, TACIT_BAD_INPUT,
                            "epsilon: expected a finite number from 0, found %g", epsilon);
        goto out;
    }
    *delta = 0;
    if (p.n > 0 || p.gaussian_sigma > 0) {
        const loss_query q = {.epsilon = epsilon};
        status = ask(&p, q, delta, err);
    }
out:
    free(p.events);
    return status;
}
