"""Writing checkpoints the way they are found: odd offsets, odd header lengths, experts out of id order."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

DTYPE_OF = {np.dtype(np.uint16): "BF16", np.dtype(np.float32): "F32", np.dtype(np.uint8): "U8"}


@dataclass
class Shard:
    """Tensors in file order. `odd_start` makes the data section begin at an odd byte of the file."""

    odd_start: bool
    metadata: bool = False
    tensors: dict[str, np.ndarray] = field(default_factory=dict)

    def encode(self) -> bytes:
        header: dict[str, object] = {"__metadata__": {"format": "pt"}} if self.metadata else {}
        offset = 0
        for name, array in self.tensors.items():
            header[name] = {"dtype": DTYPE_OF[array.dtype], "shape": list(array.shape),
                            "data_offsets": [offset, offset + array.nbytes]}  # fmt: skip
            offset += array.nbytes
        text = json.dumps(header, separators=(",", ":")).encode()
        text += b" " * ((len(text) % 2) ^ int(self.odd_start))
        little = (a.astype(a.dtype.newbyteorder("<")).tobytes() for a in self.tensors.values())
        return len(text).to_bytes(8, "little") + text + b"".join(little)


def write_shards(directory: Path, shards: list[Shard]) -> None:
    """Several shards with an index, or `model.safetensors` alone."""
    if len(shards) == 1:
        (directory / "model.safetensors").write_bytes(shards[0].encode())
        return
    weight_map, total = {}, 0
    for number, shard in enumerate(shards, start=1):
        file_name = f"model-{number:05}-of-{len(shards):05}.safetensors"
        (directory / file_name).write_bytes(shard.encode())
        weight_map.update(dict.fromkeys(shard.tensors, file_name))
        total += sum(a.nbytes for a in shard.tensors.values())
    index = {"metadata": {"total_size": total}, "weight_map": dict(sorted(weight_map.items()))}
    (directory / "model.safetensors.index.json").write_text(json.dumps(index, indent=1) + "\n")
