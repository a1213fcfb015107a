/* Packing of transposed panels by blocks of 8 x 8 in AVX registers; part of the x86 variants. */
#ifndef TACIT_ENGINE_KERNELS_TRANSPOSE_H
#define TACIT_ENGINE_KERNELS_TRANSPOSE_H

#include <immintrin.h>
#include <stddef.h>

static inline void transpose_8x8(float *out, size_t out_stride, const float *in, size_t in_stride)
{
    __m256 r[8], t[8];
    for (int i = 0; i < 8; i++)
        r[i] = _mm256_loadu_ps(in + (size_t)i * in_stride);
    for (int i = 0; i < 8; i += 2) {
        t[i] = _mm256_unpacklo_ps(r[i], r[i + 1]);
        t[i + 1] = _mm256_unpackhi_ps(r[i], r[i + 1]);
    }
    for (int i = 0; i < 8; i += 4) {
        r[i] = _mm256_shuffle_ps(t[i], t[i + 2], 0x44);
        r[i + 1] = _mm256_shuffle_ps(t[i], t[i + 2], 0xee);
        r[i + 2] = _mm256_shuffle_ps(t[i + 1], t[i + 3], 0x44);
        r[i + 3] = _mm256_shuffle_ps(t[i + 1], t[i + 3], 0xee);
    }
    for (int i = 0; i < 4; i++) {
        _mm256_storeu_ps(out + (size_t)i * out_stride,
                         _mm256_permute2f128_ps(r[i], r[i + 4], 0x20));
        _mm256_storeu_ps(out + (size_t)(i + 4) * out_stride,
                         _mm256_permute2f128_ps(r[i], r[i + 4], 0x31));
    }
}

static void pack_transposed(float *panel, size_t width, const float *w, size_t w_stride,
                            size_t columns, size_t k)
{
    size_t whole_c = columns / 8 * 8, whole_k = k / 8 * 8;
    for (size_t c = 0; c < whole_c; c += 8)
        for (size_t j = 0; j < whole_k; j += 8)
            transpose_8x8(panel + j * width + c, width, w + c * w_stride + j, w_stride);
    for (size_t c = 0; c < columns; c++)
        for (size_t j = c < whole_c ? whole_k : 0; j < k; j++)
            panel[j * width + c] = w[c * w_stride + j];
}

#endif
