"""Caches on a disk that are much larger than memory: hits, filling, and starts after a crash. Each server is in a memory
cgroup with the same limit, and the page cache is dropped before each measurement. fio with the same sizes and depth, on
the same file system, is the floor."""

import contextlib
import json
import os
import pathlib
import random
import shutil
import signal
import subprocess
import time

from .. import load, measure
from ..result import Column, Result
from ..servers import DISK, SERVER_CORE, Field, pinned
from .common import mixed, token

SERVERS = ("lacquer", "nginx-disk", "trafficserver")
SIZES_KB = (4, 8, 16, 32, 64, 128, 256)  # as the origin's /mixed/
MEAN = sum(SIZES_KB) / len(SIZES_KB) * 1024
MEMORY_MB = 96  # of the caches that have memory of their own
LIMIT_MB = 320  # of the cgroup, with the page cache and the log
REST = 15  # seconds after filling: a disk of a virtual machine goes on writing after it has answered
DEPTH = 64
GROUPS = pathlib.Path("/sys/fs/cgroup")


class MemoryLimit:
    """A memory cgroup, which is removed at the end. The programs that are started `under` it are in it."""

    def __init__(self, name, megabytes):
        is_first = (GROUPS / "memory").is_dir()
        self.folder = (GROUPS / "memory" if is_first else GROUPS) / f"lacquer-bench-{os.getpid()}-{name}"
        self.folder.mkdir()
        limit = "memory.limit_in_bytes" if is_first else "memory.max"
        (self.folder / limit).write_text(str(megabytes << 20))
        self.under = ("sh", "-c", f"echo $$ > {self.folder}/cgroup.procs && exec \"$@\"", "sh")

    def remove(self):
        for _ in range(50):
            with contextlib.suppress(OSError):
                self.folder.rmdir()
                return
            time.sleep(0.1)


class DiskField(Field):
    """Servers with caches on a disk, each with its memory limit."""

    def __init__(self, names, objects, limit_mb=LIMIT_MB):
        self.limits, self.objects = {}, objects
        # Room for three times the objects: no server evicts.
        super().__init__((), storage_mb=MEMORY_MB, disk_mb=round(objects * MEAN * 3 / 1e6) + 256, scratch=DISK)
        try:
            for name in names:
                self.limits[name] = MemoryLimit(name, limit_mb)
                self.start(name, under=self.limits[name].under, timeout=60)
        except BaseException:
            self.close()
            raise

    def close(self):
        super().close()
        for limit in self.limits.values():
            limit.remove()

    def fill(self, path):
        for server in self.servers.values():
            load.counted(server.port, self.objects, DEPTH, path)
        settle()
        time.sleep(REST)

    def crash(self, name):
        """Ends all processes of a server at once."""
        running = self.servers[name]
        for pid in measure.family(running.pid):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        running.process.wait()
        running.log.close()


def settle():
    """Waits until the servers have written everything, and drops the page cache."""
    time.sleep(3)
    os.sync()
    pathlib.Path("/proc/sys/vm/drop_caches").write_text("3")


