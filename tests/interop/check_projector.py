#!/usr/bin/env python3
"""Rows of pictures from `tacit embed` against NumPy in float64, in the public shapes of SigLIP-B/16
at 512 pixels with idefics3 (SmolVLM), SigLIP-so400m/14 at 384 with idefics3 (SmolVLM-2.2B) and with mlp
(LLaVA-OneVision), and CLIP ViT-L/14 at 336 with mlp (LLaVA-1.5), all their blocks: random weights in F16
and in Q8_0 (rows that its blocks do not divide in F16, as converters have them). Written from the papers
and the public configurations. Relative errors (L2) of at most 1e-3 pass, in fast precision 1e-2.

usage: check_projector.py TACIT FOLDER [LAYERS]     (needs numpy)
"""
import json
import math
import os
import struct
import subprocess
import sys
import zlib

import numpy as np

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "fuzz"))
from make_corpus import ARRAY, STRING, U32, container, key, string, tensor, u32, u64  # noqa: E402

TACIT, FOLDER = sys.argv[1:3]
MOST_LAYERS = int(sys.argv[3]) if len(sys.argv) > 3 else 99
F32, HALF, Q8_0, BOOL, KEY_F32, I32 = 0, 1, 8, 7, 6, 5
TYPES = {"F16": HALF, "Q8_0": Q8_0}
LIMITS = {"exact": 1e-3, "fast": 1e-2}

SHAPES = {
    "SigLIP-B/16-512, idefics3": dict(image=512, patch=16, width=768, ff=3072, heads=12, layers=12, out=576, scale=4),
    "SigLIP-so400m/14-384, idefics3": dict(image=384, patch=14, width=1152, ff=4304, heads=16, layers=27, out=2048,
                                           scale=3),
    "SigLIP-so400m/14-384, mlp": dict(image=384, patch=14, width=1152, ff=4304, heads=16, layers=26, out=896),
    "CLIP ViT-L/14-336, mlp": dict(image=336, patch=14, width=1024, ff=4096, heads=16, layers=23, out=1024, clip=True),
}


def to_q8_0(values):
    """Bytes of blocks of 32, each a half and its multiples, and the values that they stand for."""
    block = values.reshape(-1, 32)
    scale = (np.abs(block).max(1, keepdims=True) / 127).astype(np.float16)
    quanta = np.clip(np.rint(block / np.maximum(scale, np.float16(1e-7)).astype(np.float64)), -127, 127)
    raw = np.concatenate((scale.view(np.uint8), quanta.astype(np.int8).view(np.uint8)), 1)
    return raw, (quanta * scale).reshape(values.shape)


class File:
    """Collects keys and tensors of a GGUF file; values of matrices are rounded to its type."""

    def __init__(self, seed, kind=HALF):
        self.random, self.kind = np.random.default_rng(seed), kind
        self.keys, self.infos, self.data, self.at = [], [], [], 0

    def put(self, name, values, kind):
        if kind == Q8_0:
            raw, values = to_q8_0(values)
        else:
            raw = values = values.astype(np.float16 if kind == HALF else np.float32)
        self.infos.append(tensor(name, list(reversed(values.shape)), kind, self.at))
        data = raw.tobytes() + bytes(-raw.nbytes % 32)
        self.data.append(data)
        self.at += len(data)
        return values.astype(np.float64)

    def matrix(self, name, *shape, gain=1):
        fan_in = np.prod(shape[1:])
        kind = HALF if len(shape) > 2 or shape[-1] % 32 else self.kind
        return self.put(name, self.random.standard_normal(shape) * gain / np.sqrt(fan_in), kind)

    def vector(self, name, n, shift=0.0):
        return self.put(name, self.random.standard_normal(n) * 0.1 + shift, F32)

    def linear(self, name, n_out, n_in, gain=1):
        return self.matrix(name + ".weight", n_out, n_in, gain=gain), self.vector(name + ".bias", n_out)

    def norm(self, name, n):
        return self.vector(name + ".weight", n, 1.0), self.vector(name + ".bias", n)

    def text(self, name, value):
        self.keys.append(key(name, STRING, string(value)))

    def number(self, name, value):
        self.keys.append(key(name, U32, u32(value)))

    def real(self, name, value):
        self.keys.append(key(name, KEY_F32, struct.pack("<f", value)))

    def flag(self, name, value):
        self.keys.append(key(name, BOOL, bytes([value])))

    def write(self, path):
        with open(path, "wb") as out:
            out.write(container(self.keys, self.infos, b"".join(self.data)))


