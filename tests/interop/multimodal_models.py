#!/usr/bin/env python3
"""Tiny random multimodal models as transformers defines them, for check_multimodal.py: makes one,
writes its weights, and computes logits and encoder rows of prepared inputs in float64 (transformers
itself takes softmaxes and norms in float32).

Values are those that a GGUF file can hold: matrices of the text model on Q8_0's grid, of the towers
on F16's. Ultravox is no class of transformers: here its Whisper encoder and its llama are, and what
joins them is written down from its definition (frames stacked, RMS norm, linear, the first half times
SiLU of the second, RMS norm, linear).

usage: multimodal_models.py FOLDER     (needs torch, transformers below 4.48, gguf; FOLDER/family.json
       says what, FOLDER/*.input.npz are the inputs; weights.npz and *.output.npz are written)
"""
import glob
import json
import os
import sys

import gguf
import numpy as np
import torch
import torch.nn.functional as F
import transformers
from torch import nn
from transformers.models.whisper.modeling_whisper import WhisperEncoder

TEXT = dict(hidden_size=64, intermediate_size=160, num_hidden_layers=3, num_attention_heads=4, num_key_value_heads=2,
            max_position_embeddings=4096)
TOWER = dict(hidden_size=64, intermediate_size=96, num_hidden_layers=3, num_attention_heads=4, image_size=32, patch_size=4)
SIGLIP = dict(hidden_act="gelu_pytorch_tanh", layer_norm_eps=1e-6)
CHUNK, STACK = 3000, 8


def llama(vocab, **more):
    return transformers.LlamaConfig(vocab_size=vocab, **{**TEXT, "rms_norm_eps": 1e-5, **more})


def qwen2(vocab, **more):
    return transformers.Qwen2Config(vocab_size=vocab, **{**TEXT, "rms_norm_eps": 1e-6, "rope_theta": 1e6, **more})


def idefics3(family):
    config = transformers.Idefics3Config(
        vision_config={**TOWER, **SIGLIP}, text_config=llama(family["vocab"], rope_theta=1e5, pad_token_id=0).to_dict(),
        scale_factor=2, image_token_id=family["media_token"], pad_token_id=0, tie_word_embeddings=False)
    model = transformers.Idefics3ForConditionalGeneration(config)
    return model, model.model.text_model


def onevision(family):
    vision = transformers.SiglipVisionConfig(**{**TOWER, **SIGLIP}, vision_use_head=False)
    config = transformers.LlavaOnevisionConfig(
        vision_config=vision, text_config=qwen2(family["vocab"], tie_word_embeddings=True), vision_feature_layer=-1,
        vision_feature_select_strategy="full", vision_aspect_ratio="anyres_max_9", image_token_index=family["media_token"],
        image_grid_pinpoints=family["pinpoints"], tie_word_embeddings=True)
    model = transformers.LlavaOnevisionForConditionalGeneration(config)
    model.image_newline = nn.Parameter(torch.zeros(TEXT["hidden_size"]))
    model.tie_weights()
    cut = model.get_image_features

    def get_image_features(pixel_values, image_sizes, **options):
        """This class takes every picture for one in tiles; later ones have those among others in one frame."""
        if pixel_values.shape[1] > 1:
            return cut(pixel_values, image_sizes, **options)
        states = model.vision_tower(pixel_values[:, 0], output_hidden_states=True).hidden_states
        return torch.split(model.multi_modal_projector(states[config.vision_feature_layer]), 1)

    model.get_image_features = get_image_features
    return model, model.language_model


