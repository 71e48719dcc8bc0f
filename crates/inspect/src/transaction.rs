//! Transactions: the records of a request or fetch, from `Begin` to `End`.

use std::collections::BTreeMap;

use lacquer_http::trace_context::TraceContext;
use lacquer_shm::Tag;

use crate::page::plain;
use crate::ring::Record;

/// Maximum number of transactions that have not ended; the oldest ones are dropped.
const MAX_OPEN: usize = 100_000;
/// Maximum number of records of a transaction; further ones are dropped.
const MAX_RECORDS: usize = 20_000;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Session,
    Request,
    Fetch,
}

/// The beginning of the notices about traces.
pub const TRACE: &[u8] = b"trace: ";

/// The records of a transaction. Their texts are in one buffer, so that a transaction costs few allocations.
#[derive(Clone, Debug, PartialEq)]
pub struct Transaction {
    pub vxid: u64,
    pub kind: Kind,
    pub parent: u64,
    /// Why it began: `rxreq`, `esi`, `restart`, `fetch`, `bgfetch`, `pass`, `pipe`, `retry`.
    pub reason: String,
    places: Vec<Place>,
    texts: Vec<u8>,
}

/// A record in a transaction.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Place {
    tag: Tag,
    is_backend: bool,
    /// The end of its text. It begins where that of the record before it ends.
    end: usize,
}

impl Transaction {
    fn begin(record: &Record<'_>) -> Option<Transaction> {
        let (kind, parent, reason) = relation(record.text)?;
        let (places, texts) = (Vec::new(), Vec::new());
        Some(Transaction { vxid: record.vxid, kind, parent, reason: reason.to_owned(), places, texts })
    }

    /// Begins another transaction in the memory of this one. Returns false if the record is not its beginning.
    fn begin_again(&mut self, record: &Record<'_>) -> bool {
        let Some((kind, parent, reason)) = relation(record.text) else { return false };
        (self.vxid, self.kind, self.parent) = (record.vxid, kind, parent);
        self.reason.clear();
        self.reason.push_str(reason);
        self.places.clear();
        self.texts.clear();
        true
    }

    fn push(&mut self, record: &Record<'_>) {
        if self.places.len() < MAX_RECORDS {
            self.texts.extend_from_slice(record.text);
            let (tag, is_backend) = (record.tag, record.is_backend);
            self.places.push(Place { tag, is_backend, end: self.texts.len() });
        }
    }

    /// Keeps only some records.
    #[cfg(test)]
    pub fn retain(&mut self, is_kept: impl Fn(&Record<'_>) -> bool) {
        let before = self.clone();
        self.places.clear();
        self.texts.clear();
        before.records().filter(is_kept).for_each(|record| self.push(&record));
    }

    /// Returns the records, without those of the beginning and the end.
    pub fn records(&self) -> impl ExactSizeIterator<Item = Record<'_>> + DoubleEndedIterator {
        self.places.iter().enumerate().map(|(at, place)| {
            let begin = if at == 0 { 0 } else { self.places[at - 1].end };
            Record {
                tag: place.tag,
                vxid: self.vxid,
                is_backend: place.is_backend,
                text: &self.texts[begin..place.end],
            }
        })
    }

    /// Returns the text of the last record with a tag.
    pub fn last(&self, tag: Tag) -> Option<&[u8]> {
        self.records().rfind(|record| record.tag == tag).map(|record| record.text)
    }

    /// Returns the text of the first record with a tag.
    pub fn first(&self, tag: Tag) -> Option<&[u8]> {
        self.all(tag).next()
    }

    pub fn all(&self, tag: Tag) -> impl Iterator<Item = &[u8]> {
        self.records().filter(move |record| record.tag == tag).map(|record| record.text)
    }

    /// Returns the value of a header, from the records of a kind up to index `end`. A later record replaces it, and one
    /// of the other kind removes it. Bytes that are not UTF-8 are escaped.
    pub fn header_until(&self, tags: (Tag, Tag), name: &str, end: usize) -> Option<String> {
        self.header_bytes_until(tags, name, end).map(text)
    }

