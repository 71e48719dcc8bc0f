//! Exchanges over HTTP/2: a request takes a stream of a connection that it shares with others. The stream takes the place
//! of a connection in the other files; this one has the parts that differ.

use std::io;
use std::pin::pin;
use std::time::Duration;

use lacquer_flow::retry::{self, Exchange};
use lacquer_h2::client::{Failure, Request};
use lacquer_http::SessClose;
use lacquer_net::multiplex::{self, Opening, Place, failure_of};
use lacquer_net::{ConnectError, ConnectStage, Connection, Taken};
use lacquer_shm::TxLog;
use lacquer_sources::clock::{self, Instant};

use super::Fetch;
use super::connection::{ABANDONED, OriginConnection, take_idle, wait_or_connect};
use super::limits::Limits;
use super::reserve::connect_unreserved;
use crate::backends::Origin;
use crate::origin_slot::OriginSlot;
use crate::services::Services;
use crate::task::TaskParts;
use crate::trailers::Trailers;

/// The reason for which a connection of HTTP/1 to an origin is refused.
pub const NO_HTTP1: &str = "a pipe or an upgrade needs HTTP/1.1, but .proto is \"h2\" without .ssl";

/// Returns whether connections to the origin cannot use HTTP/1, because nothing can choose it.
pub fn speaks_only_http2(origin: &Origin) -> bool {
    origin.spec.http2 && !origin.endpoint.uses_tls()
}

impl Fetch {
    /// Takes a stream of an open connection, or opens a connection. An origin that chooses HTTP/1.1 gets a connection of
    /// its own, and so does a request that asks for an upgrade. With `fresh`, no connection that was open before is used.
    pub(super) async fn open_multiplexed(
        &mut self,
        slot: OriginSlot,
        fresh: bool,
    ) -> Result<OriginConnection, ConnectError> {
        let asks_upgrade = self.attempt.asks_upgrade;
        if asks_upgrade && speaks_only_http2(slot.origin()) {
            return Err(ConnectError::with_text(ConnectStage::Connect, NO_HTTP1));
        }
        let limits = Limits::of(slot.origin(), self.task.params(), self.attempt.timeouts.connect);
        let abandonment = self.abandonment(None);
        let TaskParts { services, log, .. } = self.task.parts();
        let made = connect(services, slot, &limits, (fresh, asks_upgrade), log);
        let abandoned = Err(ConnectError::new(ConnectStage::Connect, ABANDONED));
        abandonment.unless(pin!(made)).await.unwrap_or(abandoned)
    }

    /// Opens the stream, and sends the head of the request.
    pub(super) fn open_stream(&mut self, connection: &OriginConnection) -> io::Result<()> {
        let Some(stream) = connection.stream() else { return Ok(()) };
        let request = Request {
            message: &self.request.http,
            ws: self.task.ws(),
            is_secure: connection.facts().tls().is_some(),
            ends: self.request.cached_body.is_none() && self.request.body.is_none(),
            wants_trailers: self.purpose.wants_trailers,
        };
        let ends = request.ends;
        let sent = stream.open(request)?;
        self.exchange.account.bereq_header += sent as u64;
        if ends {
            self.task.log_sent("H2B", 0, 0);
        }
        Ok(())
    }

    /// Prepares to pass on the trailers of the response whose head was received.
    pub(super) fn expect_trailers(&mut self) {
        if self.purpose.wants_trailers {
            let trailers = Trailers::of(self.task.vxid().number());
            self.exchange.trailers = Some(trailers.clone());
            self.waiter.events.trailers.replace(Some(trailers));
        }
    }

    /// Passes on the trailers of a response that has arrived to its end, before its object becomes complete.
    pub(super) fn keep_trailers(&mut self, connection: &OriginConnection) {
        if let (Some(trailers), Some(stream)) = (self.exchange.trailers.take(), connection.stream()) {
            trailers.set(stream.take_trailers());
        }
    }

