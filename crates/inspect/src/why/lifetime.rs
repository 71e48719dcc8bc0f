//! How long a response may be used, and what forbids to cache it.

use lacquer_flow::why::{self, Forbidden};
use lacquer_shm::Tag;

use super::story::{Place, Story};
use super::ttl::{Lifetime, TtlRecord, failed, stored_for, ttl_record};
use crate::page::short;
use crate::transaction::{ORIGIN_RESPONSE, Transaction};

/// The origin of a lifetime.
#[derive(Clone, Debug, PartialEq)]
pub enum Source {
    Header(String),
    /// The parameter `default_ttl`: no header speaks of it.
    Default,
    Vcl(Option<Place>),
}

/// The reason why a response must not be cached.
#[derive(Clone, Debug, PartialEq)]
pub enum Obstacle {
    SetCookie,
    /// A header with its value.
    Header(String),
    VaryAll,
    Status(u16),
    /// It has expired on arrival; the header that says so.
    Expired(String),
    Vcl(Option<Place>),
    Failed(String),
    Unknown,
}

/// Whether a response was stored.
#[derive(Clone, Debug, PartialEq)]
pub enum Storing {
    Stored(Lifetime, Source),
    /// It was not, and until when the cache remembers that, in seconds.
    Not(Obstacle, f64),
}

/// Decides whether the response of a fetch was stored, and why.
pub fn storing(story: &Story, fetch: &Transaction) -> Storing {
    let records: Vec<(usize, TtlRecord)> = fetch
        .records()
        .enumerate()
        .filter(|(_, record)| record.tag == Tag::TTL)
        .filter_map(|(at, record)| Some((at, ttl_record(record.text)?)))
        .collect();
    let error = fetch.last(Tag::FetchError).map(short);
    if failed(fetch) || records.is_empty() {
        return Storing::Not(
            Obstacle::Failed(error.unwrap_or_else(|| "it gave no response".to_owned())),
            0.0,
        );
    }
    if let Some(lifetime) = stored_for(fetch).filter(|lifetime| lifetime.ttl > 0.0) {
        let source = source_of(story, fetch, &records);
        return Storing::Stored(lifetime, source);
    }
    let remembered = records.last().map_or(0.0, |(_, last)| last.lifetime.ttl.max(0.0));
    Storing::Not(obstacle(story, fetch, &records), remembered)
}

fn source_of(story: &Story, fetch: &Transaction, records: &[(usize, TtlRecord)]) -> Source {
    // The last record of VCL that changed the TTL.
    let changed = records.windows(2).rfind(|two| two[0].1.lifetime.ttl != two[1].1.lifetime.ttl);
    if let Some((at, _)) = changed.map(|two| &two[1]).filter(|(_, record)| record.source == "VCL") {
        return Source::Vcl(story.place(fetch, *at, &|line| line.contains("beresp.ttl")));
    }
    match lifetime_header(fetch) {
        Some(header) => Source::Header(header),
        None => Source::Default,
    }
}

/// Returns the header that sets the lifetime.
fn lifetime_header(fetch: &Transaction) -> Option<String> {
    let (name, value) = why::lifetime_header(&|name| fetch.header(ORIGIN_RESPONSE, name))?;
    Some(format!("{name}: {}", short(value.as_bytes())))
}

fn obstacle(story: &Story, fetch: &Transaction, records: &[(usize, TtlRecord)]) -> Obstacle {
    let value = |name: &str| fetch.header(ORIGIN_RESPONSE, name);
    // The statement of a VCL that made it uncacheable.
    let first = records.iter().find(|(_, record)| record.is_uncacheable);
    let by_vcl = first.filter(|(_, record)| record.source != "RFC").and_then(|(at, _)| {
        let words = ["beresp.uncacheable", "return (pass", "return(pass", "beresp.ttl"];
        story.place(fetch, *at, &|line| words.iter().any(|word| line.contains(word)))
    });
    // The place is known to be the user's own: no header has decided.
    let own = by_vcl.filter(|place| !place.is_builtin);
    let returned = story.call(fetch, "vcl_backend_response");
    let passed = returned.as_ref().filter(|call| call.action == "pass").and_then(|call| call.place.clone());
    if let Some(place) = own.or(passed) {
        return Obstacle::Vcl(Some(place));
    }
    match why::forbidden_by(&value) {
        Some(Forbidden::SetCookie) => return Obstacle::SetCookie,
        Some(Forbidden::Directive(name)) => {
            let text = value(name).unwrap_or_default();
            return Obstacle::Header(format!("{name}: {}", short(text.as_bytes())));
        }
        Some(Forbidden::VaryAll) => return Obstacle::VaryAll,
        None => {}
    }
    if returned.is_some_and(|call| call.action == "pass") {
        return Obstacle::Vcl(None);
    }
    let status = fetch.first(Tag::BerespStatus).and_then(|text| std::str::from_utf8(text).ok()?.parse().ok());
    if let Some(status) = status.filter(|status| !why::is_cacheable(*status)) {
        return Obstacle::Status(status);
    }
    match lifetime_header(fetch) {
        Some(header) => Obstacle::Expired(header),
        // Without VCL it would have lived.
        None if records.first().is_some_and(|(_, record)| record.lifetime.ttl > 0.0) => {
            let last = records.iter().rfind(|(_, record)| record.source == "VCL");
            let at = last.map_or(0, |(at, _)| *at);
            Obstacle::Vcl(story.place(fetch, at, &|line| line.contains("beresp.ttl")))
        }
        None => Obstacle::Unknown,
    }
}
