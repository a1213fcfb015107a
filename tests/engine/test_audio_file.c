#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "common/secret.h"
#include "engine/audio.h"
#include "engine/audio_file.h"

#include <math.h>

#include "numbers.h"
#include "sound_bytes.h"

#define COUNT(table) (sizeof(table) / sizeof(table)[0])
#define LIMIT ((size_t)16000 * 30)

/* Decodes and frees the file; the samples are the caller's. */
static float *decode(sound_bytes *s, size_t *count)
{
    float *samples;
    tacit_error err = {0};
    if (audio_file_decode(&samples, count, s->data, s->size, "clip", LIMIT, &err) != TACIT_OK)
        fail_msg("%s", err.message);
    free(s->data);
    return samples;
}

static void expect_refusal(const void *data, size_t size, size_t limit, const char *word)
{
    float *samples;
    size_t count;
    tacit_error err = {0};
    uint8_t *copy = malloc(size ? size : 1); /* exactly as large, for the sanitizer */
    if (size)
        memcpy(copy, data, size);
    tacit_status status = audio_file_decode(&samples, &count, copy, size, "clip", limit, &err);
    if (status != TACIT_BAD_INPUT || !strstr(err.message, word) ||
        strncmp(err.message, "clip: ", 6) != 0)
        fail_msg("expected a refusal with '%s', found %d: %s", word, status, err.message);
    assert_null(samples);
    assert_int_equal(count, 0);
    free(copy);
}

static void expect_head_refused(wav_head h, const char *word)
{
    sound_bytes s = {0};
    const uint8_t zeros[48] = {0};
    sound_put_wav_head(&s, h);
    sound_put(&s, zeros, sizeof zeros);
    expect_refusal(s.data, s.size, LIMIT, word);
    free(s.data);
}

/* Sample i of channel c as a number of 32 bits, and what a file of fewer bits keeps of it. */
static int32_t integer_at(size_t i, size_t c)
{
    uint64_t state = i * 8 + c;
    return (int32_t)(uint32_t)(numbers_next(&state) >> 32);
}

static double kept(int32_t v, uint32_t bits)
{
    return (double)(v >> (32 - bits)) / ldexp(1, (int)bits - 1);
}

static void put_sample(sound_bytes *s, const wav_head *h, int32_t v)
{
    if (h->tag == 1 && h->bits == 8) {
        sound_put_number(s, (uint64_t)((v >> 24) + 128), 1); /* the one unsigned format */
    } else if (h->tag == 1) {
        sound_put_number(s, (uint32_t)v >> (32 - h->bits), h->bits / 8);
    } else if (h->bits == 32) {
        float f = (float)kept(v, 24);
        sound_put(s, &f, sizeof f);
    } else {
        double d = kept(v, 32);
        sound_put(s, &d, sizeof d);
    }
}

static void test_wav_of_every_form(void **state)
{
    (void)state;
    const struct {
        uint32_t tag, bits, precision;
    } forms[] = {{1, 8, 8}, {1, 16, 16}, {1, 24, 24}, {1, 32, 32}, {3, 32, 24}, {3, 64, 32}};
    const uint32_t channels[] = {1, 2, 6, 16};
    const size_t n = 5000;
    for (size_t form = 0; form < COUNT(forms); form++)
        for (size_t j = 0; j < COUNT(channels); j++) {
            sound_bytes s = {0};
            wav_head h = {.tag = forms[form].tag, .bits = forms[form].bits, .rate = AUDIO_RATE};
            h.channels = channels[j], h.extensible = j % 2, h.extra_chunk = j > 1;
            h.data_bytes = n * h.channels * (h.bits / 8);
            sound_put_wav_head(&s, h);
            for (size_t i = 0; i < n; i++)
                for (size_t c = 0; c < h.channels; c++)
                    put_sample(&s, &h, integer_at(i, c));
            size_t count;
            float *samples = decode(&s, &count);
            assert_int_equal(count, n);
            for (size_t i = 0; i < n; i++) {
                double expected = 0;
                for (size_t c = 0; c < h.channels; c++)
                    expected += kept(integer_at(i, c), forms[form].precision) / h.channels;
                if (!(fabs((double)samples[i] - expected) < 1e-7))
                    fail_msg("%u bits, %u channels, sample %zu: %.9g: expected %.9g", h.bits,
                             h.channels, i, (double)samples[i], expected);
            }
            tacit_wipe_free(samples);
        }
}