    fn header_bytes_until(&self, (set, unset): (Tag, Tag), name: &str, end: usize) -> Option<&[u8]> {
        let mut value = None;
        for record in self.records().take(end).filter(|record| record.tag == set || record.tag == unset) {
            if let Some(text) = value_of(record.text, name) {
                value = (record.tag == set).then_some(text);
            }
        }
        value
    }

    pub fn header(&self, tags: (Tag, Tag), name: &str) -> Option<String> {
        self.header_until(tags, name, usize::MAX)
    }

    /// Returns the bytes of a header's last value.
    pub fn header_bytes(&self, tags: (Tag, Tag), name: &str) -> Option<&[u8]> {
        self.header_bytes_until(tags, name, usize::MAX)
    }

    /// Returns the span of the transaction, and the number of the span above it, which is 0 if there is none. `None` if
    /// it is not traced.
    pub fn trace(&self) -> Option<(TraceContext, u64)> {
        let text = std::str::from_utf8(self.first(Tag::Notice)?.strip_prefix(TRACE)?).ok()?;
        let (own, above) = text.split_once(' ')?;
        let own = TraceContext::parse(own.as_bytes())?;
        Some((own, u64::from_str_radix(above, 16).unwrap_or(0)))
    }

    /// Returns a timestamp: its time and the seconds since the start and since the previous one.
    pub fn timestamp(&self, step: &str) -> Option<Timestamp<'_>> {
        let stamps = self.records().rev().filter(|record| record.tag == Tag::Timestamp);
        stamps.filter_map(|record| Timestamp::parse(record.text)).find(|stamp| stamp.step == step)
    }

    pub fn timestamps(&self) -> Vec<Timestamp<'_>> {
        self.all(Tag::Timestamp).filter_map(Timestamp::parse).collect()
    }

    /// Returns the transactions that this one began: kind, number and reason.
    pub fn links(&self) -> Vec<(Kind, u64, String)> {
        let links = self.all(Tag::Link).filter_map(relation);
        links.map(|(kind, vxid, reason)| (kind, vxid, reason.to_owned())).collect()
    }

    /// Returns the time at which it began, in seconds since the epoch.
    pub fn start(&self) -> f64 {
        self.all(Tag::Timestamp).find_map(Timestamp::parse).map_or(0.0, |stamp| stamp.at)
    }

    /// Returns whether it is a span of a trace.
    pub fn is_traced(&self) -> bool {
        self.first(Tag::Notice).is_some_and(|text| text.starts_with(TRACE))
    }
}

/// The headers of a request, as received and as VCL has changed them.
pub const REQUEST: (Tag, Tag) = (Tag::ReqHeader, Tag::ReqUnset);
pub const ORIGIN_REQUEST: (Tag, Tag) = (Tag::BereqHeader, Tag::BereqUnset);
pub const ORIGIN_RESPONSE: (Tag, Tag) = (Tag::BerespHeader, Tag::BerespUnset);
pub const RESPONSE: (Tag, Tag) = (Tag::RespHeader, Tag::RespUnset);

#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Timestamp<'a> {
    pub step: &'a str,
    pub at: f64,
    pub since_start: f64,
    pub since_last: f64,
}

impl Timestamp<'_> {
    pub fn parse(text: &[u8]) -> Option<Timestamp<'_>> {
        let text = std::str::from_utf8(text).ok()?;
        let (step, rest) = text.rsplit_once(": ")?;
        let mut numbers = rest.split(' ').filter_map(|word| word.parse().ok());
        let (at, since_start, since_last) = (numbers.next()?, numbers.next()?, numbers.next()?);
        numbers.next().is_none().then_some(Timestamp { step, at, since_start, since_last })
    }
}

/// Parses `Begin` and `Link`: kind, number, reason.
fn relation(text: &[u8]) -> Option<(Kind, u64, &str)> {
    let text = std::str::from_utf8(text).ok()?;
    let mut words = text.split(' ');
    let kind = match words.next()? {
        "sess" => Kind::Session,
        "req" => Kind::Request,
        "bereq" => Kind::Fetch,
        _ => return None,
    };
    Some((kind, words.next()?.parse().ok()?, words.next().unwrap_or_default()))
}

