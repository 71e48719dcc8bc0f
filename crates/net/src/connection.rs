//! A connection to an origin, with facts about it that stay valid until it is closed. The next request on the
//! connection need not query the kernel again.

use std::net::SocketAddr;
use std::os::fd::{AsRawFd, RawFd};

use lacquer_sources::clock::Instant;

use crate::capacity::Counted;
use crate::endpoint::Endpoint;
use crate::record::Record;
use crate::rx::Rx;
use crate::stream::Stream;
use crate::tx_half::TxHalf;

/// Both halves of a connection, the facts about it and its history, until it is closed or returned to the pool.
pub struct Connection {
    pub rx: Rx,
    pub tx: TxHalf,
    pub facts: Facts,
    pub record: Record,
}

/// Facts that are read from the kernel once, after the connection is established.
#[derive(Clone, Debug)]
pub struct Facts {
    pub fd: RawFd,
    pub remote: Option<SocketAddr>,
    /// Address and port of the remote end, then of the local one, in the format of the log.
    pub ends: Box<str>,
}

impl Facts {
    fn of(stream: &Stream, endpoint: &Endpoint) -> Facts {
        let remote = match (endpoint.v4, endpoint.v6) {
            (Some(_), Some(_)) => stream.peer_addr(),
            (only, None) | (None, only) => only,
        };
        let ends = format!("{} {}", side(remote), side(stream.local_addr())).into();
        Facts { fd: stream.as_fd().as_raw_fd(), remote, ends }
    }
}

fn side(addr: Option<SocketAddr>) -> String {
    addr.map_or_else(|| "0.0.0.0 0".to_owned(), |a| format!("{} {}", a.ip().to_canonical(), a.port()))
}

impl Connection {
    /// Wraps a stream that is connected to this endpoint.
    pub fn new(stream: Stream, endpoint: &Endpoint, counted: Counted) -> Box<Connection> {
        let facts = Facts::of(&stream, endpoint);
        let (rx, tx) = stream.split();
        Box::new(Connection { rx: Rx::new(rx), tx, facts, record: Record::new(Instant::now(), counted) })
    }

    /// Moves the connection from the reactor that it is registered with to the current one.
    pub(crate) fn rebind(self: Box<Connection>) -> Option<Box<Connection>> {
        let Connection { rx, tx, facts, record } = *self;
        let (rx, tx) = Stream::join(rx.into_half(), tx)?.rebind().ok()?.split();
        Some(Box::new(Connection { rx: Rx::new(rx), tx, facts, record }))
    }
}
