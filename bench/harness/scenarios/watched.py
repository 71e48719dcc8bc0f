"""Hits while a daemon is watched: metrics scraped each second, an access log in JSON, traces of 1 % of the requests, and
dashboards."""

import contextlib
import http.server
import pathlib
import selectors
import socket
import threading
import time
import urllib.request

from .. import load, measure
from ..result import Column, Result
from ..servers import SERVERS, Field, free_port
from .common import mixed

OFF, ON = "all off", "all on"
METRICS, LOG, TRACES = "metrics", "JSON log", "traces"
WAYS = {OFF: (), METRICS: (METRICS,), LOG: (LOG,), TRACES: (TRACES,), ON: (METRICS, LOG, TRACES)}
SECONDS = 3  # of a drive, at least: several scrapes
CATCH_UP = 0.5  # seconds after a drive in which the readers of the log read its end
SCRAPE = 1  # seconds between two scrapes
RATE = 500  # requests per second beside dashboards
MOST = 1000  # dashboards
NOBODY, SCRAPED, ONE, MANY = "nobody", "metrics scraped each second", "one dashboard", f"{MOST:,} dashboards"
# The parts of a daemon, and the names of their processes.
PARTS = {"worker": "cache-main", "admin": "lacquer-admin", "log": "lacquer"}


class Collector(http.server.BaseHTTPRequestHandler):
    """Takes all spans."""
    protocol_version = "HTTP/1.1"

    def do_POST(self):
        self.rfile.read(int(self.headers["Content-Length"]))
        self.send_response(200)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *_):
        pass


def options_of(ways, port, collector):
    """Returns the options of `lacquer run` that turn these ways on."""
    words = {METRICS: ("--web", f"127.0.0.1:{port}"), LOG: ("--log", "json"),
             TRACES: ("--otlp", f"http://127.0.0.1:{collector},interval=0")}
    return [word for way in ways for word in words[way]]


def parts_of(server):
    """Returns the processes of a daemon by the part that they belong to."""
    found = {part: [] for part in PARTS}
    for pid in measure.family(server.pid):
        with contextlib.suppress(OSError):
            name = pathlib.Path(f"/proc/{pid}/comm").read_text().strip()
            for part, process in PARTS.items():
                if name == process:
                    found[part].append(pid)
    return found


def authorization(folder):
    return f"Bearer {(folder / '_.token').read_text().strip()}"


@contextlib.contextmanager
def scraped(port, folder):
    """Scrapes all metrics each second meanwhile."""
    is_over = threading.Event()
    request = urllib.request.Request(f"http://127.0.0.1:{port}/metrics", headers={"Authorization": authorization(folder)})

    def scrape():
        while True:
            with urllib.request.urlopen(request, timeout=10) as response:
                response.read()
            if is_over.wait(SCRAPE):
                return
    thread = threading.Thread(target=scrape)
    thread.start()
    time.sleep(2 * SCRAPE)  # the log is read from the first scrape on
    try:
        yield
    finally:
        is_over.set()
        thread.join()


@contextlib.contextmanager
def opened(port, folder, count):
    """Has this number of dashboards open meanwhile: their streams of events are read."""
    is_over, streams = threading.Event(), selectors.DefaultSelector()
    head = f"GET /api/v1/events HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nAuthorization: {authorization(folder)}\r\n\r\n"

    def read():
        while not is_over.is_set():
            for key, _ in streams.select(timeout=0.1):
                if not key.fileobj.recv(1 << 16):
                    streams.unregister(key.fileobj)
    for _ in range(count):
        stream = socket.create_connection(("127.0.0.1", port))
        stream.sendall(head.encode())
        streams.register(stream, selectors.EVENT_READ)
    thread = threading.Thread(target=read)
    thread.start()
    time.sleep(2)  # the first events are longer
    try:
        if len(streams.get_map()) < count:
            raise RuntimeError("the streams of events have ended")
        yield
    finally:
        is_over.set()
        thread.join()
        for key in list(streams.get_map().values()):
            key.fileobj.close()


