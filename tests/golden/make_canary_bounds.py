#!/usr/bin/env python3
"""P-values and bounds of the one-run audit (arXiv 2305.08846, theorem 5.2), straight from its
definition: exact binomial coefficients, probabilities in 60 decimal digits, every sum written out
anew. Standard library alone. Writes canary_bounds.h on standard output; takes some seconds.

    python3 tests/golden/make_canary_bounds.py > tests/golden/canary_bounds.h
"""
from decimal import Decimal as D
from decimal import getcontext
from functools import lru_cache
from math import comb

getcontext().prec = 60

# m, r, v, delta, error, epsilons at which p is listed
CASES = [
    (1000, 1000, 560, "1e-5", "0.05", ["0", "0.1", "0.3", "4"]),
    (1000, 1000, 600, "1e-5", "0.05", ["0.2", "0.35"]),
    (1000, 200, 180, "1e-5", "0.05", ["1", "1.8", "2.5"]),
    (1000, 100, 100, "1e-5", "0.05", ["2", "3.5"]),
    (1000, 1000, 1000, "1e-5", "0.05", ["5", "6", "20"]),
    (200, 60, 60, "1e-5", "0.05", ["2.9"]),
    (1000, 500, 480, "1e-5", "0.0125", ["2", "2.5"]),
    (1000, 250, 131, "1e-5", "0.0125", ["0", "0.5"]),
    (4096, 818, 700, "1e-6", "0.0125", ["1.5"]),
    (4096, 2048, 1100, "0", "0.05", ["0.1"]),
    (100, 10, 10, "1e-3", "0.05", ["1"]),
    (500, 50, 48, "1e-2", "0.05", ["1", "3"]),
    (20, 10, 3, "1e-5", "0.05", ["0", "1"]),
    (1, 1, 1, "1e-5", "0.05", ["0", "2"]),
    (20000, 5000, 4900, "1e-5", "0.0125", ["3", "4"]),
]


@lru_cache(None)
def coefficients(r):
    return [D(comb(r, j)) for j in range(r + 1)]


def p_value(m, r, v, delta, epsilon):
    a = 1 / (1 + (-D(epsilon)).exp())
    up, down, c = [D(1)], [D(1)], coefficients(r)
    for _ in range(r):
        up.append(up[-1] * a)
        down.append(down[-1] * (1 - a))
    pmf = [c[j] * up[j] * down[r - j] for j in range(r + 1)]
    beta = sum(pmf[v:])
    most, window = D(0), D(0)
    for i in range(1, v + 1):
        window += pmf[v - i]
        most = max(most, window / i)
    return min(D(1), beta + 2 * m * D(delta) * most)


def bound(m, r, v, delta, error):
    if p_value(m, r, v, delta, 0) > D(error):
        return D(0)
    low, high = D(0), D(16)
    for _ in range(44 if r <= 1000 else 36):
        middle = (low + high) / 2
        if p_value(m, r, v, delta, middle) <= D(error):
            low = middle
        else:
            high = middle
    return low


def main():
    print("/* Made by make_canary_bounds.py. */")
    print("#ifndef TACIT_TESTS_GOLDEN_CANARY_BOUNDS_H\n#define TACIT_TESTS_GOLDEN_CANARY_BOUNDS_H\n")
    print("#include <stddef.h>\n")
    print("static const struct {\n    size_t m, r, v;\n    double delta, epsilon, p;\n} golden_p[] = {")
    for m, r, v, delta, _, epsilons in CASES:
        for epsilon in epsilons:
            p = p_value(m, r, v, delta, epsilon)
            print(f"    {{{m}, {r}, {v}, {delta}, {epsilon}, {p:.17e}}},")
    print("};\n\nstatic const struct {\n    size_t m, r, v;\n    double delta, error, epsilon;\n} golden_bounds[] = {")
    for m, r, v, delta, error, _ in CASES:
        print(f"    {{{m}, {r}, {v}, {delta}, {error}, {bound(m, r, v, delta, error):.12f}}},")
    print("};\n\n#endif")


main()
