//! Reports of the log: requests and fetches, from records that anybody may have written.

use lacquer_inspect::page::{add_plain, plain, short};
use lacquer_inspect::parts::{self, Page, Parts};
use lacquer_inspect::ring::Record;
use lacquer_inspect::transaction::{Grouping, Kind, Transaction};
use lacquer_shm::Tag;

/// Maximum number of requests and fetches in progress; the oldest ones are forgotten.
pub const MAX_OPEN: usize = 20_000;

#[derive(Clone, Debug, PartialEq)]
pub enum Event {
    Request(Seen),
    Fetch(SeenFetch),
}

/// A request of a client. All texts are escaped.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Seen {
    /// The host and the URL of the page that the cache looked up, which may be purged. A space is between them if the first
    /// slash does not separate them.
    pub url: String,
    /// The host and the URL that the client sent, if they differ from `url`.
    pub asked: Option<String>,
    pub status: u16,
    /// As in `lacquer log`.
    pub how: &'static str,
    pub bytes: u64,
    /// Seconds until the response began.
    pub wait: f64,
}

/// A fetch from an origin.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct SeenFetch {
    /// The names of the VCL and the backend, with a dot between them.
    pub origin: String,
    /// The status of the response; `None` if the fetch failed.
    pub status: Option<u16>,
    /// Seconds from the request to the first byte of the response.
    pub wait: f64,
}

/// How the cache treated a request, in three classes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Class {
    Hit,
    /// It needed an origin.
    Miss,
    /// The daemon generated or refused it.
    Neither,
}

impl Class {
    /// Returns the class of requests that were handled like this (`hit`, `pass` and so on).
    pub fn of(how: &str) -> Class {
        match how {
            "hit" | "graced-hit" => Class::Hit,
            "miss" | "pass" | "hit-for-miss" | "hit-for-pass" | "pipe" => Class::Miss,
            _ => Class::Neither,
        }
    }
}

impl Event {
    /// Returns the event of a transaction, if it has one.
    pub fn of(ended: &Transaction) -> Option<Event> {
        match ended.kind {
            Kind::Request => Seen::of(ended).map(Event::Request),
            Kind::Fetch => SeenFetch::of(ended).map(Event::Fetch),
            Kind::Session => None,
        }
    }
}

impl Seen {
    fn of(request: &Transaction) -> Option<Seen> {
        let parts = Parts::of(request)?;
        let text = |page: Page<'_>| {
            let mut url = plain(page.host.unwrap_or_default());
            if !are_apart(page) {
                url.push(' ');
            }
            add_plain(&mut url, page.url.unwrap_or_default());
            visible(url)
        };
        let (page, asked) = (parts.page(), parts.asked());
        let asked = (asked != page).then(|| text(asked));
        let wait = parts.wait();
        let wait = if wait.is_finite() { wait.max(0.0) } else { 0.0 };
        let (url, status, how, bytes) = (text(page), parts.status(), parts.how(), parts.bytes());
        Some(Seen { url, asked, status, how, bytes, wait })
    }
}

/// Returns whether the first slash separates the host and the URL, which VCL may have set to any text.
fn are_apart(page: Page<'_>) -> bool {
    page.url.is_none_or(|url| url.starts_with(b"/")) && page.host.is_none_or(|host| !host.contains(&b'/'))
}

impl SeenFetch {
    fn of(fetch: &Transaction) -> Option<SeenFetch> {
        let word = |text: &[u8], at: usize| {
            short(text).split(' ').nth(at).map(|word| word.trim_end_matches(':').to_owned())
        };
        let opened = fetch.last(Tag::BackendOpen).and_then(|text| word(text, 1));
        let failed = fetch.last(Tag::FetchError);
        let backend =
            opened.or_else(|| failed.filter(|t| t.starts_with(b"backend ")).and_then(|t| word(t, 1)))?;
        let vcl = fetch.last(Tag::VCL_use).and_then(|text| word(text, 0)).unwrap_or_default();
        let status = fetch.last(Tag::BerespStatus).map(short).and_then(|status| status.parse().ok());
        let wait = fetch.timestamp("Beresp").map_or(0.0, |stamp| stamp.since_last);
        Some(SeenFetch {
            origin: visible(format!("{vcl}.{backend}")),
            status: status.filter(|_| failed.is_none()),
            wait: if wait.is_finite() { wait.max(0.0) } else { 0.0 },
        })
    }
}

/// Joins records to events. Keeps little of each transaction, and only of some.
#[derive(Debug)]
pub struct Collector {
    grouping: Grouping,
}

impl Default for Collector {
    fn default() -> Collector {
        Collector { grouping: Grouping::with_limit(MAX_OPEN) }
    }
}

impl Collector {
    /// Adds a record. Returns the event that it completes.
    pub fn add(&mut self, record: &Record<'_>) -> Option<Event> {
        if !is_needed(record) {
            return None;
        }
        Event::of(self.grouping.add(record)?)
    }
}

/// Returns whether an event depends on a record. Sessions are left out: there may be very many that do nothing.
#[inline]
pub fn is_needed(record: &Record<'_>) -> bool {
    match record.tag {
        Tag::Begin => !record.text.starts_with(b"sess"),
        Tag::Timestamp => {
            let is_step = |step: &[u8]| record.text.starts_with(step);
            [&b"Start:"[..], b"Process:", b"Resp:", b"Beresp:", b"Pipe"].into_iter().any(is_step)
        }
        Tag::VCL_use | Tag::BackendOpen | Tag::BerespStatus | Tag::FetchError => true,
        _ => parts::is_needed(record),
    }
}

/// Returns whether a pool of memory is one of the open connections: `sess` and a number.
pub fn is_pool_of_sessions(name: &str) -> bool {
    name.strip_prefix("sess").is_some_and(|rest| rest.bytes().all(|byte| byte.is_ascii_digit()))
}

/// Escapes the characters of an escaped text that have no width of their own, such as accents that combine with what is
/// before them: columns of a table would not be where they seem to be.
pub fn visible(text: String) -> String {
    if text.is_ascii() {
        return text;
    }
    let mut out = String::new();
    for c in text.chars() {
        if crate::width::char_width(c) == 0 {
            out.extend(c.escape_unicode());
        } else {
            out.push(c);
        }
    }
    out
}
