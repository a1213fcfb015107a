#!/usr/bin/env python3
"""Makes the inputs of tests/fuzz/corpus/{plan,reply}: messages of proto/plan.proto, wire.proto and
update.proto, encoded here by hand. The same call writes the same bytes.

usage: make_plan_corpus.py
"""
import base64
import hashlib
import struct

from make_corpus import write


def varint(v):
    out = b""
    while v > 127:
        out += bytes([v & 127 | 128])
        v >>= 7
    return out + bytes([v])


def field(number, value):
    """proto3: integers as varints, floats as doubles, bytes and text by length; zeros are left out."""
    if isinstance(value, list):
        return b"".join(varint(number << 3 | 2) + varint(len(v)) + v for v in value)
    if isinstance(value, str):
        value = value.encode()
    if isinstance(value, bytes):
        return varint(number << 3 | 2) + varint(len(value)) + value if value else b""
    if isinstance(value, float):
        return varint(number << 3 | 1) + struct.pack("<d", value) if value else b""
    return varint(number << 3) + varint(value) if value else b""


def message(fields):
    return b"".join(field(n, fields[n]) for n in sorted(fields))


def mechanism(**change):
    f = {"kind": 2, "unit": 1, "neighbours": 1, "clip": 0.5, "b": 100000, "q": 2**32 // 20, "steps": 10,
         "divisor": 16.0, "examples": 1, **change}
    separation = f.pop("separation", 0)
    return message({**dict(zip(range(1, 15), f.values())), 20: separation})


def adapter(targets=("attn_output", "ffn_down"), rank=8, alpha=16.0, seed=bytes([9]) + bytes(31)):
    return message({1: 1, 2: [t.encode() for t in targets], 3: rank, 4: alpha, 5: seed})


ADAM = message({1: 2, 2: 0.02, 4: 0.9, 5: 0.99, 6: 1e-8})
BASE = b"\xba\xba" + bytes(30)


def schedule(m=None, a=None, **change):
    m, a = m or mechanism(), a or adapter()
    f = {1: 1, 2: b"\x11" * 16, 3: BASE, 4: a, 5: [message({1: m})] * 3, 6: 1e-5, 7: 2}
    f.update({int(k[1:]): v for k, v in change.items()})
    return message(f)


def plan(m=None, a=None, optimizer=ADAM, **change):
    m, a = m or mechanism(), a or adapter()
    f = {1: 1, 2: b"\xa0" * 16, 3: b"\x11" * 16, 4: bytes(31) + b"\x01", 6: BASE, 9: a, 10: 1000, 11: optimizer,
         12: m, 13: 1e-5, 14: 2, 15: 3.0, 16: float(2**20), 17: 3, 18: 2, 19: 3, 20: 1000, 21: 1, 22: b"\xcc" * 32,
         23: 256}
    f.update({int(k[1:]): v for k, v in change.items()})
    return message(f)


def offer(p=None, s=None, **both):
    p, s = p or plan(**both), s or schedule(**both)
    return struct.pack("<I", len(p)) + p + s


ADAPTIVE = {"quantile_b": 400000, "target": 0.5, "rate": 0.2, "clip_min": 0.05, "clip_max": 5.0}
SGD = message({1: 1, 2: 0.5, 3: 0.9})
WEAK, SUBJECT = mechanism(b=50000), mechanism(unit=2, examples=4)
NONE = mechanism(kind=1, clip=0.0, b=0)
WHOLE = mechanism(unit=3, q=2**32, steps=1, divisor=1.0, examples=4)
TREE = mechanism(kind=3, q=2**32, separation=5)
GRID = 65536 / 0.5  # one unit of the grid of clip norm 0.5
PLANS = {
    "good": {
        "adam": offer(),
        "sgd": offer(plan(optimizer=SGD)),
        "subject": offer(m=SUBJECT),
        "second_round": offer(plan(f5=1, f7=1, f8=b"\xf0" * 32)),
        "one_target": offer(a=adapter(targets=("attn_q",), rank=1)),
        "every_unit": offer(m=mechanism(q=2**32)),
        "adaptive": offer(m=mechanism(**ADAPTIVE)),
        "tree": offer(m=TREE),
        "device": offer(plan(m=WHOLE, f16=GRID, f24=100, f25=1), schedule(m=WHOLE)),
    },
    "bad": {
        "empty": b"",
        "length_beyond": struct.pack("<I", 2**32 - 1) + plan(),
        "no_schedule": offer()[: 4 + len(plan())],
        "cut_plan": offer(plan()[:-3]),
        "weak_noise": offer(m=WEAK),
        "no_noise": offer(m=NONE, f13=0.0, f6=0.0),
        "noise_of_another_schedule": offer(plan(m=WEAK)),
        "zero_clip": offer(m=mechanism(clip=0.0)),
        "nan_clip": offer(m=mechanism(clip=float("nan"))),
        "adaptive_half_set": offer(m=mechanism(**{**ADAPTIVE, "clip_max": 0.0})),
        "adaptive_weak_count": offer(m=mechanism(**{**ADAPTIVE, "quantile_b": 50000})),
        "adaptive_nan_rate": offer(m=mechanism(**{**ADAPTIVE, "rate": float("nan")})),
        "q_above_one": offer(m=mechanism(q=2**32 + 1)),
        "zero_steps": offer(m=mechanism(steps=0)),
        "unit_unknown": offer(m=mechanism(unit=9)),
        "wide_delta": offer(plan(f13=1e-2), schedule(f6=1e-2)),
        "small_cohort": offer(plan(f17=1, f18=1, f19=1)),
        "small_quorum": offer(plan(f18=1)),
        "quorum_above_cohort": offer(plan(f18=4)),
        "another_base": offer(plan(f6=b"\xbb" * 32), schedule(f3=b"\xbb" * 32)),
        "short_base": offer(plan(f6=b"\xba" * 31)),
        "long_pad": offer(plan(f21=2**31)),
        "round_beyond": offer(plan(f5=3)),
        "zero_alpha": offer(a=adapter(alpha=0.0)),
        "huge_rank": offer(a=adapter(rank=2**31)),
        "no_targets": offer(a=adapter(targets=())),
        "many_targets": offer(a=adapter(targets=["attn_q"] * 40)),
        "two_plans": offer(plan() + plan()),
        "unknown_field": offer(plan() + field(99, 1)),
        "tree_adaptive": offer(m=mechanism(kind=3, q=2**32, separation=5, **ADAPTIVE)),
        "tree_sampled": offer(m=mechanism(kind=3, separation=5)),
        "tree_without_separation": offer(m=mechanism(kind=3, q=2**32)),
        "tree_beyond_its_steps": offer(m=mechanism(kind=3, q=2**32, separation=11)),
        "separation_of_no_tree": offer(m=mechanism(separation=5)),
        "device_without_local_steps": offer(plan(m=WHOLE, f16=GRID), schedule(m=WHOLE)),
        "device_long": offer(plan(m=WHOLE, f16=GRID, f24=101), schedule(m=WHOLE)),
        "device_off_grid": offer(plan(m=WHOLE, f24=5), schedule(m=WHOLE)),
        "device_sampled": offer(plan(m=mechanism(unit=3, steps=1, divisor=1.0), f16=GRID, f24=5),
                                schedule(m=mechanism(unit=3, steps=1, divisor=1.0))),
        "record_local_steps": offer(plan(f24=5)),
        "record_colluders": offer(plan(f25=5)),
        "long_varint": offer(plan()[:-2] + b"\x80\x82\x00"),
    },
}


