#!/usr/bin/env python3
"""The whole path from pictures and sound to logits against transformers: tiny random models of five
kinds (multimodal_models.py, in float64), written as GGUF files (multimodal_convert.py), are given the same
conversations about the same media through transformers' own processors and through `tacit logits
--chat`.

    idefics3    SmolVLM: tiles, overview, row and column markers; also told not to split pictures
    onevision   LLaVA-OneVision: qwen2, SigLIP, tiles of the best size joined with newline rows
    llava       LLaVA-1.5: llama with a SentencePiece vocabulary, CLIP, pictures padded to squares
    llava-next  LLaVA-1.6: the same text model and tower, every picture in tiles joined with newline rows
    ultravox    llama 3, Whisper's encoder, Ultravox's projector

Token for token and row for row the sequences must be equal. exact precision: KL of the next token at
most 1e-5 at every position, rows at most 1e-3 apart (relative L2). fast: the squared error of all
logits at most 5e-3 of the reference's squares, rows 1e-2.

The processors are those of a current transformers, which needs no torch for them; the models those of
the last one that takes Debian's torch.
usage: check_multimodal.py TACIT FOLDER PYTHON_WITH_TORCH [KIND ...]      (needs numpy, transformers, pillow,
       tokenizers, sentencepiece, soundfile, gguf)
"""
import json
import os
import shutil
import subprocess
import sys

import numpy as np
import sentencepiece
import soundfile
from PIL import Image
from tokenizers import AddedToken, Regex, Tokenizer, models, normalizers, pre_tokenizers, processors, trainers
from transformers import PreTrainedTokenizerFast, WhisperFeatureExtractor
from transformers.models.idefics3.image_processing_pil_idefics3 import Idefics3ImageProcessorPil
from transformers.models.idefics3.processing_idefics3 import Idefics3Processor
from transformers.models.llava.image_processing_pil_llava import LlavaImageProcessorPil
from transformers.models.llava.processing_llava import LlavaProcessor
from transformers.models.llava_next.image_processing_pil_llava_next import LlavaNextImageProcessorPil
from transformers.models.llava_next.processing_llava_next import LlavaNextProcessor
from transformers.models.llava_onevision.image_processing_pil_llava_onevision import LlavaOnevisionImageProcessorPil
from transformers.models.llava_onevision.processing_llava_onevision import LlavaOnevisionProcessor

import multimodal_convert as convert
from reference_model import Report, divergence

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "golden"))
import make_chat  # noqa: E402
from make_processor import CLIP_MEAN, CLIP_STD, HALF  # noqa: E402

KL_LIMIT, FAST_LIMIT, ROW_LIMIT, FAST_ROW_LIMIT, DIFFERENT = 1e-5, 5e-3, 1e-3, 1e-2, 1e-2
QUESTION = "What does the lamp call for at 10:45? It's 37.2 °C, naïve <b>reader</b>!"
SIZES = [(32, 32), (200, 60), (50, 170), (9, 7), (400, 300), (61, 64)]
GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
LLAMA3 = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|"
          r"\s+(?!\S)|\s+")
QWEN2 = LLAMA3.replace("{1,3}", "")


def english():
    with open(os.path.join(HERE, "..", "..", "LICENSE"), encoding="utf-8") as f:
        return f.read()


def byte_level(pre_tokenizer, specials, normalizer=None, ignore_merges=False):
    """A byte-level BPE trained on the licence."""
    t = Tokenizer(models.BPE(ignore_merges=ignore_merges))
    t.pre_tokenizer = pre_tokenizer
    if normalizer:
        t.normalizer = normalizer
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    t.train_from_iterator([english()], trainers.BpeTrainer(vocab_size=500, initial_alphabet=alphabet, show_progress=False))
    t.add_special_tokens([AddedToken(s, normalized=False, special=True) for s in specials])
    return t


def split(pattern):
    return pre_tokenizers.Sequence([pre_tokenizers.Split(Regex(pattern), "isolated"),
                                    pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])


def fast(tokenizer, **names):
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, clean_up_tokenization_spaces=False, **names)


