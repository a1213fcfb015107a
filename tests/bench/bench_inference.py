#!/usr/bin/env python3
"""Text inference of `tacit` beside llama.cpp (PyPI llama-cpp-python, where it is installed) and
ik_llama.cpp (where --ik names its build), on random weights in the shapes of public models.

All take turns on the same file with the same pinned threads; a figure is the median over rounds of the
ratio within a round. Rates are given by the clock and, in parentheses, by processor time of all
threads: where other programs run, only the latter compare. Beside decode stands how many times as long
a token takes as a plain read of the file's tensors by the same threads in the same process.

The last rows are a picture of 512 pixels through SigLIP-B/16 (bench_tower.py): milliseconds, and
their ratios to the peers' milliseconds.

usage: bench_inference.py BIN [--shapes smollm2-135m,smollm2-360m,tower] [--types q8_0,q4_0,q4_1,q4_k]
                          [--threads 1,2] [--rounds 5] [--ik DIR] [--dir DIR] [--json]
"""
import argparse
import itertools
import json
import os
import resource
import subprocess
import sys
import time

import bench_tower
from rounds import median, pinned

PROMPT, DECODE, FIRST = 128, 32, 32
PHASES = ("prefill", "decode")


def run(command, threads, both=False):
    """Standard output (with `both` also what it said beside), and processor seconds of the child."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    child = subprocess.run(command, check=True, capture_output=True, preexec_fn=pinned(threads))
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    out = child.stdout + child.stderr if both else child.stdout
    return out, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def tacit(program, model, threads, mib):
    command = [program, "bench", "-m", model, "-t", str(threads), "--json"]
    answer = json.loads(run(command + ["-p", str(PROMPT), "-n", str(DECODE), "-r", "2", "--read", str(mib)],
                            threads)[0])
    first = json.loads(run(command + ["-p", str(FIRST), "-n", "1", "-r", "1"], threads)[0])
    rates = [(answer[f"{p}_tokens_per_s"], answer[f"{p}_tokens_per_cpu_s"]) for p in PHASES]
    read = (1 / rates[1][0] / answer["read_seconds"], 1 / rates[1][1] / answer["read_cpu_seconds"])
    return {"rates": rates, "read": read, "rss": answer["peak_rss_bytes"],
            "first": (first["load_seconds"] + FIRST / first["prefill_tokens_per_s"],
                      first["load_cpu_seconds"] + FIRST / first["prefill_tokens_per_cpu_s"])}


def llama_cpp_child(model, threads):
    """In a process of its own, so that pinning and processor time are its own."""
    from llama_cpp import Llama
    peer = Llama(model, n_ctx=512, n_batch=512, n_threads=threads, n_threads_batch=threads,
                 logits_all=False, verbose=False)
    vocab, best = peer.n_vocab(), [(0, 0), (0, 0)]
    token = lambda i: (i * 7919 + 13) % vocab
    now = lambda: (time.perf_counter(), time.process_time())
    for _ in range(2):
        peer.reset()
        marks = [now()]
        peer.eval([token(i) for i in range(PROMPT)])
        marks.append(now())
        for i in range(DECODE):
            peer.eval([token(i + PROMPT)])
        marks.append(now())
        for phase, count in enumerate((PROMPT, DECODE)):
            rates = [count / (marks[phase + 1][i] - marks[phase][i]) for i in range(2)]
            best[phase] = tuple(max(a, b) for a, b in zip(best[phase], rates))
    print(json.dumps(best))


def llama_cpp(model, threads):
    out, _ = run([sys.executable, os.path.abspath(__file__), "--llama-cpp-child", model, str(threads)], threads)
    return json.loads(out)


def ik_llama_cpp(build, model, threads):
    rates = []
    for phase in (["-p", str(PROMPT), "-n", "0"], ["-p", "0", "-n", str(DECODE)]):
        command = [os.path.join(build, "bin", "llama-bench"), "-m", model, "-t", str(threads), *phase, "-o", "json"]
        _, once = run(command + ["-r", "1"], threads)
        out, often = run(command + ["-r", "3"], threads)
        count = PROMPT if phase[1] != "0" else DECODE
        # Loading and warming up are in both.
        rates.append((json.loads(out)[0]["avg_ts"], 2 * count / max(often - once, 1e-9)))
    return rates


def peers_of(options):
    peers = {}
    try:
        import llama_cpp as _
        peers["llama.cpp"] = llama_cpp
    except ImportError:
        print("llama-cpp-python is not installed (./run interop does that): not compared", file=sys.stderr)
    if options.ik:
        peers["ik_llama.cpp"] = lambda model, threads: ik_llama_cpp(options.ik, model, threads)
    return peers


def show(rates):
    return f"{rates[0]:.0f} ({rates[1]:.0f})"


def compare(options, peers, model, threads):
    mib = os.path.getsize(model) >> 20
    ours, theirs = [], {name: [] for name in peers}
    for _ in range(options.rounds):
        ours.append(tacit(os.path.join(options.bin, "tacit"), model, threads, mib))
        for name, speed in peers.items():
            theirs[name].append(speed(model, threads))
    row = {"model": os.path.basename(model), "threads": threads,
           "rss_over_file": ours[0]["rss"] / os.path.getsize(model), "first_token_s": [min(o["first"][unit] for o in ours) for unit in range(2)],
           "token_over_read": [median([o["read"][unit] for o in ours]) for unit in range(2)]}
    for phase, name in enumerate(PHASES):
        row[name] = [max(o["rates"][phase][unit] for o in ours) for unit in range(2)]
        for peer, rounds in theirs.items():
            row[f"{name}_over_{peer}"] = [
                median([o["rates"][phase][unit] / t[phase][unit] for o, t in zip(ours, rounds)]) for unit in range(2)]
    return row


def print_row(row):
    parts = [f"{row['model']}, {row['threads']} threads:"]
    for phase in PHASES:
        parts.append(f"{phase} {show(row[phase])} tokens/s")
        for key in row:
            if key.startswith(f"{phase}_over_"):
                parts.append(f"{row[key][0]:.2f} ({row[key][1]:.2f}) x {key.split('_over_')[1]}")
    clock, processor = row["token_over_read"]
    parts.append(f"a token {clock:.2f} ({processor:.2f}) x a plain read")
    parts.append(f"peak RSS {row['rss_over_file']:.2f} x file, first token "
                 "{:.2f} ({:.2f}) s".format(*row["first_token_s"]))
    print("; ".join(parts).replace(":;", ":"), flush=True)


def compare_tower(options, tower, text, pictures, threads):
    """Best milliseconds of ours, and median ratios to each peer's within a round."""
    peers, script = {}, os.path.abspath(__file__)
    if "llama.cpp" in options.peers:
        peers["llama.cpp"] = lambda: bench_tower.llama_cpp(run, script, text, tower, threads)
    if "ik_llama.cpp" in options.peers:
        peers["ik_llama.cpp"] = lambda: bench_tower.ik_llama_cpp(run, options.ik, text, tower, pictures, threads)
    ours, theirs = [], {name: [] for name in peers}
    for _ in range(options.rounds):
        ours.append(bench_tower.tacit(run, os.path.join(options.bin, "tacit"), text, tower, pictures, threads))
        for name, encode in peers.items():
            theirs[name].append(encode())
    row = {"tower": os.path.basename(tower), "threads": threads,
           "ms": [1e3 * min(o[unit] for o in ours) for unit in range(2)]}
    for name, rounds in theirs.items():
        row[f"over_{name}"] = [median([o[unit] / t[unit] for o, t in zip(ours, rounds)]) for unit in range(2)]
    return row


