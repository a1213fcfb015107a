#!/usr/bin/env python3
"""Makes the inputs of tests/fuzz/corpus/safetensors: small files, good and bad, laid out here byte by
byte. The same call writes the same bytes.

usage: make_safetensors_corpus.py
"""
import json
import os
import struct

FOLDER = os.path.join(os.path.dirname(os.path.abspath(__file__)), "corpus", "safetensors")


def tensor(dtype, shape, start, end):
    return {"dtype": dtype, "shape": shape, "data_offsets": [start, end]}


def file(header, data, length=None):
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return struct.pack("<Q", len(text) if length is None else length) + text + data


GOOD = {
    "empty": file({}, b""),
    "one": file({"a": tensor("F32", [2, 2], 0, 16)}, bytes(range(16))),
    "peft": file({"__metadata__": {"format": "pt"},
                  "base_model.model.layers.0.self_attn.q_proj.lora_A.weight": tensor("F32", [2, 3], 0, 24),
                  "base_model.model.layers.0.self_attn.q_proj.lora_B.weight": tensor("BF16", [3, 2], 24, 36)},
                 bytes(range(36))),
    "scalar": file({"a": tensor("F16", [], 0, 2), "b": tensor("I64", [0], 2, 2)}, b"\0\x3c"),
    "padded": file(b'{"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}}      ', b"x"),
}
BAD = {
    "short": b"\1\2\3",
    "length": file({}, b"", length=1 << 62),
    "truncated": file({"a": tensor("F32", [2, 2], 0, 16)}, bytes(15)),
    "twice": file(b'{"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}}', b"x"),
    "overlap": file({"a": tensor("U8", [4], 0, 4), "b": tensor("U8", [4], 3, 7)}, bytes(7)),
    "gap": file({"a": tensor("U8", [4], 0, 4), "b": tensor("U8", [2], 5, 7)}, bytes(7)),
    "escape": file({"a\x1b[2J": tensor("U8", [1], 0, 1)}, b"x"),
    "wraps": file({"a": tensor("F32", [1 << 32, 1 << 32], 0, 0)}, b""),
    "deep": file(b"{\"a\":" + b"[" * 5000, b""),
}

for folder, inputs in (("good", GOOD), ("bad", BAD)):
    os.makedirs(os.path.join(FOLDER, folder), exist_ok=True)
    for name, data in inputs.items():
        with open(os.path.join(FOLDER, folder, name), "wb") as f:
            f.write(data)
