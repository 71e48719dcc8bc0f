//! Serves a client's connection from accept to close: one request after the other.

use std::io;
use std::pin::pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::Poll;

use lacquer_backend::{Stream, TxHalf};
use lacquer_http::h1::{self, HeadScan};
use lacquer_http::{BodyStatus, SessClose, Text, header_table as h};
use lacquer_params::{FeatureBits, Params};
use lacquer_shm::{Tag, Vxid};

use super::{Listener, Sess, count_close, proxy_header};
use crate::client::{Req, Start};
use crate::clock;
use crate::deadlines::{Deadline, Moment};
use crate::faults::apart;
use crate::h2;
use crate::memory::Memory;
use crate::pool_counters;
use crate::reactor::Reactor;
use crate::req_body::{ReqBody, Rx};
use crate::seat::Seat;
use crate::wire::Wire;

/// The connection is open as long as this lives; the reason for its end is decided by [`serve`].
struct Connection {
    sess: Rc<Sess>,
    tx: Rc<TxHalf>,
    /// Absent while a request has it.
    rx: Option<Rx>,
    idle: Rc<Deadline>,
    /// Bytes of a head that is not complete yet.
    received: usize,
}

/// Serves a connection to its end.
pub async fn run(reactor: Rc<Reactor>, stream: Stream, listener: Arc<Listener>) {
    let opened = clock::real();
    reactor.counters.s_sess.add(1);
    pool_counters::taken(&reactor.pool_counters.sess);
    let vxid = reactor.vxid();
    let (half, tx) = stream.split();
    let mut sess = Box::new(Sess::new(vxid, listener, &half, opened));
    sess.log_open(&reactor);
    let mut rx = Rx::new(half);
    let settled = if sess.listener.proxy {
        Box::pin(proxy_header::receive(&reactor, &mut sess, &mut rx)).await
    } else {
        Ok(())
    };
    let sess = Rc::<Sess>::from(sess);
    let reason = match settled {
        Ok(()) => {
            let mut connection = Connection {
                sess: sess.clone(),
                tx: Rc::new(tx),
                rx: Some(rx),
                idle: reactor.deadlines.enlist(),
                received: 0,
            };
            let reason = serve(&reactor, &mut connection).await;
            close(connection);
            reason
        }
        Err(reason) => {
            tx.forget();
            drop(rx);
            reason
        }
    };
    pool_counters::given(&reactor.pool_counters.sess);
    reactor.counters.ws_session_overflow.add(u64::from(sess.workspace_overflowed()));
    count_close(&reactor, reason);
    sess.log_close(&reactor, reason, clock::real());
    reactor.flush_counters();
}

fn close(connection: Connection) {
    let Connection { tx, rx, .. } = connection;
    if let Ok(tx) = Rc::try_unwrap(tx) {
        tx.forget();
    }
    drop(rx);
}

/// How the wait for a request ended.
enum Received {
    Head(Head),
    /// The socket only seemed to have something, as one that was just accepted may.
    Nothing,
    Closed(SessClose),
    Overflow,
}

/// A whole head as it came, and the time of its first and last byte.
struct Head {
    rx: Text,
    first: f64,
    complete: f64,
}

/// What came of a head.
enum Begun {
    Request(Seat<Req>),
    /// It is no HTTP and is answered with this status.
    Refused(Seat<Req>, u16),
    /// The client speaks HTTP/2, and knows that we do.
    Http2,
    /// The client asks to go on with HTTP/2.
    Upgrade(Seat<Req>),
    Closed(SessClose),
}

