/* Reading blocks into AVX2 registers, and packing of panels; part of the x86 integer kernels. */
#ifndef TACIT_ENGINE_FAST_PACK_H
#define TACIT_ENGINE_FAST_PACK_H

#include "engine/fast_kernels.h"

#include <immintrin.h>
#include <string.h>

#define BLOCK 32
#define BYTES_Q8_0 34
#define BYTES_Q4_0 18
#define BYTES_Q4_1 20

static inline float load_half(const uint8_t *p)
{
    uint16_t h;
    memcpy(&h, p, sizeof h);
    return _cvtsh_ss(h);
}

/* 32 nibbles as bytes: the low ones of the 16 bytes, then the high ones. */
static inline __m256i load_nibbles(const uint8_t *q)
{
    __m128i bytes = _mm_loadu_si128((const __m128i *)(const void *)q);
    __m256i both = _mm256_set_m128i(_mm_srli_epi16(bytes, 4), bytes);
    return _mm256_and_si256(both, _mm256_set1_epi8(15));
}

static inline __m256i load_bytes(const uint8_t *q)
{
    return _mm256_loadu_si256((const __m256i *)(const void *)q);
}

/* Eight rows of eight 32-bit groups become eight groups of eight rows. */
static inline void transpose_groups(__m256i r[8])
{
    __m256i t[8];
    for (int i = 0; i < 8; i += 2) {
        t[i] = _mm256_unpacklo_epi32(r[i], r[i + 1]);
        t[i + 1] = _mm256_unpackhi_epi32(r[i], r[i + 1]);
    }
    for (int i = 0; i < 8; i += 4) {
        r[i] = _mm256_unpacklo_epi64(t[i], t[i + 2]);
        r[i + 1] = _mm256_unpackhi_epi64(t[i], t[i + 2]);
        r[i + 2] = _mm256_unpacklo_epi64(t[i + 1], t[i + 3]);
        r[i + 3] = _mm256_unpackhi_epi64(t[i + 1], t[i + 3]);
    }
    for (int i = 0; i < 4; i++) {
        t[i] = _mm256_permute2x128_si256(r[i], r[i + 4], 0x20);
        t[i + 4] = _mm256_permute2x128_si256(r[i], r[i + 4], 0x31);
    }
    memcpy(r, t, sizeof t);
}

/* Packs one block of the 32 rows; `load` yields its 32 bytes, `flip` is xor-ed to each. */
static inline void pack_block(fast_panel *p, const uint8_t *const *row, size_t b, size_t bytes,
                              size_t quanta_at, __m256i (*load)(const uint8_t *q), __m256i flip)
{
    for (size_t r = 0; r < FAST_PANEL; r += 8) {
        __m256i group[8];
        for (size_t i = 0; i < 8; i++)
            group[i] = _mm256_xor_si256(load(row[r + i] + b * bytes + quanta_at), flip);
        transpose_groups(group);
        for (size_t j = 0; j < 8; j++)
            _mm256_storeu_si256((__m256i *)(void *)(p->w + ((b * 8 + j) * FAST_PANEL + r) * 4),
                                group[j]);
    }
}

static inline void pack_scales(float *out, const uint8_t *const *row, size_t b, size_t bytes,
                               size_t at)
{
    for (size_t r = 0; r < FAST_PANEL; r++)
        out[b * FAST_PANEL + r] = load_half(row[r] + b * bytes + at);
}

static void pack_q4_0(fast_panel *p, const uint8_t *const *row, size_t blocks)
{
    p->offset = 8;
    p->is_signed = p->has_m = 0;
    for (size_t b = 0; b < blocks; b++) {
        pack_block(p, row, b, BYTES_Q4_0, 2, load_nibbles, _mm256_setzero_si256());
        pack_scales(p->d, row, b, BYTES_Q4_0, 0);
    }
}

static void pack_q4_1(fast_panel *p, const uint8_t *const *row, size_t blocks)
{
    p->offset = 0;
    p->is_signed = 0;
    p->has_m = 1;
    for (size_t b = 0; b < blocks; b++) {
        pack_block(p, row, b, BYTES_Q4_1, 4, load_nibbles, _mm256_setzero_si256());
        pack_scales(p->d, row, b, BYTES_Q4_1, 0);
        pack_scales(p->m, row, b, BYTES_Q4_1, 2);
    }
}

