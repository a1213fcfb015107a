/* What a scene sounds like: alarms of patient monitors and the sounds of vehicles, mono, 16 kHz, at
 * most 4 s. Everything follows from the values, the voice and the seed `detail`: the same sound
 * gives the same bytes on one machine. Thread-safe: no state outside the arguments.
 *
 * Alarms follow IEC 60601-1-8:2006: a burst of high priority is ten pulses (twice three and two),
 * of medium priority three, of low priority two; the melody of a high or medium burst tells what
 * the alarm is about (annex F), every low one is e-c. */
#ifndef TACIT_SCENES_SOUND_H
#define TACIT_SCENES_SOUND_H

#include "scenes/scene.h"

#define SCENE_SOUND_RATE 16000                 /* samples a second */
#define SCENE_SOUND_MAX (4 * SCENE_SOUND_RATE) /* samples */
#define SCENE_NOTES_MAX 32

/* A cart's alarm. */
typedef enum scene_priority {
    SCENE_PRIORITY_NONE,
    SCENE_PRIORITY_LOW,
    SCENE_PRIORITY_MEDIUM,
    SCENE_PRIORITY_HIGH
} scene_priority;
#define SCENE_PRIORITIES 4

/* What a cart's alarm is about; a low one does not say. */
typedef enum scene_cause {
    SCENE_CAUSE_HEART,    /* cardiac: c e g - g C */
    SCENE_CAUSE_OXYGEN,   /* oxygen: C b a - g f */
    SCENE_CAUSE_PRESSURE, /* artificial perfusion: c f# c - c f# */
    SCENE_CAUSE_BREATH    /* ventilation: c a f - a f */
} scene_cause;
#define SCENE_CAUSES 4

/* What is heard in a vehicle. */
typedef enum scene_tone {
    SCENE_TONE_NONE,    /* only the room, as for a cart without an alarm */
    SCENE_TONE_TICKING, /* turn signal: high and low clicks in turn */
    SCENE_TONE_CHIME,   /* one bell again and again: belt */
    SCENE_TONE_GONG,    /* three long falling bells */
    SCENE_TONE_BEEPS    /* short even tones: parking aid */
} scene_tone;
#define SCENE_TONES 5

/* What a device sounds like. */
typedef struct scene_voice {
    int timbre;      /* index into the timbres of scene_sound.c */
    double pitch;    /* times every frequency */
    double pace;     /* times every duration */
    double loudness; /* of a note, full scale being 1 */
    double noise;    /* root mean square of the room's noise */
    double rumble;   /* 0 to 1: share of low frequencies in it */
    double echo;     /* gain of one reflection */
    double delay;    /* of it, seconds */
} scene_voice;

typedef struct scene_sound {
    scene_kind kind;
    scene_tone tone;         /* vehicles */
    scene_priority priority; /* carts */
    scene_cause cause;       /* carts, priority medium or high */
    scene_voice voice;
    uint64_t detail; /* seeds start, length and noise */
} scene_sound;

/* One note of a score. Its partials are those of the voice's timbre or of the bell, or a click's.
 */
typedef struct scene_note {
    double start, seconds;
    double hertz; /* of the fundamental */
    enum { SCENE_NOTE_TONE, SCENE_NOTE_BELL, SCENE_NOTE_CLICK } form;
} scene_note;

/* A voice of the split; sounds of one device share it. The splits share no timbre. */
void scene_draw_voice(scene_voice *voice, scene_split split, scene_prng *prng);
bool scene_voice_in_split(const scene_voice *voice, scene_split split);

/* Length of the clip in seconds, at most 4. */
double scene_sound_seconds(const scene_sound *s);
/* The notes in the order of their starts; returns their number, 0 where nothing but the room is
 * heard. All of them end before the clip does. */
size_t scene_sound_score(const scene_sound *s, scene_note out[SCENE_NOTES_MAX]);
/* Writes samples in [-1, 1] and returns their number. */
size_t scene_sound_render(const scene_sound *s, float out[SCENE_SOUND_MAX]);
/* The same as a WAV file of 16 bits a sample, appended to `out`. */
tacit_status scene_sound_wav(const scene_sound *s, tacit_buffer *out,
                             tacit_error *err) TACIT_MUST_CHECK;

#endif
