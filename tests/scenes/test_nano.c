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

static const char text_path[] = TACIT_SOURCE_DIR "/tests/nano/nano.gguf";
static const char mmproj_path[] = TACIT_SOURCE_DIR "/tests/nano/mmproj-nano.gguf";

static void files_are_small(void **state)
{
    struct stat text, mmproj;
    (void)state;
    assert_int_equal(stat(text_path, &text), 0);
    assert_int_equal(stat(mmproj_path, &mmproj), 0);
    assert_true(text.st_size + mmproj.st_size <= 4000000);
}

/* Its tokens are the ones that the program would write today. */
static void vocabulary_is_todays(void **state)
{
    gguf_file *file;
    scene_vocabulary v;
    tacit_error err;
    size_t n;
    (void)state;
    assert_int_equal(gguf_open(&file, text_path, &err), TACIT_OK);
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

static void answers_held_out_scenes(void **state)
{
    pretrain_report report;
    tacit_error err;
    (void)state;
    if (pretrain_check(&report, text_path, mmproj_path, SCENE_PRETRAIN, 200, NULL, &err) !=
        TACIT_OK)
        fail_msg("%s", err.message);
    if (report.accuracy < 0.9)
        fail_msg("%.1f %% exact, expected at least 90", 100 * report.accuracy);
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
