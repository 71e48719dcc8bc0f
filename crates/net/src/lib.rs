//! Connections: transports for clients and origins, listeners and PROXY headers, deadlines, the reserve of
//! descriptors, pools of idle connections to origins, and health probes.
#![forbid(unsafe_code)]

mod address_parts;
mod capacity;
mod circuit;
mod client_socket;
mod connect_error;
pub mod connection;
pub mod deadlines;
pub mod descriptors;
pub mod disconnect;
pub mod endpoint;
mod facts;
mod file_part;
mod http_version;
pub mod linger;
mod listener;
#[cfg(any(test, feature = "memory"))]
pub mod memory;
pub mod multiplex;
mod negotiated;
#[cfg(not(any(test, feature = "memory")))]
mod no_memory;
mod opening;
mod peek;
pub mod pool;
pub mod probe;
pub mod probe_attempt;
mod probe_http2;
pub mod proxy_out;
mod race;
pub mod record;
mod response_times;
mod retired;
mod rx;
mod rx_half;
pub mod stream;
mod time_limit;
pub mod tls;
mod trial;
pub mod trust;
mod tx_half;
mod waiters;

#[cfg(not(any(test, feature = "memory")))]
use no_memory as memory;

pub use capacity::Counted;
pub use client_socket::{ClientSocket, advance};
pub use connect_error::{Cause, ConnectError, ConnectStage};
pub use connection::Connection;
pub use endpoint::{Addresses, Endpoint, LocalServer, SharedName};
pub use facts::Facts;
pub use file_part::FilePart;
pub use http_version::HttpVersion;
pub use listener::{Listener, Side, Stage};
pub use negotiated::Negotiated;
pub use opening::{Opening, tls_reason_of};
pub use peek::{Peeked, PeerState, SAMPLE};
pub use pool::{Pools, Resting, Surplus, Taken, Wanted};
pub use record::{CachedObject, Exchange, Received, Record};
pub use rx::Rx;
pub use rx_half::RxHalf;
pub use stream::Stream;
pub use tls::{Culprit, Failure, HandshakeTurns, TlsFacts};
pub use trust::{Unsolicited, Watch};
pub use tx_half::TxHalf;
