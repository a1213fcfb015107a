#!/usr/bin/env python3
"""Compares golden losses and gradients of make_gradients.py with those of Hugging Face's own models
(float64, though their norms and softmax are single precision inside): Gemma3ForCausalLM,
Lfm2ForCausalLM and Qwen2VLTextModel on the weights of tiny-*.gguf. Where an example has mask groups
or dropped positions, which those models know of through masks, it passes the masks.

    pip install torch transformers gguf numpy      (transformers 5)
    python3 tests/golden/check_gradients_transformers.py
"""
import os

import numpy as np
import torch
from gguf import GGUFReader, dequantize
from transformers import Gemma3ForCausalLM, Gemma3TextConfig, Lfm2Config, Lfm2ForCausalLM
from transformers import Qwen2VLTextConfig
from transformers.models.qwen2_vl.modeling_qwen2_vl import Qwen2VLTextModel

HERE = os.path.dirname(os.path.abspath(__file__))
EPS = float(np.float32(1e-5))
LINEAR = {"attn_q": "self_attn.q_proj", "attn_k": "self_attn.k_proj", "attn_v": "self_attn.v_proj",
          "ffn_gate": "mlp.gate_proj", "ffn_up": "mlp.up_proj", "ffn_down": "mlp.down_proj",
          "attn_output": "self_attn.o_proj", "attn_norm": "input_layernorm",
          "attn_q_norm": "self_attn.q_norm", "attn_k_norm": "self_attn.k_norm",
          "ffn_norm": "post_attention_layernorm"}
GEMMA = LINEAR | {"post_attention_norm": "post_attention_layernorm",
                  "ffn_norm": "pre_feedforward_layernorm",
                  "post_ffw_norm": "post_feedforward_layernorm"}
LFM2 = LINEAR | {"attn_norm": "operator_norm", "ffn_norm": "ffn_norm",
                 "attn_q_norm": "self_attn.q_layernorm", "attn_k_norm": "self_attn.k_layernorm",
                 "attn_output": "self_attn.out_proj", "ffn_gate": "feed_forward.w1",
                 "ffn_up": "feed_forward.w3", "ffn_down": "feed_forward.w2",
                 "shortconv.conv": "conv.conv", "shortconv.in_proj": "conv.in_proj",
                 "shortconv.out_proj": "conv.out_proj"}
COMMON = dict(vocab_size=48, hidden_size=32, rms_norm_eps=EPS, max_position_embeddings=64,
              intermediate_size=32, num_attention_heads=4, tie_word_embeddings=True,
              attn_implementation="eager")


def gemma3():
    rope = {"sliding_attention": {"rope_type": "default", "rope_theta": 10000.0},
            "full_attention": {"rope_type": "linear", "rope_theta": 1e6, "factor": 8.0}}
    config = Gemma3TextConfig(num_hidden_layers=2, num_key_value_heads=1, head_dim=8,
                              query_pre_attn_scalar=8, sliding_window=3, rope_parameters=rope,
                              layer_types=["sliding_attention", "full_attention"], **COMMON)
    return Gemma3ForCausalLM(config).double(), GEMMA, "model.norm"


def lfm2():
    config = Lfm2Config(num_hidden_layers=3, num_key_value_heads=1, norm_eps=EPS, conv_L_cache=3,
                        layer_types=["conv", "full_attention", "conv"], conv_bias=False,
                        block_auto_adjust_ff_dim=False,
                        rope_parameters={"rope_type": "default", "rope_theta": 10000.0}, **COMMON)
    return Lfm2ForCausalLM(config).double(), LFM2, "model.embedding_norm"


class Qwen2VL(torch.nn.Module):
    """The text model alone, with its tied output and a bias."""

    def __init__(self, config):
        super().__init__()
        self.model = Qwen2VLTextModel(config)
        self.output = torch.nn.Parameter(torch.zeros(config.vocab_size, config.hidden_size))

    def forward(self, inputs_embeds, position_ids, attention_mask):
        h = self.model(inputs_embeds=inputs_embeds, position_ids=position_ids,
                       attention_mask=attention_mask, use_cache=False).last_hidden_state
        return h @ (self.output if self.output.any() else self.model.embed_tokens.weight).T