/// Splits a record of a header into name and value. Bytes that are not UTF-8 are escaped in the value.
pub fn split_header(record: &[u8]) -> Option<(&str, String)> {
    let (name, value) = header_parts(record)?;
    Some((std::str::from_utf8(name).ok()?, text(value)))
}

/// Returns the value in a record of a header, if the header has this name.
pub fn value_of<'a>(record: &'a [u8], name: &str) -> Option<&'a [u8]> {
    let (found, rest) = record.split_at_checked(name.len())?;
    let value = rest.strip_prefix(b":")?;
    found.eq_ignore_ascii_case(name.as_bytes()).then(|| value.trim_ascii())
}

fn header_parts(record: &[u8]) -> Option<(&[u8], &[u8])> {
    let colon = record.iter().position(|byte| *byte == b':')?;
    Some((&record[..colon], record[colon + 1..].trim_ascii()))
}

/// Returns UTF-8 as it is, and other bytes with escapes, so that no byte hides a value.
fn text(bytes: &[u8]) -> String {
    std::str::from_utf8(bytes).map_or_else(|_| plain(bytes), str::to_owned)
}

/// Joins records to transactions. Records whose `Begin` was not read are ignored.
#[derive(Debug)]
pub struct Grouping {
    /// The transaction of the last record, unless it has ended: the records of most are consecutive.
    present: Option<Transaction>,
    /// The other ones that have not ended.
    open: BTreeMap<u64, Transaction>,
    max_open: usize,
    /// The one that has ended last.
    ended: Option<Transaction>,
}

impl Default for Grouping {
    fn default() -> Grouping {
        Grouping::with_limit(MAX_OPEN)
    }
}

impl Grouping {
    /// `max_open` is the maximum number of transactions that have not ended.
    pub fn with_limit(max_open: usize) -> Grouping {
        Grouping { present: None, open: BTreeMap::new(), max_open, ended: None }
    }

    /// Adds a record. Returns the transaction that it ends, which is kept until another one ends.
    pub fn add(&mut self, record: &Record<'_>) -> Option<&Transaction> {
        self.add_if(record, |_| true)
    }

    /// Adds a record unless `is_needed`, which gets its transaction, returns false. Begin and end are always added.
    pub fn add_if(
        &mut self,
        record: &Record<'_>,
        is_needed: impl FnOnce(&Transaction) -> bool,
    ) -> Option<&Transaction> {
        if record.tag == Tag::Begin {
            self.begin(record);
            return None;
        }
        if self.present.as_ref().is_none_or(|present| present.vxid != record.vxid) {
            let other = self.open.remove(&record.vxid)?;
            self.set_aside();
            self.present = Some(other);
        }
        let present = self.present.as_mut()?;
        if record.tag == Tag::End {
            self.ended = self.present.take();
            return self.ended.as_ref();
        }
        if is_needed(present) {
            present.push(record);
        }
        None
    }

    fn begin(&mut self, record: &Record<'_>) {
        self.set_aside();
        self.open.remove(&record.vxid);
        self.present = match self.ended.take() {
            Some(mut used) => used.begin_again(record).then_some(used),
            None => Transaction::begin(record),
        };
    }

    /// Moves the present transaction to the other ones. The oldest one is dropped if there are too many.
    fn set_aside(&mut self) {
        if let Some(present) = self.present.take() {
            self.open.insert(present.vxid, present);
            if self.open.len() >= self.max_open {
                self.open.pop_first();
            }
        }
    }
}

