/* The fp32 kernels, written once over vectors of KERNEL_WIDTH floats (GCC's vector extension) and
 * compiled by each kernels_*.c with its own flags. Before including: KERNEL_WIDTH, KERNEL_ROWS (of
 * a register tile of the matrix product). Everything here is static; the including file puts it
 * into its table. Not a header for others, hence no declarations. */
#ifndef TACIT_ENGINE_KERNELS_BODY_H
#define TACIT_ENGINE_KERNELS_BODY_H

#include <math.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#define W ((size_t)KERNEL_WIDTH)
#define DEPTH 256 /* of a panel of the matrix product */
/* An optimizer flag of GCC; clang unrolls these constant loops by itself. */
#define UNROLL _Pragma("GCC unroll 16")

typedef float vec __attribute__((vector_size(W * 4)));
typedef int32_t ivec __attribute__((vector_size(W * 4)));

static inline vec load(const float *p)
{
    vec v;
    memcpy(&v, p, sizeof v);
    return v;
}

static inline void store(float *p, vec v)
{
    memcpy(p, &v, sizeof v);
}

/* The last n < W values of a row; the other lanes are zero. */
static inline vec load_part(const float *p, size_t n)
{
    vec v = {0};
    memcpy(&v, p, n * sizeof *p);
    return v;
}

static inline void store_part(float *p, vec v, size_t n)
{
    memcpy(p, &v, n * sizeof *p);
}

static inline vec splat(float f)
{
    return f - (vec){0};
}

static inline float sum_of(vec v)
{
    float part[W];
    memcpy(part, &v, sizeof part);
    for (size_t step = W / 2; step > 0; step /= 2)
        for (size_t i = 0; i < step; i++)
            part[i] += part[i + step];
    return part[0];
}

static inline vec pick(ivec mask, vec yes, vec no)
{
    ivec a, b;
    memcpy(&a, &yes, sizeof a);
    memcpy(&b, &no, sizeof b);
    ivec r = (a & mask) | (b & ~mask);
    vec v;
    memcpy(&v, &r, sizeof v);
    return v;
}

/* exp by 2^n times a polynomial on [-ln 2 / 2, ln 2 / 2] (Cephes' coefficients); zero below
 * -87.3, where fp32 would be subnormal, inf above 88.72; NaN stays NaN. */
static inline vec exp_of(vec x)
{
    const vec magic = splat(12582912.0f); /* 1.5 * 2^23: adding it rounds to an integer */
    vec low = splat(-87.3f), high = splat(88.72283f);
    vec c = pick(x < low, low, x);
    c = pick(c > high, high, c);
    vec n = (c * 1.44269504f + magic) - magic;
    vec r = c - n * 0.693359375f + n * 2.12194440e-4f;
    vec p = splat(1.9875691500e-4f);
    p = p * r + 1.3981999507e-3f;
    p = p * r + 8.3334519073e-3f;
    p = p * r + 4.1665795894e-2f;
    p = p * r + 1.6666665459e-1f;
    p = p * r + 5.0000001201e-1f;
    p = p * r * r + r + 1.0f;
    /* 2^n in two factors: n = 128 alone has no exponent bits. */
    ivec bits;
    vec shifted = n + magic;
    memcpy(&bits, &shifted, sizeof bits);
    bits -= 0x4b400000;
    ivec half = bits >> 1;
    ivec one = (half + 127) << 23, two = (bits - half + 127) << 23;
    vec f1, f2;
    memcpy(&f1, &one, sizeof f1);
    memcpy(&f2, &two, sizeof f2);
    vec y = p * f1 * f2;
    y = pick(x < low, splat(0), y);
    return pick(x > high, splat(INFINITY), y);
}

static inline vec sigmoid_of(vec x)
{
    return 1.0f / (1.0f + exp_of(-x));
}