def qwen2vl():
    rope = {"rope_type": "default", "rope_theta": 10000.0, "mrope_section": [1, 2, 1]}
    config = Qwen2VLTextConfig(num_hidden_layers=2, num_key_value_heads=2, rope_parameters=rope,
                               **COMMON)
    return Qwen2VL(config).double(), LINEAR, "model.norm"


def name_of(tensor, table, norm):
    """The parameter that a tensor of the file is."""
    if tensor == "token_embd.weight":
        return "model.embed_tokens.weight"
    if not tensor.startswith("blk."):
        return norm + ".weight"
    _, layer, rest = tensor.split(".", 2)
    part, kind = rest.rsplit(".", 1)
    return f"model.layers.{layer}.{table[part]}.{kind}"


def fields(reader):
    out = {}
    for key, field in reader.fields.items():
        parts = [field.parts[i] for i in field.data]
        out[key] = np.concatenate([p.flatten() for p in parts]) if parts else None
    return out


def mask_of(example, window):
    position, group = (torch.tensor(example[k]) for k in ("position", "group"))
    n = len(position)
    seen = torch.tril(torch.ones(n, n, dtype=torch.bool))
    if window:
        seen &= position[None, :] > position[:, None] - window
    seen |= (group[:, None] == group[None, :]) & (group[None, :] != 0)
    return torch.zeros(n, n, dtype=torch.float64).masked_fill(~seen, -1e30)[None, None]


def logits_of(word, model, weight, example):
    position = torch.tensor(example["position"])[None]
    scale = 32 ** 0.5 if word == "gemma3" else 1.0
    x = torch.stack([example["media"][t] if m else weight[t] * scale
                     for t, m in zip(example["token"], example["modality"])])[None]
    if word == "qwen2vl":
        shift = torch.tensor(example["shift"]).view(-1, 3)[:, :2].T[:, None]
        return model(x, torch.cat((position[None], position[None] + shift)), mask_of(example, 0))
    plain = list(example["position"]) == list(range(len(example["position"])))
    mask = torch.ones_like(position)  # with none, gaps in positions would begin another sequence
    if word == "gemma3" and not plain:
        mask = {"full_attention": mask_of(example, 0), "sliding_attention": mask_of(example, 3)}
    return model(inputs_embeds=x, position_ids=position, attention_mask=mask,
                 use_cache=False).logits


def check(word, make):
    model, table, norm = make()
    file, golden = (GGUFReader(f"{HERE}/{kind}-{word}.gguf") for kind in ("tiny", "gradients"))
    tensors = {t.name: t for t in golden.tensors}
    values, names = dict(model.named_parameters()), {}
    for t in file.tensors:
        w = torch.tensor(dequantize(t.data, t.tensor_type).astype(np.float64))
        p = values[name_of(t.name, table, norm)]
        p.data = (w.view(p.shape) - (1 if word == "gemma3" and "norm" in t.name else 0)).clone()
        names[t.name] = p
    key, losses = fields(golden), []
    for i in range(2):
        get = lambda f: key.get(f"example.{i}.{f}")
        e = {f: get(f) for f in ("token", "modality", "position", "trained")}
        n = len(e["token"])
        e["group"] = np.zeros(n, int) if get("group") is None else get("group")
        e["shift"] = np.zeros(3 * n, int) if get("shift") is None else get("shift")
        media = tensors.get(f"example.{i}.media")
        e["media"] = torch.tensor(media.data.astype(np.float64)) if media else None
        logits = logits_of(word, model, names["token_embd.weight"], e)[0]
        at = [r for r in range(n) if e["trained"][r]]
        losses.append(torch.nn.functional.cross_entropy(
            logits[[r - 1 for r in at]], torch.tensor(e["token"][at]).long()))
    sum(losses).div(2).backward()
    worst = max(abs(float(l.detach()) - g) for l, g in zip(losses, key["all.loss"]))
    relative = 0
    for name, p in names.items():
        g = torch.tensor(tensors["all/" + name].data.astype(np.float64)).view(p.shape)
        relative = max(relative, float((p.grad - g).norm() / g.norm()))
    print(f"{word}: losses off by {worst:.1e}, gradients of {len(names)} tensors by {relative:.1e}")
    assert worst < 1e-5 and relative < 1e-4


for word, make in (("gemma3", gemma3), ("lfm2", lfm2), ("qwen2vl", qwen2vl)):
    check(word, make)
