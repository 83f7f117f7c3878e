#!/usr/bin/env python3
"""Compares the reference with expected logits and ids that somebody else computed.

The folder holds `expected.json` and, per checkpoint, `logits_<prompt>.bin` (expanded form) and
`logits_latent_<prompt>.bin`. Runs when K3_REFERENCE_DATA names the folder above `k3tiny`.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import numpy as np

from checkpoint import Checkpoint
from k3_reference import generate
from model import Model


def main() -> int:
    root = os.environ.get("K3_REFERENCE_DATA")
    if not root:
        print("not run: K3_REFERENCE_DATA is not set")
        return 0
    folder, failures = Path(root) / "k3tiny", 0
    for name, entry in json.loads((folder / "expected.json").read_text())["checkpoints"].items():
        checkpoint = Checkpoint(folder / entry["dir"])
        for attention, stem in (("expanded", "logits_"), ("latent", "logits_latent_")):
            model = Model(checkpoint, attention)
            for prompt, case in entry["prompts"].items():
                logits, ids = generate(model, case["ids"], len(case["generated_ids"]))
                want = np.fromfile(folder / entry["dir"] / f"{stem}{prompt}.bin", "<u4")
                differing = int((logits[-1].view(np.uint32) != want).sum())
                same_ids = ids == case["generated_ids"]
                failures += bool(differing) + (not same_ids)
                print(f"{name} {attention} {prompt}: {differing} logits differ, ids {'equal' if same_ids else 'DIFFER'}")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