static float dot(const float *a, const float *b, size_t n)
{
    vec s0 = splat(0), s1 = s0, s2 = s0, s3 = s0;
    size_t i = 0;
    for (; i + 4 * W <= n; i += 4 * W) {
        s0 += load(a + i) * load(b + i);
        s1 += load(a + i + W) * load(b + i + W);
        s2 += load(a + i + 2 * W) * load(b + i + 2 * W);
        s3 += load(a + i + 3 * W) * load(b + i + 3 * W);
    }
    for (; i + W <= n; i += W)
        s0 += load(a + i) * load(b + i);
    if (i < n)
        s1 += load_part(a + i, n - i) * load_part(b + i, n - i);
    return sum_of((s0 + s1) + (s2 + s3));
}

static float dot3(const float *a, const float *b, const float *c, size_t n)
{
    vec s0 = splat(0), s1 = s0;
    size_t i = 0;
    for (; i + 2 * W <= n; i += 2 * W) {
        s0 += load(a + i) * load(b + i) * load(c + i);
        s1 += load(a + i + W) * load(b + i + W) * load(c + i + W);
    }
    for (; i < n; i += W) {
        size_t size = n - i < W ? n - i : W;
        s0 += load_part(a + i, size) * load_part(b + i, size) * load_part(c + i, size);
    }
    return sum_of(s0 + s1);
}

/* Applies STEP to whole vectors and once to the padded rest. */
#define FOR_VECTORS(n, STEP)                                                                       \
    do {                                                                                           \
        size_t i_ = 0;                                                                             \
        for (; i_ + W <= (n); i_ += W)                                                             \
            STEP(load, store, i_, W);                                                              \
        if (i_ < (n))                                                                              \
            STEP(load_rest, store_rest, i_, (n)-i_);                                               \
    } while (0)
#define load_rest(p) load_part((p), rest_)
#define store_rest(p, v) store_part((p), (v), rest_)

static void axpy(float *y, float a, const float *x, size_t n)
{
#define STEP(get, put, i, size)                                                                    \
    do {                                                                                           \
        size_t rest_ = (size);                                                                     \
        (void)rest_;                                                                               \
        put(y + (i), get(y + (i)) + a * get(x + (i)));                                             \
    } while (0)
    FOR_VECTORS(n, STEP);
#undef STEP
}

typedef int8_t bytes_of_vec __attribute__((vector_size(W)));

static void widen(float *y, float a, const int8_t *q, size_t n)
{
    size_t i = 0;
    for (; i + W <= n; i += W) {
        bytes_of_vec b;
        memcpy(&b, q + i, sizeof b);
        store(y + i, __builtin_convertvector(b, vec) * a);
    }
    for (; i < n; i++)
        y[i] = a * (float)q[i];
}

static void scale_by(float *y, float a, const float *x, const float *w, size_t n)
{
#define STEP(get, put, i, size)                                                                    \
    do {                                                                                           \
        size_t rest_ = (size);                                                                     \
        (void)rest_;                                                                               \
        put(y + (i), get(x + (i)) * a * get(w + (i)));                                             \
    } while (0)
    FOR_VECTORS(n, STEP);
#undef STEP
}

static float max_of(const float *x, size_t n)
{
    vec m = splat(-INFINITY);
    size_t i = 0;
    for (; i + W <= n; i += W) {
        vec v = load(x + i);
        m = pick(v > m, v, m);
    }
    float most = -INFINITY, part[W];
    memcpy(part, &m, sizeof part);
    for (size_t j = 0; j < W; j++)
        most = part[j] > most ? part[j] : most;
    for (; i < n; i++)
        most = x[i] > most ? x[i] : most;
    return most;
}

static float exp_sum(float *y, const float *x, float shift, size_t n)
{
    vec sum = splat(0);
    size_t i = 0;
    for (; i + W <= n; i += W) {
        vec v = exp_of(load(x + i) - shift);
        store(y + i, v);
        sum += v;
    }
    float rest = 0;
    if (i < n) {
        float part[W];
        vec v = exp_of(load_part(x + i, n - i) - shift);
        memcpy(part, &v, sizeof part);
        for (size_t j = 0; i + j < n; j++) {
            y[i + j] = part[j];
            rest += part[j];
        }
    }
    return sum_of(sum) + rest;
}

