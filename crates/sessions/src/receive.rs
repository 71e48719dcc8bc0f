//! Waits for a request on a client's connection, and reads its head.

use std::io;
use std::task::Poll;

use lacquer_engine::{Services, Timeout, TransactionBuffers};
use lacquer_http::h1::{self, HeadScan};
use lacquer_http::{SessClose, Text};
use lacquer_net::Rx;
use lacquer_net::deadlines::{Deadline, Idleness, Moment};
use lacquer_params::Params;
use lacquer_sources::clock;

use crate::connection::Connection;

/// The result of waiting for a request.
pub enum Received {
    Head(Head),
    /// The client's preface of HTTP/2.
    Http2Preface,
    /// The socket was reported readable but had no bytes. This may happen just after accept.
    Nothing,
    Closed(SessClose),
    /// The head exceeds this parameter.
    Overflow(&'static str),
}

/// An unparsed head, and the times of its first and last byte.
pub struct Head {
    pub rx: Text,
    pub first: f64,
    pub complete: f64,
}

/// Waits for the next request without holding memory for it. Returns true if the wait was longer than
/// `timeout_linger`.
pub async fn wait_idle(services: &Services, connection: &mut Connection) -> Result<bool, SessClose> {
    let params = services.params();
    let limit = connection.sess().idle_limit(&params);
    let linger = connection.sess().timeout(Timeout::Linger, &params).min(limit);
    drop(params);
    let since = connection.idle().now();
    if let Some(woken) = readable_until(connection, since, linger, Idleness::Busy).await {
        return woken.map(|()| false);
    }
    let waiter = &services.pool_counters().waiter;
    services.counters().sess_herd.add(1);
    waiter.conns.add(1);
    let woken = readable_until(connection, since, limit, connection.idleness()).await;
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

/// Waits until bytes have arrived. Returns `None` if `seconds` since `since` expire first.
async fn readable_until(
    connection: &Connection,
    since: Moment,
    seconds: f64,
    idleness: Idleness,
) -> Option<Result<(), SessClose>> {
    let Some(rx) = connection.rx() else { return Some(Err(SessClose::RxBody)) };
    connection.idle().arm(since, seconds);
    connection.idle().allow_shedding(idleness);
    let ready = std::future::poll_fn(|cx| match rx.poll_readable(cx) {
        Poll::Pending if connection.idle().poll_expired(cx) => Poll::Ready(None),
        Poll::Pending => Poll::Pending,
        Poll::Ready(Ok(())) => Poll::Ready(Some(Ok(()))),
        Poll::Ready(Err(_)) => Poll::Ready(Some(Err(SessClose::RemClose))),
    });
    let woken = ready.await;
    connection.idle().disarm();
    woken
}

/// Reads until the head is complete, or the connection's deadline expires.
pub async fn receive_head(
    params: &Params,
    connection: &mut Connection,
    memory: &mut TransactionBuffers,
) -> Received {
    let max = (params.http_req_size as usize).min(memory.ws.free_space().saturating_sub(1));
    let idleness = connection.idleness();
    let Some((rx, idle, received)) = connection.receiving() else {
        return Received::Closed(SessClose::RxBody);
    };
    *received = 0;
    let mut have = 0;
    let mut scanned = 0;
    let mut first = f64::NAN;
    loop {
        let Ok(window) = memory.ws.reserve(max) else { return Received::Overflow("workspace_client") };
        if have >= max {
            let is_configured = max == params.http_req_size as usize;
            return Received::Overflow(if is_configured { "http_req_size" } else { "workspace_client" });
        }
        let window = &mut window[have..max];
        let read = if *received == 0 {
            let Some(read) = rx.try_read(window) else { return Received::Nothing };
            read
        } else {
            idle.allow_shedding(idleness);
            read_in_time(rx, idle, window).await
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
        *received = have;
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
            HeadScan::H2Preface => {
                let behind = &memory.ws.reserved(have)[h1::H2_PREFACE.len()..];
                if !behind.is_empty() {
                    rx.unread(behind);
                }
                return Received::Http2Preface;
            }
            HeadScan::Complete => {
                if first.is_nan() {
                    first = now;
                }
                let rx = memory.ws.commit(have);
                return Received::Head(Head { rx, first, complete: now });
            }
        }
    }
}

async fn read_in_time(rx: &mut Rx, idle: &Deadline, buf: &mut [u8]) -> io::Result<usize> {
    std::future::poll_fn(|cx| match rx.poll_read(cx, buf) {
        Poll::Pending if idle.poll_expired(cx) => Poll::Ready(Err(io::ErrorKind::TimedOut.into())),
        polled => polled,
    })
    .await
}
