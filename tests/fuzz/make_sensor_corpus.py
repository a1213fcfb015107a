#!/usr/bin/env python3
"""Makes the inputs of tests/fuzz/corpus/{sensor,sensor_file}: readings as CSV, and a small encoder whole and broken;
also lines of datasets that name sensors and sound.

usage: make_sensor_corpus.py
"""
import json
import struct

from make_corpus import ARRAY, STRING, U32, container, key, string, strings, tensor, u32, u64, write

F32, FLOAT = 6, 0


def readings():
    good = {
        "plain": b"time,speed,rpm\n0,50,1800\n0.1,51,1810\n0.2,52,1820\n",
        "gaps": b"t,rpm,speed\n100,,40\n100.1,1000,\n104.9,1200,41\n",
        "crlf": b"time,speed\r\n0,1\r\n0.5,2\r\n",
        "mark": b"\xef\xbb\xbftime,speed\n0,1\n",
        "quotes": b'"time","speed"\n"0","1.5"\n"1e-1",""',
        "spaces": b"time , speed\n 0 , 1 \n\n\n 0.25 , 2 \n",
        "far": b"time,speed\n0,1e300\n0.1,-1e300\n",
        "origin": b"time,rpm\n1760000000.05,900\n1760000000.15,901\n",
        "longest": b"time,speed\n0,0\n51.1,9\n",
    }
    bad = {
        "empty": b"", "header": b"time,speed\n", "no_header": b"0,1\n1,2\n", "no_time": b"speed\n1\n",
        "time_alone": b"time\n0\n", "unknown": b"time,volts\n0,1\n", "twice": b"time,speed,speed\n0,1,1\n",
        "nan": b"time,speed\n0,nan\n", "inf": b"time,speed\n0,inf\n", "huge": b"time,speed\n0,1e999\n",
        "hex": b"time,speed\n0,0x1p3\n", "back": b"time,speed\n1,1\n0,1\n", "same": b"time,speed\n1,1\n1,1\n",
        "few": b"time,speed\n0\n", "many": b"time,speed\n0,1,2\n", "nul": b"time,speed\n0,1\0\n",
        "quote": b'time,speed\n0,"1\n', "inside": b'time,speed\n0,1"1"\n', "long": b"time,speed\n0,0\n51.3,9\n",
        "cell": b"time,speed\n0," + b"1" * 300 + b"\n", "cells": b"time,speed\n" + b"," * 3000,
        "columns": b",".join([b"speed"] * 500), "binary": bytes(range(1, 256)),
    }
    return good, bad


def floats(values):
    return u32(F32) + u64(len(values)) + struct.pack(f"<{len(values)}f", *values)


def encoder(skip="", extra=(), **changes):
    fields = {"channels": strings(["speed", "rpm"]), "units": strings(["km/h", ""]), "mean": floats([60, 2000]),
              "std": floats([20, 500]), "max_gap": floats([0.3, 5]), "rate": struct.pack("<f", 10),
              "patch_length": u32(2), "max_patches": u32(3)}
    fields.update(changes)
    kinds = {"rate": F32, "patch_length": U32, "max_patches": U32}
    keys = [key("general.architecture", STRING, string("tacit.sensor"))]
    keys += [key("tacit.sensor." + name, kinds.get(name, ARRAY), value) for name, value in fields.items()
             if name != skip]
    infos, data = [], b""
    shapes = [("s.patch_embd.weight", [8, 4]), ("s.patch_embd.bias", [4]), ("s.position_embd.weight", [4, 3]),
              ("mm.s.fc.weight", [4, 6]), ("mm.s.fc.bias", [6]), *extra]
    for name, dims in shapes:
        if name == skip:
            continue
        n = 1
        for size in dims:
            n *= size
        infos.append(tensor(name, dims, FLOAT, len(data)))
        data += struct.pack(f"<{n}f", *[(i % 7 - 3) / 8 for i in range(n)])
        data += bytes(-len(data) % 32)
    return container(keys, infos, data)


def encoders():
    good = {"tiny": encoder(), "no_units": encoder(skip="units")}
    bad = {"none": container(), "extra": encoder(extra=[("x", [4])]), "mean_count": encoder(mean=floats([1])),
           "std_zero": encoder(std=floats([1, 0])), "std_nan": encoder(std=floats([1, float("nan")])),
           "twice": encoder(channels=strings(["a", "a"])), "time": encoder(channels=strings(["time", "a"])),
           "no_channels": encoder(channels=strings([])), "many": encoder(channels=strings([str(i) for i in range(99)])),
           "rate": encoder(rate=struct.pack("<f", 0)), "length": encoder(patch_length=u32(3)),
           "zero_length": encoder(patch_length=u32(0)), "patches": encoder(max_patches=u32(4000000000)),
           "control": encoder(channels=strings(["a", "b\n"]))}
    for name in ("mean", "std", "max_gap", "rate", "patch_length", "max_patches", "channels", "mm.s.fc.bias",
                 "s.patch_embd.weight"):
        bad["no_" + name] = encoder(skip=name)
    return good, bad


def lines():
    def record(*content):
        return json.dumps({"id": "r1", "messages": [{"role": "user", "content": list(content)},
                                                    {"role": "assistant", "content": "a"}]}).encode()
    question = {"type": "text", "text": "?"}
    good = {"sensor": record({"type": "sensor", "sensor": "can/1.csv"}, question),
            "audio": record({"type": "audio", "audio": "1.wav"}, {"type": "image", "image": "1.png"}, question)}
    bad = {"sensor_outside": record({"type": "sensor", "sensor": "/dev/zero"}, question),
           "audio_key": record({"type": "audio", "sensor": "1.csv"}, question)}
    return good, bad


def main():
    for target, (good, bad) in (("sensor", readings()), ("sensor_file", encoders()), ("dataset", lines())):
        write(target, "good", good)
        write(target, "bad", bad)


if __name__ == "__main__":
    main()
