//! Connections: streams for both sides of the cache, pools of idle connections to origins, and health probes.
#![forbid(unsafe_code)]

mod capacity;
pub mod connection;
pub mod endpoint;
mod look;
pub mod memory;
mod pace;
pub mod pool;
pub mod probe;
pub mod probe_attempt;
pub mod record;
mod retired;
pub mod stream;
mod trial;
pub mod trust;
mod waiters;

pub use capacity::Counted;
pub use connection::{Connection, Facts};
pub use endpoint::{ConnectError, Endpoint};
pub use look::{Look, PeerState, SAMPLE};
pub use pool::{Pools, Resting, Surplus, Taken, Wanted};
pub use record::{Exchange, Received, Record};
pub use stream::{RxHalf, Stream, TxHalf};
pub use trust::{SpokeFirst, Watch};
