//! QUIC for servers (RFC 9000): endpoints over UDP sockets, each on its reactor, and the connections of their clients.
//!
//! The protocol is `quinn-proto`, which does no I/O. An [`Endpoint`] receives datagrams and passes them to their
//! connections; the task that serves a [`Connection`] handles them, and sends. The connection ids of an endpoint name
//! its worker and its reactor ([`Group`]): a datagram that arrives at another is passed on.
#![forbid(unsafe_code)]

mod admission;
mod connection;
mod core;
mod endpoint;
mod error;
mod event;
mod forward;
mod group;
mod group_name;
mod handshakes;
mod ids;
mod mailbox;
#[cfg(any(test, feature = "memory"))]
mod memory;
mod relay;
mod server;
mod settings;
mod socket;
#[cfg(test)]
mod tests;
mod timer;
mod tls_session;

pub use bytes::Bytes;
pub use connection::Connection;
pub use endpoint::{Endpoint, Host};
pub use error::{ReadError, WriteError};
pub use event::{CloseReason, Event};
pub use forward::Forwarder;
pub use group::{Group, Seed, Workers};
pub use group_name::GroupName;
#[cfg(any(test, feature = "memory"))]
pub use memory::{Sent, Wire};
pub use quinn_proto::{Dir, StreamId};
pub use relay::{Predecessor, Relayed, receive as receive_relayed};
pub use settings::Settings;
pub use tls_session::HandshakeFacts;
