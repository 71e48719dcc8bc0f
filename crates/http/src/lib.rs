//! HTTP messages and their rules, as functions over bytes and values. The parts are the workspace for the texts of a
//! transaction, header lists, the HTTP/1 codec, dates, freshness, Vary, ranges and the PROXY protocol. This crate
//! owns no socket and reads no clock, and serving a request allocates nothing from the heap in steady state.
#![forbid(unsafe_code)]

pub mod ascii;
pub mod authority;
pub mod body_status;
pub mod conditional;
pub mod date;
pub mod dictionary;
pub mod directives;
pub mod fixed_text_table;
pub mod freshness;
pub mod h1;
pub mod header_table;
pub mod message;
pub mod multipart;
mod number;
pub mod pack;
pub mod proxy_protocol;
pub mod range;
mod session_close_table;
mod text;
pub mod trace_context;
pub mod trailers;
pub mod vary;
pub mod websocket;
pub mod workspace;

pub use body_status::BodyStatus;
pub use fixed_text_table::{fixed, reason_of};
pub use header_table::{Filter, HeaderName, OwnedName};
pub use message::{Field, Message, Slot};
pub use session_close_table::SessClose;
pub use text::Text;
pub use workspace::{Mark, Overflow, Workspace};

#[cfg(test)]
mod robustness_tests;
