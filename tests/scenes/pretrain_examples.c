/* Conversations about scenes of split P, their media made in memory. */
#include "scenes/pretrain.h"

#include "engine/example.h"
#include "scenes/pretrain_talk.h"

#include <string.h>

#define ONE_FIELD_UNTIL 0.12 /* of the run */
#define REPEATS 0.3          /* share of conversations that end with a word to repeat */

/* ---- media ---- */

typedef struct medium_row {
    unsigned sense;
    tacit_content_kind content;
    const char *path;
} medium_row;

static const medium_row media[SCENE_SENSES] = {
    {SCENE_SENSE_PICTURE, TACIT_CONTENT_IMAGE, "scene.jpg"},
    {SCENE_SENSE_SOUND, TACIT_CONTENT_AUDIO, "scene.wav"},
    {SCENE_SENSE_SIGNAL, TACIT_CONTENT_SENSOR, "scene.csv"},
};

/* The file that `path` names in the table above. */
static tacit_status read_medium(void *ctx, const char *path, uint8_t **data, size_t *size,
                                tacit_error *err)
{
    const scene_senses *s = ctx;
    tacit_buffer bytes = {.cap = 1 << 20};
    tacit_status status;
    if (strcmp(path, media[0].path) == 0)
        status = scene_jpeg(&s->picture, &bytes, err);
    else if (strcmp(path, media[1].path) == 0)
        status = scene_sound_wav(&s->sound, &bytes, err);
    else
        status = scene_signal_csv(&s->signal, &bytes, err);
    *data = bytes.data;
    *size = bytes.size;
    if (status != TACIT_OK)
        tacit_buffer_free(&bytes);
    return status;
}

/* ---- messages ---- */

typedef struct conversation {
    tacit_message message[2 * TALK_TURNS];
    tacit_content content[2 * TALK_TURNS + SCENE_SENSES];
} conversation;

/* The given media, in the order of `place`, before the first question. */
static tacit_content *put_media(tacit_content *next, unsigned given, const int *place)
{
    for (int i = 0; i < SCENE_SENSES; i++) {
        const medium_row *row = &media[place[i]];
        if (given & row->sense)
            *next++ = (tacit_content){row->content, (char *)(uintptr_t)row->path};
    }
    return next;
}

/* The messages of a talk; all of them view into `t` and `c`. */
static void make_messages(conversation *c, pretrain_talk *t, unsigned given, const int *place)
{
    tacit_content *next = c->content;
    for (size_t i = 0; i < t->turns; i++) {
        tacit_content *first = next;
        if (i == 0)
            next = put_media(next, given, place);
        *next++ = (tacit_content){TACIT_CONTENT_TEXT, (char *)(uintptr_t)t->question[i]};
        c->message[2 * i] = (tacit_message){TACIT_ROLE_USER, first, (size_t)(next - first)};
        c->message[2 * i + 1] = (tacit_message){TACIT_ROLE_ASSISTANT, next, 1};
        *next++ = (tacit_content){TACIT_CONTENT_TEXT, t->answer[i]};
    }
}

static void draw_place(int place[SCENE_SENSES], scene_prng *prng)
{
    static const int orders[][SCENE_SENSES] = {
        {0, 1, 2}, {0, 1, 2}, {1, 2, 0}, {2, 0, 1}, {2, 1, 0}};
    memcpy(place, orders[scene_prng_range(prng, 0, 4)], sizeof orders[0]);
}

/* ---- examples ---- */

#define LATE_FROM 0.44 /* of the run: what is hard to compare gets the larger share */

/* What a conversation is about, and in how many of a hundred: until LATE_FROM, and after it. */
static const struct {
    int share[2];
    unsigned given;
} mixture[] = {
    {{45, 28}, SCENE_SENSE_PICTURE},
    {{8, 4}, SCENE_SENSE_SOUND},
    {{9, 6}, SCENE_SENSE_SIGNAL},
    {{12, 8}, SCENE_SENSE_PICTURE | SCENE_SENSE_SOUND},
    {{12, 42}, SCENE_SENSE_PICTURE | SCENE_SENSE_SIGNAL},
    {{8, 6}, SCENE_SENSE_SOUND | SCENE_SENSE_SIGNAL},
    {{6, 6}, SCENE_SENSE_PICTURE | SCENE_SENSE_SOUND | SCENE_SENSE_SIGNAL},
};

static unsigned draw_given(double progress, scene_prng *prng)
{
    int ball = scene_prng_range(prng, 0, 99), i = 0, late = progress >= LATE_FROM;
    while (ball >= mixture[i].share[late])
        ball -= mixture[i++].share[late];
    return mixture[i].given;
}

