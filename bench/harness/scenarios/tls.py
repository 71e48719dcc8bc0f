"""TLS towards clients and towards the origin: TLS 1.3, AES-128-GCM, X25519, ECDSA with P-256 for all servers."""

import random
import time

from .. import load, measure
from ..result import Column, Result
from ..servers import ORIGIN_CORE, Field, most_connections
from .common import interleaved, keep_idle, mixed, steadier, throughput

IDLE = 20_000
FIRST = 500  # of them are opened before memory is measured, with all that a server allocates once
PEERS = ("lacquer", "haproxy", "haproxy-nolog", "nginx", "nginx-file")


def hits(id, title, options, size, drive, names=PEERS, **field):
    def warm(port):
        load.wrk(port, f"/{size}/page", 2, 1, scheme="https")
    return [interleaved(throughput(id, f"{title}, TLS"), options, names, drive, warm, sizes=(size,), tls=True, **field)]


def small(options):
    return hits("tls-hit", "hit, 1.4 kB, 64 connections", steadier(options), 1400,
                lambda port: load.wrk(port, "/1400/page", 64, options.seconds, scheme="https"))


def large(options):
    return hits("tls-100k", "hit, 100 kB, 64 connections", options, 100_000,
                lambda port: load.wrk(port, "/100000/page", 64, options.seconds, scheme="https"))


def http2(options):
    return hits("h2-tls", "hit over HTTP/2, 1.4 kB, 64 connections, 32 requests at a time on each", options, 1400,
                lambda port: load.h2load(port, "/1400/page", 64, 32, options.seconds, "https"),
                ("lacquer", "haproxy", "haproxy-nolog", "nginx"), http2=True)


def full(options):
    """A connection with a full handshake for each hit, by a client that has no sessions."""
    return hits("tls-handshake", "hit, 1.4 kB, a full handshake for each", options, 1400,
                lambda port: load.handshakes(port, "/1400/page", int(400 * options.seconds)))


def resumed(options):
    """A connection for each hit, by a client that resumes its sessions."""
    return hits("tls-resume", "hit, 1.4 kB, a resumed session for each", options, 1400,
                lambda port: load.wrk(port, "/1400/page", 16, options.seconds, ("Connection: close",), scheme="https"))


def http3(id, size, title, options):
    """Hits over HTTP/3. Caddy sends files, because it has no cache."""
    result = throughput(id, f"hit over HTTP/3, {title}, 32 connections")
    result.references = ("caddy",)
    with Field(options.chosen(("lacquer", "caddy")), sizes=(size,), tls=True, http3=True) as running:
        def drive(port, seconds=options.seconds):
            return load.http3(port, f"/{size}/page", 32, seconds, running.settings["pem"])
        for server in running.servers.values():
            drive(server.port, 1)
        for _ in range(options.rounds):
            for name, server in mixed(running.servers.items(), random):
                result.add(name, load.measured(server, drive))
    return [result]


def http3_small(options):
    return http3("h3-hit", 1400, "1.4 kB", steadier(options))


def http3_large(options):
    return http3("h3-100k", 100_000, "100 kB", options)


def idle(options):
    """Memory of 20,000 idle connections, each with a full handshake and one response."""
    columns = (Column("each_kb", "kB/connection"), Column("kernel_kb", "kB/connection in the kernel, both ends", 2, ""),
               Column("connections", "connections", 0, ""))
    count = min(IDLE, most_connections())
    result = Result("tls-idle", f"{count:,} idle connections over TLS: memory of each", columns, "each_kb")
    for name in options.chosen(("lacquer", "haproxy", "nginx")):
        for _ in range(min(options.rounds, 3)):
            # Each round has a new server, because freed memory stays with its process.
            with Field((name,), tls=True) as running:
                keep_idle(running)
                server, trust = running.servers[name], ("--trust", running.settings["pem"], "--path", "/1400/page")

                def taken():
                    time.sleep(2)  # the effects of opening them are over
                    return measure.memory(server.pid, "Pss_Anon:"), measure.sockets_memory()
                with load.holding(server.port, 0, 0, "--tls", FIRST, *trust):
                    before = taken()
                    with load.holding(server.port, 0, 0, "--tls", count - FIRST, *trust):
                        each = [(after - b) / (count - FIRST) / 1024 for after, b in zip(taken(), before)]
                        result.add(name, {"each_kb": each[0], "kernel_kb": each[1], "connections": count})
    return [result]


def origin(options):
    """Passes to an origin with TLS, and to the same origin in clear text."""
    results = []
    for id, title, over_tls in (("tls-origin", "pass, 1.4 kB, origin over TLS, kept alive", True),
                                ("tls-origin-clear", "pass, 1.4 kB, the same origin in clear text", False)):
        result = throughput(id, title)
        with Field(()) as running:
            if over_tls:
                running.fetch_over_tls()
            else:
                helper = running.start("nginx-file", "clear-origin", cores=ORIGIN_CORE)
                running.helpers.append(running.servers.pop("clear-origin"))
                running.origin_port = helper.port
            for name in options.chosen(("lacquer", "haproxy", "haproxy-nolog", "nginx")):
                running.start(name)
            for server in running.servers.values():
                load.counted(server.port, 500, 8, "/1400/page", header=COOKIE)
            for _ in range(options.rounds):
                for name, server in mixed(running.servers.items(), random):
                    result.add(name, load.measured(
                        server, lambda port: load.wrk(port, "/1400/page", 64, options.seconds, (COOKIE,))))
        results.append(result)
    return results


COOKIE = "Cookie: visitor=1"
