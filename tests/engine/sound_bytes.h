/* Sound files laid out byte by byte (WAV), and FLAC as libFLAC encodes it. */
#ifndef TACIT_TESTS_SOUND_BYTES_H
#define TACIT_TESTS_SOUND_BYTES_H

#include <sndfile.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

typedef struct sound_bytes {
    uint8_t *data;
    size_t size, at, capacity;
} sound_bytes;

static inline void sound_put(sound_bytes *s, const void *data, size_t n)
{
    if (s->at + n > s->capacity) {
        s->capacity = 2 * s->capacity + n + 256;
        s->data = realloc(s->data, s->capacity);
    }
    s->size = s->at + n > s->size ? s->at + n : s->size;
    if (n)
        memcpy(s->data + s->at, data, n);
    s->at += n;
}

static inline void sound_put_text(sound_bytes *s, const char *text)
{
    sound_put(s, text, strlen(text));
}

/* The lowest `bytes` bytes, the lowest first. */
static inline void sound_put_number(sound_bytes *s, uint64_t v, size_t bytes)
{
    for (size_t i = 0; i < bytes; i++) {
        uint8_t byte = (uint8_t)(v >> 8 * i);
        sound_put(s, &byte, 1);
    }
}

typedef struct wav_head {
    uint32_t tag, channels, rate, bits; /* tag 1: integers, 3: floats */
    uint64_t data_bytes;
    bool extensible, extra_chunk;
} wav_head;

static inline void sound_put_wav_head(sound_bytes *s, wav_head h)
{
    static const uint8_t guid_end[] = {0, 0, 0, 0, 16, 0, 128, 0, 0, 170, 0, 56, 155, 113};
    uint32_t frame = h.channels * ((h.bits + 7) / 8);
    sound_put_text(s, "RIFF");
    sound_put_number(s, h.data_bytes + 36, 4);
    sound_put_text(s, "WAVE");
    if (h.extra_chunk) {
        sound_put_text(s, "LIST");
        sound_put_number(s, 5, 4);
        sound_put_text(s, "INFOx");
        sound_put_number(s, 0, 1); /* to an even number */
    }
    sound_put_text(s, "fmt ");
    sound_put_number(s, h.extensible ? 40 : 16, 4);
    sound_put_number(s, h.extensible ? 0xfffe : h.tag, 2);
    sound_put_number(s, h.channels, 2);
    sound_put_number(s, h.rate, 4);
    sound_put_number(s, (uint64_t)h.rate * frame, 4);
    sound_put_number(s, frame, 2);
    sound_put_number(s, h.bits, 2);
    if (h.extensible) {
        sound_put_number(s, 22, 2);
        sound_put_number(s, h.bits, 2);
        sound_put_number(s, 0, 4);
        sound_put_number(s, h.tag, 2);
        sound_put(s, guid_end, sizeof guid_end);
    }
    sound_put_text(s, "data");
    sound_put_number(s, h.data_bytes, 4);
}

/* 16-bit mono WAV of n samples. */
static inline sound_bytes sound_wav16(const int16_t *samples, size_t n, uint32_t rate)
{
    sound_bytes s = {0};
    wav_head head = {.tag = 1, .channels = 1, .rate = rate, .bits = 16, .data_bytes = 2 * n};
    sound_put_wav_head(&s, head);
    for (size_t i = 0; i < n; i++)
        sound_put_number(&s, (uint16_t)samples[i], 2);
    return s;
}

static inline sf_count_t sound_length(void *ctx)
{
    return (sf_count_t)((sound_bytes *)ctx)->size;
}

static inline sf_count_t sound_seek(sf_count_t offset, int whence, void *ctx)
{
    sound_bytes *s = ctx;
    sf_count_t from = whence == SEEK_SET   ? 0
                      : whence == SEEK_CUR ? (sf_count_t)s->at
                                           : (sf_count_t)s->size;
    s->at = (size_t)(from + offset);
    return (sf_count_t)s->at;
}

static inline sf_count_t sound_read(void *to, sf_count_t n, void *ctx)
{
    sound_bytes *s = ctx;
    sf_count_t left = (sf_count_t)(s->size - s->at);
    n = n < left ? n : left;
    memcpy(to, s->data + s->at, (size_t)n);
    s->at += (size_t)n;
    return n;
}

static inline sf_count_t sound_write(const void *from, sf_count_t n, void *ctx)
{
    sound_put(ctx, from, (size_t)n);
    return n;
}

static inline sf_count_t sound_tell(void *ctx)
{
    return (sf_count_t)((sound_bytes *)ctx)->at;
}

/* FLAC of `frames` frames of interleaved samples in the upper bits of 32; SF_FORMAT_PCM_S8, _16 or
 * _24. data is NULL when the encoder fails. */
static inline sound_bytes sound_flac(const int32_t *samples, size_t frames, uint32_t channels,
                                     uint32_t rate, int bits_format)
{
    SF_VIRTUAL_IO io = {sound_length, sound_seek, sound_read, sound_write, sound_tell};
    SF_INFO info = {
        .samplerate = (int)rate, .channels = (int)channels, .format = SF_FORMAT_FLAC | bits_format};
    sound_bytes s = {0};
    SNDFILE *file = sf_open_virtual(&io, SFM_WRITE, &info, &s);
    if (!file)
        return s;
    sf_count_t written = sf_writef_int(file, samples, (sf_count_t)frames);
    if (sf_close(file) != 0 || written != (sf_count_t)frames) {
        free(s.data);
        s = (sound_bytes){0};
    }
    return s;
}

#endif
