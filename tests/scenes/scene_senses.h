/* Scenes that are seen, heard and measured at the same time, and the questions about them: about
 * one of picture, sound and signal, or about two at once.
 *
 * A question about two cannot be answered from one: the values are drawn so that, whatever one of
 * the two holds, every answer is as likely as any other (`chance`). What a draw holds is common to
 * all questions of a kind, so one scene may be asked all that apply to it. */
#ifndef TACIT_SCENES_SENSES_H
#define TACIT_SCENES_SENSES_H

#include "scenes/scene.h"
#include "scenes/scene_signal.h"
#include "scenes/scene_sound.h"

enum { SCENE_SENSE_PICTURE = 1, SCENE_SENSE_SOUND = 2, SCENE_SENSE_SIGNAL = 4 };
#define SCENE_SENSES 3

typedef struct scene_senses {
    scene_kind kind;
    scene picture;
    scene_sound sound;
    scene_signal signal;
} scene_senses;

#define SCENE_WORDINGS 2

typedef struct scene_ask {
    const char *name; /* of record ids and reports; two of each kind may share it */
    scene_kind kind;
    unsigned needs; /* SCENE_SENSE_*: what must be given */
    double chance;  /* of the best answer that knows one of two needed; one needed: 0 */
    const char *wording[SCENE_WORDINGS];
    bool (*applies)(const scene_senses *s); /* NULL: always */
    void (*answer)(const scene_senses *s, char out[SCENE_TEXT_MAX]);
} scene_ask;

size_t scene_ask_count(void);
const scene_ask *scene_ask_at(size_t i);
bool scene_ask_applies(const scene_ask *ask, const scene_senses *s);

/* The words of all answers but numbers: the vocabulary holds each as one token. */
size_t scene_sense_word_count(void);
const char *scene_sense_word(size_t i);

/* "slow", "normal" or "fast": the heart rate or speed that the picture shows. */
const char *scene_shown_pace(const scene_senses *s);

/* Values, styles and seeds. Values come first from the generator, so two splits that start from
 * the same state differ in style alone. */
void scene_draw_senses(scene_senses *s, scene_kind kind, scene_split split, scene_prng *prng);

/* Writes DIR/data.jsonl in the chat form and the media below DIR/img, DIR/snd and DIR/csv: `count`
 * scenes with one question each and the media that it needs. */
tacit_status scene_senses_write(scene_split split, uint64_t seed, size_t count, const char *dir,
                                tacit_error *err) TACIT_MUST_CHECK;
/* The scene of record `index` of such a set and its question, as it is before it is written. */
const scene_ask *scene_senses_record(scene_split split, const char *purpose, uint64_t seed,
                                     uint64_t index, scene_senses *out, const char **wording);

#endif
