"""Which mistake shows in which fixture: the count of last-position logits whose bits change."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np

from checkpoint import Checkpoint
from model import MISTAKES, Model, State

# With ordinary numbers these change no bit of any logit, or change one by luck only; the named cases of
# golden_kernels.json are built to show them.
KERNEL_LEVEL = {
    "beta_before_zero_test": "kda_step_underflow",
    "scale_in_f64": "mla_scores_latent, mla_scores_expanded",
}


def mistakes_report(cases: dict[str, tuple[Path, dict[str, list[int]]]]) -> str:
    right = {name: _last_logits(directory, prompts) for name, (directory, prompts) in cases.items()}
    report = {}
    for mistake, description in MISTAKES.items():
        differing = {}
        for name, (directory, prompts) in cases.items():
            wrong = _last_logits(directory, prompts, mistake)
            differing[name] = {p: int((wrong[p] != right[name][p]).sum()) for p in prompts}
        shown = [name for name, counts in differing.items() if any(counts.values())]
        entry = {"means": description, "visible_in": shown}
        if mistake in KERNEL_LEVEL:
            entry["kernel_level"] = KERNEL_LEVEL[mistake]
        assert shown or mistake in KERNEL_LEVEL, f"no fixture shows {mistake}"
        report[mistake] = entry | {"logits_differing": differing}
    note = "latent form; logits_differing: per fixture and prompt, how many last-position logits change their bits"
    lines = [f"  {json.dumps(name)}: {json.dumps(entry)}" for name, entry in report.items()]
    return '{\n "note": ' + json.dumps(note) + ',\n "mistakes": {\n' + ",\n".join(lines) + "\n }\n}\n"


def _last_logits(directory: Path, prompts: dict[str, list[int]], *mistakes: str) -> dict[str, np.ndarray]:
    """Bit patterns; a forward pass that ends in a non-finite value counts as differing everywhere."""
    model = Model(Checkpoint(directory), "latent", mistakes)
    out = {}
    for prompt, ids in prompts.items():
        try:
            out[prompt] = model.forward(ids, State())[-1].view(np.uint32)
        except ValueError:
            out[prompt] = np.full(model.config.vocab_size, 0x7FC00000, np.uint32)
    return out
