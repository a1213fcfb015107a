#!/usr/bin/env python3
"""Makes the inputs of tests/fuzz/corpus/{gguf,vocabulary,tokenize,chat,text_model}: small files, good and bad, laid out here
byte by byte. The same call writes the same bytes.

usage: make_corpus.py
"""
import json
import os
import struct

HERE = os.path.dirname(os.path.abspath(__file__))
GOLDEN = os.path.join(HERE, "..", "golden")
U32, STRING, ARRAY = 4, 8, 9


def u32(v):
    return struct.pack("<I", v & 0xFFFFFFFF)


def u64(v):
    return struct.pack("<Q", v & 0xFFFFFFFFFFFFFFFF)


def string(b):
    b = b if isinstance(b, bytes) else b.encode()
    return u64(len(b)) + b


def key(name, kind, value):
    return string(name) + u32(kind) + value


def strings(items):
    return u32(STRING) + u64(len(items)) + b"".join(string(i) for i in items)


def tensor(name, dims, kind, offset):
    return string(name) + u32(len(dims)) + b"".join(u64(d) for d in dims) + u32(kind) + u64(offset)


def container(keys=(), tensors=(), data=b"", magic=b"GGUF", version=3, n_tensors=None, n_keys=None, alignment=32):
    head = magic + u32(version) + u64(len(tensors) if n_tensors is None else n_tensors)
    head += u64(len(keys) if n_keys is None else n_keys) + b"".join(keys) + b"".join(tensors)
    return head + bytes(-len(head) % alignment) + data


NAME = key("general.architecture", STRING, string("llama"))
FLOATS = struct.pack("<32f", *[i / 4 for i in range(32)])
ONE = tensor("one", [8, 4], 0, 0)

GGUF_GOOD = {
    "empty": container(),
    "one": container([NAME], [ONE], FLOATS),
    "two": container([NAME], [ONE, tensor("two", [32], 8, 128)], FLOATS + bytes(range(34)) + bytes(30)),
    "version2": container([NAME], [ONE], FLOATS, version=2),
    "unsupported_type": container([NAME], [tensor("q2", [256], 10, 0)], bytes(84)),
    "arrays": container([key("a", ARRAY, strings(["x", "", "yy"])), key("b", ARRAY, u32(5) + u64(2) + u32(1) + u32(-1)),
                         key("c", 7, b"\x01"), key("d", 12, struct.pack("<d", 0.5)), key("e", 11, u64(-5))]),
    "alignment": container([key("general.alignment", U32, u32(64))], [ONE], FLOATS, alignment=64),
}
GGUF_BAD = {
    "nothing": b"",
    "magic": container(magic=b"GGML"),
    "big_endian": b"GGUF" + struct.pack(">I", 3) + bytes(16),
    "counts": container(n_tensors=-1, n_keys=-1),
    "array_of_arrays": container([key("a", ARRAY, u32(9) + u64(1) + u32(4) + u64(0))]),
    "array_wraps": container([key("a", ARRAY, u32(10) + u64(2**61 + 1) + u64(0))]),
    "string_wraps": container([key("a", STRING, u64(-1))]),
    "duplicate_key": container([NAME, NAME]),
    "duplicate_tensor": container([], [ONE, tensor("one", [8], 0, 128)], FLOATS + FLOATS),
    "overlap": container([], [ONE, tensor("two", [8], 0, 32)], FLOATS),
    "dims_wrap": container([], [tensor("w", [2**32, 2**32, 1, 1], 0, 0)], FLOATS),
    "zero_dim": container([], [tensor("w", [0], 0, 0)], FLOATS),
    "alignment_0": container([key("general.alignment", U32, u32(0))], [ONE], FLOATS),
    "truncated": container([NAME], [ONE], FLOATS[:-1]),
    "offset": container([NAME], [tensor("one", [8, 4], 0, 2**63)], FLOATS),
    "unknown_type": container([NAME], [tensor("new", [16, 2], 40, 0), tensor("far", [2**40, 2**23], 2**31, 0)], FLOATS),
}


