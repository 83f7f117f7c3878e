#!/usr/bin/env python3
"""How often experts are found in memory, by the number that have a slot, as an SVG.

    scripts/pictures/hit_rate.py K3 > docs/pictures/hit-rate.svg

K3 is the program. It writes a trace of the built-in model's experts and replays it
against caches of several sizes, with each policy and with one that knows the future.
"""

import json
import subprocess
import sys
import tempfile
from pathlib import Path

import chart

TOKENS = 400
SLOTS = [8, 16, 24, 32, 48, 64, 80, 96, 112, 128]
POLICIES = ["deep-layers", "lru", "decayed-frequency", "belady"]
PICKS = 4  # of each position and layer


def run(*command):
    return subprocess.run(command, check=True, capture_output=True).stdout


def main():
    if len(sys.argv) != 2 or sys.argv[1].startswith("-"):
        sys.exit(__doc__)
    k3 = sys.argv[1]
    with tempfile.TemporaryDirectory() as scratch:
        trace = str(Path(scratch) / "trace")
        run(k3, "--gen", str(TOKENS), "--ignore-eos", "--quiet", "--dump-trace", trace)
        series = []
        for policy in POLICIES:
            slots = ",".join(map(str, SLOTS))
            told = run(k3, "replay", trace, "--topk", str(PICKS), "--policy", policy, "--slots", slots, "--json")
            rows = json.loads(told)["rows"]
            series.append((policy, [(row["slot_count"], row["decode"]["hit_percent"]) for row in rows]))
    title = f"% of experts found in memory, {TOKENS} tokens of the built-in model"
    print(chart.lines(title, series, (128, 16), (100, 20), "experts with a slot, of 128"))


if __name__ == "__main__":
    main()
