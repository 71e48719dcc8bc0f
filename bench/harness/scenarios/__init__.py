"""The scenarios, each a published comparison or a cost that users pay. A scenario is a function that takes the options
and returns Results: for every server the values of every round."""

from .bodies import esi, gzip
from .common import Options, steadier
from .disk_mixes import disk_beside, disk_pair, disk_replies
from .disks import disk_fill, disk_hit, disk_restart
from .management import bans, restart, startup, vcl_cost, vcl_load, warm_restart
from .modules import modules
from .names import names
from .objects import churn, memory
from . import tls
from .upgrades import upgrade
from .traffic import burden, connections, dynamic, hit_sizes, http2, image, latency, misses, news, passes, reactors
from .watched import watched

SCENARIOS = {
    "hit-small": hit_sizes("hit-small", 1400, "1.4 kB", steadier),
    "hit-16k": hit_sizes("hit-16k", 16_000, "16 kB"),
    "hit-100k": hit_sizes("hit-100k", 100_000, "100 kB", steadier),
    "hit-1m": hit_sizes("hit-1m", 1_000_000, "1 MB"),
    "http2": http2,
    "connections": connections,
    "pass": passes,
    "miss": misses,
    "latency": latency,
    "esi": esi,
    "gzip": gzip,
    "dynamic": dynamic,
    "news": news,
    "image": image,
    "memory": memory,
    "vcl-load": vcl_load,
    "vcl-cost": vcl_cost,
    "bans": bans,
    "restart": restart,
    "reactors": reactors,
    "startup": startup,
    "upgrade": upgrade,
    "tls-hit": tls.small,
    "tls-100k": tls.large,
    "tls-handshake": tls.full,
    "tls-resume": tls.resumed,
    "h2-tls": tls.http2,
    "h3-hit": tls.http3_small,
    "h3-100k": tls.http3_large,
    "tls-origin": tls.origin,
}

# Long scenarios, and those that need root and a disk. They run only when they are named.
BY_NAME_ONLY = {"churn": churn, "burden": burden, "tls-idle": tls.idle, "disk-hit": disk_hit, "disk-fill": disk_fill, "disk-restart": disk_restart,
                "disk-beside": disk_beside, "disk-pair": disk_pair, "disk-replies": disk_replies,
                "warm-restart": warm_restart, "names": names, "modules": modules, "watched": watched}

__all__ = ["BY_NAME_ONLY", "SCENARIOS", "Options"]