static sound_bytes random_flac(size_t frames, uint32_t channels, uint32_t rate, uint32_t bits)
{
    int32_t *samples = malloc(frames * channels * sizeof *samples);
    for (size_t i = 0; i < frames * channels; i++)
        samples[i] = integer_at(i / channels, i % channels) >> (32 - bits) << (32 - bits);
    int format = bits == 8 ? SF_FORMAT_PCM_S8 : bits == 16 ? SF_FORMAT_PCM_16 : SF_FORMAT_PCM_24;
    sound_bytes s = sound_flac(samples, frames, channels, rate, format);
    assert_non_null(s.data);
    free(samples);
    return s;
}

static void check_flac(sound_bytes *s, size_t frames, uint32_t channels, uint32_t bits)
{
    size_t count;
    float *samples = decode(s, &count);
    assert_int_equal(count, frames);
    for (size_t i = 0; i < frames; i++) {
        double expected = 0;
        for (size_t c = 0; c < channels; c++)
            expected += kept(integer_at(i, c), bits) / channels;
        assert_true(fabs((double)samples[i] - expected) < 1e-7);
    }
    tacit_wipe_free(samples);
}

static void test_flac_of_every_form(void **state)
{
    (void)state;
    const uint32_t bits[] = {8, 16, 24}, channels[] = {1, 2, 6, 8};
    const size_t frames = 9000;
    for (size_t b = 0; b < COUNT(bits); b++)
        for (size_t c = 0; c < COUNT(channels); c++) {
            sound_bytes s = random_flac(frames, channels[c], AUDIO_RATE, bits[b]);
            check_flac(&s, frames, channels[c], bits[b]);
        }
}

/* An encoder that writes to a pipe leaves the length 0: 36 bits from bit 4 of byte 21 on. */
static void test_flac_of_unknown_length(void **state)
{
    (void)state;
    sound_bytes s = random_flac(20000, 1, AUDIO_RATE, 16);
    s.data[21] &= 0xf0;
    memset(s.data + 22, 0, 4);
    expect_refusal(s.data, s.size, 19999, "more than");
    check_flac(&s, 20000, 1, 16);
}

static sound_bytes tone(double hertz, uint32_t rate, double seconds)
{
    size_t n = (size_t)(seconds * rate);
    sound_bytes s = {0};
    wav_head h = {.tag = 3, .channels = 1, .rate = rate, .bits = 32, .data_bytes = 4 * n};
    sound_put_wav_head(&s, h);
    for (size_t i = 0; i < n; i++) {
        float v = (float)(0.5 * sin(2 * M_PI * hertz * (double)i / rate));
        sound_put(&s, &v, sizeof v);
    }
    return s;
}

/* A tone stays where and what it is: signal to noise ratio, away from the ends. */
static void test_tones_survive_resampling(void **state)
{
    (void)state;
    const uint32_t rates[] = {8000, 11025, 12000, 22050, 32000, 44100, 48000, 96000, 192000};
    const double hertz[] = {440, 3000, 7000};
    for (size_t r = 0; r < COUNT(rates); r++)
        for (size_t h = 0; h < COUNT(hertz); h++) {
            if (hertz[h] > 0.45 * rates[r])
                continue;
            size_t count;
            sound_bytes s = tone(hertz[h], rates[r], 1);
            float *samples = decode(&s, &count);
            double signal = 0, noise = 0;
            assert_true(count >= 15999 && count <= 16001);
            for (size_t i = 1000; i < count - 1000; i++) {
                double expected = 0.5 * sin(2 * M_PI * hertz[h] * (double)i / AUDIO_RATE);
                signal += expected * expected;
                noise += ((double)samples[i] - expected) * ((double)samples[i] - expected);
            }
            double decibel = 10 * log10(signal / noise);
            if (!(decibel > 100))
                fail_msg("%g Hz at %u: signal to noise %.1f dB", hertz[h], rates[r], decibel);
            tacit_wipe_free(samples);
        }
}