class Kind:
    """One kind of model: tokenizer, processor and files. `sizes` of cases: lists of pictures."""
    suffix, flags = ".png", "--image"

    def media(self):
        singles = [[size] for size in SIZES]
        return [[], *singles, [SIZES[1], SIZES[2]], [SIZES[3], SIZES[4], SIZES[3]]]

    def name_of(self, case):
        return " and ".join("%d x %d" % size for size in case) or "no picture"

    def write_medium(self, path, size, seed):
        """Smooth colours with noise, so that filters and cuts show."""
        width, height = size
        rng = np.random.default_rng(seed)
        y, x = np.mgrid[0:height, 0:width]
        waves = [np.sin(x / width * a + y / height * b + c) for a, b, c in rng.uniform(1, 9, (3, 3))]
        pixels = 127 + 90 * np.stack(waves, -1) + rng.normal(0, 20, (height, width, 3))
        Image.fromarray(np.clip(pixels, 0, 255).astype(np.uint8)).save(path)

    def family(self):
        return {"name": self.name, "vocab": self.vocab, "media_token": self.media_token}

    def prepare(self, paths):
        """What the model of transformers is given."""
        pictures = [Image.open(p).convert("RGB") for p in paths]
        content = [{"type": "image"} for _ in paths] + [{"type": "text", "text": QUESTION}]
        text = self.processor.apply_chat_template([{"role": "user", "content": content}], add_generation_prompt=True)
        return dict(self.processor(text=text, images=[pictures] if pictures else None, return_tensors="np"))


class Idefics3(Kind):
    name = "idefics3"

    def __init__(self, split_pictures=True):
        marks = [f"<row_{r}_col_{c}>" for r in range(1, 7) for c in range(1, 7)]
        specials = ["<|im_start|>", "<end_of_utterance>", "<fake_token_around_image>", "<image>", "<global-img>", *marks]
        smollm = pre_tokenizers.Sequence([pre_tokenizers.Digits(individual_digits=True), split(GPT2)])
        self.tokenizer = byte_level(smollm, specials)
        self.vocab = self.tokenizer.get_vocab_size()
        self.media_token = self.tokenizer.token_to_id("<image>")
        self.more = [] if split_pictures else ["--form", "hf-frame"]
        self.frame = not split_pictures
        cutter = Idefics3ImageProcessorPil(size={"longest_edge": 128}, max_image_size={"longest_edge": 32},
                                           resample=Image.LANCZOS, image_mean=HALF, image_std=HALF,
                                           do_image_splitting=split_pictures)
        self.processor = Idefics3Processor(cutter, fast(self.tokenizer), image_seq_len=16, chat_template=make_chat.SMOLVLM)

    def prepare(self, paths):
        given = super().prepare(paths)
        return {k: v for k, v in given.items() if k in ("input_ids", "pixel_values", "pixel_attention_mask")}

    def convert(self, weights, text, mmproj):
        end = self.tokenizer.token_to_id("<end_of_utterance>")
        vocabulary = convert.byte_level(self.tokenizer, "smollm", make_chat.SMOLVLM, eos_token_id=end, add_bos_token=False)
        convert.write_text(text, weights, "model.text_model.", "lm_head.weight", "llama", vocabulary,
                           attention__layer_norm_rms_epsilon=1e-5, rope__freq_base=1e5)
        convert.write_tower(mmproj, weights, "model.vision_model.", "idefics3", preproc_image_size=128,
                            projector__scale_factor=2)


class Onevision(Kind):
    name = "onevision"

    def __init__(self):
        specials = ["<|endoftext|>", "<|im_start|>", "<|im_end|>", "<image>", "<video>"]
        self.tokenizer = byte_level(split(QWEN2), specials, normalizers.NFC())
        self.vocab = self.tokenizer.get_vocab_size()
        self.media_token = self.tokenizer.token_to_id("<image>")
        self.pinpoints = [[32 * h, 32 * w] for h in range(1, 7) for w in range(1, 7)]
        self.more, self.frame = [], True
        cutter = LlavaOnevisionImageProcessorPil(size={"height": 32, "width": 32}, image_grid_pinpoints=self.pinpoints,
                                                 resample=Image.BICUBIC, image_mean=HALF, image_std=HALF)
        LlavaOnevisionProcessor.check_argument_for_proper_class = lambda *_: None  # there is no video
        self.processor = LlavaOnevisionProcessor(
            cutter, fast(self.tokenizer), None, num_image_tokens=64, vision_feature_select_strategy="full",
            chat_template=make_chat.ONEVISION)

    def family(self):
        return {**super().family(), "pinpoints": self.pinpoints}

    def prepare(self, paths):
        given = super().prepare(paths)
        return {k: v for k, v in given.items() if k in ("input_ids", "pixel_values", "image_sizes")}

    def convert(self, weights, text, mmproj):
        vocabulary = convert.byte_level(self.tokenizer, "qwen2", make_chat.ONEVISION, add_bos_token=False,
                                        eos_token_id=self.tokenizer.token_to_id("<|im_end|>"))
        convert.write_text(text, weights, "language_model.model.", None, "qwen2", vocabulary,
                           attention__layer_norm_rms_epsilon=1e-6, rope__freq_base=1e6)

        def more(w):
            w.add_string("clip.vision.image_aspect_ratio", "anyres_max_9")
            w.add_array("clip.vision.image_grid_pinpoints", [side for h, w in self.pinpoints for side in (w, h)])

        convert.write_tower(mmproj, weights, "vision_tower.vision_model.", "mlp", more=more)


