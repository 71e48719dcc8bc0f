//! The records of a request that its line in a log is made of.

use lacquer_shm::Tag;

use crate::decimal::Decimal;
use crate::ring::Record;
use crate::transaction::{Kind, REQUEST, Transaction, value_of};

const HOST: &str = "Host";

/// The parts of a line.
#[derive(Clone, Copy, Debug, Default)]
pub struct Parts<'a> {
    start: &'a [u8],
    method: Option<&'a [u8]>,
    /// The page as the client asked for it, as VCL has changed it so far, and as it was at the lookup.
    asked: Page<'a>,
    present: Page<'a>,
    looked_up: Option<Page<'a>>,
    status: &'a [u8],
    account: &'a [u8],
    hit: &'a [u8],
    steps: u8,
    /// The first and the last timestamp, and the one when the response began.
    stamps: [Option<&'a [u8]>; 3],
}

/// A host and a URL.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Page<'a> {
    pub host: Option<&'a [u8]>,
    pub url: Option<&'a [u8]>,
}

/// The steps by which the cache treated a request: the bits of [`Parts::steps`], and the words for them.
const STEPS: [(u8, &str); 6] = [
    (PURGE, "purge"),
    (PIPE, "pipe"),
    (HIT_PASS, "hit-for-pass"),
    (HIT_MISS, "hit-for-miss"),
    (PASS, "pass"),
    (MISS, "miss"),
];
const PURGE: u8 = 1;
const PIPE: u8 = 2;
const HIT_PASS: u8 = 4;
const HIT_MISS: u8 = 8;
const PASS: u8 = 16;
const MISS: u8 = 32;
const SYNTH: u8 = 64;

impl<'a> Parts<'a> {
    /// Returns the parts of a request of a client. Includes and restarted requests have none.
    pub fn of(request: &'a Transaction) -> Option<Parts<'a>> {
        if request.kind != Kind::Request || request.reason == "esi" {
            return None;
        }
        let mut parts = Parts::default();
        for record in request.records() {
            let text = record.text;
            match record.tag {
                Tag::ReqStart => parts.start = text,
                Tag::ReqMethod => parts.method = parts.method.or(Some(text)),
                Tag::ReqURL => {
                    parts.asked.url = parts.asked.url.or(Some(text));
                    parts.present.url = Some(text);
                }
                tag if tag == REQUEST.0 || tag == REQUEST.1 => {
                    if let Some(host) = value_of(text, HOST) {
                        parts.present.host = (tag == REQUEST.0).then_some(host);
                        parts.asked.host = parts.asked.host.or(parts.present.host);
                    }
                }
                Tag::RespStatus => parts.status = text,
                Tag::ReqAcct => parts.account = text,
                Tag::Hit => {
                    parts.hit = text;
                    parts.choose_page();
                }
                Tag::HitPass => parts.take(HIT_PASS),
                Tag::HitMiss => parts.take(HIT_MISS),
                Tag::Timestamp => parts.stamp(text),
                Tag::VCL_call => parts.take(step(text)),
                Tag::VCL_return if text == b"restart" => return None,
                Tag::VCL_return if text == b"purge" => parts.take(PURGE),
                _ => {}
            }
        }
        Some(parts)
    }

    /// Records a step, if it is one.
    fn take(&mut self, step: u8) {
        if step != 0 {
            self.steps |= step;
            self.choose_page();
        }
    }

    /// Records that VCL has chosen the page: what it changes later is not what the cache looks up.
    fn choose_page(&mut self) {
        self.looked_up = self.looked_up.or(Some(self.present));
    }

    fn stamp(&mut self, text: &'a [u8]) {
        let [first, last, process] = &mut self.stamps;
        *first = first.or(Some(text));
        *last = Some(text);
        // Behind the name of the step are numbers. VCL may have written names that begin with it.
        if text.strip_prefix(b"Process: ").is_some_and(|rest| rest.first().is_some_and(u8::is_ascii_digit)) {
            *process = Some(text);
        }
    }

    pub fn method(&self) -> Option<&'a [u8]> {
        self.method
    }

