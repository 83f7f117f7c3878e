#!/usr/bin/env python3
"""Bytes a token reads from the disk, by memory budget, as an SVG.

    scripts/pictures/bytes_per_token.py K3 CONFIG > docs/pictures/bytes-per-token.svg

K3 is the program, CONFIG the released config.json or a directory with it. The
figures are what `k3 plan --json` prints: a prediction, no expert found in memory.
"""

import json
import subprocess
import sys

import chart

BUDGETS_GB = [2, 4, 8, 16, 24, 32, 48, 64, 80, 96, 112, 128, 160, 192, 224]


def bytes_per_token(k3, config, budget_gb):
    """GB for a token at a budget, from the plan."""
    command = [k3, "plan", "--config", config, "--memory", f"{budget_gb}G",
               "--threads", "8", "--disk-gbps", "3", "--json"]
    plan = json.loads(subprocess.run(command, check=True, capture_output=True).stdout)
    return plan["forecasts"][0]["bytes_per_token"] / 1e9


def main():
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    _, k3, config = sys.argv
    points = [(at, bytes_per_token(k3, config, at)) for at in BUDGETS_GB]
    title = "GB read for a token of Kimi K3 (prediction, no expert found in memory)"
    print(chart.lines(title, [("", points)], (224, 32), (140, 20), "memory budget, GB"))


if __name__ == "__main__":
    main()