def of_llava(family, config_class, model_class, **more):
    vision = transformers.CLIPVisionConfig(**TOWER, hidden_act="quick_gelu", layer_norm_eps=1e-5)
    config = config_class(
        vision_config=vision, text_config=llama(family["vocab"]), vision_feature_layer=-2,
        vision_feature_select_strategy="default", image_token_index=family["media_token"],
        image_seq_length=(TOWER["image_size"] // TOWER["patch_size"]) ** 2, **more)
    model = model_class(config)
    whole = model.forward

    def forward(input_ids, pixel_values=None, **pictures):
        """These classes take an input without pictures for one of another age."""
        if pixel_values is None:
            return model.language_model(inputs_embeds=model.get_input_embeddings()(input_ids))
        return whole(input_ids=input_ids, pixel_values=pixel_values, **pictures)

    model.forward = forward
    return model, model.language_model


def llava(family):
    return of_llava(family, transformers.LlavaConfig, transformers.LlavaForConditionalGeneration)


def llava_next(family):
    return of_llava(family, transformers.LlavaNextConfig, transformers.LlavaNextForConditionalGeneration,
                    image_grid_pinpoints=family["pinpoints"])


class Projector(nn.Module):
    def __init__(self, width, middle, out):
        super().__init__()
        self.norm_pre = nn.Parameter(torch.ones(width * STACK))
        self.linear_1 = nn.Linear(width * STACK, 2 * middle, bias=False)
        self.norm_mid = nn.Parameter(torch.ones(middle))
        self.linear_2 = nn.Linear(middle, out, bias=False)

    def forward(self, x):
        norm = lambda x, w: x * torch.rsqrt((x * x).mean(-1, keepdim=True) + 1e-6) * w
        x = F.pad(x, (0, 0, 0, -len(x) % STACK)).reshape(-1, STACK * x.shape[1])
        x, gate = self.linear_1(norm(x, self.norm_pre)).chunk(2, dim=-1)
        return self.linear_2(norm(x * F.silu(gate), self.norm_mid))


class Ultravox(nn.Module):
    def __init__(self, family):
        super().__init__()
        whisper = transformers.WhisperConfig(
            d_model=64, encoder_layers=2, encoder_attention_heads=4, encoder_ffn_dim=96, num_mel_bins=family["mel_bins"],
            max_source_positions=CHUNK // 2)
        self.audio = WhisperEncoder(whisper)
        self.projector = Projector(64, 48, TEXT["hidden_size"])
        self.text = transformers.LlamaForCausalLM(llama(family["vocab"], rope_theta=5e5))
        self.token = family["media_token"]

    def rows(self, mel):
        """A chunk [frames, bins]: Whisper's encoder without its padding to 30 seconds."""
        x = F.gelu(self.audio.conv2(F.gelu(self.audio.conv1(mel.T[None])))).permute(0, 2, 1)
        x = x + self.audio.embed_positions.weight[: x.shape[1]]
        for layer in self.audio.layers:
            x = layer(x, None, layer_head_mask=None)[0]
        return self.projector(self.audio.layer_norm(x)[0])

    def forward(self, input_ids, mel=None, lengths=()):
        x = self.text.get_input_embeddings()(input_ids)
        if mel is not None:
            clips = torch.split(mel, [int(n) for n in lengths])
            chunks = [chunk for clip in clips for chunk in torch.split(clip, CHUNK)]
            x = x.masked_scatter((input_ids == self.token)[..., None], torch.cat([self.rows(c) for c in chunks]))
        return self.text(inputs_embeds=x)


def ultravox(family):
    model = Ultravox(family)
    return model, model.text


FAMILIES = {"idefics3": idefics3, "onevision": onevision, "llava": llava, "llava-next": llava_next, "ultravox": ultravox}


def on_grid(values, kind):
    raw = gguf.quants.quantize(values.astype(np.float32), kind)
    return gguf.quants.dequantize(raw, kind).astype(np.float64)


def draw(name, p, text, rng):
    """Values of a parameter: large enough for every part to matter."""
    shape = tuple(p.shape)
    if p.dim() == 1:
        token = "class_embedding" in name or "newline" in name
        mean = "norm" in name and "bias" not in name
        return (rng.standard_normal(shape) * (0.5 if token else 0.1) + mean).astype(np.float32)
    if "embed_tokens" in name:
        return on_grid(rng.standard_normal(shape) * 0.4, gguf.GGMLQuantizationType.Q8_0)
    if "position" in name:
        return (rng.standard_normal(shape) * 0.3).astype(np.float32)
    gain = 3 if "lm_head" in name else 2 if text and (".q_proj" in name or ".k_proj" in name) else 1
    values = rng.standard_normal(shape) * gain / np.sqrt(np.prod(shape[1:]))
    return on_grid(values, gguf.GGMLQuantizationType.Q8_0 if text else gguf.GGMLQuantizationType.F16)


def fill(model, language):
    rng = np.random.default_rng(11)
    texts = {id(p) for p in language.parameters()} | {id(p) for n, p in model.named_parameters() if "lm_head" in n}
    with torch.no_grad():
        for name, p in model.named_parameters():
            p.copy_(torch.from_numpy(np.ascontiguousarray(draw(name, p, id(p) in texts, rng))))


def take_embeddings(language, taken):
    """What the text model is given from now on goes into `taken`."""
    forward = language.forward

    def wrapped(*args, **options):
        taken[:] = [options["inputs_embeds"]]
        return forward(*args, **options)

    language.forward = wrapped


def main():
    folder = sys.argv[1]
    with open(os.path.join(folder, "family.json"), encoding="utf-8") as f:
        family = json.load(f)
    model, language = FAMILIES[family["name"]](family)
    model = model.double().eval()
    fill(model, language)
    np.savez(os.path.join(folder, "weights.npz"), **{n: p.detach().numpy().astype(np.float32)
                                                     for n, p in model.named_parameters()})
    taken = []
    take_embeddings(language, taken)
    for path in sorted(glob.glob(os.path.join(folder, "*.input.npz"))):
        given = {name: torch.from_numpy(values) for name, values in np.load(path).items()}
        given = {name: v.double() if v.is_floating_point() else v for name, v in given.items()}
        with torch.no_grad():
            logits = model(**given).logits[0]
        rows = taken[0][given["input_ids"] == family["media_token"]]
        np.savez(path.replace(".input.", ".output."), logits=logits.numpy(), rows=rows.numpy())


main()