static void swiglu(float *y, const float *gate, const float *up, size_t n)
{
#define STEP(get, put, i, size)                                                                    \
    do {                                                                                           \
        size_t rest_ = (size);                                                                     \
        (void)rest_;                                                                               \
        vec g_ = get(gate + (i));                                                                  \
        put(y + (i), g_ * sigmoid_of(g_) * get(up + (i)));                                         \
    } while (0)
    FOR_VECTORS(n, STEP);
#undef STEP
}

static void swiglu_backward(float *dgate, float *dup, const float *dy, const float *gate,
                            const float *up, size_t n)
{
#define STEP(get, put, i, size)                                                                    \
    do {                                                                                           \
        size_t rest_ = (size);                                                                     \
        (void)rest_;                                                                               \
        vec g_ = get(gate + (i)), u_ = get(up + (i)), d_ = get(dy + (i));                          \
        vec s_ = sigmoid_of(g_);                                                                   \
        put(dgate + (i), d_ * u_ * s_ * (1.0f + g_ * (1.0f - s_)));                                \
        put(dup + (i), d_ * g_ * s_);                                                              \
    } while (0)
    FOR_VECTORS(n, STEP);
#undef STEP
}

/* (1 + tanh u) / 2 is the sigmoid of 2u, with u = sqrt(2 / pi) (x + 0.044715 x^3). */
#define GELU_TWICE 1.5957691216057308f
#define GELU_CUBIC 0.044715f

static void gelu(float *y, const float *x, size_t n)
{
#define STEP(get, put, i, size)                                                                    \
    do {                                                                                           \
        size_t rest_ = (size);                                                                     \
        (void)rest_;                                                                               \
        vec v_ = get(x + (i));                                                                     \
        put(y + (i), v_ * sigmoid_of(GELU_TWICE * (v_ + GELU_CUBIC * v_ * v_ * v_)));              \
    } while (0)
    FOR_VECTORS(n, STEP);
#undef STEP
}

static void gelu_backward(float *dx, const float *dy, const float *x, size_t n)
{
#define STEP(get, put, i, size)                                                                    \
    do {                                                                                           \
        size_t rest_ = (size);                                                                     \
        (void)rest_;                                                                               \
        vec v_ = get(x + (i));                                                                     \
        vec s_ = sigmoid_of(GELU_TWICE * (v_ + GELU_CUBIC * v_ * v_ * v_));                        \
        vec slope_ = GELU_TWICE * (1.0f + 3 * GELU_CUBIC * v_ * v_);                               \
        put(dx + (i), get(dx + (i)) + get(dy + (i)) * (s_ + v_ * slope_ * s_ * (1.0f - s_)));      \
    } while (0)
    FOR_VECTORS(n, STEP);
#undef STEP
}

static void rotate(float *x, const float *table, size_t heads, size_t head_dim, float sign)
{
    for (size_t h = 0; h < heads; h++) {
        float *v = x + h * head_dim;
        for (size_t i = 0; i + 1 < head_dim; i += 2) {
            float c = table[i], s = sign * table[i + 1];
            float even = v[i], odd = v[i + 1];
            v[i] = even * c - odd * s;
            v[i + 1] = even * s + odd * c;
        }
    }
}

static void rotate_halves(float *x, const float *table, size_t heads, size_t head_dim, float sign)
{
    size_t half = head_dim / 2;
    const float *cosine = table, *sine = table + half;
    for (size_t h = 0; h < heads; h++) {
        float *first = x + h * head_dim, *second = first + half;
        size_t i = 0;
        for (; i + W <= half; i += W) {
            vec a = load(first + i), b = load(second + i);
            vec c = load(cosine + i), s = sign * load(sine + i);
            store(first + i, a * c - b * s);
            store(second + i, a * s + b * c);
        }
        for (; i < half; i++) {
            float a = first[i], b = second[i], c = cosine[i], s = sign * sine[i];
            first[i] = a * c - b * s;
            second[i] = a * s + b * c;
        }
    }
}