class Llava(Kind):
    name = "llava"
    given = ("input_ids", "pixel_values")
    size = dict(size={"shortest_edge": 32}, crop_size={"height": 32, "width": 32})

    def __init__(self, folder):
        self.pieces = train_sentencepiece(folder) + [("<image>", 0.0), ("<pad>", 0.0)]
        self.tokenizer = spm_tokenizer(self.pieces, ["<image>", "<pad>"])
        self.vocab = len(self.pieces)
        self.media_token = self.tokenizer.token_to_id("<image>")
        self.more, self.frame = [], True
        make, cutter = self.processors()
        self.processor = make(cutter, fast(self.tokenizer, bos_token="<s>", eos_token="</s>"), patch_size=4,
                              vision_feature_select_strategy="default", num_additional_image_tokens=1,
                              chat_template=make_chat.LLAVA)

    def processors(self):
        return LlavaProcessor, LlavaImageProcessorPil(do_pad=True, **self.size)

    def prepare(self, paths):
        return {k: v for k, v in super().prepare(paths).items() if k in self.given}

    def keys(self, w):
        """What the tower's file says beside."""

    def convert(self, weights, text, mmproj):
        vocabulary = convert.sentencepiece(self.pieces, ("<image>", "<pad>"), make_chat.LLAVA, bos_token_id=1,
                                           eos_token_id=2, unknown_token_id=0, add_bos_token=True, add_eos_token=False)
        convert.write_text(text, weights, "language_model.model.", "language_model.lm_head.weight", "llama", vocabulary,
                           attention__layer_norm_rms_epsilon=1e-5, rope__freq_base=1e4)
        # The model reads the state before the last block, which converters therefore leave out.
        convert.write_tower(mmproj, weights, "vision_tower.vision_model.", "mlp", layers=2, mean=CLIP_MEAN, std=CLIP_STD,
                            eps=1e-5, gelu=False, more=self.keys)


class LlavaNext(Llava):
    name = "llava-next"
    given = ("input_ids", "pixel_values", "image_sizes")
    pinpoints = [[32, 64], [64, 32], [64, 64], [96, 32], [32, 96]]

    def processors(self):
        return LlavaNextProcessor, LlavaNextImageProcessorPil(image_grid_pinpoints=self.pinpoints, **self.size)

    def family(self):
        return {**super().family(), "pinpoints": self.pinpoints}

    def keys(self, w):
        w.add_string("clip.vision.image_aspect_ratio", "anyres")
        w.add_array("clip.vision.image_grid_pinpoints", [side for h, w in self.pinpoints for side in (w, h)])


def train_sentencepiece(folder):
    """[(text, score)] of a BPE model of 400 pieces with all bytes."""
    prefix = os.path.join(folder, "spm")
    with open(prefix + ".txt", "w", encoding="utf-8") as f:
        f.write(english())
    sentencepiece.SentencePieceTrainer.train(input=prefix + ".txt", model_prefix=prefix, vocab_size=500, model_type="bpe",
                                             byte_fallback=True, character_coverage=1.0, minloglevel=2,
                                             normalization_rule_name="identity", remove_extra_whitespaces=False)
    spm = sentencepiece.SentencePieceProcessor(model_file=prefix + ".model")
    return [(spm.id_to_piece(i), spm.get_score(i)) for i in range(len(spm))]


def spm_tokenizer(pieces, added):
    """The same as tokenizers have llama's: merges in the order of scores, a space before every text."""
    ids = {text: i for i, (text, _) in enumerate(pieces)}
    merges = []
    for text, score in pieces[: len(pieces) - len(added)]:
        cuts = [(text[:i], text[i:]) for i in range(1, len(text)) if text[:i] in ids and text[i:] in ids]
        merges += [(score, cut) for cut in sorted(cuts, key=lambda cut: (ids[cut[0]], ids[cut[1]]))]
    merges = [cut for _, cut in sorted(merges, key=lambda m: -m[0])]
    t = Tokenizer(models.BPE(ids, merges, unk_token="<unk>", fuse_unk=True, byte_fallback=True))
    t.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    t.add_special_tokens([AddedToken(s, normalized=False, special=True) for s in ("<unk>", "<s>", "</s>", *added)])
    t.post_processor = processors.TemplateProcessing(single="<s> $A", special_tokens=[("<s>", 1)])
    return t