async fn serve(reactor: &Rc<Reactor>, connection: &mut Connection) -> SessClose {
    let mut served = false;
    loop {
        let idle_since = connection.idle.now();
        let mut herded = false;
        if connection.rx.as_ref().is_some_and(Rx::has_pending) {
            // What came behind a PROXY header was not read ahead of its time.
            reactor.counters.sess_readahead.add(u64::from(served));
        } else {
            match wait_idle(reactor, connection).await {
                Ok(long) => herded = long,
                Err(reason) => return reason,
            }
        }
        if herded && crate::control::knobs::take_refusal() {
            return SessClose::Overload;
        }
        let params = reactor.params();
        let mut seat = reactor.take_seat();
        let memory = seat.prepare(reactor, &params);
        let limit = connection.sess.idle_limit(&params);
        connection.idle.arm(idle_since, limit);
        let received = receive_head(&params, connection, memory).await;
        connection.idle.disarm();
        if herded && !matches!(received, Received::Nothing) {
            let w = &reactor.pool_counters.waiter;
            let gone = connection.received == 0 && matches!(received, Received::Closed(_));
            if gone { w.remclose.add(1) } else { w.action.add(1) }
        }
        let head_came = matches!(received, Received::Head(_));
        let ended = match received {
            Received::Nothing => {
                reactor.give_seat(seat);
                None
            }
            Received::Closed(reason) => {
                charge_partial(reactor, connection);
                reactor.give_seat(seat);
                Some(reason)
            }
            Received::Overflow => {
                Box::pin(refuse_overflow(reactor, connection)).await;
                charge_partial(reactor, connection);
                reactor.give_seat(seat);
                Some(SessClose::RxOverflow)
            }
            Received::Head(head) => match begin(reactor, params, connection, seat, &head) {
                Begun::Request(seat) => process(reactor, connection, seat).await,
                Begun::Refused(seat, status) => Box::pin(refuse(reactor, connection, seat, status)).await,
                Begun::Http2 => return apart(|| speak_http2(reactor, connection)).await,
                Begun::Upgrade(seat) => return apart(|| upgrade(reactor, connection, seat)).await,
                Begun::Closed(reason) => Some(reason),
            },
        };
        if let Some(reason) = ended {
            // Sessions that end while they are idle count as what ended them.
            reactor.counters.sess_closed.add(u64::from(head_came));
            return reason;
        }
        served = true;
    }
}

/// Waits for the next request without holding memory for it; true if it lingered for long.
async fn wait_idle(reactor: &Reactor, connection: &mut Connection) -> Result<bool, SessClose> {
    let params = reactor.params();
    let limit = connection.sess.idle_limit(&params);
    let linger = connection.sess.timeout_linger.get(params.timeout_linger).min(limit);
    drop(params);
    let since = connection.idle.now();
    if let Some(woken) = readable_until(connection, since, linger).await {
        return woken.map(|()| false);
    }
    let waiter = &reactor.pool_counters.waiter;
    reactor.counters.sess_herd.add(1);
    waiter.conns.add(1);
    let woken = readable_until(connection, since, limit).await;
    waiter.conns.sub(1);
    match woken {
        Some(Ok(())) => Ok(true),
        Some(Err(reason)) => {
            waiter.remclose.add(1);
            Err(reason)
        }
        None => {
            waiter.timeout.add(1);
            Err(SessClose::RxCloseIdle)
        }
    }
}

/// Waits until something has arrived; `None` if the time is over first.
async fn readable_until(
    connection: &Connection,
    since: Moment,
    seconds: f64,
) -> Option<Result<(), SessClose>> {
    let Some(rx) = connection.rx.as_ref() else { return Some(Err(SessClose::RxBody)) };
    connection.idle.arm(since, seconds);
    let ready = std::future::poll_fn(|cx| match rx.half.poll_readable(cx) {
        Poll::Pending if connection.idle.poll_expired(cx) => Poll::Ready(None),
        Poll::Pending => Poll::Pending,
        Poll::Ready(Ok(())) => Poll::Ready(Some(Ok(()))),
        Poll::Ready(Err(_)) => Poll::Ready(Some(Err(SessClose::RemClose))),
    });
    let woken = ready.await;
    connection.idle.disarm();
    woken
}

fn charge_partial(reactor: &Reactor, connection: &Connection) {
    reactor.counters.s_req_hdrbytes.add(connection.received as u64);
}

async fn refuse_overflow(reactor: &Reactor, connection: &Connection) {
    let status = reactor.params().http_req_overflow_status as u16;
    if status != 0 {
        let mut out = Vec::new();
        h1::minimal_response(status, &mut out);
        let _ = connection.tx.write_all(&out).await;
    }
}

/// Reads until a whole head is there, or the connection's time is over.
async fn receive_head(params: &Params, connection: &mut Connection, memory: &mut Memory) -> Received {
    let max = (params.http_req_size as usize).min(memory.ws.free_space().saturating_sub(1));
    connection.received = 0;
    let Some(rx) = connection.rx.as_mut() else { return Received::Closed(SessClose::RxBody) };
    let mut have = 0;
    let mut scanned = 0;
    let mut first = f64::NAN;
    loop {
        let Ok(window) = memory.ws.reserve(max) else { return Received::Overflow };
        if have >= max {
            return Received::Overflow;
        }
        let window = &mut window[have..max];
        let read = if connection.received == 0 {
            let Some(read) = read_at_once(rx, window).await else { return Received::Nothing };
            read
        } else {
            read_in_time(rx, &connection.idle, window).await
        };
        let n = match read {
            Ok(0) => return Received::Closed(SessClose::RemClose),
            Ok(n) => n,
            Err(e) if e.kind() == io::ErrorKind::TimedOut => {
                let started = !first.is_nan();
                return Received::Closed(if started { SessClose::RxTimeout } else { SessClose::RxCloseIdle });
            }
            Err(_) => return Received::Closed(SessClose::RemClose),
        };
        let now = clock::real();
        have += n;
        connection.received = have;
        match h1::head_complete(memory.ws.reserved(have), scanned) {
            HeadScan::Empty => {
                have = 0;
                scanned = 0;
            }
            HeadScan::More { scanned: so_far } => {
                scanned = so_far;
                if first.is_nan() {
                    first = now;
                }
            }
            HeadScan::Complete | HeadScan::H2Preface => {
                if first.is_nan() {
                    first = now;
                }
                let rx = memory.ws.commit(have);
                return Received::Head(Head { rx, first, complete: now });
            }
        }
    }
}

