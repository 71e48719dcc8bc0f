"""Drives the servers: wrk or, over HTTP/2, h2load for a length of time, lacquer-bench load for a number of requests,
at a rate or, with large bodies, for a length of time."""

import concurrent.futures
import contextlib
import http.client
import json
import os
import pathlib
import re
import subprocess
import tempfile

from . import measure
from .servers import BENCH, CORES, HELPER, LOAD_CORE, SCRATCH, pinned

LUA = BENCH / "lua"
MAY_GO_FIRST = os.geteuid() == 0


def wrk(port, path, connections, seconds, headers=(), script="report.lua", arguments=(), core=LOAD_CORE):
    """One run; what report.lua printed."""
    command = ["wrk", "-t1", f"-c{connections}", f"-d{seconds}s", "--timeout", "10s", "-s", LUA / script]
    for header in ("Host: bench", *headers):  # the same key as for lacquer-bench load
        command += ["-H", header]
    command += [f"http://127.0.0.1:{port}{path}"]
    if arguments:
        command += ["--", *map(str, arguments)]
    done = subprocess.run(pinned(core, command), capture_output=True, text=True,
                          env=dict(os.environ, BENCH_LUA=str(LUA)))
    return reported(done.stdout, done.stderr)


def reported(out, err=""):
    """The line of JSON among what wrk printed."""
    for line in out.splitlines():
        if line.startswith("BENCH "):
            return json.loads(line[6:])
    raise RuntimeError(f"wrk failed: {out[-500:]}{err[-500:]}")


def h2load(port, path, connections, streams, seconds):
    """One run over HTTP/2 without TLS, with so many requests at a time on each connection."""
    with tempfile.TemporaryDirectory(dir=SCRATCH) as folder:
        log = pathlib.Path(folder) / "requests"
        command = ["h2load", "-t1", f"-c{connections}", f"-m{streams}", f"-D{seconds}", f"--log-file={log}",
                   "-H", ":authority: bench", f"http://127.0.0.1:{port}{path}"]
        done = subprocess.run(pinned(LOAD_CORE, command), capture_output=True, text=True)
        return told(done.stdout, log.read_text() if log.exists() else "", seconds)


def told(out, log, seconds):
    """What h2load printed, and what it noted of each request: when, the status, how long in µs."""
    numbers = re.search(r"(\d+) done, (\d+) succeeded, (\d+) failed, (\d+) errored, (\d+) timeout", out)
    if not numbers or not log:
        raise RuntimeError(f"h2load failed: {out[-500:]}")
    done, succeeded = int(numbers[1]), int(numbers[2])
    took = sorted(int(line.rsplit("\t", 1)[1]) for line in log.splitlines())
    latency = {f"p{p:g}": took[min(int(len(took) * p / 100), len(took) - 1)] for p in (50, 75, 90, 99, 99.9)}
    return {"requests": done, "seconds": seconds, "errors": done - succeeded, "latency_us": {**latency, "max": took[-1]}}


def counted(port, count, connections=32, path="/", first=0, header="", rate=0):
    """A number of requests; {} in the path becomes the number of the request. With a rate they are sent
    when they are due, at random moments, and their latency counts from then."""
    options = ["--count", count, "--first", first, "--header", header, "--rate", rate]
    return own_load(port, path, connections, options, goes_first=rate and MAY_GO_FIRST)


def timed(port, path, connections, seconds):
    """As many requests as the time allows. The load throws bodies away uncopied, which wrk cannot: with large
    ones the server has its core full before wrk could have read them."""
    return own_load(port, path, connections, ["--seconds", seconds])


def own_load(port, path, connections, options, goes_first=False):
    command = [HELPER, "load", "--connect", f"127.0.0.1:{port}", "--connections", connections, "--path", path, *options]
    scheduled = ["chrt", "--fifo", "1"] if goes_first else []
    done = subprocess.run([*scheduled, *pinned(LOAD_CORE, command)], capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(done.stderr.strip())
    return json.loads(done.stdout)


@contextlib.contextmanager
def first_in_line(programs):
    """Lets these run before everyone else on the machine meanwhile, as a load at a rate does: so a pause is
    their own. Only root may; it is over before they are stopped."""
    def schedule(*how):
        for pid in [pid for p in programs for pid in measure.family(p.pid)] if MAY_GO_FIRST else []:
            subprocess.run(["chrt", "--all-tasks", *how, str(pid)], stderr=subprocess.DEVNULL)
    schedule("--fifo", "--pid", "1")
    try:
        yield
    finally:
        schedule("--other", "--pid", "0")


@contextlib.contextmanager
def awake():
    """Keeps all cores from sleeping meanwhile; whatever else wants to run on them goes first."""
    idlers = [subprocess.Popen(["chrt", "--idle", "0", *pinned(core, [HELPER, "awake"])]) for core in CORES]
    try:
        yield
    finally:
        for idler in idlers:
            idler.terminate()
            idler.wait()


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


def got(port, path, coding=None):
    """The body of one answer, which has to come in this coding."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
    connection.request("GET", path, headers={"Host": "bench", "Accept-Encoding": coding or "identity"})
    response = connection.getresponse()
    body, came_in = response.read(), response.getheader("Content-Encoding")
    connection.close()
    if response.status != 200 or came_in != coding:
        raise RuntimeError(f"port {port}: {path} came with status {response.status}, coded {came_in}, not {coding}")
    return body


def asked(origin_port):
    """How many requests the origin has had."""
    return int(got(origin_port, "/asked"))


def at_once(drive, turns):
    """Drives several at the same moment: what they did together, and the worst of their latencies."""
    with concurrent.futures.ThreadPoolExecutor() as threads:
        outcomes = list(threads.map(lambda turn: drive(*turn), turns))
    latencies = [outcome["latency_us"] for outcome in outcomes]
    return {"requests": sum(o["requests"] for o in outcomes), "errors": sum(o["errors"] for o in outcomes),
            "seconds": max(o["seconds"] for o in outcomes),
            "latency_us": {name: max(latency[name] for latency in latencies) for name in latencies[0]}}


def measured(server, drive, origin_port=None):
    """Runs `drive` against a server and adds what it cost there, and at the origin when that is named."""
    return measured_together([server], lambda: drive(server.port), origin_port)


def measured_together(servers, drive, origin_port=None):
    asked_before = origin_port and asked(origin_port)
    pids = [server.pid for server in servers]
    before = measure.CpuSample(*pids)
    outcome = drive()
    cpu = measure.CpuSample(*pids).since(before)
    requests = max(outcome["requests"], 1)
    fetched = {"fetched": (asked(origin_port) - asked_before) * 100 / requests} if origin_port else {}
    return {
        **fetched,
        "rps": outcome["requests"] / outcome["seconds"],
        "cpu_us": cpu * 1e6 / requests,
        **{name: us / 1000 for name, us in outcome["latency_us"].items()},
        **{f"late_{name}": us / 1000 for name, us in outcome.get("late_us", {}).items()},
        "errors": outcome["errors"],
        "memory_mb": sum(measure.memory(s.pid) + measure.files(s.dir / "cache") for s in servers) / 1e6,
    }
