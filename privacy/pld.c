#include "privacy/pld.h"

#include "privacy/gaussian.h"
#include "privacy/loss_sum.h"

#include <math.h>
#include <stdbool.h>

#define DEFAULT_STEP 1e-4
#define LEAST_STEP 1e-12
#define DEFAULT_EXCESS 1e-4         /* step^2 / (12 v) of the default grid */
#define DEFAULT_TAIL 9.64374924e-23 /* e^-50 / 2 */
#define TAIL_OF_DELTA 1e-6          /* what the tails of all runs may take of delta */
/* Longest grid or window for which the default step stays below 1e-4, and longest at all. */
#define FINE_POINTS 0x1p20
#define MOST_POINTS 0x1p22

/* --- Events, merged. --- */

/* Distinct sampled events, and all unsampled ones as one Gaussian of parameter mu. */
typedef struct plan {
    const tacit_event *events;
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

static loss_shape sampled_shape(const plan *p, const tacit_event *e, loss_pair pair)
{
    return (loss_shape){pair, e->sigma, e->q, p->step, p->tail};
}

/* N(0) against N(2) is N(0) against N(1) at half the noise. */
static loss_shape gaussian_shape(const plan *p)
{
    return (loss_shape){LOSS_REMOVE, p->gaussian_sigma / (p->replace ? 2 : 1), 1, p->step, p->tail};
}

static loss_pair first_pair(const plan *p)
{
    return p->replace ? LOSS_REPLACE : LOSS_REMOVE;
}

static double most_points(const plan *p)
{
    double most = 0;
    for (size_t i = 0; i < p->n; i++)
        if (p->events[i].q < 1) {
            loss_shape shape = sampled_shape(p, &p->events[i], first_pair(p));
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

/* 1e-4, or the part of it that is at most sqrt(12 excess v); coarser where a grid is too long. */
static void choose_step(plan *p)
{
    double variance = 0, runs = 0;
    for (size_t i = 0; i < p->n; i++) {
        const tacit_event *e = &p->events[i];
        if (e->q == 1)
            continue;
        variance += (double)e->count * e->q * e->q * expm1(1 / (e->sigma * e->sigma));
        runs += (double)e->count;
    }
    if (p->gaussian_sigma > 0) {
        variance += 1 / (p->gaussian_sigma * p->gaussian_sigma);
        runs += 1;
    }
    double wanted = sqrt(12 * DEFAULT_EXCESS * variance / runs);
    p->step = DEFAULT_STEP / fmax(1, ceil(DEFAULT_STEP / fmax(wanted, LEAST_STEP)));
    while (too_long(most_points(p), p->step))
        p->step = coarser(p->step);
}

/* `delta` is 1 where it is what is asked for. */
static plan plan_of(const tacit_event *events, size_t n, double delta, const tacit_pld_grid *grid)
{
    plan p = {.events = events, .n = n, .replace = n && events[0].neighbours == TACIT_REPLACE_ONE};
    double squares = 0, runs = 1;
    for (size_t i = 0; i < n; i++) {
        runs += (double)events[i].count;
        if (events[i].q == 1)
            squares += (double)events[i].count / (events[i].sigma * events[i].sigma);
    }
    p.gaussian_sigma = squares > 0 ? 1 / sqrt(squares) : 0;
    p.tail = grid->tail > 0 ? grid->tail : fmin(DEFAULT_TAIL, TAIL_OF_DELTA * delta / runs);
    p.step = grid->interval;
    p.adapt = grid->interval == 0;
    if (p.adapt)
        choose_step(&p);
    return p;
}

static bool has_samples(const plan *p)
{
    for (size_t i = 0; i < p->n; i++)
        if (p->events[i].q < 1 && p->events[i].count > 0)
            return true;
    return false;
}

/* --- One pair of distributions: the grids of all events. --- */

static tacit_status add_grid(loss_sum *sum, const loss_shape *shape, uint64_t count,
                             tacit_error *err)
{
    loss_grid grid;
    tacit_status status = loss_grid_init(&grid, shape, err);
    return status == TACIT_OK ? loss_sum_add(sum, &grid, count, err) : status;
}

static tacit_status sum_new(loss_sum **out, const plan *p, loss_pair pair, tacit_error *err)
{
    loss_shape shape;
    tacit_status status = loss_sum_new(out, p->n + 1, err);
    for (size_t i = 0; i < p->n && status == TACIT_OK; i++) {
        const tacit_event *e = &p->events[i];
        if (e->q == 1 || e->count == 0)
            continue;
        shape = sampled_shape(p, e, pair);
        status = add_grid(*out, &shape, e->count, err);
    }
    if (status == TACIT_OK && p->gaussian_sigma > 0) {
        shape = gaussian_shape(p);
        status = add_grid(*out, &shape, 1, err);
    }
    return status;
}

/* One attempt at p->step. Where it may adapt, a window that is too long only makes p->step
 * coarser, as often as needed, and leaves *answer: the caller asks again. */
static tacit_status ask_once(plan *p, const loss_query *q, bool adapt, double *answer, bool *again,
                             tacit_error *err)
{
    tacit_status status;
    loss_sum *first = NULL, *other = NULL;
    *again = false;
    TACIT_TRY(sum_new(&first, p, first_pair(p), err), out);
    if (!p->replace && has_samples(p))
        TACIT_TRY(sum_new(&other, p, LOSS_ADD, err), out);
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
    }
out:
    loss_sum_free(first);
    loss_sum_free(other);
    return status;
}

static tacit_status ask(plan *p, const loss_query *q, double *answer, tacit_error *err)
{
    bool again = true;
    tacit_status status = TACIT_OK;
    for (int attempt = 0; again && attempt < 8 && status == TACIT_OK; attempt++)
        status = ask_once(p, q, p->adapt && attempt < 7, answer, &again, err);
    return status;
}

/* The plan; `grid` may be NULL. */
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
    *p = plan_of(events, n, delta, grid);
    return TACIT_OK;
}

tacit_status tacit_pld_epsilon(const tacit_event *events, size_t n, double delta,
                               const tacit_pld_grid *grid, double *epsilon, tacit_error *err)
{
    plan p;
    if (!(delta > 0 && delta < 1))
        return tacit_fail(err, TACIT_BAD_INPUT,
                          "delta: expected a number between 0 and 1, found %g", delta);
    tacit_status status = prepare(&p, events, n, delta, grid, err);
    if (status != TACIT_OK)
        return status;
    *epsilon = 0;
    if (!has_samples(&p) && (p.adapt || p.gaussian_sigma == 0)) {
        double mu = p.gaussian_sigma > 0 ? (p.replace ? 2 : 1) / p.gaussian_sigma : 0;
        *epsilon = tacit_gaussian_epsilon(delta, mu);
        return TACIT_OK;
    }
    const loss_query q = {.for_epsilon = true, .delta = delta};
    return ask(&p, &q, epsilon, err);
}

tacit_status tacit_pld_delta(const tacit_event *events, size_t n, double epsilon,
                             const tacit_pld_grid *grid, double *delta, tacit_error *err)
{
    plan p;
    tacit_status status = prepare(&p, events, n, 1, grid, err);
    if (status != TACIT_OK)
        return status;
    if (!(epsilon >= 0 && epsilon < INFINITY))
        return tacit_fail(err, TACIT_BAD_INPUT,
                          "epsilon: expected a finite number from 0, found %g", epsilon);
    *delta = 0;
    if (!has_samples(&p) && p.gaussian_sigma == 0)
        return TACIT_OK;
    const loss_query q = {.epsilon = epsilon};
    return ask(&p, &q, delta, err);
}
