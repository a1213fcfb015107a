#include "privacy/tiles.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

/* --- paths --- */

void tacit_tile_path(char out[TACIT_TILE_PATH_MAX], const char *kind, uint64_t index,
                     unsigned width)
{
    uint64_t group = 1;
    size_t n = (size_t)snprintf(out, TACIT_TILE_PATH_MAX, "tile/%.10s", kind);
    while (index / group >= 1000)
        group *= 1000;
    for (; group > 1; group /= 1000)
        n += (size_t)snprintf(out + n, TACIT_TILE_PATH_MAX - n, "/x%03u",
                              (unsigned)(index / group % 1000));
    n += (size_t)snprintf(out + n, TACIT_TILE_PATH_MAX - n, "/%03u", (unsigned)(index % 1000));
    if (width > 0 && width < TACIT_TILE_WIDTH)
        snprintf(out + n, TACIT_TILE_PATH_MAX - n, ".p/%u", width);
}

void tacit_hash_tile_path(char out[TACIT_TILE_PATH_MAX], unsigned level, uint64_t index,
                          unsigned width)
{
    char kind[12];
    snprintf(kind, sizeof kind, "%u", level);
    tacit_tile_path(out, kind, index, width);
}

static size_t digits_of(const char *name)
{
    return strspn(name, "0123456789");
}

bool tacit_tile_name_is_ours(const char *name, unsigned depth)
{
    if (depth == 1)
        return strcmp(name, "tile") == 0;
    if (depth == 2 &&
        (strcmp(name, TACIT_ENTRIES_NAME) == 0 || strcmp(name, TACIT_ENTRIES32_NAME) == 0))
        return true;
    if (depth > 2 && name[0] == 'x')
        return digits_of(name + 1) == 3 && name[4] == '\0';
    size_t digits = digits_of(name);
    bool partial = digits == 3 && strcmp(name + digits, ".p") == 0;
    return digits >= 1 && digits <= 3 && (name[digits] == '\0' || (depth > 2 && partial));
}

/* --- hashes --- */

/* The node above a whole tile, eight levels up. */
static void tile_root(const uint8_t hash[TACIT_TILE_WIDTH][TACIT_HASH_BYTES],
                      uint8_t root[TACIT_HASH_BYTES])
{
    tacit_merkle_frontier f = {.size = 0};
    for (size_t i = 0; i < TACIT_TILE_WIDTH; i++)
        tacit_merkle_frontier_append(&f, hash[i]);
    tacit_merkle_frontier_root(&f, root);
}

tacit_status tacit_tiles_add(tacit_tiles *tiles, const uint8_t leaf[TACIT_HASH_BYTES],
                             const tacit_tile_sink *sink, tacit_error *err)
{
    uint8_t node[TACIT_HASH_BYTES];
    memcpy(node, leaf, sizeof node);
    uint64_t at = tiles->size++;
    for (unsigned level = 0; level < TACIT_TILE_LEVELS; level++, at /= TACIT_TILE_WIDTH) {
        memcpy(tiles->hash[level][at % TACIT_TILE_WIDTH], node, sizeof node);
        if (at % TACIT_TILE_WIDTH != TACIT_TILE_WIDTH - 1)
            break;
        const tacit_tile tile = {level, TACIT_TILE_WIDTH, at / TACIT_TILE_WIDTH,
                                 (const uint8_t(*)[TACIT_HASH_BYTES])tiles->hash[level]};
        tacit_status status = sink->take(sink->ctx, &tile, err);
        if (status != TACIT_OK)
            return status;
        tile_root(tile.hash, node);
    }
    return TACIT_OK;
}

tacit_status tacit_tiles_end(const tacit_tiles *tiles, const tacit_tile_sink *sink,
                             tacit_error *err)
{
    tacit_status status = TACIT_OK;
    uint64_t count = tiles->size;
    for (unsigned level = 0; level < TACIT_TILE_LEVELS && status == TACIT_OK; level++) {
        const tacit_tile tile = {level, (unsigned)(count % TACIT_TILE_WIDTH),
                                 count / TACIT_TILE_WIDTH,
                                 (const uint8_t(*)[TACIT_HASH_BYTES])tiles->hash[level]};
        if (tile.width)
            status = sink->take(sink->ctx, &tile, err);
        count /= TACIT_TILE_WIDTH;
    }
    return status;
}
