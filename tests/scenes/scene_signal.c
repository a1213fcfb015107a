/* Beats, breaths and manoeuvres as functions of time. */
#include "scenes/scene_signal.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { ECG, PLETH, RESP, SPEED, RPM, BRAKE, ACCEL, STEERING };

const scene_channel scene_channels[SCENE_CHANNELS] = {
    [ECG] = {"ecg", "mV", SCENE_MONITOR, 0.1, 0.3},
    [PLETH] = {"pleth", "1", SCENE_MONITOR, 0.3, 0.3},
    [RESP] = {"resp", "1", SCENE_MONITOR, 0, 0.6},
    [SPEED] = {"speed", "km/h", SCENE_CLUSTER, 80, 60},
    [RPM] = {"rpm", "1/min", SCENE_CLUSTER, 2000, 900},
    [BRAKE] = {"brake", "bar", SCENE_CLUSTER, 8, 12},
    [ACCEL] = {"accel", "m/s2", SCENE_CLUSTER, 0, 1.2},
    [STEERING] = {"steering", "deg", SCENE_CLUSTER, 0, 30},
};

/* ---- probes ---- */

typedef struct probe_range {
    double hertz_low, hertz_high;
    double noise_low, noise_high;
    double sharp_low, sharp_high;
} probe_range;

static const probe_range ranges[] = {
    [SCENE_PRETRAIN] = {25, 34, 0.01, 0.12, 0.85, 1.15},
    [SCENE_REHEARSAL] = {34.5, 42, 0.08, 0.25, 0.7, 1.3},
    [SCENE_FLEET] = {42.5, 50, 0.08, 0.25, 0.7, 1.3},
};

/* A device lacks at most what its other channels tell as well. */
static const int spare[SCENE_KINDS][3] = {
    [SCENE_CLUSTER] = {RPM, BRAKE, ACCEL},
    [SCENE_MONITOR] = {ECG, ECG, ECG},
};

void scene_draw_probe(scene_probe *probe, scene_kind kind, scene_split split, scene_prng *prng)
{
    const probe_range *r = &ranges[split];
    int which = scene_prng_range(prng, 0, 2);
    *probe = (scene_probe){
        .hertz = scene_prng_between(prng, r->hertz_low, r->hertz_high),
        .noise = scene_prng_between(prng, r->noise_low, r->noise_high),
        .gain = scene_prng_between(prng, 0.7, 1.2),
        .sharp = scene_prng_between(prng, r->sharp_low, r->sharp_high),
        .silent = scene_prng_chance(prng, 0.2) ? spare[kind][which] : -1,
        .late = scene_prng_chance(prng, 0.3),
    };
}

bool scene_probe_in_split(const scene_probe *probe, scene_split split)
{
    return probe->hertz >= ranges[split].hertz_low && probe->hertz <= ranges[split].hertz_high;
}

/* ---- a cart: heart and lungs ---- */

#define BEATS_MAX 40

/* Instants of the beats, one before the window to two after it. */
static size_t draw_beats(const scene_signal *s, double beat[BEATS_MAX])
{
    scene_prng prng = scene_prng_make(s->detail, "beats", 0);
    double mean = 60.0 / s->rate, at = -mean * scene_prng_unit(&prng);
    bool early = scene_prng_chance(&prng, 0.5);
    size_t n = 0;
    if (s->rhythm == SCENE_RHYTHM_ABSENT)
        return 0;
    beat[n++] = at - mean;
    while (at < SCENE_SIGNAL_SECONDS + 2 * mean && n < BEATS_MAX) {
        beat[n++] = at;
        double share = scene_prng_between(&prng, 0.98, 1.02);
        early = early != scene_prng_chance(&prng, 0.8); /* no long run of one kind */
        if (s->rhythm == SCENE_RHYTHM_IRREGULAR)
            share =
                early ? scene_prng_between(&prng, 0.55, 0.8) : scene_prng_between(&prng, 1.2, 1.45);
        at += mean * share;
    }
    return n;
}

