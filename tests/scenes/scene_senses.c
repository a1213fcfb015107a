/* The joint draw of what a scene shows, sounds and measures, and the table of questions. */
#include "scenes/scene_senses.h"

#include <stdio.h>

/* ---- bands: wide apart, so that what is measured has one name ---- */

typedef struct band {
    int low, high;
} band;

enum { SLOW, NORMAL, FAST, BANDS };

static const band hearts[BANDS] = {{35, 55}, {66, 94}, {112, 180}}; /* beats a minute */
static const band breathing[BANDS] = {{6, 9}, {13, 18}, {26, 40}};  /* breaths a minute */
static const band speeds[BANDS] = {{8, 35}, {62, 92}, {125, 185}};  /* km/h */

static int band_of(const band *list, int value)
{
    return value <= list[SLOW].high ? SLOW : value <= list[NORMAL].high ? NORMAL : FAST;
}

static int draw_in(const band *b, scene_prng *prng)
{
    return scene_prng_range(prng, b->low, b->high);
}

/* ---- the draw ---- */

/* The same of `n` in half of the draws, else each of the others alike. */
static int agree_or_not(int value, int n, scene_prng *prng)
{
    return scene_prng_chance(prng, 0.5) ? value : (value + scene_prng_range(prng, 1, n - 1)) % n;
}

/* The value itself where the bands agree, any of the other band where they do not: so neither of
 * the two values alone tells which it is. */
static int draw_other(const band *list, int shown, scene_prng *prng)
{
    int own = band_of(list, shown), other = agree_or_not(own, BANDS, prng);
    return own == other ? shown : draw_in(&list[other], prng);
}

static const scene_priority levels[] = {SCENE_PRIORITY_NONE, SCENE_PRIORITY_LOW,
                                        SCENE_PRIORITY_HIGH};
static const scene_rhythm rhythms[] = {SCENE_RHYTHM_REGULAR, SCENE_RHYTHM_IRREGULAR,
                                       SCENE_RHYTHM_ABSENT};

/* Display, sound and pulse of a cart: off, low and high belong to no sound, low and high priority
 * and to a regular, an irregular and no pulse. A quarter of the sounds is of medium priority. */
static void draw_cart(scene_senses *s, scene_prng *prng)
{
    int *value = s->picture.value, level;
    value[SCENE_HEART] = draw_in(&hearts[scene_prng_range(prng, 0, BANDS - 1)], prng);
    s->signal.rate = draw_other(hearts, value[SCENE_HEART], prng);
    level = agree_or_not(value[SCENE_ALARM], 3, prng);
    s->sound.priority = levels[level];
    s->signal.rhythm = rhythms[agree_or_not(level, 3, prng)];
    if (scene_prng_chance(prng, 0.25)) {
        s->sound.priority = SCENE_PRIORITY_MEDIUM;
        s->signal.rhythm = rhythms[scene_prng_range(prng, 0, 2)];
    }
    s->sound.cause = (scene_cause)scene_prng_range(prng, 0, SCENE_CAUSES - 1);
    int breaths = scene_prng_range(prng, 0, BANDS);
    s->signal.breaths = breaths < BANDS ? draw_in(&breathing[breaths], prng) : 0;
}

/* Display, sound and motion of a vehicle: turn signal, ticking and steering are on in half of the
 * scenes each, independently. */
static void draw_vehicle(scene_senses *s, scene_prng *prng)
{
    int *value = s->picture.value;
    value[SCENE_SPEED] = draw_in(&speeds[scene_prng_range(prng, 0, BANDS - 1)], prng);
    s->signal.speed = draw_other(speeds, value[SCENE_SPEED], prng);
    value[SCENE_TURN] = scene_prng_chance(prng, 0.5) ? scene_prng_range(prng, 1, 2) : 0;
    s->signal.steering = scene_prng_chance(prng, 0.5) ? (scene_steering)scene_prng_range(prng, 1, 2)
                                                      : SCENE_STEERING_STRAIGHT;
    static const scene_tone others[] = {SCENE_TONE_NONE, SCENE_TONE_CHIME, SCENE_TONE_GONG,
                                        SCENE_TONE_BEEPS};
    s->sound.tone =
        scene_prng_chance(prng, 0.5) ? SCENE_TONE_TICKING : others[scene_prng_range(prng, 0, 3)];
    s->signal.motion = (scene_motion)scene_prng_range(prng, 0, SCENE_MOTIONS - 1);
    if (s->signal.motion == SCENE_MOTION_STANDING)
        s->signal.speed = 0;
}

