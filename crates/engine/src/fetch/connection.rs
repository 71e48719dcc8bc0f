//! A connection to an origin in use by a fetch or a pipe: taking it from the pool or opening it, its PROXY header,
//! its log records, and its return to the pool.

use std::borrow::Cow;
use std::io;
use std::ops::ControlFlow;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use lacquer_cache::Object;
use lacquer_flow::reuse::{self, Doubt};
use lacquer_http::{SessClose, Workspace};
use lacquer_net::multiplex::Stream;
use lacquer_net::{
    CachedObject, Cause, ConnectError, ConnectStage, Connection, Counted, Exchange, Facts, Rx, Surplus,
    Taken, TxHalf, Unsolicited, Wanted, Watch,
};
use lacquer_params::Params;
use lacquer_shm::vsl::Field;
use lacquer_shm::{Tag, TxLog};
use lacquer_sources::clock::Instant;

use super::limits::{Limits, lifespan};
use super::reply::Reply;
use super::reserve::connect_unreserved;
use crate::backends::Origin;
use crate::origin_slot::OriginSlot;
use crate::services::Services;
use crate::session::Sess;
use crate::surplus;

/// A connection in use.
pub struct OriginConnection {
    link: Box<Connection>,
    slot: OriginSlot,
    reply: Reply,
    waits: Waits,
    /// The reason why the connection must close; `None` if it can be kept.
    close: Option<SessClose>,
    /// Part of a request was not sent. The connection is reset when it is closed, because otherwise the kernel would
    /// keep the bytes that were written until the origin reads them.
    has_unsent: bool,
    is_reused: bool,
    /// The endpoint's number of faults when the connection was taken.
    faults: u32,
}

/// A pseudo error number: the wait for a connection was abandoned. It does not mean a failure to connect.
pub const ABANDONED: i32 = libc::ECANCELED;

/// The seconds of the shortest wait for the origin, for limits of zero.
pub const SHORTEST_WAIT: f64 = 1e-3;

/// The longest waits for the origin, in seconds: until it accepts bytes of the request or sends the first byte of its
/// response, and between two reads of the response.
#[derive(Clone, Copy, Default)]
pub struct Waits {
    pub first_byte: f64,
    pub between_bytes: f64,
}

impl OriginConnection {
    pub fn new(link: Box<Connection>, slot: OriginSlot, is_reused: bool) -> OriginConnection {
        let faults = slot.origin().endpoint.trust().faults();
        let (reply, waits, close, has_unsent) = (Reply::default(), Waits::default(), None, false);
        OriginConnection { link, slot, reply, waits, close, has_unsent, is_reused, faults }
    }

    /// Returns an idle connection as one in use, and counts the reuse.
    pub fn reused(services: &Services, connection: Box<Connection>, slot: OriginSlot) -> OriginConnection {
        services.counters().backend_reuse.add(1);
        services.pool_counters().waiter.action.add(1);
        OriginConnection::new(connection, slot, true)
    }

    /// Returns a stream of a connection with several as a connection in use.
    pub fn of_stream(services: &Services, stream: Arc<Stream>, slot: OriginSlot) -> OriginConnection {
        let is_first = stream.is_first();
        let connection = Connection::of_stream(stream);
        if is_first {
            return OriginConnection::new(connection, slot, false);
        }
        OriginConnection::reused(services, connection, slot)
    }

    pub fn origin(&self) -> &Arc<Origin> {
        self.slot.origin()
    }

    /// Returns the stream, if this is one of a connection with several. Its number ties the response to the request, so
    /// none of the doubts about connections apply.
    #[inline]
    pub fn stream(&self) -> Option<&Arc<Stream>> {
        self.link.stream()
    }

    /// Returns whether the connection has served other requests before.
    #[inline]
    pub fn is_reused(&self) -> bool {
        self.is_reused
    }

