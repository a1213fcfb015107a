/* The activations that vision towers and their projectors use, by the names that Hugging Face's
 * configurations give them. */
#ifndef TACIT_ENGINE_VISION_ACTIVATION_H
#define TACIT_ENGINE_VISION_ACTIVATION_H

#include <stddef.h>

typedef struct vision_activation {
    const char *name;
    void (*forward)(float *y, const float *x, size_t n); /* y may be x */
    /* dx += dy times the derivative at x. */
    void (*backward)(float *dx, const float *dy, const float *x, size_t n);
} vision_activation;

/* "gelu_pytorch_tanh"; "gelu", x Phi(x) by erf; "quick_gelu", x sigmoid(1.702 x); "silu". NULL for
 * another name of `size` bytes. */
const vision_activation *vision_activation_find(const char *name, size_t size);

#endif
