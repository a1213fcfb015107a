#!/usr/bin/env python3
"""The accountants beside Google's dp-accounting on the same events: epsilon and processor time.

    pip install dp-accounting==0.6.0
    python3 tests/bench/bench_accountants.py build/release/bin/tacit-audit

Targets: rdp in at most 1/20 and pld in at most 1/5 of the reference's time at 10,000 steps, without
the start of either program (Python's imports; the start of tacit-audit is measured and subtracted).
"""
import json
import resource
import subprocess
import sys
import time

import dp_accounting
from dp_accounting.pld import PLDAccountant
from dp_accounting.rdp import RdpAccountant

EVENTS = [(1.0, 0.01, 10000), (0.8, 0.05, 1000), (2.0, 0.001, 10000)]
DELTA = 1e-5
RUNS = 5


def reference(kind, sigma, q, steps):
    best = float("inf")
    for _ in range(RUNS):
        start = time.process_time()
        accountant = kind()
        event = dp_accounting.PoissonSampledDpEvent(q, dp_accounting.GaussianDpEvent(sigma))
        accountant.compose(event, steps)
        epsilon = accountant.get_epsilon(DELTA)
        best = min(best, time.process_time() - start)
    return epsilon, best


def child_seconds(command):
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    text = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return text, after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime


def ours(program, word, sigma, q, steps, repeat):
    """Many events in one process, so that short times can be measured; each is one computation."""
    command = [program, "epsilon", "--delta", str(DELTA), "--accountant", word, "--json"]
    best = float("inf")
    for _ in range(RUNS):
        text, seconds = child_seconds(command + ["--event", f"{sigma}:{q}:{steps}"])
        best = min(best, seconds)
    many = float("inf")
    if repeat:
        events = ["--event", f"{sigma}:{q}:{steps}"] * (repeat + 1)
        for _ in range(RUNS):
            many = min(many, child_seconds(command + events)[1])
        best = (many - best) / repeat
    return json.loads(text)["epsilon"], best


def main():
    program = sys.argv[1]
    start = min(child_seconds([program, "--version"])[1] for _ in range(RUNS))
    print(f"start of the program: {start * 1e3:.1f} ms")
    for sigma, q, steps in EVENTS:
        for word, kind, repeat in (("rdp", RdpAccountant, 50), ("pld", PLDAccountant, 0)):
            epsilon, seconds = ours(program, word, sigma, q, steps, repeat)
            seconds -= 0 if repeat else start
            expected, slow = reference(kind, sigma, q, steps)
            print(f"{word} sigma {sigma} q {q} steps {steps}: epsilon {epsilon:.9g} "
                  f"(reference {expected:.9g}), {seconds * 1e3:.2f} ms "
                  f"(reference {slow * 1e3:.1f} ms): 1/{slow / seconds:.0f}")


if __name__ == "__main__":
    main()
