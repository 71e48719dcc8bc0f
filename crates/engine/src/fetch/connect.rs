//! The exchange with an origin: gets a connection, sends the request with its body, and receives the response head.

use std::io;
use std::pin::pin;
use std::sync::Arc;

use lacquer_flow::retry::{self, Exchange, Failure, Next, Tried};
use lacquer_http::{SessClose, h1, header_table as h};
use lacquer_net::{ConnectError, ConnectStage, Peeked, Taken, Unsolicited};
use lacquer_shm::Tag;
use lacquer_sources::clock::Instant;
use lacquer_vcl_runtime::{BackendId, Ctx, NoBackend};

use super::Fetch;
use super::connection::{
    ABANDONED, OriginConnection, Waits, log_close, log_connect_failure, log_open, proxy_header, take_idle,
    wait_or_connect,
};
use super::early::Sent;
use super::limits::{Limits, choose};
use super::queue::SlotRequest;
use super::upload::Upload;
use crate::backends::{Origin, OriginLeaf};
use crate::emulated::workspace_costs;
use crate::named_origin::NamedOrigin;
use crate::notes::Observation;
use crate::origin_slot::OriginSlot;
use crate::spans::log_tls;
use crate::surplus;
use crate::task::TaskParts;

/// Resolves a director to a backend, through at most 64 levels. The error text is for the log.
pub fn resolve(ctx: &mut Ctx<'_>, start: BackendId) -> Result<(BackendId, Arc<Origin>), String> {
    const MAX_DEPTH: usize = 64;
    if start.is_none() {
        return Err(NoBackend::text(ctx.host.task_privates()));
    }
    let mut id = start;
    for _ in 0..MAX_DEPTH {
        let Some(cell) = ctx.vcl.directors.get(id) else { break };
        let next = cell.director.resolve(ctx, id);
        if next == id {
            return match ctx.vcl.origin(id) {
                Ok(Some(origin)) => Ok((id, origin)),
                Ok(None) => Err(no_backend(ctx.vcl, start)),
                Err(why) => Err(why),
            };
        }
        if next.is_none() {
            break;
        }
        id = next;
    }
    Err(no_backend(ctx.vcl, start))
}

/// Returns the text for a director without a backend that could serve, with the reasons.
#[cold]
fn no_backend(vcl: &lacquer_vcl_runtime::Instance, director: BackendId) -> String {
    let cell = vcl.directors.get(director);
    let name = cell.as_ref().map_or("", |cell| cell.director.name());
    let text = format!("Director {name} returned no backend");
    match vcl.directors.why_sick(director) {
        why if why.is_empty() => text,
        why => format!("{text} ({why})"),
    }
}

/// Maps a leaf of the directors' tree to the backend of this worker.
trait Origins {
    fn origin(&self, id: BackendId) -> Result<Option<Arc<Origin>>, String>;
}

impl Origins for lacquer_vcl_runtime::Instance {
    fn origin(&self, id: BackendId) -> Result<Option<Arc<Origin>>, String> {
        let Some(cell) = self.directors.get(id) else { return Ok(None) };
        let leaf = cell.director.as_any();
        if let Some(leaf) = leaf.downcast_ref::<OriginLeaf>() {
            return Ok(Some(leaf.0.clone()));
        }
        leaf.downcast_ref::<NamedOrigin>().map(NamedOrigin::pick).transpose()
    }
}

