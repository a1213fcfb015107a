#!/usr/bin/env python3
"""Rows of pictures from `tacit embed` against PyTorch in float64, in the public shapes of SigLIP-B/16
at 512 pixels with idefics3 (SmolVLM), SigLIP-so400m/14 at 384 with idefics3 (SmolVLM-2.2B) and with mlp
(LLaVA-OneVision), and CLIP ViT-L/14 at 336 with mlp (LLaVA-1.5): random F16 weights, the first LAYERS blocks of 12,
27, 26 and 23.
Written from the papers and the public configurations. Relative errors (L2) of at most 1e-3 pass,
in fast precision 1e-2.

usage: check_projector.py TACIT FOLDER [LAYERS]     (needs torch and numpy)
"""
import json
import os
import struct
import subprocess
import sys
import zlib

import numpy as np
import torch
import torch.nn.functional as F

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "fuzz"))
from make_corpus import ARRAY, STRING, U32, container, key, string, tensor, u32, u64  # noqa: E402

TACIT, FOLDER = sys.argv[1:3]
LAYERS = int(sys.argv[3]) if len(sys.argv) > 3 else 2
F32, HALF, BOOL, KEY_F32, I32 = 0, 1, 7, 6, 5
LIMITS = {"exact": 1e-3, "fast": 1e-2}

SHAPES = {
    "SigLIP-B/16-512, idefics3": dict(image=512, patch=16, width=768, ff=3072, heads=12, out=576, scale=4),
    "SigLIP-so400m/14-384, idefics3": dict(image=384, patch=14, width=1152, ff=4304, heads=16, out=2048, scale=3),
    "SigLIP-so400m/14-384, mlp": dict(image=384, patch=14, width=1152, ff=4304, heads=16, out=896),
    "CLIP ViT-L/14-336, mlp": dict(image=336, patch=14, width=1024, ff=4096, heads=16, out=1024, clip=True),
}


class File:
    """Collects keys and tensors of a GGUF file; values of matrices are rounded to F16."""

    def __init__(self, seed):
        self.random = np.random.default_rng(seed)
        self.keys, self.infos, self.data, self.at = [], [], [], 0

    def put(self, name, values, kind):
        raw = values.astype(np.float16 if kind == HALF else np.float32)
        self.infos.append(tensor(name, list(reversed(raw.shape)), kind, self.at))
        data = raw.tobytes() + bytes(-raw.nbytes % 32)
        self.data.append(data)
        self.at += len(data)
        return torch.from_numpy(raw.astype(np.float64))

    def matrix(self, name, *shape):
        fan_in = np.prod(shape[1:])
        return self.put(name, self.random.standard_normal(shape) / np.sqrt(fan_in), HALF)

    def vector(self, name, n, shift=0.0):
        return self.put(name, self.random.standard_normal(n) * 0.1 + shift, F32)

    def linear(self, name, n_out, n_in):
        return self.matrix(name + ".weight", n_out, n_in), self.vector(name + ".bias", n_out)

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
                        ("feed_forward_length", s["ff"]), ("block_count", LAYERS), ("attention.head_count", s["heads"]),
                        ("projection_dim", s["out"])):
        f.number("clip.vision." + name, value)
    if "scale" in s:
        f.number("clip.vision.projector.scale_factor", s["scale"])
    f.real("clip.vision.attention.layer_norm_epsilon", 1e-5 if clip else 1e-6)
    for name in ("image_mean", "image_std"):
        f.keys.append(key("clip.vision." + name, ARRAY, u32(KEY_F32) + u64(3) + struct.pack("<3f", 0.5, 0.5, 0.5)))