/* FAST_FLIP: 0x80 makes signed bytes unsigned (value + 128), 0 leaves them. */
static void pack_q8_0(fast_panel *p, const uint8_t *const *row, size_t blocks)
{
    p->offset = FAST_FLIP ? 128 : 0;
    p->is_signed = FAST_FLIP ? 0 : 1;
    p->has_m = 0;
    for (size_t b = 0; b < blocks; b++) {
        pack_block(p, row, b, BYTES_Q8_0, 2, load_bytes, _mm256_set1_epi8((char)FAST_FLIP));
        pack_scales(p->d, row, b, BYTES_Q8_0, 0);
    }
}

/* What a block contributes beside its quanta, in lanes 0 and 1: d (or d and m) times scale, and
 * times scale times the sum of quanta. */
static inline __m128 load_pair(const float *meta)
{
    __m128i bits = _mm_loadl_epi64((const __m128i *)(const void *)meta);
    return _mm_castsi128_ps(bits);
}

static inline __m128 factors_d(const uint8_t *block, const float *meta)
{
    uint16_t d;
    memcpy(&d, block, sizeof d);
    return _mm_mul_ps(_mm_cvtph_ps(_mm_set1_epi16((short)d)), load_pair(meta));
}

static inline __m128 factors_d_m(const uint8_t *block, const float *meta)
{
    uint32_t both;
    memcpy(&both, block, sizeof both);
    return _mm_mul_ps(_mm_cvtph_ps(_mm_cvtsi32_si128((int)both)), load_pair(meta));
}

static inline float lane_one(__m128 v)
{
    return _mm_cvtss_f32(_mm_movehdup_ps(v));
}

/* The block's largest magnitude by its bits: NaN and inf are above every finite number. */
static inline void quantize_block(int8_t *q, float *meta, int32_t *total, const float *x)
{
    const __m256i magnitude = _mm256_set1_epi32(0x7fffffff);
    __m256 v[4];
    __m256i most = _mm256_setzero_si256();
    for (int i = 0; i < 4; i++) {
        v[i] = _mm256_loadu_ps(x + (size_t)8 * i);
        most = _mm256_max_epi32(most, _mm256_and_si256(_mm256_castps_si256(v[i]), magnitude));
    }
    __m128i m = _mm_max_epi32(_mm256_castsi256_si128(most), _mm256_extracti128_si256(most, 1));
    m = _mm_max_epi32(m, _mm_shuffle_epi32(m, 0x4e));
    m = _mm_max_epi32(m, _mm_shuffle_epi32(m, 0xb1));
    int32_t bits = _mm_cvtsi128_si32(m);
    float largest = _mm_cvtss_f32(_mm_castsi128_ps(m));
    int finite = bits < 0x7f800000;
    float inverse = finite && largest > 0 ? 127.0f / largest : 0;
    __m256i r[4];
    for (int i = 0; i < 4; i++)
        r[i] = finite ? _mm256_cvtps_epi32(_mm256_mul_ps(v[i], _mm256_set1_ps(inverse)))
                      : _mm256_setzero_si256();
    __m256i sum = _mm256_add_epi32(_mm256_add_epi32(r[0], r[1]), _mm256_add_epi32(r[2], r[3]));
    __m128i s = _mm_add_epi32(_mm256_castsi256_si128(sum), _mm256_extracti128_si256(sum, 1));
    s = _mm_add_epi32(s, _mm_shuffle_epi32(s, 0x4e));
    s = _mm_add_epi32(s, _mm_shuffle_epi32(s, 0xb1));
    *total = _mm_cvtsi128_si32(s);
    meta[0] = finite ? largest / 127.0f : __builtin_nanf("");
    meta[1] = meta[0] * (float)*total;
    /* Packing works within 128-bit halves: put the groups of four back in order. */
    __m256i bytes =
        _mm256_packs_epi16(_mm256_packs_epi32(r[0], r[1]), _mm256_packs_epi32(r[2], r[3]));
    bytes = _mm256_permutevar8x32_epi32(bytes, _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7));
    _mm256_storeu_si256((__m256i *)(void *)q, bytes);
}

static void quantize(int8_t *q, float *meta, int32_t *total, const float *x, size_t blocks)
{
    for (size_t b = 0; b < blocks; b++)
        quantize_block(q + b * BLOCK, meta + 2 * b, total + b, x + b * BLOCK);
}

#endif
