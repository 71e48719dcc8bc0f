//! The counters in shared memory.

use lacquer_shm::vsc::{Format, SETS, SetDesc};
use lacquer_tools::manual::{Entry, Group, Reference};

use super::sentence;

const ABOUT: &str = "Counters count events, and gauges show a current amount. `lacquer stat` prints those that are not zero, \
    `lacquer stat NAME` some, and `varnishstat` shows them live.\n\n\
    The first word of a name is its set. The sets `MAIN` and `MGT` exist once; of the others there is one for each \
    backend, store and so on, whose name follows: `VBE.boot.default.conn`.\n\n\
    Those to watch are `MAIN.cache_hit` and `MAIN.cache_miss`, `MAIN.client_req`, `MAIN.backend_fail`, `MAIN.n_lru_nuked` (the storage is too small), \
    `MAIN.sess_dropped` and `MAIN.sess_fail` (the daemon refuses clients), and `MGT.child_panic`.";

/// The sets of which there is one.
const SINGLE: [&str; 2] = ["main", "mgt"];

pub fn reference(version: String) -> Reference {
    Reference {
        name: "lacquer-counters",
        title: "Counters",
        version,
        summary: "counters of the daemon",
        about: ABOUT.to_owned(),
        groups: SETS.iter().map(|set| group(set)).collect(),
        see_also: &["lacquer(1)", "lacquer-params(7)", "varnishstat(1)"],
    }
}

fn group(set: &SetDesc) -> Group {
    let instance = if SINGLE.contains(&set.name) { "" } else { "NAME" };
    let prefix = set.ident(instance);
    let entries = set.counters.iter().map(|counter| {
        let mut facts = vec![counter.semantics.name().to_owned()];
        match counter.format {
            Format::Bytes => facts.push("in bytes".to_owned()),
            Format::Duration => facts.push("in seconds".to_owned()),
            Format::Integer | Format::Bitmap => {}
        }
        Entry { name: format!("{prefix}.{}", counter.name), facts, text: sentence(counter.docs) }
    });
    let title = format!("{}: {}", set.name.to_ascii_uppercase(), set.oneliner);
    Group { title, about: sentence(set.docs), entries: entries.collect() }
}
