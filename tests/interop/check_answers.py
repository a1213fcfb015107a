#!/usr/bin/env python3
"""Asks a real model questions with known answers through `tacit run`, greedily, and llama.cpp the same
(its own chat template engine, tokenizer and kernels), where llama-cpp-python is there.

- The prompt of `tacit run` is what the file's own template makes of the question in Jinja.
- exact precision: every token of the answer is the best one of the reference's logits (NumPy, float64
  on the dequantized weights) wherever its best two are more than 0.1 apart.
- Both precisions: what llama.cpp's answer says of the expected words, Tacit's says too; the questions
  marked "must" are answered rightly in any case.

usage: check_answers.py TACIT MODEL.gguf       (needs numpy)
"""
import sys

import numpy as np
from reference_model import Gguf, Report, forward, tacit_json, tacit_tokens

# Question, words of which every one must occur in the answer, precisions in which that is demanded
# whatever the peer says. The first question's first token is a near tie in this model: llama.cpp and
# the fast precision fall on one side of it, the dequantized weights on the other.
BOTH = ("exact", "fast")
QUESTIONS = [
    ("What is the capital of France?", ["Paris"], ("exact",)),
    ("What is 2 plus 3?", ["5"], BOTH),
    ("What color is the sky on a clear day?", ["blue"], BOTH),
    ("Name the three primary colors.", ["Red", "Blue", "Yellow"], BOTH),
    ("What is the capital of Italy?", ["Rome"], ()),
    ("How many days are there in a week?", ["7"], ()),
]
LONGEST, CLEAR = 40, 0.1


class Peer:
    def __init__(self, model):
        from llama_cpp import Llama, llama_chat_format

        self.llama = Llama(model, n_ctx=512, n_threads=1, n_threads_batch=1, verbose=False)
        piece = lambda token: self.llama.detokenize([token], special=True).decode()
        self.template = llama_chat_format.Jinja2ChatFormatter(
            self.llama.metadata["tokenizer.chat_template"], eos_token=piece(self.llama.token_eos()),
            bos_token=piece(self.llama.token_bos()))

    def prompt(self, question):
        text = self.template(messages=[{"role": "user", "content": question}]).prompt
        return self.llama.tokenize(text.encode(), add_bos=False, special=True)

    def answer(self, question):
        out = self.llama.create_chat_completion([{"role": "user", "content": question}],
                                                temperature=0, max_tokens=LONGEST)
        return out["choices"][0]["message"]["content"]


def open_peer(model):
    try:
        return Peer(model)
    except ImportError:
        print("llama-cpp-python is not installed: only the answers themselves are checked")
        return None


def follows_reference(logits, first, answer):
    """Of the answer's tokens: how many stand at clear positions, how many of these are the best one."""
    rows = logits[first - 1 : first - 1 + len(answer)]
    best = np.partition(rows, -2, -1)
    clear = best[:, -1] - best[:, -2] > CLEAR
    return int(clear.sum()), int((rows.argmax(-1) == np.array(answer))[clear].sum())


def main():
    program, model = sys.argv[1:3]
    report, peer = Report(), open_peer(model)
    sequences, starts, answers = [], [], []
    for question, words, must in QUESTIONS:
        prompt = tacit_tokens(program, model, question, "--chat")
        theirs = peer.answer(question) if peer else ""
        right = all(word in theirs for word in words)
        if peer:
            print(f"{question}\n  llama.cpp: {' '.join(theirs.split())}")
            report.check(prompt == peer.prompt(question), f"{question}: another prompt than Jinja's")
        for precision in BOTH:
            flags = ["--exact"] if precision == "exact" else []
            out = tacit_json(program, "run", "-m", model, "-p", question, "-n", str(LONGEST), "--json", *flags)
            print(f"  Tacit, {precision}: {' '.join(out['text'].split())}"
                  + (" (the same text)" if peer and out["text"].strip() == theirs.strip() else ""))
            if right or precision in must:
                report.check(all(word in out["text"] for word in words),
                             f"{question} ({precision}): {words} are not in {out['text']!r}")
            if precision == "exact":
                sequences.append(prompt + out["tokens"])
                starts.append(len(prompt))
                answers.append(out["tokens"])
    clear = best = 0
    for logits, first, answer in zip(forward(Gguf(model), sequences), starts, answers):
        positions, equal = follows_reference(logits, first, answer)
        clear, best = clear + positions, best + equal
    print(f"exact: {best} of {clear} tokens at clear positions are the reference's best")
    report.check(best == clear > 0, "exact: answers leave the reference's greedy path")
    report.finish()


main()