/* What 16 kHz cannot hold must vanish, not fold down to where it was not. */
static void test_high_tones_vanish(void **state)
{
    (void)state;
    const struct {
        double hertz;
        uint32_t rate;
    } cases[] = {{8500, 22050}, {9000, 44100}, {15000, 48000}, {40000, 96000}, {90000, 192000}};
    for (size_t i = 0; i < COUNT(cases); i++) {
        size_t count;
        sound_bytes s = tone(cases[i].hertz, cases[i].rate, 0.5);
        float *samples = decode(&s, &count);
        for (size_t j = 1000; j < count - 1000; j++)
            if (!(fabsf(samples[j]) < 5e-6f)) /* -100 dB of 0.5 */
                fail_msg("%g Hz at %u: %g is left", cases[i].hertz, cases[i].rate,
                         (double)samples[j]);
        tacit_wipe_free(samples);
    }
}

static void test_truncation_is_told(void **state)
{
    (void)state;
    int16_t samples[4000];
    for (size_t i = 0; i < COUNT(samples); i++)
        samples[i] = (int16_t)(integer_at(i, 0) >> 16);
    sound_bytes wav = sound_wav16(samples, COUNT(samples), 44100);
    sound_bytes flac = random_flac(COUNT(samples), 2, 44100, 16);
    for (size_t n = 0; n < wav.size; n += 97)
        expect_refusal(wav.data, n, LIMIT, "");
    for (size_t n = 0; n < flac.size; n += 97)
        expect_refusal(flac.data, n, LIMIT, "");
    for (size_t n = 0; n < 64; n++) {
        expect_refusal(wav.data, n, LIMIT, "");
        expect_refusal(flac.data, n, LIMIT, "");
        expect_refusal(wav.data, wav.size - 1 - n, LIMIT, "truncated");
        expect_refusal(flac.data, flac.size - 1 - n, LIMIT, "");
    }
    free(wav.data);
    free(flac.data);
}

/* FLAC's frames carry checksums: one changed byte among them is found, never played. Elsewhere it
 * is found or harmless. */
static void test_damage_is_found(void **state)
{
    (void)state;
    sound_bytes flac = random_flac(12000, 1, AUDIO_RATE, 16);
    size_t first = 0;
    while (first + 1 < flac.size &&
           !(flac.data[first] == 0xff && (flac.data[first + 1] & 0xfe) == 0xf8))
        first++;
    for (size_t at = 0; at < flac.size; at += at < first ? 1 : 61) {
        float *samples;
        size_t count;
        flac.data[at] ^= 0x55;
        tacit_status status =
            audio_file_decode(&samples, &count, flac.data, flac.size, "clip", LIMIT, NULL);
        if (status != TACIT_BAD_INPUT && (status != TACIT_OK || at >= first))
            fail_msg("byte %zu of %zu changed: %d", at, flac.size, status);
        tacit_wipe_free(samples);
        flac.data[at] ^= 0x55;
    }
    check_flac(&flac, 12000, 1, 16);
}

static void test_wav_heads_that_lie(void **state)
{
    (void)state;
    const wav_head good = {.tag = 1, .channels = 2, .rate = 16000, .bits = 16, .data_bytes = 48};
    wav_head h = good;
    h.data_bytes = 0xffffffff, expect_head_refused(h, "truncated");
    h.data_bytes = 49, expect_head_refused(h, "truncated");
    h.data_bytes = 47, expect_head_refused(h, "multiple of 4");
    h.data_bytes = 0, expect_head_refused(h, "above 0");
    h = good, h.channels = 0, expect_head_refused(h, "0 channels");
    h = good, h.channels = 17, h.data_bytes = 34, expect_head_refused(h, "17 channels");
    h = good, h.channels = 1000, h.bits = 8, expect_head_refused(h, "multiple of 1000");
    h = good, h.rate = 0, expect_head_refused(h, "0 samples a second");
    h = good, h.rate = 999, expect_head_refused(h, "999 samples a second");
    h = good, h.rate = 1000000000, expect_head_refused(h, "1000000000 samples a second");
    h = good, h.bits = 0, expect_head_refused(h, "format 1");
    h = good, h.bits = 40, expect_head_refused(h, "format 1");
    h = good, h.tag = 3, expect_head_refused(h, "format 3");
    h = good, h.tag = 7, h.bits = 8, expect_head_refused(h, "format 7");
    h = good, h.tag = 0x55, expect_head_refused(h, "format 85");
    h = good, h.tag = 2, h.extensible = true, expect_head_refused(h, "format 2");
}

