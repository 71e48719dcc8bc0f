//! The management port's connections: who may have one, what they send, what they are answered.

mod admission;
mod master;
mod outbox;
mod session;
mod sessions;
mod sockets;
mod throttle;

pub use master::Master;
pub use session::{CliChannel, Origin};
pub use sessions::Sessions;
pub use sockets::CliSockets;
