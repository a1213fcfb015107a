#!/usr/bin/env python3
"""Adapters between Tacit, PEFT and llama.cpp, on a real model.

- What `tacit train` made (ranks of their own, rsLoRA, some layers alone; a core between drawn halves),
  exported and loaded by PEFT onto the dequantized weights in transformers: logits within 1e-4 of those
  of `tacit logits --exact` with the adapter, against the largest.
- The same files in llama.cpp, the core exported as an ordinary LoRA, on the weights as F32: mean KL at
  most 1e-4 to Tacit's, where the base alone is further than 1e-2.
- What PEFT made (random; rank_pattern, alpha_pattern, rsLoRA; BF16), imported: logits as above, and
  exported again the same values.
- Pairs beside a tiny SmolVLM's encoder, connector and text model: from PEFT, and back into it, the same
  modules and bits.

usage: check_peft.py TACIT WRITE_TINY_MODEL MODEL.gguf FOLDER PYTHON_WITH_TORCH
       (needs numpy, gguf; llama-cpp-python for the second; the other Python what peft_models.py needs)
"""
import json
import os
import shutil
import struct
import subprocess
import sys

import numpy as np
from reference_model import Report, divergence, tacit_json, tacit_logits, tacit_tokens

HERE = os.path.dirname(os.path.abspath(__file__))
TEXT = "The capital of France is Paris, and the answer to what tar does is that it keeps many files in one."
QUESTION, ANSWER = "What does tar do?", "It saves many files together into a single archive."
LIMIT, KL_LIMIT, DIFFERENT = 1e-4, 1e-4, 1e-2
# name: options of training
TRAINED = {
    "plain": ["--trainable", "lora", "--targets", "attn_q,attn_k,attn_v,attn_output,ffn_gate,ffn_up,ffn_down", "--rank", "4"],
    "mixed": ["--trainable", "lora", "--targets", "attn_q=3,attn_k,blk.*.ffn_down=5", "--rank", "6", "--rslora",
              "--last-layers", "12"],
    "core": ["--trainable", "core", "--targets", "attn_q,attn_v,ffn_up", "--rank", "16"],
}


def write_record(folder):
    path = os.path.join(folder, "record.jsonl")
    say = lambda role, text: {"role": role, "content": [{"type": "text", "text": text}]}
    with open(path, "w", encoding="utf-8") as f:
        f.write(json.dumps({"id": "r1", "messages": [say("user", QUESTION), say("assistant", ANSWER)]}))
    return path


def run(program, *words):
    done = subprocess.run([program, *words], capture_output=True, text=True)
    if done.returncode != 0:
        raise RuntimeError(f"{' '.join(words[:2])} failed: {done.stderr.strip()}")


def ask_peft(python, folder, **jobs):
    with open(os.path.join(folder, "jobs.json"), "w", encoding="utf-8") as f:
        json.dump(jobs, f)
    run(python, os.path.join(HERE, "peft_models.py"), folder)


def tensors_of(folder):
    """{name: float32 values} of an F32 safetensors file, read by its definition."""
    with open(os.path.join(folder, "adapter_model.safetensors"), "rb") as f:
        size = struct.unpack("<Q", f.read(8))[0]
        header = json.loads(f.read(size))
        data = f.read()
    return {n: np.frombuffer(data[slice(*t["data_offsets"])], "<f4").reshape(t["shape"])
            for n, t in header.items() if n != "__metadata__"}


def compare(report, what, expected, found, base):
    error = np.abs(found - expected).max() / np.abs(expected).max()
    moved = np.abs(base - expected).max() / np.abs(expected).max()
    print(f"{what}: logits off by {error:.2g} of the largest; the adapter moves them by {moved:.2g}", flush=True)
    report.check(error <= LIMIT, f"{what}: logits off by {error:.3g}")
    report.check(moved >= DIFFERENT, f"{what}: the adapter says nothing ({moved:.3g})")


