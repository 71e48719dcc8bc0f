"""Results as Markdown, from their JSON form."""


def table(result):
    columns = result["columns"]
    header = ["server"] + [c["label"] for c in columns]
    lines = ["| " + " | ".join(header) + " |", "|---" + "|---:" * len(columns) + "|"]
    for name, row in ordered(result):
        label = f"**{name}**" if name == result["subject"] else name
        lines.append("| " + " | ".join([label] + [cell(row.get(c["key"]), c) for c in columns]) + " |")
    for label, by_key in result["ratios"].items():
        cells = [f"*{by_key[c['key']]:.2f}*" if c["key"] in by_key else "" for c in columns]
        lines.append("| " + " | ".join([f"*{result['subject']} ÷ {label}*"] + cells) + " |")
    return "\n".join(lines) + "\n"


def ordered(result):
    """Returns the rows, best first."""
    key = result["primary"]
    most = next(c["better"] for c in result["columns"] if c["key"] == key) == "more"
    return sorted(result["rows"].items(), key=lambda item: item[1].get(key, {"median": 0})["median"], reverse=most)


def cell(figure, column):
    if figure is None:
        return ""
    text = f"{figure['median']:,.{column['digits']}f}"
    repeated = column["better"] and len(figure["values"]) > 1
    return f"{text} ±{figure['spread_percent']:.0f} %" if repeated else text


def titled(result):
    return f"### {result['title']}\n\n{table(result)}"
