#!/usr/bin/env python3
"""Compares `tacit logits --all` on English text with a forward of the same file in NumPy (float64
on the dequantized weights), and llama.cpp's logits with the same where llama-cpp-python is there.

exact precision: mean KL at most 1e-5, top-1 equal wherever the best two are 0.1 apart or more
fast precision:  mean KL at most the peer's if that is below 0.01, else at most 1e-2; top-1 on 99 %

usage: check_logits.py TACIT MODEL.gguf [TEXT_FILE ...]       (needs numpy)
"""
import os
import sys

import numpy as np
from reference_model import Gguf, Report, divergence, forward, tacit_logits

HERE = os.path.dirname(os.path.abspath(__file__))
# Text that people wrote and that is on every machine: the licence, a room's description.
FILES = ["../../LICENSE", "../../engine/README.md", "../README.md"]
CHARACTERS = 560
CLEAR = 0.1


def passages(files):
    for name in files:
        with open(name, encoding="utf-8") as f:
            yield " ".join(f.read().split())[:CHARACTERS]


def peer_logits(model, token_lists):
    """llama.cpp's logits of every text, or None where it is not installed."""
    try:
        from llama_cpp import Llama
    except ImportError:
        return None
    peer = Llama(model, n_ctx=512, n_batch=512, n_threads=2, logits_all=True, verbose=False)
    rows = []
    for tokens in token_lists:
        peer.reset()
        peer.eval(tokens)
        rows.append(np.array(peer.scores[: len(tokens)], dtype=np.float64))
    return np.concatenate(rows)


def judge(expected, found):
    best = np.sort(expected, -1)
    clear = best[:, -1] - best[:, -2] >= CLEAR
    same = (found.argmax(-1) == expected.argmax(-1))[clear]
    kl = divergence(expected, found)
    return {"kl": kl.mean(), "kl_max": kl.max(), "top1": same.mean(), "positions": int(clear.sum())}


def main():
    program, model = sys.argv[1:3]
    files = sys.argv[3:] or [os.path.join(HERE, name) for name in FILES]
    texts = list(passages(files))
    model_file = Gguf(model)
    exact = [tacit_logits(program, model, text, "--exact") for text in texts]
    tokens = [row[0] for row in exact]
    expected = np.concatenate([forward(model_file, t) for t in tokens])
    found = {
        "tacit, exact": np.concatenate([row[1] for row in exact]),
        "tacit, fast": np.concatenate([tacit_logits(program, model, t)[1] for t in texts]),
    }
    peer = peer_logits(model, tokens)
    if peer is not None:
        found["llama.cpp"] = peer
    score = {name: judge(expected, logits) for name, logits in found.items()}
    for name, s in score.items():
        print(f"{name}: KL mean {s['kl']:.3g}, largest {s['kl_max']:.3g}, top-1 equal on "
              f"{100 * s['top1']:.2f} % of {s['positions']} clear positions of {len(expected)}")
    report = Report()
    report.check(len(expected) >= 200, f"only {len(expected)} positions")
    report.check(score["tacit, exact"]["kl"] <= 1e-5, "exact precision: KL above 1e-5")
    report.check(score["tacit, exact"]["top1"] == 1, "exact precision: another top-1 token")
    peer_kl = score["llama.cpp"]["kl"] if peer is not None else 1
    limit = peer_kl if peer_kl < 1e-2 else 1e-2
    report.check(score["tacit, fast"]["kl"] <= limit, f"fast precision: KL above {limit:.3g}")
    report.check(score["tacit, fast"]["top1"] >= 0.99, "fast precision: top-1 below 99 %")
    report.finish()


main()
