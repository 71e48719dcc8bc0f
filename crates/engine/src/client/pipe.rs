//! Runs `vcl_pipe`, then copies bytes between the client and the origin without interpreting them.

use std::cell::Cell;
use std::io;
use std::time::Duration;

use lacquer_cache::Object;
use lacquer_http::{BodyStatus, Filter, Message, SessClose, header_table as h};
use lacquer_net::{Rx, TxHalf};
use lacquer_shm::vsl::text;
use lacquer_shm::{Tag, Vxid};
use lacquer_sources::clock::{self, Instant};
use lacquer_vcl::types::{Action, Method};
use lacquer_vcl_runtime::Ctx;

use super::{PipeRequest, Req, Step, early};
use crate::fetch::{OriginConnection, PipeCall, log_close};
use crate::logged::{BEREQ, Logged};
use crate::notes::Observation;
use crate::spans::Span;

/// The byte counts of a pipe, for `PipeAcct`.
#[derive(Default)]
struct Account {
    bereq: u64,
    from_client: u64,
    from_origin: u64,
}

pub async fn pipe(req: &mut Req) -> Step {
    req.task.services().counters().s_pipe.add(1);
    // VCL changes the request to the origin.
    req.pipe = Some(make_bereq(req));
    let handling = if req.task.ws().overflowed() { Action::Fail } else { req.vcl(Method::Pipe).await };
    let Some(mut pipe) = req.pipe.take() else { return Step::VclFail };
    let step = match handling {
        Action::Synth => Step::Synth,
        Action::Pipe => {
            req.task.stamp("Process");
            pipe.stamp("Process");
            start(req, &mut pipe).await
        }
        _ => Step::VclFail,
    };
    pipe.log.put(Tag::BereqAcct, b"0 0 0 0 0 0");
    pipe.log.end();
    step
}

/// Creates the request to the origin, in a transaction of its own.
fn make_bereq(req: &mut Req) -> Box<PipeRequest> {
    let services = req.task.services().clone();
    let vxid = Vxid::backend(services.vxid());
    let mut log = services.log().transaction();
    log.begin(vxid);
    log.put_relation(Tag::Begin, "bereq", req.task.vxid(), "pipe");
    let is_traced = req.task.observation().has(Observation::SPANS);
    let span = if is_traced { Span::of_exchange(*req.task.span()) } else { None };
    if let Some(span) = span {
        span.log(&mut log);
    }
    req.task.link("bereq", vxid, "pipe");
    let now = clock::real();
    log.put_timestamp("Start", now, now, now);
    let mut bereq = Message::new(req.task.params().http_max_hdr as usize);
    bereq.share_from(&req.request.http, Filter::NOTHING);
    let mut digits = [0; 24];
    let own = text::digits(req.task.vxid().number(), &mut digits);
    let mut headers = Logged { message: &mut bereq, ws: req.task.ws_mut(), log: &mut log, tags: BEREQ };
    headers.log_all();
    headers.add(crate::logged::names::X_VARNISH, own);
    if let Some(span) = span {
        span.pass_on(&mut headers);
    }
    headers.force(h::CONNECTION, lacquer_http::fixed::CONNECTION_CLOSE);
    if req.request.expects.is_waiting {
        headers.add(h::EXPECT, b"100-continue");
        req.request.expects.is_waiting = false;
    }
    Box::new(PipeRequest {
        bereq,
        log,
        backend: req.request.backend_hint,
        connect_timeout: None,
        task_deadline: None,
        t_first: now,
        t_prev: now,
    })
}

/// A slot among the piped connections (`pipe_sess_max`). Dropping it frees the slot.
pub(super) struct PipeSlot(std::sync::Arc<crate::shared::Shared>);

impl PipeSlot {
    pub fn take(req: &Req) -> Option<PipeSlot> {
        let shared = req.task.services().shared().clone();
        let limit = u64::from(req.task.params().pipe_sess_max);
        if limit > 0 && shared.counters().n_pipe.get() >= limit {
            return None;
        }
        shared.counters().n_pipe.add(1);
        Some(PipeSlot(shared))
    }
}

impl Drop for PipeSlot {
    fn drop(&mut self) {
        self.0.counters().n_pipe.sub(1);
    }
}

