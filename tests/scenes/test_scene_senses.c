/* Questions about sounds and signals: what needs two senses cannot be answered from one. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "common/file.h"
#include "engine/dataset.h"
#include "scenes/scene_senses.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SCENES 6000 /* to learn from, and as many to judge by */
#define FEATURES_MAX 8

/* What a sense tells, as small numbers; speeds and rates also in coarse steps. */
static size_t features_of(const scene_senses *s, unsigned sense, uint32_t out[FEATURES_MAX])
{
    const int *v = s->picture.value;
    const scene_signal *g = &s->signal;
    int list[FEATURES_MAX], n = 0;
    if (sense == SCENE_SENSE_PICTURE)
        for (int i = 0; i < SCENE_FIELDS; i++)
            list[n++] = v[scene_first_field(s->kind) + (scene_field)i];
    if (sense == SCENE_SENSE_PICTURE)
        list[n++] = v[s->kind == SCENE_MONITOR ? SCENE_HEART : SCENE_SPEED] / 12;
    if (sense == SCENE_SENSE_SOUND) {
        list[n++] = s->kind == SCENE_MONITOR ? (int)s->sound.priority : (int)s->sound.tone;
        list[n++] = s->sound.cause;
    }
    if (sense == SCENE_SENSE_SIGNAL && s->kind == SCENE_MONITOR) {
        const int own[] = {g->rhythm, g->rate, g->rate / 12, g->breaths};
        for (int i = 0; i < 4; i++)
            list[n++] = own[i];
    } else if (sense == SCENE_SENSE_SIGNAL) {
        const int own[] = {g->motion, g->steering, g->speed, g->speed / 12};
        for (int i = 0; i < 4; i++)
            list[n++] = own[i];
    }
    for (int i = 0; i < n; i++)
        out[i] = (uint32_t)list[i];
    return (size_t)n;
}

typedef struct sample {
    uint32_t feature[SCENE_SENSES][FEATURES_MAX];
    char answer[SCENE_TEXT_MAX];
} sample;

/* Of a question: the first SCENES to learn from, the others to judge by. */
static void draw_samples(sample *out, const scene_ask *ask)
{
    for (uint64_t i = 0, k = 0; k < 2 * SCENES; i++) {
        scene_prng prng = scene_prng_make(i, "test-senses", 0);
        scene_senses s;
        scene_draw_senses(&s, ask->kind, SCENE_PRETRAIN, &prng);
        if (!scene_ask_applies(ask, &s))
            continue;
        for (int m = 0; m < SCENE_SENSES; m++)
            features_of(&s, 1u << m, out[k].feature[m]);
        ask->answer(&s, out[k++].answer);
    }
}

typedef struct learned {
    uint64_t key;
    const char *answer;
} learned;

static int compare_learned(const void *a, const void *b)
{
    const learned *x = a, *y = b;
    if (x->key != y->key)
        return x->key < y->key ? -1 : 1;
    return strcmp(x->answer, y->answer);
}

/* Keeps of each key its most frequent answer; returns the number of keys. */
static size_t keep_best(learned *list, size_t n)
{
    size_t kept = 0, most = 0;
    for (size_t i = 0; i < n;) {
        size_t k = i;
        while (k < n && compare_learned(&list[i], &list[k]) == 0)
            k++;
        if (kept == 0 || list[kept - 1].key != list[i].key) {
            list[kept++] = list[i];
            most = k - i;
        } else if (k - i > most) {
            list[kept - 1] = list[i];
            most = k - i;
        }
        i = k;
    }
    return kept;
}

static int compare_keys(const void *a, const void *b)
{
    const learned *x = a, *y = b;
    return x->key < y->key ? -1 : x->key > y->key;
}

/* How often the best answer for a pair of features is right on scenes that it was not learned
 * from. */
