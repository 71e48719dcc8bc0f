//! The past of a page, as far as the log reaches back: its fetches, purges and removals.

use std::collections::BTreeMap;

use lacquer_flow::rfc9111::invalidation;
use lacquer_shm::Tag;
use lacquer_shm::vsl::notices::TAGS_PURGED;

use super::ttl::{Lifetime, failed, stored_for};
use crate::page::{plain, short};
use crate::ring::Record;
use crate::transaction::{Kind, ORIGIN_REQUEST, ORIGIN_RESPONSE, REQUEST, Transaction, split_header};

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
    /// The request that has begun it.
    pub parent: u64,
    /// When it began, in seconds since the epoch.
    pub at: f64,
    /// `None` if the response could not be cached.
    pub lifetime: Option<Lifetime>,
    /// There was no response, so that an earlier object remained.
    pub has_failed: bool,
    /// The headers by which the response varies, with the values of its request.
    pub variant: Vec<(String, Option<String>)>,
    /// The tags of the response.
    pub tags: Vec<String>,
}

#[derive(Clone, Debug, PartialEq)]
pub struct PastPurge {
    pub at: f64,
    pub client: String,
    /// The request that has changed the page at the origin; `None` for a purge.
    pub change: Option<Change>,
}

/// A request after whose success the cache removes the page (RFC 9111 section 4.4).
#[derive(Clone, Debug, PartialEq)]
pub struct Change {
    pub method: String,
    pub url: String,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Removal {
    /// This request found it banned; 0 is the ban lurker.
    Banned(u64),
    Evicted,
    Expired,
    /// A purge named its tag: a request of this client, or the management command `tag.purge`.
    Tagged(String, Option<String>),
}

/// The headers that contain tags.
const TAG_HEADERS: [&str; 2] = ["xkey", "X-HashTwo"];

/// Collects the past of one page.
pub struct Historian<'a> {
    url: &'a str,
    host: &'a str,
    is_own: &'a dyn Fn(u64) -> bool,
    past: Past,
    /// The latest time in the records so far, in seconds since the epoch.
    now: f64,
}

