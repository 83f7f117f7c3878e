"""MXFP4 for the experts: E2M1 values in groups of 32 columns that share an E8M0 scale.

`fake_quantise` gives what the exported bytes stand for, in f32; `pack` gives the bytes. Both use the same scales and
the same rounding, so the model evaluated in training is the model exported.
"""

from __future__ import annotations

import torch
from torch import Tensor

GROUP = 32
E2M1 = (0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0)


def round_e2m1(x: Tensor) -> Tensor:
    """Magnitudes to the nearest of E2M1; beyond 6 to 6."""
    step = torch.where(x < 2.0, 0.5, torch.where(x < 4.0, 1.0, 2.0))
    return (torch.round(x / step) * step).clamp(max=6.0)


def quantised(w: Tensor) -> tuple[Tensor, Tensor]:
    """w [..., columns] as (signed E2M1 values [..., groups, 32], scale exponents [..., groups, 1]).

    The scale is the power of two that brings the group's largest magnitude into (3, 6], or the one below it (which
    clips what lies above 6) if that makes the squared error smaller.
    """
    groups = w.reshape(*w.shape[:-1], -1, GROUP)
    largest = groups.abs().amax(-1, keepdim=True).clamp(min=2.0**-100)
    exponent = torch.ceil(torch.log2(largest / 6.0))
    best, best_error, best_exponent = None, None, None
    for candidate in (exponent, exponent - 1):
        scale = torch.exp2(candidate)
        values = round_e2m1(groups.abs() / scale) * groups.sign()
        error = ((values * scale - groups) ** 2).sum(-1, keepdim=True)
        if best is None:
            best, best_error, best_exponent = values, error, candidate
        else:
            better = error < best_error
            best = torch.where(better, values, best)
            best_exponent = torch.where(better, candidate, best_exponent)
    return best, best_exponent


def fake_quantise(w: Tensor) -> Tensor:
    values, exponent = quantised(w)
    return (values * torch.exp2(exponent)).reshape(w.shape)


def pack(w: Tensor) -> tuple[Tensor, Tensor]:
    """w [rows, columns] as (bytes [rows, columns / 2], even columns low; scale bytes [rows, columns / 32])."""
    values, exponent = quantised(w)
    magnitude = torch.bucketize(values.abs(), torch.tensor(E2M1[1:]), right=True)
    codes = (magnitude + 8 * (values < 0)).to(torch.uint8).reshape(w.shape)
    packed = codes[:, 0::2] | (codes[:, 1::2] << 4)
    return packed, (exponent[..., 0] + 127).to(torch.uint8)
