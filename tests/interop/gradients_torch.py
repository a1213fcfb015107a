#!/usr/bin/env python3
"""Compares Tacit's gradients on a real model with PyTorch in float64 on the dequantized weights.

One step of plain SGD with step length 1 from B = 0 leaves B = -gradient in the adapter that `tacit train` writes; the
same example goes through a llama written here. Prints one JSON object: the relative L2 error of each kind of tensor
(the largest over the layers), and fails above 1e-4.

usage: gradients_torch.py TACIT MODEL.gguf       needs: numpy, torch (Debian: python3-torch)
"""
import json
import math
import os
import subprocess
import sys
import tempfile

import numpy as np
import torch

from logits_numpy import Gguf

QUESTION = "What does the command `sort` do? Answer in one sentence."
ANSWER = "It sorts the lines of text files and writes them, in order, to the standard output."
SYSTEM = "You are a helpful AI assistant named SmolLM, trained by Hugging Face"
TARGETS = ["attn_q", "attn_k", "attn_v", "attn_output", "ffn_gate", "ffn_up", "ffn_down"]
LIMIT = 1e-4


def adapter_of(tacit, model, folder):
    """The adapter after one step on one example."""
    row = {"id": "1", "messages": [{"role": "user", "content": [{"type": "text", "text": QUESTION}]},
                                   {"role": "assistant", "content": [{"type": "text", "text": ANSWER}]}]}
    data, out = os.path.join(folder, "data.jsonl"), os.path.join(folder, "adapter.gguf")
    with open(data, "w", encoding="utf-8") as f:
        f.write(json.dumps(row) + "\n")
    run = subprocess.run([tacit, "train", "-m", model, "--data", data, "--trainable", "ffa", "--targets",
                          ",".join(TARGETS), "--rank", "4", "--alpha", "4", "--optimizer", "sgd", "--momentum", "0",
                          "--learning-rate", "1", "--batch", "1", "--out", out, "--json"],
                         check=True, capture_output=True)
    return Gguf(out), json.loads(run.stdout)["loss"]


def tokens_of(tacit, model, text):
    run = subprocess.run([tacit, "tokenize", "-m", model, "--special", "--json", "-p", text], check=True,
                         capture_output=True)
    return json.loads(run.stdout)["tokens"]


def rope(x, base):
    n, _, dim = x.shape
    angle = torch.arange(n).double()[:, None] * base ** (-2 * torch.arange(dim // 2).double() / dim)
    c, s = torch.cos(angle)[:, None, :], torch.sin(angle)[:, None, :]
    even, odd = x[..., 0::2], x[..., 1::2]
    return torch.stack((even * c - odd * s, even * s + odd * c), -1).flatten(-2)


def loss_of(file, pairs, tokens, trained):
    def get(name):
        return torch.from_numpy(file.tensor(name))

    def linear(x, name):
        a, b = pairs[name]
        return x @ get(name + ".weight").T + x @ a.T @ b.T

    def norm(x, name):
        return x * torch.rsqrt((x * x).mean(-1, keepdim=True) + eps) * get(name + ".weight")

    keys = file.keys
    heads, kv = keys["llama.attention.head_count"], keys["llama.attention.head_count_kv"]
    eps, base = keys["llama.attention.layer_norm_rms_epsilon"], keys.get("llama.rope.freq_base", 10000.0)
    n = len(tokens)
    x = get("token_embd.weight")[tokens]
    mask = torch.tril(torch.ones(n, n, dtype=torch.bool))
    for layer in range(keys["llama.block_count"]):
        p = f"blk.{layer}."
        h = norm(x, p + "attn_norm")
        q, k, v = (linear(h, p + w).view(n, c, -1) for w, c in (("attn_q", heads), ("attn_k", kv), ("attn_v", kv)))
        q, k = rope(q, base), rope(k, base)
        k, v = (t.repeat_interleave(heads // kv, 1) for t in (k, v))
        s = torch.einsum("qhd,khd->hqk", q, k) / math.sqrt(q.shape[-1])
        s = torch.softmax(s.masked_fill(~mask, -math.inf), -1)
        x = x + linear(torch.einsum("hqk,khd->qhd", s, v).reshape(n, -1), p + "attn_output")
        h = norm(x, p + "ffn_norm")
        x = x + linear(torch.nn.functional.silu(linear(h, p + "ffn_gate")) * linear(h, p + "ffn_up"), p + "ffn_down")
    output = file.tensor("output.weight")
    output = torch.from_numpy(file.tensor("token_embd.weight") if output is None else output)
    rows = [i for i in range(n) if trained[i]]
    logits = norm(x, "output_norm")[[i - 1 for i in rows]] @ output.T
    return torch.nn.functional.cross_entropy(logits, torch.tensor([tokens[i] for i in rows]))


def main():
    tacit, model = sys.argv[1:3]
    with tempfile.TemporaryDirectory() as folder:
        adapter, loss = adapter_of(tacit, model, folder)
        stored = {name: np.array(adapter.tensor(name)) for name in adapter.tensors}
    file = Gguf(model)
    head = f"<|im_start|>system\n{SYSTEM}<|im_end|>\n<|im_start|>user\n{QUESTION}<|im_end|>\n<|im_start|>assistant\n"
    before, answer = tokens_of(tacit, model, head), tokens_of(tacit, model, ANSWER + "<|im_end|>")
    tokens, trained = before + answer, [False] * len(before) + [True] * len(answer)
    pairs = {}
    for name, a in stored.items():
        if name.endswith(".weight.lora_a"):
            b = torch.zeros(stored[name[:-1] + "b"].shape, dtype=torch.float64, requires_grad=True)
            pairs[name[:-len(".weight.lora_a")]] = (torch.from_numpy(a), b)
    reference = loss_of(file, pairs, tokens, trained)
    reference.backward()
    worst = {}
    for name, (_, b) in pairs.items():
        expected, found = b.grad.numpy(), -stored[name + ".weight.lora_b"]
        error = float(np.linalg.norm(found - expected) / np.linalg.norm(expected))
        kind = name.split(".")[2]
        worst[kind] = max(worst.get(kind, 0), error)
    ok = max(worst.values()) <= LIMIT and abs(loss - float(reference)) < 1e-4
    print(json.dumps({"loss": loss, "reference_loss": float(reference), "tokens": len(tokens), "relative_l2": worst,
                      "limit": LIMIT, "passed": ok}))
    return not ok


if __name__ == "__main__":
    sys.exit(main())
