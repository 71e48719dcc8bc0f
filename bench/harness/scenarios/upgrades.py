"""The replacement of a server's processes under a constant load."""

import os
import random
import signal
import threading
import time

from .. import load, measure
from ..result import Column, Result
from ..servers import Field
from .common import mixed

# lacquerd executes its program again: manager and worker are new. nginx and HAProxy replace their workers, and keep
# their master.
SIGNALS = {"lacquer": signal.SIGUSR2, "nginx": signal.SIGHUP, "haproxy-master": signal.SIGUSR2}
RATE = 2000  # requests per second
CONNECTIONS = 64
BEFORE = 0.5  # seconds of load before the signal
PATIENCE = 30


def replaced(server, before):
    """Waits until all processes that served before have ended and others serve."""
    deadline = time.monotonic() + PATIENCE
    while time.monotonic() < deadline:
        now = set(measure.workers(server.pid))
        if now and not now & before:
            return
        time.sleep(0.05)
    raise RuntimeError(f"{server.name} has not replaced {before}: {measure.workers(server.pid)}")


def upgrade(options):
    """Requests at a rate over connections that are kept, while the processes are replaced."""
    columns = [Column("errors", "errors", 0, ""), Column("refused", "refused connections", 0, ""), Column("p50", "p50 ms"),
               Column("p99", "p99 ms"), Column("max", "max ms", 1), Column("fetched", "% fetched", 1, ""),
               Column("rps", "requests/s", 0, "")]
    result = Result("upgrade", f"processes replaced under {RATE:,} requests/s over {CONNECTIONS} connections, 1.4 kB hits",
                    columns, "p99", references=("nginx", "haproxy-master"))
    with Field(options.chosen(SIGNALS)) as running:
        for server in running.servers.values():
            load.counted(server.port, 500, 8, "/1400/page")
        for _ in range(options.rounds):
            for name, server in mixed(running.servers.items(), random):
                before, outcome = set(measure.workers(server.pid)), {}

                def drive(port):
                    outcome.update(load.counted(port, 4 * RATE, CONNECTIONS, "/1400/page", rate=RATE))
                    return outcome
                timer = threading.Timer(BEFORE, os.kill, (server.pid, SIGNALS[name]))
                timer.start()
                values = load.measured(server, drive, running.origin_port)
                timer.join()
                replaced(server, before)
                result.add(name, {**values, "refused": outcome["refused"]})
    return [result]
