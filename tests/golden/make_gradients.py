#!/usr/bin/env python3
"""Golden gradients of tiny text models, computed by PyTorch in float64 on dequantized weights.

Writes tests/golden/tiny-{untied,tied,qwen2,qwen3,gemma3,qwen2vl,lfm2}.gguf (the models, mixed types; the
first two are llama) and gradients-*.gguf (examples, adapter values, losses and gradients as tensors; FFA-LoRA,
cores between frozen halves and mixed ranks of llama alone). Nothing here uses Tacit: the GGUF writer, the quantizers, ChaCha20 and the models are
this script's own.

    apt-get install python3-torch python3-numpy
    /usr/bin/python3 tests/golden/make_gradients.py
"""
import math
import os
import struct
from dataclasses import dataclass

import numpy as np
import torch

HERE = os.path.dirname(os.path.abspath(__file__))
WIDTH, LAYERS, VOCAB = 32, 2, 48
EPS, BASE = 1e-5, 10000.0
RANK, ALPHA = 4, 6.0
TARGETS = ["attn_output", "ffn_down", "attn_q", "attn_v"]
F32, F16, Q4_0, Q4_1, Q8_0, BF16 = 0, 1, 2, 3, 8, 30


# --- GGUF -------------------------------------------------------------------------------------

def text(s):
    return struct.pack("<Q", len(s)) + s.encode()


def value(v):
    if isinstance(v, bool):
        return struct.pack("<IB", 7, v)
    if isinstance(v, int):
        return struct.pack("<II", 4, v)
    if isinstance(v, float):
        return struct.pack("<If", 6, v)
    if isinstance(v, str):
        return struct.pack("<I", 8) + text(v)
    if isinstance(v, list):
        v = np.array(v, dtype=np.int32)
    kind, fmt = (12, "d") if v.dtype == np.float64 else (5, "i")
    return struct.pack("<IIQ", 9, kind, len(v)) + struct.pack(f"<{len(v)}{fmt}", *v.tolist())


def write_gguf(path, keys, tensors):
    """tensors: (name, numpy shape, ggml type, bytes)"""
    head = b"GGUF" + struct.pack("<IQQ", 3, len(tensors), len(keys))
    for name, v in keys.items():
        head += text(name) + value(v)
    at, body = 0, b""
    for name, shape, kind, data in tensors:
        head += text(name) + struct.pack("<I", len(shape))
        head += b"".join(struct.pack("<Q", n) for n in reversed(shape))
        head += struct.pack("<IQ", kind, len(body))
        body += data + b"\0" * (-len(data) % 32)
    head += b"\0" * (-len(head) % 32)
    with open(path, "wb") as f:
        f.write(head + body)


def quantize(w, kind):
    """Bytes of w [rows, cols] in a block type, and the float64 values that they stand for."""
    w = np.asarray(w, dtype=np.float32)
    if kind == F32:
        return w.tobytes(), w.astype(np.float64)
    if kind == F16:
        h = w.astype(np.float16)
        return h.tobytes(), h.astype(np.float64)
    if kind == BF16:
        h = (w.view(np.uint32) >> 16).astype(np.uint16)
        return h.tobytes(), (h.astype(np.uint32) << 16).view(np.float32).astype(np.float64)
    out, values = b"", []
    for block in w.reshape(-1, 32):
        lo, hi = float(block.min()), float(block.max())
        if kind == Q8_0:
            d = np.float16(max(abs(lo), abs(hi)) / 127)
            q = np.clip(np.rint(block / np.float32(d)), -127, 127).astype(np.int8)
            out += d.tobytes() + q.tobytes()
            values.append(q.astype(np.float64) * float(d))
            continue
        if kind == Q4_0:
            d, m = np.float16(max(abs(lo), abs(hi)) / 8), None
            q = np.clip(np.rint(block / np.float32(d)) + 8, 0, 15).astype(np.uint8)
            values.append((q.astype(np.float64) - 8) * float(d))
        else:
            d, m = np.float16((hi - lo) / 15), np.float16(lo)
            q = np.clip(np.rint((block - np.float32(m)) / np.float32(d)), 0, 15).astype(np.uint8)
            values.append(q.astype(np.float64) * float(d) + float(m))
        out += d.tobytes() + (m.tobytes() if m is not None else b"")
        out += (q[:16] | (q[16:] << 4)).tobytes()
    return out, np.array(values).reshape(w.shape)


