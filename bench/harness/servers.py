"""The servers under test and how each is started: pinned to one core, with comparable settings and the tuning
that its manual recommends. The configuration files are in bench/peers."""

import dataclasses
import os
import pathlib
import resource
import shutil
import signal
import socket
import string
import subprocess
import sys
import tempfile
import time

from . import vcls

BENCH = pathlib.Path(__file__).resolve().parent.parent
ROOT = BENCH.parent
PROGRAMS = ROOT / "target/release"
HELPER = PROGRAMS / "lacquer-bench"
# Programs in Go are installed with `go install`.
GO_PROGRAMS = pathlib.Path(os.environ.get("GOBIN", pathlib.Path.home() / "go/bin"))
PEERS_PATH = f"{os.environ['PATH']}:/usr/sbin:/sbin:{GO_PROGRAMS}"

CORES = sorted(os.sched_getaffinity(0))
SERVER_CORE = CORES[0]
LOAD_CORE = CORES[1 % len(CORES)]
ORIGIN_CORE = CORES[2] if len(CORES) > 2 else LOAD_CORE

# The folder for the files of servers and load generators: on tmpfs, if there is one.
SCRATCH = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None

# The folder for caches on a disk.
DISK = os.environ.get("BENCH_DISK", "/var/tmp")

# The size of every cache in MB. Scenarios that need more set another value.
STORAGE_MB = 256


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def pinned(core, command):
    return ["taskset", "-c", str(core), *map(str, command)]


@dataclasses.dataclass
class Setup:
    """The values that a server needs to start."""
    port: int
    origin: int
    dir: pathlib.Path
    sizes: tuple = (1400,)
    storage_mb: int = STORAGE_MB
    origin_options: tuple = ()
    floor_options: tuple = ()
    log_socket: str = ""
    http2: bool = False
    vcl: str = ""
    ssi: bool = False
    cli_port: int = 0
    pem: str = ""  # certificate and key of a listener with TLS
    tls_origin: bool = False
    http3: bool = False  # the listener has HTTP/3, too
    disk_mb: int = 0  # the size of a cache on a disk; storage_mb is then the memory in front of it
    devices: tuple = ()  # the devices of that cache; none: a file


@dataclasses.dataclass(frozen=True)
class Server:
    name: str
    kind: str  # cache, variant (not configured as for production, so never a peer), file, floor or origin
    program: str
    command: object  # a function from Setup to a list of words

    def installed(self):
        return shutil.which(self.program, path=PEERS_PATH) is not None


def most_connections():
    """Returns the limit of connections for a server. A hit takes one descriptor and a pass two, but no scenario has more
    than a few passes in progress."""
    return min(20_000, resource.getrlimit(resource.RLIMIT_NOFILE)[0] * 55 // 100)


def filled(template, setup, **more):
    """Writes a peer's file with the ports and paths of this setup into the server's folder."""
    more = {**tls_words(setup), **more}
    text = string.Template((BENCH / "peers" / template).read_text())
    target = setup.dir / template
    target.parent.mkdir(exist_ok=True)
    target.write_text(text.substitute(
        port=setup.port, origin=setup.origin, dir=setup.dir, connections=most_connections(),
        descriptors=resource.getrlimit(resource.RLIMIT_NOFILE)[0], storage_mb=setup.storage_mb, twice_storage_mb=2 * setup.storage_mb,
        storage_bytes=setup.storage_mb << 20, disk_mb=setup.disk_mb or 2 * setup.storage_mb, **more))
    return target


def tls_words(s):
    """Returns the parts of the peers' files that TLS adds. All servers have the same protocol, cipher and group, and
    sessions that clients keep in tickets."""
    words = dict.fromkeys(("ssl", "ssl_settings", "ssl_bind", "origin_scheme", "origin_ssl", "origin_server"), "")
    words["origin_scheme"] = "https" if s.tls_origin else "http"
    if s.pem:
        words["ssl"] = " ssl"
        words["ssl_settings"] = (f"ssl_certificate {s.pem}; ssl_certificate_key {s.pem}; ssl_protocols TLSv1.3; "
                                 "ssl_conf_command Ciphersuites TLS_AES_128_GCM_SHA256; ssl_ecdh_curve X25519; "
                                 "ssl_session_cache none; ssl_session_tickets on; ssl_session_timeout 1h; "
                                 "ssl_buffer_size 16k;")
        words["ssl_bind"] = (f" ssl crt {s.pem} alpn h2,http/1.1 ssl-min-ver TLSv1.3 "
                             "ciphersuites TLS_AES_128_GCM_SHA256 curves X25519")
    if s.tls_origin:
        words["origin_ssl"] = "proxy_ssl_protocols TLSv1.3; proxy_ssl_session_reuse on;"
        words["origin_server"] = " ssl verify none ssl-min-ver TLSv1.3"
    return words


def make_pem(directory):
    """Makes a certificate with a key for ECDSA with P-256, and returns the path of the file with both."""
    key, certificate, pem = (directory / name for name in ("key.pem", "certificate.pem", "bench.pem"))
    subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2",
                    "-subj", "/CN=bench", "-addext", "subjectAltName=DNS:bench,IP:127.0.0.1",
                    "-addext", "basicConstraints=critical,CA:FALSE",
                    "-keyout", key, "-out", certificate], check=True, stderr=subprocess.DEVNULL)
    pem.write_text(certificate.read_text() + key.read_text())
    pem.chmod(0o644)
    return str(pem)


