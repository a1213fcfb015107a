#include "engine/ops.h"

#include "engine/kernels.h"

#include <math.h>
#include <stdbool.h>

#define GEGLU_BLOCK 256

static float rms_scale(const float *x, size_t n, float eps)
{
    return 1.0f / sqrtf(kernels()->dot(x, x, n) / (float)n + eps);
}

void ops_rms_norm_forward(float *y, const float *x, const float *w, size_t rows, size_t n,
                          float eps)
{
    for (size_t r = 0; r < rows; r++) {
        const float *xr = x + r * n;
        float *yr = y + r * n;
        kernels()->scale_by(yr, rms_scale(xr, n, eps), xr, w, n);
    }
}

/* With s the scale: dx = s (w dy) - x s^3 / n * sum(w dy x). */
void ops_rms_norm_backward(float *dx, float *dw, const float *dy, const float *x, const float *w,
                           size_t rows, size_t n, float eps)
{
    for (size_t r = 0; r < rows; r++) {
        const float *xr = x + r * n, *dyr = dy + r * n;
        float scale = rms_scale(xr, n, eps);
        float along = kernels()->dot3(w, dyr, xr, n) * scale * scale * scale / (float)n;
        for (size_t i = 0; dx && i < n; i++)
            dx[r * n + i] += w[i] * dyr[i] * scale - xr[i] * along;
        for (size_t i = 0; dw && i < n; i++)
            dw[i] += dyr[i] * xr[i] * scale;
    }
}

typedef struct moments {
    float mean, scale; /* scale = 1 / sqrt(variance + eps) */
} moments;

static moments moments_of(const float *x, size_t n, float eps)
{
    float sum = 0, squares = 0;
    for (size_t i = 0; i < n; i++)
        sum += x[i];
    float mean = sum / (float)n;
    for (size_t i = 0; i < n; i++)
        squares += (x[i] - mean) * (x[i] - mean);
    return (moments){mean, 1.0f / sqrtf(squares / (float)n + eps)};
}

void ops_layer_norm_forward(float *y, const float *x, const float *w, const float *b, size_t rows,
                            size_t n, float eps)
{
    for (size_t r = 0; r < rows; r++) {
        const float *xr = x + r * n;
        float *yr = y + r * n;
        moments m = moments_of(xr, n, eps);
        for (size_t i = 0; i < n; i++)
            yr[i] = (xr[i] - m.mean) * m.scale * w[i] + b[i];
    }
}

/* With h = (x - mean) s and g = w dy: dx = s (g - mean(g) - h mean(g h)). */
void ops_layer_norm_backward(float *dx, float *dw, float *db, const float *dy, const float *x,
                             const float *w, size_t rows, size_t n, float eps)
{
    for (size_t r = 0; r < rows; r++) {
        const float *xr = x + r * n, *dyr = dy + r * n;
        moments m = moments_of(xr, n, eps);
        float sum = 0, along = 0;
        for (size_t i = 0; i < n; i++) {
            float g = w[i] * dyr[i];
            sum += g;
            along += g * (xr[i] - m.mean) * m.scale;
        }
        sum /= (float)n;
        along /= (float)n;
        for (size_t i = 0; dx && i < n; i++)
            dx[r * n + i] += m.scale * (w[i] * dyr[i] - sum - (xr[i] - m.mean) * m.scale * along);
        for (size_t i = 0; dw && i < n; i++)
            dw[i] += dyr[i] * (xr[i] - m.mean) * m.scale;
        for (size_t i = 0; db && i < n; i++)
            db[i] += dyr[i];
    }
}

void ops_swiglu_forward(float *y, const float *gate, const float *up, size_t n)
{
    kernels()->swiglu(y, gate, up, n);
}

void ops_swiglu_backward(float *dgate, float *dup, const float *dy, const float *gate,
                         const float *up, size_t n)
{
    kernels()->swiglu_backward(dgate, dup, dy, gate, up, n);
}

const ops_gated ops_swiglu = {ops_swiglu_forward, ops_swiglu_backward};

