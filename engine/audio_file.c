#include "engine/audio_file.h"

#include "common/bytes.h"
#include "common/memory_limit.h"
#include "common/secret.h"
#include "engine/audio.h"

#include <math.h>
#include <samplerate.h>
#include <sndfile.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define BLOCK ((size_t)4096) /* frames decoded at a time */
#define LOUDEST 2147483648.0f

/* What a file says of itself, judged, and the bytes that the decoder may see. */
typedef struct sound {
    const char *name;
    tacit_span bytes;
    uint32_t rate, channels;
    uint64_t frames; /* 0: it does not say (FLAC only) */
    int format;      /* libsndfile's */
} sound;

/* A FLAC file of a few kilobytes may hold hours of silence in every channel. */
static tacit_status too_many(const sound *s, uint64_t frames, tacit_error *err)
{
    return tacit_fail(err, TACIT_BAD_INPUT,
                      "%s: %llu samples or more in each of %u channels: at most %llu in all are "
                      "decoded; lower its rate or cut the clip",
                      s->name, (unsigned long long)frames, s->channels,
                      (unsigned long long)AUDIO_FILE_MAX_SAMPLES);
}

static tacit_status judge_numbers(const sound *s, size_t max_samples, tacit_error *err)
{
    double seconds = s->rate ? (double)s->frames / s->rate : 0;
    double most = (double)max_samples / AUDIO_RATE;
    if (s->rate < AUDIO_FILE_MIN_RATE || s->rate > AUDIO_FILE_MAX_RATE)
        return tacit_fail(err, TACIT_BAD_INPUT, "%s: %u samples a second: expected %u to %u",
                          s->name, s->rate, AUDIO_FILE_MIN_RATE, AUDIO_FILE_MAX_RATE);
    if (s->channels < 1 || s->channels > AUDIO_FILE_MAX_CHANNELS)
        return tacit_fail(err, TACIT_BAD_INPUT, "%s: %u channels: expected 1 to %u", s->name,
                          s->channels, AUDIO_FILE_MAX_CHANNELS);
    if (seconds > most) /* in samples too: seconds may look the same */
        return tacit_fail(err, TACIT_BAD_INPUT,
                          "%s: %.2f s of sound, %llu samples: at most %.2f s, %.0f samples, are "
                          "taken; cut the clip",
                          s->name, seconds, (unsigned long long)s->frames, most,
                          floor(most * s->rate));
    if (s->frames > AUDIO_FILE_MAX_SAMPLES / s->channels)
        return too_many(s, s->frames, err);
    return TACIT_OK;
}

/* The head of a WAV file's samples. */
typedef struct wav_format {
    uint32_t tag, channels, rate, frame_bytes;
} wav_format;

enum { WAV_INTEGER = 1, WAV_FLOAT = 3, WAV_EXTENSIBLE = 0xfffe };

/* By tag and bytes of one sample; fewer bits than that are stored in its upper part. */
static const struct {
    uint32_t tag, bytes;
    int format;
} wav_samples[] = {
    {WAV_INTEGER, 1, SF_FORMAT_PCM_U8}, {WAV_INTEGER, 2, SF_FORMAT_PCM_16},
    {WAV_INTEGER, 3, SF_FORMAT_PCM_24}, {WAV_INTEGER, 4, SF_FORMAT_PCM_32},
    {WAV_FLOAT, 4, SF_FORMAT_FLOAT},    {WAV_FLOAT, 8, SF_FORMAT_DOUBLE},
};

static bool read_wav_format(wav_format *f, tacit_span chunk)
{
    static const uint8_t guid_end[] = {0, 0, 0, 0, 16, 0, 128, 0, 0, 170, 0, 56, 155, 113};
    tacit_cursor c = tacit_cursor_over(chunk.data, chunk.size);
    f->tag = tacit_cursor_u16(&c);
    f->channels = tacit_cursor_u16(&c);
    f->rate = tacit_cursor_u32(&c);
    (void)tacit_cursor_u32(&c); /* bytes a second */
    f->frame_bytes = tacit_cursor_u16(&c);
    (void)tacit_cursor_u16(&c); /* bits that count */
    if (f->tag != WAV_EXTENSIBLE)
        return !c.failed;
    (void)tacit_cursor_take(&c, 8); /* size of the rest, bits that count, places of channels */
    f->tag = tacit_cursor_u16(&c);
    tacit_span rest = tacit_cursor_take(&c, sizeof guid_end);
    return !c.failed && memcmp(rest.data, guid_end, sizeof guid_end) == 0;
}

