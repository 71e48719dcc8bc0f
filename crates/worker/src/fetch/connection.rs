//! A connection to an origin as a fetch or a pipe uses it: got from the pool or made, introduced, named
//! in the log.

use std::io;
use std::os::fd::RawFd;
use std::sync::Arc;

use lacquer_backend::{Connection, Facts, TxHalf, endpoint};
use lacquer_cache::Object;
use lacquer_http::h1::Framing;
use lacquer_http::{SessClose, Text};
use lacquer_params::Params;
use lacquer_shm::vsl::Field;
use lacquer_shm::{Tag, TxLog};

use crate::backends::Origin;
use crate::descriptors::Need;
use crate::reactor::Reactor;
use crate::req_body::Rx;
use crate::session::Sess;

/// A connection in use, and how the answer on it is framed.
pub struct OriginConnection {
    pub rx: Rx,
    pub tx: TxHalf,
    pub facts: Facts,
    pub origin: Arc<Origin>,
    pub framing: Framing,
    /// What came with the head and belongs behind it; in the fetch's workspace.
    pub ahead: Text,
    /// Why the connection cannot be kept; `None` if it can.
    pub close: Option<SessClose>,
    pub reused: bool,
    pub between_bytes: f64,
    pub first_byte: f64,
}

impl OriginConnection {
    pub fn new(connection: Connection, origin: Arc<Origin>, reused: bool) -> OriginConnection {
        let Connection { rx, tx, facts } = connection;
        OriginConnection {
            rx: Rx::new(rx),
            tx,
            facts,
            origin,
            framing: Framing::length(0),
            ahead: Text::NONE,
            close: None,
            reused,
            between_bytes: 0.0,
            first_byte: 0.0,
        }
    }
}

/// VCL's word, else the backend's, else the parameter's.
pub fn choose(own: Option<f64>, spec: Option<f64>, param: f64) -> f64 {
    own.or(spec.filter(|&t| t >= 0.0)).unwrap_or(param)
}

/// What bounds the making of a connection.
pub struct Limits {
    connect: f64,
    prefer_ipv6: bool,
    holddown: endpoint::Holddown,
}

impl Limits {
    pub fn of(origin: &Origin, p: &Params, own: Option<f64>) -> Limits {
        Limits {
            connect: choose(own, origin.spec.connect_timeout, p.connect_timeout),
            prefer_ipv6: p.prefer_ipv6,
            holddown: endpoint::Holddown {
                local: p.backend_local_error_holddown,
                remote: p.backend_remote_error_holddown,
            },
        }
    }
}

/// An idle connection, or a new one.
pub async fn connect_or_reuse(
    reactor: &Reactor,
    origin: &Arc<Origin>,
    limits: &Limits,
    fresh_only: bool,
) -> Result<OriginConnection, endpoint::ConnectError> {
    if !fresh_only && let Some(connection) = reactor.shared.pools.take(reactor.id, origin.endpoint.id) {
        reactor.counters.backend_reuse.add(1);
        reactor.pool_counters.waiter.conns.sub(1);
        reactor.pool_counters.waiter.action.add(1);
        return Ok(OriginConnection::new(connection, origin.clone(), true));
    }
    let made = origin.endpoint.connect(limits.connect, limits.prefer_ipv6, limits.holddown);
    // Connecting is rare and its future is large.
    let stream = Box::pin(made).await?;
    reactor.counters.backend_conn.add(1);
    let connection = Connection::new(stream, &origin.endpoint);
    check_reserve(reactor, connection.facts.fd)?;
    Ok(OriginConnection::new(connection, origin.clone(), false))
}

/// Connections to origins leave the last of the descriptors to others.
fn check_reserve(reactor: &Reactor, fd: RawFd) -> Result<(), endpoint::ConnectError> {
    let marks = reactor.shared.descriptors.marks(&reactor.params());
    if fd >= marks.crowded {
        let need = if fd >= marks.origins { Need::Urgent } else { Need::Soon };
        reactor.need_descriptors(need);
    }
    if fd >= marks.origins {
        return Err(endpoint::ConnectError { errno: libc::EMFILE, held_down: false });
    }
    Ok(())
}

/// Sends a body that was cached before; its length.
pub async fn send_cached(tx: &TxHalf, body: &Object) -> io::Result<u64> {
    let mut at = 0;
    while let Some(chunk) = body.chunk_at(at).filter(|c| !c.is_empty()) {
        tx.write_all(chunk.bytes()).await?;
        at += chunk.len() as u64;
    }
    Ok(at)
}

/// The PROXY header on a new connection to an origin that wants one; how many bytes it has.
pub async fn introduce(connection: &OriginConnection, sess: &Sess) -> u64 {
    let spec = &connection.origin.spec;
    let mut hello = Vec::new();
    if let Some(version) = spec.proxy_header.filter(|&v| v > 0) {
        crate::proxy_out::write(version, sess, &mut hello);
    }
    if !hello.is_empty() {
        // A failure shows when the request is sent.
        let _ = connection.tx.write_all(&hello).await;
    }
    hello.len() as u64
}

pub fn log_open(log: &mut TxLog, connection: &OriginConnection) {
    let state = if connection.reused { "reuse" } else { "connect" };
    let facts = &connection.facts;
    let [name, ends, state] =
        [&*connection.origin.spec.name, &facts.ends, state].map(|s| Field::Text(s.as_bytes()));
    log.put_fields(Tag::BackendOpen, &[Field::Number(facts.fd.unsigned_abs().into()), name, ends, state]);
}

/// The use of a connection ended: it is kept, unless something speaks against it.
pub fn log_close(log: &mut TxLog, connection: &OriginConnection, against: Option<&str>) {
    let fd = Field::Number(connection.facts.fd.unsigned_abs().into());
    let how = if against.is_some() { "close" } else { "recycle" };
    let [name, how, why] =
        [&connection.origin.spec.name, how, against.unwrap_or_default()].map(|s| Field::Text(s.as_bytes()));
    let fields = [fd, name, how, why];
    log.put_fields(Tag::BackendClose, if against.is_some() { &fields } else { &fields[..3] });
}

pub fn log_failure(log: &mut TxLog, text: std::fmt::Arguments<'_>) {
    log.put_fmt(Tag::FetchError, text);
}

/// There was no connection: the place is free again, and the log and the counters tell why.
pub fn refused(log: &mut TxLog, origin: &Origin, e: endpoint::ConnectError) {
    origin.leave();
    let errno = e.shown();
    origin.count_failure(errno);
    let (name, text) = (&origin.spec.name, crate::sys::error_text(errno));
    log_failure(log, format_args!("backend {name}: fail errno {errno} ({text})"));
}

impl OriginConnection {
    /// Ends it without the half-close that dropping the sending half would do.
    pub fn close(self) {
        self.tx.forget();
    }

    /// For the next who wants to talk to this origin.
    pub fn recycle(self, reactor: &Reactor) {
        reactor.counters.backend_recycle.add(1);
        reactor.pool_counters.waiter.conns.add(1);
        let connection = Connection { rx: self.rx.half, tx: self.tx, facts: self.facts };
        reactor.shared.pools.put(reactor.id, &self.origin.endpoint, connection);
    }
}
