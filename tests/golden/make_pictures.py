#!/usr/bin/env python3
"""Writes pictures_pillow.h: what Pillow decodes and resizes, the oracle of test_image.c.

usage: make_pictures.py > pictures_pillow.h     (needs Pillow and numpy)
"""
import io

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
    filters = (("TACIT_IMAGE_BILINEAR", Image.BILINEAR), ("TACIT_IMAGE_BICUBIC", Image.BICUBIC),
               ("TACIT_IMAGE_LANCZOS", Image.LANCZOS))
    sizes = ((17, 11, 7, 5), (17, 11, 23, 20), (17, 11, 17, 4), (17, 11, 3, 11), (64, 3, 1, 1),
             (40, 5, 9, 6), (17, 11, 17, 11))
    source = {(w, h): Image.fromarray(pattern(w, h)) for w, h, _, _ in sizes}
    for word, resample in filters:
        for w, h, to_w, to_h in sizes:
            name = f"resized_{len(rows)}"
            array(name, source[w, h].resize((to_w, to_h), resample).tobytes())
            rows.append(f"    {{{word}, {w}, {h}, {to_w}, {to_h}, {name}}},")
    print("static const struct {\n    tacit_image_filter filter;\n"
          "    unsigned width, height, to_width, to_height;\n    const unsigned char *rgb;\n"
          "} resized[] = {")
    print("\n".join(rows) + "\n};")


if __name__ == "__main__":
    main()