def block(f, s, l, x, eps, clip):
    d, heads = s["width"], s["heads"]
    name = f"v.blk.{l}."
    h = F.layer_norm(x, (d,), *f.norm(name + "ln1", d), eps=eps)
    q, k, v = (F.linear(h, *f.linear(name + "attn_" + part, d, d)).reshape(-1, heads, d // heads).transpose(0, 1)
               for part in "qkv")
    mixed = (q @ k.transpose(1, 2) / (d // heads) ** 0.5).softmax(-1) @ v
    x = x + F.linear(mixed.transpose(0, 1).reshape(-1, d), *f.linear(name + "attn_out", d, d))
    h = F.layer_norm(x, (d,), *f.norm(name + "ln2", d), eps=eps)
    h = F.linear(h, *f.linear(name + "ffn_up", s["ff"], d))
    h = h * torch.sigmoid(1.702 * h) if clip else F.gelu(h, approximate="tanh")
    return x + F.linear(h, *f.linear(name + "ffn_down", d, s["ff"]))


def tower(f, s, planes):
    """The patches' rows behind the blocks, and the file that they come from."""
    d, grid, clip = s["width"], s["image"] // s["patch"], s.get("clip", False)
    eps = float(np.float32(1e-5 if clip else 1e-6))
    kernel = f.matrix("v.patch_embd.weight", d, 3, s["patch"], s["patch"])
    bias = None if clip else f.vector("v.patch_embd.bias", d)
    x = F.conv2d(planes[None], kernel, bias, stride=s["patch"]).flatten(2).transpose(1, 2)[0]
    if clip:
        x = torch.cat((f.vector("v.class_embd", d)[None], x))
    x = x + f.put("v.position_embd.weight", f.random.standard_normal((grid * grid + clip, d)) * 0.3, F32)
    if clip:
        x = F.layer_norm(x, (d,), *f.norm("v.pre_ln", d), eps=eps)
    for l in range(LAYERS):
        x = block(f, s, l, x, eps, clip)
    if "scale" in s:
        return F.layer_norm(x, (d,), *f.norm("v.post_ln", d), eps=eps)
    return x[1:] if clip else x


def project(f, s, x):
    d, out = s["width"], s["out"]
    if "scale" not in s:
        return F.linear(F.gelu(F.linear(x, *f.linear("mm.0", out, d))), *f.linear("mm.2", out, out))
    grid, r = s["image"] // s["patch"], s["scale"]
    x = x.reshape(grid // r, r, grid // r, r, d).permute(0, 2, 1, 3, 4).reshape(-1, r * r * d)
    return F.linear(x, f.matrix("mm.model.fc.weight", out, r * r * d))


def png(path, pixels):
    """An uncompressed-filter PNG of [height, width, 3]."""
    def chunk(name, data):
        return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))

    rows = b"".join(b"\0" + row.tobytes() for row in pixels)
    with open(path, "wb") as out:
        out.write(b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", struct.pack(">2I5B", *pixels.shape[1::-1], 8, 2, 0, 0, 0)) +
                  chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b""))


def check(name, s):
    f = File(7)
    pixels = f.random.integers(0, 256, (s["image"], s["image"], 3), np.uint8)
    planes = torch.from_numpy((pixels.transpose(2, 0, 1) / 255 - 0.5) / 0.5)
    tower_keys(f, s)
    expected = project(f, s, tower(f, s, planes)).numpy()
    paths = [os.path.join(FOLDER, part) for part in ("projector-text.gguf", "projector-mmproj.gguf", "projector.png")]
    f.write(paths[1])
    text_model(paths[0], s["out"])
    png(paths[2], pixels)
    return all([compare(name, paths, expected, precision) for precision in LIMITS])


def compare(name, paths, expected, precision):
    command = [TACIT, "embed", "-m", paths[0], "--mmproj", paths[1], "--image", paths[2], "--json"]
    out = subprocess.run(command + (["--fast"] if precision == "fast" else []), stdout=subprocess.PIPE, check=True).stdout
    rows = np.array(json.loads(out)["rows"])
    if rows.shape != expected.shape:
        print(f"{name}: {rows.shape} values, expected {expected.shape}")
        return False
    error = np.linalg.norm(rows - expected) / np.linalg.norm(expected)
    print(f"{name}, {LAYERS} blocks, {precision}: relative error {error:.1e} (at most {LIMITS[precision]:g})")
    return error <= LIMITS[precision]


def main():
    os.makedirs(FOLDER, exist_ok=True)
    good = sum(check(name, s) for name, s in SHAPES.items())
    print(f"{good} passed, {len(SHAPES) - good} failed")
    return int(good != len(SHAPES))


sys.exit(main())