    /// Returns the limit that the connection has reached with this request, if any, as a reason for the log. Streams
    /// have none: their connection is left by [`Connections`](lacquer_net::multiplex::Connections).
    #[inline]
    pub fn limit(&self, params: &Params, now: f64) -> Option<&'static str> {
        let lifespan = lifespan(self.origin(), params);
        let requests = self.link.record().responses().saturating_add(1);
        lifespan.limit(requests, || self.facts().age(now)).filter(|_| self.stream().is_none())
    }

    /// Returns the facts about the connection that do not change while it is open.
    pub fn facts(&self) -> &Facts {
        self.link.facts()
    }

    #[inline]
    pub fn rx(&self) -> &Rx {
        self.link.rx()
    }

    #[inline]
    pub fn rx_mut(&mut self) -> &mut Rx {
        self.link.rx_mut()
    }

    /// Returns both directions, for a pipe.
    pub fn halves(&mut self) -> (&mut Rx, &TxHalf) {
        self.link.halves()
    }

    #[inline]
    pub fn reply(&self) -> &Reply {
        &self.reply
    }

    #[inline]
    pub fn reply_mut(&mut self) -> &mut Reply {
        &mut self.reply
    }

    // The waits for the origin.

    #[inline]
    pub fn limit_waits(&mut self, waits: Waits) {
        self.waits = waits;
    }

    #[inline]
    pub fn waits(&self) -> &Waits {
        &self.waits
    }

    // The end of the connection.

    /// Records whether the head of the response keeps the connection open, with the reason if it does not.
    #[inline]
    pub fn decide_close(&mut self, close: Option<SessClose>) {
        self.close = close;
    }

    /// Requires the connection to close, for this reason instead of an earlier one.
    #[inline]
    pub fn must_close(&mut self, reason: SessClose) {
        self.close = Some(reason);
    }

    /// Requires the connection to close, for this reason if there is none yet.
    #[inline]
    pub fn close_unless_closing(&mut self, reason: SessClose) {
        self.close = self.close.or(Some(reason));
    }

    /// Returns the reason why the connection must close; `None` if it can be kept.
    #[inline]
    pub fn close_reason(&self) -> Option<SessClose> {
        self.close
    }

    /// Records whether a part of the request was not sent.
    pub fn set_unsent(&mut self, has_unsent: bool) {
        self.has_unsent = has_unsent;
    }

    // Requests and responses.

    /// Sends bytes of a request, like `Outgoing::send`.
    pub async fn send(&self, bytes: &[u8]) -> io::Result<()> {
        Outgoing { tx: self.link.tx(), limit: self.send_limit() }.send(bytes).await
    }

    /// Returns the receiving half, and the sending half for a request.
    pub fn request_halves(&mut self) -> (&mut Rx, Outgoing<'_>) {
        let limit = self.send_limit();
        let (rx, tx) = self.link.halves();
        (rx, Outgoing { tx, limit })
    }

    /// Returns the longest wait for the origin to accept bytes of a request, in seconds.
    pub fn send_limit(&self) -> f64 {
        self.waits.first_byte.max(SHORTEST_WAIT)
    }

    /// Records the response, so that the connection does not count as waiting for one any more.
    pub fn mark_answered(&mut self) {
        self.slot.mark_answered();
    }

    /// Returns whether surplus bytes, on this or another connection, indicate that the response belongs to another
    /// request.
    pub fn may_be_foreign(&self, ws: &Workspace) -> bool {
        let surplus = self.reply.buffered_body().map(|length| ws.get(self.reply.ahead().tail(length)));
        self.has_faulty_origin() || surplus.is_some_and(surplus::may_be_response)
    }

    /// Counts the connection as in use, and counts its request.
    pub fn count_request(&mut self) {
        self.slot.count_request();
    }

    /// Records that the connection was observed before its first request, and no bytes arrived.
    pub fn begins_quietly(&mut self) {
        self.link.record_mut().begins_quietly();
    }

    /// Returns whether the previous response on this connection had no body by rule. Bytes that arrive in place of
    /// the next response may be a forbidden body.
    pub fn follows_bodyless(&self) -> bool {
        self.link.record().was_bodyless()
    }

    /// Returns whether the first response on this connection may have arrived before its request.
    pub fn unsolicited(&self) -> Unsolicited {
        self.link.record().unsolicited()
    }

    /// Returns whether the response may belong to another request.
    pub fn is_in_doubt(&self) -> bool {
        let has_surplus =
            || self.reply.buffered_body().is_some_and(|length| length < self.reply.ahead().len());
        reuse::is_in_doubt(self.is_reused, has_surplus, || self.has_faulty_origin())
    }

    /// Returns whether the response cannot belong to an earlier request of the connection.
    pub fn is_own(&self) -> bool {
        self.stream().is_some() || !self.is_reused() && !self.has_faulty_origin()
    }

    /// Returns whether the origin was found to be faulty since the connection was taken or opened.
    pub fn has_faulty_origin(&self) -> bool {
        self.stream().is_none() && self.origin().endpoint.trust().faults() != self.faults
    }

    /// Skips a body that was received with the head and is not needed, so that the connection can be kept.
    pub fn skip_buffered_body(&mut self, ws: &Workspace) {
        if self.reply.buffered_body().is_some() {
            self.keep_surplus(ws);
        }
    }

    /// Discards a body that was received with the head, and keeps the bytes after the end of the response.
    pub fn keep_surplus(&mut self, ws: &Workspace) {
        let length = self.reply.buffered_body();
        let ahead = self.reply.take_ahead();
        if let Some(length) = length {
            self.link.rx_mut().unread(ws.get(ahead.tail(length)));
            self.reply.end();
        }
    }
}

