//! Sends the response to a client of HTTP/1: head and body in as few writes as the kernel allows.

use std::io::ErrorKind;
use std::rc::Rc;

use lacquer_deliver::{SendError, Sink, Source};
use lacquer_flow::delivery::{self, End};
use lacquer_flow::persistence::{self, Sent};
use lacquer_http::{SessClose, h1, header_table as h};
use lacquer_net::ClientSocket;
use lacquer_net::patience::Patience;
use lacquer_shm::Tag;

use super::Req;
use super::deliver::settle_connection;
use super::plan::Plan;
use super::pour::pour_out;
use crate::exit::Exit;
use crate::h1::{BodyFrame, Limits, Sender, write_message};

pub(super) async fn send(req: &mut Req, tx: Rc<ClientSocket>, source: &Source, plan: Plan, send_body: bool) {
    settle_connection(req);
    let frame = match delivery::end(send_body, plan.length, req.request.http.version()) {
        End::Length => BodyFrame::Plain,
        End::Chunked => {
            req.resp_headers().add(h::TRANSFER_ENCODING, b"chunked");
            BodyFrame::Chunked
        }
        End::Close => {
            req.client.close = Some(SessClose::TxEof);
            BodyFrame::Plain
        }
    };
    if req.task.ws.overflowed() {
        return Box::pin(internal_error(req, &tx, "workspace_client overflow")).await;
    }
    if let Some(which) = crate::emulated::workspaces::exhausted(&mut req.task) {
        return Box::pin(internal_error(req, &tx, &format!("{which} overflow"))).await;
    }
    req.client.out.clear();
    let head_len = h1::write_response_head(&req.response.http, &req.task.ws, &mut req.client.out);
    req.client.account.resp_header += head_len as u64;
    let limits = Limits {
        total: req.task.sess.timeouts.send.get(req.task.params.send_timeout),
        idle: req.task.sess.send_idle_limit(&req.task.params),
        patience: Patience::of(&req.task.params),
    };
    let head = std::mem::take(&mut req.client.out);
    let wanted = plan.length.filter(|_| plan.ranged);
    let mut sender = Sender::new(tx, head, frame, limits);
    let result = if !send_body {
        sender.flush().await
    } else if plan.is_poured() {
        let (exit, sent) = Box::pin(pour_out(req, source, plan, Exit::Http1(sender))).await;
        let Some(Exit::Http1(back)) = exit else { return };
        sender = back;
        sent
    } else {
        source.send(&mut sender, plan.from, plan.to).await
    };
    let sent = sender.body_bytes();
    if send_body {
        req.task.log_sent("V1B", sender.pieces(), sent);
    }
    req.client.account.resp_body += sent;
    if let Some(limit) = sender.limit_hit() {
        req.log_error(&format!("Hit {limit}"));
    }
    req.client.out = sender.into_head();
    let short = send_body && wanted.is_some_and(|n| sent < n);
    settle_failure(req, result, short, head_len);
}

fn settle_failure(req: &mut Req, result: Result<(), SendError>, short: bool, head_len: usize) {
    let sent = match result {
        Ok(()) | Err(SendError::Enough) => Sent::Whole,
        Err(SendError::Source) => Sent::SourceFailed,
        Err(SendError::Filter | SendError::Include) => Sent::PipelineFailed,
        Err(SendError::Io(e)) => {
            let why = e.raw_os_error().map_or_else(|| e.to_string(), lacquer_system::error_text);
            let text = format_args!("Write error, retval = -1, len = {head_len}, errno = {why}");
            req.task.log.put_fmt(Tag::Debug, text);
            let gone = matches!(e.kind(), ErrorKind::BrokenPipe | ErrorKind::ConnectionReset);
            if gone { Sent::ClientGone } else { Sent::ConnectionFailed }
        }
    };
    if let Some(reason) = persistence::after_sending(sent, short) {
        req.fail_session(reason);
    }
}

async fn internal_error(req: &mut Req, tx: &ClientSocket, why: &str) {
    const TEXT: &[u8] = b"HTTP/1.1 500 Internal Server Error\r\nServer: Varnish\r\nConnection: close\r\n\r\n";
    let log = &mut req.task.log;
    log.put(Tag::Error, why.as_bytes());
    log.put(Tag::RespProtocol, b"HTTP/1.1");
    log.put(Tag::RespStatus, b"500");
    log.put(Tag::RespReason, b"Internal Server Error");
    req.task.services.counters().client_resp_500.add(1);
    let _ = write_message(tx, TEXT, req.task.sess.send_idle_limit(&req.task.params)).await;
    req.client.close = Some(SessClose::TxEof);
}

/// Sends a response that has no body and did not come from VCL. Returns false if the client is gone.
pub(super) async fn minimal(req: &mut Req, tx: &ClientSocket, status: u16) -> bool {
    req.log_minimal("HTTP/1.1", status);
    let text = format!("HTTP/1.1 {status:03} {}\r\n\r\n", lacquer_http::reason_of(status));
    let idle = req.task.sess.send_idle_limit(&req.task.params);
    let sent = write_message(tx, text.as_bytes(), idle).await.is_ok();
    if sent {
        req.client.account.resp_header += text.len() as u64;
    } else if req.client.close.is_none() {
        req.client.close = Some(SessClose::RemClose);
    }
    sent
}
