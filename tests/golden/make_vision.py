#!/usr/bin/env python3
"""Writes vision_torch.h: rows and gradients of the small tower of reference_vision.h, computed by
PyTorch in float64. The loss is the sum of rows times fixed numbers.

usage: make_vision.py > vision_torch.h     (needs torch)
"""
import torch
import torch.nn.functional as F

IMAGE, PATCH, D, FF, HEADS, LAYERS, SCALE, OUT = 12, 2, 8, 12, 2, 2, 2, 5
GRID = IMAGE // PATCH
MASK = 0xFFFFFFFF


def uniform(t, n):
    out = []
    for i in range(n):
        x = (i * 0x9E3779B1 + t * 0x85EBCA77 + 0x27D4EB2F) & MASK
        x = ((x ^ x >> 16) * 0x7FEB352D) & MASK
        x = ((x ^ x >> 15) * 0x846CA68B) & MASK
        x ^= x >> 16
        out.append((x >> 8) / 16777216 - 0.5)
    return torch.tensor(out, dtype=torch.float64)


tensors = []


def tensor(shape, scale, shift=0.0):
    n = 1
    for size in shape:
        n *= size
    values = (uniform(len(tensors), n) * scale + shift).reshape(shape).requires_grad_()
    tensors.append(values)
    return values


def linear(n_out, n_in):
    return tensor((n_out, n_in), 1.0), tensor((n_out,), 0.5)


kernel, kernel_bias = tensor((D, 3, PATCH, PATCH), 0.5), tensor((D,), 0.5)
positions = tensor((GRID * GRID, D), 1.0)
blocks = []
for _ in range(LAYERS):
    norm1 = tensor((D,), 1.0, 1.0), tensor((D,), 0.5)
    q, k, v, out = (linear(D, D) for _ in range(4))
    norm2 = tensor((D,), 1.0, 1.0), tensor((D,), 0.5)
    up, down = linear(FF, D), linear(D, FF)
    blocks.append((norm1, q, k, v, out, norm2, up, down))
last = tensor((D,), 0.5, 1.0), tensor((D,), 0.5)
projector = tensor((OUT, D * SCALE * SCALE), 0.5)

planes = uniform(1000, 3 * IMAGE * IMAGE).reshape(1, 3, IMAGE, IMAGE) * 2
x = F.conv2d(planes, kernel, kernel_bias, stride=PATCH).flatten(2).transpose(1, 2)[0] + positions
for norm1, q, k, v, out, norm2, up, down in blocks:
    h = F.layer_norm(x, (D,), *norm1, eps=1e-6)
    heads = [F.linear(h, *w).reshape(-1, HEADS, D // HEADS).transpose(0, 1) for w in (q, k, v)]
    mixed = F.scaled_dot_product_attention(*heads).transpose(0, 1).reshape(-1, D)
    x = x + F.linear(mixed, *out)
    h = F.layer_norm(x, (D,), *norm2, eps=1e-6)
    x = x + F.linear(F.gelu(F.linear(h, *up), approximate="tanh"), *down)
x = F.layer_norm(x, (D,), *last, eps=1e-6).reshape(GRID, GRID, D)
cells = GRID // SCALE
x = x.reshape(cells, SCALE, cells, SCALE, D).permute(0, 2, 1, 3, 4).reshape(cells * cells, -1)
rows = F.linear(x, projector)
(rows * uniform(1001, rows.numel()).reshape(rows.shape)).sum().backward()


def array(name, values):
    print(f"static const double {name}[] = {{")
    values = values.flatten().tolist()
    for at in range(0, len(values), 6):
        print("    " + " ".join(f"{v:.9g}," for v in values[at:at + 6]))
    print("};")


print("/* Made by make_vision.py; see there. */")
array("torch_rows", rows.detach())
for i, t in enumerate(tensors):
    array(f"torch_gradient_{i}", t.grad)
print("static const struct {\n    const double *values;\n    size_t count;\n} torch_gradient[] = {")
for i, t in enumerate(tensors):
    print(f"    {{torch_gradient_{i}, {t.numel()}}},")
print("};")
