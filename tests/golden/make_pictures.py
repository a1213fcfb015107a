#!/usr/bin/env python3
"""Writes what Pillow decodes and resizes, the oracle of test_image.c.

usage: make_pictures.py > pictures_pillow.h
       make_pictures.py digests > resized_pillow.h     (needs Pillow 13 and numpy)
"""
import io
import sys

import numpy as np
from PIL import Image


def pattern(width, height, channels=3):
    y, x, c = np.mgrid[0:height, 0:width, 0:channels]
    return ((x * 37 + y * 101 + c * 59 + x * y * 7) & 255).astype(np.uint8)


def smooth(width, height, channels=3):
    y, x, c = np.mgrid[0:height, 0:width, 0:channels]
    return (128 + 90 * np.sin(x / 5 + c) * np.cos(y / 7 - c)).astype(np.uint8)


def array(name, data):
    print(f"static const unsigned char {name}[] = {{")
    data = bytes(data)
    for at in range(0, len(data), 20):
        print("    " + " ".join(f"{b}," for b in data[at:at + 20]))
    print("};")


def encoded(image, form, **options):
    out = io.BytesIO()
    image.save(out, form, **options)
    return out.getvalue()


def pictures():
    grey = Image.fromarray(pattern(9, 7, 1)[:, :, 0])
    colour = Image.fromarray(pattern(9, 7))
    soft = Image.fromarray(smooth(24, 18))
    rgba = Image.fromarray(pattern(9, 7, 4), "RGBA")
    wide = Image.fromarray((pattern(9, 7, 1)[:, :, 0].astype(np.uint16) * 251 + 77))
    cmyk = Image.fromarray(smooth(24, 18, 4), "CMYK")
    yield "png_colour", encoded(colour, "PNG"), colour
    yield "png_grey", encoded(grey, "PNG"), grey
    yield "png_alpha", encoded(rgba, "PNG"), rgba
    yield "png_palette", encoded(colour.quantize(11), "PNG"), colour.quantize(11)
    yield "png_bits", encoded(grey.convert("1"), "PNG"), grey.convert("1")
    high = Image.fromarray((np.asarray(wide) >> 8).astype(np.uint8))
    yield "png_sixteen", encoded(wide, "PNG"), high
    for name, options in (
        ("jpeg_plain", dict(quality=90)),
        ("jpeg_full", dict(quality=95, subsampling=0)),
        ("jpeg_progressive", dict(quality=80, progressive=True)),
    ):
        data = encoded(soft, "JPEG", **options)
        yield name, data, Image.open(io.BytesIO(data))
    data = encoded(soft.convert("L"), "JPEG")
    yield "jpeg_grey", data, Image.open(io.BytesIO(data))
    data = encoded(cmyk, "JPEG", quality=90)
    yield "jpeg_cmyk", data, Image.open(io.BytesIO(data))


FILTERS = (("TACIT_IMAGE_BILINEAR", Image.BILINEAR), ("TACIT_IMAGE_BICUBIC", Image.BICUBIC),
           ("TACIT_IMAGE_LANCZOS", Image.LANCZOS))
# Lines and columns to and from 4096, primes, both orders of the passes and sizes at their border.
DIGESTED = ((1, 1, 1, 4096), (1, 1, 4096, 1), (1, 4096, 1, 1), (4096, 1, 1, 1), (1, 77, 4096, 1), (77, 1, 1, 4096),
            (1, 1, 37, 41), (2, 3, 101, 97), (211, 199, 97, 101), (97, 101, 211, 199), (499, 7, 503, 5), (7, 499, 5, 503),
            (499, 7, 503, 11), (4096, 3, 997, 2), (3, 4096, 2, 997), (64, 4096, 60, 7), (28, 64, 13, 34),
            (28, 65, 13, 34), (60, 13, 2048, 3), (480, 640, 384, 384), (640, 480, 384, 384), (384, 383, 336, 336))


def fnv(data):
    """FNV-1a, 64 bits."""
    h = 0xCBF29CE484222325
    for byte in data:
        h = (h ^ byte) * 0x100000001B3 & 0xFFFFFFFFFFFFFFFF
    return h


def digests():
    print("/* Made by make_pictures.py; see there. */")
    print("static const struct {\n    tacit_image_filter filter;\n    unsigned width, height, to_width, to_height;\n"
          "    unsigned long long digest; /* FNV-1a of the pixels */\n} digested[] = {")
    for word, resample in FILTERS:
        for w, h, to_w, to_h in DIGESTED:
            pixels = Image.fromarray(pattern(w, h)).resize((to_w, to_h), resample).tobytes()
            print(f"    {{{word}, {w}, {h}, {to_w}, {to_h}, 0x{fnv(pixels):016x}}},")
    print("};")


def main():
    print("/* Made by make_pictures.py; see there. */")
    rows = []
    for name, data, image in pictures():
        rgb = image.convert("RGB")
        array(name, data)
        array(name + "_rgb", rgb.tobytes())
        rows.append(f'    {{"{name}", {name}, sizeof {name}, {rgb.width}, {rgb.height}, {name}_rgb}},')
    print("static const struct {\n    const char *name;\n    const unsigned char *data;\n"
          "    size_t size;\n    unsigned width, height;\n    const unsigned char *rgb;\n"
          "} pictures[] = {")
    print("\n".join(rows) + "\n};")
    rows = []
    sizes = ((17, 11, 7, 5), (17, 11, 23, 20), (17, 11, 17, 4), (17, 11, 3, 11), (64, 3, 1, 1),
             (40, 5, 9, 6), (17, 11, 17, 11))
    source = {(w, h): Image.fromarray(pattern(w, h)) for w, h, _, _ in sizes}
    for word, resample in FILTERS:
        for w, h, to_w, to_h in sizes:
            name = f"resized_{len(rows)}"
            array(name, source[w, h].resize((to_w, to_h), resample).tobytes())
            rows.append(f"    {{{word}, {w}, {h}, {to_w}, {to_h}, {name}}},")
    print("static const struct {\n    tacit_image_filter filter;\n"
          "    unsigned width, height, to_width, to_height;\n    const unsigned char *rgb;\n"
          "} resized[] = {")
    print("\n".join(rows) + "\n};")


if __name__ == "__main__":
    digests() if sys.argv[1:] == ["digests"] else main()
