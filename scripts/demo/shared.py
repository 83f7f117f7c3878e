"""What the training workers share: a handful of flat f32 buffers in shared memory, seen as tensors by name."""

from __future__ import annotations

import math

import torch
from torch import Tensor

ALIGN = 16  # floats; each tensor starts at a multiple of 64 bytes
KINDS = ("weights", "used", "first", "second")  # masters; what the forward pass reads; the two moments


class Shared:
    """Buffers for every kind, gradients per worker, biases and expert loads per layer, and one loss per worker."""

    def __init__(self, shapes: dict[str, tuple[int, ...]], workers: int, layers: int, experts: int):
        self.shapes, self.offsets, end = shapes, {}, 0
        for name, shape in shapes.items():
            self.offsets[name] = end
            end += -(-math.prod(shape) // ALIGN) * ALIGN
        self.flat = {kind: torch.zeros(end).share_memory_() for kind in KINDS}
        self.grads = torch.zeros(workers, end).share_memory_()
        self.bias = torch.zeros(layers, experts).share_memory_()
        self.loads = torch.zeros(workers, layers, experts).share_memory_()
        self.losses = torch.zeros(workers, dtype=torch.float64).share_memory_()
        self.step = torch.zeros(1, dtype=torch.int64).share_memory_()

    def views(self, flat: Tensor) -> dict[str, Tensor]:
        return {n: flat[o : o + math.prod(self.shapes[n])].view(self.shapes[n]) for n, o in self.offsets.items()}

    def named(self, kind: str) -> dict[str, Tensor]:
        return self.views(self.flat[kind])
