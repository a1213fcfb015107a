#include "scenes/scene_prng.h"

#include "common/digest.h"

#include <string.h>

scene_prng scene_prng_make(uint64_t seed, const char *purpose, uint64_t index)
{
    uint8_t number[16], hash[TACIT_DIGEST_BYTES];
    tacit_store_u64(number, seed);
    tacit_store_u64(number + 8, index);
    const tacit_span parts[] = {{(const uint8_t *)purpose, strlen(purpose)},
                                {number, sizeof number}};
    tacit_digest_parts(hash, "tacit-scenes-1", parts, 2);
    return (scene_prng){tacit_load_u64(hash)};
}

uint64_t scene_prng_u64(scene_prng *p)
{
    uint64_t z = p->state += 0x9e3779b97f4a7c15u;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

int scene_prng_range(scene_prng *p, int low, int high)
{
    uint64_t span = (uint64_t)(high - low) + 1;
    return low + (int)((scene_prng_u64(p) >> 32) * span >> 32);
}

double scene_prng_unit(scene_prng *p)
{
    return (double)(scene_prng_u64(p) >> 11) * 0x1p-53;
}

double scene_prng_between(scene_prng *p, double low, double high)
{
    return low + (high - low) * scene_prng_unit(p);
}

bool scene_prng_chance(scene_prng *p, double probability)
{
    return scene_prng_unit(p) < probability;
}
