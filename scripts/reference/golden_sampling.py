"""Golden vectors of sampling: known answers of Philox, uniforms, candidate lists, draws, logprobs."""

from __future__ import annotations

import json

import numpy as np

import golden_inputs as gi
from arithmetic import F32
from golden_kernels import bits
from sampling import Settings, candidates, likeliest, logprob, penalised, philox4x32_10, sample, uniform

# The known answers published with the generator.
PHILOX = [
    ((0, 0, 0, 0), (0, 0), (0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8)),
    ((0xFFFFFFFF,) * 4, (0xFFFFFFFF,) * 2, (0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD)),
    ((0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344), (0xA4093822, 0x299F31D0),
     (0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1)),
]  # fmt: skip

BAN = -np.inf
# Every parameter is exact in f32, so it does not matter in which precision a caller holds it.
SETTINGS = [
    Settings(), Settings(temperature=1.0), Settings(temperature=0.625), Settings(temperature=1.0, top_k=5),
    Settings(temperature=1.0, top_p=0.75), Settings(temperature=1.5, top_k=20, top_p=0.875, min_p=0.0625),
    Settings(temperature=2.0, min_p=0.125), Settings(temperature=1.0, top_p=2.0**-20),
    Settings(temperature=1.0, repetition=1.25), Settings(temperature=0.0, repetition=1.5, presence=0.5),
    Settings(temperature=1.0, frequency=0.375, presence=0.25, bias={3: 2.5, 7: -4.0}),
    Settings(temperature=1.0, frequency=-0.75, presence=-0.5), Settings(temperature=0.0, bias={11: BAN, 4: BAN}),
    Settings(temperature=1.0, top_k=6, bias={12: BAN, 30: BAN, 39: 3.0}),
    Settings(temperature=0.75, top_k=30, top_p=0.9375, min_p=0.015625, repetition=1.125, frequency=0.1875,
             presence=0.3125, bias={0: 1.5, 5: 2.0, 9: BAN, 30: -1.25}),
]  # fmt: skip
PROMPT, OUTPUT = [3, 9, 9, 21], [5, 9, 5, 30, 5]
POSITIONS = [0, 9, 10, 1_000_000, 2**32 + 3]
SEEDS = [0, 7, 0xDEADBEEF12345678]
# (seed, position, choice): every pair for the only answer to a prompt, some for parallel ones.
DRAWS = [(s, at, 0) for s in SEEDS for at in POSITIONS] + [(7, at, c) for at in (9, 10) for c in (1, 2, 2**32 - 1)]
TOP = 20


def logits_cases() -> dict[str, np.ndarray]:
    plain = gi.normal("sampling", 40) * F32(2)
    tied = plain.copy()
    tied[[4, 11, 12, 30]] = plain.max() + F32(0.5)
    # Zeros of either sign under the repetition penalty, and logits so far apart that exp underflows.
    wide = gi.normal("sampling/wide", 40) * F32(60)
    wide[[9, 21]] = [0.0, -0.0]
    return {"plain": plain, "tied": tied, "wide": wide}


def as_json(s: Settings) -> dict:
    """A ban is null: JSON has no infinities."""
    return vars(s) | {"bias": [[i, None if b == BAN else b] for i, b in sorted(s.bias.items())]}


def render() -> str:
    assert all(philox4x32_10(c, k) == want for c, k, want in PHILOX), "philox differs from its published answers"
    lines = []
    for name, logits in logits_cases().items():
        for s in SETTINGS:
            x = penalised(logits, s, PROMPT, OUTPUT)
            ids, p = candidates(x, s) if s.temperature else ([], np.zeros(0, F32))
            draws = [{"seed": str(seed), "position": str(at), "choice": c,
                      "id": sample(logits, s, seed, at, PROMPT, OUTPUT, c)} for seed, at, c in DRAWS]  # fmt: skip
            lines.append("  " + json.dumps({"logits": name, "settings": as_json(s), "penalised": bits(x), "candidates": ids,
                                            "probabilities": bits(p), "draws": draws}))  # fmt: skip
    head = {
        "numerics_version": 1, "note": gi.NOTE + " Seeds and positions are decimal strings of u64.",
        "prompt": PROMPT, "output": OUTPUT,
        "philox4x32_10": [{"counter": c, "key": k, "words": w} for c, k, w in PHILOX],
        "uniforms": [{"seed": str(s), "position": str(at), "choice": c,
                      "f64_bits": str(int(np.float64(uniform(s, at, c)).view(np.uint64)))} for s, at, c in DRAWS],
        "logits": {n: bits(x) for n, x in logits_cases().items()},
        "logprobs": {n: bits(np.array([logprob(x, i) for i in range(len(x))])) for n, x in logits_cases().items()},
        "likeliest": {n: likeliest(x, TOP) for n, x in logits_cases().items()},
    }  # fmt: skip
    return json.dumps(head, indent=1)[:-2] + ',\n "cases": [\n' + ",\n".join(lines) + "\n ]\n}\n"
