#!/usr/bin/env python3
"""Makes the inputs of tests/fuzz/corpus/imatrix. The same call writes the same bytes.

usage: make_imatrix_corpus.py
"""
import struct

from make_corpus import ARRAY, STRING, U32, container, key, string, strings, tensor, u32, write

KEYS = [key("general.type", STRING, string("imatrix")), key("imatrix.datasets", ARRAY, strings(["d.jsonl"])),
        key("imatrix.chunk_count", U32, u32(5)), key("imatrix.chunk_size", U32, u32(512))]


def matrix(entries, keys=None):
    """entries: (name, dimensions, values), laid out one after the other as F32."""
    infos, data = [], b""
    for name, dims, values in entries:
        infos.append(tensor(name, dims, 0, len(data)))
        data += struct.pack(f"<{len(values)}f", *values)
        data += bytes(-len(data) % 32)
    return container(KEYS if keys is None else keys, infos, data)


def entry(name, sums, counts, columns=4):
    return [(f"{name}.in_sum2", [columns, len(sums) // columns], sums), (f"{name}.counts", [1, len(counts)], counts)]


Q, EXPERTS = "blk.0.attn_q.weight", "blk.0.ffn_gate_exps.weight"
GOOD = {
    "one": matrix(entry(Q, [1, 2, 3, 4], [8])),
    "experts": matrix(entry(Q, [1, 2, 3, 4], [8]) + entry(EXPERTS, [0, 1, 2, 3, 4, 5], [3, 0], 3)),
    "other_tensors": matrix(entry(Q, [0, 0, 0, 0], [0]) + [("else", [4], [1, 2, 3, 4])], KEYS[:1]),
}
BAD = {
    "nothing": matrix([]),
    "kind": matrix(entry(Q, [1, 2, 3, 4], [8]), [key("general.type", STRING, string("model"))]),
    "no_kind": matrix(entry(Q, [1, 2, 3, 4], [8]), []),
    "nan": matrix(entry(Q, [1, float("nan"), 3, 4], [8])),
    "inf": matrix(entry(Q, [1, float("inf"), 3, 4], [8])),
    "negative": matrix(entry(Q, [1, -2, 3, 4], [8])),
    "negative_count": matrix(entry(Q, [1, 2, 3, 4], [-8])),
    "tiny_count": matrix(entry(Q, [1e20, 2, 3, 4], [1e-20])),
    "counts": matrix(entry(Q, [1, 2, 3, 4], [8, 8])),
    "no_counts": matrix(entry(Q, [1, 2, 3, 4], [8])[:1]),
    "no_sums": matrix(entry(Q, [1, 2, 3, 4], [8])[1:]),
    "halves": container(KEYS, [tensor(f"{Q}.in_sum2", [4], 1, 0), tensor(f"{Q}.counts", [1], 0, 32)],
                        bytes(32) + struct.pack("<f", 1) + bytes(28)),
}

if __name__ == "__main__":
    write("imatrix", "good", GOOD)
    write("imatrix", "bad", BAD)
