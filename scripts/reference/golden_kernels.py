"""Golden vectors for single kernels, built so that each named wrong order changes some output.

Ordinary numbers hide the order of an f64 sum: the final rounding to f32 swallows the difference. So the inputs here
cancel (pairs of huge terms whose true sum is zero) or sit on the edge between two f32 results. `render` computes the
right outputs and every wrong variant, counts the outputs that differ, and refuses a case whose count is zero.
"""

from __future__ import annotations

import json
from dataclasses import dataclass

import numpy as np

import golden_inputs as gi
from arithmetic import F32


@dataclass
class Case:
    name: str
    kernel: str
    shape: dict[str, int | float | list[int]]
    inputs: dict[str, np.ndarray]
    expected: dict[str, np.ndarray]
    wrong: dict[str, dict[str, np.ndarray]]


def bits(array: np.ndarray) -> list[int]:
    """f32 as u32 patterns; integer arrays as they are. NaN has one pattern: comparisons treat NaN as a class."""
    array = np.asarray(array)
    if array.dtype == np.float32:
        array = np.where(np.isnan(array), F32(np.nan), array).astype(F32).view(np.uint32)
    assert array.dtype != np.float64, "an f64 in a golden vector"
    return array.reshape(-1).tolist()


def differing(right: dict[str, np.ndarray], wrong: dict[str, np.ndarray]) -> int:
    return sum(a != b for name in right for a, b in zip(bits(right[name]), bits(wrong[name]), strict=True))


def render() -> str:
    # Imported here: the case modules use the names above.
    from golden_model import model_cases
    from golden_sums import sum_cases

    lines = []
    with np.errstate(invalid="ignore", over="ignore", under="ignore"):
        for case in [*sum_cases(), *model_cases()]:
            counts = {name: differing(case.expected, out) for name, out in case.wrong.items()}
            silent = [name for name, count in counts.items() if count == 0]
            assert not silent, f"{case.name}: nothing differs for {silent}"
            total = sum(np.asarray(a).size for a in case.expected.values())
            entry = {
                "name": case.name, "kernel": case.kernel, "shape": case.shape,
                "inputs": {k: bits(v) for k, v in case.inputs.items()},
                "expected": {k: bits(v) for k, v in case.expected.items()},
                "outputs": total, "wrong_orders": counts,
            }  # fmt: skip
            lines.append("  " + json.dumps(entry, separators=(",", ":")))
    head = {"numerics_version": 1, "note": gi.NOTE}
    return json.dumps(head)[:-1] + ',\n "cases": [\n' + ",\n".join(lines) + "\n ]\n}\n"
