//! The patience with HTTP/1 clients that may be gone. Checking costs no system call, because the reactor reports when a
//! connection is closed.
//!
//! A client that shuts down its sending side (`nc -N`) looks like one that has closed its connection. Before the
//! response begins, the client is probed with a byte of it, see [`ClientSocket`]. Within a response only its
//! next piece could be a probe. There the client of a pass counts as gone after `half_close_timeout`.

use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::task::Poll;
use std::time::Duration;

use lacquer_params::Params;
use lacquer_sources::clock;

use crate::{ClientSocket, TxHalf};

/// The time between a client's shutdown of its sending side and the first probe. Most responses come earlier.
const FIRST_PAUSE: Duration = Duration::from_millis(200);
/// The treatment of a client that has shut down its sending side, or closed its connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HalfClosed {
    /// Nothing of its response was sent: it is probed, the first time after this pause.
    Ask(Duration),
    /// It counts as gone after `half_close_timeout`.
    Limit,
    /// It is served until its connection breaks.
    Serve,
}

impl HalfClosed {
    /// Returns the treatment of a client whose request waits. Of an included request the page's response has begun.
    /// `private` work ends with its client. If it is `urgent`, the end is noticed at once.
    pub fn of_waiting(is_included: bool, private: bool, urgent: bool) -> HalfClosed {
        match (is_included, private) {
            (false, _) => HalfClosed::Probe(if urgent { Duration::ZERO } else { FIRST_PAUSE }),
            (true, true) => HalfClosed::Limit,
            (true, false) => HalfClosed::Serve,
        }
    }
}

/// The limit after which a client counts as gone.
#[derive(Clone, Copy, Debug)]
pub struct DisconnectPolicy {
    /// Seconds after the client has shut down its sending side; `None` if it is not watched.
    half_closed: Option<f64>,
}

impl DisconnectPolicy {
    pub fn of(params: &Params) -> DisconnectPolicy {
        DisconnectPolicy { half_closed: params.cancel_abandoned.then_some(params.half_close_timeout) }
    }

    /// Returns the seconds after which a client that shut down its sending side counts as gone, if it ever does.
    pub fn half_closed(self) -> Option<f64> {
        self.half_closed
    }

    /// Runs `work` until it is done; returns `None` if the client of this HTTP/1 connection is gone before.
    pub async fn while_connected<T>(
        self,
        tx: &ClientSocket,
        private: bool,
        work: impl Future<Output = T>,
    ) -> Option<T> {
        let treatment = if private { HalfClosed::Limit } else { HalfClosed::Serve };
        unless(pin!(work), self.disconnected(tx, treatment)).await
    }

    /// Waits until the client of this HTTP/1 connection is gone.
    pub async fn disconnected(self, tx: &ClientSocket, treatment: HalfClosed) {
        let Some(seconds) = self.half_closed else { return std::future::pending().await };
        tx.peer_shut_down().await;
        if seconds <= 0.0 {
            return;
        }
        // Boxed: timers are large, and these are rare.
        match treatment {
            HalfClosed::Probe(pause) if seconds.is_finite() => Box::pin(refuses(tx, pause)).await,
            HalfClosed::Limit => {
                let _ = Box::pin(tokio::time::timeout(clock::seconds(seconds), tx.broken())).await;
            }
            HalfClosed::Probe(_) | HalfClosed::Serve => tx.broken().await,
        }
    }
}

/// Probes a client, with short and then longer pauses, until it is gone.
async fn refuses(tx: &ClientSocket, mut pause: Duration) {
    loop {
        if is_broken_within(tx, pause).await {
            return;
        }
        match tx.send_ahead() {
            Ok(true) => pause = FIRST_PAUSE.max(2 * pause),
            Ok(false) => return tx.broken().await,
            Err(_) => return,
        }
    }
}

async fn is_broken_within(tx: &TxHalf, pause: Duration) -> bool {
    !pause.is_zero() && tokio::time::timeout(pause, tx.broken()).await.is_ok()
}

/// Runs `work` until it is done; returns `None` if `end` comes first. `end` is polled only when `work` has to wait. The
/// work comes pinned, because it may be large.
pub async fn unless<F: Future>(mut work: Pin<&mut F>, end: impl Future<Output = ()>) -> Option<F::Output> {
    if let Poll::Ready(done) = poll_fn(|cx| Poll::Ready(work.as_mut().poll(cx))).await {
        return Some(done);
    }
    let mut end = pin!(end);
    // The work was polled a moment ago, with the same waker.
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