impl Fetch {
    /// Sends the request, and reads the head of the response into `beresp`. Returns the connection of the response, or
    /// `None` if there is no response.
    pub async fn get_head(&mut self) -> Option<OriginConnection> {
        self.pay_for_retries();
        let (mut id, mut origin) = self.choose_backend(None)?;
        // A 101 on a connection that has served others might belong to one of their requests.
        let (mut fresh_only, mut retries) = (self.attempt.asks_upgrade, 0);
        loop {
            let failure = match self.connect(id, &origin, fresh_only).await {
                Err(failure) => failure,
                Ok(mut connection) => {
                    let is_reused = connection.is_reused();
                    let has_body = self.request.cached_body.is_some() || self.request.body.is_some();
                    let early = self.early_bytes(&mut connection).await;
                    let exchange = match early {
                        Some(_) => Exchange::Foreign,
                        None => self.exchange(&mut connection).await,
                    };
                    let is_repeatable = self.retries.forbidden.is_none() && self.request.may_reconnect;
                    let tried = Tried { is_reused, is_second: fresh_only, is_repeatable };
                    let is_idempotent = || retry::is_idempotent(self.request.http.method(self.task.ws()));
                    let next = retry::after_exchange(exchange, tried, is_idempotent);
                    let reason = match next {
                        Next::Respond if !self.is_too_early() => return Some(connection),
                        Next::Respond => {
                            // Boxed: this is rare, and the future is large.
                            Box::pin(self.leave_early_data(connection)).await?;
                            continue;
                        }
                        Next::Repeat(reason) => reason,
                        Next::GiveUp => Some(SessClose::RxBad),
                    };
                    match early {
                        Some(sample) => self.refuse_early_bytes(connection, sample),
                        None => self.close_origin(connection, reason),
                    }
                    if next != Next::GiveUp {
                        self.task.services().counters().backend_retry.add(1);
                        fresh_only = true;
                        continue;
                    }
                    // The client may be the reason for the end of its body, or have left.
                    if !has_body && !self.exchange.is_fault_of_client && !self.is_abandoned(None) {
                        origin.outcomes.failed();
                    }
                    Failure::of(exchange)
                }
            };
            if self.is_abandoned(None) || !self.repeats(id, failure, retries) {
                return None;
            }
            retries += 1;
            fresh_only = self.attempt.asks_upgrade;
            (id, origin) = self.choose_backend(Some(id))?;
        }
    }

    /// Resolves the director that VCL has set, to another backend than the one that has failed if it soon selects one.
    /// Returns `None`, with the reason in the log, if there is none.
    fn choose_backend(&mut self, failed: Option<BackendId>) -> Option<(BackendId, Arc<Origin>)> {
        const MOST_CHOICES: usize = 3;
        let (vcl, wanted) = (self.task.vcl().clone(), self.exchange.backend);
        let mut ctx = Ctx::new(self, vcl.loaded.instance());
        let mut found = resolve(&mut ctx, wanted);
        let is_again = |found: &Result<(BackendId, Arc<Origin>), String>| {
            found.as_ref().is_ok_and(|(id, _)| Some(*id) == failed && *id != wanted)
        };
        for _ in 1..MOST_CHOICES {
            if failed.is_none() || !is_again(&found) {
                break;
            }
            found = resolve(&mut ctx, wanted);
        }
        let (id, origin) = found.map_err(|why| self.fetch_error(&why)).ok()?;
        self.response.backend = id;
        if !self.request.http.has(self.task.ws(), h::HOST) {
            self.bereq_headers().add(h::HOST, &origin.host);
        }
        Some((id, origin))
    }

    /// Opens or reuses a connection. Fails with the reason in the log.
    async fn connect(
        &mut self,
        id: BackendId,
        origin: &Arc<Origin>,
        fresh_only: bool,
    ) -> Result<OriginConnection, Failure> {
        self.waiter.events.endpoint.set(origin.endpoint.id());
        let (vcl, params, shared) = (self.task.vcl(), self.task.params(), self.task.services().shared());
        let request = SlotRequest::new((id, origin), vcl.loaded.instance(), params, shared);
        let slot = match request.try_acquire() {
            Some(slot) => slot,
            // Boxed: few fetches wait, and the future is large.
            None => Box::pin(self.wait_for_slot(id, origin)).await.ok_or(Failure::Final)?,
        };
        if !workspace_costs::charge(self.task.ws_mut(), workspace_costs::CONNECTION) {
            self.fetch_error("out of workspace");
            return Err(Failure::Final);
        }
        match self.open(slot, fresh_only).await {
            Ok(mut connection) => {
                let now = self.task.last_event();
                log_open(self.task.log_mut(), &connection, now);
                if self.task.observation().has(Observation::SPANS) && connection.facts().tls().is_some() {
                    log_tls(self.task.log_mut());
                }
                connection.count_request();
                Ok(connection)
            }
            Err(e) if e.is_errno(ABANDONED) => {
                self.log_abandoned();
                Err(Failure::Final)
            }
            Err(e) => {
                origin.outcomes.unreachable(Instant::now());
                let TaskParts { services, log, .. } = self.task.parts();
                log_connect_failure(services, log, origin, &e);
                Err(if e.is_breaker_open() { Failure::NotAttempted } else { Failure::NotCarriedOut })
            }
        }
    }

