"""Bodies that a cache assembles from others, compresses and decompresses."""

from .. import load
from .common import VCL_SERVERS, interleaved, throughput, token

ESI = 'sub vcl_backend_response { if (bereq.url ~ "/parts/") { set beresp.do_esi = true; } }'
GZIP = "sub vcl_backend_response { set beresp.do_gzip = true; }"
ACCEPTS = "Accept-Encoding: gzip"
TEXT = "/20000/text"


def esi(options):
    """A page that includes five others, all of them from the cache."""
    page, own, included = "/8000/parts/page", 8000, 5 * 1400

    def drive(port):
        return load.wrk(port, page, 64, options.seconds)

    def warm(port):
        load.counted(port, 500, 2, page)
        if len(load.got(port, page)) < own + included:
            raise RuntimeError(f"port {port}: {page} lacks its includes")
    result = throughput("esi", "hit, 8 kB with five includes of 1.4 kB, 64 connections; nginx by its SSI")
    return [interleaved(result, options, (*VCL_SERVERS, "nginx"), drive, warm, vcl=ESI, ssi=True)]


def gzip(options):
    """Text of 20 kB that is compressed on fetch: misses, and hits by clients that accept gzip and clients that do not."""
    def hits(*headers):
        return lambda port: load.wrk(port, f"{TEXT}/page", 64, options.seconds, headers)

    def misses(port):
        return load.wrk(port, "/", 64, options.seconds, script="unique.lua", arguments=(f"{TEXT}/{token()}",))

    def warm(port):
        load.counted(port, 500, 2, f"{TEXT}/page")
        if len(load.got(port, f"{TEXT}/page", "gzip")) >= len(load.got(port, f"{TEXT}/page")):
            raise RuntimeError(f"port {port}: {TEXT} is not smaller when compressed")
    kinds = (("gzip-hit", "hit, 20 kB of text, delivered compressed", hits(ACCEPTS)),
             ("gunzip-hit", "hit, 20 kB of text, decompressed for each client", hits()),
             ("gzip-miss", "miss, 20 kB of text, compressed on fetch", misses))
    return [interleaved(throughput(id, title), options, VCL_SERVERS, drive, warm, vcl=GZIP, storage_mb=1024)
            for id, title, drive in kinds]
