//! Connections: streams as both sides of the cache use them, and the pools of idle ones towards origins.
#![forbid(unsafe_code)]

pub mod endpoint;
pub mod pool;
pub mod stream;

pub use endpoint::{ConnectError, Endpoint};
pub use pool::{Pooled, Pools};
pub use stream::{RxHalf, Stream, TxHalf};
