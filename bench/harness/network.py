"""A network of the bench's own: nothing but a loopback, with what Linux sets when nobody has changed it. What the
host is tuned for, its firewall and its other connections say nothing about the servers."""

import ctypes
import fcntl
import os
import pathlib
import socket
import struct
import sys

IPV4 = pathlib.Path("/proc/sys/net/ipv4")  # of the network that who reads or writes it is in
CONGESTION = IPV4 / "tcp_congestion_control"
PERMITTED = IPV4 / "tcp_allowed_congestion_control"
LINUX_DEFAULT = "cubic"

NEW_NETWORK = 0x40000000
SET_INTERFACE_FLAGS = 0x8914
IS_UP = 1

libc = ctypes.CDLL(None, use_errno=True)


def enter():
    """This program and what it starts from now on are in it. Only root may; for others the host's has to do."""
    try:
        change_to_own()
    except OSError as error:
        print(f"sharing the host's network, as one of its own is refused: {error}", file=sys.stderr)


def change_to_own():
    host = os.open("/proc/self/ns/net", os.O_RDONLY | os.O_CLOEXEC)
    called("unshare", NEW_NETWORK)
    own = os.open("/proc/self/ns/net", os.O_RDONLY | os.O_CLOEXEC)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        fcntl.ioctl(any_socket, SET_INTERFACE_FLAGS, struct.pack("16sh22x", b"lo", IS_UP))
    if CONGESTION.read_text().strip() != LINUX_DEFAULT:
        # What a network may choose from, only the host's can say.
        called("setns", host, NEW_NETWORK)
        permitted = PERMITTED.read_text()
        PERMITTED.write_text(f"{permitted.strip()} {LINUX_DEFAULT}")
        try:
            called("setns", own, NEW_NETWORK)
            CONGESTION.write_text(LINUX_DEFAULT)
        finally:
            called("setns", host, NEW_NETWORK)
            PERMITTED.write_text(permitted)
        called("setns", own, NEW_NETWORK)


def called(function, *arguments):
    if getattr(libc, function)(*arguments) != 0:
        error = ctypes.get_errno()
        raise OSError(error, f"{function}: {os.strerror(error)}")
