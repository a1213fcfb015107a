#!/usr/bin/env python3
"""Makes the inputs of tests/fuzz/corpus/{image,dataset,mmproj}: pictures as Pillow writes them (see
tests/golden/make_pictures.py) and damaged, lines of datasets, a small tower whole and broken.

usage: make_media_corpus.py     (needs Pillow and numpy)
"""
import contextlib
import io
import json
import os
import struct
import sys
import zlib

from make_corpus import ARRAY, HERE, STRING, U32, container, key, string, tensor, u32, u64, write

sys.path.insert(0, os.path.join(HERE, "..", "golden"))
F32, BOOL, FLOAT = 6, 7, 0


def images():
    with contextlib.redirect_stdout(io.StringIO()):
        import make_pictures
    good = {name: data for name, data, _ in make_pictures.pictures()}
    wide = bytearray(good["png_grey"])
    wide[16:24] = struct.pack(">II", 20000, 1)
    wide[29:33] = struct.pack(">I", zlib.crc32(bytes(wide[12:29])))
    huge = bytearray(good["jpeg_plain"])
    at = huge.index(b"\xff\xc0")
    huge[at + 5:at + 9] = b"\xf0" * 4
    bad = {"empty": b"", "gif": b"GIF89a......", "wide_png": bytes(wide), "huge_jpeg": bytes(huge)}
    for name in ("jpeg_progressive", "png_palette"):
        bad["half_" + name] = good[name][:len(good[name]) // 2]
    return good, bad


def record(**changes):
    fields = {"id": "r1", "subject": "p-017", "messages": [
        {"role": "user", "content": [{"type": "image", "image": "img/1.jpg"}, {"type": "text", "text": "What?"}]},
        {"role": "assistant", "content": [{"type": "text", "text": "72"}]}]}
    fields.update(changes)
    return json.dumps(fields).encode()


def lines():
    plain = [{"role": "user", "content": "q"}, {"role": "assistant", "content": "a"}]
    out = [{"role": "user", "content": [{"type": "image", "image": "../x"}]}, plain[1]]
    good = {"design": record(), "plain": record(messages=plain), "space": b"  " + record() + b" "}
    bad = {"empty": b"", "deep": b"[" * 5000, "number": b"7", "twice": b'{"id":"a","id":"b"}', "outside": record(messages=out),
           "no_answer": record(messages=plain[:1]), "extra": record(other=1), "nul": record(id="a\0b"),
           "bytes": record().replace(b"What", b"\xff\xfe")}
    return good, bad


SIZES = {"image_size": 8, "patch_size": 2, "embedding_length": 4, "feed_forward_length": 8, "block_count": 1,
         "attention.head_count": 2, "projector.scale_factor": 2, "preproc_image_size": 8}


def tensors(shapes):
    """Infos and data of tensors of small values."""
    infos, data = [], b""
    for name, dims in shapes:
        n = 1
        for size in dims:
            n *= size
        infos.append(tensor(name, dims, FLOAT, len(data)))
        data += struct.pack(f"<{n}f", *[(i % 7 - 3) / 8 for i in range(n)])
        data += bytes(-len(data) % 32)
    return infos, data


def tower(skip="", **changes):
    sizes = {**SIZES, **{name.replace("__", "."): value for name, value in changes.items()}}
    half = u32(F32) + u64(3) + struct.pack("<3f", 0.5, 0.5, 0.5)
    keys = [key("general.architecture", STRING, string("clip")), key("clip.has_vision_encoder", BOOL, b"\x01"),
            key("clip.projector_type", STRING, string("idefics3")), key("clip.use_gelu", BOOL, b"\x01")]
    keys += [key("clip.vision." + name, U32, u32(value)) for name, value in sizes.items()]
    keys += [key("clip.vision.attention.layer_norm_epsilon", F32, struct.pack("<f", 1e-6)),
             key("clip.vision.image_mean", ARRAY, half), key("clip.vision.image_std", ARRAY, half)]
    shapes = [("v.patch_embd.weight", [2, 2, 3, 4]), ("v.patch_embd.bias", [4]), ("v.position_embd.weight", [4, 16])]
    for part, dims in (("ln1", [4]), ("attn_q", [4, 4]), ("attn_k", [4, 4]), ("attn_v", [4, 4]), ("attn_out", [4, 4]),
                       ("ln2", [4]), ("ffn_up", [4, 8]), ("ffn_down", [8, 4])):
        shapes += [(f"v.blk.0.{part}.weight", dims), (f"v.blk.0.{part}.bias", dims[-1:])]
    shapes += [("v.post_ln.weight", [4]), ("v.post_ln.bias", [4]), ("mm.model.fc.weight", [16, 4])]
    return container(keys, *tensors([shape for shape in shapes if shape[0] != skip]))


MLP_SIZES = {name: value for name, value in SIZES.items() if name[:4] not in ("proj", "prep")}


def llava(kind="mlp", clip=False, pinpoints=(), aspect="", features=(), skip="", **changes):
    """A tower with the projector of LLaVA: class token and norm before the blocks where it is CLIP's."""
    sizes = {**MLP_SIZES, **{name.replace("__", "."): value for name, value in changes.items()}}
    half = u32(F32) + u64(3) + struct.pack("<3f", 0.5, 0.5, 0.5)
    keys = [key("general.architecture", STRING, string("clip")), key("clip.has_vision_encoder", BOOL, b"\x01"),
            key("clip.projector_type", STRING, string(kind)), key("clip.use_gelu", BOOL, bytes([not clip]))]
    keys += [key("clip.vision." + name, U32, u32(value)) for name, value in sizes.items()]
    keys += [key("clip.vision.attention.layer_norm_epsilon", F32, struct.pack("<f", 1e-6)),
             key("clip.vision.image_mean", ARRAY, half), key("clip.vision.image_std", ARRAY, half)]
    for name, numbers in (("image_grid_pinpoints", pinpoints), ("feature_layer", features)):
        if numbers:
            keys.append(key("clip.vision." + name, ARRAY, u32(5) + u64(len(numbers)) + b"".join(u32(n) for n in numbers)))
    if aspect:
        keys.append(key("clip.vision.image_aspect_ratio", STRING, string(aspect)))
    wide = 4 * max(1, len(features))
    shapes = [("v.patch_embd.weight", [2, 2, 3, 4]), ("v.position_embd.weight", [4, 16 + clip])]
    if clip:
        shapes += [("v.class_embd", [4]), ("v.pre_ln.weight", [4]), ("v.pre_ln.bias", [4])]
    for part, dims in (("ln1", [4]), ("attn_q", [4, 4]), ("attn_k", [4, 4]), ("attn_v", [4, 4]), ("attn_out", [4, 4]),
                       ("ln2", [4]), ("ffn_down", [4, 8]), ("ffn_up", [8, 4])):
        shapes += [(f"v.blk.0.{part}.weight", dims), (f"v.blk.0.{part}.bias", dims[-1:])]
    shapes += [("mm.0.weight", [wide, 6]), ("mm.0.bias", [6]), ("mm.2.weight", [6, 4]), ("mm.2.bias", [4]),
               ("model.image_newline", [4])]
    return container(keys, *tensors([shape for shape in shapes if shape[0] != skip]))


def towers():
    good = {"tiny": tower(), "llava": llava(clip=True), "states": llava(clip=True, features=(0, 1)),
            "onevision": llava(pinpoints=(8, 8, 16, 8, 16, 24), aspect="anyres_max_2"),
            "next": llava(clip=True, pinpoints=(8, 16, 16, 16)), "odd_patch": llava(image_size=9),
            "odd_tile": tower(image_size=9)}
    bad = {"no_projector": tower(skip="mm.model.fc.weight"), "no_bias": tower(skip="v.blk.0.attn_q.bias"),
           "patch": tower(patch_size=3), "zero_patch": tower(patch_size=0), "scale": tower(projector__scale_factor=3),
           "kind": llava(kind="resampler"), "pinpoints": llava(pinpoints=(8, 8, 8)), "sizes": llava(pinpoints=(8, 12)),
           "huge": llava(pinpoints=(8, 800)), "vast": llava(image_size=2048, patch_size=32, pinpoints=(16384, 16384)), "aspect": llava(aspect="anyres_max_9"), "state": llava(features=(2,)),
           "no_class": llava(clip=True, skip="v.class_embd"), "no_second": llava(skip="mm.2.weight"),
           "heads": tower(attention__head_count=3), "blocks": tower(block_count=1000), "none": container()}
    return good, bad


def main():
    for target, (good, bad) in (("image", images()), ("dataset", lines()), ("mmproj", towers())):
        write(target, "good", good)
        write(target, "bad", bad)


if __name__ == "__main__":
    main()
