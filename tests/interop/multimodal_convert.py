"""Writes models of transformers as GGUF files: a text model and an mmproj, for check_multimodal.py.
Names and orders are those of the ecosystem's converters (the facts are in the format's public
description); no converter's code is used. Needs PyPI's gguf and numpy."""
import json

import gguf
import numpy as np

Q8_0, F16 = gguf.GGMLQuantizationType.Q8_0, gguf.GGMLQuantizationType.F16
NORMAL, UNKNOWN, CONTROL, BYTE = 1, 2, 3, 6

TEXT_TENSORS = {
    "input_layernorm": "attn_norm", "self_attn.q_proj": "attn_q", "self_attn.k_proj": "attn_k", "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output", "post_attention_layernorm": "ffn_norm", "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up", "mlp.down_proj": "ffn_down"}
TOWER_TENSORS = {
    "layer_norm1": "ln1", "self_attn.q_proj": "attn_q", "self_attn.k_proj": "attn_k", "self_attn.v_proj": "attn_v",
    "self_attn.out_proj": "attn_out", "layer_norm2": "ln2", "mlp.fc1": "ffn_up", "mlp.fc2": "ffn_down"}
WHISPER_TENSORS = {
    "self_attn_layer_norm": "ln1", "self_attn.q_proj": "attn_q", "self_attn.k_proj": "attn_k", "self_attn.v_proj": "attn_v",
    "self_attn.out_proj": "attn_out", "final_layer_norm": "ln2", "fc1": "ffn_up", "fc2": "ffn_down"}


class Writer:
    def __init__(self, path, architecture):
        self.w = gguf.GGUFWriter(path, architecture)

    def numbers(self, prefix, **keys):
        for name, value in keys.items():
            put = self.w.add_float32 if isinstance(value, float) else self.w.add_uint32
            put(prefix + name.replace("__", "."), value)

    def tensor(self, name, values, kind=None):
        """Matrices as `kind` (which must hold them exactly), the rest as F32."""
        if kind is None or values.ndim == 1:
            self.w.add_tensor(name, np.ascontiguousarray(values, np.float32))
            return
        raw = gguf.quants.quantize(np.ascontiguousarray(values, np.float32), kind)
        if not np.array_equal(gguf.quants.dequantize(raw, kind), values):
            raise ValueError(f"{name} is not on the grid of {kind.name}")
        self.w.add_tensor(name, raw, raw_dtype=kind)

    def blocks(self, weights, prefix, names, target, kind, layers):
        for i in range(layers):
            for theirs, ours in names.items():
                for part in ("weight", "bias"):
                    values = weights.get(f"{prefix}{i}.{theirs}.{part}")
                    if values is not None:
                        self.tensor(f"{target}.{i}.{ours}.{part}", values, kind)

    def close(self):
        self.w.write_header_to_file()
        self.w.write_kv_data_to_file()
        self.w.write_tensors_to_file()
        self.w.close()


def paired(values, heads):
    """Rows of q or k so that llama's pairs, half a head apart in transformers, are neighbours."""
    return values.reshape(heads, 2, -1, *values.shape[1:]).swapaxes(1, 2).reshape(values.shape)


def count_layers(weights, prefix):
    return 1 + max(int(name[len(prefix):].split(".")[0]) for name in weights if name.startswith(prefix))