static void test_flac_heads_that_lie(void **state)
{
    (void)state;
    sound_bytes s = random_flac(4096, 2, AUDIO_RATE, 16);
    uint8_t head[64];
    memcpy(head, s.data, sizeof head);
    memset(s.data + 18, 0, 2), s.data[20] &= 0x0f; /* the rate: 20 bits from byte 18 on */
    expect_refusal(s.data, s.size, LIMIT, "0 samples a second");
    memcpy(s.data, head, sizeof head);
    s.data[21] |= 0x0f, memset(s.data + 22, 0xff, 4);
    expect_refusal(s.data, s.size, LIMIT, "at most 30.00 s");
    memcpy(s.data, head, sizeof head);
    s.data[25] ^= 1; /* one sample more or less than there are */
    s.data[24] += 1;
    expect_refusal(s.data, s.size, LIMIT, "damaged or truncated");
    memcpy(s.data, head, sizeof head);
    s.data[4] = (uint8_t)((s.data[4] & 0x80) | 4); /* no STREAMINFO first */
    expect_refusal(s.data, s.size, LIMIT, "STREAMINFO");
    free(s.data);
}

/* Seconds that fit, in samples that would take minutes: by its head, and by what is decoded. */
static void test_too_many_samples_are_refused(void **state)
{
    (void)state;
    const size_t hour = (size_t)3600 * AUDIO_RATE;
    sound_bytes s = random_flac(4096, 8, AUDIO_RATE, 16);
    const uint32_t rate = 655350; /* and 8 channels, 16 bits, 2^24 + 1 samples */
    const uint64_t packed = (uint64_t)rate << 44 | (uint64_t)7 << 41 | (uint64_t)15 << 36 |
                            ((AUDIO_FILE_MAX_SAMPLES >> 3) + 1);
    for (int i = 0; i < 8; i++)
        s.data[18 + i] = (uint8_t)(packed >> 8 * (7 - i));
    expect_refusal(s.data, s.size, hour, "16777217 samples or more in each of 8 channels");
    s.data[25] -= 1; /* one less: judged by what there is */
    expect_refusal(s.data, s.size, hour, "damaged or truncated");
    free(s.data);
}

static void test_other_files_are_refused(void **state)
{
    (void)state;
    const char *const heads[] = {"",     "R",        "RIFF",          "RIFF\4\0\0\0AVI LIST",
                                 "RIFX", "OggS\0\2", "ID3\4\0\0\0\0", "FORM\0\0\0\4AIFF",
                                 "flac", "caff\0\1"};
    for (size_t i = 0; i < COUNT(heads); i++) {
        uint8_t bytes[64] = {0};
        size_t n = i == 0 ? 0 : i < 3 ? strlen(heads[i]) : sizeof bytes;
        memcpy(bytes, heads[i], i == 3 ? 16 : strlen(heads[i]));
        expect_refusal(bytes, n, LIMIT, "expected a WAV or FLAC file, found bytes of neither");
    }
    expect_refusal("RIFF\4\0\0\0WAVE", 12, LIMIT, "without samples");
    uint8_t *large = calloc(1, AUDIO_FILE_MAX_BYTES + 1);
    expect_refusal(large, AUDIO_FILE_MAX_BYTES + 1, LIMIT, "at most 67108864");
    free(large);
}

