//! Runs `vcl_pipe`, then carries bytes between the client and the origin without looking at them.

use std::time::Duration;

use lacquer_http::{BodyStatus, Filter, Message, SessClose, header_table as h};
use lacquer_net::{RxHalf, TxHalf};
use lacquer_shm::vsl::text;
use lacquer_shm::{Tag, Vxid};
use lacquer_sources::clock::{self, Instant};
use lacquer_vcl::types::{Action, Method};
use lacquer_vcl_runtime::Ctx;

use super::{PipeRequest, Req, Step};
use crate::fetch::{OriginConnection, PipeCall, log_close};
use crate::task::{BEREQ, Logged};

/// Bytes of a piped exchange, for `PipeAcct`.
#[derive(Default)]
struct Account {
    bereq: u64,
    from_client: u64,
    from_origin: u64,
}

pub async fn pipe(req: &mut Req) -> Step {
    req.task.services.counters().s_pipe.add(1);
    make_bereq(req);
    let handling = if req.task.ws.overflowed() { Action::Fail } else { req.vcl(Method::Pipe).await };
    let step = match handling {
        Action::Synth => Step::Synth,
        Action::Pipe => {
            req.task.stamp("Process");
            if let Some(pipe) = &mut req.pipe {
                pipe.stamp("Process");
            }
            start(req).await
        }
        _ => Step::VclFail,
    };
    if let Some(mut pipe) = req.pipe.take() {
        pipe.log.put(Tag::BereqAcct, b"0 0 0 0 0 0");
        pipe.log.end();
    }
    step
}

fn make_bereq(req: &mut Req) {
    let services = req.task.services.clone();
    let vxid = Vxid::backend(services.vxid());
    let mut log = services.log().transaction();
    log.begin(vxid);
    log.put_relation(Tag::Begin, "bereq", req.task.vxid(), "pipe");
    req.task.link("bereq", vxid, "pipe");
    let now = clock::real();
    log.put_timestamp("Start", now, now, now);
    let mut bereq = Message::new(req.task.params.http_max_hdr as usize);
    bereq.share_from(&req.request.http, Filter::NOTHING);
    let mut digits = [0; 24];
    let own = text::digits(req.task.vxid().number(), &mut digits);
    let mut headers = Logged { message: &mut bereq, ws: &mut req.task.ws, log: &mut log, tags: BEREQ };
    headers.log_all();
    headers.add(crate::task::names::X_VARNISH, own);
    headers.force(h::CONNECTION, lacquer_http::fixed::CONNECTION_CLOSE);
    if req.request.expects.is_waiting {
        headers.add(h::EXPECT, b"100-continue");
        req.request.expects.is_waiting = false;
    }
    req.pipe = Some(Box::new(PipeRequest {
        bereq,
        log,
        backend: req.request.backend_hint,
        connect_timeout: None,
        task_deadline: None,
        t_first: now,
        t_prev: now,
    }));
}

/// Takes a place among the piped connections; it is given back when this is dropped.
struct Place(std::sync::Arc<crate::shared::Shared>);

impl Place {
    fn take(req: &Req) -> Option<Place> {
        let shared = req.task.services.shared().clone();
        let limit = u64::from(req.task.params.pipe_sess_max);
        if limit > 0 && shared.counters().n_pipe.get() >= limit {
            return None;
        }
        shared.counters().n_pipe.add(1);
        Some(Place(shared))
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.0.counters().n_pipe.sub(1);
    }
}

async fn start(req: &mut Req) -> Step {
    if req.client.tx.is_probed() {
        // The origin's first bytes would follow those of a response of ours.
        req.log_error("Not piped: a response had begun before the restart");
        return Step::VclFail;
    }
    let Some(_place) = Place::take(req) else {
        req.task.services.counters().pipe_limited.add(1);
        return Step::VclFail;
    };
    if req.request.body.status() != BodyStatus::Cached {
        req.request.body.set_status(BodyStatus::None);
    }
    let mut account = Account::default();
    let reason = converse(req, &mut account).await;
    req.client.close = Some(reason);
    // Without an origin the request counts like any other.
    if req.client.is_piped {
        charge(req, &account);
    }
    Step::Done
}

fn charge(req: &mut Req, account: &Account) {
    let header = std::mem::take(&mut req.client.account.req_header);
    let numbers = [header, account.bereq, account.from_client, account.from_origin];
    req.task.log.put_numbers(Tag::PipeAcct, numbers);
    let c = req.task.services.counters();
    c.s_pipe_hdrbytes.add(header);
    c.s_pipe_in.add(account.from_client);
    c.s_pipe_out.add(account.from_origin);
}

