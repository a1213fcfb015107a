/* Sounds by measurement: pulses are found in the samples' power, their notes by Goertzel's filter
 * and compared with the melodies that IEC 60601-1-8:2006, annex F, prints. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "common/secret.h"
#include "engine/audio_file.h"
#include "scenes/scene_sound.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define FRAME 80 /* samples: 5 ms */
#define FRAMES (SCENE_SOUND_MAX / FRAME)
#define PULSES_MAX 64

typedef struct pulse {
    double start, seconds;
} pulse;

static float samples[SCENE_SOUND_MAX];

/* A voice with little noise and no echo, of plain pitch and pace. */
static scene_sound plain(scene_kind kind, uint64_t seed)
{
    scene_prng prng = scene_prng_make(seed, "test-sound", 0);
    scene_sound s = {.kind = kind, .detail = scene_prng_u64(&prng)};
    scene_draw_voice(&s.voice, SCENE_PRETRAIN, &prng);
    s.voice.pitch = s.voice.pace = 1;
    s.voice.noise = 0.0005;
    s.voice.echo = 0;
    return s;
}

/* Runs of frames above a tenth of the loudest one, at least 2 frames apart. */
static size_t find_pulses(const float *x, size_t n, pulse out[PULSES_MAX])
{
    double power[FRAMES] = {0}, loudest = 0;
    size_t count = 0, frames = n / FRAME, last = 0;
    for (size_t f = 0; f < frames; f++) {
        for (size_t i = 0; i < FRAME; i++)
            power[f] += (double)x[f * FRAME + i] * x[f * FRAME + i];
        loudest = fmax(loudest, power[f]);
    }
    for (size_t f = 0; f < frames; f++) {
        if (power[f] < 0.1 * loudest)
            continue;
        if (count == 0 || f - last > 2) {
            assert_in_range(count, 0, PULSES_MAX - 1);
            out[count++].start = (double)f * FRAME / SCENE_SOUND_RATE;
        }
        out[count - 1].seconds = (double)(f + 1) * FRAME / SCENE_SOUND_RATE - out[count - 1].start;
        last = f;
    }
    return count;
}

static double goertzel(const float *x, size_t n, double hertz)
{
    double turn = 2 * M_PI * hertz / SCENE_SOUND_RATE, c = 2 * cos(turn), one = 0, two = 0;
    for (size_t i = 0; i < n; i++) {
        double now = (0.5 - 0.5 * cos(2 * M_PI * (double)i / (double)n)) * x[i] + c * one - two;
        two = one;
        one = now;
    }
    return (one * one + two * two - c * one * two) / (double)n;
}

/* Names and frequencies of the octave from c4 to c5 (equal temperament, a4 = 440 Hz). */
static const struct {
    char name;
    double hertz;
} notes[] = {{'c', 261.63}, {'d', 293.66}, {'e', 329.63}, {'f', 349.23}, {'#', 369.99},
             {'g', 392.00}, {'a', 440.00}, {'b', 493.88}, {'C', 523.25}};

/* The note whose first four harmonics hold the most power. */
static char note_of(const pulse *p)
{
    const float *x = samples + (size_t)(p->start * SCENE_SOUND_RATE);
    size_t n = (size_t)(p->seconds * SCENE_SOUND_RATE), best = 0;
    double most = 0;
    for (size_t i = 0; i < sizeof notes / sizeof notes[0]; i++) {
        double sum = 0;
        for (int h = 1; h <= 4; h++)
            sum += goertzel(x, n, h * notes[i].hertz);
        if (sum > most) {
            most = sum;
            best = i;
        }
    }
    return notes[best].name;
}

static size_t hear(const scene_sound *s, char melody[PULSES_MAX + 1], pulse found[PULSES_MAX])
{
    size_t n = scene_sound_render(s, samples), count = find_pulses(samples, n, found);
    for (size_t i = 0; i < count; i++)
        melody[i] = note_of(&found[i]);
    melody[count] = '\0';
    return count;
}

