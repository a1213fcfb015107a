#include "engine/ffa.h"

#include "common/bytes.h"

#include <math.h>
#include <sodium.h>
#include <string.h>

/* Words of key stream turned into values at a time; a multiple of ChaCha20's 16-word block. */
#define FFA_WORDS 256

void ffa_fill(float *out, size_t rows, size_t cols, const uint8_t seed[32], uint64_t ordinal)
{
    static const uint8_t zero[4 * FFA_WORDS];
    uint8_t stream[4 * FFA_WORDS], nonce[8];
    double width = sqrt(3.0 / (double)cols);
    size_t count = rows * cols;
    tacit_store_u64(nonce, ordinal);
    for (size_t at = 0; at < count; at += FFA_WORDS) {
        size_t n = count - at < FFA_WORDS ? count - at : FFA_WORDS;
        crypto_stream_chacha20_xor_ic(stream, zero, sizeof stream, nonce, at / 16, seed);
        for (size_t i = 0; i < n; i++) {
            double u = (double)(tacit_load_u32(stream + 4 * i) >> 8) / 16777216.0;
            out[at + i] = (float)(width * (2.0 * u - 1.0));
        }
    }
}

uint64_t ffa_word(const uint8_t seed[32], uint64_t nonce, size_t i)
{
    static const uint8_t zero[64];
    uint8_t stream[64], number[8];
    tacit_store_u64(number, nonce);
    crypto_stream_chacha20_xor_ic(stream, zero, sizeof stream, number, i / 16, seed);
    return tacit_load_u32(stream + 4 * (i % 16));
}
