#!/usr/bin/env python3
"""Compares the engine's logits on English text with a forward of the same file in NumPy (float64 on
the dequantized weights), and llama.cpp's logits with the same where llama-cpp-python is there. With
FOLDER and types the file is first converted to each of them by `tacit quantize`.

A position is clear where the reference's best two logits are more than 0.1 apart; there must be at
least 2,000 of them.

exact precision: mean KL at most 1e-5, top-1 equal on every clear position
fast precision:  mean KL at most the peer's; for types of 8 bits and more at most the larger of 1e-3
                 and 1.1 times the peer's. A peer whose own KL is above 0.01 does not count: then at
                 most 1e-2 and 1e-3. Top-1 equal on 99 % of the clear positions.

usage: check_logits.py TACIT DUMP_LOGITS MODEL.gguf [FOLDER TYPE ...]       (needs numpy, gguf)
"""
import glob
import os
import subprocess
import sys

import numpy as np
from reference_model import Gguf, Peer, Report, divergence, dumped_logits, forward, tacit_tokens

# Text that people wrote and that is on every machine: the licence, and the rooms' descriptions.
ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..")
CHARACTERS, OF_A_FILE = 1000, 12000
CLEAR, POSITIONS = 0.1, 2000
WIDE = ("f32", "f16", "bf16", "q8_0")


def default_files():
    return [os.path.join(ROOT, "LICENSE"), *sorted(glob.glob(os.path.join(ROOT, "*", "README.md")))[:3]]


def passages(files):
    for name in files:
        with open(name, encoding="utf-8") as f:
            text = " ".join(f.read().split())[: OF_A_FILE if name.endswith("LICENSE") else CHARACTERS]
        for at in range(0, len(text), CHARACTERS):
            yield text[at : at + CHARACTERS]


class Score:
    def __init__(self):
        self.kl, self.same = [], []

    def add(self, expected, found, clear):
        self.kl.extend(divergence(expected, found))
        self.same.extend((found.argmax(-1) == expected.argmax(-1))[clear])

    def figures(self):
        return np.mean(self.kl), np.max(self.kl), np.mean(self.same)

    def print(self, name):
        mean, largest, same = self.figures()
        print(f"{name}: KL mean {mean:.3g}, largest {largest:.3g}, top-1 equal on {100 * same:.2f} % "
              f"of {len(self.same)} clear positions of {len(self.kl)}", flush=True)


def limit_of(kind, scores):
    peer = scores["llama.cpp"].figures()[0] if "llama.cpp" in scores else 1
    if kind in WIDE:
        return max(1e-3, 1.1 * peer) if peer < 1e-2 else 1e-3
    return peer if peer < 1e-2 else 1e-2


def judge(report, kind, scores):
    kl, _, top1 = scores["exact"].figures()
    report.check(len(scores["exact"].same) >= POSITIONS, f"fewer than {POSITIONS} clear positions")
    report.check(kl <= 1e-5, f"{kind}, exact: KL {kl:.3g} is above 1e-5")
    report.check(top1 == 1, f"{kind}, exact: another top-1 token")
    limit = limit_of(kind, scores)
    kl, _, top1 = scores["fast"].figures()
    report.check(kl <= limit, f"{kind}, fast: KL {kl:.3g} is above {limit:.3g}")
    report.check(top1 >= 0.99, f"{kind}, fast: top-1 equal on {100 * top1:.2f} %, below 99 %")


def compare(report, program, model, kind, tokens):
    peer = Peer(model)
    found = {precision: dumped_logits(program, model, precision, tokens) for precision in ("exact", "fast")}
    if peer.llama:
        found["llama.cpp"] = map(peer.logits, tokens)
    scores = {name: Score() for name in found}
    # The reference takes all texts at once.
    for expected in forward(Gguf(model), tokens):
        best = np.partition(expected, -2, -1)
        clear = best[:, -1] - best[:, -2] > CLEAR
        for name, rows in found.items():
            scores[name].add(expected, next(rows), clear)
    for name, score in scores.items():
        score.print(f"{kind}, {name}")
    judge(report, kind, scores)


def main():
    program, dump, model = sys.argv[1:4]
    report = Report()
    tokens = [tacit_tokens(program, model, text) for text in passages(default_files())]
    if len(sys.argv) == 4:
        compare(report, dump, model, "the file", tokens)
    for kind in sys.argv[5:]:
        path = os.path.join(sys.argv[4], f"{kind}.gguf")
        os.makedirs(sys.argv[4], exist_ok=True)
        subprocess.run([program, "quantize", model, path, "--type", kind], check=True, stdout=subprocess.DEVNULL)
        compare(report, dump, path, kind, tokens)
        os.remove(path)
    report.finish()


if __name__ == "__main__":
    main()