# --- ChaCha20 with a 64-bit nonce (Bernstein 2008) -----------------------------------------------

def chacha_block(key, nonce, counter):
    def rotl(v, n):
        return ((v << n) | (v >> (32 - n))) & 0xffffffff

    def quarter(s, a, b, c, d):
        s[a] = (s[a] + s[b]) & 0xffffffff; s[d] = rotl(s[d] ^ s[a], 16)
        s[c] = (s[c] + s[d]) & 0xffffffff; s[b] = rotl(s[b] ^ s[c], 12)
        s[a] = (s[a] + s[b]) & 0xffffffff; s[d] = rotl(s[d] ^ s[a], 8)
        s[c] = (s[c] + s[d]) & 0xffffffff; s[b] = rotl(s[b] ^ s[c], 7)

    start = list(struct.unpack("<4I", b"expand 32-byte k")) + list(struct.unpack("<8I", key))
    start += [counter & 0xffffffff, counter >> 32, nonce & 0xffffffff, nonce >> 32]
    s = start[:]
    for _ in range(10):
        quarter(s, 0, 4, 8, 12); quarter(s, 1, 5, 9, 13)
        quarter(s, 2, 6, 10, 14); quarter(s, 3, 7, 11, 15)
        quarter(s, 0, 5, 10, 15); quarter(s, 1, 6, 11, 12)
        quarter(s, 2, 7, 8, 13); quarter(s, 3, 4, 9, 14)
    return [(a + b) & 0xffffffff for a, b in zip(s, start)]


