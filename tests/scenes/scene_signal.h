/* What a scene's sensors measure: 8 s of named channels as CSV. Carts have an electrocardiogram, a
 * pulse wave and breathing; vehicles have wheel speed, engine, brake, acceleration and steering.
 * Everything follows from the values, the probe and the seed `detail`: the same signal gives the
 * same bytes on one machine. Thread-safe: no state outside the arguments. */
#ifndef TACIT_SCENES_SIGNAL_H
#define TACIT_SCENES_SIGNAL_H

#include "scenes/scene.h"

#define SCENE_SIGNAL_SECONDS 8
#define SCENE_SIGNAL_MAX (SCENE_SIGNAL_SECONDS * 50) /* samples of a channel */
#define SCENE_CHANNELS 8

/* Columns of both kinds, a cart's before a vehicle's. Their mean and deviation are round numbers
 * near those of the pretraining scenes: an encoder subtracts and divides by them. */
typedef struct scene_channel {
    const char *name, *unit;
    scene_kind kind;
    double mean, deviation;
} scene_channel;
extern const scene_channel scene_channels[SCENE_CHANNELS];

typedef enum scene_rhythm {
    SCENE_RHYTHM_REGULAR,
    SCENE_RHYTHM_IRREGULAR, /* distances of beats vary by 20 to 45 percent either way */
    SCENE_RHYTHM_ABSENT     /* no beat at all */
} scene_rhythm;
#define SCENE_RHYTHMS 3

typedef enum scene_motion {
    SCENE_MOTION_ACCELERATING,
    SCENE_MOTION_BRAKING,
    SCENE_MOTION_CRUISING,
    SCENE_MOTION_STANDING
} scene_motion;
#define SCENE_MOTIONS 4

typedef enum scene_steering {
    SCENE_STEERING_STRAIGHT,
    SCENE_STEERING_LEFT, /* positive angles */
    SCENE_STEERING_RIGHT
} scene_steering;

/* How a device measures. */
typedef struct scene_probe {
    double hertz; /* samples a second, 25 to 50 */
    double noise; /* share of a channel's deviation */
    double gain;  /* of pulse and breathing */
    double sharp; /* times the width of a beat */
    int silent;   /* a channel that this device does not have, or -1 */
    bool late;    /* the time column starts late, as a clock that runs on does */
} scene_probe;

typedef struct scene_signal {
    scene_kind kind;
    scene_rhythm rhythm; /* cart */
    int rate;            /* beats a minute */
    int breaths;         /* a minute; 0: none */
    scene_motion motion; /* vehicle */
    scene_steering steering;
    int speed; /* km/h at the end; 0 when standing */
    scene_probe probe;
    uint64_t detail; /* seeds phases and noise */
} scene_signal;

/* A probe of the split; the splits share no range of sampling rates. */
void scene_draw_probe(scene_probe *probe, scene_kind kind, scene_split split, scene_prng *prng);
bool scene_probe_in_split(const scene_probe *probe, scene_split split);

/* Writes the samples of channel `channel` and returns their number; sample i is at i / hertz
 * seconds. 0 for a channel of the other kind or one that the probe lacks. */
size_t scene_signal_render(const scene_signal *s, int channel, double out[SCENE_SIGNAL_MAX]);
/* "time,..." with one line a sample, appended to `out`. */
tacit_status scene_signal_csv(const scene_signal *s, tacit_buffer *out,
                              tacit_error *err) TACIT_MUST_CHECK;

#endif