/* Two of three conversations have Hugging Face's form, which Tacit itself sends. */
static media_form draw_form(scene_prng *prng)
{
    static const media_form forms[] = {MEDIA_FORM_HF, MEDIA_FORM_HF,   MEDIA_FORM_HF,
                                       MEDIA_FORM_HF, MEDIA_FORM_MTMD, MEDIA_FORM_MTMD_IK};
    return forms[scene_prng_range(prng, 0, 5)];
}

/* Values uniform over the whole range of each field: what is asked of pictures alone. */
static scene draw_picture(scene_split split, uint64_t index, scene_prng *prng)
{
    scene s;
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

static void talk_of_picture(pretrain_talk *t, scene_senses *s, uint64_t index, double progress,
                            scene_prng *prng)
{
    s->picture = draw_picture(SCENE_PRETRAIN, index, prng);
    bool one_field = scene_prng_chance(prng, 0.5);
    if (progress < ONE_FIELD_UNTIL && one_field)
        keep_one_field(&s->picture, prng);
    talk_about_picture(t, &s->picture, prng);
}

tacit_status pretrain_example(tacit_input *out, const tacit_model *model, uint64_t seed,
                              uint64_t index, double progress, tacit_error *err)
{
    scene_prng prng = scene_prng_make(seed, "pretrain", index);
    pretrain_talk t = {.turns = 0};
    conversation c;
    scene_senses s;
    int place[SCENE_SENSES];
    unsigned given = draw_given(progress, &prng);
    draw_place(place, &prng);
    if (given == SCENE_SENSE_PICTURE) {
        talk_of_picture(&t, &s, index, progress, &prng);
    } else {
        scene_draw_senses(&s, index % 2 ? SCENE_MONITOR : SCENE_CLUSTER, SCENE_PRETRAIN, &prng);
        talk_about_senses(&t, &s, given, progress >= PRETRAIN_SECOND, &prng);
    }
    if (scene_prng_chance(&prng, REPEATS) && t.turns < TALK_TURNS)
        talk_ask_to_repeat(&t, tacit_model_tokenizer(model), &prng);
    make_messages(&c, &t, given, place);
    tacit_record record = {.message = c.message, .n_messages = 2 * t.turns};
    tacit_media_source source = {&s, read_medium};
    tacit_example_options options = {
        .form = draw_form(&prng), .max_rows = PRETRAIN_MAX_ROWS, .source = &source};
    return tacit_example_build(out, model, &record, &options, err);
}

/* ---- questions about held-out scenes ---- */

static const int usual_place[SCENE_SENSES] = {0, 1, 2};

static tacit_status make_prompt(tacit_input *out, const tacit_model *model, pretrain_talk *t,
                                scene_senses *s, unsigned given, tacit_error *err)
{
    conversation c;
    tacit_media_source source = {s, read_medium};
    tacit_example_options options = {.source = &source};
    make_messages(&c, t, given, usual_place);
    return tacit_example_prompt(out, model, c.message, 1, &options, err);
}

tacit_status pretrain_question(tacit_input *out, char answer[SCENE_TEXT_MAX], scene_field *field,
                               const tacit_model *model, scene_split split, uint64_t index,
                               tacit_error *err)
{
    scene_prng prng = scene_prng_make(0, "pretrain-heldout", index);
    pretrain_talk t = {.turns = 0};
    scene_senses s = {.picture = draw_picture(split, index, &prng)};
    *field = scene_first_field(s.picture.kind) + (scene_field)(index / 2 % SCENE_FIELDS);
    talk_ask_field(&t, &s.picture, *field, &prng);
    memcpy(answer, t.answer[0], SCENE_TEXT_MAX);
    return make_prompt(out, model, &t, &s, SCENE_SENSE_PICTURE, err);
}

tacit_status pretrain_sense_question(tacit_input *out, char answer[SCENE_TEXT_MAX], size_t *ask,
                                     const tacit_model *model, scene_split split, uint64_t index,
                                     unsigned swapped, tacit_error *err)
{
    pretrain_talk t = {.turns = 1};
    scene_senses s, other;
    const char *unused;
    /* The other scene answers the same question; nobody else asks about it. */
    uint64_t far = index + scene_ask_count() * 1000000;
    scene_senses_record(split, "senses-heldout", 0, far, &other, &unused);
    const scene_ask *row =
        scene_senses_record(split, "senses-heldout", 0, index, &s, &t.question[0]);
    row->answer(&s, answer);
    *ask = index % scene_ask_count();
    if (swapped & SCENE_SENSE_PICTURE)
        s.picture = other.picture;
    if (swapped & SCENE_SENSE_SOUND)
        s.sound = other.sound;
    if (swapped & SCENE_SENSE_SIGNAL)
        s.signal = other.signal;
    return make_prompt(out, model, &t, &s, row->needs, err);
}
