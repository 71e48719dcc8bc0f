//! The records of lifetimes.

use lacquer_shm::Tag;

use crate::transaction::Transaction;

/// The lifetime of a stored response.
#[derive(Clone, Debug, PartialEq)]
pub struct Lifetime {
    pub ttl: f64,
    pub grace: f64,
    pub keep: f64,
    /// The time from which they count, in seconds since the epoch.
    pub origin: f64,
}

impl Lifetime {
    /// Returns the time at which the cache has dropped the object, in seconds since the epoch.
    pub fn end(&self) -> f64 {
        self.origin + self.ttl.max(0.0) + self.grace + self.keep
    }
}

/// A record of the tag `TTL`.
pub struct TtlRecord {
    pub source: String,
    pub lifetime: Lifetime,
    pub is_uncacheable: bool,
}

/// Parses a record of the tag `TTL`.
pub fn ttl_record(text: &[u8]) -> Option<TtlRecord> {
    let text = std::str::from_utf8(text).ok()?;
    let mut words = text.split(' ');
    let source = words.next()?.to_owned();
    let mut number = || words.next()?.parse::<f64>().ok();
    let lifetime = Lifetime { ttl: number()?, grace: number()?, keep: number()?, origin: number()? };
    Some(TtlRecord { source, lifetime, is_uncacheable: text.ends_with("uncacheable") })
}

/// Returns the lifetime with which a fetch was stored; `None` if it was not.
pub fn stored_for(fetch: &Transaction) -> Option<Lifetime> {
    let last = fetch.all(Tag::TTL).filter_map(ttl_record).last()?;
    // Without a ttl, no request finds the object: not within its grace either. One that must be validated before each use
    // has a ttl that the log rounds to 0.
    let mut of_headers = fetch.all(Tag::TTL).filter_map(ttl_record).filter(|record| record.source == "RFC");
    let is_kept = last.lifetime.keep > 0.0 && of_headers.any(|record| record.lifetime.keep > 0.0);
    let is_usable = last.lifetime.ttl > 0.0 || last.lifetime.ttl == 0.0 && is_kept;
    (!last.is_uncacheable && is_usable && !failed(fetch)).then_some(last.lifetime)
}

/// Returns whether VCL made an error page in place of the response of a fetch, or ended the fetch.
pub fn failed(fetch: &Transaction) -> bool {
    has_error_page(fetch) || ending(fetch).is_some()
}

/// Returns whether VCL made an error page in place of the response of a fetch.
pub fn has_error_page(fetch: &Transaction) -> bool {
    fetch.all(Tag::VCL_call).any(|call| call == b"BACKEND_ERROR")
}

/// Returns the action by which VCL ended a fetch without a response.
pub fn ending(fetch: &Transaction) -> Option<&[u8]> {
    fetch.last(Tag::VCL_return).filter(|action| matches!(*action, b"abandon" | b"fail"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn damaged_records_have_no_lifetime() {
        let record = ttl_record(b"RFC 120 10 0 1795732703 1 1 0 0 cacheable").expect("valid");
        assert_eq!((record.lifetime.ttl, record.is_uncacheable), (120.0, false));
        for text in [&b""[..], b"RFC", b"RFC 1 2 3", b"RFC a b c d", b"\xff 1 2 3 4"] {
            assert!(ttl_record(text).is_none());
        }
    }
}
