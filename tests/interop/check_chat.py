#!/usr/bin/env python3
"""Compares what published chat templates print in Jinja with what the engine makes of them: the templates that
llama.cpp's sources carry (models/templates/*.jinja, the literals of tests/test-chat-template.cpp) and those that further
files name. A template that is recognised must print the same for every conversation of
tests/golden/chat.json that it accepts; one that is not is refused, and listed.

usage: check_chat.py TEST_CHAT LLAMA_CPP [TEMPLATE.jinja ...]
needs: pip install jinja2 gguf
"""
import glob
import json
import os
import re
import subprocess
import sys
import tempfile

from reference_model import Report

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "golden"))
import make_chat as golden

# Must be recognised as these: a silent change to "unknown" would pass otherwise.
KNOWN = {
    "Qwen-Qwen2.5-7B-Instruct": "chatml", "Qwen-Qwen3-0.6B": "qwen3", "meta-llama-Llama-3.1-8B-Instruct": "llama3.1",
    "meta-llama-Llama-3.2-3B-Instruct": "llama3.1", "mistralai-Mistral-Nemo-Instruct-2407": "mistral-tekken",
    "Qwen3-Coder": "chatml", "Qwen-QwQ-32B": "qwq", "Qwen3.5-4B": "qwen3.5", "LFM2.5-Instruct": "lfm2.5",
    "Mistral-Small-3.2-24B-Instruct-2506": "mistral-v7-tekken", "unsloth-mistral-Devstral-Small-2507": "mistral-v7-tekken",
    "google-gemma-2-2b-it": "gemma", "google/gemma-7b-it": "gemma", "teknium/OpenHermes-2.5-Mistral-7B": "chatml", "eachadea/vicuna-13b-1.1": "vicuna-1.1", "Orca-Vicuna": "vicuna-orca",
}


def literals(source):
    """Names and templates of the table in llama.cpp's test."""
    name = None
    with open(source, encoding="utf-8") as f:
        for line in f:
            said = re.search(r'\.(name|template_str)=? ?\*/ (?:U8C\()?"(.*)"', line)
            if said and said[1] == "name":
                name = said[2]
            elif said and name:
                yield name, re.sub(r"\\(.)", lambda m: {"n": "\n", "t": "\t"}.get(m[1], m[1]), said[2])


def templates(root, further):
    for path in sorted(glob.glob(os.path.join(root, "models", "templates", "*.jinja"))) + further:
        with open(path, encoding="utf-8") as f:
            yield os.path.splitext(os.path.basename(path))[0], f.read()
    yield from literals(os.path.join(root, "tests", "test-chat-template.cpp"))


def renderings(program, template):
    with tempfile.NamedTemporaryFile("w", suffix=".jinja", encoding="utf-8") as f:
        f.write(template)
        f.flush()
        lines = subprocess.run([program, "render", f.name], capture_output=True, check=True).stdout.decode().splitlines()
    return lines[0], [json.loads(line) for line in lines[1:]]


def keeps_system(form, conversation):
    """Mistral's templates drop the system's text where an answer comes last; the engine does not (chat.h)."""
    system = bool(conversation) and conversation[0][0] == "system"
    return form in ("mistral-v3", "mistral-tekken") and system and conversation[-1][0] == "assistant"


def parts_of(form, template):
    """How the template is given contents: as lists, as texts, or as lists where media are among them."""
    if form == "gemma":
        return "media" if "item['text']" in template else False
    return "'type'" in template and "equalto" in template or form == "smolvlm"


def expected(template, parts, conversation, generate):
    """What Jinja prints, with the marks that templates print for a picture as "<image>"."""
    text = golden.render(template, parts, conversation, generate)
    return text and re.sub(r"<start_of_image>|\[IMG\]", "<image>", text)


def main():
    program, root = sys.argv[1:3]
    report, unknown = Report(), []
    for name, template in templates(root, sys.argv[3:]):
        form, found = renderings(program, template)
        report.check(KNOWN.get(name, form) == form, f"{name}: recognised as {form}")
        if form == "unknown":
            unknown.append(name)
            continue
        parts = parts_of(form, template)
        compared = 0
        for i, conversation in enumerate(golden.CONVERSATIONS):
            for generate in (False, True):
                said = expected(template, parts, conversation, generate)
                if said is None or keeps_system(form, conversation):
                    continue
                if form == "mistral-v7-tekken" and "strftime_now" in template and (not conversation or conversation[0][0] != "system"):
                    continue  # it would print today's date: refused here (chat.h)
                if form == "llama3" and "add_generation_prompt" not in template and not generate:
                    continue  # an early template that prints the prompt always
                compared += 1
                ours = found[2 * i + generate]
                report.check(ours == said, f"{name} ({form}), conversation {i}\n  Jinja {said!r}\n  Tacit {ours!r}")
        print(f"{name}: {form}, {compared} compared")
    print(f"refused as unknown: {len(unknown)}: {', '.join(unknown)}")
    report.finish()


if __name__ == "__main__":
    main()
