"""A network of the bench's own: nothing but a loopback, with what Linux sets when nobody has changed it. What the
host is tuned for, its firewall and its other connections say nothing about the servers."""

import fcntl
import os
import pathlib
import shutil
import socket
import struct
import sys

CONGESTION = pathlib.Path("/proc/sys/net/ipv4/tcp_congestion_control")
LINUX_DEFAULT = "cubic"
INSIDE = "BENCH_HAS_OWN_NETWORK"

SET_INTERFACE_FLAGS = 0x8914
IS_UP = 1


def is_own():
    return INSIDE in os.environ


def enter():
    """Starts this program again in a network of its own. Only root may; for others the host's has to do."""
    if os.geteuid() != 0 or not shutil.which("unshare"):
        print("sharing the host's network: only root may have one of its own", file=sys.stderr)
        return
    os.execvpe("unshare", ["unshare", "--net", sys.executable, *sys.argv], {**os.environ, INSIDE: "1"})


def prepare():
    """Called within the new network, before anything uses it."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        fcntl.ioctl(any_socket, SET_INTERFACE_FLAGS, struct.pack("16sh22x", b"lo", IS_UP))
    CONGESTION.write_text(LINUX_DEFAULT)
