#!/usr/bin/env python3
"""Makes the inputs of tests/fuzz/corpus/export from exported folders: packed as fuzz_export.c reads them, and with one
fault each. Keys of exports are random, so another call writes other bytes.

usage: make_export_corpus.py EXPORT WITNESSED VKEY FLEET     (each of one partial bundle; EXPORT is small, of a server that was
                                                              started a few times, WITNESSED the same with a checkpoint
                                                              that the witness VKEY cosigned, FLEET one with rounds)
"""
import os
import struct
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
KEYS, CHECKPOINT, COSIGNED, LOG, OLD_CHECKPOINT, BUNDLE, BUNDLE32, HASHES, WITNESS = range(9)


def file(kind, data, index=0, width=0):
    return struct.pack("<BBBI", kind, index, width, len(data)) + data


def read(folder, name):
    with open(os.path.join(folder, name), "rb") as f:
        return f.read()


class Export:
    """The parts of a folder with one partial bundle."""

    def __init__(self, folder):
        self.keys, self.checkpoint = read(folder, "keys.txt"), read(folder, "checkpoint")
        self.width = int(os.listdir(os.path.join(folder, "tile/entries/000.p"))[0])
        self.bundle = read(folder, f"tile/entries/000.p/{self.width}")
        self.hashes = read(folder, f"tile/0/000.p/{self.width}")
        cosigned = os.path.join(folder, "cosigned")
        self.cosigned = read(folder, "cosigned") if os.path.exists(cosigned) else None

    def entries(self):
        at, out = 0, []
        while at < len(self.bundle):
            n = int.from_bytes(self.bundle[at:at + 2], "big")
            out.append(self.bundle[at + 2:at + 2 + n])
            at += 2 + n
        return out

    def pack(self, **other):
        p = {"keys": self.keys, "checkpoint": self.checkpoint, "bundle": self.bundle, "hashes": self.hashes,
             "cosigned": self.cosigned, "kind": BUNDLE, "bundle_width": self.width, "more": b"", **other}
        parts = [(KEYS, p["keys"], 0), (CHECKPOINT, p["checkpoint"], 0), (COSIGNED, p["cosigned"], 0),
                 (p["kind"], p["bundle"], p["bundle_width"]), (HASHES, p["hashes"], self.width)]
        return b"".join(file(kind, data, 0, width) for kind, data, width in parts if data is not None) + p["more"]


def flip(data, at):
    return data[:at] + bytes([data[at] ^ 1]) + data[at + 1:]


def bundle(entries, wide=False):
    return b"".join(len(e).to_bytes(4 if wide else 2, "big") + e for e in entries)


def resized(checkpoint, size):
    lines = checkpoint.split(b"\n")
    lines[1] = str(size).encode()
    return b"\n".join(lines)


def corpus(x, w, vkey, fleet):
    entries = x.entries()
    old = b"".join(struct.pack("<I", len(e)) + e for e in entries)
    named = file(WITNESS, vkey)
    good = {
        "tiles": x.pack(),
        "fleet": fleet.pack(),
        "wide": x.pack(bundle=bundle(entries, True), kind=BUNDLE32),
        "whole_for_part": x.pack(bundle=bundle((entries * 52)[:256]), bundle_width=0),
        "old": file(KEYS, x.keys) + file(OLD_CHECKPOINT, x.checkpoint) + file(LOG, old),
        "cosigned": w.pack(),
        "witnessed": w.pack(more=named),
    }
    bad = {
        "nothing": b"",
        "no_keys": x.pack(keys=None),
        "keys_twice": x.pack(keys=x.keys + x.keys),
        "keys_nul": x.pack(keys=x.keys + b"\0"),
        "no_checkpoint": x.pack(checkpoint=None),
        "flipped_checkpoint": x.pack(checkpoint=flip(x.checkpoint, len(x.checkpoint) - 10)),
        "larger": x.pack(checkpoint=resized(x.checkpoint, x.width + 1)),
        "largest": x.pack(checkpoint=resized(x.checkpoint, 2**64 - 1)),
        "smaller": x.pack(checkpoint=resized(x.checkpoint, x.width - 1)),
        "empty_log": x.pack(checkpoint=resized(x.checkpoint, 0)),
        "no_bundle": x.pack(bundle=None),
        "empty_bundle": x.pack(bundle=b""),
        "cut_bundle": x.pack(bundle=x.bundle[:-1]),
        "long_bundle": x.pack(bundle=x.bundle + b"\0"),
        "empty_entry": x.pack(bundle=b"\0\0" + x.bundle),
        "huge_entry": x.pack(bundle=b"\xff\xff\xff\xff", kind=BUNDLE32),
        "flipped_entry": x.pack(bundle=flip(x.bundle, 40)),
        "swapped_entries": x.pack(bundle=bundle(entries[:-2] + [entries[-1], entries[-2]])),
        "no_hashes": x.pack(hashes=None),
        "cut_hashes": x.pack(hashes=x.hashes[:-32]),
        "long_hashes": x.pack(hashes=x.hashes + bytes(32)),
        "flipped_hash": x.pack(hashes=flip(x.hashes, 100)),
        "two_tiles": file(KEYS, x.keys) + file(CHECKPOINT, resized(x.checkpoint, 257)) +
                     file(BUNDLE, bundle([b"x"] * 256)) + file(BUNDLE, bundle([b"y"]), 1, 1),
        "old_cut": file(KEYS, x.keys) + file(OLD_CHECKPOINT, x.checkpoint) + file(LOG, old[:-1]),
        "cosigned_flipped": w.pack(cosigned=flip(w.cosigned, len(w.cosigned) - 10), more=named),
        "cosigned_larger": w.pack(cosigned=resized(w.cosigned, w.width + 1), more=named),
        "not_cosigned": w.pack(cosigned=None, more=named),
        "by_nobody": w.pack(cosigned=w.checkpoint, more=named),
    }
    return good, bad


def main():
    if len(sys.argv) != 5:
        sys.exit(__doc__)
    good, bad = corpus(Export(sys.argv[1]), Export(sys.argv[2]), sys.argv[3].encode(), Export(sys.argv[4]))
    for folder, inputs in (("good", good), ("bad", bad)):
        path = os.path.join(HERE, "corpus", "export", folder)
        os.makedirs(path, exist_ok=True)
        for name, data in inputs.items():
            with open(os.path.join(path, name), "wb") as f:
                f.write(data)


if __name__ == "__main__":
    main()