void scene_draw_senses(scene_senses *s, scene_kind kind, scene_split split, scene_prng *prng)
{
    *s = (scene_senses){.kind = kind, .sound.kind = kind, .signal.kind = kind};
    scene_draw_values(&s->picture, kind, prng);
    if (kind == SCENE_MONITOR)
        draw_cart(s, prng);
    else
        draw_vehicle(s, prng);
    s->sound.detail = scene_prng_u64(prng);
    s->signal.detail = scene_prng_u64(prng);
    scene_draw_style(&s->picture.style, split, prng);
    scene_draw_voice(&s->sound.voice, split, prng);
    scene_draw_probe(&s->signal.probe, kind, split, prng);
}

/* ---- answers ---- */

static const char *const words[] = {
    "yes",    "no",       "none",         "low",     "medium",   "high",      "heart",
    "oxygen", "pressure", "breath",       "ticking", "chime",    "gong",      "beeps",
    "slow",   "normal",   "fast",         "absent",  "regular",  "irregular", "left",
    "right",  "straight", "accelerating", "braking", "cruising", "standing",
};

size_t scene_sense_word_count(void)
{
    return sizeof words / sizeof words[0];
}

const char *scene_sense_word(size_t i)
{
    return words[i];
}

static void say(char out[SCENE_TEXT_MAX], const char *word)
{
    snprintf(out, SCENE_TEXT_MAX, "%s", word);
}

static void say_whether(char out[SCENE_TEXT_MAX], bool so)
{
    say(out, so ? "yes" : "no");
}

static const char *const paces[] = {"slow", "normal", "fast"};

const char *scene_shown_pace(const scene_senses *s)
{
    const int *value = s->picture.value;
    return s->kind == SCENE_MONITOR ? paces[band_of(hearts, value[SCENE_HEART])]
                                    : paces[band_of(speeds, value[SCENE_SPEED])];
}

/* sound alone */

static void answer_priority(const scene_senses *s, char out[SCENE_TEXT_MAX])
{
    static const char *const names[] = {"none", "low", "medium", "high"};
    say(out, names[s->sound.priority]);
}

static bool has_melody(const scene_senses *s)
{
    return s->sound.priority >= SCENE_PRIORITY_MEDIUM;
}

static void answer_cause(const scene_senses *s, char out[SCENE_TEXT_MAX])
{
    static const char *const names[] = {"heart", "oxygen", "pressure", "breath"};
    say(out, names[s->sound.cause]);
}

static void answer_tone(const scene_senses *s, char out[SCENE_TEXT_MAX])
{
    static const char *const names[] = {"none", "ticking", "chime", "gong", "beeps"};
    say(out, names[s->sound.tone]);
}

/* signal alone */

static bool pulse_is_regular(const scene_senses *s)
{
    return s->signal.rhythm == SCENE_RHYTHM_REGULAR;
}

static void answer_pulse(const scene_senses *s, char out[SCENE_TEXT_MAX])
{
    say(out, paces[band_of(hearts, s->signal.rate)]);
}

static void answer_rhythm(const scene_senses *s, char out[SCENE_TEXT_MAX])
{
    static const char *const names[] = {"regular", "irregular", "absent"};
    say(out, names[s->signal.rhythm]);
}

static void answer_breathing(const scene_senses *s, char out[SCENE_TEXT_MAX])
{
    say(out, s->signal.breaths ? paces[band_of(breathing, s->signal.breaths)] : "absent");
}

static void answer_motion(const scene_senses *s, char out[SCENE_TEXT_MAX])
{
    static const char *const names[] = {"accelerating", "braking", "cruising", "standing"};
    say(out, names[s->signal.motion]);
}

