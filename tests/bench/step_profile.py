"""Where the processor time of a Tacit step goes: samples of `perf record` by the chain of functions, each
counted once, by the first rule that any function of its chain meets."""
import collections
import fnmatch
import os
import re
import subprocess

# What, and functions that say so (whole names, or with a star before or behind). Forward and recomputation share their
# functions; only the output layer is dequantized in tiles where layers are dequantized whole.
RULES = [
    ("optimizer", ["tacit_optimizer_step"]),
    ("attention, {phase}", ["text_attention_*", "forward_head", "backward_kv_head"]),
    ("loss and output layer", ["forward_tile", "backward_tile", "exp_sum", "example_loss"]),
    ("dequantization", ["linear_expand", "dequant_*"]),
    ("low-rank pairs, {phase}", ["linear_add_pair*", "linear_backward_pair", "matrix_mul_*", "multiply_block"]),
    ("products, {phase}", ["multiply_panels*"]),
    ("norms, activation, rope, sums, {phase}", ["forward_*", "*backward*", "ops_*", "train_*", "text_train_run"]),
]
PHASES = [("backward", ["*backward*", "train_input_gradient", "train_weight_gradients"]),
          ("forward and recomputed", ["forward_*", "train_*"])]


def meets(chain, patterns):
    return any(fnmatch.fnmatchcase(name, pattern) for pattern in patterns for name in chain)


def group_of(chain):
    phase = next((name for name, patterns in PHASES if meets(chain, patterns)), "elsewhere")
    name = next((name for name, patterns in RULES if meets(chain, patterns)), "else: " + (chain[0] if chain else "?"))
    return name.format(phase=phase)


def chains(text):
    """Each sample's functions, the innermost first: blocks of lines `ADDRESS NAME+OFFSET (FILE)`."""
    for block in text.split("\n\n"):
        found = re.findall(r"^\s+[0-9a-f]+ (\S+?)(?:\.(?:part|constprop|isra)\.\d+)*(?:\+0x[0-9a-f]+)? ", block, re.M)
        if found:
            yield found


def shares(command, preexec, folder):
    """Shares that sum to 1, of the steps without privacy."""
    record = os.path.join(folder, "step.perf")
    subprocess.run(["perf", "record", "-q", "-e", "cpu-clock", "-F", "97", "--call-graph", "dwarf,65528", "-o", record,
                    *command], check=True, capture_output=True, preexec_fn=preexec)
    text = subprocess.run(["perf", "script", "-F", "ip,sym,dso", "-i", record], check=True, capture_output=True,
                          text=True).stdout
    os.remove(record)
    counts = collections.Counter(group_of(chain) for chain in chains(text) if meets(chain, ["plain_step"]))
    total = sum(counts.values())
    return {name: count / total for name, count in counts.items()}
