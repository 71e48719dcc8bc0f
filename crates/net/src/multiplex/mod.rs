//! Connections to origins over HTTP/2, each with many streams. A [`Stream`] carries one request and its response, and
//! takes the place of a connection: it is read and written by the halves of a transport. A read returns the heads of the
//! response in the form of HTTP/1.1, then its body; a write sends a part of the request's body.
//!
//! One task for each connection drives the socket ([`Driver`]). The protocol, with its limits, is `lacquer_h2::client`. The
//! connections of a reactor are found by the endpoint ([`Connections`]). They stay on their reactor.

mod driver;
mod pool;
mod shared;
mod stream;
#[cfg(test)]
mod tests;

pub use driver::{Driver, begin};
pub use pool::{Connections, Opening, Place};
pub use shared::Multiplexed;
pub use stream::{Stream, failure_of};
