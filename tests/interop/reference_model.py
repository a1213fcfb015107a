"""What the checks share: a reader of GGUF files, a forward of llama, qwen2 and qwen3 models in NumPy,
ways to ask `tacit` and llama.cpp, and a counter of what passed. Shares no code with Tacit. Needs numpy."""
import json
import struct
import subprocess
import sys

import numpy as np

SCALARS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
BLOCKS = {0: (1, 4), 1: (1, 2), 2: (32, 18), 3: (32, 20), 8: (32, 34), 30: (1, 2)}


class Gguf:
    """Keys, and tensors as float64."""

    def __init__(self, path):
        self.data = np.memmap(path, dtype=np.uint8, mode="r")
        self.at = 0
        magic, version, n_tensors, n_keys = self.read("4sIQQ")
        if magic != b"GGUF" or version not in (2, 3):
            raise ValueError(f"{path}: not GGUF 2 or 3")
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
        """Values as float64, shape [rows, row length] (or one axis); None when there is none."""
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


class Shape:
    """The numbers of a text model's file."""

    def __init__(self, f):
        self.arch = f.keys["general.architecture"]
        key = lambda name, absent=None: f.keys.get(f"{self.arch}.{name}", absent)
        self.layers, self.width = key("block_count"), key("embedding_length")
        self.heads = key("attention.head_count")
        self.kv = key("attention.head_count_kv", self.heads)
        self.dim = key("attention.key_length", self.width // self.heads)
        self.eps = key("attention.layer_norm_rms_epsilon")
        self.base = key("rope.freq_base", 10000.0)
        # Llama's converter reorders rows so that neighbours are a pair; Qwen's files keep the models'
        # own order, in which a pair is half a head apart.
        self.halves = {"llama": False, "qwen2": True, "qwen3": True}[self.arch]
        if key("rope.scaling.type", "none") != "none":
            raise ValueError("scaled rope is not in this reference")

    def pairs(self):
        """Columns of a head: the first and the second of each pair."""
        return (np.arange(self.dim // 2), np.arange(self.dim // 2, self.dim)) if self.halves else (
            np.arange(0, self.dim, 2), np.arange(1, self.dim, 2))

    def angles(self, f, n):
        """[n, dim / 2]: of positions 0 to n - 1; Llama 3's divisors are a tensor."""
        step = self.base ** -(np.arange(0, self.dim, 2) / self.dim)
        divisor = f.tensor("rope_freqs.weight")
        return np.arange(n)[:, None] * (step if divisor is None else step / divisor)


def rope(x, angle, pairs):
    """Turns x [positions, heads, dim]."""
    first, second = pairs
    z = (x[..., first] + 1j * x[..., second]) * np.exp(1j * angle)[:, None, :]
    out = np.empty_like(x)
    out[..., first], out[..., second] = z.real, z.imag
    return out


def attend(q, k, v):
    """Causal attention of one text: q [n, heads, dim], k and v [n, kv heads, dim]."""
    n, heads, dim = q.shape
    k, v = (np.repeat(t, heads // t.shape[1], 1) for t in (k, v))
    score = np.einsum("ihd,jhd->hij", q, k) / np.sqrt(dim) + np.triu(np.full((n, n), -np.inf), 1)
    p = np.exp(score - score.max(-1, keepdims=True))
    p /= p.sum(-1, keepdims=True)
    return np.einsum("hij,jhd->ihd", p, v).reshape(n, -1)


def forward(f, texts):
    """Yields the logits [len(tokens), vocabulary] of every list of tokens, in float64 on the
    dequantized weights. Layer by layer for all texts, so that a weight is dequantized once."""
    shape = Shape(f)
    eps, dim = shape.eps, shape.dim
    ends = np.cumsum([len(t) for t in texts])
    split = lambda rows: np.split(rows, ends[:-1])
    angle = shape.angles(f, max(len(t) for t in texts))
    embedding = f.tensor("token_embd.weight")
    x = embedding[np.concatenate(texts)]
    for i in range(shape.layers):
        w = lambda name: f.tensor(f"blk.{i}.{name}.weight")

        def linear(h, name):
            bias = f.tensor(f"blk.{i}.{name}.bias")
            y = h @ w(name).T
            return y if bias is None else y + bias

        def heads(h, name, count):
            y = linear(h, name).reshape(len(h), count, dim)
            scale = w(name + "_norm")
            return split(y if scale is None else norm(y, scale, eps))

        turn = lambda x: rope(x, angle[: len(x)], shape.pairs())
        h = norm(x, w("attn_norm"), eps)
        q, k = heads(h, "attn_q", shape.heads), heads(h, "attn_k", shape.kv)
        v = split(linear(h, "attn_v").reshape(len(h), shape.kv, dim))
        mixed = [attend(turn(q), turn(k), v) for q, k, v in zip(q, k, v)]
        x = x + linear(np.concatenate(mixed), "attn_output")
        h = norm(x, w("ffn_norm"), eps)
        gate = linear(h, "ffn_gate")
        x = x + linear(gate / (1 + np.exp(-gate)) * linear(h, "ffn_up"), "ffn_down")
    output = f.tensor("output.weight")
    x = norm(x, f.tensor("output_norm.weight"), eps)
    for rows in split(x):
        yield rows @ (embedding if output is None else output).T


def divergence(expected, found):
    """KL divergence of the next token's distribution, one value a position."""
    p = expected - expected.max(-1, keepdims=True)
    q = found - found.max(-1, keepdims=True)
    p = p - np.log(np.exp(p).sum(-1, keepdims=True))
    q = q - np.log(np.exp(q).sum(-1, keepdims=True))
    return (np.exp(p) * (p - q)).sum(-1)


def tacit_json(program, *arguments):
    """The last line of standard output of a command, which prints one JSON object."""
    run = subprocess.run([program, *arguments], capture_output=True, text=True)
    if run.returncode != 0:
        raise RuntimeError(f"tacit {arguments[0]} failed: {run.stderr.strip()}")
    return json.loads(run.stdout.splitlines()[-1])


def tacit_tokens(program, model, text, *flags):
    """The tokens that `tacit logits` sees."""
    return tacit_json(program, "logits", "-m", model, "-p", text, "--top", "1", "--json", *flags)["tokens"]


def tacit_logits(program, model, text, *flags):
    """Tokens and logits [tokens, vocabulary]. The logits are read as lines: as JSON a text of a
    hundred tokens would need gigabytes."""
    common = ["logits", "-m", model, "-p", text, *flags]
    rows = []
    with subprocess.Popen([program, *common, "--all", "--top", "0"], stdout=subprocess.PIPE) as run:
        for line in run.stdout:
            pair = np.fromstring(line.replace(b":", b" "), sep=" ").reshape(-1, 2)
            row = np.empty(len(pair))
            row[pair[:, 0].astype(np.int64)] = pair[:, 1]
            rows.append(row)
    tokens = tacit_tokens(program, model, text)
    if run.returncode != 0 or len(rows) != len(tokens):
        raise RuntimeError(f"tacit logits printed {len(rows)} positions of {len(tokens)}")
    return tokens, np.array(rows)


class Peer:
    """llama.cpp's logits of a list of tokens; `llama` is None where it is not installed."""

    def __init__(self, model, rows=512):
        try:
            from llama_cpp import Llama
        except ImportError:
            self.llama = None
            return
        self.llama = Llama(model, n_ctx=rows, n_batch=rows, n_threads=1, n_threads_batch=1,
                           logits_all=True, verbose=False)

    def logits(self, tokens):
        self.llama.reset()
        self.llama.eval(tokens)
        return np.array(self.llama.scores[: len(tokens)], dtype=np.float64)


class Report:
    """Counts what passed; failures are printed as they happen."""

    def __init__(self):
        self.passed = self.failed = 0

    def check(self, good, what):
        if good:
            self.passed += 1
        else:
            self.failed += 1
            print(f"failed: {what}")

    def finish(self):
        print(f"{self.passed} passed, {self.failed} failed")
        sys.exit(self.failed > 0)
