/* The renderer: reproducible bytes, readable values, answers that say what the fields hold. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "scenes/scene.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static scene any_scene(uint64_t seed, scene_kind kind, scene_split split)
{
    scene_prng prng = scene_prng_make(seed, "test", (uint64_t)kind);
    scene s;
    scene_draw_values(&s, kind, &prng);
    scene_draw_style(&s.style, split, &prng);
    return s;
}

static tacit_buffer jpeg_of(const scene *s)
{
    tacit_buffer b = {0};
    tacit_error err;
    assert_int_equal(scene_jpeg(s, &b, &err), TACIT_OK);
    return b;
}

static void same_seed_same_bytes(void **state)
{
    (void)state;
    for (uint64_t seed = 0; seed < 12; seed++) {
        scene a = any_scene(seed, seed % 2, seed % 3), b = any_scene(seed, seed % 2, seed % 3);
        tacit_buffer x = jpeg_of(&a), y = jpeg_of(&b);
        assert_int_equal(x.size, y.size);
        assert_memory_equal(x.data, y.data, x.size);
        assert_true(x.size > 1000 && x.data[0] == 0xff && x.data[1] == 0xd8);
        tacit_buffer_free(&x);
        tacit_buffer_free(&y);
    }
}

/* splitmix64 from state 0, as its authors' reference implementation prints it. */
static void generator_is_splitmix64(void **state)
{
    (void)state;
    scene_prng p = {0};
    assert_true(scene_prng_u64(&p) == 0xe220a8397b1dcdafu);
    assert_true(scene_prng_u64(&p) == 0x6e789e6aa1b965f4u);
    assert_true(scene_prng_u64(&p) == 0x06c45d188009454fu);
}

/* Every value of every field changes the picture, all else being equal. */
static void each_value_shows(void **state)
{
    (void)state;
    static const int other[SCENE_FIELD_COUNT] = {7, 31, 4, 2, 5, 88, 77, 97043, 2, 6};
    for (int f = 0; f < SCENE_FIELD_COUNT; f++) {
        scene a = any_scene(5, f < SCENE_HEART ? SCENE_CLUSTER : SCENE_MONITOR, SCENE_PRETRAIN);
        a.value[f] = f == SCENE_PRESSURE ? 120080 : 0;
        a.style.noise = 0;
        scene b = a;
        b.value[f] = other[f];
        uint8_t x[SCENE_RGB_BYTES], y[SCENE_RGB_BYTES];
        tacit_error err;
        size_t changed = 0;
        assert_int_equal(scene_draw(&a, x, &err), TACIT_OK);
        assert_int_equal(scene_draw(&b, y, &err), TACIT_OK);
        for (int i = 0; i < SCENE_RGB_BYTES; i++)
            changed += abs(x[i] - y[i]) > 40;
        if (changed < 100)
            fail_msg("%s: only %zu bytes differ", scene_field_name(f), changed);
    }
}

static void hidden_fields_do_not_show(void **state)
{
    (void)state;
    scene a = any_scene(9, SCENE_CLUSTER, SCENE_PRETRAIN);
    a.shown[SCENE_LAMP] = false;
    scene b = a;
    b.value[SCENE_LAMP] = (a.value[SCENE_LAMP] + 3) % SCENE_STATES;
    uint8_t x[SCENE_RGB_BYTES], y[SCENE_RGB_BYTES];
    tacit_error err;
    assert_int_equal(scene_draw(&a, x, &err), TACIT_OK);
    assert_int_equal(scene_draw(&b, y, &err), TACIT_OK);
    assert_memory_equal(x, y, sizeof x);
}

