#!/usr/bin/env python3
"""Epsilon of runs of the Gaussian mechanism from Balle and Wang 2018, theorem 8, in 80 digits,
rounded up to a double: what the analytic accountant must never lie below. Needs mpmath. Writes
gaussian_exact.h on standard output.

    python3 tests/golden/make_gaussian_exact.py > tests/golden/gaussian_exact.h
"""
import math
import random

from mpmath import erfc, exp, mp, mpf, sqrt

mp.dps = 80


def phi(x):
    return erfc(-x / sqrt(mpf(2))) / 2


def delta_of(epsilon, mu):
    return phi(mu / 2 - epsilon / mu) - exp(epsilon) * phi(-mu / 2 - epsilon / mu)


def epsilon_of(delta, mu):
    low, high = mpf(0), mpf(1)
    if delta_of(low, mu) <= delta:
        return low
    while delta_of(high, mu) > delta:
        high *= 2
    for _ in range(220):
        middle = (low + high) / 2
        if delta_of(middle, mu) > delta:
            low = middle
        else:
            high = middle
    return high


def rounded_up(x):
    near = float(x)
    return near if mpf(near) >= x else math.nextafter(near, math.inf)


def cases():
    draw = random.Random(7)
    for _ in range(300):
        sigma = math.exp(draw.uniform(math.log(0.02), math.log(3000)))
        count = int(math.exp(draw.uniform(0, math.log(1e5))))
        yield sigma, count, math.exp(-draw.uniform(0.7, 60))
    yield 0.61, 983, 4.87e-7


print("/* Made by make_gaussian_exact.py: epsilon of `count` runs, exact, rounded up. */")
print("#ifndef TACIT_TESTS_GOLDEN_GAUSSIAN_EXACT_H\n#define TACIT_TESTS_GOLDEN_GAUSSIAN_EXACT_H\n")
print("#include <stdint.h>\n")
print("static const struct {\n    double sigma;\n    uint64_t count;\n    double delta, epsilon;")
print("} golden_gaussian_exact[] = {")
for sigma, count, delta in cases():
    epsilon = epsilon_of(mpf(delta), sqrt(mpf(count)) / mpf(sigma))
    print(f"    {{{sigma.hex()}, {count}, {delta.hex()}, {rounded_up(epsilon).hex()}}},")
print("};\n\n#endif")
