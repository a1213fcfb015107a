/* Scores and their synthesis: every sound is a list of notes, every note a few decaying partials.
 */
#include "scenes/scene_sound.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define PARTIALS 6
#define COUNT_OF(list) (sizeof(list) / sizeof((list)[0]))

/* Levels of the partials of a tone, harmonics 1 to PARTIALS. Four lie within 15 dB of the
 * strongest, as the standard wants. */
typedef struct timbre_row {
    scene_split split;
    double level[PARTIALS];
} timbre_row;

static const timbre_row timbres[] = {
    {SCENE_PRETRAIN, {1.0, 0.7, 0.5, 0.4, 0.2, 0.1}},
    {SCENE_PRETRAIN, {1.0, 0.3, 0.8, 0.3, 0.6, 0.1}},
    {SCENE_PRETRAIN, {0.6, 1.0, 0.8, 0.5, 0.3, 0.3}},
    {SCENE_PRETRAIN, {0.9, 0.5, 0.3, 0.6, 0.5, 0.4}},
    {SCENE_REHEARSAL, {1.0, 0.9, 0.9, 0.7, 0.5, 0.3}},
    {SCENE_REHEARSAL, {0.8, 0.4, 1.0, 0.6, 0.2, 0.5}},
    {SCENE_FLEET, {1.0, 0.5, 0.7, 0.2, 0.5, 0.2}},
    {SCENE_FLEET, {0.7, 0.9, 0.4, 1.0, 0.4, 0.2}},
};

/* What a split's voices range over. */
typedef struct voice_range {
    double pitch, pace; /* largest departure from 1 */
    double noise_low, noise_high;
    double echo;
} voice_range;

static const voice_range ranges[] = {
    [SCENE_PRETRAIN] = {0.05, 0.12, 0.001, 0.015, 0.30},
    [SCENE_REHEARSAL] = {0.08, 0.15, 0.005, 0.030, 0.45},
    [SCENE_FLEET] = {0.08, 0.15, 0.005, 0.030, 0.45},
};

/* Partials of what is no harmonic tone: ratios to the fundamental, levels, decays per second. */
typedef struct partial_row {
    double ratio, level, decay;
} partial_row;

static const partial_row bell[] = {
    {1.0, 0.6, 3.0}, {2.0, 0.35, 4.5}, {2.76, 0.3, 6.0}, {5.4, 0.15, 12.0}};
static const partial_row click[] = {
    {1.0, 0.7, 190}, {1.63, 0.6, 260}, {2.41, 0.5, 330}, {3.3, 0.3, 420}};

/* ---- voices ---- */

void scene_draw_voice(scene_voice *voice, scene_split split, scene_prng *prng)
{
    const voice_range *r = &ranges[split];
    int list[COUNT_OF(timbres)], n = 0;
    for (size_t i = 0; i < COUNT_OF(timbres); i++)
        if (timbres[i].split == split)
            list[n++] = (int)i;
    *voice = (scene_voice){
        .timbre = list[scene_prng_range(prng, 0, n - 1)],
        .pitch = scene_prng_between(prng, 1 - r->pitch, 1 + r->pitch),
        .pace = scene_prng_between(prng, 1 - r->pace, 1 + r->pace),
        .loudness = scene_prng_between(prng, 0.15, 0.6),
        .noise = scene_prng_between(prng, r->noise_low, r->noise_high),
        .rumble = scene_prng_unit(prng),
        .echo = scene_prng_between(prng, 0, r->echo),
        .delay = scene_prng_between(prng, 0.01, 0.06),
    };
}

bool scene_voice_in_split(const scene_voice *voice, scene_split split)
{
    return timbres[voice->timbre].split == split;
}

/* ---- scores ---- */

/* Notes of the standard's melodies, in semitones above c. */
enum { C = 0, E = 4, F = 5, F_SHARP = 6, G = 7, A = 9, B = 11, C_HIGH = 12 };
#define MIDDLE_C 261.6256

static const int melodies[SCENE_CAUSES][5] = {
    [SCENE_CAUSE_HEART] = {C, E, G, G, C_HIGH},
    [SCENE_CAUSE_OXYGEN] = {C_HIGH, B, A, G, F},
    [SCENE_CAUSE_PRESSURE] = {C, F_SHARP, C, C, F_SHARP},
    [SCENE_CAUSE_BREATH] = {C, A, F, A, F},
};
static const int low_melody[] = {E, C};

typedef struct score_writer {
    scene_note *note;
    size_t count;
    double at, pace, pitch;
} score_writer;