def number_of_objects(options):
    """Returns the number of objects: 2 GB unless --objects is given, or 50 MB in a quick run."""
    return max(min(options.objects // 35, 28_000), 700)


def fio(mode, seconds, folder, megabytes, *more):
    """Runs fio on a file of its own. Returns operations and bytes per second, and the latencies."""
    command = ["fio", "--name=floor", f"--directory={folder}", f"--size={round(megabytes)}m", f"--rw={mode}", "--direct=1",
               "--ioengine=libaio", f"--runtime={seconds}", "--time_based", "--output-format=json", *more]
    done = subprocess.run(pinned(SERVER_CORE, command), capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(f"fio failed: {done.stderr[-500:]}")
    job = json.loads(done.stdout[done.stdout.index("{"):])["jobs"][0]
    figures = job["read" if "read" in mode else "write"]
    percentiles = figures["clat_ns"].get("percentile", {})
    cpu = (job["usr_cpu"] + job["sys_cpu"]) / 100 * figures["runtime"] * 1000
    return {"rps": figures["iops"], "mb_s": figures["bw_bytes"] / 1e6, "cpu_us": cpu / max(figures["total_ios"], 1),
            "p50": percentiles.get("50.000000", 0) / 1e6, "p99": percentiles.get("99.000000", 0) / 1e6}


def turns(options, running, floor):
    """Yields the servers, and fio if it is installed, in each round in another order. `floor` is a folder for fio."""
    floor.mkdir()
    for _ in range(options.rounds):
        for name in mixed([*running.servers, *(["fio"] if shutil.which("fio") else [])]):
            settle()
            yield name


def disk_hit(options):
    """Random hits of 4 to 256 kB, all equally likely, by 64 clients."""
    columns = [Column("rps", "requests/s", 0, "more"), Column("mb_s", "MB/s", 0, "more"), Column("cpu_us", "CPU µs/request"),
               Column("p50", "p50 ms"), Column("p99", "p99 ms"), Column("fetched", "% fetched", 1, ""),
               Column("errors", "errors", 0, "")]
    objects = number_of_objects(options)
    title = f"random hits among {objects:,} objects on a disk ({objects * MEAN / 1e9:.1f} GB) in {LIMIT_MB} MB of memory"
    result = Result("disk-hit", title, columns, "rps", references=(*SERVERS[1:], "fio"))
    path, seconds = f"/mixed/{token()}/{{}}", max(options.seconds, 3)
    split = ":".join(f"{size}k/{100 // len(SIZES_KB)}" for size in SIZES_KB[:-1]) + f":{SIZES_KB[-1]}k/"
    with DiskField(options.chosen(SERVERS), objects) as running:
        running.fill(path)
        floor = running.dir / "fio"
        for name in turns(options, running, floor):
            if name == "fio":
                more = ("--bssplit=" + split, f"--iodepth={DEPTH}", "--blockalign=4k", "--norandommap")
                result.add(name, fio("randread", seconds, floor, objects * MEAN / 1e6, *more))
                continue
            first, server = random.getrandbits(40), running.servers[name]
            outcome = {}

            def drive(port):
                outcome.update(load.scattered(port, path, DEPTH, seconds, objects, first))
                return outcome
            values = load.measured(server, drive, running.origin_port)
            result.add(name, {**values, "mb_s": outcome["bytes"] / outcome["seconds"] / 1e6})
    return [result]


def disk_fill(options):
    """Misses of 4 to 256 kB, all of which are stored."""
    columns = [Column("mb_s", "MB/s", 0, "more"), Column("rps", "objects/s", 0, "more"), Column("cpu_us", "CPU µs/object"),
               Column("p99", "p99 ms"), Column("written", "bytes written for each stored", 2), Column("errors", "errors", 0, "")]
    objects = number_of_objects(options) // 4
    title = f"filling a disk with {objects:,} objects of 4 to 256 kB"
    result = Result("disk-fill", title, columns, "mb_s", references=(*SERVERS[1:], "fio"))
    # Only a part of the objects of each round stays.
    with DiskField(options.chosen(SERVERS), objects * (options.rounds + 1)) as running:
        floor = running.dir / "fio"
        for name in turns(options, running, floor):
            if name == "fio":
                megabytes = objects * MEAN / 1e6
                more = ("--bs=1m", "--iodepth=4", "--end_fsync=1")
                result.add(name, {"mb_s": fio("write", max(options.seconds, 3), floor, megabytes, *more)["mb_s"]})
                continue
            server, path, outcome = running.servers[name], f"/mixed/{token()}/{{}}", {}
            before = written_bytes(server)

            def drive(port):
                started = time.perf_counter()
                outcome.update(load.counted(port, objects, DEPTH, path))
                os.sync()
                outcome["seconds"] = time.perf_counter() - started
                return outcome
            values = load.measured(server, drive, running.origin_port)
            time.sleep(1.5)
            os.sync()
            written = (written_bytes(server) - before) / outcome["bytes"]
            result.add(name, {**values, "mb_s": outcome["bytes"] / outcome["seconds"] / 1e6, "written": written})
    return [result]


def written_bytes(server):
    """Returns the number of bytes that the processes of a server have caused to be written."""
    total = 0
    for pid in measure.family(server.pid):
        with contextlib.suppress(OSError):
            lines = (measure.PROC / str(pid) / "io").read_text().splitlines()
            total += next(int(line.split()[1]) for line in lines if line.startswith("write_bytes:"))
    return total


def disk_restart(options):
    """kill -9 of everything: the time to the first hit after the start, and what is found at once and later."""
    columns = [Column("first", "ms to the first hit", 0), Column("early", "% hits in the first 100 ms", 0, "more"),
               Column("kept", "% hits after 3 s", 0, "more"), Column("recent", "% hits of the last 1 % stored", 0, "more")]
    objects = number_of_objects(options)
    result = Result("disk-restart", f"start after kill -9 with {objects:,} objects on a disk", columns, "first",
                    references=SERVERS[1:])
    path = f"/mixed/{token()}/{{}}"
    with DiskField(options.chosen(SERVERS), objects) as running:
        running.fill(path)
        late = objects // 100
        for turn in range(options.rounds):
            for name in mixed(list(running.servers)):
                first_late = objects * 2 + turn * late
                load.counted(running.servers[name].port, late, 8, path, first=first_late)
                time.sleep(1.5)  # what was written in the last second may be lost
                running.crash(name)
                settle()
                result.add(name, started_again(running, name, path, objects, first_late, late))
    return [result]


def started_again(running, name, path, objects, first_late, late):
    started = time.perf_counter()
    server = running.restart(name, name, under=running.limits[name].under)

    def hits(count, among, first=0):
        before = load.asked(running.origin_port)
        options = ["--count", count, "--among", among, "--first", first] if among else ["--count", count, "--first", first]
        load.own_load(server.port, path, 8, options)
        return 100 - (load.asked(running.origin_port) - before) * 100 / count
    first = None
    for number in range(200):
        before = load.asked(running.origin_port)
        load.got(server.port, path.replace("{}", str(number * 7 % objects)))
        if load.asked(running.origin_port) == before:
            first = (time.perf_counter() - started) * 1000
            break
    early = hits(200, objects, random.getrandbits(30))
    time.sleep(max(3 - (time.perf_counter() - started), 0))
    kept = hits(1000, objects, random.getrandbits(30))
    found = {"early": early, "kept": kept, "recent": hits(late, 0, first_late)}
    return {"first": first, **found} if first else found
