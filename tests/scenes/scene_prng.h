/* The renderer's own random numbers: splitmix64 (Steele, Lea, Flood 2014), one 64-bit state.
 * Not for keys or noise. Same seed, same numbers everywhere. */
#ifndef TACIT_SCENES_PRNG_H
#define TACIT_SCENES_PRNG_H

#include <stdbool.h>
#include <stdint.h>

typedef struct scene_prng {
    uint64_t state;
} scene_prng;

/* A generator of its own for every (seed, purpose, index): streams do not overlap in practice. */
scene_prng scene_prng_make(uint64_t seed, const char *purpose, uint64_t index);

uint64_t scene_prng_u64(scene_prng *p);
int scene_prng_range(scene_prng *p, int low, int high); /* uniform in [low, high] */
double scene_prng_unit(scene_prng *p);                  /* uniform in [0, 1) */
double scene_prng_between(scene_prng *p, double low, double high);
bool scene_prng_chance(scene_prng *p, double probability);

#endif
