//! The past of a page, as far as the log reaches back: its fetches, purges and removals.

use std::collections::BTreeMap;

use lacquer_shm::Tag;

use super::ttl::{Lifetime, stored_for};
use crate::ring::Record;
use crate::transaction::{Grouping, Kind, ORIGIN_REQUEST, ORIGIN_RESPONSE, REQUEST, Transaction};

/// Maximum number of removals that are remembered.
const MAX_REMOVED: usize = 100_000;

/// The events of a page that the log records before the request.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Past {
    pub fetches: Vec<PastFetch>,
    pub purges: Vec<PastPurge>,
    /// Why objects left the cache, by the transaction that fetched them.
    pub removed: BTreeMap<u64, Removal>,
}

#[derive(Clone, Debug, PartialEq)]
pub struct PastFetch {
    pub vxid: u64,
    /// When it began, in seconds since the epoch.
    pub at: f64,
    /// `None` if the response could not be cached.
    pub lifetime: Option<Lifetime>,
    /// The headers by which the response varies, with the values of its request.
    pub variant: Vec<(String, Option<String>)>,
}

#[derive(Clone, Debug, PartialEq)]
pub struct PastPurge {
    pub at: f64,
    pub client: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Removal {
    Banned,
    Evicted,
    Expired,
}

/// Collects the past of one page.
pub struct Historian<'a> {
    url: &'a str,
    host: &'a str,
    is_own: &'a dyn Fn(u64) -> bool,
    grouping: Grouping,
    past: Past,
}

impl<'a> Historian<'a> {
    /// `is_own` returns whether a transaction belongs to the request that is explained.
    pub fn new(url: &'a str, host: &'a str, is_own: &'a dyn Fn(u64) -> bool) -> Historian<'a> {
        Historian { url, host, is_own, grouping: Grouping::default(), past: Past::default() }
    }

    pub fn add(&mut self, record: Record) {
        if matches!(record.tag, Tag::ExpBan | Tag::ExpKill) {
            self.removal(&record);
        }
        let Some(ended) = self.grouping.add(record).filter(|ended| !(self.is_own)(ended.vxid)) else {
            return;
        };
        match ended.kind {
            Kind::Fetch => self.fetch(&ended),
            Kind::Request => self.request(&ended),
            Kind::Session => {}
        }
    }

    fn removal(&mut self, record: &Record) {
        if self.past.removed.len() >= MAX_REMOVED {
            return;
        }
        let text = record.shown();
        let of = |number: &str| number.parse::<u64>().ok();
        if record.tag == Tag::ExpBan {
            if let Some(vxid) = text.split(' ').next().and_then(of).filter(|_| !(self.is_own)(record.vxid)) {
                self.past.removed.insert(vxid, Removal::Banned);
            }
            return;
        }
        let why = match text.split(' ').next() {
            Some("LRU") => Removal::Evicted,
            Some("EXP_Expired") => Removal::Expired,
            _ => return,
        };
        let number = |word: &str| word.strip_prefix("x=").or_else(|| word.strip_prefix("xid=")).and_then(of);
        if let Some(vxid) = text.split(' ').find_map(number) {
            self.past.removed.insert(vxid, why);
        }
    }

    fn is_same(&self, url: Option<&[u8]>, host: Option<String>) -> bool {
        url == Some(self.url.as_bytes()) && host.is_some_and(|host| host.eq_ignore_ascii_case(self.host))
    }

    fn fetch(&mut self, fetch: &Transaction) {
        if !self.is_same(fetch.last(Tag::BereqURL), fetch.header(ORIGIN_REQUEST, "Host"))
            || fetch.reason == "pass"
        {
            return;
        }
        let names = fetch.header(ORIGIN_RESPONSE, "Vary").unwrap_or_default();
        let names = names.split(',').map(str::trim).filter(|name| !name.is_empty());
        let variant = names.map(|name| (name.to_owned(), fetch.header(ORIGIN_REQUEST, name))).collect();
        let lifetime = stored_for(fetch);
        self.past.fetches.push(PastFetch { vxid: fetch.vxid, at: fetch.start(), lifetime, variant });
    }

    fn request(&mut self, request: &Transaction) {
        let is_purge = request.all(Tag::VCL_return).any(|action| action == b"purge");
        if is_purge && self.is_same(request.last(Tag::ReqURL), request.header(REQUEST, "Host")) {
            let client = request.first(Tag::ReqStart).map(crate::page::plain).unwrap_or_default();
            let client = client.split(' ').next().unwrap_or_default().to_owned();
            self.past.purges.push(PastPurge { at: request.start(), client });
        }
    }

    pub fn finish(self) -> Past {
        self.past
    }
}
