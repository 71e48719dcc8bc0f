"""Results as SVG: bars for the main figure, lines for a distribution of latencies. The same results give the
same bytes. Colors follow the reader's preference for light or dark."""

import html
import math

WIDTH, LEFT, RIGHT, BAR, GAP, TOP = 640, 120, 100, 18, 6, 44
def colours(back, ink, faint, own, peer, floor):
    """Returns rules with literal colors, because not every SVG viewer supports variables."""
    return (f".back{{fill:{back}}}text{{fill:{ink}}}.faint{{fill:{faint}}}.own{{fill:{own}}}.peer{{fill:{peer}}}"
            f".floor{{fill:{floor}}}.line{{fill:none;stroke:{peer}}}.line.own{{stroke:{own}}}"
            f".range{{stroke:{ink}}}.grid{{stroke:{faint}}}")


STYLE = """<style>
text{font:12px system-ui,sans-serif}.title{font-weight:600;font-size:14px}.bold{font-weight:600}
.line{fill:none;stroke-width:1.5}.line.own{stroke-width:2.5}.range{stroke-opacity:.6}.grid{stroke-opacity:.3}
""" + colours("#fff", "#222", "#777", "#b3261e", "#c9a27e", "#b9b6b0") + """
@media (prefers-color-scheme:dark){
""" + colours("#16181c", "#e6e6e6", "#9a9a9a", "#f2695f", "#8f7153", "#5b5e63") + """
}
</style>"""


def frame(height, title, subtitle, parts):
    head = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" role="img">', STYLE,
            f'<rect class="back" width="{WIDTH}" height="{height}"/>',
            f'<text class="title" x="12" y="20">{html.escape(title)}</text>',
            f'<text class="faint" x="12" y="36">{html.escape(subtitle)}</text>']
    return "\n".join([*head, *parts, "</svg>", ""])


def kind_of(name, subject):
    return "own" if name == subject else "floor" if name.startswith(("floor", "origin")) else "peer"


def bars(result, ordered):
    """Returns None if there is nothing to draw."""
    key = result["primary"]
    column = next(c for c in result["columns"] if c["key"] == key)
    rows = [(name, row[key]) for name, row in ordered if key in row]
    most = max((max(figure["values"]) for _, figure in rows), default=0)
    if len(rows) < 2 or most <= 0:
        return None
    scale = (WIDTH - LEFT - RIGHT) / most
    parts = []
    for i, (name, figure) in enumerate(rows):
        y = TOP + i * (BAR + GAP)
        parts += bar(name, figure, y, scale, column["digits"], kind_of(name, result["subject"]))
    subtitle = f"{column['label']}; {column['better']} is better; the line is the range of the rounds"
    return frame(TOP + len(rows) * (BAR + GAP) + 8, result["title"], subtitle, parts)


def bar(name, figure, y, scale, digits, kind):
    length = max(figure["median"] * scale, 1)
    low, high = (LEFT + max(value, 0) * scale for value in (min(figure["values"]), max(figure["values"])))
    bold = ' class="bold"' if kind == "own" else ""
    return [
        f'<text{bold} x="{LEFT - 8}" y="{y + 13}" text-anchor="end">{html.escape(name)}</text>',
        f'<rect class="{kind}" x="{LEFT}" y="{y}" width="{length:.1f}" height="{BAR}" rx="2"/>',
        f'<path class="range" d="M{low:.1f} {y + BAR / 2:g}H{high:.1f}"/>',
        f'<text{bold} x="{max(LEFT + length, high) + 6:.1f}" y="{y + 13}">{figure["median"]:,.{digits}f}</text>',
    ]


def distribution(result, keys, names):
    """Draws latency by percentile, on a logarithmic scale."""
    rows = [(name, [result["rows"][name][k]["median"] for k in keys]) for name in names if name in result["rows"]]
    values = [v for _, line in rows for v in line if v > 0]
    if not values:
        return None
    height, bottom, right = 320, 28, 110
    low, high = math.floor(math.log10(min(values))), math.ceil(math.log10(max(values)))

    def x(i):
        return 50 + i * (WIDTH - 50 - right) / (len(keys) - 1)

    def y(value):
        return height - bottom - (math.log10(max(value, 10 ** low)) - low) / max(high - low, 1) * (height - bottom - TOP - 10)
    parts = [f'<text class="faint" x="{x(i):.0f}" y="{height - 8}" text-anchor="middle">{k}</text>' for i, k in enumerate(keys)]
    for power in range(low, high + 1):
        at = y(10 ** power)
        parts += [f'<path class="grid" d="M50 {at:.1f}H{WIDTH - right}"/>',
                  f'<text class="faint" x="44" y="{at + 4:.1f}" text-anchor="end">{10 ** power:g}</text>']
    labels = spaced([y(line[-1]) + 4 for _, line in rows], 13)
    for (name, line), label_y in zip(rows, labels):
        own, bold = (" own", ' class="bold"') if name == result["subject"] else ("", "")
        points = " ".join(f"{x(i):.1f},{y(v):.1f}" for i, v in enumerate(line))
        parts += [f'<polyline class="line{own}" points="{points}"/>',
                  f'<text{bold} x="{WIDTH - right + 6}" y="{label_y:.1f}">{html.escape(name)}</text>']
    return frame(height, result["title"], "ms by percentile, logarithmic; less is better", parts)


def spaced(positions, distance):
    """Returns the positions, moved down where they would overlap."""
    moved, last = dict(), -math.inf
    for i in sorted(range(len(positions)), key=lambda i: positions[i]):
        last = moved[i] = max(positions[i], last + distance)
    return [moved[i] for i in range(len(positions))]
