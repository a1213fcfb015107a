#!/usr/bin/env python3
"""Makes the inputs of tests/fuzz/corpus/{audio_file,audio_mmproj}: small WAV and FLAC files of many
forms, damaged and lying, and a small audio tower whole and broken.

usage: make_audio_corpus.py     (needs PyPI's soundfile, which carries libFLAC, and numpy)
"""
import io
import struct

import numpy as np
import soundfile

from make_corpus import STRING, U32, container, key, string, tensor, u32, write

F32, BOOL, FLOAT = 6, 7, 0
GUID_END = bytes([0, 0, 0, 0, 16, 0, 128, 0, 0, 170, 0, 56, 155, 113])


def chunk(name, data):
    return name + u32(len(data)) + data + bytes(len(data) % 2)


def wav(tag=1, channels=1, rate=16000, bits=16, data=bytes(64), extensible=False, before=b"", stated=None):
    frame = channels * ((bits + 7) // 8)
    head = struct.pack("<HHIIHH", 0xFFFE if extensible else tag, channels, rate, rate * frame & 0xFFFFFFFF,
                       frame & 0xFFFF, bits)
    if extensible:
        head += struct.pack("<HHIH", 22, bits, 0, tag) + GUID_END
    body = b"WAVE" + before + chunk(b"fmt ", head) + b"data" + u32(len(data) if stated is None else stated) + data
    return b"RIFF" + u32(len(body)) + body


def flac(samples, rate=16000, subtype="PCM_16"):
    out = io.BytesIO()
    soundfile.write(out, samples, rate, format="FLAC", subtype=subtype)
    return out.getvalue()


def tone(n, channels):
    i = np.arange(n)[:, None] * (1 + np.arange(channels))[None]
    return 0.4 * np.sin(i * 0.11)


def sounds():
    floats = np.linspace(-1, 1, 30, dtype="<f4")
    good = {"wav8": wav(bits=8), "wav16": wav(), "wav24": wav(bits=24, data=bytes(range(96))),
            "wav32": wav(bits=32), "float": wav(tag=3, bits=32, data=floats.tobytes()),
            "double": wav(tag=3, bits=64, data=floats.astype("<f8").tobytes()),
            "surround": wav(channels=6, extensible=True, data=bytes(120)), "resampled": wav(rate=44100, data=bytes(600)),
            "chunks": wav(before=chunk(b"LIST", b"INFOa")), "one": wav(data=b"\x01\x02"),
            "flac": flac(tone(300, 1)), "flac_stereo": flac(tone(300, 2), 44100), "flac24": flac(tone(300, 1), subtype="PCM_24"),
            "flac8": flac(tone(300, 6), subtype="PCM_S8"), "flac_silence": flac(np.zeros((2000, 1)))}
    unknown = bytearray(good["flac"])
    unknown[21] &= 0xF0
    unknown[22:26] = bytes(4)
    good["flac_unknown"] = bytes(unknown)
    fast, long = bytearray(good["flac"]), bytearray(good["flac"])
    fast[18:20] = b"\xff\xff"
    long[21] |= 15
    long[22:26] = b"\xff" * 4
    bad = {"empty": b"", "text": b"no sound", "ogg": b"OggS\0\2" + bytes(40), "head": wav()[:40], "half_wav": wav()[:70],
           "half_flac": good["flac"][:len(good["flac"]) // 2], "no_channels": wav(channels=0), "channels": wav(channels=1000),
           "no_rate": wav(rate=0), "rate": wav(rate=10**9), "stated": wav(stated=0xFFFFFFFF), "none": wav(data=b""),
           "adpcm": wav(tag=2, bits=4), "law": wav(tag=7, bits=8), "not_a_number": wav(tag=3, bits=32, data=b"\xff" * 8),
           "long": wav(rate=1000, bits=8, data=bytes(4001)), "flac_rate": bytes(fast), "flac_long": bytes(long),
           "flac_noise": good["flac"][:42] + bytes(range(200)) * 3}
    return good, bad


SIZES = {"num_mel_bins": 5, "embedding_length": 4, "feed_forward_length": 8, "block_count": 1, "attention.head_count": 2,
         "projector.stack_factor": 2}


def tower(skip="", projector="ultravox", epsilon=1e-5, **changes):
    sizes = {**SIZES, **{name.replace("__", "."): value for name, value in changes.items()}}
    keys = [key("general.architecture", STRING, string("clip")), key("clip.has_audio_encoder", BOOL, b"\x01"),
            key("clip.projector_type", STRING, string(projector))]
    keys += [key("clip.audio." + name, U32, u32(value)) for name, value in sizes.items()]
    keys += [key("clip.audio.attention.layer_norm_epsilon", F32, struct.pack("<f", epsilon)),
             key("tacit.audio.max_frames", U32, u32(40))]
    shapes = [("a.conv1d.1.weight", [3, 5, 4]), ("a.conv1d.1.bias", [1, 4]), ("a.conv1d.2.weight", [3, 4, 4]),
              ("a.conv1d.2.bias", [1, 4]), ("a.position_embd.weight", [4, 6])]
    for part, dims in (("ln1", [4]), ("attn_q", [4, 4]), ("attn_k", [4, 4]), ("attn_v", [4, 4]), ("attn_out", [4, 4]),
                       ("ln2", [4]), ("ffn_up", [4, 8]), ("ffn_down", [8, 4])):
        shapes.append((f"a.blk.0.{part}.weight", dims))
        if part != "attn_k":
            shapes.append((f"a.blk.0.{part}.bias", dims[-1:]))
    shapes += [("a.post_ln.weight", [4]), ("a.post_ln.bias", [4]), ("mm.a.norm_pre.weight", [8]),
               ("mm.a.mlp.1.weight", [8, 6]), ("mm.a.norm_mid.weight", [3]), ("mm.a.mlp.2.weight", [3, 7])]
    infos, data = [], b""
    for name, dims in shapes:
        if name == skip:
            continue
        n = int(np.prod(dims))
        infos.append(tensor(name, dims, FLOAT, len(data)))
        data += struct.pack(f"<{n}f", *[(i % 7 - 3) / 8 for i in range(n)])
        data += bytes(-len(data) % 32)
    return container(keys, infos, data)


def towers():
    good = {"tiny": tower()}
    bad = {"no_projector": tower(skip="mm.a.mlp.2.weight"), "no_bias": tower(skip="a.blk.0.attn_q.bias"),
           "mel": tower(num_mel_bins=6), "no_mel": tower(num_mel_bins=0), "stack": tower(projector__stack_factor=3),
           "heads": tower(attention__head_count=3), "blocks": tower(block_count=1000), "other": tower(projector="qwen2a"),
           "epsilon": tower(epsilon=float("nan")), "none": container()}
    return good, bad


def main():
    for target, (good, bad) in (("audio_file", sounds()), ("audio_mmproj", towers())):
        write(target, "good", good)
        write(target, "bad", bad)


if __name__ == "__main__":
    main()