TLS_CONF = """frontend = {{
    host = "127.0.0.1"
    port = "{s.port}"
}}
pem-file = "{s.pem}"
tls-protos = TLSv1.3
ciphersuites = "TLS_AES_128_GCM_SHA256"
ecdh-curve = "X25519"
"""


def listening(s):
    """Returns the options of lacquerd and varnishd for their listener."""
    if not s.pem:
        return ["-a", f"127.0.0.1:{s.port}"]
    file = s.dir / "tls.conf"
    file.write_text(TLS_CONF.format(s=s) + ("h3 = on\n" if s.http3 else ""))
    return ["-A", file]


TLS_BACKEND = """vcl 4.1;
backend default { .host = "127.0.0.1"; .port = "%d"; .ssl = 1; .ssl_verify_peer = 0; .ssl_sni = 0; }
"""


def fetching(s):
    """Returns the options that set the origin, and additional VCL."""
    if s.tls_origin:
        file = s.dir / "bench.vcl"
        file.write_text(TLS_BACKEND % s.origin)
        return ["-f", file]
    if not s.vcl:
        return ["-b", f"127.0.0.1:{s.origin}"]
    file = s.dir / "bench.vcl"
    file.write_text(vcls.HEAD.format(port=s.origin) + s.vcl)
    return ["-f", file]


def varnish_like(program):
    def command(s):
        secret = s.dir / "secret"
        secret.write_text("bench\n")
        s.cli_port = free_port()
        return [program, "-F", *listening(s), *fetching(s), "-n", s.dir / "name", *storages(s), "-T", f"127.0.0.1:{s.cli_port}", "-S", secret,
                *(["-p", "feature=+http2"] if s.http2 else [])]
    return command


def lacquer_run(s):
    return [LACQUER, "run", "--listen", f"127.0.0.1:{s.port}", "--backend", f"127.0.0.1:{s.origin}", "--name", s.dir / "name",
            "--storage", f"{s.storage_mb}M"]


def storages(s):
    """Returns the options of lacquerd and varnishd for their storage."""
    if not s.disk_mb:
        return ["-s", f"malloc,{s.storage_mb}M"]
    places = [f"{device}" for device in s.devices] or [f"{s.dir / 'store'},size={s.disk_mb}M"]
    return [word for place in places for word in ("-s", f"main=disk,{place},memory={s.storage_mb}M")]


def haproxy(logs):
    def command(s):
        to, what = (f"    log {s.log_socket} local0", "    log global\n    option httplog") if logs else ("", "")
        return ["haproxy", "-db", "-f", filled("haproxy.cfg", s, log_to=to, log_what=what)]
    return command


