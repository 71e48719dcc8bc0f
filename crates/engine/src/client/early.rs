//! Requests that arrive before the end of the handshake, as early data (0-RTT, RFC 8470). Somebody may send early data of
//! a client again, so only requests without effects are processed at once; others wait.

use lacquer_http::{BodyStatus, header_table as h};

use super::Req;
use super::handshake::await_handshake;
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
