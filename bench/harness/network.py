"""A network namespace for the bench: only a loopback device, with Linux's default settings. The host's tuning,
firewall and other connections do not influence the results."""

import contextlib
import ctypes
import fcntl
import os
import pathlib
import socket
import struct
import sys

IPV4 = pathlib.Path("/proc/sys/net/ipv4")  # of the network namespace of the reader or writer
CONGESTION = IPV4 / "tcp_congestion_control"
PERMITTED = IPV4 / "tcp_allowed_congestion_control"
LINUX_DEFAULT = "cubic"

NEW_NETWORK = 0x40000000
SET_INTERFACE_FLAGS = 0x8914
IS_UP = 1

libc = ctypes.CDLL(None, use_errno=True)


def enter():
    """Moves this program, and the programs it starts later, into the namespace. Needs root; others use the host's network."""
    host = current()
    try:
        called("unshare", NEW_NETWORK)
    except OSError as error:
        print(f"using the host's network, because a separate one was refused: {error}", file=sys.stderr)
        return
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        fcntl.ioctl(any_socket, SET_INTERFACE_FLAGS, struct.pack("16sh22x", b"lo", IS_UP))
    try:
        choose_default(host, current())
    except OSError as error:
        print(f"keeping the host's TCP settings, because {LINUX_DEFAULT} was refused: {error}", file=sys.stderr)


def choose_default(host, own):
    if CONGESTION.read_text().strip() == LINUX_DEFAULT:
        return
    # Only the host's namespace can permit a congestion control for others.
    with visiting(host, own):
        permitted = PERMITTED.read_text()
        PERMITTED.write_text(f"{permitted.strip()} {LINUX_DEFAULT}")
    try:
        CONGESTION.write_text(LINUX_DEFAULT)
    finally:
        with visiting(host, own):
            PERMITTED.write_text(permitted)


@contextlib.contextmanager
def visiting(there, home):
    called("setns", there, NEW_NETWORK)
    try:
        yield
    finally:
        called("setns", home, NEW_NETWORK)


def current():
    return os.open("/proc/self/ns/net", os.O_RDONLY | os.O_CLOEXEC)


def called(function, *arguments):
    if getattr(libc, function)(*arguments) != 0:
        error = ctypes.get_errno()
        raise OSError(error, f"{function}: {os.strerror(error)}")