static void answer_steering(const scene_senses *s, char out[SCENE_TEXT_MAX])
{
    static const char *const names[] = {"straight", "left", "right"};
    say(out, names[s->signal.steering]);
}

static bool wheels_turn(const scene_senses *s)
{
    return s->signal.motion != SCENE_MOTION_STANDING;
}

static void answer_wheels(const scene_senses *s, char out[SCENE_TEXT_MAX])
{
    say(out, paces[band_of(speeds, s->signal.speed)]);
}

/* picture and sound */

static bool level_is_shown(const scene_senses *s)
{
    return s->sound.priority != SCENE_PRIORITY_MEDIUM;
}

static void answer_alarm_agrees(const scene_senses *s, char out[SCENE_TEXT_MAX])
{
    say_whether(out, s->sound.priority == levels[s->picture.value[SCENE_ALARM]]);
}

static bool cause_is_shown(const scene_senses *s)
{
    return has_melody(s) && s->sound.cause != SCENE_CAUSE_BREATH;
}

static void answer_meant_value(const scene_senses *s, char out[SCENE_TEXT_MAX])
{
    static const scene_field field[] = {SCENE_HEART, SCENE_OXYGEN, SCENE_PRESSURE};
    scene_answer(&s->picture, field[s->sound.cause], out);
}

static void answer_ticking_agrees(const scene_senses *s, char out[SCENE_TEXT_MAX])
{
    say_whether(out, (s->sound.tone == SCENE_TONE_TICKING) == (s->picture.value[SCENE_TURN] != 0));
}

/* Ticking is four times as frequent as each other sound: a quarter of it keeps them alike. */
static bool tone_is_shown(const scene_senses *s)
{
    return s->sound.tone == SCENE_TONE_TICKING ? s->sound.detail % 4 == 0
                                               : s->sound.tone != SCENE_TONE_NONE;
}

static void answer_meant_field(const scene_senses *s, char out[SCENE_TEXT_MAX])
{
    static const scene_field field[] = {SCENE_SPEED, SCENE_TURN, SCENE_LAMP, SCENE_FUEL,
                                        SCENE_GEAR};
    scene_answer(&s->picture, field[s->sound.tone], out);
}

/* picture and signal */

static void answer_pulse_agrees(const scene_senses *s, char out[SCENE_TEXT_MAX])
{
    say_whether(out, s->signal.rate == s->picture.value[SCENE_HEART]);
}

static void answer_speed_agrees(const scene_senses *s, char out[SCENE_TEXT_MAX])
{
    say_whether(out, s->signal.speed == s->picture.value[SCENE_SPEED]);
}

static bool both_turn(const scene_senses *s)
{
    return s->picture.value[SCENE_TURN] && s->signal.steering;
}

static void answer_steering_agrees(const scene_senses *s, char out[SCENE_TEXT_MAX])
{
    say_whether(out, s->picture.value[SCENE_TURN] == (int)s->signal.steering);
}

/* sound and signal */

static void answer_alarm_due(const scene_senses *s, char out[SCENE_TEXT_MAX])
{
    int level = s->sound.priority == SCENE_PRIORITY_HIGH ? 2 : (int)s->sound.priority;
    say_whether(out, rhythms[level] == s->signal.rhythm);
}

static void answer_ticking_due(const scene_senses *s, char out[SCENE_TEXT_MAX])
{
    say_whether(out, (s->sound.tone == SCENE_TONE_TICKING) ==
                         (s->signal.steering != SCENE_STEERING_STRAIGHT));
}

/* ---- questions ---- */

#define PICTURE SCENE_SENSE_PICTURE
#define SOUND SCENE_SENSE_SOUND
#define SIGNAL SCENE_SENSE_SIGNAL
#define CART SCENE_MONITOR
#define VEHICLE SCENE_CLUSTER

