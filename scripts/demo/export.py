#!/usr/bin/env python3
"""Writes a training state as a checkpoint in the released layout, ready for k3; reads such a checkpoint back.

    python3 export.py RUN/state.pt TOKENIZER_DIRECTORY OUT_DIRECTORY

One shard a layer, one for embedding, head and the last norms, an index, config.json and the tokenizer's two files. The
trunk is rounded to bf16 (ties to even); A_log, dt_bias and the correction bias stay f32; experts become MXFP4.
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

import dimensions as dim
from model import Demo
from mxfp4 import pack

sys.path.append(str(Path(__file__).resolve().parent.parent / "reference"))
from arithmetic import unpack_mxfp4
from checkpoint import Checkpoint
from prng import to_bf16
from shards import Shard, write_shards

PREFIX = "language_model.model."
TOKENIZER_FILES = ("tiktoken.model", "tokenizer_config.json")
BIAS = "block_sparse_moe.gate.e_score_correction_bias"


def expert_tensors(p: str, w13: Tensor, w2: Tensor) -> dict[str, np.ndarray]:
    """The six tensors of one expert, adjacent."""
    out = {}
    for name, matrix in (("w1", w13[: dim.INNER]), ("w2", w2), ("w3", w13[dim.INNER :])):
        packed, scale = pack(matrix)
        out[f"{p}{name}.weight_packed"], out[f"{p}{name}.weight_scale"] = packed.numpy(), scale.numpy()
    return out


def stored(name: str, tensor: Tensor) -> np.ndarray:
    values = tensor.detach().numpy().astype(np.float32)
    if name.endswith("A_log"):
        padded = np.zeros(dim.A_LOG_STORED, np.float32)
        padded[: len(values)] = values
        return padded
    return values if name.endswith("dt_bias") else to_bf16(values)


def layer_shard(model: Demo, layer: int) -> Shard:
    shard, p = Shard(odd_start=False), f"layers.{layer}."
    for name in model.names:
        if name.startswith(p) and ".experts." not in name:
            shard.tensors[PREFIX + name] = stored(name, model.p(name))
    if layer > 0:
        shard.tensors[PREFIX + p + BIAS] = model.bias(layer).numpy().astype(np.float32)
        e = p + "block_sparse_moe.experts."
        w13, w2 = model.p(e + "w13").detach(), model.p(e + "w2").detach()
        for expert in range(dim.EXPERTS):
            shard.tensors |= expert_tensors(f"{PREFIX}{e}{expert}.", w13[expert], w2[expert])
    return shard


def export(model: Demo, tokenizer: Path, out: Path) -> int:
    """Returns the bytes written."""
    out.mkdir(parents=True, exist_ok=True)
    for stale in out.glob("*.safetensors*"):
        stale.unlink()
    shards = [layer_shard(model, layer) for layer in range(dim.LAYERS)]
    outer = Shard(odd_start=False, metadata=True)
    for name in model.names:
        if not name.startswith("layers."):
            full = "language_model.lm_head.weight" if name == "lm_head.weight" else PREFIX + name
            outer.tensors[full] = stored(name, model.p(name))
    write_shards(out, [*shards, outer])
    (out / "config.json").write_text(json.dumps(dim.config_json(), indent=1) + "\n")
    for name in TOKENIZER_FILES:
        shutil.copyfile(tokenizer / name, out / name)
    return sum(path.stat().st_size for path in out.iterdir())


def load_exported(directory: Path) -> Demo:
    """The model that an exported checkpoint's bytes stand for, in f32."""
    checkpoint, model = Checkpoint(directory), Demo()

    def expert(p: str, matrix: str) -> np.ndarray:
        values = unpack_mxfp4(checkpoint.get(f"{p}{matrix}.weight_packed")).astype(np.float32)
        scales = checkpoint.get(f"{p}{matrix}.weight_scale").astype(np.float32)
        return values * np.exp2(np.repeat(scales, 32, axis=1) - 127)

    with torch.no_grad():
        for name in model.names:
            head, _, last = name.rpartition(".experts.")
            if head:
                paths = [f"{head}.experts.{e}." for e in range(dim.EXPERTS)]
                parts = ("w1", "w3") if last == "w13" else ("w2",)
                values = np.stack([np.concatenate([expert(p, part) for part in parts]) for p in paths])
            else:
                values = checkpoint.get(name)
            if name.endswith("A_log"):
                values = values[: dim.KDA_HEADS]
            model.p(name).copy_(torch.from_numpy(np.array(values, np.float32)).view_as(model.p(name)))
        for layer in range(1, dim.LAYERS):
            model.bias(layer).copy_(torch.from_numpy(np.array(checkpoint.get(f"layers.{layer}.{BIAS}"), np.float32)))
    return model


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("state", type=Path)
    parser.add_argument("tokenizer", type=Path)
    parser.add_argument("out", type=Path)
    args = parser.parse_args()
    model, state = Demo(), torch.load(args.state, map_location="cpu", weights_only=True)
    with torch.no_grad():
        for name in model.names:
            model.p(name).copy_(state["model"][name])
        for layer in range(1, dim.LAYERS):
            model.bias(layer).copy_(state["bias"][layer])
    print(f"{args.out}: {export(model, args.tokenizer, args.out)} bytes")


if __name__ == "__main__":
    main()