async fn start(req: &mut Req, pipe: &mut PipeRequest) -> Step {
    if !Box::pin(early::complete_handshake(req)).await {
        return Step::Done;
    }
    if req.client.tx.is_probed() {
        // The client would receive the origin's bytes after the beginning of another response.
        req.log_error("Not piped: a response had begun before the restart");
        return Step::VclFail;
    }
    let Some(_slot) = PipeSlot::take(req) else {
        req.task.services().counters().pipe_limited.add(1);
        return Step::VclFail;
    };
    if req.request.body.status() != BodyStatus::Cached {
        req.request.body.set_status(BodyStatus::None);
    }
    let mut account = Account::default();
    let reason = connect_and_carry(req, pipe, &mut account).await;
    req.client.close = Some(reason);
    // If no origin was contacted, the request is counted like any other.
    if req.client.is_piped {
        charge(req, &account);
    }
    Step::Done
}

fn charge(req: &mut Req, account: &Account) {
    let header = std::mem::take(&mut req.client.account.req_header);
    let numbers = [header, account.bereq, account.from_client, account.from_origin];
    req.task.log_mut().put_numbers(Tag::PipeAcct, numbers);
    let c = req.task.services().counters();
    c.s_pipe_hdrbytes.add(header);
    c.s_pipe_in.add(account.from_client);
    c.s_pipe_out.add(account.from_origin);
}

/// Opens a connection to the origin, and copies bytes until both sides have ended.
async fn connect_and_carry(req: &mut Req, pipe: &mut PipeRequest, account: &mut Account) -> SessClose {
    let vcl = req.task.vcl().clone();
    let backend = pipe.backend;
    let mut ctx = Ctx::new(req, vcl.loaded.instance());
    let found = crate::fetch::resolve(&mut ctx, backend);
    let opened = match found {
        Ok((id, origin)) => {
            req.client.is_piped = true;
            let call = PipeCall { task: &mut req.task, pipe };
            call.open(id, origin).await
        }
        Err(why) => {
            pipe.log.put(Tag::FetchError, why.as_bytes());
            pipe.log.put(Tag::VCL_Error, b"Backend does not support pipe");
            None
        }
    };
    match opened {
        None => SessClose::TxError,
        Some(mut connection) => {
            let reason = carry(req, pipe, &mut connection, account).await;
            req.task.stamp("PipeSess");
            log_close(&mut pipe.log, &connection, Some(reason.name()));
            connection.origin().count(|c| {
                c.pipe_hdrbytes.add(account.bereq);
                c.pipe_out.add(account.from_client);
                c.pipe_in.add(account.from_origin);
            });
            connection.close();
            reason
        }
    }
}

/// The limits of a pipe. `idle` and `left` are in seconds.
pub(super) struct Limits {
    /// The longest time without a byte in either direction.
    pub idle: f64,
    /// The time left until the deadline.
    pub left: f64,
}

impl Limits {
    /// `deadline` is the deadline that VCL has set.
    pub fn of(req: &Req, deadline: Option<f64>) -> Limits {
        let params = req.task.params();
        let deadline = deadline.unwrap_or(params.pipe_task_deadline);
        let begun = req.task.sess().opened().max(req.task.first_event());
        let left =
            if deadline > 0.0 { (begun + deadline - clock::real()).max(0.001) } else { clock::limit(0.0) };
        Limits { idle: clock::limit(params.pipe_timeout), left }
    }

    /// Runs both directions within the limits. Returns the reason for their end.
    pub async fn run<T>(
        &self,
        moved: &Cell<Instant>,
        both: impl Future<Output = Result<T, SessClose>>,
    ) -> SessClose {
        tokio::select! {
            done = both => done.err().unwrap_or(SessClose::TxPipe),
            () = stalled(moved, clock::seconds(self.idle)) => SessClose::RxTimeout,
            () = tokio::time::sleep(clock::seconds(self.left)) => SessClose::RxTimeout,
        }
    }
}

