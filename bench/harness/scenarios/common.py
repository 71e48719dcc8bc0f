"""Common parts of scenarios: the options, the usual columns, and rounds in which every server is driven once."""

import contextlib
import dataclasses
import random

from .. import load
from ..cli import Cli
from ..result import Column, Result
from ..servers import SERVERS, Field

CACHES = ("lacquer", "varnish", "haproxy", "nginx", "squid", "trafficserver")
FLOORS = ("floor", "floor-sendfile")
VCL_SERVERS = ("lacquer", "varnish")

THROUGHPUT = (Column("rps", "requests/s", 0, "more"), Column("cpu_us", "CPU µs/request"), Column("p50", "p50 ms"),
              Column("p99", "p99 ms"), Column("max", "max ms", 1), Column("memory_mb", "memory MB", 0),
              Column("fetched", "% fetched", 0, ""), Column("errors", "errors", 0, ""))
PACED = (Column("rps", "requests/s", 0, ""), Column("p50", "p50 ms"), Column("p99", "p99 ms"), Column("p99.9", "p99.9 ms"),
         Column("max", "max ms", 1), Column("cpu_us", "CPU µs/request"), Column("late_p99", "sent late, p99 ms", 2, ""),
         Column("errors", "errors", 0, ""))
TRANSACTIONS = (Column("rps", "transactions/s", 0, "more"), *THROUGHPUT[1:])


@dataclasses.dataclass
class Options:
    rounds: int
    seconds: float
    servers: list
    objects: int
    minutes: float

    def chosen(self, names):
        return [n for n in names if (not self.servers or n in self.servers) and SERVERS[n].installed()]


def steadier(options):
    """Returns options with more rounds, for scenarios with an aim."""
    return dataclasses.replace(options, rounds=options.rounds * 3)


def token():
    """Returns a token that makes the URLs of this run differ from those of any other."""
    return f"{random.getrandbits(40):x}"


def interleaved(result, options, names, drive, warm, around=contextlib.nullcontext, **field):
    """Runs all servers side by side and drives each once per round. A drive runs within the context `around` of its
    server's processes."""
    with Field(options.chosen(names), **field) as running:
        for server in running.servers.values():
            warm(server.port)
        for _ in range(options.rounds):
            for name, server in mixed(running.servers.items()):
                asks = SERVERS[name].kind in ("cache", "variant")
                with around(running.processes_of(server)):
                    result.add(name, load.measured(server, drive, running.origin_port if asks else None))
    return result


def keep_idle(running):
    """Sets longer timeouts for servers that close idle and slow clients after seconds."""
    for name in VCL_SERVERS:
        if name in running.setups:
            cli = Cli.of(running.setups[name])
            cli.ok("param.set timeout_idle 300")
            cli.close()


def mixed(turns, chance=random):
    """Returns the servers in a new random order, so that effects of the order and periodic activity of the machine affect
    all of them equally."""
    turns = list(turns)
    return chance.sample(turns, len(turns))


def throughput(id, title, columns=THROUGHPUT, primary="cpu_us"):
    return Result(id, title, list(columns), primary)
