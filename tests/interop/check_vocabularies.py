#!/usr/bin/env python3
"""llama.cpp's public vocabulary tests: every models/ggml-vocab-NAME.gguf with its texts (.inp) and expected ids (.out),
which the models' own tokenizers made. A vocabulary that is refused is named; those of NEEDED must not be.

For llama-spm also what SentencePiece itself makes of nasty texts with that vocabulary.

usage: check_vocabularies.py TACIT FOLDER
needs: pip install tokenizers sentencepiece gguf numpy
"""
import glob
import os
import subprocess
import sys
import tempfile

from reference_model import Report, tacit_json

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "golden"))
import gguf
import make_tokenizer as golden

NEEDED = ("gpt-2", "llama-bpe", "qwen2", "llama-spm", "phi-3", "command-r", "refact", "starcoder", "falcon", "mpt",
          "deepseek-coder", "deepseek-llm",
          "qwen35")


def tests(path):
    with open(path + ".inp", encoding="utf-8", newline="") as f:
        texts = f.read().split("\n__ggml_vocab_test__\n")
    with open(path + ".out", encoding="utf-8") as f:
        ids = [[int(i) for i in line.split()] for line in f.read().rstrip("\n").split("\n")]
    return list(zip(texts, ids))


def why_refused(program, path):
    run = subprocess.run([program, "tokenize", "-m", path, "-p", "a"], capture_output=True)
    return run.stderr.decode().strip() if run.returncode else ""


def varint(n):
    out = b""
    while n > 127:
        out, n = out + bytes([n & 127 | 128]), n >> 7
    return out + bytes([n])


def field(number, value):
    """Of a protobuf message: bytes or an int."""
    if isinstance(value, int):
        return varint(number << 3) + varint(value)
    return varint(number << 3 | 2) + varint(len(value)) + value


def sentencepiece_of(path):
    """A SentencePiece model (sentencepiece_model.proto) of the vocabulary in a GGUF file."""
    import struct

    import sentencepiece
    fields = gguf.GGUFReader(path).fields
    tokens, scores, types = (fields["tokenizer.ggml." + k].contents() for k in ("tokens", "scores", "token_type"))
    model = b"".join(field(1, field(1, t.encode()) + b"\x15" + struct.pack("<f", s) + field(3, k))
                     for t, s, k in zip(tokens, scores, types))
    model += field(2, field(3, 2) + field(35, 1))  # BPE, byte_fallback
    model += field(3, field(1, b"identity") + field(3, 1) + field(4, 0) + field(5, 1))
    return sentencepiece.SentencePieceProcessor(model_proto=model)


def check_sentencepiece(report, program, path):
    reference = sentencepiece_of(path)
    texts = [t for t in golden.TEXTS + golden.MORE_TEXTS + golden.random_texts(100, seed=11) if t]
    for text in texts:
        with tempfile.NamedTemporaryFile() as f:
            f.write(text.encode())
            f.flush()
            found = tacit_json(program, "tokenize", "-m", path, "--json", "--file", f.name)["tokens"]
        expected = reference.encode(text)
        report.check(found == expected, f"SentencePiece {text[:80]!r}\n  expected {expected}\n  found    {found}")
    print(f"llama-spm: {len(texts)} texts beside SentencePiece")


def main():
    program, folder = sys.argv[1:3]
    report = Report()
    for path in sorted(glob.glob(os.path.join(folder, "ggml-vocab-*.gguf"))):
        name = os.path.basename(path)[len("ggml-vocab-"):-len(".gguf")]
        if not os.path.exists(path + ".inp"):
            continue
        refusal = why_refused(program, path)
        report.check(not (refusal and name in NEEDED), refusal)
        if refusal:
            print(f"{name}: refused: {refusal.split(': ', 2)[-1][:80]}")
            continue
        rows = tests(path)
        for text, expected in rows:
            found = tacit_json(program, "tokenize", "-m", path, "--json", "-p", text)["tokens"]
            report.check(found == expected, f"{name} {text[:80]!r}\n  expected {expected}\n  found    {found}")
        print(f"{name}: {len(rows)} texts")
    check_sentencepiece(report, program, os.path.join(folder, "ggml-vocab-llama-spm.gguf"))
    report.finish()


if __name__ == "__main__":
    main()
