//! Sessions: client connections of HTTP/1, HTTP/2 and HTTP/3, which create requests for the engine.
//!
//! `stages` takes a new connection (`arrival`) through the stages of its listener, such as the PROXY header
//! (`proxy_header`) and the handshake of TLS (`tls_handshake`). `serve` runs the session, `receive` reads heads, and
//! `begin` creates requests from them.
#![forbid(unsafe_code)]

mod address_limit;
mod arrival;
mod begin;
mod connection;
mod h2;
pub mod h3;
mod proxy_header;
mod receive;
mod serve;
mod stages;
mod stream_request;
#[cfg(test)]
mod tests;
mod tls_handshake;

pub use serve::run;
