//! TLS as a transport, for clients and origins. rustls does the handshake (`handshake`, over a socket in `accept`). Then
//! it hands over the keys, and the records are opened and sealed here (`keys`): a stored body is encrypted straight from
//! its mapping into the buffer that is sent, and an idle connection has no buffers (`buffers`).
//!
//! `early` continues a handshake whose client has sent data before its end.
//!
//! `session` is the state of a connection without sockets, with what it has received (`input`) and has to send
//! (`output`). `connection` drives it over a `socket`, and has the operations of a transport.

mod accept;
mod buffers;
mod connection;
mod early;
mod facts;
mod failure;
mod handshake;
mod input;
mod keys;
mod output;
mod session;
mod socket;
#[cfg(test)]
mod tests;
mod traffic;
mod turns;

pub use accept::{Acceptance, Failed, accept, connect};
pub use connection::{Connection, Rx, Tx};
pub use facts::{Certificate, TlsFacts};
pub use failure::{Culprit, Failure};
pub use turns::HandshakeTurns;
