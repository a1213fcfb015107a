#!/usr/bin/env python3
"""Makes the inputs of tests/fuzz/corpus/adapter for the model tests/golden/tiny-tied.gguf. The same call writes the
same bytes.

usage: make_adapter_corpus.py
"""
import struct

from make_corpus import STRING, container, key, string, tensor, write

F32_KEY = 6


def keys(architecture="llama", general="adapter", kind="lora", alpha=8.0, *more):
    out = [key("general.architecture", STRING, string(architecture)), key("general.type", STRING, string(general)),
           key("adapter.type", STRING, string(kind))]
    if alpha is not None:
        out.append(key("adapter.lora.alpha", F32_KEY, struct.pack("<f", alpha)))
    return out + list(more)


def pair(base, n_in, n_out, rank, first=0.5, b_rank=None, halves="ab"):
    """Both halves of one tensor: infos at their offsets, and the data."""
    shapes = {"a": (n_in, rank), "b": (b_rank or rank, n_out)}
    infos, data = [], b""
    for half in halves:
        values = [first] + [0.25] * (shapes[half][0] * shapes[half][1] - 1)
        infos.append(tensor(f"{base}.lora_{half}", shapes[half], 0, len(data)))
        data += struct.pack(f"<{len(values)}f", *values)
        data += bytes(-len(data) % 32)
    return infos, data


DOWN, V = "blk.1.ffn_down.weight", "blk.0.attn_v.weight"
GOOD = {
    "down": container(keys(), *pair(DOWN, 64, 32, 2)),
    "v_no_alpha": container(keys(alpha=None), *pair(V, 32, 16, 1)),
    "versions": container(keys("llama", "adapter", "lora", 8.0, key("tacit.version", 10, struct.pack("<Q", 3)),
                               key("tacit.lineage", STRING, string("00" * 16))), *pair(V, 32, 16, 4)),
}
BAD = {
    "model": container(keys(general="model"), *pair(DOWN, 64, 32, 2)),
    "other_architecture": container(keys("qwen2"), *pair(DOWN, 64, 32, 2)),
    "other_kind": container(keys(kind="ia3"), *pair(DOWN, 64, 32, 2)),
    "negative_alpha": container(keys(alpha=-1.0), *pair(DOWN, 64, 32, 2)),
    "nan_alpha": container(keys(alpha=float("nan")), *pair(DOWN, 64, 32, 2)),
    "nan": container(keys(), *pair(DOWN, 64, 32, 2, float("nan"))),
    "inf": container(keys(), *pair(DOWN, 64, 32, 2, float("inf"))),
    "half": container(keys(), *pair(DOWN, 64, 32, 2, halves="a")),
    "ranks": container(keys(), *pair(DOWN, 64, 32, 2, b_rank=3)),
    "shape": container(keys(), *pair(DOWN, 63, 32, 2)),
    "layer": container(keys(), *pair("blk.2.ffn_down.weight", 64, 32, 2)),
    "tensor": container(keys(), *pair("token_embd.weight", 32, 48, 2)),
    "other_base": container(keys("llama", "adapter", "lora", 8.0,
                                 key("tacit.base_digest", STRING, string("11" * 32))), *pair(DOWN, 64, 32, 2)),
    "no_digest": container(keys("llama", "adapter", "lora", 8.0, key("tacit.base_digest", STRING, string("zz"))),
                           *pair(DOWN, 64, 32, 2)),
    "empty": container(keys()),
    "format": container(keys("llama", "adapter", "lora", 8.0, key("tacit.format", 4, struct.pack("<I", 9))),
                        *pair(DOWN, 64, 32, 2)),
}

if __name__ == "__main__":
    write("adapter", "good", GOOD)
    write("adapter", "bad", BAD)