static double bump(double t, double at, double width)
{
    double d = (t - at) / width;
    return exp(-0.5 * d * d);
}

/* One beat's electrocardiogram `t` seconds after it: R, S and T; `distance` to the next beat. */
static double ecg_of(double t, double distance, double sharp)
{
    return 1.1 * bump(t, 0, 0.028 * sharp) - 0.25 * bump(t, 0.07, 0.025 * sharp) +
           0.25 * bump(t, 0.32 * distance, 0.09 * distance);
}

static double pleth_of(double t, double distance, double sharp)
{
    double f = t / distance;
    return bump(f, 0.28, 0.1 * sharp) + 0.3 * bump(f, 0.58, 0.09 * sharp);
}

/* The heart fills between two beats: the sooner a pulse follows, the weaker it is. */
static void add_beats(const scene_signal *s, int channel, double *out, size_t n)
{
    double beat[BEATS_MAX];
    size_t beats = draw_beats(s, beat);
    for (size_t b = 0; b + 1 < beats; b++) {
        double distance = beat[b + 1] - beat[b];
        double filled = b ? (beat[b] - beat[b - 1]) * s->rate / 60.0 : 1;
        for (size_t i = 0; i < n; i++) {
            double t = (double)i / s->probe.hertz - beat[b];
            if (t < -0.2 || t > 1.2 * distance + 0.2)
                continue;
            double h = channel == ECG ? ecg_of(t, distance, s->probe.sharp)
                                      : pleth_of(t, distance, s->probe.sharp);
            out[i] += s->probe.gain * h * (channel == PLETH ? filled : 1);
        }
    }
}

static void add_breaths(const scene_signal *s, double *out, size_t n)
{
    scene_prng prng = scene_prng_make(s->detail, "breaths", 0);
    double phase = scene_prng_unit(&prng);
    for (size_t i = 0; s->breaths && i < n; i++) {
        double turn = phase + (double)i / s->probe.hertz * s->breaths / 60.0;
        out[i] += s->probe.gain * (0.9 * sin(2 * M_PI * turn) + 0.15 * sin(4 * M_PI * turn));
    }
}

/* ---- a vehicle ---- */

/* What is fixed during the window. */
typedef struct drive {
    double slope;         /* m/s2 */
    double angle, begins; /* of the steering wheel; seconds */
    double wobble;        /* phase */
} drive;

static drive draw_drive(const scene_signal *s)
{
    scene_prng prng = scene_prng_make(s->detail, "drive", 0);
    double gain = scene_prng_between(&prng, 0.9, 1.8), loss = scene_prng_between(&prng, 1.0, 2.2);
    double angle = scene_prng_between(&prng, 25, 80);
    const double slope[SCENE_MOTIONS] = {gain, -loss, 0, 0};
    const double side[] = {0, 1, -1};
    return (drive){slope[s->motion], side[s->steering] * angle, scene_prng_between(&prng, 0, 2.5),
                   scene_prng_unit(&prng)};
}

/* km/h, `left` seconds before the end of the window. */
static double speed_at(const scene_signal *s, const drive *d, double left)
{
    double v = s->speed - 3.6 * d->slope * left;
    if (s->motion == SCENE_MOTION_STANDING)
        return 0;
    return fmax(v + 0.8 * sin(2 * M_PI * (d->wobble + 0.2 * left)), 0);
}

/* An automatic gearbox that shifts every 30 km/h. */
static double rpm_at(double speed)
{
    double gear = fmin(floor(speed / 30), 5);
    return 850 + 400 * fmin(gear, 1) + 55 * (speed - 30 * gear) * (gear < 5 ? 1 : 0.4);
}

