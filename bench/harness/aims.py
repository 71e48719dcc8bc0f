"""The costs that Lacquer aims for, relative to its peers, and whether a run of the bench met them."""

import typing

from .result import ratio


class Aim(typing.NamedTuple):
    text: str
    result: str     # id of the result
    figure: str     # key of the column
    against: str    # label of the ratio; none for an absolute figure
    limit: float
    at_least: bool = False


AIMS = (
    Aim("small hit: CPU, of Varnish", "hit-small", "cpu_us", "varnish", 0.40),
    Aim("small hit: CPU, of HAProxy", "hit-small", "cpu_us", "haproxy", 0.85),
    Aim("small hit: CPU, of HAProxy without its log", "hit-small", "cpu_us", "haproxy-nolog", 0.85),
    Aim("100 kB hit: CPU, of Varnish", "hit-100k", "cpu_us", "varnish", 0.60),
    Aim("100 kB hit: CPU, of nginx sending a file", "hit-100k", "cpu_us", "nginx-file", 1.00),
    Aim("pass: CPU, of Varnish", "pass-kept", "cpu_us", "varnish", 0.25),
    Aim("pass: CPU, of HAProxy", "pass-kept", "cpu_us", "haproxy", 1.00),
    Aim("pass: CPU, of HAProxy without its log", "pass-kept", "cpu_us", "haproxy-nolog", 1.00),
    Aim("miss: CPU, of Varnish", "miss-kept", "cpu_us", "varnish", 0.27),
    Aim("small hit over TLS: CPU, of the best peer", "tls-hit", "cpu_us", "best peer", 0.70),
    Aim("100 kB hit over TLS: CPU, of the best peer", "tls-100k", "cpu_us", "best peer", 0.65),
    Aim("HTTP/2 over TLS, 32 requests at a time: CPU, of HAProxy", "h2-tls", "cpu_us", "haproxy", 0.85),
    Aim("small hit over HTTP/3: CPU, of Caddy", "h3-hit", "cpu_us", "caddy", 0.25),
    Aim("100 kB hit over HTTP/3: CPU, of Caddy", "h3-100k", "cpu_us", "caddy", 0.50),
    Aim("full handshake: CPU, of the best peer", "tls-handshake", "cpu_us", "best peer", 0.60),
    Aim("resumed session: CPU, of the best peer", "tls-resume", "cpu_us", "best peer", 0.60),
    Aim("20,000 idle connections over TLS: kB of each", "tls-idle", "each_kb", "", 16.0),
    Aim("small hit, full speed: p99, of the best peer", "hit-small", "p99", "best peer", 1.00),
    Aim("100 kB hit, full speed: p99, of the best peer", "hit-100k", "p99", "best peer", 1.00),
    Aim("pass, full speed: p99, of the best peer", "pass-kept", "p99", "best peer", 1.00),
    Aim("miss, full speed: p99, of the best peer", "miss-kept", "p99", "best peer", 1.00),
    Aim("small hit, same rate: p99, of the best peer", "latency-hit", "p99", "best peer", 1.00),
    Aim("100 kB hit, same rate: p99, of the best peer", "latency-100k", "p99", "best peer", 1.00),
    Aim("pass, same rate: p99, of the best peer", "latency-pass", "p99", "best peer", 1.00),
    Aim("miss, same rate: p99, of the best peer", "latency-miss", "p99", "best peer", 1.00),
    Aim("hits beside idle and slow connections: p99, of hits alone", "burden", "p99", "lacquer alone", 2.00),
    Aim("memory beside the body of a 100-byte object, of Varnish", "memory-100", "overhead", "varnish", 0.45),
    Aim("two reactors: requests/s, of one", "reactors", "rps", "1 reactor", 1.80, at_least=True),
    Aim("two reactors: CPU per request, of one", "reactors", "cpu_us", "1 reactor", 1.10),
    Aim("two reactors: requests/s, of two daemons that share nothing", "reactors", "rps", "2 daemons", 1.00, at_least=True),
    Aim("built-in VCL, CPU µs per hit", "vcl-cost", "builtin_us", "", 0.25),
    Aim("ten headers and five regexes, CPU µs per hit", "vcl-cost", "headers_us", "", 1.50),
    Aim("vcl.load of 5,000 lines, ms", "vcl-load", "5000", "", 60.0),
    Aim("hits on a disk: requests/s, of Traffic Server", "disk-hit", "rps", "trafficserver", 1.50, at_least=True),
    Aim("hits on a disk: CPU, of Traffic Server", "disk-hit", "cpu_us", "trafficserver", 0.55),
    Aim("hits on a disk: bytes/s, of fio", "disk-hit", "mb_s", "fio", 0.90, at_least=True),
    Aim("hits on a disk: p99, of fio", "disk-hit", "p99", "fio", 1.50),
    Aim("filling a disk: bytes/s, of fio writing in sequence", "disk-fill", "mb_s", "fio", 0.80, at_least=True),
    Aim("filling a disk: CPU, of Traffic Server", "disk-fill", "cpu_us", "trafficserver", 0.60),
    Aim("filling a disk: bytes written for each stored", "disk-fill", "written", "", 1.10),
    Aim("hits on a disk beside filling: p99, of hits alone", "disk-beside", "p99", "lacquer alone", 2.00),
    Aim("start after kill -9: the first hit from the disk, ms", "disk-restart", "first", "", 100.0),
    Aim("hits and misses on a disk: replies/s, of Squid with files", "disk-replies", "rps", "squid-aufs", 1.67, at_least=True),
    Aim("two disks: bytes/s, of one", "disk-pair", "mb_s", "1 disk", 1.80, at_least=True),
    Aim("worker killed under load: time without a response, ms", "warm-restart", "gap", "", 300.0),
    Aim("worker killed under load: hits afterwards, %", "warm-restart", "kept", "", 99.0, at_least=True),
    Aim("10,000 backends by name: lookups, % of a core", "names", "lookups", "", 1.0),
    Aim("10,000 backends by name: start, ms", "names", "start", "", 1000.0),
    Aim("10,000 backends by name: a new address after the end of its TTL, ms", "names", "late", "", 1000.0),
    Aim("upgrade under load: errors", "upgrade", "errors", "", 0.0),
    Aim("upgrade under load: refused connections", "upgrade", "refused", "", 0.0),
    Aim("upgrade under load: p99, ms", "upgrade", "p99", "", 50.0),
    Aim("hits with metrics, JSON log and traces: CPU of the worker, of hits without", "watched", "worker_us", "all off", 1.08),
    Aim("hits with metrics, JSON log and traces: CPU of all processes, of hits without", "watched", "cpu_us", "all off", 1.08),
    Aim("1,000 dashboards at 500 requests/s: CPU, % of a core", "watched-rate", "admin", "", 5.0),
    Aim("re2 set of 10,000 patterns: a match, µs", "modules", "re2 match", "", 5.0),
    Aim("jwt: verification of a new token (ES256), µs", "modules", "jwt ES256 new", "", 120.0),
)


def checked(results):
    """Returns (aim, measured) for every aim whose scenario was run."""
    by_id = {result["id"]: result for result in results}
    pairs = ((aim, measured(aim, by_id.get(aim.result))) for aim in AIMS)
    return [(aim, value) for aim, value in pairs if value is not None]


def measured(aim, result):
    if result is None or result["subject"] not in result["rows"]:
        return None
    if aim.against in result["ratios"]:
        return result["ratios"][aim.against].get(aim.figure)
    own = result["rows"][result["subject"]].get(aim.figure)
    if own is None or not aim.against:
        return own and own["median"]
    other = result["rows"].get(aim.against, {}).get(aim.figure)
    return ratio(own, other) if other and other["median"] else None


def is_met(aim, value):
    return value >= aim.limit if aim.at_least else value <= aim.limit


def table(results):
    lines = ["| aim | wanted | measured | |", "|---|---:|---:|---|"]
    for aim, value in checked(results):
        sign = "≥" if aim.at_least else "≤"
        lines.append(f"| {aim.text} | {sign} {aim.limit:.2f} | {value:.2f} | {'met' if is_met(aim, value) else '**missed**'} |")
    return "\n".join(lines) + "\n"