/* A note that begins now; the next begins `seconds + gap` later. */
static void put_note(score_writer *w, int form, double hertz, double seconds, double gap)
{
    w->note[w->count++] = (scene_note){w->at, seconds * w->pace, hertz * w->pitch, form};
    w->at += (seconds + gap) * w->pace;
}

static void put_pulses(score_writer *w, const int *semitone, int n, double seconds, double gap)
{
    for (int i = 0; i < n; i++)
        put_note(w, SCENE_NOTE_TONE, MIDDLE_C * pow(2, semitone[i] / 12.0), seconds, gap);
}

/* Pulses of 75 to 200 ms and pauses of 50 to 125 ms, after the third and the fifth longer ones. */
static void score_high(score_writer *w, const scene_sound *s)
{
    const double pulse = 0.12, gap = 0.08;
    for (int burst = 0; burst < 2; burst++) {
        put_pulses(w, melodies[s->cause], 3, pulse, gap);
        w->at += (gap + pulse) * w->pace;
        put_pulses(w, melodies[s->cause] + 3, 2, pulse, gap);
        w->at += 0.30 * w->pace;
    }
}

static void score_medium(score_writer *w, const scene_sound *s)
{
    put_pulses(w, melodies[s->cause], 3, 0.2, 0.18);
}

static void score_low(score_writer *w, const scene_sound *s)
{
    (void)s;
    put_pulses(w, low_melody, 2, 0.2, 0.18);
}

static void score_ticking(score_writer *w, const scene_sound *s)
{
    (void)s;
    for (int i = 0; i < 8; i++)
        put_note(w, SCENE_NOTE_CLICK, i % 2 ? 1150 : 1500, 0.03, 0.33);
}

static void score_chime(score_writer *w, const scene_sound *s)
{
    (void)s;
    for (int i = 0; i < 3; i++)
        put_note(w, SCENE_NOTE_BELL, 780, 0.6, 0.3);
}

static void score_gong(score_writer *w, const scene_sound *s)
{
    static const int fall[] = {G, E, C};
    (void)s;
    for (int i = 0; i < 3; i++)
        put_note(w, SCENE_NOTE_BELL, 1.5 * MIDDLE_C * pow(2, fall[i] / 12.0), 0.8, -0.3);
}

static void score_beeps(score_writer *w, const scene_sound *s)
{
    (void)s;
    for (int i = 0; i < 9; i++)
        put_note(w, SCENE_NOTE_TONE, 1200, 0.12, 0.18);
}

typedef void (*score_function)(score_writer *w, const scene_sound *s);
static const score_function alarms[SCENE_PRIORITIES] = {NULL, score_low, score_medium, score_high};
static const score_function tones[SCENE_TONES] = {NULL, score_ticking, score_chime, score_gong,
                                                  score_beeps};

double scene_sound_seconds(const scene_sound *s)
{
    scene_prng prng = scene_prng_make(s->detail, "clip", 0);
    return scene_prng_between(&prng, 3.8, 4.0);
}

size_t scene_sound_score(const scene_sound *s, scene_note out[SCENE_NOTES_MAX])
{
    score_function write = s->kind == SCENE_MONITOR ? alarms[s->priority] : tones[s->tone];
    scene_prng prng = scene_prng_make(s->detail, "start", 0);
    score_writer w = {out, 0, 0.02, s->voice.pace, s->voice.pitch};
    if (!write)
        return 0;
    write(&w, s);
    const scene_note *last = &out[w.count - 1];
    double room = scene_sound_seconds(s) - last->start - last->seconds - 0.1;
    double shift = scene_prng_between(&prng, 0, room < 0.5 ? room : 0.5);
    for (size_t i = 0; i < w.count; i++)
        out[i].start += shift;
    return w.count;
}

/* ---- synthesis ---- */

#define RISE 0.15 /* of a tone's length, and its fall */

/* A sine that starts at zero, by rotation: one complex product a sample. */
static void add_partial(float *out, size_t n, double hertz, double level, double decay,
                        double rise_samples)
{
    double turn = 2 * M_PI * hertz / SCENE_SOUND_RATE, keep = exp(-decay / SCENE_SOUND_RATE);
    double x = 1, y = 0, c = cos(turn) * keep, s = sin(turn) * keep;
    if (hertz > 0.45 * SCENE_SOUND_RATE)
        return;
    for (size_t i = 0; i < n; i++) {
        double from_ends = (double)(i < n - 1 - i ? i : n - 1 - i);
        double envelope = from_ends < rise_samples ? from_ends / rise_samples : 1;
        out[i] += (float)(level * envelope * y);
        double next = x * c - y * s;
        y = x * s + y * c;
        x = next;
    }
}