impl<'a> Historian<'a> {
    /// `is_own` returns whether a transaction belongs to the request that is explained.
    pub fn new(url: &'a str, host: &'a str, is_own: &'a dyn Fn(u64) -> bool) -> Historian<'a> {
        Historian { url, host, is_own, past: Past::default(), now: 0.0 }
    }

    /// Adds a transaction that has ended.
    pub fn add_ended(&mut self, ended: &Transaction) {
        if let Some(last) = ended.timestamps().last() {
            self.now = self.now.max(last.at);
        }
        match ended.kind {
            _ if (self.is_own)(ended.vxid) => {}
            Kind::Fetch => self.fetch(ended),
            Kind::Request => self.request(ended),
            Kind::Session => {}
        }
    }

    /// Returns whether a record is an event of its own, besides the transaction that contains it.
    pub fn is_event(record: &Record<'_>) -> bool {
        matches!(record.tag, Tag::ExpBan | Tag::ExpKill | Tag::CLI)
    }

    /// Adds a record that is an event of its own. Others have no effect.
    pub fn add_event(&mut self, record: &Record<'_>) {
        match record.tag {
            Tag::ExpBan | Tag::ExpKill => self.removal(record),
            Tag::CLI => self.command(record),
            _ => {}
        }
    }

    fn removal(&mut self, record: &Record<'_>) {
        if self.past.removed.len() >= MAX_REMOVED {
            return;
        }
        let text = record.shown();
        let of = |number: &str| number.parse::<u64>().ok();
        if record.tag == Tag::ExpBan {
            if let Some(vxid) = text.split(' ').next().and_then(of).filter(|_| !(self.is_own)(record.vxid)) {
                self.past.removed.insert(vxid, Removal::Banned(record.vxid));
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

    /// Finds the fetches whose objects a purge by tags removes. A soft purge only ends their freshness. Records of commands
    /// have no time, but they are behind those of the fetches, and no earlier than the records before them.
    fn command(&mut self, record: &Record<'_>) {
        let text = record.shown();
        let Some(rest) = text.strip_prefix("Rd tag.purge ") else { return };
        let words: Vec<&str> = split_tags(rest).map(|word| word.trim_matches('"')).collect();
        if !words.contains(&"-s") {
            self.tagged(&words, self.now, None);
        }
    }

    /// Records the objects that a purge by tags has removed at this time.
    fn tagged(&mut self, words: &[&str], now: f64, client: Option<&str>) {
        let last_purge = self.past.purges.last().map_or(f64::NEG_INFINITY, |purge| purge.at);
        let is_there = |fetch: &&PastFetch| {
            fetch.at > last_purge
                && fetch.at <= now
                && fetch.lifetime.as_ref().is_none_or(|l| l.end() > now - 1.0)
        };
        for fetch in self.past.fetches.iter().filter(is_there) {
            let named = fetch.tags.iter().find(|tag| words.contains(&tag.as_str()));
            if let Some(tag) = named.filter(|_| self.past.removed.len() < MAX_REMOVED) {
                let removal = Removal::Tagged(tag.clone(), client.map(str::to_owned));
                self.past.removed.entry(fetch.vxid).or_insert(removal);
            }
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
        let at = fetch.start();
        let has_failed = failed(fetch) || fetch.first(Tag::TTL).is_none();
        let tags = tags(fetch);
        let (vxid, parent) = (fetch.vxid, fetch.parent);
        self.past.fetches.push(PastFetch { vxid, parent, at, lifetime, has_failed, variant, tags });
    }

    fn request(&mut self, request: &Transaction) {
        let client = || {
            let start = request.first(Tag::ReqStart).unwrap_or_default();
            plain(start.split(|byte| *byte == b' ').next().unwrap_or_default())
        };
        let (at, host) = (request.start(), || request.header(REQUEST, "Host"));
        let is_purge = request.all(Tag::VCL_return).any(|action| action == b"purge");
        if is_purge && self.is_same(request.last(Tag::ReqURL), host()) {
            self.past.purges.push(PastPurge { at, client: client(), change: None });
        }
        for notice in request.all(Tag::Notice).map(String::from_utf8_lossy) {
            if let Some(url) = notice.strip_prefix(invalidation::RECORD)
                && self.is_same(Some(url.as_bytes()), host())
            {
                let text = |tag| request.last(tag).map(short).unwrap_or_default();
                let change = Change { method: text(Tag::ReqMethod), url: text(Tag::ReqURL) };
                // The origin's response has come before the removal.
                let at = request.timestamp("Fetch").map_or(at, |stamp| stamp.at);
                self.past.purges.push(PastPurge { at, client: client(), change: Some(change) });
            } else if let Some(tags) = notice.strip_prefix(TAGS_PURGED) {
                self.tagged(&split_tags(tags).collect::<Vec<_>>(), at, Some(&client()));
            }
        }
    }

    pub fn finish(self) -> Past {
        self.past
    }
}

/// Returns the tags of a response, as VCL has left them.
fn tags(fetch: &Transaction) -> Vec<String> {
    let mut lists: Vec<(&str, String)> = Vec::new();
    for record in fetch.records() {
        let Some((name, value)) = split_header(record.text) else { continue };
        if !TAG_HEADERS.iter().any(|header| header.eq_ignore_ascii_case(name)) {
            continue;
        }
        match record.tag {
            tag if tag == ORIGIN_RESPONSE.0 => lists.push((name, value)),
            tag if tag == ORIGIN_RESPONSE.1 => {
                lists.retain(|(other, set)| !other.eq_ignore_ascii_case(name) || *set != value);
            }
            _ => {}
        }
    }
    lists.iter().flat_map(|(_, list)| split_tags(list)).map(|tag| short(tag.as_bytes())).collect()
}

fn split_tags(list: &str) -> impl Iterator<Item = &str> {
    list.split([',', ' ', '\t']).filter(|tag| !tag.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::transaction::Grouping;

    /// Returns what is known of a page whose fetch had these records, after some commands.
    fn removed(headers: &[(Tag, &str)], commands: &[&str]) -> Option<Removal> {
        let is_own = |_| false;
        let mut historian = Historian::new("/p", "h", &is_own);
        let mut grouping = Grouping::default();
        let mut add = |tag, vxid, text: &str| {
            let record = Record { tag, vxid, is_backend: true, text: text.as_bytes() };
            historian.add_event(&record);
            if let Some(ended) = grouping.add(&record) {
                historian.add_ended(ended);
            }
        };
        for (tag, text) in
            [(Tag::Begin, "bereq 2 fetch"), (Tag::BereqURL, "/p"), (Tag::BereqHeader, "Host: h")]
        {
            add(tag, 3, text);
        }
        for (tag, text) in headers {
            add(*tag, 3, text);
        }
        add(Tag::End, 3, "");
        for text in commands {
            add(Tag::CLI, 0, text);
        }
        historian.finish().removed.remove(&3)
    }

    /// Returns what is known of a page, fetched at second 100 with the tag red, after a request with these records.
    fn after(records: &[(Tag, &str)]) -> Past {
        let is_own = |_| false;
        let mut historian = Historian::new("/p", "h", &is_own);
        let fetch = [
            (Tag::Timestamp, "Start: 100.0 0.0 0.0"),
            (Tag::BereqURL, "/p"),
            (Tag::BereqHeader, "Host: h"),
            (Tag::BerespHeader, "xkey: red"),
        ];
        historian.add_ended(&crate::transaction::transaction(3, "bereq 2 fetch", &fetch));
        let head = [(Tag::Timestamp, "Start: 200.0 0.0 0.0"), (Tag::ReqStart, "192.0.2.1 5 a0")];
        historian.add_ended(&crate::transaction::transaction(4, "req 1 rxreq", &[&head, records].concat()));
        historian.finish()
    }

    #[test]
    fn requests_that_remove_other_pages_are_found() {
        let posted = [(Tag::ReqMethod, "POST"), (Tag::ReqURL, "/edit"), (Tag::ReqHeader, "Host: H")];
        let noted = |notice| after(&[&posted[..], &[(Tag::Notice, notice)]].concat());
        let change = Some(Change { method: "POST".to_owned(), url: "/edit".to_owned() });
        let purge = PastPurge { at: 200.0, client: "192.0.2.1".to_owned(), change };
        assert_eq!(noted("invalidated: /p").purges, [purge]);
        let by_client = Removal::Tagged("red".to_owned(), Some("192.0.2.1".to_owned()));
        assert_eq!(noted("xkey: purged blue, red").removed.get(&3), Some(&by_client));
        for other in ["invalidated: /p2", "invalidated:", "xkey: purged blue", "xkey: purged", "\u{0}"] {
            let past = noted(other);
            assert!(past.purges.is_empty() && past.removed.is_empty(), "{other}");
        }
        assert!(
            after(&[(Tag::ReqHeader, "Host: other"), (Tag::Notice, "invalidated: /p")]).purges.is_empty()
        );
    }

    #[test]
    fn purges_by_tags_are_found() {
        let tags = [(Tag::BerespHeader, "xkey: red,green blue")];
        let tagged = |tag: &str| Some(Removal::Tagged(tag.to_owned(), None));
        assert_eq!(removed(&tags, &["Rd tag.purge green"]), tagged("green"));
        assert_eq!(removed(&tags, &["Rd tag.purge \"white\" \"blue\"", "Wr 200 0 "]), tagged("blue"));
        assert_eq!(removed(&[(Tag::BerespHeader, "X-HASHTWO: a")], &["Rd tag.purge a"]), tagged("a"));
        for commands in
            [&["Rd tag.purge -s red"][..], &["Rd tag.purge gree"], &["Wr tag.purge red"], &["Rd"], &[]]
        {
            assert_eq!(removed(&tags, commands), None, "{commands:?}");
        }
        let unset = [tags[0], (Tag::BerespUnset, "XKEY: red,green blue"), (Tag::BerespHeader, "xkey: black")];
        assert_eq!(removed(&unset, &["Rd tag.purge red"]), None);
        assert_eq!(removed(&unset, &["Rd tag.purge black"]), tagged("black"));
    }
}
