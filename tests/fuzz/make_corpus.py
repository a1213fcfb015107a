#!/usr/bin/env python3
"""Makes the inputs of tests/fuzz/corpus/{gguf,vocabulary,tokenize,chat}: small files, good and bad, laid out here
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
    "unsupported_type": container([NAME], [tensor("q6", [256], 14, 0)], bytes(210)),
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
}


def vocabulary(tokens, types, merges, model="gpt2", pre="gpt-2", eos=0):
    return container([
        key("tokenizer.ggml.model", STRING, string(model)), key("tokenizer.ggml.pre", STRING, string(pre)),
        key("tokenizer.ggml.tokens", ARRAY, strings(tokens)),
        key("tokenizer.ggml.token_type", ARRAY, u32(5) + u64(len(types)) + b"".join(u32(t) for t in types)),
        key("tokenizer.ggml.merges", ARRAY, strings(merges)), key("tokenizer.ggml.eos_token_id", U32, u32(eos))])


SMALL = (["<|im_end|>", "a", "b", "ab", "aa", "1", "2", "Ġ", "Ċ", "é", "<u>"], [3] + [1] * 9 + [4], ["a b", "a a"])
VOCABULARY_GOOD = {
    "small": vocabulary(*SMALL),
    "smollm": vocabulary(*SMALL, pre="smollm"),
    "no_merges": vocabulary(["a"], [1], []),
}
VOCABULARY_BAD = {
    "twice": vocabulary(["a", "a"], [1, 1], []),
    "type": vocabulary(["a"], [9], []),
    "merge_unknown": vocabulary(["a", "b"], [1, 1], ["a b"]),
    "merge_to_control": vocabulary(["a", "b", "ab"], [1, 1, 3], ["a b"]),
    "eos": vocabulary(["a"], [1], [], eos=1),
    "spm": vocabulary(["a"], [1], [], model="llama"),
    "none": container(),
}

TOKENIZE_GOOD = {
    "empty": b"", "english": b"It's 72 beats per minute; they'll see.\n", "markers": b"<|im_start|>user\nHi<|im_end|>",
    "spaces": b"  \t\n\r\n   a  ", "no_utf8": b"\xff\xc3\xed\xa0\x80 \xf0\x9f\x99\x82 \xf0\x9f",
    "scripts": "Größe Привет 你好 １２ ½ नमस्ते \u180e\u0085\u3000".encode(), "run": b"a" * 100 + b"!" * 50 + b"1" * 50,
}


def chat_corpus():
    with open(os.path.join(GOLDEN, "chat.json"), encoding="utf-8") as f:
        good = {row["name"]: row["template"].encode() for row in json.load(f)["templates"]}
    bad = {"empty": b"", "llama2": b"{% for m in messages %}[INST] {{ m['content'] }} [/INST]{% endfor %}",
           "long_system": b"add_generation_prompt<|im_start|>system\n" + b"x" * 1024 + b"<|im_end|>"}
    return good, bad


def write(target, folder, inputs):
    path = os.path.join(HERE, "corpus", target, folder)
    os.makedirs(path, exist_ok=True)
    for name, data in inputs.items():
        with open(os.path.join(path, name), "wb") as f:
            f.write(data)


def main():
    chat_good, chat_bad = chat_corpus()
    for target, good, bad in (("gguf", GGUF_GOOD, GGUF_BAD), ("vocabulary", VOCABULARY_GOOD, VOCABULARY_BAD),
                              ("tokenize", TOKENIZE_GOOD, {}), ("chat", chat_good, chat_bad)):
        write(target, "good", good)
        write(target, "bad", bad)


if __name__ == "__main__":
    main()