    /// Ends the exchange after a failure of the stream, of which `received` bytes had arrived.
    #[cold]
    pub(super) fn fail_stream(
        &mut self,
        connection: &mut OriginConnection,
        e: &io::Error,
        received: usize,
    ) -> Exchange {
        self.fetch_error(&e.to_string());
        // The head of the request is too long for this origin.
        self.exchange.is_fault_of_client |= e.kind() == io::ErrorKind::InvalidInput;
        connection.close_unless_closing(SessClose::RemClose);
        match failure_of(e) {
            Some(failure) if failure.is_unprocessed() => Exchange::Unprocessed,
            // The origin may have processed the request: it states by GOAWAY which ones it has not (RFC 9113 section 8.7).
            Some(Failure::Closed) if received == 0 => {
                let is_idempotent = retry::is_idempotent(self.request.http.method(self.task.ws()));
                if is_idempotent { Exchange::Silent } else { Exchange::Late }
            }
            _ => Exchange::Failed,
        }
    }
}

async fn connect(
    services: &Services,
    slot: OriginSlot,
    limits: &Limits,
    (mut fresh, needs_http1): (bool, bool),
    log: &mut TxLog,
) -> Result<OriginConnection, ConnectError> {
    let endpoint = slot.origin().endpoint.id();
    let (wants_new, mut until) = (fresh, None);
    loop {
        let is_over = |opened, age| limits.lifespan.limit(opened, || age).is_some();
        let place =
            if needs_http1 { Place::Http1 } else { services.multiplexed().place(endpoint, fresh, &is_over) };
        match place {
            Place::Stream(stream) => return Ok(OriginConnection::of_stream(services, stream, slot)),
            Place::Open(opening) => return open(services, slot, limits, opening).await,
            Place::Http1 => {
                let taken =
                    if wants_new { Taken::None } else { take_idle(services, &slot, limits.quiet, log) };
                return wait_or_connect(services, slot, limits, (taken, b""), log).await;
            }
            Place::Wait(opened) => {
                // Attempts that fail have one limit together. Each connection that was opened is of use to others.
                let by = *until
                    .get_or_insert_with(|| Instant::now() + clock::seconds(clock::limit(limits.connect)));
                match within(by, opened.wait()).await {
                    Ok(true) => (fresh, until) = (false, None),
                    Ok(false) => {}
                    Err(late) => {
                        let stream = opened.stream(&is_over).ok_or(late)?;
                        return Ok(OriginConnection::of_stream(services, stream, slot));
                    }
                }
            }
        }
    }
}

/// Waits for the connection of another request until this time.
async fn within<T>(until: Instant, wait: impl Future<Output = T>) -> Result<T, ConnectError> {
    let waited = tokio::time::timeout_at(until, wait).await;
    waited.map_err(|_| ConnectError::new(ConnectStage::Connect, libc::ETIMEDOUT))
}

/// Opens a connection, and begins the protocol that the origin chooses.
async fn open(
    services: &Services,
    slot: OriginSlot,
    limits: &Limits,
    opening: Opening,
) -> Result<OriginConnection, ConnectError> {
    let endpoint = slot.origin().endpoint.clone();
    let counted = endpoint.trust().open();
    let (stream, is_http2) = connect_unreserved(services, &endpoint, limits).await?.complete_http2().await?;
    services.counters().backend_conn.add(1);
    if !is_http2 {
        opening.chose_http1();
        return Ok(OriginConnection::new(Connection::new(stream, &endpoint, counted), slot, false));
    }
    let params = services.params();
    // A list of fields counts 32 bytes more for each. The size of the head is checked again.
    let list = u32::try_from(params.http_resp_size.saturating_mul(2)).unwrap_or(u32::MAX);
    // A limit of 0 would close each connection before its second request, and one without end is not needed.
    let idle =
        clock::seconds(params.backend_idle_timeout).clamp(Duration::from_secs(1), Duration::from_hours(1));
    let (connection, driver) = multiplex::begin(stream, &endpoint, counted, (list, idle));
    let stream = opening.complete(&connection);
    tokio::task::spawn_local(driver.run());
    let most = clock::seconds(clock::limit(limits.connect));
    tokio::task::spawn_local(opening.share(connection, most));
    let stream = stream.ok_or(ConnectError::new(ConnectStage::Connect, libc::ECONNRESET))?;
    Ok(OriginConnection::of_stream(services, stream, slot))
}
