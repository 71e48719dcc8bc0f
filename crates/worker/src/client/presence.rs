//! Whether a client that waits for its response is still there. Looking costs no system call: the reactor is told
//! when a connection is closed, and an HTTP/2 connection's task when a stream is reset.

use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::task::Poll;

use lacquer_backend::TxHalf;
use lacquer_http::SessClose;
use lacquer_params::Params;

use super::{Req, Step};
use crate::clock;
use crate::deadlines::Deadline;
use crate::wire::Wire;

/// When a client counts as gone.
#[derive(Clone, Copy, Debug)]
pub struct Patience {
    /// Seconds after the client has shut down its sending side; `None` if it is not watched.
    half_closed: Option<f64>,
}

impl Patience {
    pub fn of(params: &Params) -> Patience {
        Patience { half_closed: params.cancel_abandoned.then_some(params.half_close_timeout) }
    }

    /// Returns the seconds after which a client that shut down its sending side counts as gone, if it ever does.
    pub fn half_closed(self) -> Option<f64> {
        self.half_closed
    }

    /// Runs `work` until it is done; returns `None` if the client of this HTTP/1 connection is gone before.
    pub async fn while_connected<T>(self, tx: &TxHalf, work: impl Future<Output = T>) -> Option<T> {
        unless(pin!(work), self.disconnected(tx)).await
    }

    /// Waits until the client is gone.
    async fn gone(self, wire: &Wire) {
        match wire {
            Wire::Socket(tx) => self.disconnected(tx).await,
            Wire::Stream(stream) if self.half_closed.is_some() => stream.gone().await,
            Wire::Stream(_) => std::future::pending().await,
        }
    }

    async fn disconnected(self, tx: &TxHalf) {
        let Some(seconds) = self.half_closed else { return std::future::pending().await };
        tx.peer_shut_down().await;
        if seconds > 0.0 {
            // Timers are large, and this one is rare.
            let _ = Box::pin(tokio::time::timeout(clock::seconds(seconds), tx.broken())).await;
        }
    }
}

/// Runs `work` until it is done; returns `None` if `end` comes first. That is looked at only where `work` has to
/// wait. The work comes pinned, for it may be large.
async fn unless<F: Future>(mut work: Pin<&mut F>, end: impl Future<Output = ()>) -> Option<F::Output> {
    if let Poll::Ready(done) = poll_fn(|cx| Poll::Ready(work.as_mut().poll(cx))).await {
        return Some(done);
    }
    let mut end = pin!(end);
    // The work was polled a moment ago, for the same waker.
    let mut polled = true;
    poll_fn(|cx| {
        if !std::mem::take(&mut polled)
            && let Poll::Ready(done) = work.as_mut().poll(cx)
        {
            return Poll::Ready(Some(done));
        }
        end.as_mut().poll(cx).map(|()| None)
    })
    .await
}

/// Runs what a request waits for; returns `None` if its client is gone first.
pub async fn while_waiting<F: Future>(wire: &Wire, params: &Params, work: Pin<&mut F>) -> Option<F::Output> {
    unless(work, Patience::of(params).gone(wire)).await
}

/// As [`while_waiting`], for what is over within milliseconds as a rule: the client is not looked for before this
/// deadline's next turns, which costs next to nothing.
pub async fn while_fetching<F: Future>(
    wire: &Wire,
    params: &Params,
    later: &Deadline,
    work: Pin<&mut F>,
) -> Option<F::Output> {
    let gone = async {
        later.arm(later.now(), 0.0);
        poll_fn(|cx| if later.poll_expired(cx) { Poll::Ready(()) } else { Poll::Pending }).await;
        Box::pin(Patience::of(params).gone(wire)).await;
    };
    unless(work, gone).await
}

/// Whether the client is known to be gone.
pub async fn is_gone(wire: &Wire, params: &Params) -> bool {
    let mut gone = pin!(Patience::of(params).gone(wire));
    poll_fn(|cx| Poll::Ready(gone.as_mut().poll(cx).is_ready())).await
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
