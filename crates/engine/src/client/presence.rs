//! Detects clients that leave while their request waits. The transport reports this ([`ClientTransport::gone`]).

use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::task::Poll;
use std::time::Duration;

use lacquer_http::SessClose;
use lacquer_net::deadlines::Deadline;
use lacquer_net::disconnect::{DisconnectPolicy, HalfClosed, unless};
use lacquer_params::Params;

use super::{Req, Step};
use crate::client_transport::ClientTransport;

/// The time within which a nearby client that is gone rejects a probe byte. Clients are probed only when many
/// requests wait.
const ROUND_TRIP: Duration = Duration::from_millis(20);

/// Runs `work`, which a request waits for. Returns `None` if the client leaves first.
pub async fn while_waiting<F: Future>(
    transport: &ClientTransport,
    params: &Params,
    treatment: HalfClosed,
    work: Pin<&mut F>,
) -> Option<F::Output> {
    unless(work, transport.gone(DisconnectPolicy::of(params), treatment)).await
}

/// Like [`while_waiting`], for work that usually takes milliseconds. The client is watched only from the next time
/// that the deadlines are checked, so short work pays almost nothing for it.
pub async fn while_fetching<F: Future>(
    transport: &ClientTransport,
    params: &Params,
    treatment: HalfClosed,
    later: &Deadline,
    work: Pin<&mut F>,
) -> Option<F::Output> {
    let is_gone = async {
        later.arm(later.now(), 0.0);
        poll_fn(|cx| if later.poll_expired(cx) { Poll::Ready(()) } else { Poll::Pending }).await;
        Box::pin(transport.gone(DisconnectPolicy::of(params), treatment)).await;
    };
    unless(work, is_gone).await
}

/// Returns whether the client is known to be gone. Probes a client that has shut down its sending side.
pub async fn is_gone(req: &Req) -> bool {
    let disconnect = DisconnectPolicy::of(req.task.params());
    let treatment = HalfClosed::of_waiting(req.inclusion.level > 0, true, true);
    let mut gone = pin!(req.client.tx.gone(disconnect, treatment));
    if is_ready(gone.as_mut()).await {
        return true;
    }
    req.client.tx.is_probed() && tokio::time::timeout(ROUND_TRIP, gone).await.is_ok()
}

async fn is_ready(mut future: Pin<&mut impl Future<Output = ()>>) -> bool {
    poll_fn(|cx| Poll::Ready(future.as_mut().poll(cx).is_ready())).await
}

/// Ends a request whose client is gone, in the same way as a stream reset ends a request that runs VCL.
pub fn abandon(req: &mut Req) -> Step {
    if !req.client.is_reset {
        req.task.stamp("Reset");
        req.task.services().counters().req_reset.add(1);
        req.client.is_reset = true;
    }
    req.client.close = Some(SessClose::RemClose);
    Step::VclFail
}
