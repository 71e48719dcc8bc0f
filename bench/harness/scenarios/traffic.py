"""Requests of all kinds: hits by size and by connections, passes, misses, mixes."""

import dataclasses
import itertools
import time

from .. import load, measure
from ..result import Column, Result
from ..servers import CORES, LOAD_CORE, SERVER_CORE, Field, most_connections
from .common import (CACHES, FLOORS, PACED, THROUGHPUT, TRANSACTIONS, interleaved, keep_idle, mixed, steadier, throughput, token)

# ---------------------------------------------------------------- hits


LARGE = 10_000  # from this size on, copying saturates wrk's core before the servers' core


def hit(id, title, options, size, connections=64, headers=(), names=CACHES + ("nginx-file",) + FLOORS, **field):
    seconds = max(options.seconds, connections // 2500)  # wrk takes a while to open them

    def drive(port):
        if size >= LARGE:
            return load.timed(port, f"/{size}/page", connections, seconds)
        return load.wrk(port, f"/{size}/page", connections, seconds, headers)

    def warm(port):
        return load.counted(port, 500, 2, f"/{size}/page")
    return interleaved(throughput(id, title), options, names, drive, warm, sizes=(size,), **field)


def hit_sizes(id, size, label, rounds=lambda options: options):
    names = CACHES + ("haproxy-nolog", "nginx-file") + FLOORS
    return lambda options: [hit(id, f"hit, {label}, 64 connections", rounds(options), size, names=names)]


def http2(options):
    """Hits over HTTP/2 without TLS, with one request at a time on each connection and with many."""
    def drive(streams):
        return lambda port: load.h2load(port, "/1400/page", 64, streams, options.seconds)

    def warm(port):
        load.h2load(port, "/1400/page", 2, 1, 1)
    return [interleaved(throughput(f"http2-{streams}", f"hit over HTTP/2, 1.4 kB, 64 connections, {label}"), options,
                        ("lacquer", "varnish", "haproxy", "haproxy-nolog", "nginx"), drive(streams), warm, http2=True)
            for streams, label in ((1, "one request at a time on each"), (32, "32 requests at a time on each"))]


def connections(options):
    """Hits by the number of connections (hit-small has 64), then with a new connection for each request."""
    names = CACHES + FLOORS
    counts = (1, 1000, min(10_000, most_connections() - 100))
    results = [hit(f"connections-{n}", f"hit, 1.4 kB, {n:,} connection{'s' * (n > 1)}", options, 1400, n, names=names)
               for n in counts]
    closing = hit("connections-new", "hit, 1.4 kB, 64 connections, a new one for each request", options, 1400, 64,
                  ("Connection: close",), names, floor_options=("--close",))
    return results + [closing]


# ---------------------------------------------------------------- pass and miss

PRIVATE = "Cookie: visitor=1"


def passing(id, title, options, *origin):
    def drive(port):
        return load.wrk(port, "/1400/page", 64, options.seconds, (PRIVATE,))

    def warm(port):
        return load.counted(port, 500, 8, "/1400/page", header=PRIVATE)
    names = CACHES + ("haproxy-nolog", "floor-forward")
    return interleaved(throughput(id, title), options, names, drive, warm,
                       origin_options=("--cache-control", "private", *origin))


def missing(id, title, options, *origin):
    def drive(port):
        return load.wrk(port, "/", 64, options.seconds, script="unique.lua", arguments=(f"/100/{token()}",))

    def warm(port):
        return load.counted(port, 500, 8, f"/100/{token()}/{{}}")
    names = CACHES + ("haproxy-nolog", "floor-forward")
    return interleaved(throughput(id, title), options, names, drive, warm, origin_options=origin, storage_mb=1024)


def passes(options):
    return [passing("pass-kept", "pass, 1.4 kB, origin kept alive", steadier(options)),
            passing("pass-closed", "pass, 1.4 kB, origin closes each time", options, "--close")]


def misses(options):
    return [missing("miss-kept", "miss, 100 B, origin kept alive", steadier(options)),
            missing("miss-closed", "miss, 100 B, origin closes each time", options, "--close")]


# ---------------------------------------------------------------- latency at a rate

RATE = 8000  # of the small hits, passes and misses
# A pause of the machine affects only the slice it falls into, not the median.
SLICES, SLICE = 8, 0.2  # slices per round, and the length of one as a part of a drive


def latency(options):
    """Latency of the same requests at the same moments for all servers, at a rate that each can sustain without being
    saturated."""
    options = dataclasses.replace(options, rounds=options.rounds * SLICES, seconds=options.seconds * SLICE)
    hits, forwards = CACHES + ("nginx-file",) + FLOORS, CACHES + ("haproxy-nolog", "floor-forward")
    with load.awake():
        return [paced("latency-hit", "hit, 1.4 kB", RATE, options, hits),
                paced("latency-100k", "hit, 100 kB", RATE // 2, options, hits, 100_000),
                paced("latency-pass", "pass, 1.4 kB", RATE, options, forwards, header=PRIVATE,
                      origin_options=("--cache-control", "private")),
                paced("latency-miss", "miss, 100 B", RATE, options, forwards, 100, unique=True, storage_mb=1024)]


def paced(id, title, rate, options, names, size=1400, header="", unique=False, **field):
    def requests(port, count, rate=0):
        page = f"{token()}/{{}}" if unique else "page"
        return load.counted(port, count, 64, f"/{size}/{page}", header=header, rate=rate)
    result = Result(id, f"{title}, {rate:,} requests/s", list(PACED), "p99")
    return interleaved(result, options, names, lambda port: requests(port, int(rate * options.seconds), rate),
                       lambda port: requests(port, 500), load.first_in_line, sizes=(size,), **field)


# ---------------------------------------------------------------- mixes


def dynamic(options):
    """Pages that cost the origin 3 ms of CPU each: 300 a second without a cache."""
    def drive(port):
        return load.wrk(port, "/8000/page", 64, options.seconds)

    def warm(port):
        return load.counted(port, 500, 2, "/8000/page", header="X-Warm: 1")
    result = throughput("dynamic", "pages of 8 kB that cost the origin 3 ms of CPU", primary="rps")
    return [interleaved(result, options, CACHES + ("origin",), drive, warm, origin_options=("--cpu-ms", "3"))]


def news(options):
    """The pages of a news site on election night; each costs the origin 1 ms of CPU."""
    def drive_with(word):
        return lambda port: load.wrk(port, "/", 64, options.seconds, script="news.lua", arguments=(word or token(),))

    def every_page(port):
        for path in ("/60000/news", "/80000/election", "/60000/election/news", "/40000/election/trend",
                     "/50000/election/candidates", "/60000/politics", "/60000/entertainment"):
            load.counted(port, 2, 1, f"{path}/{word}", header="X-Warm: 1")
        for _ in range(2):  # data that a cache writes late is in memory after the second pass
            load.counted(port, 20_000, 64, f"/30000/article/{word}/{{}}", first=1, header="X-Warm: 1")
    word, names = token(), CACHES + ("origin",)
    field = dict(origin_options=("--cpu-ms", "1"), storage_mb=1024)
    cold = throughput("news-cold", "news mix, from a cold start", TRANSACTIONS, "rps")
    steady = throughput("news-steady", "news mix, steady state", TRANSACTIONS, "rps")
    return [interleaved(cold, options, names, drive_with(None), lambda port: None, **field),
            interleaved(steady, options, names, drive_with(word), every_page, **field)]


def image(options):
    """10,000 requests for one picture at concurrency 100, the whole distribution."""
    shares = ("p1", "p10", "p50", "p75", "p90", "p99", "p99.9", "max")
    columns = (THROUGHPUT[0], THROUGHPUT[1], *(Column(p, f"{p} ms") for p in shares), THROUGHPUT[-1])
    result = throughput("image", "one image of 43 kB, 10,000 requests, 100 connections", columns)
    return [interleaved(result, options, CACHES + ("nginx-file",) + FLOORS,
                        lambda port: load.counted(port, 10_000, 100, "/43000/page"),
                        lambda port: load.counted(port, 500, 2, "/43000/page"), sizes=(43_000,))]


# ---------------------------------------------------------------- cores


def reactors(options):
    """One core and two, with 64 connections for each: a daemon with one reactor, one with two, and two daemons with
    one each, which share nothing, so that they show what the machine has to give. The load has two cores of its own;
    with less than four there are none, and each core that has a reactor has as much of the load beside it."""
    first, second = SERVER_CORE, CORES[3] if len(CORES) >= 4 else LOAD_CORE
    loads = (LOAD_CORE, CORES[2]) if len(CORES) >= 4 else (first, second)
    setups = {"1 reactor": ([first], loads[:1]), "2 reactors": ([f"{first},{second}"], loads),
              "2 daemons": ([first, second], loads)}
    columns = [c for c in THROUGHPUT if c.key != "fetched"] + [Column("reactors", "reactors", 0, "")]
    result = Result("reactors", "hit, 1.4 kB, one and two reactors, 64 connections for each", columns, "cpu_us",
                    subject="2 reactors", references=("1 reactor", "2 daemons"))
    if not options.chosen(("lacquer",)):
        return [result]
    with Field(()) as running:
        daemons = {name: [running.start("lacquer", f"{name} {n}", cores=core) for n, core in enumerate(cores)]
                   for name, (cores, _) in setups.items()}
        for server in itertools.chain(*daemons.values()):
            load.counted(server.port, 500, 64, "/1400/page")
        for _ in range(steadier(options).rounds):
            for name, servers in mixed(daemons.items()):
                turns = zip(itertools.cycle([server.port for server in servers]), setups[name][1])
                values = load.measured_together(servers, lambda: load.at_once(
                    lambda port, core: load.wrk(port, "/1400/page", 64, options.seconds, core=core), turns))
                result.add(name, {**values, "reactors": sum(measure.threads(s.pid, "reactor-") for s in servers)})
    return [result]


# ---------------------------------------------------------------- burdens


def burden(options):
    """Hits at a rate, alternately alone and beside 10,000 idle connections and 1,000 that send or read a byte a second."""
    idle = min(10_000, most_connections() - 1200)
    result = Result("burden", f"hit, 1.4 kB, {RATE:,} requests/s, alone, and beside {idle:,} idle and 1,000 slow connections",
                    list(PACED), "p99", references=("lacquer alone",))

    def drive(name, server):
        with load.first_in_line(running.processes_of(server)):
            result.add(name, load.measured(server, lambda port: load.counted(
                port, RATE * options.seconds, 64, "/1400/page", rate=RATE)))
    with Field(options.chosen(CACHES)) as running, load.awake():
        keep_idle(running)
        for server in running.servers.values():
            load.counted(server.port, 500, 2, "/1400/page")
        for _ in range(options.rounds):
            for name, server in mixed(running.servers.items()):
                drive(f"{name} alone", server)
                with load.holding(server.port, idle, 1000):
                    time.sleep(1)  # the effects of opening them are over
                    drive(name, server)
                time.sleep(1)  # the effects of closing them are over
    return [result]