def text_model(path, width):
    """The least llama file whose embedding has the width of the rows."""
    f = File(1)
    f.text("general.architecture", "llama")
    for name, value in (("context_length", 4096), ("embedding_length", width), ("block_count", 1),
                        ("feed_forward_length", 32), ("attention.head_count", 2)):
        f.number("llama." + name, value)
    f.real("llama.attention.layer_norm_rms_epsilon", 1e-5)
    f.number("llama.rope.dimension_count", width // 2)
    letters = [chr(c) for c in range(33, 127)] + ["<fake_token_around_image>", "<global-img>"]
    f.text("tokenizer.ggml.model", "gpt2")
    f.text("tokenizer.ggml.pre", "smollm")
    f.keys.append(key("tokenizer.ggml.tokens", ARRAY,
                      u32(STRING) + u64(len(letters)) + b"".join(string(c) for c in letters)))
    f.keys.append(key("tokenizer.ggml.token_type", ARRAY, u32(I32) + u64(len(letters)) +
                      struct.pack(f"<{len(letters)}i", *[1 + 2 * (len(c) > 1) for c in letters])))
    f.keys.append(key("tokenizer.ggml.merges", ARRAY, u32(STRING) + u64(0)))
    f.vector("output_norm.weight", width)
    f.matrix("token_embd.weight", len(letters), width)
    for part in ("attn_norm", "ffn_norm"):
        f.vector(f"blk.0.{part}.weight", width)
    for part in ("attn_q", "attn_k", "attn_v", "attn_output"):
        f.matrix(f"blk.0.{part}.weight", width, width)
    f.matrix("blk.0.ffn_gate.weight", 32, width)
    f.matrix("blk.0.ffn_up.weight", 32, width)
    f.matrix("blk.0.ffn_down.weight", width, 32)
    f.write(path)


def tower_keys(f, s):
    clip = s.get("clip", False)
    f.text("general.architecture", "clip")
    f.flag("clip.has_vision_encoder", True)
    f.flag("clip.use_gelu", not clip)
    f.text("clip.projector_type", "idefics3" if "scale" in s else "mlp")
    for name, value in (("image_size", s["image"]), ("patch_size", s["patch"]), ("embedding_length", s["width"]),
                        ("feed_forward_length", s["ff"]), ("block_count", s["layers"]), ("attention.head_count", s["heads"]),
                        ("projection_dim", s["out"])):
        f.number("clip.vision." + name, value)
    if "scale" in s:
        f.number("clip.vision.projector.scale_factor", s["scale"])
    f.real("clip.vision.attention.layer_norm_epsilon", 1e-5 if clip else 1e-6)
    for name in ("image_mean", "image_std"):
        f.keys.append(key("clip.vision." + name, ARRAY, u32(KEY_F32) + u64(3) + struct.pack("<3f", 0.5, 0.5, 0.5)))


def linear(x, weight, bias=0):
    return x @ weight.T + bias


def layer_norm(x, weight, bias, eps):
    x = x - x.mean(-1, keepdims=True)
    return x / np.sqrt((x * x).mean(-1, keepdims=True) + eps) * weight + bias


def gelu_erf(x):
    return x / 2 * (1 + np.vectorize(math.erf)(x / math.sqrt(2)))


def gelu_tanh(x):
    return x / 2 * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))


def quick_gelu(x):
    return x / (1 + np.exp(-1.702 * x))


def attend(q, k, v):
    """[heads, rows, width of a head] each."""
    score = q @ k.transpose(0, 2, 1) / math.sqrt(q.shape[-1])
    p = np.exp(score - score.max(-1, keepdims=True))
    return p / p.sum(-1, keepdims=True) @ v


