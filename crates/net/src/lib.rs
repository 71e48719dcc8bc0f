//! Connections: transports for clients and origins, listeners and PROXY headers, deadlines, the reserve of
//! descriptors, pools of idle connections to origins, and health probes.
#![forbid(unsafe_code)]

mod capacity;
mod client_socket;
pub mod connection;
pub mod deadlines;
pub mod descriptors;
pub mod disconnect;
pub mod endpoint;
mod file_part;
pub mod linger;
mod listener;
pub mod memory;
mod peek;
pub mod pool;
pub mod probe;
pub mod probe_attempt;
pub mod proxy_out;
pub mod record;
mod response_times;
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
pub use file_part::FilePart;
pub use listener::{Listener, Side};
pub use peek::{Peeked, PeerState, SAMPLE};
pub use pool::{Pools, Resting, Surplus, Taken, Wanted};
pub use record::{Exchange, Received, Record};
pub use rx::Rx;
pub use stream::{RxHalf, Stream, TxHalf};
pub use trust::{SpokeFirst, Watch};
