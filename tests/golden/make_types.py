#!/usr/bin/env python3
"""Makes tests/golden/types.json: what PyPI's `gguf` (the ggml project's own Python package) quantizes values to.

usage: make_types.py
needs: pip install gguf numpy     (made with gguf 0.19.0)
"""
import json
import os

import gguf
import numpy as np

OUT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "types.json")
TYPES = ["F16", "BF16", "Q8_0", "Q4_0", "Q4_1"]
BLOCK = 32


def values():
    """Blocks of several scales, one of zeros, one constant, one with a single large value."""
    rng = np.random.default_rng(5)
    blocks = [rng.standard_normal(BLOCK) * scale for scale in (1, 0.02, 300, 1e-4)]
    blocks += [np.zeros(BLOCK), np.full(BLOCK, -0.75), np.where(np.arange(BLOCK) == 7, 9.5, rng.standard_normal(BLOCK))]
    blocks += [np.arange(BLOCK) / 8 - 2]
    return np.concatenate(blocks).astype(np.float32)


def main():
    x = values()
    out = {"values": x.tobytes().hex()}
    for name in TYPES:
        kind = gguf.GGMLQuantizationType[name]
        quantized = gguf.quants.quantize(x, kind)
        out[name.lower()] = {"bytes": np.ascontiguousarray(quantized).tobytes().hex(),
                             "values": gguf.quants.dequantize(quantized, kind).astype(np.float32).tobytes().hex()}
    with open(OUT, "w", encoding="utf-8") as f:
        json.dump(out, f, indent=1)
        f.write("\n")


if __name__ == "__main__":
    main()
