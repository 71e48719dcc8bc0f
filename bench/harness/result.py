"""The result of a scenario: for every server the values of every round, and the figures computed from them."""

import dataclasses
import statistics
import typing


class Column(typing.NamedTuple):
    key: str
    label: str
    digits: int = 2
    better: str = "less"  # or "more", or "" for figures that are not compared


@dataclasses.dataclass
class Result:
    id: str
    title: str
    columns: list
    primary: str
    rows: dict = dataclasses.field(default_factory=dict)
    subject: str = "lacquer"
    references: tuple = ()  # names of rows; the default is Varnish, the best peer and the floors

    def add(self, server, values):
        row = self.rows.setdefault(server, {})
        for key, value in values.items():
            row.setdefault(key, []).append(value)

    def as_dict(self, kinds):
        """Returns the form that is stored as JSON, and from which tables, charts and the page are made."""
        rows = {name: {key: figure(values) for key, values in row.items()} for name, row in self.rows.items()}
        return {"id": self.id, "title": self.title, "primary": self.primary, "subject": self.subject,
                "columns": [column._asdict() for column in self.columns], "rows": rows,
                "ratios": ratios(self, rows, kinds)}


def figure(values):
    return {"median": statistics.median(values), "spread_percent": spread(values), "values": values}


def spread(values):
    """Returns half the distance between the largest and the smallest value, in percent of the median."""
    middle = statistics.median(values)
    return (max(values) - min(values)) / 2 / abs(middle) * 100 if middle else 0


def ratios(result, rows, kinds):
    """Returns the subject's figures divided by those of each reference, by label."""
    groups = {name: [name] for name in result.references} or usual_references(rows, kinds, result.subject)
    found = {}
    for label, names in groups.items():
        found[label] = {}
        for column in result.columns:
            own = rows.get(result.subject, {}).get(column.key)
            others = [rows[n][column.key] for n in names if column.key in rows.get(n, {})]
            if column.better and own and others:
                best = (max if column.better == "more" else min)(others, key=lambda other: other["median"])
                if best["median"] > 0:
                    found[label][column.key] = ratio(own, best)
    return {label: by_key for label, by_key in found.items() if by_key}


def ratio(own, other):
    """Returns the median of the ratios of each round: within a round the servers follow each other closely, so a slow
    period of the machine slows all of them."""
    if len(own["values"]) != len(other["values"]) or min(other["values"]) <= 0:
        return own["median"] / other["median"]
    return statistics.median(ours / theirs for ours, theirs in zip(own["values"], other["values"]))


def usual_references(rows, kinds, subject):
    """Returns the references: Varnish; the best of the other caches for each figure; variants, files, floors and the
    origin alone."""
    peers = [n for n in rows if kinds.get(n) == "cache" and n != subject]
    groups = {"varnish": ["varnish"], "best peer": peers if len(peers) > 1 else []}
    groups.update({n: [n] for n in rows if kinds.get(n) in ("variant", "file", "floor", "origin")})
    return groups
