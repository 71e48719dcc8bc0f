"""The memory cost of objects, and whether memory stays within the configuration."""

import threading
import time

from .. import load, measure
from ..result import Column, Result
from ..servers import Field
from .common import VCL_SERVERS, token

# Additional memory per object for all that a cache stores beside the body.
ROOM_BESIDE = 2000

LETTING_GO = 10  # seconds


def memory(options):
    return [memory_of(options, size, label) for size, label in ((100, "100 B"), (1000, "1 kB"), (10_000, "10 kB"))]


def memory_of(options, size, label):
    """Runs one server after the other, because a million objects of 10 kB are 10 GB. The cache is filled once; the hits
    are measured in rounds."""
    objects = min(options.objects, measure.available_memory() * 8 // 10 // (size + ROOM_BESIDE))
    steps = [n for n in (1, 10_000, 1_000_000) if n < objects] + [objects]
    columns = [Column("overhead", "bytes per object beside its body", 0), Column("memory_mb", "memory MB", 0)]
    columns += [Column(f"hit_{n}", f"CPU µs per hit, {n:,} object{'s' * (n > 1)}") for n in steps]
    result = Result(f"memory-{size}", f"{objects:,} objects of {label}", columns, "overhead")
    path = f"/{size}/m/"
    for name in options.chosen(VCL_SERVERS):
        with Field((name,), storage_mb=objects * (size + ROOM_BESIDE) // 1_000_000 + 64) as running:
            server, stored = running.servers[name], 0
            # Fills the ring of the log (80 MB) and everything else that grows only once, before the measurement begins.
            load.counted(server.port, 150_000, 32, "/1/same")
            empty = settled_memory(server)
            for n in steps:
                load.counted(server.port, n - stored, 32, path + "{}", first=stored)
                stored = n
                for cost in hits_among(server, options, path, n):
                    result.add(name, {f"hit_{n}": cost})
            full = settled_memory(server)
            result.add(name, {"overhead": (full - empty) / objects - size, "memory_mb": full / 1e6})
    return result


def settled_memory(server):
    """Returns the memory without the ring of the log (80 MB), which lacquerd releases at 10 MB a second."""
    time.sleep(LETTING_GO)
    return measure.memory(server.pid)


def hits_among(server, options, path, count):
    for _ in range(options.rounds):
        yield load.measured(server, lambda port: load.wrk(
            port, "/", 64, 1, script="among.lua", arguments=(path, count)))["cpu_us"]


class MemoryWatch(threading.Thread):
    """Samples a server's memory twice a second and keeps the maximum."""

    def __init__(self, pid):
        super().__init__(daemon=True)
        self.pid, self.most, self.ends = pid, 0, False

    def run(self):
        while not self.ends:
            self.most = max(self.most, measure.memory(self.pid))
            time.sleep(0.5)


def churn(options):
    """Whether memory stays within the configuration: 256 MB of storage, mixed sizes, far more data than fits."""
    configured = 256
    columns = [Column("most_mb", "most memory MB", 0), Column("share", "of the configured, %", 0),
               Column("rps", "requests/s", 0, "more"), Column("errors", "errors", 0, "")]
    result = Result("churn", f"churn for {options.minutes:g} minutes in {configured} MB", columns, "most_mb")
    with Field(options.chosen(VCL_SERVERS), storage_mb=configured) as running:
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