    /// Returns the host, as VCL has left it.
    pub fn host(&self) -> Option<&'a [u8]> {
        self.present.host
    }

    /// Returns the URL that the client sent.
    pub fn url(&self) -> Option<&'a [u8]> {
        self.asked.url
    }

    /// Returns the page that the cache looked up: host and URL as VCL had changed them until then, which bans compare.
    pub fn page(&self) -> Page<'a> {
        self.looked_up.unwrap_or(self.present)
    }

    /// Returns the page that the client asked for.
    pub fn asked(&self) -> Page<'a> {
        self.asked
    }

    /// Returns the client's address.
    pub fn client(&self) -> &'a [u8] {
        self.start.split(|byte| *byte == b' ').next().unwrap_or_default()
    }

    /// Returns the client's port.
    pub fn port(&self) -> Option<u64> {
        word(self.start, 1)
    }

    pub fn status(&self) -> u16 {
        number(self.status).and_then(|status| u16::try_from(status).ok()).unwrap_or(0)
    }

    /// Returns a count of bytes: received head, body and sum, and sent head, body and sum.
    pub fn account(&self, at: usize) -> Option<u64> {
        word(self.account, at)
    }

    /// Returns the bytes that were sent to the client.
    pub fn bytes(&self) -> u64 {
        self.account(5).unwrap_or(0)
    }

    /// Returns when it began, in seconds since the epoch.
    pub fn began(&self) -> Decimal<'a> {
        self.stamps[0].and_then(times).map_or(Decimal::ZERO, |(at, _)| at)
    }

    /// Returns the seconds that it took.
    pub fn seconds(&self) -> Decimal<'a> {
        self.stamps[1].and_then(times).map_or(Decimal::ZERO, |(_, since_start)| since_start)
    }

    /// Returns the seconds until the response began, if one did.
    pub fn process(&self) -> Option<Decimal<'a>> {
        self.stamps[2].and_then(times).map(|(_, since_start)| since_start)
    }

    /// Returns the seconds until the response began, or that it took if none did.
    pub fn wait(&self) -> f64 {
        self.process().unwrap_or_else(|| self.seconds()).value()
    }

    /// Returns how the cache treated it.
    pub fn how(&self) -> &'static str {
        match STEPS.iter().find(|(step, _)| self.steps & step != 0) {
            Some((_, word)) => word,
            None if self.is_graced() => "graced-hit",
            None if !self.hit.is_empty() => "hit",
            None if self.steps & SYNTH != 0 => "synth",
            None => "refused",
        }
    }

    fn is_graced(&self) -> bool {
        let ttl = self.hit.split(|byte| *byte == b' ').nth(1).and_then(|ttl| std::str::from_utf8(ttl).ok());
        ttl.and_then(|ttl| ttl.parse::<f64>().ok()).is_some_and(|ttl| ttl < 0.0)
    }
}

/// Returns the bit of a VCL subroutine.
fn step(called: &[u8]) -> u8 {
    match called {
        b"PIPE" => PIPE,
        b"PASS" => PASS,
        b"MISS" => MISS,
        b"SYNTH" => SYNTH,
        _ => 0,
    }
}

fn number(digits: &[u8]) -> Option<u64> {
    std::str::from_utf8(digits).ok()?.parse().ok()
}

/// Returns a number in a record of several words.
fn word(text: &[u8], at: usize) -> Option<u64> {
    number(text.split(|byte| *byte == b' ').nth(at)?)
}

/// Returns the numbers of a timestamp: when, and the seconds since the beginning.
fn times(stamp: &[u8]) -> Option<(Decimal<'_>, Decimal<'_>)> {
    let mut words = stamp.rsplitn(4, |byte| *byte == b' ');
    let (_, since_start, at) = (words.next()?, words.next()?, words.next()?);
    words.next().filter(|step| step.ends_with(b":"))?;
    Some((Decimal::parse(at)?, Decimal::parse(since_start)?))
}

/// Returns whether [`Parts`] depend on a record.
#[inline]
pub fn is_needed(record: &Record<'_>) -> bool {
    match record.tag {
        Tag::Begin => record.text.starts_with(b"req "),
        Tag::ReqHeader | Tag::ReqUnset => value_of(record.text, HOST).is_some(),
        Tag::VCL_call => step(record.text) != 0,
        Tag::VCL_return => matches!(record.text, b"restart" | b"purge"),
        Tag::End
        | Tag::ReqStart
        | Tag::ReqMethod
        | Tag::ReqURL
        | Tag::ReqAcct
        | Tag::RespStatus
        | Tag::Timestamp
        | Tag::Hit
        | Tag::HitPass
        | Tag::HitMiss => true,
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::transaction::transaction;

    #[test]
    fn the_page_is_what_the_cache_looks_up() {
        let begin = [
            (Tag::ReqURL, "/x?utm=1"),
            (Tag::ReqHeader, "Host: www.c"),
            (Tag::VCL_call, "RECV"),
            (Tag::ReqURL, "/x"),
            (Tag::ReqUnset, "Host: www.c"),
            (Tag::ReqHeader, "host: c"),
            (Tag::VCL_return, "hash"),
        ];
        let end = [(Tag::VCL_call, "DELIVER"), (Tag::ReqURL, "/later"), (Tag::ReqHeader, "Host: later")];
        let page = |host: &'static str, url: &'static str| Page {
            host: Some(host.as_bytes()),
            url: Some(url.as_bytes()),
        };
        for step in [
            (Tag::Hit, "2 10.0 10.0 0.0"),
            (Tag::HitMiss, "2 10.0"),
            (Tag::HitPass, "2 10.0"),
            (Tag::VCL_call, "MISS"),
            (Tag::VCL_call, "PASS"),
            (Tag::VCL_call, "PIPE"),
            (Tag::VCL_return, "purge"),
        ] {
            let request = transaction(3, "req 2 rxreq", &[&begin[..], &[step], &end].concat());
            let parts = Parts::of(&request).expect("a request");
            assert_eq!(
                (parts.page(), parts.asked()),
                (page("c", "/x"), page("www.c", "/x?utm=1")),
                "{step:?}"
            );
            // Lines of logs have the URL of the client.
            assert_eq!((parts.host(), parts.url()), (Some(&b"later"[..]), Some(&b"/x?utm=1"[..])));
        }
        let refused = transaction(3, "req 2 rxreq", &[]);
        assert_eq!(Parts::of(&refused).map(|parts| parts.page()), Some(Page::default()));
    }
}