def write_text(path, weights, prefix, head, architecture, vocabulary, heads=4, kv_heads=2, **numbers):
    """`prefix` of the decoder's names, `head` that of the output's matrix, None where it is tied."""
    w = Writer(path, architecture)
    weights = dict(weights)
    layers = count_layers(weights, prefix + "layers.")
    if architecture == "llama":
        for i in range(layers):
            for part, n in (("q", heads), ("k", kv_heads)):
                name = f"{prefix}layers.{i}.self_attn.{part}_proj.weight"
                weights[name] = paired(weights[name], n)
    embedding = weights[prefix + "embed_tokens.weight"]
    w.numbers(architecture + ".", context_length=4096, embedding_length=embedding.shape[1], block_count=layers,
              feed_forward_length=len(weights[prefix + "layers.0.mlp.up_proj.weight"]), attention__head_count=heads,
              attention__head_count_kv=kv_heads, rope__dimension_count=embedding.shape[1] // heads, **numbers)
    vocabulary(w.w)
    w.tensor("token_embd.weight", embedding, Q8_0)
    w.blocks(weights, prefix + "layers.", TEXT_TENSORS, "blk", Q8_0, layers)
    w.tensor("output_norm.weight", weights[prefix + "norm.weight"])
    if head:
        w.tensor("output.weight", weights[head], Q8_0)
    w.close()


def add_vocabulary(w, tokens, kinds, template, **ids):
    w.add_token_list(tokens)
    w.add_token_types(kinds)
    w.add_chat_template(template)
    for name, value in ids.items():
        put = w.add_bool if isinstance(value, bool) else w.add_uint32
        put("tokenizer.ggml." + name, value)


def byte_level(tokenizer, pre, template, **ids):
    """The keys of a byte-level BPE of PyPI's tokenizers, as a function of a gguf writer."""
    made = json.loads(tokenizer.to_str())
    merges = [m if isinstance(m, str) else " ".join(m) for m in made["model"]["merges"]]
    added = {t["content"] for t in made["added_tokens"]}
    tokens = sorted(tokenizer.get_vocab(), key=tokenizer.get_vocab().get)

    def put(w):
        w.add_tokenizer_model("gpt2")
        w.add_tokenizer_pre(pre)
        w.add_token_merges(merges)
        add_vocabulary(w, tokens, [CONTROL if t in added else NORMAL for t in tokens], template, **ids)

    return put


def sentencepiece(pieces, controls, template, **ids):
    """`pieces`: (text, score) in order, <unk>, <s> and </s> first."""
    def kind(at, text):
        if at == 0:
            return UNKNOWN
        is_byte = len(text) == 6 and text.startswith("<0x")
        return CONTROL if at < 3 or text in controls else BYTE if is_byte else NORMAL

    def put(w):
        w.add_tokenizer_model("llama")
        w.add_token_scores([score for _, score in pieces])
        add_vocabulary(w, [t for t, _ in pieces], [kind(i, t) for i, (t, _) in enumerate(pieces)], template, **ids)

    return put


def write_tower(path, weights, prefix, projector, layers=None, heads=4, mean=(0.5,) * 3, std=(0.5,) * 3, image=32, eps=1e-6,
                gelu=True, more=lambda w: None, **numbers):
    """A tower's first `layers` blocks (all without); the last norm only where they all are and idefics3
    wants it. `more` adds what only this kind of file has."""
    idefics3 = projector == "idefics3"
    w = Writer(path, "clip")
    w.w.add_bool("clip.has_vision_encoder", True)
    w.w.add_string("clip.projector_type", projector)
    w.w.add_bool("clip.use_gelu", gelu)
    kernel = weights[prefix + "embeddings.patch_embedding.weight"]
    layers = layers or count_layers(weights, prefix + "encoder.layers.")
    w.numbers("clip.vision.", image_size=image, patch_size=kernel.shape[-1], embedding_length=len(kernel),
              feed_forward_length=len(weights[prefix + "encoder.layers.0.mlp.fc1.weight"]), block_count=layers,
              attention__head_count=heads, projection_dim=64, attention__layer_norm_epsilon=eps, **numbers)
    w.w.add_array("clip.vision.image_mean", list(map(float, mean)))
    w.w.add_array("clip.vision.image_std", list(map(float, std)))
    names = {"embeddings.class_embedding": "v.class_embd", "embeddings.patch_embedding.bias": "v.patch_embd.bias",
             "embeddings.position_embedding.weight": "v.position_embd.weight", "pre_layrnorm.weight": "v.pre_ln.weight",
             "pre_layrnorm.bias": "v.pre_ln.bias"}
    if idefics3:
        names.update({f"post_layernorm.{p}": f"v.post_ln.{p}" for p in ("weight", "bias")})
    for theirs, ours in names.items():
        if prefix + theirs in weights:
            w.tensor(ours, weights[prefix + theirs])
    w.tensor("v.patch_embd.weight", kernel, F16)
    w.blocks(weights, prefix + "encoder.layers.", TOWER_TENSORS, "v.blk", F16, layers)
    if idefics3:
        w.tensor("mm.model.fc.weight", weights["model.connector.modality_projection.proj.weight"], F16)
    else:
        for i, ours in ((1, "mm.0"), (2, "mm.2")):
            for part in ("weight", "bias"):
                w.tensor(f"{ours}.{part}", weights[f"multi_modal_projector.linear_{i}.{part}"], F16)
        if "image_newline" in weights:
            w.tensor("model.image_newline", weights["image_newline"])
    more(w.w)
    w.close()


def write_audio(path, weights, mel_bins, heads=4, stack=8):
    w = Writer(path, "clip")
    w.w.add_bool("clip.has_audio_encoder", True)
    w.w.add_string("clip.projector_type", "ultravox")
    width = len(weights["audio.conv2.bias"])
    layers = count_layers(weights, "audio.layers.")
    w.numbers("clip.audio.", num_mel_bins=mel_bins, embedding_length=width, block_count=layers,
              feed_forward_length=len(weights["audio.layers.0.fc1.bias"]), attention__head_count=heads,
              projector__stack_factor=stack, projection_dim=len(weights["projector.linear_2.weight"]),
              attention__layer_norm_epsilon=1e-5)
    for i in (1, 2):
        w.tensor(f"a.conv1d.{i}.weight", weights[f"audio.conv{i}.weight"], F16)
        w.tensor(f"a.conv1d.{i}.bias", weights[f"audio.conv{i}.bias"].reshape(-1, 1))
    w.tensor("a.position_embd.weight", weights["audio.embed_positions.weight"])
    w.blocks(weights, "audio.layers.", WHISPER_TENSORS, "a.blk", F16, layers)
    for part in ("weight", "bias"):
        w.tensor(f"a.post_ln.{part}", weights[f"audio.layer_norm.{part}"])
    w.tensor("mm.a.norm_pre.weight", weights["projector.norm_pre"])
    w.tensor("mm.a.mlp.1.weight", weights["projector.linear_1.weight"], F16)
    w.tensor("mm.a.norm_mid.weight", weights["projector.norm_mid"])
    w.tensor("mm.a.mlp.2.weight", weights["projector.linear_2.weight"], F16)
    w.close()
