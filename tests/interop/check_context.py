#!/usr/bin/env python3
"""Whether a long context costs answers: the divergence (KL, nats) from fp32 throughout that keys and
values in F16 and INT8, and integer products, cause in the same 256 words of a text behind 256 to ROWS
tokens of what is before them (bench_context). Three texts that people wrote and that are on every
machine: licences, a program, a manual page.

Of each way to compute, the mean over all texts: behind the longest two contexts at most GROWTH times the
mean of the shorter ones. The same words have about the same KL each time; what a cache loses with every
row that it holds would show as a rise with each doubling.

usage: check_context.py BENCH_CONTEXT MODEL.gguf PAGE.gz FOLDER [ROWS]        (needs numpy)
"""
import argparse
import gzip
import os
import re
import subprocess
import sys

import numpy as np
from manual_pages import plain
from reference_model import Report

LICENCES = [f"/usr/share/common-licenses/{name}" for name in ("GPL-3", "MPL-2.0", "GFDL-1.3")]
ROWS, GROWTH = 8192, 1.5
LINE = re.compile(r"(.+?) +behind +(\d+) tokens: KL (\S+), same token (\S+) %")


def read(path):
    with open(path, encoding="utf-8", errors="replace") as f:
        return f.read()


def page(path):
    """A manual page's lines; of its requests only what those for fonts and headings hold."""
    with gzip.open(path, "rt", encoding="utf-8", errors="replace") as f:
        lines = [re.sub(r"^\.(B|I|BR|RB|BI|IR|SM|SH|SS) +", "", line) for line in f]
    return "\n".join(plain(line) for line in lines if not line.startswith((".", "'")))


def texts(page_path):
    yield "licences", "\n\n".join(read(path) for path in LICENCES)
    yield "a program", read(argparse.__file__)
    yield "a manual page", page(page_path)


def measure(program, model, path, rows):
    """{way: {tokens before: (KL, share of positions with the same token)}}"""
    found, threads = {}, os.environ.get("OPENBLAS_NUM_THREADS", "0")
    with subprocess.Popen([program, model, path, str(rows), threads], stdout=subprocess.PIPE, text=True) as run:
        for line in run.stdout:
            way, before, kl, same = LINE.match(line).groups()
            found.setdefault(way, {})[int(before)] = float(kl), float(same)
    if run.returncode != 0:
        sys.exit(f"{program} ended with {run.returncode}")
    return found


def print_row(name, behind, scores):
    parts = [f"{before}: {kl:.2e} ({same:.1f} %)" for before, (kl, same) in zip(behind, scores)]
    print(f"{name}: {', '.join(parts)}", flush=True)


def main():
    program, model, page_path, folder = sys.argv[1:5]
    rows = int(sys.argv[5]) if len(sys.argv) > 5 else ROWS
    os.makedirs(folder, exist_ok=True)
    if rows < 2048:
        sys.exit(f"{rows} rows: expected at least 2048, which are three contexts")
    report, found = Report(), []
    for name, text in texts(page_path):
        path = os.path.join(folder, name.replace(" ", "-") + ".txt")
        with open(path, "w", encoding="utf-8") as f:
            f.write(text)
        found.append(measure(program, model, path, rows))
        for way, scores in found[-1].items():
            print_row(f"{name}, {way}, behind", scores, scores.values())
    for way, scores in found[0].items():
        behind = list(scores)
        mean = np.mean([[text[way][b] for b in behind] for text in found], 0)
        print_row(f"all, {way}, behind", behind, mean)
        shorter = mean[:-2, 0].mean()
        for before, (kl, _) in list(zip(behind, mean))[-2:]:
            report.check(kl <= GROWTH * shorter, f"{way}: KL {kl:.3g} behind {before} tokens, {shorter:.3g} behind fewer")
    report.finish()


main()
