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

static double share(pretrain_count c)
{
    return c.asked ? (double)c.right / (double)c.asked : 0;
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
    if (pretrain_check(&report, &files, SCENE_PRETRAIN, 200, 360, NULL, &err) != TACIT_OK)
        fail_msg("%s", err.message);
    if (report.accuracy < 0.95)
        fail_msg("pictures: %.1f %% exact, expected at least 95", 100 * report.accuracy);
    double sound = share(pretrain_count_needs(&report, SCENE_SENSE_SOUND));
    double signal = share(pretrain_count_needs(&report, SCENE_SENSE_SIGNAL));
    double pairs = share(count_pairs(&report, false, false));
    double control = share(count_pairs(&report, true, true));
    if (sound < 0.9 || signal < 0.9 || pairs < 0.85)
        fail_msg("sound %.1f, signal %.1f, two senses %.1f %% exact: expected 90, 90 and 85",
                 100 * sound, 100 * signal, 100 * pairs);
    /* What the answers rest on: with one sense of another scene yes and no are a coin. */
    if (control < 0.38 || control > 0.62)
        fail_msg("yes and no with one sense swapped: %.1f %% exact, expected about 50",
                 100 * control);
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
