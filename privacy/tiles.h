/* The tiled layout of a log, c2sp.org/tlog-tiles: where proofs and entries lie in a folder, so that
 * the tools of that format read it.
 *
 *   tile/L/N            256 hashes of level 8 L, from hash 256 N on; 8,192 bytes
 *   tile/L/N.p/W        the first W of them, where the tree has no more
 *   tile/entries/N      entries 256 N on, each preceded by its length as u16 big-endian
 *   tile/entries/N.p/W  the first W of them
 *
 * N is written in groups of three digits, all but the last with an x: 1234067 is x001/x234/067.
 *
 * An entry of more than 65,535 bytes (an aggregate of more than about 1,900 updates, a schedule of
 * about as many rounds) has no place in a bundle of the format. The bundle that holds one lies in
 * tile/entries32 instead, with lengths of 32 bits; its hashes lie where they always do. */
#ifndef TACIT_PRIVACY_TILES_H
#define TACIT_PRIVACY_TILES_H

#include "privacy/merkle.h"

#define TACIT_TILE_WIDTH 256u
#define TACIT_TILE_LEVELS 8u /* 256^8 leaves are 2^64 */
#define TACIT_TILE_PATH_MAX 64
#define TACIT_ENTRIES_NAME "entries"
#define TACIT_ENTRIES32_NAME "entries32"

/* The path of tile or bundle `index` of `kind` (a level or one of the two names above);
 * `width` 1 to 255: of a partial one, else of a whole one. */
void tacit_tile_path(char out[TACIT_TILE_PATH_MAX], const char *kind, uint64_t index,
                     unsigned width);
/* The same of a hash tile. */
void tacit_hash_tile_path(char out[TACIT_TILE_PATH_MAX], unsigned level, uint64_t index,
                          unsigned width);

/* Whether a name could stand `depth` folders below an export (1: in it), in this layout. */
bool tacit_tile_name_is_ours(const char *name, unsigned depth);

/* One hash tile: `width` hashes. */
typedef struct tacit_tile {
    unsigned level, width;
    uint64_t index;
    const uint8_t (*hash)[TACIT_HASH_BYTES];
} tacit_tile;

/* Whoever takes tiles as they are complete. An error of it is returned as it is. */
typedef struct tacit_tile_sink {
    void *ctx;
    tacit_status (*take)(void *ctx, const tacit_tile *tile, tacit_error *err);
} tacit_tile_sink;

/* Makes the hash tiles of a log from its leaf hashes in order; 64 KiB. Zero-initialise. */
typedef struct tacit_tiles {
    uint64_t size; /* leaves so far */
    uint8_t hash[TACIT_TILE_LEVELS][TACIT_TILE_WIDTH][TACIT_HASH_BYTES];
} tacit_tiles;

tacit_status tacit_tiles_add(tacit_tiles *tiles, const uint8_t leaf[TACIT_HASH_BYTES],
                             const tacit_tile_sink *sink, tacit_error *err) TACIT_MUST_CHECK;
/* The partial tiles of a log that ends here. */
tacit_status tacit_tiles_end(const tacit_tiles *tiles, const tacit_tile_sink *sink,
                             tacit_error *err) TACIT_MUST_CHECK;

#endif
