#!/usr/bin/env python3
"""What dp-accounting's own masses give for rows of dp_accounting.csv, without its rounding.

    pip install dp-accounting==0.6.0
    python3 tests/golden/make_pld_tilted.py G0105 G0212

The library raises the transform of a loss distribution to the power of the runs, which leaves some
1e-12 on every mass: too much where the tail sought is 1e-8. Here the masses are tilted first, so
that the mean of their sum is the epsilon sought, and untilted afterwards. Prints the row, the
library's epsilon, this one.
"""
import csv
import os
import sys

import numpy as np
from dp_accounting.pld import privacy_loss_distribution
from scipy.optimize import brentq

INTERVAL = 1e-4
SIZE = 1 << 23


def losses(term):
    masses, lowest = term[0], term[1]
    return INTERVAL * (lowest + np.arange(len(masses)))


def tilted_mean(terms, tilt):
    total = 0
    for term in terms:
        x = losses(term)
        weight = np.maximum(term[0], 0) * np.exp(tilt * (x - x.max()))
        total += term[3] * (weight * x).sum() / weight.sum()
    return total


def composed(terms, tilt, middle):
    """Losses around `middle` with their masses, and the infinite mass."""
    spectrum, lowest, scale, finite = 1, 0, 0, 0
    for masses, low, infinite, runs in terms:
        weight = masses * np.exp(tilt * losses((masses, low)))
        scale += runs * np.log(weight.sum())
        spectrum = spectrum * np.fft.rfft(weight / weight.sum(), SIZE) ** runs
        lowest += runs * low
        finite += runs * np.log1p(-infinite)
    index = round(middle / INTERVAL) - SIZE // 2 + np.arange(SIZE)
    x = INTERVAL * index
    tilted = np.maximum(np.fft.irfft(spectrum, SIZE)[(index - lowest) % SIZE], 0)
    return x, tilted * np.exp(np.clip(scale - tilt * x, -700, 700)), -np.expm1(finite)


def epsilon(terms, delta, guess):
    tilt = brentq(lambda t: tilted_mean(terms, t) - guess, 0, 400) * 0.7
    x, mass, infinite = composed(terms, tilt, tilted_mean(terms, tilt))

    def delta_at(e):
        above = x > e
        return infinite + (mass[above] * -np.expm1(e - x[above])).sum()

    return brentq(lambda e: delta_at(e) - delta, 1e-9, 3 * guess + 1, xtol=1e-13)


def terms_of(row):
    for sigma, q, steps in zip(*(row[c].split(";") for c in ("sigma", "q", "steps"))):
        pld = privacy_loss_distribution.from_gaussian_mechanism(
            float(sigma), value_discretization_interval=INTERVAL, sampling_prob=float(q))
        pmf = pld._pmf_remove
        yield np.array(pmf._probs), pmf._lower_loss, pmf._infinity_mass, int(steps)


def main():
    golden = os.path.join(os.path.dirname(os.path.abspath(__file__)), "dp_accounting.csv")
    rows = {row["case_id"]: row for row in csv.DictReader(open(golden))}
    for name in sys.argv[1:]:
        row, library = rows[name], float(rows[name]["eps_pld_pessimistic"])
        print(name, library, epsilon(list(terms_of(row)), float(row["delta"]), library), flush=True)


if __name__ == "__main__":
    main()
