"""Drives the servers. wrk and, over HTTP/2, h2load run for a duration, as lacquer-bench http3 does over HTTP/3.
lacquer-bench load runs for a number of requests, at a rate or, with large bodies, for a duration."""

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


def wrk(port, path, connections, seconds, headers=(), script="report.lua", arguments=(), core=LOAD_CORE,
        scheme="http"):
    """Runs wrk once and returns the values that report.lua printed."""
    command = ["wrk", "-t1", f"-c{connections}", f"-d{seconds}s", "--timeout", "10s", "-s", LUA / script]
    for header in ("Host: bench", *headers):  # the same cache key as with lacquer-bench load
        command += ["-H", header]
    command += [f"{scheme}://127.0.0.1:{port}{path}"]
    if arguments:
        command += ["--", *map(str, arguments)]
    done = subprocess.run(pinned(core, command), capture_output=True, text=True,
                          env=dict(os.environ, BENCH_LUA=str(LUA)))
    return reported(done.stdout, done.stderr)


def reported(out, err=""):
    """Returns the line of JSON in the output of wrk."""
    for line in out.splitlines():
        if line.startswith("BENCH "):
            return json.loads(line[6:])
    raise RuntimeError(f"wrk failed: {out[-500:]}{err[-500:]}")


def h2load(port, path, connections, streams, seconds, scheme="http"):
    """Runs h2load once over HTTP/2, without TLS unless the scheme is https, with the given number of requests at a time on each connection."""
    with tempfile.TemporaryDirectory(dir=SCRATCH) as folder:
        log = pathlib.Path(folder) / "requests"
        command = ["h2load", "-t1", f"-c{connections}", f"-m{streams}", f"-D{seconds}", f"--log-file={log}",
                   "-H", ":authority: bench", f"{scheme}://127.0.0.1:{port}{path}"]
        done = subprocess.run(pinned(LOAD_CORE, command), capture_output=True, text=True)
        return parse_h2load(done.stdout, log.read_text() if log.exists() else "", seconds)