/// `None` if there is nothing to read.
async fn read_at_once(rx: &mut Rx, buf: &mut [u8]) -> Option<io::Result<usize>> {
    std::future::poll_fn(|cx| match rx.poll_read(cx, buf) {
        Poll::Pending => Poll::Ready(None),
        Poll::Ready(read) => Poll::Ready(Some(read)),
    })
    .await
}

async fn read_in_time(rx: &mut Rx, idle: &Deadline, buf: &mut [u8]) -> io::Result<usize> {
    std::future::poll_fn(|cx| match rx.poll_read(cx, buf) {
        Poll::Pending if idle.poll_expired(cx) => Poll::Ready(Err(io::ErrorKind::TimedOut.into())),
        polled => polled,
    })
    .await
}

/// Makes a request of a head whose bytes are in the seat's memory.
fn begin(
    reactor: &Rc<Reactor>,
    params: Rc<Params>,
    connection: &mut Connection,
    mut seat: Seat<Req>,
    head: &Head,
) -> Begun {
    let Some(vcl) = reactor.vcl() else {
        reactor.give_seat(seat);
        return Begun::Closed(SessClose::Overload);
    };
    let max_line = params.http_req_hdr_len as usize;
    let start = Start {
        reactor: reactor.clone(),
        params,
        sess: connection.sess.clone(),
        vcl,
        tx: Wire::Socket(connection.tx.clone()),
        t_first: head.first,
        t_req: head.complete,
    };
    let Some(req) = seat.occupy(|memory| Req::new(start, memory)) else {
        return Begun::Closed(SessClose::Overload);
    };
    if req.task.ws.get(head.rx).starts_with(h1::H2_PREFACE) {
        if !req.task.params.feature.has(FeatureBits::HTTP2) {
            reactor.give_seat(seat);
            return Begun::Closed(SessClose::ReqHttp20);
        }
        let behind = req.task.ws.get(head.rx.tail(h1::H2_PREFACE.len()));
        if let Some(rx) = connection.rx.as_mut().filter(|_| !behind.is_empty()) {
            rx.unread(behind);
        }
        reactor.give_seat(seat);
        return Begun::Http2;
    }
    let session = Vxid::client(connection.sess.vxid);
    let log = &mut req.task.log;
    log.begin(Vxid::client(reactor.vxid()));
    log.link_from(session, "req", "rxreq");
    log.put_relation(Tag::Begin, "req", session, "rxreq");
    log.put_timestamp("Start", head.first, head.first, head.first);
    log.put_timestamp("Req", head.complete, head.first, head.first);
    req.task.t_prev = head.complete;
    match h1::parse_request(&mut req.task.ws, head.rx, &mut req.http, max_line) {
        Ok(parsed) => {
            accept(req, connection, head, &parsed);
            if h2::is_wanted(req) && may_upgrade(req) {
                return Begun::Upgrade(seat);
            }
        }
        Err(bad) => {
            log_garbage(req, head, &bad);
            return Begun::Refused(seat, bad.status);
        }
    }
    Begun::Request(seat)
}

/// The head is a request's: what came behind it waits, and the body may be read.
fn accept(req: &mut Req, connection: &mut Connection, head: &Head, parsed: &h1::RequestHead) {
    let memory = &mut req.task.ws;
    let surplus = head.rx.tail(parsed.len);
    if !surplus.is_empty()
        && let Some(rx) = connection.rx.as_mut()
    {
        rx.unread(memory.get(surplus));
    }
    let mut rehosted = parsed.rehosted;
    if req.task.params.feature.has(FeatureBits::HTTPS_SCHEME)
        && let Ok(Some(old)) = h1::rehost_https(memory, &mut req.http)
    {
        rehosted = Some(old);
    }
    if let Some(old) = rehosted {
        req.task.reactor.counters.http1_absolute_form.add(1);
        log_rehost(req, old);
    }
    req.body = ReqBody::new(connection.rx.take(), parsed.framing);
    req.account.req_header += parsed.len as u64;
    req.task.log.put(Tag::VCL_use, req.task.vcl.name.as_bytes());
}

