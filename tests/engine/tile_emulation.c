#include "tile_emulation.h"

#include <float.h>
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define TILES 8
#define ROWS 16
#define ROW_BYTES 64

static _Thread_local struct {
    bool configured;
    uint8_t rows[TILES];
    uint16_t row_bytes[TILES];
    uint8_t data[TILES][ROWS][ROW_BYTES];
} state;

/* As an exception of the processor. */
static void require(bool holds, const char *what)
{
    if (holds)
        return;
    fprintf(stderr, "emulated tiles: %s\n", what);
    abort();
}

static void require_tile(unsigned tile)
{
    require(state.configured, "used before LDTILECFG or after TILERELEASE");
    require(tile < TILES && state.rows[tile] > 0, "a tile that was not configured");
}

void emulated_load_config(const void *config)
{
    uint8_t byte[64], any = 0;
    memcpy(byte, config, sizeof byte);
    require(byte[0] == 1, "palette 1 is the only one here");
    for (size_t i = 1; i < 16; i++)
        any |= byte[i];
    for (size_t i = 16 + 2 * TILES; i < 48; i++)
        any |= byte[i];
    for (size_t i = 48 + TILES; i < 64; i++)
        any |= byte[i];
    require(any == 0, "reserved bytes of a configuration are set");
    memset(&state, 0, sizeof state);
    for (size_t i = 0; i < TILES; i++) {
        memcpy(&state.row_bytes[i], byte + 16 + 2 * i, 2);
        state.rows[i] = byte[48 + i];
        require(state.rows[i] <= ROWS && state.row_bytes[i] <= ROW_BYTES, "a tile is too large");
        require((state.rows[i] == 0) == (state.row_bytes[i] == 0), "a tile of no rows or columns");
    }
    state.configured = true;
}

void emulated_release(void)
{
    memset(&state, 0, sizeof state);
}

bool emulated_is_released(void)
{
    return !state.configured;
}

void emulated_load(unsigned tile, const void *base, size_t stride)
{
    require_tile(tile);
    memset(state.data[tile], 0, sizeof state.data[tile]);
    for (size_t r = 0; r < state.rows[tile]; r++)
        memcpy(state.data[tile][r], (const uint8_t *)base + r * stride, state.row_bytes[tile]);
}

void emulated_store(unsigned tile, void *base, size_t stride)
{
    require_tile(tile);
    for (size_t r = 0; r < state.rows[tile]; r++)
        memcpy((uint8_t *)base + r * stride, state.data[tile][r], state.row_bytes[tile]);
}

void emulated_zero(unsigned tile)
{
    require_tile(tile);
    memset(state.data[tile], 0, sizeof state.data[tile]);
}

static float without_denormals(float f)
{
    return fabsf(f) < FLT_MIN ? copysignf(0, f) : f;
}

/* Value `i` of a row of bf16. */
static float bf16_at(const uint8_t *row, size_t i)
{
    uint16_t half;
    memcpy(&half, row + 2 * i, sizeof half);
    uint32_t bits = (uint32_t)half << 16;
    float f;
    memcpy(&f, &bits, sizeof f);
    return without_denormals(f);
}

/* Even and odd values apart, a column beside the other. */
typedef struct operand {
    float value[ROWS][2][ROW_BYTES / 4];
} operand;

static void read_operand(operand *o, unsigned b)
{
    for (size_t k = 0; k < ROWS; k++)
        for (size_t n = 0; n < ROW_BYTES / 4; n++)
            for (size_t i = 0; i < 2; i++)
                o->value[k][i][n] = bf16_at(state.data[b][k], 2 * n + i);
}

/* What lies beyond the configured rows and columns is zero and is not stored. */
static void dot_row(float *sum, const uint8_t *a, const operand *b)
{
    float part[2][ROW_BYTES / 4] = {{0}};
    for (size_t k = 0; k < ROWS; k++)
        for (size_t i = 0; i < 2; i++) {
            float factor = bf16_at(a, 2 * k + i);
            for (size_t n = 0; n < ROW_BYTES / 4; n++)
                part[i][n] = without_denormals(fmaf(factor, b->value[k][i][n], part[i][n]));
        }
    for (size_t n = 0; n < ROW_BYTES / 4; n++) {
        float both = without_denormals(part[0][n] + part[1][n]);
        sum[n] = without_denormals(without_denormals(sum[n]) + both);
    }
}

void emulated_dot_bf16(unsigned sum, unsigned a, unsigned b)
{
    require_tile(sum);
    require_tile(a);
    require_tile(b);
    require(sum != a && sum != b && a != b, "TDPBF16PS wants three tiles");
    require(state.rows[sum] == state.rows[a], "rows of the sum and of a differ");
    require(state.row_bytes[sum] == state.row_bytes[b], "columns of the sum and of b differ");
    require(state.row_bytes[a] == 4 * state.rows[b], "columns of a and rows of b differ");
    operand o;
    read_operand(&o, b);
    for (size_t m = 0; m < state.rows[sum]; m++) {
        float row[ROW_BYTES / 4];
        memcpy(row, state.data[sum][m], sizeof row);
        dot_row(row, state.data[a][m], &o);
        memcpy(state.data[sum][m], row, state.row_bytes[sum]);
    }
}
