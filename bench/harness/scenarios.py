"""The scenarios, each a published comparison or a cost that users pay. A scenario returns a Result:
for every server the values of every round, which the report turns into medians and ratios."""

import contextlib
import dataclasses
import os
import random
import signal
import threading
import time

from . import load, measure
from .cli import Cli
from .servers import SERVERS, STORAGE, Field, most_connections

CACHES = ("lacquer", "varnish", "haproxy", "nginx", "squid")
VCL_SERVERS = ("lacquer", "varnish")

THROUGHPUT = [("rps", "requests/s", 0), ("cpu_us", "CPU µs/request", 2), ("p50", "p50 ms", 2), ("p99", "p99 ms", 2),
              ("max", "max ms", 1), ("memory_mb", "memory MB", 0), ("errors", "errors", 0)]


@dataclasses.dataclass
class Result:
    title: str
    columns: list
    primary: str
    rows: dict = dataclasses.field(default_factory=dict)

    def add(self, server, values):
        row = self.rows.setdefault(server, {})
        for key, value in values.items():
            row.setdefault(key, []).append(value)


@dataclasses.dataclass
class Options:
    rounds: int
    seconds: int
    servers: list
    objects: int
    minutes: float

    def chosen(self, names):
        return [n for n in names if (not self.servers or n in self.servers) and SERVERS[n].installed()]


def token():
    """Makes the URLs of this run differ from those of any other."""
    return f"{random.getrandbits(40):x}"


def interleaved(title, options, names, drive, warm=None, **field):
    """All servers run side by side; each round drives every one of them once."""
    result = Result(title, THROUGHPUT, "cpu_us")
    with Field(options.chosen(names), **field) as running:
        for server in running.servers.values():
            (warm or drive)(server.port)
        for _ in range(options.rounds):
            for name, server in running.servers.items():
                result.add(name, load.measured(server, drive))
    return result


# ---------------------------------------------------------------- hits


