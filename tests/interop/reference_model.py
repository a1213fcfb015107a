"""What the checks share: a reader of GGUF files, a forward of llama, qwen2, qwen2vl, qwen3, gemma3 and lfm2
models in NumPy, ways to ask `tacit` and llama.cpp, and a counter of what passed. Shares no code with Tacit.
Needs numpy, and PyPI's gguf to read types beyond Q8_0, Q4_0 and Q4_1."""
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
        values, size = block_of(kind)
        raw = np.asarray(self.data[at : at + count // values * size])
        return dequantize(raw, kind).astype(np.float64).reshape(shape[::-1])


def block_of(kind):
    """Values and bytes of a block."""
    if kind in BLOCKS:
        return BLOCKS[kind]
    import gguf

    return gguf.GGML_QUANT_SIZES[gguf.GGMLQuantizationType(kind)]


def dequantize(raw, kind):
    if kind not in BLOCKS:
        import gguf

        return gguf.quants.dequantize(raw, gguf.GGMLQuantizationType(kind))
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


def silu(x):
    return x / (1 + np.exp(-x))


def gelu(x):
    """By tanh, as Gemma has it."""
    return x / 2 * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3)))


class Shape:
    """The numbers of a text model's file. Gemma 3 (arXiv 2503.19786): five layers that look back over a
    window, and turn by a base of their own, then one that sees everything; embeddings times the root of
    their width; GeGLU. LFM2 (arXiv 2511.23404): layers without key-value heads convolve."""

    LOCAL_BASE, PATTERN = 10000.0, 6

    def __init__(self, f):
        self.arch = f.keys["general.architecture"]
        key = lambda name, absent=None: f.keys.get(f"{self.arch}.{name}", absent)
        self.layers, self.width = key("block_count"), key("embedding_length")
        self.heads = key("attention.head_count")
        self.kv = key("attention.head_count_kv", self.heads)  # or one a layer
        self.dim = key("attention.key_length", self.width // self.heads)
        self.eps = key("attention.layer_norm_rms_epsilon")
        self.base = key("rope.freq_base", 10000.0)
        self.window = key("attention.sliding_window", 0)
        self.scale = np.sqrt(self.width) if self.arch == "gemma3" else 1
        self.activation = gelu if self.arch == "gemma3" else silu
        # Llama's converter reorders rows so that neighbours are a pair; the others' files keep the models'
        # own order, in which a pair is half a head apart. Where Qwen 2 VL's positions have several numbers
        # those of text are equal.
        self.halves = {"llama": False, "qwen2": True, "qwen2vl": True, "qwen3": True, "gemma3": True,
                       "lfm2": True}[self.arch]
        if key("rope.scaling.type", "none") != "none":
            raise ValueError("scaled rope is not in this reference")
        if self.window and self.arch != "gemma3":
            raise ValueError("windows are Gemma 3's alone in this reference")

    def kv_of(self, layer):
        """Key-value heads; 0: the layer convolves."""
        return self.kv[layer] if isinstance(self.kv, tuple) else self.kv

    def window_of(self, layer):
        """How far a layer looks back; 0: it sees everything."""
        return 0 if (layer + 1) % self.PATTERN == 0 else self.window

    def pairs(self):
        """Columns of a head: the first and the second of each pair."""
        return (np.arange(self.dim // 2), np.arange(self.dim // 2, self.dim)) if self.halves else (
            np.arange(0, self.dim, 2), np.arange(1, self.dim, 2))

    def angles(self, f, n, layer=0):
        """[n, dim / 2]: of positions 0 to n - 1; Llama 3's divisors are a tensor."""
        base = self.LOCAL_BASE if self.window_of(layer) else self.base
        step = base ** -(np.arange(0, self.dim, 2) / self.dim)
        divisor = f.tensor("rope_freqs.weight")
        return np.arange(n)[:, None] * (step if divisor is None else step / divisor)


def rope(x, angle, pairs):
    """Turns x [positions, heads, dim]."""
    first, second = pairs
    z = (x[..., first] + 1j * x[..., second]) * np.exp(1j * angle)[:, None, :]
    out = np.empty_like(x)
    out[..., first], out[..., second] = z.real, z.imag
    return out


def attend(q, k, v, window):
    """Causal attention of one text: q [n, heads, dim], k and v [n, kv heads, dim]; window 0: all before."""
    n, heads, dim = q.shape
    k, v = (np.repeat(t, heads // t.shape[1], 1) for t in (k, v))
    q, k, v = (t.transpose(1, 0, 2) for t in (q, k, v))
    behind = np.arange(n)[:, None] - np.arange(n)
    hidden = (behind < 0) | (behind >= window if window else False)
    score = q @ k.transpose(0, 2, 1) / np.sqrt(dim) + np.where(hidden, -np.inf, 0)
    p = np.exp(score - score.max(-1, keepdims=True))
    p /= p.sum(-1, keepdims=True)
    return (p @ v).transpose(1, 0, 2).reshape(n, -1)


def convolve(x, kernel):
    """A row's column is the sum over the last rows of that column, weighted: x [n, width], kernel
    [width, taps], whose last tap is the row's own."""
    taps = kernel.shape[1]
    x = np.concatenate((np.zeros((taps - 1, x.shape[1])), x))
    return sum(x[t : len(x) - taps + 1 + t] * kernel[:, t] for t in range(taps))


class Layer:
    """One layer of a file on the rows of all texts, side by side; `split` parts them."""

    def __init__(self, f, shape, i, split, rows):
        self.f, self.shape, self.i, self.split = f, shape, i, split
        self.angle = shape.angles(f, rows, i)

    def weight(self, name):
        return self.f.tensor(f"blk.{self.i}.{name}.weight")

    def linear(self, h, name):
        bias = self.f.tensor(f"blk.{self.i}.{name}.bias")
        y = h @ self.weight(name).T
        return y if bias is None else y + bias

    def norm(self, h, name):
        """Of rows, or of heads; nothing where the file has no such norm."""
        scale = self.weight(name)
        return h if scale is None else norm(h, scale, self.shape.eps)

    def turned(self, h, name, count):
        heads = self.norm(self.linear(h, name).reshape(len(h), count, self.shape.dim), name + "_norm")
        return [rope(x, self.angle[: len(x)], self.shape.pairs()) for x in self.split(heads)]

    def attention(self, h):
        s, kv = self.shape, self.shape.kv_of(self.i)
        q, k = self.turned(h, "attn_q", s.heads), self.turned(h, "attn_k", kv)
        v = self.split(self.linear(h, "attn_v").reshape(len(h), kv, s.dim))
        mixed = [attend(q, k, v, s.window_of(self.i)) for q, k, v in zip(q, k, v)]
        return self.linear(np.concatenate(mixed), "attn_output")

    def convolution(self, h):
        before, after, x = np.split(self.linear(h, "shortconv.in_proj"), 3, -1)
        kernel = self.weight("shortconv.conv")
        mixed = np.concatenate([convolve(t, kernel) for t in self.split(before * x)])
        return self.linear(after * mixed, "shortconv.out_proj")

    def forward(self, x):
        mix = self.attention if self.shape.kv_of(self.i) else self.convolution
        x = x + self.norm(mix(self.norm(x, "attn_norm")), "post_attention_norm")
        h = self.norm(x, "ffn_norm")
        gated = self.shape.activation(self.linear(h, "ffn_gate")) * self.linear(h, "ffn_up")
        return x + self.norm(self.linear(gated, "ffn_down"), "post_ffw_norm")


def forward(f, texts):
    """Yields the logits [len(tokens), vocabulary] of every list of tokens, in float64 on the
    dequantized weights. Layer by layer for all texts, so that a weight is dequantized once."""
    shape = Shape(f)
    ends = np.cumsum([len(t) for t in texts])
    split = lambda rows: np.split(rows, ends[:-1])
    embedding = f.tensor("token_embd.weight")
    x = embedding[np.concatenate(texts)] * shape.scale
    for i in range(shape.layers):
        x = Layer(f, shape, i, split, max(len(t) for t in texts)).forward(x)
    scale = f.tensor("token_embd_norm.weight" if shape.arch == "lfm2" else "output_norm.weight")
    output = f.tensor("output.weight")
    for rows in split(norm(x, scale, shape.eps)):
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


def dumped_logits(program, model, precision, texts):
    """Yields the logits [len(tokens), vocabulary] of every list of tokens, by dump_logits."""
    lines = "".join(" ".join(map(str, tokens)) + "\n" for tokens in texts).encode()
    with subprocess.Popen([program, model, precision], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as run:
        # Small enough for a pipe to take it all before anything is read.
        run.stdin.write(lines)
        run.stdin.close()
        vocabulary = Gguf(model).tensors["token_embd.weight"][0][1]
        for tokens in texts:
            raw = run.stdout.read(len(tokens) * vocabulary * 4)
            yield np.frombuffer(raw, np.float32).reshape(len(tokens), vocabulary).astype(np.float64)
    if run.returncode != 0:
        raise RuntimeError(f"dump_logits ended with {run.returncode}")


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
