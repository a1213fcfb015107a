#!/usr/bin/env python3
"""Writes vision_torch.h: rows and gradients of the towers `small` and `small_mlp` of test_vision.c,
computed by PyTorch in float64. The loss is the sum of rows times fixed numbers.

usage: make_vision.py > vision_torch.h     (needs torch)
"""
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


print("/* Made by make_vision.py; see there. */")
print("typedef struct torch_tensor {\n    const double *values;\n    size_t count;\n} torch_tensor;")
write("idefics3", *idefics3())
write("mlp", *mlp())
