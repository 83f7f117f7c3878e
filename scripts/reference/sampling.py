"""Sampling, section 7 of docs/numerics.md: from logits and a counter-based draw to one id."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

import numpy as np

import arithmetic as ar
from arithmetic import F32, F64

_MULTIPLIERS = (0xD2511F53, 0xCD9E8D57)
_WEYL = (0x9E3779B9, 0xBB67AE85)
_MASK = 0xFFFFFFFF


def philox4x32_10(counter: tuple[int, int, int, int], key: tuple[int, int]) -> tuple[int, int, int, int]:
    c, k = list(counter), list(key)
    for _ in range(10):
        first, second = _MULTIPLIERS[0] * c[0], _MULTIPLIERS[1] * c[2]
        c = [(second >> 32) ^ c[1] ^ k[0], second & _MASK, (first >> 32) ^ c[3] ^ k[1], first & _MASK]
        k = [(k[0] + _WEYL[0]) & _MASK, (k[1] + _WEYL[1]) & _MASK]
    return tuple(c)


def uniform(seed: int, position: int, choice: int = 0) -> float:
    """53 bits of the first two words; `position` is the absolute index of the token to be drawn."""
    w = philox4x32_10((position & _MASK, position >> 32, choice, 0), (seed & _MASK, seed >> 32))
    return float(((w[1] << 32 | w[0]) >> 11) * 2.0**-53)


@dataclass(frozen=True)
class Settings:
    temperature: float = 0.0
    top_k: int = 0  # 0: all
    top_p: float = 1.0
    min_p: float = 0.0
    repetition: float = 1.0
    frequency: float = 0.0
    presence: float = 0.0
    bias: dict[int, float] = field(default_factory=dict)  # -inf bans an id


def penalised(logits: np.ndarray, s: Settings, prompt: list[int], output: list[int]) -> np.ndarray:
    """Repetition looks at prompt and output; frequency and presence at the output alone."""
    x = logits.copy()
    if s.repetition != 1.0:
        for i in set(prompt) | set(output):
            x[i] = x[i] / F32(s.repetition) if x[i] > 0 else x[i] * F32(s.repetition)
    for i, count in Counter(output).items():
        x[i] = x[i] - F32(s.frequency) * F32(count)
        x[i] = x[i] - F32(s.presence)
    for i, b in s.bias.items():
        x[i] = -np.inf if b == -np.inf else x[i] + F32(b)
    return x


def candidates(x: np.ndarray, s: Settings) -> tuple[list[int], np.ndarray]:
    """The ids that can be drawn, in order, and their probabilities before the final scaling."""
    x = x / F32(s.temperature)
    order = sorted((i for i in range(len(x)) if x[i] != -np.inf), key=lambda i: (-x[i], i))
    if s.top_k:
        order = order[: s.top_k]
    p = ar.softmax(x[order][None])[0]
    running = np.add.accumulate(F64(p))
    keep = int(np.argmax(running >= F64(s.top_p) * running[-1])) + 1
    floor = F32(s.min_p) * p[0]
    kept = [n for n in range(keep) if p[n] >= floor]
    return [order[n] for n in kept], p[kept]


def sample(logits, s: Settings, seed: int, position: int, prompt=(), output=(), choice: int = 0) -> int:
    x = penalised(logits, s, list(prompt), list(output))
    if s.temperature == 0:
        return max(range(len(x)), key=lambda i: (x[i], -i))
    ids, p = candidates(x, s)
    running = np.add.accumulate(F64(p))
    target = uniform(seed, position, choice) * running[-1]
    for i, so_far in zip(ids, running):
        if so_far > target:
            return i
    return ids[-1]


def logprob(logits: np.ndarray, chosen: int) -> np.float32:
    """Of the raw logits. The log here is the platform's f64 one: far inside the last f32 place."""
    m = logits.max()
    z = ar.serial_sum(F64(ar.exp(logits - m)))
    return F32(F64(logits[chosen] - m) - np.log(z))


def likeliest(logits: np.ndarray, count: int) -> list[int]:
    """Ids by logit descending, then by id."""
    return sorted(range(len(logits)), key=lambda i: (-logits[i], i))[:count]
