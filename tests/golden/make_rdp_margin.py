#!/usr/bin/env python3
"""Renyi divergences of the Poisson-subsampled Gaussian in 60 digits, for the margin of
privacy/rdp.h: what an account holds must never lie below these. Integer orders by the binomial
series of E[(1 + u)^a - 1] (all terms positive), fractional ones by the trapezoid rule on the
definition, with a step at which halving it changes nothing. Needs mpmath. Writes rdp_margin.h on
standard output; takes about ten minutes.

    python3 tests/golden/make_rdp_margin.py > tests/golden/rdp_margin.h
"""
import sys
from mpmath import mp, mpf, binomial, ceil, e, exp, expm1, log, log1p, pi, sqrt

mp.dps = 60
# Where the terms of order a cancel: a log q + a (a - 1) / (2 s^2) = 0, so that log A is near 0
# while its parts are in the tens of thousands.
CRITICAL = [(1024, 2.0**-32), (512, 2.0**-32), (256, 1e-6), (128, 1e-3), (63, 2.0**-32), (33, 0.01)]
RATES = [2.0**-32, 1e-6, 1e-3, 0.01, 0.1, 0.5, 1 - 2.0**-32]
SIGMAS = [0.01, 0.06, 0.3, 0.7, 1.0, 1.3, 4.0, 30.0, 1000.0]
INTEGER = [2.0, 3.0, 8.0, 33.0, 63.0, 128.0, 256.0, 512.0, 1024.0]
FRACTIONAL = [1.1, 1.5, 3.9, 7.5, 10.9]


def integer_rho(a, s, q):
    a, s, q = int(a), mpf(s), mpf(q)
    excess = sum(binomial(a, i) * q**i * (1 - q) ** (a - i) * expm1(i * (i - 1) / (2 * s * s)) for i in range(2, a + 1))
    return log1p(excess) / (a - 1)


def trapezoid(a, s, q, step):
    lowest, highest = -16 * s, max(a, mpf(2)) + 16 * s
    total, n = mpf(0), int((highest - lowest) / step) + 1
    for k in range(n):
        x = lowest + k * step
        u = q * expm1((2 * x - 1) / (2 * s * s))
        total += ((1 + u) ** a - 1 - a * u) * exp(-x * x / (2 * s * s))
    return log1p(total * step / (s * sqrt(2 * pi))) / (a - 1)


def fractional_rho(a, s, q):
    a, s, q = mpf(a), mpf(s), mpf(q)
    step = min(s, s * s) / 6
    rho, finer = trapezoid(a, s, q, step), trapezoid(a, s, q, step / 2)
    assert abs(rho - finer) < finer * mpf(10) ** -25, (a, s, q, rho, finer)
    return finer


def cases():
    for a in INTEGER:
        for s in SIGMAS:
            for q in RATES:
                yield a, s, q
    for a, q in CRITICAL:
        for scale in (0.98, 0.9999, 1.0, 1.0001, 1.02):
            s = float(sqrt(-mpf(a - 1) / (2 * log(mpf(q))))) * scale
            for near in (a, a - 1 if a < 64 else a):
                yield float(near), s, q
    for a in FRACTIONAL:
        for s in (0.3, 1.0, 1.3, 4.0, 1000.0):
            for q in (2.0**-32, 1e-3, 0.1, 0.5, 1 - 2.0**-32):
                yield a, s, q
    for a, q in ((1.1, 2.0**-32), (3.9, 0.1), (10.9, 1e-3)):
        yield a, 0.06, q


def main():
    print("/* Made by make_rdp_margin.py: rho of one run, times 2^64, rounded up, as two words. */")
    print("#ifndef TACIT_TESTS_GOLDEN_RDP_MARGIN_H\n#define TACIT_TESTS_GOLDEN_RDP_MARGIN_H\n")
    print("#include <stdint.h>\n")
    print("static const struct {\n    double order, sigma, q;\n    uint64_t high, low;\n} golden_rdp_margin[] = {")
    seen = set()
    for a, s, q in cases():
        rho = (integer_rho if a == int(a) else fractional_rho)(a, s, q)
        fixed = int(ceil(rho * 2**64))
        if (a, s, q) in seen or fixed >= 2**125:
            continue
        seen.add((a, s, q))
        print(f"    {{{a!r}, {s.hex()}, {q.hex()}, {fixed >> 64:#x}, {fixed & (2**64 - 1):#x}}},")
        sys.stdout.flush()
    print("};\n\n#endif")


main()
