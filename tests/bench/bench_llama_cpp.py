#!/usr/bin/env python3
"""Speed and fidelity of `tacit` beside llama.cpp (PyPI llama-cpp-python) on one file. Prints one line
a phase and one JSON object.

Both take turns, so that each pair of measurements meets the same machine. Rates are given by the clock
and by processor time (of all threads): where other programs run, only the latter compare. Ratios are
medians of the pairs' ratios. Waiting threads of both spin, which processor time counts: with several
threads on a busy machine look at the row of one thread as well.

usage: bench_llama_cpp.py TACIT MODEL.gguf [THREADS] [REPEATS]
"""
import json
import os
import subprocess
import sys
import time

import numpy as np
from llama_cpp import Llama

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "interop"))
from reference_model import divergence, tacit_logits

PROMPT, DECODE, BEST_OF = 128, 32, 2
PHASES = ("prefill", "decode")
TEXT = ("The crew of an ambulance measures heart rate, blood pressure and oxygen saturation "
        "on the way to the hospital, and the nurse on duty writes the values down.\n")


def tacit_speed(program, model, threads):
    """[[prefill, decode] by the clock, the same by processor time], and the peak resident set."""
    out = subprocess.run(
        [program, "bench", "-m", model, "-p", str(PROMPT), "-n", str(DECODE), "-t", str(threads),
         "-r", str(BEST_OF), "--json"], check=True, capture_output=True)
    answer = json.loads(out.stdout)
    rates = [[answer[f"{phase}_tokens_per_{unit}"] for phase in PHASES] for unit in ("s", "cpu_s")]
    return np.array(rates), answer["peak_rss_bytes"]


def now():
    return np.array([time.perf_counter(), time.process_time()])


def peer_speed(peer):
    vocab, best = peer.n_vocab(), np.zeros((2, 2))
    tokens = [(i * 7919 + 13) % vocab for i in range(PROMPT)]
    for _ in range(BEST_OF):
        peer.reset()
        start = now()
        peer.eval(tokens)
        middle = now()
        for i in range(DECODE):
            peer.eval([((i + PROMPT) * 7919 + 13) % vocab])
        end = now()
        best = np.maximum(best, np.stack([PROMPT / (middle - start), DECODE / (end - middle)], 1))
    return best


def compare_speed(program, model, threads, repeats):
    peer = Llama(model, n_ctx=512, n_batch=512, n_threads=threads, n_threads_batch=threads,
                 logits_all=False, verbose=False)
    ours, theirs = [], []
    for _ in range(repeats):
        rates, rss = tacit_speed(program, model, threads)
        ours.append(rates)
        theirs.append(peer_speed(peer))
    ours, theirs = np.array(ours), np.array(theirs)
    ratio = np.median(ours / theirs, 0)
    out = {"threads": threads, "peak_rss_bytes": rss}
    for i, phase in enumerate(PHASES):
        for j, unit in enumerate(("s", "cpu_s")):
            out[f"{phase}_tokens_per_{unit}"] = ours[:, j, i].max()
            out[f"peer_{phase}_tokens_per_{unit}"] = theirs[:, j, i].max()
            out[f"{phase}_ratio_{unit}"] = ratio[j, i]
        print(f"{phase}, {threads} threads: Tacit {ours[:, 0, i].max():.0f} tokens/s, llama.cpp "
              f"{theirs[:, 0, i].max():.0f}, ratio {ratio[0, i]:.2f}; a processor second: "
              f"{ours[:, 1, i].max():.0f}, {theirs[:, 1, i].max():.0f}, ratio {ratio[1, i]:.2f}", flush=True)
    return out


def compare_answers(program, model):
    tokens, exact = tacit_logits(program, model, TEXT, "--exact")
    _, fast = tacit_logits(program, model, TEXT)
    scorer = Llama(model, n_ctx=512, n_threads=1, logits_all=True, verbose=False)
    scorer.eval(tokens)
    return {"kl": divergence(exact, fast).mean(),
            "peer_kl": divergence(exact, np.array(scorer.scores[: len(tokens)])).mean()}


def main():
    program, model = sys.argv[1:3]
    threads = int(sys.argv[3]) if len(sys.argv) > 3 else 2
    repeats = int(sys.argv[4]) if len(sys.argv) > 4 else 5
    speeds = [compare_speed(program, model, n, repeats) for n in sorted({1, threads})]
    print(json.dumps({"speeds": speeds, **compare_answers(program, model)}))


main()
