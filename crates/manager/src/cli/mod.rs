//! The connections of the management port: admission, commands and replies.

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
