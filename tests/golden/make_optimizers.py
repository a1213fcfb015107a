#!/usr/bin/env python3
"""Values after each of six optimizer steps, by PyTorch in float64: writes optimizer_steps.h.

    /usr/bin/python3 tests/golden/make_optimizers.py
"""
import os

import torch

START = [0.5, -1.25, 3.0, 0.0, 1e-3]
CASES = [
    ("sgd", "TACIT_SGD, 0.1, 0, 0, 0, 0, 0", torch.optim.SGD, dict(lr=0.1)),
    ("momentum", "TACIT_SGD, 0.05, 0.9, 0, 0, 0, 0.01", torch.optim.SGD,
     dict(lr=0.05, momentum=0.9, weight_decay=0.01)),
    ("adam", "TACIT_ADAM, 0.02, 0, 0.9, 0.999, 1e-8, 0", torch.optim.Adam, dict(lr=0.02)),
    ("adam with decay", "TACIT_ADAM, 0.02, 0, 0.8, 0.95, 1e-6, 0.1", torch.optim.Adam,
     dict(lr=0.02, betas=(0.8, 0.95), eps=1e-6, weight_decay=0.1)),
    ("adamw", "TACIT_ADAMW, 0.03, 0, 0.9, 0.99, 1e-8, 0.2", torch.optim.AdamW,
     dict(lr=0.03, betas=(0.9, 0.99), weight_decay=0.2)),
]


def gradient(step, i):
    """Exact in binary: the test computes the same."""
    return ((7 * step + 5 * i) % 11 - 5) / 8.0 * (1.0 if i != 4 else 2.0**-12)


def main():
    out = ["/* Written by make_optimizers.py: values of five parameters after steps 1 to 6. */",
           f"#define OPTIMIZER_VALUES {len(START)}", "#define OPTIMIZER_STEPS 6",
           "static const float optimizer_start[OPTIMIZER_VALUES] = {" +
           ", ".join(repr(v) for v in START) + "};",
           "static const struct optimizer_case {", "    const char *name;",
           "    tacit_optimizer_spec spec;",
           "    double after[OPTIMIZER_STEPS][OPTIMIZER_VALUES];", "} optimizer_cases[] = {"]
    for name, spec, kind, options in CASES:
        p = torch.tensor(START, dtype=torch.float64, requires_grad=True)
        optimizer = kind([p], **options)
        out.append(f'    {{"{name}", {{{spec}, TACIT_RATE_CONSTANT, 0}},\n     {{')
        for step in range(1, 7):
            p.grad = torch.tensor([gradient(step, i) for i in range(len(START))]).double()
            optimizer.step()
            out.append("      {" + ", ".join(f"{v:.15g}" for v in p.tolist()) + "},")
        out.append("     }},")
    out.append("};")
    path = os.path.join(os.path.dirname(os.path.abspath(__file__)), "optimizer_steps.h")
    with open(path, "w") as f:
        f.write("\n".join(out) + "\n")


main()
