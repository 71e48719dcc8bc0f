"""Management of a cache under load: startup, loading and switching VCL, bans, a crash."""

import http.client
import os
import signal
import threading
import time

from .. import load, measure, vcls
from ..cli import Cli
from ..result import Column, Result
from ..servers import Field
from .common import CACHES, THROUGHPUT, VCL_SERVERS, mixed, steadier, token


def startup(options):
    """The time from the start of the daemon to the first response of the origin through it."""
    result = Result("startup", "from start to the first response of an origin", [Column("ms", "ms", 0)], "ms")
    names = options.chosen(CACHES)
    with Field(()) as running:
        for i in range(options.rounds):
            for name in names:
                label = f"{name} {i}"
                started = time.perf_counter()
                running.start(name, label)
                load.counted(running.servers[label].port, 1, 1, "/1400/page")
                result.add(name, {"ms": (time.perf_counter() - started) * 1000})
                running.servers.pop(label).stop()
    return [result]


# ---------------------------------------------------------------- VCL


def vcl_load(options):
    sizes = {"smallest": 0, "500": 500, "3000": 3000, "5000": 5000}
    columns = [Column("smallest", "smallest, ms", 1), *(Column(f"{n}", f"{n:,} lines, ms", 1) for n in (500, 3000, 5000))]
    result = Result("vcl-load", "vcl.load", columns, "smallest")
    with Field(options.chosen(VCL_SERVERS)) as running:
        clients = {name: Cli.of(setup) for name, setup in running.setups.items()}
        for i in range(options.rounds):
            for name, cli in clients.items():
                values = {}
                for label, lines in sizes.items():
                    started = time.perf_counter()
                    cli.ok(inline(f"bench_{label}_{i}", vcls.of_lines(lines)))
                    values[label] = (time.perf_counter() - started) * 1000
                result.add(name, values)
    return [result]


def inline(name, text):
    return f"vcl.inline {name} << %%EOF\n{text}\n%%EOF"


def vcl_cost(options):
    """Hits of 1.4 kB under several kinds of VCL, and the cost that each adds. The same daemon runs them in turn."""
    columns = [Column("minimal", "none of the built-in, CPU µs/hit"), Column("builtin", "built-in only, CPU µs/hit"),
               Column("builtin_us", "built-in VCL, µs"), Column("headers_us", "ten headers, five regexes, µs"),
               Column("shop_us", "a shop's VCL, µs")]
    result = Result("vcl-cost", "cost of VCL per hit", columns, "headers_us")
    with Field(options.chosen(VCL_SERVERS)) as running:
        clients = {name: Cli.of(setup) for name, setup in running.setups.items()}
        for cli in clients.values():
            for kind in vcls.KINDS:
                cli.ok(inline(kind, vcls.text(kind, running.origin_port)))
        for _ in range(steadier(options).rounds):
            for name, server in mixed(running.servers.items()):
                result.add(name, added(hits_under_each(clients[name], server, options.seconds)))
    return [result]


def hits_under_each(cli, server, seconds):
    costs = {}
    for kind in mixed(vcls.KINDS):
        cli.ok(f"vcl.use {kind}")
        load.counted(server.port, 500, 64, "/1400/page")
        costs[kind] = load.measured(server, lambda port: load.wrk(port, "/1400/page", 64, seconds))["cpu_us"]
    return costs


def added(costs):
    """Returns the cost that each VCL adds to the VCL that it extends."""
    base = costs["builtin"]
    return {"minimal": costs["minimal"], "builtin": base, "builtin_us": base - costs["minimal"],
            "headers_us": costs["headers"] - base, "shop_us": costs["shop"] - base}


# ---------------------------------------------------------------- bans