static tacit_status choose_wav_format(sound *s, const wav_format *f, tacit_error *err)
{
    for (size_t i = 0; i < sizeof wav_samples / sizeof wav_samples[0]; i++)
        if (wav_samples[i].tag == f->tag && f->channels > 0 &&
            wav_samples[i].bytes * f->channels == f->frame_bytes) {
            s->format = SF_FORMAT_RAW | SF_ENDIAN_LITTLE | wav_samples[i].format;
            s->rate = f->rate;
            s->channels = f->channels;
            return TACIT_OK;
        }
    return tacit_fail(err, TACIT_BAD_INPUT,
                      "%s: WAV samples of format %u, %u channels in %u bytes: expected integers "
                      "(format 1) of 1 to 4 bytes or floats (3) of 4 or 8; convert the file",
                      s->name, f->tag, f->channels, f->frame_bytes);
}

static tacit_status take_wav_samples(sound *s, const wav_format *f, uint32_t stated,
                                     tacit_cursor *c, tacit_error *err)
{
    if (stated > tacit_cursor_left(c))
        return tacit_fail(err, TACIT_BAD_INPUT,
                          "%s: truncated: its head says %u bytes of samples, %zu follow", s->name,
                          stated, tacit_cursor_left(c));
    if (stated == 0 || stated % f->frame_bytes != 0)
        return tacit_fail(err, TACIT_BAD_INPUT,
                          "%s: %u bytes of samples: expected a multiple of %u, above 0", s->name,
                          stated, f->frame_bytes);
    s->bytes = tacit_cursor_take(c, stated);
    s->frames = stated / f->frame_bytes;
    return TACIT_OK;
}

/* RIFF (Multimedia Programming Interface and Data Specifications 1.0, 1991): chunks of a name, a
 * length and that many bytes, padded to an even number. */
static tacit_status judge_wav(sound *s, tacit_cursor c, tacit_error *err)
{
    wav_format format = {0};
    tacit_status status;
    (void)tacit_cursor_take(&c, 12);
    while (tacit_cursor_left(&c) >= 8) {
        tacit_span id = tacit_cursor_take(&c, 4);
        uint32_t stated = tacit_cursor_u32(&c);
        if (memcmp(id.data, "data", 4) == 0) {
            TACIT_TRY(choose_wav_format(s, &format, err), done);
            return take_wav_samples(s, &format, stated, &c, err);
        }
        tacit_span chunk = tacit_cursor_take(&c, stated);
        if (memcmp(id.data, "fmt ", 4) == 0 && !read_wav_format(&format, chunk))
            return tacit_fail(err, TACIT_BAD_INPUT, "%s: its format chunk (%u bytes) is damaged",
                              s->name, stated);
        if (stated % 2)
            (void)tacit_cursor_u8(&c);
    }
    status = tacit_fail(err, TACIT_BAD_INPUT, "%s: WAV without samples: truncated?", s->name);
done:
    return status;
}

/* The first block of a FLAC file, STREAMINFO (RFC 9639, section 8.2): 20 bits of rate, 3 of
 * channels - 1, 5 of bits - 1, 36 of length. */
static tacit_status judge_flac(sound *s, tacit_cursor c, tacit_error *err)
{
    s->bytes = (tacit_span){c.data, c.size};
    (void)tacit_cursor_take(&c, 4);
    uint8_t kind = tacit_cursor_u8(&c) & 127;
    (void)tacit_cursor_take(&c, 13); /* the block's length; sizes of blocks and frames */
    uint64_t packed = 0;
    for (int i = 0; i < 8; i++)
        packed = packed << 8 | tacit_cursor_u8(&c);
    (void)tacit_cursor_take(&c, 16); /* a digest */
    if (c.failed || kind != 0)
        return tacit_fail(err, TACIT_BAD_INPUT, "%s: FLAC without a whole STREAMINFO: truncated?",
                          s->name);
    s->rate = (uint32_t)(packed >> 44);
    s->channels = (packed >> 41 & 7) + 1;
    s->frames = packed & 0xfffffffffu;
    s->format = 0;
    return TACIT_OK;
}

static tacit_status judge(sound *s, const void *data, size_t size, size_t max_samples,
                          tacit_error *err)
{
    tacit_cursor c = tacit_cursor_over(data, size);
    const char *bytes = data;
    tacit_status status;
    if (size > AUDIO_FILE_MAX_BYTES)
        return tacit_fail(err, TACIT_BAD_INPUT, "%s: %zu bytes: at most %zu are taken", s->name,
                          size, AUDIO_FILE_MAX_BYTES);
    if (size >= 12 && memcmp(bytes, "RIFF", 4) == 0 && memcmp(bytes + 8, "WAVE", 4) == 0)
        status = judge_wav(s, c, err);
    else if (size >= 4 && memcmp(bytes, "fLaC", 4) == 0)
        status = judge_flac(s, c, err);
    else
        status = tacit_fail(err, TACIT_BAD_INPUT, "%s: expected a WAV or FLAC file, found bytes of neither", s->name);
    return status == TACIT_OK ? judge_numbers(s, max_samples, err) : status;
}