/// The target's authority took the place of Host.
fn log_rehost(req: &mut Req, old: Text) {
    let (ws, log) = (&req.task.ws, &mut req.task.log);
    if old.is_some() {
        log.put(Tag::ReqUnset, ws.get(old));
    }
    for field in req.http.fields().iter().filter(|f| f.is(ws, h::HOST)) {
        log.put(Tag::ReqHeader, field.line(ws));
    }
}

/// A head that is not HTTP: the log gets it as it came.
fn log_garbage(req: &mut Req, head: &Head, bad: &h1::BadHead) {
    let (ws, log) = (&req.task.ws, &mut req.task.log);
    if let Some(bogo) = &bad.bogo {
        let mut text = Vec::new();
        bogo.write(ws, &mut text);
        log.put(Tag::BogoHeader, &text);
    }
    log.put(Tag::HttpGarbage, h1::garbage(ws.get(head.rx)));
    req.task.reactor.counters.client_req_400.add(1);
    req.account.req_header += head.rx.len() as u64;
    crate::client::log_start(req);
    req.close = Some(SessClose::RxJunk);
}

/// Whether HTTP/2 may go on where this request asks for it; the log tells why not.
fn may_upgrade(req: &mut Req) -> bool {
    if !req.task.params.feature.has(FeatureBits::HTTP2) {
        req.task.log.put(Tag::Debug, b"H2 upgrade attempt");
    } else if req.body.status() != BodyStatus::None {
        req.task.log.put(Tag::Debug, b"H2 upgrade attempt has body");
    } else {
        return true;
    }
    false
}

/// What the connection has is HTTP/2's from now on.
fn arrive(reactor: &Rc<Reactor>, connection: &mut Connection, rx: Rx) -> h2::Arrival {
    h2::Arrival {
        reactor: reactor.clone(),
        sess: connection.sess.clone(),
        tx: connection.tx.clone(),
        rx,
        idle: connection.idle.clone(),
    }
}

fn log_debug(reactor: &Reactor, connection: &Connection, text: &str) {
    reactor.shared.log.write(Tag::Debug, Vxid::client(connection.sess.vxid), text.as_bytes());
}

async fn speak_http2(reactor: &Rc<Reactor>, connection: &mut Connection) -> SessClose {
    log_debug(reactor, connection, "H2 Prior Knowledge Upgrade");
    let Some(rx) = connection.rx.take() else { return SessClose::RxBody };
    h2::serve(arrive(reactor, connection, rx), None).await
}

async fn upgrade(reactor: &Rc<Reactor>, connection: &mut Connection, mut seat: Seat<Req>) -> SessClose {
    log_debug(reactor, connection, "H2 Optimistic Upgrade");
    let rx = seat.transaction().and_then(|req| req.body.rx.take());
    let Some(rx) = rx else { return SessClose::RxBody };
    let mut arrival = arrive(reactor, connection, rx);
    match h2::upgrade(&mut arrival, seat).await {
        Ok(upgraded) => h2::serve(arrival, Some(upgraded)).await,
        Err(seat) => {
            h2::finish(reactor, seat);
            SessClose::RxJunk
        }
    }
}

/// Runs the request; a fault in it costs this connection only.
async fn process(reactor: &Reactor, connection: &mut Connection, mut seat: Seat<Req>) -> Option<SessClose> {
    let req = seat.transaction()?;
    let fault = crate::faults::caught(pin!(req.run())).await;
    if let Err(text) = fault {
        req.task.log.put(Tag::Error, format!("Fault in this request: {text}").as_bytes());
        req.close = Some(SessClose::VclFailure);
    }
    reactor.counters.client_req.add(1);
    finish(reactor, connection, seat)
}

/// What is no request is told so.
async fn refuse(
    reactor: &Reactor,
    connection: &mut Connection,
    mut seat: Seat<Req>,
    status: u16,
) -> Option<SessClose> {
    let req = seat.transaction()?;
    req.body.rx = connection.rx.take();
    req.minimal_response(status).await;
    finish(reactor, connection, seat)
}

fn finish(reactor: &Reactor, connection: &mut Connection, mut seat: Seat<Req>) -> Option<SessClose> {
    let req = seat.transaction()?;
    req.account.req_body += req.body.take_counted().1;
    req.charge();
    req.task.log.end();
    if req.task.ws.overflowed() {
        reactor.counters.ws_client_overflow.add(1);
    }
    let mut reason = req.close;
    if reason.is_none() && (req.body.rx.is_none() || !req.body.is_settled()) {
        reason = Some(SessClose::RxBody);
    }
    connection.rx = req.body.rx.take();
    reactor.flush_if_due(req.task.t_prev);
    reactor.give_seat(seat);
    reason
}
