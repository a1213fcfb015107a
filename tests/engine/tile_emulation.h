/* Stands in for the intrinsics of AMX tiles where the processor has none: put before a source file
 * (-include), it makes the same source run on the tiles of tile_emulation.c. Written from Intel's
 * Software Developer's Manual, volume 2 (LDTILECFG, TILELOADD, TILESTORED, TILEZERO, TILERELEASE,
 * TDPBF16PS). What a processor would answer with an exception ends the program. */
#ifndef TACIT_TESTS_TILE_EMULATION_H
#define TACIT_TESTS_TILE_EMULATION_H

#include <immintrin.h>
#include <stdbool.h>
#include <stddef.h>

void emulated_load_config(const void *config);
void emulated_release(void);
void emulated_load(unsigned tile, const void *base, size_t stride);
void emulated_store(unsigned tile, void *base, size_t stride);
void emulated_zero(unsigned tile);
void emulated_dot_bf16(unsigned sum, unsigned a, unsigned b);

/* Whether this thread has released its tiles, or never had any. */
bool emulated_is_released(void);

#undef _tile_loadd
#undef _tile_stored
#undef _tile_zero
#undef _tile_dpbf16ps
#define _tile_loadconfig(config) emulated_load_config(config)
#define _tile_release() emulated_release()
#define _tile_loadd(tile, base, stride) emulated_load(tile, base, stride)
#define _tile_stored(tile, base, stride) emulated_store(tile, base, stride)
#define _tile_zero(tile) emulated_zero(tile)
#define _tile_dpbf16ps(sum, a, b) emulated_dot_bf16(sum, a, b)

#endif