static void test_small_and_loud(void **state)
{
    (void)state;
    const int16_t one[] = {-32768}, full[] = {32767, -32768, 32767, 0};
    size_t count;
    sound_bytes s = sound_wav16(one, 1, AUDIO_RATE);
    float *samples = decode(&s, &count);
    assert_int_equal(count, 1);
    assert_true(samples[0] == -1);
    tacit_wipe_free(samples);
    s = sound_wav16(full, 4, AUDIO_RATE);
    samples = decode(&s, &count);
    assert_int_equal(count, 4);
    assert_true(samples[0] == 32767.0f / 32768 && samples[1] == -1 && samples[3] == 0);
    tacit_wipe_free(samples);
    /* Silence of another rate is silence. */
    int16_t silence[4410] = {0};
    s = sound_wav16(silence, COUNT(silence), 44100);
    samples = decode(&s, &count);
    assert_true(count >= 1599 && count <= 1601);
    for (size_t i = 0; i < count; i++)
        assert_true(samples[i] == 0);
    tacit_wipe_free(samples);
}

/* What is louder than full scale stays so; what is no number is refused. */
static void test_floats_beyond_one(void **state)
{
    (void)state;
    const struct {
        double value;
        bool fine;
    } cases[] = {{1.5, true},  {-40, true},       {2147483648.0, true}, {3e9, false},
                 {NAN, false}, {INFINITY, false}, {1e300, false}};
    for (size_t i = 0; i < COUNT(cases); i++)
        for (uint32_t bits = 32; bits <= 64; bits += 32)
            for (uint32_t rate = AUDIO_RATE; rate <= 2 * AUDIO_RATE; rate += AUDIO_RATE) {
                sound_bytes s = {0};
                wav_head h = {.tag = 3, .channels = 1, .rate = rate, .bits = bits};
                h.data_bytes = bits / 8;
                float single = (float)fmin(cases[i].value, 3e38 * 2);
                sound_put_wav_head(&s, h);
                sound_put(&s, bits == 32 ? (void *)&single : (void *)&(double){cases[i].value},
                          bits / 8);
                if (!cases[i].fine) {
                    expect_refusal(s.data, s.size, LIMIT, "a sample is");
                    free(s.data);
                    continue;
                }
                size_t count;
                float *samples = decode(&s, &count);
                if (rate == AUDIO_RATE)
                    assert_true(samples[0] == single);
                tacit_wipe_free(samples);
            }
}

static void test_long_clips_are_refused(void **state)
{
    (void)state;
    int16_t samples[48000] = {0};
    float *out;
    size_t count;
    sound_bytes s = sound_wav16(samples, 16000, AUDIO_RATE);
    expect_refusal(s.data, s.size, 15999,
                   "1.00 s of sound, 16000 samples: at most 1.00 s, 15999 samples, are taken");
    assert_int_equal(audio_file_decode(&out, &count, s.data, s.size, "clip", 16000, NULL),
                     TACIT_OK);
    tacit_wipe_free(out);
    free(s.data);
    /* Exactly as long as allowed at any rate. */
    const uint32_t rates[] = {8000, 11025, 44100, 48000};
    for (size_t i = 0; i < COUNT(rates); i++) {
        s = sound_wav16(samples, rates[i], rates[i]);
        assert_int_equal(audio_file_decode(&out, &count, s.data, s.size, "clip", 16000, NULL),
                         TACIT_OK);
        assert_true(count >= 15999 && count <= 16000);
        tacit_wipe_free(out);
        expect_refusal(s.data, s.size, 15900, "cut the clip");
        free(s.data);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_wav_of_every_form),
        cmocka_unit_test(test_flac_of_every_form),
        cmocka_unit_test(test_flac_of_unknown_length),
        cmocka_unit_test(test_tones_survive_resampling),
        cmocka_unit_test(test_high_tones_vanish),
        cmocka_unit_test(test_truncation_is_told),
        cmocka_unit_test(test_damage_is_found),
        cmocka_unit_test(test_wav_heads_that_lie),
        cmocka_unit_test(test_flac_heads_that_lie),
        cmocka_unit_test(test_too_many_samples_are_refused),
        cmocka_unit_test(test_other_files_are_refused),
        cmocka_unit_test(test_small_and_loud),
        cmocka_unit_test(test_floats_beyond_one),
        cmocka_unit_test(test_long_clips_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
