"""Drives the servers: wrk for a length of time, lacquer-bench load for a number of requests."""

import contextlib
import json
import os
import subprocess

from . import measure
from .servers import BENCH, HELPER, LOAD_CORE, pinned

LUA = BENCH / "lua"


def wrk(port, path, connections, seconds, headers=(), script="report.lua", arguments=()):
    """One run; what report.lua printed."""
    command = ["wrk", "-t1", f"-c{connections}", f"-d{seconds}s", "--timeout", "10s", "-s", LUA / script]
    for header in ("Host: bench", *headers):  # the same key as for lacquer-bench load
        command += ["-H", header]
    command += [f"http://127.0.0.1:{port}{path}"]
    if arguments:
        command += ["--", *map(str, arguments)]
    done = subprocess.run(pinned(LOAD_CORE, command), capture_output=True, text=True,
                          env=dict(os.environ, BENCH_LUA=str(LUA)))
    for line in done.stdout.splitlines():
        if line.startswith("BENCH "):
            return json.loads(line[6:])
    raise RuntimeError(f"wrk failed: {done.stdout[-500:]}{done.stderr[-500:]}")


def counted(port, count, connections=32, path="/", first=0, header=""):
    """A number of requests; {} in the path becomes the number of the request."""
    command = [HELPER, "load", "--connect", f"127.0.0.1:{port}", "--count", count, "--connections", connections,
               "--path", path, "--first", first, "--header", header]
    done = subprocess.run(pinned(LOAD_CORE, command), capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(done.stderr.strip())
    return json.loads(done.stdout)


@contextlib.contextmanager
def holding(port, idle, slow):
    """Keeps idle and slow connections open meanwhile."""
    command = [HELPER, "hold", "--connect", f"127.0.0.1:{port}", "--idle", idle, "--slow", slow]
    holder = subprocess.Popen(pinned(LOAD_CORE, command), stdout=subprocess.PIPE)
    try:
        if not holder.stdout.readline():
            raise RuntimeError("the connections to hold could not be opened")
        yield
    finally:
        holder.terminate()
        holder.wait()


def measured(server, drive):
    """Runs `drive` against a server and adds what it cost there."""
    before = measure.CpuSample(server.pid)
    outcome = drive(server.port)
    cpu = measure.CpuSample(server.pid).since(before)
    requests = max(outcome["requests"], 1)
    return {
        "rps": outcome["requests"] / outcome["seconds"],
        "cpu_us": cpu * 1e6 / requests,
        **{name: us / 1000 for name, us in outcome["latency_us"].items()},
        "errors": outcome["errors"],
        "memory_mb": measure.memory(server.pid) / 1e6,
    }