static double drive_at(const scene_signal *s, const drive *d, int channel, double t)
{
    double left = SCENE_SIGNAL_SECONDS - t, speed = speed_at(s, d, left);
    bool braking = s->motion == SCENE_MOTION_BRAKING, standing = s->motion == SCENE_MOTION_STANDING;
    double ramp = fmin(fmax((t - d->begins) / 1.2, 0), 1);
    switch (channel) {
    case SPEED:
        return speed;
    case RPM:
        return rpm_at(speed);
    case BRAKE:
        return braking ? -14 * d->slope : standing ? 18 : 0;
    case ACCEL:
        return (speed - speed_at(s, d, left + 0.1)) / 3.6 / 0.1;
    default:
        return d->angle * ramp * ramp * (3 - 2 * ramp);
    }
}

/* ---- channels ---- */

static void add_noise(const scene_signal *s, int channel, double *out, size_t n)
{
    scene_prng prng = scene_prng_make(s->detail, scene_channels[channel].name, 0);
    /* Of a vehicle less: its deviations are those of a whole drive. */
    double share = s->probe.noise * (s->kind == SCENE_CLUSTER ? 0.25 : 1);
    double deviation = share * scene_channels[channel].deviation;
    for (size_t i = 0; i < n; i++)
        out[i] += deviation * sqrt(6) * (scene_prng_unit(&prng) + scene_prng_unit(&prng) - 1);
    for (size_t i = 0; channel >= SPEED && channel <= BRAKE && i < n; i++)
        out[i] = fmax(out[i], 0);
}

size_t scene_signal_render(const scene_signal *s, int channel, double out[SCENE_SIGNAL_MAX])
{
    size_t n = (size_t)(SCENE_SIGNAL_SECONDS * s->probe.hertz);
    drive d = draw_drive(s);
    if (scene_channels[channel].kind != s->kind || channel == s->probe.silent)
        return 0;
    memset(out, 0, n * sizeof *out);
    if (channel == ECG || channel == PLETH)
        add_beats(s, channel, out, n);
    else if (channel == RESP)
        add_breaths(s, out, n);
    else
        for (size_t i = 0; i < n; i++)
            out[i] = drive_at(s, &d, channel, (double)i / s->probe.hertz);
    add_noise(s, channel, out, n);
    return n;
}

/* ---- CSV ---- */

typedef struct csv_writer {
    tacit_buffer *out;
    tacit_status status;
} csv_writer;

static void put(csv_writer *w, const char *text)
{
    if (w->status == TACIT_OK)
        w->status = tacit_buffer_append(w->out, text, strlen(text));
}

static void put_header(csv_writer *w, const size_t have[SCENE_CHANNELS])
{
    put(w, "time");
    for (int c = 0; c < SCENE_CHANNELS; c++) {
        if (!have[c])
            continue;
        put(w, ",");
        put(w, scene_channels[c].name);
    }
    put(w, "\n");
}

tacit_status scene_signal_csv(const scene_signal *s, tacit_buffer *out, tacit_error *err)
{
    double value[SCENE_CHANNELS][SCENE_SIGNAL_MAX];
    size_t have[SCENE_CHANNELS], n = 0;
    csv_writer w = {out, TACIT_OK};
    char text[32];
    scene_prng prng = scene_prng_make(s->detail, "clock", 0);
    double begin = s->probe.late ? scene_prng_range(&prng, 1, 3600) : 0;
    for (int c = 0; c < SCENE_CHANNELS; c++) {
        have[c] = scene_signal_render(s, c, value[c]);
        n = have[c] ? have[c] : n;
    }
    put_header(&w, have);
    for (size_t i = 0; i < n; i++) {
        snprintf(text, sizeof text, "%.3f", begin + (double)i / s->probe.hertz);
        put(&w, text);
        for (int c = 0; c < SCENE_CHANNELS; c++) {
            snprintf(text, sizeof text, ",%.3f", have[c] ? value[c][i] : 0);
            put(&w, have[c] ? text : "");
        }
        put(&w, "\n");
    }
    return w.status == TACIT_OK
               ? TACIT_OK
               : tacit_fail(err, w.status, "no memory for a signal of %zu rows", n);
}
