"""Inputs for the golden vectors: sums that cancel, and sums that sit on a rounding edge."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np

from arithmetic import F32, F64, bf16_to_f32, inverse_rms, lane_sum
from prng import Stream, to_bf16

NOTE = (
    "f32 as u32 bit patterns, bf16 as u16, bytes and ids as integers, all row-major. x: [positions][cols], weights: "
    "[rows][cols], matmul outputs: [positions][rows]. wrong_orders: a named wrong implementation and how many of the "
    "outputs it changes. Any NaN equals any NaN."
)


def normal(name: str, *shape: int) -> np.ndarray:
    return Stream("golden/" + name).normal(shape).astype(F32)


def uniform(name: str, low: float, high: float, *shape: int) -> np.ndarray:
    return Stream("golden/" + name).uniform(shape, low, high).astype(F32)


def pairs(name: str, count: int) -> list[tuple[int, int]]:
    order = Stream(f"golden/{name}/pairs").permutation(count)
    return list(zip(order[0 : count // 2 : 2], order[1 : count // 2 : 2]))


def cancelling(name: str, positions: int, rows: int, cols: int, exponent: int = 31):
    """x [positions][cols] f32 and weights [rows][cols] with bf16 values: about half of the terms come in pairs of
    size 2^exponent that cancel exactly, the others are near 1."""
    x, w = normal(name + "/x", positions, cols), normal(name + "/w", rows, cols)
    for step, (a, b) in enumerate(pairs(name, cols)):
        x[:, b] = x[:, a]
        w[:, a] *= F32(2.0 ** (exponent - step % 3))
        w[:, b] = -w[:, a]
    codes = to_bf16(w)
    codes_b = [b for _, b in pairs(name, cols)]
    codes_a = [a for a, _ in pairs(name, cols)]
    codes[:, codes_b] = codes[:, codes_a] ^ 0x8000
    return x, codes, bf16_to_f32(codes)


def edge_squares(name: str, count: int, eps, divide_by: int) -> np.ndarray:
    """x [count] such that f32(1 / sqrt(ss / divide_by + eps)) depends on the order in which ss is summed.

    Eight large values first, chosen so that ss lies a few units of the last f64 place from the point where the f32
    result flips; then values whose squares are too small to move a large accumulator, but not small together.
    """
    stream = Stream(f"golden/{name}/edge")
    for _ in range(400):
        x = np.zeros(count, F32)
        x[:4] = stream.normal((4,)).astype(F32) + F32(1.5)
        inv = inverse_rms(x[None] * F32(math.sqrt(count / divide_by)), F32(eps))[0]
        # The next smaller f32 result lies at a larger ss; the edge is halfway.
        edge = (Fraction(float(inv)) + Fraction(float(np.nextafter(inv, F32(0))))) / 2
        target = divide_by * (1 / edge**2 - Fraction(float(F32(eps))))
        rest = target * (1 - Fraction(int(stream.below(9, 1)[0]), 2**53)) - sum(Fraction(float(v)) ** 2 for v in x[:4])
        for i in range(4, 8):
            if rest <= 0:
                break
            v = F32(math.sqrt(float(rest)))
            while Fraction(float(v)) ** 2 > rest:
                v = np.nextafter(v, F32(0))
            x[i], rest = v, rest - Fraction(float(v)) ** 2
        unit = math.sqrt(float(target)) * 2.0**-27
        x[8:] = (unit * stream.uniform((count - 8,), 0.6, 0.9)).astype(F32)
        squares = F64(x) * F64(x)
        serial = np.add.accumulate(squares)[-1]
        results = [F32(1.0 / np.sqrt(ss / divide_by + F64(F32(eps)))) for ss in (serial, lane_sum(squares))]
        if results[0] != results[1]:
            return x
    raise AssertionError(f"{name}: no sum on an edge found")