def hit(title, options, size, connections=64, headers=(), names=CACHES + ("nginx-file", "floor", "floor-sendfile")):
    seconds = max(options.seconds, connections // 1000)  # opening them takes wrk a while

    def drive(port):
        return load.wrk(port, f"/{size}/page", connections, seconds, headers)

    def warm(port):
        return load.wrk(port, f"/{size}/page", 2, 1)
    return interleaved(title, options, names, drive, warm, sizes=(size,))


def hit_sizes(size, label):
    return lambda options: [hit(f"hit, {label}, 64 connections", options, size)]


def hit_connections(options):
    counts = (1, 64, 1000, min(10_000, most_connections() - 100))
    results = [hit(f"hit, 1.4 kB, {n:,} connections", options, 1400, n, names=CACHES + ("floor",)) for n in counts]
    closing = hit("hit, 1.4 kB, 64 connections, a new one for each request", options, 1400, 64, ("Connection: close",),
                  names=CACHES)
    return results + [closing]


# ---------------------------------------------------------------- pass and miss


def passing(title, options, *origin):
    def drive(port):
        return load.wrk(port, "/1400/page", 64, options.seconds, ("Cookie: visitor=1",))
    return interleaved(title, options, CACHES, drive, origin_options=("--cache-control", "private", *origin))


def missing(title, options, *origin):
    def drive(port):
        return load.wrk(port, "/", 64, options.seconds, script="unique.lua", arguments=(f"/100/{token()}",))
    return interleaved(title, options, CACHES, drive, origin_options=origin)


def scenario_pass(options):
    return [passing("pass, 1.4 kB, origin kept alive", options),
            passing("pass, 1.4 kB, origin closes each time", options, "--close")]


def scenario_miss(options):
    return [missing("miss, 100 B, origin kept alive", options),
            missing("miss, 100 B, origin closes each time", options, "--close")]


# ---------------------------------------------------------------- mixes


def dynamic(options):
    """Pages that cost the origin 3 ms of CPU each: 300 a second without a cache."""
    def drive(port):
        return load.wrk(port, "/8000/page", 64, options.seconds)
    return [interleaved("dynamic pages of 3 ms, 8 kB", options, CACHES, drive, origin_options=("--cpu-ms", "3"))]


def news(options):
    def drive_with(word):
        return lambda port: load.wrk(port, "/", 64, options.seconds, script="news.lua", arguments=(word or token(),))
    cold = interleaved("news mix, cold", options, CACHES, drive_with(None), warm=lambda port: None,
                       origin_options=("--cpu-ms", "1"))
    word = token()

    def every_article(port):
        load.wrk(port, "/", 64, 1, script="news.lua", arguments=(word,))
        load.counted(port, 20_000, 64, f"/30000/article/{word}/{{}}", first=1)
    steady = interleaved("news mix, steady", options, CACHES, drive_with(word), every_article, origin_options=("--cpu-ms", "1"))
    return [cold, steady]


def image(options):
    """10,000 requests for one picture at concurrency 100, the whole distribution."""
    columns = [(p, f"{p} ms", 2) for p in ("p1", "p10", "p50", "p75", "p90", "p99", "p99.9", "max")]
    result = interleaved("one image of 43 kB, 10,000 requests, 100 connections", options, CACHES + ("nginx-file",),
                         lambda port: load.counted(port, 10_000, 100, "/43000/page"), sizes=(43_000,))
    return [dataclasses.replace(result, columns=[("cpu_us", "CPU µs/request", 2)] + columns)]


# ---------------------------------------------------------------- memory


def memory(options):
    return [memory_of(options, 100, options.objects), memory_of(options, 1000, options.objects),
            memory_of(options, 10_000, options.objects // 10)]


def memory_of(options, size, objects):
    columns = [("overhead", "bytes per object beside its body", 0), ("memory_mb", "memory MB", 0),
               ("hit_1", "CPU µs, hit on the same", 2), ("hit_all", "CPU µs, hit on any", 2)]
    result = Result(f"memory, {objects:,} objects of {size} B", columns, "overhead")
    storage = f"malloc,{objects * (size + 2000) // 1_000_000 + 64}M"
    path = f"/{size}/m/"
    with Field(options.chosen(VCL_SERVERS), storage=storage) as running:
        for name, server in running.servers.items():
            # Fills the log's ring (80 MB) and whatever else grows only once, before anything is counted.
            load.counted(server.port, 150_000, 32, "/1/same")
            empty = measure.memory(server.pid)
            load.counted(server.port, objects, 32, path + "{}")
            time.sleep(1)  # what is freed late is freed
            full = measure.memory(server.pid)
            one = load.measured(server, lambda port: load.wrk(port, path + "0", 64, options.seconds))
            among = load.measured(server, lambda port: load.wrk(
                port, "/", 64, options.seconds, script="among.lua", arguments=(path, objects)))
            result.add(name, {"overhead": (full - empty) / objects - size, "memory_mb": full / 1e6,
                              "hit_1": one["cpu_us"], "hit_all": among["cpu_us"]})
    return result


class MemoryWatch(threading.Thread):
    """Looks at a server's memory twice a second and keeps the most it saw."""

    def __init__(self, pid):
        super().__init__(daemon=True)
        self.pid, self.most, self.ends = pid, 0, False

    def run(self):
        while not self.ends:
            self.most = max(self.most, measure.memory(self.pid))
            time.sleep(0.5)


def churn(options):
    """Is memory what was configured? 256 MB of storage, mixed sizes, far more data than fits."""
    configured = 256
    columns = [("most_mb", "most memory MB", 0), ("share", "of the configured, %", 0), ("rps", "requests/s", 0),
               ("errors", "errors", 0)]
    result = Result(f"churn for {options.minutes} minutes in {configured} MB", columns, "most_mb")
    with Field(options.chosen(VCL_SERVERS), storage=f"malloc,{configured}M") as running:
        for name, server in running.servers.items():
            watch = MemoryWatch(server.pid)
            watch.start()
            outcome = load.wrk(server.port, "/", 64, round(options.minutes * 60), script="churn.lua",
                               arguments=(token(), 100_000))
            watch.ends = True
            watch.join()
            result.add(name, {"most_mb": watch.most / 1e6, "share": watch.most / configured / 10_485.76,
                              "rps": outcome["requests"] / outcome["seconds"], "errors": outcome["errors"]})
    return [result]


# ---------------------------------------------------------------- burdens


def burden(options):
    """Hits beside 10,000 idle connections and 1,000 that send or read a byte a second."""
    idle = min(10_000, most_connections() - 1200)
    results = []
    for title, held in (("hits alone", None), (f"hits beside {idle:,} idle and 1,000 slow connections", (idle, 1000))):
        result = Result(title, THROUGHPUT, "p99")
        with Field(options.chosen(CACHES)) as running:
            for name, server in running.servers.items():
                load.wrk(server.port, "/1400/page", 2, 1)
                with load.holding(server.port, *held) if held else contextlib.nullcontext():
                    for _ in range(options.rounds):
                        result.add(name, load.measured(server, lambda port: load.wrk(
                            port, "/1400/page", 16, options.seconds)))
        results.append(result)
    return results


# ---------------------------------------------------------------- management


def startup(options):
    """From starting the daemon to the first answer of the origin through it."""
    result = Result("start to first answer", [("ms", "ms", 0)], "ms")
    names = options.chosen(CACHES)
    with Field([]) as running:
        for i in range(options.rounds):
            for name in names:
                started = time.perf_counter()
                running.start(name, running.origin.port, (1400,), STORAGE, label=f"{name}-{i}")
                load.counted(running.servers[name].port, 1, 1, "/1400/page")
                result.add(name, {"ms": (time.perf_counter() - started) * 1000})
                running.servers.pop(name).stop()
    return [result]


def vcl_of(lines):
    """A VCL of about so many lines, of the kind sites have: a subroutine for each site with its rules."""
    sites = range((lines + 29) // 30)
    subs = "".join(
        f"sub site{i} {{\n" + "".join(
            f'    if (req.url ~ "^/section{i}/{rule}/") {{\n        set req.http.x-section = "s{i}r{rule}";\n    }}\n'
            for rule in range(8)) + "}\n" for i in sites)
    calls = "".join(f'    if (req.http.host == "site{i}.example") {{\n        call site{i};\n    }}\n' for i in sites)
    return ('vcl 4.1;\nbackend default { .host = "127.0.0.1"; .port = "1"; }\n'
            f"{subs}sub vcl_recv {{\n{calls}}}\n")


def vcl_load(options):
    columns = [("smallest", "smallest, ms", 1), ("500", "500 lines, ms", 1), ("3000", "3,000 lines, ms", 1)]
    result = Result("vcl.load", columns, "smallest")
    with Field(options.chosen(VCL_SERVERS)) as running:
        for name, setup in running.setups.items():
            cli = Cli(setup.cli_port, setup.dir / "secret")
            for i in range(options.rounds):
                values = {}
                for label, lines in (("smallest", 0), ("500", 500), ("3000", 3000)):
                    started = time.perf_counter()
                    cli.ok(f"vcl.inline bench_{label}_{i} << %%EOF\n{vcl_of(lines)}\n%%EOF")
                    values[label] = (time.perf_counter() - started) * 1000
                result.add(name, values)
            cli.close()
    return [result]


def bans(options):
    """Hits while 1,000 bans wait to be tested against 100,000 objects, beside hits without."""
    objects, path = min(options.objects, 100_000), "/100/b/"
    columns = THROUGHPUT[:4] + [("ban_ms", "ms per ban command", 2)]
    results = []
    with Field(options.chosen(VCL_SERVERS)) as running:
        for title, count in (("hits on 100,000 objects, no bans", 0), ("hits on 100,000 objects, 1,000 bans", 1000)):
            result = Result(title, columns, "cpu_us")
            for name, server in running.servers.items():
                load.counted(server.port, objects, 32, path + "{}")
                cli = Cli(running.setups[name].cli_port, running.setups[name].dir / "secret")
                for _ in range(options.rounds):
                    started = time.perf_counter()
                    for i in range(count):
                        cli.ok(f"ban obj.http.x-tag == none{i}{token()}")
                    spent = time.perf_counter() - started
                    values = load.measured(server, lambda port: load.wrk(
                        port, "/", 64, options.seconds, script="among.lua", arguments=(path, objects)))
                    result.add(name, {**values, "ban_ms": spent * 1000 / max(count, 1)})
                cli.close()
            results.append(result)
    return results


# ---------------------------------------------------------------- restart


class Probe(threading.Thread):
    """Asks every two milliseconds on a new connection and notes when answers came and when not."""

    def __init__(self, port):
        super().__init__(daemon=True)
        self.port, self.answers, self.failures, self.ends = port, [], 0, False

    def run(self):
        import http.client
        while not self.ends:
            try:
                connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=5)
                connection.request("GET", "/1400/page")
                connection.getresponse().read()
                connection.close()
                self.answers.append(time.monotonic())
            except OSError:
                self.failures += 1
            time.sleep(0.002)

    def longest_gap(self):
        return max((b - a for a, b in zip(self.answers, self.answers[1:])), default=float("nan"))


def restart(options):
    """kill -9 of the worker under load: how long nobody is answered, and what of the cache is left."""
    columns = [("gap", "ms without an answer", 0), ("failures", "refused or broken", 0), ("kept", "% hits after", 0)]
    result = Result("the worker is killed under load", columns, "gap")
    with Field(options.chosen(VCL_SERVERS)) as running:
        for _ in range(options.rounds):
            for name, server in running.servers.items():
                word = token()
                load.counted(server.port, 1000, 8, f"/1400/{word}/{{}}")
                probe = Probe(server.port)
                probe.start()
                time.sleep(0.5)
                for pid in measure.workers(server.pid):
                    os.kill(pid, signal.SIGKILL)
                time.sleep(3)
                probe.ends = True
                probe.join()
                result.add(name, {"gap": probe.longest_gap() * 1000, "failures": probe.failures,
                                  "kept": hits(server.port, word)})
    return [result]


def hits(port, word, count=100):
    """Per cent of objects stored before that are still answered from the cache."""
    import http.client
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=5)
    found = 0
    for i in range(count):
        connection.request("GET", f"/1400/{word}/{i}")
        answer = connection.getresponse()
        answer.read()
        found += len(answer.getheader("X-Varnish", "").split()) == 2
    return found * 100 / count


SCENARIOS = {
    "hit-small": hit_sizes(1400, "1.4 kB"),
    "hit-16k": hit_sizes(16_000, "16 kB"),
    "hit-100k": hit_sizes(100_000, "100 kB"),
    "hit-1m": hit_sizes(1_000_000, "1 MB"),
    "connections": hit_connections,
    "pass": scenario_pass,
    "miss": scenario_miss,
    "dynamic": dynamic,
    "news": news,
    "image": image,
    "memory": memory,
    "churn": churn,
    "burden": burden,
    "startup": startup,
    "vcl-load": vcl_load,
    "bans": bans,
    "restart": restart,
}