/// The sending half of a connection, for a request.
#[derive(Clone, Copy)]
pub struct Outgoing<'a> {
    tx: &'a TxHalf,
    /// The longest wait in seconds: the limit for the first byte of the response.
    limit: f64,
}

impl Outgoing<'_> {
    pub fn new(tx: &TxHalf, limit: f64) -> Outgoing<'_> {
        Outgoing { tx, limit }
    }

    /// Sends bytes of a request. Fails with `TimedOut` and without an error number if the origin accepts no byte within
    /// the limit.
    pub async fn send(&self, bytes: &[u8]) -> io::Result<()> {
        self.tx.write_all_within(bytes, self.limit).await
    }

    /// Ends a body whose end the protocol marks, with these trailers. Returns false if the trailers are longer than the
    /// origin accepts, and were not sent.
    pub fn finish(&self, trailers: &[u8]) -> io::Result<bool> {
        match self.tx {
            TxHalf::Stream(stream) => stream.end_body(trailers),
            _ => Ok(true),
        }
    }
}

/// Returns whether connections to this origin begin with a PROXY header.
pub fn has_proxy_header(origin: &Origin) -> bool {
    origin.spec.proxy_header.is_some_and(|version| version > 0)
}

/// Takes an idle connection from the pool. Connections with surplus bytes are closed and logged.
pub fn take_idle(services: &Services, slot: &OriginSlot, quiet: Duration, log: &mut TxLog) -> Taken {
    let origin = slot.origin();
    let endpoint = &origin.endpoint;
    if has_proxy_header(origin) {
        // These connections begin with a header for one client. Other backends with the same address may use none.
        return Taken::None;
    }
    let mut faults = Vec::new();
    let wanted = Wanted { quiet, in_use: origin.in_use(), declared: origin.declared_limit() };
    let taken = services.pools().take(services.id(), endpoint, wanted, &mut faults);
    for fault in &faults {
        log.put(Tag::Error, surplus::handle(services, endpoint, fault).as_bytes());
    }
    taken
}

/// The interval at which a waiting request checks the pool again: connections in use may have been closed.
const RECHECK_INTERVAL: Duration = Duration::from_millis(50);

/// The next step of a request that needs a connection.
enum Step {
    Use(Box<Connection>),
    Open(Counted),
}

/// Decides how to proceed after a search of the pool. A waiting request searches again at the returned time, or when
/// a connection is returned to the pool. While there are idle connections, no connection is opened beyond the number
/// that the origin was seen to serve at a time: the origin might not serve it.
fn next_step(found: Taken, origin: &Origin, now: Instant) -> ControlFlow<Step, Instant> {
    let (trust, declared) = (origin.endpoint.trust(), origin.declared_limit());
    let open_one_more_or_wait = |until| match trust.open_one_more(declared, now) {
        Some(counted) => ControlFlow::Break(Step::Open(counted)),
        None => ControlFlow::Continue(until),
    };
    match found {
        Taken::Connection(connection) => ControlFlow::Break(Step::Use(connection)),
        Taken::Resting(resting) if resting.must => {
            let waits =
                trust.is_at_declared_limit(declared) || origin.in_use() == 1 && trust.take_courtesy_wait();
            if waits {
                ControlFlow::Continue(resting.until)
            } else {
                ControlFlow::Break(Step::Open(trust.open()))
            }
        }
        Taken::Resting(resting) => open_one_more_or_wait(resting.until),
        Taken::Spared => open_one_more_or_wait(now + Duration::from_millis(1)),
        Taken::None => ControlFlow::Break(Step::Open(trust.open())),
    }
}

/// Waits until there is an idle connection, or one can be opened.
async fn wait(services: &Services, slot: &OriginSlot, quiet: Duration, log: &mut TxLog) -> Step {
    let waiting = slot.origin().endpoint.trust().waiters().enter();
    loop {
        let mut change = pin!(waiting.change());
        change.as_mut().enable();
        let now = Instant::now();
        match next_step(take_idle(services, slot, quiet, log), slot.origin(), now) {
            ControlFlow::Break(step) => return step,
            ControlFlow::Continue(until) => {
                let _ = tokio::time::timeout_at(until.min(now + RECHECK_INTERVAL), change).await;
            }
        }
    }
}

