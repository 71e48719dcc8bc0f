//! The decisions of HTTP caching, as functions from facts to a value. They concern the lifetime and the storing of a
//! response, the effect of a 304, the result of a lookup, the bytes to send, and repeated attempts.
//!
//! A decision has no side effects. Its caller gathers the facts, and the time if it matters, and carries out and logs
//! the returned value. There are no sockets, clocks, log records or cached objects here, so each decision is tested
//! with a table of cases. Rules about a single message (parsing, freshness, conditions, ranges) are in
//! `lacquer-http`.
#![forbid(unsafe_code)]

pub mod breaker;
pub mod delivery;
pub mod filters;
pub mod inclusion;
pub mod interest;
pub mod lifetime;
pub mod lookup;
pub mod partial;
pub mod persistence;
pub mod request;
pub mod retry;
pub mod reuse;
pub mod rfc9111;
pub mod stale_if_error;
pub mod storing;
pub mod transfer;
pub mod upgrade;
pub mod validation;
pub mod why;

pub use lifetime::Lifetime;