    /// Waits for a slot of the origin. Returns `None`, with the reason in the log, if it gets none.
    async fn wait_for_slot(&mut self, id: BackendId, origin: &Arc<Origin>) -> Option<OriginSlot> {
        let abandonment = self.abandonment(None);
        let TaskParts { vcl, params, services, log, .. } = self.task.parts();
        let request = SlotRequest::new((id, origin), vcl.loaded.instance(), params, services.shared());
        let waited = abandonment.unless(pin!(request.acquire(log))).await;
        if waited.is_none() {
            self.log_abandoned();
        }
        waited.flatten()
    }

    async fn open(&mut self, slot: OriginSlot, fresh_only: bool) -> Result<OriginConnection, ConnectError> {
        let origin = slot.origin().clone();
        let quiet = surplus::quiet_time(self.task.params());
        let taken = if fresh_only {
            Taken::None
        } else {
            let TaskParts { services, log, .. } = self.task.parts();
            take_idle(services, &slot, quiet, log)
        };
        let mut connection = match taken {
            Taken::Connection(connection) => OriginConnection::reused(self.task.services(), connection, slot),
            // Boxed: the future is large, and few origins speak HTTP/2.
            Taken::None if origin.spec.http2 => Box::pin(self.open_multiplexed(slot, fresh_only)).await?,
            // Boxed: this is rare, and the future is large.
            none => Box::pin(self.wait_or_connect(slot, none)).await?,
        };
        self.task.stamp("Connected");
        let (spec, p) = (&origin.spec, self.task.params());
        let own = &self.attempt.timeouts;
        connection.limit_waits(Waits {
            between_bytes: choose(
                own.between_bytes,
                spec.limits.between_bytes_timeout,
                p.between_bytes_timeout,
            ),
            first_byte: choose(own.first_byte, spec.limits.first_byte_timeout, p.first_byte_timeout),
        });
        Ok(connection)
    }

    async fn wait_or_connect(
        &mut self,
        slot: OriginSlot,
        taken: Taken,
    ) -> Result<OriginConnection, ConnectError> {
        let limits = Limits::of(slot.origin(), self.task.params(), self.attempt.timeouts.connect);
        let abandonment = self.abandonment(None);
        let TaskParts { services, sess, log, .. } = self.task.parts();
        let hello = proxy_header(slot.origin(), sess);
        let made = wait_or_connect(services, slot, &limits, (taken, &hello), log);
        let abandoned = Err(ConnectError::new(ConnectStage::Connect, ABANDONED));
        let made = abandonment.unless(pin!(made)).await.unwrap_or(abandoned)?;
        self.exchange.account.bereq_header += hello.len() as u64;
        Ok(made)
    }

    /// Closes a new connection on which the origin sent these bytes before the first request.
    #[cold]
    fn refuse_early_bytes(&mut self, connection: OriginConnection, sample: Vec<u8>) {
        self.task.stamp("Bereq");
        log_close(self.task.log_mut(), &connection, Some(SessClose::RxJunk.name()));
        let text = connection.close_faulty(self.task.services(), sample, Unsolicited::Yes);
        self.task.log_mut().put(Tag::Error, text.as_bytes());
    }

    /// Returns bytes that arrived on a new connection before its first request. If the origin is known to send such
    /// bytes, waits for them for the quiet time.
    async fn early_bytes(&self, connection: &mut OriginConnection) -> Option<Vec<u8>> {
        // An HTTP/2 server may send first.
        if connection.is_reused() || connection.stream().is_some() {
            return None;
        }
        let is_checked = connection.origin().endpoint.trust().checks_new_connections(Instant::now());
        if is_checked {
            connection.rx_mut().confirm();
            Box::pin(tokio::time::sleep(surplus::quiet_time(self.task.params()))).await;
        }
        if let Peeked::Bytes(sample) = connection.rx().peek() {
            return Some(sample);
        }
        if is_checked {
            connection.origin().endpoint.trust().opened_quietly();
            connection.begins_quietly();
        }
        None
    }

