//! The exchange with an origin: a connection, and the request with its body.

use std::io;
use std::pin::pin;
use std::sync::Arc;

use lacquer_flow::retry::{self, Exchange, Next, Tried};
use lacquer_http::{SessClose, h1, header_table as h};
use lacquer_net::{Peeked, SpokeFirst, Taken, endpoint};
use lacquer_shm::Tag;
use lacquer_sources::clock::Instant;
use lacquer_vcl_runtime::{BackendId, Ctx};

use super::Fetch;
use super::connection::{
    Limits, OriginConnection, choose, introduce, log_close, log_open, refused, take_idle, wait_or_connect,
};
use super::queue::Entry;
use super::upload::Upload;
use crate::backends::{Origin, OriginLeaf};
use crate::emulated::workspace_costs;
use crate::origin_slot::OriginSlot;
use crate::surplus;

/// An error number that stands for a wait for a connection that was abandoned, not for a failure to connect.
const ABANDONED: i32 = libc::ECANCELED;

/// Follows directors down to a backend.
pub fn resolve(ctx: &mut Ctx<'_>, start: BackendId) -> Result<(BackendId, Arc<Origin>), String> {
    const DEEPEST: usize = 64;
    if start.is_none() {
        return Err("No backend".to_owned());
    }
    let name = |vcl: &lacquer_vcl_runtime::Instance| {
        vcl.directors.get(start).map_or_else(String::new, |c| c.director.name().to_owned())
    };
    let mut id = start;
    for _ in 0..DEEPEST {
        let Some(cell) = ctx.vcl.directors.get(id) else { break };
        let next = cell.director.resolve(ctx, id);
        if next == id {
            return match ctx.vcl.origin(id) {
                Some(origin) => Ok((id, origin)),
                None => Err(format!("Director {} returned no backend", name(ctx.vcl))),
            };
        }
        if next.is_none() {
            break;
        }
        id = next;
    }
    Err(format!("Director {} returned no backend", name(ctx.vcl)))
}

/// The lookup of the worker's backend for a leaf of a VCL's directors.
trait Origins {
    fn origin(&self, id: BackendId) -> Option<Arc<Origin>>;
}

impl Origins for lacquer_vcl_runtime::Instance {
    fn origin(&self, id: BackendId) -> Option<Arc<Origin>> {
        self.directors.get(id)?.director.as_any().downcast_ref::<OriginLeaf>().map(|leaf| leaf.0.clone())
    }
}

impl Fetch {
    /// Sends the request and reads the head of the response into `beresp`. Returns false if there is none.
    pub async fn get_head(&mut self) -> bool {
        let vcl = self.task.vcl.clone();
        let wanted = self.exchange.backend;
        let mut ctx = Ctx::new(self, vcl.loaded.instance());
        let (id, origin) = match resolve(&mut ctx, wanted) {
            Ok(found) => found,
            Err(why) => {
                self.fetch_error(&why);
                return false;
            }
        };
        self.response.backend = id;
        if !self.request.http.has(&self.task.ws, h::HOST) {
            self.bereq_headers().add(h::HOST, &origin.host);
        }
        let mut fresh_only = false;
        loop {
            if !self.connect(id, &origin, fresh_only).await {
                return false;
            }
            let reused = self.exchange.connection.as_ref().is_some_and(|o| o.reused);
            let exchange = self.exchange().await;
            let is_repeatable = self.retries.forbidden.is_none();
            let tried = Tried { is_reused: reused, is_second: fresh_only, is_repeatable };
            let is_idempotent = || retry::is_idempotent(self.request.http.method(&self.task.ws));
            match retry::after_exchange(exchange, tried, is_idempotent) {
                Next::Respond => return true,
                Next::Repeat(reason) => {
                    self.close_origin(reason);
                    self.task.services.counters().backend_retry.add(1);
                    fresh_only = true;
                }
                Next::GiveUp => {
                    self.close_origin(Some(SessClose::RxBad));
                    return false;
                }
            }
        }
    }

    /// Opens or reuses a connection. Returns false, with the reason in the log, on failure.
    async fn connect(&mut self, id: BackendId, origin: &Arc<Origin>, fresh_only: bool) -> bool {
        let instance = self.task.vcl.loaded.instance();
        let entry = Entry::new((id, origin), instance, &self.task.params, self.task.services.shared());
        self.waiter.events.endpoint.set(origin.endpoint.id);
        let mut passed = entry.try_acquire();
        if passed.is_none() {
            // Boxed: few fetches wait, and the future is large.
            let abandonment = self.abandonment();
            let waited = abandonment.unless(Box::pin(entry.pass(&mut self.task.log)).as_mut()).await;
            if waited.is_none() {
                self.log_abandoned();
            }
            passed = waited.flatten();
        }
        let Some(slot) = passed else { return false };
        if !workspace_costs::charge(&mut self.task.ws, workspace_costs::CONNECTION) {
            self.fetch_error("out of workspace");
            return false;
        }
        match self.open(slot, fresh_only).await {
            Ok(()) => true,
            Err(e) if e.errno == ABANDONED => {
                self.log_abandoned();
                false
            }
            Err(e) => {
                refused(&mut self.task.log, origin, e);
                self.task.services.counters().backend_fail.add(1);
                false
            }
        }
    }

