#include "privacy/pld_memo.h"

#include "privacy/pld.h"

#include <math.h>
#include <pthread.h>

#define REMEMBERED 256

typedef struct answer {
    tacit_event_list list;
    double delta, epsilon;
} answer;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static answer answers[REMEMBERED]; /* under `lock`, as the next two */
static size_t known, next;

static bool find(const tacit_event_list *list, double delta, double *epsilon)
{
    bool found = false;
    pthread_mutex_lock(&lock);
    for (size_t i = 0; i < known && !found; i++) {
        found = answers[i].delta == delta && tacit_event_list_equal(&answers[i].list, list);
        if (found)
            *epsilon = answers[i].epsilon;
    }
    pthread_mutex_unlock(&lock);
    return found;
}

/* Two threads may have computed the same: it is then there twice, and both are right. */
static void remember(const tacit_event_list *list, double delta, double epsilon)
{
    pthread_mutex_lock(&lock);
    answers[next] = (answer){.list = *list, .delta = delta, .epsilon = epsilon};
    next = (next + 1) % REMEMBERED;
    known += known < REMEMBERED;
    pthread_mutex_unlock(&lock);
}

#define STEP_UNIT 1e-4
#define STEP_MOST 5e-3
#define STEP_LEAST 1e-12

/* The relative excess, step^2 / (12 v), that a grid is made for: more for many runs, whose sum has
 * about 6 sqrt(runs / excess) points, or where one run alone would have more than MOST_POINTS. */
#define EXCESS_LEAST 1e-4
#define EXCESS_A_RUN 2e-9
#define EXCESS_MOST 1e-2
#define MOST_POINTS 0x1p17
#define REACH 11 /* deviations, about as far as grids go */

/* Of the losses of one run, roughly. */
static double highest_loss(const tacit_event *e)
{
    double gain = (2 * REACH * e->sigma + 1) / (2 * e->sigma * e->sigma);
    return gain > 30 ? gain + log(e->q) : log1p(e->q * expm1(gain));
}

/* Of sampled events; 0 where an answer takes no grid, since plain Gaussians alone have an exact
 * one; +inf where none is made: RDP says as much. */
static double normative_step(const tacit_event_list *list)
{
    double variance = 0, runs = 0, highest = 0;
    bool sampled = false;
    for (uint32_t i = 0; i < list->n; i++) {
        const tacit_event *e = &list->item[i];
        double n = (double)e->count;
        sampled = sampled || e->q < 1;
        highest = fmax(highest, highest_loss(e));
        variance += n * tacit_pld_run_variance(e);
        runs += e->q < 1 ? n : 0;
    }
    if (!sampled)
        return 0;
    double mean = 12 * variance / (runs + 1);
    double step = fmax(sqrt(mean * fmax(EXCESS_LEAST, EXCESS_A_RUN * runs)), STEP_LEAST);
    step = fmax(fmin(step, STEP_MOST), highest / MOST_POINTS);
    if (step * step > mean * EXCESS_MOST)
        return INFINITY;
    return step >= STEP_UNIT ? STEP_UNIT * floor(step / STEP_UNIT)
                             : STEP_UNIT / ceil(STEP_UNIT / step);
}

tacit_status tacit_pld_epsilon_of(const tacit_event_list *list, double delta, double *epsilon,
                                  tacit_error *err)
{
    *epsilon = INFINITY;
    const tacit_pld_grid grid = {.interval = normative_step(list)};
    if (list->too_many || grid.interval == INFINITY || find(list, delta, epsilon))
        return TACIT_OK;
    tacit_status status = tacit_pld_epsilon(list->item, list->n, delta, &grid, epsilon, err);
    if (status == TACIT_NO_MEMORY)
        return status;
    if (status != TACIT_OK)
        *epsilon = INFINITY;
    remember(list, delta, *epsilon);
    return TACIT_OK;
}
