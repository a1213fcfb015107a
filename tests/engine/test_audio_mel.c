#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "common/secret.h"
#include "engine/audio_mel.h"

#include <stdint.h>
#include <string.h>

#include "../golden/audio_torch.h"
#include "reference_audio.h"

#define COUNT(table) (sizeof(table) / sizeof(table)[0])
#define SAMPLES ((size_t)1600)

/* The signals of make_audio.py. */
static float noise(size_t i)
{
    return whisper_uniform(2000, (uint32_t)i);
}

static float decay(size_t i)
{
    return ldexpf(whisper_uniform(2001, (uint32_t)i), -(int)(i / 100));
}

static float square(size_t i)
{
    return i / 16 % 2 == 0 ? 0.5f : -0.5f;
}

static float pulse(size_t i)
{
    return i == 777 ? 1 : 0;
}

static void test_frames_agree_with_numpy(void **state)
{
    (void)state;
    const struct {
        const char *name;
        float (*signal)(size_t i);
        const float *expected;
        size_t values, n_mel;
    } cases[] = {
        {"noise", noise, mel_noise, COUNT(mel_noise), 80},
        {"decay", decay, mel_decay, COUNT(mel_decay), 128},
        {"square", square, mel_square, COUNT(mel_square), 128},
        {"pulse", pulse, mel_pulse, COUNT(mel_pulse), 40},
    };
    float samples[SAMPLES], *frames;
    for (size_t c = 0; c < COUNT(cases); c++) {
        for (size_t i = 0; i < SAMPLES; i++)
            samples[i] = cases[c].signal(i);
        assert_int_equal(audio_mel(&frames, samples, SAMPLES, 1, cases[c].n_mel, NULL), TACIT_OK);
        assert_int_equal(audio_mel_frames(SAMPLES, 1) * cases[c].n_mel, cases[c].values);
        for (size_t i = 0; i < cases[c].values; i++)
            if (!(fabsf(frames[i] - cases[c].expected[i]) < 2e-6f))
                fail_msg("%s[%zu]: %.9g: expected %.9g", cases[c].name, i, (double)frames[i],
                         (double)cases[c].expected[i]);
        tacit_wipe_free(frames);
    }
}

static void test_numbers_of_frames(void **state)
{
    (void)state;
    const size_t cases[][3] = {{1, 1, 2},           {320, 1, 2},     {321, 1, 3},
                               {16000, 1, 100},     {1, 3000, 3000}, {480000, 3000, 3000},
                               {480001, 3000, 6000}};
    for (size_t i = 0; i < COUNT(cases); i++)
        assert_int_equal(audio_mel_frames(cases[i][0], cases[i][1]), cases[i][2]);
}

/* Silence is (log10(1e-10) + 4) / 4; what is added to a clip is silence, and leaves frames that do
 * not reach it as they are. */
static void test_silence(void **state)
{
    (void)state;
    float samples[SAMPLES] = {0}, *frames, *padded;
    assert_int_equal(audio_mel(&frames, samples, 1, 1, 80, NULL), TACIT_OK);
    for (size_t i = 0; i < (size_t)2 * 80; i++)
        assert_true(frames[i] == -1.5f);
    tacit_wipe_free(frames);
    for (size_t i = 0; i < SAMPLES; i++)
        samples[i] = noise(i);
    assert_int_equal(audio_mel(&frames, samples, SAMPLES, 1, 80, NULL), TACIT_OK);
    assert_int_equal(audio_mel(&padded, samples, SAMPLES, 100, 80, NULL), TACIT_OK);
    assert_memory_equal(frames, padded, (size_t)8 * 80 * sizeof *frames);
    float most = -10;
    for (size_t i = 0; i < (size_t)10 * 80; i++)
        most = fmaxf(most, padded[i]);
    for (size_t i = (size_t)12 * 80; i < (size_t)100 * 80; i++)
        assert_true(fabsf(padded[i] - fmaxf(-1.5f, most - 2)) < 1e-6f);
    tacit_wipe_free(frames);
    tacit_wipe_free(padded);
}

/* Twice the amplitude is 2 log10(2) / 4 more, wherever no floor is met. */
static void test_loudness_is_a_shift(void **state)
{
    (void)state;
    float soft[SAMPLES], loud[SAMPLES], *low, *high;
    for (size_t i = 0; i < SAMPLES; i++) {
        soft[i] = noise(i);
        loud[i] = 2 * soft[i];
    }
    assert_int_equal(audio_mel(&low, soft, SAMPLES, 1, 80, NULL), TACIT_OK);
    assert_int_equal(audio_mel(&high, loud, SAMPLES, 1, 80, NULL), TACIT_OK);
    for (size_t i = 0; i < SAMPLES / 160 * 80; i++)
        assert_true(fabsf(high[i] - low[i] - 0.1505149978f) < 1e-6f);
    tacit_wipe_free(low);
    tacit_wipe_free(high);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_frames_agree_with_numpy),
        cmocka_unit_test(test_numbers_of_frames),
        cmocka_unit_test(test_silence),
        cmocka_unit_test(test_loudness_is_a_shift),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