/// Waits for an idle connection that is still in its quiet time, if that is worthwhile, or opens a connection, which
/// begins with the PROXY header `hello`. `taken` is the result of the last search.
pub async fn wait_or_connect(
    services: &Services,
    slot: OriginSlot,
    limits: &Limits,
    (taken, hello): (Taken, &[u8]),
    log: &mut TxLog,
) -> Result<OriginConnection, ConnectError> {
    let step = match next_step(taken, slot.origin(), Instant::now()) {
        ControlFlow::Break(step) => step,
        ControlFlow::Continue(_) => wait(services, &slot, limits.quiet, log).await,
    };
    let counted = match step {
        Step::Use(connection) => return Ok(OriginConnection::reused(services, connection, slot)),
        Step::Open(counted) => counted,
    };
    let endpoint = slot.origin().endpoint.clone();
    let opening = connect_unreserved(services, &endpoint, limits).await?;
    let stream = opening.introduce(hello).await?.complete().await?;
    services.counters().backend_conn.add(1);
    Ok(OriginConnection::new(Connection::new(stream, &endpoint, counted), slot, false))
}

/// Returns the PROXY header that a new connection begins with; empty if the origin wants none.
pub fn proxy_header(origin: &Origin, sess: &Sess) -> Vec<u8> {
    let mut header = Vec::new();
    if let Some(version) = origin.spec.proxy_header.filter(|&version| version > 0) {
        sess.write_proxy_header(version, &mut header);
    }
    header
}

pub fn log_open(log: &mut TxLog, connection: &OriginConnection, now: f64) {
    let state = if connection.is_reused() { "reuse" } else { "connect" };
    let facts = connection.facts();
    let [name, ends, state] =
        [&*connection.origin().spec.name, facts.ends(), state].map(|s| Field::Text(s.as_bytes()));
    let fd = Field::Number(facts.fd().unsigned_abs().into());
    if !connection.is_reused() {
        return log.put_fields(Tag::BackendOpen, &[fd, name, ends, state]);
    }
    let age = Field::Seconds(facts.age(now));
    let responses = Field::Number(connection.link.record().responses().into());
    log.put_fields(Tag::BackendOpen, &[fd, name, ends, state, age, responses]);
}

/// Logs the end of a connection's use: it is kept, or closed for the reason `against`.
pub fn log_close(log: &mut TxLog, connection: &OriginConnection, against: Option<&str>) {
    let fd = Field::Number(connection.facts().fd().unsigned_abs().into());
    let how = if against.is_some() { "close" } else { "recycle" };
    let [name, how, why] =
        [&connection.origin().spec.name, how, against.unwrap_or_default()].map(|s| Field::Text(s.as_bytes()));
    let fields = [fd, name, how, why];
    log.put_fields(Tag::BackendClose, if against.is_some() { &fields } else { &fields[..3] });
}

pub fn log_failure(log: &mut TxLog, text: std::fmt::Arguments<'_>) {
    log.put_fmt(Tag::FetchError, text);
}

/// Logs and counts a failure to open a connection.
pub fn log_connect_failure(services: &Services, log: &mut TxLog, origin: &Origin, e: &ConnectError) {
    services.counters().backend_fail.add(1);
    let (name, why) = (&origin.spec.name, reason(e));
    let step = if e.stage == ConnectStage::ProxyHeader {
        "proxy write"
    } else {
        origin.count_failure(e);
        "fail"
    };
    match e.stage {
        ConnectStage::Handshake => {
            log.put_fmt(Tag::BackendSSL, format_args!("Handshake failed: {}", bare(e)));
        }
        ConnectStage::Certificate => {
            log.put_fmt(Tag::BackendSSL, format_args!("Server verification failed: {}", bare(e)));
        }
        _ => {}
    }
    log_failure(log, format_args!("backend {name}: {step} {why}"));
    if e.opens_breaker() {
        services.counters().backend_breaker.add(1);
        let text = format_args!("backend {name}: the circuit breaker opens (backend_breaker_failures)");
        log.put_fmt(Tag::Notice, text);
    }
}

/// Returns the text of the reason for a failure to open a connection.
fn reason(e: &ConnectError) -> Cow<'static, str> {
    if e.is_breaker_open() {
        Cow::Borrowed("errno 0 (the circuit breaker is open)")
    } else {
        Cow::Owned(e.shown().text(lacquer_system::error_text))
    }
}

