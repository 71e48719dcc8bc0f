//! A connection to an origin, with facts about it and its history.

use std::net::SocketAddr;
use std::os::fd::AsRawFd;
use std::sync::Arc;

use lacquer_sources::clock::{self, Instant};

use crate::capacity::Counted;
use crate::endpoint::Endpoint;
use crate::facts::Facts;
use crate::multiplex;
use crate::record::Record;
use crate::rx::Rx;
use crate::rx_half::RxHalf;
use crate::stream::Stream;
use crate::tx_half::TxHalf;

/// Both halves of a connection, the facts about it and its history, until it is closed or returned to the pool.
pub struct Connection {
    pub(crate) rx: Rx,
    pub(crate) tx: TxHalf,
    pub(crate) facts: Facts,
    pub(crate) record: Record,
}

/// Returns the facts about a stream that is connected to this endpoint.
pub(crate) fn facts_of(stream: &Stream, endpoint: &Endpoint) -> Facts {
    let remote = match (endpoint.addresses.v4, endpoint.addresses.v6) {
        (Some(_), Some(_)) => stream.peer_addr(),
        (only, None) | (None, only) => only,
    };
    let ends = format!("{} {}", side(remote), side(stream.local_addr())).into();
    let opened = clock::real();
    Facts { fd: stream.as_fd().as_raw_fd(), remote, ends, opened, tls: stream.negotiated().tls }
}

fn side(addr: Option<SocketAddr>) -> String {
    addr.map_or_else(|| "0.0.0.0 0".to_owned(), |a| format!("{} {}", a.ip().to_canonical(), a.port()))
}

impl Connection {
    /// Wraps a stream that is connected to this endpoint.
    pub fn new(stream: Stream, endpoint: &Endpoint, counted: Counted) -> Box<Connection> {
        let facts = facts_of(&stream, endpoint);
        let (rx, tx) = stream.split();
        Box::new(Connection { rx: Rx::new(rx), tx, facts, record: Record::new(Instant::now(), counted) })
    }

    /// Wraps a stream of a connection with several.
    pub fn of_stream(stream: Arc<multiplex::Stream>) -> Box<Connection> {
        let facts = stream.facts().clone();
        let (rx, tx) = (RxHalf::Stream(stream.clone()), TxHalf::Stream(stream));
        Box::new(Connection { rx: Rx::new(rx), tx, facts, record: Record::of_stream(Instant::now()) })
    }

    /// Returns the stream, if this is one of a connection with several.
    #[inline]
    pub fn stream(&self) -> Option<&Arc<multiplex::Stream>> {
        match &self.tx {
            TxHalf::Stream(stream) => Some(stream),
            _ => None,
        }
    }

    #[inline]
    pub fn rx(&self) -> &Rx {
        &self.rx
    }

    #[inline]
    pub fn rx_mut(&mut self) -> &mut Rx {
        &mut self.rx
    }

    #[inline]
    pub fn tx(&self) -> &TxHalf {
        &self.tx
    }

    /// Returns both halves, for transfers in both directions at once.
    #[inline]
    pub fn halves(&mut self) -> (&mut Rx, &TxHalf) {
        (&mut self.rx, &self.tx)
    }

    #[inline]
    pub fn facts(&self) -> &Facts {
        &self.facts
    }

    #[inline]
    pub fn record(&self) -> &Record {
        &self.record
    }

    #[inline]
    pub fn record_mut(&mut self) -> &mut Record {
        &mut self.record
    }

    /// Closes the connection with a reset.
    #[inline]
    pub fn reset(self: Box<Self>) {
        self.tx.reset();
    }

    /// Closes the connection as [`TxHalf::forget`] does.
    #[inline]
    pub fn forget(self: Box<Self>) {
        self.tx.forget();
    }

    /// Moves the connection from the reactor that it is registered with to the current one.
    pub(crate) fn rebind(self: Box<Connection>) -> Option<Box<Connection>> {
        let Connection { rx, tx, facts, record } = *self;
        let (rx, tx) = Stream::join(rx.into_half(), tx)?.rebind().ok()?.split();
        Some(Box::new(Connection { rx: Rx::new(rx), tx, facts, record }))
    }
}
