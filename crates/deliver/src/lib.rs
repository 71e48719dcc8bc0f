//! Bodies of responses on their way to clients. A [`Sink`] is the last step of it, one for each protocol; what comes
//! before is written once: reading what is stored, as it arrives ([`send_stored`]), filters and included responses
//! ([`BodyPipeline`], [`EsiInclude`]), and several ranges ([`send_parts`]).
//!
//! There are no sockets here. All of it runs in the task of the request that is answered, and waits where the sink
//! does, or for more of a body that is being fetched.
#![forbid(unsafe_code)]

mod pace;
mod parts;
mod pipeline;
mod reader;
mod sink;
mod source;
mod stored;
#[cfg(test)]
mod tests;

pub use pace::Pace;
pub use parts::send_parts;
pub use pipeline::{BodyPipeline, BodySink, EsiInclude};
pub use sink::{SendError, Sink};
pub use source::Source;
pub use stored::send_stored;
