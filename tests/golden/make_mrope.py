#!/usr/bin/env python3
"""Writes mrope_transformers.h: heads turned by positions of three numbers, by Hugging Face's own
apply_multimodal_rotary_pos_emb (transformers 4.47, Qwen 2 VL) in float64.

usage: make_mrope.py FOLDER     (needs torch and transformers)
"""
import os
import sys

import torch
from transformers.models.qwen2_vl.modeling_qwen2_vl import apply_multimodal_rotary_pos_emb

HEADS, HEAD, BASE, SECTIONS = 2, 16, 1e6, [2, 3, 3]
# A word, a picture of 2 by 3 patches at time 1, a word behind it: time, height, width.
POSITIONS = [(0, 0, 0), (1, 1, 1), (1, 1, 2), (1, 1, 3), (1, 2, 1), (1, 2, 2), (1, 2, 3), (4, 4, 4)]


def array(name, values, kind, per_line):
    lines = [", ".join(values[i: i + per_line]) for i in range(0, len(values), per_line)]
    return f"static const {kind} {name}[] = {{\n    " + ",\n    ".join(lines) + "};\n"


def main():
    torch.manual_seed(7)
    rows = len(POSITIONS)
    q = torch.randn(1, HEADS, rows, HEAD).to(torch.float32).to(torch.float64)
    position = torch.tensor(POSITIONS, dtype=torch.float64).T[:, None]  # [3, 1, rows]
    frequency = BASE ** (-torch.arange(0, HEAD, 2, dtype=torch.float64) / HEAD)
    angle = position[..., None] * frequency
    angle = torch.cat((angle, angle), -1)
    turned, _ = apply_multimodal_rotary_pos_emb(q, q, angle.cos(), angle.sin(), SECTIONS)

    def flat(t):  # [rows, heads, head]
        return [f"{v:.9g}" for v in t[0].transpose(0, 1).flatten().tolist()]

    with open(os.path.join(sys.argv[1], "mrope_transformers.h"), "w") as f:
        f.write("/* Made by tests/golden/make_mrope.py. */\n")
        f.write(f"enum {{ MROPE_ROWS = {rows}, MROPE_HEADS = {HEADS}, MROPE_HEAD = {HEAD} }};\n")
        f.write(f"static const double mrope_base = {BASE:g};\n")
        f.write(array("mrope_sections", [str(s) for s in SECTIONS], "unsigned char", 16))
        f.write(array("mrope_positions", [str(p) for row in POSITIONS for p in row], "unsigned", 24))
        f.write(array("mrope_input", flat(q), "float", 6))
        f.write(array("mrope_turned", flat(turned), "float", 6))


main()
