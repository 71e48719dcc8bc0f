//! HTTP/2 (RFC 9113) and its header compression (RFC 7541), as functions over bytes and values. The parts are frames and
//! settings, header blocks that become requests, the windows of flow control, the rules of streams of a server, and the
//! connection of a client to an origin. This crate owns no socket and reads no clock. The faults of a client's stream or
//! connection, and their log records, are those of Varnish.
#![forbid(unsafe_code)]

pub mod client;
pub mod error_table;
pub mod fault;
pub mod flow;
pub mod frame;
pub mod hpack;
pub mod request;
pub mod response;
pub mod rules;
pub mod settings;
pub mod stream;

pub use error_table::{Error, Reason};
pub use fault::{Fault, Note, Tag};
