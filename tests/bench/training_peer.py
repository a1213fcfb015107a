"""A step of PyTorch and PEFT, with Opacus where asked, in a process of its own: bench_training.py starts it
and writes one request a line (JSON), each answered by a line.

The model is transformers' LlamaForCausalLM over the dequantized weights of the same GGUF file. What would be
slower is not asked for: no dropout, no cache, attention by sdpa, no gradient checkpointing, logits of the
trained positions alone (logits_to_keep), the last token not fed, physical batches of units of like length.

usage: training_peer.py MODEL.gguf KIND RANK THREADS      KIND: fp32, bf16, opacus, opacus-bf16
"""
import ctypes
import json
import os
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "interop"))
os.environ.setdefault("OMP_NUM_THREADS", sys.argv[4])
os.environ.setdefault("HF_HUB_OFFLINE", "1")

import numpy as np
import peft
import torch
import transformers
from reference_model import Gguf

TARGETS = ["q_proj", "k_proj", "v_proj", "o_proj"]
NAMES = {"attn_q": "self_attn.q_proj", "attn_k": "self_attn.k_proj", "attn_v": "self_attn.v_proj",
         "attn_output": "self_attn.o_proj", "ffn_gate": "mlp.gate_proj", "ffn_up": "mlp.up_proj",
         "ffn_down": "mlp.down_proj", "attn_norm": "input_layernorm", "ffn_norm": "post_attention_layernorm"}


def status(name):
    """A line of /proc/self/status in bytes."""
    with open("/proc/self/status", encoding="ascii") as f:
        return next(int(line.split()[1]) << 10 for line in f if line.startswith(name + ":"))


def config_of(f):
    key = lambda name: f.keys["llama." + name]
    base = float(key("rope.freq_base"))
    config = transformers.LlamaConfig(
        vocab_size=key("vocab_size"), hidden_size=key("embedding_length"), num_hidden_layers=key("block_count"),
        intermediate_size=key("feed_forward_length"), num_attention_heads=key("attention.head_count"),
        num_key_value_heads=key("attention.head_count_kv"), max_position_embeddings=key("context_length"),
        rms_norm_eps=key("attention.layer_norm_rms_epsilon"), tie_word_embeddings="output.weight" not in f.tensors,
        rope_parameters={"rope_type": "default", "rope_theta": base}, attention_dropout=0.0, use_cache=False)
    config._attn_implementation = "sdpa"
    return config


def halves(w, heads):
    """Rows of queries and keys as Hugging Face turns them: first halves of pairs, then second ones."""
    rows, cols = w.shape
    return w.reshape(heads, rows // heads // 2, 2, cols).swapaxes(1, 2).reshape(rows, cols)


def weights_of(f):
    heads = {"attn_q": f.keys["llama.attention.head_count"], "attn_k": f.keys["llama.attention.head_count_kv"]}
    named = {"token_embd.weight": "model.embed_tokens.weight", "output_norm.weight": "model.norm.weight",
             "output.weight": "lm_head.weight"}
    for name in f.tensors:
        w = f.tensor(name).astype(np.float32)
        if name in named:
            yield named[name], torch.from_numpy(w)
            continue
        _, layer, part, suffix = name.split(".")
        w = halves(w, heads[part]) if part in heads else w
        yield f"model.layers.{layer}.{NAMES[part]}.{suffix}", torch.from_numpy(np.ascontiguousarray(w))


def load(path, kind, rank):
    f = Gguf(path)
    torch.manual_seed(1)
    with torch.device("meta"):
        model = transformers.LlamaForCausalLM(config_of(f))
    # Buffers (the angles) are made anew: those of the meta device hold nothing.
    model.model.rotary_emb = type(model.model.rotary_emb)(config=model.config)
    model.load_state_dict(dict(weights_of(f)), strict=False, assign=True)
    model.tie_weights()
    if kind.endswith("bf16"):
        model = model.to(torch.bfloat16)
    left = [name for name, p in model.named_parameters() if p.is_meta]
    assert not left, f"no weights for {left}"
    spec = peft.LoraConfig(r=rank, lora_alpha=2 * rank, target_modules=TARGETS, lora_dropout=0.0, bias="none",
                           task_type="CAUSAL_LM")
    return peft.get_peft_model(model, spec).train()


def batches(lengths, micro):
    """Units in physical batches of like length."""
    order = sorted(lengths, reverse=True)
    return [order[i : i + micro] for i in range(0, len(order), micro)]


def tensors(lengths, trained, vocab):
    """Padded on the left, so that what is trained ends the rows: tokens, mask, positions, targets of the
    last rows (-100: not trained)."""
    longest, keep = lengths[0], min(trained, lengths[0] - 1)
    tokens = torch.zeros(len(lengths), longest, dtype=torch.long)
    mask = torch.zeros(len(lengths), longest - 1, dtype=torch.long)
    targets = torch.full((len(lengths), keep), -100)
    for i, n in enumerate(lengths):
        tokens[i, longest - n :] = torch.arange(n) * 7919 % vocab
        mask[i, longest - n :] = 1
        own = trained if trained < n else n // 2
        targets[i, keep - own :] = tokens[i, longest - own :]
    positions = (mask.cumsum(1) - 1).clamp(min=0)
    return tokens[:, :-1], None if mask.all() else mask, positions, targets


def unit_losses(model, lengths, trained):
    tokens, mask, positions, targets = tensors(lengths, trained, model.config.vocab_size)
    logits = model(input_ids=tokens, attention_mask=mask, position_ids=positions, use_cache=False,
                   logits_to_keep=targets.shape[1]).logits
    loss = torch.nn.functional.cross_entropy(logits.float().transpose(1, 2), targets, reduction="none")
    return loss.sum(1) / (targets >= 0).sum(1)


class Plain:
    def __init__(self, model):
        self.model = model
        self.optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=1e-3)

    def step(self, lengths, micro, trained):
        total = 0.0
        self.optimizer.zero_grad(set_to_none=True)
        for batch in batches(lengths, micro):
            loss = unit_losses(self.model, batch, trained).sum() / len(lengths)
            loss.backward()
            total += loss.item()
        self.optimizer.step()
        return total


