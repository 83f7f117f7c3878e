"""Muon for the matrices inside the layers, AdamW for everything else.

Muon: the momentum of a matrix is made nearly orthogonal by five Newton-Schulz steps before it is applied. Matrices of
one shape are stacked and run as one batch of products. An `Optimiser` updates the tensors that one worker owns;
weights, gradients and moments lie in memory that all workers share.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

MOMENTUM, BETAS, EPS = 0.95, (0.9, 0.95), 1e-8
NS_STEPS, NS = 5, (3.4445, -4.7750, 2.0315)
# Router, gates per head, mixes, the two tables and all vectors stay with AdamW.
ADAM_ONLY = ("embed_tokens", "lm_head", "moe.gate.", ".b_proj.", "_res_proj", "conv1d", "norm.", "A_log", "dt_bias")


def is_matrix(name: str) -> bool:
    """Whether Muon updates the tensor."""
    return not any(part in name for part in ADAM_ONLY)


def orthogonalise(g: Tensor) -> Tensor:
    """g [N, rows, columns]; singular values go to about 1."""
    wide = g.shape[1] <= g.shape[2]
    x = g if wide else g.mT.contiguous()
    x = x / (x.norm(dim=(1, 2), keepdim=True) + 1e-7)
    a, b, c = NS
    for _ in range(NS_STEPS):
        s = x @ x.mT
        x = torch.baddbmm(x, torch.baddbmm(s, s, s, beta=b, alpha=c), x, beta=a)
    return x if wide else x.mT


def cost(name: str, shape: tuple[int, ...]) -> float:
    """Of one update, roughly, for sharing the tensors out."""
    count = math.prod(shape)
    return 20 * count + (NS_STEPS * count * 3 * min(shape[-2:]) if is_matrix(name) else 0)


def share_out(shapes: dict[str, tuple[int, ...]], workers: int) -> list[list[str]]:
    """The names each worker owns; the dearest first, always to the one that has the least."""
    owned: list[list[str]] = [[] for _ in range(workers)]
    load = [0.0] * workers
    for name in sorted(shapes, key=lambda n: -cost(n, shapes[n])):
        least = load.index(min(load))
        owned[least].append(name)
        load[least] += cost(name, shapes[name])
    return owned


class Optimiser:
    """`first` and `second` are the moments by name; Muon uses the first alone."""

    def __init__(
        self, weights: dict[str, Tensor], first: dict[str, Tensor], second: dict[str, Tensor], names: list[str]
    ):
        self.weights, self.first, self.second = weights, first, second
        self.plain = [n for n in names if not is_matrix(n)]
        self.shapes: dict[tuple[int, int], list[str]] = {}
        for name in names:
            if is_matrix(name):
                self.shapes.setdefault(tuple(weights[name].shape[-2:]), []).append(name)

    @torch.no_grad()
    def step(self, grads: dict[str, Tensor], number: int, muon_lr: float, adam_lr: float, decay: float) -> None:
        """`number` counts updates from 1."""
        self._adam(grads, number, adam_lr)
        for (rows, columns), names in self.shapes.items():
            blocks = []
            for name in names:
                grad, momentum = grads[name], self.first[name]
                momentum.lerp_(grad, 1 - MOMENTUM)
                blocks.append(grad.lerp(momentum, MOMENTUM).view(-1, rows, columns))
            updates = orthogonalise(torch.cat(blocks)).split([len(b) for b in blocks])
            for name, update in zip(names, updates):
                w = self.weights[name]
                w.mul_(1 - muon_lr * decay)
                w.add_(update.reshape(w.shape), alpha=-muon_lr * math.sqrt(max(1.0, rows / columns)))

    def _adam(self, grads: dict[str, Tensor], number: int, lr: float) -> None:
        unbias1, unbias2 = 1 - BETAS[0] ** number, 1 - BETAS[1] ** number
        for name in self.plain:
            grad, first, second = grads[name], self.first[name], self.second[name]
            first.lerp_(grad, 1 - BETAS[0])
            second.mul_(BETAS[1]).addcmul_(grad, grad, value=1 - BETAS[1])
            root = second.sqrt().div_(math.sqrt(unbias2)).add_(EPS)
            self.weights[name].addcdiv_(first, root, value=-lr / unbias1)