def vocabulary(tokens, types, merges, model="gpt2", pre="gpt-2", eos=0):
    return container([
        key("tokenizer.ggml.model", STRING, string(model)), key("tokenizer.ggml.pre", STRING, string(pre)),
        key("tokenizer.ggml.tokens", ARRAY, strings(tokens)),
        key("tokenizer.ggml.token_type", ARRAY, u32(5) + u64(len(types)) + b"".join(u32(t) for t in types)),
        key("tokenizer.ggml.merges", ARRAY, strings(merges)), key("tokenizer.ggml.eos_token_id", U32, u32(eos))])


def spm(tokens, types, scores, space=True):
    return container([
        key("tokenizer.ggml.model", STRING, string("llama")), key("tokenizer.ggml.tokens", ARRAY, strings(tokens)),
        key("tokenizer.ggml.token_type", ARRAY, u32(5) + u64(len(types)) + b"".join(u32(t) for t in types)),
        key("tokenizer.ggml.scores", ARRAY, u32(6) + u64(len(scores)) + struct.pack(f"<{len(scores)}f", *scores)),
        key("tokenizer.ggml.add_space_prefix", 7, bytes([space]))])


SPM = ["<unk>", "<s>", "</s>", "<0x0A>", "a", "\u2581", "\u2581a", "aa", "<u>", "\u00e9", "12", "ab", "b", "<|im_end|>"]
SPM_TYPES = [2, 3, 3, 6, 1, 1, 1, 1, 4, 1, 1, 5, 1, 4]
SPM_SCORES = [0, 0, 0, 0, -1, -2, -3, -4, 0, -5, -6, -0.5, -7, 0]
SMALL = (["<|im_end|>", "a", "b", "ab", "aa", "1", "2", "Ġ", "Ċ", "é", "<u>"], [3] + [1] * 9 + [4], ["a b", "a a"])
VOCABULARY_GOOD = {
    "small": vocabulary(*SMALL),
    "smollm": vocabulary(*SMALL, pre="smollm"),
    "no_merges": vocabulary(["a"], [1], []),
    "llama3": vocabulary(*SMALL, pre="llama-bpe"),
    "qwen2": vocabulary(*SMALL, pre="qwen2"),
    "falcon": vocabulary(*SMALL, pre="falcon"),
    "default": vocabulary(*SMALL, pre="default"),
    "spm": spm(SPM, SPM_TYPES, SPM_SCORES),
    "spm_no_space": spm(SPM, SPM_TYPES, SPM_SCORES, space=False),
    "spm_one": spm(["a"], [1], [0]),
}
VOCABULARY_BAD = {
    "twice": vocabulary(["a", "a"], [1, 1], []),
    "type": vocabulary(["a"], [9], []),
    "merge_unknown": vocabulary(["a", "b"], [1, 1], ["a b"]),
    "merge_to_control": vocabulary(["a", "b", "ab"], [1, 1, 3], ["a b"]),
    "eos": vocabulary(["a"], [1], [], eos=1),
    "spm": vocabulary(["a"], [1], [], model="llama"),
    "spm_scores": spm(SPM, SPM_TYPES, SPM_SCORES[:-1]),
    "spm_nan": spm(["a"], [1], [float("nan")]),
    "spm_byte": spm(["<0x-1>"], [6], [0]),
    "bert": vocabulary(*SMALL, model="bert"),
    "none": container(),
}

TOKENIZE_GOOD = {
    "empty": b"", "english": b"It's 72 beats per minute; they'll see.\n", "markers": b"<|im_start|>user\nHi<|im_end|>",
    "spaces": b"  \t\n\r\n   a  ", "no_utf8": b"\xff\xc3\xed\xa0\x80 \xf0\x9f\x99\x82 \xf0\x9f",
    "combining": "e\u0301 q\u0323\u0307 \u1100\u1161\u11a8 \u0344\u0301\u0301 \ufb01".encode(),
    "spm": b"</s> <s>a<u>a <0x0A> \xe2\x96\x81\xe2\x96 a\r\n'S 12345",
    "scripts": "Größe Привет 你好 １２ ½ नमस्ते \u180e\u0085\u3000".encode(), "run": b"a" * 100 + b"!" * 50 + b"1" * 50,
}