def print_tower(row):
    parts = [f"{row['tower']}, {row['threads']} threads: {show(row['ms'])} ms a picture"]
    parts += [f"{row[key][0]:.2f} ({row[key][1]:.2f}) x {key.split('over_')[1]}'s" for key in row if "over_" in key]
    print("; ".join(parts), flush=True)


def main():
    if sys.argv[1:2] == ["--tower-child"]:
        bench_tower.llama_cpp_child(sys.argv[2], sys.argv[3], int(sys.argv[4]))
        return
    if sys.argv[1:2] == ["--llama-cpp-child"]:
        llama_cpp_child(sys.argv[2], int(sys.argv[3]))
        return
    parser = argparse.ArgumentParser()
    parser.add_argument("bin")
    parser.add_argument("--shapes", default="smollm2-135m,smollm2-360m,tower")
    parser.add_argument("--types", default="q8_0,q4_0,q4_1,q4_k")
    parser.add_argument("--threads", default="1,2")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--ik")
    parser.add_argument("--dir", default="build/bench/shapes")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    os.makedirs(options.dir, exist_ok=True)
    peers = options.peers = peers_of(options)
    for shape in options.shapes.split(","):
        if shape == "tower":
            towers, text, pictures = bench_tower.files(options)
            for tower, threads in itertools.product(towers.values(), map(int, options.threads.split(","))):
                row = compare_tower(options, tower, text, pictures, threads)
                print(json.dumps(row), flush=True) if options.json else print_tower(row)
            continue
        for kind in options.types.split(","):
            model = os.path.join(options.dir, f"{shape}-{kind}.gguf")
            if not os.path.exists(model):
                subprocess.run([os.path.join(options.bin, "write_shape"), shape, model, "--type", kind], check=True)
            for threads in map(int, options.threads.split(",")):
                row = compare(options, peers, model, threads)
                print(json.dumps(row), flush=True) if options.json else print_row(row)


main()
