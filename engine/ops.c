#include "engine/ops.h"

#include <math.h>

#define GELU_SQRT_2_OVER_PI 0.7978845608028654f
#define GELU_CUBIC 0.044715f

static float dot(const float *a, const float *b, size_t n)
{
    float sum = 0;
    for (size_t i = 0; i < n; i++)
        sum += a[i] * b[i];
    return sum;
}

static float rms_scale(const float *x, size_t n, float eps)
{
    return 1.0f / sqrtf(dot(x, x, n) / (float)n + eps);
}

void ops_rms_norm_forward(float *y, const float *x, const float *w, size_t rows, size_t n,
                          float eps)
{
    for (size_t r = 0; r < rows; r++) {
        const float *xr = x + r * n;
        float *yr = y + r * n;
        float scale = rms_scale(xr, n, eps);
        for (size_t i = 0; i < n; i++)
            yr[i] = xr[i] * scale * w[i];
    }
}

/* With s the scale: dx = s (w dy) - x s^3 / n * sum(w dy x). */
void ops_rms_norm_backward(float *dx, float *dw, const float *dy, const float *x, const float *w,
                           size_t rows, size_t n, float eps)
{
    for (size_t r = 0; r < rows; r++) {
        const float *xr = x + r * n, *dyr = dy + r * n;
        float scale = rms_scale(xr, n, eps);
        float along = 0;
        for (size_t i = 0; i < n; i++)
            along += w[i] * dyr[i] * xr[i];
        along *= scale * scale * scale / (float)n;
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

static float sigmoid(float x)
{
    return 1.0f / (1.0f + expf(-x));
}

void ops_silu_forward(float *y, const float *x, size_t n)
{
    for (size_t i = 0; i < n; i++)
        y[i] = x[i] * sigmoid(x[i]);
}

void ops_silu_backward(float *dx, const float *dy, const float *x, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        float s = sigmoid(x[i]);
        dx[i] += dy[i] * s * (1 + x[i] * (1 - s));
    }
}

void ops_swiglu_forward(float *y, const float *gate, const float *up, size_t n)
{
    for (size_t i = 0; i < n; i++)
        y[i] = gate[i] * sigmoid(gate[i]) * up[i];
}

void ops_swiglu_backward(float *dgate, float *dup, const float *dy, const float *gate,
                         const float *up, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        float s = sigmoid(gate[i]);
        float through_gate = dy[i] * up[i] * s * (1 + gate[i] * (1 - s));
        float through_up = dy[i] * gate[i] * s;
        dgate[i] = through_gate;
        dup[i] = through_up;
    }
}

void ops_gelu_forward(float *y, const float *x, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        float u = GELU_SQRT_2_OVER_PI * (x[i] + GELU_CUBIC * x[i] * x[i] * x[i]);
        y[i] = x[i] * sigmoid(2 * u); /* (1 + tanh u) / 2 = sigmoid(2u) */
    }
}

void ops_gelu_backward(float *dx, const float *dy, const float *x, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        float u = GELU_SQRT_2_OVER_PI * (x[i] + GELU_CUBIC * x[i] * x[i] * x[i]);
        float du = GELU_SQRT_2_OVER_PI * (1 + 3 * GELU_CUBIC * x[i] * x[i]);
        float s = sigmoid(2 * u);
        dx[i] += dy[i] * (s + x[i] * 2 * du * s * (1 - s));
    }
}

void ops_softmax_forward(float *y, const float *x, size_t rows, size_t n)
{
    for (size_t r = 0; r < rows; r++) {
        const float *xr = x + r * n;
        float *yr = y + r * n;
        float max = -INFINITY, sum = 0;
        for (size_t i = 0; i < n; i++)
            max = xr[i] > max ? xr[i] : max;
        for (size_t i = 0; i < n; i++) {
            yr[i] = expf(xr[i] - max);
            sum += yr[i];
        }
        ops_scale(yr, 1 / sum, n);
    }
}

void ops_softmax_backward(float *dx, const float *dy, const float *y, size_t rows, size_t n)
{
    for (size_t r = 0; r < rows; r++) {
        const float *dyr = dy + r * n, *yr = y + r * n;
        float along = dot(dyr, yr, n);
        for (size_t i = 0; i < n; i++)
            dx[r * n + i] = yr[i] * (dyr[i] - along);
    }
}

void ops_rope_table(float *table, const uint32_t *position, const double *frequency, size_t rows,
                    size_t head_dim)
{
    for (size_t r = 0; r < rows; r++)
        for (size_t i = 0; i < head_dim / 2; i++) {
            double angle = position[r] * frequency[i];
            table[r * head_dim + 2 * i] = (float)cos(angle);
            table[r * head_dim + 2 * i + 1] = (float)sin(angle);
        }
}

/* `sign` is 1 for the rotation and -1 for its inverse. */
static void rotate(float *x, const float *table, size_t rows, size_t heads, size_t head_dim,
                   size_t stride, float sign)
{
    for (size_t r = 0; r < rows; r++) {
        const float *turn = table + r * head_dim;
        for (size_t h = 0; h < heads; h++) {
            float *v = x + r * stride + h * head_dim;
            for (size_t i = 0; i + 1 < head_dim; i += 2) {
                float c = turn[i], s = sign * turn[i + 1];
                float even = v[i], odd = v[i + 1];
                v[i] = even * c - odd * s;
                v[i + 1] = even * s + odd * c;
            }
        }
    }
}

void ops_rope_forward(float *x, const float *table, size_t rows, size_t heads, size_t head_dim,
                      size_t stride)
{
    rotate(x, table, rows, heads, head_dim, stride, 1);
}

void ops_rope_backward(float *dx, const float *table, size_t rows, size_t heads, size_t head_dim,
                       size_t stride)
{
    rotate(dx, table, rows, heads, head_dim, stride, -1);
}

void ops_add(float *y, const float *x, size_t n)
{
    for (size_t i = 0; i < n; i++)
        y[i] += x[i];
}

void ops_scale(float *y, float factor, size_t n)
{
    for (size_t i = 0; i < n; i++)
        y[i] *= factor;
}