    /// Sends the request, and reads the head of the response.
    async fn exchange(&mut self, connection: &mut OriginConnection) -> Exchange {
        let Some(upload) = self.open_upload(connection.stream().is_some()) else {
            self.task.stamp("Bereq");
            connection.must_close(SessClose::Overload);
            return Exchange::Failed;
        };
        let sent = if self.request.cached_body.is_none() && self.request.body.is_none() {
            self.send_head(connection).await.map(|()| Sent::Whole)
        } else {
            // Boxed: few requests have a body, and the future is large.
            let abandonment = self.abandonment(None);
            let sent = abandonment.unless(Box::pin(self.send_request(connection, upload)).as_mut()).await;
            let Some(sent) = sent else {
                connection.set_unsent(true);
                return self.abandon(connection);
            };
            sent
        };
        match sent {
            Ok(sent) => {
                connection.reply_mut().request_sent(self.task.stamp("Bereq"));
                self.task.services().counters().backend_req.add(1);
                match sent {
                    Sent::Whole | Sent::Overlapping => self.receive_head(connection).await,
                    // Boxed: this is rare, and the future is large.
                    Sent::Part => Box::pin(self.receive_early_head(connection)).await,
                }
            }
            Err(e) => self.fail_sending(connection, &e),
        }
    }

    /// Ends the exchange after a failure to send the request.
    #[cold]
    fn fail_sending(&mut self, connection: &mut OriginConnection, e: &io::Error) -> Exchange {
        connection.set_unsent(true);
        // The system's own time-out has a number.
        let is_late = e.kind() == io::ErrorKind::TimedOut && e.raw_os_error().is_none();
        if connection.stream().is_some() && !is_late {
            self.task.stamp("Bereq");
            return self.fail_stream(connection, e, 0);
        }
        let reason = match e.kind() {
            io::ErrorKind::BrokenPipe | io::ErrorKind::ConnectionReset => SessClose::RemClose,
            _ => SessClose::TxError,
        };
        if let Some(stream) = connection.stream() {
            stream.leave_if_silent();
        }
        if is_late {
            self.fetch_error("send timeout (first_byte_timeout)");
        } else {
            let errno = e.raw_os_error().unwrap_or(0);
            let text = lacquer_system::error_text(errno);
            self.fetch_error(&format!("backend write error: {errno} ({text}) ({})", reason.text()));
        }
        self.task.stamp("Bereq");
        connection.close_unless_closing(reason);
        // An origin may close an idle connection at any time. The request can be repeated if its body was not read.
        match (is_late, self.retries.forbidden) {
            (true, _) => Exchange::Late,
            (false, None) => Exchange::Silent,
            (false, Some(_)) => Exchange::Failed,
        }
    }

    /// Reads the head of a response that has arrived before the whole request was sent. The rest of the request is not
    /// sent, so the connection cannot be kept, and the rest of the client's body is not needed.
    async fn receive_early_head(&mut self, connection: &mut OriginConnection) -> Exchange {
        self.task.log_mut().put(Tag::Notice, b"early response: the request body was not sent to its end");
        connection.set_unsent(true);
        let exchange = self.receive_head(connection).await;
        connection.close_unless_closing(SessClose::RespClose);
        if let Some(body) = &mut self.request.body {
            body.give_up_rest();
        }
        exchange
    }

    async fn send_request(&mut self, connection: &mut OriginConnection, upload: Upload) -> io::Result<Sent> {
        self.send_head(connection).await?;
        if self.purpose.may_overlap
            && self.request.cached_body.is_none()
            && let Some(stream) = connection.stream().cloned()
        {
            return self.send_overlapping(connection, stream, upload).await;
        }
        self.send_body(connection, upload).await
    }

    async fn send_head(&mut self, connection: &mut OriginConnection) -> io::Result<()> {
        if connection.stream().is_some() {
            return self.open_stream(connection);
        }
        let mut out = self.task.take_output();
        let head = h1::write_request_head(&self.request.http, self.task.ws(), &mut out);
        let sent = connection.send(&out).await;
        self.task.return_output(out);
        sent?;
        self.exchange.account.bereq_header += head as u64;
        if self.request.cached_body.is_none() && self.request.body.is_none() {
            self.task.log_sent("V1B", 0, 0);
        }
        Ok(())
    }
}
