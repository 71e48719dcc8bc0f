//! The record of all events of a world, and the rules that must hold:
//!
//! - Every request gets one complete response of its own, or the connection ends.
//! - A body is that of one response of the origin for this page and variant, and was complete there, whether it was
//!   compressed or decompressed on the way. A part is the part that was requested. A page that includes others contains
//!   each of them whole.
//! - A 304 names the response that the client has, and a client is not sent a response again that it has.
//! - An object that was invalidated before a request began, or that is older than its grace, is not delivered to it.
//! - A page that stays fresh is fetched once, however many clients request it at once. A response for one request
//!   reaches no other request.
//! - No page is refused while all origins respond.
//! - When the worker is killed, the next one, which takes over its memory, keeps all these rules.
//! - The response to a request that was sent while the worker is drained is the last one of its connection.
//! - An upload arrives at the origin as the client sent it, or not at all.
//! - A pipe carries all bytes in both directions.
//! - The engine does not wait for a peer while it holds back bytes for it. A connection ends with the farewell of its
//!   transport after a whole response, and each direction of a pipe after all bytes.
//! - An origin that fails its probes gets no requests, and no origin gets more simultaneous requests than it allows.

mod compose;
mod judge;
mod pipes;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::rc::Rc;

use lacquer_http::date;
use lacquer_net::memory::Peer;
use lacquer_sources::clock;
use tokio::sync::Notify;

use crate::http::Head;
use crate::packing;
use crate::page;
use crate::page_request::Key;
use crate::site::{self, Include};

pub use judge::Got;
pub use pipes::{Direction, PipeNumber};

/// A response of an origin.
#[derive(Clone, Debug)]
pub struct Sent {
    pub key: Key,
    pub status: u16,
    /// The length of its text without includes.
    pub length: usize,
    pub includes: Vec<Include>,
    pub is_packed: bool,
    /// Whether the bytes are those of its body.
    pub is_sound: bool,
    /// Whether the origin sends all of it at once, without damage.
    pub is_whole: bool,
    /// Whether the origin has sent the rest after it was cut short.
    pub is_completed: bool,
    /// Its lifetime in seconds.
    pub max_age: f64,
}

impl Sent {
    /// Returns the body, in the form that is sent. `number` is that of the response.
    pub fn body(&self, number: usize) -> Vec<u8> {
        let text = site::markup(&page::body(number, self.length), &self.includes);
        if self.is_packed { packing::pack(&text) } else { text }
    }
}

/// The history of a response.
#[derive(Clone, Debug)]
struct Fate {
    begun: f64,
    /// The time at which the origin had sent all that it sends.
    ended: Option<f64>,
    /// The time at which a client first received a part of it.
    seen: Option<f64>,
    fresh_until: f64,
    /// The number of requests that received it.
    recipients: u32,
}

/// A purge or ban of a page.
#[derive(Clone, Debug)]
struct Invalidation {
    path: String,
    requested: f64,
    done: f64,
    /// The last request that began before it was done. Times are not sufficient, because several events can have the
    /// same time.
    after: u64,
}

#[derive(Debug)]
struct Upload {
    body: Vec<u8>,
    /// Whether the client truncates or damages it.
    is_broken: bool,
}

/// A pipe, with the number of bytes in each direction.
#[derive(Debug)]
struct Pipe {
    up: usize,
    down: usize,
    /// Whether one side leaves early.
    is_left: bool,
}

/// The properties of the world on which the rules depend.
#[derive(Clone, Copy, Debug, Default)]
pub struct Rules {
    /// The time in seconds for which a stale response may be delivered.
    pub grace: f64,
    /// Whether a failed include ends the response.
    pub onerror: bool,
    /// Bodies may end early within the cache: the storage is too small for all pages, or fails to read some.
    pub loses_bodies: bool,
    /// Requests may be refused: the origins fail, or the storage is too small.
    pub has_excuse: bool,
}