def without_line(folder):
    """Returns how many requests have no line in the access log."""
    try:
        _, dropped, missed, _ = map(int, (folder / "_.access_log").read_text().split())
    except OSError:
        return 0
    return dropped + missed


def watched(options):
    """Hits with each way of watching, and with all of them: the CPU of the worker, of the process for metrics and traces,
    and of the one that writes the access log."""
    columns = [Column("worker_us", "worker, CPU µs/hit"), Column("admin_us", "metrics and traces, CPU µs/hit"),
               Column("log_us", "access log, CPU µs/hit"), Column("cpu_us", "all, CPU µs/hit"),
               Column("rps", "requests/s", 0, "more"), Column("lost", "% without a line", 2, ""), Column("errors", "errors", 0, "")]
    result = Result("watched", "hit, 1.4 kB, 64 connections, while it is watched", columns, "worker_us", subject=ON, references=(OFF,))
    if not SERVERS["lacquer-run"].installed():
        return [result]
    collector = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Collector)
    threading.Thread(target=collector.serve_forever, daemon=True).start()
    ports = {name: free_port() for name in WAYS}
    with Field(()) as running:
        daemons = {name: running.start("lacquer-run", name, options=options_of(ways, ports[name], collector.server_port))
                   for name, ways in WAYS.items()}
        for server in daemons.values():
            load.counted(server.port, 500, 2, "/1400/page")
        for _ in range(options.rounds):
            for name, server in mixed(daemons.items()):
                folder = running.setups[name].dir / "name"
                watching = scraped(ports[name], folder) if METRICS in WAYS[name] else contextlib.nullcontext()
                with watching:
                    result.add(name, driven(server, folder, max(options.seconds, SECONDS)))
    collector.shutdown()
    return [result, dashboards(options)]


def dashboards(options):
    """The CPU of the process for metrics beside a constant rate of hits."""
    columns = [Column("admin", "metrics and dashboards, % of a core", 2), Column("worker", "worker, % of a core", 2)]
    result = Result("watched-rate", f"hit, 1.4 kB, {RATE} requests/s, while it is watched", columns, "admin", subject=MANY, references=(NOBODY,))
    ways = {NOBODY: lambda *_: contextlib.nullcontext(), SCRAPED: scraped,
            ONE: lambda *at: opened(*at, 1), MANY: lambda *at: opened(*at, MOST)}
    ports = {name: free_port() for name in ways}
    with Field(()) as running:
        daemons = {name: running.start("lacquer-run", name, options=options_of((METRICS,), ports[name], 0)) for name in ways}
        for _ in range(options.rounds):
            for name, server in mixed(daemons.items()):
                parts = parts_of(server)
                with ways[name](ports[name], running.setups[name].dir / "name"):
                    before, began = {part: measure.CpuSample(*pids) for part, pids in parts.items()}, time.monotonic()
                    load.counted(server.port, RATE * max(options.seconds, SECONDS), 8, "/1400/page", rate=RATE)
                    seconds = time.monotonic() - began
                    result.add(name, {part: measure.CpuSample(*parts[part]).since(before[part]) * 100 / seconds
                                      for part in ("admin", "worker")})
    return result


def driven(server, folder, seconds):
    """Drives a server, and returns the cost of each of its parts."""
    parts = parts_of(server)
    lost, before = without_line(folder), {part: measure.CpuSample(*pids) for part, pids in parts.items()}
    outcome = load.wrk(server.port, "/1400/page", 64, seconds)
    time.sleep(CATCH_UP)
    requests = max(outcome["requests"], 1)
    spent = {part: measure.CpuSample(*pids).since(before[part]) * 1e6 / requests for part, pids in parts.items()}
    return {**{f"{part}_us": cost for part, cost in spent.items()}, "cpu_us": sum(spent.values()),
            "rps": outcome["requests"] / outcome["seconds"], "lost": (without_line(folder) - lost) * 100 / requests,
            "errors": outcome["errors"]}