/* libsndfile's view of the bytes. */
typedef struct memory_file {
    tacit_span bytes;
    sf_count_t at;
} memory_file;

static sf_count_t memory_length(void *ctx)
{
    return (sf_count_t)((const memory_file *)ctx)->bytes.size;
}

static sf_count_t memory_seek(sf_count_t offset, int whence, void *ctx)
{
    memory_file *f = ctx;
    sf_count_t from = whence == SEEK_SET ? 0 : whence == SEEK_CUR ? f->at : memory_length(ctx);
    sf_count_t to;
    if (__builtin_add_overflow(from, offset, &to) || to < 0 || to > memory_length(ctx))
        return -1;
    return f->at = to;
}

static sf_count_t memory_read(void *to, sf_count_t n, void *ctx)
{
    memory_file *f = ctx;
    sf_count_t left = memory_length(ctx) - f->at;
    n = n < 0 ? 0 : n > left ? left : n;
    memcpy(to, f->bytes.data + f->at, (size_t)n);
    f->at += n;
    return n;
}

static sf_count_t memory_write(const void *from, sf_count_t n, void *ctx)
{
    (void)from, (void)n, (void)ctx;
    return 0;
}

static sf_count_t memory_tell(void *ctx)
{
    return ((const memory_file *)ctx)->at;
}

typedef struct decoding {
    const sound *sound;
    memory_file memory;
    SNDFILE *file;
    SRC_STATE *resampler; /* NULL where the rate is right already */
    float *interleaved;   /* [BLOCK, channels] */
    float *mono;          /* [BLOCK] */
    float *resampled;     /* [BLOCK] */
    float *out;           /* what is ready, [capacity], `count` of it filled */
    size_t count, capacity, max_samples;
    tacit_error *err;
} decoding;

static tacit_status no_memory(const decoding *d)
{
    return tacit_fail(d->err, TACIT_NO_MEMORY, "%s: no memory to decode it", d->sound->name);
}

/* Makes room for n more samples, at most BLOCK; what is left behind is wiped. */
static tacit_status reserve(decoding *d, size_t n)
{
    if (n > d->max_samples - d->count)
        return tacit_fail(d->err, TACIT_BAD_INPUT,
                          "%s: more than %.2f s of sound; cut the clip, or its head is wrong",
                          d->sound->name, (double)d->max_samples / AUDIO_RATE);
    if (n <= d->capacity - d->count)
        return TACIT_OK;
    size_t capacity = 2 * d->capacity + BLOCK;
    capacity = capacity < d->max_samples ? capacity : d->max_samples;
    char what[320];
    void *memory;
    snprintf(what, sizeof what, "%.256s: room for %zu samples of sound", d->sound->name, capacity);
    tacit_status status =
        tacit_memory_alloc(&memory, capacity, sizeof(float), what, "cut the clip", d->err);
    if (status != TACIT_OK)
        return status;
    float *larger = memory;
    if (d->count)
        memcpy(larger, d->out, d->count * sizeof *larger);
    tacit_wipe_free(d->out);
    d->out = larger;
    d->capacity = capacity;
    return TACIT_OK;
}

static tacit_status append(decoding *d, const float *samples, size_t n)
{
    tacit_status status = reserve(d, n);
    if (status != TACIT_OK || n == 0)
        return status;
    memcpy(d->out + d->count, samples, n * sizeof *samples);
    d->count += n;
    return TACIT_OK;
}

static tacit_status resample(decoding *d, size_t n, bool last)
{
    SRC_DATA step = {.data_in = d->mono,
                     .input_frames = (long)n,
                     .data_out = d->resampled,
                     .output_frames = BLOCK,
                     .src_ratio = (double)AUDIO_RATE / d->sound->rate,
                     .end_of_input = last};
    do {
        int problem = src_process(d->resampler, &step);
        if (problem)
            return tacit_fail(d->err, TACIT_BAD_INPUT, "%s: cannot be resampled: %s",
                              d->sound->name, src_strerror(problem));
        tacit_status status = append(d, d->resampled, (size_t)step.output_frames_gen);
        if (status != TACIT_OK)
            return status;
        step.data_in += step.input_frames_used;
        step.input_frames -= step.input_frames_used;
    } while (step.output_frames_gen > 0 || (step.input_frames > 0 && step.input_frames_used > 0));
    return TACIT_OK;
}

