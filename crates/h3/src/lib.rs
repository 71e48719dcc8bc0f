//! HTTP/3 for servers (RFC 9114) and its header compression (RFC 9204), as functions over bytes and values. The parts
//! are frames and settings, QPACK, field sections that become requests, responses, and the rules of a connection and
//! its streams. This crate owns no socket and reads no clock. Requests are checked by the code of HTTP/2.
//!
//! A session creates a [`Connection`]. It passes the bytes of each unidirectional stream to [`Connection::receive`],
//! and the bytes of each request stream to [`RequestStream::next`]. It decodes field sections with
//! [`request::decode`], and writes responses with [`response`] and [`frame`].
#![forbid(unsafe_code)]

pub mod connection;
pub mod error_table;
pub mod fault;
pub mod frame;
pub mod qpack;
pub mod request;
pub mod response;
pub mod settings;
mod useless;
pub mod varint;

pub use connection::{Connection, Effects, UniStream};
pub use error_table::{Error, Reason};
pub use fault::Fault;
pub use lacquer_h2::{Note, Tag};
pub use request::RequestStream;