static double accuracy_of(const sample *list, int m1, size_t f1, int m2, size_t f2)
{
    static learned table[SCENES];
    size_t right = 0;
    for (size_t i = 0; i < SCENES; i++)
        table[i] = (learned){(uint64_t)list[i].feature[m1][f1] << 32 | list[i].feature[m2][f2],
                             list[i].answer};
    qsort(table, SCENES, sizeof table[0], compare_learned);
    size_t keys = keep_best(table, SCENES);
    for (size_t i = SCENES; i < 2 * SCENES; i++) {
        learned want = {(uint64_t)list[i].feature[m1][f1] << 32 | list[i].feature[m2][f2], NULL};
        const learned *hit = bsearch(&want, table, keys, sizeof table[0], compare_keys);
        right += hit && strcmp(hit->answer, list[i].answer) == 0;
    }
    return (double)right / SCENES;
}

/* The best pair of features of two senses. */
static double best_of(const sample *list, scene_kind kind, int m1, int m2)
{
    uint32_t unused[FEATURES_MAX];
    scene_senses any = {.kind = kind};
    size_t n1 = features_of(&any, 1u << m1, unused), n2 = features_of(&any, 1u << m2, unused);
    double best = 0;
    for (size_t i = 0; i < n1; i++)
        for (size_t k = 0; k < n2; k++) {
            double found = accuracy_of(list, m1, i, m2, k);
            best = found > best ? found : best;
        }
    return best;
}

static bool needs_two(const scene_ask *ask)
{
    return (ask->needs & (ask->needs - 1)) != 0;
}

static void one_sense_of_two_is_chance(void **state)
{
    sample *list = malloc(2 * SCENES * sizeof *list);
    size_t tested = 0;
    (void)state;
    assert_non_null(list);
    for (size_t q = 0; q < scene_ask_count(); q++) {
        const scene_ask *ask = scene_ask_at(q);
        int used[2], n = 0;
        if (!needs_two(ask))
            continue;
        draw_samples(list, ask);
        for (int m = 0; m < SCENE_SENSES; m++)
            if (ask->needs & 1u << m)
                used[n++] = m;
        assert_int_equal(n, 2);
        for (int i = 0; i < n; i++) {
            double found = best_of(list, ask->kind, used[i], used[i]);
            if (found > ask->chance + 0.05)
                fail_msg("%s: %.3f from sense %d alone, chance is %.3f", ask->name, found, used[i],
                         ask->chance);
        }
        /* The same learner finds yes or no where it sees both senses. */
        if (ask->chance == 0.5 && best_of(list, ask->kind, used[0], used[1]) < 0.8)
            fail_msg("%s: not even both senses tell", ask->name);
        tested++;
    }
    assert_true(tested >= 8);
    free(list);
}

/* Answers of one or two words; yes in half of the scenes; no answer of a sense is rare. */
static void answers_are_short_and_balanced(void **state)
{
    (void)state;
    for (size_t q = 0; q < scene_ask_count(); q++) {
        const scene_ask *ask = scene_ask_at(q);
        size_t yes = 0, counted = 0, no = 0;
        for (uint64_t i = 0; counted < 3000; i++) {
            scene_prng prng = scene_prng_make(i, "test-balance", 0);
            char answer[SCENE_TEXT_MAX];
            scene_senses s;
            scene_draw_senses(&s, ask->kind, (scene_split)(i % 3), &prng);
            if (!scene_ask_applies(ask, &s))
                continue;
            ask->answer(&s, answer);
            const char *space = strchr(answer, ' ');
            assert_true(answer[0] && (!space || !strchr(space + 1, ' ')));
            yes += strcmp(answer, "yes") == 0;
            no += strcmp(answer, "no") == 0;
            counted++;
        }
        if (ask->chance == 0.5) {
            assert_int_equal(yes + no, counted);
            assert_in_range(yes, counted * 46 / 100, counted * 54 / 100);
        }
    }
}