void ops_geglu_forward(float *y, const float *gate, const float *up, size_t n)
{
    kernels()->gelu(y, gate, n);
    for (size_t i = 0; i < n; i++)
        y[i] *= up[i];
}

/* Block by block, since what is written may be what is read. */
void ops_geglu_backward(float *dgate, float *dup, const float *dy, const float *gate,
                        const float *up, size_t n)
{
    float gelu[GEGLU_BLOCK], d[GEGLU_BLOCK], sum[GEGLU_BLOCK];
    for (size_t at = 0; at < n; at += GEGLU_BLOCK) {
        size_t block = n - at < GEGLU_BLOCK ? n - at : GEGLU_BLOCK;
        kernels()->gelu(gelu, gate + at, block);
        for (size_t i = 0; i < block; i++) {
            d[i] = dy[at + i] * up[at + i];
            sum[i] = 0;
        }
        kernels()->gelu_backward(sum, d, gate + at, block);
        for (size_t i = 0; i < block; i++) {
            dup[at + i] = dy[at + i] * gelu[i];
            dgate[at + i] = sum[i];
        }
    }
}

const ops_gated ops_geglu = {ops_geglu_forward, ops_geglu_backward};

void ops_gelu_forward(float *y, const float *x, size_t n)
{
    kernels()->gelu(y, x, n);
}

void ops_gelu_backward(float *dx, const float *dy, const float *x, size_t n)
{
    kernels()->gelu_backward(dx, dy, x, n);
}

void ops_softmax_forward(float *y, const float *x, size_t rows, size_t n)
{
    const tacit_kernels *k = kernels();
    for (size_t r = 0; r < rows; r++) {
        const float *xr = x + r * n;
        float *yr = y + r * n;
        float sum = k->exp_sum(yr, xr, k->max(xr, n), n);
        ops_scale(yr, 1 / sum, n);
    }
}

void ops_softmax_backward(float *dx, const float *dy, const float *y, size_t rows, size_t n)
{
    for (size_t r = 0; r < rows; r++) {
        const float *dyr = dy + r * n, *yr = y + r * n;
        float along = kernels()->dot(dyr, yr, n);
        for (size_t i = 0; i < n; i++)
            dx[r * n + i] = yr[i] * (dyr[i] - along);
    }
}

void ops_rope_table(float *table, const ops_rope *rope, const uint32_t *position, size_t stride,
                    size_t rows)
{
    bool halves = rope->form == OPS_ROPE_HALVES;
    size_t half = rope->head_dim / 2, step = halves ? 1 : 2, apart = halves ? half : 1;
    for (size_t r = 0; r < rows; r++)
        for (size_t i = 0; i < half; i++) {
            size_t axis = rope->axis ? rope->axis[i] : 0;
            double angle = position[r * stride + axis] * rope->frequency[i];
            float *pair = table + r * rope->head_dim + step * i;
            pair[0] = (float)(rope->magnitude * cos(angle));
            pair[apart] = (float)(rope->magnitude * sin(angle));
        }
}

static void turn(float *x, const float *table, const ops_rope *rope, size_t rows, size_t heads,
                 size_t stride, float sign)
{
    const tacit_kernels *k = kernels();
    bool halves = rope->form == OPS_ROPE_HALVES;
    for (size_t r = 0; r < rows; r++)
        (halves ? k->rotate_halves : k->rotate)(x + r * stride, table + r * rope->head_dim, heads,
                                                rope->head_dim, sign);
}

void ops_rope_forward(float *x, const float *table, const ops_rope *rope, size_t rows, size_t heads,
                      size_t stride)
{
    turn(x, table, rope, rows, heads, stride, 1);
}

void ops_rope_backward(float *dx, const float *table, const ops_rope *rope, size_t rows,
                       size_t heads, size_t stride)
{
    turn(dx, table, rope, rows, heads, stride, -1);
}

void ops_add(float *y, const float *x, size_t n)
{
    kernels()->axpy(y, 1, x, n);
}

void ops_scale(float *y, float factor, size_t n)
{
    for (size_t i = 0; i < n; i++)
        y[i] *= factor;
}
