//! Delivery of response bodies to clients: from storage, through filters, includes and ranges, to a sink. A [`Sink`] is
//! the last step; there is one for each protocol ([`ResponseSink`]). The steps before it are the same for all
//! protocols: reading a stored body, even while it is being fetched ([`send_stored`]), filters and included responses
//! ([`BodyPipeline`], [`EsiInclude`]), and multiple ranges ([`send_parts`]).
//!
//! This crate has no sockets. Everything runs in the task of the request, and waits for the sink, or for more of a
//! body that is being fetched or read from a device.
#![forbid(unsafe_code)]

mod pace;
mod parts;
mod pipeline;
mod reader;
mod response;
mod sink;
mod source;
mod stored;
#[cfg(test)]
mod tests;

pub use pace::Pace;
pub use parts::send_parts;
pub use pipeline::{BodyPipeline, BodySink, EsiInclude};
pub use response::{Head, MessageHead, ResponseSink, Sent};
pub use sink::{Behind, SendError, Sink};
pub use source::Source;
pub use stored::send_stored;
