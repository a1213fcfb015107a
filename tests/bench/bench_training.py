#!/usr/bin/env python3
"""A training step of Tacit beside PyTorch + PEFT in fp32 and bf16, and a private one beside PyTorch + PEFT +
Opacus: LoRA (A and B) on q, k, v, o, 16 units of one example, AdamW, the same model with random weights in a
public shape, the last 32 tokens of an example trained.

All take turns on the same file with the same pinned threads; a figure is the median over rounds of the ratio
within a round. Seconds are given by the clock and, in parentheses, of the processor. Memory of a process is
its peak resident set during the step and, in parentheses, the anonymous part. `equal` is 16 examples of
the given rows, `natural` 16 of 18 to 100 % of them, on average 53 %. Peers (training_peer.py states their
settings) take the physical batch of --micro that was fastest when they warmed up; a step of it is not counted.
A ratio above 1 is in Tacit's favour: how many times as long, or as much memory, the peer takes.

--memory prints Tacit's peak anonymous memory for the design's configurations, --profile where a step's
processor time goes, by samples of `perf` (steps without privacy, one thread).

usage: bench_training.py BIN [--shapes smollm2-135m,smollm2-360m] [--rows 128,256,512] [--ranks 8,16]
                         [--threads N] [--rounds R] [--units 16] [--lengths equal,natural]
                         [--micro 16,4,1]
                         [--peers fp32,bf16,opacus,opacus-bf16] [--type q8_0] [--python P] [--dir DIR]
                         [--memory] [--profile] [--json]
"""
import argparse
import itertools
import json
import os
import subprocess
import sys

import step_profile
from rounds import median, pinned

TRAINED = 32
# Shuffled, so that neighbours are not of like length.
NATURAL = [0.42, 0.18, 0.82, 0.30, 0.61, 1.00, 0.22, 0.51, 0.38, 0.91, 0.26, 0.67, 0.34, 0.74, 0.46, 0.56]
# Name, shape, arguments, the design's target in MiB: one unit at a time, 256 tokens, rank 8.
MEMORY = [("FFA on q, k, v, o", "smollm2-135m", ["--kind", "ffa"], 64),
          ("A and B on q, k, v, o", "smollm2-135m", ["--kind", "lora"], 80),
          ("A and B on all linears", "smollm2-135m", ["--kind", "lora", "--targets", "attn_*,ffn_*"], 96),
          ("0.5B class, A and B on q, k, v, o", "qwen25-05b", ["--kind", "lora"], 136)]


def lengths_of(options, kind, rows):
    shares = [1] * len(NATURAL) if kind == "equal" else NATURAL
    return [round(rows * shares[i % len(shares)]) for i in range(options.units)]


def tacit(options, model, threads, arguments):
    """One process: plain and private steps in turns behind a warm-up."""
    command = [os.path.join(options.bin, "bench_training"), "step", "--model", model, "--threads", str(threads),
               "--seconds", "1", "--trained", str(TRAINED), *arguments]
    return json.loads(subprocess.run(command, check=True, capture_output=True, preexec_fn=pinned(threads)).stdout)


class Peer:
    """A process that stays for all rounds; its model is loaded once."""

    def __init__(self, options, kind, model, rank):
        script = os.path.join(os.path.dirname(os.path.abspath(__file__)), "training_peer.py")
        environment = dict(os.environ, OMP_NUM_THREADS=str(options.threads))
        self.child = subprocess.Popen([options.python, "-W", "ignore", script, model, kind, str(rank), str(options.threads)],
                                      stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment,
                                      preexec_fn=pinned(options.threads))
        self.about = self.ask({"product_rate": True})
        self.best, self.warm = {}, {}

    def ask(self, request):
        self.child.stdin.write(json.dumps(request) + "\n")
        self.child.stdin.flush()
        line = self.child.stdout.readline()
        if not line:
            raise RuntimeError(f"{' '.join(self.child.args)}: ended, see above")
        return json.loads(line)

    def step(self, lengths, micro):
        return self.ask({"lengths": lengths, "micro": micro, "trained": TRAINED})

    def warm_up(self, options, kind, rows):
        """Chooses the physical batch; where there are several, each is tried once, behind a short step."""
        lengths, sizes = lengths_of(options, kind, rows), options.micro
        first = self.step([32] * options.units, sizes[0])
        warm = {micro: self.step(lengths, micro) for micro in sizes} if len(sizes) > 1 else {sizes[0]: first}
        self.best[kind, rows] = min(warm, key=lambda micro: warm[micro]["s"])
        self.warm[kind, rows] = warm

    def close(self):
        self.child.stdin.close()
        self.child.wait()