#[cfg(test)]
pub fn transaction(vxid: u64, begin: &str, records: &[(Tag, &str)]) -> Transaction {
    let begin = Record { tag: Tag::Begin, vxid, is_backend: false, text: begin.as_bytes() };
    let mut made = Transaction::begin(&begin).expect("a valid record");
    for (tag, text) in records {
        made.push(&Record { tag: *tag, text: text.as_bytes(), ..begin });
    }
    made
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_header_counts_and_removed_ones_do_not() {
        let t = transaction(
            2,
            "req 1 rxreq",
            &[
                (Tag::ReqHeader, "Cookie: a"),
                (Tag::ReqHeader, "Host: h"),
                (Tag::ReqUnset, "cookie: a"),
                (Tag::ReqHeader, "host: i"),
            ],
        );
        assert_eq!(t.header(REQUEST, "cookie"), None);
        assert_eq!(t.header_until(REQUEST, "Cookie", 2), Some("a".into()));
        assert_eq!(t.header(REQUEST, "Host"), Some("i".into()));
    }

    #[test]
    fn interleaved_transactions_are_separate() {
        let record =
            |vxid, tag, text: &'static str| Record { tag, vxid, is_backend: false, text: text.as_bytes() };
        let mut grouping = Grouping::with_limit(2);
        let begin = "req 1 rxreq";
        for (vxid, tag, text) in [
            (2, Tag::Begin, begin),
            (2, Tag::ReqURL, "/2"),
            (3, Tag::Begin, "bereq 2 fetch"),
            (2, Tag::ReqMethod, "GET"),
            (3, Tag::BereqURL, "/3"),
            (9, Tag::ReqURL, "its beginning was not read"),
            (2, Tag::RespStatus, "200"),
        ] {
            assert_eq!(grouping.add_if(&record(vxid, tag, text), |_| tag != Tag::ReqMethod), None);
        }
        let ended = grouping.add(&record(3, Tag::End, "")).expect("it ends");
        assert_eq!((ended.vxid, ended.kind, ended.last(Tag::BereqURL)), (3, Kind::Fetch, Some(&b"/3"[..])));
        // The memory of the transaction that has ended is used again.
        assert_eq!(grouping.add(&record(4, Tag::Begin, begin)), None);
        let ended = grouping.add(&record(2, Tag::End, "")).expect("it ends");
        let tags: Vec<Tag> = ended.records().map(|record| record.tag).collect();
        assert_eq!((tags, ended.reason.as_str()), (vec![Tag::ReqURL, Tag::RespStatus], "rxreq"));
        assert_eq!(grouping.add(&record(2, Tag::End, "")), None);
        let ended = grouping.add(&record(4, Tag::End, "")).expect("it ends");
        assert_eq!((ended.vxid, ended.records().count()), (4, 0));
        for vxid in 10..13 {
            assert_eq!(grouping.add(&record(vxid, Tag::Begin, begin)), None);
        }
        assert_eq!(grouping.add(&record(10, Tag::End, "")), None, "there were too many");
        assert!([11, 12].iter().all(|vxid| grouping.add(&record(*vxid, Tag::End, "")).is_some()));
    }

    #[test]
    fn a_byte_that_is_not_utf8_hides_no_header() {
        let begin = Record { tag: Tag::Begin, vxid: 2, is_backend: false, text: b"req 1 rxreq" };
        let mut grouping = Grouping::default();
        assert_eq!(grouping.add(&begin), None);
        for text in [&b"User-Agent: a\xffb \xc3\xa9"[..], b"Host: h"] {
            assert_eq!(grouping.add(&Record { tag: Tag::ReqHeader, text, ..begin }), None);
        }
        let t = grouping.add(&Record { tag: Tag::End, text: b"", ..begin }).expect("it ends");
        assert_eq!(t.header(REQUEST, "user-agent"), Some("a\\xffb \u{e9}".into()));
        assert_eq!(t.header_bytes(REQUEST, "user-agent"), Some(&b"a\xffb \xc3\xa9"[..]));
        assert_eq!(split_header(b"User-Agent: a\xffb"), Some(("User-Agent", "a\\xffb".to_owned())));
        assert_eq!(split_header(b"\xff: a"), None);
    }

    #[test]
    fn damaged_records_are_ignored() {
        for text in ["", "req", "req x rxreq", "tab 1 x"] {
            assert_eq!(relation(text.as_bytes()), None);
        }
        assert_eq!(Timestamp::parse(b"Resp: 1 2"), None);
        let stamp = Timestamp::parse(b"my: step: 1.5 2 3").expect("valid");
        assert_eq!((stamp.step, stamp.since_last), ("my: step", 3.0));
    }
}
