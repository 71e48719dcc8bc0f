//! Whether the client that a request waits with is still there: what tells is the reactor for a connection
//! ([`crate::patience`]), and an HTTP/2 connection's task for a stream that was reset.

use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::task::Poll;
use std::time::Duration;

use lacquer_http::SessClose;
use lacquer_params::Params;

use super::{Req, Step};
use crate::client_transport::ClientTransport;
use crate::deadlines::Deadline;
use crate::patience::{FIRST_PAUSE, HalfClosed, Patience, unless};

/// A client that is asked for room's sake refuses within this time, if it is near.
const ROUND_TRIP: Duration = Duration::from_millis(20);

impl HalfClosed {
    /// Returns how the client of this request is treated while it waits. `private` work ends with its client, and
    /// where it is `urgent` that is to be known at once.
    pub fn of(req: &Req, private: bool, urgent: bool) -> HalfClosed {
        match (req.esi_level, private) {
            (0, _) => HalfClosed::Ask(if urgent { Duration::ZERO } else { FIRST_PAUSE }),
            // The page that includes it has begun.
            (_, true) => HalfClosed::Limit,
            (_, false) => HalfClosed::Serve,
        }
    }
}

/// Waits until the client is gone.
async fn gone(patience: Patience, transport: &ClientTransport, treatment: HalfClosed) {
    match transport {
        ClientTransport::Socket(tx) => patience.disconnected(tx, treatment).await,
        ClientTransport::Stream(stream) if patience.half_closed().is_some() => stream.gone().await,
        ClientTransport::Stream(_) => std::future::pending().await,
    }
}

/// Runs what a request waits for; returns `None` if its client is gone first.
pub async fn while_waiting<F: Future>(
    transport: &ClientTransport,
    params: &Params,
    treatment: HalfClosed,
    work: Pin<&mut F>,
) -> Option<F::Output> {
    unless(work, gone(Patience::of(params), transport, treatment)).await
}

/// As [`while_waiting`], for what is over within milliseconds as a rule: the client is not looked for before this
/// deadline's next turns, which costs next to nothing.
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
        Box::pin(gone(Patience::of(params), transport, treatment)).await;
    };
    unless(work, is_gone).await
}

/// Returns whether the client is known to be gone. One that has shut down its sending side is asked.
pub async fn is_gone(req: &Req) -> bool {
    let patience = Patience::of(&req.task.params);
    let treatment = HalfClosed::of(req, true, true);
    let mut gone = pin!(gone(patience, &req.tx, treatment));
    if is_ready(gone.as_mut()).await {
        return true;
    }
    let ClientTransport::Socket(tx) = &req.tx else { return false };
    tx.is_ahead() && tokio::time::timeout(ROUND_TRIP, gone).await.is_ok()
}

async fn is_ready(mut future: Pin<&mut impl Future<Output = ()>>) -> bool {
    poll_fn(|cx| Poll::Ready(future.as_mut().poll(cx).is_ready())).await
}

/// Ends a request whose client is gone, as the reset of a stream ends one that runs VCL.
pub fn abandon(req: &mut Req) -> Step {
    if !req.reset {
        req.task.stamp("Reset");
        req.task.reactor.counters.req_reset.add(1);
        req.reset = true;
    }
    req.close = Some(SessClose::RemClose);
    Step::VclFail
}