def bans(options):
    """Hits while bans are tested against 100,000 objects, compared with hits without bans."""
    objects, path = min(options.objects, 100_000), "/100/b/"
    columns = [*THROUGHPUT[:5], Column("ban_ms", "ms per ban command", 3)]
    results = []
    with Field(options.chosen(VCL_SERVERS)) as running:
        clients = {name: Cli.of(setup) for name, setup in running.setups.items()}
        for server in running.servers.values():
            load.counted(server.port, objects, 32, path + "{}")
        for id, title, count in (("bans-none", f"hits on {objects:,} objects, no bans", 0),
                                 ("bans", f"hits on {objects:,} objects, 1,000 new bans each round", 1000)):
            result = Result(id, title, columns, "cpu_us")
            for _ in range(options.rounds):
                for name, server in mixed(running.servers.items()):
                    spent = time_of_bans(clients[name], count)
                    values = load.measured(server, lambda port: load.wrk(
                        port, "/", 64, options.seconds, script="among.lua", arguments=(path, objects)))
                    result.add(name, {**values, **({"ban_ms": spent * 1000 / count} if count else {})})
            results.append(result)
    return results


def time_of_bans(cli, count):
    started = time.perf_counter()
    for i in range(count):
        cli.ok(f"ban obj.http.x-tag == none{i}{token()}")
    return time.perf_counter() - started


# ---------------------------------------------------------------- restart


class Probe(threading.Thread):
    """Sends a request every two milliseconds on a new connection and records when responses came and when not."""

    def __init__(self, port):
        super().__init__(daemon=True)
        self.port, self.answers, self.failures, self.ends = port, [], 0, False

    def run(self):
        while not self.ends:
            try:
                connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=5)
                connection.request("GET", "/1400/page")
                connection.getresponse().read()
                connection.close()
                self.answers.append(time.monotonic())
            except (OSError, http.client.HTTPException):
                self.failures += 1
            time.sleep(0.002)

    def longest_gap(self):
        return max((b - a for a, b in zip(self.answers, self.answers[1:])), default=float("nan"))


def restart(options):
    """kill -9 of the worker under load: the time without responses, and the part of the cache that survives."""
    columns = [Column("gap", "ms without an answer", 0), Column("failures", "new connections refused or broken", 0),
               Column("errors", "requests lost of the load", 0), Column("kept", "% hits after", 0, "more")]
    result = Result("restart", "the worker is killed under load", columns, "gap")
    with Field(options.chosen(VCL_SERVERS)) as running:
        for _ in range(options.rounds):
            for name, server in running.servers.items():
                result.add(name, killed_under_load(server))
    return [result]


def warm_restart(options):
    """As restart, with many objects in memory: how many of them the next worker serves, and when."""
    objects = 100_000 if options.objects > 100_000 else 5000
    columns = [Column("gap", "ms without an answer", 0), Column("failures", "new connections refused or broken", 0),
               Column("errors", "requests lost of the load", 0), Column("kept", "% hits after", 1, "more")]
    result = Result("warm-restart", f"the worker is killed under load with {objects:,} objects in memory", columns, "gap")
    for _ in range(options.rounds):
        # A worker that dies twice within a minute leaves its successor an empty memory, so that each round has new servers.
        with Field(options.chosen(VCL_SERVERS), storage_mb=512) as running:
            for name, server in running.servers.items():
                result.add(name, killed_under_load(server, objects))
    return [result]


def killed_under_load(server, objects=1000):
    word, outcome = token(), {}
    load.counted(server.port, objects, 8, f"/1400/{word}/{{}}")
    probe = Probe(server.port)
    others = threading.Thread(target=lambda: outcome.update(load.wrk(server.port, "/1400/page", 16, 3)))
    probe.start()
    others.start()
    time.sleep(0.7)
    for pid in measure.workers(server.pid):
        os.kill(pid, signal.SIGKILL)
    others.join()
    probe.ends = True
    probe.join()
    return {"gap": probe.longest_gap() * 1000, "failures": probe.failures, "errors": outcome["errors"],
            "kept": hits(server.port, word, objects)}


def hits(port, word, objects, count=100):
    """Returns the percentage of previously stored objects that are still served from the cache."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=5)
    count, found = max(count, objects // 200), 0
    for i in range(0, objects, objects // count):
        connection.request("GET", f"/1400/{word}/{i}", headers={"Host": "bench"})  # the cache key of lacquer-bench load
        answer = connection.getresponse()
        answer.read()
        found += len(answer.getheader("X-Varnish", "").split()) == 2
    connection.close()
    return found * 100 / len(range(0, objects, objects // count))