def ratios(ours, theirs, private):
    """Medians over rounds: how many times Tacit's seconds and bytes the peer takes."""
    name = "private" if private else "plain"
    pairs = list(zip(ours, theirs))
    return {"time": [median([t["s"] / o[f"{name}_s"] for o, t in pairs]),
                     median([t["cpu_s"] / o[f"{name}_cpu_s"] for o, t in pairs])],
            "memory": [median([t[key] / o[key] for o, t in pairs]) for key in ("peak_rss_bytes", "peak_rss_anon_bytes")]}


def beside(peer, kind, key, ours, theirs):
    """What a row says of one peer."""
    private = kind.startswith("opacus")
    return {"ratio": ratios(ours, theirs, private), "micro": peer.best[key],
            "s": [median([t[unit] for t in theirs]) for unit in ("s", "cpu_s")],
            "peak_bytes": [median([t[name] for t in theirs]) for name in ("peak_rss_bytes", "peak_rss_anon_bytes")],
            "warm": {micro: [answer["s"], answer["peak_rss_bytes"]] for micro, answer in peer.warm[key].items()}}


def compare(options, peers, model, rank, kind, rows):
    lengths = lengths_of(options, kind, rows)
    arguments = ["--rank", str(rank), "--lengths", ",".join(map(str, lengths))]
    ours, theirs = [], {name: [] for name in peers}
    for peer in peers.values():
        peer.warm_up(options, kind, rows)
    for _ in range(options.rounds):
        ours.append(tacit(options, model, options.threads, arguments))
        for name, peer in peers.items():
            theirs[name].append(peer.step(lengths, peer.best[kind, rows]))
    pick = lambda key: median([o[key] for o in ours])
    row = {"model": os.path.basename(model), "lengths": kind, "rows": rows, "rank": rank, "threads": options.threads,
           "units": options.units, "rounds": options.rounds, "tokens": sum(lengths)}
    for name in ("plain", "private"):
        row[f"{name}_s"] = [pick(f"{name}_s"), pick(f"{name}_cpu_s")]
    for key in ("cost_of_privacy", "of_product_rate", "noise_ms", "clip_and_sum_ms", "mean_ms", "optimizer_ms"):
        row[key] = pick(key)
    row["peak_bytes"] = [pick("peak_rss_bytes"), pick("peak_rss_anon_bytes")]
    row["peers"] = {name: beside(peer, name, (kind, rows), ours, theirs[name]) for name, peer in peers.items()}
    return row


def mib(pair):
    return f"{pair[0] / 2**20:.0f} ({pair[1] / 2**20:.0f}) MiB"


def print_row(row):
    show = lambda pair: f"{pair[0]:.2f} ({pair[1]:.2f})"
    print(f"{row['model']}, {row['lengths']} lengths up to {row['rows']} ({row['tokens']} tokens), rank {row['rank']}, "
          f"{row['threads']} threads: a step {show(row['plain_s'])} s, private {show(row['private_s'])} s, "
          f"peak {mib(row['peak_bytes'])}, {row['of_product_rate']:.2f} of a product's rate; "
          f"privacy costs {100 * row['cost_of_privacy']:.2f} % (noise {row['noise_ms']:.1f}, clip and sum "
          f"{row['clip_and_sum_ms']:.1f}, mean {row['mean_ms']:.1f} ms)")
    for name, peer in row["peers"].items():
        warm = ", ".join(f"{micro}: {s:.2f} s {peak / 2**20:.0f} MiB" for micro, (s, peak) in peer["warm"].items())
        warm = f" (warming up {warm})" if len(peer["warm"]) > 1 else ""
        print(f"  {name}: {show(peer['ratio']['time'])} x the time, {show(peer['ratio']['memory'])} x the memory; "
              f"{show(peer['s'])} s, peak {mib(peer['peak_bytes'])}, physical batch "
              f"{peer['micro']}{warm}")
    sys.stdout.flush()


