//! Errors of request bodies.

use super::allowance::Missed;

/// The reason why reading a body failed.
#[derive(Debug)]
pub enum BodyError {
    /// No storage could be allocated for the body. The text is for the log.
    NoStorage(String),
    /// The storage has no room for the whole body.
    StorageFull,
    /// The framing is malformed or the body incomplete. The text is for the log.
    Framing(&'static str),
    /// A filter failed. The reason is logged with the report of the filters.
    Filter,
    /// The body exceeds the limit of `std.cache_req_body()`.
    TooBig,
    /// The body was slower than `req_body_min_rate`.
    TooSlow,
}

impl BodyError {
    /// Returns the error for bytes that were not received. `text` is for the log, unless the rate was too low.
    pub fn missed(missed: Missed, text: &'static str) -> BodyError {
        match missed {
            Missed::Bytes => BodyError::Framing(text),
            Missed::Rate => BodyError::TooSlow,
        }
    }

    /// Returns whether the client is at fault, and not VCL or this machine.
    pub fn is_of_client(&self) -> bool {
        match self {
            BodyError::Framing(_) | BodyError::TooBig | BodyError::TooSlow => true,
            BodyError::Filter | BodyError::NoStorage(_) | BodyError::StorageFull => false,
        }
    }

    pub fn text(&self) -> String {
        match self {
            BodyError::NoStorage(text) => text.clone(),
            BodyError::StorageFull => "Could not get storage".to_owned(),
            BodyError::Framing(text) => (*text).to_owned(),
            BodyError::Filter => "0 (Success)".to_owned(),
            BodyError::TooBig => "Request body too big to cache".to_owned(),
            BodyError::TooSlow => "Hit req_body_min_rate".to_owned(),
        }
    }
}