def write_pages(s):
    """Writes the files for servers that serve files."""
    for size in s.sizes:
        page = s.dir / "www" / str(size) / "page"
        page.parent.mkdir(parents=True, exist_ok=True)
        page.write_bytes(b"x" * size)


def caddy(s):
    write_pages(s)
    return ["env", f"HOME={s.dir}", "caddy", "run", "--adapter", "caddyfile", "--config", filled("Caddyfile", s, pem=s.pem)]


def nginx(template):
    def command(s):
        write_pages(s)
        more = {"protocol": " http2" if s.http2 else "", "ssi": "ssi on;" if s.ssi else ""}
        return ["nginx", "-p", s.dir, "-c", filled(template, s, **more)]
    return command


def trafficserver(s):
    for folder in ("cache", "log", "run"):
        (s.dir / folder).mkdir(exist_ok=True)
        (s.dir / folder).chmod(0o777)  # the server drops its privileges
    for template in (BENCH / "peers/trafficserver").iterdir():
        filled(template.relative_to(BENCH / "peers"), s)
    return ["traffic_server", f"--run-root={s.dir}/trafficserver/runroot.yaml"]


def squid_disk(*store):
    """Returns the command of a Squid with a store on a disk, which it makes first."""
    def command(s):
        words = " ".join(store).format(folder=s.dir / "store", megabytes=s.disk_mb)
        conf = filled("squid-disk.conf", s, store=words)
        return ["sh", "-c", f"[ -e {s.dir}/store ] || squid -N -z -f {conf} && exec squid -N -f {conf}"]
    return command


def floor(*more):
    return lambda s: [HELPER, "floor", "--listen", f"127.0.0.1:{s.port}", "--size", s.sizes[0], *s.floor_options, *more]


def forward(s):
    return [HELPER, "forward", "--listen", f"127.0.0.1:{s.port}", "--to", f"127.0.0.1:{s.origin}",
            *(["--close"] if "--close" in s.origin_options else [])]


def origin(s):
    return [HELPER, "origin", "--listen", f"127.0.0.1:{s.port}", *s.origin_options]


LACQUERD = os.environ.get("LACQUERD", str(PROGRAMS / "lacquerd"))
LACQUER = str(pathlib.Path(LACQUERD).parent / "lacquer")
BUILD = "profile-guided build" if pathlib.Path(LACQUERD).is_relative_to(ROOT / "target/dist") else "plain build"

SERVERS = {s.name: s for s in [
    Server("lacquer", "cache", LACQUERD, varnish_like(LACQUERD)),
    Server("lacquer-run", "variant", LACQUER, lacquer_run),
    Server("varnish", "cache", "varnishd", varnish_like("varnishd")),
    Server("haproxy", "cache", "haproxy", haproxy(logs=True)),
    Server("haproxy-nolog", "variant", "haproxy", haproxy(logs=False)),
    Server("nginx", "cache", "nginx", nginx("nginx.conf")),
    Server("squid", "cache", "squid", lambda s: ["squid", "-N", "-f", filled("squid.conf", s)]),
    Server("squid-ufs", "cache", "squid", squid_disk("ufs", "{folder}", "{megabytes}", "16", "256")),
    Server("squid-aufs", "cache", "squid", squid_disk("aufs", "{folder}", "{megabytes}", "16", "256")),
    Server("squid-rock", "cache", "squid", squid_disk("rock", "{folder}", "{megabytes}", "max-size=4000000")),
    Server("trafficserver", "cache", "traffic_server", trafficserver),
    Server("nginx-disk", "cache", "nginx", nginx("nginx-disk.conf")),
    Server("nginx-file", "file", "nginx", nginx("nginx-file.conf")),
    Server("haproxy-master", "cache", "haproxy", lambda s: ["haproxy", "-W", *haproxy(logs=True)(s)[2:]]),
    Server("caddy", "file", "caddy", caddy),
    Server("floor", "floor", str(HELPER), floor()),
    Server("floor-sendfile", "floor", str(HELPER), floor("--sendfile")),
    Server("floor-forward", "floor", str(HELPER), forward),
    Server("origin", "origin", str(HELPER), origin),
]}