/* One register tile: ROWS x (VECTORS W) of y over a depth of k. */
typedef void tile_function(float *y, size_t y_stride, const float *x, size_t x_row, size_t x_col,
                           const float *w, size_t w_stride, size_t k, bool accumulate);

#define DEFINE_TILE(ROWS, VECTORS)                                                                 \
    static void tile_##ROWS##_##VECTORS(float *y, size_t y_stride, const float *x, size_t x_row,   \
                                        size_t x_col, const float *w, size_t w_stride, size_t k,   \
                                        bool accumulate)                                           \
    {                                                                                              \
        vec sum[ROWS][VECTORS];                                                                    \
        UNROLL for (size_t r = 0; r < (ROWS); r++) UNROLL for (size_t v = 0; v < (VECTORS); v++)   \
            sum[r][v] = accumulate ? load(y + r * y_stride + v * W) : splat(0);                    \
        for (size_t j = 0; j < k; j++) {                                                           \
            vec column[VECTORS];                                                                   \
            UNROLL for (size_t v = 0; v < (VECTORS); v++) column[v] = load(w + v * W);             \
            UNROLL for (size_t r = 0; r < (ROWS); r++)                                             \
            {                                                                                      \
                vec value = splat(x[r * x_row]);                                                   \
                UNROLL for (size_t v = 0; v < (VECTORS); v++) sum[r][v] += value * column[v];      \
            }                                                                                      \
            x += x_col;                                                                            \
            w += w_stride;                                                                         \
        }                                                                                          \
        UNROLL for (size_t r = 0; r < (ROWS); r++) UNROLL for (size_t v = 0; v < (VECTORS); v++)   \
            store(y + r * y_stride + v * W, sum[r][v]);                                            \
    }

#define DEFINE_TILES(ROWS) DEFINE_TILE(ROWS, 1) DEFINE_TILE(ROWS, 2)

DEFINE_TILES(1)
DEFINE_TILES(2)
DEFINE_TILES(3)
DEFINE_TILES(4)
#if KERNEL_ROWS > 4
DEFINE_TILES(5)
DEFINE_TILES(6)
#endif
#if KERNEL_ROWS > 6
DEFINE_TILES(7)
DEFINE_TILES(8)
DEFINE_TILES(9)
DEFINE_TILES(10)
DEFINE_TILES(11)
DEFINE_TILES(12)
#endif

static tile_function *const tiles[2][KERNEL_ROWS] = {
    {
        tile_1_1,
        tile_2_1,
        tile_3_1,
        tile_4_1,
#if KERNEL_ROWS > 4
        tile_5_1,
        tile_6_1,
#endif
#if KERNEL_ROWS > 6
        tile_7_1,
        tile_8_1,
        tile_9_1,
        tile_10_1,
        tile_11_1,
        tile_12_1,
#endif
    },
    {
        tile_1_2,
        tile_2_2,
        tile_3_2,
        tile_4_2,
#if KERNEL_ROWS > 4
        tile_5_2,
        tile_6_2,
#endif
#if KERNEL_ROWS > 6
        tile_7_2,
        tile_8_2,
        tile_9_2,
        tile_10_2,
        tile_11_2,
        tile_12_2,
#endif
    },
};

/* One or two rows alone need more columns for as many independent sums. */
DEFINE_TILE(1, 8)
DEFINE_TILE(2, 4)

/* panel[k][width] = w, `columns` of it filled and the rest zero. */
static void pack_panel(float *panel, size_t width, const float *w, size_t w_stride, bool transposed,
                       size_t columns, size_t k)
{
    if (columns < width)
        memset(panel, 0, k * width * sizeof *panel);
    if (transposed) {
        pack_transposed(panel, width, w, w_stride, columns, k);
        return;
    }
    /* Of constant size, so that it does not become a string instruction. */
    if (columns == 2 * W) {
        for (size_t j = 0; j < k; j++, w += w_stride, panel += 2 * W) {
            vec first = load(w), second = load(w + W);
            store(panel, first);
            store(panel + W, second);
        }
        return;
    }
    for (size_t j = 0; j < k; j++) {
        const float *from = w + j * w_stride;
        float *to = panel + j * width;
        size_t c = 0;
        for (; c + W <= columns; c += W)
            store(to + c, load(from + c));
        for (; c < columns; c++)
            to[c] = from[c];
    }
}

