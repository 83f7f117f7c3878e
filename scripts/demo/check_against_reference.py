#!/usr/bin/env python3
"""Compares the PyTorch forward pass with the exact numpy model, on a checkpoint or on random weights.

    python3 check_against_reference.py [CHECKPOINT] --tokenizer DIRECTORY

Without a checkpoint a model is made whose every tensor, gate and bias is far from its initial value, so that no
mechanism is idle; it is exported, read back by both, and run on the same ids. Logits must agree to 1e-3 of the largest.
"""

from __future__ import annotations

import argparse
import importlib.util
import sys
import tempfile
from pathlib import Path

import numpy as np
import torch

import dimensions as dim
from export import export, load_exported
from model import Demo

sys.path.append(str(Path(__file__).resolve().parent.parent / "reference"))
from checkpoint import Checkpoint

LENGTH, TOLERANCE = 96, 1e-3


def reference_module():
    """The numpy model; by path, because ours is called model too."""
    path = Path(__file__).resolve().parent.parent / "reference" / "model.py"
    spec = importlib.util.spec_from_file_location("reference_model", path)
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def lively(seed: int) -> Demo:
    """Random everywhere: norms about 1, mixes that prefer, gates saturated at both ends, biases that change picks."""
    model, generator = Demo(seed), torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name in model.names:
            w = model.p(name)
            noise = torch.randn(w.shape, generator=generator)
            if name.endswith("norm.weight"):
                w.copy_(1 + 0.3 * noise)
            elif name.endswith("res_proj.weight"):
                w.copy_(noise / dim.HIDDEN**0.5)
            elif name.endswith("dt_bias"):
                w.copy_(3 * noise - 2)
            elif name.endswith("A_log"):
                w.copy_(0.5 * noise)
        for layer in range(1, dim.LAYERS):
            model.bias(layer).copy_(0.2 * torch.randn(dim.EXPERTS, generator=generator))
    return model


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("checkpoint", type=Path, nargs="?")
    parser.add_argument("--tokenizer", type=Path)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        directory = args.checkpoint
        if directory is None:
            directory = Path(temporary)
            print(f"random model: {export(lively(1), args.tokenizer, directory)} bytes")
        ids = np.random.default_rng(0).integers(0, dim.VOCAB, LENGTH)
        with torch.no_grad():
            ours = load_exported(directory)(torch.from_numpy(ids)[None])[0].numpy()
        reference = reference_module()
        for attention in ("latent", "expanded"):
            theirs = reference.Model(Checkpoint(directory), attention).forward(ids.tolist(), reference.State())
            worst = float(np.abs(ours - theirs).max() / np.abs(theirs).max())
            same = int((ours.argmax(-1) == theirs.argmax(-1)).sum())
            print(f"{attention}: worst difference {worst:.2e} of the largest logit; {same} of {LENGTH} argmaxes equal")
            if worst > TOLERANCE:
                sys.exit("the PyTorch model and the reference disagree")


if __name__ == "__main__":
    main()
