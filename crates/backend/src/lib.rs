//! Connections: streams as both sides of the cache use them, the pools of idle ones towards origins, and
//! the probes that check whether origins are well.
#![forbid(unsafe_code)]

pub mod capacity;
mod connection;
pub mod endpoint;
pub mod poke;
pub mod pool;
pub mod probe;
pub mod record;
pub mod stream;
pub mod trust;

pub use connection::{Connection, Facts};
pub use endpoint::{ConnectError, Endpoint};
pub use pool::{Demand, Pools, Resting, Surplus, Taken};
pub use record::{Exchange, Received, Record};
pub use stream::{Look, RxHalf, SAMPLE, Stream, TxHalf};
pub use trust::SpokeFirst;
