#!/usr/bin/env python3
"""Random weights in the exact shapes of public models: `tacit logits --all` and llama.cpp's logits
beside a forward of the same file in NumPy (float64 on the dequantized weights). Files are written by
write_shape; their vocabulary is cut, and for some the layers, to keep them small.

Measure: the squared error of all logits over the reference's own squares, each position's mean
taken off (a constant changes no probability).

exact precision: at most 1e-9
fast precision:  at most llama.cpp's (5e-3 without it)

usage: check_shapes.py TACIT WRITE_SHAPE FOLDER [SHAPE]       (needs numpy, gguf)
"""
import os
import subprocess
import sys

import numpy as np
from reference_model import Gguf, Peer, Report, forward, tacit_logits, tacit_tokens

HERE = os.path.dirname(os.path.abspath(__file__))
VOCAB = 4096
COMMON, OTHERS = ["f16", "q8_0", "q4_0", "q4_1"], ["bf16", "q5_0", "q5_1", "q4_k", "q5_k", "q6_k"]
# shape, types, layers (None: all), bytes of text, each a token
CASES = [
    ("smollm2-135m", COMMON + OTHERS, None, 160),
    ("smollm2-360m", COMMON, None, 160),
    ("qwen25-05b", COMMON, None, 160),
    ("qwen3-06b", COMMON, None, 160),
    ("smollm2-360m", OTHERS, 4, 160),
    ("qwen25-05b", OTHERS, 4, 160),
    ("qwen3-06b", OTHERS, 4, 160),
    ("llama32-1b", OTHERS, 2, 160),
    ("llama32-1b", ["q8_0"], 2, 1800),
    # Of six layers of Gemma 3 the last sees everything; the others' windows cut behind 512 tokens.
    ("gemma3-1b", COMMON + OTHERS, 6, 160),
    ("gemma3-1b", ["q8_0"], 6, 800),
    ("gemma3-1b", ["q8_0"], None, 160),
    ("lfm2-350m", COMMON + OTHERS, 4, 160),
    ("lfm2-350m", ["q8_0"], None, 160),
    ("qwen2vl-2b", COMMON + OTHERS, 2, 160),
]


def write(program, shape, kind, layers, path):
    call = [program, shape, path, "--type", kind, "--vocab", str(VOCAB), "--pre", "smollm"]
    subprocess.run(call + (["--layers", str(layers)] if layers else []), check=True)


def error(expected, found):
    centred = lambda rows: rows - rows.mean(-1, keepdims=True)
    difference = centred(expected) - centred(found)
    return (difference**2).sum() / (centred(expected) ** 2).sum()


def compare(report, program, shape, kind, path, text):
    ids = tacit_tokens(program, path, text)
    expected = next(forward(Gguf(path), [ids]))
    exact = error(expected, tacit_logits(program, path, text, "--exact")[1])
    fast = error(expected, tacit_logits(program, path, text)[1])
    peer = Peer(path, len(ids))
    limit = error(expected, peer.logits(ids)) if peer.llama else 5e-3
    beside = f"llama.cpp {limit:.3g}, ratio {fast / limit:.3g}" if peer.llama else "no llama.cpp"
    print(f"{shape} {kind}, {len(ids)} positions: exact {exact:.3g}, fast {fast:.3g}, {beside}", flush=True)
    report.check(len(ids) >= len(text) // 2, f"{shape}: only {len(ids)} tokens")
    report.check(exact <= 1e-9, f"{shape} {kind}: exact {exact:.3g} is above 1e-9")
    report.check(fast <= limit, f"{shape} {kind}: fast {fast:.3g} is above {limit:.3g}")


def main():
    program, writer, folder = sys.argv[1:4]
    wanted = sys.argv[4:]
    os.makedirs(folder, exist_ok=True)
    with open(os.path.join(HERE, "..", "..", "LICENSE"), encoding="utf-8") as f:
        licence = " ".join(f.read().split())
    report = Report()
    for shape, kinds, layers, size in CASES:
        for kind in kinds if not wanted or shape in wanted else ():
            path = os.path.join(folder, f"{shape}-{kind}.gguf")
            write(writer, shape, kind, layers, path)
            compare(report, program, shape, kind, path, licence[:size])
            os.remove(path)
    report.finish()


main()