class Private:
    """Per-unit gradients by GradSampleModule's hooks; batches smaller than the step add up as
    BatchMemoryManager has it."""

    def __init__(self, model, units):
        from opacus import GradSampleModule
        from opacus.optimizers import DPOptimizer

        self.config = model.config
        self.model = GradSampleModule(model, batch_first=True, loss_reduction="mean", strict=False)
        adamw = torch.optim.AdamW([p for p in self.model.parameters() if p.requires_grad], lr=1e-3)
        self.optimizer = DPOptimizer(adamw, noise_multiplier=1.0, max_grad_norm=1.0, expected_batch_size=units)

    def __call__(self, **inputs):
        return self.model(**inputs)

    def step(self, lengths, micro, trained):
        total, parts = 0.0, batches(lengths, micro)
        self.optimizer.zero_grad(set_to_none=True)
        for i, batch in enumerate(parts):
            losses = unit_losses(self, batch, trained)
            losses.mean().backward()
            total += losses.sum().item() / len(lengths)
            self.optimizer.signal_skip_step(i + 1 < len(parts))
            self.optimizer.step()
            self.optimizer.zero_grad(set_to_none=True)
        return total


def product_rate():
    """Multiplications and additions a second of one large fp32 product, all threads."""
    a, b = torch.randn(2048, 2048), torch.randn(2048, 2048)
    best = 0.0
    for _ in range(5):
        start = time.perf_counter()
        torch.mm(a, b)
        best = max(best, 2 * 2048**3 / (time.perf_counter() - start))
    return best


def measured_step(stepper, request):
    ctypes.CDLL(None).malloc_trim(0)
    with open("/proc/self/clear_refs", "w", encoding="ascii") as f:
        f.write("5")  # the peak begins anew
    start, cpu = time.perf_counter(), time.process_time()
    loss = stepper.step(request["lengths"], request["micro"], request["trained"])
    spent = time.perf_counter() - start, time.process_time() - cpu
    peak = status("VmHWM")
    return {"s": spent[0], "cpu_s": spent[1], "loss": loss, "peak_rss_bytes": peak,
            "peak_rss_anon_bytes": peak - status("RssFile") - status("RssShmem")}


def main():
    path, kind, rank, threads = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
    torch.set_num_threads(threads)
    imported = status("VmRSS")
    model = load(path, kind, rank)
    stepper = None
    for line in sys.stdin:
        request = json.loads(line)
        if "product_rate" in request:
            answer = {"product_rate": product_rate(), "imported_rss_bytes": imported, "torch": torch.__version__}
        else:
            units = len(request["lengths"])
            if stepper is None:
                stepper = Private(model, units) if kind.startswith("opacus") else Plain(model)
            answer = measured_step(stepper, request)
        print(json.dumps(answer), flush=True)


main()
