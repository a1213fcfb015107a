#include "engine/rate_schedule.h"

#include <math.h>
#include <stddef.h>
#include <string.h>

#define PI 3.14159265358979323846

double tacit_rate_at(const tacit_rate_schedule *s, uint64_t step)
{
    if (step < s->warmup)
        return (double)(step + 1) / ((double)s->warmup + 1);
    if (s->kind == TACIT_RATE_CONSTANT || s->steps <= s->warmup)
        return 1;
    uint64_t last = s->steps - 1;
    double down =
        (double)((step < last ? step : last) - s->warmup) / (double)(s->steps - s->warmup);
    return s->kind == TACIT_RATE_LINEAR ? 1 - down : 0.5 * (1 + cos(PI * down));
}

bool tacit_rate_kind_find(tacit_rate_kind *out, const char *name)
{
    static const char *const names[] = {"constant", "linear", "cosine"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (strcmp(names[i], name) == 0) {
            *out = (tacit_rate_kind)i;
            return true;
        }
    return false;
}
