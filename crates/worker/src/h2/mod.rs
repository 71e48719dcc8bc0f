//! HTTP/2 towards clients. One task per connection reads frames ([`session`]) and writes the gathered ones.
//! Each stream's request is like any other, except for the source of its body and the sink of its response
//! ([`stream`], [`sender`]). The protocol itself is `lacquer-h2`.

mod arrival;
mod buffers;
mod conn;
mod intake;
mod opening;
mod output;
mod receive;
mod request;
mod sender;
mod sending;
mod session;
mod stream;
mod turns;
mod upgrade;

pub use arrival::Arrival;
pub use buffers::Buffers;
pub use output::SendLimits;
pub use request::finish;
pub use sender::StreamSender;
pub use session::serve;
pub use stream::Stream;
pub use turns::Turns;
pub use upgrade::{Upgrade, is_wanted, upgrade};
