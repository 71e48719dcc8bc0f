//! Transactions: the records of a request or fetch, from `Begin` to `End`.

use std::collections::BTreeMap;

use lacquer_http::trace_context::TraceContext;
use lacquer_shm::Tag;

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

/// The records of a transaction.
#[derive(Clone, Debug, PartialEq)]
pub struct Transaction {
    pub vxid: u64,
    pub kind: Kind,
    pub parent: u64,
    /// Why it began: `rxreq`, `esi`, `restart`, `fetch`, `bgfetch`, `pass`, `pipe`, `retry`.
    pub reason: String,
    pub records: Vec<Record>,
}

impl Transaction {
    fn begin(record: &Record) -> Option<Transaction> {
        let (kind, number, reason) = relation(&record.text)?;
        Some(Transaction { vxid: record.vxid, kind, parent: number, reason, records: Vec::new() })
    }

    /// Returns the text of the last record with a tag.
    pub fn last(&self, tag: Tag) -> Option<&[u8]> {
        self.records.iter().rfind(|record| record.tag == tag).map(|record| &record.text[..])
    }

    /// Returns the text of the first record with a tag.
    pub fn first(&self, tag: Tag) -> Option<&[u8]> {
        self.all(tag).next()
    }

    pub fn all(&self, tag: Tag) -> impl Iterator<Item = &[u8]> {
        self.records.iter().filter(move |record| record.tag == tag).map(|record| &record.text[..])
    }

    /// Returns the value of a header, from the records of a kind up to index `end`. A later record replaces it, and one
    /// of the other kind removes it.
    pub fn header_until(&self, (set, unset): (Tag, Tag), name: &str, end: usize) -> Option<String> {
        let mut value = None;
        for record in self.records.iter().take(end) {
            let Some((field, text)) =
                split_header(&record.text).filter(|(f, _)| f.eq_ignore_ascii_case(name))
            else {
                continue;
            };
            debug_assert!(!field.is_empty());
            if record.tag == set {
                value = Some(text.to_owned());
            } else if record.tag == unset {
                value = None;
            }
        }
        value
    }

    pub fn header(&self, tags: (Tag, Tag), name: &str) -> Option<String> {
        self.header_until(tags, name, usize::MAX)
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
    pub fn timestamp(&self, step: &str) -> Option<Timestamp> {
        self.timestamps().into_iter().rfind(|stamp| stamp.step == step)
    }

    pub fn timestamps(&self) -> Vec<Timestamp> {
        self.all(Tag::Timestamp).filter_map(Timestamp::parse).collect()
    }

    /// Returns the transactions that this one began: kind, number and reason.
    pub fn links(&self) -> Vec<(Kind, u64, String)> {
        self.all(Tag::Link).filter_map(relation).collect()
    }

    /// Returns the time at which it began, in seconds since the epoch.
    pub fn start(&self) -> f64 {
        self.timestamps().first().map_or(0.0, |stamp| stamp.at)
    }
}

/// The headers of a request, as received and as VCL has changed them.
pub const REQUEST: (Tag, Tag) = (Tag::ReqHeader, Tag::ReqUnset);
pub const ORIGIN_REQUEST: (Tag, Tag) = (Tag::BereqHeader, Tag::BereqUnset);
pub const ORIGIN_RESPONSE: (Tag, Tag) = (Tag::BerespHeader, Tag::BerespUnset);
pub const RESPONSE: (Tag, Tag) = (Tag::RespHeader, Tag::RespUnset);

#[derive(Clone, Debug, PartialEq)]
pub struct Timestamp {
    pub step: String,
    pub at: f64,
    pub since_start: f64,
    pub since_last: f64,
}

impl Timestamp {
    fn parse(text: &[u8]) -> Option<Timestamp> {
        let text = std::str::from_utf8(text).ok()?;
        let (step, rest) = text.rsplit_once(": ")?;
        let numbers: Vec<f64> = rest.split(' ').filter_map(|word| word.parse().ok()).collect();
        let [at, since_start, since_last] = numbers[..] else { return None };
        Some(Timestamp { step: step.to_owned(), at, since_start, since_last })
    }
}

/// Parses `Begin` and `Link`: kind, number, reason.
fn relation(text: &[u8]) -> Option<(Kind, u64, String)> {
    let text = std::str::from_utf8(text).ok()?;
    let mut words = text.split(' ');
    let kind = match words.next()? {
        "sess" => Kind::Session,
        "req" => Kind::Request,
        "bereq" => Kind::Fetch,
        _ => return None,
    };
    Some((kind, words.next()?.parse().ok()?, words.next().unwrap_or_default().to_owned()))
}

/// Splits a record of a header into name and value.
pub fn split_header(text: &[u8]) -> Option<(&str, &str)> {
    let text = std::str::from_utf8(text).ok()?;
    let (name, value) = text.split_once(':')?;
    Some((name, value.trim()))
}

/// Joins records to transactions. Records whose `Begin` was not read are ignored.
#[derive(Debug)]
pub struct Grouping {
    open: BTreeMap<u64, Transaction>,
    max_open: usize,
}

impl Default for Grouping {
    fn default() -> Grouping {
        Grouping::with_limit(MAX_OPEN)
    }
}

impl Grouping {
    /// `max_open` is the maximum number of transactions that have not ended.
    pub fn with_limit(max_open: usize) -> Grouping {
        Grouping { open: BTreeMap::new(), max_open }
    }

    /// Adds a record. Returns the transaction that it ends.
    pub fn add(&mut self, record: Record) -> Option<Transaction> {
        match record.tag {
            Tag::Begin => {
                if let Some(begun) = Transaction::begin(&record) {
                    self.open.insert(record.vxid, begun);
                    if self.open.len() > self.max_open {
                        self.open.pop_first();
                    }
                }
                None
            }
            Tag::End => self.open.remove(&record.vxid),
            _ => {
                if let Some(open) =
                    self.open.get_mut(&record.vxid).filter(|open| open.records.len() < MAX_RECORDS)
                {
                    open.records.push(record);
                }
                None
            }
        }
    }

    /// Returns a transaction that has not ended.
    pub fn open(&self, vxid: u64) -> Option<&Transaction> {
        self.open.get(&vxid)
    }
}

#[cfg(test)]
pub fn transaction(vxid: u64, begin: &str, records: &[(Tag, &str)]) -> Transaction {
    let record = |tag, text: &str| Record { tag, vxid, is_backend: false, text: text.as_bytes().to_vec() };
    let mut made = Transaction::begin(&record(Tag::Begin, begin)).expect("a valid record");
    made.records = records.iter().map(|(tag, text)| record(*tag, text)).collect();
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
    fn damaged_records_are_ignored() {
        for text in ["", "req", "req x rxreq", "tab 1 x"] {
            assert_eq!(relation(text.as_bytes()), None);
        }
        assert_eq!(Timestamp::parse(b"Resp: 1 2"), None);
        let stamp = Timestamp::parse(b"my: step: 1.5 2 3").expect("valid");
        assert_eq!((stamp.step.as_str(), stamp.since_last), ("my: step", 3.0));
    }
}
