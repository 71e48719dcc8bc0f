//! Simulated origins. Most responses are correct; some are late, damaged, truncated, too long, or no responses.

use std::cell::RefCell;
use std::fmt::Write as _;
use std::io;
use std::rc::{Rc, Weak};
use std::time::Duration;

use lacquer_net::memory::{self, Dialed, Peer};
use lacquer_sources::clock;
use rustix::io::Errno;

use crate::http::{self, Broken, Head};
use crate::ledger::{Ledger, Sent, last_modified};
use crate::packing;
use crate::page::{self, SHORTEST};
use crate::page_request::Key;
use crate::pipe;
use crate::rest::Rest;
use crate::site;
use crate::wire::{self, Chance, Incoming, below, one_of, pause, percent};

#[derive(Clone)]
pub struct Origin {
    pub chance: Chance,
    pub ledger: Rc<RefCell<Ledger>>,
    /// The share of responses that are faulty, in percent.
    pub faulty: u64,
    pub longest: usize,
    /// Most bodies are long and have a length, half of the faults cut them short, and connections are short, so that the
    /// engine keeps parts. It keeps only those of the first response of a connection. The head of a rest is often wrong.
    pub cuts: bool,
    pub pages: u64,
    /// The periods in which it fails its probes (start and end), in seconds since the epoch.
    pub sick: Rc<[(f64, f64)]>,
    /// The number of simultaneous requests that it allows.
    pub most_at_once: Option<usize>,
    /// The connections with a request in progress.
    pub busy: Rc<RefCell<Vec<Weak<Peer>>>>,
}

/// A fault of a response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    /// The connection ends before the response.
    Nothing,
    /// The body ends early, and the connection with it.
    Cut,
    /// The connection is reset within the body.
    Reset,
    /// Bytes follow that belong to no request.
    Surplus,
    /// No response arrives for longer than any timeout.
    Silence,
    /// The body pauses for longer than any timeout.
    Stall,
    Garbage,
    /// The body is compressed, and one bit of it is wrong.
    Damage,
    /// The body is compressed, and ends early without an end of the connection.
    Shortened,
    /// The rest of a response is not what its head says. Whole responses do not have this fault.
    Lie,
}

const FAULTS: [Fault; 10] = [
    Fault::Nothing,
    Fault::Cut,
    Fault::Reset,
    Fault::Surplus,
    Fault::Silence,
    Fault::Stall,
    Fault::Garbage,
    Fault::Damage,
    Fault::Shortened,
    Fault::Lie,
];

impl Fault {
    /// Returns whether the connection ends or pauses within the body.
    pub(crate) fn is_cut(fault: Option<Fault>) -> bool {
        matches!(fault, Some(Fault::Cut | Fault::Reset | Fault::Stall))
    }
}

/// The fault of a response, its page, its lifetime in seconds, and the fields that state it.
type Kind = (Option<Fault>, Key, f64, String);

/// Longer than any timeout of the engine.
const FOR_EVER: Duration = Duration::from_secs(1000);

impl Origin {
    /// Serves at a path until the world ends.
    pub fn listen(&self, path: &str) {
        let origin = self.clone();
        memory::serve_at(path, move || origin.dial());
    }

    fn dial(&self) -> Dialed {
        let chance = &self.chance;
        let after = Duration::from_micros(below(chance, one_of(chance, &[100, 2000, 50_000])));
        if percent(chance, self.faulty / 4) {
            return Dialed { after, outcome: Err(Errno::CONNREFUSED.into()) };
        }
        let (stream, peer) = memory::connection(wire::limits(chance), wire::ends(chance));
        let origin = self.clone();
        tokio::task::spawn_local(async move {
            let peer = Rc::new(peer);
            // An error means that the engine has closed the connection.
            let _ = origin.serve(peer.clone()).await;
            origin.ledger.borrow_mut().check_flushed(&peer, "an origin");
        });
        Dialed { after, outcome: Ok(stream) }
    }

