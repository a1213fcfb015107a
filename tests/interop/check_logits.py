#!/usr/bin/env python3
"""Compares `tacit logits --all` on English text with a forward of the same file in NumPy (float64
on the dequantized weights), and llama.cpp's logits with the same where llama-cpp-python is there.

A position is clear where the reference's best two logits are more than 0.1 apart; there must be at
least 2,000 of them.

exact precision: mean KL at most 1e-5, top-1 equal on every clear position
fast precision:  mean KL at most the peer's if that is below 0.01, else at most 1e-2; top-1 equal on
                 99 % of the clear positions

usage: check_logits.py TACIT MODEL.gguf [TEXT_FILE ...]       (needs numpy)
"""
import glob
import os
import sys

import numpy as np
from reference_model import Gguf, Peer, Report, divergence, forward, tacit_logits, tacit_tokens

# Text that people wrote and that is on every machine: the licence, and the rooms' descriptions.
ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..")
CHARACTERS, OF_A_FILE = 1000, 12000
CLEAR, POSITIONS = 0.1, 2000


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
              f"of {len(self.same)} clear positions of {len(self.kl)}")


def judge(report, scores):
    kl, _, top1 = scores["tacit, exact"].figures()
    report.check(len(scores["tacit, exact"].same) >= POSITIONS, f"fewer than {POSITIONS} clear positions")
    report.check(kl <= 1e-5, f"exact precision: KL {kl:.3g} is above 1e-5")
    report.check(top1 == 1, "exact precision: another top-1 token")
    peer_kl = scores["llama.cpp"].figures()[0] if "llama.cpp" in scores else 1
    limit = peer_kl if peer_kl < 1e-2 else 1e-2
    kl, _, top1 = scores["tacit, fast"].figures()
    report.check(kl <= limit, f"fast precision: KL {kl:.3g} is above {limit:.3g}")
    report.check(top1 >= 0.99, f"fast precision: top-1 equal on {100 * top1:.2f} %, below 99 %")


def main():
    program, model = sys.argv[1:3]
    texts = list(passages(sys.argv[3:] or default_files()))
    peer = Peer(model)
    scores = {"tacit, exact": Score(), "tacit, fast": Score()}
    if peer.llama:
        scores["llama.cpp"] = Score()
    # The tokens first: the reference takes all texts at once.
    tokens = [tacit_tokens(program, model, text) for text in texts]
    for text, ids, expected in zip(texts, tokens, forward(Gguf(model), tokens)):
        best = np.partition(expected, -2, -1)
        clear = best[:, -1] - best[:, -2] > CLEAR
        scores["tacit, exact"].add(expected, tacit_logits(program, model, text, "--exact")[1], clear)
        scores["tacit, fast"].add(expected, tacit_logits(program, model, text)[1], clear)
        if peer.llama:
            scores["llama.cpp"].add(expected, peer.logits(ids), clear)
    for name, score in scores.items():
        score.print(name)
    report = Report()
    judge(report, scores)
    report.finish()


main()
