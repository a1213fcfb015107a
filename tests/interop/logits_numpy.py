#!/usr/bin/env python3
"""Compares `tacit logits --all` with a forward of the same file written here in NumPy.

The reference dequantizes the weights to float32 and computes in float64: it shares no code with
Tacit. Prints one JSON object with the relative error of all logits, the mean KL divergence and the
share of equal top-1 tokens, for exact and fast precision. Needs numpy.

usage: logits_numpy.py TACIT MODEL.gguf [PROMPT]
"""
import json
import struct
import subprocess
import sys

import numpy as np

SCALARS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
BLOCKS = {0: (1, 4), 1: (1, 2), 2: (32, 18), 3: (32, 20), 8: (32, 34), 30: (1, 2)}


class Gguf:
    def __init__(self, path):
        self.data = np.memmap(path, dtype=np.uint8, mode="r")
        self.at = 0
        magic, version, n_tensors, n_keys = self.read("4sIQQ")
        assert magic == b"GGUF" and version in (2, 3)
        self.keys = {}
        for _ in range(n_keys):
            name = self.string()
            self.keys[name] = self.value(self.read("I")[0])
        infos = []
        for _ in range(n_tensors):
            name = self.string()
            dims = self.read("I")[0]
            shape = self.read(f"{dims}Q")
            kind, offset = self.read("IQ")
            infos.append((name, shape, kind, offset))
        step = self.keys.get("general.alignment", 32)
        start = (self.at + step - 1) // step * step
        self.tensors = {name: (shape, kind, start + offset) for name, shape, kind, offset in infos}

    def read(self, form):
        size = struct.calcsize("<" + form)
        out = struct.unpack_from("<" + form, self.data, self.at)
        self.at += size
        return out

    def string(self):
        n = self.read("Q")[0]
        self.at += n
        return bytes(self.data[self.at - n : self.at]).decode("utf-8", "replace")

    def value(self, kind):
        if kind == 8:
            return self.string()
        if kind != 9:
            return self.read(SCALARS[kind])[0]
        element, n = self.read("IQ")
        if element == 8:
            return [self.string() for _ in range(n)]
        return self.read(f"{n}{SCALARS[element]}")

    def tensor(self, name):
        """Values as float64, shape [rows, row length] (or one axis)."""
        if name not in self.tensors:
            return None
        shape, kind, at = self.tensors[name]
        count = int(np.prod(shape))
        values, size = BLOCKS[kind]
        raw = np.asarray(self.data[at : at + count // values * size])
        return dequantize(raw, kind).astype(np.float64).reshape(shape[::-1])


def dequantize(raw, kind):
    if kind == 0:
        return raw.view(np.float32)
    if kind == 1:
        return raw.view(np.float16).astype(np.float32)
    if kind == 30:
        return (raw.view(np.uint16).astype(np.uint32) << 16).view(np.float32)
    block = raw.reshape(-1, BLOCKS[kind][1])
    d = block[:, :2].copy().view(np.float16).astype(np.float32)
    if kind == 8:
        return d * block[:, 2:].view(np.int8).astype(np.float32)
    at = 4 if kind == 3 else 2
    q = np.concatenate([block[:, at:] & 15, block[:, at:] >> 4], axis=1).astype(np.float32)
    if kind == 2:
        return d * (q - 8)
    return d * q + block[:, 2:4].copy().view(np.float16).astype(np.float32)


def norm(x, w, eps):
    return x / np.sqrt((x * x).mean(-1, keepdims=True) + eps) * w


def forward(f, tokens):
    key = lambda name: f.keys["llama." + name]
    heads, width = key("attention.head_count"), key("embedding_length")
    kv = f.keys.get("llama.attention.head_count_kv", heads)
    dim = f.keys.get("llama.attention.key_length", width // heads)
    eps = key("attention.layer_norm_rms_epsilon")
    n = len(tokens)
    angle = np.arange(n)[:, None] / f.keys.get("llama.rope.freq_base", 10000.0) ** (
        np.arange(0, dim, 2) / dim
    )
    turn = np.exp(1j * angle)[:, None, :]

    def rope(x):
        pair = x.reshape(n, -1, dim // 2, 2)
        z = (pair[..., 0] + 1j * pair[..., 1]) * turn
        return np.stack([z.real, z.imag], -1).reshape(n, -1, dim)

    embedding = f.tensor("token_embd.weight")
    x = embedding[tokens]
    mask = np.triu(np.full((n, n), -np.inf), 1)
    for i in range(key("block_count")):
        w = lambda name: f.tensor(f"blk.{i}.{name}.weight")
        h = norm(x, w("attn_norm"), eps)
        q, k = rope(h @ w("attn_q").T), rope(h @ w("attn_k").T)
        v = (h @ w("attn_v").T).reshape(n, kv, dim)
        k, v = np.repeat(k, heads // kv, 1), np.repeat(v, heads // kv, 1)
        score = np.einsum("ihd,jhd->hij", q, k) / np.sqrt(dim) + mask
        p = np.exp(score - score.max(-1, keepdims=True))
        p /= p.sum(-1, keepdims=True)
        x = x + np.einsum("hij,jhd->ihd", p, v).reshape(n, -1) @ w("attn_output").T
        h = norm(x, w("ffn_norm"), eps)
        gate = h @ w("ffn_gate").T
        x = x + (gate / (1 + np.exp(-gate)) * (h @ w("ffn_up").T)) @ w("ffn_down").T
    output = f.tensor("output.weight")
    x = norm(x, f.tensor("output_norm.weight"), eps)
    return x @ (embedding if output is None else output).T


def softmax(x):
    p = np.exp(x - x.max(-1, keepdims=True))
    return p / p.sum(-1, keepdims=True)


def tacit(program, model, prompt, *flags):
    out = subprocess.run(
        [program, "logits", "-m", model, "-p", prompt, "--all", "--top", "0", "--json", *flags],
        check=True,
        capture_output=True,
    )
    answer = json.loads(out.stdout)
    logits = np.zeros((len(answer["tokens"]), len(answer["logits"][0])))
    for row, entries in zip(logits, answer["logits"]):
        for entry in entries:
            row[entry["id"]] = entry["logit"]
    return answer["tokens"], logits


def compare(found, expected):
    p, q = softmax(expected), softmax(found)
    top = np.sort(expected, -1)
    clear = top[:, -1] - top[:, -2] > 0.1
    same = found.argmax(-1) == expected.argmax(-1)
    return {
        "relative_error": float(np.linalg.norm(found - expected) / np.linalg.norm(expected)),
        "kl": float((p * (np.log(p) - np.log(q))).sum(-1).mean()),
        "top1_equal": float(same[clear].mean()),
        "positions": int(clear.sum()),
    }


def main():
    program, model = sys.argv[1:3]
    prompt = sys.argv[3] if len(sys.argv) > 3 else (
        "An ambulance is a vehicle for taking people who are ill or injured to hospital. Its "
        "crew measures heart rate, blood pressure and oxygen saturation on the way.\n"
    )
    tokens, exact = tacit(program, model, prompt, "--exact")
    _, fast = tacit(program, model, prompt)
    expected = forward(Gguf(model), tokens)
    result = {"exact": compare(exact, expected), "fast": compare(fast, expected)}
    print(json.dumps(result))
    if result["exact"]["relative_error"] > 1e-5 or result["exact"]["kl"] > 1e-8:
        sys.exit("exact precision is off the reference")
    if result["fast"]["kl"] > 1e-2 or result["fast"]["top1_equal"] < 0.99:
        sys.exit("fast precision is off the reference")


if __name__ == "__main__":
    main()