def note(size=1):
    text = "tacit.example/log\n%d\n%s\n" % (size, base64.b64encode(bytes(range(32))).decode())
    seal = base64.b64encode(b"\x01\x02\x03\x04" + bytes(64)).decode()
    return (text + "\n\u2014 tacit.example/log " + seal + "\n").encode()


HASH = hashlib.sha256(b"x").digest()


def check_in(**change):
    f = {1: note(), 2: [HASH, HASH], 3: plan(), 4: schedule(), 5: 3, 6: [HASH], 7: b"entry", 8: b"manifest",
         9: bytes([5]) * 64, 10: 1000, 17: 3.0}
    f.update({int(k[1:]): v for k, v in change.items()})
    return b"c" + message(f)


def manifest(**change):
    f = {1: 1, 2: b"\x11" * 16, 3: 2, 4: 1, 5: BASE, 6: HASH, 7: 4096, 8: b"\xa0" * 16, 9: 1.5, 10: 0.5, 11: 2.0,
         12: 2.0, 13: 1e-5, 14: "server"}
    f.update({int(k[1:]): v for k, v in change.items()})
    return b"m" + message(f)


REPLIES = {
    "good": {
        "hello": b"h" + message({1: 1, 2: 2, 3: "0.1.0", 4: b"\x07" * 32}),
        "enrol": b"e" + message({1: b"\xd0" * 16, 2: b"chain", 3: b"root", 4: HASH, 5: HASH, 6: "tacit.example/log",
                                 7: HASH, 8: note(), 9: 4}),
        "renew": b"n" + message({1: b"chain", 2: b"root"}),
        "check_in": check_in(),
        "nothing_to_do": b"c" + message({1: note(9), 10: 500}),
        "reserve": b"r" + message({1: 5, 2: note(), 3: [HASH], 4: b"\x03" * 32, 5: [HASH]}),
        "receipt": b"t" + message({1: 5, 2: note(), 3: [HASH] * 128}),
        "chunk": b"a" + message({1: b"bytes", 2: 5}),
        "begin": b"b" + message({1: 65536, 2: 131072}),
        "commit": b"u" + message({1: 1, 2: "ok", 3: 9}),
        "manifest": manifest(),
    },
    "bad": {
        "empty": b"",
        "no_such_message": b"z" + message({1: 1}),
        "cut": check_in()[:-4],
        "field_too_long": b"a" + b"\x0a\xff\xff\xff\xff\x0f",
        "unknown_field": b"a" + message({1: b"bytes", 2: 5, 9: 1}),
        "twice": b"a" + message({2: 5}) * 2,
        "note_without_root": check_in(f1=b"tacit.example/log\n1\n\n"),
        "short_hash": check_in(f6=[HASH[:31]]),
        "long_proof": check_in(f6=[HASH] * 129),
        "receipt_without_note": b"t" + message({1: 5, 3: [HASH]}),
        "not_text": b"u" + message({2: b"\xff\xfe"}),
        "manifest_format": manifest(f1=2),
        "manifest_lineage": manifest(f2=b"\x11" * 15),
        "manifest_version": manifest(f4=2),
        "manifest_empty_file": manifest(f7=0),
        "manifest_huge_file": manifest(f7=2**30 + 1),
        "manifest_cut": manifest()[:-1],
    },
}

if __name__ == "__main__":
    for name, folders in {"plan": PLANS, "reply": REPLIES}.items():
        for folder, inputs in folders.items():
            write(name, folder, inputs)
