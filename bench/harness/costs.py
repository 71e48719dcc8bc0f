"""The cost of a request in counts that do not depend on the load of the machine: instructions and heap
allocations of the reactor under callgrind, system calls of the worker under strace."""

import collections
import os
import re
import subprocess
import time

from . import load, measure
from .cli import Cli
from .servers import Field

TOLERANCE = 0.02
# For instructions on another kind of machine than that of the budgets.
TOLERANCE_ELSEWHERE = 0.10
# So that a timer does not exceed a budget of zero.
SLACK = 0.05
CALLGRIND = "valgrind --quiet --tool=callgrind --separate-threads=yes --callgrind-out-file={dir}/callgrind.%p"
STRACE = "strace -f -qq -o {dir}/strace"
ALLOCATORS = re.compile(r"\b(malloc|calloc|realloc|posix_memalign|aligned_alloc|mi_malloc\w*|mi_realloc\w*)\b")

REQUESTS = {
    "hit": lambda port, n, first: load.counted(port, n, 1, "/1400/page"),
    "pass": lambda port, n, first: load.counted(port, n, 1, "/1400/page", header="Cookie: a=b"),
    "miss": lambda port, n, first: load.counted(port, n, 1, "/100/{}", first=first),
}


def is_over(cost, budget, tolerance=TOLERANCE):
    return cost > budget * (1 + tolerance) + SLACK


def machine_kind():
    """Returns the properties that decide which instructions run. Valgrind exposes the vector extensions of the real
    processor, by which the C library and others select their routines."""
    cpu = measure.PROC.joinpath("cpuinfo").read_text()
    rustc = subprocess.run(["rustc", "--version"], capture_output=True, text=True).stdout.split()[:2]
    return ", ".join([os.uname().machine, "AVX2" if re.search(r"\bavx2\b", cpu) else "no AVX2",
                      os.confstr("CS_GNU_LIBC_VERSION") or "another C library", " ".join(rustc)])


class Daemon(Field):
    """lacquerd, whose worker may run under a tool such as valgrind, and the worker's process id."""

    def __init__(self, tool=""):
        super().__init__(())
        try:
            under = ["env", f"LACQUER_WORKER_UNDER={tool.format(dir=self.dir)}"] if tool else []
            patient = [word for p in ("cli_timeout", "startup_timeout") for word in ("-p", f"{p}=300")]
            self.start("lacquer", under=under, options=[*patient, "-j", "none"], timeout=120)
            server = self.servers["lacquer"]
            self.port = server.port
            load.counted(self.port, 200, 1, "/1400/page")
            self.worker = measure.workers(server.pid)[0]
        except BaseException:
            self.close()
            raise

    def cli(self):
        return Cli.of(self.setups["lacquer"])


class Callgrind:
    """Counts instructions of the reactor, the busiest thread of the worker, between two points in time."""

    def __init__(self, daemon):
        self.pid, self.dir, self.dumps, self.asked = daemon.worker, daemon.dir, 0, 0
        self.idle = None

    def control(self, word):
        subprocess.run(["callgrind_control", word, str(self.pid)], check=True, capture_output=True)

    def during(self, drive):
        """Returns the duration of `drive` in seconds, and the costs of each thread meanwhile."""
        self.control("--zero")
        begun = time.monotonic()
        drive()
        seconds = time.monotonic() - begun
        self.control("--dump")
        self.dumps += 1
        return seconds, {dump.name.rsplit("-", 1)[1]: read_dump(dump) for dump in self.last_dumps()}

    def idle_cost(self, thread):
        """Returns the instructions per second of a thread without requests, which timers cause."""
        if self.idle is None:
            seconds, spent = self.during(lambda: time.sleep(2))
            self.idle = spent.get(thread, (0, 0))[0] / seconds
        return self.idle

    def last_dumps(self):
        """Returns one dump for each thread."""
        return self.dir.glob(f"callgrind.{self.pid}.{self.dumps}-*")

    def busiest(self):
        return max(self.last_dumps(), key=read_dump)

    def per_request(self, port, drive, short, long):
        """Returns the difference between a long and a short drive, so that constant costs cancel out, minus the costs
        that timers cause in that time, which would make requests appear expensive on a slow machine."""
        counts, times = [], []
        for n in (short, long):
            seconds, spent = self.during(lambda: drive(port, n, self.asked))
            reactor = max(spent, key=spent.get)
            counts.append(spent[reactor])
            times.append(seconds)
            self.asked += n
        by_clock = self.idle_cost(reactor) * (times[1] - times[0])
        (i, a), (more_i, more_a) = counts
        return (more_i - i - by_clock) / (long - short), (more_a - a) / (long - short)


def read_dump(path):
    return parse_dump(path.read_text(errors="replace"))


def parse_dump(text):
    """Returns instructions and allocations."""
    names, instructions, allocations, callee = {}, 0, 0, None
    for line in text.splitlines():
        if line.startswith(("totals:", "summary:")):
            instructions = max(instructions, int(line.split()[1]))
        elif line.startswith(("fn=", "cfn=")):
            number, _, name = line.split("=", 1)[1].partition(" ")
            if name:
                names[number] = name
            if line.startswith("cfn="):
                callee = names.get(number, "")
        elif line.startswith("calls=") and callee and ALLOCATORS.search(callee):
            allocations += int(line[6:].split()[0])
    return instructions, allocations


def calls_during(log, drive):
    """Counts system calls by name while `drive` runs."""
    before = log.stat().st_size
    drive()
    time.sleep(0.1)  # strace may still be writing
    with log.open(errors="replace") as lines:
        lines.seek(before)
        return count_calls(lines)


def count_calls(lines):
    """Counts calls by name. An interrupted call has two lines, of which the second begins with `<...`."""
    names = (re.match(r"(?:\d+ +)?(\w+)\(", line) for line in lines)
    return collections.Counter(name[1] for name in names if name)