#[derive(Default)]
pub struct Ledger {
    prints_events: bool,
    rules: Rules,
    sent: Vec<Sent>,
    fates: Vec<Fate>,
    invalidations: Vec<Invalidation>,
    /// Is told of each invalidation that is a purge.
    purge: Rc<Notify>,
    fetches: BTreeMap<Key, u32>,
    uploads: Vec<Upload>,
    pipes: Vec<Pipe>,
    /// The time of the last load of a VCL, which restarts the probes.
    loaded: f64,
    /// The time at which the worker began to be drained.
    drained: Option<f64>,
    faults: Vec<String>,
    /// A hash of all events.
    trace: u64,
    requests: u64,
    complete: u64,
}

/// The maximum time between the generation of a response by an origin and its arrival, in seconds.
const ARRIVAL: f64 = 3.0;
/// The time in seconds after which an origin that fails its probes gets no more requests.
const NOTICED: f64 = 10.0;
/// The time in seconds after which all reactors know that the worker is drained.
const DRAIN_NOTICED: f64 = 0.2;
/// The modification time of the first response, in seconds since the epoch.
const MODIFIED: f64 = 1_700_000_000.0;

/// Returns the modification time of a response, which is a second after that of the one before it.
pub fn last_modified(response: usize) -> String {
    String::from_utf8_lossy(&date::format(MODIFIED + response as f64)).into_owned()
}

impl Ledger {
    pub fn new(prints_events: bool, rules: Rules) -> Ledger {
        Ledger { prints_events, rules, ..Ledger::default() }
    }

    /// Records an event, for the comparison of two runs and for the printed log.
    pub fn note(&mut self, what: fmt::Arguments<'_>) {
        let line = format!("{:.6} {what}", clock::real());
        for byte in line.bytes() {
            self.trace = (self.trace ^ u64::from(byte)).wrapping_mul(0x0100_0000_01B3);
        }
        if self.prints_events {
            println!("{line}");
        }
    }

    pub fn fault(&mut self, text: &str) {
        self.note(format_args!("fault: {text}"));
        self.faults.push(format!("{:.6}: {text}", clock::real()));
    }

    /// Checks that the engine never waited for this peer while it held back bytes for it.
    pub fn check_flushed(&mut self, peer: &Peer, whose: &str) {
        if peer.was_forgotten() {
            self.fault(&format!("the engine waits for {whose} and holds back bytes for it"));
        }
    }

    /// Records that the worker is being drained.
    pub fn drain(&mut self) {
        self.note(format_args!("the worker is drained"));
        self.drained = Some(clock::real());
    }

    /// Records that the worker is killed. Pages that may not have arrived in full may be fetched again.
    pub fn killed(&mut self) {
        self.note(format_args!("the worker is killed"));
        let now = clock::real();
        let has_arrived = |fate: &Fate| fate.ended.is_some_and(|ended| ended + ARRIVAL < now);
        let arrived: BTreeSet<&Key> = self
            .sent
            .iter()
            .zip(&self.fates)
            .filter(|(_, fate)| has_arrived(fate))
            .map(|(sent, _)| &sent.key)
            .collect();
        self.fetches.retain(|key, _| arrived.contains(key));
    }

    /// Checks that the connection ends after the response to an HTTP/1 request that was sent at `requested`.
    pub fn check_drained(&mut self, requested: f64, response: &Head) {
        let is_late = self.drained.is_some_and(|drained| requested > drained + DRAIN_NOTICED);
        if is_late && response.get("connection") != Some("close") {
            self.fault(
                "a response does not announce the end of its connection, although the worker is drained",
            );
        }
    }

    pub fn faults(&self) -> &[String] {
        &self.faults
    }

    pub fn trace(&self) -> u64 {
        self.trace
    }

    /// Returns the numbers of requests, of complete responses, and of responses of origins.
    pub fn counts(&self) -> (u64, u64, usize) {
        (self.requests, self.complete, self.sent.len())
    }

    /// Records a response that an origin starts to send. Returns its number.
    pub fn send(&mut self, sent: Sent) -> usize {
        let (number, now) = (self.sent.len(), clock::real());
        self.note(format_args!("response {number}: {sent:?}"));
        *self.fetches.entry(sent.key.clone()).or_default() += 1;
        self.fates.push(Fate {
            begun: now,
            ended: None,
            seen: None,
            fresh_until: now + sent.max_age,
            recipients: 0,
        });
        self.sent.push(sent);
        number
    }

