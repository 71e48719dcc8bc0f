//! Faults of request bodies.

use super::allowance::Missed;

/// Why a body ended early.
#[derive(Debug)]
pub enum BodyError {
    /// Nowhere to begin keeping it; the text is for the log.
    NoPlace(String),
    /// No room to keep all of it.
    NoRoom,
    /// The framing is wrong; the text is for the log.
    Framing(&'static str),
    /// A filter failed. The reason is logged with the report of the filters.
    Filter,
    /// More than the limit given.
    TooBig,
    /// It came slower than `req_body_min_rate`.
    TooSlow,
}

impl BodyError {
    /// Bytes did not come; `text` is for the log unless the rate was at fault.
    pub fn missed(missed: Missed, text: &'static str) -> BodyError {
        match missed {
            Missed::Bytes => BodyError::Framing(text),
            Missed::Rate => BodyError::TooSlow,
        }
    }

    pub fn text(&self) -> String {
        match self {
            BodyError::NoPlace(text) => text.clone(),
            BodyError::NoRoom => "Could not get storage".to_owned(),
            BodyError::Framing(text) => (*text).to_owned(),
            BodyError::Filter => "0 (Success)".to_owned(),
            BodyError::TooBig => "Request body too big to cache".to_owned(),
            BodyError::TooSlow => "Hit req_body_min_rate".to_owned(),
        }
    }
}
