//! Connections: transports for both sides of the cache, listeners and PROXY headers, limits of time and of descriptors,
//! pools of idle connections to origins, and health probes.
#![forbid(unsafe_code)]

mod capacity;
mod client_socket;
pub mod connection;
pub mod deadlines;
pub mod descriptors;
pub mod endpoint;
pub mod linger;
mod listener;
mod peek;
pub mod memory;
mod pace;
pub mod disconnect;
pub mod pool;
pub mod probe;
pub mod probe_attempt;
pub mod proxy_out;
pub mod record;
mod retired;
mod rx;
pub mod stream;
mod trial;
pub mod trust;
mod waiters;

pub use capacity::Counted;
pub use client_socket::{ClientSocket, advance};
pub use connection::{Connection, Facts};
pub use endpoint::{ConnectError, Endpoint};
pub use listener::{Listener, Side};
pub use look::{Peeked, PeerState, SAMPLE};
pub use pool::{Pools, Resting, Surplus, Taken, Wanted};
pub use record::{Exchange, Received, Record};
pub use rx::Rx;
pub use stream::{RxHalf, Stream, TxHalf};
pub use trust::{SpokeFirst, Watch};
