#!/usr/bin/env python3
"""Loads nano's pair of files in llama.cpp (llama-cpp-python) and compares greedy answers on drawn
scenes with Tacit's, in the form of picture tokens that llama.cpp sends.

Both get the same pixels (decoded by Pillow, as Tacit decodes) and the same chat text.

usage: check_nano_peer.py PROGRAMS_DIR NANO.gguf MMPROJ.gguf [SCENES]    (needs llama-cpp-python, Pillow)
"""
import ctypes
import json
import os
import re
import subprocess
import sys
import tempfile

import llama_cpp
import numpy as np
from llama_cpp import mtmd_cpp as mtmd
from PIL import Image
from reference_model import Report

MOST_TOKENS = 24
SEED = 71
HEARD = re.compile(r"^(right|wrong) (\S+): expected '(.*)', answered '(.*)'$")


def draw(programs, folder, scenes):
    subprocess.run([os.path.join(programs, "tacit-scenes"), "heldout", "--seed", str(SEED), "-n",
                    str(scenes), "-o", folder], check=True, stdout=subprocess.DEVNULL)
    with open(os.path.join(folder, "data.jsonl"), encoding="utf-8") as f:
        return [json.loads(line) for line in f]


def tacit_answers(programs, text, mmproj, folder, form):
    """{id: (expected, answered)}"""
    run = subprocess.run([os.path.join(programs, "tacit"), "eval", "-m", text, "--mmproj", mmproj, "--data",
                          os.path.join(folder, "data.jsonl"), "--form", form, "-n", str(MOST_TOKENS),
                          "--answers", "--json"], check=True, capture_output=True, text=True)
    lines = (HEARD.match(line) for line in run.stderr.splitlines())
    return {m.group(2): (m.group(3), m.group(4)) for m in lines if m}


class Peer:
    def __init__(self, text, mmproj):
        llama_cpp.llama_backend_init()
        llama_cpp.llama_log_set(QUIET, None)
        mtmd.mtmd_helper_log_set(QUIET, None)
        options = llama_cpp.llama_model_default_params()
        self.model = llama_cpp.llama_model_load_from_file(text.encode(), options)
        if not self.model:
            sys.exit(f"llama.cpp cannot load {text}")
        context = llama_cpp.llama_context_default_params()
        context.n_ctx, context.n_batch, context.n_threads, context.n_threads_batch = 1024, 512, 1, 1
        self.context = llama_cpp.llama_init_from_model(self.model, context)
        self.vocab = llama_cpp.llama_model_get_vocab(self.model)
        vision = mtmd.mtmd_context_params_default()
        vision.use_gpu, vision.print_timings, vision.n_threads, vision.warmup = False, False, 1, False
        self.vision = mtmd.mtmd_init_from_file(mmproj.encode(), self.model, vision)
        if not self.vision:
            sys.exit(f"llama.cpp cannot load {mmproj}")
        self.marker = mtmd.mtmd_default_marker().decode()

    def chunks(self, prompt, path):
        image = np.ascontiguousarray(np.asarray(Image.open(path).convert("RGB")))
        data = image.ctypes.data_as(ctypes.POINTER(ctypes.c_uint8))
        bitmap = mtmd.mtmd_bitmap_init(image.shape[1], image.shape[0], data)
        raw = prompt.encode()
        text = mtmd.mtmd_input_text(text=raw, text_len=len(raw), add_special=False, parse_special=True)
        out = mtmd.mtmd_input_chunks_init()
        bitmaps = (mtmd.mtmd_bitmap_p_ctypes * 1)(bitmap)
        status = mtmd.mtmd_tokenize(self.vision, out, ctypes.byref(text), bitmaps, 1)
        mtmd.mtmd_bitmap_free(bitmap)
        if status != 0:
            sys.exit(f"llama.cpp cannot tokenize a prompt with a picture: {status}")
        return out

    def answer(self, prompt, path):
        llama_cpp.llama_memory_clear(llama_cpp.llama_get_memory(self.context), True)
        chunks, past = self.chunks(prompt, path), llama_cpp.llama_pos(0)
        status = mtmd.mtmd_helper_eval_chunks(self.vision, self.context, chunks, 0, 0, 512, True,
                                              ctypes.byref(past))
        mtmd.mtmd_input_chunks_free(chunks)
        if status != 0:
            sys.exit(f"llama.cpp cannot compute a prompt with a picture: {status}")
        said = b""
        for _ in range(MOST_TOKENS):
            size = llama_cpp.llama_vocab_n_tokens(self.vocab)
            logits = np.ctypeslib.as_array(llama_cpp.llama_get_logits_ith(self.context, -1), (size,))
            token = int(logits.argmax())
            if llama_cpp.llama_vocab_is_eog(self.vocab, token):
                break
            piece = ctypes.create_string_buffer(64)
            length = llama_cpp.llama_token_to_piece(self.vocab, token, piece, len(piece), 0, False)
            said += piece.raw[:length]
            batch = llama_cpp.llama_batch_get_one((llama_cpp.llama_token * 1)(token), 1)
            if llama_cpp.llama_decode(self.context, batch) != 0:
                sys.exit("llama.cpp cannot decode a token")
        return said.decode("utf-8", "replace").strip()


@llama_cpp.llama_log_callback
def QUIET(_level, _text, _data):
    pass


def main():
    programs, text, mmproj = sys.argv[1:4]
    scenes = int(sys.argv[4]) if len(sys.argv) > 4 else 20
    report = Report()
    peer = Peer(text, mmproj)
    with tempfile.TemporaryDirectory() as folder:
        records = draw(programs, folder, scenes)
        ours = tacit_answers(programs, text, mmproj, folder, "mtmd")
        one_frame = tacit_answers(programs, text, mmproj, folder, "hf")
        right = [0, 0, 0]
        for record in records:
            picture, question = record["messages"][0]["content"]
            prompt = f"<|im_start|>User:{peer.marker}{question['text']}<end_of_utterance>\nAssistant:"
            theirs = peer.answer(prompt, os.path.join(folder, picture["image"]))
            expected, answered = ours[record["id"]]
            report.check(theirs == answered.strip(),
                         f"{record['id']}: {question['text']} Tacit {answered!r}, llama.cpp {theirs!r}")
            for i, said in enumerate((answered, one_frame[record["id"]][1], theirs)):
                right[i] += said.strip() == expected
    print(f"right answers of {len(records)}: Tacit {right[0]} (one frame: {right[1]}), llama.cpp {right[2]}")
    report.finish()


main()
