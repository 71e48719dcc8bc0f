//! HTTP/3 sessions. One task per connection drives QUIC, reads the streams of the protocol (`session`), and opens
//! requests (`opening`). The request of a stream is like any other, except for the source of its body and the sink of
//! its response (`lacquer_engine::h3`). The protocol itself is in `lacquer-h3`.

mod control;
mod opening;
mod request;
mod serve;
mod session;
mod settings;

pub use serve::run;
pub use settings::settings;
