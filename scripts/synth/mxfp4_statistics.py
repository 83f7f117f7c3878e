#!/usr/bin/env python3
"""Counts a sample of MXFP4 weights: the constants of k3_formats::synth.

    scripts/synth/mxfp4_statistics.py SAMPLE.json

The sample holds "packed" and "scales", each with "data", a flat list of bytes:
16 packed bytes (two E2M1 values each, the low half first) for every scale byte.
Prints SCALE_STATISTICS as it stands in io/formats/src/synth/statistics.rs, and
the same as shares on standard error.
"""

import json
import sys

GROUP_BYTES = 16


def count(packed, scales):
    """Groups and magnitudes by scale byte; and the share of minus signs."""
    if len(packed) != GROUP_BYTES * len(scales):
        sys.exit(f"{len(packed)} packed bytes are not {GROUP_BYTES} for each of {len(scales)} scales")
    table = {}
    minus = 0
    for index, scale in enumerate(scales):
        entry = table.setdefault(scale, [0, [0] * 8])
        entry[0] += 1
        for byte in packed[index * GROUP_BYTES : (index + 1) * GROUP_BYTES]:
            for code in (byte & 15, byte >> 4):
                entry[1][code & 7] += 1
                minus += code >> 3
    return table, minus / (2 * len(packed))


def main():
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    with open(sys.argv[1], encoding="utf-8") as file:
        sample = json.load(file)
    packed, scales = sample["packed"]["data"], sample["scales"]["data"]
    table, minus = count(packed, scales)
    print(f"pub const SCALE_STATISTICS: [ScaleStatistics; {len(table)}] = [")
    for scale in sorted(table):
        groups, magnitudes = table[scale]
        counts = ", ".join(f"{value:_}" for value in magnitudes)
        print("    ScaleStatistics {")
        print(f"        scale: {scale},")
        print(f"        group_count: {groups:_},")
        print(f"        magnitude_counts: [{counts}],")
        print("    },")
    print("];")
    for scale in sorted(table):
        groups, magnitudes = table[scale]
        shares = " ".join(f"{value / sum(magnitudes):.4f}" for value in magnitudes)
        print(f"scale {scale}: {groups / len(scales):.4f} of groups; {shares}", file=sys.stderr)
    print(f"minus signs: {minus:.4f}", file=sys.stderr)


if __name__ == "__main__":
    main()