static void alarms_have_the_standards_melodies(void **state)
{
    static const struct {
        scene_priority priority;
        scene_cause cause;
        const char *melody;
    } rows[] = {
        {SCENE_PRIORITY_HIGH, SCENE_CAUSE_HEART, "ceggCceggC"},
        {SCENE_PRIORITY_HIGH, SCENE_CAUSE_OXYGEN, "CbagfCbagf"},
        {SCENE_PRIORITY_HIGH, SCENE_CAUSE_PRESSURE, "c#cc#c#cc#"},
        {SCENE_PRIORITY_HIGH, SCENE_CAUSE_BREATH, "cafafcafaf"},
        {SCENE_PRIORITY_MEDIUM, SCENE_CAUSE_HEART, "ceg"},
        {SCENE_PRIORITY_MEDIUM, SCENE_CAUSE_OXYGEN, "Cba"},
        {SCENE_PRIORITY_MEDIUM, SCENE_CAUSE_PRESSURE, "c#c"},
        {SCENE_PRIORITY_MEDIUM, SCENE_CAUSE_BREATH, "caf"},
        {SCENE_PRIORITY_LOW, SCENE_CAUSE_HEART, "ec"},
        {SCENE_PRIORITY_LOW, SCENE_CAUSE_OXYGEN, "ec"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        for (uint64_t seed = 0; seed < 8; seed++) {
            char melody[PULSES_MAX + 1];
            pulse found[PULSES_MAX];
            scene_sound s = plain(SCENE_MONITOR, seed);
            s.priority = rows[i].priority;
            s.cause = rows[i].cause;
            hear(&s, melody, found);
            assert_string_equal(melody, rows[i].melody);
        }
    }
}

/* Seconds that the standard's table of bursts allows, at every pace of every split. */
static void alarms_have_the_standards_times(void **state)
{
    (void)state;
    for (uint64_t seed = 0; seed < 60; seed++) {
        scene_sound s = plain(SCENE_MONITOR, seed);
        scene_prng prng = scene_prng_make(seed, "test-pace", 0);
        pulse found[PULSES_MAX];
        scene_voice drawn;
        scene_draw_voice(&drawn, (scene_split)(seed % 3), &prng);
        s.voice.pace = drawn.pace;
        s.priority = seed % 2 ? SCENE_PRIORITY_HIGH : SCENE_PRIORITY_MEDIUM;
        size_t count = find_pulses(samples, scene_sound_render(&s, samples), found);
        bool high = s.priority == SCENE_PRIORITY_HIGH;
        assert_int_equal(count, high ? 10 : 3);
        for (size_t i = 0; i < count; i++) {
            double slack = 0.02; /* rise and fall below the threshold, frames of 5 ms */
            assert_true(found[i].seconds > (high ? 0.075 : 0.125) - slack);
            assert_true(found[i].seconds < (high ? 0.200 : 0.250) + slack);
        }
        double gap = found[1].start - found[0].start - found[0].seconds;
        assert_true(gap > (high ? 0.050 : 0.125) - 0.02 && gap < (high ? 0.125 : 0.250) + 0.04);
        if (high)
            assert_true(found[5].start - found[4].start - found[4].seconds > 0.25);
    }
}

static void vehicles_sound_as_named(void **state)
{
    static const struct {
        scene_tone tone;
        size_t pulses;
    } rows[] = {{SCENE_TONE_TICKING, 8}, {SCENE_TONE_CHIME, 3}, {SCENE_TONE_BEEPS, 9}};
    pulse found[PULSES_MAX];
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        scene_sound s = plain(SCENE_CLUSTER, i);
        s.tone = rows[i].tone;
        assert_int_equal(find_pulses(samples, scene_sound_render(&s, samples), found),
                         rows[i].pulses);
    }
    /* The gong falls: its fundamental at the second strike is that of e over 1.5 c. */
    scene_sound s = plain(SCENE_CLUSTER, 9);
    scene_note note[SCENE_NOTES_MAX];
    s.tone = SCENE_TONE_GONG;
    scene_sound_render(&s, samples);
    assert_int_equal(scene_sound_score(&s, note), 3);
    for (int k = 0; k < 3; k++) {
        static const double hertz[] = {587.99, 494.44, 392.44};
        const float *x = samples + (size_t)((note[k].start + 0.02) * SCENE_SOUND_RATE);
        double own = goertzel(x, 6400, hertz[k]);
        assert_true(own > 20 * goertzel(x, 6400, hertz[k] * 1.12));
        assert_true(own > 20 * goertzel(x, 6400, hertz[k] / 1.12));
    }
}

/* Without a sound there is noise of the voice's level and nothing else. */
static void silence_is_the_rooms(void **state)
{
    (void)state;
    for (int kind = 0; kind < SCENE_KINDS; kind++) {
        scene_sound s = plain((scene_kind)kind, 3);
        double power = 0;
        s.voice.noise = 0.01;
        s.voice.rumble = kind;
        size_t n = scene_sound_render(&s, samples);
        for (size_t i = 0; i < n; i++)
            power += (double)samples[i] * samples[i];
        double level = sqrt(power / (double)n);
        assert_true(level > 0.009 && level < 0.011);
    }
}