def check_trained(report, program, model, folder, python, at):
    record = write_record(folder)
    for name, options in TRAINED.items():
        run(program, "train", "-m", model, "--data", record, "--out", at(name + ".gguf"), "--epochs", "4", "--batch", "1",
            "--learning-rate", "0.02", *options)
        run(program, "adapter", "export", "-m", model, at(name + ".gguf"), "--out", at(name), "--base", "some/base")
    tokens = tacit_tokens(program, model, TEXT)
    ask_peft(python, folder, model=model, tokens=tokens, load={name: at(name) for name in TRAINED},
             make={"patterns": (at("patterns"), "float32"), "bf16": (at("bf16"), "bfloat16")})
    base = np.load(at("base.npy"))
    ours = {}
    for name in TRAINED:
        ours[name] = tacit_logits(program, model, TEXT, "--exact", "--adapter", at(name + ".gguf"))[1]
        compare(report, f"exported, {name}", np.load(at(name + ".npy")), ours[name], base)
    for name in ("patterns", "bf16"):
        run(program, "adapter", "import", "-m", model, at(name), "--out", at(name + ".gguf"))
        found = tacit_logits(program, model, TEXT, "--exact", "--adapter", at(name + ".gguf"))[1]
        compare(report, f"imported, {name}", np.load(at(name + ".npy")), found, base)
    for name in TRAINED:
        run(program, "adapter", "import", "-m", model, at(name), "--out", at("again.gguf"))
        run(program, "adapter", "export", "-m", model, at("again.gguf"), "--out", at("again"))
        first, second = tensors_of(at(name)), tensors_of(at("again"))
        same = set(first) == set(second) and all(np.array_equal(first[n], second[n]) for n in first)
        report.check(same, f"{name}: exported, imported and exported again it is another")
    return tokens, ours


def check_llama_cpp(report, program, model, tokens, ours, at):
    try:
        from llama_cpp import Llama
    except ImportError:
        print("llama-cpp-python is not installed: adapters are not given to llama.cpp")
        return
    run(program, "adapter", "export", "-m", model, at("core.gguf"), "--format", "gguf", "--out", at("core-lora.gguf"))
    run(program, "quantize", model, at("f32.gguf"), "--type", "f32")

    def peer(adapter):
        llama = Llama(at("f32.gguf"), n_ctx=512, n_batch=512, n_threads=2, logits_all=True, verbose=False, lora_path=adapter)
        llama.eval(tokens)
        found = np.array(llama.scores[: len(tokens)], dtype=np.float64)
        llama.close()
        return found

    base = peer(None)
    for name, expected in ours.items():
        found = peer(at("core-lora.gguf" if name == "core" else name + ".gguf"))
        kl, without = divergence(expected, found).mean(), divergence(expected, base).mean()
        print(f"llama.cpp, {name}: mean KL {kl:.2g}, without the adapter {without:.2g}", flush=True)
        report.check(kl <= KL_LIMIT, f"llama.cpp, {name}: KL {kl:.3g}")
        report.check(without >= DIFFERENT, f"llama.cpp, {name}: the adapter says nothing")
        report.check((found.argmax(-1) == expected.argmax(-1)).all(), f"llama.cpp, {name}: another best token")
    os.remove(at("f32.gguf"))


def check_smolvlm(report, program, write_tiny, folder, python, at):
    os.makedirs(at("tiny"))
    run(write_tiny, at("tiny"))
    model = ["-m", at("tiny/text.gguf"), "--mmproj", at("tiny/mmproj.gguf")]
    ask_peft(python, folder, make_smolvlm=at("smolvlm"))
    run(program, "adapter", "import", *model, at("smolvlm"), "--out", at("smolvlm.gguf"))
    about = tacit_json(program, "adapter", "info", *model, at("smolvlm.gguf"), "--json")
    report.check(about["kind"] == "tacit.lora" and about["base_is_model"], f"SmolVLM: imported as {about}")
    run(program, "adapter", "export", *model, at("smolvlm.gguf"), "--out", at("smolvlm-again"))
    ask_peft(python, folder, load_smolvlm=at("smolvlm-again"))
    made, back = tensors_of(at("smolvlm")), np.load(at("smolvlm.npz"))
    same = set(made) == set(back) and all(np.array_equal(made[n], back[n]) for n in made)
    report.check(same, "SmolVLM: PEFT has other modules or values after the way there and back")
    print(f"SmolVLM: {len(made)} tensors of PEFT, there and back")


def main():
    program, write_tiny, model, folder, python = sys.argv[1:6]
    report = Report()
    shutil.rmtree(folder, ignore_errors=True)
    os.makedirs(folder)
    at = lambda name: os.path.join(folder, name)
    tokens, ours = check_trained(report, program, model, folder, python, at)
    check_llama_cpp(report, program, model, tokens, ours, at)
    check_smolvlm(report, program, write_tiny, folder, python, at)
    report.finish()


main()
