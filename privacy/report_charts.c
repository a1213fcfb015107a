/* Charts as SVG, drawn from the audit alone: step lines, because an account jumps at a reserve. */
#include "privacy/report.h"

#include <math.h>
#include <stdlib.h>

/* Above this share nothing is told apart; an account may stand above a cap that was lowered. */
#define SHARE_TOP 2.0
/* More single lines than these are a blot: the quantiles stay. */
#define LINES_MAX 30
#define SAMPLES 120

#define VISIBLE 0.3 /* of the units of a drawing */

/* --- a step line, thinned to what its pixels can show --- */

typedef struct line {
    markup *m;
    double x, y; /* of the last point */
    bool open;
} line;

static void line_begin(line *l, markup *m, const char *class, double x, double y)
{
    *l = (line){m, x, y, true};
    markup_format(m, "<path class=\"%s\" d=\"M%.1f %.1f", class, x, y);
}

/* Right to x, then up to y. */
static void line_step(line *l, double x, double y)
{
    if (fabs(y - l->y) < VISIBLE)
        return;
    markup_format(l->m, "H%.1fV%.1f", x, y);
    l->x = x;
    l->y = y;
}

static void line_end(line *l, double x)
{
    markup_format(l->m, "H%.1f\"/>", x);
}

/* --- curves of the fleet --- */

#define WIDTH 440.0
#define HEIGHT 250.0
#define LEFT 54.0
#define RIGHT 430.0
#define TOP 12.0
#define BOTTOM 206.0

typedef struct axes {
    double entries, top; /* what the right edge and the upper edge stand for */
} axes;

static double x_of(const axes *a, double entry)
{
    return LEFT + (RIGHT - LEFT) * (a->entries > 0 ? entry / a->entries : 0);
}

static double y_of(const axes *a, double share)
{
    return BOTTOM - (BOTTOM - TOP) * fmin(share, a->top) / a->top;
}

/* Four fields of a round width that hold the largest share; the cap need not be among them. */
static double top_for(double worst)
{
    static const double tops[] = {0.02, 0.05, 0.1, 0.2, 0.5, 1};
    for (size_t i = 0; i < sizeof tops / sizeof tops[0]; i++)
        if (worst <= tops[i])
            return tops[i];
    return SHARE_TOP;
}

static void grid_lines(markup *m, const axes *a)
{
    for (int i = 0; i <= 4; i++) {
        double share = a->top * i / 4, y = y_of(a, share);
        markup_format(m, "<path class=\"%s\" d=\"M%.1f %.1fH%.1f\"/>", share == 1 ? "cap" : "grid",
                      LEFT, y, RIGHT);
        markup_format(m, "<text class=\"end\" x=\"%.1f\" y=\"%.1f\">%g %%</text>", LEFT - 5, y + 4,
                      100 * share);
    }
    if (a->top < 1)
        markup_format(m,
                      "<text class=\"end\" x=\"%.1f\" y=\"%.1f\">the cap, 100 %%, is above this "
                      "chart</text>",
                      RIGHT, TOP + 16);
}

static void chart_begin(markup *m, const char *id, const char *title, const char *description)
{
    markup_format(m,
                  "<svg viewBox=\"0 0 %.0f %.0f\" role=\"img\" aria-labelledby=\"%s-t %s-d\">"
                  "<title id=\"%s-t\">%s</title>",
                  WIDTH, HEIGHT, id, id, id, title);
    markup_format(m, "<desc id=\"%s-d\">%s</desc>", id, description);
}

