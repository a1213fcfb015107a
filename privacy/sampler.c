#include "privacy/sampler.h"

#include "common/bytes.h"

#include <sodium.h>

#define CHUNK 512

void tacit_sampler_draw(tacit_drbg *g, uint64_t q_num, size_t n_units, size_t *drawn,
                        size_t *n_drawn)
{
    uint8_t bytes[4 * CHUNK];
    size_t count = 0;
    for (size_t at = 0; at < n_units; at += CHUNK) {
        size_t n = n_units - at < CHUNK ? n_units - at : CHUNK;
        tacit_drbg_bytes(g, bytes, 4 * n);
        for (size_t i = 0; i < n; i++) {
            drawn[count] = at + i; /* count <= at + i: within drawn[n_units] */
            count += tacit_load_u32(bytes + 4 * i) < q_num;
        }
    }
    sodium_memzero(bytes, sizeof bytes);
    *n_drawn = count;
}
