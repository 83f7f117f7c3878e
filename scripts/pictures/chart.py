"""Lines over two axes as an SVG, readable on light and dark pages."""

WIDTH, HEIGHT, LEFT, RIGHT, TOP, BOTTOM = 640, 350, 60, 20, 30, 270
LEGEND = BOTTOM + 66  # a row of its own, below what the axis is called

STYLE = """<style>
  .page { fill: #fff; } text { font: 13px sans-serif; fill: #333; }
  .axis { stroke: #777; } .grid { stroke: #7774; }
  .s0 { stroke: #2a6fb0; } .s1 { stroke: #b0562a; } .s2 { stroke: #3a8a4d; } .s3 { stroke: #7a4fa3; }
  polyline { fill: none; stroke-width: 2.5; }
  @media (prefers-color-scheme: dark) {
    .page { fill: #16191d; } text { fill: #ddd; }
    .s0 { stroke: #7ab8f5; } .s1 { stroke: #f0a27a; } .s2 { stroke: #86d69a; } .s3 { stroke: #c8a5ec; }
  }
</style>"""


def lines(title, series, x_axis, y_axis, x_label):
    """`series` are names with points, each axis its end and the step of its marks."""
    (x_end, x_step), (y_end, y_step) = x_axis, y_axis

    def x(value):
        return LEFT + value / x_end * (WIDTH - LEFT - RIGHT)

    def y(value):
        return BOTTOM - value / y_end * (BOTTOM - TOP)

    parts = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" role="img">',
             f"<title>{title}</title>", STYLE,
             f'<rect class="page" width="{WIDTH}" height="{HEIGHT}"/>', f'<text x="{LEFT}" y="18">{title}</text>']
    for step in range(round(y_end / y_step) + 1):
        mark = step * y_step
        parts.append(f'<line class="grid" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y(mark):.1f}" y2="{y(mark):.1f}"/>')
        parts.append(f'<text x="{LEFT - 8}" y="{y(mark) + 4:.1f}" text-anchor="end">{mark:g}</text>')
    for step in range(round(x_end / x_step) + 1):
        mark = step * x_step
        parts.append(f'<line class="axis" x1="{x(mark):.1f}" x2="{x(mark):.1f}" y1="{BOTTOM}" y2="{BOTTOM + 5}"/>')
        parts.append(f'<text x="{x(mark):.1f}" y="{BOTTOM + 20}" text-anchor="middle">{mark:g}</text>')
    parts.append(f'<line class="axis" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{BOTTOM}" y2="{BOTTOM}"/>')
    parts.append(f'<text x="{WIDTH - RIGHT}" y="{BOTTOM + 40}" text-anchor="end">{x_label}</text>')
    for number, (name, points) in enumerate(series):
        line = " ".join(f"{x(at):.1f},{y(value):.1f}" for at, value in points)
        parts.append(f'<polyline class="s{number}" points="{line}"/>')
        if name:
            at = LEFT + 10 + 140 * number
            parts.append(f'<line class="s{number}" stroke-width="2.5" x1="{at}" x2="{at + 22}" '
                         f'y1="{LEGEND - 4}" y2="{LEGEND - 4}"/>')
            parts.append(f'<text x="{at + 28}" y="{LEGEND}">{name}</text>')
    parts.append("</svg>")
    return "\n".join(parts)