    async fn serve(&self, peer: Rc<Peer>) -> Result<(), Broken> {
        let chance = &self.chance;
        let mut incoming = Incoming { slowness: one_of(chance, &[0, 0, 0, 3]), ..Incoming::default() };
        for _ in 0..=below(chance, if self.cuts { 2 } else { 50 }) {
            let Some(head) = http::head(&mut incoming, &peer, chance).await? else { return Ok(()) };
            if head.word(1) == "/probe" {
                return Ok(self.answer_probe(&peer).await?);
            }
            if let Some(since) = self.sick_since() {
                self.ledger.borrow_mut().check_health(head.word(1), since);
            }
            if head.word(1).starts_with("/pipe/") {
                let leaves = percent(chance, self.faulty);
                return pipe::of_origin(&head, &peer, &mut incoming, (chance, &self.ledger), leaves).await;
            }
            self.check_busy(&peer);
            let body = http::body(&head, &mut incoming, &peer, chance).await?;
            if let Some(upload) = head.number("x-upload") {
                self.ledger.borrow_mut().check_upload(upload, &body);
            }
            let stays = self.respond(&head, &peer).await;
            self.is_done(&peer);
            if !stays? {
                return Ok(());
            }
        }
        Ok(())
    }

    /// Returns the time since which the origin fails its probes.
    fn sick_since(&self) -> Option<f64> {
        let now = clock::real();
        self.sick.iter().find(|(from, to)| (*from..*to).contains(&now)).map(|(from, _)| *from)
    }

