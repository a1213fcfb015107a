#!/usr/bin/env python3
"""Speed and fidelity of `tacit` beside llama.cpp (PyPI llama-cpp-python) on one file, interleaved
in one run so that both meet the same machine. Prints one JSON object.

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

PROMPT, DECODE = 128, 32


def tacit_speed(program, model, threads):
    out = subprocess.run(
        [program, "bench", "-m", model, "-p", str(PROMPT), "-n", str(DECODE), "-t", str(threads),
         "-r", "2", "--json"], check=True, capture_output=True)
    answer = json.loads(out.stdout)
    return answer["prefill_tokens_per_s"], answer["decode_tokens_per_s"], answer["peak_rss_bytes"]


def peer_speed(peer, vocab):
    tokens = [(i * 7919 + 13) % vocab for i in range(PROMPT)]
    best = [0.0, 0.0]
    for _ in range(2):
        peer.reset()
        start = time.perf_counter()
        peer.eval(tokens)
        middle = time.perf_counter()
        for i in range(DECODE):
            peer.eval([(i * 7919) % vocab])
        end = time.perf_counter()
        best = [max(best[0], PROMPT / (middle - start)), max(best[1], DECODE / (end - middle))]
    return best


def main():
    program, model = sys.argv[1:3]
    threads = int(sys.argv[3]) if len(sys.argv) > 3 else 2
    repeats = int(sys.argv[4]) if len(sys.argv) > 4 else 4
    peer = Llama(model, n_ctx=512, n_batch=512, n_threads=threads, n_threads_batch=threads,
                 logits_all=False, verbose=False)
    ours, theirs = np.zeros(2), np.zeros(2)
    for _ in range(repeats):
        prefill, decode, rss = tacit_speed(program, model, threads)
        ours = np.maximum(ours, [prefill, decode])
        theirs = np.maximum(theirs, peer_speed(peer, peer.n_vocab()))
    text = ("The crew of an ambulance measures heart rate, blood pressure and oxygen saturation "
            "on the way to the hospital, and the nurse on duty writes the values down.\n")
    tokens, exact = tacit_logits(program, model, text, "--exact")
    _, fast = tacit_logits(program, model, text)
    scorer = Llama(model, n_ctx=512, n_threads=threads, logits_all=True, verbose=False)
    scorer.eval(tokens)
    print(json.dumps({
        "threads": threads,
        "prefill_tokens_per_s": ours[0], "peer_prefill_tokens_per_s": theirs[0],
        "prefill_ratio": ours[0] / theirs[0],
        "decode_tokens_per_s": ours[1], "peer_decode_tokens_per_s": theirs[1],
        "decode_ratio": ours[1] / theirs[1], "peak_rss_bytes": rss,
        "kl": divergence(exact, fast).mean(),
        "peer_kl": divergence(exact, np.array(scorer.scores[: len(tokens)])).mean(),
    }))


main()
