//! Faults of request bodies.

use super::allowance::Missed;

/// The reason for which a body ended early.
#[derive(Debug)]
pub enum BodyError {
    /// There is no storage to keep it in. The text is for the log.
    NoPlace(String),
    /// There is no room to keep all of it.
    NoRoom,
    /// The framing is wrong. The text is for the log.
    Framing(&'static str),
    /// A filter failed. The reason is logged with the report of the filters.
    Filter,
    /// The body exceeds the given limit.
    TooBig,
    /// The body came slower than `req_body_min_rate`.
    TooSlow,
}

impl BodyError {
    /// Returns the error for bytes that did not come. `text` is for the log, unless the rate was at fault.
    pub fn missed(missed: Missed, text: &'static str) -> BodyError {
        match missed {
            Missed::Bytes => BodyError::Framing(text),
            Missed::Rate => BodyError::TooSlow,
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
