#!/usr/bin/env python3
"""Writes processor_frames.h: how Hugging Face's processors of SmolVLM and LLaVA-OneVision cut
pictures of 32 sizes and what rows and tokens these become, and the pixels of frames of small towers
of the same kinds.

usage: make_processor.py > processor_frames.h     (needs transformers, Pillow, numpy)
"""
import math
import os
import sys

import numpy as np
from PIL import Image

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from make_pictures import array, pattern  # noqa: E402

from transformers.image_processing_utils import select_best_resolution  # noqa: E402
from transformers.models.llava_onevision.image_processing_pil_llava_onevision import (  # noqa: E402
    LlavaOnevisionImageProcessorPil)
from transformers.models.llava_onevision.processing_llava_onevision import LlavaOnevisionProcessor  # noqa: E402
from transformers.models.smolvlm.image_processing_pil_smolvlm import SmolVLMImageProcessorPil  # noqa: E402
from transformers.models.smolvlm.processing_smolvlm import get_image_prompt_string  # noqa: E402

SIZES = [(1, 1), (1, 20), (20, 1), (2, 3), (17, 31), (100, 90), (384, 384), (511, 512), (512, 512), (513, 512),
         (512, 513), (640, 480), (480, 640), (1024, 768), (1024, 1024), (1025, 1024), (1153, 769), (1536, 512),
         (2048, 512), (2048, 2048), (2049, 2048), (2047, 2048), (2560, 1440), (1440, 2560), (3000, 4000),
         (4000, 3000), (5000, 3000), (100, 2000), (2000, 100), (1, 5000), (5000, 1), (333, 1777)]
HALF = [0.5, 0.5, 0.5]
CLIP_MEAN, CLIP_STD = [0.48145466, 0.4578275, 0.40821073], [0.26862954, 0.26130258, 0.27577711]


def smolvlm(longest=2048, tile=512):
    """The processor with the values of SmolVLM-256M's and 500M's public configuration."""
    return SmolVLMImageProcessorPil(size={"longest_edge": longest}, max_image_size={"longest_edge": tile},
                                    resample=Image.LANCZOS, image_mean=HALF, image_std=HALF)


def onevision(size=384, grid=6):
    """The processor with the values of LLaVA-OneVision-Qwen2-0.5B's."""
    pinpoints = [[size * h, size * w] for h in range(1, grid + 1) for w in range(1, grid + 1)]
    return LlavaOnevisionImageProcessorPil(size={"height": size, "width": size}, image_grid_pinpoints=pinpoints,
                                           resample=Image.BICUBIC, image_mean=HALF, image_std=HALF)


def frames_of(processor, image, mean=HALF, std=HALF):
    """What the processor yields, as bytes again: [frames, height, width, 3]."""
    planes = np.asarray(processor(image, return_tensors="np")["pixel_values"], np.float64)
    planes = planes.reshape(-1, *planes.shape[-3:])
    shaped = np.array(std).reshape(1, 3, 1, 1), np.array(mean).reshape(1, 3, 1, 1)
    return np.rint((planes * shaped[0] + shaped[1]) * 255).astype(np.uint8).transpose(0, 2, 3, 1)


def spell(rows, cols):
    """The prompt of a picture as test_media_layout.c writes sequences."""
    text = get_image_prompt_string(rows, cols, 1, "F", "@", "G")
    out, frame = "", 0
    for at, char in enumerate(text):
        if char == "@":
            out += f"[{frame}]"
            frame += 1
        else:
            out += char
    for r in range(rows):
        for c in range(cols):
            out = out.replace(f"<row_{r + 1}_col_{c + 1}>", f"{r + 1},{c + 1}")
    return out


class Rows(LlavaOnevisionProcessor):
    """The counting of the processor without the parts that files are needed for."""

    def __init__(self, processor, grid, max_tiles):
        self.image_processor = processor
        self.num_image_tokens = grid * grid
        self.vision_aspect_ratio = f"anyres_max_{max_tiles}"


def onevision_counts(processor, width, height, grid=27, tile=384, max_tiles=9):
    best = select_best_resolution([height, width], processor.image_grid_pinpoints)
    total = Rows(processor, grid, max_tiles)._get_number_of_features(height, width, tile, tile)
    return best[0] // tile, best[1] // tile, total


def padded(picture, size, mean):
    """LLaVA-1.5's process_images: expand2square on the mean colour, bicubic to one frame."""
    side = max(picture.size)
    square = Image.new("RGB", (side, side), tuple(int(x * 255) for x in mean))
    square.paste(picture, ((side - picture.width) // 2, (side - picture.height) // 2))
    return np.asarray(square.resize((size, size), Image.BICUBIC))[None]


def write_small(name, cases):
    rows = []
    for width, height, frames in cases:
        array(f"{name}_{width}_{height}", frames.tobytes())
        rows.append(f"    {{{width}, {height}, {len(frames)}, {name}_{width}_{height}}},")
    print(f"static const processed {name}[] = {{\n" + "\n".join(rows) + "\n};")


def main():
    print("/* Made by make_processor.py; see there. */")
    print("static const struct {\n    unsigned width, height, rows, cols;\n    const char *sequence;\n} smolvlm[] = {")
    for width, height in SIZES:
        rows, cols = smolvlm().get_number_of_image_patches(height, width)[1:]
        rows, cols = (0, 0) if rows * cols == 1 else (rows, cols)
        print(f"    {{{width}, {height}, {rows}, {cols}, {chr(34)}{spell(rows, cols)!s}{chr(34)}}},"
              .replace("\n", "\\n"))
    print("};")
    print("static const struct {\n    unsigned width, height, rows, cols, total;\n} onevision[] = {")
    for width, height in SIZES:
        print("    {%d, %d, %d, %d, %d}," % (width, height, *onevision_counts(onevision(), width, height)))
    print("};")
    print("typedef struct processed {\n    unsigned width, height, frames;\n    const unsigned char *rgb;\n} processed;")
    small = [(9, 7), (1, 20), (40, 3), (24, 24), (33, 50)]
    picture = {size: Image.fromarray(pattern(*size)) for size in small}
    write_small("small_smolvlm", [(*size, frames_of(smolvlm(24, 8), picture[size])) for size in small])
    write_small("small_onevision", [(*size, frames_of(onevision(8, 3), picture[size])) for size in small])
    write_small("small_padded", [(*size, padded(picture[size], 8, CLIP_MEAN)) for size in small])


if __name__ == "__main__":
    main()
