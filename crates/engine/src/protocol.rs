//! The facts about a protocol that code for all protocols depends on.

use lacquer_flow::persistence::Carrier;

pub struct Protocol {
    /// The name that `req.transport` has for it.
    pub name: &'static str,
    /// The version in the log's records of responses.
    pub version: &'static str,
    /// The name of its sink in the log.
    pub sink: &'static str,
    pub carrier: Carrier,
}
