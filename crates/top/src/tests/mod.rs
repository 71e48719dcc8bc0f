//! Tests of the view without a terminal and without a daemon.

mod drawing;
mod events;
mod states;

use lacquer_inspect::ring::Record;
use lacquer_shm::Tag;

use lacquer_live::event::{Collector, Event, Seen, SeenFetch};
use lacquer_live::figures::Figures;
use lacquer_live::snapshot::Snapshot;
use lacquer_live::state::State;

fn record(tag: Tag, vxid: u64, text: &[u8]) -> Record<'_> {
    Record { tag, vxid, is_backend: false, text }
}

/// Adds records of one transaction. Returns its events.
fn collect(collector: &mut Collector, vxid: u64, records: &[(Tag, &[u8])]) -> Vec<Event> {
    records.iter().filter_map(|(tag, text)| collector.add(&record(*tag, vxid, text))).collect()
}

fn request(url: &str, how: &'static str, wait: f64) -> Event {
    Event::Request(Seen { url: url.to_owned(), asked: None, status: 200, how, bytes: 100, wait })
}

fn fetch(origin: &str, status: Option<u16>, wait: f64) -> Event {
    Event::Fetch(SeenFetch { origin: origin.to_owned(), status, wait })
}

/// Returns the snapshot of a daemon with some traffic.
fn busy(name: &str, urls: &[&str]) -> Snapshot {
    busy_state(name, urls).snapshot(5.0, 1_795_766_659.0)
}

fn busy_state(name: &str, urls: &[&str]) -> State {
    let mut state = State::new(name, 0.0);
    for (second, requests) in [(0.0, 100), (2.0, 150), (4.0, 250)] {
        state.counters(
            second,
            Figures::of([
                ("MAIN.uptime", 100 + second as u64),
                ("MAIN.client_req", requests),
                ("MAIN.cache_hit", requests - 50),
                ("MAIN.cache_miss", 30),
                ("MAIN.s_pass", 20),
                ("MAIN.s_resp_bodybytes", requests * 1_000_000),
                ("MAIN.n_lru_nuked", requests / 10),
                ("MAIN.n_object", 42),
                ("MEMPOOL.sess0.live", 17),
                ("SMA.s0.g_bytes", 750_000),
                ("SMA.s0.g_space", 250_000),
                ("VBE.boot.default.req", requests / 2),
                ("VBE.boot.default.happy", 2),
            ]),
        );
    }
    for url in urls {
        state.event(3.0, request(url, "hit", 0.000_2));
        state.event(3.0, request(url, "miss", 0.25));
    }
    state.event(3.0, fetch("boot.default", Some(200), 0.1));
    state.event(3.0, fetch("boot.default", Some(502), 0.3));
    state.event(3.0, fetch("boot.other", None, 0.0));
    state
}
