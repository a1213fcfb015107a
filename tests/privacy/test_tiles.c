#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "common/bytes.h"
#include "privacy/tiles.h"

#include <sodium.h>
#include <stdlib.h>
#include <string.h>

static void test_paths_are_those_of_the_format(void **state)
{
    (void)state;
    static const struct {
        uint64_t index;
        unsigned width;
        const char *path;
    } rows[] = {
        {0, 256, "tile/entries/000"},
        {5, 0, "tile/entries/005"},
        {999, 1, "tile/entries/999.p/1"},
        {1000, 256, "tile/entries/x001/000"},
        {1234067, 256, "tile/entries/x001/x234/067"}, /* the example of c2sp.org/tlog-tiles */
        {1234067, 255, "tile/entries/x001/x234/067.p/255"},
        {1000000, 3, "tile/entries/x001/x000/000.p/3"},
        {UINT64_MAX >> 8, 255, "tile/entries/x072/x057/x594/x037/x927/935.p/255"},
    };
    char path[TACIT_TILE_PATH_MAX];
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        tacit_tile_path(path, "entries", rows[i].index, rows[i].width);
        assert_string_equal(path, rows[i].path);
    }
    tacit_hash_tile_path(path, 7, 1234067, 256);
    assert_string_equal(path, "tile/7/x001/x234/067");
}

static void test_names_that_could_be_of_the_layout(void **state)
{
    (void)state;
    assert_true(tacit_tile_name_is_ours("tile", 1));
    assert_true(tacit_tile_name_is_ours("entries32", 2));
    assert_true(tacit_tile_name_is_ours("7", 2));
    assert_true(tacit_tile_name_is_ours("x001", 3));
    assert_true(tacit_tile_name_is_ours("067", 4));
    assert_true(tacit_tile_name_is_ours("067.p", 4));
    assert_true(tacit_tile_name_is_ours("1", 5));
    static const char *const others[] = {"",     "x",      "x1",  "x0001", "x00a",  "1234",
                                         "67.p", "067.px", ".p",  "diary", "tiles", "-1",
                                         "0 ",   "x001.p", "1.5", ".git",  "..."};
    for (size_t i = 0; i < sizeof others / sizeof others[0]; i++)
        for (unsigned depth = 1; depth < 6; depth++)
            assert_false(tacit_tile_name_is_ours(others[i], depth));
}

/* The naive twin: the complete nodes of every level, pair by pair. */
typedef struct twin {
    uint8_t (*node[TACIT_TILE_LEVELS * 8])[TACIT_HASH_BYTES];
    size_t count[TACIT_TILE_LEVELS * 8];
    size_t seen;
} twin;

static void twin_build(twin *t, size_t leaves)
{
    *t = (twin){.count = {leaves}};
    t->node[0] = malloc(leaves * TACIT_HASH_BYTES + 1);
    for (size_t i = 0; i < leaves; i++)
        crypto_hash_sha256(t->node[0][i], (const uint8_t *)&i, sizeof i);
    for (size_t l = 1; l < TACIT_TILE_LEVELS * 8; l++) {
        t->count[l] = t->count[l - 1] / 2;
        t->node[l] = malloc(t->count[l] * TACIT_HASH_BYTES + 1);
        for (size_t i = 0; i < t->count[l]; i++) {
            uint8_t joined[1 + 2 * TACIT_HASH_BYTES] = {1};
            memcpy(joined + 1, t->node[l - 1][2 * i], 2 * (size_t)TACIT_HASH_BYTES);
            crypto_hash_sha256(t->node[l][i], joined, sizeof joined);
        }
    }
}

static size_t twin_tiles(const twin *t)
{
    size_t n = 0;
    for (size_t l = 0; l < TACIT_TILE_LEVELS; l++)
        n += (t->count[8 * l] + TACIT_TILE_WIDTH - 1) / TACIT_TILE_WIDTH;
    return n;
}

static tacit_status compare(void *ctx, const tacit_tile *tile, tacit_error *err)
{
    (void)err;
    twin *t = ctx;
    size_t from = (size_t)tile->index * TACIT_TILE_WIDTH, all = t->count[8 * tile->level];
    size_t expected = all - from < TACIT_TILE_WIDTH ? all - from : TACIT_TILE_WIDTH;
    assert_true(from < all);
    assert_int_equal(tile->width, expected);
    assert_memory_equal(tile->hash, t->node[8 * tile->level] + from, expected * TACIT_HASH_BYTES);
    t->seen++;
    return TACIT_OK;
}

static void test_tiles_equal_the_naive_twin(void **state)
{
    (void)state;
    static const size_t sizes[] = {0, 1, 2, 255, 256, 257, 511, 512, 65535, 65536, 65537, 66000};
    tacit_error err;
    for (size_t s = 0; s < sizeof sizes / sizeof sizes[0]; s++) {
        tacit_tiles *tiles = calloc(1, sizeof *tiles);
        twin t;
        const tacit_tile_sink sink = {&t, compare};
        twin_build(&t, sizes[s]);
        for (size_t i = 0; i < sizes[s]; i++)
            assert_int_equal(tacit_tiles_add(tiles, t.node[0][i], &sink, &err), TACIT_OK);
        assert_int_equal(tacit_tiles_end(tiles, &sink, &err), TACIT_OK);
        assert_int_equal(t.seen, twin_tiles(&t)); /* each is one of them, and none comes twice */
        for (size_t l = 0; l < TACIT_TILE_LEVELS * 8; l++)
            free(t.node[l]);
        free(tiles);
    }
}

static tacit_status refuse(void *ctx, const tacit_tile *tile, tacit_error *err)
{
    (void)ctx;
    (void)tile;
    return tacit_fail(err, TACIT_IO, "full");
}

static void test_a_sink_that_fails_is_heard(void **state)
{
    (void)state;
    tacit_error err;
    tacit_tiles *tiles = calloc(1, sizeof *tiles);
    const tacit_tile_sink sink = {NULL, refuse};
    const uint8_t leaf[TACIT_HASH_BYTES] = {1};
    for (size_t i = 0; i < TACIT_TILE_WIDTH - 1; i++)
        assert_int_equal(tacit_tiles_add(tiles, leaf, &sink, &err), TACIT_OK);
    assert_int_equal(tacit_tiles_end(tiles, &sink, &err), TACIT_IO);
    assert_int_equal(tacit_tiles_add(tiles, leaf, &sink, &err), TACIT_IO);
    free(tiles);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_paths_are_those_of_the_format),
        cmocka_unit_test(test_names_that_could_be_of_the_layout),
        cmocka_unit_test(test_tiles_equal_the_naive_twin),
        cmocka_unit_test(test_a_sink_that_fails_is_heard),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