/* A wording belongs to one question of a kind, and to none about pictures alone. */
static void wordings_are_unique(void **state)
{
    (void)state;
    for (size_t q = 0; q < scene_ask_count(); q++) {
        for (int k = 0; k < SCENE_WORDINGS; k++) {
            const char *text = scene_ask_at(q)->wording[k];
            assert_non_null(text);
            for (size_t p = 0; p <= q; p++)
                for (int m = 0; m < SCENE_WORDINGS; m++)
                    if (p != q || m != k)
                        assert_string_not_equal(text, scene_ask_at(p)->wording[m]);
            for (int f = 0; f < SCENE_FIELD_COUNT; f++)
                for (size_t i = 0; i < scene_question_count((scene_field)f); i++)
                    assert_string_not_equal(text, scene_question((scene_field)f, i));
        }
    }
}

/* Answers are in the list of words or read from the picture. */
static void answers_are_known_words(void **state)
{
    (void)state;
    for (uint64_t i = 0; i < 4000; i++) {
        const char *wording;
        char answer[SCENE_TEXT_MAX];
        scene_senses s;
        const scene_ask *ask =
            scene_senses_record(SCENE_PRETRAIN, "test-words", 0, i, &s, &wording);
        bool known = strncmp(ask->name, "meant", 5) == 0;
        ask->answer(&s, answer);
        for (size_t w = 0; w < scene_sense_word_count(); w++)
            known = known || strcmp(answer, scene_sense_word(w)) == 0;
        if (!known)
            fail_msg("'%s' is no word of the list", answer);
    }
}

static char folder[] = "/tmp/tacit-senses-XXXXXX";

static int make_folder(void **state)
{
    (void)state;
    return mkdtemp(folder) ? 0 : -1;
}

static int remove_folder(void **state)
{
    char command[64];
    (void)state;
    snprintf(command, sizeof command, "rm -rf %s", folder);
    return system(command);
}

/* The written set is one that the engine's reader takes, its files are those of the scenes. */
static void sets_are_datasets(void **state)
{
    enum { COUNT = 36 };
    static const tacit_content_kind kinds[SCENE_SENSES] = {TACIT_CONTENT_IMAGE, TACIT_CONTENT_AUDIO,
                                                           TACIT_CONTENT_SENSOR};
    char path[256];
    tacit_error err;
    tacit_dataset data;
    (void)state;
    assert_int_equal(scene_senses_write(SCENE_FLEET, 4, COUNT, folder, &err), TACIT_OK);
    snprintf(path, sizeof path, "%s/data.jsonl", folder);
    if (tacit_dataset_load(&data, path, true, &err) != TACIT_OK)
        fail_msg("%s", err.message);
    assert_int_equal(data.count, COUNT);
    for (size_t i = 0; i < COUNT; i++) {
        const tacit_message *m = data.record[i].message;
        const char *wording;
        char answer[SCENE_TEXT_MAX];
        scene_senses s;
        size_t next = 0;
        const scene_ask *ask = scene_senses_record(SCENE_FLEET, "senses", 4, i, &s, &wording);
        for (int k = 0; k < SCENE_SENSES; k++) {
            uint8_t *bytes;
            size_t size;
            if (!(ask->needs & 1u << k))
                continue;
            assert_int_equal(m[0].content[next].kind, kinds[k]);
            assert_int_equal(
                tacit_file_read(m[0].content[next++].text, 1 << 20, &bytes, &size, &err), TACIT_OK);
            assert_true(size > 1000);
            free(bytes);
        }
        assert_int_equal(m[0].n_content, next + 1);
        assert_string_equal(m[0].content[next].text, wording);
        ask->answer(&s, answer);
        assert_string_equal(m[1].content[0].text, answer);
    }
    tacit_dataset_free(&data);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_sense_of_two_is_chance),
        cmocka_unit_test(answers_are_short_and_balanced),
        cmocka_unit_test(wordings_are_unique),
        cmocka_unit_test(answers_are_known_words),
        cmocka_unit_test(sets_are_datasets),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
