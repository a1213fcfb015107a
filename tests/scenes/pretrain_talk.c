#include "scenes/pretrain_talk.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>

#define SENSES_ASKED 6   /* at most in a conversation: more scenes teach more than more turns */
#define FIELDS_BESIDES 2 /* asked of a picture that comes with other senses */

void talk_ask_field(pretrain_talk *t, const scene *s, scene_field field, scene_prng *prng)
{
    size_t n = scene_question_count(field);
    t->question[t->turns] = scene_question(field, (size_t)scene_prng_range(prng, 0, (int)n - 1));
    scene_answer(s, field, t->answer[t->turns++]);
}

void talk_ask(pretrain_talk *t, const scene_ask *ask, const scene_senses *s, scene_prng *prng)
{
    t->question[t->turns] = ask->wording[scene_prng_range(prng, 0, SCENE_WORDINGS - 1)];
    ask->answer(s, t->answer[t->turns++]);
}

/* A random order of the numbers below n. */
static void shuffle(size_t *order, size_t n, scene_prng *prng)
{
    for (size_t i = 0; i < n; i++)
        order[i] = i;
    for (size_t i = n; i > 1; i--) {
        size_t j = (size_t)scene_prng_range(prng, 0, (int)i - 1), keep = order[i - 1];
        order[i - 1] = order[j];
        order[j] = keep;
    }
}

static void ask_fields(pretrain_talk *t, const scene *s, size_t most, scene_prng *prng)
{
    size_t order[SCENE_FIELDS];
    shuffle(order, SCENE_FIELDS, prng);
    for (size_t i = 0; i < SCENE_FIELDS && i < most; i++) {
        scene_field field = scene_first_field(s->kind) + (scene_field)order[i];
        if (s->shown[field])
            talk_ask_field(t, s, field, prng);
    }
}

void talk_about_picture(pretrain_talk *t, const scene *s, scene_prng *prng)
{
    if (scene_prng_chance(prng, 0.5)) {
        t->question[t->turns] = scene_transcript_question();
        scene_transcript(s, t->answer[t->turns++]);
    }
    ask_fields(t, s, SCENE_FIELDS, prng);
}

static bool needs_two(const scene_ask *ask)
{
    return (ask->needs & (ask->needs - 1)) != 0;
}

/* Not among the questions of data sets: a step to them. */
static void ask_pace(pretrain_talk *t, const scene_senses *s, unsigned given, scene_prng *prng)
{
    const unsigned both = SCENE_SENSE_PICTURE | SCENE_SENSE_SIGNAL;
    if ((given & both) != both || !scene_prng_chance(prng, 0.5))
        return;
    t->question[t->turns] =
        s->kind == SCENE_MONITOR ? "How fast is the heart rate?" : "How fast is the speed?";
    snprintf(t->answer[t->turns++], SCENE_TEXT_MAX, "%s", scene_shown_pace(s));
}

void talk_about_senses(pretrain_talk *t, const scene_senses *s, unsigned given, bool paces,
                       scene_prng *prng)
{
    size_t order[64], n = scene_ask_count();
    if (paces)
        ask_pace(t, s, given, prng);
    bool two_first = scene_prng_chance(prng, 0.5);
    shuffle(order, n, prng);
    for (int pass = 0; pass < 2; pass++) {
        for (size_t i = 0; i < n && t->turns < SENSES_ASKED; i++) {
            const scene_ask *ask = scene_ask_at(order[i]);
            bool now = two_first ? needs_two(ask) == (pass == 0) : pass == 0;
            if (now && (ask->needs & ~given) == 0 && scene_ask_applies(ask, s))
                talk_ask(t, ask, s, prng);
        }
    }
    if (given & SCENE_SENSE_PICTURE)
        ask_fields(t, &s->picture, FIELDS_BESIDES, prng);
}

/* The text of a token of letters, or false. */
static bool letters_of(const tacit_tokenizer *t, int32_t id, bool spaced, char *out, size_t size)
{
    tacit_buffer b = {0};
    bool ok = tacit_detokenize(t, id, false, &b, NULL) == TACIT_OK && b.size > 2 && b.size < size;
    ok = ok && (b.data[0] == ' ') == spaced;
    for (size_t i = spaced; ok && i < b.size; i++)
        ok = isalpha(b.data[i]);
    if (ok)
        snprintf(out, size, "%.*s", (int)b.size, (const char *)b.data);
    tacit_buffer_free(&b);
    return ok;
}

static bool holds_new_label(const char *text)
{
    for (int i = 0; i < SCENE_STATES; i++)
        if (strstr(text, scene_new_label(SCENE_LAMP, i)) ||
            strstr(text, scene_new_label(SCENE_TRACE, i)))
            return true;
    return false;
}

/* One to three random pieces of the vocabulary, joined to a word that is no new label. */
static void draw_word(char out[SCENE_TEXT_MAX], const tacit_tokenizer *t, scene_prng *prng)
{
    int vocabulary = (int)tacit_tokenizer_vocab(t);
    do {
        int pieces = scene_prng_range(prng, 1, 3);
        size_t at = 0;
        for (int i = 0; i < pieces;) {
            int32_t id = scene_prng_range(prng, 0, vocabulary - 1);
            if (!letters_of(t, id, i == 0, out + at, SCENE_TEXT_MAX - at))
                continue;
            at += strlen(out + at);
            i++;
        }
    } while (holds_new_label(out));
}

void talk_ask_to_repeat(pretrain_talk *t, const tacit_tokenizer *tokenizer, scene_prng *prng)
{
    char word[SCENE_TEXT_MAX];
    draw_word(word, tokenizer, prng);
    snprintf(t->spoken, sizeof t->spoken, "Repeat:%s", word);
    t->question[t->turns] = t->spoken;
    snprintf(t->answer[t->turns++], SCENE_TEXT_MAX, "%s", word + 1);
}
