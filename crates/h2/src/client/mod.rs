//! HTTP/2 for clients: a connection to a server with its streams, as functions over bytes. The caller passes on the bytes
//! that arrive ([`Connection::receive`]) and sends those that result ([`Connection::output`]).
//!
//! The server is not trusted. Every frame, field and length is checked before it has an effect, and memory is bounded: by
//! the windows for bodies, by [`Limits`] for fields, and by the output that waits. A fault of one response ends its stream,
//! any other fault the connection.

mod block;
mod connection;
mod failure;
mod frames;
mod request;
mod response;
mod stream;

#[cfg(test)]
mod tests;

pub use connection::{Connection, Limits};
pub use failure::Failure;
pub use request::{Refused, Request};
pub use stream::Received;