static void numbers_are_answered(void **state)
{
    (void)state;
    for (uint64_t seed = 0; seed < 200; seed++) {
        scene s = any_scene(seed, seed % 2, SCENE_FLEET);
        char answer[SCENE_TEXT_MAX];
        int first = 0, second = 0;
        if (s.kind == SCENE_CLUSTER) {
            scene_answer(&s, SCENE_SPEED, answer);
            assert_int_equal(sscanf(answer, "%d", &first), 1);
            assert_int_equal(first, s.value[SCENE_SPEED]);
            assert_in_range(first, 0, 199);
            scene_answer(&s, SCENE_FUEL, answer);
            assert_non_null(strstr(answer, " %"));
        } else {
            scene_answer(&s, SCENE_PRESSURE, answer);
            assert_int_equal(sscanf(answer, "%d/%d", &first, &second), 2);
            assert_int_equal(first * 1000 + second, s.value[SCENE_PRESSURE]);
            assert_in_range(first, 80, 199);
            assert_in_range(second, 40, 119);
        }
    }
}

static void transcripts_hold_all_answers(void **state)
{
    (void)state;
    for (uint64_t seed = 0; seed < 50; seed++) {
        scene s = any_scene(seed, seed % 2, SCENE_PRETRAIN);
        char text[SCENE_TRANSCRIPT_MAX], answer[SCENE_TEXT_MAX], want[2 * SCENE_TEXT_MAX];
        scene_transcript(&s, text);
        for (int i = 0; i < SCENE_FIELDS; i++) {
            scene_field f = scene_first_field(s.kind) + (scene_field)i;
            scene_answer(&s, f, answer);
            snprintf(want, sizeof want, "%s %s", scene_field_name(f), answer);
            assert_non_null(strstr(text, want));
        }
    }
}

/* Questions tell fields and vocabularies apart: no wording occurs twice. */
static void questions_are_unique(void **state)
{
    (void)state;
    const char *all[128];
    size_t n = 0;
    all[n++] = scene_transcript_question();
    for (int f = 0; f < SCENE_FIELD_COUNT; f++) {
        assert_true(scene_question_count(f) > 0);
        assert_int_equal(scene_new_question_count(f) > 0, scene_field_has_states(f));
        for (size_t i = 0; i < scene_question_count(f); i++)
            all[n++] = scene_question(f, i);
        for (size_t i = 0; i < scene_new_question_count(f); i++)
            all[n++] = scene_new_question(f, i);
    }
    for (size_t i = 0; i < n; i++)
        for (size_t k = 0; k < i; k++)
            assert_string_not_equal(all[i], all[k]);
}

/* A new label stands for one state of one field, and is no base answer. */
static void new_labels_are_new(void **state)
{
    (void)state;
    static const scene_field fields[] = {SCENE_LAMP, SCENE_TRACE};
    for (int a = 0; a < 2 * SCENE_STATES; a++) {
        const char *label = scene_new_label(fields[a / SCENE_STATES], a % SCENE_STATES);
        for (int b = 0; b < 2 * SCENE_STATES; b++) {
            scene_field f = fields[b / SCENE_STATES];
            assert_string_not_equal(label, scene_base_label(f, b % SCENE_STATES));
            if (b != a)
                assert_string_not_equal(label, scene_new_label(f, b % SCENE_STATES));
        }
    }
}

static void splits_share_no_style(void **state)
{
    (void)state;
    for (int split = 0; split < 3; split++) {
        for (uint64_t seed = 0; seed < 300; seed++) {
            scene_prng prng = scene_prng_make(seed, "style", (uint64_t)split);
            scene_style style;
            scene_draw_style(&style, (scene_split)split, &prng);
            for (int other = 0; other < 3; other++)
                assert_int_equal(scene_style_in_split(&style, (scene_split)other), other == split);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(same_seed_same_bytes),  cmocka_unit_test(generator_is_splitmix64),
        cmocka_unit_test(each_value_shows),      cmocka_unit_test(hidden_fields_do_not_show),
        cmocka_unit_test(numbers_are_answered),  cmocka_unit_test(transcripts_hold_all_answers),
        cmocka_unit_test(questions_are_unique),  cmocka_unit_test(new_labels_are_new),
        cmocka_unit_test(splits_share_no_style),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
