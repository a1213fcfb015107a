#include "privacy/report.h"

#include "common/text.h"

#include <math.h>
#include <stdlib.h>

double report_epsilon(const tacit_audit_device *d)
{
    return d->non_private ? INFINITY : d->epsilon;
}

double report_epsilon_subject(const tacit_audit_device *d)
{
    return d->non_private ? INFINITY : d->epsilon_subject;
}

double report_share(const tacit_audit_device *d)
{
    double epsilon = report_epsilon(d);
    if (d->cap > 0)
        return epsilon / d->cap;
    return epsilon > 0 ? INFINITY : 0;
}

/* --- which device spent the largest share --- */

typedef struct ranked {
    double share;
    size_t device;
} ranked;

static int by_share(const void *a, const void *b)
{
    const ranked *x = a, *y = b;
    if (x->share != y->share)
        return x->share > y->share ? -1 : 1;
    return x->device < y->device ? -1 : x->device > y->device;
}

static tacit_status rank(report *r, tacit_error *err)
{
    size_t n = r->audit->device_count;
    ranked *list = calloc(n + 1, sizeof *list);
    if (!list)
        return tacit_fail(err, TACIT_NO_MEMORY, "report: no memory for %zu devices", n);
    for (size_t i = 0; i < n; i++)
        list[i] = (ranked){report_share(&r->audit->devices[i]), i};
    qsort(list, n, sizeof *list, by_share);
    for (size_t i = 0; i < n; i++)
        r->by_share[i] = list[i].device;
    free(list);
    return TACIT_OK;
}

/* --- the points of each device, in the order of the log --- */

static void group_points(report *r)
{
    const tacit_audit *a = r->audit;
    for (size_t i = 0; i < a->point_count; i++)
        r->first[a->points[i].device + 1]++;
    for (size_t d = 0; d < a->device_count; d++)
        r->first[d + 1] += r->first[d];
    for (size_t i = 0; i < a->point_count; i++)
        r->of_device[r->first[a->points[i].device]++] = i;
    for (size_t d = a->device_count; d > 0; d--)
        r->first[d] = r->first[d - 1];
    r->first[0] = 0;
}

tacit_status report_open(report *r, const tacit_audit *audit, const char *date, tacit_error *err)
{
    *r = (report){.audit = audit, .date = date};
    r->by_share = calloc(audit->device_count + 1, sizeof *r->by_share);
    r->first = calloc(audit->device_count + 2, sizeof *r->first);
    r->of_device = calloc(audit->point_count + 1, sizeof *r->of_device);
    if (!r->by_share || !r->first || !r->of_device) {
        report_close(r);
        return tacit_fail(err, TACIT_NO_MEMORY, "report: no memory for %zu devices",
                          audit->device_count);
    }
    group_points(r);
    tacit_status status = rank(r, err);
    if (status != TACIT_OK)
        report_close(r);
    return status;
}

void report_close(report *r)
{
    free(r->by_share);
    free(r->first);
    free(r->of_device);
    *r = (report){0};
}