    /// Records that an origin has sent all that it sends of a response.
    pub fn end(&mut self, response: usize) {
        self.fates[response].ended = Some(clock::real());
    }

    /// Records that an origin sends the rest of a response that was cut short.
    pub fn complete(&mut self, response: usize) {
        self.note(format_args!("response {response} is completed"));
        self.sent[response].is_completed = true;
    }

    /// Returns the record of a response.
    pub fn sent(&self, response: usize) -> Option<&Sent> {
        self.sent.get(response)
    }

    /// Records that an origin confirms a response by a 304 or by the rest of its body.
    pub fn confirm(&mut self, key: &Key, response: usize, max_age: f64) {
        self.note(format_args!("response {response} is confirmed for {max_age} s"));
        match self.sent.get(response) {
            Some(sent) if sent.key == *key => {
                let fate = &mut self.fates[response];
                fate.fresh_until = fate.fresh_until.max(clock::real() + max_age);
            }
            sent => {
                let of = sent.map(|sent| sent.key.clone());
                self.fault(&format!("response {response} to {of:?} is to be confirmed for {key:?}"));
            }
        }
    }

    /// Records that a VCL was loaded.
    pub fn loaded(&mut self, name: &str) {
        self.note(format_args!("{name} is loaded"));
        self.loaded = clock::real();
    }

    /// Checks that a page may be fetched from an origin that has failed its probes for a while.
    pub fn check_health(&mut self, path: &str, since: f64) {
        if self.loaded.max(since) + NOTICED < clock::real() {
            self.fault(&format!("{path} is fetched from an origin that is sick since {since:.6}"));
        }
    }

    pub fn request(&mut self) -> u64 {
        self.requests += 1;
        self.requests
    }

    pub fn invalidated(&mut self, path: &str, requested: f64) {
        self.note(format_args!("{path} is invalidated, requested at {requested:.6}"));
        self.invalidations.push(Invalidation {
            path: path.to_owned(),
            requested,
            done: clock::real(),
            after: self.requests,
        });
    }

    pub fn purged(&mut self, path: &str, requested: f64) {
        self.invalidated(path, requested);
        self.purge.notify_waiters();
    }

    /// Returns what is told of the next purges.
    pub fn purge(&self) -> Rc<Notify> {
        Rc::clone(&self.purge)
    }

    /// Records the head of a response that a client received.
    pub fn saw(&mut self, head: &Head) {
        if let Some(fate) = head.response().and_then(|response| self.fates.get_mut(response)) {
            fate.seen.get_or_insert_with(clock::real);
        }
    }

    /// Records an upload that a client is about to send. Returns its number.
    pub fn upload(&mut self, body: Vec<u8>) -> usize {
        self.uploads.push(Upload { body, is_broken: false });
        self.uploads.len() - 1
    }

    /// Records that an upload is malformed, or ends early.
    pub fn break_upload(&mut self, upload: usize, how: &str) {
        self.note(format_args!("upload {upload} is broken: {how}"));
        self.uploads[upload].is_broken = true;
    }

    /// Checks an upload that has arrived at an origin in full.
    pub fn check_upload(&mut self, upload: usize, body: &[u8]) {
        match self.uploads.get(upload) {
            Some(sent) if sent.is_broken => {
                self.fault(&format!("upload {upload} arrived in full, which its client did not send"));
            }
            Some(sent) if sent.body == body => {}
            _ => self.fault(&format!("upload {upload} arrived as {} other bytes", body.len())),
        }
    }

    /// Checks that each page that stays fresh was fetched once.
    pub fn check_fetches(&mut self) {
        let again: Vec<_> =
            self.fetches.iter().filter(|(key, n)| site::is_calm(&key.path) && **n > 1).collect();
        let texts: Vec<_> = again.iter().map(|(key, n)| format!("{key:?} was fetched {n} times")).collect();
        for text in texts {
            self.fault(&text);
        }
    }
}