def chat_corpus():
    with open(os.path.join(GOLDEN, "chat.json"), encoding="utf-8") as f:
        good = {row["name"].replace(" ", "_"): row["template"].encode() for row in json.load(f)["templates"]}
    bad = {"empty": b"", "llama2": b"{% for m in messages %}[INST] {{ m['content'] }} [/INST]{% endfor %}",
           "llama2_system": b"{{ bos_token }}{{ '[INST] <<SYS>>' }}{{ ' [/INST]' + eos_token }}",
           "thinking": b"<|im_start|><think><|im_end|>add_generation_prompt",
           "long_system": b"add_generation_prompt<|im_start|>system\n" + b"x" * 8192 + b"<|im_end|>"}
    return good, bad


def values(count, kind):
    """Numbers of no meaning: fp32, or Q8_0 blocks with scale 2^-7."""
    if kind == 0:
        return struct.pack(f"<{count}f", *[((7 * i) % 13 - 6) / 8 for i in range(count)])
    return b"".join(b"\x00\x20" + bytes((11 * i + j) % 256 for j in range(32)) for i in range(count // 32))


def llama(kind=0, keys=(), without=(), with_tensor=None, width=32, arch="llama"):
    """One layer with 4 heads of 8, 2 key-value heads, 32 wide, 4 tokens; lfm2's is a convolution."""
    numbers = {"context_length": 16, "embedding_length": width, "block_count": 1, "feed_forward_length": 32,
               "attention.head_count": 4, "attention.head_count_kv": 2}
    head = [key("general.architecture", STRING, string(arch))]
    head += [key(f"{arch}.{name}", U32, u32(v)) for name, v in numbers.items() if name not in without]
    if "eps" not in without:
        head.append(key(f"{arch}.attention.layer_norm_rms_epsilon", 6, struct.pack("<f", 1e-5)))
    shapes = {"token_embd": (32, 4), "output_norm": (32,), "blk.0.attn_norm": (32,), "blk.0.ffn_norm": (32,),
              "blk.0.attn_q": (32, 32), "blk.0.attn_k": (32, 16), "blk.0.attn_v": (32, 16),
              "blk.0.attn_output": (32, 32), "blk.0.ffn_gate": (32, 32), "blk.0.ffn_up": (32, 32),
              "blk.0.ffn_down": (32, 32)}
    if with_tensor:
        shapes[with_tensor] = (32,)
    if arch.startswith("qwen2"):
        shapes |= {f"blk.0.attn_{x}.bias": (32 if x == "q" else 16,) for x in "qkv"}
    if arch in ("qwen3", "gemma3"):
        shapes |= {"blk.0.attn_q_norm": (8,), "blk.0.attn_k_norm": (8,)}
    if arch == "gemma3":
        shapes |= {"blk.0.post_attention_norm": (32,), "blk.0.post_ffw_norm": (32,)}
    if arch == "lfm2":
        shapes = {n: d for n, d in shapes.items() if "attn" not in n or n == "blk.0.attn_norm"}
        shapes["token_embd_norm"] = shapes.pop("output_norm")
        shapes |= {"blk.0.shortconv.conv": (3, 32), "blk.0.shortconv.in_proj": (32, 96),
                   "blk.0.shortconv.out_proj": (32, 32)}
    tensors, data = [], b""
    for name, dims in shapes.items():
        if name in without:
            continue
        type_ = kind if len(dims) == 2 and dims[0] % 32 == 0 else 0
        full = name if name.endswith(".bias") else name + ".weight"
        tensors.append(tensor(full, dims, type_, len(data)))
        data += values(dims[0] * (dims[1] if len(dims) == 2 else 1), type_)
        data += bytes(-len(data) % 32)
    return container(head + list(keys), tensors, data)


def scaling(name, arch="llama"):
    return key(f"{arch}.rope.scaling.type", STRING, string(name))


def real(name, v):
    return key(name, 6, struct.pack("<f", v))


def sections(*pairs):
    return key("qwen2vl.rope.dimension_sections", ARRAY, u32(5) + u64(len(pairs)) + b"".join(u32(p) for p in pairs))


# A key-value head count of 0 makes the layer a convolution.
CONVOLVES = [key("lfm2.attention.head_count_kv", ARRAY, u32(U32) + u64(1) + u32(0)),
             key("lfm2.shortconv.l_cache", U32, u32(3))]


def lfm2(keys=CONVOLVES, without=()):
    return llama(8, keys, ["attention.head_count_kv", *without], arch="lfm2")


TEXT_MODEL_GOOD = {
    "f32": llama(), "q8_0": llama(8), "linear": llama(keys=[scaling("linear")]),
    "array": llama(8, [key("llama.feed_forward_length", ARRAY, u32(U32) + u64(1) + u32(32))],
                   ["feed_forward_length"]),
    "qwen2": llama(8, arch="qwen2"), "qwen3": llama(8, arch="qwen3"),
    "yarn": llama(arch="qwen2", keys=[scaling("yarn", "qwen2"), real("qwen2.rope.scaling.factor", 4)]),
    "gemma3": llama(8, [key("gemma3.attention.sliding_window", U32, u32(2))], arch="gemma3"),
    "qwen2vl": llama(8, [sections(1, 2, 1)], arch="qwen2vl"), "lfm2": lfm2(),
}
TEXT_MODEL_BAD = {
    "no_down": llama(without=["blk.0.ffn_down"]), "no_eps": llama(without=["eps"]), "width": llama(width=64),
    "extra": llama(with_tensor="blk.0.attn_q_norm"), "yarn": llama(keys=[scaling("yarn"), real("llama.rope.scaling.factor", 0)]),
    "longrope": llama(keys=[scaling("longrope")]), "other": llama(arch="gemma2"),
    "no_bias": llama(arch="qwen2", without=["blk.0.attn_k.bias"]),
    "no_norm": llama(arch="qwen3", without=["blk.0.attn_q_norm"]),
    "window": llama(keys=[key("llama.attention.sliding_window", U32, u32(8))]),
    "heads_0": llama(keys=[key("llama.attention.head_count", U32, u32(0))], without=["attention.head_count"]),
    "layers": llama(keys=[key("llama.block_count", U32, u32(-1))], without=["block_count"]),
    "kv_3": llama(keys=[key("llama.attention.head_count_kv", U32, u32(3))], without=["attention.head_count_kv"]),
    "short_array": llama(keys=[key("llama.feed_forward_length", ARRAY, u32(U32) + u64(0))],
                         without=["feed_forward_length"]),
    "sections": llama(keys=[sections(1, 2, 2)], arch="qwen2vl"), "no_sections": llama(arch="qwen2vl"),
    "sections_5": llama(keys=[sections(1, 1, 1, 1, 0)], arch="qwen2vl"),
    "sections_negative": llama(keys=[sections(5, -1)], arch="qwen2vl"),
    "pattern_0": llama(keys=[key("gemma3.attention.sliding_window_pattern", U32, u32(0))], arch="gemma3"),
    "no_post_norm": llama(arch="gemma3", without=["blk.0.post_ffw_norm"]),
    "no_kernel": lfm2(without=["blk.0.shortconv.conv"]), "no_taps": lfm2(CONVOLVES[:1]),
    "taps": lfm2(CONVOLVES[:1] + [key("lfm2.shortconv.l_cache", U32, u32(65))]),
    "kv_0": llama(keys=[key("llama.attention.head_count_kv", ARRAY, u32(U32) + u64(1) + u32(0))],
                  without=["attention.head_count_kv"]),
    "experts": llama(keys=[key("llama.expert_count", U32, u32(8))]),
}


def write(target, folder, inputs):
    path = os.path.join(HERE, "corpus", target, folder)
    os.makedirs(path, exist_ok=True)
    for name, data in inputs.items():
        with open(os.path.join(path, name), "wb") as f:
            f.write(data)


def main():
    chat_good, chat_bad = chat_corpus()
    for target, good, bad in (("gguf", GGUF_GOOD, GGUF_BAD), ("vocabulary", VOCABULARY_GOOD, VOCABULARY_BAD),
                              ("tokenize", TOKENIZE_GOOD, {}), ("chat", chat_good, chat_bad),
                              ("text_model", TEXT_MODEL_GOOD, TEXT_MODEL_BAD)):
        write(target, "good", good)
        write(target, "bad", bad)


if __name__ == "__main__":
    main()