/* All rows of one panel, in register tiles of nearly equal height. */
static void multiply_panel(float *y, size_t y_stride, const float *x, size_t x_row, size_t x_col,
                           const float *w, size_t w_stride, size_t m, size_t vectors, size_t k,
                           bool accumulate)
{
    size_t count = (m + KERNEL_ROWS - 1) / KERNEL_ROWS;
    for (size_t i = 0, row = 0; i < count; i++) {
        size_t rows = (m - row + count - i - 1) / (count - i);
        tiles[vectors - 1][rows - 1](y + row * y_stride, y_stride, x + row * x_row, x_row, x_col, w,
                                     w_stride, k, accumulate);
        row += rows;
    }
}

/* The last columns, fewer than a vector: the tile goes to memory that has room for all lanes. */
static void multiply_edge(float *y, size_t y_stride, const float *x, size_t x_row, size_t x_col,
                          const float *panel, size_t m, size_t columns, size_t k, bool accumulate)
{
    float part[KERNEL_ROWS * W];
    for (size_t row = 0; row < m; row += KERNEL_ROWS) {
        size_t rows = m - row < KERNEL_ROWS ? m - row : KERNEL_ROWS;
        for (size_t r = 0; accumulate && r < rows; r++)
            store(part + r * W, load_part(y + (row + r) * y_stride, columns));
        tiles[0][rows - 1](part, W, x + row * x_row, x_row, x_col, panel, W, k, accumulate);
        for (size_t r = 0; r < rows; r++)
            memcpy(y + (row + r) * y_stride, part + r * W, columns * sizeof *part);
    }
}

/* The columns that wide tiles of one or two rows can take, straight from w; returns their count. */
static size_t multiply_wide(float *y, size_t y_stride, const float *x, size_t x_row, size_t x_col,
                            const float *w, size_t w_stride, size_t m, size_t n, size_t k,
                            bool accumulate)
{
    size_t width = m == 1 ? 8 * W : 4 * W, col = 0;
    tile_function *tile = m == 1 ? tile_1_8 : tile_2_4;
    for (; m <= 2 && col + width <= n; col += width)
        tile(y + col, y_stride, x, x_row, x_col, w + col, w_stride, k, accumulate);
    return col;
}

static void multiply(float *y, size_t y_stride, const float *x, size_t x_row, size_t x_col,
                     const float *w, size_t w_stride, bool transposed, size_t m, size_t n, size_t k,
                     bool accumulate)
{
    float panel[W * 2 * DEPTH] __attribute__((aligned(64)));
    for (size_t at = 0; at < k; at += DEPTH) {
        size_t depth = k - at < DEPTH ? k - at : DEPTH, col = 0;
        const float *xk = x + at * x_col;
        bool add = accumulate || at > 0;
        if (!transposed)
            col = multiply_wide(y, y_stride, xk, x_row, x_col, w + at * w_stride, w_stride, m, n,
                                depth, add);
        while (col < n) {
            size_t left = n - col, vectors = left >= 2 * W ? 2 : 1;
            size_t width = vectors * W, columns = left < width ? left : width;
            const float *from = transposed ? w + col * w_stride + at : w + at * w_stride + col;
            const float *used = from;
            size_t used_stride = w_stride;
            /* A w whose rows are as wide as a panel is one already. */
            bool packed = w_stride == width;
            if (transposed || columns < width || (m > KERNEL_ROWS && !packed)) {
                pack_panel(panel, width, from, w_stride, transposed, columns, depth);
                used = panel;
                used_stride = width;
            }
            if (columns == width)
                multiply_panel(y + col, y_stride, xk, x_row, x_col, used, used_stride, m, vectors,
                               depth, add);
            else
                multiply_edge(y + col, y_stride, xk, x_row, x_col, panel, m, columns, depth, add);
            col += columns;
        }
    }
}

#endif
