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
#define STEP_LEAST 1e-9
#define EXCESS 1e-4 /* step^2 / (12 v) */

/* Of sampled events; plain Gaussians alone have an exact answer, which takes no grid (0). */
static double normative_step(const tacit_event_list *list)
{
    double variance = 0, squares = 0, runs = 1;
    bool sampled = false;
    for (uint32_t i = 0; i < list->n; i++) {
        const tacit_event *e = &list->item[i];
        double of_one = 1 / (e->sigma * e->sigma), n = (double)e->count;
        sampled = sampled || e->q < 1;
        squares += e->q < 1 ? 0 : n * of_one;
        variance += e->q < 1 ? n * e->q * e->q * expm1(of_one) : 0;
        runs += e->q < 1 ? n : 0;
    }
    double wanted = sqrt(12 * EXCESS * (variance + squares) / runs);
    if (!sampled)
        return 0;
    return wanted >= STEP_UNIT ? STEP_UNIT * floor(fmin(wanted, STEP_MOST) / STEP_UNIT)
                               : STEP_UNIT / ceil(STEP_UNIT / fmax(wanted, STEP_LEAST));
}

tacit_status tacit_pld_epsilon_of(const tacit_event_list *list, double delta, double *epsilon,
                                  tacit_error *err)
{
    *epsilon = INFINITY;
    if (list->too_many || find(list, delta, epsilon))
        return TACIT_OK;
    const tacit_pld_grid grid = {.interval = normative_step(list)};
    tacit_status status = tacit_pld_epsilon(list->item, list->n, delta, &grid, epsilon, err);
    if (status == TACIT_NO_MEMORY)
        return status;
    if (status != TACIT_OK)
        *epsilon = INFINITY;
    remember(list, delta, *epsilon);
    return TACIT_OK;
}
