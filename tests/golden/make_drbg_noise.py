#!/usr/bin/env python3
"""Known answers for the random generator and the noise, independent of the C code: BLAKE2b from
hashlib, ChaCha20 (64-bit counter) written out below, and the sampler's acceptance in exact integers
and 60-digit decimals instead of fixed point. Writes drbg_noise.h on standard output.

    python3 tests/golden/make_drbg_noise.py > tests/golden/drbg_noise.h
"""
import hashlib
import struct
from decimal import Decimal, getcontext
from fractions import Fraction
from math import isqrt

getcontext().prec = 60
BLOCK = 16384


def rotate(v, n):
    return (v << n | v >> (32 - n)) & 0xFFFFFFFF


def quarter(s, a, b, c, d):
    for x, y, z, n in ((a, b, d, 16), (c, d, b, 12), (a, b, d, 8), (c, d, b, 7)):
        s[x] = (s[x] + s[y]) & 0xFFFFFFFF
        s[z] = rotate(s[z] ^ s[x], n)


def chacha20(key, size):
    out = b""
    for counter in range((size + 63) // 64):
        start = list(struct.unpack("<4I", b"expand 32-byte k")) + list(struct.unpack("<8I", key))
        start += [counter & 0xFFFFFFFF, counter >> 32, 0, 0]
        s = start[:]
        for _ in range(10):
            for i in range(4):
                quarter(s, i, i + 4, i + 8, i + 12)
            for i in range(4):
                quarter(s, i, 4 + (i + 1) % 4, 8 + (i + 2) % 4, 12 + (i + 3) % 4)
        out += struct.pack("<16I", *((a + b) & 0xFFFFFFFF for a, b in zip(s, start)))
    return out[:size]


def drbg(seed, domain, nonce, size):
    key = hashlib.blake2b(b"tacit-drbg-1\0" + domain + b"\0" + nonce, key=seed, digest_size=32).digest()
    out = b""
    while len(out) < size:
        block = chacha20(key, BLOCK)
        key = block[:32]
        out += block[32:]
    return out[:size]


def ceiling(fraction):
    return -(-fraction.numerator // fraction.denominator)


def y_table():
    """2^128 P(y <= k), k = 0..7."""
    total = sum(Fraction(1, 2 ** (y * y)) for y in range(9))
    reached, table = Fraction(0), []
    for y in range(8):
        reached += Fraction(1, 2 ** (y * y))
        table.append(reached / total * 2**128)
    return table


TABLE = y_table()


def exponent(b, y, u):
    """Whole part and fraction of (u^2 + 2 b y u) / b^2."""
    t = Fraction(u * u + 2 * b * y * u, b * b)
    return t.numerator // t.denominator, t % 1


def threshold(fraction):
    """2^128 (1 - 2^-fraction)."""
    power = Decimal(2) ** (-Decimal(fraction.numerator) / Decimal(fraction.denominator))
    return (1 - power) * 2**128


def noise(b, stream, trials):
    values = []
    for t in range(trials):
        w = struct.unpack_from("<4Q", stream, 32 * t)
        below = (w[3] >> 32 & (2**31 - 1)) << 33  # spare bits, below words 0 and 2
        y = sum((w[0] << 64) + below >= entry for entry in TABLE)
        u, low = w[1] * b >> 64, w[1] * b % 2**64
        if low < 2**64 % b:
            continue
        whole, fraction = exponent(b, y, u)
        if w[3] & (2**whole - 1):
            continue
        if Decimal((w[2] << 64) + below) < threshold(fraction):
            continue
        x = b * y + u
        if w[3] >> 63:
            if x == 0:
                continue
            x = -x
        values.append(x)
    return values


def in_words(n):
    """A 95-bit number as word and spare bits."""
    return "0x%016x, 0x%08x" % (n >> 31, n & (2**31 - 1))


def pell(n):
    """Solutions (x, b) of x^2 - n b^2 = 1 with b up to 2^31, from the least."""
    b = next((b for b in range(1, 20000) if isqrt(n * b * b + 1) ** 2 == n * b * b + 1), None)
    first = (isqrt(n * b * b + 1), b) if b else (0, 2**32)
    x, b = first
    while b <= 2**31:
        yield x, b
        x, b = x * first[0] + n * b * first[1], x * first[1] + b * first[0]


def acceptance_cases():
    """(b, y, u): every size of b, ends of u, and for large b those whose exponent is within 1 / b^2 of
    an integer, from above (Pell numbers) and from below."""
    cases, state = [], 1
    for b in (1, 3, 5, 772, 65536, 77163, 1000003, 2**31 - 1, 2**31):
        for y in range(8):
            state = state * 6364136223846793005 % 2**64
            for u in sorted({0, 1 % b, b // 2, b - 1, (state >> 16) % b}):
                cases.append((b, y, u))
    for n in range(2, 64):
        if isqrt(n) ** 2 != n:
            cases += [(b, x // b, x % b) for x, b in pell(n) if b > 2**29]
    assert 1855077841**2 == 2 * 1311738121**2 - 1
    return cases + [(1311738121, 1, 1855077841 - 1311738121)]


def acceptance(b, y, u):
    y_word = int((TABLE[y - 1] if y else 0) + TABLE[y]) // 2 >> 64
    u_word = ((u << 64) + 2**64 % b + b - 1) // b  # the least that counts
    whole, fraction = exponent(b, y, u)
    least = ceiling(Fraction(threshold(fraction)) / 2**33)
    return "    {%d, 0x%016x, 0x%016x, %d, %d, %s}," % (b, y_word, u_word, b * y + u, whole, in_words(least))


def array(values, each):
    lines, line = [], "   "
    for v in values:
        word = " " + each(v) + ","
        if len(line) + len(word) > 100:
            lines.append(line)
            line = "   "
        line += word
    return "\n".join(lines + [line])


SEED = bytes(range(32))
NONCE = bytes(255 - i for i in range(32))
print("/* Made by make_drbg_noise.py: known answers for privacy/drbg.h and privacy/noise.h. Seed 0, 1,")
print(" * ..., 31; nonce 255, 254, ..., 224. */")
print("#ifndef TACIT_TESTS_GOLDEN_DRBG_NOISE_H\n#define TACIT_TESTS_GOLDEN_DRBG_NOISE_H\n\n#include <stdint.h>\n")
stream = drbg(SEED, b"noise", NONCE, 2 * BLOCK)
print("/* The first 64 bytes, and the 64 around the seam of the first two blocks. */")
print("static const uint8_t golden_drbg_start[64] = {\n" + array(stream[:64], str) + "\n};")
seam = BLOCK - 32
print("#define GOLDEN_DRBG_SEAM %d" % seam)
print("static const uint8_t golden_drbg_seam[64] = {\n" + array(stream[seam - 32 : seam + 32], str) + "\n};")
print("\n/* Noise from the same stream, 256 trials each. */")
for b in (1, 5, 772, 77163, 2**31):
    values = noise(b, stream, 256)
    print("static const int64_t golden_noise_%d[%d] = {" % (b, len(values)))
    print(array(values, str) + "\n};")
print("""
/* The law to 95 bits: a word of the trial and the 31 spare bits of its last word below it. */

/* The least number at which y becomes k + 1. */
static const struct golden_y {
    uint64_t word;
    uint32_t below;
} golden_y[8] = {""")
for entry in TABLE:
    print("    {%s}," % in_words(ceiling(entry / 2**33)))
print("""};

/* For x = b y + u: the zero bits asked for, and the least number accepted. */
static const struct golden_acceptance {
    uint64_t b, y_word, u_word;
    int64_t x;
    unsigned zeros;
    uint64_t word;
    uint32_t below;
} golden_acceptance[] = {""")
for case in acceptance_cases():
    print(acceptance(*case))
print("};")
print("\n#endif")
