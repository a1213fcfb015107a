#!/usr/bin/env python3
"""Compares the audio tower with other programs: log-mel frames with Hugging Face's
WhisperFeatureExtractor (absolute 1e-4), rows with PyTorch in float64 on the dequantized weights
(relative 1e-3, in fast precision 1e-2), in the public shapes of Whisper tiny and small (random weights in F16
and Q8_0, at full depth) with Ultravox's projector. Ultravox's own counts are demanded: ceil(frames / 16) rows of a clip, chunks of
3000 frames; and those of a file that asks for padding.

Two interpreters share the work, because one has transformers and the other PyTorch:
usage: check_audio.py DUMP_AUDIO FOLDER PYTHON_WITH_TORCH     (needs numpy, transformers, soundfile, gguf)
       check_audio.py rows MMPROJ MEL.npy ROWS.npy            (needs numpy, torch)
"""
import json
import os
import subprocess
import sys

import numpy as np

MEL_LIMIT, ROW_LIMIT, FAST_LIMIT = 1e-4, 1e-3, 1e-2
SHAPES = {"tiny": (80, 384, 1536, 6, 4), "small": (128, 768, 3072, 12, 12)}
POSITIONS, STACK, MIDDLE, OUT = 1500, 8, 1024, 576


def write_tower(path, shape, padded, kind="F16", seed=7):
    import gguf

    n_mel, d, ff, heads, layers = SHAPES[shape]
    rng = np.random.default_rng(seed)
    w = gguf.GGUFWriter(path, "clip")
    w.add_bool("clip.has_audio_encoder", True)
    w.add_string("clip.projector_type", "ultravox")
    for key, value in (("num_mel_bins", n_mel), ("embedding_length", d), ("feed_forward_length", ff), ("block_count", layers),
                       ("attention.head_count", heads), ("projector.stack_factor", STACK), ("projection_dim", OUT)):
        w.add_uint32("clip.audio." + key, value)
    w.add_float32("clip.audio.attention.layer_norm_epsilon", 1e-5)
    if padded:
        w.add_bool("tacit.audio.unpadded", False)

    def put(name, dims, deviation, mean=0.0, values=np.float16):
        w.add_tensor(name, (rng.standard_normal(dims) * deviation + mean).astype(values))

    def matrix(name, dims, deviation):
        values = (rng.standard_normal(dims) * deviation).astype(np.float32)
        if kind == "F16":
            w.add_tensor(name, values.astype(np.float16))
        else:
            q8_0 = gguf.GGMLQuantizationType.Q8_0
            w.add_tensor(name, gguf.quants.quantize(values, q8_0), raw_dtype=q8_0)

    def vector(name, dims, mean=0.0):
        put(name, dims, 0.1, mean, np.float32)

    put("a.conv1d.1.weight", (d, n_mel, 3), (3 * n_mel) ** -0.5)
    vector("a.conv1d.1.bias", (d, 1))
    put("a.conv1d.2.weight", (d, d, 3), (3 * d) ** -0.5)
    vector("a.conv1d.2.bias", (d, 1))
    put("a.position_embd.weight", (POSITIONS, d), 0.5, values=np.float32)
    for b in range(layers):
        for name, n_out, n_in in (("attn_q", d, d), ("attn_k", d, d), ("attn_v", d, d), ("attn_out", d, d), ("ffn_up", ff, d),
                                  ("ffn_down", d, ff)):
            matrix(f"a.blk.{b}.{name}.weight", (n_out, n_in), (2 if name in ("attn_q", "attn_k") else 1) * n_in ** -0.5)
            if name != "attn_k":
                vector(f"a.blk.{b}.{name}.bias", n_out)
        for name in ("ln1", "ln2"):
            vector(f"a.blk.{b}.{name}.weight", d, 1.0)
            vector(f"a.blk.{b}.{name}.bias", d)
    vector("a.post_ln.weight", d, 1.0)
    vector("a.post_ln.bias", d)
    vector("mm.a.norm_pre.weight", d * STACK, 1.0)
    matrix("mm.a.mlp.1.weight", (2 * MIDDLE, d * STACK), (d * STACK) ** -0.5)
    vector("mm.a.norm_mid.weight", MIDDLE, 1.0)
    matrix("mm.a.mlp.2.weight", (OUT, MIDDLE), MIDDLE ** -0.5)
    w.write_header_to_file()
    w.write_kv_data_to_file()
    w.write_tensors_to_file()
    w.close()


