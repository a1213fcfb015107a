#!/usr/bin/env python3
"""Makes tests/golden/types.json: what PyPI's `gguf` (the ggml project's own Python package) quantizes values to, and
what it reads from blocks of random bytes.

usage: make_types.py
needs: pip install gguf numpy     (made with gguf 0.19.0)
"""
import json
import os

import gguf
import numpy as np

OUT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "types.json")
TYPES = ["F16", "BF16", "Q8_0", "Q4_0", "Q4_1", "Q5_0", "Q5_1"]
# Read from random bytes: where in a block its halves lie.
HALVES = {"Q8_0": [0], "Q4_0": [0], "Q4_1": [0, 2], "Q5_0": [0], "Q5_1": [0, 2], "Q4_K": [0, 2], "Q5_K": [0, 2],
          "Q6_K": [208]}
BLOCK = 32


def values():
    """Blocks of several scales, one of zeros, one constant, one with a single large value."""
    rng = np.random.default_rng(5)
    blocks = [rng.standard_normal(BLOCK) * scale for scale in (1, 0.02, 300, 1e-4)]
    blocks += [np.zeros(BLOCK), np.full(BLOCK, -0.75), np.where(np.arange(BLOCK) == 7, 9.5, rng.standard_normal(BLOCK))]
    blocks += [np.arange(BLOCK) / 8 - 2]
    return np.concatenate(blocks).astype(np.float32)


def random_blocks(kind, halves):
    """Bytes at random; the halves of the first blocks are the largest, the smallest, zero, negative ones."""
    rng = np.random.default_rng(int(kind))
    values, size = gguf.GGML_QUANT_SIZES[kind]
    blocks = rng.integers(0, 256, (12 if values == 32 else 6, size), dtype=np.uint8)
    for i, block in enumerate(blocks):
        for at in halves:
            scale = [65504, 2.0 ** -24, 0, -65504, -0.0][i] if i < 5 else rng.standard_normal() * 2.0 ** rng.integers(-12, 4)
            block[at : at + 2] = np.array([scale], dtype="<f2").view(np.uint8)
    return blocks.reshape(-1)


def main():
    x = values()
    out = {"values": x.tobytes().hex()}
    for name in TYPES:
        kind = gguf.GGMLQuantizationType[name]
        quantized = gguf.quants.quantize(x, kind)
        out[name.lower()] = {"bytes": np.ascontiguousarray(quantized).tobytes().hex(),
                             "values": gguf.quants.dequantize(quantized, kind).astype(np.float32).tobytes().hex()}
    out["random"] = {}
    for name, halves in HALVES.items():
        kind = gguf.GGMLQuantizationType[name]
        blocks = random_blocks(kind, halves)
        out["random"][name.lower()] = {"bytes": blocks.tobytes().hex(),
                                       "values": gguf.quants.dequantize(blocks, kind).astype(np.float32).tobytes().hex()}
    with open(OUT, "w", encoding="utf-8") as f:
        json.dump(out, f, indent=1)
        f.write("\n")


if __name__ == "__main__":
    main()
