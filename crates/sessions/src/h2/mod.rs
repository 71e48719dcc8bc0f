//! HTTP/2 towards clients. One task per connection reads frames ([`session`]) and writes the gathered ones.
//! Each stream's request is like any other, except for the source of its body and the sink of its response
//! (`lacquer_engine::h2`). The protocol itself is `lacquer-h2`.

mod arrival;
mod opening;
mod receive;
mod request;
mod session;
mod upgrade;

pub use arrival::Arrival;
pub use request::finish;
pub use session::serve;
pub use upgrade::{Upgrade, is_wanted, upgrade};
