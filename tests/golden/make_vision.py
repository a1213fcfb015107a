#!/usr/bin/env python3
"""Writes vision_torch.h, rows and gradients of the towers `small` and `small_mlp` of test_vision.c
(the loss is the sum of rows times fixed numbers), and vision_joined.h, joined features of
test_vision_picture.c: all computed by PyTorch in float64.

usage: make_vision.py FOLDER     (needs torch; writes vision_torch.h and vision_joined.h)
"""
import contextlib
import math
import os
import sys

import torch
import torch.nn.functional as F

PATCH, D, FF, HEADS, LAYERS, OUT, HIDDEN, SCALE = 2, 8, 12, 2, 2, 5, 7, 2
GRID = 6
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


class Tower:
    """A CLIP tower (class token, norm before the blocks, no bias of the kernel) or a SigLIP one."""

    def __init__(self, clip):
        self.tensors = []
        self.clip = clip
        self.kernel = self.tensor((D, 3, PATCH, PATCH), 0.5)
        self.kernel_bias = None if clip else self.tensor((D,), 0.5)
        self.class_token = self.tensor((D,), 1.0) if clip else None
        self.positions = self.tensor((GRID * GRID + clip, D), 1.0)
        self.pre_norm = self.norm(0.5) if clip else None
        self.blocks = [self.block() for _ in range(LAYERS)]

    def tensor(self, shape, scale, shift=0.0):
        n = 1
        for size in shape:
            n *= size
        values = (uniform(len(self.tensors), n) * scale + shift).reshape(shape).requires_grad_()
        self.tensors.append(values)
        return values

    def norm(self, scale):
        return self.tensor((D,), scale, 1.0), self.tensor((D,), 0.5)

    def linear(self, n_out, n_in, scale=1.0):
        return self.tensor((n_out, n_in), scale), self.tensor((n_out,), 0.5)

    def block(self):
        norm1 = self.norm(1.0)
        attention = [self.linear(D, D) for _ in range(4)]
        norm2 = self.norm(1.0)
        return norm1, attention, norm2, self.linear(FF, D), self.linear(D, FF)

    def act(self, x):
        return x * torch.sigmoid(1.702 * x) if self.clip else F.gelu(x, approximate="tanh")

    def states(self, planes):
        """All hidden states of the patches."""
        x = F.conv2d(planes, self.kernel, self.kernel_bias, stride=PATCH).flatten(2).transpose(1, 2)[0]
        if self.clip:
            x = torch.cat((self.class_token[None], x))
        x = x + self.positions
        if self.clip:
            x = F.layer_norm(x, (D,), *self.pre_norm, eps=1e-6)
        out = [x]
        for norm1, (q, k, v, o), norm2, up, down in self.blocks:
            h = F.layer_norm(x, (D,), *norm1, eps=1e-6)
            q, k, v = (F.linear(h, *w).reshape(-1, HEADS, D // HEADS).transpose(0, 1) for w in (q, k, v))
            scores = (q @ k.transpose(1, 2) / (D // HEADS) ** 0.5).softmax(-1)
            mixed = (scores @ v).transpose(0, 1).reshape(-1, D)
            x = x + F.linear(mixed, *o)
            h = F.layer_norm(x, (D,), *norm2, eps=1e-6)
            x = x + F.linear(self.act(F.linear(h, *up)), *down)
            out.append(x)
        return [x[1:] if self.clip else x for x in out]


def idefics3():
    tower = Tower(clip=False)
    last, projector = tower.norm(0.5), tower.tensor((OUT, D * SCALE * SCALE), 0.5)
    planes = uniform(1000, 3 * 12 * 12).reshape(1, 3, 12, 12) * 2
    x = F.layer_norm(tower.states(planes)[-1], (D,), *last, eps=1e-6).reshape(GRID, GRID, D)
    cells = GRID // SCALE
    x = x.reshape(cells, SCALE, cells, SCALE, D).permute(0, 2, 1, 3, 4).reshape(cells * cells, -1)
    return tower, F.linear(x, projector)


def mlp():
    tower = Tower(clip=True)
    first, second = tower.linear(HIDDEN, 2 * D, 0.5), tower.linear(OUT, HIDDEN, 0.5)
    planes = uniform(1000, 3 * 13 * 13).reshape(1, 3, 13, 13) * 2
    states = tower.states(planes)
    x = torch.cat((states[1], states[2]), -1)
    return tower, F.linear(F.gelu(F.linear(x, *first)), *second)


def join(frames, newline, grid, tiles, size, max_tiles):
    """Features [1 + tiles, grid^2, width] of a picture of size = (width, height), joined as
    LLaVA-OneVision does it: stitched, cut to the picture, scaled down, closed row by row."""
    rows, cols = tiles
    x = frames[1:].reshape(rows, cols, grid, grid, -1).permute(4, 0, 2, 1, 3)
    x = x.reshape(-1, rows * grid, cols * grid)
    width, height = size
    if width / height > x.shape[2] / x.shape[1]:
        pad = (x.shape[1] - int(round(height * (x.shape[2] / width), 7))) // 2
        x = x[:, pad:x.shape[1] - pad]
    else:
        pad = (x.shape[2] - int(round(width * (x.shape[1] / height), 7))) // 2
        x = x[:, :, pad:x.shape[2] - pad]
    ratio = math.sqrt(x.shape[1] * x.shape[2] / (max_tiles * grid ** 2))
    if ratio > 1.1:
        smaller = [int(x.shape[1] // ratio), int(x.shape[2] // ratio)]
        x = F.interpolate(x[None], smaller, mode="bilinear", align_corners=False)[0]
    x = torch.cat((x, newline[:, None, None].expand(-1, x.shape[1], 1)), -1)
    return torch.cat((frames[0], x.flatten(1).T))


def best(size, pixels=8, most=3):
    """Rows and columns of tiles: the most of the picture, then the least waste."""
    width, height = size
    found = (-1, 0), None
    for rows in range(1, most + 1):
        for cols in range(1, most + 1):
            scale = min(cols * pixels / width, rows * pixels / height)
            shown = min(int(width * scale) * int(height * scale), width * height)
            found = max(found, ((shown, shown - rows * cols * pixels ** 2), (rows, cols)), key=lambda x: x[0])
    return found[1]


JOINED = (9, 7), (30, 8), (8, 30), (50, 49), (24, 17), (7, 7), (1, 40), (16, 15), (23, 11)


def joined():
    """Tiles of 8 pixels, 3 x 3 features of 2 values, up to 3 x 3 tiles, of which 4 are too many."""
    out = []
    for size in JOINED:
        rows, cols = best(size)
        n = 1 + rows * cols
        frames, newline = uniform(1, n * 9 * 2).reshape(n, 9, 2), uniform(2, 2)
        out.append(join(frames, newline, 3, (rows, cols), size, 3))
    return out


def array(name, values):
    print(f"static const double {name}[] = {{")
    values = values.flatten().tolist()
    for at in range(0, len(values), 6):
        print("    " + " ".join(f"{v:.9g}," for v in values[at:at + 6]))
    print("};")


def write(name, tower, rows):
    (rows * uniform(1001, rows.numel()).reshape(rows.shape)).sum().backward()
    array(f"{name}_rows", rows.detach())
    for i, t in enumerate(tower.tensors):
        array(f"{name}_gradient_{i}", t.grad)
    print(f"static const torch_tensor {name}_gradient[] = {{")
    for i, t in enumerate(tower.tensors):
        print(f"    {{{name}_gradient_{i}, {t.numel()}}},")
    print("};")


def towers():
    print("/* Made by make_vision.py; see there. */")
    print("typedef struct torch_tensor {\n    const double *values;\n    size_t count;\n} torch_tensor;")
    write("idefics3", *idefics3())
    write("mlp", *mlp())


def joins():
    cases = joined()
    print("/* Made by make_vision.py; see there. */")
    for i, rows in enumerate(cases):
        array(f"joined_{i}", rows)
    print("static const struct {\n    unsigned width, height, rows, cols, total;\n"
          "    const double *values;\n} joined[] = {")
    for i, size in enumerate(JOINED):
        print("    {%d, %d, %d, %d, %d, joined_%d}," % (*size, *best(size), len(cases[i]), i))
    print("};")


for name, make in (("vision_torch.h", towers), ("vision_joined.h", joins)):
    with open(os.path.join(sys.argv[1], name), "w") as out, contextlib.redirect_stdout(out):
        make()
