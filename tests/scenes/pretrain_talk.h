/* What is asked and answered in one conversation about a scene. */
#ifndef TACIT_SCENES_PRETRAIN_TALK_H
#define TACIT_SCENES_PRETRAIN_TALK_H

#include "engine/tokenizer.h"
#include "scenes/scene_senses.h"

#define TALK_TURNS 9

/* Questions point to tables or to `spoken`, so a talk is not copied. */
typedef struct pretrain_talk {
    const char *question[TALK_TURNS];
    char answer[TALK_TURNS][SCENE_TRANSCRIPT_MAX];
    char spoken[SCENE_TEXT_MAX];
    size_t turns;
} pretrain_talk;

/* One question, in one of its wordings. */
void talk_ask_field(pretrain_talk *t, const scene *s, scene_field field, scene_prng *prng);
void talk_ask(pretrain_talk *t, const scene_ask *ask, const scene_senses *s, scene_prng *prng);

/* A transcript in half of the conversations, then the shown fields in random order. */
void talk_about_picture(pretrain_talk *t, const scene *s, scene_prng *prng);

/* Up to six questions that apply and need nothing but `given` (SCENE_SENSE_*), and two fields of a
 * given picture. In half of the conversations what needs two senses comes first, so that it is
 * also answered before anything was said about either. With `paces` half of those with picture and
 * signal begin with the pace of the shown number: what agrees with a signal is its pace. */
void talk_about_senses(pretrain_talk *t, const scene_senses *s, unsigned given, bool paces,
                       scene_prng *prng);

/* A made-up word to repeat: it makes every piece of the vocabulary one that nano has said, so that
 * new words are new by their combination alone. */
void talk_ask_to_repeat(pretrain_talk *t, const tacit_tokenizer *tokenizer, scene_prng *prng);

#endif
