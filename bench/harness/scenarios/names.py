"""Backends by name: 10,000 of them, whose addresses expire every minute."""

import http.client
import socket
import struct
import threading
import time

from .. import load, measure
from ..result import Column, Result
from ..servers import Field
from .common import mixed, steadier

NAMES = 10_000
TTL = 60
MOVED = b"moved"
NOBODY, ORIGIN = bytes((127, 0, 0, 9)), bytes((127, 0, 0, 1))
IPV4, SOA = 1, 6
# Absent records stay absent for 15 minutes. The names of the server and its administrator are the root.
AUTHORITY = struct.pack(">3HIH2B5I", 0xC00C, SOA, 1, 900, 22, 0, 0, 1, 3600, 600, 86400, 900)


class NameServer(threading.Thread):
    """Answers each query for an IPv4 address with that of the origin, and other queries with no records and the SOA record
    that such an answer must have (RFC 2308)."""

    def __init__(self):
        super().__init__(daemon=True)
        self.socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self.socket.bind(("127.0.0.1", 0))
        self.address = "%s:%d" % self.socket.getsockname()
        self.moved_to, self.expires = NOBODY, 0

    def run(self):
        while True:
            query, client = self.socket.recvfrom(1500)
            end = 12
            while query[end]:
                end += 1 + query[end]
            name, is_ipv4 = query[13:13 + query[12]].lower(), query[end + 2] == IPV4
            question = query[12:end + 5]
            self.socket.sendto(query[:2] + struct.pack(">5H", 0x8180, 1, is_ipv4, not is_ipv4, 0) + question
                               + (self.record(name) if is_ipv4 else AUTHORITY), client)

    def record(self, name):
        address = ORIGIN
        if name == MOVED:
            address, self.expires = self.moved_to, time.monotonic() + TTL
        return struct.pack(">3HIH", 0xC00C, IPV4, 1, TTL, 4) + address


def vcl(port):
    """Returns VCL with all backends. The path selects the last one, the one that moves, or an address."""
    backend = 'backend %s {{ .host = "%s"; .port = "{port}"; }}\n'
    names = "".join(backend % (f"b{i}", f"host{i}.example") for i in range(NAMES))
    return (names + backend % ("moved", "moved.example")).format(port=port) + f"""
sub vcl_recv {{
    if (req.url ~ "/named$") {{ set req.backend_hint = b{NAMES - 1}; }}
    if (req.url ~ "/moved$") {{ set req.backend_hint = moved; }}
    return (pass);
}}
"""


def names(options):
    """The start with many names, the cost of their lookups and of a request, and the time until a new address is used."""
    columns = [Column("start", "ms from the start to a response of the last name", 0),
               Column("lookups", "% of a core for all lookups", 2), Column("address_us", "pass by address, CPU µs"),
               Column("named_us", "pass by name, CPU µs"), Column("late", "ms from the end of the TTL to the new address", 0)]
    result = Result("names", f"{NAMES:,} backends by name, TTL {TTL} s", columns, "lookups")
    server = NameServer()
    server.start()
    for _ in range(max(1, options.rounds // 3)):
        server.moved_to = NOBODY
        with Field(()) as running:
            running.settings["vcl"] = vcl(running.origin_port)
            started = time.perf_counter()
            lacquer = running.start("lacquer", options=(
                "-p", f"dns_servers={server.address}", "-p", "vcc_feature=-err_unref"))
            until_good(lacquer.port, "/1400/named")
            values = {"start": (time.perf_counter() - started) * 1000, **costs(lacquer, options)}
            server.moved_to = ORIGIN
            expires = server.expires
            until_good(lacquer.port, "/1400/moved")
            # The last lookup before the change told when its answer expires.
            result.add("lacquer", {**values, "late": (time.monotonic() - expires) * 1000})
    return [result]


def costs(server, options):
    """Returns the cost of lookups while no requests arrive, and then that of a pass."""
    before, begun = measure.CpuSample(server.pid), time.monotonic()
    time.sleep(TTL)
    busy = measure.CpuSample(server.pid).since(before) / (time.monotonic() - begun)
    passes = {"address_us": [], "named_us": []}
    for _ in range(steadier(options).rounds):
        for figure, path in mixed((("address_us", "/1400/page"), ("named_us", "/1400/named"))):
            spent = load.measured(server, lambda port: load.wrk(port, path, 64, options.seconds))["cpu_us"]
            passes[figure].append(spent)
    return {"lookups": busy * 100, **{figure: sorted(costs)[len(costs) // 2] for figure, costs in passes.items()}}


def until_good(port, path):
    """Waits until the origin's response arrives."""
    deadline = time.monotonic() + 3 * TTL
    while time.monotonic() < deadline:
        try:
            connection = http.client.HTTPConnection("127.0.0.1", port, timeout=5)
            connection.request("GET", path)
            if connection.getresponse().status == 200:
                return
        except OSError:
            pass
        finally:
            connection.close()
        time.sleep(0.005)
    raise RuntimeError(f"{path} is not served")
