#!/usr/bin/env python3
"""What the built-in model reads in more and more memory, as an SVG.

    scripts/pictures/memory_ladder.py K3 > docs/pictures/memory-ladder.svg

K3 is the program. The figures are those of `k3 demo ladder --json`, a run each:
bytes of the trunk that a run reads, by the share of it that stays in memory, from
the checkpoint as released and from a packed trunk.
"""

import json
import subprocess
import sys

import chart


def main():
    if len(sys.argv) != 2 or sys.argv[1].startswith("-"):
        sys.exit(__doc__)
    command = [sys.argv[1], "demo", "ladder", "--json", "--quiet"]
    ladder = json.loads(subprocess.run(command, check=True, capture_output=True).stdout)
    if not ladder["same_ids"]:
        sys.exit("the runs did not make the same tokens")

    def points(is_packed):
        rows = [row for row in ladder["rows"] if row["is_packed"] == is_packed]
        return [(row["pinned_percent"], row["trunk_read_bytes"] / 1e6) for row in rows]

    series = [("as released", points(False)), ("packed", points(True))]
    count = len(ladder["rows"][0]["generated_ids"])
    most = max(read for _, all_points in series for _, read in all_points)
    step = 100
    title = f"MB of trunk read for the same {count} tokens of the built-in model"
    end = step * -(-most // step)
    print(chart.lines(title, series, (100, 20), (end, step), "% of the trunk in memory"))


if __name__ == "__main__":
    main()
