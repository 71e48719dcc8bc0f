//! Requests that arrive before the end of the handshake, as early data (0-RTT, RFC 8470). Somebody may send early data of
//! a client again, so only requests without effects are processed at once; others wait.

use std::io;
use std::task::{Context, Poll};

use lacquer_http::{BodyStatus, SessClose, header_table as h};
use lacquer_sources::clock;

use super::Req;
use crate::client_transport::ClientTransport;
use crate::logged::names::EARLY_DATA;

/// Handles a request of a client whose handshake may be pending. Returns false if the request was rejected.
#[cold]
pub async fn admit(req: &mut Req) -> bool {
    let sess = req.task.sess().clone();
    if !req.client.tx.is_handshaking() {
        sess.handshake().complete();
    } else if !is_safe(req) {
        return complete_handshake(req).await;
    } else if req.request.http.get(req.task.ws(), EARLY_DATA).is_none() {
        let added = req.request.http.append(req.task.ws_mut(), EARLY_DATA, b"1");
        if added.is_err() {
            return complete_handshake(req).await;
        }
        req.client.is_early = true;
    }
    true
}

/// Returns whether a second execution of the request would do no harm.
fn is_safe(req: &Req) -> bool {
    let (http, ws) = (&req.request.http, req.task.ws());
    matches!(http.method(ws), b"GET" | b"HEAD" | b"OPTIONS")
        && req.request.body.status() == BodyStatus::None
        && http.get(ws, h::UPGRADE).is_none()
        && !req.client.is_extended
}

/// Waits for the end of the handshake, for `tls_handshake_timeout` at most. If it does not come, the client is told to
/// repeat the request, and the connection ends.
pub async fn complete_handshake(req: &mut Req) -> bool {
    let is_complete = await_handshake(req).await;
    if !is_complete {
        Box::pin(req.minimal_response(425)).await;
    }
    is_complete
}

/// Waits for the end of the handshake, for `tls_handshake_timeout` at most. If it does not come, the connection ends after
/// the response. Returns whether it has ended.
pub async fn await_handshake(req: &mut Req) -> bool {
    let sess = req.task.sess().clone();
    if !sess.handshake().is_pending() {
        return true;
    }
    let limit = clock::seconds(req.task.params().tls_handshake_timeout);
    let handshaken = std::future::poll_fn(|cx| poll_handshaken(req, cx));
    let reason = match tokio::time::timeout(limit, handshaken).await {
        Ok(Ok(())) => {
            sess.handshake().complete();
            return true;
        }
        Ok(Err(_)) => SessClose::RemClose,
        Err(_) => SessClose::RxTimeout,
    };
    req.log_error("The handshake of early data was not completed");
    req.client.close = Some(reason);
    false
}

fn poll_handshaken(req: &Req, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
    if let ClientTransport::Http1(_) = req.client.tx {
        return req.request.body.poll_handshaken(cx);
    }
    let sess = req.task.sess();
    if !sess.handshake().is_pending() {
        return Poll::Ready(Ok(()));
    }
    if req.client.tx.is_reset() {
        return Poll::Ready(Err(io::ErrorKind::ConnectionReset.into()));
    }
    sess.handshake().register(cx);
    Poll::Pending
}
