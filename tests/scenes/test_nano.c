/* The committed nano: small enough, and right on held-out scenes of the styles it was trained on.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "scenes/pretrain.h"

#include <string.h>
#include <sys/stat.h>

#ifdef TACIT_SANITIZED
enum { SCENES = 40, PERCENT = 80 }; /* too few to tell more */
#else
enum { SCENES = 200, PERCENT = 90 };
#endif

/* The pair for pictures. */
static const pretrain_files files = {{
    [PRETRAIN_TEXT] = TACIT_SOURCE_DIR "/tests/nano/nano.gguf",
    [PRETRAIN_IMAGE] = TACIT_SOURCE_DIR "/tests/nano/mmproj-nano.gguf",
}};

static void files_are_small(void **state)
{
    struct stat text, mmproj;
    (void)state;
    assert_int_equal(stat(files.path[PRETRAIN_TEXT], &text), 0);
    assert_int_equal(stat(files.path[PRETRAIN_IMAGE], &mmproj), 0);
    assert_true(text.st_size + mmproj.st_size <= 4000000);
}

static void answers_held_out_scenes(void **state)
{
    pretrain_report report;
    tacit_error err;
    (void)state;
    if (pretrain_check(&report, &files, SCENE_PRETRAIN, SCENES, 0, NULL, &err) != TACIT_OK)
        fail_msg("%s", err.message);
    if (100 * report.accuracy < PERCENT)
        fail_msg("%.1f %% exact, expected at least %d", 100 * report.accuracy, PERCENT);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(files_are_small),
        cmocka_unit_test(answers_held_out_scenes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
