#!/usr/bin/env python3
"""Constants and tables of `k3_kernels::math`.

    python3 scripts/math/constants.py > runtime/kernels/src/math/tables.rs
    python3 scripts/math/constants.py --check runtime/kernels/src/math/tables.rs
    python3 scripts/math/constants.py --expect exp|tanh < input-bits

The first form prints the Rust source, the second fails when the committed file
differs from it. The third reads one f32 bit pattern (hexadecimal) per line and
prints "input, correctly rounded result"; it made the lists of hard cases in
`tests/math_hard_cases`. Everything is computed with 120 decimal digits from the
standard library's `decimal`, so nothing here shares code with the Rust side.
"""

import struct
import sys
from decimal import Decimal, getcontext
from fractions import Fraction

getcontext().prec = 120

EXP_STEPS = 32  # exp works in steps of ln2/32
LN_BITS = 7  # ln64 selects by the top 7 bits of the mantissa
LN_OFFSET = 0x3FE6_0000_0000_0000  # mantissas are reduced to [0.6875, 1.375)
LN_RECIPROCAL_UNIT = 512  # reciprocals are multiples of 1/512


def bits64(value):
    return struct.unpack("<Q", struct.pack("<d", value))[0]


def from_bits64(bits):
    return struct.unpack("<d", struct.pack("<Q", bits))[0]


def exact(value):
    """The Decimal or Fraction `value` as a Fraction."""
    return Fraction(value)


def round_to_unit(value, unit):
    """The multiple of the power of two `unit` nearest to `value`, as a Fraction."""
    return round(exact(value) / unit) * unit


def nearest64(value):
    """The f64 nearest to `value`: Python's int/int division rounds correctly."""
    value = exact(value)
    return value.numerator / value.denominator


def literal(value):
    return f"bits(0x{bits64(value):016x})"


def constant(name, value, why):
    return [f"/// {why}", f"pub(crate) const {name}: f64 = {literal(value)}; // {value!r}"]


def split(value, unit):
    """`value` as head + tail: head a multiple of `unit`, tail the nearest f64 of the rest."""
    head = round_to_unit(value, unit)
    return nearest64(head), nearest64(exact(value) - head)


def exp_lines():
    ln2 = Decimal(2).ln()
    step_head, step_tail = split(ln2 / EXP_STEPS, Fraction(1, 2**43))
    lines = constant("EXP_INVERSE_STEP", nearest64(EXP_STEPS / ln2), "32/ln2.")
    lines += constant(
        "EXP_STEP_HEAD",
        step_head,
        "ln2/32 to a multiple of 2^-43: 38 bits, so its product with |k| < 2^15 is exact.",
    )
    lines += constant("EXP_STEP_TAIL", step_tail, "ln2/32 minus `EXP_STEP_HEAD`.")
    factorial = 1
    for n in range(2, 8):
        factorial *= n
        lines += constant(f"EXP_C{n}", nearest64(Fraction(1, factorial)), f"1/{n}!.")
    lines += [
        "/// 2^(j/32) as head (nearest f64) and tail (the rest).",
        f"pub(crate) static EXP_TABLE: [[f64; 2]; {EXP_STEPS}] = [",
    ]
    for j in range(EXP_STEPS):
        value = (ln2 * j / EXP_STEPS).exp()
        head = nearest64(value)
        tail = nearest64(exact(value) - exact(head)) if j else 0.0
        lines.append(f"    [{literal(head)}, {literal(tail)}],")
    return lines + ["];"]


def ln_lines():
    head, tail = split(Decimal(2).ln(), Fraction(1, 2**42))
    lines = constant("LN2_HEAD", head, "ln2 to a multiple of 2^-42.")
    lines += constant("LN2_TAIL", tail, "ln2 minus `LN2_HEAD`.")
    for n in range(3, 10):
        sign = "" if n % 2 else "minus "
        lines += constant(f"LN_C{n}", nearest64(Fraction((-1) ** (n + 1), n)), f"{sign}1/{n}.")
    lines += [
        "/// Per mantissa interval: a short reciprocal c (a multiple of 1/512) of its centre,",
        "/// then -ln(c) as a multiple of 2^-42 and the rest.",
        f"pub(crate) static LN_TABLE: [[f64; 3]; {1 << LN_BITS}] = [",
    ]
    width = 1 << (52 - LN_BITS)
    worst = Fraction(0)
    for i in range(1 << LN_BITS):
        ends = [exact(from_bits64(LN_OFFSET + n * width)) for n in (i, i + 1)]
        # An interval that starts in one binade ends at the first number of the next at most.
        inverse = 2 / (ends[0] + ends[1])
        # Both intervals that touch 1 take c = 1, so that ln64 is exact in r near 1.
        if 1 in ends:
            c = Fraction(1)
        else:
            c = Fraction(round(inverse * LN_RECIPROCAL_UNIT), LN_RECIPROCAL_UNIT)
        worst = max(worst, *(abs(end * c - 1) for end in ends))
        value = -(Decimal(c.numerator) / Decimal(c.denominator)).ln()
        head, tail = split(value, Fraction(1, 2**42)) if c != 1 else (0.0, 0.0)
        lines.append(f"    [{literal(nearest64(c))}, {literal(head)}, {literal(tail)}],")
    assert worst <= Fraction(1, 128), worst
    return lines + ["];"]


def rust_source():
    lines = [
        "//! Constants and tables of this module, printed by `scripts/math/constants.py`; do not",
        "//! edit by hand. Bit patterns, because they are what the proofs in `docs/math.md` speak of.",
        "",
        "const fn bits(pattern: u64) -> f64 {",
        "    f64::from_bits(pattern)",
        "}",
        "",
    ]
    return "\n".join(lines + exp_lines() + [""] + ln_lines()) + "\n"


def nearest32_bits(value):
    """The bits of the f32 nearest to the positive `value` (ties to even), by exact rationals."""
    value = exact(value)
    low, high = 0, 0x7F80_0000

    def number(bits):
        # One step past the largest finite f32 stands for infinity's rounding boundary.
        exponent, mantissa = bits >> 23, bits & 0x7F_FFFF
        if exponent == 0:
            return Fraction(mantissa, 2**149)
        return Fraction(mantissa + 2**23) * Fraction(2) ** (exponent - 150)

    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if number(middle) <= value else (low, middle)
    below, above = value - number(low), number(high) - value
    if below == above:
        return low if low % 2 == 0 else high
    return low if below < above else high


def expected_lines(function, source):
    for line in source:
        if not line.strip():
            continue
        bits = int(line, 16)
        x = struct.unpack("<f", struct.pack("<I", bits))[0]
        if function == "exp":
            result = nearest32_bits(Decimal(x).exp())
        else:
            e = (Decimal(abs(x)) * 2).exp()
            result = nearest32_bits((e - 1) / (e + 1)) | (bits & 0x8000_0000)
        yield f"    (0x{bits:08x}, 0x{result:08x}),"


def main(arguments):
    match arguments:
        case []:
            sys.stdout.write(rust_source())
        case ["--check", path]:
            with open(path, encoding="utf-8") as file:
                if file.read() != rust_source():
                    sys.exit(f"{path} differs from what scripts/math/constants.py prints")
        case ["--expect", ("exp" | "tanh") as function]:
            for line in expected_lines(function, sys.stdin):
                print(line)
        case _:
            sys.exit(__doc__)


if __name__ == "__main__":
    main(sys.argv[1:])
