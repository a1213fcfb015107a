#!/usr/bin/env python3
"""Compares LoRA gradients of `tacit train` on models and a real sentence with PyTorch in
float64 on the dequantized weights: relative L2 at most 1e-4 for every tensor, besides what storing
the values of A and B in float32 rounds away.

One SGD step of length R from B = 0 leaves B1 = -R g in the adapter file, a second one from there
B1 - R g' and A - R g'. So the files of runs of one and of two epochs on one record hold the
gradients at B = 0 and at B1, the latter with those of A.

usage: check_gradients.py TACIT MODEL.gguf ...       (needs torch, numpy)
"""
import json
import os
import sys
import tempfile

import numpy as np
import torch
from reference_model import Gguf, Report, Shape, tacit_json, tacit_tokens

LIMIT = 1e-4
RANK, ALPHA, STEP = 4, 8.0, 0.25
TARGETS = ["attn_q", "attn_k", "attn_v", "attn_output", "ffn_gate", "ffn_up", "ffn_down"]
QUESTION = "What does tar do?"
ANSWER = "It saves many files together into a single archive, and restores individual files from it."


def write_record(folder):
    path = os.path.join(folder, "record.jsonl")
    say = lambda role, text: {"role": role, "content": [{"type": "text", "text": text}]}
    with open(path, "w", encoding="utf-8") as f:
        f.write(json.dumps({"id": "r1", "messages": [say("user", QUESTION), say("assistant", ANSWER)]}))
    return path


def tokens_of(program, model):
    """The conversation as token ids, and the first one that is trained."""
    prompt = tacit_tokens(program, model, QUESTION, "--chat")
    answer = tacit_json(program, "tokenize", "-m", model, "--special", "--json", "-p",
                        ANSWER + "<|im_end|>")["tokens"]
    return prompt + answer, len(prompt)


