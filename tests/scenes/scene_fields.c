/* What the fields of a scene are called, asked and answered: one row a field. The lists are public:
 * they are also the text from which nano's vocabulary is learned. */
#include "scenes/scene.h"

#include <stdio.h>

#define QUESTIONS_MAX 3

typedef struct field_row {
    const char *name;
    int low, high; /* of the value */
    const char *question[QUESTIONS_MAX];
    const char *new_question[QUESTIONS_MAX];
    const char *const *word; /* answers of fields that are not numbers, by value */
    const char *const *new_word;
} field_row;

static const char *const gears[] = {"P", "R", "N", "D", "S"};
static const char *const turns[] = {"off", "left", "right"};
static const char *const alarms[] = {"off", "low", "high"};
static const char *const lamps[SCENE_STATES] = {"oil",  "battery", "hazard", "brake",
                                                "heat", "tyre",    "wheel",  "belt"};
static const char *const traces[SCENE_STATES] = {"peaks", "flat", "saw",   "noise",
                                                 "block", "gap",  "pairs", "dips"};

/* The words of the fleets: what a workshop does about a lamp, what a ward calls a trace. */
static const char *const services[SCENE_STATES] = {"lubricate", "recharge", "diagnose", "overhaul",
                                                   "coolant",   "inflate",  "align",    "buckle"};
static const char *const rhythms[SCENE_STATES] = {"sinus",        "asystole",    "flutter",
                                                  "fibrillation", "ventricular", "pause",
                                                  "bigeminy",     "ischemia"};

static const field_row fields[SCENE_FIELD_COUNT] = {
    [SCENE_SPEED] =
        {"speed", 0, 199, {"What is the speed?", "How fast is it?"}, {NULL}, NULL, NULL},
    [SCENE_FUEL] =
        {"fuel", 5, 99, {"How much fuel is left?", "What is the fuel?"}, {NULL}, NULL, NULL},
    [SCENE_GEAR] = {"gear", 0, 4, {"Which gear is in?", "What is the gear?"}, {NULL}, gears, NULL},
    [SCENE_TURN] = {"turn", 0, 2, {"Which turn is on?", "What is the turn?"}, {NULL}, turns, NULL},
    [SCENE_LAMP] = {"lamp",
                    0,
                    SCENE_STATES - 1,
                    {"Which lamp is lit?", "What does the lamp show?"},
                    {"What does the lamp call for?"},
                    lamps,
                    services},
    [SCENE_HEART] = {"heart",
                     30,
                     199,
                     {"What is the heart rate?", "How fast is the heart?"},
                     {NULL},
                     NULL,
                     NULL},
    [SCENE_OXYGEN] = {"oxygen",
                      70,
                      99,
                      {"What is the oxygen?", "How much oxygen is there?"},
                      {NULL},
                      NULL,
                      NULL},
    [SCENE_PRESSURE] = {"pressure",
                        0,
                        0,
                        {"What is the blood pressure?", "What is the pressure?"},
                        {NULL},
                        NULL,
                        NULL},
    [SCENE_ALARM] =
        {"alarm", 0, 2, {"Which alarm is on?", "What is the alarm?"}, {NULL}, alarms, NULL},
    [SCENE_TRACE] = {"trace",
                     0,
                     SCENE_STATES - 1,
                     {"Which trace is drawn?", "What does the trace show?"},
                     {"What does the trace stand for?"},
                     traces,
                     rhythms},
};

static size_t count_text(const char *const *list)
{
    size_t n = 0;
    while (n < QUESTIONS_MAX && list[n])
        n++;
    return n;
}

scene_field scene_first_field(scene_kind kind)
{
    return kind == SCENE_CLUSTER ? SCENE_SPEED : SCENE_HEART;
}

const char *scene_field_name(scene_field field)
{
    return fields[field].name;
}

bool scene_field_has_states(scene_field field)
{
    return fields[field].new_word != NULL;
}

size_t scene_question_count(scene_field field)
{
    return count_text(fields[field].question);
}

const char *scene_question(scene_field field, size_t i)
{
    return fields[field].question[i];
}

size_t scene_new_question_count(scene_field field)
{
    return count_text(fields[field].new_question);
}

const char *scene_new_question(scene_field field, size_t i)
{
    return fields[field].new_question[i];
}

const char *scene_transcript_question(void)
{
    return "What does the display show?";
}

const char *scene_base_label(scene_field field, int state)
{
    return fields[field].word[state];
}

const char *scene_new_label(scene_field field, int state)
{
    return fields[field].new_word[state];
}

void scene_draw_values(scene *s, scene_kind kind, scene_prng *prng)
{
    s->kind = kind;
    for (int f = 0; f < SCENE_FIELD_COUNT; f++) {
        int first = (int)scene_first_field(kind);
        bool own = f >= first && f < first + SCENE_FIELDS;
        s->shown[f] = own;
        s->value[f] = own ? scene_prng_range(prng, fields[f].low, fields[f].high) : 0;
    }
    if (kind == SCENE_MONITOR)
        s->value[SCENE_PRESSURE] =
            scene_prng_range(prng, 80, 199) * 1000 + scene_prng_range(prng, 40, 119);
    s->detail = scene_prng_u64(prng);
}

void scene_answer(const scene *s, scene_field field, char out[SCENE_TEXT_MAX])
{
    int value = s->value[field];
    if (fields[field].word)
        snprintf(out, SCENE_TEXT_MAX, "%s", fields[field].word[value]);
    else if (field == SCENE_PRESSURE)
        snprintf(out, SCENE_TEXT_MAX, "%d/%d", value / 1000, value % 1000);
    else if (field == SCENE_FUEL || field == SCENE_OXYGEN)
        snprintf(out, SCENE_TEXT_MAX, "%d %%", value);
    else
        snprintf(out, SCENE_TEXT_MAX, "%d", value);
}

void scene_new_answer(const scene *s, scene_field field, char out[SCENE_TEXT_MAX])
{
    snprintf(out, SCENE_TEXT_MAX, "%s", fields[field].new_word[s->value[field]]);
}

void scene_transcript(const scene *s, char out[SCENE_TRANSCRIPT_MAX])
{
    size_t at = 0;
    out[0] = '\0';
    for (int i = 0; i < SCENE_FIELDS; i++) {
        scene_field field = scene_first_field(s->kind) + (scene_field)i;
        char answer[SCENE_TEXT_MAX];
        if (!s->shown[field])
            continue;
        scene_answer(s, field, answer);
        at += (size_t)snprintf(out + at, SCENE_TRANSCRIPT_MAX - at, "%s%s %s", at ? " " : "",
                               fields[field].name, answer);
    }
}
