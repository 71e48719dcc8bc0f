//! Counters with the names of Varnish's locks, for tools that display them.
//!
//! Lacquer has other locks, so nearly all of these counters stay zero. Only `conn_pool` is updated: it counts the
//! sets of idle connections, which in Varnish have one lock each.

use lacquer_net::endpoint;
use lacquer_shm::vsc::Lck;
use lacquer_shm::{Segment, VsmDir};

const CLASSES: [&str; 23] = [
    "ban",
    "busyobj",
    "cli",
    CONN_POOL,
    "dead_pool",
    "director",
    "exp",
    "hcb",
    "lru",
    "mempool",
    "objhdr",
    "perpool",
    "pipestat",
    "probe",
    "sess",
    "sma",
    "vbe",
    "vcapace",
    "vcl",
    "vxid",
    "waiter",
    "wq",
    "wstat",
];
const CONN_POOL: &str = "conn_pool";

pub struct Locks {
    /// The counters by lock. They are visible for as long as this value exists.
    classes: Vec<(&'static str, Segment<Lck>)>,
}

impl Locks {
    pub fn open(vsm: &VsmDir) -> Locks {
        let open = |&name| Segment::create(vsm, name).ok().map(|segment| (name, segment));
        Locks { classes: CLASSES.iter().filter_map(open).collect() }
    }

    pub fn publish(&self) {
        if let Some((_, counters)) = self.classes.iter().find(|(name, _)| *name == CONN_POOL) {
            let (created, dropped) = endpoint::created_and_dropped();
            counters.creat.set(created);
            counters.destroy.set(dropped);
        }
    }
}
