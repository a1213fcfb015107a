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


def noise(b, stream, trials):
    total = sum(Fraction(1, 2 ** (y * y)) for y in range(9))
    table, reached = [], Fraction(0)
    for y in range(8):
        reached += Fraction(1, 2 ** (y * y))
        table.append(round(reached / total * 2**64))
    values = []
    for t in range(trials):
        w = struct.unpack_from("<4Q", stream, 32 * t)
        y = sum(w[0] >= entry for entry in table)
        u, low = w[1] * b >> 64, w[1] * b % 2**64
        if low < 2**64 % b:
            continue
        exponent = Fraction(u * u + 2 * b * y * u, b * b)
        whole = exponent.numerator // exponent.denominator
        fraction = exponent - whole
        if w[3] & (2**whole - 1):
            continue
        power = Decimal(2) ** (-Decimal(fraction.numerator) / Decimal(fraction.denominator))
        if Decimal(w[2]) < (1 - power) * 2**64:
            continue
        x = b * y + u
        if w[3] >> 63:
            if x == 0:
                continue
            x = -x
        values.append(x)
    return values


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
print("\n#endif")
