//! A connection to an origin, with facts about it that stay valid until it is closed. The next request on the
//! connection need not query the kernel again.

use std::net::SocketAddr;
use std::os::fd::{AsRawFd, RawFd};
use std::sync::Arc;

use lacquer_sources::clock::{self, Instant};

use crate::capacity::Counted;
use crate::endpoint::Endpoint;
use crate::record::Record;
use crate::rx::Rx;
use crate::stream::Stream;
use crate::tls::TlsFacts;
use crate::tx_half::TxHalf;

/// Both halves of a connection, the facts about it and its history, until it is closed or returned to the pool.
pub struct Connection {
    pub(crate) rx: Rx,
    pub(crate) tx: TxHalf,
    pub(crate) facts: Facts,
    pub(crate) record: Record,
}

/// Facts that are read from the kernel once, after the connection is established.
#[derive(Clone, Debug)]
pub struct Facts {
    fd: RawFd,
    remote: Option<SocketAddr>,
    /// Address and port of the remote end, then of the local one, in the format of the log.
    ends: Box<str>,
    /// The time at which it was opened, in seconds.
    opened: f64,
    tls: Option<Arc<TlsFacts>>,
}

impl Facts {
    fn of(stream: &Stream, endpoint: &Endpoint) -> Facts {
        let remote = match (endpoint.addresses.v4, endpoint.addresses.v6) {
            (Some(_), Some(_)) => stream.peer_addr(),
            (only, None) | (None, only) => only,
        };
        let ends = format!("{} {}", side(remote), side(stream.local_addr())).into();
        let opened = clock::real();
        Facts { fd: stream.as_fd().as_raw_fd(), remote, ends, opened, tls: stream.negotiated().tls }
    }

    /// Returns the age of the connection in seconds.
    #[inline]
    pub fn age(&self, now: f64) -> f64 {
        (now - self.opened).max(0.0)
    }

    #[inline]
    pub fn fd(&self) -> RawFd {
        self.fd
    }

    /// Returns the address of the remote end. A UNIX socket has none.
    #[inline]
    pub fn remote(&self) -> Option<&SocketAddr> {
        self.remote.as_ref()
    }

    /// Returns the facts about TLS, if the connection uses it.
    pub fn tls(&self) -> Option<&TlsFacts> {
        self.tls.as_deref()
    }

    /// Returns address and port of the remote end, then of the local one, in the format of the log.
    #[inline]
    pub fn ends(&self) -> &str {
        &self.ends
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
