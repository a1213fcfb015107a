/* The committed nano: small enough, and right on held-out scenes of the styles it was trained on.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "scenes/pretrain.h"
#include "scenes/scene_vocabulary.h"

#include <string.h>
#include <sys/stat.h>

#define NANO TACIT_SOURCE_DIR "/tests/nano/"

/* How many questions, and what of a hundred must be right. */
#ifdef TACIT_SANITIZED
enum { PICTURES = 40, SENSES = 72, RIGHT = 80, CONTROL_OFF = 25 }; /* too few to tell more */
#else
enum { PICTURES = 200, SENSES = 360, RIGHT = 95, CONTROL_OFF = 12 };
#endif

static const pretrain_files files = {{
    [PRETRAIN_TEXT] = NANO "nano.gguf",
    [PRETRAIN_IMAGE] = NANO "mmproj-nano.gguf",
    [PRETRAIN_AUDIO] = NANO "mmproj-nano-audio.gguf",
    [PRETRAIN_SENSOR] = NANO "mmproj-nano-sensor.gguf",
}};

static void files_are_small(void **state)
{
    off_t sum = 0;
    (void)state;
    for (int i = 0; i < PRETRAIN_FILES; i++) {
        struct stat file;
        assert_int_equal(stat(files.path[i], &file), 0);
        sum += file.st_size;
    }
    assert_true(sum <= 4000000);
}

/* Its tokens are the ones that the program would write today. */
static void vocabulary_is_todays(void **state)
{
    gguf_file *file;
    scene_vocabulary v;
    tacit_error err;
    size_t n;
    (void)state;
    assert_int_equal(gguf_open(&file, files.path[PRETRAIN_TEXT], &err), TACIT_OK);
    assert_int_equal(scene_vocabulary_make(&v, &err), TACIT_OK);
    assert_int_equal(gguf_get_array(file, "tokenizer.ggml.tokens", GGUF_STRING, &n, &err),
                     TACIT_OK);
    assert_int_equal(n, v.count);
    for (size_t i = 0; i < n; i++) {
        gguf_string s = gguf_array_string(file, "tokenizer.ggml.tokens", i);
        assert_int_equal(s.size, strlen(v.token[i]));
        assert_memory_equal(s.data, v.token[i], s.size);
    }
    scene_vocabulary_free(&v);
    gguf_close(file);
}

static double percent(pretrain_count c)
{
    return c.asked ? 100.0 * (double)c.right / (double)c.asked : 0;
}

/* Right answers to what needs two senses, all of it or with one of the two from another scene. */
static pretrain_count count_pairs(const pretrain_report *r, bool swapped, bool yes_or_no)
{
    pretrain_count sum = {0};
    for (size_t i = 0; i < scene_ask_count(); i++) {
        const scene_ask *ask = scene_ask_at(i);
        if (ask->chance == 0 || (yes_or_no && ask->chance < 0.5))
            continue;
        for (int m = 0; m < (swapped ? SCENE_SENSES : 1); m++) {
            const pretrain_count *c = swapped ? &r->swapped[i][m] : &r->ask[i];
            sum.asked += c->asked;
            sum.right += c->right;
        }
    }
    return sum;
}

static void answers_held_out_scenes(void **state)
{
    pretrain_report report;
    tacit_error err;
    (void)state;
    if (pretrain_check(&report, &files, SCENE_PRETRAIN, PICTURES, SENSES, NULL, &err) != TACIT_OK)
        fail_msg("%s", err.message);
    double pictures = 100 * report.accuracy;
    double sound = percent(pretrain_count_needs(&report, SCENE_SENSE_SOUND));
    double signal = percent(pretrain_count_needs(&report, SCENE_SENSE_SIGNAL));
    double pairs = percent(count_pairs(&report, false, false));
    double control = percent(count_pairs(&report, true, true));
    if (pictures < RIGHT || sound < RIGHT || signal < RIGHT || pairs < RIGHT)
        fail_msg("pictures %.1f, sound %.1f, signal %.1f, two senses %.1f %% exact: expected %d",
                 pictures, sound, signal, pairs, RIGHT);
    /* What the answers rest on: with one sense of another scene yes and no are a coin. */
    if (control < 50 - CONTROL_OFF || control > 50 + CONTROL_OFF)
        fail_msg("yes and no with one sense swapped: %.1f %% exact, expected about 50", control);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(files_are_small),
        cmocka_unit_test(vocabulary_is_todays),
        cmocka_unit_test(answers_held_out_scenes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
