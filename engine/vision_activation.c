#include "engine/vision_activation.h"

#include "engine/gelu_erf.h"
#include "engine/kernels.h"
#include "engine/ops.h"

#include <string.h>

#define QUICK 1.702f
#define CHUNK 256

/* silu(a x) / a, whose kernel is that of the gated form with 1 / a as the other factor. */
static void scaled_silu(float *y, const float *x, size_t n, float a)
{
    float gate[CHUNK], up[CHUNK];
    for (size_t at = 0; at < n; at += CHUNK) {
        size_t m = n - at < CHUNK ? n - at : CHUNK;
        for (size_t i = 0; i < m; i++) {
            gate[i] = a * x[at + i];
            up[i] = 1 / a;
        }
        kernels()->swiglu(y + at, gate, up, m);
    }
}

static void scaled_silu_backward(float *dx, const float *dy, const float *x, size_t n, float a)
{
    float gate[CHUNK], up[CHUNK], dgate[CHUNK], dup[CHUNK];
    for (size_t at = 0; at < n; at += CHUNK) {
        size_t m = n - at < CHUNK ? n - at : CHUNK;
        for (size_t i = 0; i < m; i++) {
            gate[i] = a * x[at + i];
            up[i] = 1 / a;
        }
        kernels()->swiglu_backward(dgate, dup, dy + at, gate, up, m);
        kernels()->axpy(dx + at, a, dgate, m);
    }
}

static void quick_forward(float *y, const float *x, size_t n)
{
    scaled_silu(y, x, n, QUICK);
}

static void quick_backward(float *dx, const float *dy, const float *x, size_t n)
{
    scaled_silu_backward(dx, dy, x, n, QUICK);
}

static void silu_forward(float *y, const float *x, size_t n)
{
    scaled_silu(y, x, n, 1);
}

static void silu_backward(float *dx, const float *dy, const float *x, size_t n)
{
    scaled_silu_backward(dx, dy, x, n, 1);
}

static const vision_activation activations[] = {
    {"gelu_pytorch_tanh", ops_gelu_forward, ops_gelu_backward},
    {"gelu", ops_gelu_erf_forward, ops_gelu_erf_backward},
    {"quick_gelu", quick_forward, quick_backward},
    {"silu", silu_forward, silu_backward},
};

const vision_activation *vision_activation_find(const char *name, size_t size)
{
    for (size_t i = 0; i < sizeof activations / sizeof activations[0]; i++)
        if (strlen(activations[i].name) == size && memcmp(activations[i].name, name, size) == 0)
            return &activations[i];
    return NULL;
}
