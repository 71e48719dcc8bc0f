//! The facts about a protocol that protocol-independent code needs.

use lacquer_flow::persistence::Carrier;

pub struct Protocol {
    /// The value of `req.transport`.
    pub name: &'static str,
    /// The version that is logged with responses (`RespProtocol`).
    pub version: &'static str,
    /// The name of the protocol's sink in the log.
    pub sink: &'static str,
    pub carrier: Carrier,
}
