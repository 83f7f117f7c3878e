"""Numbers that are the same on every machine and with every numpy: SplitMix64 and exact f64 steps, nothing else."""

from __future__ import annotations

import hashlib

import numpy as np

_GAMMA = np.uint64(0x9E3779B97F4A7C15)


def _mix(z: np.ndarray) -> np.ndarray:
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return z ^ (z >> np.uint64(31))


class Stream:
    """A stream named by a string, so that one tensor's values do not depend on what was drawn before it."""

    def __init__(self, name: str):
        self._seed = np.uint64(int.from_bytes(hashlib.sha256(name.encode()).digest()[:8], "little"))
        self._drawn = 0

    def bits(self, count: int) -> np.ndarray:
        index = np.arange(self._drawn + 1, self._drawn + count + 1, dtype=np.uint64)
        self._drawn += count
        with np.errstate(over="ignore"):
            return _mix(self._seed + index * _GAMMA)

    def below(self, limit: int, count: int) -> np.ndarray:
        """Integers in 0..limit; the modulo bias does not matter here."""
        return (self.bits(count) % np.uint64(limit)).astype(np.int64)

    def uniform(self, shape, low: float = 0.0, high: float = 1.0) -> np.ndarray:
        count = int(np.prod(shape))
        unit = (self.bits(count) >> np.uint64(11)).astype(np.float64) * 2.0**-53
        return (low + (high - low) * unit).reshape(shape)

    def normal(self, shape) -> np.ndarray:
        """Nearly normal, mean 0, variance 1: twelve uniforms less six (sums in a fixed order)."""
        parts = self.uniform((12, *shape))
        total = parts[0]
        for part in parts[1:]:
            total = total + part
        return total - 6.0

    def permutation(self, count: int) -> list[int]:
        return sorted(range(count), key=dict(enumerate(self.bits(count).tolist())).get)


def to_bf16(values: np.ndarray) -> np.ndarray:
    """f64 -> u16 bit patterns: rounded to f32, then to bf16, ties to even. Finite values only."""
    bits = np.asarray(values, np.float32).view(np.uint32).astype(np.uint64)
    return ((bits + np.uint64(0x7FFF) + ((bits >> np.uint64(16)) & np.uint64(1))) >> np.uint64(16)).astype(np.uint16)