static tacit_status take_block(decoding *d, size_t n, bool last)
{
    size_t channels = d->sound->channels;
    for (size_t i = 0; i < n; i++) {
        double sum = 0;
        for (size_t c = 0; c < channels; c++)
            sum += (double)d->interleaved[i * channels + c];
        d->mono[i] = (float)(sum / (double)channels);
        if (!(fabsf(d->mono[i]) <= LOUDEST))
            return tacit_fail(d->err, TACIT_BAD_INPUT,
                              "%s: a sample is %g: expected a number of about -1 to 1",
                              d->sound->name, (double)d->mono[i]);
    }
    return d->resampler ? resample(d, n, last) : append(d, d->mono, n);
}

static tacit_status corrupt(const decoding *d, uint64_t at)
{
    return tacit_fail(d->err, TACIT_BAD_INPUT, "%s: damaged or truncated at sample %llu: %s",
                      d->sound->name, (unsigned long long)at, sf_strerror(d->file));
}

static tacit_status decode_all(decoding *d)
{
    const sound *s = d->sound;
    /* A file that does not say its length is read until it ends or the cap is met. */
    uint64_t most = s->frames ? s->frames : UINT64_MAX, at = 0;
    tacit_status status;
    while (at < most) {
        size_t want = most - at < BLOCK ? (size_t)(most - at) : BLOCK;
        sf_count_t got = sf_readf_float(d->file, d->interleaved, (sf_count_t)want);
        if (got < 0 || (size_t)got > want || sf_error(d->file) != SF_ERR_NO_ERROR)
            return corrupt(d, at);
        if (got == 0)
            break;
        TACIT_TRY(take_block(d, (size_t)got, false), done);
        at += (uint64_t)got;
        if (at > AUDIO_FILE_MAX_SAMPLES / s->channels)
            return too_many(s, at, d->err);
    }
    if (s->frames && at != s->frames)
        return corrupt(d, at);
    TACIT_TRY(take_block(d, 0, true), done);
    if (at == 0)
        status = tacit_fail(d->err, TACIT_BAD_INPUT, "%s: no samples in it", s->name);
    else if (d->count == 0) /* a part of one sample at this rate */
        status = append(d, &(float){0}, 1);
done:
    return status;
}

static tacit_status start(decoding *d)
{
    SF_VIRTUAL_IO io = {memory_length, memory_seek, memory_read, memory_write, memory_tell};
    const sound *s = d->sound;
    SF_INFO info = {0};
    int problem = 0;
    if (s->format)
        info = (SF_INFO){
            .samplerate = (int)s->rate, .channels = (int)s->channels, .format = s->format};
    d->memory.bytes = s->bytes;
    d->file = sf_open_virtual(&io, SFM_READ, &info, &d->memory);
    if (!d->file || (uint32_t)info.channels != s->channels || (uint32_t)info.samplerate != s->rate)
        return tacit_fail(d->err, TACIT_BAD_INPUT, "%s: cannot be decoded: %s", s->name,
                          d->file ? "its head contradicts itself" : sf_strerror(NULL));
    d->interleaved = malloc(BLOCK * s->channels * sizeof *d->interleaved);
    d->mono = malloc(BLOCK * sizeof *d->mono);
    d->resampled = malloc(BLOCK * sizeof *d->resampled);
    if (s->rate != AUDIO_RATE)
        d->resampler = src_new(SRC_SINC_BEST_QUALITY, 1, &problem);
    if (!d->interleaved || !d->mono || !d->resampled || problem)
        return no_memory(d);
    return TACIT_OK;
}

static void finish(decoding *d)
{
    if (d->file)
        sf_close(d->file);
    if (d->resampler)
        src_delete(d->resampler);
    tacit_wipe_free(d->interleaved);
    tacit_wipe_free(d->mono);
    tacit_wipe_free(d->resampled);
}

tacit_status audio_file_decode(float **samples, size_t *count, const void *data, size_t size,
                               const char *name, size_t max_samples, tacit_error *err)
{
    sound s = {.name = name};
    decoding d = {.sound = &s, .err = err};
    tacit_status status;
    *samples = NULL;
    *count = 0;
    TACIT_TRY(judge(&s, data, size, max_samples, err), done);
    /* A length is rounded where the rate changes. */
    d.max_samples = max_samples + (s.rate != AUDIO_RATE);
    TACIT_TRY(start(&d), done);
    TACIT_TRY(decode_all(&d), done);
    *samples = d.out;
    *count = d.count < max_samples ? d.count : max_samples;
    d.out = NULL;
done:
    finish(&d);
    tacit_wipe_free(d.out);
    return status;
}
