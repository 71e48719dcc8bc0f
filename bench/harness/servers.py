"""The servers under test and how each is started: pinned to one core, with comparable settings and the
tuning its own manual advises. The configuration files are in bench/peers."""

import dataclasses
import os
import pathlib
import resource
import shutil
import signal
import socket
import string
import subprocess
import tempfile
import time

BENCH = pathlib.Path(__file__).resolve().parent.parent
ROOT = BENCH.parent
PROGRAMS = ROOT / "target/release"
HELPER = PROGRAMS / "lacquer-bench"

CORES = sorted(os.sched_getaffinity(0))
SERVER_CORE = CORES[0]
LOAD_CORE = CORES[1 % len(CORES)]
ORIGIN_CORE = CORES[2] if len(CORES) > 2 else LOAD_CORE

# What every cache may use; far more than any scenario but `memory` fills.
STORAGE = "malloc,1G"


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def pinned(core, command):
    return ["taskset", "-c", str(core), *map(str, command)]


@dataclasses.dataclass
class Setup:
    """What a server needs to know to start."""
    port: int
    origin: int
    dir: pathlib.Path
    sizes: tuple = (1400,)
    storage: str = STORAGE
    cli_port: int = 0


@dataclasses.dataclass(frozen=True)
class Server:
    name: str
    kind: str  # cache, file or floor
    program: str
    command: object  # Setup to a list of words

    def installed(self):
        return shutil.which(self.program, path=f"{os.environ['PATH']}:/usr/sbin:/sbin") is not None


def most_connections():
    """What a proxy can hold: two descriptors for each, and some to spare."""
    return min(20_000, (resource.getrlimit(resource.RLIMIT_NOFILE)[0] - 200) // 2)


def filled(template, setup):
    text = string.Template((BENCH / "peers" / template).read_text())
    target = setup.dir / template
    target.write_text(text.substitute(port=setup.port, origin=setup.origin, dir=setup.dir,
                                      connections=most_connections()))
    return target


def varnish_like(program):
    def command(s):
        secret = s.dir / "secret"
        secret.write_text("bench\n")
        s.cli_port = free_port()
        return [program, "-F", "-a", f"127.0.0.1:{s.port}", "-b", f"127.0.0.1:{s.origin}", "-n", s.dir / "name",
                "-s", s.storage, "-T", f"127.0.0.1:{s.cli_port}", "-S", secret]
    return command


def nginx(template):
    def command(s):
        for size in s.sizes:
            page = s.dir / "www" / str(size) / "page"
            page.parent.mkdir(parents=True, exist_ok=True)
            page.write_bytes(b"x" * size)
        return ["nginx", "-p", s.dir, "-c", filled(template, s)]
    return command


def floor(*more):
    return lambda s: [HELPER, "floor", "--listen", f"127.0.0.1:{s.port}", "--size", s.sizes[0], *more]


SERVERS = {s.name: s for s in [
    Server("lacquer", "cache", str(PROGRAMS / "lacquerd"), varnish_like(os.environ.get("LACQUERD", PROGRAMS / "lacquerd"))),
    Server("varnish", "cache", "varnishd", varnish_like("varnishd")),
    Server("haproxy", "cache", "haproxy", lambda s: ["haproxy", "-db", "-f", filled("haproxy.cfg", s)]),
    Server("nginx", "cache", "nginx", nginx("nginx.conf")),
    Server("squid", "cache", "squid", lambda s: ["squid", "-N", "-f", filled("squid.conf", s)]),
    Server("nginx-file", "file", "nginx", nginx("nginx-file.conf")),
    Server("floor", "floor", str(HELPER), floor()),
    Server("floor-sendfile", "floor", str(HELPER), floor("--sendfile")),
]}


class Running:
    """A started process of the bench, ended with everything it started."""

    def __init__(self, name, command, port, directory=None, patience=30):
        self.name, self.port, self.dir = name, port, directory
        self.log = open((directory or pathlib.Path("/tmp")) / f"bench-{name}.log", "wb")
        self.process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=self.log, stderr=self.log,
                                        start_new_session=True, env=dict(os.environ, PATH=f"{os.environ['PATH']}:/usr/sbin"))
        self.wait_until_it_answers(patience)

    @property
    def pid(self):
        return self.process.pid

    def wait_until_it_answers(self, patience):
        deadline = time.monotonic() + patience
        while time.monotonic() < deadline:
            if self.process.poll() is not None:
                break
            try:
                socket.create_connection(("127.0.0.1", self.port), timeout=1).close()
                return
            except OSError:
                time.sleep(0.002)
        self.stop()
        said = pathlib.Path(self.log.name).read_text(errors="replace")[-600:]
        raise RuntimeError(f"{self.name} does not start: {said}")

    def stop(self):
        from . import measure
        pids = measure.family(self.pid) if self.process.poll() is None else []
        self.process.terminate()
        try:
            self.process.wait(5)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        for pid in pids:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
        self.log.close()


class Field:
    """The origin and the chosen servers of one scenario, running side by side."""

    def __init__(self, names, sizes=(1400,), storage=STORAGE, origin_options=()):
        base = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
        self.dir = pathlib.Path(tempfile.mkdtemp(prefix="bench", dir=base))
        self.dir.chmod(0o755)
        self.servers, self.setups = {}, {}
        origin_port = free_port()
        command = [HELPER, "origin", "--listen", f"127.0.0.1:{origin_port}", *origin_options]
        self.origin = Running("origin", pinned(ORIGIN_CORE, command), origin_port, self.dir)
        try:
            for name in names:
                self.start(name, origin_port, sizes, storage)
        except BaseException:
            self.close()
            raise

    def start(self, name, origin_port, sizes, storage, label=None):
        directory = self.dir / (label or name)
        directory.mkdir()
        directory.chmod(0o777)  # peers drop their privileges and must write here
        setup = Setup(free_port(), origin_port, directory, tuple(sizes), storage)
        command = SERVERS[name].command(setup)
        self.servers[name] = Running(name, pinned(SERVER_CORE, command), setup.port, directory)
        self.setups[name] = setup

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def close(self):
        for server in self.servers.values():
            server.stop()
        self.origin.stop()
        shutil.rmtree(self.dir, ignore_errors=True)
