/* The row `amx` of the kernel table for tests on processors without AMX: linked with
 * --wrap=kernels,--wrap=kernels_by_name it is the row in use. Products of many rows are the
 * product's own (fast_amx.c on emulated tiles), those of few rows plain twins, the rest AVX2's. */
#include "engine/kernels.h"
#include "engine/types.h"
#include "tile_emulation.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define WIDTH 16
#define SKIPPED 77 /* as CMakeLists.txt has it */

const tacit_kernels *__real_kernels_by_name(const char *name);
const tacit_kernels *__wrap_kernels_by_name(const char *name);
const tacit_kernels *__wrap_kernels(void);

static float half_at(const uint8_t *p)
{
    uint16_t half;
    memcpy(&half, p, sizeof half);
    return tacit_f16_to_f32(half);
}

/* Quantum i of column c of a block, as fast_kernels.h has it. */
static int32_t quantum(const uint8_t *w, fast_form form, size_t c, size_t i)
{
    size_t g = i / 4, at = 4 * c + i % 4;
    if (form == FAST_8)
        return w[4 * WIDTH * g + at];
    int32_t u = w[4 * WIDTH * (g % 4) + at] >> (g < 4 ? 0 : 4) & 15;
    if (form == FAST_5 || form == FAST_5M)
        u += 16 * (w[4 * WIDTH * 4 + at] >> g & 1);
    if (form == FAST_6)
        u += 16 * (w[4 * WIDTH * (4 + g / 4) + at] >> 2 * (g % 4) & 3);
    return u;
}

/* The 16 or 32 columns of block b from `first` on that share a scale. */
static double part_of_block(const uint8_t *panel, fast_form form, size_t c, size_t b, size_t first,
                            const int8_t *q)
{
    static const int32_t offset[] = {
        [FAST_8] = 128, [FAST_4] = 8, [FAST_5] = 16, [FAST_6] = 32, [FAST_5M] = 0};
    const fast_form_traits *t = &fast_forms[form];
    size_t part = FAST_BLOCK / t->scales;
    const uint8_t *w = panel + b * fast_block_stride(form, WIDTH);
    const uint8_t *d = w + fast_block_bytes(form, WIDTH) + 2 * c;
    int32_t products = 0, quanta = 0;
    for (size_t i = first; i < first + part; i++) {
        products += (quantum(w, form, c, i) - offset[form]) * q[i];
        quanta += q[i];
    }
    double sum = half_at(d + first / part * 2 * WIDTH) * (double)products;
    return t->has_m ? sum + half_at(d + 2 * WIDTH * t->scales) * (double)quanta : sum;
}

/* Row r of activations, or its remainder, times column c of a panel. */
static double column(const uint8_t *panel, fast_form form, size_t c, const fast_rows *a, size_t r)
{
    size_t part = FAST_BLOCK / fast_forms[form].scales;
    double sum = 0;
    for (size_t b = 0; b < a->blocks; b++) {
        size_t at = r * a->blocks + b;
        for (size_t first = 0; first < FAST_BLOCK; first += part)
            sum +=
                a->meta[2 * at] * part_of_block(panel, form, c, b, first, a->q + at * FAST_BLOCK);
    }
    return sum;
}

static void multiply(float *y, size_t y_stride, size_t cols, const uint8_t *panel,
                     const fast_rows *a, size_t rows, fast_form form)
{
    size_t panel_bytes = fast_panel_bytes(form, WIDTH, a->blocks);
    for (size_t r = 0; r < rows; r++)
        for (size_t c = 0; c < cols; c++) {
            const uint8_t *p = panel + c / WIDTH * panel_bytes;
            double sum = column(p, form, c % WIDTH, a, r * a->step);
            if (a->paired)
                sum += column(p, form, c % WIDTH, a, r * a->step + 1);
            y[r * y_stride + c] = (float)sum;
        }
}

#include "engine/fast_multiply_forms.h"

/* A thread that has multiplied holds no tiles. */
static void multiply_on_tiles(float *y, size_t y_stride, size_t cols, const uint8_t *panel,
                              fast_form form, const fast_tiled *a, size_t rows, void *room)
{
    fast_tiles_amx.multiply(y, y_stride, cols, panel, form, a, rows, room);
    if (!emulated_is_released())
        abort();
}

static tacit_kernels emulated;
static fast_tiles emulated_tiles;
static fast_kernels emulated_fast = {
    .width = WIDTH,
    .flips = true,
    .sums_bytes = true,
    .multiply = MULTIPLY_FORMS,
    .tiles = &emulated_tiles,
};

/* The emulation is compiled for AVX2; without it the test is skipped. */
__attribute__((constructor)) static void make(void)
{
    const tacit_kernels *base = __real_kernels_by_name("avx2");
    if (!base)
        _exit(SKIPPED);
    emulated = *base;
    emulated.name = "amx";
    emulated.fast = &emulated_fast;
    emulated_fast.quantize = base->fast->quantize;
    emulated_tiles = fast_tiles_amx;
    emulated_tiles.multiply = multiply_on_tiles;
}

const tacit_kernels *__wrap_kernels(void)
{
    return &emulated;
}

const tacit_kernels *__wrap_kernels_by_name(const char *name)
{
    return strcmp(name, "amx") == 0 ? &emulated : __real_kernels_by_name(name);
}