class Model:
    """Forward of a llama, qwen2 or qwen3 file with low-rank pairs, in float64."""

    def __init__(self, path):
        f = Gguf(path)
        self.shape = Shape(f)
        self.weight = {n: torch.from_numpy(np.ascontiguousarray(f.tensor(n))) for n in f.tensors}
        self.angles = lambda n: torch.from_numpy(self.shape.angles(f, n))

    def norm(self, x, name):
        return x * torch.rsqrt((x * x).mean(-1, keepdim=True) + self.shape.eps) * self.weight[name]

    def rope(self, x):
        first, second = (torch.from_numpy(columns) for columns in self.shape.pairs())
        angle = self.angles(len(x))[:, None, :]
        a, b = x[..., first], x[..., second]
        turned = torch.cat((a * angle.cos() - b * angle.sin(), a * angle.sin() + b * angle.cos()), -1)
        return turned[..., torch.argsort(torch.cat((first, second)))]

    def loss(self, tokens, first, pairs):
        def linear(x, name):
            a, b = pairs[name + ".weight"]
            y = x @ self.weight[name + ".weight"].T + ALPHA / RANK * (x @ a.T) @ b.T
            return y + self.weight[name + ".bias"] if name + ".bias" in self.weight else y

        def heads(x, name, count):
            y = linear(x, name).reshape(len(x), count, s.dim)
            return self.norm(y, name + "_norm.weight") if name + "_norm.weight" in self.weight else y

        n, s = len(tokens), self.shape
        x = self.weight["token_embd.weight"][tokens]
        mask = torch.full((n, n), -torch.inf, dtype=torch.float64).triu(1)
        for i in range(s.layers):
            name = lambda part: f"blk.{i}.{part}"
            h = self.norm(x, name("attn_norm.weight"))
            q = self.rope(heads(h, name("attn_q"), s.heads))
            k = self.rope(heads(h, name("attn_k"), s.kv))
            v = linear(h, name("attn_v")).reshape(n, s.kv, s.dim)
            k, v = (t.repeat_interleave(s.heads // s.kv, 1) for t in (k, v))
            score = torch.einsum("ihd,jhd->hij", q, k) / s.dim**0.5 + mask
            mixed = torch.einsum("hij,jhd->ihd", score.softmax(-1), v).reshape(n, -1)
            x = x + linear(mixed, name("attn_output"))
            h = self.norm(x, name("ffn_norm.weight"))
            gate = torch.nn.functional.silu(linear(h, name("ffn_gate")))
            x = x + linear(gate * linear(h, name("ffn_up")), name("ffn_down"))
        output = self.weight.get("output.weight", self.weight["token_embd.weight"])
        logits = self.norm(x[first - 1 : -1], "output_norm.weight") @ output.T
        return torch.nn.functional.cross_entropy(logits, torch.tensor(tokens[first:]))


def train(program, model, record, folder, kind, epochs):
    """The loss before the last step, and the pairs after it: {tensor: (A, B)} in float64."""
    out = os.path.join(folder, f"{kind}-{epochs}.gguf")
    last = tacit_json(program, "train", "-m", model, "--data", record, "--trainable", kind, "-o", out,
                      "--epochs", str(epochs), "--batch", "1", "--optimizer", "sgd", "--momentum",
                      "0", "--learning-rate", str(STEP), "--rank", str(RANK), "--alpha", str(ALPHA),
                      "--targets", ",".join(TARGETS), "--json")
    f = Gguf(out)
    names = [n[: -len(".lora_a")] for n in f.tensors if n.endswith(".lora_a")]
    return last["loss"], {n: (f.tensor(n + ".lora_a"), f.tensor(n + ".lora_b")) for n in names}


def gradients(model, tokens, first, pairs):
    leaves = {n: tuple(torch.tensor(m, requires_grad=True) for m in pair) for n, pair in pairs.items()}
    loss = model.loss(tokens, first, leaves)
    loss.backward()
    return float(loss), {n: tuple(m.grad.numpy() for m in pair) for n, pair in leaves.items()}


def relative(expected, before, after):
    """Relative L2 error of (before - after) / STEP, less the most that the file's rounding adds."""
    error = np.linalg.norm((before - after) / STEP - expected)
    rounding = 2.0**-24 * np.linalg.norm(after) / STEP
    return max(0.0, error - rounding) / np.linalg.norm(expected)


def compare(report, what, expected, before, after, halves):
    worst = 0
    for name in expected:
        for half in halves:
            error = relative(expected[name][half], before[name][half], after[name][half])
            worst = max(worst, error)
            report.check(error <= LIMIT, f"{what}, {name}.lora_{'ab'[half]}: relative L2 {error:.3g}")
    print(f"{what}: largest relative L2 of {len(expected) * len(halves)} tensors {worst:.3g}")


def check_model(report, program, model, folder):
    reference = Model(model)
    tokens, first = tokens_of(program, model)
    print(f"{os.path.basename(model)}: {len(tokens)} tokens, {len(tokens) - first} of them trained")
    record = write_record(folder)
    for kind in ("ffa", "lora"):
        runs = [train(program, model, record, folder, kind, epochs) for epochs in (1, 2)]
        start = {n: (a, np.zeros_like(b)) for n, (a, b) in runs[0][1].items()}
        for step, before, (loss, after) in ((1, start, runs[0]), (2, runs[0][1], runs[1])):
            expected_loss, expected = gradients(reference, tokens, first, before)
            what = f"{kind}, step {step}"
            report.check(abs(loss - expected_loss) <= 1e-5 * expected_loss,
                         f"{what}: loss {loss}, PyTorch {expected_loss}")
            print(f"{what}: loss {loss:.6f}, PyTorch {expected_loss:.6f}")
            halves = (0, 1) if kind == "lora" and step == 2 else (1,)
            compare(report, what, expected, before, after, halves)


def main():
    report = Report()
    for model in sys.argv[2:]:
        with tempfile.TemporaryDirectory() as folder:
            check_model(report, sys.argv[1], model, folder)
    report.finish()


main()
