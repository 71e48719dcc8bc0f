"""A client of the management protocol, to time commands without starting a program for each."""

import hashlib
import socket


class Cli:
    def __init__(self, port, secret_file):
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=300)
        self.stream = self.socket.makefile("rb")
        status, challenge = self.read()
        if status == 107:
            mark = challenge[:32] + b"\n"
            secret = open(secret_file, "rb").read()
            status, _ = self.command("auth " + hashlib.sha256(mark + secret + mark).hexdigest())
        if status != 200:
            raise RuntimeError(f"login at the management port failed: {status}")

    @classmethod
    def of(cls, setup):
        return cls(setup.cli_port, setup.dir / "secret")

    def read(self):
        status, length = self.stream.readline().split()
        body = self.stream.read(int(length) + 1)
        return int(status), body[:-1]

    def command(self, line):
        self.socket.sendall(line.encode() + b"\n")
        return self.read()

    def ok(self, line):
        status, text = self.command(line)
        if status != 200:
            raise RuntimeError(f"{line.splitlines()[0]}: {status} {text.decode(errors='replace')}")
        return text

    def close(self):
        self.socket.close()
