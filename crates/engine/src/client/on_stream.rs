//! Sends a response to an HTTP/2 stream: the head as a header block, the body in DATA frames.

use std::rc::Rc;

use lacquer_deliver::{SendError, Source};
use lacquer_h2::{Error, Reason, frame, response};
use lacquer_http::{SessClose, h1};
use lacquer_shm::Tag;
use lacquer_sources::clock::{self, Instant};

use super::Req;
use super::pipeline::send_through_pipeline;
use super::plan::Plan;
use crate::client_sink::ClientSink;
use crate::h2::{SendLimits, Stream, StreamSender};

pub(super) async fn send(
    req: &mut Req,
    stream: Rc<Stream>,
    source: &Source,
    plan: Plan,
    mut send_body: bool,
) {
    req.task.log.put(Tag::RespProtocol, b"HTTP/2.0");
    let _ = h1::decide_connection(&mut req.response.http, &mut req.task.ws, SessClose::RespClose);
    let mut block = std::mem::take(&mut req.client.out);
    block.clear();
    if !write_head(req, &mut block) {
        send_body = false;
    }
    let params = &req.task.params;
    let total = req.task.sess.timeouts.send.get(params.send_timeout);
    if total > 0.0 {
        let left = req.task.times.last + total - clock::real();
        stream.send_by.set(Some(Instant::now() + clock::seconds(left.max(0.0))));
    }
    let limits = stream.limits(params);
    if send_head(&stream, &block, !send_body, limits).await.is_ok() {
        req.client.account.resp_header += block.len() as u64;
        if send_body {
            send_all(req, stream, source, plan, limits).await;
        }
    }
    req.client.out = block;
}

/// Writes the header block. Returns false if the workspace was too small and the block is an error response without a
/// body.
fn write_head(req: &mut Req, block: &mut Vec<u8>) -> bool {
    if req.task.log.is_masked(Tag::Debug) {
        response::write(block, &req.response.http, &req.task.ws, None);
    } else {
        let log = &mut req.task.log;
        let mut debug = |text: String| log.put(Tag::Debug, text.as_bytes());
        response::write(block, &req.response.http, &req.task.ws, Some(&mut debug));
    }
    // The block is not in the workspace, but Varnish's is. The check gives a configured workspace size the same
    // effect as in Varnish.
    if req.task.ws.free_space() < block.len() {
        req.task.ws.set_overflowed();
    }
    let exhausted = match crate::emulated::workspaces::exhausted(&mut req.task) {
        _ if req.task.ws.overflowed() => Some("workspace_client"),
        other => other,
    };
    if let Some(which) = exhausted {
        req.log_error(&format!("{which} overflow"));
        req.task.log.put(Tag::RespStatus, b"500");
        req.task.log.put(Tag::RespReason, b"Internal Server Error");
        req.task.services.counters().client_resp_500.add(1);
        block.clear();
        block.extend_from_slice(response::OUT_OF_WORKSPACE);
        return false;
    }
    true
}

/// Sends a header block. With `end`, it also ends the stream.
async fn send_head(stream: &Stream, block: &[u8], end: bool, limits: SendLimits) -> Result<(), ()> {
    let conn = &stream.conn;
    conn.room(stream.id, limits).await?;
    if stream.error().is_some() {
        return Err(());
    }
    if end {
        stream.uncount_open();
    }
    let max = conn.max_frame();
    conn.queue(|out| {
        frame::write_headers(out, stream.id, end, max, |out| out.extend_from_slice(block));
    });
    Ok(())
}

async fn send_all(req: &mut Req, stream: Rc<Stream>, source: &Source, plan: Plan, limits: SendLimits) {
    let wanted = plan.length.filter(|_| plan.ranged);
    let mut sender = StreamSender::new(stream.clone(), limits);
    let result = if plan.needs_pipeline() {
        let (sink, sent) =
            Box::pin(send_through_pipeline(req, source, plan, ClientSink::Http2(sender))).await;
        let Some(ClientSink::Http2(back)) = sink else { return };
        sender = back;
        sent
    } else {
        source.send(&mut sender, plan.from, plan.to).await
    };
    let sent = sender.body_bytes();
    req.task.log_sent("H2B", sender.pieces(), sent);
    req.client.account.resp_body += sent;
    let short = wanted.is_some_and(|n| sent < n);
    match result {
        Err(SendError::Io(_)) => {
            if let Some(limit) = stream.limit_hit() {
                req.log_error(&format!("Hit {limit}"));
            }
        }
        Ok(()) | Err(SendError::Enough) if short => req.fail_session(SessClose::RangeShort),
        Ok(()) | Err(SendError::Enough) => {}
        Err(SendError::Source | SendError::Filter | SendError::Include) => {
            if stream.error().is_none() {
                stream.reset(Error::Stream(Reason::InternalError));
            }
        }
    }
}

/// Sends a response that has no body and does not come from VCL. Returns false if the stream is gone.
pub(super) async fn minimal(req: &mut Req, stream: &Stream, status: u16) -> bool {
    req.log_minimal("HTTP/2.0", status);
    let mut block = Vec::new();
    response::write_status(&mut block, status);
    let limits = stream.limits(&req.task.params);
    send_head(stream, &block, status >= 200, limits).await.is_ok()
}
