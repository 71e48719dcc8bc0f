"""Caches on disks under several loads at once: hits beside filling, hits and misses from the same clients, and two disks
instead of one."""

import contextlib
import os
import pathlib
import random
import subprocess
import threading
import time

from .. import load, measure
from ..result import Column, Result
from ..servers import DISK, Field
from .common import mixed, token
from .disks import DEPTH, GROUPS, MEAN, REST, SERVERS, DiskField, number_of_objects, settle


def disk_beside(options):
    """Hits from the disk at a rate, alone and while the disk is filled at another rate."""
    objects = number_of_objects(options) // 2
    rate, filling, seconds = 300, 1000, max(options.seconds * 3, 4)
    columns = [Column("p50", "p50 ms"), Column("p99", "p99 ms"), Column("max", "max ms", 1), Column("errors", "errors", 0, "")]
    result = Result("disk-beside", f"hits on a disk, {rate}/s, alone and beside {filling:,} misses/s", columns, "p99",
                    references=("lacquer alone",))
    stored = objects + round(filling * seconds * options.rounds)
    with DiskField(options.chosen(SERVERS), stored) as running:
        path = f"/mixed/{token()}/{{}}"
        for server in running.servers.values():
            load.counted(server.port, objects, DEPTH, path)
        time.sleep(REST)
        for _ in range(options.rounds):
            for name, server in mixed(running.servers.items()):
                for is_beside in mixed((False, True)):
                    settle()
                    with filled_meanwhile(server, filling, seconds + 1) if is_beside else contextlib.nullcontext():
                        options_of_load = ["--count", rate * seconds, "--among", objects, "--first", random.getrandbits(40), "--rate", rate]
                        outcome = load.own_load(server.port, path, 16, options_of_load, goes_first=load.MAY_GO_FIRST)
                    took = {key: us / 1000 for key, us in outcome["latency_us"].items()}
                    result.add(name if is_beside else f"{name} alone", {**took, "errors": outcome["errors"]})
    return [result]


@contextlib.contextmanager
def filled_meanwhile(server, rate, seconds):
    """Sends misses at a rate to a server."""
    path = f"/mixed/{token()}/{{}}"
    filler = threading.Thread(target=lambda: load.counted(server.port, round(rate * seconds), DEPTH, path, rate=rate))
    filler.start()
    try:
        yield
    finally:
        filler.join()


def disk_replies(options):
    """Hits and misses from the same clients, as Web Polygraph sends them: beside Squid with its stores, at the same hit ratio."""
    objects, misses = number_of_objects(options) // 2, 42
    columns = [Column("rps", "replies/s", 0, "more"), Column("hit_p50", "hit p50 ms"), Column("hit_p99", "hit p99 ms"),
               Column("p50", "p50 ms"), Column("p99", "p99 ms"), Column("cpu_us", "CPU µs/reply"),
               Column("hits", "% hits", 1, ""), Column("errors", "errors", 0, "")]
    title = f"replies from a disk with {objects:,} objects of 4 to 256 kB, {100 - misses} % hits, beside Squid's stores"
    names = ("lacquer", "squid-aufs", "squid-ufs", "squid-rock")
    result = Result("disk-replies", title, columns, "rps", references=names[1:])
    seconds = max(options.seconds * 3, 4)
    # Misses are stored, and the disks have room for 4,500 replies/s.
    stored = (objects + round(3000 * seconds * options.rounds * misses / 100)) // 2
    # Squid needs more than the usual limit for its index and the connections, and would be killed.
    with DiskField(options.chosen(names), stored, limit_mb=640) as running:
        path = f"/mixed/{token()}/{{}}"
        for server in running.servers.values():
            load.counted(server.port, objects, 16, path)
        settle()
        time.sleep(REST)
        for turn in range(options.rounds):
            # Below 2^33, so that the numbers of the rounds differ.
            first = turn << 33 | random.getrandbits(32)
            for name, server in mixed(running.servers.items()):
                settle()
                outcome = {}

                def drive(port):
                    outcome.update(load.scattered(port, path, DEPTH, seconds, objects, first, misses))
                    return outcome
                values = load.measured(server, drive, running.origin_port)
                known = {f"hit_{key}": us / 1000 for key, us in outcome["known_us"].items()}
                result.add(name, {**values, **known, "hits": 100 - values["fetched"]})
    return [result]


def disk_pair(options):
    """Random hits on one and on two loop devices, each of which may read the same number of bytes per second."""
    objects, limit = max(number_of_objects(options) // 7, 700), 40_000_000
    columns = [Column("mb_s", "MB/s", 0, "more"), Column("rps", "requests/s", 0, "more"), Column("cpu_us", "CPU µs/request"),
               Column("errors", "errors", 0, "")]
    result = Result("disk-pair", f"hits on one disk and on two, {limit / 1e6:.0f} MB/s each", columns, "mb_s", subject="2 disks",
                    references=("1 disk",))
    if os.geteuid() != 0 or not options.chosen(("lacquer",)):
        return [result]
    size = round(objects * MEAN * 2) + (256 << 20)
    with contextlib.ExitStack() as stack:
        devices = [stack.enter_context(loop_device(size)) for _ in range(3)]
        running = stack.enter_context(Field((), disk_mb=size >> 20, scratch=DISK))
        path, seconds = f"/mixed/{token()}/{{}}", max(options.seconds, 3)
        for label, places in (("1 disk", devices[:1]), ("2 disks", devices[1:])):
            running.settings.update(devices=tuple(places), storage_mb=32 // len(places))
            server = running.start("lacquer", label)
            load.counted(server.port, objects, DEPTH, path)
            stack.enter_context(reads_limited(server, places, limit))
        settle()
        for _ in range(options.rounds):
            for label, server in mixed(running.servers.items()):
                first, outcome = random.getrandbits(40), {}

                def drive(port):
                    outcome.update(load.scattered(port, path, DEPTH, seconds, objects, first))
                    return outcome
                values = load.measured(server, drive)
                result.add(label, {**values, "mb_s": outcome["bytes"] / outcome["seconds"] / 1e6})
    return [result]


@contextlib.contextmanager
def loop_device(size):
    """Makes a loop device over a file of its own, which passes reads on to the disk directly."""
    file = pathlib.Path(DISK) / f"bench-loop-{token()}"
    file.touch()
    os.truncate(file, size)
    try:
        made = subprocess.run(["losetup", "--find", "--show", "--direct-io=on", file], check=True, capture_output=True, text=True)
        device = made.stdout.strip()
        try:
            yield device
        finally:
            subprocess.run(["losetup", "--detach", device], check=False)
    finally:
        file.unlink()


@contextlib.contextmanager
def reads_limited(server, devices, limit):
    """Limits what the processes of a server read from each device, in bytes per second, by a group of version 1."""
    group = GROUPS / "blkio" / f"lacquer-bench-{server.pid}"
    group.mkdir()
    try:
        for device in devices:
            number = os.stat(device).st_rdev
            (group / "blkio.throttle.read_bps_device").write_text(f"{os.major(number)}:{os.minor(number)} {limit}")
        for pid in measure.family(server.pid):
            (group / "cgroup.procs").write_text(str(pid))
        yield
    finally:
        server.stop()
        with contextlib.suppress(OSError):
            group.rmdir()