    async fn open(&mut self, slot: OriginSlot, fresh_only: bool) -> Result<(), endpoint::ConnectError> {
        let origin = slot.origin().clone();
        let quiet = surplus::quiet_time(&self.task.params);
        let taken = if fresh_only {
            Taken::None
        } else {
            take_idle(&self.task.services, &slot, quiet, &mut self.task.log)
        };
        let connection = match taken {
            Taken::Connection(connection) => OriginConnection::reused(&self.task.services, connection, slot),
            // Boxed: this is rare, and the future is large.
            none => Box::pin(self.wait_or_connect(slot, none)).await?,
        };
        self.task.stamp("Connected");
        let connection = self.exchange.connection.insert(connection);
        let (spec, p) = (&origin.spec, &self.task.params);
        connection.waits.between_bytes =
            choose(self.attempt.timeouts.between_bytes, spec.between_bytes_timeout, p.between_bytes_timeout);
        connection.waits.first_byte =
            choose(self.attempt.timeouts.first_byte, spec.first_byte_timeout, p.first_byte_timeout);
        if !connection.reused {
            self.exchange.account.bereq_header += introduce(connection, &self.task.sess).await;
        }
        log_open(&mut self.task.log, connection);
        connection.count_request();
        Ok(())
    }

    async fn wait_or_connect(
        &mut self,
        slot: OriginSlot,
        taken: Taken,
    ) -> Result<OriginConnection, endpoint::ConnectError> {
        let limits = Limits::of(slot.origin(), &self.task.params, self.attempt.timeouts.connect);
        let abandonment = self.abandonment();
        let task = &mut self.task;
        let made = wait_or_connect(&task.services, slot, &limits, taken, &mut task.log);
        let abandoned = Err(endpoint::ConnectError { errno: ABANDONED, held_down: false });
        abandonment.unless(pin!(made)).await.unwrap_or(abandoned)
    }

    /// Sends the request and reads the head of the response.
    async fn exchange(&mut self) -> Exchange {
        let Some(mut connection) = self.exchange.connection.take() else { return Exchange::Failed };
        self.exchange.address = connection.facts.remote;
        if !connection.reused
            && let Some(sample) = self.early_bytes(&mut connection).await
        {
            self.task.stamp("Bereq");
            log_close(&mut self.task.log, &connection, Some(SessClose::RxJunk.name()));
            let text = connection.close_faulty(&self.task.services, sample, SpokeFirst::Yes);
            self.task.log.put(Tag::Error, text.as_bytes());
            return Exchange::Foreign;
        }
        let tried = self.exchange_on(&mut connection).await;
        self.exchange.connection = Some(connection);
        tried
    }

    /// Returns bytes that came on a new connection before its first request. Waits a short time for them if the origin
    /// is known for that.
    async fn early_bytes(&self, connection: &mut OriginConnection) -> Option<Vec<u8>> {
        let is_checked = connection.origin().endpoint.trust.may_speak_first(Instant::now());
        if is_checked {
            connection.rx.half.confirm();
            Box::pin(tokio::time::sleep(surplus::quiet_time(&self.task.params))).await;
        }
        if let Peeked::Bytes(sample) = connection.rx.half.look() {
            return Some(sample);
        }
        if is_checked {
            connection.origin().endpoint.trust.opened_quietly();
            connection.begins_quietly();
        }
        None
    }

    async fn exchange_on(&mut self, connection: &mut OriginConnection) -> Exchange {
        let Some(upload) = self.open_upload() else {
            self.task.stamp("Bereq");
            connection.close = Some(SessClose::Overload);
            return Exchange::Failed;
        };
        let sent = if self.request.cached_body.is_none() && self.request.body.is_none() {
            self.send_head(connection).await
        } else {
            // Boxed: few requests have a body, and the future is large.
            let abandonment = self.abandonment();
            let sent = abandonment.unless(Box::pin(self.send_request(connection, upload)).as_mut()).await;
            let Some(sent) = sent else { return self.abandon(connection) };
            sent
        };
        match sent {
            Ok(()) => {
                connection.reply.asked = self.task.stamp("Bereq");
                self.task.services.counters().backend_req.add(1);
                self.receive_head(connection).await
            }
            Err(e) => {
                let reason = match e.kind() {
                    io::ErrorKind::BrokenPipe | io::ErrorKind::ConnectionReset => SessClose::RemClose,
                    _ => SessClose::TxError,
                };
                let errno = e.raw_os_error().unwrap_or(0);
                let text = lacquer_system::error_text(errno);
                self.fetch_error(&format!("backend write error: {errno} ({text}) ({})", reason.text()));
                self.task.stamp("Bereq");
                connection.close = connection.close.or(Some(reason));
                // An origin may close an idle connection at any time.
                if self.retries.forbidden.is_none() { Exchange::Silent } else { Exchange::Failed }
            }
        }
    }

    /// Closes the connection during the exchange, because nobody waits for the response.
    pub(super) fn abandon(&mut self, connection: &mut OriginConnection) -> Exchange {
        self.log_abandoned();
        connection.close = Some(SessClose::RemClose);
        Exchange::Failed
    }

    async fn send_request(&mut self, connection: &mut OriginConnection, upload: Upload) -> io::Result<()> {
        self.send_head(connection).await?;
        self.send_body(&connection.tx, upload).await
    }

    async fn send_head(&mut self, connection: &mut OriginConnection) -> io::Result<()> {
        self.exchange.out.clear();
        let head = h1::write_request_head(&self.request.http, &self.task.ws, &mut self.exchange.out);
        connection.tx.write_all(&self.exchange.out).await?;
        self.exchange.account.bereq_header += head as u64;
        if self.request.cached_body.is_none() && self.request.body.is_none() {
            self.task.log_sent("V1B", 0, 0);
        }
        Ok(())
    }
}
