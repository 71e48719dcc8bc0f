"""Modules: the cost of their calls, by tests of a release build that print it."""

import collections
import statistics
import subprocess

from .. import servers
from ..result import Column, Result

TESTS = ("cargo", "test", "--quiet", "--release", "-p", "lacquer-vmods", "--lib", "figures", "--", "--ignored", "--nocapture",
         "--test-threads=1")


def modules(options):
    """Matches of a set of 10,000 patterns, and the verification of tokens."""
    columns = [Column("re2 match", "re2, set of 10,000 patterns: a match, µs"), Column("re2 miss", "no match, µs"),
               Column("jwt ES256 new", "jwt, ES256: a token, µs"), Column("jwt ES256 known", "the same token again, µs"),
               Column("jwt EdDSA new", "EdDSA, µs"), Column("jwt RS256 new", "RS256, µs")]
    result = Result("modules", "calls of modules", columns, "re2 match")
    for _ in range(options.rounds):
        done = subprocess.run(TESTS, cwd=servers.ROOT, check=True, capture_output=True, text=True)
        found = collections.defaultdict(list)
        for line in done.stdout.splitlines():
            # A test's name may precede its first line.
            _, is_figure, rest = line.partition("figure\t")
            if is_figure:
                name, nanoseconds = rest.split("\t")
                found[name].append(int(nanoseconds) / 1000)
        result.add("lacquer", {column.key: statistics.mean(found[column.key]) for column in columns})
    return [result]
