#!/usr/bin/env python3
"""Asks a real model questions with known answers through `tacit run`, greedily.

usage: check_answers.py TACIT MODEL.gguf
"""
import sys

from reference_model import Report, tacit_json

# Precision, question, words of which every one must occur in the answer. The first question's first
# token is a near tie in this model (llama.cpp and the fast precision fall on its other side), so it
# is asked on the dequantized weights.
QUESTIONS = [
    ("exact", "What is the capital of France?", ["Paris"]),
    ("fast", "What is 2 plus 3?", ["5"]),
    ("fast", "What color is the sky on a clear day?", ["blue"]),
    ("fast", "Name the three primary colors.", ["Red", "Blue", "Yellow"]),
]


def main():
    program, model = sys.argv[1:3]
    report = Report()
    for precision, question, words in QUESTIONS:
        flags = ["--exact"] if precision == "exact" else []
        answer = tacit_json(program, "run", "-m", model, "-p", question, "-n", "48", "--json",
                            *flags)["text"]
        print(f"{question} ({precision}) {' '.join(answer.split())}")
        report.check(all(word in answer for word in words), f"{question}: {words} in {answer!r}")
    report.finish()


main()