    async fn answer_probe(&self, peer: &Peer) -> io::Result<()> {
        if self.sick_since().is_none() {
            return wire::write(peer, b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n", &self.chance).await;
        }
        match below(&self.chance, 3) {
            0 => tokio::time::sleep(FOR_EVER).await,
            1 => peer.write_all(b"HTTP/1.1 503 Sick\r\nConnection: close\r\n\r\n").await?,
            _ => {}
        }
        Ok(())
    }

    /// Records that a connection has a request, and checks the limit of simultaneous requests.
    fn check_busy(&self, peer: &Rc<Peer>) {
        let mut busy = self.busy.borrow_mut();
        busy.push(Rc::downgrade(peer));
        busy.retain(|peer| peer.upgrade().is_some_and(|peer| !peer.is_closed()));
        if self.most_at_once.is_some_and(|most| busy.len() > most) {
            self.ledger.borrow_mut().fault(&format!("an origin gets {} requests at once", busy.len()));
        }
    }

    /// Returns whether the connection stays open.
    async fn respond(&self, request: &Head, peer: &Peer) -> io::Result<bool> {
        let chance = &self.chance;
        let path = request.word(1);
        let is_calm = site::is_calm(path);
        let fault = (!is_calm && percent(chance, self.faulty)).then(|| self.fault());
        match fault {
            Some(Fault::Nothing) => return Ok(false),
            Some(Fault::Silence) => tokio::time::sleep(FOR_EVER).await,
            Some(Fault::Garbage) => {
                peer.write_all(b"\r\nSSH-2.0-OpenSSH_9.2\r\n").await?;
                return Ok(false);
            }
            _ => {}
        }
        let longest = one_of(chance, &[1, 10, 300]);
        pause(chance, longest).await;
        let key = Key { path: path.to_owned(), variant: request.number("x-variant").unwrap_or(0) as u64 };
        let max_age = if is_calm { 3600 } else { one_of(chance, &[0, 1, 5, 60]) };
        let freshness = format!("Cache-Control: max-age={max_age}\r\nVary: X-Variant\r\n");
        let known = request.get("if-none-match").and_then(page::response_of_tag);
        if let Some(known) = known.filter(|_| percent(chance, 60)) {
            self.ledger.borrow_mut().confirm(&key, known, f64::from(max_age));
            let head = format!("HTTP/1.1 304 Not Modified\r\nETag: \"{known}\"\r\n{freshness}\r\n");
            wire::write(peer, head.as_bytes(), chance).await?;
            return Ok(true);
        }
        let kind = (fault, key, f64::from(max_age), freshness);
        match Rest::requested(request, &kind.1, &self.ledger).filter(|_| percent(chance, 70)) {
            Some(rest) => self.rest(rest, peer, kind).await,
            None => self.page(request, peer, kind).await,
        }
    }

    fn fault(&self) -> Fault {
        if self.cuts && percent(&self.chance, 50) { Fault::Cut } else { one_of(&self.chance, &FAULTS) }
    }

    async fn rest(
        &self,
        rest: Rest,
        peer: &Peer,
        (fault, key, max_age, freshness): Kind,
    ) -> io::Result<bool> {
        let chance = &self.chance;
        let is_lie =
            fault == Some(Fault::Lie) || self.faulty > 0 && percent(chance, if self.cuts { 40 } else { 20 });
        let mut bytes = rest.bytes(&freshness, is_lie.then_some(chance));
        if Fault::is_cut(fault) {
            bytes.truncate(bytes.len() - 1 - below(chance, rest.length() as u64) as usize);
        } else if !is_lie {
            self.ledger.borrow_mut().complete(rest.response);
        }
        self.ledger.borrow_mut().confirm(&key, rest.response, max_age);
        wire::write(peer, &bytes, chance).await?;
        self.end(peer, fault).await
    }

    /// Generates a response and records it. Returns its number, its record, and its body in the form that is sent.
    fn make(&self, request: &Head, key: Key, max_age: f64, fault: Option<Fault>) -> (usize, Sent, Vec<u8>) {
        let chance = &self.chance;
        let length = SHORTEST + below(chance, one_of(chance, &[1, 100, 5000, self.longest as u64])) as usize;
        let length = if self.cuts && percent(chance, 80) { length + 60_000 } else { length };
        let accepts = request.get("accept-encoding").is_some_and(|accepted| accepted.contains("gzip"));
        let spoils_gzip = matches!(fault, Some(Fault::Damage | Fault::Shortened));
        let is_packed = spoils_gzip || percent(chance, if accepts && !self.cuts { 40 } else { 3 });
        let is_whole = !spoils_gzip && !Fault::is_cut(fault);
        let status = if !site::is_calm(&key.path) && percent(chance, 4) { 404 } else { 200 };
        let includes = site::includes(&key.path, length, chance, self.pages);
        self.ledger.borrow_mut().note(format_args!("the next response has the fault {fault:?}"));
        let is_sound = !spoils_gzip;
        let sent = Sent {
            key,
            status,
            length,
            includes,
            is_packed,
            is_sound,
            is_whole,
            is_completed: false,
            max_age,
        };
        let response = self.ledger.borrow_mut().send(sent.clone());
        let mut body = sent.body(response);
        let behind = (body.len() - packing::HEADER.min(body.len())) as u64;
        match fault {
            Some(Fault::Damage) => self.damage(&mut body, behind),
            Some(Fault::Shortened) => body.truncate(packing::HEADER + below(chance, behind) as usize),
            _ => {}
        }
        (response, sent, body)
    }

    /// Flips a bit of a compressed body.
    fn damage(&self, body: &mut [u8], behind: u64) {
        body[packing::HEADER + below(&self.chance, behind) as usize] ^= 1 << below(&self.chance, 8);
        // Some bits have no meaning, but all bits of the length do.
        if let (Some(_), Some(last)) = (packing::unpack(body), body.last_mut()) {
            *last ^= 1;
        }
    }

    /// Records that the response on a connection is complete.
    fn is_done(&self, peer: &Peer) {
        self.busy.borrow_mut().retain(|busy| !std::ptr::eq(busy.as_ptr(), peer));
    }

    async fn page(
        &self,
        request: &Head,
        peer: &Peer,
        (fault, key, max_age, freshness): Kind,
    ) -> io::Result<bool> {
        let chance = &self.chance;
        let (response, sent, body) = self.make(request, key, max_age, fault);
        let status = if sent.status == 404 { "404 Not Found" } else { "200 OK" };
        let modified = last_modified(response);
        let mut head =
            format!("HTTP/1.1 {status}\r\nETag: \"{response}\"\r\nLast-Modified: {modified}\r\n{freshness}");
        if sent.is_packed {
            head += "Content-Encoding: gzip\r\n";
        }
        let mut bytes = Vec::new();
        if percent(chance, if self.cuts { 10 } else { 40 }) {
            head += "Transfer-Encoding: chunked\r\n\r\n";
            wire::chunks(&body, &mut bytes, chance);
        } else {
            let _ = write!(head, "Content-Length: {}\r\n\r\n", body.len());
            bytes.extend(&body);
        }
        if request.word(0) == "HEAD" {
            bytes.clear();
        } else if Fault::is_cut(fault) {
            bytes.truncate(bytes.len() - 1 - below(chance, body.len() as u64) as usize);
        }
        let written = wire::write(peer, &[head.into_bytes(), bytes].concat(), chance).await;
        self.ledger.borrow_mut().end(response);
        written?;
        self.end(peer, fault).await
    }

    /// Ends a response. Returns whether the connection stays open.
    async fn end(&self, peer: &Peer, fault: Option<Fault>) -> io::Result<bool> {
        self.is_done(peer);
        if fault == Some(Fault::Surplus) {
            peer.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nunwanted!").await?;
        }
        if fault == Some(Fault::Stall) {
            tokio::time::sleep(FOR_EVER).await;
        }
        Ok(!Fault::is_cut(fault))
    }
}
