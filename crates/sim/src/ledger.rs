//! What the world knows, and what must hold:
//!
//! - every request gets one complete response that is its own, or the connection ends;
//! - a body is that of one response of the origin for this page and variant, and was complete there;
//! - what was invalidated before a request began is not delivered to it;
//! - a page that stays fresh is fetched once, however many ask for it at once;
//! - an upload arrives at the origin as the client sent it, or not at all.

use std::collections::BTreeMap;
use std::fmt;

use lacquer_sources::clock;

use crate::page;

/// A page that is asked for. Its variant is chosen by a header that `Vary` names.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Key {
    pub path: String,
    pub variant: u64,
}

/// A response of an origin.
#[derive(Clone, Debug)]
pub struct Sent {
    pub key: Key,
    pub length: usize,
    /// The origin sends all of it.
    pub is_whole: bool,
    /// When a client first saw some of it.
    pub seen: Option<f64>,
}

/// A purge or ban of a page.
#[derive(Clone, Debug)]
struct Invalidation {
    path: String,
    asked: f64,
    done: f64,
}

#[derive(Default)]
pub struct Ledger {
    /// Prints all events.
    tells: bool,
    sent: Vec<Sent>,
    invalidations: Vec<Invalidation>,
    fetches: BTreeMap<Key, u32>,
    uploads: Vec<Vec<u8>>,
    faults: Vec<String>,
    /// A number that follows from all that happened.
    trace: u64,
    requests: u64,
    complete: u64,
}

/// A response as a client got it.
#[derive(Debug)]
pub struct Got<'g> {
    pub key: &'g Key,
    pub asked: f64,
    pub status: u16,
    pub body: &'g [u8],
    /// The first byte's place in the whole body.
    pub from: usize,
    /// The length of the whole body, if the response tells it.
    pub whole: Option<usize>,
    pub is_head: bool,
}

impl Ledger {
    pub fn new(tells: bool) -> Ledger {
        Ledger { tells, ..Ledger::default() }
    }

    /// Records an event, for the comparison of two runs and for those who read it.
    pub fn note(&mut self, what: fmt::Arguments<'_>) {
        let line = format!("{:.6} {what}", clock::real());
        for byte in line.bytes() {
            self.trace = (self.trace ^ u64::from(byte)).wrapping_mul(0x0100_0000_01B3);
        }
        if self.tells {
            println!("{line}");
        }
    }

    pub fn fault(&mut self, text: &str) {
        self.note(format_args!("fault: {text}"));
        self.faults.push(format!("{:.6}: {text}", clock::real()));
    }

    pub fn faults(&self) -> &[String] {
        &self.faults
    }

    pub fn trace(&self) -> u64 {
        self.trace
    }

    /// Returns the number of requests, of complete responses, and of responses of origins.
    pub fn counts(&self) -> (u64, u64, usize) {
        (self.requests, self.complete, self.sent.len())
    }

    /// Records a response that an origin begins to send. Returns its number.
    pub fn send(&mut self, key: Key, length: usize, is_whole: bool) -> usize {
        let number = self.sent.len();
        self.note(format_args!("response {number} to {}, variant {}: {length} bytes", key.path, key.variant));
        *self.fetches.entry(key.clone()).or_default() += 1;
        self.sent.push(Sent { key, length, is_whole, seen: None });
        number
    }

    pub fn request(&mut self) -> u64 {
        self.requests += 1;
        self.requests
    }

    pub fn invalidated(&mut self, path: &str, asked: f64) {
        self.note(format_args!("{path} is gone, as was asked at {asked:.6}"));
        self.invalidations.push(Invalidation { path: path.to_owned(), asked, done: clock::real() });
    }

    /// Records the beginning of a body as a client sees it.
    pub fn saw(&mut self, body: &[u8]) {
        if let Some(sent) = page::response_of(body).and_then(|response| self.sent.get_mut(response)) {
            sent.seen.get_or_insert_with(clock::real);
        }
    }

    /// Checks a complete response.
    pub fn check(&mut self, got: &Got<'_>) {
        self.complete += 1;
        let (response, key) = (page::response_of(got.body), got.key);
        self.note(format_args!(
            "got {} for {}, variant {}, asked at {:.6}: response {response:?}",
            got.status, key.path, key.variant, got.asked
        ));
        if let Err(why) = self.judge(got) {
            let (path, variant) = (&got.key.path, got.key.variant);
            self.fault(&format!("{path}, variant {variant}, status {}: {why}", got.status));
        }
    }

    fn judge(&mut self, got: &Got<'_>) -> Result<(), String> {
        if got.is_head || got.from > 0 || !matches!(got.status, 200 | 206) {
            return self.judge_by_length(got);
        }
        let response = page::response_of(got.body).ok_or_else(|| format!("no page: {:?}", text(got.body)))?;
        let sent = self.sent.get(response).ok_or("a response that no origin sent")?;
        if sent.key != *got.key {
            return Err(format!("response {response} is that to {:?}", sent.key));
        }
        let end = if got.status == 206 { got.body.len() } else { sent.length };
        if got.body != &page::body(response, sent.length)[..end.min(sent.length)] {
            return Err(format!("{} bytes are not the {end} of response {response}", got.body.len()));
        }
        if !sent.is_whole && got.status == 200 {
            return Err(format!("the origin did not complete response {response}"));
        }
        let seen = sent.seen.unwrap_or(f64::INFINITY);
        let is_gone =
            |gone: &&Invalidation| gone.path == got.key.path && gone.done <= got.asked && seen < gone.asked;
        match self.invalidations.iter().find(is_gone) {
            Some(gone) => {
                Err(format!("response {response}, seen at {seen:.6}, was invalidated at {:.6}", gone.done))
            }
            None => Ok(()),
        }
    }

    /// A part from the middle, or a head alone: some response to the page has these bytes, or this length.
    fn judge_by_length(&self, got: &Got<'_>) -> Result<(), String> {
        let fits = |(response, sent): (usize, &Sent)| {
            sent.key == *got.key
                && got.whole.is_none_or(|whole| whole == sent.length)
                && (got.body.is_empty()
                    || page::body(response, sent.length).get(got.from..got.from + got.body.len())
                        == Some(got.body))
        };
        let is_page = matches!(got.status, 200 | 206);
        if is_page && !self.sent.iter().enumerate().any(fits) {
            return Err(format!(
                "{} bytes from {} of {:?} are of no response",
                got.body.len(),
                got.from,
                got.whole
            ));
        }
        Ok(())
    }

    /// Records an upload that a client is about to send. Returns its number.
    pub fn upload(&mut self, body: Vec<u8>) -> usize {
        self.uploads.push(body);
        self.uploads.len() - 1
    }

    /// Checks an upload that has arrived at an origin in full.
    pub fn check_upload(&mut self, upload: usize, body: &[u8]) {
        let is_same = self.uploads.get(upload).is_some_and(|sent| sent == body);
        if !is_same {
            self.fault(&format!("upload {upload} arrived as {} other bytes", body.len()));
        }
    }

    /// Checks that pages which stay fresh were fetched once.
    pub fn check_fetches(&mut self, stays_fresh: impl Fn(&str) -> bool) {
        let again: Vec<_> =
            self.fetches.iter().filter(|(key, n)| stays_fresh(&key.path) && **n > 1).collect();
        let texts: Vec<_> = again.iter().map(|(key, n)| format!("{key:?} was fetched {n} times")).collect();
        for text in texts {
            self.fault(&text);
        }
    }
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(&bytes[..bytes.len().min(40)]).into_owned()
}