def reference_rows(mmproj, mel_path, rows_path):
    import torch
    import torch.nn.functional as F

    from reference_model import Gguf

    f = Gguf(mmproj)
    t = {name: torch.from_numpy(np.ascontiguousarray(f.tensor(name))) for name in f.tensors}
    heads = f.keys["clip.audio.attention.head_count"]
    mel = torch.from_numpy(np.load(mel_path).astype(np.float64))
    d = f.tensors["a.position_embd.weight"][0][0]
    conv = lambda x, i, stride: F.gelu(F.conv1d(
        x, t[f"a.conv1d.{i}.weight"].reshape(d, -1, 3), t[f"a.conv1d.{i}.bias"].reshape(-1), stride=stride, padding=1))
    norm = lambda x, name: F.layer_norm(x, (d,), t[name + ".weight"], t[name + ".bias"], eps=f.keys["clip.audio.attention.layer_norm_epsilon"])
    linear = lambda x, name: F.linear(x, t[name + ".weight"], t.get(name + ".bias"))
    rms = lambda x, name: x * torch.rsqrt((x * x).mean(-1, keepdim=True) + 1e-6) * t[name + ".weight"]

    def chunk(mel):
        x = conv(conv(mel.T[None], 1, 1), 2, 2)[0].T
        x = x + t["a.position_embd.weight"][: len(x)]
        for b in range(f.keys["clip.audio.block_count"]):
            p = f"a.blk.{b}."
            h = norm(x, p + "ln1")
            q, k, v = (linear(h, p + "attn_" + n).reshape(len(x), heads, -1).transpose(0, 1) for n in "qkv")
            mixed = (q @ k.transpose(1, 2) * q.shape[-1] ** -0.5).softmax(-1) @ v
            x = x + linear(mixed.transpose(0, 1).reshape(len(x), d), p + "attn_out")
            x = x + linear(F.gelu(linear(norm(x, p + "ln2"), p + "ffn_up")), p + "ffn_down")
        x = norm(x, "a.post_ln")
        x = F.pad(x, (0, 0, 0, -len(x) % STACK)).reshape(-1, d * STACK)
        x, gate = linear(rms(x, "mm.a.norm_pre"), "mm.a.mlp.1").chunk(2, dim=-1)
        return linear(rms(x * F.silu(gate), "mm.a.norm_mid"), "mm.a.mlp.2")

    with torch.no_grad():
        rows = torch.cat([chunk(mel[at : at + 2 * POSITIONS]) for at in range(0, len(mel), 2 * POSITIONS)])
    np.save(rows_path, rows.numpy())


def sounds():
    """Name, samples at 16 kHz."""
    rng = np.random.default_rng(3)
    at = lambda seconds: np.arange(int(16000 * seconds)) / 16000
    t = at(5)
    chirp = 0.6 * np.sin(2 * np.pi * (50 * t + 700 * t * t)) * (1 + np.sin(2 * np.pi * 3 * t)) / 2
    yield "chirp of 5 s", chirp + 1e-3 * rng.standard_normal(len(t))
    yield "tone of 0.5 s without noise", 0.9 * np.sin(2 * np.pi * 440 * at(0.5))
    yield "noise of 1.0071 s", 0.3 * rng.standard_normal(16113)
    t = at(2.4)
    yield "alarm of 2.4 s", np.where(t % 0.8 < 0.3, np.sign(np.sin(2 * np.pi * 960 * t)) * 0.5, 0)
    yield "31.3 s: two chunks", 0.2 * rng.standard_normal(int(31.3 * 16000)) * np.abs(np.sin(at(31.3)))