def exit_cleanly_on_sigterm():
    """Turns SIGTERM into an exit, so that running servers are stopped and folders removed."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))


class Running:
    """A process of the bench; it is ended together with all processes it started."""

    def __init__(self, name, command, port, directory=None, timeout=30):
        self.name, self.port, self.dir = name, port, directory
        self.log = open((directory or pathlib.Path("/tmp")) / f"bench-{name}.log", "wb")
        self.process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=self.log, stderr=self.log,
                                        start_new_session=True, env=dict(os.environ, PATH=PEERS_PATH))
        if port:
            self.wait_until_ready(timeout)

    @property
    def pid(self):
        return self.process.pid

    def wait_until_ready(self, timeout):
        deadline = time.monotonic() + timeout
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
    """The origin and the selected servers of one scenario, running side by side."""

    def __init__(self, names, sizes=(1400,), storage_mb=STORAGE_MB, origin_options=(), floor_options=(), http2=False,
                 vcl="", ssi=False, tls=False, http3=False, disk_mb=0, scratch=SCRATCH):
        self.dir = pathlib.Path(tempfile.mkdtemp(prefix="bench", dir=scratch))
        self.dir.chmod(0o755)
        self.servers, self.setups, self.helpers = {}, {}, []
        self.settings = dict(sizes=tuple(sizes), storage_mb=storage_mb, origin_options=tuple(origin_options),
                             floor_options=floor_options, http2=http2, http3=http3, vcl=vcl, ssi=ssi, disk_mb=disk_mb, log_socket=str(self.dir / "syslog"))
        self.settings["pem"] = make_pem(self.dir) if tls else ""
        try:
            self.origin_port = free_port()
            self.help("origin", ORIGIN_CORE, self.origin_port, "--listen", f"127.0.0.1:{self.origin_port}", *origin_options)
            self.help("syslog", LOAD_CORE, None, "--socket", self.settings["log_socket"])
            for name in names:
                self.start(name)
        except BaseException:
            self.close()
            raise

    def fetch_over_tls(self):
        """Starts nginx as an origin with TLS. The servers that are started after it fetch from it."""
        pem, self.settings["pem"] = self.settings["pem"], make_pem(self.dir)
        origin = self.start("nginx-file", "tls-origin", cores=ORIGIN_CORE)
        self.settings.update(pem=pem, tls_origin=True)
        self.helpers.append(self.servers.pop("tls-origin"))
        self.origin_port = origin.port

    def help(self, program, core, port, *options):
        self.helpers.append(Running(program, pinned(core, [HELPER, program, *options]), port, self.dir))

    def start(self, name, label=None, cores=SERVER_CORE, under=(), options=(), timeout=30):
        """Starts a server and returns it. `under` (a tool) is put before its command, `options` after it."""
        label = label or name
        directory = self.dir / label.replace(" ", "-")
        directory.mkdir()
        directory.chmod(0o777)  # peers drop their privileges and write here
        setup = Setup(free_port(), self.origin_port, directory, **self.settings)
        command = [*under, *SERVERS[name].command(setup), *options]
        self.servers[label] = Running(name, pinned(cores, command), setup.port, directory, timeout)
        self.setups[label] = setup
        return self.servers[label]

    def restart(self, label, name, cores=SERVER_CORE, under=(), timeout=60):
        """Starts a server again that has ended, with its folder and port."""
        setup = self.setups[label]
        command = pinned(cores, [*under, *SERVERS[name].command(setup)])
        self.servers[label] = Running(name, command, setup.port, setup.dir, timeout)
        return self.servers[label]

    def processes_of(self, server):
        """Returns a server and the processes that work for it: the origin, and the receiver of its log."""
        return [server, *self.helpers]

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def close(self):
        for running in [*self.servers.values(), *self.helpers]:
            running.stop()
        shutil.rmtree(self.dir, ignore_errors=True)
