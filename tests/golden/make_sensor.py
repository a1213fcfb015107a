#!/usr/bin/env python3
"""Writes sensor_torch.h: rows and gradients of the small encoder of reference_sensor.h for two
windows, computed by PyTorch in float64. The loss is the sum of rows times fixed numbers.

usage: make_sensor.py > sensor_torch.h     (needs torch)
"""
import torch
import torch.nn.functional as F

CHANNELS, LENGTH, PATCHES, D, OUT = 3, 4, 5, 8, 6
N_IN = 2 * CHANNELS * LENGTH
FIRST = 700
WINDOWS = (5, 2)
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


def tensor(shape, scale):
    n = 1
    for size in shape:
        n *= size
    values = (uniform(FIRST + len(tensors), n) * scale).reshape(shape).requires_grad_()
    tensors.append(values)
    return values


patch = tensor((D, N_IN), 1.0), tensor((D,), 0.5)
position = tensor((PATCHES, D), 1.0)
fc = tensor((OUT, D), 0.5), tensor((OUT,), 0.5)


def rows_of(window):
    n = WINDOWS[window]
    x = 4 * uniform(800 + window, n * N_IN).reshape(n, N_IN)
    h = F.gelu(F.linear(x, *patch), approximate="tanh") + position[:n]
    return F.linear(h, *fc)


def array(name, values):
    print(f"static const double {name}[{len(values)}] = {{")
    for i in range(0, len(values), 4):
        print("    " + ", ".join(f"{v:.12g}" for v in values[i:i + 4]) + ",")
    print("};")


print("/* Made by make_sensor.py: PyTorch in float64. */")
print("#ifndef TACIT_TESTS_SENSOR_TORCH_H\n#define TACIT_TESTS_SENSOR_TORCH_H\n")
loss = 0
for w in range(len(WINDOWS)):
    rows = rows_of(w)
    loss = loss + (rows * uniform(810 + w, rows.numel()).reshape(rows.shape)).sum()
    array(f"sensor_torch_rows_{w}", rows.detach().flatten().tolist())
loss.backward()
for i, t in enumerate(tensors):
    array(f"sensor_torch_grad_{i}", t.grad.flatten().tolist())
print("\n#endif")
