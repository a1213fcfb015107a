#!/usr/bin/env python3
"""Compares `tacit tokenize` on a real vocabulary with two programs: PyPI's `tokenizers` and llama.cpp
(where llama-cpp-python is there). Texts: the goldens' (scripts, spaces, control tokens spelled out),
random mixtures, manual pages' lines and the rooms' descriptions; each once with control tokens read
and once with them as plain text.

Every text must give the ids of `tokenizers`, and llama.cpp's wherever those two agree; where they do
not, the text is named and Tacit follows `tokenizers`, by which the model was trained.

usage: check_tokenizer.py TACIT MODEL.gguf [RANDOM_TEXTS]
needs: pip install tokenizers sentencepiece gguf numpy
"""
import glob
import os
import sys

from reference_model import Report, tacit_json

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "golden"))
import gguf
import make_tokenizer as golden


def tacit(program, model, text, special):
    return tacit_json(program, "tokenize", "-m", model, "--json", "-p", text,
                      *(["--special"] if special else []))["tokens"]


def documents():
    """Whole texts that people wrote, 2,000 characters each."""
    for name in sorted(glob.glob(os.path.join(HERE, "..", "..", "*", "README.md"))):
        with open(name, encoding="utf-8") as f:
            yield f.read(2000)
    with open(os.path.join(HERE, "..", "..", "LICENSE"), encoding="utf-8") as f:
        text = f.read()
    yield from (text[at : at + 2000] for at in range(0, len(text), 2000))


def open_peer(model):
    try:
        from llama_cpp import Llama
    except ImportError:
        print("llama-cpp-python is not installed: compared with `tokenizers` alone")
        return None
    return Llama(model, vocab_only=True, verbose=False)


def main():
    program, model = sys.argv[1:3]
    count = int(sys.argv[3]) if len(sys.argv) > 3 else 150
    pre = gguf.GGUFReader(model).fields["tokenizer.ggml.pre"].contents()
    tokens, types, merges = golden.read_vocabulary(model)
    control = [t for t, k in zip(tokens, types) if k == golden.CONTROL_TYPE]
    texts = [t for t in golden.TEXTS + golden.random_texts(count, seed=7) if "\0" not in t]
    texts += documents()
    report, peer, asked, ids, equal = Report(), open_peer(model), 0, 0, 0
    for special in (False, True):
        reference = golden.reference(pre, tokens, merges, control if special else [])
        for text in texts:
            expected = reference.encode(text, add_special_tokens=False).ids
            found = tacit(program, model, text, special)
            asked, ids = asked + 1, ids + len(expected)
            report.check(found == expected, f"{text[:200]!r} special={special}\n  expected {expected}\n  found    {found}")
            if not peer:
                continue
            theirs = peer.tokenize(text.encode(), add_bos=False, special=special)
            equal += theirs == found
            if theirs != expected:
                print(f"llama.cpp and tokenizers differ: {text[:80]!r} special={special}")
    print(f"{asked} texts, {ids} ids, vocabulary {len(tokens)}" + (f"; llama.cpp: {equal} equal" if peer else ""))
    report.finish()


if __name__ == "__main__":
    main()