/// Opens a connection to the origin and carries bytes until one side ends.
async fn converse(req: &mut Req, account: &mut Account) -> SessClose {
    let Some(mut pipe) = req.pipe.take() else { return SessClose::TxError };
    let vcl = req.task.vcl.clone();
    let backend = pipe.backend;
    let mut ctx = Ctx::new(req, vcl.loaded.instance());
    let found = crate::fetch::resolve(&mut ctx, backend);
    let opened = match found {
        Ok((id, origin)) => {
            req.client.is_piped = true;
            let call = PipeCall { task: &mut req.task, pipe: &mut pipe };
            call.open(id, origin).await
        }
        Err(why) => {
            pipe.log.put(Tag::FetchError, why.as_bytes());
            pipe.log.put(Tag::VCL_Error, b"Backend does not support pipe");
            None
        }
    };
    let reason = match opened {
        None => SessClose::TxError,
        Some(mut connection) => {
            let sent = send_head(req, &mut pipe, &mut connection, account).await;
            pipe.stamp("Bereq");
            req.task.stamp("Pipe");
            let reason =
                if sent { carry(req, &pipe, &mut connection, account).await } else { SessClose::TxError };
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
    };
    req.pipe = Some(pipe);
    reason
}

async fn send_head(
    req: &mut Req,
    pipe: &mut PipeRequest,
    connection: &mut OriginConnection,
    account: &mut Account,
) -> bool {
    let mut out = Vec::with_capacity(1024);
    let head = lacquer_http::h1::write_request_head(&pipe.bereq, &req.task.ws, &mut out);
    let sent = connection.tx.write_all(&out).await.is_ok();
    if sent {
        account.bereq += head as u64;
    }
    if sent && let Some(body) = req.request.body.cached() {
        account.from_client += body.body_len();
        return crate::fetch::send_cached(&connection.tx, &body).await.is_ok();
    }
    sent
}

/// Copies bytes both ways until both directions have ended, or no byte moves for too long.
async fn carry(
    req: &mut Req,
    pipe: &PipeRequest,
    connection: &mut OriginConnection,
    account: &mut Account,
) -> SessClose {
    let Some(mut client) = req.request.body.take_rx() else { return SessClose::RxBody };
    let Some(tx) = req.client.tx.whole_connection() else { return SessClose::RxBody };
    let pending = std::mem::take(&mut client.pending);
    if !pending.is_empty() {
        if connection.tx.write_all(&pending).await.is_err() {
            return SessClose::Overload;
        }
        account.from_client += pending.len() as u64;
    }
    let idle = clock::limit(req.task.params.pipe_timeout);
    let deadline = pipe.task_deadline.unwrap_or(req.task.params.pipe_task_deadline);
    let left = if deadline > 0.0 {
        (req.task.sess.opened.max(req.task.times.first) + deadline - clock::real()).max(0.001)
    } else {
        clock::limit(0.0)
    };
    let moved = std::cell::Cell::new(Instant::now());
    let up = one_way(&mut client.half, &connection.tx, &mut account.from_client, &moved);
    let early = std::mem::take(&mut connection.rx.pending);
    let down = async {
        if !early.is_empty() {
            let _ = tx.write_all(&early).await;
            account.from_origin += early.len() as u64;
        }
        one_way(&mut connection.rx.half, &tx, &mut account.from_origin, &moved).await;
    };
    let both = async { tokio::join!(up, down) };
    let watchdog = stalled(&moved, clock::seconds(idle));
    let reason = tokio::select! {
        _ = both => SessClose::TxPipe,
        () = watchdog => SessClose::RxTimeout,
        () = tokio::time::sleep(clock::seconds(left)) => SessClose::RxTimeout,
    };
    req.request.body.lend_rx(Some(client));
    reason
}

/// Copies bytes until the sender ends or the receiver is gone, then ends the receiver's direction.
async fn one_way(from: &mut RxHalf, to: &TxHalf, count: &mut u64, moved: &std::cell::Cell<Instant>) {
    let mut buffer = vec![0u8; 16 * 1024];
    while let Ok(n) = from.read(&mut buffer).await {
        if n == 0 || to.write_all(&buffer[..n]).await.is_err() {
            break;
        }
        *count += n as u64;
        moved.set(Instant::now());
    }
    to.shutdown();
}

/// Returns when no byte has moved for the time given.
async fn stalled(moved: &std::cell::Cell<Instant>, limit: Duration) {
    loop {
        let until = moved.get() + limit;
        if until <= Instant::now() {
            return;
        }
        tokio::time::sleep_until(until).await;
    }
}