class Ultravox(Kind):
    name, suffix, flags, mel_bins = "ultravox", ".wav", "--audio", 80

    def __init__(self):
        specials = ["<|begin_of_text|>", "<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>", "<|audio|>"]
        self.tokenizer = byte_level(split(LLAMA3), specials, ignore_merges=True)
        self.vocab = self.tokenizer.get_vocab_size()
        self.media_token = self.tokenizer.token_to_id("<|audio|>")
        self.more, self.frame = [], True
        self.text = fast(self.tokenizer, bos_token="<|begin_of_text|>", eos_token="<|eot_id|>",
                         chat_template=make_chat.LLAMA3)
        self.mel = WhisperFeatureExtractor(feature_size=self.mel_bins)

    def media(self):
        return [[], [0.5], [1.013], [2.4], [31.3], [1.2, 0.7]]

    def name_of(self, case):
        return " and ".join(f"{seconds} s" for seconds in case) or "no sound"

    def write_medium(self, path, seconds, seed):
        rng = np.random.default_rng(seed)
        t = np.arange(int(16000 * seconds)) / 16000
        tone = np.sin(2 * np.pi * (rng.uniform(200, 900) * t + rng.uniform(20, 90) * t * t))
        soundfile.write(path, (0.5 * tone + 0.02 * rng.standard_normal(len(t))).astype(np.float32), 16000, subtype="FLOAT")

    def family(self):
        return {**super().family(), "mel_bins": self.mel_bins}

    def prepare(self, paths):
        """As Ultravox's processor: no filling to 30 s, a row for each 16 frames of every chunk of 3000."""
        mels = []
        for path in paths:
            samples = soundfile.read(path, dtype="float32")[0]
            out = self.mel(samples, sampling_rate=16000, truncation=False, padding="longest", pad_to_multiple_of=160,
                           return_tensors="np")
            mels.append(out["input_features"][0].T)
        rows = [sum(-(-min(3000, len(m) - at) // 16) for at in range(0, len(m), 3000)) for m in mels]
        content = "".join("<|audio|>" * n for n in rows) + QUESTION
        text = self.text.apply_chat_template([{"role": "user", "content": content}], add_generation_prompt=True,
                                             tokenize=False)
        given = {"input_ids": np.array([self.tokenizer.encode(text, add_special_tokens=False).ids])}
        if mels:
            given.update(mel=np.concatenate(mels), lengths=np.array([len(m) for m in mels]))
        return given

    def convert(self, weights, text, mmproj):
        find = self.tokenizer.token_to_id
        vocabulary = convert.byte_level(self.tokenizer, "llama-bpe", make_chat.LLAMA3, add_bos_token=True,
                                        bos_token_id=find("<|begin_of_text|>"), eos_token_id=find("<|eot_id|>"))
        convert.write_text(text, weights, "text.model.", "text.lm_head.weight", "llama", vocabulary,
                           attention__layer_norm_rms_epsilon=1e-5, rope__freq_base=5e5)
        convert.write_audio(mmproj, weights, self.mel_bins)


class Case:
    """A conversation: files, what transformers is given, and then what it computes."""

    def __init__(self, kind, folder, number, media):
        self.kind, self.name = kind, kind.name_of(media)
        self.paths = [os.path.join(folder, f"{number}-{i}{kind.suffix}") for i in range(len(media))]
        for i, (path, medium) in enumerate(zip(self.paths, media)):
            kind.write_medium(path, medium, 100 * number + i)
        given = kind.prepare(self.paths)
        self.ids = given["input_ids"][0]
        self.output = os.path.join(folder, f"{number:02d}.output.npz")
        np.savez(self.output.replace(".output.", ".input."), **given)

    def media_arguments(self):
        return [argument for path in self.paths for argument in (self.kind.flags, path)]

    def tokens(self):
        return [-1 if i == self.kind.media_token else int(i) for i in self.ids]


def tacit(program, *arguments):
    run = subprocess.run([program, *arguments], capture_output=True, text=True)
    if run.returncode:
        return None, run.stderr.strip()
    return json.loads(run.stdout), ""


def logits_of(found):
    rows = np.empty((len(found["logits"]), len(found["logits"][0])))
    for row, position in zip(rows, found["logits"]):
        for entry in position:
            row[entry["id"]] = entry["logit"]
    return rows


def normalised_error(expected, found):
    centred = lambda rows: rows - rows.mean(-1, keepdims=True)
    return ((centred(expected) - centred(found)) ** 2).sum() / (centred(expected) ** 2).sum()


def difference(found, expected):
    at = next((i for i, (a, b) in enumerate(zip(found, expected)) if a != b), min(len(found), len(expected)))
    return (f"{len(found)} positions, {len(expected)} expected; from {at} on {found[at:at + 8]}, expected "
            f"{expected[at:at + 8]}")


def compare_logits(report, program, files, case, expected, precision):
    flags = ["--exact"] if precision == "exact" else []
    found, why = tacit(program, "logits", *files, *case.media_arguments(), "-p", QUESTION, "--chat", "--all", "--top", "0",
                       "--json", *case.kind.more, *flags)
    title = f"{case.kind.name}{' in one frame' * ('--form' in case.kind.more)}, {case.name}, {precision}"
    if found is None:
        report.check(False, f"{title}: {why}")
        return
    if found["tokens"] != case.tokens():
        report.check(False, f"{title}: {difference(found['tokens'], case.tokens())}")
        return
    rows = logits_of(found)
    kl, error = divergence(expected, rows).max(), normalised_error(expected, rows)
    good = kl <= KL_LIMIT if precision == "exact" else error <= FAST_LIMIT
    report.check(good, f"{title}: KL {kl:.3g}, squared error {error:.3g}")
    print(f"{title}: {len(rows)} positions, {(case.ids == case.kind.media_token).sum()} rows of media; largest KL "
          f"{kl:.2g}, squared error {error:.2g}", flush=True)


def compare_rows(report, program, files, case, expected, precision):
    flags = ["--fast"] if precision == "fast" and case.kind.flags == "--image" else []
    found, why = tacit(program, "embed", *files, *case.media_arguments(), "--json", *flags)
    rows = np.array(found["rows"]) if found else np.zeros(0)
    if rows.shape != expected.shape:
        report.check(False, f"{case.kind.name}, {case.name}: rows {rows.shape}, expected {expected.shape} {why}")
        return
    off = np.linalg.norm(rows - expected) / np.linalg.norm(expected)
    limit = ROW_LIMIT if precision == "exact" else FAST_ROW_LIMIT
    report.check(off <= limit, f"{case.kind.name}, {case.name}, {precision}: rows {off:.3g} apart")
    print(f"{case.kind.name}, {case.name}, {precision}: rows {off:.2g} apart", flush=True)


def check_difference(report, kind, cases):
    """What is in the pictures decides the answers of these models, so that nothing passes unseen."""
    last = [np.load(c.output)["logits"][-1:] for c in cases if len(c.paths) == 1]
    least = min(divergence(a, b)[0] for a, b in zip(last, last[1:]))
    report.check(least >= DIFFERENT, f"{kind.name}: two pictures give nearly the same answer, KL {least:.3g}")


def check(report, program, folder, python, kind):
    shutil.rmtree(folder, ignore_errors=True)
    os.makedirs(folder)
    cases = [Case(kind, folder, i, media) for i, media in enumerate(kind.media())]
    with open(os.path.join(folder, "family.json"), "w", encoding="utf-8") as f:
        json.dump(kind.family(), f)
    subprocess.run([python, os.path.join(HERE, "multimodal_models.py"), folder], check=True)
    text, mmproj = (os.path.join(folder, part) for part in ("text.gguf", "mmproj.gguf"))
    kind.convert(dict(np.load(os.path.join(folder, "weights.npz"))), text, mmproj)
    files = ["-m", text, "--mmproj", mmproj]
    check_difference(report, kind, cases)
    for case in cases:
        expected = np.load(case.output)
        for precision in ("exact", "fast"):
            compare_logits(report, program, files, case, expected["logits"], precision)
            if kind.frame and len(case.paths) == 1:
                compare_rows(report, program, files, case, expected["rows"], precision)


def main():
    program, folder, python = sys.argv[1:4]
    os.makedirs(folder, exist_ok=True)
    kinds = {"idefics3": Idefics3, "idefics3-frame": lambda: Idefics3(False), "onevision": Onevision,
             "llava": lambda: Llava(folder), "llava-next": lambda: LlavaNext(folder), "ultravox": Ultravox}
    report = Report()
    for name, make in kinds.items():
        if not sys.argv[4:] or name in sys.argv[4:]:
            check(report, program, os.path.join(folder, name), python, make())
    report.finish()


main()
