#!/usr/bin/env python3
"""The accountants beside Google's dp-accounting on the same events, by processor time of one thread.

    python3 bench_accounting.py BIN      BIN: the folder of tacit-audit and bench_accounting

Both sides alike: a computation is one fresh account, from the event to epsilon, in a process that is
already running, best of RUNS; a command is a whole process that prints that epsilon, its start (here
Python's imports) included, best of RUNS. Target at 10,000 steps, for the computation: rdp in at most
1/20 of the reference's time, pld on the reference's grid in at most 1/5. By default pld takes a finer
grid where q is tiny, so as not to over-charge as the reference does: there its time buys a smaller
epsilon, and is printed without a verdict. Exit 1 when a target is missed.
"""
import json
import os
import resource
import subprocess
import sys
import time

os.environ["OPENBLAS_NUM_THREADS"] = "1"
import dp_accounting  # noqa: E402
from dp_accounting.pld import PLDAccountant  # noqa: E402
from dp_accounting.rdp import RdpAccountant  # noqa: E402

EVENTS = [(1.0, 0.01, 10000), (2.0, 0.001, 10000), (0.8, 0.05, 1000)]
DELTA = 1e-5
RUNS = 5
TARGETS = {"rdp": 20, "pld at 1e-4": 5}
KINDS = {"rdp": RdpAccountant, "pld": PLDAccountant}
COMMAND = """import dp_accounting
from dp_accounting.{kind} import {name} as Accountant
a = Accountant()
a.compose(dp_accounting.PoissonSampledDpEvent({q}, dp_accounting.GaussianDpEvent({sigma})), {steps})
print(a.get_epsilon({delta}))"""


def reference(kind, sigma, q, steps):
    best = float("inf")
    for _ in range(RUNS):
        start = time.process_time()
        accountant = KINDS[kind]()
        event = dp_accounting.PoissonSampledDpEvent(q, dp_accounting.GaussianDpEvent(sigma))
        accountant.compose(event, steps)
        epsilon = accountant.get_epsilon(DELTA)
        best = min(best, time.process_time() - start)
    return epsilon, best


def command_seconds(command):
    best = float("inf")
    for _ in range(RUNS):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run(command, check=True, capture_output=True)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        best = min(best, after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime)
    return best


def compare_commands(folder, kind, sigma, q, steps):
    ours = command_seconds([f"{folder}/tacit-audit", "epsilon", "--event", f"{sigma}:{q}:{steps}",
                            "--delta", str(DELTA), "--accountant", kind])
    text = COMMAND.format(kind=kind, name=KINDS[kind].__name__, q=q, sigma=sigma, steps=steps,
                          delta=DELTA)
    theirs = command_seconds([sys.executable, "-c", text])
    return ours, theirs


def compare(folder, sigma, q, steps):
    event = f"{sigma}:{q}:{steps}"
    lines = subprocess.run([f"{folder}/bench_accounting", str(DELTA), event], check=True,
                           capture_output=True, text=True).stdout.splitlines()
    slow = {kind: reference(kind, sigma, q, steps) for kind in KINDS}
    missed = 0
    for line in map(json.loads, lines):
        name, kind = line["accountant"], line["accountant"][:3]
        expected, seconds = slow[kind]
        ratio = seconds / line["cpu_s"]
        late = steps >= 10000 and ratio < TARGETS.get(name, 0)
        missed += late
        print(f"{event} {name}: epsilon {line['epsilon']:.9g} (reference {expected:.9g}), "
              f"{line['cpu_s'] * 1e3:.2f} ms (reference {seconds * 1e3:.1f} ms): 1/{ratio:.1f}"
              f"{' TOO SLOW' if late else ''}", flush=True)
    for kind in KINDS:
        ours, theirs = compare_commands(folder, kind, sigma, q, steps)
        print(f"{event} {kind}, whole commands: {ours * 1e3:.0f} ms (reference {theirs * 1e3:.0f} ms)",
              flush=True)
    return missed


def main():
    missed = sum(compare(sys.argv[1], *event) for event in EVENTS)
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