static void same_sound_same_bytes(void **state)
{
    (void)state;
    for (uint64_t seed = 0; seed < 12; seed++) {
        scene_sound s = plain(seed % 2 ? SCENE_MONITOR : SCENE_CLUSTER, seed), other = s;
        tacit_buffer a = {0}, b = {0}, c = {0};
        tacit_error err;
        s.priority = other.priority = SCENE_PRIORITY_HIGH;
        other.detail++;
        assert_int_equal(scene_sound_wav(&s, &a, &err), TACIT_OK);
        assert_int_equal(scene_sound_wav(&s, &b, &err), TACIT_OK);
        assert_int_equal(scene_sound_wav(&other, &c, &err), TACIT_OK);
        assert_int_equal(a.size, b.size);
        assert_memory_equal(a.data, b.data, a.size);
        assert_true(a.size != c.size || memcmp(a.data, c.data, a.size) != 0);
        tacit_buffer_free(&a);
        tacit_buffer_free(&b);
        tacit_buffer_free(&c);
    }
}

/* The engine's reader decodes the file to the samples that were rendered, rounded to 16 bits. */
static void wav_is_what_the_engine_reads(void **state)
{
    (void)state;
    for (uint64_t seed = 0; seed < 12; seed++) {
        scene_sound s = plain(seed % 2 ? SCENE_MONITOR : SCENE_CLUSTER, seed);
        tacit_buffer b = {0};
        float *read = NULL;
        size_t count = 0;
        tacit_error err;
        s.priority = SCENE_PRIORITY_MEDIUM;
        s.tone = SCENE_TONE_GONG;
        assert_int_equal(scene_sound_wav(&s, &b, &err), TACIT_OK);
        if (audio_file_decode(&read, &count, b.data, b.size, "scene.wav", SCENE_SOUND_MAX, &err) !=
            TACIT_OK)
            fail_msg("%s", err.message);
        assert_int_equal(count, scene_sound_render(&s, samples));
        for (size_t i = 0; i < count; i++)
            assert_true(fabs(read[i] - samples[i]) < 1.5 / 32768);
        tacit_wipe_free(read);
        tacit_buffer_free(&b);
    }
}

/* Every sound of every split ends within its clip, and no clip is longer than 4 s. */
static void clips_hold_their_notes(void **state)
{
    (void)state;
    for (uint64_t i = 0; i < 6000; i++) {
        scene_prng prng = scene_prng_make(i, "test-clip", 0);
        scene_sound s = {.kind = i % 2 ? SCENE_MONITOR : SCENE_CLUSTER,
                         .tone = (scene_tone)(i / 2 % SCENE_TONES),
                         .priority = (scene_priority)(i / 2 % SCENE_PRIORITIES)};
        scene_note note[SCENE_NOTES_MAX];
        scene_draw_voice(&s.voice, (scene_split)(i % 3), &prng);
        s.detail = scene_prng_u64(&prng);
        size_t count = scene_sound_score(&s, note);
        assert_true(scene_sound_seconds(&s) <= 4);
        for (size_t k = 0; k < count; k++) {
            assert_true(note[k].start >= 0);
            assert_true(note[k].start + note[k].seconds < scene_sound_seconds(&s));
        }
    }
}

static void splits_share_no_timbre(void **state)
{
    (void)state;
    for (uint64_t seed = 0; seed < 300; seed++) {
        scene_prng prng = scene_prng_make(seed, "test-voice", 0);
        scene_split split = (scene_split)(seed % 3);
        scene_voice voice;
        scene_draw_voice(&voice, split, &prng);
        for (int other = 0; other < 3; other++)
            assert_int_equal(scene_voice_in_split(&voice, (scene_split)other), other == (int)split);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(alarms_have_the_standards_melodies),
        cmocka_unit_test(alarms_have_the_standards_times),
        cmocka_unit_test(vehicles_sound_as_named),
        cmocka_unit_test(silence_is_the_rooms),
        cmocka_unit_test(same_sound_same_bytes),
        cmocka_unit_test(wav_is_what_the_engine_reads),
        cmocka_unit_test(clips_hold_their_notes),
        cmocka_unit_test(splits_share_no_timbre),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