static const scene_ask asks[] = {
    {"priority",
     CART,
     SOUND,
     0,
     {"How urgent is the alarm sound?", "Which alarm sounds?"},
     NULL,
     answer_priority},
    {"cause",
     CART,
     SOUND,
     0,
     {"What is the alarm sound about?", "What does the alarm sound mean?"},
     has_melody,
     answer_cause},
    {"tone", VEHICLE, SOUND, 0, {"Which sound is heard?", "What sounds?"}, NULL, answer_tone},
    {"pulse",
     CART,
     SIGNAL,
     0,
     {"How fast is the pulse?", "What is the pulse?"},
     pulse_is_regular,
     answer_pulse},
    {"rhythm", CART, SIGNAL, 0, {"How is the rhythm?", "What is the rhythm?"}, NULL, answer_rhythm},
    {"breathing",
     CART,
     SIGNAL,
     0,
     {"How is the breathing?", "How fast is the breathing?"},
     NULL,
     answer_breathing},
    {"motion",
     VEHICLE,
     SIGNAL,
     0,
     {"How does the vehicle move?", "What does the vehicle do?"},
     NULL,
     answer_motion},
    {"steering",
     VEHICLE,
     SIGNAL,
     0,
     {"Which way does it steer?", "What is the steering?"},
     NULL,
     answer_steering},
    {"wheels",
     VEHICLE,
     SIGNAL,
     0,
     {"How fast are the wheels?", "What is the wheel speed?"},
     wheels_turn,
     answer_wheels},
    {"alarm-agrees",
     CART,
     PICTURE | SOUND,
     1 / 2.0,
     {"Does the alarm sound agree with the display?",
      "Does the display agree with the alarm sound?"},
     level_is_shown,
     answer_alarm_agrees},
    {"meant-value",
     CART,
     PICTURE | SOUND,
     1 / 3.0,
     {"Which value does the alarm sound mean?", "What is the value that the alarm sound is about?"},
     cause_is_shown,
     answer_meant_value},
    {"ticking-agrees",
     VEHICLE,
     PICTURE | SOUND,
     1 / 2.0,
     {"Does the ticking agree with the display?", "Does the display agree with the ticking?"},
     NULL,
     answer_ticking_agrees},
    {"meant-field",
     VEHICLE,
     PICTURE | SOUND,
     1 / 4.0,
     {"Which value does the sound mean?", "What is the value that the sound is about?"},
     tone_is_shown,
     answer_meant_field},
    {"pulse-agrees",
     CART,
     PICTURE | SIGNAL,
     1 / 2.0,
     {"Does the pulse agree with the display?", "Does the display agree with the pulse?"},
     pulse_is_regular,
     answer_pulse_agrees},
    {"speed-agrees",
     VEHICLE,
     PICTURE | SIGNAL,
     1 / 2.0,
     {"Does the wheel speed agree with the display?",
      "Does the display agree with the wheel speed?"},
     wheels_turn,
     answer_speed_agrees},
    {"steering-agrees",
     VEHICLE,
     PICTURE | SIGNAL,
     1 / 2.0,
     {"Does the steering agree with the display?", "Does the display agree with the steering?"},
     both_turn,
     answer_steering_agrees},
    {"alarm-due",
     CART,
     SOUND | SIGNAL,
     1 / 2.0,
     {"Does the alarm sound agree with the rhythm?", "Does the rhythm agree with the alarm sound?"},
     level_is_shown,
     answer_alarm_due},
    {"ticking-due",
     VEHICLE,
     SOUND | SIGNAL,
     1 / 2.0,
     {"Does the ticking agree with the steering?", "Does the steering agree with the ticking?"},
     NULL,
     answer_ticking_due},
};

size_t scene_ask_count(void)
{
    return sizeof asks / sizeof asks[0];
}

const scene_ask *scene_ask_at(size_t i)
{
    return &asks[i];
}

bool scene_ask_applies(const scene_ask *ask, const scene_senses *s)
{
    return ask->kind == s->kind && (!ask->applies || ask->applies(s));
}

const scene_ask *scene_senses_record(scene_split split, const char *purpose, uint64_t seed,
                                     uint64_t index, scene_senses *out, const char **wording)
{
    const scene_ask *ask = &asks[index % scene_ask_count()];
    scene_prng prng = scene_prng_make(seed, purpose, index);
    do {
        scene_draw_senses(out, ask->kind, split, &prng);
    } while (!scene_ask_applies(ask, out));
    *wording = ask->wording[scene_prng_range(&prng, 0, SCENE_WORDINGS - 1)];
    return ask;
}