def block(f, s, l, x, eps, clip):
    d, heads = s["width"], s["heads"]
    name = f"v.blk.{l}."
    h = layer_norm(x, *f.norm(name + "ln1", d), eps)
    # Sharp, as in trained models: with gain 1 attention is all but even, which hides what it is off by.
    q, k, v = (linear(h, *f.linear(name + "attn_" + part, d, d, gain=1 if part == "v" else 2)).reshape(-1, heads, d // heads).transpose(1, 0, 2)
               for part in "qkv")
    mixed = attend(q, k, v).transpose(1, 0, 2).reshape(-1, d)
    x = x + linear(mixed, *f.linear(name + "attn_out", d, d))
    h = layer_norm(x, *f.norm(name + "ln2", d), eps)
    h = linear(h, *f.linear(name + "ffn_up", s["ff"], d))
    return x + linear((quick_gelu if clip else gelu_tanh)(h), *f.linear(name + "ffn_down", d, s["ff"]))


def cut(planes, patch):
    """Patches in rows, each by channel, row and column; what is left over at the right and below is not read."""
    grid = planes.shape[1] // patch
    cells = planes[:, : grid * patch, : grid * patch].reshape(3, grid, patch, grid, patch)
    return cells.transpose(1, 3, 0, 2, 4).reshape(grid * grid, -1)


def tower(f, s, planes):
    """The patches' rows behind the blocks, and the file that they come from."""
    d, grid, clip = s["width"], s["image"] // s["patch"], s.get("clip", False)
    eps = float(np.float32(1e-5 if clip else 1e-6))
    kernel = f.matrix("v.patch_embd.weight", d, 3, s["patch"], s["patch"])
    bias = 0 if clip else f.vector("v.patch_embd.bias", d)
    x = linear(cut(planes, s["patch"]), kernel.reshape(d, -1), bias)
    if clip:
        x = np.concatenate((f.vector("v.class_embd", d)[None], x))
    x = x + f.put("v.position_embd.weight", f.random.standard_normal((grid * grid + clip, d)) * 0.3, F32)
    if clip:
        x = layer_norm(x, *f.norm("v.pre_ln", d), eps)
    for l in range(s["layers"]):
        x = block(f, s, l, x, eps, clip)
    if "scale" in s:
        return layer_norm(x, *f.norm("v.post_ln", d), eps)
    return x[1:] if clip else x


def project(f, s, x):
    d, out = s["width"], s["out"]
    if "scale" not in s:
        return linear(gelu_erf(linear(x, *f.linear("mm.0", out, d))), *f.linear("mm.2", out, out))
    grid, r = s["image"] // s["patch"], s["scale"]
    x = x.reshape(grid // r, r, grid // r, r, d).transpose(0, 2, 1, 3, 4).reshape(-1, r * r * d)
    return linear(x, f.matrix("mm.model.fc.weight", out, r * r * d))


def png(path, pixels):
    """An uncompressed-filter PNG of [height, width, 3]."""
    def chunk(name, data):
        return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))

    rows = b"".join(b"\0" + row.tobytes() for row in pixels)
    with open(path, "wb") as out:
        out.write(b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", struct.pack(">2I5B", *pixels.shape[1::-1], 8, 2, 0, 0, 0)) +
                  chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b""))


def check(name, s, kind):
    f = File(7, TYPES[kind])
    pixels = f.random.integers(0, 256, (s["image"], s["image"], 3), np.uint8)
    planes = (pixels.transpose(2, 0, 1) / 255 - 0.5) / 0.5
    tower_keys(f, s)
    expected = project(f, s, tower(f, s, planes))
    paths = [os.path.join(FOLDER, part) for part in ("projector-text.gguf", "projector-mmproj.gguf", "projector.png")]
    f.write(paths[1])
    text_model(paths[0], s["out"])
    png(paths[2], pixels)
    good = all([compare(f"{name}, {kind}, {s['layers']} blocks", paths, expected, precision) for precision in LIMITS])
    os.remove(paths[1])
    return good


def compare(name, paths, expected, precision):
    command = [TACIT, "embed", "-m", paths[0], "--mmproj", paths[1], "--image", paths[2], "--json"]
    out = subprocess.run(command + (["--fast"] if precision == "fast" else []), stdout=subprocess.PIPE, check=True).stdout
    rows = np.array(json.loads(out)["rows"])
    if rows.shape != expected.shape:
        print(f"{name}: {rows.shape} values, expected {expected.shape}")
        return False
    error = np.linalg.norm(rows - expected) / np.linalg.norm(expected)
    print(f"{name}, {precision}: relative error {error:.1e} (at most {LIMITS[precision]:g})", flush=True)
    return error <= LIMITS[precision]


def main():
    os.makedirs(FOLDER, exist_ok=True)
    cases = [(name, {**s, "layers": min(s["layers"], MOST_LAYERS)}, kind) for name, s in SHAPES.items() for kind in TYPES]
    good = sum(check(*case) for case in cases)
    print(f"{good} passed, {len(cases) - good} failed")
    return int(good != len(cases))


sys.exit(main())
