//! The plan for sending a response body.

use lacquer_filters::Filter;
use lacquer_http::multipart::Multipart;

/// The body bytes to send, and the filters that they pass through.
pub struct Plan {
    /// The length of the body as sent, if it is known in advance.
    pub length: Option<u64>,
    /// The range of the stored body to send, if no filter selects the range.
    pub from: u64,
    pub to: Option<u64>,
    pub filters: Vec<Box<dyn Filter>>,
    /// The body is delivered by its ESI program, with its includes.
    pub esi: bool,
    /// The response is a range. A range that ends early closes the connection with its own reason (`RangeShort`).
    pub ranged: bool,
    /// The ranges of a multipart response.
    pub parts: Option<Box<Multipart>>,
}

impl Plan {
    /// Returns whether the body is sent through a [`lacquer_deliver::BodyPipeline`], not from storage to the
    /// connection.
    pub fn needs_pipeline(&self) -> bool {
        self.esi || !self.filters.is_empty() || self.parts.is_some()
    }
}
