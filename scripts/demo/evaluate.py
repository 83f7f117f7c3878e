#!/usr/bin/env python3
"""Held-out loss of an exported checkpoint: exactly its bytes, bf16 trunk and MXFP4 experts, computed in f32.

    python3 evaluate.py CHECKPOINT DATA_DIRECTORY

All held-out documents of a source are cut into windows of 512 tokens; a token is predicted from those before it in
its window, the window's first from the last one of the window before. Nats per token count every token,
[EOS] included; bits per byte divide the same sum by the bytes of the text.
"""

from __future__ import annotations

import argparse
import math
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F

import dimensions as dim
from export import load_exported

WINDOW, BATCH, IGNORED = 512, 8, -100


def nats(model: torch.nn.Module, ids: np.ndarray) -> float:
    """Sum over all of `ids`; an [EOS] stands before the first."""
    count = len(ids)
    inputs = np.full(-(-count // WINDOW) * WINDOW, dim.EOS_ID, np.int64)
    targets = np.full(len(inputs), IGNORED, np.int64)
    inputs[1:count], targets[:count] = ids[:-1], ids
    total = 0.0
    pairs = (torch.from_numpy(a).view(-1, WINDOW).split(BATCH) for a in (inputs, targets))
    for x, y in zip(*pairs):
        with torch.no_grad():
            total += F.cross_entropy(model(x).flatten(0, 1), y.flatten(), ignore_index=IGNORED, reduction="sum").item()
    return total


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("checkpoint", type=Path)
    parser.add_argument("data", type=Path)
    args = parser.parse_args()
    model = load_exported(args.checkpoint)
    sums = np.zeros(3)
    with np.load(args.data / "tokens.npz") as data:
        for key in sorted(k for k in data.files if k.startswith("heldout_")):
            source = key.removeprefix("heldout_")
            row = np.array([nats(model, data[key]), len(data[key]), float(data[f"bytes_{source}"])])
            sums += row
            report(source, *row)
    report("all", *sums)


def report(name: str, total: float, tokens: float, size: float) -> None:
    print(f"{name:5} {total / tokens:.4f} nats a token, {total / math.log(2) / size:.4f} bits a byte "
          f"({tokens:.0f} tokens, {size:.0f} bytes)", flush=True)  # fmt: skip


if __name__ == "__main__":
    main()
