//! Sessions: client connections of HTTP/1 and HTTP/2, which create requests for the engine.
//!
//! `serve` runs a session, `receive` reads heads, `begin` creates requests from them, and `proxy_header` reads the
//! client's address from a PROXY header.
#![forbid(unsafe_code)]

mod address_limit;
mod begin;
mod connection;
mod h2;
mod proxy_header;
mod receive;
mod serve;

pub use serve::run;
