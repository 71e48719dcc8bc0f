//! HTTP/2 sessions. One task per connection reads frames ([`session`]) and writes the gathered ones. The request of a
//! stream is like any other, except for the source of its body and the sink of its response (`lacquer_engine::h2`).
//! The protocol itself is in `lacquer-h2`.

mod handover;
mod opening;
mod receive;
mod request;
mod session;
mod upgrade;

pub use handover::Handover;
pub use session::serve;
pub use upgrade::{Upgrade, is_wanted, receive_preface, upgrade};
