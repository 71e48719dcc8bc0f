"""The cost of a server: CPU time and memory over all of its processes, read from /proc."""

import os
import pathlib

PROC = pathlib.Path("/proc")
TICK_NS = 1_000_000_000 // os.sysconf("SC_CLK_TCK")


def family(root):
    """Returns the process ids of a server: the process that was started, its session and its descendants."""
    parents, sessions = {}, {}
    for entry in PROC.iterdir():
        if not entry.name.isdigit():
            continue
        try:
            fields = (entry / "stat").read_text().rsplit(")", 1)[1].split()
        except OSError:
            continue
        parents[int(entry.name)], sessions[int(entry.name)] = int(fields[1]), int(fields[3])
    found = {pid for pid, session in sessions.items() if session == root} | {root}
    grown = True
    while grown:
        children = {pid for pid, parent in parents.items() if parent in found} - found
        found |= children
        grown = bool(children)
    return sorted(found)


def thread_ids(pid):
    """Returns the ids of a process's threads; none if it has ended."""
    try:
        return [int(task.name) for task in (PROC / str(pid) / "task").iterdir()]
    except OSError:
        return []


class CpuSample:
    """CPU time so far. The scheduler's nanoseconds per thread are exact but omit threads that have ended. The totals of
    the processes include them but count in ticks. The larger of the two differences is used."""

    def __init__(self, *roots):
        self.threads, self.ticks = {}, {}
        for pid in {pid for root in roots for pid in family(root)}:
            try:
                fields = (PROC / str(pid) / "stat").read_text().rsplit(")", 1)[1].split()
                self.ticks[pid] = int(fields[11]) + int(fields[12])
                for task in (PROC / str(pid) / "task").iterdir():
                    self.threads[task.name] = int((task / "schedstat").read_text().split()[0])
            except OSError:
                continue

    def since(self, before):
        """Returns the seconds of CPU between two samples."""
        exact = sum(ns - before.threads.get(t, 0) for t, ns in self.threads.items())
        ticks = sum(n - before.ticks.get(p, 0) for p, n in self.ticks.items()) * TICK_NS
        slack = len(self.ticks) * 2 * TICK_NS + exact // 50
        return (ticks if ticks > exact + slack else exact) / 1e9


def memory(root, kind="Pss:"):
    """Returns the resident bytes of all processes, with shared pages counted once. `Pss_Anon:` leaves out files, such as a
    log in shared memory."""
    total = 0
    for pid in family(root):
        try:
            for line in (PROC / str(pid) / "smaps_rollup").read_text().splitlines():
                if line.startswith(kind):
                    total += int(line.split()[1]) * 1024
        except OSError:
            continue
    return total


def sockets_memory():
    """Returns the bytes that the kernel has for its own objects and for the buffers of TCP, of the whole machine."""
    slab = next(int(line.split()[1]) * 1024 for line in (PROC / "meminfo").read_text().splitlines() if line.startswith("Slab:"))
    tcp = next(line.split() for line in (PROC / "net/sockstat").read_text().splitlines() if line.startswith("TCP:"))
    return slab + int(tcp[tcp.index("mem") + 1]) * os.sysconf("SC_PAGE_SIZE")


def files(folder):
    """Returns the bytes in a cache's files: on tmpfs they are memory too."""
    return sum(f.stat().st_blocks * 512 for f in folder.rglob("*") if f.is_file()) if folder.is_dir() else 0


def threads(root, prefix):
    """Returns the number of threads of a server with this name."""
    names = (t.read_text() for pid in family(root) for t in (PROC / str(pid) / "task").glob("*/comm"))
    return sum(name.startswith(prefix) for name in names)


def available_memory():
    lines = (PROC / "meminfo").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable:"))


def workers(root):
    """Returns the children of the process that was started."""
    def parent(pid):
        return int((PROC / str(pid) / "stat").read_text().rsplit(")", 1)[1].split()[1])
    found = []
    for pid in family(root):
        try:
            if pid != root and parent(pid) == root:
                found.append(pid)
        except OSError:
            continue
    return found


def machine():
    """Returns one line that describes the machine."""
    cpu = next((line.split(":", 1)[1].strip() for line in (PROC / "cpuinfo").read_text().splitlines()
                if line.startswith("model name")), "unknown processor")
    release = os.uname()
    congestion = (PROC / "sys/net/ipv4/tcp_congestion_control").read_text().strip()
    return f"{os.cpu_count()} × {cpu}, {release.sysname} {release.release}, TCP {congestion}"