static void device_line(markup *m, const report *r, const axes *a, size_t device)
{
    const tacit_audit_device *d = &r->audit->devices[device];
    line l;
    double share = 0;
    line_begin(&l, m, "one", x_of(a, 0), y_of(a, 0));
    for (size_t i = r->first[device]; i < r->first[device + 1]; i++) {
        const tacit_audit_point *p = &r->audit->points[r->of_device[i]];
        share = d->cap > 0 ? p->epsilon / d->cap : SHARE_TOP;
        line_step(&l, x_of(a, (double)p->entry), y_of(a, share));
    }
    line_end(&l, RIGHT);
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

/* What `fraction` of the devices have spent at most, at every sample. */
typedef struct samples {
    double worst[SAMPLES + 1], median[SAMPLES + 1];
} samples;

static void sample_shares(const report *r, double *share, double *sorted, samples *out)
{
    const tacit_audit *a = r->audit;
    size_t n = a->device_count, next = 0;
    for (int s = 0; s <= SAMPLES; s++) {
        double until = (double)a->entries * s / SAMPLES;
        for (; next < a->point_count && (double)a->points[next].entry <= until; next++) {
            const tacit_audit_point *p = &a->points[next];
            double cap = a->devices[p->device].cap;
            share[p->device] = cap > 0 ? p->epsilon / cap : SHARE_TOP;
        }
        for (size_t i = 0; i < n; i++)
            sorted[i] = share[i];
        qsort(sorted, n, sizeof *sorted, by_value);
        out->worst[s] = sorted[n - 1];
        out->median[s] = sorted[(n - 1) / 2];
    }
}

static void sampled_line(markup *m, const axes *a, const char *class, const double *values)
{
    line l;
    line_begin(&l, m, class, x_of(a, 0), y_of(a, values[0]));
    for (int s = 1; s <= SAMPLES; s++)
        line_step(&l, x_of(a, a->entries * s / SAMPLES), y_of(a, values[s]));
    line_end(&l, RIGHT);
}

static void draw_curves(markup *m, const report *r, const samples *s)
{
    const tacit_audit *audit = r->audit;
    const axes a = {(double)audit->entries, top_for(s->worst[SAMPLES])};
    chart_begin(
        m, "curves", "Share of its cap that each device has spent, over the log",
        "Step lines over the index of the entry: the device that spent most, the median "
        "device and, in small fleets, every device; the cap is a dashed line at 100 percent "
        "where the axis goes that far.");
    grid_lines(m, &a);
    if (audit->device_count <= LINES_MAX)
        for (size_t d = 0; d < audit->device_count; d++)
            device_line(m, r, &a, d);
    sampled_line(m, &a, "median", s->median);
    sampled_line(m, &a, "worst", s->worst);
    markup_format(m,
                  "<text x=\"%.1f\" y=\"%.1f\">0</text>"
                  "<text class=\"end\" x=\"%.1f\" y=\"%.1f\">entry %llu</text>",
                  LEFT, BOTTOM + 18, RIGHT, BOTTOM + 18, (unsigned long long)audit->entries);
    markup_format(m,
                  "<path class=\"worst\" d=\"M%.1f %.1fh22\"/><text x=\"%.1f\" y=\"%.1f\">most "
                  "spent</text><path class=\"median\" d=\"M%.1f %.1fh22\"/><text x=\"%.1f\" "
                  "y=\"%.1f\">median</text>",
                  LEFT, HEIGHT - 12, LEFT + 27, HEIGHT - 8, LEFT + 125, HEIGHT - 12, LEFT + 152,
                  HEIGHT - 8);
    if (audit->device_count <= LINES_MAX)
        markup_format(m,
                      "<path class=\"one\" d=\"M%.1f %.1fh22\"/><text x=\"%.1f\" y=\"%.1f\">each "
                      "device</text>",
                      LEFT + 220, HEIGHT - 12, LEFT + 247, HEIGHT - 8);
    markup_raw(m, "</svg>");
}

void report_chart_curves(markup *m, const report *r)
{
    size_t n = r->audit->device_count;
    double *share = calloc(n + 1, sizeof *share), *sorted = calloc(n + 1, sizeof *sorted);
    samples s;
    if (!share || !sorted) {
        m->status = TACIT_NO_MEMORY;
    } else if (n && r->audit->point_count) {
        sample_shares(r, share, sorted, &s);
        draw_curves(m, r, &s);
    } else {
        markup_raw(m, "<p>No round with noise was reserved, so there is no curve.</p>");
    }
    free(share);
    free(sorted);
}

/* --- distribution over the fleet --- */

#define BINS 10 /* of a tenth of the cap each; one more for what is above the cap */

static void count_shares(const report *r, uint64_t bins[BINS + 1])
{
    for (size_t i = 0; i < r->audit->device_count; i++) {
        double share = report_share(&r->audit->devices[i]);
        size_t bin = (size_t)(fmin(share, 1) * BINS);
        if (bin == BINS)
            bin = BINS - 1; /* all of it, and no more */
        bins[share > 1 ? BINS : bin]++;
    }
}

static void draw_bin(markup *m, size_t bin, uint64_t count, double most)
{
    double width = (RIGHT - LEFT) / (BINS + 1), x = LEFT + width * (double)bin,
           height = (BOTTOM - TOP - 16) * (double)count / most;
    if (count) {
        markup_format(m,
                      "<rect class=\"%s\" x=\"%.1f\" y=\"%.1f\" width=\"%.1f\" height=\"%.1f\"/>",
                      bin == BINS ? "over" : "bar", x + 2, BOTTOM - height, width - 4, height);
        markup_format(m, "<text class=\"mid\" x=\"%.1f\" y=\"%.1f\">%llu</text>", x + width / 2,
                      BOTTOM - height - 4, (unsigned long long)count);
    }
    if (bin == BINS)
        markup_format(m, "<text class=\"mid\" x=\"%.1f\" y=\"%.1f\">over</text>", x + width / 2,
                      BOTTOM + 18);
    else if (bin % 2 == 0)
        markup_format(m, "<text class=\"mid\" x=\"%.1f\" y=\"%.1f\">%zu</text>", x, BOTTOM + 18,
                      bin * 100 / BINS);
}

void report_chart_shares(markup *m, const report *r)
{
    uint64_t bins[BINS + 1] = {0};
    double most = 1;
    if (!r->audit->device_count) {
        markup_raw(m, "<p>No device is enrolled.</p>");
        return;
    }
    count_shares(r, bins);
    for (size_t i = 0; i <= BINS; i++)
        most = fmax(most, (double)bins[i]);
    chart_begin(m, "shares", "How many devices have spent which share of their cap",
                "Bars of a tenth of the cap each with the number of devices above them; the last "
                "bar is of devices above their cap.");
    markup_format(m, "<path class=\"grid\" d=\"M%.1f %.1fH%.1f\"/>", LEFT, BOTTOM, RIGHT);
    for (size_t i = 0; i <= BINS; i++)
        draw_bin(m, i, bins[i], most);
    markup_format(m,
                  "<text class=\"mid\" x=\"%.1f\" y=\"%.1f\">percent of the cap spent</text></svg>",
                  (LEFT + RIGHT) / 2, HEIGHT - 8);
}

/* --- one device, small, for a row of the table --- */

#define SMALL_WIDTH 120.0
#define SMALL_HEIGHT 28.0

void report_chart_device(markup *m, const report *r, size_t device)
{
    const tacit_audit_device *d = &r->audit->devices[device];
    double last = (double)(r->audit->entries ? r->audit->entries : 1), top = d->cap;
    line l;
    if (isfinite(d->epsilon))
        top = fmax(top, d->epsilon);
    if (!(top > 0))
        top = 1;
    markup_format(m, "<svg class=\"small\" viewBox=\"0 0 %.0f %.0f\" role=\"img\"><title>",
                  SMALL_WIDTH, SMALL_HEIGHT);
    markup_format(m, "epsilon over the log, %zu reserves</title>",
                  r->first[device + 1] - r->first[device]);
    double y = SMALL_HEIGHT - 2 - (SMALL_HEIGHT - 4) * fmin(d->cap, top) / top;
    markup_format(m, "<path class=\"cap\" d=\"M0 %.1fH%.0f\"/>", y, SMALL_WIDTH);
    line_begin(&l, m, "worst", 0, SMALL_HEIGHT - 2);
    for (size_t i = r->first[device]; i < r->first[device + 1]; i++) {
        const tacit_audit_point *p = &r->audit->points[r->of_device[i]];
        double epsilon = fmin(p->epsilon, top);
        line_step(&l, SMALL_WIDTH * (double)p->entry / last,
                  SMALL_HEIGHT - 2 - (SMALL_HEIGHT - 4) * epsilon / top);
    }
    line_end(&l, SMALL_WIDTH);
    markup_raw(m, "</svg>");
}
