//! The CLI's connections: who they are, what they send, what they are answered.

mod master;
mod session;
mod sockets;

pub use master::Master;
pub use session::{Origin, Session, Verdict};
pub use sockets::{CliSockets, ident};