/// Sends the request, then copies bytes both ways until both directions have ended or a limit has expired.
async fn carry(
    req: &mut Req,
    pipe: &mut PipeRequest,
    connection: &mut OriginConnection,
    account: &mut Account,
) -> SessClose {
    let Some(mut client) = req.request.body.take_rx() else { return SessClose::RxBody };
    let Some(tx) = req.client.tx.whole_connection() else { return SessClose::RxBody };
    // The client's direction ends in order only by the origin's end, see `Receiver::copy`.
    tx.cut();
    let limits = Limits::of(req, pipe.task_deadline);
    let (mut out, body) = (Vec::with_capacity(1024), req.request.body.cached());
    let head = lacquer_http::h1::write_request_head(&pipe.bereq, req.task.ws(), &mut out);
    let pending = client.take_read_ahead();
    let early = connection.rx_mut().take_read_ahead();
    let moved = Cell::new(Instant::now());
    let (from_origin, origin_tx) = connection.halves();
    let to_origin = Receiver::new(origin_tx, &moved);
    let up = async {
        to_origin.send(&out).await.map_err(|_| SessClose::TxError)?;
        account.bereq += head as u64;
        if let Some(body) = body {
            to_origin.send_stored(&body, &mut account.from_client).await.map_err(|_| SessClose::TxError)?;
        }
        pipe.stamp("Bereq");
        req.task.stamp("Pipe");
        to_origin.send(&pending).await.map_err(|_| SessClose::Overload)?;
        account.from_client += pending.len() as u64;
        to_origin.copy(&mut client, &mut account.from_client).await;
        Ok(())
    };
    let down = down((&tx, &moved), &early, from_origin, &mut account.from_origin);
    let reason = limits.run(&moved, async { tokio::try_join!(unless_gone(up, &tx), down) }).await;
    let has_unsent = to_origin.has_unsent.get();
    connection.set_unsent(has_unsent);
    req.request.body.set_rx(Some(client));
    reason
}

/// The receiving end of one direction of a pipe.
pub(super) struct Receiver<'p> {
    tx: &'p TxHalf,
    /// The time of the last byte in either direction.
    moved: &'p Cell<Instant>,
    /// The receiver has not accepted all bytes yet.
    pub has_unsent: Cell<bool>,
}

impl<'p> Receiver<'p> {
    pub fn new(tx: &'p TxHalf, moved: &'p Cell<Instant>) -> Receiver<'p> {
        Receiver { tx, moved, has_unsent: Cell::new(false) }
    }

    pub async fn send(&self, mut bytes: &[u8]) -> io::Result<()> {
        self.has_unsent.set(true);
        while !bytes.is_empty() {
            let written = self.tx.write_some(bytes).await?;
            self.moved.set(Instant::now());
            bytes = &bytes[written..];
        }
        while self.tx.held() > 0 {
            self.tx.flush_some().await?;
            self.moved.set(Instant::now());
        }
        self.has_unsent.set(false);
        Ok(())
    }

    async fn send_stored(&self, body: &Object, count: &mut u64) -> io::Result<()> {
        let mut at = 0;
        while let Some(chunk) = body.chunk_at(at).filter(|chunk| !chunk.is_empty()) {
            self.send(chunk.bytes()).await?;
            at += chunk.len() as u64;
            *count += chunk.len() as u64;
        }
        Ok(())
    }

    /// Copies bytes until the sender ends or the receiver is gone, then ends the receiver's direction. Only if all bytes
    /// were copied, it ends in order.
    pub async fn copy(&self, from: &mut Rx, count: &mut u64) {
        let mut buffer = vec![0u8; 16 * 1024];
        while let Ok(n) = from.read(&mut buffer).await {
            if n == 0 && self.tx.end().await.is_ok() {
                return;
            }
            if n == 0 || self.send(&buffer[..n]).await.is_err() {
                break;
            }
            *count += n as u64;
        }
        self.tx.shutdown();
    }
}

/// Runs the direction to the origin until the client is gone. A read detects the end of the client, but no read happens
/// while bytes wait for the origin. So the client is also watched.
pub(super) async fn unless_gone(
    up: impl Future<Output = Result<(), SessClose>>,
    tx: &TxHalf,
) -> Result<(), SessClose> {
    tokio::select! {
        biased;
        done = up => done,
        () = gone(tx) => Err(SessClose::RemClose),
    }
}

/// Runs the direction to the client: sends the bytes that were read ahead, then copies the others.
pub(super) async fn down(
    (tx, moved): (&TxHalf, &Cell<Instant>),
    early: &[u8],
    from_origin: &mut Rx,
    count: &mut u64,
) -> Result<(), SessClose> {
    let to_client = Receiver::new(tx, moved);
    if to_client.send(early).await.is_ok() {
        *count += early.len() as u64;
    }
    to_client.copy(from_origin, count).await;
    Ok(())
}

/// Returns when no byte has moved for `limit`.
async fn stalled(moved: &Cell<Instant>, limit: Duration) {
    loop {
        let until = moved.get() + limit;
        if until <= Instant::now() {
            return;
        }
        tokio::time::sleep_until(until).await;
    }
}

/// Returns when the client's connection is broken. A client that has only shut down its sending side still waits for
/// bytes; the limits of the pipe bound that.
async fn gone(tx: &TxHalf) {
    tx.peer_shut_down().await;
    tx.broken().await;
}
