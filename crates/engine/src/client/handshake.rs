//! Waits for the handshake of a client that has sent early data.

use std::io;
use std::task::{Context, Poll};

use lacquer_http::SessClose;
use lacquer_sources::clock;

use super::Req;
use crate::client_transport::ClientTransport;
use crate::logged::names::EARLY_DATA;

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

/// Waits for the end of the handshake of an early request, before it includes others: their origins could refuse early
/// data, and the rest of the response would wait for them in any case. Returns whether it has ended.
#[cold]
pub async fn leave_early_data(req: &mut Req) -> bool {
    let is_complete = await_handshake(req).await;
    if is_complete {
        req.client.is_early = false;
        req.request.original.unset(req.task.ws(), EARLY_DATA, |_| ());
    }
    is_complete
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
