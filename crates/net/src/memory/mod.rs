//! Connections in memory, for a simulated world. The engine uses them like TCP connections.
//!
//! The engine has one end, [`Near`]. The world has the other end, the [`Peer`], and decides when bytes arrive and how
//! many the engine may read or write at a time. Both ends are used by one thread, but the pool of idle connections
//! requires `Send`, so the state has a lock.
//!
//! A connection may have a write buffer, like TLS: the engine's bytes reach the peer only when the engine flushes them,
//! or when it needs room for more. The orderly end of such a connection begins with a farewell that the peer sees.

mod connection;
mod origins;

pub use connection::{Ends, Limits, Near, Peer, Rx, Tx, connection};
pub(crate) use origins::connect;
pub use origins::{Dialed, refuse_others, serve_at, serve_nothing};
