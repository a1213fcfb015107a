/* Conversations about scenes of split P. */
#include "scenes/pretrain.h"

#include "engine/example.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define TURNS_MAX 9
#define ONE_FIELD_UNTIL 0.15 /* of the run */
#define REPEATS 0.3          /* share of conversations that end with a word to repeat */
#define TURNS 5              /* questions a picture, besides the transcript */

/* Questions and answers of one conversation. */
typedef struct talk {
    const char *question[TURNS_MAX];
    char answer[TURNS_MAX][SCENE_TRANSCRIPT_MAX];
    char spoken[SCENE_TEXT_MAX];
    size_t turns;
} talk;

static tacit_status read_picture(void *ctx, const char *path, uint8_t **data, size_t *size,
                                 tacit_error *err)
{
    tacit_buffer jpeg = {.cap = 1 << 20};
    (void)path;
    tacit_status status = scene_jpeg(ctx, &jpeg, err);
    *data = jpeg.data;
    *size = jpeg.size;
    if (status != TACIT_OK)
        tacit_buffer_free(&jpeg);
    return status;
}

static scene draw_scene(uint64_t seed, const char *purpose, scene_split split, uint64_t index,
                        scene_prng *prng)
{
    scene s;
    *prng = scene_prng_make(seed, purpose, index);
    scene_draw_values(&s, index % 2 ? SCENE_MONITOR : SCENE_CLUSTER, prng);
    scene_draw_style(&s.style, split, prng);
    return s;
}

static void keep_one_field(scene *s, scene_prng *prng)
{
    int first = (int)scene_first_field(s->kind);
    int kept = first + scene_prng_range(prng, 0, SCENE_FIELDS - 1);
    for (int f = first; f < first + SCENE_FIELDS; f++)
        s->shown[f] = f == kept;
}

static void ask(talk *t, const scene *s, scene_field field, scene_prng *prng)
{
    size_t n = scene_question_count(field);
    t->question[t->turns] = scene_question(field, (size_t)scene_prng_range(prng, 0, (int)n - 1));
    scene_answer(s, field, t->answer[t->turns++]);
}

/* A transcript in half of the conversations, then the shown fields in random order. */
static void make_talk(talk *t, const scene *s, scene_prng *prng)
{
    scene_field order[SCENE_FIELDS];
    t->turns = 0;
    if (scene_prng_chance(prng, 0.5)) {
        t->question[0] = scene_transcript_question();
        scene_transcript(s, t->answer[t->turns++]);
    }
    for (int i = 0; i < SCENE_FIELDS; i++)
        order[i] = scene_first_field(s->kind) + (scene_field)i;
    for (int i = SCENE_FIELDS - 1; i > 0; i--) {
        int j = scene_prng_range(prng, 0, i);
        scene_field keep = order[i];
        order[i] = order[j];
        order[j] = keep;
    }
    for (int i = 0; i < TURNS; i++)
        if (s->shown[order[i % SCENE_FIELDS]])
            ask(t, s, order[i % SCENE_FIELDS], prng);
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

/* A turn that has nothing to do with the picture: it makes every piece of the vocabulary one that
 * nano has said, so that new words are new by their combination alone. */
static void ask_to_repeat(talk *t, const tacit_tokenizer *tokenizer, scene_prng *prng)
{
    char word[SCENE_TEXT_MAX];
    draw_word(word, tokenizer, prng);
    snprintf(t->spoken, sizeof t->spoken, "Repeat:%s", word);
    t->question[t->turns] = t->spoken;
    snprintf(t->answer[t->turns++], SCENE_TEXT_MAX, "%s", word + 1);
}

/* Two of three conversations have Hugging Face's form, which Tacit itself sends. */
static media_form draw_form(scene_prng *prng)
{
    static const media_form forms[] = {MEDIA_FORM_HF, MEDIA_FORM_HF,   MEDIA_FORM_HF,
                                       MEDIA_FORM_HF, MEDIA_FORM_MTMD, MEDIA_FORM_MTMD_IK};
    return forms[scene_prng_range(prng, 0, 5)];
}

/* The messages of a talk; all of them view into `t` and `content`. */
static void make_messages(talk *t, tacit_message *message, tacit_content *content)
{
    static char picture[] = "scene.jpg";
    tacit_content *next = content;
    for (size_t i = 0; i < t->turns; i++) {
        message[2 * i] = (tacit_message){TACIT_ROLE_USER, next, 1 + (i == 0)};
        if (i == 0)
            *next++ = (tacit_content){TACIT_CONTENT_IMAGE, picture};
        *next++ = (tacit_content){TACIT_CONTENT_TEXT, (char *)(uintptr_t)t->question[i]};
        message[2 * i + 1] = (tacit_message){TACIT_ROLE_ASSISTANT, next, 1};
        *next++ = (tacit_content){TACIT_CONTENT_TEXT, t->answer[i]};
    }
}

tacit_status pretrain_example(tacit_input *out, const tacit_model *model, uint64_t seed,
                              uint64_t index, double progress, tacit_error *err)
{
    scene_prng prng;
    scene s = draw_scene(seed, "pretrain", SCENE_PRETRAIN, index, &prng);
    talk t;
    tacit_message message[2 * TURNS_MAX];
    tacit_content content[2 * TURNS_MAX + 1];
    bool one_field = scene_prng_chance(&prng, 0.5);
    if (progress < ONE_FIELD_UNTIL && one_field)
        keep_one_field(&s, &prng);
    make_talk(&t, &s, &prng);
    if (scene_prng_chance(&prng, REPEATS))
        ask_to_repeat(&t, tacit_model_tokenizer(model), &prng);
    make_messages(&t, message, content);
    tacit_record record = {.message = message, .n_messages = 2 * t.turns};
    tacit_media_source source = {&s, read_picture};
    tacit_example_options options = {
        .form = draw_form(&prng), .max_rows = PRETRAIN_MAX_ROWS, .source = &source};
    return tacit_example_build(out, model, &record, &options, err);
}

tacit_status pretrain_question(tacit_input *out, char answer[SCENE_TEXT_MAX], scene_field *field,
                               const tacit_model *model, scene_split split, uint64_t index,
                               tacit_error *err)
{
    scene_prng prng;
    scene s = draw_scene(0, "pretrain-heldout", split, index, &prng);
    talk t = {.turns = 0};
    tacit_message message[2];
    tacit_content content[3];
    *field = scene_first_field(s.kind) + (scene_field)(index / 2 % SCENE_FIELDS);
    ask(&t, &s, *field, &prng);
    make_messages(&t, message, content);
    memcpy(answer, t.answer[0], SCENE_TEXT_MAX);
    tacit_media_source source = {&s, read_picture};
    tacit_example_options options = {.source = &source};
    return tacit_example_prompt(out, model, message, 1, &options, err);
}
