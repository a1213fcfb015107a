#!/usr/bin/env python3
"""Writes audio_torch.h: rows and gradients of the small tower of reference_audio.h for a clip of two
chunks, by PyTorch in float64, the loss being the sum of rows times fixed numbers; and log-mel frames
of signals that are exact in float32, by NumPy's FFT in float64 from the definition in Whisper's
paper and its reference.

usage: make_audio.py > audio_torch.h     (needs torch, numpy)
"""
import numpy as np
import torch
import torch.nn.functional as F

N_MEL, D, FF, HEADS, LAYERS, POSITIONS, STACK, MIDDLE, OUT = 6, 8, 12, 2, 2, 7, 3, 5, 4
FRAMES = 23  # a chunk of 14 frames and one of 9
MASK = 0xFFFFFFFF


def uniform(t, n):
    out = np.empty(n)
    for i in range(n):
        x = (i * 0x9E3779B1 + t * 0x85EBCA77 + 0x27D4EB2F) & MASK
        x = ((x ^ x >> 16) * 0x7FEB352D) & MASK
        x = ((x ^ x >> 15) * 0x846CA68B) & MASK
        x ^= x >> 16
        out[i] = (x >> 8) / 16777216 - 0.5
    return out


tensors = []


def tensor(shape, scale, shift=0.0):
    n = int(np.prod(shape))
    values = torch.tensor(uniform(len(tensors), n) * scale + shift).reshape(shape).requires_grad_()
    tensors.append(values)
    return values


def matrix(n_out, n_in):
    return tensor((n_out, n_in), 1.0)


def vector(n, scale=0.5, shift=0.0):
    return tensor((n,), scale, shift)


def rms_norm(x, w):
    return x * torch.rsqrt((x * x).mean(-1, keepdim=True) + 1e-6) * w


def block_tensors():
    return {"ln1": (vector(D, 1.0, 1.0), vector(D)), "q": (matrix(D, D), vector(D)), "k": (matrix(D, D), None),
            "v": (matrix(D, D), vector(D)), "out": (matrix(D, D), vector(D)), "ln2": (vector(D, 1.0, 1.0), vector(D)),
            "up": (matrix(FF, D), vector(FF)), "down": (matrix(D, FF), vector(D))}


conv1 = tensor((D, N_MEL, 3), 0.5), vector(D)
conv2 = tensor((D, D, 3), 0.5), vector(D)
positions = tensor((POSITIONS, D), 1.0)
blocks = [block_tensors() for _ in range(LAYERS)]
post = vector(D, 0.5, 1.0), vector(D)
norm_pre = vector(D * STACK, 0.5, 1.0)
mlp1 = matrix(2 * MIDDLE, D * STACK)
norm_mid = vector(MIDDLE, 0.5, 1.0)
mlp2 = matrix(OUT, MIDDLE)


def rows_of(mel):
    x = F.gelu(F.conv1d(mel.T[None], *conv1, padding=1))
    x = F.gelu(F.conv1d(x, *conv2, stride=2, padding=1))[0].T
    x = x + positions[:len(x)]
    for b in blocks:
        h = F.layer_norm(x, (D,), *b["ln1"], eps=1e-5)
        q, k, v = (F.linear(h, *b[name]).reshape(-1, HEADS, D // HEADS).transpose(0, 1) for name in "qkv")
        score = (q @ k.transpose(1, 2) / (D // HEADS) ** 0.5).softmax(-1)
        x = x + F.linear((score @ v).transpose(0, 1).reshape(-1, D), *b["out"])
        h = F.layer_norm(x, (D,), *b["ln2"], eps=1e-5)
        x = x + F.linear(F.gelu(F.linear(h, *b["up"])), *b["down"])
    x = F.layer_norm(x, (D,), *post, eps=1e-5)
    x = F.pad(x, (0, 0, 0, -len(x) % STACK)).reshape(-1, D * STACK)
    first, second = F.linear(rms_norm(x, norm_pre), mlp1).chunk(2, dim=-1)
    return F.linear(rms_norm(first * F.silu(second), norm_mid), mlp2)


def slaney(hertz):
    return np.where(hertz < 1000, 3 * hertz / 200, 15 + 27 * np.log(np.maximum(hertz, 1) / 1000) / np.log(6.4))


def log_mel(samples, n_mel):
    """[frames, n_mel] of samples whose number is a multiple of 160."""
    window = 0.5 - 0.5 * np.cos(2 * np.pi * np.arange(400) / 400)
    x = np.pad(samples, 200, mode="reflect")
    power = [abs(np.fft.rfft(x[160 * t:160 * t + 400] * window)) ** 2 for t in range(len(samples) // 160)]
    mel = np.linspace(0, slaney(np.array(8000.0)), n_mel + 2)
    edge = np.where(mel < 15, mel * 200 / 3, 1000 * 6.4 ** ((mel - 15) / 27))
    hertz = np.arange(201) * 40.0
    up = (hertz[None] - edge[:-2, None]) / np.diff(edge)[:-1, None]
    down = (edge[2:, None] - hertz[None]) / np.diff(edge)[1:, None]
    filters = np.maximum(0, np.minimum(up, down)) * (2 / (edge[2:] - edge[:-2]))[:, None]
    out = np.log10(np.maximum(np.array(power) @ filters.T, 1e-10))
    return (np.maximum(out, out.max() - 8) + 4) / 4


def signals():
    """What test_audio_mel.c makes too: each exact in float32."""
    i = np.arange(1600)
    yield "noise", uniform(2000, 1600), 80
    yield "decay", uniform(2001, 1600) * 2.0 ** -(i // 100), 128
    yield "square", np.where(i // 16 % 2 == 0, 0.5, -0.5), 128
    yield "pulse", np.where(i == 777, 1.0, 0.0), 40


def array(name, values, ctype="double"):
    print(f"static const {ctype} {name}[] = {{")
    values = list(np.asarray(values).flatten())
    for at in range(0, len(values), 6):
        print("    " + " ".join(f"{v:.9g}," for v in values[at:at + 6]))
    print("};")


print("/* Made by make_audio.py; see there. */")
mel = torch.tensor(uniform(1000, FRAMES * N_MEL) * 2).reshape(FRAMES, N_MEL)
rows = torch.cat([rows_of(mel[at:at + 2 * POSITIONS]) for at in range(0, FRAMES, 2 * POSITIONS)])
(rows * torch.tensor(uniform(1001, rows.numel())).reshape(rows.shape)).sum().backward()
array("torch_rows", rows.detach())
for i, t in enumerate(tensors):
    array(f"torch_gradient_{i}", t.grad)
print("static const struct {\n    const double *values;\n    size_t count;\n} torch_gradient[] = {")
for i, t in enumerate(tensors):
    print(f"    {{torch_gradient_{i}, {t.numel()}}},")
print("};")
for name, samples, n_mel in signals():
    array(f"mel_{name}", log_mel(samples, n_mel).astype(np.float32), "float")
