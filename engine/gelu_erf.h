/* GELU by its definition (Hendrycks and Gimpel 2016, arXiv 1606.08415): x Phi(x), Phi the standard
 * normal distribution function: what PyTorch's F.gelu computes unless told otherwise. The tanh form
 * is in ops.h, whose conventions hold here. */
#ifndef TACIT_ENGINE_GELU_ERF_H
#define TACIT_ENGINE_GELU_ERF_H

#include <stddef.h>

/* y = x Phi(x), off by at most 1e-6 + x^2 2^-24 of its value; y may be x. */
void ops_gelu_erf_forward(float *y, const float *x, size_t n);
/* dx += dy (Phi(x) + x phi(x)), phi the density. */
void ops_gelu_erf_backward(float *dx, const float *dy, const float *x, size_t n);

#endif
