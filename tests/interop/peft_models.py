#!/usr/bin/env python3
"""What PEFT and transformers make of adapters, for check_peft.py: loads a llama file's dequantized
weights into transformers' own model, adapters into that by PEFT, and writes logits; makes random
adapters, with patterns and rsLoRA, of that model and of a tiny SmolVLM.

usage: peft_models.py FOLDER     (needs torch, transformers below 4.48, peft, gguf; FOLDER/jobs.json says
       what: model, tokens, load {name: folder}, make {name: folder}; NAME.npy are written)
"""
import json
import os
import sys

import numpy as np
import torch
import transformers
from peft import LoraConfig, PeftModel, get_peft_model
from reference_model import Gguf, Shape
from safetensors.torch import load_file, save_file

NAMES = {"attn_q": "self_attn.q_proj", "attn_k": "self_attn.k_proj", "attn_v": "self_attn.v_proj",
         "attn_output": "self_attn.o_proj", "ffn_gate": "mlp.gate_proj", "ffn_up": "mlp.up_proj",
         "ffn_down": "mlp.down_proj", "attn_norm": "input_layernorm", "ffn_norm": "post_attention_layernorm"}
# A rank of a suffix, one of an expression, an alpha of whole names, and layers of their own.
PATTERNS = dict(r=6, lora_alpha=10, use_rslora=True, rank_pattern={"q_proj": 3, r"layers\.[01]\.self_attn\.v_proj": 2},
                alpha_pattern={"down_proj": 5, "model.layers.3.self_attn.k_proj": 21.5})


def parted(values, heads):
    """Rows of q or k of a llama file in transformers' order: neighbours become halves of a head apart."""
    return values.reshape(heads, -1, 2, values.shape[-1]).swapaxes(1, 2).reshape(values.shape)


def load_base(path):
    f = Gguf(path)
    s = Shape(f)
    key = lambda name: f.keys[f"llama.{name}"]
    config = transformers.LlamaConfig(
        vocab_size=f.tensors["token_embd.weight"][0][1], hidden_size=s.width, intermediate_size=key("feed_forward_length"),
        num_hidden_layers=s.layers, num_attention_heads=s.heads, num_key_value_heads=s.kv, rope_theta=s.base,
        rms_norm_eps=s.eps, max_position_embeddings=key("context_length"), tie_word_embeddings=True)
    state = {"model.embed_tokens.weight": f.tensor("token_embd.weight"), "model.norm.weight": f.tensor("output_norm.weight")}
    for i in range(s.layers):
        for ours, theirs in NAMES.items():
            values = f.tensor(f"blk.{i}.{ours}.weight")
            heads = {"attn_q": s.heads, "attn_k": s.kv}.get(ours)
            state[f"model.layers.{i}.{theirs}.weight"] = parted(values, heads) if heads else values
    state["lm_head.weight"] = state["model.embed_tokens.weight"]
    model = transformers.LlamaForCausalLM(config)
    model.load_state_dict({n: torch.from_numpy(np.ascontiguousarray(v)).float() for n, v in state.items()})
    return model.eval()


def randomize(model, seed):
    """Both halves, so that pairs say something."""
    torch.manual_seed(seed)
    with torch.no_grad():
        for name, p in model.named_parameters():
            if ".lora_" in name:
                p.copy_((torch.randn_like(p) / 8).to(torch.bfloat16).float())


def save(model, folder, dtype=torch.float32):
    model.save_pretrained(folder, safe_serialization=True)
    path = os.path.join(folder, "adapter_model.safetensors")
    save_file({n: t.to(dtype).contiguous() for n, t in load_file(path).items()}, path, metadata={"format": "pt"})


def logits(model, tokens):
    with torch.no_grad():
        return model(torch.tensor([tokens])).logits[0].double().numpy()


def tiny_smolvlm():
    """The shape of write_tiny_model's files."""
    vision = dict(hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=4, image_size=24,
                  patch_size=4)
    text = transformers.LlamaConfig(vocab_size=279, hidden_size=32, intermediate_size=64, num_hidden_layers=2,
                                    num_attention_heads=2, num_key_value_heads=1, pad_token_id=0)
    config = transformers.Idefics3Config(vision_config=vision, text_config=text.to_dict(), scale_factor=2,
                                         image_token_id=258, pad_token_id=0, tie_word_embeddings=True)
    return transformers.Idefics3ForConditionalGeneration(config)


def make_smolvlm(folder):
    targets = r"model\.(text_model|vision_model)\..*(q_proj|v_proj|out_proj|fc1|fc2|down_proj)|.*modality_projection\.proj"
    model = get_peft_model(tiny_smolvlm(), LoraConfig(r=2, lora_alpha=4, target_modules=targets))
    randomize(model, 3)
    save(model, folder)


def loaded_modules(folder):
    """What PEFT puts beside a tiny SmolVLM from a folder: {tensor: values}; all of it must be the folder's."""
    model = PeftModel.from_pretrained(tiny_smolvlm(), folder)
    found = {n.replace(".default", ""): p.detach().clone() for n, p in model.named_parameters() if ".lora_" in n}
    said = load_file(os.path.join(folder, "adapter_model.safetensors"))
    if set(found) != set(said):
        raise ValueError(f"{folder}: PEFT has {sorted(set(found) ^ set(said))[:4]} on one side alone")
    return {n: p.numpy() for n, p in found.items()}


def main():
    folder = sys.argv[1]
    with open(os.path.join(folder, "jobs.json"), encoding="utf-8") as f:
        jobs = json.load(f)
    if "model" in jobs:
        base = load_base(jobs["model"])
        np.save(os.path.join(folder, "base.npy"), logits(base, jobs["tokens"]))
    for name, path in jobs.get("load", {}).items():
        model = PeftModel.from_pretrained(base, path)
        np.save(os.path.join(folder, name + ".npy"), logits(model, jobs["tokens"]))
        base = model.unload()
    for name, (path, dtype) in jobs.get("make", {}).items():
        targets = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]
        model = get_peft_model(base, LoraConfig(target_modules=targets, **(PATTERNS if name == "patterns" else dict(r=4))))
        randomize(model, 7)
        save(model, path, getattr(torch, dtype))
        np.save(os.path.join(folder, name + ".npy"), logits(model.eval(), jobs["tokens"]))
        base = model.unload()
    if "make_smolvlm" in jobs:
        make_smolvlm(jobs["make_smolvlm"])
    if "load_smolvlm" in jobs:
        np.savez(os.path.join(folder, "smolvlm.npz"), **loaded_modules(jobs["load_smolvlm"]))


main()
