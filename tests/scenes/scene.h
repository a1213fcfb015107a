/* Synthetic scenes: instrument clusters and patient monitors, 96x96 pixels, with the values they
 * show and the questions that can be asked about them. Everything follows from seeds: the same
 * scene gives the same bytes on one machine. Thread-safe: no state outside the arguments.
 *
 * A scene is a kind, the values of its five fields and a style. Questions come from a fixed public
 * list of templates. An answer depends on the question's wording and on the values alone, never on
 * the device, so no two devices contradict each other. */
#ifndef TACIT_SCENES_SCENE_H
#define TACIT_SCENES_SCENE_H

#include "common/bytes.h"
#include "common/status.h"
#include "scenes/scene_prng.h"

#include <stddef.h>

#define SCENE_SIZE 96 /* pixels a side */
#define SCENE_RGB_BYTES (SCENE_SIZE * SCENE_SIZE * 3)
#define SCENE_FIELDS 5 /* of each kind */
#define SCENE_STATES 8 /* lamps of a cluster, traces of a monitor */
#define SCENE_TEXT_MAX 64

typedef enum scene_kind { SCENE_CLUSTER, SCENE_MONITOR } scene_kind;
#define SCENE_KINDS 2

/* Fields in the order of a transcript. */
typedef enum scene_field {
    SCENE_SPEED = 0, /* cluster: km/h, 0 to 199 */
    SCENE_FUEL,      /* percent, 5 to 99 */
    SCENE_GEAR,      /* index of "P" "R" "N" "D" "S" */
    SCENE_TURN,      /* 0 off, 1 left, 2 right */
    SCENE_LAMP,      /* which of SCENE_STATES telltales is lit */
    SCENE_HEART,     /* monitor: heart rate, 30 to 199 per minute */
    SCENE_OXYGEN,    /* SpO2, 70 to 99 percent */
    SCENE_PRESSURE,  /* systolic * 1000 + diastolic, mmHg */
    SCENE_ALARM,     /* 0 off, 1 low, 2 high */
    SCENE_TRACE,     /* which of SCENE_STATES forms the upper waveform has */
    SCENE_FIELD_COUNT
} scene_field;

/* Style splits share no face, no palette and no seed range. */
typedef enum scene_split {
    SCENE_PRETRAIN,  /* P: nano is pretrained on it */
    SCENE_REHEARSAL, /* H: the fleet on which DP parameters are chosen */
    SCENE_FLEET      /* F: the demo's fleet */
} scene_split;

/* What a device (or a pretraining picture) looks like. */
typedef struct scene_style {
    int face;           /* index into the faces of scene_style.c: font, weight, or segments */
    int palette;        /* index into its palettes */
    int layout;         /* 0 to SCENE_LAYOUTS - 1 */
    double slant;       /* horizontal shear of the digits */
    double stretch;     /* horizontal scale of the digits, about 1 */
    double digit_scale; /* size of the digits, about 1 */
    double glare;       /* 0 to 1: strength of a bright spot */
    double blur;        /* radius of a box blur in pixels, 0 to 1 */
    double noise;       /* standard deviation in levels of 255 */
    int jpeg_quality;   /* 1 to 100 */
    bool gauges;        /* needle, bar and second waveform are drawn */
} scene_style;
#define SCENE_LAYOUTS 2

typedef struct scene {
    scene_kind kind;
    int value[SCENE_FIELD_COUNT];  /* of the kind's own fields; the others are 0 */
    bool shown[SCENE_FIELD_COUNT]; /* which fields are drawn; the others stay dark */
    scene_style style;
    uint64_t detail; /* seeds jitter, glare's place, noise and the waveform's phase */
} scene;

/* First field of a kind; its fields are the SCENE_FIELDS from there. */
scene_field scene_first_field(scene_kind kind);
/* "speed", "trace": the word of transcripts and record ids. */
const char *scene_field_name(scene_field field);
/* True for lamp and trace, whose states have labels of two vocabularies. */
bool scene_field_has_states(scene_field field);

/* Values uniform over each field's range, all fields shown, style untouched. */
void scene_draw_values(scene *s, scene_kind kind, scene_prng *prng);
/* A style of the split; pictures of one device share it. */
void scene_draw_style(scene_style *style, scene_split split, scene_prng *prng);
/* True when faces and palettes of `style` belong to `split`. */
bool scene_style_in_split(const scene_style *style, scene_split split);

/* Questions. A field has scene_question_count wordings of the base vocabulary; lamp and trace have
 * scene_new_question_count more, answered with the new labels, which only fleets ask. */
size_t scene_question_count(scene_field field);
const char *scene_question(scene_field field, size_t i);
size_t scene_new_question_count(scene_field field);
const char *scene_new_question(scene_field field, size_t i);
/* "What does the display show?": answered with all shown fields. */
const char *scene_transcript_question(void);

/* Label of a state: a word of the base vocabulary or of the new one. */
const char *scene_base_label(scene_field field, int state);
const char *scene_new_label(scene_field field, int state);

/* NUL-terminated answers of at most SCENE_TEXT_MAX - 1 bytes. */
void scene_answer(const scene *s, scene_field field, char out[SCENE_TEXT_MAX]);
void scene_new_answer(const scene *s, scene_field field, char out[SCENE_TEXT_MAX]);
#define SCENE_TRANSCRIPT_MAX (SCENE_FIELDS * SCENE_TEXT_MAX)
void scene_transcript(const scene *s, char out[SCENE_TRANSCRIPT_MAX]);

/* Interleaved RGB, rows from the top. */
tacit_status scene_draw(const scene *s, uint8_t rgb[SCENE_RGB_BYTES],
                        tacit_error *err) TACIT_MUST_CHECK;
/* The same picture as JPEG of the style's quality, appended to `out`. */
tacit_status scene_jpeg(const scene *s, tacit_buffer *out, tacit_error *err) TACIT_MUST_CHECK;

#endif