def ffa_matrix(seed, ordinal, rank, n_in):
    words = []
    while len(words) < rank * n_in:
        words += chacha_block(seed, ordinal, len(words) // 16)
    u = np.array([(w >> 8) / 2.0**24 for w in words[:rank * n_in]])
    return (math.sqrt(3.0 / n_in) * (2 * u - 1)).astype(np.float32).reshape(rank, n_in)


# --- model --------------------------------------------------------------------------------------

@dataclass
class Config:
    word: str
    seed: int
    arch: str = "llama"
    heads: int = 4
    kv_heads: int = 2
    head: int = 8
    ff: int = 64
    tied: bool = True
    biases: tuple = ()
    head_norms: bool = False
    # Gemma 3: positions that layers look back, but for each pattern-th, which sees everything and
    # turns by `base` instead of BASE; norms behind both halves; GeGLU; scaled embeddings.
    window: int = 0
    pattern: int = 2
    base: float = BASE
    factor: float = 1.0
    # Qwen 2 VL: pairs of a head that turn by time, by height and by width.
    sections: tuple = ()
    # LFM2: layers that convolve over `taps` rows instead of attending.
    layers: int = LAYERS
    convolve: tuple = ()
    taps: int = 3

    def is_local(self, layer):
        return self.window > 0 and (layer + 1) % self.pattern != 0

    def output_norm(self):
        return "token_embd_norm.weight" if self.convolve else "output_norm.weight"

    def linears(self, layer):
        """Shapes of what the layer has."""
        shapes = self.shapes()
        if layer not in self.convolve:
            return shapes
        return {"shortconv.in_proj": (3 * WIDTH, WIDTH), "shortconv.out_proj": (WIDTH, WIDTH)} | {
            n: s for n, s in shapes.items() if n.startswith("ffn")}

    def shapes(self):
        q, kv = self.heads * self.head, self.kv_heads * self.head
        return {"attn_q": (q, WIDTH), "attn_k": (kv, WIDTH), "attn_v": (kv, WIDTH),
                "attn_output": (WIDTH, q), "ffn_gate": (self.ff, WIDTH), "ffn_up": (self.ff, WIDTH),
                "ffn_down": (WIDTH, self.ff)}


CONFIGS = [
    Config("untied", 20240, tied=False, biases=("attn_q", "attn_k", "attn_v", "ffn_down")),
    Config("tied", 20241),
    Config("qwen2", 20242, arch="qwen2", ff=32, biases=("attn_q", "attn_k", "attn_v")),
    Config("qwen3", 20243, arch="qwen3", kv_heads=1, head=16, ff=32, head_norms=True),
    Config("gemma3", 20244, arch="gemma3", kv_heads=1, head=8, ff=32, head_norms=True, window=3,
           base=1e6, factor=8.0),
    Config("qwen2vl", 20245, arch="qwen2vl", ff=32, biases=("attn_q", "attn_k", "attn_v"),
           sections=(1, 2, 1)),
    Config("lfm2", 20246, arch="lfm2", kv_heads=1, head=8, ff=32, head_norms=True, layers=3,
           convolve=(0, 2)),
]
TYPES = [Q8_0, Q4_0, Q4_1, F16, BF16, F32, Q8_0, Q4_1]


def make_model(rng, c):
    weights, tensors, turn = {}, [], 0

    def put(name, w, kind):
        data, exact = quantize(w, kind)
        tensors.append((name, w.shape, kind, data))
        weights[name] = torch.tensor(exact, dtype=torch.float64)

    put("token_embd.weight", rng.normal(0, 0.5, (VOCAB, WIDTH)), Q8_0)
    for i in range(c.layers):
        post = ("post_attention_norm", "post_ffw_norm") if c.window else ()
        for norm in ("attn_norm", "ffn_norm") + post:
            put(f"blk.{i}.{norm}.weight", rng.normal(1, 0.2, WIDTH), F32)
        for norm in ("attn_q_norm", "attn_k_norm") if c.head_norms and i not in c.convolve else ():
            put(f"blk.{i}.{norm}.weight", rng.normal(1, 0.3, c.head), F32)
        if i in c.convolve:
            put(f"blk.{i}.shortconv.conv.weight", rng.normal(0, 0.6, (WIDTH, c.taps)), F32)
        for name, shape in c.linears(i).items():
            kind = TYPES[turn % len(TYPES)]
            turn += 1
            put(f"blk.{i}.{name}.weight", rng.normal(0, 1.2 / math.sqrt(shape[1]), shape), kind)
            if name in c.biases:
                put(f"blk.{i}.{name}.bias", rng.normal(0, 0.1, shape[0]), F32)
    put(c.output_norm(), rng.normal(1, 0.2, WIDTH), F32)
    if not c.tied:
        put("output.weight", rng.normal(0, 0.3, (VOCAB, WIDTH)), Q4_0)
    keys = {"context_length": 64, "embedding_length": WIDTH, "block_count": c.layers,
            "feed_forward_length": c.ff, "attention.head_count": c.heads,
            "attention.head_count_kv": c.kv_heads, "vocab_size": VOCAB,
            "attention.layer_norm_rms_epsilon": EPS, "rope.freq_base": c.base}
    if c.heads * c.head != WIDTH:
        keys |= {"attention.key_length": c.head, "attention.value_length": c.head}
    if c.window:
        keys |= {"attention.sliding_window": c.window, "rope.scaling.type": "linear",
                 "attention.sliding_window_pattern": c.pattern, "rope.scaling.factor": c.factor}
    if c.convolve:
        keys |= {"shortconv.l_cache": c.taps, "attention.head_count_kv": [
            0 if i in c.convolve else c.kv_heads for i in range(c.layers)]}
    if c.sections:
        keys |= {"rope.dimension_sections": list(c.sections) + [0]}
    return ({"general.architecture": c.arch} | {f"{c.arch}.{k}": v for k, v in keys.items()},
            tensors, weights)


def rms(x, w):
    return x * torch.rsqrt((x * x).mean(-1, keepdim=True) + float(np.float32(EPS))) * w


def angles(example, c, layer):
    """[rows, pairs of a head]"""
    position = torch.tensor(example["position"]).double()[:, None]
    shift = torch.tensor(example["shift"]).double()
    base, factor = (BASE, 1.0) if c.is_local(layer) else (c.base, c.factor)
    frequency = base ** (-2 * torch.arange(c.head // 2).double() / c.head) / factor
    # Qwen 2 VL: the pairs are split, the i-th part takes the i-th number of the position
    parts, at = [], 0
    for i, pairs in enumerate(c.sections or (c.head // 2,)):
        number = position + (shift[:, i - 1: i] if i else 0)
        parts.append(number * frequency[at: at + pairs])
        at += pairs
    return torch.cat(parts, -1)


def sees(example, window):
    """[rows, rows]: Hugging Face's sliding_window_causal_mask_function over positions, or'ed with
    the rows of one picture (token_type_ids_mask_function)."""
    position, group = torch.tensor(example["position"]), torch.tensor(example["group"])
    n = len(position)
    mask = torch.tril(torch.ones(n, n, dtype=torch.bool))
    if window:
        mask &= position[None, :] > position[:, None] - window
    return mask | ((group[:, None] == group[None, :]) & (group[None, :] != 0))


def rope(x, angle, c):
    cos, sin = torch.cos(angle)[:, None, :], torch.sin(angle)[:, None, :]
    if c.arch == "llama":
        even, odd = x[..., 0::2], x[..., 1::2]
        return torch.stack((even * cos - odd * sin, even * sin + odd * cos), -1).flatten(-2)
    # Qwen's own form: x cos + rotate_half(x) sin
    half = torch.cat((-x[..., c.head // 2:], x[..., : c.head // 2]), -1)
    return x * torch.cat((cos, cos), -1) + half * torch.cat((sin, sin), -1)


def loss_of(c, weights, pairs, example):
    def beside(x, name):
        if name not in pairs:
            return 0
        p = pairs[name]
        low = x @ p["a"].T
        return p["scale"] * (low @ p["core"].T if "core" in p else low) @ p["b"].T

    def linear(x, name):
        y = x @ weights[name + ".weight"].T
        if name + ".bias" in weights:
            y = y + weights[name + ".bias"]
        return y + beside(x, name)

    def heads(x, name, count):
        x = linear(x, name).view(len(x), count, c.head)
        norm = weights.get(f"{name}_norm.weight")
        return x if norm is None else rms(x, norm)

    def behind(x, name):
        norm = weights.get(name + ".weight")
        return x if norm is None else rms(x, norm)

    def act(x):
        if not c.window:
            return torch.nn.functional.silu(x)
        return x / 2 * (1 + torch.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x ** 3)))

    n = len(example["token"])
    scale = float(np.float32(math.sqrt(WIDTH))) if c.window else 1.0
    x = torch.stack([example["media"][t] if m else weights["token_embd.weight"][t] * scale
                     for t, m in zip(example["token"], example["modality"])])
    def convolve(h, p):
        """LFM2's: torch.nn.functional.conv1d, padded in front, between two gates."""
        b, gate, v = linear(h, p + "shortconv.in_proj").T.chunk(3)
        y = torch.nn.functional.conv1d((b * v)[None], weights[p + "shortconv.conv.weight"][:, None],
                                       padding=c.taps - 1, groups=WIDTH)[0, :, :n]
        return linear((gate * y).T, p + "shortconv.out_proj")

    def attend(h, p, i):
        angle, mask = angles(example, c, i), sees(example, c.window if c.is_local(i) else 0)
        q = rope(heads(h, p + "attn_q", c.heads), angle, c)
        k = rope(heads(h, p + "attn_k", c.kv_heads), angle, c)
        v = linear(h, p + "attn_v").view(n, c.kv_heads, c.head)
        k, v = (t.repeat_interleave(c.heads // c.kv_heads, 1) for t in (k, v))
        s = torch.einsum("qhd,khd->hqk", q, k) / math.sqrt(c.head)
        s = torch.softmax(s.masked_fill(~mask, -math.inf), -1)
        return linear(torch.einsum("hqk,khd->qhd", s, v).reshape(n, -1), p + "attn_output")

    for i in range(c.layers):
        p = f"blk.{i}."
        h = rms(x, weights[p + "attn_norm.weight"])
        mixed = convolve(h, p) if i in c.convolve else attend(h, p, i)
        x = x + behind(mixed, p + "post_attention_norm")
        h = rms(x, weights[p + "ffn_norm.weight"])
        x = x + behind(linear(act(linear(h, p + "ffn_gate")) * linear(h, p + "ffn_up"),
                              p + "ffn_down"), p + "post_ffw_norm")
    output = "output.weight" if "output.weight" in weights else "token_embd.weight"
    normed = rms(x, weights[c.output_norm()])
    logits = normed @ weights[output].T + beside(normed, "output")
    trained = [i for i in range(n) if example["trained"][i]]
    rows = logits[[i - 1 for i in trained]]
    return torch.nn.functional.cross_entropy(rows, torch.tensor([example["token"][i] for i in trained]))


def make_examples(rng, c):
    """Two examples: one with rows of a picture and dropped positions, one plain and longer. The
    picture is a mask group of Gemma 3's, and stands as 2 by 2 patches in Qwen 2 VL."""
    first = {"token": [0, 1, 2, 3] + rng.integers(0, VOCAB, 9).tolist(),
             "modality": [1] * 4 + [0] * 9, "position": [0, 1, 3, 4] + list(range(7, 16)),
             "trained": [0] * 7 + [1, 1, 0, 0, 1, 0],
             "media": torch.tensor(rng.normal(0, 0.7, (4, WIDTH)).astype(np.float32)).double()}
    first["token"][5] = first["token"][8]
    second = {"token": rng.integers(0, VOCAB, 21).tolist(), "modality": [0] * 21,
              "position": list(range(21)), "trained": [0] * 9 + [1] * 12,
              "media": torch.zeros(0, WIDTH).double()}
    for e in (first, second):
        n = len(e["token"])
        e["group"], e["shift"] = [0] * n, [[0, 0, 0]] * n
    if c.window:
        first["group"] = [1] * 4 + [0] * 9
    if c.sections:
        first["shift"] = [[0, 0, 0], [0, 1, 0], [1, 0, 0], [1, 1, 0]] + [[0, 0, 0]] * 9
        first["position"] = [1] * 4 + list(range(4, 13))
    return [first, second]


def main():
    for c in CONFIGS:
        rng = np.random.default_rng(c.seed)
        keys, tensors, weights = make_model(rng, c)
        examples = make_examples(rng, c)
        write_gguf(f"{HERE}/tiny-{c.word}.gguf", keys, tensors)
        out, golden = [], {}

        def put(name, t):
            w = t.detach().numpy().astype(np.float32)
            out.append((name, w.shape if w.ndim else (1,), F32, w.tobytes()))

        for i, e in enumerate(examples):
            for field in ("token", "modality", "position", "trained"):
                golden[f"example.{i}.{field}"] = np.array(e[field], dtype=np.int32)
            if any(e["group"]):
                golden[f"example.{i}.group"] = np.array(e["group"], dtype=np.int32)
            if np.any(e["shift"]):
                golden[f"example.{i}.shift"] = np.array(e["shift"], dtype=np.int32).flatten()
            if len(e["media"]):
                put(f"example.{i}.media", e["media"])

        def gradients(kind, leaves, pairs):
            """The unit of both examples: mean of their losses."""
            losses = [loss_of(c, {**weights, **leaves}, pairs, e) for e in examples]
            golden[f"{kind}.loss"] = np.array([float(l) for l in losses])
            wanted = [n for n in leaves] + [n for n in sorted(extra)]
            tensors = [leaves.get(n, extra.get(n)) for n in wanted]
            for n, g in zip(wanted, torch.autograd.grad(sum(losses) / len(losses), tensors)):
                put(f"{kind}/{n}", g)

        def leaves_of(**values):
            return {k: torch.tensor(v, dtype=torch.float64, requires_grad=True)
                    for k, v in values.items()}

        seed = bytes(range(100, 132))
        for kind in ("lora", "ffa") if c.arch == "llama" else ("lora",):
            pairs, extra, ordinal = {}, {}, 0
            for i in range(c.layers):
                for target in TARGETS:
                    if target not in c.linears(i):
                        continue
                    n_out, n_in = c.shapes()[target]
                    name = f"blk.{i}.{target}"
                    a = ffa_matrix(seed, ordinal, RANK, n_in)
                    if kind == "lora":
                        a = rng.normal(0, 0.4, (RANK, n_in)).astype(np.float32)
                    ordinal += 1
                    b = rng.normal(0, 0.3, (n_out, RANK)).astype(np.float32)
                    pairs[name] = leaves_of(a=a, b=b) | {"scale": ALPHA / RANK}
                    put(f"{kind}.value/{name}.weight.lora_a", pairs[name]["a"])
                    put(f"{kind}.value/{name}.weight.lora_b", pairs[name]["b"])
                    if kind == "lora":
                        extra[f"{name}.weight.lora_a"] = pairs[name]["a"]
                    extra[f"{name}.weight.lora_b"] = pairs[name]["b"]
            gradients(kind, {}, pairs)
        extra = {}
        gradients("all", {n: w.clone().requires_grad_() for n, w in weights.items()}, {})
        if c.arch == "llama":
            # Ranks of their own under rsLoRA, and the output where it has a tensor of its own.
            pairs, extra = {}, {}
            for name, rank in [("blk.0.attn_q", 2), ("blk.0.ffn_up", 4), ("blk.0.ffn_down", 4),
                               ("blk.1.attn_q", 2), ("blk.1.ffn_up", 4), ("blk.1.ffn_down", 4),
                               ("blk.1.attn_k", 1), ("output", 3)]:
                if name == "output" and c.tied:
                    continue
                n_out, n_in = (VOCAB, WIDTH) if name == "output" else c.shapes()[name[6:]]
                pairs[name] = leaves_of(a=rng.normal(0, 0.4, (rank, n_in)).astype(np.float32),
                                        b=rng.normal(0, 0.1, (n_out, rank)).astype(np.float32))
                pairs[name]["scale"] = ALPHA / math.sqrt(rank)
                for half in "ab":
                    put(f"mixed.value/{name}.weight.lora_{half}", pairs[name][half])
                    extra[f"{name}.weight.lora_{half}"] = pairs[name][half]
            gradients("mixed", {}, pairs)
            pairs, extra = {}, {}
            for ordinal, (i, target) in enumerate((i, t) for i in range(c.layers) for t in TARGETS):
                n_out, n_in = c.shapes()[target]
                core = rng.normal(0, 0.3, (RANK, RANK)).astype(np.float32)
                name = f"blk.{i}.{target}"
                pairs[name] = leaves_of(core=core, a=ffa_matrix(seed, ordinal, RANK, n_in),
                                        b=ffa_matrix(seed, ordinal | 1 << 63, n_out, RANK))
                pairs[name]["scale"] = ALPHA / RANK
                put(f"core.value/{name}.weight.lora_core", pairs[name]["core"])
                extra[f"{name}.weight.lora_core"] = pairs[name]["core"]
            gradients("core", {}, pairs)
        write_gguf(f"{HERE}/gradients-{c.word}.gguf", golden, out)


main()
