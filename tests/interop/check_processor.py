#!/usr/bin/env python3
"""Pictures as Hugging Face's processors and Pillow prepare them, against Tacit's: tiles, number of
rows and pixels (at most 1 of 255 apart) of SmolVLM, LLaVA-OneVision and LLaVA-1.5 for 32 sizes, and
a few hundred random resizings.

usage: check_processor.py FOLDER_OF_PROGRAMS [RESIZINGS]     (needs transformers, Pillow, numpy)
"""
import os
import random
import subprocess
import sys

import numpy as np
from PIL import Image

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "golden"))
import make_processor as hf  # noqa: E402
from make_pictures import pattern  # noqa: E402

BIN, TIMES = sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else 400
FILTERS = (Image.BILINEAR, Image.BICUBIC, Image.LANCZOS)
passed = failed = 0


def check(what, problem):
    global passed, failed
    if problem:
        failed += 1
        print(f"{what}: {problem}")
    else:
        passed += 1


def apart(got, expected):
    """What is wrong with these pixels, or None; the worst difference and how many are not equal."""
    if got.shape != expected.shape:
        return f"shape {got.shape}, expected {expected.shape}", 0, 0
    off = np.abs(got.astype(int) - expected.astype(int))
    return (f"off by up to {off.max()}" if off.max() > 1 else None), off.max(), (off > 0).mean()


def frames(family, width, height, side):
    out = subprocess.run([f"{BIN}/test_media_layout", "frames", family, str(width), str(height)],
                         stdout=subprocess.PIPE, check=True).stdout
    line, pixels = out.split(b"\n", 1)
    return [int(x) for x in line.split()], np.frombuffer(pixels, np.uint8).reshape(-1, side, side, 3)


def check_frames():
    smolvlm, onevision = hf.smolvlm(), hf.onevision()
    worst = 0
    for width, height in hf.SIZES:
        picture = Image.fromarray(pattern(width, height))
        numbers, got = frames("smolvlm", width, height, 512)
        cut = smolvlm(picture, return_row_col_info=True)
        check(f"smolvlm {width} x {height}", None if numbers == [cut["rows"][0][0], cut["cols"][0][0]] else
              f"{numbers} tiles, expected {cut['rows']}, {cut['cols']}")
        problem, most, _ = apart(got, hf.frames_of(smolvlm, picture))
        check(f"smolvlm pixels {width} x {height}", problem)
        worst = max(worst, most)
        numbers, got = frames("onevision", width, height, 384)
        expected = list(hf.onevision_counts(onevision, width, height))
        check(f"onevision {width} x {height}", None if numbers[:3] == expected else f"{numbers}, expected {expected}")
        problem, most, _ = apart(got, hf.frames_of(onevision, picture))
        check(f"onevision pixels {width} x {height}", problem)
        worst = max(worst, most)
        problem, most, _ = apart(frames("llava", width, height, 336)[1], hf.padded(picture, 336, hf.CLIP_MEAN))
        check(f"llava-1.5 pixels {width} x {height}", problem)
        worst = max(worst, most)
    print(f"frames of {len(hf.SIZES)} sizes in three families: off by at most {worst} of 255")


def some_side(rng):
    return rng.choice([1, 2, 3, rng.randint(1, 40), rng.choice([97, 211, 499, 997]), rng.randint(1, 1200),
                       rng.choice([4096, 2048, 512, 384, 336])])


def check_resizings():
    rng = random.Random(5)
    cases = [(f, w, h, tw, th) for f in range(3)
             for w, h, tw, th in ((1, 77, 1, 4096), (77, 1, 4096, 1), (4096, 1, 1, 1), (1, 4096, 1, 1), (1, 1, 4096, 1),
                                  (4096, 3, 997, 2), (997, 991, 499, 503), (499, 503, 997, 991), (64, 4096, 60, 7),
                                  (4096, 64, 7, 60))]
    while len(cases) < TIMES:
        case = (rng.randrange(3), *(some_side(rng) for _ in range(4)))
        if case[1] * case[2] <= 1 << 20 and case[3] * case[4] <= 1 << 20:
            cases.append(case)
    lines = "".join("%d %d %d %d %d\n" % case for case in cases)
    out = subprocess.run([f"{BIN}/test_image", "resize"], input=lines.encode(), stdout=subprocess.PIPE, check=True).stdout
    at, worst, unequal = 0, 0, 0
    for f, w, h, tw, th in cases:
        expected = np.asarray(Image.fromarray(pattern(w, h)).resize((tw, th), FILTERS[f]))
        got = np.frombuffer(out, np.uint8, tw * th * 3, at).reshape(th, tw, 3)
        at += tw * th * 3
        problem, most, _ = apart(got, expected)
        check(f"filter {f}, {w} x {h} to {tw} x {th}", problem)
        worst, unequal = max(worst, most), unequal + (most > 0)
    print(f"{len(cases)} resizings: off by at most {worst} of 255, {len(cases) - unequal} equal to the last bit")


check_resizings()
check_frames()
print(f"{passed} passed, {failed} failed")
sys.exit(failed > 0)
