//! The plan by which a response is sent.

use lacquer_filters::Filter;
use lacquer_http::multipart::Multipart;

/// Body bytes to send: none, all, or a part of the stored ones.
pub struct Plan {
    /// The length of the body as it is sent, if known in advance.
    pub length: Option<u64>,
    /// The range of the stored body to send when no filter changes it.
    pub from: u64,
    pub to: Option<u64>,
    pub filters: Vec<Box<dyn Filter>>,
    /// The ESI includes of the body are delivered with it.
    pub esi: bool,
    /// The response is a range. A range whose end is not reached is an error of its own.
    pub ranged: bool,
    /// Several ranges of the body, each in a part of its own.
    pub parts: Option<Box<Multipart>>,
}

impl Plan {
    /// Returns whether the body goes through the pipeline, instead of from storage to the connection.
    pub fn is_poured(&self) -> bool {
        self.esi || !self.filters.is_empty() || self.parts.is_some()
    }
}
