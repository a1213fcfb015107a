#!/usr/bin/env python3
"""Makes tests/golden/types_error.h: what the ggml project's own quantizers leave of the rows of normal numbers in
tests/engine/test_types_fit.c, as root mean squares: without weights, and weighted by the weights they were given.

usage: make_types_error.py LIBRARY
needs: pip install gguf numpy, and llama.cpp's ggml.c and ggml-quants.c (of llama-cpp-python 0.3.36) as one shared
library: gcc -O3 -shared -fPIC -Iggml/include -Iggml/src ggml/src/ggml.c ggml/src/ggml-quants.c -Wl,-z,lazy -lm
"""
import ctypes
import os
import sys

import gguf
import numpy as np

OUT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "types_error.h")
TYPES = ["Q8_0", "Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q4_K", "Q5_K", "Q6_K"]
ROWS, COLUMNS = 64, 512
MASK = 2**64 - 1


def split_mix(state, count):
    """tests/engine/numbers.h: numbers_next."""
    z = (np.uint64(state) + np.arange(1, count + 1, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15)) & np.uint64(MASK)
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return z ^ (z >> np.uint64(31))


def normal(count, seed):
    uniform = (split_mix(seed, 12 * count) >> np.uint64(40)).astype(np.float64) / 2**24
    return (uniform.reshape(count, 12).cumsum(1)[:, -1] - 6).astype(np.float32)


def root_mean_square(library, name, x, w):
    kind = gguf.GGMLQuantizationType[name]
    values, size = gguf.GGML_QUANT_SIZES[kind]
    out = np.zeros((ROWS, COLUMNS // values * size), np.uint8)
    quantize = getattr(library, "quantize_" + name.replace("Q", "q"))
    quantize.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64, ctypes.c_void_p]
    quantize.restype = ctypes.c_size_t
    quantize(x.ctypes.data, out.ctypes.data, ROWS, COLUMNS, None if w is None else w.ctypes.data)
    error = (gguf.quants.dequantize(out, kind).astype(np.float64) - x) ** 2
    return np.sqrt(np.average(error, axis=1, weights=w).mean())


def main():
    library = ctypes.CDLL(sys.argv[1], mode=1)
    x, w = normal(ROWS * COLUMNS, 42).reshape(ROWS, COLUMNS), np.exp(np.float32(1.5) * normal(COLUMNS, 43))
    with open(OUT, "w", encoding="utf-8") as f:
        f.write("/* Made by make_types_error.py. */\n")
        for name in TYPES:
            alike, weighted = (root_mean_square(library, name, x, v) for v in (None, w))
            f.write('{"%s", %.6g, %.6g},\n' % (name.lower(), alike, weighted))


main()
