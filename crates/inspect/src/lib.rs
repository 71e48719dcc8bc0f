//! The client side of a daemon's interfaces: the shared memory, the management port and its own requests. The daemon
//! does not need it.
//!
//! The daemon may be Varnish 7.3 or later, may end at any time, and may write what its clients and origins send: every
//! byte is checked before it is used, and printed only after [`page::plain`] has escaped it.
#![forbid(unsafe_code)]

pub mod access_log;
pub mod counters;
mod dates;
mod decimal;
pub mod directory;
mod fault;
mod field_value;
pub mod follow;
mod http2;
pub mod invalidation;
pub mod log_line;
pub mod log_sink;
pub mod management;
pub mod page;
pub mod parts;
pub mod request;
pub mod request_log;
pub mod ring;
mod socket;
pub mod transaction;
pub mod why;
pub mod wire;

pub use fault::Fault;