/// Returns the text of a cause without the parentheses that separate it from other words.
fn bare(e: &ConnectError) -> Cow<'_, str> {
    match e.shown() {
        Cause::Text(text) => Cow::Borrowed(text),
        cause @ Cause::Errno(_) => Cow::Owned(cause.text(lacquer_system::error_text)),
    }
}

impl OriginConnection {
    /// Returns the bytes after the end of the response; empty if there are none or the end was not reached.
    pub fn surplus_bytes<'s>(&'s self, ws: &'s Workspace) -> &'s [u8] {
        let pending = self.link.rx().read_ahead();
        if !self.reply.is_at_end() {
            &[]
        } else if pending.is_empty() {
            ws.get(self.reply.ahead())
        } else {
            pending
        }
    }

    /// Closes the connection without the half-close that dropping the sending half would cause.
    pub fn close(self) {
        // A suspected origin gets a connection for each request. They must not use up the local ports.
        let must_free_port =
            || self.reply.is_at_end() && self.origin().endpoint.trust().is_suspected(Instant::now());
        if self.has_unsent || must_free_port() {
            self.link.reset();
        } else {
            self.link.forget();
        }
    }

    /// Splits into the connection, which outlives this exchange, and its slot.
    fn into_parts(self) -> (Box<Connection>, OriginSlot) {
        let OriginConnection { mut link, slot, .. } = self;
        drop(link.rx_mut().take_read_ahead());
        (link, slot)
    }

    /// Closes a connection on which bytes were read that belong to no request, and handles these bytes. Returns the
    /// text for the log.
    pub fn close_faulty(self, services: &Services, sample: Vec<u8>, unsolicited: Unsolicited) -> String {
        let (connection, slot) = self.into_parts();
        let endpoint = &slot.origin().endpoint;
        let fault = Surplus { unsolicited, ..Surplus::new(Arc::downgrade(endpoint), &connection, sample) };
        connection.forget();
        surplus::handle(services, endpoint, &fault)
    }

    /// Removes the objects that were received over this connection and may be the responses to other requests, because of
    /// this doubt about it. Returns the text for the log, if there were such objects.
    pub fn drop_doubtful(&self, services: &Services, doubt: Doubt) -> Option<String> {
        let (silence, event) = match doubt {
            Doubt::None => return None,
            Doubt::Foreign => (Duration::ZERO, "has an origin that sent bytes that belong to no request"),
            // No byte arrived for this time before the response that was not read to its end.
            Doubt::Unconfirmed => (self.reply.silence(), "ended within a response"),
        };
        let quiet = surplus::quiet_time(&services.params());
        let unproven: Vec<_> = self.link.record().unproven_after(silence, quiet).collect();
        let ends = self.facts().ends();
        surplus::drop_unproven(services, &unproven, format_args!("Origin connection {ends} {event}"))
    }

    /// Returns the connection to the pool. `object` is the cached object that was received over it.
    pub fn recycle(self, services: &Services, object: Option<&Object>) {
        let exchange = self.exchange(services, object);
        services.counters().backend_recycle.add(1);
        if self.stream().is_some() {
            return;
        }
        let quiet = surplus::quiet_time(&services.params());
        let (connection, slot) = self.into_parts();
        services.pools().put(services.id(), &slot.origin().endpoint, connection, &exchange, quiet);
    }

    /// Observes the connection for a while, then closes it. `object` is the cached object that was received over it.
    pub fn retire(self, services: &Services, object: Option<&Object>) {
        if self.stream().is_some() {
            return;
        }
        let exchange = self.exchange(services, object);
        let quiet = surplus::quiet_time(&services.params());
        // If the origin is only suspected, there may be many such connections.
        let watch = if self.close.is_some() || self.has_faulty_origin() { Watch::Long } else { Watch::Short };
        let (connection, slot) = self.into_parts();
        let endpoint = &slot.origin().endpoint;
        services.pools().retire(services.id(), endpoint, connection, Some(&exchange), (watch, quiet));
    }

    fn exchange(&self, services: &Services, object: Option<&Object>) -> Exchange {
        let identity = |object: &Object| {
            let fingerprint = services.cache().fingerprint_of(object);
            Some(CachedObject { slot_id: object.slot_id()?, vxid: object.vxid(), fingerprint })
        };
        Exchange {
            is_bodyless: self.reply.is_bodyless(),
            took: self.reply.microseconds(),
            object: object.and_then(identity),
        }
    }
}