def print_settings(options, peers):
    for name, peer in peers.items():
        about = peer.about
        print(f"  {name}: PyTorch {about['torch']}, {options.threads} threads, a product of 2048 at "
              f"{about['product_rate'] / 1e9:.0f} GFLOP/s; resident set when imported "
              f"{about['imported_rss_bytes'] / 2**20:.0f} MiB", flush=True)


def check_losses(options, model, rank, peers):
    """Before anything is trained all must compute the same function."""
    lengths = [64, 48]
    expected = tacit(options, model, options.threads, ["--rank", str(rank), "--lengths", "64,48"])["loss"]
    for name, peer in peers.items():
        found = peer.step(lengths, 2)["loss"]
        limit = 2e-2 if name.endswith("bf16") else 1e-4
        if abs(found - expected) > limit * expected:
            raise RuntimeError(f"{name}: expected a loss of {expected}, found {found}: not the same model")


def shape_file(options, shape):
    model = os.path.join(options.dir, f"{shape}-{options.type}.gguf")
    if not os.path.exists(model):
        subprocess.run([os.path.join(options.bin, "write_shape"), shape, model, "--type", options.type], check=True)
    return model


def compare_all(options):
    for shape, rank in itertools.product(options.shapes, options.ranks):
        model = shape_file(options, shape)
        peers = {name: Peer(options, name, model, rank) for name in options.peers}
        check_losses(options, model, rank, peers)
        if not options.json:
            print_settings(options, peers)
        for rows, kind in itertools.product(options.rows, options.lengths):
            row = compare(options, peers, model, rank, kind, rows)
            print(json.dumps(row), flush=True) if options.json else print_row(row)
        for peer in peers.values():
            peer.close()


def memory(options):
    for name, shape, arguments, target in MEMORY:
        row = {"memory": name, "shape": shape, "target_mib": target, "threads": options.threads}
        answer = tacit(options, shape_file(options, shape), options.threads, arguments + ["--rank", "8", "--lengths", "256"])
        row["peak_anon_mib"] = answer["peak_rss_anon_bytes"] / 2**20
        text = f"{name}, {shape}, {options.threads} threads: {row['peak_anon_mib']:.1f} MiB anonymous (target {target})"
        print(json.dumps(row) if options.json else text, flush=True)


def profile(options):
    for shape, rank, rows in itertools.product(options.shapes, options.ranks, options.rows):
        lengths = ",".join([str(rows)] * 4)
        command = [os.path.join(options.bin, "bench_training"), "step", "--model", shape_file(options, shape),
                   "--threads", "1", "--seconds", "1", "--rank", str(rank), "--lengths", lengths]
        shares = step_profile.shares(command, pinned(1), options.dir)
        if options.json:
            print(json.dumps({"profile": shape, "rank": rank, "rows": rows, "shares": shares}), flush=True)
            continue
        print(f"{shape}, units of {rows} rows, rank {rank}, 1 thread: share of a step's processor time")
        for name, share in sorted(shares.items(), key=lambda item: -item[1]):
            print(f"  {100 * share:5.1f} %  {name}", flush=True)


def names(text):
    return [part for part in text.split(",") if part]


def numbers(text):
    return [int(part) for part in names(text)]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("bin")
    parser.add_argument("--shapes", type=names, default=["smollm2-135m", "smollm2-360m"])
    parser.add_argument("--rows", type=numbers, default=[128, 256, 512])
    parser.add_argument("--ranks", type=numbers, default=[8, 16])
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--units", type=int, default=16)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--lengths", type=names, default=["equal", "natural"])
    parser.add_argument("--micro", type=numbers, default=[16, 4, 1])
    parser.add_argument("--peers", type=names, default=["fp32", "bf16", "opacus"])
    parser.add_argument("--type", default="q8_0")
    parser.add_argument("--python", default="build/bench/venv/bin/python")
    parser.add_argument("--dir", default="build/bench/shapes")
    parser.add_argument("--memory", action="store_true")
    parser.add_argument("--profile", action="store_true")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    os.makedirs(options.dir, exist_ok=True)
    if options.memory:
        memory(options)
    if options.profile:
        profile(options)
    if not options.memory and not options.profile:
        compare_all(options)


main()
