"""The training run of a profile-guided build: all operations that cost CPU at a busy site, roughly in proportion to
their share. Code that never runs here is optimized for size, so every path that must be fast has to occur."""

import contextlib
import http.client
import http.server
import random
import threading
import time

from . import load, vcls
from .cli import Cli
from .scenarios.common import token
from .scenarios.management import inline
from .servers import DISK, Field

PAGES_VCL = """
sub vcl_recv {
    if (req.url ~ "^/banned") { ban("obj.http.x-page == " + req.http.x-page); }
}
sub vcl_backend_response {
    if (bereq.url ~ "^/page") { set beresp.do_esi = true; set beresp.do_gzip = true; set beresp.ttl = 1m; }
    if (bereq.url ~ "^/plain") { set beresp.do_gzip = true; set beresp.do_stream = false; }
    if (bereq.url ~ "^/brief") { set beresp.ttl = 1ms; set beresp.grace = 1m; set beresp.keep = 1m; }
    if (bereq.url ~ "^/personal") { set beresp.uncacheable = true; }
}
"""


WORDS = [stem + ending for stem in ("market", "river", "elect", "print", "sail", "cloud", "stone")
         for ending in ("", "s", "ing", "ed", "er", "ion", "able", "less")]


def page(path):
    """Returns text that resembles HTML, always the same for the same path."""
    chosen = random.Random(path)
    paragraphs = (f"<p class='c{i % 7}'>{' '.join(chosen.choices(WORDS, k=60))}</p>\n" for i in range(40))
    includes = "".join(f"<esi:include src='/part/{i}'/>\n" for i in range(4)) if path.startswith("/page") else ""
    return f"<html>{includes}{''.join(paragraphs)}<!-- end --></html>".encode()


class Pages(http.server.BaseHTTPRequestHandler):
    """An origin of pages with validators and variants."""

    protocol_version = "HTTP/1.1"
    wbufsize = -1

    def do_GET(self):
        if self.headers.get("If-None-Match"):
            return self.answer(304, b"")
        self.answer(200, page(self.path))

    def do_POST(self):
        if self.headers.get("Transfer-Encoding"):
            while size := int(self.rfile.readline(), 16):
                self.rfile.read(size + 2)
            self.rfile.readline()
        else:
            self.rfile.read(int(self.headers.get("Content-Length", 0)))
        self.answer(200, b"thanks")

    def answer(self, status, body):
        self.send_response(status)
        for name, value in (("Cache-Control", "max-age=60"), ("ETag", f'"{len(body)}"'), ("Vary", "Accept-Language"),
                            ("Content-Type", "text/html"), ("X-Page", self.path),
                            ("Content-Length", str(len(body)))):
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


@contextlib.contextmanager
def pages():
    """Starts an origin of pages and yields its port."""
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Pages)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield server.server_address[1]
    finally:
        server.shutdown()


def ask(port, method, path, body=None, **headers):
    """Sends one request over a new connection."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
    connection.request(method, path, body, {name.replace("_", "-"): value for name, value in headers.items()})
    answer = connection.getresponse()
    answer.read()
    connection.close()
    return answer


def traffic_by_size(port):
    for count, size in ((50_000, 100), (400_000, 1400), (50_000, 16_000), (20_000, 100_000), (300, 1_000_000)):
        load.counted(port, count, 64, f"/{size}/page")


def misses_and_passes(port):
    load.counted(port, 100_000, 64, f"/100/{token()}/{{}}")
    load.counted(port, 5_000, 64, f"/30000/{token()}/{{}}")
    load.counted(port, 150_000, 64, "/1400/page", header="Cookie: visitor=1")


def hits_under_sites_vcl(cli, port, origin):
    for kind in ("headers", "shop"):
        cli.ok(inline(kind, vcls.text(kind, origin)))
        cli.ok(f"vcl.use {kind}")
        load.counted(port, 50_000, 64, "/1400/page?utm_source=news")


def a_site_of_pages(cli, port, origin):
    cli.ok(inline("pages", vcls.HEAD.format(port=origin) + PAGES_VCL))
    cli.ok("vcl.use pages")
    for i in range(400):
        page = f"/page/{i % 40}"
        ask(port, "GET", page, Accept_Encoding="gzip", Accept_Language=("en", "de")[i % 2])
        ask(port, "GET", page)
        ask(port, "GET", f"/plain/{i}", Range="bytes=100-2000")
        ask(port, "GET", f"/plain/{i}", If_None_Match='"0"', Accept_Encoding="gzip")
        ask(port, "HEAD", f"/brief/{i % 5}", X_Forwarded_For="192.0.2.1")
        ask(port, "GET", f"/brief/{i % 5}")
        ask(port, "GET", f"/personal/{i}", Cookie="a=b; c=d", Connection="close")
        ask(port, "POST", "/form", b"x" * 5000)
        ask(port, "POST", "/form", iter([b"y" * 3000] * 3))
        ask(port, "GET", f"/banned/{i % 9}", X_Page=f"/plain/{i % 50}")


def management(cli):
    for i, lines in enumerate((0, 500, 3000) * 3):
        cli.ok(inline(f"loaded{i}", vcls.of_lines(lines)))
        cli.ok(f"vcl.discard loaded{i}")
    for i in range(200):
        cli.ok(f"ban req.url ~ ^/no/{i}/ && obj.http.x-page != {i}")
    for command in ("param.show", "backend.list", "ban.list", "vcl.list", "panic.show", "status"):
        cli.command(command)


def hits_over_tls(port, pem):
    """Hits over kept, resumed and new connections, over HTTP/2 and over HTTP/3."""
    load.wrk(port, "/1400/page", 64, 4, scheme="https")
    load.wrk(port, "/100000/page", 16, 1, scheme="https")
    load.wrk(port, "/1400/page", 16, 2, ("Connection: close",), scheme="https")
    load.handshakes(port, "/1400/page", 600)
    load.h2load(port, "/1400/page", 64, 32, 3, "https")
    load.http3(port, "/1400/page", 32, 3, pem)
    load.http3(port, "/100000/page", 16, 1, pem)


def misses_and_hits_on_a_disk(port):
    path, objects = f"/mixed/{token()}/{{}}", 3000
    load.counted(port, objects, 64, path)
    time.sleep(3)  # what is in memory alone is written
    load.scattered(port, path, 64, 3, objects, 1)


@contextlib.contextmanager
def trained(**field):
    """Starts the daemon, and yields it with its origin, its port and its management port. The worker writes the profile when it ends, to a file
    that its jail would not let it create."""
    with Field((), **field) as running:
        running.start("lacquer", options=["-j", "none", "-p", "jail_files=off", "-p", "jail_syscalls=off"])
        cli = Cli.of(running.setups["lacquer"])
        yield running, running.servers["lacquer"].port, cli
        cli.ok("stop")
        cli.close()


def run():
    with pages() as pages_port, trained() as (running, port, cli):
        traffic_by_size(port)
        misses_and_passes(port)
        hits_under_sites_vcl(cli, port, running.origin_port)
        a_site_of_pages(cli, port, pages_port)
        management(cli)
    with trained(tls=True, http2=True, http3=True) as (running, port, _):
        hits_over_tls(port, running.settings["pem"])
    with trained(storage_mb=64, disk_mb=640, scratch=DISK) as (_, port, _):
        misses_and_hits_on_a_disk(port)