def dump(program, mmproj, sound, *precision):
    out = subprocess.run([program, mmproj, sound, "2", *precision], stdout=subprocess.PIPE, check=True).stdout
    line, data = out.split(b"\n", 1)
    head = json.loads(line)
    values = np.frombuffer(data, np.float32)
    n = head["n_frames"] * head["n_mel"]
    return head, values[:n].reshape(head["n_frames"], -1), values[n:].reshape(head["rows"], -1)


def hugging_face_mel(samples, n_mel, padded):
    """As Ultravox's processor calls it: no padding but to a multiple of a hop."""
    from transformers import WhisperFeatureExtractor

    extractor = WhisperFeatureExtractor(feature_size=n_mel)
    options = {"padding": "max_length"} if padded else {"padding": "longest", "pad_to_multiple_of": 160}
    out = extractor(samples, sampling_rate=16000, truncation=False, return_tensors="np", **options)
    return out["input_features"][0].T


def tell(report, good, what):
    report.check(good, what)
    if good:
        print(what, flush=True)


def main():
    import soundfile
    from reference_model import Report

    program, folder, torch_python = sys.argv[1:4]
    os.makedirs(folder, exist_ok=True)
    report = Report()
    for shape, padded, kind in (("tiny", False, "F16"), ("small", False, "F16"), ("tiny", True, "F16"),
                                ("tiny", False, "Q8_0"), ("small", False, "Q8_0")):
        mmproj = os.path.join(folder, f"mmproj-{shape}-{kind}{'-padded' if padded else ''}.gguf")
        write_tower(mmproj, shape, padded, kind)
        for name, samples in sounds():
            if padded and len(samples) > 30 * 16000:
                continue  # the extractor pads to 30 s alone
            samples = samples.astype(np.float32)
            path, mel_path, rows_path = (os.path.join(folder, n) for n in ("sound.wav", "mel.npy", "rows.npy"))
            soundfile.write(path, samples, 16000, subtype="FLOAT")
            head, mel, rows = dump(program, mmproj, path)
            expected = hugging_face_mel(samples, SHAPES[shape][0], padded)
            title = f"{shape}{', padded' if padded else ''}, {kind}, {name}"
            same = mel.shape == expected.shape
            off = np.abs(mel - expected).max() if same else np.inf
            tell(report, same and off <= MEL_LIMIT, f"{title}: {len(mel)} frames, off by at most {off:.2g} (prepared in "
                 f"{head['prepare_ms']} ms)")
            count = sum(-(-min(3000, len(expected) - at) // 16) for at in range(0, len(expected), 3000))
            np.save(mel_path, mel)
            subprocess.run([torch_python, os.path.abspath(__file__), "rows", mmproj, mel_path, rows_path], check=True)
            reference = np.load(rows_path)
            same = rows.shape == reference.shape and len(rows) == count
            off = np.linalg.norm(rows - reference) / np.linalg.norm(reference) if same else np.inf
            tell(report, same and off <= ROW_LIMIT,
                 f"{title}: {len(rows)} rows, relative {off:.2g} (computed in {head['forward_ms']} ms)")
            head, _, rows = dump(program, mmproj, path, "fast")
            off = np.linalg.norm(rows - reference) / np.linalg.norm(reference) if same else np.inf
            tell(report, same and off <= FAST_LIMIT,
                 f"{title}: fast, relative {off:.2g} (computed in {head['forward_ms']} ms)")
    report.finish()


if __name__ == "__main__":
    if sys.argv[1:2] == ["rows"]:
        reference_rows(*sys.argv[2:5])
    else:
        main()