def handshakes(port, path, count):
    """Opens connections with full handshakes (h2load resumes no session), 20 at a time, with one request on each."""
    with tempfile.TemporaryDirectory(dir=SCRATCH) as folder:
        log = pathlib.Path(folder) / "requests"
        outcomes = []
        for _ in range(max(count // 20, 1)):
            command = ["h2load", "-t1", "--h1", "-c20", "-n20", f"--log-file={log}", f"https://127.0.0.1:{port}{path}"]
            done = subprocess.run(pinned(LOAD_CORE, command), capture_output=True, text=True)
            took = re.search(r"finished in ([0-9.]+)(us|ms|s)", done.stdout)
            seconds = float(took[1]) * {"us": 1e-6, "ms": 1e-3, "s": 1}[took[2]] if took else 0
            outcomes.append(parse_h2load(done.stdout, log.read_text() if log.exists() else "", seconds))
            log.unlink()
    total = {key: sum(o[key] for o in outcomes) for key in ("requests", "seconds", "errors")}
    latency = {key: sorted(o["latency_us"][key] for o in outcomes) for key in outcomes[0]["latency_us"]}
    return {**total, "latency_us": {key: values[len(values) // 2] for key, values in latency.items()}}


def parse_h2load(out, log, seconds):
    """Parses the summary of h2load, and its log with a line per request: start, status, duration in µs."""
    numbers = re.search(r"(\d+) done, (\d+) succeeded, (\d+) failed, (\d+) errored, (\d+) timeout", out)
    if not numbers or not log:
        raise RuntimeError(f"h2load failed: {out[-500:]}")
    done, succeeded = int(numbers[1]), int(numbers[2])
    took = sorted(int(line.rsplit("\t", 1)[1]) for line in log.splitlines())
    latency = {f"p{p:g}": took[min(int(len(took) * p / 100), len(took) - 1)] for p in (50, 75, 90, 99, 99.9)}
    return {"requests": done, "seconds": seconds, "errors": done - succeeded, "latency_us": {**latency, "max": took[-1]}}


def counted(port, count, connections=32, path="/", first=0, header="", rate=0):
    """Sends a number of requests; {} in the path is replaced by the number of the request. With a rate, they are due
    at random moments, and their latency counts from the moment they are due."""
    options = ["--count", count, "--first", first, "--header", header, "--rate", rate]
    return own_load(port, path, connections, options, goes_first=rate and MAY_GO_FIRST)


def timed(port, path, connections, seconds):
    """Sends as many requests as the time allows. The load generator discards bodies without copying them, which wrk
    cannot, so that with large bodies the server's core is saturated and not the load generator's."""
    return own_load(port, path, connections, ["--seconds", seconds])


def scattered(port, path, connections, seconds, among, first, new=0):
    """Sends as many requests as the time allows; {} in the path is replaced by numbers below `among`, in no order. The
    sequence depends on `first`. A percentage, `new`, has new numbers."""
    return own_load(port, path, connections, ["--seconds", seconds, "--among", among, "--first", first, "--new", new])


def http3(port, path, connections, seconds, pem):
    """Sends as many requests over HTTP/3 as the time allows, one at a time on each connection. `pem` is the certificate."""
    return own_load(port, path, connections, ["--seconds", seconds, "--trust", pem], program="http3")


def own_load(port, path, connections, options, goes_first=False, program="load"):
    command = [HELPER, program, "--connect", f"127.0.0.1:{port}", "--connections", connections, "--path", path, *options]
    scheduled = ["chrt", "--fifo", "1"] if goes_first else []
    done = subprocess.run([*scheduled, *pinned(LOAD_CORE, command)], capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(done.stderr.strip())
    return json.loads(done.stdout)


@contextlib.contextmanager
def first_in_line(programs):
    """Gives these processes priority over others on the machine, as a load at a rate has, so that a pause is their own.
    Needs root. A real-time class would give more, but a process in it that reaps a child while the child's entries in
    /proc are read can spin in the kernel for ever, as a manager did. The priority ends before the processes are
    stopped."""
    def schedule(niceness):
        for pid in [pid for p in programs for pid in measure.family(p.pid)] if MAY_GO_FIRST else []:
            for thread in measure.thread_ids(pid):
                with contextlib.suppress(OSError):
                    os.setpriority(os.PRIO_PROCESS, thread, niceness)
    schedule(-15)
    try:
        yield
    finally:
        schedule(0)


@contextlib.contextmanager
def awake():
    """Keeps all cores from sleeping meanwhile, with a program of the lowest priority."""
    idlers = [subprocess.Popen(["chrt", "--idle", "0", *pinned(core, [HELPER, "awake"])]) for core in CORES]
    try:
        yield
    finally:
        for idler in idlers:
            idler.terminate()
            idler.wait()


@contextlib.contextmanager
def holding(port, idle, slow, *more):
    """Keeps idle and slow connections open meanwhile."""
    command = [HELPER, "hold", "--connect", f"127.0.0.1:{port}", "--idle", idle, "--slow", slow, *more]
    holder = subprocess.Popen(pinned(LOAD_CORE, command), stdout=subprocess.PIPE)
    try:
        if not holder.stdout.readline():
            raise RuntimeError("the connections to hold could not be opened")
        yield
    finally:
        holder.terminate()
        holder.wait()


def got(port, path, coding=None):
    """Returns the body of one response, which must have this content coding."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
    connection.request("GET", path, headers={"Host": "bench", "Accept-Encoding": coding or "identity"})
    response = connection.getresponse()
    body, came_in = response.read(), response.getheader("Content-Encoding")
    connection.close()
    if response.status != 200 or came_in != coding:
        raise RuntimeError(f"port {port}: {path} has status {response.status} and coding {came_in}, expected {coding}")
    return body


def asked(origin_port):
    """Returns the number of requests that the origin has received."""
    return int(got(origin_port, "/asked"))


def at_once(drive, turns):
    """Drives several servers at the same time. Returns the sum of their requests and the worst of their latencies."""
    with concurrent.futures.ThreadPoolExecutor() as threads:
        outcomes = list(threads.map(lambda turn: drive(*turn), turns))
    latencies = [outcome["latency_us"] for outcome in outcomes]
    return {"requests": sum(o["requests"] for o in outcomes), "errors": sum(o["errors"] for o in outcomes),
            "seconds": max(o["seconds"] for o in outcomes),
            "latency_us": {name: max(latency[name] for latency in latencies) for name in latencies[0]}}


def measured(server, drive, origin_port=None):
    """Runs `drive` against a server and adds its cost there, and the requests at the origin if that is named."""
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
