"""Medians, spreads and ratios as Markdown, and everything as JSON for the charts."""

import statistics

SPREAD_SHOWN = ("cpu_us", "rps")


def median(values):
    return statistics.median(values)


def spread(values):
    """Half the distance between the largest and the smallest value, in per cent of the median."""
    middle = median(values)
    return (max(values) - min(values)) / 2 / middle * 100 if middle else 0


def cell(values, digits, with_spread):
    text = f"{median(values):,.{digits}f}"
    return f"{text} ±{spread(values):.0f} %" if with_spread and len(values) > 1 else text


def ratios(result, kinds):
    """Per server: the primary figure against Varnish, the best other cache, and the floor."""
    figures = {name: median(row[result.primary]) for name, row in result.rows.items() if result.primary in row}
    caches = {n: v for n, v in figures.items() if kinds[n] == "cache" and n != "lacquer"}
    floors = [v for n, v in figures.items() if kinds[n] == "floor"]
    references = [("varnish", figures.get("varnish")), ("best peer", min(caches.values(), default=None)),
                  ("floor", min(floors, default=None))]
    return [(label, value) for label, value in references if value], figures


def table(result, kinds):
    references, figures = ratios(result, kinds)
    header = ["server"] + [label for _, label, _ in result.columns] + [f"× {label}" for label, _ in references]
    lines = [f"### {result.title}", "", "| " + " | ".join(header) + " |", "|---" + "|---:" * (len(header) - 1) + "|"]
    for name, row in sorted(result.rows.items(), key=lambda item: figures.get(item[0], 0)):
        cells = [cell(row[key], digits, key in SPREAD_SHOWN) if key in row else "" for key, _, digits in result.columns]
        against = [f"{figures[name] / value:.2f}" if name in figures else "" for _, value in references]
        label = f"**{name}**" if name == "lacquer" else name
        lines.append("| " + " | ".join([label] + cells + against) + " |")
    return "\n".join(lines) + "\n"


def as_json(results, about):
    return {
        **about,
        "results": [
            {"title": r.title, "primary": r.primary, "columns": r.columns,
             "rows": {name: {key: {"median": median(v), "spread_percent": spread(v), "values": v}
                             for key, v in row.items()} for name, row in r.rows.items()}}
            for r in results
        ],
    }
