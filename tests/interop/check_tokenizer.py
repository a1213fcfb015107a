#!/usr/bin/env python3
"""Compares `tacit tokenize` with PyPI's `tokenizers` on a whole vocabulary and many random texts.

usage: check_tokenizer.py TACIT MODEL.gguf [TEXTS]
needs: pip install tokenizers gguf numpy
"""
import json
import os
import subprocess
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "golden"))
import gguf
import make_tokenizer as golden


def tacit(program, model, text, special):
    options = ["--special"] if special else []
    run = subprocess.run([program, "tokenize", "-m", model, "--json", "-p", text, *options], check=True,
                         capture_output=True)
    return json.loads(run.stdout)["tokens"]


def main():
    program, model = sys.argv[1:3]
    count = int(sys.argv[3]) if len(sys.argv) > 3 else 300
    pre = gguf.GGUFReader(model).fields["tokenizer.ggml.pre"].contents()
    tokens, types, merges = golden.read_vocabulary(model)
    control = [t for t, k in zip(tokens, types) if k == golden.CONTROL_TYPE]
    wrong = 0
    texts = [t for t in golden.TEXTS + golden.random_texts(count, seed=7) if "\0" not in t]
    for special in (False, True):
        reference = golden.reference(pre, tokens, merges, control if special else [])
        for text in texts:
            expected = reference.encode(text, add_special_tokens=False).ids
            found = tacit(program, model, text, special)
            if found != expected:
                wrong += 1
                print(f"{text!r} special={special}\n  expected {expected}\n  found    {found}")
    print(f"{2 * len(texts) - wrong} passed, {wrong} failed")
    return wrong > 0


if __name__ == "__main__":
    sys.exit(main())