static void add_rows(float *out, size_t n, const scene_note *note, const partial_row *row,
                     size_t rows, double level)
{
    for (size_t i = 0; i < rows; i++)
        add_partial(out, n, note->hertz * row[i].ratio, level * row[i].level, row[i].decay, 16);
}

static void add_note(float *out, const scene_note *note, const scene_voice *voice)
{
    float *at = out + (size_t)(note->start * SCENE_SOUND_RATE);
    size_t n = (size_t)(note->seconds * SCENE_SOUND_RATE);
    double level = voice->loudness * 0.5;
    if (note->form == SCENE_NOTE_BELL)
        add_rows(at, n, note, bell, COUNT_OF(bell), level);
    else if (note->form == SCENE_NOTE_CLICK)
        add_rows(at, n, note, click, COUNT_OF(click), level);
    else
        for (int i = 0; i < PARTIALS; i++)
            add_partial(at, n, note->hertz * (i + 1), level * timbres[voice->timbre].level[i], 0,
                        RISE * (double)n);
}

static void add_echo(float *out, size_t n, const scene_voice *voice)
{
    size_t delay = (size_t)(voice->delay * SCENE_SOUND_RATE);
    for (size_t i = n; i-- > delay;)
        out[i] += (float)voice->echo * out[i - delay];
}

/* White noise and its low frequencies (one pole at about 200 Hz), each of unit deviation. */
static void add_noise(float *out, size_t n, const scene_sound *s)
{
    const double pole = 0.92, gain = sqrt(1 - 0.92 * 0.92);
    scene_prng prng = scene_prng_make(s->detail, "noise", 0);
    double low = 0, share = s->voice.rumble;
    for (size_t i = 0; i < n; i++) {
        double white = (scene_prng_unit(&prng) + scene_prng_unit(&prng) - 1) * sqrt(6);
        low = pole * low + gain * white;
        out[i] += (float)(s->voice.noise * ((1 - share) * white + share * low));
    }
}

size_t scene_sound_render(const scene_sound *s, float out[SCENE_SOUND_MAX])
{
    scene_note note[SCENE_NOTES_MAX];
    size_t notes = scene_sound_score(s, note);
    size_t n = (size_t)(scene_sound_seconds(s) * SCENE_SOUND_RATE);
    memset(out, 0, n * sizeof *out);
    for (size_t i = 0; i < notes; i++)
        add_note(out, &note[i], &s->voice);
    add_echo(out, n, &s->voice);
    add_noise(out, n, s);
    for (size_t i = 0; i < n; i++)
        out[i] = fminf(fmaxf(out[i], -1), 1);
    return n;
}

/* ---- WAV ---- */

#define WAV_HEADER 44

static void store_le(uint8_t *to, uint32_t value, int bytes)
{
    for (int i = 0; i < bytes; i++)
        to[i] = (uint8_t)(value >> 8 * i);
}

/* Microsoft's RIFF WAVE header: PCM, one channel, 16 bits. */
static void make_header(uint8_t h[WAV_HEADER], uint32_t data_bytes)
{
    memcpy(h, "RIFF....WAVEfmt ", 16);
    store_le(h + 4, data_bytes + WAV_HEADER - 8, 4);
    store_le(h + 16, 16, 4); /* bytes of the format */
    store_le(h + 20, 1, 2);  /* PCM */
    store_le(h + 22, 1, 2);  /* channels */
    store_le(h + 24, SCENE_SOUND_RATE, 4);
    store_le(h + 28, SCENE_SOUND_RATE * 2, 4); /* bytes a second */
    store_le(h + 32, 2, 2);                    /* bytes a frame */
    store_le(h + 34, 16, 2);                   /* bits a sample */
    memcpy(h + 36, "data", 4);
    store_le(h + 40, data_bytes, 4);
}

tacit_status scene_sound_wav(const scene_sound *s, tacit_buffer *out, tacit_error *err)
{
    uint8_t header[WAV_HEADER];
    float *samples = malloc(SCENE_SOUND_MAX * sizeof *samples);
    uint8_t *bytes = malloc(2 * SCENE_SOUND_MAX);
    tacit_status status = TACIT_NO_MEMORY;
    if (samples && bytes) {
        size_t n = scene_sound_render(s, samples);
        for (size_t i = 0; i < n; i++)
            store_le(bytes + 2 * i, (uint32_t)lrintf(samples[i] * 32767), 2);
        make_header(header, (uint32_t)(2 * n));
        status = tacit_buffer_append(out, header, sizeof header);
        if (status == TACIT_OK)
            status = tacit_buffer_append(out, bytes, 2 * n);
    }
    free(samples);
    free(bytes);
    return status == TACIT_OK ? status : tacit_fail(err, status, "no memory for a sound");
}
