#!/usr/bin/env python3
"""Converts a real model with `tacit quantize`, and with llama.cpp's own quantizer, where llama-cpp-python is
there.

- PyPI's `gguf` reads from every tensor of Tacit's files what Tacit reads (its file written as f32).
- Root mean square error of every tensor, by `gguf`: at most 1 % above llama.cpp's, where both chose the type.
- llama.cpp opens Tacit's files, and its next-token distributions stay within KL 0.02 of Tacit's exact ones on
  the same file: it reads the same weights, and rounds activations.
- An importance matrix that `tacit calibrate` wrote lowers the weighted error of every tensor.

usage: check_quantize.py TACIT MODEL.gguf FOLDER       (needs numpy and gguf; 2 GB in FOLDER)
"""
import ctypes
import json
import os
import subprocess
import sys

import gguf
import numpy as np
from reference_model import Report, divergence, tacit_logits

TYPES = {"q4_0": 2, "q4_1": 3, "q5_0": 8, "q5_1": 9, "q8_0": 7, "q4_k": 14, "q5_k": 16, "q6_k": 18}
TEXT = ("The heart pumps blood through the body. Each beat is started by a small group of cells in the wall of the "
        "right atrium, and the rate follows what the body needs: it rises in effort and falls in sleep.")
QUESTIONS = ["What is the capital of France?", "Name the planets.", "How does a vaccine work?", "Why is the sky blue?"]


def run(*arguments):
    done = subprocess.run(arguments, capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"{' '.join(arguments)}: exit {done.returncode}: {done.stderr}")
    return done.stdout


def tensors(path):
    return {t.name: (t.tensor_type.name.lower(), t.data, t.tensor_type) for t in gguf.GGUFReader(path).tensors}


def values(tensor):
    return gguf.quants.dequantize(tensor[1], tensor[2]).astype(np.float32)


def rms(a, b, weights=None):
    error = (a.astype(np.float64) - b) ** 2
    return np.sqrt(error.mean() if weights is None else np.average(error.reshape(-1, len(weights)).mean(0), weights=weights))


def peer_quantize(llama, source, target, file_type):
    params = llama.llama_model_quantize_default_params()
    params.ftype, params.nthread, params.pure = file_type, 2, True
    return llama.llama_model_quantize(source.encode(), target.encode(), ctypes.byref(params)) == 0


def peer_logits(path, tokens):
    from llama_cpp import Llama

    model = Llama(path, n_ctx=256, n_batch=256, n_threads=2, logits_all=True, verbose=False)
    model.eval(tokens)
    return np.array(model.scores[: len(tokens)], dtype=np.float64)


def check_read(report, program, path, folder):
    """Tacit's reading of its own file, written as f32, against `gguf`'s."""
    plain = os.path.join(folder, "plain.gguf")
    run(program, "quantize", path, plain, "--type", "f32")
    again = tensors(plain)
    for name, tensor in tensors(path).items():
        report.check(np.array_equal(values(tensor), values(again[name])), f"{path}: {name} is read otherwise by gguf")
    os.remove(plain)


def check_errors(report, source, ours, theirs, name):
    worst = 0
    for tensor, peer in theirs.items():
        if tensor not in ours or ours[tensor][0] != peer[0] or peer[0] in ("f32", "f16"):
            continue
        original = values(source[tensor])
        mine, other = rms(values(ours[tensor]), original), rms(values(peer), original)
        worst = max(worst, mine / other if other else 0)
        report.check(mine <= 1.01 * other + 1e-9, f"{name}: {tensor}: error {mine:.4g}, llama.cpp's {other:.4g}")
    print(f"{name}: largest ratio of errors to llama.cpp's {worst:.4f}")


def check_weights(report, program, plain, folder):
    data, matrix = os.path.join(folder, "d.jsonl"), os.path.join(folder, "imatrix.gguf")
    with open(data, "w", encoding="utf-8") as f:
        for i, question in enumerate(QUESTIONS):
            turns = [("user", question), ("assistant", TEXT)]
            f.write(json.dumps({"id": str(i), "messages": [
                {"role": role, "content": [{"type": "text", "text": text}]} for role, text in turns]}) + "\n")
    run(program, "calibrate", "-m", plain, "--data", data, "-o", matrix)
    read = tensors(matrix)
    paths = [os.path.join(folder, f"q4_0{end}.gguf") for end in ("", "-weighted")]
    run(program, "quantize", plain, paths[1], "--type", "q4_0", "--imatrix", matrix)
    source, alike, weighted = tensors(plain), tensors(paths[0]), tensors(paths[1])
    for name, tensor in weighted.items():
        if tensor[0] != "q4_0":
            continue
        mean = values(read[name + ".in_sum2"]).reshape(-1) / values(read[name + ".counts"]).reshape(-1)[0]
        original = values(source[name])
        report.check(rms(values(tensor), original, mean) < rms(values(alike[name]), original, mean),
                     f"{name}: weights do not lower the weighted error")


def main():
    program, model, folder = sys.argv[1:4]
    os.makedirs(folder, exist_ok=True)
    report, plain = Report(), os.path.join(folder, "f32.gguf")
    run(program, "quantize", model, plain, "--type", "f32")
    source = tensors(plain)
    try:
        import llama_cpp
    except ImportError:
        llama_cpp = None
        print("llama-cpp-python is not installed: only gguf reads the files")
    for name, file_type in TYPES.items():
        path, peer = (os.path.join(folder, f"{name}{end}.gguf") for end in ("", "-peer"))
        run(program, "quantize", plain, path, "--type", name)
        check_read(report, program, path, folder)
        if not llama_cpp:
            continue
        report.check(peer_quantize(llama_cpp, plain, peer, file_type), f"llama.cpp does not make {name}")
        check_errors(report, source, tensors(path), tensors(peer), name)
        tokens, exact = tacit_logits(program, path, TEXT, "--exact")
        kl = np.mean(divergence(exact, peer_logits(path, tokens)))
        print(f"{name}: llama.cpp on Tacit's file, KL to Tacit exact {kl:.2g}")
        report.check(kl <= 0.02, f"{name}: llama.cpp's distributions differ, KL {kl:.3g}")
        os.remove(peer)
    check_weights(report, program, plain, folder)
    report.finish()


main()
