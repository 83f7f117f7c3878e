#!/usr/bin/env python3
"""Bytes a token reads from the disk, by memory budget, as an SVG.

    scripts/pictures/bytes_per_token.py K3 CONFIG > docs/pictures/bytes-per-token.svg

K3 is the program, CONFIG the released config.json or a directory with it. The
figures are what `k3 plan --json` prints: a prediction, no expert found in memory.
"""

import json
import subprocess
import sys

BUDGETS_GB = [2, 4, 8, 16, 24, 32, 48, 64, 80, 96, 112, 128, 160, 192, 224]
WIDTH, HEIGHT, LEFT, BOTTOM = 640, 320, 60, 270
X_MAX, Y_MAX = 224, 140

STYLE = """<style>
  text { font: 13px sans-serif; fill: #333; }
  .axis { stroke: #777; } .grid { stroke: #7774; } .line { stroke: #2a6fb0; fill: none; stroke-width: 2.5; }
  @media (prefers-color-scheme: dark) { text { fill: #ddd; } .line { stroke: #7ab8f5; } }
</style>"""


def bytes_per_token(k3, config, budget_gb):
    """GB for a token at a budget, from the plan."""
    command = [k3, "plan", "--config", config, "--memory", f"{budget_gb}G",
               "--threads", "8", "--disk-gbps", "3", "--json"]
    plan = json.loads(subprocess.run(command, check=True, capture_output=True).stdout)
    return plan["forecasts"][0]["bytes_per_token"] / 1e9


def x(gigabytes):
    return LEFT + gigabytes / X_MAX * (WIDTH - LEFT - 20)


def y(gigabytes):
    return BOTTOM - gigabytes / Y_MAX * (BOTTOM - 30)


def picture(points):
    title = "GB read for a token, by memory budget in GB (prediction, no expert found)"
    parts = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" '
             f'role="img"><title>{title}</title>', STYLE,
             f'<text x="{LEFT}" y="18">{title}</text>']
    for mark in range(0, Y_MAX + 1, 20):
        parts.append(f'<line class="grid" x1="{LEFT}" x2="{WIDTH - 20}" y1="{y(mark):.1f}" y2="{y(mark):.1f}"/>')
        parts.append(f'<text x="{LEFT - 8}" y="{y(mark) + 4:.1f}" text-anchor="end">{mark}</text>')
    for mark in range(0, X_MAX + 1, 32):
        parts.append(f'<line class="axis" x1="{x(mark):.1f}" x2="{x(mark):.1f}" y1="{BOTTOM}" y2="{BOTTOM + 5}"/>')
        parts.append(f'<text x="{x(mark):.1f}" y="{BOTTOM + 20}" text-anchor="middle">{mark}</text>')
    parts.append(f'<line class="axis" x1="{LEFT}" x2="{WIDTH - 20}" y1="{BOTTOM}" y2="{BOTTOM}"/>')
    line = " ".join(f"{x(at):.1f},{y(read):.1f}" for at, read in points)
    parts.append(f'<polyline class="line" points="{line}"/>')
    parts.append("</svg>")
    return "\n".join(parts)


def main():
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    _, k3, config = sys.argv
    print(picture([(at, bytes_per_token(k3, config, at)) for at in BUDGETS_GB]))


if __name__ == "__main__":
    main()
